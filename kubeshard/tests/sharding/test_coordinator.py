"""What a coordinator asks for and writes, step by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from range_world import VirtualClock

from kubeshard.core.errors import ApiError, Forbidden, PatchTestFailed
from kubeshard.sharding.assignment import Assignment, Report
from kubeshard.sharding.buckets import Buckets
from kubeshard.sharding.coordinator import (
    LONGEST_SETTLE,
    REWRITE,
    SETTLE,
    UNCLAIMED,
    UNPROVEN,
    UNSEEN,
    Change,
    Command,
    Coordinator,
    Create,
    Look,
    Prove,
    ReadLeases,
)
from kubeshard.sharding.members import RingMember
from kubeshard_apiserver.json_patch import apply_json_patch

HEAD = {"by": "uid", "buckets": "8"}
BUCKETS = Buckets(8)


@dataclass
class Scene:
    """The object, Leases, and the answers of an API server that nobody else talks to."""

    data: dict[str, str] | None
    leases: dict[str, RingMember] = field(default_factory=dict)
    fresh: bool = True
    kinds: frozenset[str] = frozenset()
    first: bool = True
    labelled: bool = True
    ended: set[str] = field(default_factory=set)
    """Those of whom a read shows that they hold no Lease."""
    meanwhile: Callable[[Command], None] = lambda _: None
    """Called before each command takes effect. May raise."""

    def __post_init__(self) -> None:
        self.clock = VirtualClock()
        self.version = 1
        self.machine = Coordinator(BUCKETS, self, self.clock, first=self.first)

    def members(self, buckets: Buckets) -> list[RingMember]:
        return list(self.leases.values())

    def shard(self, name: str, said: str = "/0", weight: int = 1, *, available: bool = True) -> None:
        renewed = f"{int(self.leases[name].renewed) + 1 if name in self.leases else 0:05}"
        report = Report.parse(said, BUCKETS) if said else None
        self.leases[name] = RingMember(name, available, Fraction(weight), report, renewed)

    def tend(self, seconds: float = 0.0) -> list[Command]:
        """What it does until it waits for something."""
        self.clock.now += seconds
        done: list[Command] = []
        while True:
            steps = self.machine.tend()
            try:
                command = next(steps)
                while True:
                    done.append(command)
                    assert len(done) < 20, done
                    try:
                        outcome = self._do(command)
                    except ApiError as error:
                        command = steps.throw(error)
                    else:
                        command = steps.send(outcome)
            except StopIteration:
                if self.machine.wake_at > self.clock.now:
                    return done

    def edit(self, **groups: str | None) -> None:
        """Without telling."""
        found = {**(self.data or HEAD), **{key[1:].replace("_", "-"): value for key, value in groups.items()}}
        self.data = {key: value for key, value in found.items() if value is not None}
        self.version += 1

    def heard(self) -> None:
        self.machine.seen(str(self.version), self.data)

    @property
    def groups(self) -> dict[str, str]:
        return {key: value for key, value in sorted((self.data or {}).items()) if key not in HEAD}

    def _do(self, command: Command) -> Any:
        self.meanwhile(command)
        match command:
            case Prove(shards):
                return frozenset(shards & self.ended)
            case Create(data):
                self.data, self.version = dict(data), self.version + 1
            case Change(patch):
                before = {"data": self.data, "metadata": {"resourceVersion": str(self.version)}}
                self.data, self.version = apply_json_patch(before, patch.ops)["data"], self.version + 1
        if isinstance(command, Look | Create | Change):
            self.machine.seen(str(self.version), self.data, read=True, labelled=self.labelled)
        return None


def scene(*shards: str, **groups: str) -> Scene:
    """Shards that say what they own, and are known for long."""
    world = Scene(
        {**HEAD, **{key[1:].replace("_", "-"): value for key, value in groups.items()}} if groups else None
    )
    for shard in shards:
        world.shard(shard)
    for key, value in groups.items():
        owner, _, epoch = value.partition("@")
        if (owner := owner.partition(" to ")[0]) in shards:
            own = world.leases[owner].report
            assert own is not None
            first, last = map(int, key[1:].split("_"))
            epochs = {**own.epochs, **dict.fromkeys(range(first, last + 1), int(epoch))}
            world.shard(owner, str(Report(epochs, max(own.seen, int(epoch)))))
    return world


def changes(done: list[Command]) -> int:
    return sum(isinstance(command, Change | Create) for command in done)


def test_a_ring_without_an_assignment_gets_one_at_once() -> None:
    world = scene("a", "b")
    assert [type(each) for each in world.tend()] == [Look, ReadLeases, Look, Create]
    assert world.groups == {"0-7": "@1"}
    assert world.machine.problem == ""
    world.tend(SETTLE)
    assert sorted(world.groups.values()) == ["a@2", "b@2"]


def test_a_deleted_assignment_is_not_taken_for_one_that_never_was_although_no_shard_says_yet_what_it_got() -> (
    None
):
    world = Scene(None, first=False)
    world.shard("a")
    assert [type(each) for each in world.tend()] == [Look, ReadLeases]
    renew_all(world)
    assert world.tend() == []
    world.shard("a", "0-7@2/2")
    world.tend()
    assert world.groups == {"0-7": "a@3"}


def test_an_assignment_that_everybody_has_forgotten_is_written_anew_at_an_epoch_that_it_cannot_have_reached() -> (
    None
):
    world = Scene(None, first=False)
    world.clock.now = 1_800_000_000.0
    world.shard("a")
    for _ in range(3):
        world.tend()
        renew_all(world)
    assert world.groups == {"0-7": "@1800000001"}


def test_the_first_coordinator_takes_an_unreadable_object_for_one_that_shards_may_have_read() -> None:
    world = Scene({**HEAD, "0-3": "a@5"})
    world.shard("a")
    assert Change not in map(type, world.tend())


def test_an_object_of_somebody_else_that_has_the_name_is_told_and_left_alone() -> None:
    world = Scene({"theirs": "yes"}, labelled=False)
    world.shard("a")
    for _ in range(5):
        renew_all(world)
        assert {Create, Change}.isdisjoint(map(type, world.tend(REWRITE)))
    assert "somebody else's" in world.machine.problem
    world.data = None
    world.heard()
    world.tend()
    assert world.data is not None


def test_an_assignment_that_shards_have_seen_is_mended_although_it_has_lost_its_label_too() -> None:
    world = Scene({**HEAD, "0-3": "a@5"}, labelled=False, first=False)
    world.shard("a", "0-7@5/5")
    for _ in range(4):
        renew_all(world)
        world.tend(1)
    assert world.groups == {"0-7": "a@6"}


def test_the_first_coordinator_waits_for_what_shards_say_if_what_it_has_written_itself_is_deleted() -> None:
    world = scene("a")
    world.tend()
    world.data = None
    world.machine.seen(str(world.version), None)
    assert Create not in map(type, world.tend())


def test_what_is_as_it_should_be_is_left_alone() -> None:
    world = scene("a", "b", _0_3="a@1", _4_7="b@1")
    assert world.tend() == [Look()]
    assert world.tend(5) == []


def test_a_shard_that_joins_is_given_its_share_when_nobody_joins_any_more() -> None:
    world = scene("a", _0_7="a@1")
    world.tend()
    world.shard("b")
    assert changes(world.tend()) == 0
    world.shard("c")
    assert changes(world.tend(SETTLE - 0.1)) == 0
    assert changes(world.tend(0.2)) == 0
    assert changes(world.tend(SETTLE)) == 1
    assert world.machine.assignment is not None
    targets = Counter(place.target for place in world.machine.assignment.places)
    assert targets[""] in (2, 3)
    assert targets["b"] in (2, 3)


def test_shards_that_join_one_after_the_other_do_not_wait_for_ever() -> None:
    world = scene("a", _0_7="a@1")
    world.tend()
    done, waited = list[Command](), 0.0
    while not changes(done):
        world.shard(f"b{waited:g}".replace(".", "-"))
        done = world.tend(SETTLE / 2)
        waited += SETTLE / 2
        assert waited <= LONGEST_SETTLE + SETTLE


def test_what_a_dead_shard_had_is_given_away_at_once_although_somebody_joins() -> None:
    world = scene("a", "b", _0_3="a@1", _4_7="b@1")
    world.tend()
    world.shard("b", available=False)
    world.shard("c")
    world.ended.add("b")
    assert [type(each) for each in world.tend()] == [Prove, Change]
    assert "b" not in str(world.groups)
    assert " to " not in str(world.groups)


def test_what_is_not_known_to_be_dead_keeps_what_it_has_and_is_asked_about_again() -> None:
    world = scene("a", "b", _0_3="a@1", _4_7="b@1")
    world.shard("b", available=False)
    assert world.tend() == [Look(), Prove(frozenset("b"))]
    assert world.groups == {"0-3": "a@1", "4-7": "b@1"}
    world.ended.add("b")
    assert changes(world.tend(world.machine.wake_at - world.clock.now)) == 1
    assert world.groups == {"0-7": "a@2"}


def test_a_proof_counts_only_for_what_was_seen_before_it() -> None:
    world = scene("a", "b", _0_3="a@1", _4_7="b@1")
    world.tend()
    world.shard("b", available=False)
    world.ended.add("b")
    proofs: list[Command] = []

    def meanwhile(command: Command) -> None:
        if isinstance(command, Prove):
            proofs.append(command)
            if len(proofs) == 1:  # it has begun again, and reclaims what it had, after the proof was read
                world.edit(_4_7="b@2")
                world.heard()

    world.meanwhile = meanwhile
    assert changes(world.tend()) == 1
    assert len(proofs) == 2


def test_a_shard_whose_weight_is_0_is_asked_for_everything_at_once() -> None:
    world = scene("a", "b", _0_3="a@1", _4_7="b@1")
    world.tend()
    world.shard("b", "4-7@1/1", weight=0)
    world.shard("c")
    assert changes(world.tend()) == 1
    assert all(place.target for place in world.machine.assignment.places[4:])  # type: ignore[union-attr]


def test_what_was_to_be_handed_to_a_shard_that_is_gone_goes_elsewhere_at_once() -> None:
    world = scene("a", "b", _0_3="a to c@2", _4_7="b@1")
    world.tend()
    assert world.groups == {"0-3": "a@3", "4-7": "b@1"}


def test_that_is_so_for_all_of_it_although_somebody_joins_to_whom_a_part_is_due() -> None:
    world = scene("a", _0_7="a to c@2")
    world.shard("b")
    world.tend()
    assert world.groups == {"0-3": "a@3", "4-7": "a to b@3"}


def test_nobody_but_shards_by_ranges_gets_anything() -> None:
    world = scene("a", _0_7="a@1")
    world.shard("label", "")
    assert changes(world.tend(10)) == 0
    world.shard("b", "")
    world.shard("a", "0-3@1/2")
    world.edit(_0_7=None, _0_3="a@1", _4_7="b@2")
    world.heard()
    assert changes(world.tend(10)) == 0, "it has just begun again, and says nothing yet"


def test_nothing_is_moved_while_the_leases_may_have_changed() -> None:
    world = scene("a", "b", _0_7="a@1")
    world.fresh = False
    assert world.tend() == [ReadLeases(), Look()]
    assert set(world.tend(SETTLE + 1)) == {ReadLeases()}
    world.fresh = True
    assert changes(world.tend(1)) + changes(world.tend(SETTLE)) == 1


def test_a_late_event_is_a_reason_to_read_and_no_more() -> None:
    world = scene("a", "b", _0_3="a@1", _4_7="b@1")
    world.tend()
    late = str(world.version), world.data
    world.edit(_4_7="b@3")
    world.heard()
    world.tend()
    world.machine.seen(*late)
    assert world.machine.assignment is not None
    assert world.machine.assignment.epoch == 3
    assert world.tend() == [Look()]
    assert world.tend() == []


@pytest.mark.parametrize("later", [None, {**HEAD, "note": "mine"}], ids=["deleted", "edited"])
def test_an_answer_that_comes_after_news_of_something_later_is_no_news(later: dict[str, str] | None) -> None:
    world = scene("a", "b", _0_7="a@1")

    def overtaken(command: Command) -> None:
        if isinstance(command, Change):
            world.machine.seen("3", later)

    world.tend()
    world.meanwhile = overtaken
    world.tend(SETTLE)
    assert world.version == 2
    assert world.machine.assignment is None
    world.data, world.version, world.meanwhile = later, 3, lambda _: None
    for _ in range(3):
        world.tend(2)
        renew_all(world)
    assert world.machine.problem == ""
    assert world.groups != {}


def test_what_was_written_and_deleted_while_the_watch_was_cut_is_missed_all_the_same() -> None:
    world = scene("a", _0_7="a@1")
    assert world.tend() == [Look()]
    assert world.machine.wake_at == world.clock.now + UNSEEN
    world.data = None
    assert world.tend(UNSEEN - 1) == []
    assert Look() in world.tend(1)
    renew_all(world)
    world.tend()
    renew_all(world)
    assert Create in map(type, world.tend())


def test_what_an_event_has_shown_is_not_read_again() -> None:
    world = scene("a", _0_7="a@1")
    assert world.tend() == [Look()]
    world.heard()
    assert world.tend(10 * UNSEEN) == []


def test_what_an_event_has_shown_is_not_read_again_although_it_was_taken_for_a_late_one() -> None:
    world = scene("a", _0_7="a@1")
    world.version = 9
    world.tend()
    world.version = 5  # restored
    world.heard()
    assert world.tend() == [Look()]
    assert world.tend(10 * UNSEEN) == []


def test_what_is_heard_while_the_object_is_read_is_a_reason_to_read_it_again() -> None:
    world = scene("a", _0_7="a@5")
    world.version = 9
    world.tend()
    before = world.data
    world.machine.seen("8", before)  # a late event
    steps = world.machine.tend()
    assert next(steps) == Look()
    world.edit(_0_7="a@3")
    world.version = 5  # restored
    world.heard()
    world.machine.seen("9", before, read=True)  # what it was before
    assert next(steps, None) is None
    world.tend()
    assert world.data is not None
    assert world.machine.assignment == Assignment.parse(world.data)


def test_an_answer_that_there_is_no_object_is_none_after_an_event_that_there_is_one() -> None:
    world = scene("a", _0_7="a@1")
    world.tend()
    world.machine.seen("2", None)
    steps = world.machine.tend()
    assert next(steps) == Look()
    world.version = 3
    world.heard()
    world.machine.seen("", None, read=True)
    assert world.machine.assignment is not None


def test_if_nobody_has_a_weight_everything_stays() -> None:
    world = scene(_0_7="a@1")
    world.shard("a", "0-7@1/1", weight=0)
    assert changes(world.tend(10)) == 0


def renew_all(world: Scene) -> None:
    for name, member in list(world.leases.items()):
        if member.available:
            world.shard(name, str(member.report))


@pytest.mark.parametrize(
    ("edited", "why"),
    [
        ({"_4_7": "a@2"}, "4-7 is a's since 2, but b has had some of it since 2"),
        ({"_4_7": "@2"}, "4-7 is nobody's since 2, but b has had some of it since 2"),
        ({"_4_7": "b@1"}, "older than what b has seen"),
        ({"_0_3": "a@3", "_4_7": "b to a@1"}, "4-7 is b's since 1, but b has had some of it since 2"),
        ({"_4_7": None}, "4-7 is missing"),
        ({"_by": "name"}, "by is 'name'"),
        ({"_4_7": "a@" + "9" * 18}, "greater than any that is ever reached"),
        (
            {"_by": "namespace"},
            "into 8 buckets by namespace, and this program divides them into 8 by uid: it was edited",
        ),
    ],
)
def test_an_edited_assignment_is_written_anew_from_what_shards_say_two_renewals_later(
    edited: dict[str, str | None], why: str
) -> None:
    world = scene("a", "b", _0_3="a@1", _4_7="b@2")
    world.tend()
    world.edit(**edited)
    world.heard()
    assert [type(each) for each in world.tend()] == [Look, ReadLeases]
    assert why in world.machine.problem
    for _ in range(2):
        assert world.tend(2) == []
        renew_all(world)
    assert [type(each) for each in world.tend()] == [Look, ReadLeases, Change]
    assert [value.partition("@")[0] for value in world.groups.values()] == ["a", "b"]
    assert world.machine.assignment is not None
    assert world.machine.assignment.places[7].epoch > 2
    renew_all(world)
    world.tend()
    assert world.machine.problem == ""


@pytest.mark.parametrize("when", [Look, ReadLeases])
def test_what_was_said_before_a_restore_is_said_again_before_the_assignment_is_written_anew(
    when: type[Command],
) -> None:
    """The Leases that come back say what shards had long ago."""
    world = scene("a", "b", _0_3="a@1", _4_7="b@2")
    world.tend()
    back = dict(world.leases)
    world.edit(_4_7=None)
    world.heard()
    world.tend()
    world.shard("a", "0-7@4/4")
    world.shard("b", "/4")
    world.tend(2)
    renew_all(world)

    def restore(command: Command) -> None:
        if type(command) is when:
            world.leases = dict(back)
            world.meanwhile = lambda _: None

    world.meanwhile = restore
    assert [type(each) for each in world.tend(2)] == [Look, ReadLeases]
    world.shard("a", "0-7@4/4")
    world.shard("b", "/4")
    assert changes(world.tend(2)) == 0
    renew_all(world)
    assert changes(world.tend(2)) == 1
    assert [value.partition("@")[0] for value in world.groups.values()] == ["a"]


def test_who_does_not_act_any_more_is_not_waited_for_with_an_assignment_and_keeps_what_it_had() -> None:
    world = scene("a", "b", _0_3="a@1", _4_7="b@2")
    world.tend()
    world.edit(_4_7="a@2")
    world.heard()
    world.tend()
    for _ in range(2):
        world.shard("a", "0-3@1/2")
        assert world.tend(15) == []
    world.leases["b"] = world.leases["b"]._replace(silent=True)
    assert [type(each) for each in world.tend()] == [Look, ReadLeases, Change]
    assert [value.partition("@")[0] for value in world.groups.values()] == ["a", "b"]


@pytest.mark.parametrize("edited", [{"_4_7": "@2"}, {"_4_7": None}, {"note": "mine"}, None], ids=str)
def test_who_keeps_editing_the_assignment_is_told_of_and_not_fought(
    edited: dict[str, str | None] | None,
) -> None:
    world = scene("a", "b", _0_3="a@1", _4_7="b@2")
    world.tend()
    written, looks, minutes = list[float](), 0, 10
    for second in range(60 * minutes):
        if edited is None:
            world.data = None
        else:
            world.edit(**edited)
        world.heard()
        renew_all(world)
        done = world.tend(1.0)
        looks += done.count(Look())
        written += [second] if changes(done) else []
        assert bool(world.machine.problem) is not (changes(done) or len(written) >= 3)
        assert bool(world.machine.contested) is (len(written) >= 3)
    assert written[2] < 20
    assert all(later - sooner >= REWRITE for sooner, later in pairwise(written[2:]))
    assert len(written) <= 3 + 60 * minutes / REWRITE
    assert looks < 4 * len(written)
    for _ in range(30):
        renew_all(world)
        world.tend(1.0)
    assert world.machine.problem == ""
    assert "--show-managed-fields" in world.machine.contested
    world.tend(600.0)
    assert world.machine.contested == ""


def test_edits_once_in_a_while_are_put_right_at_once() -> None:
    world = scene("a", "b", _0_3="a@1", _4_7="b@2")
    world.tend()
    for _ in range(20):
        world.edit(_4_7=None)
        world.heard()
        world.tend()
        for _ in range(2):
            renew_all(world)
            world.tend(2.0)
        assert (world.machine.problem, world.machine.contested) == ("", "")
        world.tend(700.0)


@pytest.mark.parametrize("edited", ["a@3", "a@5", "b to a@5", "@4"])
def test_an_edit_is_noticed_although_the_owner_has_not_said_yet_that_it_owns_it(edited: str) -> None:
    world = scene("a", "b", _0_3="a@4", _4_7="b@5")
    world.shard("b", "/4")
    world.tend()
    world.edit(_0_3="a@6", _4_7=edited)
    world.heard()
    assert [type(each) for each in world.tend()] == [Look, ReadLeases]
    assert f"4-7 says {edited}, but some of it was b@5 before" in world.machine.problem


def test_what_looks_wrong_because_the_watch_is_late_is_not() -> None:
    world = scene("a", "b", _0_7="a@1")
    world.tend()
    world.edit(_0_7=None, _0_3="a@1", _4_7="b@3")
    world.shard("a", "0-3@1/3")
    world.shard("b", "4-7@3/3")
    assert world.tend() == [Look()]
    assert world.machine.problem == ""


def test_what_nobody_claims_stays_with_whom_it_was_seen_at() -> None:
    world = scene("a", "b", _0_3="a@1", _4_7="b@2")
    world.tend()
    world.shard("b", "", available=False)
    world.data = None
    world.machine.seen(str(world.version), None)
    world.tend()
    for _ in range(2):
        renew_all(world)
        world.tend()
    assert world.groups == {"0-3": "a@3", "4-7": "b@3"}  # to be taken only with a proof


@pytest.mark.parametrize(("alive", "owner"), [(True, "a"), (False, "b")])
def test_what_is_handed_over_while_something_else_is_wrong_stays_with_its_new_owner_if_that_lives(
    alive: bool, owner: str
) -> None:
    """It may work on it, and has not said so yet."""
    world = scene("a", "b", "c", _0_3="c@1", _4_7="b@2")
    world.tend()
    world.edit(_0_3="b@1", _4_7="a@4")
    world.shard("b", "/4")
    world.shard("a", "/2", available=alive)
    world.heard()
    world.tend()
    for _ in range(2):
        for shard, said in {"a": "/2", "b": "/4", "c": "0-3@1/4"}.items():
            world.shard(shard, said, available=alive or shard != "a")
        done = world.tend(2)
    assert [type(each) for each in done][:3] == [Look, ReadLeases, Change]
    patched = next(each for each in done if isinstance(each, Change)).patch.ops[-1]["value"]
    assert patched == {**HEAD, "0-3": "c@5", "4-7": f"{owner}@5"}


def handing_over() -> Scene:
    """4-7 to a. Of 0-3, the object says what is wrong."""
    world = scene("a", "b", "c", _0_3="c@1", _4_7="b to a@2")
    world.shard("a", "/2")
    world.leases["b"] = world.leases["b"]._replace(weight=Fraction(0))
    world.tend()
    world.edit(_0_3="b@1")
    world.heard()
    world.tend()
    return world


def test_what_is_handed_over_as_asked_stays_with_its_new_owner_although_the_former_one_has_not_said_so_yet() -> (
    None
):
    world = handing_over()
    for last in False, True:
        renew_all(world)
        if last:
            world.edit(_4_7="a@3")
            world.heard()
        done = world.tend(2)
    patched = next(each for each in done if isinstance(each, Change)).patch.ops[-1]["value"]
    assert patched == {**HEAD, "0-3": "c@4", "4-7": "a@4"}


def test_what_changes_hands_while_leases_are_read_is_looked_at_again_before_anything_is_written_anew() -> (
    None
):
    world = handing_over()

    def hand_over(command: Command) -> None:
        if command == ReadLeases():
            world.meanwhile = lambda _: None
            world.edit(_4_7="a@3")
            world.heard()

    world.meanwhile = hand_over
    for _ in range(2):
        renew_all(world)
        done = world.tend(2)
    assert [type(each) for each in done][:5] == [Look, ReadLeases, Look, ReadLeases, Change]


@pytest.mark.parametrize("when", ["before the object is looked at", "while Leases are read"])
def test_a_shard_that_was_silent_has_said_nothing_before_it_has_renewed_its_lease_twice(when: str) -> None:
    world = scene("a", "b", _0_3="b@1", _4_7="a@5")
    world.shard("a", "/1")
    world.tend()
    world.edit(_4_7="b@5")
    world.leases["a"] = world.leases["a"]._replace(silent=True)
    world.heard()
    world.tend()

    def back(command: Command) -> None:
        if command == ReadLeases():
            world.meanwhile = lambda _: None
            world.shard("a", "/1")

    for last in False, True:
        world.shard("b", "0-3@1/5")
        if last and when == "while Leases are read":
            world.meanwhile = back
        elif last:
            world.shard("a", "/1")
        done = world.tend(2)
    patched = next(each for each in done if isinstance(each, Change)).patch.ops[-1]["value"]
    assert patched == {**HEAD, "0-3": "b@6", "4-7": "a@6"}


@pytest.mark.parametrize(
    ("said", "alive", "owner"), [("0-3@1/1", True, "b"), ("0-3@1/1", False, "a"), ("", True, "a")]
)
def test_what_an_edit_gives_a_live_shard_is_its_unless_the_former_owner_may_work_on_it(
    said: str, alive: bool, owner: str
) -> None:
    """A shard that the coordinator gave something, and that says that it has not got it, cannot take it over any more.
    One whose report cannot be read says nothing.
    """
    world = scene("a", "b", _0_3="a@1", _4_7="a@5")
    world.shard("a", "0-3@1/1")
    world.tend()
    world.edit(_4_7="b@5")
    world.heard()
    world.tend()
    for _ in range(2):
        world.shard("a", said, available=alive)
        world.shard("b", "/1")
        done = world.tend(2)
    patched = next(each for each in done if isinstance(each, Change)).patch.ops[-1]["value"]
    assert patched.get("4-7", patched.get("0-7")) == f"{owner}@6"


def test_what_is_written_anew_goes_by_leases_that_are_read_just_before_however_often_it_was_refused() -> None:
    world = scene("a", "b", _0_3="a@1", _4_7="b@5")
    world.tend()
    world.shard("b", "/1", available=False)
    world.edit(_4_7="b@3")

    def refuse(command: Command) -> None:
        if isinstance(command, Change):
            raise ApiError("503")

    def begins(command: Command) -> None:
        if isinstance(command, ReadLeases):
            world.shard("c", "4-7@4/5")

    world.heard()
    world.meanwhile = refuse
    for _ in range(4):
        world.shard("a", "0-3@1/5")
        world.tend(2)
    world.edit(_4_7="c@4")
    world.meanwhile = begins
    world.tend(20)
    assert world.groups == {"0-3": "a@6", "4-7": "c@6"}


def test_what_nobody_but_the_wrong_assignment_says_is_taken_from_whom_it_names_only_with_a_proof() -> None:
    """Its Lease may have been deleted a moment ago, and it works on."""
    world = Scene({**HEAD, "0-3": "b@1", "4-7": "c@2"}, first=False)
    world.clock.now = 9.0
    world.shard("a", "0-3@2/2")
    for _ in range(3):
        world.tend()
        renew_all(world)
    assert world.groups == {"0-3": "a@10", "4-7": "c@10"}
    world.ended.add("c")
    world.tend(UNPROVEN)
    assert world.groups == {"0-7": "a@11"}


def test_a_bucket_that_a_live_and_a_dead_shard_claim_is_the_live_ones() -> None:
    world = scene("a")
    world.shard("a", "0-7@3/3")
    world.shard("b", "4-7@9/9", available=False)
    world.tend()
    for _ in range(2):
        renew_all(world)
        world.tend()
    assert world.groups == {"0-7": "a@10"}


def test_an_object_that_changed_while_it_was_written_anew_is_looked_at_again() -> None:
    world = scene("a", _0_7="a@5")
    world.tend()
    world.edit(_0_7="b@1")
    world.heard()
    world.tend()
    renew_all(world)
    world.tend()
    renew_all(world)

    def meanwhile(command: Command) -> None:
        if isinstance(command, Change):
            world.meanwhile = lambda _: None
            world.edit(_0_7="a@5")  # somebody has put it right

    world.meanwhile = meanwhile
    world.tend()
    assert world.groups == {"0-7": "a@5"}


def test_a_shard_that_does_not_say_that_it_owns_what_it_owns_is_told_again() -> None:
    world = scene("a", "b", _0_3="a@1", _4_7="b@5")
    world.shard("b", "/5")
    world.tend()
    assert changes(world.tend(UNCLAIMED)) == 0, "it has not renewed its Lease since"
    world.shard("b", "/5")
    world.tend()
    assert world.groups == {"0-3": "a@1", "4-7": "b@6"}


def test_neighbours_are_joined_when_something_is_written_and_not_for_that_alone() -> None:
    world = scene("a", "b", _0_1="a@1", _2_3="a@2", _4_7="b@3")
    assert changes(world.tend(5)) == 0
    world.shard("b", available=False)
    world.ended.add("b")
    world.tend()
    assert world.groups == {"0-7": "a@4"}


def test_a_patch_that_somebody_was_faster_than_is_decided_anew_without_a_word() -> None:
    world = scene("a", "b", _0_7="a@1")
    failed: list[Command] = []

    def meanwhile(command: Command) -> None:
        if isinstance(command, Change) and not failed:
            failed.append(command)
            world.edit(_0_7="a@2")
            raise PatchTestFailed("test failed", code=422, reason="Invalid")

    world.meanwhile = meanwhile
    world.tend()
    world.tend(SETTLE)
    assert world.groups["0-3"] == "a@2"
    assert world.machine.problem == ""


def test_what_is_refused_is_told_and_tried_again_ever_less_often() -> None:
    world = scene("a", "b", _0_7="a@1")
    tries = [0]

    def meanwhile(command: Command) -> None:
        if isinstance(command, Change):
            tries[0] += 1
            raise Forbidden("configmaps is forbidden", code=403, reason="Forbidden")

    world.meanwhile = meanwhile
    world.tend()
    for _ in range(100):
        world.tend(1.0)
    assert "configmaps is forbidden" in world.machine.problem
    assert world.machine.unable
    assert 5 < tries[0] < 20
    world.meanwhile = lambda _: None
    world.tend(20)
    assert (world.machine.problem, world.machine.unable) == ("", False)


def test_no_assignment_is_written_beside_a_shard_that_divides_objects_differently() -> None:
    world = Scene(None)
    world.shard("a")
    other = RingMember("b", True, Fraction(1), None, "0", differs=True)
    world.leases["b"] = other
    assert Create not in map(type, world.tend())
    assert "before b has ended" in world.machine.problem
    world.leases["b"] = other._replace(available=False)
    assert Create in map(type, world.tend())


def test_what_a_shard_has_that_does_not_say_it_legibly_is_given_to_nobody_who_has_forgotten_it() -> None:
    world = Scene(None, first=False)
    for alive in True, False:
        for _ in range(3):
            world.shard("a", "")
            world.leases["a"] = world.leases["a"]._replace(idle=False, available=alive)
            world.shard("b", "/3")
            done = world.tend(2)
        assert (world.data is None) is alive
        assert alive is ("before a has ended" in world.machine.problem), done


@pytest.mark.parametrize("by_labels", [False, True])
def test_what_a_shard_has_that_lives_and_says_that_it_works_on_nothing_goes_to_the_others(
    by_labels: bool,
) -> None:
    """It divides objects differently, may not read the assignment, or takes them by labels."""
    world = scene("a", "b", _0_3="a@1", _4_7="b@1")

    def says_nothing() -> None:
        world.shard("b", "")
        world.leases["b"] = world.leases["b"]._replace(idle=True, by_labels=by_labels)

    says_nothing()
    assert [type(each) for each in world.tend()] == [Look, ReadLeases]
    says_nothing()
    assert world.tend(1) == [], "what it said may be older than what was seen"
    says_nothing()
    world.tend(1)
    assert world.groups == {"0-7": "a@2"}


@pytest.mark.parametrize(("silent", "groups"), [(True, {"0-7": "a@2"}), (False, {"0-7": "@1"})])
def test_nobody_waits_for_the_end_of_a_shard_by_labels_that_does_not_act_any_more(
    silent: bool, groups: dict[str, str]
) -> None:
    """When most of a ring dies, nobody takes the Leases of the others for minutes."""
    world = scene("a", _0_7="@1")
    world.shard("b", "")
    world.leases["b"] = world.leases["b"]._replace(by_labels=True, silent=silent)
    world.tend()
    world.tend(SETTLE)
    assert world.groups == groups


@pytest.mark.parametrize("asked", [Look, Prove])
def test_nothing_is_given_by_ranges_if_a_shard_by_labels_is_seen_while_an_answer_is_waited_for(
    asked: type[Command],
) -> None:
    world = scene("a", _0_7="c@1")
    world.ended = {"c"}

    def meanwhile(command: Command) -> None:
        if isinstance(command, asked):
            world.shard("b", "")
            world.leases["b"] = world.leases["b"]._replace(by_labels=True)

    world.meanwhile = meanwhile
    world.tend()
    world.tend(SETTLE)
    assert world.groups == {"0-7": "c@1"}


@pytest.mark.parametrize(("later", "since"), [(0, 0.0), (1, 0.0), (2, 60.0)])
def test_a_shard_that_is_asked_again_is_not_blamed_for_the_time_in_which_nothing_was_heard(
    later: int, since: float
) -> None:
    """By the next change it is asked to hand the bucket to another shard. Others may have been before a later one."""
    world = scene("a", "b", _0_3="a to b@2", _4_7="b@1")
    world.tend()
    world.heard()
    world.tend()
    assert world.machine.asked[0] == ("a", 0.0)
    assert world.machine.assignment is not None
    epoch = world.machine.assignment.epoch + later if later else 2
    world.edit(_0_3=f"a to b@{epoch}")
    world.shard("a", f"0-3@{epoch}/{epoch}")
    world.clock.now = 60.0
    world.heard()
    world.tend()
    assert world.machine.asked[0] == ("a", since)


@pytest.mark.parametrize("handed_over", [True, False])
def test_a_shard_is_overdue_only_if_a_read_has_just_shown_that_it_has_not_handed_over(
    handed_over: bool,
) -> None:
    """It would be evicted for what the coordinator's watch has not shown yet."""
    world = scene("a", "b", _0_3="a to b@2", _4_7="b@1")
    world.tend()
    world.clock.now = 60.0
    if handed_over:
        world.edit(_0_3="b@3")
    for _ in range(2):
        assert world.machine.overdue(61.0) == world.machine.overdue(60.0) == []
        assert [type(each) for each in world.tend()] == [Look]
        assert world.machine.overdue(60.0) == ([] if handed_over else [(bucket, "a") for bucket in range(4)])
        if handed_over:
            break
        world.clock.now += 10.0


