"""What becomes of the Leases of shards: stories, and random histories, without an event loop."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from kubeshard.core import Lease, LeaseSpec, ObjectMeta
from kubeshard.core.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound, Unavailable
from kubeshard.core.objects import Key
from kubeshard.runtime.clock import SystemClock
from kubeshard.sharding.lease_machine import (
    ASK_AGAIN,
    AT_ONCE,
    CONFIRMED,
    HELD_BACK,
    KEPT,
    RELABEL,
    SILENT,
    Annotate,
    AskKubelet,
    Collect,
    Command,
    Forget,
    Label,
    LeaseMachine,
    Read,
    ReadAll,
    Steps,
    Take,
    Why,
)
from kubeshard.sharding.names import (
    CONFIRMED_ANNOTATION,
    EVICTED_ANNOTATION,
    INCARNATION_ANNOTATION,
    PROOFS_ANNOTATION,
    RING_LABEL,
    SHARDER_IDENTITY,
    STATE_LABEL,
)
from kubeshard.sharding.shard_states import (
    STALE_AFTER,
    Confirmations,
    ShardChange,
    ShardState,
    ShardStates,
    is_confirmed,
)
from kubeshard.sharding.take_overs import Evictions

D = 15.0
LISTED_EVERY = 3.0
"""Seconds of silence after which whoever drives the machine lists all Leases."""
A, B = Key("ns", "a"), Key("ns", "b")
FORBIDDEN = Forbidden("a policy", code=403, reason="Forbidden")
DOWN = Unavailable("down", code=503, reason="ServiceUnavailable")


class Time(SystemClock):
    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return 1.8e9 + self.now


class Told:
    """The report and the counts of a ring."""

    def __init__(self) -> None:
        self.refused: dict[str, str] = {}
        self.failing_together = ""
        self.counts: list[str] = []

    def lease(self, lease: str, refused: str = "") -> None:
        self.refused[lease] = refused

    def add(self, name: str, /) -> None:
        self.counts.append(name)

    def set(self, name: str, value: float, /) -> None: ...


@dataclass(eq=False)
class Ring:
    states: ShardStates
    time: Time
    name: str = "ring"
    ended: bool = False
    evictions: Evictions = field(default_factory=lambda: Evictions(0.0))
    confirmations: Confirmations | None = None
    report: Told = field(default_factory=Told)

    @property
    def metrics(self) -> Told:
        return self.report

    @property
    def available(self) -> tuple[str, ...]:
        return self.states.available(self.name, self.time.now)


class Story:
    """A ring, the Leases that the API server has, and a machine whose commands are carried out at once, or not."""

    def __init__(self, *shards: str, grace: float = 0.0) -> None:
        self.time = Time()
        self.states = ShardStates()
        self.ring = Ring(self.states, self.time)
        self.rings = {"ring": self.ring}
        self.machine = LeaseMachine(self.states, self.rings, self.time, grace)
        self.stored: dict[Key, Lease] = {}
        self.renewed: dict[Key, float] = {}
        """When the spec of each changed last, whoever knows it."""
        self.version = 0
        self.ended: set[str] = set()
        """Shards that have ended according to the kubelet."""
        self.faults: Callable[[Command], ApiError | None] = lambda command: None
        self.done: list[Command] = []
        self.news: dict[Key, None] = {}
        self.machine.begin()
        for name in shards:
            self.renews(name)

    # What shards do

    def renews(self, name: str, *, holder: str | None = None, seconds: float = D) -> Key:
        key, text = Key("ns", name), f"{self.time.now:.3f}, {self.version}"
        before = self.stored.get(key)
        self.store(
            Lease(
                metadata=before.metadata
                if before
                else ObjectMeta(
                    name=name,
                    namespace="ns",
                    uid=f"{name}-{self.version}",
                    labels={RING_LABEL: "ring"},
                    annotations={INCARNATION_ANNOTATION: "pod/x"},
                ),
                spec=LeaseSpec(
                    holder_identity=name if holder is None else holder,
                    lease_duration_seconds=round(seconds),
                    acquire_time=text,
                    renew_time=text,
                    lease_transitions=before.spec.lease_transitions if before else 0,
                ),
            )
        )
        self.sees(key)
        return key

    def store(self, lease: Lease) -> Lease:
        self.version += 1
        before = self.stored.get(lease.key)
        if before is None or before.spec != lease.spec:
            self.renewed[lease.key] = self.time.now
        metadata = replace(lease.metadata, resource_version=str(self.version))
        stored = self.stored[lease.key] = replace(lease, metadata=metadata)
        return stored

    def sees(self, key: Key) -> None:
        """The watch shows the Lease."""
        self.states.heard(self.time.now)
        lease = self.stored.get(key)
        if lease is None:
            self.tell(self.states.forget(key, self.time.now))
        else:
            self.tell(self.states.observe(lease, self.time.now))

    def lists(self) -> None:
        """A list of all Leases, which is answered at once."""
        now = self.time.now
        for key in sorted({*self.stored, *self.states.keys()}):
            lease = self.stored.get(key)
            if lease is None:
                self.tell(self.states.forget(key, now, str(self.version), now))
            else:
                self.tell(self.states.observe(lease, now, now))
        self.states.confirm(now, now, str(self.version))

    def tell(self, change: ShardChange | None) -> None:
        if change is not None and self.machine.changed(change):
            self.news[change.key] = None

    # What whoever drives the machine does

    def carry_out(self, command: Command) -> Any:
        """Raises ApiError."""
        self.done.append(command)
        if (error := self.faults(command)) is not None:
            raise error
        match command:
            case AskKubelet(lease):
                return lease.metadata.name in self.ended
            case ReadAll():
                self.lists()
                return None
            case Read(key, settled):
                if key not in self.stored:
                    raise NotFound("no", code=404, reason="NotFound")
                if settled:
                    self.tell(self.states.forget_tombstone(key, self.time.now))
                self.tell(self.states.observe(self.stored[key], self.time.now, self.time.now))
                return self.stored[key]
            case Forget(shard, refused):
                over = self.states.forget if refused is None else self.states.forget_tombstone
                self.tell(over(shard.key, self.time.now))
                return None
        return self.write(command)

    def write(self, command: Label | Take | Annotate | Collect) -> None:
        key, known = command.shard.key, command.shard.lease.metadata
        there = self.stored.get(key)
        if isinstance(command, Take) and command.shard.deleted:
            if there is not None:
                raise AlreadyExists("yes", code=409, reason="AlreadyExists")
            self.tell(self.states.observe(self.store(command.taken), self.time.now))
            return
        if there is None:
            if isinstance(command, Annotate | Collect):
                return
            raise NotFound("no", code=404, reason="NotFound")
        if isinstance(command, Take):
            known = command.taken.metadata
        if there.metadata.resource_version != known.resource_version:
            raise Conflict("newer", code=409, reason="Conflict")
        meta = there.metadata
        match command:
            case Collect():
                del self.stored[key]
                self.sees(key)
                return
            case Take():
                there = command.taken
            case Label(shard):
                labels = {**(meta.labels or {}), STATE_LABEL: str(shard.state)}
                there = replace(there, metadata=replace(meta, labels=labels))
            case Annotate(_, changes):
                merged = {**(meta.annotations or {}), **changes}
                kept = {name: text for name, text in merged.items() if text is not None}
                there = replace(there, metadata=replace(meta, annotations=kept))
        self.tell(self.states.observe(self.store(there), self.time.now))

    def tend(self, key: Key) -> None:
        """Raises ApiError, as the machine does."""
        steps = self.machine.tend(key)
        try:
            command = next(steps)
            while True:
                try:
                    outcome = self.carry_out(command)
                except ApiError as error:
                    command = steps.throw(error)
                else:
                    command = steps.send(outcome)
        except StopIteration:
            return

    def settle(self) -> None:
        """Does what is due now."""
        for _ in range(100):
            keys = {*self.news, *self.machine.due()}
            self.news.clear()
            for key in sorted(keys):
                self.tend(key)
            if not self.news and self.machine.wake_at > self.time.now:
                return
        raise AssertionError("it never ends")

    def passes(self, seconds: float, *, renewing: str = "") -> None:
        """Time passes, in which these shards renew their Leases, and all is done when it is due."""
        end = self.time.now + seconds
        next_renewal = self.time.now
        while self.time.now < end:
            if renewing and self.time.now >= next_renewal:
                next_renewal += 2.0
                for name in renewing:
                    self.renews(name)
            self.states.confirm(self.time.now, self.time.now)  # what is known is up to date
            self.settle()
            listed = self.time.now + STALE_AFTER
            wake = min(self.machine.wake_at, next_renewal if renewing else math.inf, listed, end)
            self.time.now = max(wake, self.time.now + 1e-3)
        self.settle()

    def holder(self, name: str = "a") -> str | None:
        lease = self.stored.get(Key("ns", name))
        return lease.spec.holder_identity if lease is not None else None

    def state(self, name: str = "a") -> str:
        return self.stored[Key("ns", name)].metadata.label(STATE_LABEL)

    def annotation(self, annotation: str, name: str = "a") -> str:
        return self.stored[Key("ns", name)].metadata.annotation(annotation)

    def did(self, kind: type) -> int:
        return sum(isinstance(each, kind) for each in self.done)


# Stories


@pytest.mark.parametrize(
    ("seconds", "state", "holder"),
    [
        (0.0, "ready", "a"),
        (14.9, "ready", "a"),
        (15.0, "expired", "a"),
        (29.9, "expired", "a"),
        (30.0, "dead", SHARDER_IDENTITY),
        (119.9, "dead", SHARDER_IDENTITY),
    ],
)
def test_a_lease_that_is_not_renewed_is_labelled_and_taken_on_time(
    seconds: float, state: str, holder: str
) -> None:
    story = Story("a", "b")
    story.passes(seconds, renewing="b")
    assert (story.state(), story.holder()) == (state, holder)
    assert (story.state("b"), story.holder("b")) == ("ready", "b")


def test_a_lease_that_was_taken_is_deleted_a_minute_after_its_new_duration() -> None:
    story = Story("a")
    story.passes(30.0 + 2 * D + 60.0 - 0.1)
    assert A in story.stored
    story.passes(0.1)
    assert A not in story.stored


def test_a_healthy_shard_costs_nothing_but_its_first_label() -> None:
    story = Story("a")
    story.passes(300.0, renewing="a")
    assert [type(each) for each in story.done] == [Label]


def test_a_lease_that_was_renewed_unseen_is_not_taken() -> None:
    story = Story("a")
    story.passes(29.0)
    sees, story.sees = story.sees, lambda key: None  # type: ignore[method-assign]
    story.renews("a")
    story.sees = sees  # type: ignore[method-assign]
    story.passes(5.0)
    assert story.holder() == "a"
    assert story.did(Take) == 0


def test_a_lease_that_is_as_it_was_before_a_silence_is_not_taken_because_a_restore_may_have_erased_renewals() -> (
    None
):
    story = Story("a", "b")
    story.passes(28.0, renewing="b")
    story.time.now += (
        20.0  # the sharder is cut off; "a" has renewed its Lease, but the backup knows nothing of it
    )
    story.settle()
    assert story.did(Take) == 0, "a read of this Lease says nothing about what was erased"
    story.lists()
    story.passes(2 * D - 0.1, renewing="b")
    assert story.holder() == "a"
    story.passes(0.2, renewing="b")
    assert story.holder() == SHARDER_IDENTITY


def test_a_lease_that_is_renewed_between_the_read_and_the_take_over_stays_its_shards() -> None:
    story = Story("a")

    def renewed(command: Command) -> None:
        if isinstance(command, Take):
            story.renews("a")

    story.faults = renewed
    with pytest.raises(Conflict):
        story.passes(30.0)
    assert story.holder() == "a"


def test_without_its_ring_a_lease_is_left_alone() -> None:
    story = Story("a")
    story.rings.clear()
    story.passes(200.0)
    assert story.done == []
    story.rings["ring"] = story.ring
    story.news.update(dict.fromkeys(story.machine.of_ring("ring")))
    story.passes(0.0)
    assert story.holder() == SHARDER_IDENTITY


def test_a_lease_that_may_not_be_labelled_is_taken_all_the_same_and_people_are_told_why() -> None:
    story = Story("a")
    story.faults = lambda command: FORBIDDEN if isinstance(command, Label) else None
    story.passes(30.0)
    assert (story.state(), story.holder()) == ("", SHARDER_IDENTITY)
    story.passes(30.0)
    assert story.ring.report.refused == {"ns/a": "a policy"}
    told = [each.told for each in story.done if isinstance(each, Label) and each.news]
    assert told == [ShardState.UNKNOWN, ShardState.READY, ShardState.EXPIRED, ShardState.UNCERTAIN]
    story.faults = lambda command: None
    story.passes(RELABEL)
    assert story.state() == "dead"
    assert story.ring.report.refused == {"ns/a": ""}


def test_what_the_api_server_refuses_is_no_secret_of_the_machine() -> None:
    """Whoever drives it tries again, after a while that is not the machine's concern."""
    story = Story("a")
    story.passes(29.9)
    story.faults = lambda command: DOWN if isinstance(command, Read) else None
    with pytest.raises(Unavailable):
        story.passes(0.1)
    story.faults = lambda command: None
    story.tend(A)
    assert story.holder() == SHARDER_IDENTITY


