"""kubectl reads the YAML that we write as what it was made from, whatever the texts and keys are."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Iterator

import pytest

from kubeshard import KubeObject, Struct, field
from kubeshard.core.yaml_output import as_yaml
from kubeshard.crd import definition
from kubeshard_apiserver.testing import ControlPlane
from puzzling_texts import PUZZLING

ALPHABETS = (
    "0123456789eE_.:+-",
    "01xXoObBeEaAfF",
    "yYnNeEsSoOfFtTrRuUlL",
    " \n\t'\"|>&*!%@`?,[]{}#:-a",
    string.printable,
    "aé\xa0\x85\u2028\u2029\ufeff😀日\u200b\x01\x1f\x7f",
)
BATCHES = 10
SIZE = 400


def texts(seed: int) -> Iterator[str]:
    drawn = random.Random(seed)
    for _ in range(SIZE):
        letters = drawn.choice(ALPHABETS)
        yield "".join(drawn.choice(letters) for _ in range(drawn.randint(0, 9)))


@pytest.mark.kube
@pytest.mark.parametrize("seed", range(BATCHES))
def test_kubectl_reads_every_text_and_key_as_it_was(kube_control_plane: ControlPlane, seed: int) -> None:
    found = [*PUZZLING, "x" * 2000, *texts(seed)]
    wanted = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "default"},
        "data": {text: text for text in found},
        "lists": [found, [{text: [text]} for text in found], [0, -1, 1.5, 1e16, 2**62, True, False]],
    }
    read = kube_control_plane.kubectl(
        *("create", "--dry-run=client", "--validate=false", "-o", "json", "-f", "-"), input=as_yaml(wanted)
    )
    assert json.loads(read) == wanted


class PointSpec(Struct):
    x: int = 0
    y: int = 0


class Point(KubeObject, group="points.example.com", version="v1"):
    spec: PointSpec = field(default_factory=PointSpec)


@pytest.mark.kube
def test_a_field_named_y_keeps_its_name_in_a_definition(kube_control_plane: ControlPlane) -> None:
    made = as_yaml(definition(Point))
    read = kube_control_plane.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", input=made)
    schema = json.loads(read)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert schema["properties"]["spec"]["properties"].keys() == {"x", "y"}
