"""Shard states, the times at which they change, and how the shard states handles observations."""

from dataclasses import dataclass

import msgspec
import pytest

from kubeshard.core.builtin import Lease, LeaseSpec
from kubeshard.core.objects import Key, ObjectMeta
from kubeshard.core.times import micro_time
from kubeshard.sharding import shard_states
from kubeshard.sharding.names import (
    EVICTED_ANNOTATION,
    OWNED_RANGES_ANNOTATION,
    RING_LABEL,
    SHARDER_IDENTITY,
)
from kubeshard.sharding.shard_states import (
    MAX_DURATION,
    STALE_AFTER,
    LeaseTimes,
    ShardState,
    ShardStates,
    duplicates,
    state_of,
)

READY, EXPIRED, UNCERTAIN = ShardState.READY, ShardState.EXPIRED, ShardState.UNCERTAIN
DEAD, ORPHANED = ShardState.DEAD, ShardState.ORPHANED

_versions = iter(range(1, 1_000_000))


def lease(
    name: str = "a",
    *,
    holder: str | None = "",
    duration: int | None = 15,
    renewed: float | None = 0.0,
    ring: str = "ring",
    namespace: str = "ns",
    uid: str = "uid",
    created: str = "",
) -> Lease:
    """Returns a shard's Lease, held by the shard unless `holder` says otherwise, newer than all before."""
    time = None if renewed is None else micro_time(renewed)
    return Lease(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            uid=uid,
            resource_version=str(next(_versions)),
            labels={RING_LABEL: ring} if ring else None,
            creation_timestamp=created or None,
        ),
        spec=LeaseSpec(
            holder_identity=name if holder == "" else holder,
            lease_duration_seconds=duration,
            acquire_time=time,
            renew_time=time,
        ),
    )


A = Key("ns", "a")


@pytest.mark.parametrize(
    ("self_held", "to_expired", "state"),
    [
        (True, 0.001, READY),
        (True, 0.0, EXPIRED),
        (True, -9.999, EXPIRED),
        (True, -10.0, UNCERTAIN),
        (True, -100_000.0, UNCERTAIN),
        (False, 5.0, DEAD),
        (False, 0.0, DEAD),
        (False, -59.999, DEAD),
        (False, -60.0, ORPHANED),
    ],
)
def test_states_change_exactly_at_their_boundaries(
    self_held: bool, to_expired: float, state: ShardState
) -> None:
    assert state_of(self_held, LeaseTimes(10.0, to_expired)) is state


@pytest.mark.parametrize("state", list(ShardState))
def test_uncertain_expired_and_ready_shards_are_available(state: ShardState) -> None:
    assert state.available is (state in (UNCERTAIN, EXPIRED, READY))
    assert ShardState.parse(str(state)) is state


@pytest.mark.parametrize(
    ("said", "labelled"),
    [
        ({}, "abc"),
        ({"b": "uid/1024:"}, "ac"),
        ({"b": "uid/1024:/7"}, "ac"),
        ({"b": "labels:"}, "ac"),
        ({"a": "uid/1024:/7", "b": "uid/1024:0-3@2/7"}, ""),
        ({"a": "namespace/8:0-3@2/7", "b": "labels:", "c": "labels:"}, ""),
    ],
)
def test_objects_are_assigned_by_labels_to_shards_that_take_these_while_nobody_works_by_ranges(
    said: dict[str, str], labelled: str
) -> None:
    states = ShardStates()
    for name in "abc":
        states.observe(lease(name), 0)
    assert states.availability("ring", 0)[:2] == (("a", "b", "c"), ("a", "b", "c"))
    for name, text in said.items():
        says, annotations = lease(name), {OWNED_RANGES_ANNOTATION: text}
        meta = msgspec.structs.replace(says.metadata, annotations=annotations)
        states.observe(msgspec.structs.replace(says, metadata=meta), 1)
    assert states.availability("ring", 1)[:2] == (("a", "b", "c"), tuple(labelled))


def test_an_unrecognised_state_label_reads_as_unknown() -> None:
    assert ShardState.parse("foo") is ShardState.parse("") is ShardState.UNKNOWN


@dataclass
class Case:
    what: str
    lease: Lease
    age: float
    state: ShardState
    member: bool