def test_a_shard_whose_containers_have_ended_is_taken_over_after_two_answers() -> None:
    story = Story("a", "b")
    story.passes(2.0, renewing="b")
    story.ended.add("a")
    story.passes(SILENT - 2.0 + CONFIRMED - 0.1, renewing="b")
    assert story.holder() == "a"
    story.passes(0.2, renewing="b")
    assert story.holder() == SHARDER_IDENTITY
    assert story.annotation(PROOFS_ANNOTATION).startswith("1")
    assert [each.why for each in story.done if isinstance(each, Take)] == [Why.ENDED]


def test_a_renewal_does_not_put_off_the_look_for_who_is_silent_already() -> None:
    """Leases are renewed all the time in a large ring, so the loop is often late: it never looked then."""
    story = Story("a", "b", "c")
    for _ in range(3):
        story.passes(0.8)
        for name in "bc":
            story.renews(name)
            story.machine.renewed()
    assert story.machine.wake_at > story.time.now
    story.time.now = SILENT + 0.01
    for name in "bc":
        story.renews(name)
        story.machine.renewed()
    assert story.machine.wake_at <= story.time.now
    assert A in story.machine.due()


def test_a_deleted_lease_is_created_again_as_taken_after_twice_its_duration() -> None:
    story = Story("a")
    story.passes(1.0)
    del story.stored[A]
    story.sees(A)
    story.passes(28.9)
    assert A not in story.stored
    assert story.ring.available == ("a",)
    story.passes(0.1)
    assert (story.holder(), story.state()) == (SHARDER_IDENTITY, "dead")
    assert story.ring.available == ()


