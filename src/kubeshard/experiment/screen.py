"""What an experiment shows while it runs: a live table on a terminal, lines elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kubeshard.experiment.recording import Event, Usage

_REFRESH = 0.5
_LINE_EVERY = 10.0
_LATEST = 6


class Percentiles(NamedTuple):
    """Seconds; NaN if there is nothing to compute them from."""

    p50: float
    p99: float


class Picture(NamedTuple):
    """A run at a moment."""

    title: str
    doing: str
    elapsed: float
    duration: float
    wanted: float
    """Requests per second that were due."""
    reached: float
    """... that were answered with success."""
    in_flight: int
    late: int
    waited: Percentiles
    """What users waited for."""
    queue: Percentiles
    reconcile: Percentiles
    objects: int
    unready: int
    shards: Mapping[str, int]
    usage: Sequence[tuple[Usage, float]]
    """With the cores used in the last second."""
    happened: Sequence[Event]
    warnings: Sequence[str]


class Screen:
    """`look` gives the picture to show."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def say(self, text: str) -> None:
        self._console.print(text, soft_wrap=True, highlight=False, markup=False)

    @asynccontextmanager
    async def showing(self, look: Callable[[], Picture]) -> AsyncIterator[None]:
        """Shows the run as long as the block lasts."""
        if self._console.is_terminal:
            with Live(console=self._console, auto_refresh=False) as live:
                drawing = asyncio.create_task(self._draw(live, look), name="screen")
                try:
                    yield
                finally:
                    await _cancelled(drawing)
                    live.update(frame(look()), refresh=True)
            return
        telling = asyncio.create_task(self._tell(look), name="screen")
        try:
            yield
        finally:
            await _cancelled(telling)
            self.say(line(look()))

    async def _draw(self, live: Live, look: Callable[[], Picture]) -> None:
        while True:
            live.update(frame(look()), refresh=True)
            await asyncio.sleep(_REFRESH)

    async def _tell(self, look: Callable[[], Picture]) -> None:
        told = 0
        while True:
            await asyncio.sleep(_LINE_EVERY)
            picture = look()
            for event in picture.happened[told:]:
                self.say(f"  {_event(event)}")
            told = len(picture.happened)
            self.say(line(picture))


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


def line(picture: Picture) -> str:
    """The picture in one line."""
    parts = [
        f"{_clock(picture.elapsed)}/{_clock(picture.duration)} {picture.doing}",
        f"{picture.wanted:.1f} wanted, {picture.reached:.1f} reached/s",
        f"waited {_both(picture.waited)}",
        f"queue {_both(picture.queue)}",
        f"reconcile {_both(picture.reconcile)}",
        f"{picture.objects} objects, {picture.unready} not ready",
        *picture.warnings,
    ]
    return "; ".join(parts)


def frame(picture: Picture) -> RenderableType:
    """The picture for a terminal."""
    rates = Table.grid(padding=(0, 2))
    rates.add_row(
        f"[bold]{_clock(picture.elapsed)}[/] of {_clock(picture.duration)}",
        picture.doing,
        f"[bold]{picture.wanted:.1f}[/] requests/s wanted, [bold]{picture.reached:.1f}[/] reached",
        f"{picture.in_flight} unanswered",
    )
    times = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, just in (("seconds", "left"), ("p50", "right"), ("p99", "right")):
        times.add_column(name, justify="left" if just == "left" else "right")
    for what, percentiles in (
        ("from a write until it is ready", picture.waited),
        ("in the queue", picture.queue),
        ("of a reconcile", picture.reconcile),
    ):
        times.add_row(what, _seconds(percentiles.p50), _seconds(percentiles.p99))
    objects = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    objects.add_column("shard")
    objects.add_column("objects", justify="right")
    for shard, count in sorted(picture.shards.items()):
        if count:
            objects.add_row(Text(shard or "(none)"), str(count))
    objects.add_row("not ready", str(picture.unready))
    processes = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    processes.add_column("process")
    for name in ("cores", "MiB"):
        processes.add_column(name, justify="right")
    for usage, cores in picture.usage:
        processes.add_row(Text(usage.process), f"{cores:.2f}", f"{usage.resident / 2**20:.0f}")
    columns = Table.grid(padding=(0, 4))
    columns.add_row(times, objects, processes)
    latest = [Padding(Text(_event(event)), (0, 1)) for event in picture.happened[-_LATEST:]]
    warnings = [Padding(Text(warning, "yellow"), (0, 1)) for warning in picture.warnings]
    return Padding(Group(Text(picture.title, "bold"), rates, columns, *latest, *warnings), (1, 1))


def _event(event: Event) -> str:
    return " ".join(part for part in (event.kind, event.subject, event.detail) if part)


def _both(percentiles: Percentiles) -> str:
    return f"p50 {_seconds(percentiles.p50)} p99 {_seconds(percentiles.p99)}"


def _seconds(value: float) -> str:
    if value != value:
        return "-"
    return f"{value:.3f} s" if value < 10 else f"{value:.1f} s"


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