@pytest.mark.parametrize(
    "case",
    [
        Case("held", lease(), 14.999, READY, True),
        Case("held, silent for its duration", lease(), 15.0, EXPIRED, True),
        Case("held, silent for twice its duration", lease(), 30.0, UNCERTAIN, True),
        Case("released", lease(holder=None, duration=1), 0.0, DEAD, False),
        Case("released long ago", lease(holder=None, duration=1), 61.0, ORPHANED, False),
        Case("taken by the sharder", lease(holder="shardlease-controller", duration=30), 89.999, DEAD, False),
        Case("taken long ago", lease(holder="shardlease-controller", duration=30), 90.0, ORPHANED, False),
        Case("held by a stranger", lease(holder="b"), 0.0, DEAD, False),
        Case("incomplete, held", lease(renewed=None), 0.0, EXPIRED, True),
        Case("incomplete, held, for 15 s", lease(renewed=None), 15.0, UNCERTAIN, True),
        Case("without duration", lease(duration=None), 0.0, EXPIRED, True),
        Case("incomplete, not held", lease(holder=None, renewed=None), 59.999, DEAD, False),
        Case("incomplete, not held, for a minute", lease(holder=None, renewed=None), 60.0, ORPHANED, False),
        Case("renewed in 2099", lease(renewed=4_070_908_800.0), 30.0, UNCERTAIN, True),
        Case("renewed in 1970", lease(renewed=0.0), 0.0, READY, True),
        Case("claims 2^31-1 seconds", lease(duration=2**31 - 1), 600.0, UNCERTAIN, True),
        Case("claims 1 second", lease(duration=1), 2.999, READY, True),
        Case("of another ring", lease(ring="other"), 0.0, READY, False),
    ],
    ids=lambda case: case.what,
)
def test_ring_membership_follows_the_state_of_every_kind_of_lease(case: Case) -> None:
    """D8, A11b in docs/defects.md."""
    states = ShardStates()
    states.observe(case.lease, now=1000.0)
    shard = states.shard(A, 1000.0 + case.age)
    assert shard is not None
    assert shard.state is case.state
    assert states.available("ring", 1000.0 + case.age) == (("a",) if case.member else ())


def test_a_renewal_counts_from_the_moment_it_was_seen_not_from_the_time_it_carries() -> None:
    states = ShardStates()
    states.observe(lease(renewed=0.0), now=100.0)
    states.observe(lease(renewed=-50.0), now=110.0)
    assert states.shard(A, 124.9).state is READY
    assert states.shard(A, 125.0).state is EXPIRED


def test_a_change_of_labels_is_no_renewal() -> None:
    states = ShardStates()
    first = lease()
    states.observe(first, now=0.0)
    relabelled = msgspec.structs.replace(
        first, metadata=msgspec.structs.replace(first.metadata, resource_version="999999999")
    )
    states.observe(relabelled, now=14.0)
    assert states.shard(A, 15.0).state is EXPIRED


def test_an_older_version_never_replaces_a_newer_one() -> None:
    states = ShardStates()
    held, released = lease(), lease(holder=None)
    states.observe(released, now=0.0)
    assert states.observe(held, now=1.0) is None
    assert states.available("ring", 1.0) == ()


def test_the_shard_of_a_deleted_lease_stays_until_twice_its_duration_after_the_last_renewal() -> None:
    """A23 in docs/defects.md."""
    states = ShardStates()
    states.observe(lease(), now=0.0)
    change = states.forget(A, now=10.0)
    assert change is not None
    assert change.availability is False
    assert states.available("ring", 29.999) == ("a",)
    assert states.available("ring", 30.0) == ()
    assert states.shard(A, 30.0).state is DEAD


def test_the_end_of_a_tombstone_is_reported_when_it_is_settled() -> None:
    states = ShardStates()
    states.observe(lease(), now=0.0)
    deletion = states.forget(A, now=10.0)
    assert deletion is not None
    assert deletion.presence
    taken = states.observe(lease(holder="shardlease-controller", duration=30, uid="new"), now=31.0)
    assert taken is not None
    assert taken.availability
    assert taken.presence