def test_no_shard_is_blamed_for_the_time_before_a_restore_of_etcd() -> None:
    """What asks it may have been there twice, and not in between."""
    world = scene("a", "b", _0_3="a to b@2", _4_7="b@1")
    world.version = 9
    world.tend()
    world.clock.now, world.version = 60.0, 5
    world.heard()
    assert world.tend() == [Look()]
    assert world.machine.asked[0] == ("a", 60.0)


@pytest.mark.parametrize("edited", [{"_0_3": "a to b@1"}, {"_0_3": None}])
def test_no_shard_is_asked_to_hand_over_what_an_edit_or_a_restore_has_put_there(
    edited: dict[str, str | None],
) -> None:
    world = scene("a", "b", _0_3="a to b@2", _4_7="b@1")
    world.tend()
    world.edit(**edited)
    world.heard()
    world.tend()
    assert world.machine.asked == {}


def test_a_shard_that_has_said_nothing_yet_keeps_what_it_reclaims() -> None:
    world = scene("a", "b", _0_3="a@1", _4_7="b@1")
    for renewal in range(3):
        world.shard("b", "")
        world.leases["b"] = world.leases["b"]._replace(idle=True)
        if renewal == 1:
            world.edit(_4_7="b@2")
            world.heard()
        assert changes(world.tend(1)) == 0


