"""When it counts as confirmed that a dead shard has ended, on a virtual clock."""

from __future__ import annotations

import math

import pytest

from kubeshard.core.builtin import Lease, LeaseSpec
from kubeshard.core.objects import ObjectMeta
from kubeshard.core.times import micro_time
from kubeshard.sharding.names import CONFIRMED_ANNOTATION, RING_LABEL, SHARDER_IDENTITY
from kubeshard.sharding.shard_states import (
    REMEMBERED,
    Confirmations,
    Confirmed,
    ShardStates,
    confirmation,
    is_confirmed,
    longest_wait,
)


def lease(
    holder: str | None, confirmed: str = "", *, transitions: int | None = 3, namespace: str = "ops"
) -> Lease:
    annotations = {CONFIRMED_ANNOTATION: confirmed} if confirmed else None
    meta = ObjectMeta(
        name="s0",
        namespace=namespace,
        uid="u",
        resource_version=str(100 + len(confirmed)),
        labels={RING_LABEL: "r"},
        annotations=annotations,
    )
    spec = LeaseSpec(
        holder_identity=holder,
        lease_duration_seconds=30,
        acquire_time=micro_time(0.0),
        renew_time=micro_time(0.0),
        lease_transitions=transitions,
    )
    return Lease(metadata=meta, spec=spec)


@pytest.mark.parametrize(
    ("found", "ended"),
    [
        (lease(""), True),
        (lease(None), True),
        (lease("s0"), False),
        (lease("s0", "3/operator"), False),
        (lease(SHARDER_IDENTITY), False),
        (lease(SHARDER_IDENTITY, "3/kubelet"), True),
        (lease(SHARDER_IDENTITY, "2/kubelet"), False),
        (lease(SHARDER_IDENTITY, "3"), False),
        (lease(SHARDER_IDENTITY, "3/"), False),
        (lease(SHARDER_IDENTITY, "0/waited", transitions=None), True),
        (lease("somebody", "3/operator"), False),
    ],
)
def test_a_lease_is_confirmed_if_its_holder_released_it_or_somebody_said_so_since_it_was_taken(
    found: Lease, ended: bool
) -> None:
    assert is_confirmed(found) is ended
    assert Confirmations(math.inf).has_ended("s0", [found], 0.0) is ended


@pytest.mark.parametrize("by", list(Confirmed))
def test_what_confirms_a_lease_is_void_once_it_is_taken_again(by: Confirmed) -> None:
    said = confirmation(lease(SHARDER_IDENTITY), by)
    assert is_confirmed(lease(SHARDER_IDENTITY, said))
    assert not is_confirmed(lease(SHARDER_IDENTITY, said, transitions=4))


def test_all_leases_of_a_name_have_to_be_confirmed() -> None:
    both = [lease(""), lease(SHARDER_IDENTITY, namespace="other")]
    assert not Confirmations(math.inf).has_ended("s0", both, 0.0)


def test_without_a_lease_only_time_helps_and_it_begins_anew_with_each_lease() -> None:
    confirmations = Confirmations(60.0)
    assert not confirmations.has_ended("s0", [], 0.0)
    assert not confirmations.has_ended("s0", [], 59.0)
    assert confirmations.has_ended("s0", [], 60.0)
    assert not confirmations.has_ended("s0", [lease("s0")], 61.0)
    assert not confirmations.has_ended("s0", [], 62.0)
    assert not Confirmations(math.inf).has_ended("s0", [], 1e9)


def test_names_that_users_make_up_take_a_bounded_amount_of_memory() -> None:
    confirmations = Confirmations(60.0)
    for number in range(3 * REMEMBERED):
        assert not confirmations.has_ended(f"s{number}", [], 0.0)
    assert not confirmations.has_ended("s0", [], 60.0)
    assert confirmations.has_ended(f"s{3 * REMEMBERED - 1}", [], 60.0)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("", None), ("false", None), ("true", math.inf), ("90s", 90.0), ("30m", 1800.0), ("2h", 7200.0)],
)
def test_the_annotation_says_how_long_objects_wait(text: str, seconds: float | None) -> None:
    assert longest_wait(text) == seconds


@pytest.mark.parametrize("text", ["yes", "30", "0s", "-1s", "1.5h", "1h30m", "True", " true", "9" * 10 + "s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="neither true nor a duration"):
        longest_wait(text)


def test_a_shard_is_not_waited_for_any_longer_than_since_its_lease_was_seen_to_be_taken() -> None:
    states, confirmations = ShardStates(), Confirmations(60.0)
    states.observe(lease(SHARDER_IDENTITY), 100.0)
    for now, over in ((159.0, False), (160.0, True)):
        (shard,) = states.shards("r", now)
        assert confirmations.over(shard) is over


def test_a_confirmation_is_news_about_the_members_of_a_ring_and_nothing_else_of_a_taken_lease_is() -> None:
    states = ShardStates()
    states.observe(lease(SHARDER_IDENTITY), 0.0)
    other = lease(SHARDER_IDENTITY, "2/kubelet")
    confirmed = lease(SHARDER_IDENTITY, "3/operator")
    assert [
        bool(c and c.availability) for c in (states.observe(each, 1.0) for each in (other, confirmed))
    ] == [
        False,
        True,
    ]


def test_a_lease_that_was_deleted_while_it_was_held_still_counts() -> None:
    states = ShardStates()
    held = lease("s0")
    states.observe(held, 0.0)
    states.forget(held.key, 1.0)
    assert [each.spec.holder_identity for each in states.named("r", "s0")] == ["s0"]
    assert states.named("r", "s1") == []