def test_a_recreated_lease_lives_on() -> None:
    states = ShardStates()
    states.observe(lease(), now=0.0)
    states.forget(A, now=10.0)
    states.observe(lease(uid="new"), now=12.0)
    assert states.available("ring", 40.0) == ("a",)
    assert states.shard(A, 40.0).deleted is False


def test_a_late_echo_of_a_deleted_lease_does_not_revive_it() -> None:
    states = ShardStates()
    held = lease()
    states.observe(held, now=0.0)
    states.forget(A, now=1.0)
    assert states.observe(held, now=2.0) is None
    assert states.shard(A, 2.0).deleted


def test_a_deletion_older_than_what_was_read_is_ignored() -> None:
    states = ShardStates()
    old, new = lease(uid="old"), lease(uid="new")
    states.observe(new, now=0.0)
    assert states.forget(A, 1.0, resource_version=old.metadata.resource_version) is None
    assert states.shard(A, 1.0).deleted is False


def test_a_deleted_lease_that_nobody_held_leaves_nothing() -> None:
    states = ShardStates()
    states.observe(lease(holder=None), now=0.0)
    states.forget(A, now=1.0)
    assert states.shard(A, 1.0) is None
    assert len(states) == 0


def test_a_forgotten_tombstone_ends_at_once() -> None:
    states = ShardStates()
    states.observe(lease(), now=0.0)
    states.forget(A, now=1.0)
    change = states.forget_tombstone(A, now=2.0)
    assert change is not None
    assert change.availability
    assert states.available("ring", 2.0) == ()


def test_unsettled_tombstones_do_not_pile_up() -> None:
    states = ShardStates()
    for name in "abcdef":
        states.observe(lease(name), now=0.0)
        states.forget(Key("ns", name), now=1.0)
    states.shards("ring", 10_000.0)
    assert len(states) == 0


def test_a_shard_is_available_if_any_lease_of_its_name_is() -> None:
    """A13 in docs/defects.md."""
    states = ShardStates()
    states.observe(lease(namespace="n1", holder=None), now=0.0)
    states.observe(lease(namespace="n2"), now=0.0)
    assert states.available("ring", 0.0) == ("a",)
    assert duplicates(states.shards("ring", 0.0)) == {"a": [Key("n1", "a"), Key("n2", "a")]}
    assert states.leases_of("ring", "a") == [Key("n1", "a"), Key("n2", "a")]


@pytest.mark.parametrize("name", ["a" * 64, "a.b-", "-a"])
def test_a_name_that_is_no_label_value_is_left_out(name: str) -> None:
    """A13b in docs/defects.md."""
    states = ShardStates()
    states.observe(lease(name), now=0.0)
    states.observe(lease("good"), now=0.0)
    assert states.available("ring", 0.0) == ("good",)


def test_of_too_many_shards_the_oldest_count() -> None:
    states = ShardStates(max_shards=2)
    for name, created in [
        ("c", "2026-01-01T00:00:00Z"),
        ("a", "2026-01-03T00:00:00Z"),
        ("b", "2026-01-02T00:00:00Z"),
    ]:
        states.observe(lease(name, created=created), now=0.0)
    assert states.available("ring", 0.0) == ("b", "c")


def test_of_too_many_shards_those_of_a_full_namespace_displace_none_elsewhere() -> None:
    states = ShardStates(max_shards=4)
    for number in range(10):
        states.observe(lease(f"a{number}", namespace="a", created=f"2026-01-01T00:00:0{number}Z"), now=0.0)
    states.observe(lease("late", namespace="b", created="2026-02-01T00:00:00Z"), now=0.0)
    assert states.available("ring", 0.0) == ("a0", "a1", "a2", "late")


def test_a_relabelled_lease_changes_both_rings() -> None:
    """A15 in docs/defects.md."""
    states = ShardStates()
    states.observe(lease(holder=None, ring="one"), now=0.0)
    change = states.observe(lease(ring="two"), now=1.0)
    assert change is not None
    assert change.rings == {"one", "two"}
    assert change.availability
    assert (states.available("one", 1.0), states.available("two", 1.0)) == ((), ("a",))


