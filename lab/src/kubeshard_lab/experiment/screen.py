"""What an experiment shows on a terminal while it runs: a live table."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kubeshard_lab.experiment.progress import Lines, Progress, cancelled, happening, seconds
from kubeshard_lab.experiment.report.words import clock

_REFRESH = 0.5
_LATEST = 6


class Terminal:
    """A live table; lines where there is no terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def say(self, text: str) -> None:
        self._console.print(text, soft_wrap=True, highlight=False, markup=False)

    @asynccontextmanager
    async def showing(self, progress: Callable[[], Progress]) -> AsyncIterator[None]:
        if not self._console.is_terminal:
            async with Lines(self.say).showing(progress):
                yield
            return
        async with drawn(self._console, lambda: frame(progress()), _REFRESH):
            yield


@asynccontextmanager
async def drawn(
    console: Console, picture: Callable[[], RenderableType], refresh: float
) -> AsyncIterator[None]:
    """The picture is on the terminal during the block, drawn anew every `refresh` seconds, and once more after it."""

    async def draw() -> None:
        while True:
            live.update(picture(), refresh=True)
            await asyncio.sleep(refresh)

    with Live(console=console, auto_refresh=False) as live:
        drawing = asyncio.create_task(draw(), name="screen")
        try:
            yield
        finally:
            await cancelled(drawing)
            live.update(picture(), refresh=True)


def frame(progress: Progress) -> RenderableType:
    rates = Table.grid(padding=(0, 2))
    rates.add_row(
        f"[bold]{clock(progress.elapsed)}[/] of {clock(progress.duration)}",
        progress.doing,
        f"[bold]{progress.wanted:.1f}[/] requests/s wanted, [bold]{progress.reached:.1f}[/] reached",
        f"{progress.in_flight} unanswered",
    )
    times = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, just in (("seconds", "left"), ("p50", "right"), ("p99", "right")):
        times.add_column(name, justify="left" if just == "left" else "right")
    for what, percentiles in (
        ("from a write until it is ready", progress.waited),
        ("in the queue", progress.queue),
        ("of a reconcile", progress.reconcile),
    ):
        times.add_row(what, seconds(percentiles.p50), seconds(percentiles.p99))
    objects = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    objects.add_column("shard")
    objects.add_column("objects", justify="right")
    for shard, count in sorted(progress.shards.items()):
        if count:
            objects.add_row(Text(shard or "(none)"), str(count))
    objects.add_row("not ready", str(progress.unready))
    processes = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    processes.add_column("process")
    for name in ("cores", "MiB"):
        processes.add_column(name, justify="right")
    for usage, cores in progress.usage:
        processes.add_row(Text(usage.process), f"{cores:.2f}", f"{usage.resident / 2**20:.0f}")
    columns = Table.grid(padding=(0, 4))
    columns.add_row(times, objects, processes)
    latest = [Padding(Text(happening(event)), (0, 1)) for event in progress.happened[-_LATEST:]]
    warnings = [Padding(Text(warning, "yellow"), (0, 1)) for warning in progress.warnings]
    return Padding(Group(Text(progress.title, "bold"), rates, columns, *latest, *warnings), (1, 1))
