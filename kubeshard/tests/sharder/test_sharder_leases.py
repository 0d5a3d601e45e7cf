"""The shardlease controller on a small API and virtual time."""

from __future__ import annotations

import asyncio
import json
import math
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from small_api import SmallApi, status
from small_ring import SmallRing

from kubeshard.cache import Added
from kubeshard.client import Client
from kubeshard.core.builtin import Lease
from kubeshard.core.encoding import decoder
from kubeshard.core.errors import ApiError, Conflict, Unauthorized
from kubeshard.core.objects import Key
from kubeshard.leases.held_lease import Renewal
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.repairs import EVERY, FREE
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard.sharder.lease_controller import LABEL_PATIENCE, ShardLeases
from kubeshard.sharder.lease_observer import PROBE_INTERVAL, DeadShardProofs, LeaseObserver, Sort
from kubeshard.sharder.rings import Topic
from kubeshard.sharding.lease_machine import HELD_BACK, RELABEL, RELABEL_CHANGED
from kubeshard.sharding.names import RING_LABEL, SHARDER_IDENTITY, STATE_LABEL
from kubeshard.sharding.ring import Ring
from kubeshard.sharding.shard_states import ShardChange
from kubeshard.sharding.take_overs import BreakerState, CircuitBreaker
from kubeshard_lab.virtual_time import VirtualClock, virtual_time

LEASES = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
A = Key("ns", "a")
PATH = f"{LEASES}/a"


class World:
    """One ring, its Leases at a small API, and the controller, called as its own requeues request."""

    def __init__(self) -> None:
        self.api = SmallApi()
        self.clock = VirtualClock()
        self.client = self.api.client(self.clock)
        self.observer = LeaseObserver(self.client, self.clock)
        self.observer.follow("ring")
        self.rings = {"ring"}
        ring = self.ring = SmallRing(clock=self.clock).ring
        rings: Any = SimpleNamespace(
            get=lambda name: ring if name in self.rings else None, leases=Topic(), changes=Topic()
        )
        rings.shard_changed = rings.leases.tell
        self.observer.rings = rings
        self.controller = ShardLeases(rings, self.observer, self.clock)
        self.events: list[str] = []
        self.ctx: Any = SimpleNamespace(
            client=self.client,
            log=get_logger("test"),
            event=lambda obj, type, reason, message, action, related=None: self.events.append(reason),
        )

    def shard(self, name: str = "a", *, holder: str | None = None, duration: int = 15) -> None:
        """A renewal, or another write of the shard, as the watch shows it."""
        time = f"2026-01-01T00:00:00.{self.api.version:06d}Z"
        spec = {
            "holderIdentity": name if holder is None else holder,
            "leaseDurationSeconds": duration,
            "acquireTime": time,
            "renewTime": time,
            "leaseTransitions": 4,
        }
        labels = {RING_LABEL: "ring"} | self.api.objects.get(f"{LEASES}/{name}", {"metadata": {}})[
            "metadata"
        ].get("labels", {})
        self.api.put(LEASES, name, labels=labels, spec=spec)

    async def see(self, name: str = "a") -> None:
        self.observer.observe(await self.client.get(Lease, name, "ns"))

    async def passes(self, seconds: float) -> None:
        """Time in which lists of all Leases show nothing new."""
        end = self.clock.monotonic() + seconds
        while True:
            self.observer.states.confirm(now := self.clock.monotonic(), now)
            if now >= end:
                return
            await asyncio.sleep(min(PROBE_INTERVAL, end - now))

    async def tend(self, key: Key = A) -> float | None:
        """Returns the seconds until it is tended again, if that needs no event."""
        await self.controller.gone(self.ctx, key)
        at = self.controller.machine.wake_at
        return at - self.clock.monotonic() if at < math.inf else None

    def dead(self) -> Dead:
        return Dead(DeadShardProofs(self.client, self.observer, self.clock))

    def spec(self, name: str = "a") -> dict[str, Any]:
        return self.api.objects[f"{LEASES}/{name}"]["spec"]

    def state(self) -> str:
        return self.api.labels(PATH).get(STATE_LABEL, "")


class Dead:
    """Asks for confirmation of deaths in one ring."""

    def __init__(self, shards: DeadShardProofs) -> None:
        self.shards = shards
        ring: Any = SimpleNamespace(name="ring", has_ended=lambda shard: True)
        self.proven = partial(shards.proven, ring)