def test_a_shard_whose_held_lease_is_relabelled_keeps_its_objects_as_if_it_were_deleted() -> None:
    """Its process continues and restores the label; A23 in docs/defects.md is another way to lose a Lease."""
    states = ShardStates()
    states.observe(lease(ring="one"), now=0.0)
    states.observe(lease(ring="two"), now=1.0)
    assert (states.available("one", 1.0), states.available("two", 1.0)) == (("a",), ("a",))
    assert states.availability("one", 1.0).until == 30.0
    states.observe(lease(ring="one"), now=20.0)
    assert (states.available("one", 20.0), states.available("two", 20.0)) == (("a",), ("a",))
    assert states.availability("one", 20.0).until == float("inf")
    assert states.available("two", states.availability("two", 20.0).until) == ()
    assert states.shards("two", 30.0) == []


@pytest.mark.parametrize(
    ("then", "flips"),
    [
        (lease(), False),
        (lease(holder=None), True),
        (lease(holder="shardlease-controller", duration=30), True),
    ],
)
def test_only_a_changed_availability_is_reported_as_such(then: Lease, flips: bool) -> None:
    states = ShardStates()
    assert states.observe(lease(), now=0.0).availability
    change = states.observe(msgspec.structs.replace(then, metadata=lease().metadata), now=20.0)
    assert change is not None
    assert change.availability is flips


def test_a_silent_book_is_stale_after_six_seconds_while_leases_are_held() -> None:
    states = ShardStates()
    assert not states.fresh(0.0)
    states.observe(lease(), now=0.0)
    states.heard(0.0)
    assert states.fresh(6.0)
    assert not states.fresh(6.001)
    states.confirm(7.0, 7.0)
    assert states.fresh(13.0)


def test_what_is_heard_after_a_silence_may_be_as_old_as_it_until_all_leases_are_listed() -> None:
    states = ShardStates()
    states.observe(lease(), now=0.0)
    states.heard(0.0)
    states.heard(60.0)
    assert not states.fresh(60.0)
    assert states.silence(60.0) == 60.0
    states.confirm(61.0, 61.0)
    assert states.fresh(67.0)


def test_a_list_that_took_long_shows_the_leases_as_they_were_when_it_was_asked_for() -> None:
    states = ShardStates()
    states.observe(lease(), now=20.0)
    states.confirm(10.0, 20.0)
    assert not states.fresh(20.0)
    states.confirm(19.0, 21.0)
    assert states.fresh(25.0)
    states.confirm(18.0, 22.0)  # another one, which was slower
    assert states.fresh(25.0)


def test_a_list_that_took_long_ends_a_silence_so_that_what_is_heard_after_it_counts() -> None:
    states = ShardStates()
    states.observe(lease(), now=0.0)
    states.heard(0.0)
    states.heard(20.0)
    states.confirm(21.0, 29.0)
    assert not states.fresh(29.0)
    states.heard(30.0)
    assert states.fresh(36.0)


@pytest.mark.parametrize("asked", [None, 4.0])
def test_a_response_about_one_lease_says_nothing_about_the_others(asked: float | None) -> None:
    states = ShardStates()
    states.confirm(0.0, 0.0)
    states.observe(lease("a"), now=5.0, asked=asked)
    states.observe(lease("b"), now=5.0, asked=asked)
    states.forget(Key("ns", "b"), now=5.0, asked=asked)
    assert not states.fresh(6.1)


def test_silence_is_normal_where_no_lease_is_held() -> None:
    states = ShardStates()
    states.confirm(0.0, 0.0)
    states.observe(lease(holder=None), now=0.0)
    assert states.fresh(1000.0)


# -- after a restore of etcd, versions go backwards


def at_version(version: int, **what: object) -> Lease:
    of = lease(**what)  # type: ignore[arg-type]  # passed on
    return msgspec.structs.replace(
        of, metadata=msgspec.structs.replace(of.metadata, resource_version=str(version))
    )


def test_a_lease_that_a_complete_list_lacked_is_not_there_again_because_of_a_late_event() -> None:
    states = ShardStates()
    states.observe(at_version(101), now=0.0)
    states.forget(A, now=10.0, resource_version="102")
    states.forget_tombstone(A, now=40.0)
    states.confirm(40.0, 40.0, "200")
    assert states.observe(at_version(101), now=41.0) is None
    assert states.forget(A, now=41.0, resource_version="102") is None
    assert states.available("ring", 41.0) == ()
    states.observe(at_version(201), now=42.0)
    assert states.available("ring", 42.0) == ("a",)


