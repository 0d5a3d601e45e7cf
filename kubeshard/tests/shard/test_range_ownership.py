"""What a shard does about each bucket of its ring, by table and in random histories."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from kubeshard.core.errors import ApiError
from kubeshard.core.kinds import GroupKind
from kubeshard.core.patches import JsonPatch
from kubeshard.shard.range_ownership import (
    Acknowledge,
    Command,
    Drain,
    RangeOwnership,
    Read,
    Released,
    State,
    Stop,
    Tell,
)
from kubeshard.sharding.assignment import Assignment, Place
from kubeshard.sharding.buckets import Buckets
from kubeshard_apiserver.json_patch import apply_json_patch

BUCKETS = Buckets(4)


def says(*places: str) -> Assignment:
    """One place for each bucket; the last one is that of all others, too."""
    parsed = [Place.parse(place) for place in places]
    parsed += parsed[-1:] * (BUCKETS.count - len(parsed))
    return Assignment.of(BUCKETS, dict(enumerate(parsed)))


def ownership(*steps: str) -> RangeOwnership:
    """That of shard `a`, whose first bucket went through these steps: what the assignment says of it, or `listed` or
    `idle`.
    """
    made = RangeOwnership("a", BUCKETS)
    for step in steps:
        take(made, step)
    return made


def hear(made: RangeOwnership, assignment: Assignment) -> list[Command]:
    """The assignment says this, and a read confirms it."""
    commands = made.seen(assignment)
    made.confirm(made.unconfirmed, assignment)
    return commands


def take(made: RangeOwnership, step: str) -> list[Command]:
    if step == "listed":
        made.listed(made.terms)
        return []
    if step == "idle":
        return made.idle({0})
    if step == "gone":
        return made.unreadable("it is gone")
    return hear(made, says(step, "z@1"))


F, A, W, D, L = State.FOREIGN, State.ACQUIRING, State.OWNED, State.DRAINING, State.LEAVING
OURS, OURS_TO_GO = ("a@1", "listed"), ("a@1", "listed", "a to b@2")
LEFT = (*OURS_TO_GO, "idle")
TABLE = [
    # what happened, what happens, the state then, the commands
    ((), "b@1", F, []),
    ((), "@0", F, []),
    ((), "a@1", A, [Read]),
    ((), "a to b@1", D, [Drain, Read]),
    ((), "gone", F, [Tell]),
    (("b@5",), "a@4", F, []),
    (("b@5",), "a@5", F, []),
    (("b@5",), "a@6", A, [Read]),
    (("a@1",), "a@1", A, []),
    (("a@1",), "listed", W, []),
    (("a@1",), "a to b@2", D, [Drain]),
    (("a@1",), "b@2", F, [Stop, Tell, Read]),
    (("a@1",), "gone", A, [Tell]),
    (OURS, "a@1", W, []),
    (OURS, "a@7", W, []),
    (OURS, "a to b@2", D, [Drain]),
    (OURS, "b@2", F, [Stop, Tell, Read]),
    (OURS, "@2", F, [Stop, Tell, Read]),
    (OURS, "b@1", W, [Tell]),
    (OURS, "b@0", W, [Tell]),
    (OURS, "a@0", W, [Tell]),
    (OURS, "a to b@0", W, [Tell]),
    (OURS, "gone", W, [Tell]),
    (OURS_TO_GO, "a to c@3", D, []),
    (OURS_TO_GO, "a@3", A, [Read]),
    (OURS_TO_GO, "listed", D, []),
    (OURS_TO_GO, "idle", L, [Acknowledge]),
    (OURS_TO_GO, "b@3", F, [Stop, Tell, Read]),
    (OURS_TO_GO, "b@2", D, [Tell]),
    (OURS_TO_GO, "gone", A, [Tell, Read]),
    (("a to b@1",), "idle", L, [Acknowledge]),
    (LEFT, "a to b@2", L, []),
    (LEFT, "a to c@3", L, []),
    (LEFT, "a@3", A, [Read]),
    (LEFT, "b@3", F, [Released, Read]),
    (LEFT, "c@4", F, [Released, Read]),
    (LEFT, "b@2", L, [Tell]),
    (LEFT, "gone", L, [Tell]),
    ((*LEFT, "b@3"), "a to b@2", F, []),
    ((*LEFT, "b@3"), "a@4", A, [Read]),
    ((*LEFT, "a@3"), "listed", W, []),
]


@pytest.mark.parametrize(("before", "step", "state", "commands"), TABLE)
def test_each_step_has_one_outcome(
    before: tuple[str, ...], step: str, state: State, commands: list[type[Command]]
) -> None:
    made = ownership(*before)
    assert [type(command) for command in take(made, step)] == commands
    assert made.state(0) is state
    assert (made.term(0) is not None) is (state is W)
    assert made.may_write(0) is (state in (W, D))
    assert (0 in made.terms) is (state is not F)


def test_what_was_listed_in_an_earlier_term_does_not_count() -> None:
    made = ownership("a@1")
    before = made.terms
    take(made, "a to b@2")
    take(made, "a@3")
    assert made.terms != before
    made.listed(before)
    assert made.state(0) is A
    made.listed(made.terms)
    assert made.state(0) is W


PARTS, SITES = GroupKind("example.com", "Part"), GroupKind("example.com", "Site")


def test_what_an_edit_or_a_restore_has_put_back_is_not_acknowledged() -> None:
    """The next owner would have it at an epoch that this shard has seen before, and this shard would get it back."""
    made = ownership(*OURS, "a to b@4", "idle")
    assert made.leaving == {0}
    take(made, "a to b@2")
    assert made.leaving == frozenset()
    assert made.state(0) is L
    take(made, "a to b@5")
    assert made.leaving == {0}


def test_a_run_begins_when_the_kinds_that_it_reads_have_been_listed_in_its_term() -> None:
    made = ownership("a@1")
    term = made.terms[0]
    assert made.term(0, frozenset()) is None  # what the cache has may be older
    made.listed(made.terms, frozenset({PARTS}))
    assert made.term(0, frozenset()) == made.term(0, frozenset({PARTS})) == term
    assert made.term(0, frozenset({PARTS, SITES})) is made.term(0) is None
    assert made.may_write(0, term)
    assert made.state(0) is A
    made.listed(made.terms, frozenset({SITES}))
    assert made.term(0, frozenset({PARTS, SITES})) == term
    take(made, "a to b@2")
    assert made.term(0, frozenset()) is None
    take(made, "a@3")
    assert made.term(0, frozenset()) is None
    assert not made.may_write(0)
    take(made, "listed")
    assert made.term(0) == made.term(0, frozenset({PARTS}))


def test_nothing_writes_to_what_is_idle_and_waits_for_other_buckets_to_be_acknowledged() -> None:
    buckets = Buckets(2, "uid")
    made = RangeOwnership("a", buckets)
    hear(made, Assignment.of(buckets, {bucket: Place("a", "", 1) for bucket in range(2)}))
    made.listed(made.terms)
    hear(made, Assignment.of(buckets, {bucket: Place("a", "b", 2) for bucket in range(2)}))
    assert made.idle({0}) == []
    assert made.state(0) is D
    assert [made.may_write(bucket) for bucket in range(2)] == [False, True]
    hear(made, Assignment.of(buckets, {bucket: Place("a", "", 3) for bucket in range(2)}))
    made.listed(made.terms)
    assert made.may_write(0)


def test_a_run_of_an_earlier_term_writes_no_more() -> None:
    made = ownership(*OURS)
    term = made.term(0)
    take(made, "a to b@2")
    assert made.may_write(0, term)
    take(made, "a@3")
    take(made, "listed")
    assert not made.may_write(0, term)
    assert made.may_write(0, made.term(0))


def test_all_buckets_of_a_drain_are_acknowledged_together_and_what_is_overdue_without_the_others() -> None:
    made = RangeOwnership("a", BUCKETS)
    hear(made, says("a@1"))
    made.listed(made.terms)
    assert made.seen(says("a to b@2", "a to b@2", "a to b@2", "a@1")) == [Drain(frozenset({0, 1, 2}))]
    assert made.idle({0}) == []
    assert made.idle({1}) == []
    assert made.overdue() == [Acknowledge(frozenset({0, 1}))]
    assert made.idle({2}) == [Acknowledge(frozenset({2}))]
    assert made.leaving == {0, 1, 2}
    assert str(made.report) == "0-2@2,3-3@1/2"


def heard(place: str) -> RangeOwnership:
    """Nothing has confirmed this yet."""
    made = RangeOwnership("a", BUCKETS)
    made.seen(says(place, "z@1"))
    return made


def test_no_run_begins_with_what_no_read_has_confirmed() -> None:
    made = heard("a@5")
    made.listed(made.terms)
    assert (made.state(0), made.term(0)) == (A, None)
    made.confirm(made.unconfirmed, says("a@5", "z@1"))
    made.listed(made.terms)
    assert (made.state(0), made.unconfirmed) == (W, {})


def test_nothing_writes_to_what_no_read_has_confirmed_and_no_other_shard_is_told_of_it() -> None:
    for place in ("a@5", "a to b@5"):
        made = heard(place)
        made.listed(made.terms)
        assert (made.may_write(0), made.report.epochs) == (False, {})


def test_what_was_acknowledged_begins_again_when_a_read_confirms_that_it_was_not_handed_over() -> None:
    """The object was put back to what the acknowledgement tests, and the watch is late: it shows what was before."""
    made = ownership(*LEFT)
    made.seen(says("a@3", "z@1"))
    made.listed(made.terms)
    assert (made.term(0), made.may_write(0), made.report.epochs) == (None, False, {})
    made.confirm(made.unconfirmed, says("b@3", "z@1"))
    assert made.state(0) is F


def test_that_a_drain_is_cancelled_confirms_nothing() -> None:
    """Both may be what an edit gave, and what has been undone since."""
    made = heard("a to b@5")
    made.seen(says("a@6", "z@1"))
    made.listed(made.terms)
    assert (made.term(0), made.may_write(0), made.report.epochs) == (None, False, {})


def test_what_a_read_gives_to_others_is_forgotten_until_it_is_given_again() -> None:
    """A watch that is late shows what an edit gave, and what was undone; whoever undid it may do it again."""
    made = heard("a@5")
    made.confirm(made.unconfirmed, says("b@4", "z@1"))
    assert (made.state(0), made.report.epochs) == (F, {})
    made.seen(says("b@4", "z@1"))
    assert made.state(0) is F
    made.seen(says("a@5", "z@1"))
    assert made.unconfirmed == made.terms != {}


def test_a_read_says_nothing_of_what_was_given_after_it_was_sent() -> None:
    made = heard("a@5")
    sent = made.unconfirmed
    for place in ("b@6", "a@7"):
        made.seen(says(place, "z@1"))
    made.confirm(sent, says("a@5", "z@1"))
    assert made.unconfirmed == made.terms != {}


def test_a_read_that_is_older_than_what_was_heard_since_confirms_and_denies_nothing() -> None:
    made = heard("a@5")
    made.confirm(made.unconfirmed, says("b@4", "z@1"), late=True)
    assert made.unconfirmed == made.terms != {}
    made.confirm(made.unconfirmed, says("a@5", "z@1"), late=True)
    assert (made.unconfirmed, bool(made.terms)) == ({}, True)


def test_a_read_confirms_nothing_of_what_an_edit_was_heard_to_have_taken_since_it_was_sent() -> None:
    """Others may have got it by now, at an epoch that was not heard yet."""
    made = heard("a@5")
    sent = made.unconfirmed
    made.seen(says("b@5", "z@1"))
    made.confirm(sent, says("a@5", "z@1"), late=True)
    made.listed(made.terms)
    assert (made.unconfirmed, made.may_write(0), made.report.epochs) == (sent, False, {})
    made.confirm(sent, says("b@5", "z@1"))
    assert made.state(0) is F


def test_an_assignment_of_other_buckets_neither_confirms_nor_denies() -> None:
    made = heard("a@5")
    made.confirm(made.unconfirmed, Assignment.of(Buckets(2), dict.fromkeys(range(2), Place("b", "", 9))))
    assert made.unconfirmed == made.terms != {}


def test_an_assignment_of_other_buckets_is_not_acted_on() -> None:
    made = ownership(*OURS)
    commands = made.seen(Assignment.of(Buckets(8), dict.fromkeys(range(8), Place("b", "", 9))))
    assert [type(command) for command in commands] == [Tell]
    assert made.state(0) is W


# Random histories: shards that see the object late, whose acknowledgements are late or lost, and that die; a
# coordinator that drains, changes its mind, and gives away what dead shards had.


@dataclass
class Shard:
    name: str
    machine: RangeOwnership
    seen: int
    alive: bool = True
    listing: list[tuple[int, Mapping[int, int]]] = field(default_factory=list)
    """When each list was requested (the number of versions then), and for which terms."""
    running: dict[int, int] = field(default_factory=dict)
    """The term of a run in each bucket."""
    listed: dict[int, int] = field(default_factory=dict)
    """When the list was requested because of which it owns each bucket."""
    drained: set[int] = field(default_factory=set)


class World:
    def __init__(self, seed: int, shards: int = 3) -> None:
        self.rng = random.Random(seed)
        self.buckets = Buckets(8)
        self.versions = [Assignment.of(self.buckets)]
        self.shards: list[Shard] = []
        self.late: list[tuple[str, JsonPatch]] = []
        """What has been sent and not arrived: it may arrive at any time, or never."""
        self.begun = 0
        for _ in range(shards):
            self.begin()

    @property
    def now(self) -> Assignment:
        return self.versions[-1]

    def send(self, patch: JsonPatch | None) -> bool:
        if patch is None:
            return True
        try:
            data = apply_json_patch({"data": self.now.data()}, patch.ops)["data"]
        except ApiError:
            return False
        self.versions.append(Assignment.parse(data))
        return True

    def begin(self, name: str = "") -> None:
        self.begun += 1
        shard = Shard(name or f"s{self.begun}", RangeOwnership(name or f"s{self.begun}", self.buckets), 0)
        while not self.send(self.now.reclaim(shard.name)):
            pass
        self.shards.append(shard)
        self.see(shard, len(self.versions))

    def see(self, shard: Shard, up_to: int) -> None:
        for version in self.versions[shard.seen : up_to] if shard.seen else [self.versions[up_to - 1]]:
            self.do(shard, shard.machine.seen(version))
        self.do(shard, shard.machine.confirm(shard.machine.unconfirmed, self.now))
        shard.seen = up_to

    def do(self, shard: Shard, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Read(terms):
                    shard.listing.append((len(self.versions), terms))
                case Stop(buckets):
                    raise AssertionError(f"{shard.name} lost {buckets} while it was alive")
                case Tell(problem):
                    raise AssertionError(problem)
                case Drain(buckets):
                    shard.drained |= buckets
                case Released(buckets):
                    assert buckets <= shard.drained
                    shard.drained -= buckets
                case Acknowledge():
                    pass

    def step(self) -> None:
        rng, live = self.rng, [shard for shard in self.shards if shard.alive]
        kind = rng.randrange(12)
        if kind <= 2 and live:
            shard = rng.choice(live)
            if shard.seen < len(self.versions):
                self.see(shard, rng.randint(shard.seen + 1, len(self.versions)))
        elif kind <= 4 and live:
            shard = rng.choice(live)
            if shard.listing:
                requested, terms = shard.listing.pop(0)
                had = {bucket for bucket in terms if shard.machine.term(bucket) is not None}
                shard.machine.listed(terms)
                for bucket in terms.keys() - had:
                    if shard.machine.term(bucket) is not None:
                        shard.listed[bucket] = requested
        elif kind == 5 and live:
            shard, bucket = rng.choice(live), rng.randrange(self.buckets.count)
            if (term := shard.machine.term(bucket)) is not None and bucket not in shard.running:
                shard.running[bucket] = term
        elif kind == 6 and live:
            shard = rng.choice(live)
            if shard.running:
                del shard.running[rng.choice(list(shard.running))]
        elif kind == 7 and live:
            shard = rng.choice(live)
            if rng.random() < 0.3:
                self.do(shard, shard.machine.overdue())
            for bucket in shard.machine.draining - shard.running.keys():
                self.do(shard, shard.machine.idle({bucket}))
        elif kind == 8 and live:
            shard = rng.choice(live)
            base = self.versions[shard.seen - 1]
            if (patch := base.acknowledge(shard.name, shard.machine.leaving)) is not None:
                self.late.append((shard.name, patch))
        elif kind == 9 and self.late:
            at = rng.randrange(len(self.late))
            _, patch = self.late[at] if rng.random() < 0.2 else self.late.pop(at)
            self.send(patch)
        elif kind == 10:
            self.coordinate(live)
        elif rng.random() < 0.1:
            self.die_or_begin(live)
        self.check()

    def coordinate(self, live: list[Shard]) -> None:
        names, moves = [shard.name for shard in live], {}
        if not names:
            return
        for bucket in self.rng.sample(range(self.buckets.count), 3):
            place, to = self.now.places[bucket], self.rng.choice(names)
            if place.owner not in names:
                moves[bucket] = (to, "")
            elif to != place.owner:
                moves[bucket] = (place.owner, to)
            elif place.target:
                moves[bucket] = (place.owner, "")
        patch = self.now.change(moves, join=self.rng.random() < 0.5)
        if patch is not None and self.rng.random() < 0.2 and all(o in names for o, _ in moves.values()):
            self.late.append(("coordinator", patch))
        else:
            self.send(patch)

    def die_or_begin(self, live: list[Shard]) -> None:
        if len(live) > 1 and self.rng.random() < 0.5:
            shard = self.rng.choice(live)
            shard.alive = False
            # A dead shard's last writes have taken effect, or never will, before others act.
            self.late = [each for each in self.late if each[0] != shard.name]
        else:
            dead = [shard.name for shard in self.shards if not shard.alive]
            names = {shard.name for shard in live}
            back = self.rng.choice(dead) if dead and self.rng.random() < 0.5 else ""
            self.begin("" if back in names else back)

    def check(self) -> None:
        for bucket in range(self.buckets.count):
            acting = [s.name for s in self.shards if s.alive and s.machine.may_write(bucket)]
            assert len(acting) <= 1, f"bucket {bucket}: {acting}"
            running = [s for s in self.shards if s.alive and bucket in s.running]
            assert len({s.name for s in running}) <= 1, f"bucket {bucket} is run by {running}"
        for shard in (shard for shard in self.shards if shard.alive):
            for bucket in shard.running:
                assert shard.listed[bucket] >= self.owned_since(bucket, shard.name)

    def owned_since(self, bucket: int, shard: str) -> int:
        """The number of versions when the shard had become the owner."""
        owners = [version.places[bucket].owner for version in self.versions]
        assert owners[-1] == shard
        return max((at + 2 for at, owner in enumerate(owners[:-1]) if owner != shard), default=1)

    def settle(self) -> None:
        """Nothing happens any more but what shards do: everything that is asked for is done."""
        self.late.clear()
        names = {shard.name for shard in self.shards if shard.alive}
        places = dict(enumerate(self.now.places))
        lost = {b: (min(names), "") for b, place in places.items() if place.owner not in names}
        kept = {b: (place.owner, "") for b, place in places.items() if {*place[:2], ""} - names - {""}}
        self.send(self.now.change({**kept, **lost}))
        for _ in range(4):
            for shard in (shard for shard in self.shards if shard.alive):
                shard.running.clear()
                if shard.seen < len(self.versions):
                    self.see(shard, len(self.versions))
                for _, terms in shard.listing:
                    shard.machine.listed(terms)
                shard.listing.clear()
                self.do(shard, shard.machine.idle(shard.machine.draining))
                self.send(self.now.acknowledge(shard.name, shard.machine.leaving))
        for bucket, place in enumerate(self.now.places):
            assert place.target == ""
            (owner,) = [s.name for s in self.shards if s.alive and s.machine.term(bucket) is not None]
            assert owner == place.owner


@pytest.mark.parametrize("seeds", [range(each, each + 50) for each in range(0, 200, 50)], ids=str)
def test_no_bucket_is_on_two_shards_and_each_is_on_one_in_the_end(seeds: range) -> None:
    for seed in seeds:
        world = World(seed)
        for _ in range(300):
            world.step()
        world.settle()


def test_what_is_not_asked_for_any_more_needs_no_read_unless_it_was_acknowledged() -> None:
    drained, acknowledged = ownership("a@1", "listed", "a to b@2"), ownership("a@1", "a to b@2", "idle")
    for made, asks in (drained, False), (acknowledged, True):
        made.seen(says("a@3", "@0"))
        assert bool(made.unconfirmed) is asks


def test_that_nothing_acted_for_it_while_it_was_asked_for_says_nothing_of_what_begins_since() -> None:
    """A drain that was withdrawn still waits for the runs of its buckets."""
    made = ownership("a@1", "listed", "a to b@2", "a@3", "listed", "idle")
    assert made.may_write(0)


def test_a_shard_does_not_forget_how_far_it_has_seen_when_the_assignment_is_restored() -> None:
    made = ownership("a@1", "a@9", "a@3")
    assert made.report.seen == 9
