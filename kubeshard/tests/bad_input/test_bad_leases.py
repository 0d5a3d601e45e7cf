"""Leases that are wrong, hostile or odd, each next to a good one, row by row of docs/guarantees.md.

Leases that the API server accepts are in `kube/test_bad_input_kube.py`; states, times and durations are in
`sharding/test_sharding_leases.py`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from kubeshard.core.builtin import Lease, LeaseSpec
from kubeshard.core.objects import Key, ObjectMeta
from kubeshard.runtime.clock import SystemClock
from kubeshard.runtime.logs import get_logger
from kubeshard.sharder.ring_controller import ControllerRings
from kubeshard.sharder.webhook_registration import Settled
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.conditions import RingReport, shard_problems
from kubeshard.sharding.names import OWNED_RANGES_ANNOTATION, RING_LABEL, STATE_LABEL
from kubeshard.sharding.ring_resources import RingResources
from kubeshard.sharding.shard_states import ShardState, ShardStates

NOW = "2026-01-01T00:00:00.000000Z"


def lease(
    name: str = "bad",
    *,
    namespace: str = "ns",
    ring: str = "ring",
    labels: dict[str, str] | None = None,
    owned: str = "",
    **spec: Any,
) -> Lease:
    given = {
        "holder_identity": name,
        "lease_duration_seconds": 15,
        "acquire_time": NOW,
        "renew_time": NOW,
        **spec,
    }
    meta = ObjectMeta(
        name=name,
        namespace=namespace,
        uid=name,
        resource_version="1",
        labels={RING_LABEL: ring, **(labels or {})},
        annotations={OWNED_RANGES_ANNOTATION: owned} if owned else None,
    )
    return Lease(metadata=meta, spec=LeaseSpec(**given))


@dataclass
class Case:
    """The `members` of the ring besides the good shard, at once and after 30 s."""

    what: str
    lease: Lease
    members: tuple[str, ...] = ()
    state: ShardState | None = None


CASES = [
    Case("a name that is too long for a label", lease("n" * 64)),
    Case("a name that is not a label value", lease("-a")),
    Case("no name", lease("")),
    Case("another holder", lease(holder_identity="somebody"), state=ShardState.DEAD),
    Case("a holder of 10 kB", lease(holder_identity="h" * 10_000), state=ShardState.DEAD),
    Case("no holder", lease(holder_identity=None), state=ShardState.DEAD),
    Case(
        "an empty spec",
        lease(**dict.fromkeys(("holder_identity", "acquire_time", "renew_time", "lease_duration_seconds"))),
    ),
    Case("no times", lease(acquire_time=None, renew_time=None), ("bad",), ShardState.UNCERTAIN),
    Case("times that are not times", lease(acquire_time="x", renew_time="?"), ("bad",), ShardState.UNCERTAIN),
    Case(
        "renewed in the far future",
        lease(renew_time="9999-12-31T23:59:59.999999Z"),
        ("bad",),
        ShardState.UNCERTAIN,
    ),
    Case(
        "renewed at the epoch",
        lease(renew_time="1970-01-01T00:00:00.000000Z"),
        ("bad",),
        ShardState.UNCERTAIN,
    ),
    Case(
        "renewed before there were times",
        lease(renew_time="0000-00-00T00:00:00Z"),
        ("bad",),
        ShardState.UNCERTAIN,
    ),
    Case("duration 0", lease(lease_duration_seconds=0), ("bad",), ShardState.UNCERTAIN),
    Case("a negative duration", lease(lease_duration_seconds=-5), ("bad",), ShardState.UNCERTAIN),
    Case("duration 2^31-1", lease(lease_duration_seconds=2**31 - 1), ("bad",), ShardState.READY),
    Case("a forged state", lease(holder_identity="", labels={STATE_LABEL: "ready"}), state=ShardState.DEAD),
    Case("an unknown state", lease(labels={STATE_LABEL: "alive!"}), ("bad",), ShardState.UNCERTAIN),
    Case("a ring that does not exist", lease(ring="nowhere")),
    Case("no ring", lease(ring="")),
    Case("the good shard's name elsewhere, released", lease("good", namespace="evil", holder_identity="")),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_a_bad_lease_is_judged_without_harm_to_the_good_one(case: Case) -> None:
    states = ShardStates()
    states.observe(lease("good"), 0.0)
    states.observe(case.lease, 0.0)
    for now in (0.0, 30.0):
        assert states.available("ring", now) == tuple(sorted({"good", *case.members}))
    if case.state is not None:
        shard = states.shard(Key("ns", "bad"), 30.0)
        assert shard is not None
        assert shard.state is case.state


def test_ten_thousand_leases_are_judged_in_no_time_and_cannot_push_older_shards_out() -> None:
    states = ShardStates()
    states.observe(_created("good", "2025-01-01T00:00:00Z"), 0.0)
    for number in range(10_000):
        states.observe(_created(f"attacker-{number}", "2026-01-01T00:00:00Z"), 0.0)
    began = time.thread_time()
    available = states.available("ring", 0.0)
    assert time.thread_time() - began < 1.0
    assert len(available) == 500
    assert "good" in available


def _created(name: str, when: str) -> Lease:
    meta = ObjectMeta(
        name=name,
        namespace="ns",
        uid=name,
        resource_version="1",
        labels={RING_LABEL: "ring"},
        creation_timestamp=when,
    )
    spec = LeaseSpec(holder_identity=name, lease_duration_seconds=15, acquire_time=NOW, renew_time=NOW)
    return Lease(metadata=meta, spec=spec)


class SmallRing(SimpleNamespace):
    __hash__ = object.__hash__


async def test_a_name_in_two_namespaces_is_told_once_by_an_event_and_a_condition() -> None:
    """A13 in docs/defects.md."""
    states = ShardStates()
    states.observe(lease("a", namespace="one"), 0.0)
    states.observe(lease("a", namespace="two"), 0.0)
    events: list[tuple[str, str]] = []
    written: list[ControllerRing] = []

    async def replace(ring: ControllerRing, subresource: str) -> None:
        written.append(ring)

    async def settle(*_: Any) -> Settled:
        return Settled()

    ctx: Any = SimpleNamespace(
        client=SimpleNamespace(replace=replace),
        cache=SimpleNamespace(get=lambda *_, **__: None),
        log=get_logger("test"),
        event=lambda obj, type, reason, message, action: events.append((reason, message)),
    )
    observer: Any = SimpleNamespace(states=states)
    webhooks: Any = SimpleNamespace(settle=settle)
    known: Any = SmallRing(name="ring", report=RingReport(), resources=RingResources(()), clean_up=None)
    around = SimpleNamespace(strict=False, system_namespaces=())
    found: Any = SimpleNamespace(get={"ring": known}.get, inputs=around)
    rings = ControllerRings(found, observer, webhooks, SystemClock())
    await rings.reconcile(ctx, ControllerRing(metadata=ObjectMeta(name="ring", uid="uid")))
    (ring,) = written
    assert ring.status is not None
    await rings.reconcile(ctx, ring)
    ((reason, message),) = events
    assert reason == "ShardsRefused"
    assert "one, two" in message
    assert [c.type for c in ring.status.conditions] == ["Ready", "ShardsAccepted"]
    assert len(written) == 1


def test_rings_of_one_name_in_two_namespaces_are_told_to_work_on_each_object_several_times_if_they_do() -> (
    None
):
    def problem(owned: str) -> str:
        states = ShardStates()
        states.observe(lease("a", namespace="one", owned="uid/1024:0-1023@1/1"), 0.0)
        states.observe(lease("b", namespace="two", owned=owned), 0.0)
        (found,) = shard_problems(list(states.shards("ring", 0.0)))
        return found

    assert "several times" not in problem("uid/1024:")
    told = "the shards in each of the namespaces one, two share out all objects by ranges"
    assert told in problem("uid/1024:0-1023@1/1")


@pytest.mark.parametrize(("declared", "advised"), [(False, True), (True, False)])
def test_who_has_no_controllerring_is_not_told_to_annotate_it(declared: bool, advised: bool) -> None:
    states = ShardStates()
    states.observe(lease("a", namespace="one"), 0.0)
    states.observe(lease("b", namespace="two"), 0.0)
    (found,) = shard_problems(list(states.shards("ring", 0.0)), declared=declared)
    assert "somebody has created Leases" in found
    assert ("annotation" in found) is advised