def test_after_a_restore_a_complete_list_shows_leases_at_versions_that_were_there_before() -> None:
    states = ShardStates()
    states.confirm(0.0, 0.0, "200")
    assert states.observe(at_version(150), now=10.0, asked=9.0) is not None
    states.confirm(10.0, 10.0, "150")
    states.observe(at_version(151, name="b"), now=11.0)
    assert states.available("ring", 11.0) == ("a", "b")


@pytest.mark.regression
def test_only_a_consistent_read_that_was_asked_for_later_can_take_a_lease_back_to_an_earlier_version() -> (
    None
):
    states = ShardStates()
    states.observe(at_version(1000, renewed=100.0), now=100.0)
    older = at_version(500, renewed=40.0)
    assert states.observe(older, now=101.0) is None
    assert states.observe(older, now=101.0, asked=99.0) is None
    assert states.observe(older, now=101.0, asked=100.0) is None
    assert states.rewinds == 0

    assert states.observe(older, now=103.0, asked=101.0) is not None
    assert states.rewinds == 1
    seen = states.shard(A, 103.0)
    assert seen is not None
    assert seen.lease is older
    assert states.observe(at_version(502, renewed=104.0), now=104.0) is not None


@pytest.mark.regression
def test_after_a_restore_a_shard_that_renews_stays_ready_and_one_that_died_is_found_out_in_twice_its_duration() -> (
    None
):
    states = ShardStates()
    for name in ("a", "b"):
        states.observe(at_version(1000, name=name, renewed=90.0), now=90.0)
    for name in ("a", "b"):
        states.observe(at_version(500, name=name, renewed=10.0), now=100.0, asked=99.0)
    for second in range(100, 131, 2):
        states.observe(at_version(400 + second, name="a", renewed=float(second)), now=float(second))
    alive, died = states.shard(A, 130.0), states.shard(Key("ns", "b"), 130.0)
    assert alive is not None
    assert died is not None
    assert (alive.state, died.state) == (READY, UNCERTAIN)


@pytest.mark.regression
def test_a_restore_to_a_time_when_the_shard_was_dead_takes_nothing_from_it_for_twice_its_duration() -> None:
    states = ShardStates()
    states.observe(at_version(1000, renewed=90.0), now=90.0)
    taken = at_version(500, holder="shardlease-controller", duration=30)
    states.observe(taken, now=100.0, asked=99.0)
    states.observe(taken, now=105.0, asked=104.0)  # every later list shows it again, and the time goes on
    assert states.available("ring", 129.9) == ("a",)
    assert states.may_live("ring", "a", 129.9)
    assert states.available("ring", 130.0) == ()
    assert states.observe(at_version(510, renewed=131.0), now=131.0) is not None
    assert states.available("ring", 131.0) == ("a",)


@pytest.mark.regression
def test_a_lease_that_a_restore_undid_leaves_a_tombstone() -> None:
    states = ShardStates()
    states.observe(at_version(1000, renewed=90.0), now=90.0)
    assert states.forget(A, now=100.0, resource_version="500", asked=89.0) is None
    assert states.forget(A, now=100.0, resource_version="500", asked=99.0) is not None
    assert states.may_live("ring", "a", 200.0)
    assert states.observe(at_version(499, renewed=50.0), now=109.0) is None, "an echo"
    assert states.observe(at_version(501, renewed=110.0), now=110.0) is not None
    assert states.available("ring", 111.0) == ("a",)
    assert not states.may_live("ring", "b", 111.0)


def test_a_lease_that_a_restore_has_erased_is_no_sign_of_another_one_when_it_is_made_anew() -> None:
    """The watch tells of its end without a version. With another restore, the time of all shards would begin anew."""
    states = ShardStates()
    states.observe(at_version(1000, renewed=90.0), now=90.0)
    states.observe(at_version(1001, name="b", renewed=90.0), now=90.0)
    states.forget(Key("ns", "b"), now=100.0)
    states.observe(at_version(500, renewed=10.0), now=101.0, asked=100.5)
    states.forget(Key("ns", "b"), now=101.0, resource_version="501", asked=100.5)
    assert states.may_live("ring", "b", 130.9)
    taken = at_version(510, name="b", holder="shardlease-controller", duration=30)
    states.observe(taken, now=131.0, asked=130.9)
    died = states.shard(A, 131.0)
    assert died is not None
    assert died.state == UNCERTAIN
    assert not states.may_live("ring", "b", 131.0)


