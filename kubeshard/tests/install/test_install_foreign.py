"""Objects of kinds that other projects define: cert-manager's, and the Prometheus operator's.

Their definitions are not in this repository. `KUBESHARD_CRDS` names a folder of them, as YAML:

    cert-manager    deploy/crds/ of its repository
    Prometheus      example/prometheus-operator-crd/ of prometheus-operator/prometheus-operator
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from installed_cluster import Cluster

from kubeshard import ConfigMap, Context, Controller, Manager
from kubeshard.core.yaml_output import documents
from kubeshard.manifests.operator import operator_objects
from kubeshard.manifests.sharder import sharder_objects
from kubeshard.manifests.values import OperatorValues, SharderValues, chosen
from kubeshard.monitoring.alerting import prometheus_rule

KINDS = {"Certificate", "Issuer", "PrometheusRule", "ServiceMonitor"}


@pytest.fixture(scope="module")
def definitions() -> list[Any]:
    named = os.environ.get("KUBESHARD_CRDS")
    if not named:
        pytest.skip(
            "did not run: set KUBESHARD_CRDS to a folder with the CRDs of cert-manager and the Prometheus operator"
        )
    found = [
        document
        for file in sorted(Path(named).rglob("*.yaml"))
        for document in yaml.safe_load_all(file.read_text())
        if document and document.get("kind") == "CustomResourceDefinition"
    ]
    wanted = [each for each in found if each["spec"]["names"]["kind"] in KINDS]
    assert {each["spec"]["names"]["kind"] for each in wanted} == KINDS, f"KUBESHARD_CRDS={named}"
    return wanted


@pytest.fixture
def with_definitions(cluster: Cluster, definitions: list[Any]) -> Iterator[Cluster]:
    cluster.apply("-f", "-", given=documents(definitions))
    for each in definitions:
        cluster.kubectl("wait", "--for=condition=Established", f"crd/{each['metadata']['name']}")
    yield cluster
    cluster.remove(definitions)


async def reconcile(ctx: Context, obj: ConfigMap) -> None: ...


def rendered() -> list[Any]:
    switches = [f"{each}.enabled=true" for each in ("certManager", "networkPolicy", "serviceMonitor")]
    manager = Manager([Controller(name="maps", reconciler=reconcile, primary=ConfigMap)])
    values = chosen(OperatorValues, None, ["image=example.com/maps:v1", *switches[1:]])
    return [
        *sharder_objects(chosen(SharderValues, None, switches)),
        *operator_objects(manager, "maps:manager", "maps", values),
        prometheus_rule("sharding-system"),
    ]


def test_they_are_taken_as_they_are_and_a_second_time_nothing_changes(with_definitions: Cluster) -> None:
    objects, cluster = rendered(), with_definitions
    assert {each["kind"] for each in objects} >= KINDS
    text = documents(objects)
    try:
        cluster.apply("-f", "-", "--force-conflicts", given=text)
        before = versions(cluster, text)
        cluster.apply("-f", "-", given=text)
        assert versions(cluster, text) == before
        with pytest.raises(AssertionError, match="servername: field not declared in schema"):
            cluster.apply("-f", "-", given=text.replace("serverName:", "servername:"))
    finally:
        cluster.remove(objects)


def versions(cluster: Cluster, text: str) -> list[str]:
    """But of Deployments, whose status goes on."""
    found = yaml.safe_load(cluster.kubectl("get", "-f", "-", "-o", "yaml", given=text))["items"]
    return [each["metadata"]["resourceVersion"] for each in found if each["kind"] != "Deployment"]