def works_on(world: Scene, **kinds: str) -> None:
    for shard, stated in kinds.items():
        world.leases[shard] = world.leases[shard]._replace(kinds=frozenset(stated))


def test_a_shard_of_another_program_gets_nothing_and_is_told() -> None:
    world = scene("a", "b", "c", _0_3="a@1", _4_7="b@1")
    works_on(world, a="X", b="X", c="Y")
    assert changes(world.tend(10)) == 0
    assert (
        "c gets nothing: its program works on Y, and the other shards of the ring on X" in world.machine.note
    )
    world.leases.pop("c")
    world.tend()
    assert world.machine.note == ""


def test_of_two_programs_that_share_out_buckets_already_the_one_with_fewer_hands_over_what_it_has() -> None:
    world = scene("a", "b", _0_2="a@1", _3_7="b@1")
    works_on(world, a="X", b="Y")
    world.tend()
    assert world.groups == {"0-2": "a to b@2", "3-7": "b@1"}


def test_when_all_shards_of_a_program_are_gone_those_of_the_other_one_get_what_they_had() -> None:
    world = scene("a", "c", _0_7="a@1")
    works_on(world, a="X", c="Y")
    world.shard("a", "0-7@1/1", available=False)
    world.ended.add("a")
    world.tend(10)
    assert world.groups == {"0-7": "c@2"}