def _heard_until(states: ShardStates, end: float) -> None:
    states.confirm(0.0, 0.0, "100")
    for second in range(1, round(end) + 1):
        states.heard(float(second))


@pytest.mark.parametrize(("silence", "expires"), [(STALE_AFTER, 30.0), (STALE_AFTER + 0.1, 56.1)])
def test_time_in_which_nothing_was_heard_counts_only_if_it_was_short(silence: float, expires: float) -> None:
    """A renewal may have been stored and erased in it, at whatever version the Lease was seen before."""
    states = ShardStates()
    states.observe(at_version(100), now=0.0)
    _heard_until(states, 20.0)
    end = 20.0 + silence
    assert not states.sees(end + 0.1)
    states.observe(at_version(100), now=end, asked=end)
    states.confirm(end, end, "120")
    assert states.sees(end)
    seen = states.shard(A, end)
    assert seen is not None
    assert end + seen.times.to_uncertain == pytest.approx(expires)


def test_what_is_heard_after_a_list_that_took_long_ends_a_silence_since_that_was_asked_for() -> None:
    states = ShardStates()
    states.observe(at_version(100), now=0.0)
    _heard_until(states, 4.0)
    states.confirm(5.0, 9.9, "110")
    assert not states.sees(12.0)
    states.heard(15.0)
    assert states.sees(15.0)
    seen = states.shard(A, 15.0)
    assert seen is not None
    assert seen.times.to_uncertain == 30.0


def test_a_list_that_was_overtaken_by_another_one_does_not_hide_that_the_next_one_went_back() -> None:
    states = ShardStates()
    states.observe(at_version(100), now=0.0)
    states.confirm(1.0, 2.0, "120")
    states.confirm(1.5, 3.0, "110")
    seen = states.shard(A, 3.0)
    assert seen is not None
    assert seen.times.to_uncertain == 27.0, "that is no restore"
    states.confirm(5.0, 5.0, "115")
    seen = states.shard(A, 5.0)
    assert seen is not None
    assert seen.times.to_uncertain == 30.0


@pytest.mark.parametrize("sign", ["a list", "a Lease", "no Lease"])
def test_a_restore_that_shows_somewhere_has_undone_what_was_seen_of_every_lease(sign: str) -> None:
    states, b = ShardStates(), Key("ns", "b")
    states.observe(at_version(100), now=0.0)
    states.observe(at_version(110, name="b"), now=0.0)
    states.confirm(1.0, 1.0, "120")
    match sign:
        case "a list":
            states.confirm(5.0, 5.0, "115")
        case "a Lease":
            states.observe(at_version(90, name="b", renewed=7.0), now=5.0, asked=4.0)
        case "no Lease":
            states.forget(b, now=5.0, resource_version="105", asked=4.0)
    seen = states.shard(A, 5.0)
    assert seen is not None
    assert seen.times.to_uncertain == 30.0
    assert states.may_live("ring", "b", 34.9)


def test_a_lease_that_is_there_at_the_version_at_which_it_was_deleted_counts_when_the_time_of_its_shard_is_over() -> (
    None
):
    """Versions come again after a restore. Before that it may be a late echo of what was deleted."""
    states = ShardStates()
    states.observe(at_version(1000, renewed=90.0), now=90.0)
    states.forget(A, now=100.0)
    taken = at_version(1000, holder="shardlease-controller", uid="new")
    assert states.observe(taken, now=110.0, asked=109.0) is None
    assert states.may_live("ring", "a", 110.0)
    assert states.observe(taken, now=130.0) is None
    states.observe(taken, now=131.0, asked=130.0)
    assert not states.may_live("ring", "a", 131.0)