async def proven(dead: Dead, shard: str, since: float = 0.0) -> bool:
    return await dead.proven(shard, since) is not None


@virtual_time
async def test_a_shard_that_dies_is_labelled_taken_and_deleted_on_time() -> None:
    """The whole timeline of a Lease of 15 s."""
    world = World()
    world.shard()
    await world.see()
    timeline = []
    while (wait := await world.tend()) is not None:
        timeline.append((world.clock.monotonic(), world.state(), world.spec()["holderIdentity"]))
        if world.spec()["holderIdentity"] != "a" and world.state() != "dead":
            continue  # the watch event of the takeover triggers at once
        await world.passes(wait)
    assert timeline == [
        (0.0, "ready", "a"),
        (15.0, "expired", "a"),
        (30.0, "uncertain", "shardlease-controller"),
        (30.0, "dead", "shardlease-controller"),
    ]
    assert world.clock.monotonic() == 120.0
    assert world.api.objects == {}


@virtual_time
async def test_a_taken_lease_has_the_doubled_duration_and_one_transition_more() -> None:
    world = World()
    world.shard()
    await world.see()
    await world.passes(30.0)
    assert await world.tend() == 15.0
    spec = world.spec()
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == (
        "shardlease-controller",
        30,
        5,
    )
    assert spec["acquireTime"] == spec["renewTime"] != ""


@virtual_time
async def test_a_released_lease_is_dead_at_once_and_deleted_after_61_seconds() -> None:
    world = World()
    world.shard(holder="", duration=1)
    await world.see()
    wait = await world.tend()
    assert (world.state(), wait) == ("dead", 61.0)
    await asyncio.sleep(61.0)
    assert await world.tend() is None
    assert world.api.objects == {}


@virtual_time
async def test_a_lease_that_was_renewed_unseen_is_not_taken() -> None:
    """The Lease is read again before it is taken. The state label's patch meets the renewal, which is no reason for an
    error: the label follows.
    """
    world = World()
    world.shard()
    await world.see()
    await world.passes(30.0)
    world.shard()
    assert await world.tend() == RELABEL_CHANGED
    assert world.spec()["holderIdentity"] == "a"
    assert await world.tend() == 15.0
    assert world.spec()["holderIdentity"] == "a"


@virtual_time
async def test_an_orphaned_lease_that_was_taken_by_a_living_shard_is_not_deleted() -> None:
    """The deletion names uid and version."""
    world = World()
    world.shard(holder="", duration=1)
    await world.see()
    await world.tend()
    await asyncio.sleep(61.0)
    world.api.faults.append(lambda request: world.shard() if request.method == "DELETE" else None)
    with pytest.raises(Conflict):
        await world.tend()
    assert PATH in world.api.objects
    assert await world.tend() == 15.0
    assert [method for method, *_ in world.api.requests].count("DELETE") == 1, "it was read again"


@virtual_time
async def test_without_its_ring_a_lease_is_left_alone() -> None:
    world = World()
    world.rings = set()
    world.shard(holder="", duration=1)
    await world.see()
    assert await world.tend() is None
    assert world.api.writes() == []


@pytest.mark.regression
@virtual_time
async def test_a_lease_is_not_taken_if_its_ring_is_deleted_while_it_is_labelled() -> None:
    world = World()
    world.shard()
    await world.see()
    await asyncio.sleep(31)

    def deleted(request: HttpRequest) -> None:
        if request.method == "PATCH":
            world.rings.clear()

    world.api.faults.append(deleted)
    await world.tend()
    assert world.rings == set()
    assert world.spec()["holderIdentity"] == "a"
    assert await world.tend() is None


@pytest.mark.regression
@virtual_time
async def test_a_lease_is_taken_though_its_ring_is_created_anew_meanwhile() -> None:
    world = World()
    world.shard()
    await world.see()
    await world.passes(31)
    anew = SmallRing(clock=world.clock).ring

    def created(request: HttpRequest) -> None:
        if request.method == "PUT":
            world.controller.machine.ring = lambda name: anew

    world.api.faults.append(created)
    await world.tend()
    assert world.spec()["holderIdentity"] == SHARDER_IDENTITY