@pytest.mark.parametrize(
    ("old", "new", "missing"), [("X", "XY", "Y"), ("XY", "X", "Y"), ("XY", "YZ", "X, Z")]
)
def test_a_version_that_adds_or_drops_a_kind_gets_its_share_while_it_is_rolled_out(
    old: str, new: str, missing: str
) -> None:
    world = scene("a", "b", _0_7="a@1")
    works_on(world, a=old, b=new)
    world.tend(10)
    world.tend(10)
    assert world.groups == {"0-3": "a@1", "4-7": "a to b@2"} or world.groups["0-3"] == "a to b@2"
    assert f"not all shards of the ring work on {missing}" in world.machine.note


def test_versions_without_a_kind_in_common_work_together_if_a_third_one_has_some_of_both() -> None:
    world = scene("a", "b", "c", _0_7="a@1")
    works_on(world, a="X", b="XY", c="Y")
    world.tend(10)
    world.tend(10)
    targets = {value.partition(" to ")[2][:1] for value in world.groups.values() if " to " in value}
    assert targets == {"b", "c"}


def test_a_shard_that_does_not_say_what_it_works_on_gets_its_share() -> None:
    world = scene("a", "b", _0_7="a@1")
    works_on(world, a="X")
    world.tend(10)
    assert changes(world.tend(10)) or " to b" in "".join(world.groups.values())
    assert world.machine.note == ""


