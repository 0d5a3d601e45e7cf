"""Sharders that die, and their webhook configurations and certificates (A16 in docs/defects.md)."""

from __future__ import annotations

import asyncio
import base64
import ssl

import pytest
from e2e_kinds import CHORES, REALMS, Chore
from e2e_processes import Processes
from e2e_recorder import Recorder
from e2e_ring import Ring, eventually, owners
from e2e_user import User

from kubeshard.client import Client
from kubeshard.core import Lease, ObjectMeta
from kubeshard.core.partial_kinds import MutatingWebhookConfiguration
from kubeshard.core.patches import MergePatch
from kubeshard.sharding.names import SYSTEM_NAMESPACE
from kubeshard_apiserver.testing.control_plane import free_port


def user(client: Client, namespace: str) -> User:
    return User(client, lambda n: Chore(metadata=ObjectMeta(name=f"user-{n}", namespace=namespace)))


@pytest.fixture
async def ready_ring(ring: Ring, namespace: str, shards: Processes, sharders: Processes) -> Ring:
    await ring.create([CHORES, REALMS], {"kubernetes.io/metadata.name": namespace})
    shards.start_gated("a", "b", ring=ring.name, namespace=namespace)
    await ring.available(2)
    return ring


async def test_a_webhook_configuration_that_is_edited_or_deleted_by_hand_is_restored(
    ready_ring: Ring, kube_client: Client, namespace: str
) -> None:
    async with (
        Recorder(kube_client, ready_ring.name, [namespace], [Chore]).recording() as recorder,
        user(kube_client, namespace).working() as busy,
    ):
        original = await ready_ring.webhook()
        assert original is not None

        async def restored() -> bool:
            found = await ready_ring.webhook()
            return found is not None and found.webhooks == original.webhooks

        await kube_client.delete(MutatingWebhookConfiguration, original.metadata.name)
        assert await eventually(restored) < 3.0
        await eventually(ready_ring.webhook_assigns)
        edited = [{**original.webhooks[0], "rules": []}]
        await kube_client.patch(
            MutatingWebhookConfiguration, original.metadata.name, "", MergePatch({"webhooks": edited})
        )
        await eventually(restored, 3.0)
        await eventually(ready_ring.webhook_assigns)
        # Objects created in between are assigned too.
        await recorder.until(lambda: busy.created and assigned(recorder, busy, "a", "b"), 5)


def assigned(recorder: Recorder, busy: User, *shards: str) -> bool:
    labels = recorder.labels(Chore)
    wanted = owners([obj for obj in busy.created if obj.metadata.name in labels], *shards)
    return wanted.items() <= labels.items()


async def test_when_the_leading_sharder_is_killed_the_other_one_goes_on_and_no_request_fails(
    ready_ring: Ring, kube_client: Client, namespace: str, shards: Processes, sharders: Processes
) -> None:
    async with (
        Recorder(kube_client, ready_ring.name, [namespace], [Chore]).recording() as recorder,
        user(kube_client, namespace).working() as busy,
    ):
        await recorder.until(lambda: len(busy.created) > 10)
        leader = await leading(kube_client, sharders)
        [follower] = set(sharders.names) - {leader}
        lease = await kube_client.get(Lease, "sharder", SYSTEM_NAMESPACE)
        sharders.kill(leader)
        # The other sharder's webhook assigns objects while there is no leader.
        await eventually(ready_ring.webhook_assigns, 3.0)
        assert shards.stop("b") == 0

        async def taken_over() -> bool:
            now = await kube_client.get(Lease, "sharder", SYSTEM_NAMESPACE)
            return now.spec.holder_identity not in ("", None, lease.spec.holder_identity)

        await eventually(taken_over, 12.0)
        assert sharders[follower].running
        await recorder.until(lambda: assigned(recorder, busy, "a"), 10, "scaling down after the takeover")


async def test_while_no_sharder_runs_nobody_is_refused_and_a_new_one_assigns_what_was_created(
    ready_ring: Ring, kube_client: Client, namespace: str, sharders: Processes
) -> None:
    async with (
        Recorder(kube_client, ready_ring.name, [namespace], [Chore]).recording() as recorder,
        user(kube_client, namespace).working() as busy,
    ):
        for name in sharders.names:
            sharders.kill(name)
        await eventually(ready_ring.webhook_assigns, holds=False)
        before = len(busy.created)
        await recorder.until(lambda: len(busy.created) > before + 5)
        assert not assigned(recorder, busy, "a", "b")
        sharders.start_sharder("sharder-1")
        await recorder.until(lambda: assigned(recorder, busy, "a", "b"), 15)


async def test_both_sharders_serve_with_the_one_certificate_authority_of_the_webhook_configuration(
    ring: Ring, kube_client: Client, namespace: str, shards: Processes, sharders: Processes
) -> None:
    """Here each has its own port, so that both can be called."""
    for name in sharders.names:
        sharders.stop(name)
    ports = {name: free_port() for name in ("sharder-left", "sharder-right")}
    for name, port in ports.items():
        address = f"127.0.0.1:{port}"
        sharders.start_sharder(
            name,
            {
                "server": {"bindAddress": address},
                "config": {"clientConfig": {"url": f"https://{address}/"}},
            },
        )
    await ring.create([CHORES], {"kubernetes.io/metadata.name": namespace})
    shards.start_gated("a", ring=ring.name, namespace=namespace, kinds=["chores"])
    await ring.available(1)
    config = await ring.webhook()
    assert config is not None
    bundle = base64.b64decode(config.webhooks[0]["clientConfig"]["caBundle"]).decode()
    for port in ports.values():
        trust = ssl.create_default_context(cadata=bundle)

        async def serves(port: int = port, trust: ssl.SSLContext = trust) -> bool:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
            except ConnectionRefusedError:
                return False
            writer.close()
            return True

        await eventually(serves)
    for name in ports:
        sharders.stop(name)


async def leading(client: Client, sharders: Processes) -> str:
    """Returns the name of the leading process."""
    lease = await client.get(Lease, "sharder", SYSTEM_NAMESPACE)
    holder = lease.spec.holder_identity or ""
    return next(name for name in sharders.names if f" identity={holder}" in sharders[name].log.read_text())