def test_a_tombstone_whose_shard_has_created_its_lease_again_unseen_is_over() -> None:
    story = Story("a")
    story.passes(1.0)
    deleted = story.stored.pop(A)
    story.sees(A)
    story.passes(20.0)
    story.store(deleted)
    story.passes(9.0)
    assert story.holder() == "a"
    assert story.ring.available == ("a",)


def test_a_tombstone_that_cannot_be_created_again_is_given_up() -> None:
    story = Story("a")
    story.passes(1.0)
    del story.stored[A]
    story.sees(A)
    story.faults = lambda command: FORBIDDEN if isinstance(command, Take) else None
    story.passes(29.0)
    assert story.did(Forget) == 1
    assert A not in story.states


def test_most_shards_that_fail_at_once_are_left_alone_for_a_while_and_then_given_up_in_parts() -> None:
    story = Story(*"abcde", grace=60.0)
    story.passes(80.0, renewing="e")
    assert [story.holder(name) for name in "abcd"] == [*"abcd"]
    assert story.did(ReadAll) == 1
    assert "most shards failed" in story.ring.report.failing_together
    story.passes(60.0, renewing="e")
    assert [story.holder(name) for name in "abcd"] == [SHARDER_IDENTITY] * 4
    story.passes(60.0, renewing="e")
    assert story.ring.report.failing_together == ""


