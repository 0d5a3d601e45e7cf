"""Two writers of one thing do not fight, whatever the other one does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kubeshard.runtime.clock import SystemClock
from kubeshard.runtime.repairs import EVERY, FREE, QUIET, Repairs


class Time(SystemClock):
    now = 0.0

    def monotonic(self) -> float:
        return self.now


def up_to(seconds: float) -> st.SearchStrategy[float]:
    """In steps of which floats have exact sums."""
    return st.integers(0, int(seconds * 1024)).map(lambda steps: steps / 1024)


PAUSES = st.lists(st.one_of(up_to(2), up_to(2 * EVERY), up_to(2 * QUIET)), min_size=1, max_size=300)


@given(PAUSES)
def test_however_somebody_else_changes_a_thing_it_is_put_right_once_a_minute_at_most_and_in_the_end(
    pauses: list[float],
) -> None:
    """The other one changes it after each of the pauses. It is looked at whenever it changes and may be repaired."""
    clock = Time()
    repairs, done, wrong = Repairs(clock), list[float](), False
    for pause in pauses:
        until = clock.now + pause
        while wrong and clock.now + repairs.wait("it") <= until:
            clock.now += repairs.wait("it")
            repairs.repaired("it")
            done.append(clock.now)
            wrong = False
        clock.now, wrong = until, True
    for start, first in enumerate(done):
        for end in range(start, len(done)):
            period = done[end] - first
            assert end - start + 1 <= FREE * (1 + period / QUIET) + period / EVERY + 1
    clock.now += repairs.wait("it")
    assert repairs.wait("it") == 0
    assert repairs.wait("another") == 0


def test_a_thing_that_was_left_alone_is_not_contested_any_more() -> None:
    clock = Time()
    repairs = Repairs(clock)
    for _ in range(FREE):
        assert not repairs.contested("it")
        repairs.repaired("it")
    assert repairs.contested("it")
    assert repairs.wait("it") == EVERY
    assert repairs.quiet_in("it") == QUIET
    clock.now = QUIET
    assert not repairs.contested("it")
    assert repairs.wait("it") == 0
    assert len(repairs) == 0


def test_as_many_things_are_remembered_as_fit() -> None:
    repairs = Repairs(Time(), most=10)
    for number in range(1000):
        repairs.repaired(number)
    assert len(repairs) == 10
