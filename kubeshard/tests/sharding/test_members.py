"""What the Leases of a ring say, and whether its assignment can be true by that."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeshard.core.builtin import Lease, LeaseSpec
from kubeshard.core.objects import ObjectMeta
from kubeshard.sharding.assignment import Assignment, Place, Report
from kubeshard.sharding.buckets import Buckets
from kubeshard.sharding.members import RingMember, claimed, contradiction, doubts, member_of, used_by
from kubeshard.sharding.names import (
    CLUSTERS_ANNOTATION,
    EVICTED_ANNOTATION,
    OWNED_RANGES_ANNOTATION,
    SHARDER_IDENTITY,
)

BUCKETS = Buckets(8)


@pytest.mark.parametrize(("available", "problem"), [(True, "a gets nothing: its program"), (False, "")])
def test_nothing_is_wrong_with_what_a_shard_says_that_has_ended(available: bool, problem: str) -> None:
    meta = ObjectMeta(name="a", annotations={OWNED_RANGES_ANNOTATION: "uid/512:0-3@1/1"})
    _, said = member_of(Lease(metadata=meta), BUCKETS, available=available)
    assert said.startswith(problem)
    assert bool(said) == bool(problem)


@pytest.mark.parametrize(("holder", "weight"), [(SHARDER_IDENTITY, 0), ("a", 1)])
def test_a_shard_that_was_evicted_is_given_nothing_before_it_has_its_lease_again(
    holder: str, weight: int
) -> None:
    """It counts as alive meanwhile, and longer for a coordinator that begins just then."""
    meta = ObjectMeta(
        name="a", annotations={OWNED_RANGES_ANNOTATION: "uid/8:0-3@1/1", EVICTED_ANNOTATION: "3"}
    )
    lease = Lease(metadata=meta, spec=LeaseSpec(holder_identity=holder, lease_transitions=3))
    member, _ = member_of(lease, BUCKETS, available=True)
    assert member.weight == weight


def test_the_clusters_of_a_shard_count_in_a_ring_by_clusters_only() -> None:
    lease = Lease(metadata=ObjectMeta(name="a", annotations={CLUSTERS_ANNOTATION: "eu,us"}))
    by_cluster, by_uid = Buckets(8, "cluster"), Buckets(8)
    for available in True, False:
        member, wrong = member_of(lease, by_cluster, available=available)
        assert wrong == ""
        used = {by_cluster.of_key("eu"), by_cluster.of_key("us")} if available else set()
        assert used_by([member]) == used
        assert used_by([member_of(lease, by_uid, available=available)[0]]) == frozenset()


@pytest.mark.parametrize(("said", "waits"), [("uid/8:/1", True), ("uid/8:0-3@1/1", False)])
def test_only_a_shard_that_has_begun_by_ranges_keeps_those_by_labels_waiting(said: str, waits: bool) -> None:
    """One that was given something, and nothing more, may itself have to wait."""
    assignment = Assignment.of(BUCKETS, {bucket: Place("a", "", 1) for bucket in range(8)})
    works = ObjectMeta(name="a", annotations={OWNED_RANGES_ANNOTATION: said})
    leases = [
        Lease(metadata=meta, spec=LeaseSpec(holder_identity=meta.name))
        for meta in (works, ObjectMeta(name="b"))
    ]
    assert bool(doubts(assignment, "a", leases)) == waits


@pytest.mark.parametrize(("shard", "waits"), [("a", True), ("c", False)])
def test_a_shard_that_nothing_names_does_not_wait_for_shards_by_labels_before_it_begins(
    shard: str, waits: bool
) -> None:
    """It is given nothing before they have ended: the coordinator sees to that."""
    assignment = Assignment.of(BUCKETS, {bucket: Place("a", "", 1) for bucket in range(8)})
    metas = ObjectMeta(name=shard, annotations={OWNED_RANGES_ANNOTATION: "uid/8:/1"}), ObjectMeta(name="b")
    leases = [Lease(metadata=meta, spec=LeaseSpec(holder_identity=meta.name)) for meta in metas]
    assert bool(doubts(assignment, shard, leases)) == waits


owned = st.dictionaries(st.integers(0, 7), st.integers(1, 9))
places = st.builds(Place, st.sampled_from(["", "a", "b", "c", "d"]), st.just(""), st.integers(1, 9))
assignments = st.none() | st.lists(places, min_size=8, max_size=8)


@given(st.dictionaries(st.sampled_from("abc"), st.tuples(st.booleans(), owned)), assignments, assignments)
def test_what_anybody_was_seen_to_own_is_never_nobodys_and_what_a_live_shard_says_is_its(
    reports: dict[str, tuple[bool, dict[int, int]]], now: list[Place] | None, last: list[Place] | None
) -> None:
    members = [
        RingMember(shard, alive, Fraction(1), Report(epochs, 0), "")
        for shard, (alive, epochs) in reports.items()
    ]
    before = [each and Assignment.of(BUCKETS, dict(enumerate(each))) for each in (now, last)]
    after = claimed(BUCKETS, members, *before).places
    assert after[0].epoch > max((0, *(epoch for _, own in reports.values() for epoch in own.values())))
    for bucket, place in enumerate(after):
        said = {shard: (live, own[bucket]) for shard, (live, own) in reports.items() if bucket in own}
        written = [each[bucket] for each in (now, last) if each]
        assert all(place.epoch > each.epoch for each in written)
        if any(live for live, _ in said.values()):
            assert said[place.owner] == max(said.values())
        else:
            assert place.owner in ({*said, *(each.owner for each in written)} - {""} or {""})


def at(place: str) -> Assignment:
    return Assignment.of(BUCKETS, dict.fromkeys(range(8), Place.parse(place)))


@pytest.mark.parametrize("available", [True, False])
def test_what_a_shard_said_that_has_ended_contradicts_nothing(available: bool) -> None:
    said = RingMember("a", available, Fraction(1), Report.parse("0-7@5/5", BUCKETS), "")
    assert bool(contradiction(at("b@5"), [said])) is available


@pytest.mark.parametrize(("edited", "owner"), [("b@3", "a"), ("b@6", "b")])
def test_a_shard_has_got_what_was_to_be_handed_to_it_if_that_was_written_later(
    edited: str, owner: str
) -> None:
    """... and not by an edit or a restore. Of the former owner, only the last assignment says that it has it."""
    b = RingMember("b", True, Fraction(1), Report({}, 6), "")
    written = claimed(BUCKETS, [b], at(edited), at("a to b@5"))
    assert {place.owner for place in written.places} == {owner}
