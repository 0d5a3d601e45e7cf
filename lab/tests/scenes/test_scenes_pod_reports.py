"""A shard whose containers have ended, as the kubelet says, is given up within seconds; one that may live is not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kubeshard.client import Client
from kubeshard.core import Key, MergePatch, partial_kinds
from kubeshard.core.times import second_time
from kubeshard.runtime.pod import Pod
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard.sharding import lease_machine
from kubeshard.sharding.names import SHARDER_IDENTITY
from kubeshard_lab.simulation.cluster import SimulatedCluster, Touch
from kubeshard_lab.simulation.processes import refusal
from kubeshard_lab.virtual_time import virtual_time

pytestmark = pytest.mark.regression

SHARDS = ("s0", "s1", "s2")
KUBELET = 1.0
"""Seconds until a kubelet has reported something."""
LAST_WRITES = 9.0
"""Seconds after the end of a process for which something that it sent may take effect."""


class Node:
    """Runs the shards in pods, and reports as a kubelet does."""

    def __init__(self, world: SimulatedCluster, admin: Client) -> None:
        self.world = world
        self._admin = admin

    async def start(self, name: str, process: str = "") -> None:
        path = "/api/v1/namespaces/ops/pods"
        if not process:
            body = f'{{"metadata": {{"name": "{name}"}}, "spec": {{"containers": [{{"name": "op", "image": "op"}}]}}}}'
            await self._admin.raw("POST", path, body.encode())
        pod = await self._admin.get(partial_kinds.Pod, name, "ops")
        in_pod = Pod(name, pod.metadata.uid)
        self.world.shard(name, Touch(), process=process or name, pod=in_pod)
        await self.report(name, {"running": {"startedAt": self.now}})

    @property
    def now(self) -> str:
        return second_time(self.world.clock.wall())

    async def report(self, name: str, state: dict[str, Any], last: dict[str, Any] | None = None) -> None:
        status = {
            "containerStatuses": [{"name": "op", "image": "op", "state": state, "lastState": last or {}}]
        }
        await self._admin.patch(
            partial_kinds.Pod, name, "ops", MergePatch({"status": status}), subresource="status"
        )

    def ended(self) -> dict[str, Any]:
        return {"terminated": {"exitCode": 137, "reason": "Error", "finishedAt": self.now}}

    def count(self, name: str) -> int:
        return list(self.world.owners().values()).count(name)

    def holder(self, name: str) -> str:
        lease = self.world.objects("coordination.k8s.io", "leases")[Key("ops", name)]
        return str(lease["spec"].get("holderIdentity"))

    def gone(self) -> bool:
        return self.world.all_owned(*SHARDS[1:])


@asynccontextmanager
async def at_work() -> AsyncIterator[Node]:
    async with SimulatedCluster(seed=1) as world, world.admin() as admin:
        node = Node(world, admin)
        await world.install()
        await world.make_ring()
        world.sharder("x0")
        for name in SHARDS:
            await node.start(name)
        await world.make_things(30)
        await world.until(lambda: world.all_owned(*SHARDS), within=60)
        await asyncio.sleep(60)
        assert node.count("s0")
        yield node


@virtual_time
async def test_the_objects_of_a_shard_that_has_ended_are_reassigned_within_five_seconds() -> None:
    async with at_work() as node:
        node.world.processes["s0"].kill()
        ended = node.ended()
        await asyncio.sleep(KUBELET)
        await node.report("s0", {"waiting": {"reason": "CrashLoopBackOff"}}, ended)
        took = KUBELET + await node.world.until(node.gone, within=4.0)
        assert took < 5.0
        await node.start("s0", "s0 again")
        await node.world.until(lambda: node.world.all_owned(*SHARDS) and node.count("s0"), within=20)


@virtual_time
async def test_a_kubelet_is_asked_again_when_its_answer_is_due_and_not_at_the_next_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lease_machine, "POLL_INTERVAL", 0.7)
    async with at_work() as node:
        asked: list[float] = []

        async def note(request: HttpRequest) -> None:
            if "/pods/" in request.target:
                asked.append(node.world.loop.time())

        for network in node.world.processes["x0"].networks:
            network.before = note
        node.world.processes["s0"].kill()
        await node.report("s0", {"waiting": {"reason": "CrashLoopBackOff"}}, node.ended())
        await node.world.until(lambda: node.holder("s0") == SHARDER_IDENTITY, within=10.0)
        assert asked[-1] - asked[0] < lease_machine.CONFIRMED + 0.1


@virtual_time
async def test_a_shard_that_was_given_up_early_waits_until_nothing_its_former_process_sent_can_take_effect() -> (
    None
):
    """Its Lease is not held any more, so it need not wait for that."""
    async with at_work() as node:
        node.world.processes["s0"].kill()
        await node.report("s0", {"waiting": {"reason": "CrashLoopBackOff"}}, node.ended())
        await node.world.until(lambda: node.holder("s0") == SHARDER_IDENTITY, within=4.0)
        await node.start("s0", "s0 again")
        took = await node.world.until(lambda: node.holder("s0") == "s0", within=15.0)
        assert took >= LAST_WRITES


@virtual_time
async def test_a_container_that_is_restarted_at_once_keeps_its_objects() -> None:
    async with at_work() as node:
        before = node.world.owners()
        node.world.processes["s0"].kill()
        ended = node.ended()
        await asyncio.sleep(KUBELET)
        await node.report("s0", ended)
        await asyncio.sleep(1.0)
        await node.start("s0", "s0 again")
        for _ in range(60):
            await asyncio.sleep(1)
            assert node.world.owners() == before


@virtual_time
async def test_a_pod_that_was_deleted_or_a_report_about_an_earlier_container_gives_nobody_up() -> None:
    async with at_work() as node:
        before = node.world.owners()
        ended = node.ended()
        node.world.processes["s0"].kill()
        await node.start("s0", "s0 again")
        await asyncio.sleep(5)
        node.world.processes["s0 again"].pause()
        await node.report("s0", ended)  # late: by then, the next container runs
        await asyncio.sleep(7)
        node.world.processes["s0 again"].resume()
        await asyncio.sleep(5)
        async with node.world.admin() as admin:
            await admin.raw("DELETE", "/api/v1/namespaces/ops/pods/s0?gracePeriodSeconds=0")
        node.world.processes["s0 again"].pause()
        await asyncio.sleep(7)
        node.world.processes["s0 again"].resume()
        await asyncio.sleep(30)
        assert not node.world.processes["s0 again"].dead
        assert node.world.owners() == before


@virtual_time
async def test_without_the_right_to_read_pods_a_shard_is_given_up_when_its_lease_is() -> None:
    async with at_work() as node:

        async def refuse(request: HttpRequest) -> HttpResponse | None:
            return refusal(403, "Forbidden") if "/pods/" in request.target else None

        for network in node.world.processes["x0"].networks:
            network.before = refuse
        node.world.processes["s0"].kill()
        await node.report("s0", node.ended())
        took = await node.world.until(node.gone, within=35)
        assert took > 25


@virtual_time
async def test_of_shards_that_all_end_at_once_at_most_one_is_given_up_for_that() -> None:
    async with at_work() as node:
        before = node.world.owners()
        for name in SHARDS:
            node.world.processes[name].kill()
            await node.report(name, node.ended())
        await asyncio.sleep(25)
        moved = {before[name] for name, owner in node.world.owners().items() if owner != before[name]}
        assert len(moved) <= 1
