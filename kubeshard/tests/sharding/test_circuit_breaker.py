"""When take-overs are held back, and when no longer."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from kubeshard.core import Lease, LeaseSpec, ObjectMeta
from kubeshard.core.objects import Key
from kubeshard.sharding.shard_states import LeaseTimes, Shard, ShardState
from kubeshard.sharding.take_overs import EVERY, BreakerState, CircuitBreaker

GRACE = 45.0
D = 15.0


def shard(name: str, state: ShardState, *, allowed: bool | None = None, deleted: bool = False) -> Shard:
    lease = Lease(metadata=ObjectMeta(name=name, namespace="ns"), spec=LeaseSpec(holder_identity=name))
    times = LeaseTimes(D, -D)
    key = Key("ns", name)
    return Shard(key, lease, "r", state, times, deleted, allowed, valid=True, evicted=False, said=lease)


def ring(live: int, late: int = 0, due: int = 0) -> list[Shard]:
    """`live` shards renew, `late` ones have not for a lease duration, and `due` ones not for two."""
    return [
        *(shard(f"l{number}", ShardState.READY) for number in range(live)),
        *(shard(f"e{number}", ShardState.EXPIRED) for number in range(late)),
        *(shard(f"u{number}", ShardState.UNCERTAIN) for number in range(due)),
    ]


def takes(breaker: CircuitBreaker, shards: Iterable[Shard], now: float, *, fresh: bool = True) -> list[str]:
    """The shards that are due and may be taken over now; they are."""
    shards = list(shards)
    breaker.update(shards, now, fresh=fresh)
    taken = [s for s in shards if s.state is ShardState.UNCERTAIN and breaker.may_take(s, now)]
    for each in taken:
        breaker.taken(each, now)
    return [each.name for each in taken]


@pytest.mark.parametrize(
    ("live", "late", "due", "opens"),
    [
        (0, 0, 1, False),
        (0, 1, 1, False),
        (1, 1, 1, False),
        (0, 2, 1, True),
        (2, 2, 1, True),
        (3, 2, 1, False),
        (4, 0, 4, False),
        (4, 0, 5, True),
        (10, 0, 3, False),
    ],
)
def test_take_overs_are_held_back_when_at_least_three_and_more_than_half_of_the_shards_fail(
    live: int, late: int, due: int, opens: bool
) -> None:
    breaker = CircuitBreaker(GRACE)
    assert (takes(breaker, ring(live, late, due), 0) == []) is opens
    assert breaker.is_open is opens
    assert bool(breaker.explained) is opens


@pytest.mark.parametrize(("third", "taken"), [(29, []), (31, ["l1"])])
def test_shards_that_failed_one_after_the_other_within_two_lease_durations_count_together(
    third: int, taken: list[str]
) -> None:
    breaker = CircuitBreaker(GRACE)
    assert takes(breaker, ring(2, 1, 1), 0) == ["u0"]
    assert takes(breaker, [*ring(2), shard("e0", ShardState.UNCERTAIN)], 15) == ["e0"]
    assert takes(breaker, [*ring(1), shard("l1", ShardState.UNCERTAIN)], third) == taken


def test_shards_that_do_not_return_are_given_up_a_fifth_at_a_time_after_the_grace_period() -> None:
    breaker = CircuitBreaker(GRACE)
    dead, when = ring(1, due=10), list[float]()
    for now in range(200):
        gone = takes(breaker, dead, now)
        when += [now] * len(gone)
        dead = [each for each in dead if each.name not in gone]
    assert when == [45, 45, 55, 55, 65, 65, 75, 75, 85, 85]
    assert not breaker.is_open


def test_a_take_over_that_is_seen_before_it_is_told_does_not_begin_the_grace_period_anew() -> None:
    breaker = CircuitBreaker(GRACE)
    dead = ring(1, due=3)
    assert takes(breaker, dead, 0) == []
    breaker.update(dead, GRACE, fresh=True)
    assert breaker.may_take(dead[1], GRACE)
    breaker.update([dead[0], *dead[2:]], GRACE, fresh=True)
    breaker.taken(dead[1], GRACE)
    assert takes(breaker, [dead[0], *dead[2:]], GRACE + EVERY) == ["u1"]


def test_a_stale_view_begins_the_grace_period_anew_even_between_two_batches() -> None:
    breaker = CircuitBreaker(GRACE)
    dead = ring(1, due=5)
    assert takes(breaker, dead, 0) == []
    assert takes(breaker, dead, 40, fresh=False) == []
    assert takes(breaker, dead, 84) == []
    assert "objects stay" in breaker.explained
    assert takes(breaker, dead, 85) == ["u0"]
    assert "those that have not returned are given up" in breaker.explained
    dead = dead[:1] + dead[2:]
    assert takes(breaker, dead, 90, fresh=False) == []
    assert takes(breaker, dead, 90 + EVERY) == []
    assert takes(breaker, dead, 90 + GRACE) == ["u1"]


def test_the_first_shard_to_return_begins_the_grace_period_anew_once() -> None:
    breaker = CircuitBreaker(GRACE)
    assert takes(breaker, ring(0, due=5), 0) == []
    assert takes(breaker, ring(1, due=4), 30) == []
    assert takes(breaker, ring(0, 1, due=4), 50) == []
    assert takes(breaker, ring(1, due=4), 60) == []
    assert takes(breaker, ring(1, due=4), 30 + GRACE) == ["u0"]


def test_when_most_shards_are_back_the_others_still_have_the_grace_period() -> None:
    breaker = CircuitBreaker(GRACE)
    assert takes(breaker, ring(2, due=4), 0) == []
    assert takes(breaker, ring(4, due=2), 44) == []
    assert takes(breaker, ring(4, due=2), 45) == ["u0", "u1"]
    assert breaker.state is BreakerState.CLOSED
    assert not breaker.explained


def test_it_closes_when_all_shards_are_back_or_between_two_batches_most_of_them() -> None:
    breaker = CircuitBreaker(GRACE)
    assert takes(breaker, ring(2, due=4), 0) == []
    assert takes(breaker, ring(6), 5) == []
    assert breaker.state is BreakerState.CLOSED
    assert takes(breaker, ring(2, due=4), 10) == []
    assert takes(breaker, ring(2, due=4), 10 + GRACE) == ["u0"]
    assert takes(breaker, ring(4, due=2), 11 + GRACE) == ["u0", "u1"]


def test_a_shard_that_may_be_taken_does_not_use_up_the_batch_twice() -> None:
    """Taking a Lease may fail, and is tried again."""
    breaker = CircuitBreaker(GRACE)
    dead = ring(1, due=10)
    for now in (0, 45, 46):
        breaker.update(dead, now, fresh=True)
        allowed = [
            each.name for each in dead if each.state is ShardState.UNCERTAIN and breaker.may_take(each, now)
        ]
    assert allowed == ["u0", "u1"]


def test_what_is_no_member_of_the_ring_neither_counts_nor_waits() -> None:
    breaker = CircuitBreaker(GRACE)
    elsewhere = [shard(f"x{number}", ShardState.UNCERTAIN, allowed=False) for number in range(9)]
    assert len(takes(breaker, [*ring(2), *elsewhere], 0)) == 9
    assert takes(breaker, [*ring(2, due=3), *elsewhere], 1) == [each.name for each in elsewhere]


def test_deleted_leases_count_from_the_time_at_which_they_would_have_expired() -> None:
    breaker = CircuitBreaker(GRACE)
    gone = [shard(f"d{number}", ShardState.READY, deleted=True) for number in range(3)]
    breaker.update([*ring(1), *gone], 0, fresh=True)
    assert not breaker.is_open
    breaker.update([*ring(1), *(each._replace(state=ShardState.DEAD) for each in gone)], 1, fresh=True)
    assert breaker.is_open
    assert not breaker.may_take(gone[0]._replace(state=ShardState.DEAD), 1)


def test_without_a_grace_period_nothing_is_ever_held_back() -> None:
    breaker = CircuitBreaker(0)
    assert len(takes(breaker, ring(0, due=9), 0)) == 9