@pytest.mark.parametrize(("ours", "unable"), [("X", False), ("XY", False), ("Y", True), ("", False)])
def test_a_sharder_of_another_program_leaves_the_ring_to_others(ours: str, unable: bool) -> None:
    world = scene("a", _0_7="a@1")
    world.kinds = frozenset(ours)
    works_on(world, a="X")
    world.tend()
    assert world.machine.unable is unable
    assert bool(world.machine.note) is unable


def test_what_is_late_and_heard_while_the_object_is_read_is_a_reason_to_read_it_again() -> None:
    world = scene("a", _0_7="a@5")
    world.version = 9
    world.tend()
    world.machine.seen("8", world.data)
    steps = world.machine.tend()
    assert next(steps) == Look()
    world.machine.seen("7", world.data)
    world.version = 10
    world.machine.seen("10", world.data, read=True)
    assert next(steps, None) is None
    assert world.tend() == [Look()]


def until_written(world: Scene) -> None:
    for _ in range(4):
        world.tend(1)
        renew_all(world)


def test_the_first_assignment_of_a_ring_is_not_one_that_was_put_right() -> None:
    world = scene("a")
    world.tend()
    for _ in range(2):
        world.data, world.version = None, world.version + 1
        world.heard()
        until_written(world)
    assert world.data is not None
    assert world.machine.contested == ""


