"""The writes for events that happen over and over: one test per row of the table."""

from __future__ import annotations

import asyncio

from kubeshard.controller.event_series import Event, EventSeries, ObjectReference, Write
from kubeshard.core import ObjectMeta
from kubeshard_lab.virtual_time import VirtualClock, virtual_time


def happening(
    name: str = "a", *, reason: str = "Failed", note: str = "no", controller: str = "c", type: str = "Warning"
) -> Event:
    return Event(
        metadata=ObjectMeta(name=f"{name}.1", namespace="ns"),
        type=type,
        reason=reason,
        action="Reconcile",
        reporting_controller=controller,
        regarding=ObjectReference(api_version="v1", kind="ConfigMap", namespace="ns", name=name),
        note=note,
    )


def count(write: Write | None) -> int:
    assert write is not None
    assert write.update
    assert write.event.series is not None
    return write.event.series.count


@virtual_time
async def test_the_first_occurrence_is_a_new_event() -> None:
    series = EventSeries(VirtualClock())
    assert series.occurred(happening()) == Write(happening(), update=False)


@virtual_time
async def test_the_second_occurrence_adds_a_series_of_two_and_later_ones_are_only_counted() -> None:
    series = EventSeries(VirtualClock())
    series.occurred(happening())
    assert count(series.occurred(happening())) == 2
    assert [series.occurred(happening()) for _ in range(50)] == [None] * 50


@virtual_time
async def test_a_different_note_is_the_same_series_and_a_different_reason_is_not() -> None:
    series = EventSeries(VirtualClock())
    series.occurred(happening(note="try 1"))
    assert count(series.occurred(happening(note="try 2"))) == 2
    for other in (happening(reason="Other"), happening("b"), happening(controller="d")):
        assert series.occurred(other) == Write(other, update=False)


@virtual_time
async def test_a_series_that_goes_on_is_written_every_half_hour() -> None:
    clock = VirtualClock()
    series = EventSeries(clock)
    written: list[tuple[float, int]] = []
    for _ in range(120):
        series.occurred(happening())
        written += [(clock.monotonic(), count(write)) for write in series.due()]
        await asyncio.sleep(60)
    assert [at for at, _ in written] == [1860, 3660, 5460]
    assert [occurrences for _, occurrences in written] == [32, 62, 92]


@virtual_time
async def test_a_series_ends_after_six_idle_minutes_with_its_final_count() -> None:
    series = EventSeries(VirtualClock())
    for _ in range(5):
        series.occurred(happening())
    await asyncio.sleep(359)
    assert series.due() == []
    await asyncio.sleep(1)
    assert [count(write) for write in series.due()] == [5]
    assert series.occurred(happening()) == Write(happening(), update=False)


@virtual_time
async def test_a_single_event_is_forgotten_without_another_write() -> None:
    series = EventSeries(VirtualClock())
    series.occurred(happening())
    await asyncio.sleep(360)
    assert series.due() == []
    assert series.occurred(happening()) == Write(happening(), update=False)


@virtual_time
async def test_an_object_has_a_burst_of_25_events_and_then_one_every_five_minutes() -> None:
    series = EventSeries(VirtualClock())

    def new_events(name: str, number: int) -> int:
        return sum(series.occurred(happening(name, reason=f"R{n}")) is not None for n in range(number))

    assert new_events("a", 100) == 25
    assert series.spam == 75
    assert new_events("b", 10) == 10
    await asyncio.sleep(600)
    series.due()
    assert new_events("a", 100) == 2


@virtual_time
async def test_any_number_of_normal_events_hides_no_warning() -> None:
    """As kubernetes/kubernetes#124747."""
    series = EventSeries(VirtualClock())
    for number in range(100):
        series.occurred(happening(reason=f"R{number}", type="Normal"))
    assert series.spam == 75
    assert series.occurred(happening()) is not None


@virtual_time
async def test_flush_writes_the_counts_that_are_not_written_yet() -> None:
    series = EventSeries(VirtualClock())
    for _ in range(3):
        series.occurred(happening("a"))
    for _ in range(2):
        series.occurred(happening("b"))
    assert [count(write) for write in series.flush()] == [3]
    assert series.flush() == []


@virtual_time
async def test_memory_is_bounded() -> None:
    series = EventSeries(VirtualClock())
    for number in range(10_000):
        series.occurred(happening(f"object-{number}"))
    assert len(series._running) <= 4096
    assert len(series._buckets) <= 4096