def test_that_a_ring_fails_no_more_is_noticed_though_no_lease_of_it_is_left() -> None:
    story = Story(*"abc", grace=10.0)
    story.passes(31.0)
    assert story.ring.report.failing_together
    story.stored.clear()
    for key in (A, B, Key("ns", "c")):
        story.sees(key)
        story.states.forget_tombstone(key, story.time.now)
    story.news.clear()
    story.time.now += HELD_BACK
    story.machine.due()
    assert story.ring.report.failing_together == ""


def test_a_shard_that_does_not_release_what_it_has_is_evicted_and_keeps_it_until_it_cannot_act() -> None:
    story = Story("a", "b")
    story.ring.evictions = Evictions(20.0)
    for _ in range(20):
        story.ring.evictions.overdue([("bucket 7", "a", story.time.now)])
        story.passes(2.0, renewing="ab" if story.holder() == "a" else "b")
        if story.holder() != "a":
            break
    assert story.holder() == SHARDER_IDENTITY
    assert story.annotation(EVICTED_ANNOTATION) == "1"
    assert story.ring.available == ("a", "b")
    assert story.ring.report.counts == ["evictions"]
    story.ring.evictions.overdue([])
    story.passes(2 * D + 1.0, renewing="b")
    assert story.ring.available == ("b",)
    assert story.annotation(EVICTED_ANNOTATION) == ""
    assert story.annotation(PROOFS_ANNOTATION) == "1"


