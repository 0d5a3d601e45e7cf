"""Every name in a rendered object is that of an object that is rendered with it, or of one that the values say is
there, for all sets of values, as YAML, as a kustomization and as a chart. The latter need the programs of `make kube`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import test_manifest_operator_files as files
import yaml
from references import Outside, dangling
from value_sets import SETS

from kubeshard.core.patches import apply_merge_patch
from kubeshard.manifests.kustomization import COMPONENTS
from kubeshard.manifests.operator import operator_objects
from kubeshard.manifests.operator_files import operator_chart, operator_kustomization
from kubeshard.manifests.sharder import sharder_objects
from kubeshard.manifests.template import Chosen, pieces
from kubeshard.manifests.values import OperatorValues, SharderValues, chosen
from kubeshard.sharder.webhook_config import SECRET_NAME
from kubeshard_apiserver.testing.assets import find_assets
from kubeshard_lab.examples.checksum import operator as checksum

Values = Mapping[str, Any]

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
UNLIKE: Values = {"namespace": "space", "serviceAccount": {"name": "somebody"}}
"""No name is that of something else."""
TARGETS = {**files.OPERATORS, "checksum": checksum.manager}
OPERATORS = [
    *((operator, name, values) for operator, name, values in files.CASES),
    ("checksum", "ring", files.RING),
]


def variants(values: Values) -> list[Values]:
    own = {key: each for key, each in UNLIKE.items() if key not in values}
    return [values, {**values, **own}]


def around(values: Values, name: str, namespace: str = "") -> Outside:
    """What the values say is there."""
    ring, account = values.get("ring", {}), values.get("serviceAccount", {})
    namespace = namespace or values.get("namespace", name)
    mounted = [
        *(each["configMap"]["name"] for each in values.get("extraVolumes", ()) if "configMap" in each),
        SECRET_NAME,  # the sharder makes it
    ]
    accounts = [(ring.get("sharderNamespace", "sharding-system"), ring.get("sharderName", "sharder"))]
    if not account.get("create", True):
        accounts.append((namespace, account.get("name") or name))
    named = [] if values.get("createNamespace", True) else [namespace]
    extra = [each["metadata"].get("namespace", "") for each in values.get("extraObjects", ())]
    return Outside(
        accounts=accounts,
        namespaces=[*named, *extra, *values.get("watchNamespaces", ()), "default"],
        mounted=mounted,
    )


@pytest.fixture(scope="module")
def programs() -> Path:
    return find_assets(["helm", "kubectl"])


def found(text: str) -> Iterable[Any]:
    return [each for each in yaml.safe_load_all(text) if each]


@pytest.mark.parametrize(
    ("operator", "values"),
    [(operator, each) for operator, _, values in OPERATORS for each in variants(values)],
)
def test_every_name_in_what_is_printed_of_an_operator_is_one_of_its_objects(
    operator: str, values: Values
) -> None:
    given = chosen(OperatorValues, {"image": files.IMAGE, **values})
    objects = operator_objects(TARGETS[operator](), "my_pages:manager", "operator", given)
    assert dangling(objects, around(values, "operator")) == []


@pytest.mark.parametrize("values", [each for values in SETS.values() for each in variants(values)])
def test_every_name_in_what_is_printed_of_the_sharder_is_one_of_its_objects(values: Values) -> None:
    objects = sharder_objects(chosen(SharderValues, values))
    assert dangling(objects, around({"namespace": "sharding-system", **values}, "sharder")) == []


def test_a_name_of_nothing_is_found() -> None:
    """Otherwise the tests above would show nothing."""
    given = chosen(OperatorValues, {"image": files.IMAGE, **files.RING, "networkPolicy": {"enabled": True}})
    text = json.dumps(operator_objects(checksum.manager(), "my_pages:manager", "operator", given))
    for said, instead in (
        ("system:serviceaccount:elsewhere:somebody", "system:serviceaccount:operatorspace:somebody"),
        ('"serviceAccountName": "somebody"', '"serviceAccountName": "operator"'),
        ('"namespace": "elsewhere"', '"namespace": "other"'),
        (
            '"subjects": [{"kind": "ServiceAccount", "namespace": "a"',
            '"subjects": [{"kind": "ServiceAccount", "namespace": "b"',
        ),
        ('"policyName": "sharding-checksum-controller-fence"', '"policyName": "fence"'),
        ("shard.alpha.sharding.timebertt.dev/checksum-controller", "shard.alpha.sharding.timebertt.dev/ring"),
        ('"targetPort": "metrics"', '"targetPort": "pages"'),
    ):
        assert said in text
        wrong = text.replace(said, instead, 1)
        assert dangling(json.loads(wrong), around(files.RING, "operator")), instead


def test_no_mark_of_a_place_is_part_of_another_or_of_two_that_meet() -> None:
    places = [Chosen(each) for each in ("name", "names", "namespace", "space", "chosen", "kubeshard", "a")]
    for one, two, between in product(places, places, ("", "-", ":")):
        assert pieces(f"{one}{between}{two}") == [one, *filter(None, [between]), two]


@pytest.mark.kube
@pytest.mark.parametrize("operator", TARGETS)
def test_every_name_in_a_chart_or_kustomization_of_an_operator_is_one_of_its_objects(
    operator: str, programs: Path, tmp_path: Path
) -> None:
    plain = chosen(OperatorValues, {"image": files.IMAGE})
    made = files.written(
        operator_chart(TARGETS[operator](), "my_pages:manager", "pages", plain), tmp_path / "chart"
    )
    helm = (programs / "helm", "template", "blue", made)
    for target, _, original in OPERATORS:
        for number, values in enumerate(variants(original) if target == operator else []):
            place = values.get("namespace", "elsewhere")
            file = files.chart_values(values, tmp_path / "values.yaml")
            text = files.run(*helm, "--namespace", place, "--values", file)
            there = around({**values, "namespace": place, "createNamespace": False}, "blue-pages")
            assert dangling(found(text), there) == [], values
            given = chosen(OperatorValues, {"image": files.IMAGE, **values})
            folder = files.written(
                operator_kustomization(TARGETS[operator](), "my_pages:manager", "pages", given),
                tmp_path / f"kustomization-{number}-{len(json.dumps(values))}",
            )
            text = files.run(programs / "kubectl", "kustomize", folder)
            assert dangling(found(text), around(values, "pages")) == [], values


@pytest.mark.kube
@pytest.mark.parametrize("values", [each for values in SETS.values() for each in variants(values)])
def test_every_name_in_the_chart_of_the_sharder_is_one_of_its_objects(
    values: Values, programs: Path, tmp_path: Path
) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(json.dumps(values))
    text = files.run(programs / "helm", "template", "sharder", DEPLOY / "helm", "--values", file)
    there = around({"namespace": "sharding-system", **values}, "sharder")
    assert dangling(found(text), there) == []


@pytest.mark.kube
def test_every_name_in_the_kustomizations_of_the_sharder_is_one_of_its_objects(
    programs: Path, tmp_path: Path
) -> None:
    """With every component, in another namespace."""
    for room in ("sharder", "components"):
        (tmp_path / room).symlink_to(DEPLOY / "kustomize" / room)
    kustomize = (programs / "kubectl", "kustomize", "--load-restrictor=LoadRestrictionsNone")
    for name, setting in COMPONENTS.items():
        for namespace in ("sharding-system", "elsewhere"):
            moved, switched = tmp_path / "moved", tmp_path / "switched"
            for folder, layer in (
                (moved, {"resources": ["../sharder"], "namespace": namespace}),
                (switched, {"resources": ["../moved"], "components": [f"../components/{name}"]}),
            ):
                folder.mkdir(exist_ok=True)
                (folder / "kustomization.yaml").write_text(json.dumps(layer))
            objects = list(found(files.run(*kustomize, switched)))
            for obj in objects:
                if "AdmissionPolicy" in obj["kind"]:
                    obj["metadata"].pop("namespace", None)
            values = apply_merge_patch(
                {"namespace": namespace}, {"createNamespace": setting != "createNamespace=false"}
            )
            assert dangling(objects, around(values, "sharder")) == [], (name, namespace)
