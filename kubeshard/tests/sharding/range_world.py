"""A ring that is sharded by ranges without an event loop: the API server, shards and coordinators, on virtual time.

Messages take time, some of them very long; answers are lost; watches are late, by less than a renewal. What shards and
coordinators decide is the product's.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from heapq import heappop, heappush
from itertools import count
from typing import Any

from kubeshard.core.errors import AlreadyExists, ApiError, Invalid, NotFound, PatchTestFailed, Timeout
from kubeshard.core.patches import JsonPatch
from kubeshard.shard.range_ownership import Acknowledge, Command, Drain, RangeOwnership, Read
from kubeshard.sharding.assignment import Assignment, Report, Unreadable, owns_some
from kubeshard.sharding.buckets import Buckets
from kubeshard.sharding.coordinator import Change, Coordinator, Create, Look, Prove, ReadLeases
from kubeshard.sharding.members import RingMember, contradiction
from kubeshard_apiserver.json_patch import apply_json_patch

RENEWAL = 2.0
DURATION = 6.0
"""Seconds without renewal until a Lease is taken, at least; at most twice as many."""
BOUND = 5.0
"""Seconds until a request without an answer has failed."""

Data = Mapping[str, str]


class VirtualClock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    boottime = wall = monotonic


@dataclass
class Lease:
    version: int = 0
    held: bool = False
    report: str = ""
    renewed: float = 0.0
    weight: Fraction = Fraction(1)


@dataclass
class World:
    seed: int
    buckets: Buckets = field(default_factory=lambda: Buckets(16))
    clock: VirtualClock = field(default_factory=VirtualClock)
    data: Data | None = None
    version: int = 0
    leases: dict[str, Lease] = field(default_factory=dict)
    shards: dict[str, Shard] = field(default_factory=dict)
    coordinators: list[Leader] = field(default_factory=list)
    led: bool = False
    """Whether there has been a coordinator."""
    writes: int = 0
    former: list[Data] = field(default_factory=list)
    latest: int = 0
    """Of the versions of Leases."""
    doubled: list[str] = field(default_factory=list)
    """Buckets that two shards worked on at one time."""

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        heappush(self._heap, (self.clock.now + seconds, next(self._order), do))

    def run(self, seconds: float) -> None:
        until = self.clock.now + seconds
        while self._heap and self._heap[0][0] <= until:
            self.clock.now, _, do = heappop(self._heap)
            do()
            self.check()
        self.clock.now = until

    # The API server

    def way(self) -> float:
        """How long a message is on its way."""
        return self.rng.uniform(1.0, 12.0) if self.rng.random() < 0.03 else self.rng.uniform(0.001, 0.05)

    def request(
        self, do: Callable[[], Any], answered: Callable[[Any], None], failed: Callable[[Exception], None]
    ) -> None:
        """Does it when it has arrived there. The caller hears of it once, after `BOUND` at the latest."""
        told: list[bool] = []

        def answer(outcome: Any) -> None:
            if not told:
                told.append(True)
                (failed if isinstance(outcome, Exception) else answered)(outcome)

        def arrived() -> None:
            try:
                outcome = do()
            except ApiError as error:
                outcome = error
            if self.rng.random() > 0.03:
                self.after(self.way(), lambda: answer(outcome))

        self.after(self.way(), arrived)
        self.after(BOUND, lambda: answer(Timeout("no answer", code=504, reason="Timeout")))

    def write(self, data: Data | None) -> None:
        if self.data is not None:
            self.former.append(self.data)
        self.version += 1
        self.data = data
        for watcher in (*self.shards.values(), *self.coordinators):
            watcher.watch.changed(self.version, data)

    def patch(self, patch: JsonPatch) -> tuple[int, Data | None]:
        self.writes += 1
        found = {"metadata": {"resourceVersion": str(self.version)}, "data": dict(self.data or {})}
        if self.data is None:
            raise NotFound("not there", code=404, reason="NotFound")
        try:
            changed = apply_json_patch(found, patch.ops)["data"]
        except Invalid as error:
            raise PatchTestFailed(str(error), code=422, reason="Invalid") from None
        self.write(changed)
        return self.version, self.data

    def create(self, data: Data) -> tuple[int, Data | None]:
        self.writes += 1
        if self.data is not None:
            raise AlreadyExists("there is one", code=409, reason="AlreadyExists")
        self.write(dict(data))
        return self.version, self.data

    def lease(self, shard: str, **change: Any) -> None:
        lease = self.leases.setdefault(shard, Lease())
        self.latest += 1
        lease.version = self.latest
        for name, value in change.items():
            setattr(lease, name, value)
        said = Lease(**vars(lease))
        for leader in self.coordinators:
            leader.leases.changed(shard, said)

    # Faults

    def join(self, shard: str, weight: Fraction = Fraction(1)) -> None:
        if shard not in self.shards and not self.leases.get(shard, Lease()).held:
            self.shards[shard] = Shard(shard, self, weight)

    def crash(self, shard: str) -> None:
        if self.shards.pop(shard, None) is not None:
            renewed = self.leases[shard].renewed

            def taken() -> None:
                if self.leases[shard].renewed == renewed:
                    self.lease(shard, held=False)

            self.after(self.rng.uniform(DURATION, 2 * DURATION), taken)

    def leave(self, shard: str) -> None:
        if self.shards.pop(shard, None) is not None:
            self.lease(shard, held=False)

    def silence(self, seconds: float) -> None:
        """No watch of the assignment delivers anything."""
        for watcher in (*self.shards.values(), *self.coordinators):
            watcher.watch.silent_until = self.clock.now + seconds

    def lead(self) -> None:
        self.coordinators.append(Leader(self, first=not self.led))
        self.led = True

    def lose_leader(self) -> None:
        if self.coordinators:
            self.coordinators.pop(0).ended = True

    # Properties

    def workers(self, bucket: int) -> list[str]:
        return [s.name for s in self.shards.values() if s.ownership.may_write(bucket)]

    def check(self) -> None:
        for bucket in self.buckets.all.buckets:
            if len(workers := self.workers(bucket)) > 1:
                self.doubled.append(f"{self.clock.now:.3f} s: {bucket} at {workers}")

    @property
    def unowned(self) -> set[int]:
        return {bucket for bucket in self.buckets.all.buckets if not self.workers(bucket)}

    @property
    def counts(self) -> dict[str, int]:
        return {
            s.name: sum(map(s.ownership.may_write, self.buckets.all.buckets)) for s in self.shards.values()
        }


@dataclass
class Watch:
    """Delivers the versions of the object in order, late."""

    world: World
    heard: Callable[[int, Data | None], None]
    silent_until: float = 0.0
    _last: float = 0.0

    def changed(self, version: int, data: Data | None) -> None:
        world = self.world
        late = world.rng.uniform(0.5, 1.5) if world.rng.random() < 0.05 else world.rng.uniform(0.001, 0.05)
        self._last = max(self._last, self.silent_until, world.clock.now + late)
        world.after(self._last - world.clock.now, lambda: self.heard(version, data))


class Shard:
    """A process that follows the protocol."""

    def __init__(self, name: str, world: World, weight: Fraction) -> None:
        self.name = name
        self.world = world
        self.ownership = RangeOwnership(name, world.buckets)
        self.watch = Watch(world, self._heard)
        self.weight = weight
        self._assignment: Assignment | None = None
        self._begun: int | None = None
        """The newest version that it has seen; None: it does not act yet."""
        self._retrying = False
        self._under_way = 0
        """Acknowledgements of which nothing is known yet."""
        world.lease(name, held=True, report=self._said, weight=weight, renewed=world.clock.now)
        world.after(RENEWAL, self._renew)
        world.after(0.0, self._begin)

    @property
    def has_said(self) -> bool:
        """Whether what it owns is on its Lease."""
        return self.world.leases[self.name].report == self._said

    @property
    def _said(self) -> str:
        if self._begun is None:
            return f"{self.world.buckets}:"
        return self.ownership.report.text(self.world.buckets)

    @property
    def _lives(self) -> bool:
        return self.world.shards.get(self.name) is self

    def _renew(self) -> None:
        if not self._lives:
            return
        assert self.world.leases[self.name].held
        self.world.lease(self.name, report=self._said, renewed=self.world.clock.now)
        self.world.after(RENEWAL, self._renew)

    def _begin(self) -> None:
        """Reads what others say, and then the assignment, and reclaims what is its own, until that has succeeded."""
        if self._lives:
            self.world.request(self._others, self._begin_beside, lambda _: self._begin())

    def _others(self) -> list[RingMember]:
        leases, buckets = self.world.leases.items(), self.world.buckets
        return [read(name, lease, buckets) for name, lease in leases if name != self.name]

    def _begin_beside(self, others: list[RingMember]) -> None:
        world = self.world

        def again(_: Any) -> None:
            self._begin()

        def act(found: tuple[int, Data | None]) -> None:
            if self._lives:
                self._begun = 0
                self._see(*found)

        def reclaim(found: tuple[int, Data | None]) -> None:
            try:
                assignment = Assignment.parse(found[1])
                if contradiction(assignment, others):
                    world.after(1.0, self._begin)
                    return
                patch = assignment.reclaim(self.name)
            except Unreadable:
                if found[1] is not None:
                    world.after(1.0, self._begin)
                    return
                patch = None
            if patch is None:
                act(found)
            else:
                world.request(lambda: world.patch(patch), act, again)

        if self._lives:
            world.request(lambda: (world.version, world.data), reclaim, again)

    def _heard(self, version: int, data: Data | None) -> None:
        if self._lives and self._begun is not None:
            self._see(version, data)

    def _see(self, version: int, data: Data | None) -> None:
        if version <= self._begun:
            return
        self._begun = version
        try:
            self._assignment = Assignment.parse(data)
        except Unreadable as error:
            self._assignment = None
            self._do(self.ownership.unreadable(str(error)))
        else:
            self._do(self.ownership.seen(self._assignment))

    def _take_over(self, terms: Mapping[int, int]) -> None:
        if self._under_way:
            self.world.after(0.1, lambda: self._take_over(terms))
            return
        try:
            assignment = Assignment.parse(self.world.data)
        except Unreadable:
            self.world.after(1.0, lambda: self._take_over(terms))
        else:
            if contradiction(assignment, [each for each in self._others() if each.available]):
                self.world.after(1.0, lambda: self._take_over(terms))
                return
            self._do(self.ownership.confirm(self.ownership.unconfirmed, assignment))
            self._see(self.world.version, self.world.data)
            self.ownership.listed(terms)

    def _do(self, commands: Iterable[Command]) -> None:
        world, rng = self.world, self.world.rng
        for command in commands:
            match command:
                case Read(terms):
                    world.after(rng.uniform(0.01, 0.5), lambda terms=terms: self._take_over(terms))
                case Drain(buckets):
                    world.after(
                        rng.uniform(0.01, 1.0), lambda buckets=buckets: self._do(self.ownership.idle(buckets))
                    )
                case Acknowledge():
                    self._acknowledge()

    def _acknowledge(self) -> None:
        leaving = self.ownership.leaving
        if not self._lives or not leaving:
            self._retrying = False
            return
        if self._assignment is not None and (patch := self._assignment.acknowledge(self.name, leaving)):
            self._under_way += 1
            self.world.request(lambda: self.world.patch(patch), self._acknowledged, self._not_acknowledged)
        if not self._retrying:
            self._retrying = True
            self.world.after(1.0, self._again)

    def _acknowledged(self, found: tuple[int, Data | None]) -> None:
        self._under_way -= 1
        if self._lives:
            self._see(*found)

    def _not_acknowledged(self, _: Exception) -> None:
        self._under_way -= 1

    def _again(self) -> None:
        self._retrying = False
        self._acknowledge()


class Leases:
    """What a coordinator has seen of the Leases: late, but never older than before."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.known: dict[str, Lease] = {}
        self.news: Callable[[], None] = lambda: None

    def changed(self, shard: str, lease: Lease) -> None:
        self._world.after(self._world.rng.uniform(0.001, 0.3), lambda: self.put({shard: lease}))

    def put(self, leases: Mapping[str, Lease]) -> None:
        for shard, lease in leases.items():
            if lease.version > self.known.get(shard, Lease()).version:
                self.known[shard] = lease
        self.news()

    fresh, kinds = True, frozenset[str]()

    def members(self, buckets: Buckets) -> Collection[RingMember]:
        return [read(shard, lease, buckets) for shard, lease in self.known.items()]


