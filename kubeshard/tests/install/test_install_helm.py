"""Charts in the hands of Helm itself: that of the sharder, as docs/install.md says, "With Helm", and an operator's."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from install_page import Shell, commands
from installed_cluster import Cluster
from pods import Pods
from replicas import Replica

from kubeshard.core.yaml_output import documents
from kubeshard.manifests.kustomization import identity
from kubeshard.manifests.operator import operator_objects
from kubeshard.manifests.operator_files import operator_chart
from kubeshard.manifests.ring import ring_objects
from kubeshard.manifests.sharder import sharder_objects
from kubeshard.manifests.values import OperatorValues, SharderValues, chosen
from kubeshard_apiserver.testing import wait_until
from kubeshard_apiserver.testing.control_plane import free_port
from kubeshard_lab.examples import webhosting

OBJECTS = sharder_objects(SharderValues())
CRD = "customresourcedefinition.apiextensions.k8s.io/controllerrings.sharding.timebertt.dev"
REVISION = "deployment.kubernetes.io/revision"
RING = {
    "apiVersion": "sharding.timebertt.dev/v1alpha1",
    "kind": "ControllerRing",
    "metadata": {"name": "helm"},
    "spec": {"resources": [{"group": "", "resource": "configmaps"}]},
}


@pytest.fixture
def shell(cluster: Cluster, tmp_path: Path) -> Iterator[Shell]:
    """Nothing is installed."""
    ring = list(ring_objects(RING, ("sharding-system", "sharder")))
    cluster.remove(OBJECTS)
    yield Shell(cluster, tmp_path)
    if installed(cluster):
        cluster.remove(ring)
    cluster.remove(OBJECTS)


def installed(cluster: Cluster) -> list[str]:
    """What of the chart's objects is there."""
    found = cluster.kubectl("get", "--ignore-not-found", "-f", "-", "-o", "name", given=documents(OBJECTS))
    return found.split()


def deployed(cluster: Cluster) -> tuple[str, int]:
    """Image and replicas."""
    spec = cluster.get("-n", "sharding-system", "deployment/sharder")["spec"]
    return spec["template"]["spec"]["containers"][0]["image"], spec["replicas"]


def policies(cluster: Cluster) -> str:
    return cluster.kubectl(
        "get", "validatingadmissionpolicies", "-o", "name", "-l", "app.kubernetes.io/name=controller-sharding"
    )


def test_a_release_is_installed_upgraded_rolled_back_and_removed(
    cluster: Cluster, shell: Shell, tmp_path: Path
) -> None:
    install, upgrade, back, uninstall = commands("With Helm")
    webhook = f" --set config.webhook.server.bindAddress=127.0.0.1:{free_port()}"
    shell.run(install + webhook)
    assert deployed(cluster) == ("REGISTRY/kubeshard:TAG", 2)
    as_printed(cluster, shlex.split(install + webhook)[4:])
    assert len(installed(cluster)) == len(OBJECTS)

    cluster.kubectl("wait", "--for=condition=Established", "crd/controllerrings.sharding.timebertt.dev")
    cluster.apply("-f", "-", given=documents(ring_objects(RING, ("sharding-system", "sharder"))))
    pods = Pods(cluster, tmp_path)
    replica = Replica(cluster, pods, tmp_path)
    try:
        replica.wait_ready()
        wait_until(lambda: ready(cluster), 30, "the ring is served")
        shell.run(upgrade + webhook + " --set replicas=3 --set policies.enabled=false")
        assert deployed(cluster) == ("REGISTRY/kubeshard:NEXT", 3)
        assert not policies(cluster)
        shell.run(back)
        assert deployed(cluster) == ("REGISTRY/kubeshard:TAG", 2)
        assert len(installed(cluster)) == len(OBJECTS)
        assert ready(cluster)
        replica.stop()
    finally:
        replica.pod.kill()
        pods.remove()

    shell.run(f"{uninstall} --wait")
    assert installed(cluster) == [CRD]
    assert ready(cluster)
    # What is left is the release's own, so it can be installed again.
    shell.run(install)
    assert len(installed(cluster)) == len(OBJECTS)
    shell.run(f"{uninstall} --wait")

    # Recorded in the sharder's namespace, where kubectl was before.
    cluster.apply("-f", "-", "--force-conflicts", given=documents(OBJECTS))
    shell.run(f"{install} --namespace sharding-system --set createNamespace=false --take-ownership")
    shell.run(f"{uninstall} --namespace sharding-system --wait")
    assert len(installed(cluster)) == 2


