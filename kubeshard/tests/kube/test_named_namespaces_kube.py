"""The rendered rights of a sharder, and of a ring over Secrets that names its namespaces: they are enough to serve it,
and open no Secret anywhere else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from test_sharder_kube import SECRETS, Ring, eventually, sharder

from kubeshard.client import Client
from kubeshard.core import MergePatch, ObjectMeta, Secret
from kubeshard.core.conditions import get_condition
from kubeshard.core.errors import Forbidden
from kubeshard.core.namespaces import ALL
from kubeshard.manifests.ring import ring_objects
from kubeshard.manifests.sharder import sharder_objects
from kubeshard.manifests.values import SharderValues
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.crd import controller_ring_crd

ACCOUNT = ("sharding-system", "sharder")
USER = {"Impersonate-User": "system:serviceaccount:sharding-system:sharder"}
RBAC = "/apis/rbac.authorization.k8s.io/v1"
PLURALS = {"ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings"}


def manifest(name: str, namespace: str) -> Mapping[str, Any]:
    return {
        "apiVersion": ControllerRing.KIND.api_version,
        "kind": "ControllerRing",
        "metadata": {"name": name},
        "spec": {
            "resources": [{"group": "", "resource": "secrets"}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        },
    }


@pytest.fixture
async def ring(kube_client: Client, namespace: str, install_crd: Any) -> AsyncIterator[Ring]:
    """Installed as `kubeshard manifests` renders it, without what the sharder needs in its own namespace."""
    install_crd(controller_ring_crd())
    made = Ring(kube_client, namespace, f"named-{namespace}")
    objects = [*sharder_objects(SharderValues()), *ring_objects(manifest(made.name, namespace), ACCOUNT)]
    everywhere = [obj for obj in objects if obj["kind"] in PLURALS]
    inside = [obj for obj in objects if obj["metadata"].get("namespace") == namespace]
    assert {obj["kind"] for obj in inside} == {"Role", "RoleBinding"}
    for obj in (manifest(made.name, namespace), *everywhere, *inside):
        await kube_client.apply_manifest(obj)
    try:
        yield made
    finally:
        await made.close()
        for obj in everywhere:
            await kube_client.raw("DELETE", f"{RBAC}/{PLURALS[obj['kind']]}/{obj['metadata']['name']}")


async def test_a_ring_over_secrets_is_served_and_the_sharder_reads_no_secret_elsewhere(
    kube_client: Client, ring: Ring
) -> None:
    await kube_client.create(Secret(metadata=ObjectMeta(name=ring.name, namespace="kube-system")))
    config = dataclasses.replace(kube_client.config, impersonate=USER)
    try:
        async with Client(config) as limited:
            for name in SECRETS:
                await ring.secret(name)
            await ring.join("a", "b")
            async with sharder(limited):
                await eventually(lambda: has(ring, ring.placement("a", "b", names=SECRETS)))
                await ring.secret("later")
                placement = ring.placement("a", "b", names=[*SECRETS, "later"])
                await eventually(lambda: has(ring, placement))
                await ring.leave("a")
                await eventually(lambda: has(ring, ring.placement("b", names=[*SECRETS, "later"])))
                await eventually(lambda: is_ready(kube_client, ring))
            patch = MergePatch({"metadata": {"labels": {"a": "b"}}})
            for asked in (
                limited.list_all(Secret, "kube-system"),
                limited.list_all(Secret, ALL),
                limited.get(Secret, ring.name, "kube-system"),
                limited.patch(Secret, ring.name, "kube-system", patch),
            ):
                with pytest.raises(Forbidden):
                    await asked
            with pytest.raises(Forbidden):
                async with limited.watch(Secret, "kube-system", resource_version="0") as events:
                    await anext(aiter(events))
    finally:
        await kube_client.delete(Secret, ring.name, "kube-system")


async def has(ring: Ring, wanted: Mapping[str, Mapping[str, str]]) -> bool:
    return await ring.labels() == wanted


async def is_ready(client: Client, ring: Ring) -> bool:
    """And misses no rights."""
    conditions = (await client.get(ControllerRing, ring.name)).status.conditions
    assert get_condition(conditions, "Permitted") is None
    ready = get_condition(conditions, "Ready")
    return ready is not None and ready.status == "True"
