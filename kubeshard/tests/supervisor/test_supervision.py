"""When processes are started, stopped and killed."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeshard.supervisor.state_machine import HUNG_AFTER, RESTARTS, Command, Kill, Start, Stop, Supervision


class Least:
    """No jitter."""

    def uniform(self, low: float, high: float) -> float:
        return low

    def token(self) -> str:
        raise NotImplementedError


def begun(count: int = 2) -> Supervision:
    machine = Supervision(count, Least())
    assert machine.begin() == [Start(number) for number in range(count)]
    for number in range(count):
        machine.answered(number, 0.0, alive=True, ready=True)
    return machine


def done(commands: Iterable[Command]) -> list[Command]:
    return list(commands)


@pytest.mark.parametrize("code", [0, 1, -9, 137])
def test_a_process_that_ends_is_started_again_and_the_others_are_left_alone(code: int) -> None:
    machine = begun()
    assert done(machine.ended(1, code, 10.0)) == []
    assert (machine.wake_at, machine.starts_in(1, 10.0)) == (11.0, 1.0)
    assert done(machine.due(10.9)) == []
    assert done(machine.due(11.0)) == [Start(1)]
    assert done(machine.due(11.0)) == []
    assert machine.exit_code is None


def test_a_process_that_ends_again_and_again_is_waited_for_longer_up_to_a_bound() -> None:
    machine, now, waits = begun(1), 0.0, []
    for _ in range(8):
        machine.ended(0, 1, now)
        waits.append(machine.starts_in(0, now))
        now = machine.wake_at
        assert done(machine.due(now)) == [Start(0)]
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    machine.ended(0, 1, now + RESTARTS.reset_after + 61)
    assert machine.starts_in(0, now + RESTARTS.reset_after + 61) == 1


def test_a_mistake_of_the_user_ends_all_with_its_code() -> None:
    machine = begun(3)
    machine.ended(0, 1, 0.0)
    assert done(machine.ended(1, 2, 0.5)) == [Stop(2)]
    assert machine.exit_code is None
    assert done(machine.ended(2, 0, 1.0)) == []
    assert machine.exit_code == 2


@pytest.mark.parametrize(
    ("codes", "together"), [((0, 0), 0), ((0, -15), 0), ((0, 1), 1), ((-9, 0), 1), ((2, 0), 1)]
)
def test_a_stop_ends_all_in_order(codes: tuple[int, int], together: int) -> None:
    machine = begun()
    assert done(machine.stop()) == [Stop(0), Stop(1)]
    for number, code in enumerate(codes):
        assert machine.exit_code is None
        assert done(machine.ended(number, code, 1.0)) == []
    assert machine.exit_code == together
    assert machine.wake_at == math.inf


def test_a_second_stop_kills_what_still_runs() -> None:
    machine = begun(3)
    assert len(done(machine.stop())) == 3
    machine.ended(1, 0, 1.0)
    assert done(machine.stop()) == [Kill(0), Kill(2)]


def test_a_process_that_waits_to_be_started_again_is_not_once_all_stop() -> None:
    machine = begun()
    machine.ended(0, 1, 0.0)
    assert done(machine.stop()) == [Stop(1)]
    assert done(machine.due(100.0)) == []
    machine.ended(1, 0, 2.0)
    assert machine.exit_code == 0


def test_a_process_that_gives_no_sign_of_life_is_killed_and_started_again() -> None:
    machine = begun(1)
    machine.answered(0, 20.0, alive=True, ready=True)
    machine.answered(0, 40.0, alive=False, ready=False)
    assert machine.wake_at == 20.0 + HUNG_AFTER
    assert done(machine.due(50.0)) == [Kill(0)]
    assert done(machine.due(50.0)) == []
    machine.ended(0, -9, 51.0)
    assert done(machine.due(52.0)) == [Start(0)]


def test_a_process_may_take_as_long_to_start_as_it_needs() -> None:
    machine = Supervision(1, Least())
    machine.begin()
    machine.answered(0, 500.0, alive=False, ready=False)
    assert machine.wake_at == math.inf
    machine.answered(0, 501.0, alive=True, ready=False)
    assert machine.wake_at == 501.0 + HUNG_AFTER


def test_an_answer_of_a_former_process_does_not_count_for_the_next_one() -> None:
    machine = begun(1)
    machine.ended(0, 1, 10.0)
    machine.answered(0, 10.1, alive=True, ready=True)
    assert not machine.runs(0)
    assert machine.unready(0) == "process 0 has ended, and is about to be started again"
    assert done(machine.due(11.0)) == [Start(0)]
    assert machine.unready(0) == "process 0 is starting"


def test_a_process_is_ready_when_it_says_so() -> None:
    machine = Supervision(1, Least())
    machine.begin()
    assert machine.unready(0) == "process 0 is starting"
    assert not machine.is_up(0)
    machine.answered(0, 1.0, alive=True, ready=False)
    assert machine.is_up(0)
    assert machine.unready(0) == "process 0 is not ready"
    machine.answered(0, 2.0, alive=True, ready=True)
    assert machine.unready(0) is None


@given(st.lists(st.tuples(st.sampled_from(["deathly", "quiet", "stop"]), st.integers(0, 2)), max_size=30))
def test_whatever_happens_each_number_has_at_most_one_process(events: list[tuple[str, int]]) -> None:
    machine, now = Supervision(3, Least()), 0.0
    running: set[int] = set()

    def follow(commands: Iterable[Command]) -> None:
        for command in commands:
            match command:
                case Start(number):
                    assert number not in running
                    running.add(number)
                case _:
                    assert command.number in running

    follow(machine.begin())
    for what, number in events:
        now += 7.0
        if what == "stop":
            follow(machine.stop())
        elif what == "deathly" and number in running:
            running.remove(number)
            follow(machine.ended(number, 1, now))
        elif number in running:
            machine.answered(number, now, alive=number == 0, ready=True)
        follow(machine.due(now))
        assert machine.exit_code is None or not running
