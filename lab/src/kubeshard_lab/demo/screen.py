"""The demo's display: a live picture and a list of steps on a terminal, lines elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kubeshard.cli.kubectl import screen
from kubeshard.runtime.clock import Clock
from kubeshard_lab.demo.observer import Observer
from kubeshard_lab.demo.scenario import Step
from kubeshard_lab.experiment.screen import drawn

_REFRESH = 0.1
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class Screen:
    def __init__(self, console: Console, observer: Observer, titles: Sequence[str], clock: Clock) -> None:
        self._console = console
        self._observer = observer
        self._titles = titles
        self._clock = clock
        self._since = clock.monotonic()
        self._done: list[Step] = []

    @asynccontextmanager
    async def showing(self) -> AsyncIterator[None]:
        if not self._console.is_terminal:
            self._console.print(f"{self._titles[0]} ... {screen.LEGEND}", soft_wrap=True)
            yield
            return
        async with drawn(self._console, self._frame, _REFRESH):
            yield

    def done(self, step: Step) -> None:
        self._done.append(step)
        self._since = self._clock.monotonic()
        if not self._console.is_terminal:
            self._console.print(f"✓ {step.title}: {step.seconds:.1f} s", soft_wrap=True)
            self._console.print(f"  {screen.line(self._observer.snapshot())}", soft_wrap=True)
            for title in self._titles[len(self._done) : len(self._done) + 1]:
                self._console.print(f"{title} ...", soft_wrap=True)

    def _frame(self) -> Group:
        leader = f"leading: {self._observer.leader or 'nobody'}"
        return Group(
            checklist(self._titles, self._done, self._clock.monotonic() - self._since),
            Padding(screen.ring(self._observer.snapshot(), "websites", leader), (0, 2), expand=False),
        )


def checklist(titles: Sequence[str], done: Sequence[Step], seconds: float) -> RenderableType:
    """All steps; `seconds` is how long the current one has been running."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=1)
    grid.add_column(min_width=48)
    grid.add_column(justify="right", width=8)
    for number, title in enumerate(titles):
        if number < len(done):
            grid.add_row(Text("✓", "green"), title, f"{done[number].seconds:.1f} s")
        elif number == len(done):
            frame = _SPINNER[int(seconds * 10) % len(_SPINNER)]
            grid.add_row(Text(frame, "cyan"), Text(title, "bold"), Text(f"{seconds:.1f} s", "bold"))
        else:
            grid.add_row("", Text(title, "dim"), "")
    return Padding(grid, (1, 1), expand=False)


def summary(steps: Sequence[Step]) -> RenderableType:
    table = Table(
        title="time until every object was owned by the right live shard",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("what happened")
    for name in ("seconds", "moves", "drains"):
        table.add_column(name, justify="right")
    for step in steps:
        table.add_row(step.title, f"{step.seconds:.1f}", str(step.moves), str(step.drains))
    return Padding(table, (1, 1), expand=False)
