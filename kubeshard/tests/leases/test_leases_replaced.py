"""A right to act that is exchanged for another while instances with the old one still run."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import cast

import pytest
from lease_bench import LeaseServer, Process, unanswered

from kubeshard.core.builtin import Lease, LeaseSpec
from kubeshard.core.objects import ObjectMeta
from kubeshard.leases.claim import LONGEST_KEPT, Claim, GroupClaim, TakeoverDelay
from kubeshard.leases.former import FormerLeases
from kubeshard.leases.state_machine import Ask, Create, Get, LeaseStateMachine, Replace, Wait
from kubeshard.leases.timing import Timing
from kubeshard.manager import leader_election
from kubeshard.manager.leader_election import GROUP_TIMING, LeaderElection, LeaderElector
from kubeshard.runtime.transport import HttpRequest, HttpResponse, Transport
from kubeshard.sharding.names import EVICTED_ANNOTATION, SHARDER_IDENTITY
from kubeshard.sharding.shard_states import proves_end
from kubeshard_lab.virtual_time import virtual_time


class Instance(Process):
    """One that works while it leads or, as a member of a group, while the group has the election's Lease."""

    def __init__(self, server: LeaseServer, name: str, group: str = "") -> None:
        super().__init__(server, name)
        self.name, self.group = name, group
        election = LeaderElection(name="lock", namespace="ns", identity=name, watchdog=False)
        client = self.client()
        self._held: Callable = (
            (lambda: election.held_by_group(client, group))
            if group
            else (lambda: LeaderElector(client, election, self.metrics).held(self.health))
        )
        self.stop = asyncio.Event()
        self.clean = True
        self.works = self.cut_off = False

    def connect(self, *_: object, **__: object) -> Transport:
        return cast(Transport, Link(self))

    async def run(self) -> None:
        async with self._held() as held:
            self.works = True
            lost, stop = asyncio.create_task(held.lost()), asyncio.create_task(self.stop.wait())
            await asyncio.wait([lost, stop], return_when=asyncio.FIRST_COMPLETED)
            self.works = False
            if stop.done() and self.clean:
                held.stopped_cleanly()
            lost.cancel()
            stop.cancel()


