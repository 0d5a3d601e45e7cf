"""An alarm that wakes a thread, of each kind."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from kubeshard.runtime.thread_alarm import ConditionAlarm, KernelThreadAlarm, ThreadAlarm, thread_alarm

KERNEL = pytest.mark.skipif(sys.platform != "linux", reason="timers of Linux")


@pytest.fixture(params=[pytest.param(KernelThreadAlarm, marks=KERNEL), ConditionAlarm])
def alarm(request: pytest.FixtureRequest) -> Iterator[ThreadAlarm]:
    make: Callable[[], ThreadAlarm] = request.param
    with closing(make()) as made:
        yield made


def waiting(alarm: ThreadAlarm) -> threading.Thread:
    thread = threading.Thread(target=alarm.wait, daemon=True)
    thread.start()
    return thread


def test_it_goes_off_when_the_time_is_over_and_not_before(alarm: ThreadAlarm) -> None:
    before = time.monotonic()
    alarm.set(0.01)
    alarm.wait()
    assert time.monotonic() >= before + 0.01


def test_it_goes_off_as_it_was_set_last_sooner_or_later(alarm: ThreadAlarm) -> None:
    alarm.set(60.0)
    thread = waiting(alarm)
    alarm.set(0.0)
    thread.join(10)
    assert not thread.is_alive()
    alarm.set(0.0)
    alarm.set(0.01)
    before = time.monotonic()
    alarm.wait()
    assert time.monotonic() >= before + 0.005


def test_it_goes_off_once(alarm: ThreadAlarm) -> None:
    alarm.set(0.0)
    alarm.wait()
    thread = waiting(alarm)
    thread.join(0.01)
    assert thread.is_alive()
    alarm.set(0.0)
    thread.join(10)


@KERNEL
def test_a_system_without_timers_has_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(thread_alarm()) as made:
        assert isinstance(made, KernelThreadAlarm)

    def refused(self: object) -> None:
        raise OSError("not in this sandbox")

    monkeypatch.setattr(KernelThreadAlarm, "__init__", refused)
    assert isinstance(thread_alarm(), ConditionAlarm)