@virtual_time
async def test_a_deleted_lease_is_re_created_as_taken_after_twice_its_duration() -> None:
    """A23 in docs/defects.md."""
    world = World()
    changes: list[ShardChange] = []
    world.shard()
    await world.see()
    del world.api.objects[PATH]
    rings: Any = SimpleNamespace(shard_changed=changes.append)
    world.observer.rings = rings
    world.observer.forget(A)
    wait = await world.tend()
    assert wait == 30.0
    await world.passes(30.0)
    await world.tend()
    assert world.spec()["holderIdentity"] == "shardlease-controller"
    assert world.api.labels(PATH) == {RING_LABEL: "ring", STATE_LABEL: "dead"}
    assert [change.availability for change in changes] == [False, True]


@virtual_time
async def test_a_shard_that_re_created_its_lease_meanwhile_keeps_it() -> None:
    world = World()
    world.shard()
    await world.see()
    del world.api.objects[PATH]
    world.observer.forget(A)
    await world.passes(30.0)
    world.shard()
    await world.tend()
    assert world.spec()["holderIdentity"] == "a"
    assert world.observer.states.available("ring", world.clock.monotonic()) == ("a",)


@virtual_time
async def test_a_lease_that_was_wrongly_taken_for_deleted_is_judged_like_any_other() -> None:
    """A late response says that it is gone, and it never changes again, because its shard died just then."""
    world = World()
    world.shard()
    await world.see()
    world.observer.forget(A)
    await world.passes(30.0)
    await world.tend()
    assert world.observer.states.available("ring", world.clock.monotonic()) == ("a",)
    await world.passes(30.0)
    await world.tend()
    assert world.spec()["holderIdentity"] == "shardlease-controller"


@virtual_time
async def test_a_tombstone_in_a_vanished_namespace_is_given_up() -> None:
    world = World()
    world.shard()
    await world.see()
    del world.api.objects[PATH]
    world.observer.forget(A)
    await world.passes(30.0)
    world.api.faults.append(lambda r: status(404, "NotFound") if r.method == "POST" else None)
    await world.tend()
    assert world.observer.states.shard(A, world.clock.monotonic()) is None


@virtual_time
async def test_an_invalid_shard_name_is_told_by_an_event() -> None:
    """A13b in docs/defects.md."""
    world = World()
    name = "a" * 64
    world.shard(name)
    await world.see(name)
    await world.tend(Key("ns", name))
    assert world.events == ["InvalidShardName"]


@virtual_time
async def test_a_shard_is_confirmed_dead_only_while_no_lease_of_its_name_is_held() -> None:
    """The view lags, but the server knows better."""
    world = World()
    dead = world.dead()
    world.shard(holder="", duration=1)
    await world.see()
    assert await proven(dead, "a")
    world.shard()
    assert await proven(dead, "a")  # asked less than 2 s ago
    await asyncio.sleep(2.1)
    assert not await proven(dead, "a")
    assert world.observer.states.available("ring", world.clock.monotonic()) == ("a",)


@virtual_time
async def test_a_name_without_any_lease_is_dead() -> None:
    world = World()
    assert await proven(world.dead(), "ghost")


@pytest.mark.regression
@virtual_time
async def test_a_lease_that_was_deleted_before_this_sharder_began_may_come_back() -> None:
    """A sharder that was started in between has seen neither the Lease nor its deletion; the shard is alive and
    re-creates it.
    """
    world = World()
    dead = world.dead()
    asked = asyncio.create_task(proven(dead, "a"))
    await asyncio.sleep(2.5)
    world.shard()
    assert not await asked


@pytest.mark.regression
@virtual_time
async def test_the_absence_of_a_lease_is_confirmed_once() -> None:
    world = World()
    dead = world.dead()
    assert await proven(dead, "ghost")
    before = world.clock.monotonic()
    await world.passes(10.0)
    assert await proven(dead, "ghost", before + 10.0)
    assert world.clock.monotonic() == before + 10.0
    assert len(world.api.requests) == 3


@pytest.mark.regression
@virtual_time
async def test_a_held_lease_is_believed_though_its_version_is_older_than_what_was_seen_before() -> None:
    """After the server's storage was restored, versions go backwards."""
    world = World()
    world.shard(holder="")
    await world.see()
    world.api.version = 50
    world.shard()
    assert not await proven(world.dead(), "a")


