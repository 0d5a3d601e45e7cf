"""The demo's list of steps, shown beside the ring. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kubeshard.cli.demo.scenario import Step

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


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
