"""When the clean-up of a deleted ring is over, and what is left of it, on a virtual clock."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kubeshard.core.kinds import GroupResource
from kubeshard.sharding.waiting import PATIENCE, SETTLED, CleanUp, CleanUpState

THINGS, CHILDREN = GroupResource("sim.example", "things"), GroupResource("", "configmaps")
BOTH = (THINGS, CHILDREN)


def test_it_is_over_when_every_resource_was_read_late_enough_and_had_no_object() -> None:
    clean_up = CleanUp(100.0)
    assert clean_up.state(BOTH, 100.0) is CleanUpState.UNDER_WAY
    assert clean_up.left(BOTH) == "not read yet: configmaps, things.sim.example"
    clean_up.found(THINGS, {"a": 2, "b": 1}, 100.0, 101.0)
    assert clean_up.left(BOTH) == "3 things.sim.example with shards a, b; not read yet: configmaps"
    clean_up.found(CHILDREN, {}, 100.0, 101.0)
    clean_up.found(THINGS, {}, 102.0, 103.0)
    assert clean_up.state(BOTH, 110.0) is CleanUpState.UNDER_WAY  # both were read before the webhooks knew
    for resource in BOTH:
        clean_up.found(resource, {}, 100.0 + SETTLED, 111.0)
    assert clean_up.state(BOTH, 111.0) is CleanUpState.CLEAN
    assert clean_up.left(BOTH) == ""


def test_a_ring_without_resources_has_nothing_to_clean_up() -> None:
    clean_up = CleanUp(0.0)
    assert clean_up.state((), SETTLED - 0.1) is CleanUpState.UNDER_WAY
    assert clean_up.state((), SETTLED) is CleanUpState.CLEAN


def test_it_is_given_up_when_nothing_is_read_since_somebody_waits_for_it() -> None:
    clean_up = CleanUp(0.0)
    assert clean_up.state(BOTH, 1000.0) is CleanUpState.UNDER_WAY
    assert clean_up.state(BOTH, 1000.0 + PATIENCE - 0.1) is CleanUpState.UNDER_WAY
    assert clean_up.state(BOTH, 1000.0 + PATIENCE) is CleanUpState.GIVEN_UP


def test_it_may_take_as_long_as_it_makes_progress() -> None:
    clean_up = CleanUp(0.0)
    for minute in range(100):
        now = 60.0 * minute
        clean_up.found(THINGS, {"a": 100 - minute}, now, now)
        assert clean_up.state([THINGS], now) is CleanUpState.UNDER_WAY
    assert clean_up.state([THINGS], 99 * 60.0 + PATIENCE) is CleanUpState.GIVEN_UP


@given(st.lists(st.tuples(st.sampled_from(BOTH), st.integers(0, 5), st.floats(0.1, 200.0)), max_size=80))
def test_objects_that_come_and_go_cannot_keep_a_ring(reads: list[tuple[GroupResource, int, float]]) -> None:
    """Another sharder may assign again what this one releases. Fewer than ever before can be found only so often."""
    clean_up, now, fewest, last = CleanUp(0.0), 0.0, dict[GroupResource, int](), 0.0
    clean_up.state(BOTH, now)
    for resource, count, wait in reads:
        now += wait
        clean_up.found(resource, {"a": count} if count else {}, now, now)
        if count < fewest.get(resource, 6):
            fewest[resource], last = count, now
        state = clean_up.state(BOTH, now)
        assert (state is CleanUpState.GIVEN_UP) <= (now - last >= PATIENCE)
        assert state is not CleanUpState.UNDER_WAY or now - last < PATIENCE
    assert clean_up.state(BOTH, last + PATIENCE + SETTLED) is not CleanUpState.UNDER_WAY


def test_only_the_shards_with_most_objects_are_named() -> None:
    clean_up = CleanUp(0.0)
    clean_up.found(THINGS, {f"s{number}": 10 - number for number in range(8)} | {"": 1}, 0.0, 1.0)
    assert clean_up.left([THINGS]) == "53 things.sim.example with shards s0, s1, s2, s3, s4, ..."
