"""What an experiment shows while it runs, as lines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NamedTuple, Protocol

from kubeshard_lab.experiment.recording import Event, Usage
from kubeshard_lab.experiment.report.words import clock

_LINE_EVERY = 10.0


class Percentiles(NamedTuple):
    """Seconds; NaN if there is nothing to compute them from."""

    p50: float
    p99: float


class Progress(NamedTuple):
    title: str
    doing: str
    elapsed: float
    duration: float
    wanted: float
    """Requests per second that were due."""
    reached: float
    """... that were answered with success."""
    in_flight: int
    waited: Percentiles
    queue: Percentiles
    reconcile: Percentiles
    objects: int
    unready: int
    shards: Mapping[str, int]
    usage: Sequence[tuple[Usage, float]]
    """With the cores used in the last second."""
    happened: Sequence[Event]
    warnings: Sequence[str]


class Screen(Protocol):
    def say(self, text: str) -> None: ...

    def showing(self, progress: Callable[[], Progress]) -> AbstractAsyncContextManager[None]:
        """Shows the run as long as the block lasts. `progress` returns how far it is."""
        ...


class Lines:
    """For a log: now and then the progress in a line, and what happened since. `say` takes each line."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say

    @asynccontextmanager
    async def showing(self, progress: Callable[[], Progress]) -> AsyncIterator[None]:
        printing = asyncio.create_task(self._print_events(progress), name="screen")
        try:
            yield
        finally:
            await cancelled(printing)
            self.say(line(progress()))

    async def _print_events(self, progress: Callable[[], Progress]) -> None:
        printed = 0
        while True:
            await asyncio.sleep(_LINE_EVERY)
            shown = progress()
            for event in shown.happened[printed:]:
                self.say(f"  {happening(event)}")
            printed = len(shown.happened)
            self.say(line(shown))


async def cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


def line(progress: Progress) -> str:
    parts = [
        f"{clock(progress.elapsed)}/{clock(progress.duration)} {progress.doing}",
        f"{progress.wanted:.1f} wanted, {progress.reached:.1f} reached/s",
        f"waited {_both(progress.waited)}",
        f"queue {_both(progress.queue)}",
        f"reconcile {_both(progress.reconcile)}",
        f"{progress.objects} objects, {progress.unready} not ready",
        *progress.warnings,
    ]
    return "; ".join(parts)


def happening(event: Event) -> str:
    return " ".join(part for part in (event.kind, event.subject, event.detail) if part)


def _both(percentiles: Percentiles) -> str:
    return f"p50 {seconds(percentiles.p50)} p99 {seconds(percentiles.p99)}"


def seconds(value: float) -> str:
    if value != value:
        return "-"
    return f"{value:.3f} s" if value < 10 else f"{value:.1f} s"
