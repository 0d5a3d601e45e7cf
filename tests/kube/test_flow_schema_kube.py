"""With the rendered FlowSchema, a real API server gives the Leases of shards and sharders the priority of elections."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kubeshard.client import Client, load_config
from kubeshard.core import Lease, ObjectMeta, Secret
from kubeshard.core.errors import Forbidden
from kubeshard.core.grants import Grant
from kubeshard.core.kinds import Kind
from kubeshard.examples.checksum import operator as checksum
from kubeshard.manager.roles import roles
from kubeshard.manifests.operator import operator_objects
from kubeshard.manifests.sharder import sharder_objects
from kubeshard.manifests.values import OperatorValues, SharderValues, chosen
from kubeshard.testing import ControlPlane

pytestmark = pytest.mark.kube

FLOWS = "/apis/flowcontrol.apiserver.k8s.io/v1"
SYSTEM = "sharding-system"


ACCOUNTS = (
    ("shards", "checksum", "checksum-leases"),
    (SYSTEM, "sharder", "sharding-sharder-leases"),
)
"""Namespace and name, and the FlowSchema."""


@pytest.fixture
async def schemas(kube_control_plane: ControlPlane) -> AsyncIterator[Client]:
    """With the accounts' right to read what is asked for, and that."""
    operator = chosen(
        OperatorValues, {"image": "a/b:c", "namespace": "shards", "flowSchema": {"enabled": True}}
    )
    sharder = chosen(SharderValues, {"flowSchema": {"enabled": True}})
    rendered = (
        *operator_objects(checksum.manager(), "checksum", "checksum", operator),
        *sharder_objects(sharder, ["flow-schema"]),
    )
    reads = [Grant.on(kind, "get") for kind in (Lease, Secret)]
    users = [(namespace, name) for namespace, account, _ in ACCOUNTS for name in (account, OTHER)]
    made = [
        *(each for each in rendered if each["kind"] == "FlowSchema"),
        *(role for user in users for role in roles(reads, "-".join(user), account=user)),
    ]
    meta = ObjectMeta(name="flow", namespace="default")
    async with Client(await load_config(kube_control_plane.kubeconfig)) as client:
        for manifest in made:
            await client.apply_manifest(manifest)
        for kind in (Lease, Secret):
            await client.create(kind(metadata=meta))
        yield client
        for kind in (Lease, Secret):
            await client.delete(kind, "flow", "default")
        for manifest in made:
            path = (
                f"/apis/{manifest['apiVersion']}/{manifest['kind'].lower()}s/{manifest['metadata']['name']}"
            )
            await client.raw("DELETE", path)


OTHER = "another"


async def uid(client: Client, resource: str, name: str) -> str:
    found: Any = json.loads((await client.raw("GET", f"{FLOWS}/{resource}/{name}")).body)
    return str(found["metadata"]["uid"])


async def test_leases_of_shards_and_sharders_do_not_queue_with_other_requests(schemas: Client) -> None:
    level = await uid(schemas, "prioritylevelconfigurations", "leader-election")
    for namespace, account, schema in ACCOUNTS:
        wanted = await uid(schemas, "flowschemas", schema), level
        user = f"system:serviceaccount:{namespace}:{account}"
        deadline = time.monotonic() + 30
        while (seen := await classified(schemas, user, Lease.KIND)) != wanted:
            assert time.monotonic() < deadline, seen
            await asyncio.sleep(0.1)
        assert await classified(schemas, user, Secret.KIND) != wanted
        other = f"system:serviceaccount:{namespace}:{OTHER}"
        assert await classified(schemas, other, Lease.KIND) != wanted


async def classified(client: Client, user: str, kind: Kind) -> tuple[str, str]:
    """The FlowSchema and priority level, by UID, of a read by this user."""
    who = {"Impersonate-User": user, "Impersonate-Group": "system:serviceaccounts"}
    async with Client(dataclasses.replace(client.config, impersonate=who)) as impersonated:
        try:
            answer = await impersonated.raw("GET", kind.path("default", "flow"))
        except Forbidden:  # the right is not known yet
            return "", ""
    found = {key.lower(): value for key, value in answer.headers.items()}
    prefix = "x-kubernetes-pf-"
    return found.get(f"{prefix}flowschema-uid", ""), found.get(f"{prefix}prioritylevel-uid", "")
