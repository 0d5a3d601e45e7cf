"""The chart and the kustomization of an operator render the objects that are printed. Needs the programs of `make kube`
except where it says nothing of them.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from test_manifest_operator import Page, Sheet, down, manager, reconcile, titled, up

from kubeshard import Controller, LeaderElection, Manager
from kubeshard.cli.manifests import manifests
from kubeshard.examples import webhosting
from kubeshard.manifests.kustomization import identity
from kubeshard.manifests.operator import operator_objects
from kubeshard.manifests.operator_files import operator_chart, operator_kustomization
from kubeshard.manifests.values import OperatorValues, chosen
from kubeshard.testing.assets import find_assets
from kubeshard.webhook import Webhooks


def converting() -> Manager:
    """With webhooks, and a conversion, whose definition has the operator's namespace."""
    pages = Controller(name="pages", reconciler=reconcile, primary=Page)
    sheets = Controller(name="sheets", reconciler=reconcile, primary=Sheet)  # type: ignore[arg-type]
    webhooks = Webhooks("pages", [titled, up, down])
    return Manager([pages, sheets], servers=[webhooks], leader_election=LeaderElection(name="pages"))


OPERATORS = {"plain": manager, "converting": converting, "sharded": webhosting.operator.manager}
IMAGE = "example.com/pages:v1"
SETS: Mapping[str, Mapping[str, Any]] = {
    "defaults": {},
    "switched": {
        "createNamespace": False,
        "networkPolicy": {"enabled": True, "controlPlane": [{"ipBlock": {"cidr": "10.0.0.0/28"}}]},
        "serviceMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
        "dashboards": {"enabled": True, "annotations": {"folder": "operators"}},
        "crds": {"keep": False},
    },
    "confined": {
        "namespace": "elsewhere",
        "watchNamespaces": ["one", "two"],
        "serviceAccount": {"name": "somebody", "annotations": {"a/b": "c"}},
    },
    "placed": {
        "image": "mirror.example.com/pages@sha256:" + "0" * 64,
        "imagePullSecrets": [{"name": "mirror"}],
        "imagePullPolicy": "Always",
        "logLevel": "debug",
        "resources": {"requests": {"cpu": "1"}},
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"key": "system", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}},
        "priorityClassName": "high",
        "podLabels": {"team": "web"},
        "podAnnotations": {"note": "{{ braces }}"},
        "extraEnv": [{"name": "MODE", "value": "fast"}],
        "extraVolumes": [{"name": "tmp", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
        "serviceAccount": {"create": False},
    },
}
RING: Mapping[str, Any] = {
    "namespace": "elsewhere",
    "replicas": 3,
    "ring": {"enabled": True, "policies": True, "sharderNamespace": "a", "sharderName": "b"},
    "serviceAccount": {"name": "somebody"},
}


@pytest.fixture(scope="module")
def programs() -> Path:
    return find_assets(["helm", "kubectl"])


def by_identity(objects: Iterable[Any]) -> dict[Any, Any]:
    found = [each for each in objects if each]
    made = {identity(each): each for each in found}
    assert len(made) == len(found)
    return made


def written(files: Mapping[str, str], folder: Path) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def printed(operator: str, values: Mapping[str, Any]) -> dict[Any, Any]:
    made = chosen(OperatorValues, {"image": IMAGE, **values})
    return by_identity(operator_objects(OPERATORS[operator](), "my_pages:manager", "pages", made))


def chart(operator: str, folder: Path, values: Mapping[str, Any] | None = None) -> Path:
    made = chosen(OperatorValues, {"image": IMAGE, **(values or {})})
    return written(operator_chart(OPERATORS[operator](), "my_pages:manager", "pages", made), folder)


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


CASES = [
    *((operator, name, values) for operator in OPERATORS for name, values in SETS.items()),
    ("sharded", "ring", RING),
    ("sharded", "ring without policies", {"ring": {"enabled": True}}),
]


@pytest.mark.kube
@pytest.mark.parametrize("operator", OPERATORS)
def test_helm_makes_of_every_value_what_is_printed(operator: str, programs: Path, tmp_path: Path) -> None:
    made = chart(operator, tmp_path / "chart")
    assert "0 chart(s) failed" in run(programs / "helm", "lint", "--strict", made)
    for each, name, values in CASES:
        if each == operator:
            file = tmp_path / "values.yaml"
            file.write_text(json.dumps(values))
            text = run(programs / "helm", "template", "pages", made, "--values", file)
            assert by_identity(yaml.safe_load_all(text)) == printed(operator, values), name


@pytest.mark.kube
def test_the_values_with_which_a_chart_is_made_are_its_defaults(programs: Path, tmp_path: Path) -> None:
    text = run(programs / "helm", "template", "pages", chart("sharded", tmp_path, RING))
    assert by_identity(yaml.safe_load_all(text)) == printed("sharded", RING)


@pytest.mark.kube
@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("replicas=2", "replicas"),  # the operator takes no turns
        ("ring.enabled=true", "ring"),  # it declares none
        ("nodeselector.a=b", "nodeselector"),
        ("image=", "image"),
        ("watchNamespaces={A_B}", "watchNamespaces"),
    ],
)
def test_the_chart_refuses_what_the_operator_cannot_do(
    setting: str, says: str, programs: Path, tmp_path: Path
) -> None:
    command = [programs / "helm", "template", "pages", chart("plain", tmp_path), "--set", setting]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert says in done.stderr


@pytest.mark.kube
def test_kustomize_makes_what_is_printed(programs: Path, tmp_path: Path) -> None:
    made = chosen(OperatorValues, {"image": IMAGE, **RING})
    files = operator_kustomization(OPERATORS["sharded"](), "my_pages:manager", "pages", made)
    text = run(programs / "kubectl", "kustomize", written(files, tmp_path))
    assert by_identity(yaml.safe_load_all(text)) == printed("sharded", RING)


def test_an_operator_in_some_namespaces_has_rights_in_these_only() -> None:
    found = printed("plain", {"watchNamespaces": ["one", "two"]})
    assert {(kind, place) for _, kind, place, _ in found if kind in ("Role", "ClusterRole")} == {
        ("Role", "one"),
        ("Role", "two"),
    }
    (pod,) = (each["spec"]["template"]["spec"] for each in found.values() if each["kind"] == "Deployment")
    assert {"name": "WATCH_NAMESPACE", "value": "one,two"} in pod["containers"][0]["env"]


def test_a_manager_is_as_before_when_its_manifests_are_made() -> None:
    made = manager()
    before = list(made.grants())
    operator_objects(made, "my_pages:manager", "pages", chosen(OperatorValues, {"image": IMAGE}))
    assert list(made.grants()) == before


def test_what_a_chart_no_longer_has_is_removed_and_files_of_others_stay(tmp_path: Path) -> None:
    target = ["kubeshard.examples.checksum.operator", "--set", f"image={IMAGE}", "--folder", str(tmp_path)]
    command = ["operator", *target, "--format", "kustomize"]
    done = CliRunner().invoke(manifests, [*command, "--set", "ring.enabled=true"], catch_exceptions=False)
    assert done.exit_code == 0
    (tmp_path / "mine.yaml").write_text("a: b")
    assert (tmp_path / "ring.yaml").exists()
    CliRunner().invoke(manifests, command, catch_exceptions=False)
    assert {"kustomization.yaml", "mine.yaml"} <= {each.name for each in tmp_path.iterdir()}
    assert not (tmp_path / "ring.yaml").exists()