def test_what_divides_objects_differently_is_written_anew_at_a_greater_epoch_than_any_that_it_has() -> None:
    world = scene("a", _0_7="a@1")
    world.tend()
    world.data, world.version = {"by": "uid", "buckets": "4", "0-3": "b@900"}, world.version + 1
    world.heard()
    until_written(world)
    assert world.groups == {"0-7": "a@901"}


def test_what_shards_say_otherwise_just_before_it_is_written_anew_is_reason_enough_to_leave_it() -> None:
    world = scene("a", "b", _0_3="a@1", _4_7="b@1")
    world.tend()
    world.shard("b", "4-7@1/5")
    for _ in range(2):
        assert changes(world.tend(1)) == 0
        renew_all(world)

    def meanwhile(command: Command) -> None:
        if isinstance(command, ReadLeases):
            world.shard("b", "4-7@1/1")

    world.meanwhile = meanwhile
    assert ReadLeases() in (done := world.tend(1))
    assert changes(done) == 0


def test_a_shard_that_says_that_it_works_on_nothing_while_leases_are_read_is_dealt_with_later() -> None:
    world = scene("a", "b", "c", _0_2="a@1", _3_5="b@1", _6_7="c@1")

    def says_nothing(shard: str) -> None:
        world.shard(shard, "")
        world.leases[shard] = world.leases[shard]._replace(idle=True)

    def meanwhile(command: Command) -> None:
        if isinstance(command, ReadLeases):
            says_nothing("c")

    says_nothing("b")
    world.meanwhile = meanwhile
    assert [type(each) for each in world.tend()] == [Look, ReadLeases]
    for _ in range(8):
        says_nothing("b")
        says_nothing("c")
        world.tend(1)
    assert world.machine.assignment is not None
    assert world.machine.assignment.shards == {"a"}
