"""What the sharder is allowed to do is asked once for all rings."""

from __future__ import annotations

import asyncio
import math
from types import SimpleNamespace
from typing import Any

import pytest
from small_ring import SmallRing, ring_machine

from kubeshard.core.errors import Unavailable
from kubeshard.core.kinds import GroupResource
from kubeshard.sharder.kinds_and_rights import ASKED_AGAIN, ASKED_EVERY, Permissions
from kubeshard.sharder.tasks import DrivenResource
from kubeshard.sharding.api import RingResource
from kubeshard.sharding.ring_machine import Do
from kubeshard.sharding.schedule import DueScan, ScanPriority, ScanResult, ScanScope
from kubeshard_lab.virtual_time import VirtualClock, virtual_time

SECRETS = GroupResource("", "secrets")


@virtual_time
async def test_many_rings_with_a_resource_ask_one_question_for_each_verb_and_each_learns_the_answer() -> None:
    asked: list[str] = []

    async def can_i(verb: str, *_: str) -> bool:
        asked.append(verb)
        await asyncio.sleep(0.1)
        return verb != "patch"

    clock = VirtualClock()
    small = SmallRing("a", clock=clock)
    for number in range(1000):
        small.add(f"ring-{number}", RingResource(resource="secrets"))
    client: Any = SimpleNamespace(can_i=can_i)
    permissions = Permissions(client, clock)
    syncs = [DrivenResource(ring_machine(ring), ring.resources.entry(SECRETS), 300.0) for ring in small.rings]
    async with asyncio.TaskGroup() as group:
        for sync in syncs:
            group.create_task(permissions.check(sync))
    assert sorted(asked) == ["get", "patch", "watch"]
    assert all(sync.ring.report.missing_verbs == {SECRETS: {"patch": ()}} for sync in syncs)
    await asyncio.sleep(ASKED_EVERY)
    await permissions.check(syncs[0])
    assert len(asked) == 6, "a later question is asked again"


@pytest.mark.regression
@pytest.mark.parametrize("answers", [True, False])
@virtual_time
async def test_many_rings_share_what_an_api_server_takes_long_to_say(answers: bool) -> None:
    """Each waited for the others' turns: scans of a hundred rings ended an hour later."""

    async def can_i(*_: str) -> bool:
        await asyncio.sleep(9.0)
        if not answers:
            raise Unavailable("not now")
        return True

    clock = VirtualClock()
    small = SmallRing("a", clock=clock)
    for number in range(100):
        small.add(f"ring-{number}", RingResource(resource="secrets"))
    permissions = Permissions(SimpleNamespace(can_i=can_i), clock)  # type: ignore[arg-type]
    began = clock.monotonic()
    async with asyncio.TaskGroup() as group:
        for ring in small.rings:
            sync = DrivenResource(ring_machine(ring), ring.resources.entry(SECRETS), 300.0)
            group.create_task(permissions.check(sync))
            await asyncio.sleep(0.1)
    assert clock.monotonic() - began < 10.0 + 2 * 3 * 9.0


@virtual_time
async def test_what_is_refused_again_is_asked_about_again_whatever_the_answer_was() -> None:
    behind, asked = True, 0

    async def can_i(*_: str) -> bool:
        nonlocal asked
        asked += 1
        return behind

    clock = VirtualClock()
    ring = SmallRing("a", clock=clock).add("ring", RingResource(resource="secrets"))
    client: Any = SimpleNamespace(can_i=can_i)
    permissions = Permissions(client, clock)
    sync = DrivenResource(ring_machine(ring), ring.resources.entry(SECRETS), 300.0)
    await permissions.refused(sync, "list")
    await asyncio.sleep(ASKED_AGAIN - 1)
    await permissions.refused(sync, "list")
    assert asked == 1
    assert sync.ring.report.missing_verbs == {}
    behind = False
    await asyncio.sleep(1)
    await permissions.refused(sync, "list")
    assert sync.ring.report.missing_verbs == {SECRETS: {"list": ()}}


@virtual_time
async def test_a_right_that_is_missing_is_asked_for_until_it_is_there_and_then_everything_is_scanned() -> (
    None
):
    clock, asked = VirtualClock(), list[float]()
    small = SmallRing("a", clock=clock)
    sync, began = small.sync("secrets"), clock.monotonic()

    async def can_i(*_: str) -> bool:
        asked.append(clock.monotonic() - began)
        if len(asked) == 3:
            raise Unavailable("not now")
        return len(asked) > 4

    permissions = Permissions(SimpleNamespace(can_i=can_i), clock)  # type: ignore[arg-type]
    sync.asked = dict.fromkeys(("get", "patch"), math.inf)  # they are not asked for
    sync.schedule.done(ScanPriority.NORMAL, DueScan(ScanScope.ALL), ScanResult(), began, began)
    await permissions.refused(sync, "list")
    while sync.ring.report.missing_verbs:
        await sync.attended()
        if sync.due() == [(Do.ASK, None)]:
            await permissions.ask(sync)
            sync.asked_for_rights()
    assert [round(at) for at in asked] == [0, 10, 20, 30, 40]
    assert sync.schedule.due(ScanPriority.NORMAL, clock.monotonic()) == DueScan(ScanScope.ALL, "membership")


@virtual_time
async def test_what_is_asked_about_namespaces_is_not_remembered_for_ever() -> None:
    async def can_i(*_: str) -> bool:
        return True

    clock = VirtualClock()
    client: Any = SimpleNamespace(can_i=can_i)
    permissions = Permissions(client, clock)
    for number in range(1000):
        assert await permissions._allowed(SECRETS, "list", f"ns-{number}")
        await asyncio.sleep(1)
    assert len(permissions._answers) == len(permissions._asking) <= 2 * ASKED_EVERY + 1
