"""Helm, kustomize and `kubeshard manifests` produce the same objects. Needs the programs of `make kube`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from value_sets import SETS, Values

from kubeshard.core.patches import apply_merge_patch
from kubeshard.core.yaml_output import as_yaml
from kubeshard.manifests.kustomization import COMPONENTS, component, identity
from kubeshard.manifests.sharder import sharder_objects
from kubeshard.manifests.values import SharderValues, chosen
from kubeshard_apiserver.testing.assets import find_assets

pytestmark = pytest.mark.kube

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"

ELSEWHERE: Values = {"namespace": "elsewhere", "certManager": {"enabled": True}}

INSIDE_OUT = ("network-policy", "service-monitor", "cert-manager", "pod-reports")
"""Components that add objects."""


@pytest.fixture(scope="module")
def programs() -> Path:
    return find_assets(["helm", "kubectl"])


def by_identity(objects: Iterable[Any]) -> dict[Any, Any]:
    found = list(objects)
    made = {identity(obj): obj for obj in found}
    assert len(made) == len(found)
    return made


def printed(values: Values) -> dict[Any, Any]:
    return by_identity(sharder_objects(chosen(SharderValues, values)))


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("values", [*SETS.values(), ELSEWHERE], ids=[*SETS, "elsewhere"])
def test_helm_makes_the_objects_that_are_printed(values: Values, programs: Path, tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(json.dumps(values))
    text = run(programs / "helm", "template", "sharder", DEPLOY / "helm", "--values", file)
    assert by_identity(each for each in yaml.safe_load_all(text) if each) == printed(values)


@pytest.mark.parametrize("values", SETS.values(), ids=SETS)
def test_kustomize_makes_the_objects_that_are_printed(values: Values, programs: Path, tmp_path: Path) -> None:
    """Uses the existing components, and patches for values without one."""
    switched: Values = {}
    names = []
    for name, setting in COMPONENTS.items():
        switch = chosen(SharderValues, None, [setting])
        key, _, _ = setting.partition(".")
        key = key.partition("=")[0]
        if key in values and chosen(SharderValues, {key: values[key]}) == switch:
            switched = apply_merge_patch(switched, {key: values[key]})
            names.append(name)
    (tmp_path / "rest").mkdir()
    if printed(switched) != printed(values):
        for path, text in component(printed(switched).values(), printed(values).values()).items():
            (tmp_path / "rest" / path).write_text(text)
    for room in ("sharder", "components"):
        (tmp_path / room).symlink_to(DEPLOY / "kustomize" / room)
    overlay = {
        "resources": ["sharder"],
        "components": [
            *(f"components/{name}" for name in names),
            *(["rest"] if any((tmp_path / "rest").iterdir()) else ()),
        ],
    }
    (tmp_path / "kustomization.yaml").write_text(as_yaml(overlay))
    text = run(programs / "kubectl", "kustomize", "--load-restrictor=LoadRestrictionsNone", tmp_path)
    assert by_identity(yaml.safe_load_all(text)) == printed(values)


@pytest.mark.parametrize(
    ("components", "values"),
    [
        ((), {}),
        (
            INSIDE_OUT,
            {
                "networkPolicy": {"enabled": True},
                "serviceMonitor": {"enabled": True},
                "certManager": {"enabled": True},
                "podReports": {"enabled": True},
            },
        ),
        (("service-monitor",), {"serviceMonitor": {"enabled": True}}),
        (
            ("without-policies", "without-namespace"),
            {"policies": {"enabled": False}, "createNamespace": False},
        ),
    ],
    ids=("plain", "added", "monitored", "without"),
)
def test_kustomize_moves_everything_to_another_namespace(
    components: tuple[str, ...], values: Values, programs: Path, tmp_path: Path
) -> None:
    """Nothing mentions the default namespace: otherwise a policy would protect the wrong account, say."""
    for room in ("sharder", "components"):
        (tmp_path / room).symlink_to(DEPLOY / "kustomize" / room)
    layers = {
        "moved": {"resources": ["../sharder"], "namespace": "elsewhere"},
        "switched": {
            "resources": ["../moved"],
            "components": [f"../components/{name}" for name in components],
        },
    }
    for name, layer in layers.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "kustomization.yaml").write_text(as_yaml(layer))
    command = [programs / "kubectl", "kustomize", "--load-restrictor=LoadRestrictionsNone"]
    text = run(*command, tmp_path / "switched")
    made = list(yaml.safe_load_all(text))
    for obj in made:
        if "AdmissionPolicy" in obj["kind"]:
            del obj["metadata"]["namespace"]  # kustomize takes them for namespaced; API servers ignore it
    assert by_identity(made) == printed({"namespace": "elsewhere", **values})
    assert "sharding-system" not in text


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("replicas=0", "replicas"),
        ("logLevel=loud", "logLevel"),
        ("replica=3", "replica"),
        ("resources.limits.memory=much", "memory"),
        ("config.metrics=null", "config"),
        ("config.nonsense=1", "nonsense"),
        ("config.webhook.server.nonsense=1", "nonsense"),
        ("config.webhook.config.namespaceSelector.matchExpressions[0].nonsense=1", "nonsense"),
        ("config.controller.sharder.syncPeriod=soon", "syncPeriod"),
        ("config.controller.sharder.concurrentMoves=none", "concurrentMoves"),
    ],
)
def test_helm_refuses_what_is_refused_here(setting: str, says: str, programs: Path) -> None:
    command = [programs / "helm", "template", "sharder", DEPLOY / "helm", "--set", setting]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert says in done.stderr


def test_the_chart_is_one_that_helm_finds_nothing_wrong_with(programs: Path) -> None:
    assert "0 chart(s) failed" in run(programs / "helm", "lint", "--strict", DEPLOY / "helm")