def test_a_deleted_lease_that_a_silence_may_have_hidden_is_waited_for_anew() -> None:
    """Its shard may have created it again, and a restore have undone that."""
    states = ShardStates()
    states.observe(at_version(100), now=0.0)
    _heard_until(states, 10.0)
    states.forget(A, now=10.0, resource_version="110")
    states.confirm(50.0, 50.0, "120")
    assert states.available("ring", 79.9) == ("a",)
    assert states.available("ring", 80.0) == ()


def test_what_nobody_held_before_a_silence_is_believed_after_it() -> None:
    states = ShardStates()
    states.observe(at_version(100, holder=None), now=0.0)
    _heard_until(states, 10.0)
    states.confirm(50.0, 50.0, "120")
    assert states.available("ring", 50.0) == ()
    assert not states.may_live("ring", "a", 50.0)


def test_questions_about_a_ring_do_not_look_at_the_leases_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a thousand rings each question would else cost a thousand times as much."""
    states, judged = ShardStates(), 0
    for number in range(500):
        states.observe(lease(f"shard-{number}", ring=f"ring-{number}"), 0.0)
    states.shards("ring-7", 1.0)
    times = shard_states._Record.times

    def counted(record: shard_states._Record, now: float) -> LeaseTimes:
        nonlocal judged
        judged += 1
        return times(record, now)

    monkeypatch.setattr(shard_states._Record, "times", counted)
    states.observe(lease("shard-7", ring="ring-7"), 2.0)
    assert states.available("ring-7", 2.0) == ("shard-7",)
    assert [shard.name for shard in states.shards("ring-7", 2.0)] == ["shard-7"]
    assert states.may_live("ring-7", "shard-7", 2.0)
    assert judged < 20


def evicted(number: int = 1, *, duration: int = 30, transitions: int = 1) -> Lease:
    """A Lease that a sharder took from a live shard; `number` is the annotation's."""
    taken = lease(holder=SHARDER_IDENTITY, duration=duration)
    meta = msgspec.structs.replace(taken.metadata, annotations={EVICTED_ANNOTATION: str(number)})
    spec = msgspec.structs.replace(taken.spec, lease_transitions=transitions)
    return msgspec.structs.replace(taken, metadata=meta, spec=spec)


def test_an_evicted_shard_is_available_until_the_duration_of_the_record_is_over() -> None:
    states = ShardStates()
    states.observe(lease(), 0.0)
    change = states.observe(evicted(), 10.0)
    assert change is not None
    assert change.availability  # when the ring loses it is known now
    assert (change.before, change.after) == (READY, EXPIRED)
    assert states.availability("ring", 10.0).until == 40.0
    for now, state in ((39.9, EXPIRED), (40.0, DEAD), (99.9, DEAD), (100.0, ORPHANED)):
        shard = states.shard(A, now)
        assert shard is not None
        assert shard.state is state
        assert states.available("ring", now) == (("a",) if state is EXPIRED else ())
        assert states.may_live("ring", "a", now) is (state is EXPIRED)


def test_a_sharder_that_sees_an_evicted_shard_first_waits_as_long() -> None:
    states = ShardStates()
    states.observe(evicted(), 1000.0)
    assert states.may_live("ring", "a", 1029.9)
    assert not states.may_live("ring", "a", 1030.0)


def test_an_eviction_is_void_once_another_sharder_has_taken_the_lease() -> None:
    states = ShardStates()
    states.observe(evicted(1, transitions=2), 0.0)
    assert not states.may_live("ring", "a", 0.0)


def test_nobody_can_keep_a_dead_shard_for_long_by_an_eviction() -> None:
    states = ShardStates()
    states.observe(evicted(duration=1_000_000), 0.0)
    assert not states.may_live("ring", "a", 2 * MAX_DURATION)


def test_the_lease_of_an_evicted_shard_that_is_deleted_does_not_make_it_dead() -> None:
    states = ShardStates()
    states.observe(evicted(), 0.0)
    states.forget(A, 5.0)
    assert states.available("ring", 29.9) == ("a",)
    assert states.may_live("ring", "a", 29.9)
    assert states.available("ring", 30.0) == ()


def test_an_evicted_shard_that_is_back_is_available() -> None:
    states = ShardStates()
    states.observe(evicted(), 0.0)
    states.observe(lease(), 50.0)
    assert states.available("ring", 50.0) == ("a",)