def test_an_operator_is_stored_as_if_its_printed_manifests_were_applied(
    cluster: Cluster, shell: Shell, tmp_path: Path
) -> None:
    values = chosen(OperatorValues, {"image": "example.com/webhosting:v1", "replicas": 1})
    made = (webhosting.operator.manager(), "webhosting:manager", "webhosting", values)
    for path, text in operator_chart(*made).items():
        (tmp_path / "chart" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "chart" / path).write_text(text)
    namespace, *printed = operator_objects(*made)
    cluster.remove(printed)
    try:
        cluster.apply("-f", "-", given=documents([namespace]))
        said = shell.run(f"helm install webhosting {tmp_path / 'chart'} --namespace webhosting")
        assert "kubectl --namespace webhosting rollout status deployment/webhosting" in said
        by_helm = stored(cluster, printed)
        for each in by_helm:
            assert each["metadata"]["labels"].pop("helm.sh/chart") == "webhosting-0.1.0"
            assert each["metadata"]["labels"].pop("app.kubernetes.io/managed-by") == "Helm"
            assert each["metadata"]["labels"].pop("app.kubernetes.io/version") == "v1"
            if each["kind"] == "CustomResourceDefinition":
                assert each["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
        shell.run("helm uninstall webhosting --namespace webhosting --wait")
        cluster.remove(printed)
        cluster.apply("-f", "-", given=documents(printed))
        assert by_helm == stored(cluster, printed)
    finally:
        cluster.remove([*printed, namespace])


def stored(cluster: Cluster, objects: list[Any]) -> list[Any]:
    """What the API server has of these objects, but for what it and the installer note about them."""
    text = cluster.kubectl("get", "-f", "-", "-o", "yaml", given=documents(objects))
    found: list[Any] = yaml.safe_load(text)["items"]
    assert len(found) == len(objects)
    for each in found:
        metadata, annotations = each["metadata"], each["metadata"].get("annotations", {})
        for noted in ("uid", "resourceVersion", "creationTimestamp", "generation"):
            metadata.pop(noted, None)
        for noted in ("meta.helm.sh/release-name", "meta.helm.sh/release-namespace", REVISION):
            annotations.pop(noted, None)
        if not annotations:
            metadata.pop("annotations", None)
        each.pop("status", None)
        if each["kind"] == "Service":
            each["spec"] = {key: each["spec"][key] for key in each["spec"] if not key.startswith("clusterIP")}
    return found


def as_printed(cluster: Cluster, arguments: list[str]) -> None:
    """In the cluster is what `helm template` says, and the API server added to it only."""
    wanted = {identity(each): each for each in yaml.safe_load_all(cluster.helm(*arguments)) if each}
    text = documents(wanted.values())
    found = yaml.safe_load(cluster.kubectl("get", "-f", "-", "-o", "yaml", given=text))["items"]
    for each in found:
        assert contains(each, wanted.pop(identity(each)))
    assert not wanted


def contains(found: Any, wanted: Any) -> bool:
    match wanted:
        case dict():
            return all(contains(found.get(key), value) for key, value in wanted.items())
        case list():
            return len(found) == len(wanted) and all(map(contains, found, wanted))
        case _:
            return bool(found == wanted)


def ready(cluster: Cluster) -> bool:
    conditions = (cluster.get("controllerring", "helm").get("status") or {}).get("conditions") or ()
    return {"Ready": "True"} in [{each["type"]: each["status"]} for each in conditions]
