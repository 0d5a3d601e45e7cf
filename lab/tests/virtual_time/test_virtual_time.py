from __future__ import annotations

import asyncio
import math
import time

import pytest

from kubeshard_lab.virtual_time import (
    OutOfTime,
    SleepsForever,
    VirtualClock,
    VirtualThread,
    VirtualTimeLoop,
    run_virtual,
    settle,
    virtual_time,
)


@virtual_time
async def test_an_hour_of_sleep_takes_no_real_time() -> None:
    began = time.monotonic()
    clock = VirtualClock()
    await asyncio.sleep(3600)
    assert clock.monotonic() == 3600
    assert time.monotonic() - began < 1


@virtual_time
async def test_timers_fire_in_order_of_their_time() -> None:
    fired: list[float] = []

    async def sleeper(delay: float) -> None:
        await asyncio.sleep(delay)
        fired.append(delay)

    async with asyncio.TaskGroup() as group:
        for delay in (3.0, 0.5, 7.25, 1.0):
            group.create_task(sleeper(delay))
    assert fired == [0.5, 1.0, 3.0, 7.25]


@virtual_time
async def test_many_small_delays_add_up_exactly() -> None:
    clock = VirtualClock()
    for _ in range(1000):
        await asyncio.sleep(0.1)
    assert clock.monotonic() == 100.0


@virtual_time
async def test_code_that_sleeps_until_its_time_has_come_gets_there() -> None:
    clock = VirtualClock()
    due = 0.0
    for _ in range(30):
        due += 0.1
        while (rest := due - clock.monotonic()) > 0:  # noqa: ASYNC110 - the pattern under test
            await asyncio.sleep(rest)
    assert clock.monotonic() == pytest.approx(3)


@virtual_time
async def test_time_stands_still_while_something_can_run() -> None:
    clock = VirtualClock()
    for _ in range(100):
        await asyncio.sleep(0)
    assert clock.monotonic() == 0


@virtual_time
async def test_timeouts_expire_on_virtual_time() -> None:
    clock = VirtualClock()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(30):
            await asyncio.Event().wait()
    assert clock.monotonic() == 30


def test_a_deadlock_is_an_error_that_names_the_waiting_line() -> None:
    async def waits_for_nobody() -> None:
        await asyncio.Event().wait()

    with pytest.raises(SleepsForever, match=r"every task sleeps forever:\n.*Event\.wait"):
        run_virtual(waits_for_nobody())


def test_a_run_that_only_sets_timers_ends_at_its_limit() -> None:
    async def forever() -> None:
        while True:  # noqa: ASYNC110 - waits for nothing on purpose
            await asyncio.sleep(1)

    with pytest.raises(OutOfTime):
        run_virtual(forever(), limit=100)


@virtual_time
async def test_settle_returns_when_all_others_wait_and_no_time_passed() -> None:
    steps: list[int] = []

    async def work() -> None:
        for step in range(5):
            steps.append(step)
            await asyncio.sleep(0)
        await asyncio.sleep(10)
        steps.append(99)

    task = asyncio.create_task(work())
    await settle()
    assert steps == [0, 1, 2, 3, 4]
    assert VirtualClock().monotonic() == 0
    task.cancel()


@virtual_time
async def test_boottime_goes_on_while_the_machine_is_suspended_and_monotonic_does_not() -> None:
    clock = VirtualClock()
    clock.suspend(60)
    await asyncio.sleep(1)
    assert (clock.monotonic(), clock.boottime(), clock.wall()) == (1, 61, VirtualClock.EPOCH + 61)


@virtual_time
async def test_skew_moves_only_the_wall_clock() -> None:
    clock = VirtualClock(skew=-40)
    assert (clock.monotonic(), clock.boottime(), clock.wall()) == (0, 0, VirtualClock.EPOCH - 40)


@virtual_time
async def test_a_wait_for_a_clock_that_stood_still_comes_to_an_end() -> None:
    clock = VirtualClock()
    await asyncio.sleep(600.1)
    clock.sleep(500)  # its time is smaller than the loop's, and so more precise
    due, waits = math.nextafter(clock.monotonic(), math.inf), 0
    while clock.monotonic() < due and waits < 10:
        await asyncio.sleep(due - clock.monotonic())
        waits += 1
    assert waits == 1


@virtual_time
async def test_what_another_thread_asks_of_the_loop_of_its_process_waits_while_that_is_blocked() -> None:
    loop, answered = asyncio.get_running_loop(), asyncio.Event()
    assert isinstance(loop, VirtualTimeLoop)
    main = VirtualThread(loop)

    async def ask() -> None:
        loop.call_soon_threadsafe(answered.set)

    main.stop()
    await VirtualThread(loop, main).start(ask(), "another thread")
    await asyncio.sleep(5)
    assert not answered.is_set()
    main.resume()
    await answered.wait()


@virtual_time
async def test_a_thread_that_is_stopped_twice_goes_on_when_both_stops_have_ended() -> None:
    loop, steps = asyncio.get_running_loop(), []
    assert isinstance(loop, VirtualTimeLoop)
    thread = VirtualThread(loop)

    async def step() -> None:
        while True:
            await asyncio.sleep(1)
            steps.append(loop.time())

    task = thread.start(step(), "steps")
    await settle()
    thread.stop()
    await asyncio.sleep(5)
    thread.stop()
    await asyncio.sleep(5)
    thread.resume()
    await asyncio.sleep(5)
    assert steps == []
    thread.resume()
    await asyncio.sleep(1.5)
    assert steps == [15, 16]
    task.cancel()


@pytest.mark.parametrize("blocked", [False, True])
@virtual_time
async def test_timers_stand_still_while_the_machine_is_suspended_but_not_before(blocked: bool) -> None:
    loop, rang = asyncio.get_running_loop(), {}
    assert isinstance(loop, VirtualTimeLoop)
    thread = VirtualThread(loop)

    async def ring(after: float) -> None:
        await asyncio.sleep(after)
        rang[after] = loop.time()

    tasks = [thread.start(ring(after), f"after {after}") for after in (1.0, 3.0, 4.0, 20.0)]
    await settle()
    if blocked:
        thread.stop()
    await asyncio.sleep(2)
    thread.stop()
    await asyncio.sleep(10)
    thread.resume(slept=10)
    if blocked:
        await asyncio.sleep(1.5)
        thread.resume()
    await asyncio.wait(tasks)
    assert rang == {1.0: 13.5 if blocked else 1, 3.0: 13.5 if blocked else 13, 4.0: 14, 20.0: 30}