class Link:
    """The server, as one instance reaches it."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    async def request(self, request: HttpRequest) -> HttpResponse:
        if self._instance.cut_off:
            await unanswered(request)
        return await self._instance.server.request(request)

    def __getattr__(self, name: str) -> object:
        return getattr(self._instance.server, name)


def at_work(instances: list[Instance]) -> list[str]:
    return sorted({each.group or each.name for each in instances if each.works})


@pytest.mark.parametrize("seed", range(6))
def test_no_two_elected_instances_or_groups_work_at_once_whatever_starts_stops_and_fails(seed: int) -> None:
    @virtual_time
    async def history() -> None:
        rng, server = random.Random(seed), LeaseServer()
        running: list[tuple[Instance, asyncio.Task[None]]] = []
        worked: set[str] = set()
        for turn in range(60):
            match rng.choice(["start", "start", "stop", "stop", "crash", "outage", "cut off", "wait"]):
                case "start" if len(running) < 6:
                    group = rng.choice(["", "", "ring/old", "ring/new", "ring/new"])
                    new = Instance(server, f"{group or 'leader'}-{turn}", group)
                    running.append((new, asyncio.create_task(new.run())))
                case "stop" | "crash" as how if running:
                    instance, task = running.pop(rng.randrange(len(running)))
                    instance.clean = how == "stop"
                    instance.stop.set()
                    if not instance.works:
                        task.cancel()
                case "cut off" if running:
                    cut = rng.sample([instance for instance, _ in running], rng.randint(1, len(running)))
                    for instance, _ in running:
                        instance.cut_off = instance in cut
                case "outage":
                    server.down = True
                    await asyncio.sleep(rng.choice([3.0, 25.0]))
                    server.down = False
            for _ in range(rng.choice([2, 20, 50])):
                await asyncio.sleep(1)
                now = at_work([instance for instance, _ in running])
                assert len(now) <= 1, now
                worked |= set(now)
        assert {"ring/old", "ring/new"} & worked
        assert any(name.startswith("leader") for name in worked)
        for instance, task in running:
            instance.stop.set()
            task.cancel()
        await asyncio.gather(*(task for _, task in running), return_exceptions=True)

    history()


@virtual_time
async def test_members_work_together_and_renew_the_lease_once_for_all() -> None:
    server = LeaseServer()
    members = [Instance(server, f"m{i}", "ring/pages") for i in range(5)]
    tasks = [asyncio.create_task(each.run()) for each in members]
    await asyncio.sleep(100)
    assert all(each.works for each in members)
    before = len(server.writes)
    await asyncio.sleep(400)
    assert all(each.works for each in members)
    assert len(server.writes) - before <= 400 / GROUP_TIMING.retry_period
    for each in members:
        each.stop.set()
    await asyncio.gather(*tasks)
    assert server.holder == "ring/pages"  # nobody knows that it was the last


@virtual_time
async def test_an_old_leader_that_was_rolled_back_to_waits_until_the_last_member_has_stopped() -> None:
    server = LeaseServer()
    member, leader = Instance(server, "m", "ring/pages"), Instance(server, "old")
    tasks = [asyncio.create_task(member.run())]
    await asyncio.sleep(10)
    tasks.append(asyncio.create_task(leader.run()))
    await asyncio.sleep(300)
    assert (member.works, leader.works) == (True, False)
    member.stop.set()
    await asyncio.sleep(25)
    assert not leader.works
    await asyncio.sleep(15)
    assert leader.works
    leader.stop.set()
    await asyncio.gather(*tasks)


class ByItsOwnDuration(Claim):
    """The claim of a candidate that ignores the record's duration, as client-go's was until 0.27."""

    def takeover_delay(self, lease: Lease) -> TakeoverDelay:
        return TakeoverDelay(self.timing.lease_duration)


@virtual_time
async def test_members_that_are_cut_off_stop_before_a_candidate_that_waits_for_its_own_usual_duration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leader_election, "Claim", ByItsOwnDuration)
    server = LeaseServer()
    members = [Instance(server, f"m{i}", "ring/pages") for i in range(3)]
    leader = Instance(server, "old")
    tasks = [asyncio.create_task(each.run()) for each in members]
    await asyncio.sleep(10)
    tasks.append(asyncio.create_task(leader.run()))
    await asyncio.sleep(60)
    assert at_work([*members, leader]) == ["ring/pages"]
    for each in members:
        each.cut_off = True
    for _ in range(400):
        await asyncio.sleep(0.1)
        assert len(at_work([*members, leader])) <= 1
    assert leader.works
    leader.stop.set()
    await asyncio.gather(*tasks)


LONG, SHORT = Timing(lease_duration=60, renew_deadline=40), Timing()


@pytest.mark.parametrize(("first", "second"), [(LONG, SHORT), (SHORT, LONG), (LONG, LONG), (SHORT, SHORT)])
def test_no_member_can_act_longer_than_a_candidate_waits_whatever_other_members_have_written(
    first: Timing, second: Timing
) -> None:
    """Members of different versions may have different durations."""
    stored, version = None, 0
    members = [
        LeaseStateMachine(GroupClaim("ns", "lock", "ring/r", timing), lambda low, high: high)
        for timing in (first, second)
    ]
    for now in range(100, 130):
        for member in members[: 2 if now > 105 else 1]:
            while not isinstance(action := member.next(now, now), Wait):
                if isinstance(action, Get):
                    member.found(stored, now)
                elif isinstance(action, Ask):
                    member.told(None, now)
                elif isinstance(action, Create | Replace):
                    version += 1
                    meta = ObjectMeta(name="lock", namespace="ns", uid="u", resource_version=str(version))
                    stored = Lease(metadata=meta, spec=action.lease.spec)
                    member.written(stored, now)
            assert stored is not None
            waits = Claim("ns", "lock", "other", SHORT).takeover_delay(stored).seconds
            assert all((each.deadline or 0) < now + waits for each in members)


def test_a_group_does_not_keep_a_duration_that_none_of_it_can_have_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    claim = GroupClaim("ns", "lock", "ring/r", SHORT)
    found = lease("lock", "ring/r", seconds=2147483647)
    for _ in range(3):
        found = claim.renewed_lease(found, 0.0)
    assert Claim("ns", "lock", "other", SHORT).takeover_delay(found).seconds <= LONGEST_KEPT
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def lease(name: str, holder: str, *, renewed: str = "1", seconds: int = 15, evicted: bool = False) -> Lease:
    spec = LeaseSpec(
        holder_identity=holder, lease_duration_seconds=seconds, renew_time=renewed, lease_transitions=1
    )
    annotations = {EVICTED_ANNOTATION: "1"} if evicted else None
    return Lease(metadata=ObjectMeta(name=name, namespace="ns", uid=name, annotations=annotations), spec=spec)


Seen = tuple[float, list[Lease]]


@pytest.mark.parametrize(
    ("seen", "waits"),
    [
        pytest.param([(0.0, [])], False, id="there is none"),
        pytest.param([(0.0, [lease("a", "")])], False, id="released"),
        pytest.param([(0.0, [lease("a", "a")])], True, id="held, whatever its renew time says"),
        pytest.param(
            [(0.0, [lease("a", "a")]), (14.9, [lease("a", "a")])], True, id="not as long as its duration"
        ),
        pytest.param(
            [(0.0, [lease("a", "a")]), (15.0, [lease("a", "a")])], False, id="not renewed for its duration"
        ),
        pytest.param(
            [
                (0.0, [lease("a", "a")]),
                (10.0, [lease("a", "a", renewed="2")]),
                (15.0, [lease("a", "a", renewed="2")]),
            ],
            True,
            id="renewed meanwhile",
        ),
        pytest.param([(0.0, [lease("a", "a")]), (1.0, [])], True, id="deleted, but its holder may go on"),
        pytest.param([(0.0, [lease("a", "a")]), (1.0, []), (16.0, [])], False, id="deleted long ago"),
        pytest.param([(0.0, [lease("a", SHARDER_IDENTITY)])], False, id="taken from one that has stopped"),
        pytest.param(
            [(0.0, [lease("a", SHARDER_IDENTITY, seconds=30, evicted=True)])],
            True,
            id="taken from one that lives",
        ),
        pytest.param(
            [
                (0.0, [lease("a", SHARDER_IDENTITY, seconds=30, evicted=True)]),
                (30.0, [lease("a", SHARDER_IDENTITY, seconds=30, evicted=True)]),
            ],
            False,
            id="taken long ago from one that lived",
        ),
        pytest.param([(0.0, [lease("a", ""), lease("b", "b")])], True, id="one of two"),
        pytest.param(
            [(0.0, [lease("a", "a", seconds=0)]), (14.0, [lease("a", "a", seconds=0)])],
            True,
            id="without one",
        ),
    ],
)
def test_former_leases_are_waited_for_as_seen_from_here(seen: list[Seen], waits: bool) -> None:
    former = FormerLeases(ended=proves_end)
    reasons = [former.waits_for(leases, at) for at, leases in seen]
    assert bool(reasons[-1]) == waits