@pytest.mark.parametrize(("ended", "by"), [(True, "kubelet"), (False, "waited")])
def test_in_a_ring_with_strict_hand_over_an_end_is_confirmed_and_the_lease_is_kept(
    ended: bool, by: str
) -> None:
    story = Story("a")
    story.ring.confirmations = Confirmations(100.0)
    story.passes(31.0)
    assert not is_confirmed(story.stored[A])
    if ended:
        story.ended.add("a")
    story.passes(ASK_AGAIN if ended else 100.0)
    assert story.annotation(CONFIRMED_ANNOTATION) == f"1/{by}"
    story.passes(KEPT - 4 * ASK_AGAIN)
    assert A in story.stored
    story.passes(200.0)
    assert A not in story.stored


def test_of_many_leases_that_are_due_so_many_are_tended_in_each_turn() -> None:
    story = Story(*(f"s{number}" for number in range(2 * AT_ONCE + 1)))
    story.machine.begin()
    turns = [len(story.machine.due()) for _ in range(4)]
    assert turns == [AT_ONCE, AT_ONCE, 1, 0]
    assert story.machine.wake_at > story.time.now


# Random histories


class History(Story):
    """Shards live, pause, die, and are restarted; watches lag; requests fail, are slow, and some are given up. Checks
    each write against what only the test knows.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        super().__init__(grace=self.random.choice([0.0, 20.0]))
        self.names = "abcd"[: self.random.randint(1, 4)]
        self.alive = set(self.names)
        self.under_way: dict[Key, tuple[Steps, Command]] = {}
        self.again: dict[Key, None] = {}
        """Whose tending failed."""
        self.troubled = True

    def write(self, command: Label | Take | Annotate | Collect) -> None:
        there = self.stored.get(command.shard.key)
        super().write(command)
        if there is None:
            return
        key, holds = there.key, there.spec.holder_identity == there.metadata.name
        if isinstance(command, Take):
            ended = command.why is Why.ENDED and key.name in self.ended
            assert ended or self.time.now - self.renewed_before[key] >= 2 * D - 0.01
        if isinstance(command, Collect):
            assert not holds

    def store(self, lease: Lease) -> Lease:
        self.renewed_before = dict(self.renewed)
        return super().store(lease)

    def step(self) -> None:
        draw = self.random
        what = draw.random()
        name = draw.choice(self.names)
        if self.states.silence(self.time.now) > LISTED_EVERY:
            self.lists()
        if what < 0.2:
            self.time.now += draw.choice([0.01, 0.1, 0.5, 2.0, 2.0, 8.0 if self.troubled else 0.5])
        elif what < 0.45:
            for each in sorted(self.alive):
                if self.stored.get(Key("ns", each)) is None or self.holder(each) == each:
                    self._renews(each)
        elif what < 0.5:
            self.lists()
        elif what < 0.56 and self.troubled:
            self._happens(name)
        elif what < 0.65:
            self._begin()
        elif self.under_way:
            self._proceed(draw.choice(sorted(self.under_way)))

    def _happens(self, name: str) -> None:
        draw, key = self.random, Key("ns", name)
        what = draw.random()
        if what < 0.4:
            self.alive.discard(name)
            if draw.random() < 0.3:
                self.ended.add(name)
        elif what < 0.8:
            self.ended.discard(name)
            self.alive.add(name)
            if key in self.stored and draw.random() < 0.5:
                self._renews(name)  # a shard takes its Lease back
        elif what < 0.9:
            self.stored.pop(key, None)
            if draw.random() < 0.7:
                self.sees(key)
        else:
            self.machine.begin()

    def _renews(self, name: str) -> None:
        sees = self.sees
        if self.troubled and self.random.random() < 0.2:
            self.sees = lambda key: None  # type: ignore[method-assign]
        self.renews(name)
        self.sees = sees  # type: ignore[method-assign]

    def _begin(self) -> None:
        due = {*self.machine.due(), *self.news, *self.again}
        self.news.clear()
        self.again.clear()
        for key in sorted(due):
            if key in self.under_way:
                self.again[key] = None
                continue
            steps = self.machine.tend(key)
            self._goes_on(key, steps, lambda steps=steps: next(steps))

    def _proceed(self, key: Key) -> None:
        steps, command = self.under_way.pop(key)
        if self.troubled and (chance := self.random.random()) < 0.15:
            if chance < 0.03:
                steps.close()  # given up
                self.again[key] = None
                return
            error = self.random.choice([DOWN, FORBIDDEN])
            if not isinstance(command, AskKubelet | ReadAll | Forget):
                self._goes_on(key, steps, lambda: steps.throw(error))
                return
        try:
            outcome = self.carry_out(command)
        except ApiError as error:
            failure = error
            self._goes_on(key, steps, lambda: steps.throw(failure))
        else:
            self._goes_on(key, steps, lambda: steps.send(outcome))

    def _goes_on(self, key: Key, steps: Steps, resume: Callable[[], Command]) -> None:
        try:
            self.under_way[key] = steps, resume()
        except StopIteration:
            known = self.states.shard(key, self.time.now)
            awaited = key in self.machine._looks or key in self.news or key in self.again
            assert awaited or known is None or known.state is ShardState.ORPHANED, "nobody looks at it again"
        except ApiError:
            self.again[key] = None


class Rewritten(Story):
    """Shards live and die, the sharder is cut off or hears nothing, and etcd is restored from backups, of which it may
    see no sign. Checks each take-over against the renewals that there were, erased or not.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lives_until, self.dead_until = dict.fromkeys("ab", 0.0), dict.fromkeys("ab", 0.0)
        self.renewals: dict[str, float] = {}
        self.cut_until = self.deaf_until = -math.inf
        """Until when the sharder reaches nobody and hears nothing, and until when it only reads single Leases."""
        self.listed = -math.inf
        self.taken = 0
        self.again: dict[Key, None] = {}
        super().__init__("a", "b")
        self.backups = [(self.time.now, self.version, dict(self.stored))]

    def write(self, command: Label | Take | Annotate | Collect) -> None:
        super().write(command)
        if isinstance(command, Take):
            self.taken += 1
            assert self.time.now - self.renewals[command.shard.name] >= 2 * D

    def tend(self, key: Key) -> None:
        try:
            super().tend(key)
        except ApiError:
            self.again[key] = None

    def lives(self, name: str) -> None:
        self.renewals[name] = self.time.now
        self.renews(name)

    def sees(self, key: Key) -> None:
        if max(self.cut_until, self.deaf_until) <= self.time.now:
            super().sees(key)

    def step(self) -> None:
        draw = self.random
        self.time.now += draw.choice([0.3, 1.0, 2.0])
        self.version += 1  # something else is written
        now = self.time.now
        match draw.randrange(40):
            case 0:
                self.cut_until = now + draw.choice([2.0, 8.0, 20.0, 60.0])
            case 1:
                self.deaf_until = now + draw.choice([2.0, 8.0, 20.0, 60.0])
            case 2 | 3 | 4:
                self.backups = [*self.backups[-5:], (now, self.version, dict(self.stored))]
            case 5:
                self._restore()
        for name in "ab":
            if now >= self.dead_until[name]:
                self.lives_until[name] = now + draw.choice([5.0, 20.0, 40.0])
                self.dead_until[name] = self.lives_until[name] + draw.choice([10.0, 40.0, 80.0])
                self.lives(name)
            elif now < self.lives_until[name] and self.holder(name) in (name, None):
                self.lives(name)
        if now >= self.cut_until:
            if now >= self.deaf_until and now - self.listed > LISTED_EVERY:
                self.lists()
                self.listed = now
            self.faults = lambda command: (
                DOWN if isinstance(command, ReadAll) and now < self.deaf_until else None
            )
            self.news, self.again = {**self.news, **self.again}, {}
            self.settle()

    def _restore(self) -> None:
        """Some shards die with it."""
        old = [backup for backup in self.backups if self.time.now - backup[0] >= 2 * STALE_AFTER]
        if not old:
            return
        _, self.version, stored = self.random.choice(old)
        self.stored = dict(stored)
        for name in "ab":
            if self.random.random() < 0.5:
                self.lives_until[name] = self.time.now
        for key in self.stored:  # watches begin anew
            self.sees(key)


@pytest.mark.parametrize("part", range(4))
def test_whatever_a_restore_has_erased_no_lease_is_taken_before_its_last_renewal_is_long_over(
    part: int,
) -> None:
    taken = 0
    for seed in range(part * 25, part * 25 + 25):
        history = Rewritten(seed)
        for _ in range(300):
            history.step()
        taken += history.taken
    assert taken > 25


@pytest.mark.parametrize("part", range(8))
def test_in_any_history_no_shard_loses_its_lease_early_and_all_is_in_order_in_the_end(part: int) -> None:
    for seed in range(part * 10, part * 10 + 10):
        history = History(seed)
        for _ in range(300):
            history.step()
        history.troubled = False
        end = history.time.now + 400.0
        while history.time.now < end:
            history.step()
        for key, lease in history.stored.items():
            assert lease.spec.holder_identity == key.name, (
                seed,
                key,
            )  # what nobody holds is collected by then
            known = history.states.shard(key, history.time.now)
            assert known is not None
            if key.name in history.alive and known.state is ShardState.READY:
                assert lease.metadata.label(STATE_LABEL) in ("ready", "expired"), seed