def read(shard: str, lease: Lease, buckets: Buckets) -> RingMember:
    report = Report.parse(lease.report, buckets) if lease.report else None
    idle = report is None and not owns_some(lease.report)
    return RingMember(shard, lease.held, lease.weight, report, f"{lease.renewed:012.3f}", idle=idle)


class Leader:
    """Drives a coordinator."""

    def __init__(self, world: World, *, first: bool) -> None:
        self.world = world
        self.ended = False
        self.leases = Leases(world)
        self.watch = Watch(world, self._heard)
        self.machine = Coordinator(world.buckets, self.leases, world.clock, first=first)
        self._busy = self._news = False
        self._wakes_at = math.inf
        self.leases.put(self._snapshot())
        self.leases.news = self._tend
        world.after(0.0, self._tend)

    def _snapshot(self) -> dict[str, Lease]:
        return {shard: Lease(**vars(lease)) for shard, lease in self.world.leases.items()}

    def _heard(self, version: int, data: Data | None) -> None:
        if not self.ended:
            self.machine.seen(str(version), data)
            self._tend()

    def _tend(self) -> None:
        if self.ended:
            return
        self._news = True
        if not self._busy:
            self._busy, self._news = True, False
            self._steps = self.machine.tend()
            self._step(lambda: next(self._steps))

    def _step(self, advance: Callable[[], Any]) -> None:
        if self.ended:
            return
        try:
            command = advance()
        except StopIteration:
            self._busy = False
            if self._news:
                self._tend()
            elif self.machine.wake_at < self._wakes_at:
                self._wakes_at = max(self.machine.wake_at, self.world.clock.now + 0.001)
                self.world.after(self._wakes_at - self.world.clock.now, self._wake)
            return
        self._do(command)

    def _wake(self) -> None:
        if self._wakes_at <= self.world.clock.now:
            self._wakes_at = math.inf
            self._tend()

    def _do(self, command: object) -> None:
        world = self.world

        def answered(outcome: Any) -> None:
            match command:
                case Look():
                    version, data = outcome
                    self.machine.seen(str(version), data, read=True)
                case Create() | Change():
                    version, data = outcome
                    self.machine.seen(str(version), data)
                case ReadLeases():
                    self._busy_put(outcome)
                case Prove(shards):
                    self._busy_put(outcome)
                    outcome = frozenset(s for s in shards if not self.leases.known.get(s, Lease()).held)
            self._step(lambda: self._steps.send(outcome))

        def failed(error: Exception) -> None:
            self._step(lambda: self._steps.throw(error))

        match command:
            case Look():
                world.request(lambda: (world.version, world.data), answered, failed)
            case ReadLeases() | Prove():
                world.request(self._snapshot, answered, failed)
            case Create(data):
                world.request(lambda: world.create(data), answered, failed)
            case Change(patch):
                world.request(lambda: world.patch(patch), answered, failed)

    def _busy_put(self, leases: Mapping[str, Lease]) -> None:
        news, self.leases.news = self.leases.news, lambda: None
        self.leases.put(leases)
        self.leases.news = news


def _ignore(_: Any) -> None: ...
