"""The chart: its schema refuses wrong values in every block, Helm finds nothing wrong with it, and a real API server
takes what it renders.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from value_sets import SETS

from kubeshard.core.errors import ConfigurationError
from kubeshard.core.yaml_output import documents
from kubeshard.manifests.image import image_of
from kubeshard.manifests.sharder import sharder_objects
from kubeshard.manifests.values import SharderValues, chosen
from kubeshard_apiserver.testing import ControlPlane
from kubeshard_apiserver.testing.assets import find_assets

CHART = Path(__file__).resolve().parents[3] / "deploy" / "helm"

FOREIGN = ("cert-manager.io/", "monitoring.coreos.com/", "sharding.timebertt.dev/")
"""Groups of kinds that an empty cluster does not have."""

WRONG: Mapping[str, Any] = {
    "image": {"repository": "kubeshard", "tag": "a b"},
    "imagePullPolicy": "Sometimes",
    "imagePullSecrets": ["secret"],
    "replicas": 0,
    "strategy": {"rollingUpdate": {"maxSurge": "much"}},
    "namespace": "Upper",
    "createNamespace": "yes",
    "resources": {"limits": {"memory": "much"}},
    "logLevel": "loud",
    "config": {"controller": {"sharder": {"concurrentMoves": "none"}}},
    "certManager": {"enable": True},
    "policies": {"pods": "all"},
    "networkPolicy": {"controlPlane": [{"ipBlock": {"cidr": "here"}}]},
    "serviceMonitor": {"interval": "often"},
    "prometheusRule": {"labels": {"release": "a b"}},
    "dashboards": {"labels": ["grafana"]},
    "crds": {"keep": "yes"},
    "aggregatedRoles": True,
    "serviceAccount": {"name": "Sharder"},
    "commonLabels": {"a b": "c"},
    "commonAnnotations": {"a": 1},
    "flowSchema": {"enabled": "perhaps"},
    "podLabels": {"a": "b c"},
    "podAnnotations": {"a": 1},
    "priorityClassName": 5,
    "nodeSelector": {"zone": ["a"]},
    "tolerations": [{"effect": "Never"}],
    "affinity": {"nodeAffinty": {}},
    "topologySpreadConstraints": [
        {"maxSkew": 0, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    ],
    "podSecurityContext": {"runAsUser": "nobody"},
    "securityContext": {"capabilities": {"drop": "ALL"}},
    "livenessProbe": {"periodSeconds": 0},
    "readinessProbe": {"httpGet": {"path": "/"}},
    "hostNetwork": 1,
    "ports": {"webhook": 70000},
    "extraArgs": [5],
    "extraEnv": [{"value": "without a name"}],
    "extraVolumes": ["config"],
    "extraVolumeMounts": [{"name": "here", "mountPath": "relative"}],
    "extraObjects": "apiVersion: v1",
    "podReports": {"enabled": "often"},
}


def test_every_block_has_a_wrong_value() -> None:
    assert WRONG.keys() == {each.encode_name for each in msgspec.structs.fields(SharderValues)}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"value .*{name}"):
        sharder_objects(chosen(SharderValues, {name: WRONG[name]}))


@pytest.mark.parametrize("name", ["commonLabels", "podLabels"])
def test_labels_by_which_pods_are_found_cannot_be_replaced(name: str) -> None:
    with pytest.raises(ConfigurationError, match="pods are found by it"):
        sharder_objects(chosen(SharderValues, {name: {"app.kubernetes.io/name": "mine"}}))


def test_null_in_a_file_leaves_a_field_to_the_platform() -> None:
    objects = sharder_objects(chosen(SharderValues, {"podSecurityContext": {"runAsUser": None}}))
    (deployment,) = (each for each in objects if each["kind"] == "Deployment")
    context = deployment["spec"]["template"]["spec"]["securityContext"]
    assert context == {
        "runAsNonRoot": True,
        "runAsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


@pytest.mark.parametrize(
    ("account", "user"),
    [
        ({}, "^system:serviceaccount:[^:]+:sharder$"),
        ({"serviceAccount": {"name": "own"}}, "^system:serviceaccount:[^:]+:own$"),
    ],
)
def test_another_account_is_confined_and_trusted_in_the_same_way(account: Any, user: str) -> None:
    objects = sharder_objects(chosen(SharderValues, account))
    policies = [each for each in objects if each["kind"] == "ValidatingAdmissionPolicy"]
    assert len(policies) == 4
    assert all(user in each["spec"]["matchConditions"][0]["expression"] for each in policies)
    bindings = [each for each in objects if each["kind"].endswith("RoleBinding")]
    name = account.get("serviceAccount", {}).get("name", "sharder")
    assert {subject["name"] for each in bindings for subject in each["subjects"]} == {name}
    (config,) = (json.loads(each["data"]["config"]) for each in objects if each["kind"] == "ConfigMap")
    assert config.get("sharders") == ([f"system:serviceaccount:$(POD_NAMESPACE):{name}"] if account else None)


@pytest.fixture(scope="module")
def helm() -> Path:
    return find_assets(["helm"]) / "helm"


@pytest.fixture(scope="module")
def kubectl() -> Path:
    return find_assets(["kubectl"]) / "kubectl"


@pytest.mark.kube
def test_the_schema_refuses_a_wrong_value_in_every_block(helm: Path, tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    for name, value in WRONG.items():
        file.write_text(json.dumps({name: value}))
        done = run(helm, "template", "sharder", CHART, "--values", file)
        assert done.returncode == 1, name
        assert "values don't meet the specifications of the schema" in done.stderr, (name, done.stderr)
        assert (
            name in done.stderr or "propertyNames" in done.stderr or "does not match pattern" in done.stderr
        )


@pytest.mark.kube
@pytest.mark.parametrize("values", SETS.values(), ids=SETS)
def test_helm_finds_nothing_wrong(values: Any, helm: Path, tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(json.dumps(values))
    done = run(helm, "lint", "--strict", CHART, "--values", file)
    assert "0 chart(s) failed" in done.stdout, done.stdout + done.stderr


@pytest.mark.kube
def test_a_local_version_makes_no_illegal_image(helm: Path, tmp_path: Path) -> None:
    made = shutil.copytree(CHART, tmp_path / "chart")
    about = yaml.safe_load((made / "Chart.yaml").read_text())
    (made / "Chart.yaml").write_text(json.dumps({**about, "appVersion": "0.1.0+local.1"}))
    text = run(helm, "template", "sharder", made, "--set-json", 'image={"repository":"example.com/a"}').stdout
    (deployment,) = (each for each in yaml.safe_load_all(text) if each and each["kind"] == "Deployment")
    (only,) = deployment["spec"]["template"]["spec"]["containers"]
    assert only["image"] == image_of({"repository": "example.com/a"}, "0.1.0+local.1")
    assert only["image"] == "example.com/a:0.1.0_local.1"


def test_a_real_server_takes_what_helm_renders(
    kube_control_plane: ControlPlane, helm: Path, kubectl: Path, tmp_path: Path
) -> None:
    """In a dry run, with strict validation; but for kinds that others define."""
    config = f"--kubeconfig={kube_control_plane.kubeconfig}"
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "sharding-system"}}
    made = subprocess.run(
        [kubectl, config, "apply", "--server-side", "--force-conflicts", "-f", "-"],
        input=documents([namespace]),
        text=True,
        timeout=60,
        capture_output=True,
    )
    assert made.returncode == 0, made.stderr
    # An apply keeps the ports of one that another test has installed.
    run(kubectl, config, "delete", "deployments", "--all", "--namespace=sharding-system")
    for name, values in SETS.items():
        (tmp_path / "values.yaml").write_text(json.dumps(values))
        text = run(helm, "template", "sharder", CHART, "--values", tmp_path / "values.yaml").stdout
        objects = list(known(text))
        assert "Deployment" in {each["kind"] for each in objects}
        command = [
            kubectl,
            config,
            "apply",
            "--server-side",
            "--force-conflicts",  # another test may have installed a sharder there
            "--dry-run=server",
            "--validate=strict",
            "-f",
            "-",
        ]
        done = subprocess.run(command, input=documents(objects), capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, (name, done.stderr)
        assert done.stdout.count("serverside-applied") == len(objects)


def known(text: str) -> Iterator[Any]:
    for each in yaml.safe_load_all(text):
        if each and not each["apiVersion"].startswith(FOREIGN):
            yield each


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=120)
