"""Operators that are their own sharder, as processes: they join, stop and die, and a service is started and stopped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from e2e_kinds import CHORES, Chore, Entry
from e2e_processes import Processes, ended
from e2e_recorder import Labels, Recorder
from e2e_ring import Ring, eventually
from e2e_user import User
from e2e_works import Works

from kubeshard.client import Client
from kubeshard.core import Lease, NotFound, ObjectMeta

pytestmark = pytest.mark.real_at_night

SHARDS = ("a", "b", "c")


class Operator:
    """The ring's instances."""

    def __init__(self, client: Client, ring: Ring, namespace: str, shards: Processes) -> None:
        self._client = client
        self._ring = ring
        self._namespace = namespace
        self._shards = shards

    def start(self, *names: str, mode: str = "both") -> None:
        self._shards.start_gated(
            *names, ring=self._ring.name, namespace=self._namespace, kinds=["chores"], mode=mode
        )

    async def leader(self, *among: str) -> str:
        """Waits until one of these instances holds the Lease of the ring's sharder; returns it."""
        leader = ""

        async def leads() -> bool:
            nonlocal leader
            leader = await self._holder()
            return leader in among

        await eventually(leads, 40.0)
        return leader

    async def _holder(self) -> str:
        try:
            lease = await self._client.get(Lease, f"sharder-{self._ring.name}", self._namespace)
        except NotFound:
            return ""
        return (lease.spec.holder_identity or "").rpartition("_")[0]


@pytest.fixture
async def recorder(kube_client: Client, ring: Ring, namespace: str) -> AsyncIterator[Recorder]:
    async with Recorder(kube_client, ring.name, [namespace], [Chore], [Entry]).recording() as recorder:
        yield recorder


@pytest.fixture
async def operator(kube_client: Client, ring: Ring, namespace: str, shards: Processes) -> Operator:
    return Operator(kube_client, ring, namespace, shards)


async def create(client: Client, namespace: str, prefix: str, count: int = 12) -> Sequence[Chore]:
    metas = (ObjectMeta(name=f"{prefix}-{number}", namespace=namespace) for number in range(count))
    return [await client.create(Chore(metadata=meta)) for meta in metas]


async def test_instances_join_stop_and_die_without_service_webhook_and_controllerring(
    operator: Operator, ring: Ring, recorder: Recorder, kube_client: Client, namespace: str, shards: Processes
) -> None:
    """No object is lost or worked on by two instances, while a user creates, changes and deletes objects."""
    works = Works(kube_client, recorder, namespace, [Chore])

    async def settled(*live: str, within: float = 40.0) -> None:
        await recorder.until(lambda: works.labels == works.owners(*live), within, f"all with {live}")
        assert await ring.webhook() is None

    def make(number: int) -> Chore:
        return Chore(metadata=ObjectMeta(name=f"user-{number}", namespace=namespace))

    operator.start(*SHARDS)
    leader = await operator.leader(*SHARDS)
    async with User(kube_client, make).working() as user:
        await works.create(20)
        await settled(*SHARDS)
        operator.start("d")
        await settled(*SHARDS, "d")

        killed = next(name for name in SHARDS if name != leader)
        shards.kill(killed)
        left = [name for name in (*SHARDS, "d") if name != killed]
        await settled(*left)

        assert ended(shards.request_stop(leader, 15)) == 0
        left.remove(leader)
        await settled(*left)

        leader = await operator.leader(*left)
        shards.kill(leader)
        left.remove(leader)
        await settled(*left)
        assert await operator.leader(*left)
        for work in works.all:
            await works.touch(work)
        await recorder.until(lambda: all(works.entries(name, "ended", left[0]) for name in works.names))
    created = {chore.metadata.name for chore in user.created}
    await recorder.until(
        lambda: {recorder.labels(Chore)[name] for name in created} == {Labels(left[0])},
        20,
        "the user's objects",
    )
    works.never_in_two_hands()


@pytest.mark.usefixtures("sharders")
async def test_a_live_switch_to_the_service_and_back_moves_nothing_of_a_settled_ring(
    operator: Operator, ring: Ring, recorder: Recorder, kube_client: Client, namespace: str, shards: Processes
) -> None:
    """The modes are in-manager, both, the service alone, both, in-manager. The service runs all the time, and knows the
    ring while there is a ControllerRing. New objects get their shard in each phase.
    """
    works = Works(kube_client, recorder, namespace, [Chore])
    operator.start(*SHARDS, mode="shard")
    operator.start("inside", mode="sharder")
    await operator.leader("inside")
    await works.create(20)
    await recorder.until(lambda: works.labels == works.owners(*SHARDS), 20, "all where they belong")
    await recorder.quiet(Chore, seconds=2.0)
    now = recorder.now

    async def assigned(prefix: str) -> None:
        new = [chore.metadata.name for chore in await create(kube_client, namespace, prefix)]
        await recorder.until(
            lambda: all(recorder.labels(Chore).get(name, Labels("")).shard for name in new), 10, prefix
        )

    await ring.create([CHORES], {"kubernetes.io/metadata.name": namespace})
    await ring.available(len(SHARDS))
    await assigned("with-both")
    assert shards.stop("inside") == 0
    await assigned("with-the-service")
    operator.start("inside-again", mode="sharder")
    await operator.leader("inside-again")
    await assigned("with-both-again")
    await ring.delete()
    await eventually(ring.webhook, 10.0, holds=False)
    await assigned("inside")
    await asyncio.sleep(5.0)
    assert not recorder.touched(Chore, now) & set(works.names)
    works.never_in_two_hands()
