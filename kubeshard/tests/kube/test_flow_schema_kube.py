"""With the rendered FlowSchema, a real API server gives the Leases of shards and sharders the priority of elections."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import pytest

from kubeshard.client import Client, load_config
from kubeshard.core import ConfigMap, Lease, MergePatch, ObjectMeta, Secret
from kubeshard.core.errors import ApiError, Forbidden
from kubeshard.core.grants import Grant
from kubeshard.core.kinds import Kind
from kubeshard.core.times import micro_time
from kubeshard.manager.roles import roles
from kubeshard.manifests.operator import operator_objects
from kubeshard.manifests.sharder import sharder_objects
from kubeshard.manifests.values import OperatorValues, SharderValues, chosen
from kubeshard_apiserver.testing import ControlPlane
from kubeshard_lab.examples.checksum import operator as checksum

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
    async with Client(await load_config(kube_control_plane.kubeconfig)) as client, rendered(client):
        yield client


@asynccontextmanager
async def rendered(client: Client) -> AsyncIterator[None]:
    """The rendered FlowSchemas, and accounts with the right to read and write what is asked for, and that."""
    operator = chosen(
        OperatorValues, {"image": "a/b:c", "namespace": "shards", "flowSchema": {"enabled": True}}
    )
    sharder = chosen(SharderValues, {"flowSchema": {"enabled": True}})
    made = (
        *operator_objects(checksum.manager(), "checksum", "checksum", operator),
        *sharder_objects(sharder, ["flow-schema"]),
    )
    grants = [Grant.on(Lease, "get", "patch"), Grant.on(Secret, "get"), Grant.on(ConfigMap, "create")]
    users = [(namespace, name) for namespace, account, _ in ACCOUNTS for name in (account, OTHER, BUSY)]
    manifests = [
        *(each for each in made if each["kind"] == "FlowSchema"),
        *(role for user in users for role in roles(grants, "-".join(user), account=user)),
    ]
    meta = ObjectMeta(name="flow", namespace="default")
    for manifest in manifests:
        await client.apply_manifest(manifest)
    for kind in (Lease, Secret):
        await client.create(kind(metadata=meta))
    try:
        yield
    finally:
        for kind in (Lease, Secret):
            await client.delete(kind, "flow", "default")
        for manifest in manifests:
            path = (
                f"/apis/{manifest['apiVersion']}/{manifest['kind'].lower()}s/{manifest['metadata']['name']}"
            )
            await client.raw("DELETE", path)


OTHER, BUSY = "another", "busy"


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


SEATS = 10
"""Of reading requests, and of writing ones: how many the API server works on at once."""
PATIENCE = 5.0
"""Seconds within which a renewal has to be answered: a third of a Lease's duration."""


@pytest.fixture(scope="module")
def small_control_plane() -> Iterator[ControlPlane]:
    limits = (f"--max-requests-inflight={SEATS}", f"--max-mutating-requests-inflight={SEATS}")
    with ControlPlane(arguments=limits) as kube:
        yield kube


@pytest.mark.nightly  # one run in four does not overload the API server for long enough
async def test_on_an_overloaded_api_server_leases_are_renewed_with_the_schema_only(
    small_control_plane: ControlPlane,
) -> None:
    """What keeps it busy is a webhook that does not answer, for an account like any other."""
    async with (
        Client(await load_config(small_control_plane.kubeconfig)) as client,
        rendered(client),
        silent_server() as port,
        AsyncExitStack() as stack,
    ):
        hanging = [
            {
                "name": "silent.example.com",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "timeoutSeconds": 30,
                "clientConfig": {"url": f"https://127.0.0.1:{port}/"},
                "rules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["configmaps"],
                    }
                ],
            }
        ]
        registration = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
        }
        await client.apply_manifest({**registration, "metadata": {"name": "silent"}, "webhooks": hanging})
        shard, other, busy = [
            await stack.enter_async_context(impersonating(client, "shards", name))
            for name in ("checksum", OTHER, BUSY)
        ]
        for each in (shard, other):
            assert await is_renewed(each, 30.0)
        load = [asyncio.create_task(create(busy, number)) for number in range(4 * SEATS)]
        deadline = time.monotonic() + 30
        while await is_renewed(other, PATIENCE):
            assert time.monotonic() < deadline, "it is not overloaded"
        for _ in range(3):
            assert await is_renewed(shard, PATIENCE)
        assert not await is_renewed(other, PATIENCE), "it is not overloaded any more"
        for each in load:
            each.cancel()
        await asyncio.gather(*load, return_exceptions=True)


async def create(client: Client, number: int) -> None:
    patient = client.with_timeout(30.0)  # longer than the test needs them
    await patient.create(ConfigMap(metadata=ObjectMeta(name=f"busy-{number}", namespace="default")))


async def is_renewed(client: Client, within: float) -> bool:
    renewed = MergePatch({"spec": {"renewTime": micro_time(time.time())}})
    try:
        async with asyncio.timeout(within):
            while True:
                with suppress(Forbidden):  # the right is not known yet
                    await client.patch(Lease, "flow", "default", renewed)
                    return True
    except (TimeoutError, ApiError):
        return False


@asynccontextmanager
async def impersonating(client: Client, namespace: str, account: str) -> AsyncIterator[Client]:
    who = {
        "Impersonate-User": f"system:serviceaccount:{namespace}:{account}",
        "Impersonate-Group": "system:serviceaccounts",
    }
    async with Client(dataclasses.replace(client.config, impersonate=who)) as impersonated:
        yield impersonated


@asynccontextmanager
async def silent_server() -> AsyncIterator[int]:
    """It takes connections, and says nothing."""
    kept: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: kept.append(writer), "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in kept:
            writer.close()