@pytest.mark.regression
@virtual_time
async def test_the_evidence_is_logged_once_for_two_reads_that_overlap(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO", logger="kubeshard.sharder")
    world = World()
    world.shard(holder="")
    await world.see()
    read_shard = world.observer.read_shard

    async def slowly(ring: str, shard: str, client: Client) -> list[Lease]:
        await asyncio.sleep(1.0)
        return await read_shard(ring, shard, client)

    monkeypatch.setattr(world.observer, "read_shard", slowly)
    dead = world.dead()
    first = asyncio.create_task(proven(dead, "a"))
    await asyncio.sleep(0.5)  # the first read is under way, and too old for whoever asks now
    assert await proven(dead, "a", world.clock.monotonic())
    assert await first
    assert [record.msg for record in caplog.records].count("Shard is dead") == 1
    assert len(world.api.requests) == 3


@pytest.mark.regression
@virtual_time
async def test_the_evidence_is_logged_once_for_each_of_several_shards(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", logger="kubeshard.sharder")
    world = World()
    for shard in ("a", "b"):
        world.shard(shard, holder="")
        await world.see(shard)
    dead = world.dead()
    for shard in ("a", "b") * 3:
        assert await proven(dead, shard, world.clock.monotonic())
        await asyncio.sleep(6.0)  # longer than a read is valid
    assert [record.msg for record in caplog.records].count("Shard is dead") == 2


@virtual_time
async def test_a_shard_with_a_deleted_lease_is_not_dead_before_that_is_settled() -> None:
    world = World()
    world.shard()
    await world.see()
    del world.api.objects[PATH]
    await world.passes(31.0)
    assert not await proven(world.dead(), "a")
    await world.tend()
    await world.passes(2.1)
    assert await proven(world.dead(), "a")


@virtual_time
async def test_a_shard_whose_lease_was_relabelled_is_not_dead_before_its_time() -> None:
    world = World()
    dead = world.dead()
    world.shard()
    await world.see()
    world.api.relabel(PATH, **{RING_LABEL: "other"})
    await world.see()
    assert not await proven(dead, "a")
    await asyncio.sleep(30.0)
    assert await proven(dead, "a")


@virtual_time
async def test_a_remembered_death_does_not_outlive_the_sight_of_a_new_life() -> None:
    """A namesake acquired the Lease within the 2 s in which it is not read again."""
    world = World()
    dead = world.dead()
    world.shard(holder="")
    await world.see()
    assert await proven(dead, "a")
    world.shard()
    await world.see()
    assert not await proven(dead, "a")


@virtual_time
async def test_many_questions_about_a_shard_are_one_request() -> None:
    world = World()
    world.shard(holder="")
    dead = world.dead()
    answers = await asyncio.gather(*(proven(dead, "a") for _ in range(50)))
    assert all(answers)
    assert len(world.api.requests) == 1


@virtual_time
async def test_reads_that_never_left_are_not_remembered() -> None:
    """Shard names come from labels, which anybody may write."""
    world = World()
    dead = world.dead()

    async def turn() -> None:
        raise Unauthorized("no credentials", code=401, reason="Unauthorized")

    client: Any = SimpleNamespace(turn=turn)
    dead.shards._client = client
    for number in range(10):
        with pytest.raises(Unauthorized):
            await proven(dead, f"s{number}")
    assert len(dead.shards._proofs._rings["ring"].proofs) == 1


@virtual_time
async def test_a_relist_finds_what_a_broken_watch_missed() -> None:
    world = World()
    world.shard()
    world.shard("b")
    await world.observer.relist()
    assert world.observer.states.available("ring", 0.0) == ("a", "b")
    world.shard(holder="", duration=1)
    await asyncio.sleep(10.0)
    assert not world.observer.states.fresh(world.clock.monotonic())
    await world.observer.relist()
    assert world.observer.states.fresh(world.clock.monotonic())
    assert world.observer.states.available("ring", world.clock.monotonic()) == ("b",)


@virtual_time
async def test_the_probe_keeps_the_view_fresh_and_outlives_failures() -> None:
    world = World()
    world.shard()
    down = {"now": False}

    def fail(request: HttpRequest) -> HttpResponse | None:
        return status(500, "Down") if down["now"] else None

    world.api.faults.append(fail)
    await world.observer.relist()
    probe = asyncio.create_task(world.observer.run())
    await asyncio.sleep(30.0)
    assert world.observer.states.fresh(world.clock.monotonic())
    down["now"] = True
    await asyncio.sleep(30.0)
    assert not world.observer.states.fresh(world.clock.monotonic())
    down["now"] = False
    await asyncio.sleep(10.0)
    assert world.observer.states.fresh(world.clock.monotonic())
    probe.cancel()


@virtual_time
async def test_lists_of_leases_that_take_long_are_not_repeated_at_once() -> None:
    world = World()
    world.shard()
    answer = world.api.request

    async def slow(request: HttpRequest) -> HttpResponse:
        await asyncio.sleep(4.0)
        return await answer(request)

    world.api.request = slow  # type: ignore[method-assign]
    probe = asyncio.create_task(world.observer.run())
    await asyncio.sleep(50.0)
    assert len(world.api.requests) == 10
    assert world.observer.states.silence(world.clock.monotonic()) == 5.0
    probe.cancel()


@pytest.mark.regression
@virtual_time
async def test_an_outage_of_the_lists_of_leases_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="kubeshard.sharder")
    world = World()
    world.api.faults.append(lambda _: status(500, "Down"))
    probe = asyncio.create_task(world.observer.run())
    await asyncio.sleep(60.0)
    assert [record.msg for record in caplog.records] == ["Cannot list shard Leases"]
    world.api.faults.clear()
    await asyncio.sleep(10.0)
    assert [record.msg for record in caplog.records][1:] == ["Shard Leases can be listed again"]
    probe.cancel()


REFUSED = status(403, "Forbidden", "a policy")


class Mute:
    """A client whose patches are never answered."""

    def __init__(self, inner: Client) -> None:
        self.get, self.replace, self.delete = inner.get, inner.replace, inner.delete

    async def patch(self, *_: object) -> Lease:
        await asyncio.sleep(1e9)
        raise AssertionError


@pytest.mark.regression
@pytest.mark.parametrize("answer", [REFUSED, status(500, "InternalError"), status(422, "Invalid"), None])
@virtual_time
async def test_a_lease_that_cannot_be_labelled_is_taken_over_and_deleted_all_the_same(
    answer: HttpResponse | None,
) -> None:
    """None: the request is not answered at all."""
    world = World()
    world.ctx.client = world.client if answer is not None else Mute(world.client)
    world.api.faults.append(lambda request: answer if request.method == "PATCH" else None)
    world.shard()
    await world.see()
    taken, began = 0.0, world.clock.monotonic()
    while PATH in world.api.objects:
        wait = await world.tend()
        if not taken and PATH in world.api.objects and world.spec()["holderIdentity"] != "a":
            taken = world.clock.monotonic() - began
        await world.passes(wait or 0.0)
    assert 30.0 <= taken <= 30.0 + LABEL_PATIENCE
    assert world.events == ["ShardJoined", "ShardExpired", "ShardTakenOver"]


@virtual_time
async def test_a_label_that_was_refused_is_written_within_ten_seconds_when_it_may_be() -> None:
    world = World()
    world.api.faults.append(refuse := lambda request: REFUSED if request.method == "PATCH" else None)
    world.shard()
    await world.see()
    assert await world.tend() == RELABEL == 10.0
    world.api.faults.remove(refuse)
    assert await world.tend() == 15.0
    assert (world.state(), world.events) == ("ready", ["ShardJoined"])


@virtual_time
async def test_others_have_their_turn_while_it_is_looked_whether_the_shards_of_many_rings_still_fail() -> (
    None
):
    world, rings, turns = World(), [SmallRing() for _ in range(50)], list[int]()
    others, machine = 0, world.controller.machine
    for small in rings:
        machine._breakers[small.ring] = CircuitBreaker(60.0)
        machine._breakers[small.ring].state = BreakerState.WAITING
        machine._judged_again[small.ring] = HELD_BACK

    def judge(ring: Ring) -> CircuitBreaker:
        turns.append(others)
        del machine._judged_again[ring]
        return machine._breakers[ring]

    machine._judge = judge  # type: ignore[method-assign]
    running = asyncio.create_task(world.controller.run(lambda *_, **__: None))
    await asyncio.sleep(HELD_BACK - 0.001)
    while len(turns) < len(rings):
        others += 1
        await asyncio.sleep(0 if turns else 0.001)
    running.cancel()
    assert len(set(turns)) == len(rings)


@virtual_time
async def test_what_a_ring_costs_that_is_judged_does_not_depend_on_the_reports_about_others() -> None:
    """With a rollout that crashes everywhere all of them have ended, and every one is a reason to judge its ring."""

    class Reports(dict[Key, tuple[float, float]]):
        def items(self) -> Any:
            raise AssertionError("looks at all of them")

    world = World()
    world.shard()
    await world.see()
    world.controller.machine._reported = Reports({A: (0.0, 0.0)})
    world.controller.machine._judge(world.ring)


@virtual_time
async def test_a_shard_is_not_taken_over_by_one_report_because_of_another_one_about_its_predecessor() -> None:
    """The second report was not yet enough, because another shard had been taken over a moment before."""
    world, b = World(), Key("ns", "b")
    ended = {"a", "b"}

    async def certify(client: Client, lease: Lease) -> bool:
        return lease.metadata.name in ended

    world.controller._pods = SimpleNamespace(certify=certify)  # type: ignore[assignment]

    async def tend(*keys: Key) -> None:
        await world.observer.relist()
        for key in keys:
            await world.tend(key)
        await asyncio.sleep(1.1)

    world.shard("a")
    world.shard("b")
    await world.observer.relist()
    await asyncio.sleep(3.0)
    await tend(b, A)
    await tend(b, A)
    assert world.spec("b")["holderIdentity"] == SHARDER_IDENTITY
    assert world.spec("a")["holderIdentity"] == "a"
    world.shard("a")
    await world.observer.relist()
    await asyncio.sleep(3.0)
    await tend(A)
    assert world.spec("a")["holderIdentity"] == "a"
    await tend(A)
    assert world.spec("a")["holderIdentity"] == SHARDER_IDENTITY


@virtual_time
async def test_a_state_label_that_somebody_keeps_changing_is_put_right_once_a_minute_at_most_and_that_is_said() -> (
    None
):
    world = World()
    written, seconds = 0, 300
    for _ in range(seconds):
        world.shard()
        await world.see()
        await world.tend()
        written += world.state() == "ready"
        world.api.relabel(PATH, **{STATE_LABEL: "dead"})
        await asyncio.sleep(1)
    assert written <= 1 + FREE + seconds / EVERY + 1
    assert "LabelContested" in world.events


class OwnShard:
    """The observer in the process of shard a, with b beside it. Its watch shows each renewal `late` seconds after it
    was sent, and of those of a only what it `shows`.
    """

    def __init__(self) -> None:
        self.world = world = World()
        self.renewal: Renewal | None = None
        self.late, self.rewinds, self.shows = 0.0, 0, True
        self.observer = LeaseObserver(world.client, world.clock, "ring", self)
        self.observer.rings = world.observer.rings
        self.observer.follow("ring")
        store = SimpleNamespace(list=list, metadata=lambda key: None)
        self.informer: Any = SimpleNamespace(full_reads=1, store=store)
        self.observer._informer = self.informer

    async def lives(self, seconds: float) -> int:
        """Returns how often all Leases were listed."""
        before, clock = self._lists(), self.world.clock
        probing, end = asyncio.create_task(self.observer.run()), clock.monotonic() + seconds
        while clock.monotonic() < end:
            for name in "b", "a":
                self.world.shard(name)
                stored = self.world.api.objects[f"{LEASES}/{name}"]
                lease = decoder(Lease).decode(json.dumps(stored))
                if name == "a":
                    written = lease.spec.renew_time or ""
                    self.renewal = Renewal("ns", "a", written, clock.boottime(), self.rewinds)
                if name == "b" or self.shows:
                    show = partial(self.observer._heard, Added(lease))
                    asyncio.get_running_loop().call_later(self.late, show)
            await asyncio.sleep(2.0)
        probing.cancel()
        await asyncio.wait([probing])
        return self._lists() - before

    def _lists(self) -> int:
        return [path for _, path, _ in self.world.api.requests].count("/apis/coordination.k8s.io/v1/leases")


MINUTE = 60.0


@virtual_time
async def test_while_the_watch_shows_this_process_its_own_renewals_the_leases_are_listed_once_a_minute() -> (
    None
):
    shard = OwnShard()
    assert await shard.lives(10 * MINUTE) in range(9, 12)
    shard.late = 1.0  # which is how old the record is then, and 3 s when the next renewal is shown
    assert await shard.lives(10 * MINUTE) in range(9, 12)


@pytest.mark.parametrize("late", [2.5, 8.0, 50.0])
@virtual_time
async def test_what_a_late_watch_has_not_shown_within_five_seconds_is_listed(late: float) -> None:
    shard = OwnShard()
    await shard.lives(MINUTE)
    shard.late = late
    assert await shard.lives(10 * MINUTE) >= 10 * MINUTE / PROBE_INTERVAL - 1


@virtual_time
async def test_renewals_of_others_do_not_show_that_the_watch_is_not_late() -> None:
    shard = OwnShard()
    shard.shows = False
    assert await shard.lives(10 * MINUTE) >= 10 * MINUTE / PROBE_INTERVAL - 1


@pytest.mark.parametrize("sign", ["everything was read anew", "the own Lease went back"])
@virtual_time
async def test_after_a_sign_of_another_history_the_leases_are_listed_within_five_seconds(sign: str) -> None:
    shard = OwnShard()
    await shard.lives(1.5 * MINUTE)
    if sign == "everything was read anew":
        shard.informer.full_reads += 1
    else:
        shard.rewinds += 1
    assert await shard.lives(PROBE_INTERVAL + 1.0) == 1
    assert await shard.lives(MINUTE) <= 2


@virtual_time
async def test_an_own_renewal_that_is_older_than_what_is_known_shows_nothing() -> None:
    """What is known is from a history that a restore of etcd has erased, and only a list can tell."""
    shard = OwnShard()
    await shard.lives(1.5 * MINUTE)
    shard.world.api.version = 10
    assert await shard.lives(PROBE_INTERVAL + 1.0) == 1
    assert shard.observer.states.rewinds > 0
    assert await shard.lives(MINUTE) <= 2


@virtual_time
async def test_while_leases_are_left_out_all_are_listed_every_five_seconds() -> None:
    shard = OwnShard()
    await shard.lives(MINUTE)
    shard.observer._kept.left_out["ns", Sort.HELD] = math.inf
    assert await shard.lives(10 * MINUTE) >= 10 * MINUTE / PROBE_INTERVAL - 1


@virtual_time
async def test_a_ring_that_is_made_anew_has_the_shards_that_the_watch_showed_meanwhile() -> None:
    shard = OwnShard()
    await shard.lives(1.5 * MINUTE)
    shard.observer.leave("ring")
    shard.world.shard("c")
    appeared = decoder(Lease).decode(json.dumps(shard.world.api.objects[f"{LEASES}/c"]))
    shard.observer._heard(Added(appeared))
    assert await shard.lives(4.0) == 0
    shard.informer.store.list = lambda: [appeared]
    shard.observer.follow("ring")
    assert {each.name for each in shard.observer.shards("ring")} == {"a", "b", "c"}


@virtual_time
async def test_a_list_says_nothing_of_a_ring_that_was_not_known_when_it_was_asked_for() -> None:
    """What the watch shows later, as it was before that list, is no echo of what had been deleted by then."""
    world = World()
    world.shard("a")
    appeared = decoder(Lease).decode(json.dumps(world.api.objects[PATH]))
    world.shard("b")
    observer = LeaseObserver(world.client, world.clock)
    await observer.relist()
    observer.follow("ring")
    observer._heard(Added(appeared))
    assert [each.name for each in observer.shards("ring")] == ["a"]


@pytest.mark.parametrize("readable", [True, False])
@virtual_time
async def test_what_was_refused_for_an_old_version_is_not_sent_again_before_a_newer_one_was_read(
    readable: bool,
) -> None:
    """While Leases cannot be listed, the state label was patched twice a second with the same version."""
    world = World()
    world.shard()
    await world.see()
    await world.tend()
    world.shard()
    if not readable:
        world.api.faults.append(lambda request: status(500, "Down") if request.method == "GET" else None)
    for _ in range(60):
        with suppress(ApiError):
            await world.tend()
        await world.passes(0.6)
    sent = [
        body["metadata"]["resourceVersion"] for method, _, body in world.api.requests if method == "PATCH"
    ]
    assert len(sent) == len(set(sent)) >= 2


@virtual_time
async def test_a_lease_that_somebody_writes_all_the_time_is_labelled_every_ten_seconds_at_most() -> None:
    world = World()

    def written(request: HttpRequest) -> None:
        if request.method == "PATCH":
            world.shard()

    world.api.faults.append(written)
    world.shard()
    await world.see()
    for _ in range(6):
        await asyncio.sleep(await world.tend() or MINUTE)
    assert world.clock.monotonic() >= 4 * RELABEL
    tries = [method for method, *_ in world.api.requests].count("PATCH")
    assert tries <= 6
