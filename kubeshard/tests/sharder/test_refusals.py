"""Repeated refusals are logged once, and again every ten minutes."""

from __future__ import annotations

import pytest
from small_ring import SmallRing, ring_machine

from kubeshard.core import Forbidden, Invalid
from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key, ObjectMeta
from kubeshard.sharding.api import RingResource
from kubeshard.sharding.ring_machine import LOGGED_EVERY, UNTIL_EXPLAINED
from kubeshard.sharding.waiting import Refusals
from kubeshard_lab.virtual_time import VirtualClock, virtual_time

THINGS, MAPS = GroupResource("sim.example", "things"), GroupResource("", "configmaps")


class Time(VirtualClock):
    now = 0.0

    def monotonic(self) -> float:
        return self.now


@virtual_time
async def test_a_failure_is_told_at_once_and_then_every_ten_minutes_with_a_count() -> None:
    clock = Time()
    sync = ring_machine(SmallRing(clock=clock).ring)
    error = Invalid("no")
    assert sync.to_log(THINGS, "patch", error) == 0
    assert sync.to_log(MAPS, "patch", error) == 0
    assert [sync.to_log(THINGS, "patch", error) for _ in range(5)] == [None] * 5
    clock.now = LOGGED_EVERY
    assert sync.to_log(THINGS, "patch", error) == 5
    assert sync.to_log(THINGS, "patch", error) is None


@virtual_time
async def test_what_is_forbidden_is_told_after_a_minute_unless_the_report_names_the_right() -> None:
    clock = Time()
    sync = ring_machine(SmallRing(resources=(RingResource(resource="configmaps"),), clock=clock).ring)
    error = Forbidden("no")
    assert sync.to_log(THINGS, "patch", error) is None
    assert sync.to_log(MAPS, "patch", error) is None
    sync.ring.report.permitted(MAPS, "patch", False)
    clock.now = UNTIL_EXPLAINED
    assert sync.to_log(THINGS, "patch", error) == 1
    assert sync.to_log(MAPS, "patch", error) is None


@pytest.mark.parametrize(
    ("key", "answer", "told"),
    [
        (
            Key("ns", "a"),
            'secrets "a" is forbidden: ns/a is not ours',
            "secrets it is forbidden: it is not ours",
        ),
        (Key("ns", "a"), "ns/a, ns/ab, my-ns/a", "it, ns/ab, my-ns/a"),
        (Key("", "c"), 'clusters "c": a policy cannot change it', "clusters it: a policy cannot change it"),
    ],
)
def test_a_reason_is_the_same_for_all_objects_and_stays_readable(key: Key, answer: str, told: str) -> None:
    refusals, meta = Refusals(), ObjectMeta(namespace=key.namespace, name=key.name, uid="u")
    refusals.refused(meta, Forbidden(answer), 0.0)
    assert refusals.why(key) == told
