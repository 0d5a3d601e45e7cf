"""`kubeshard types` for the kinds that an API server serves: classes that can read its objects."""

from __future__ import annotations

import sys
import time
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

from kubeshard import Client, ObjectMeta
from kubeshard.cli.program import cli
from kubeshard.core.errors import ConfigurationError
from kubeshard.crd import definition
from kubeshard.sharding.crd import controller_ring_crd
from kubeshard_apiserver.testing.kube_api import KubeApi


def written(kube_api: KubeApi, *arguments: str) -> ModuleType:
    command = ["types", *arguments, "--kubeconfig", str(kube_api.kubeconfig)]
    source = CliRunner().invoke(cli, command, catch_exceptions=False).output
    module = ModuleType("written")
    sys.modules[module.__name__] = module  # annotations are resolved in it
    exec(compile(source, "written.py", "exec"), vars(module))
    return module


def described_soon(kube_api: KubeApi, kind: str) -> ModuleType:
    """Waits until the kind is in the OpenAPI document, a moment after it is served."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return written(kube_api, kind)
        except ConfigurationError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def test_a_deployment_is_written_and_read_by_the_classes_of_its_fields(
    kube_api: KubeApi, kube_namespace: str
) -> None:
    fields = "spec.replicas,spec.selector,spec.template.metadata.labels,spec.template.spec.containers,status.replicas"
    types = written(kube_api, "Deployment.apps", "--fields", fields.replace("metadata.labels", "metadata"))
    labels = {"app": "a"}
    container = types.Container(name="a", image="a:1", ports=(types.ContainerPort(container_port=80),))
    template = types.PodTemplateSpec(
        metadata=ObjectMeta(labels=labels), spec=types.PodSpec(containers=(container,))
    )
    spec = types.DeploymentSpec(
        selector=types.LabelSelector(match_labels=labels), template=template, replicas=0
    )
    deployment = types.Deployment(metadata=ObjectMeta(name="a", namespace=kube_namespace), spec=spec)

    async def create(client: Client) -> Any:
        return await client.create(deployment)

    made = kube_api.call(create)
    assert made.spec.replicas == 0
    assert made.spec.template.spec.containers[0].ports[0].container_port == 80
    assert made.spec.template.metadata.labels == labels
    assert types.DeploymentSpec.__struct_fields__ == ("selector", "template", "replicas")


def test_whole_kinds_and_custom_ones_are_written_too(kube_api: KubeApi) -> None:
    kube_api.install(controller_ring_crd())
    ring = described_soon(kube_api, "controllerrings").ControllerRing
    expected = controller_ring_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    made = definition(ring)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert set(made["properties"]) == set(expected["properties"])
    assert written(kube_api, "Service").Service.KIND.plural == "services"
    assert (
        "cluster_ip"
        in written(kube_api, "services", "--fields", "spec.clusterIP").ServiceSpec.__struct_fields__
    )
    crd = written(kube_api, "CustomResourceDefinition")
    assert crd.CustomResourceDefinition.KIND.namespaced is False


def test_a_kind_that_is_not_served_is_said(kube_api: KubeApi) -> None:
    with pytest.raises(ConfigurationError, match="the cluster does not serve Nonsense: give a FILE"):
        written(kube_api, "Nonsense")
