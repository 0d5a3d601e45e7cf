"""Whether objects may be taken from a shard by force, told without an event loop."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kubeshard.core.builtin import Lease, LeaseSpec
from kubeshard.core.objects import Key, ObjectMeta
from kubeshard.sharding import proofs
from kubeshard.sharding.names import RING_LABEL
from kubeshard.sharding.proofs import (
    ABSENT_FOR,
    SHARED_FOR,
    STANDS_FOR,
    DeathProof,
    Pause,
    Proofs,
    ReadLeases,
    Tell,
)
from kubeshard.sharding.shard_states import STALE_AFTER, ShardStates


class Story:
    """Of the shards of one ring. Its Leases are at the API server (`leases`), and this process sees what it reads."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.leases: dict[str, Lease] = {}
        self.states = ShardStates()
        clock: Any = SimpleNamespace(monotonic=lambda: self.now)
        self.machine = Proofs(self.states, clock)
        self.ended = True
        self.ring: Any = SimpleNamespace(name="ring", has_ended=lambda shard: self.ended)
        self.reads, self.told = 0, list[bool]()
        self.version = 0
        self.passes(0.0)

    def lease(self, shard: str, holder: str | None = None, namespace: str = "ops") -> None:
        """The Lease at the API server."""
        self.version += 1
        meta = ObjectMeta(
            name=shard, namespace=namespace, resource_version=str(self.version), labels={RING_LABEL: "ring"}
        )
        holder = shard if holder is None else holder
        spec = LeaseSpec(
            holder_identity=holder, lease_duration_seconds=15, acquire_time="a", renew_time=str(self.version)
        )
        self.leases[shard] = Lease(metadata=meta, spec=spec)

    def passes(self, seconds: float) -> None:
        """In which all Leases are listed now and then, of which none has changed."""
        end = self.now + seconds
        self.states.confirm(self.now, self.now)
        while self.now < end:
            self.now = min(self.now + STALE_AFTER, end)
            self.states.confirm(self.now, self.now)

    def see(self, shard: str) -> None:
        self.states.observe(self.leases[shard], self.now)

    def ask(
        self, shard: str, meanwhile: Callable[[], None] = lambda: None, *, takes: float = 0.0
    ) -> DeathProof:
        """Asks now, and carries out the steps, if there are any. `meanwhile`: what happens in a pause."""
        proof = self.machine.asked(self.ring, shard, self.now)
        if proof.began < self.now:
            return proof
        steps, outcome = proof.steps(), None
        while True:
            try:
                command = steps.send(outcome)
            except StopIteration:
                return proof
            outcome = None
            match command:
                case ReadLeases():
                    self.reads, proof.began, asked = self.reads + 1, self.now, self.now
                    self.now += takes
                    outcome = [each for name, each in self.leases.items() if name == shard]
                    for each in outcome:
                        self.states.observe(each, self.now, asked)
                case Pause(seconds):
                    self.now += seconds
                    meanwhile()
                case Tell(dead, _):
                    self.told.append(dead)


@pytest.mark.parametrize(
    ("known", "there", "dead"),
    [
        ("released", "released", True),
        ("released", "held", False),
        ("held", "released", True),
        ("held", "held", False),
        ("", "released", True),
        ("", "held", False),
        ("", "", True),
        ("released", "", True),
        ("deleted", "", False),
    ],
)
def test_a_shard_is_dead_if_neither_a_read_nor_what_was_seen_shows_that_it_holds_a_lease(
    known: str, there: str, dead: bool
) -> None:
    story = Story()
    holders = {"released": "", "held": "a", "deleted": "a"}
    if known:
        story.lease("a", holders[known])
        story.see("a")
    if known == "deleted":
        story.states.forget(Key("ops", "a"), story.now)
    story.leases.clear()
    if there:
        story.lease("a", holders[there])
    proof = story.ask("a")
    assert (proof.dead, proof.stands(), story.told) == (dead, dead, [dead])


def test_without_a_confirmation_that_the_ring_wants_nothing_is_proven() -> None:
    story = Story()
    story.lease("a", "")
    story.ended = False
    proof = story.ask("a")
    assert not proof.stands()
    story.ended = True
    assert proof.stands()


def test_a_proof_stands_for_five_seconds_from_the_start_of_its_read_unless_something_contradicts_it() -> None:
    story = Story()
    story.lease("a", "")
    proof = story.ask("a", takes=1.0)
    story.now += STANDS_FOR - 1.0
    assert proof.stands()
    story.now += 0.1
    assert not proof.stands()
    proof = story.ask("a")
    story.lease("a")
    story.see("a")
    assert not proof.stands(), "the shard is back"


def test_a_shard_of_which_no_lease_was_ever_seen_is_dead_if_there_is_none_a_moment_later_either() -> None:
    story = Story()
    began = story.now
    assert story.ask("ghost").stands()
    assert (story.reads, story.now) == (2, began + ABSENT_FOR)
    story.passes(10.0)
    assert story.ask("ghost").stands()
    assert story.reads == 3, "that it has none is known"
    assert not story.ask("a", meanwhile=lambda: story.lease("a")).dead, "it has created its Lease again"
    story.leases.clear()
    story.lease("ghost")
    story.passes(10.0)
    assert not story.ask("ghost").dead
    assert story.told == [True, False, False], "again only after a change"


@pytest.mark.parametrize("listed", [True, False])
def test_that_a_shard_had_no_lease_before_a_silence_says_nothing_after_it(listed: bool) -> None:
    """It may have had one, which a restore has erased, and is about to create it again."""
    story = Story()
    assert story.ask("ghost").stands()
    story.now += 30.0
    if listed:
        story.passes(0.0)
    assert not story.ask("ghost", meanwhile=lambda: story.lease("ghost")).dead


def test_a_read_answers_whoever_has_read_the_object_before_it_began_for_two_seconds() -> None:
    story = Story()
    story.lease("a", "")
    first, read = story.ask("a"), story.now
    story.now += SHARED_FOR
    assert story.machine.asked(story.ring, "a", read) is first
    assert story.machine.asked(story.ring, "a", read + 0.1) is not first
    story = Story()
    story.lease("a", "")
    first, read = story.ask("a"), story.now
    story.now += SHARED_FOR + 0.1
    assert story.machine.asked(story.ring, "a", read) is not first
    story = Story()
    first = story.machine.asked(story.ring, "a", story.now)
    assert story.machine.asked(story.ring, "a", story.now) is first, "it has not been sent yet"
    first.failed = True
    again = story.machine.asked(story.ring, "a", story.now)
    assert (again is first, again.before) == (False, first), "one at a time"


def test_what_is_kept_of_shards_that_were_asked_about_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their names come from labels, which anybody may write."""
    monkeypatch.setattr(proofs, "REMEMBERED", 3)
    story = Story()
    for number in range(10):
        story.ask(f"ghost-{number}")
        story.now += 10.0
    known = story.machine._rings["ring"]
    assert (len(known.proofs), len(known.absent)) == (1, 1)
    assert len(story.machine.forget("ring")) == 1
    assert story.machine.forget("ring") == ()
