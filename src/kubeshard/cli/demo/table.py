"""What the demo shows: renderables for a terminal, lines for a pipe. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kubeshard.cli.demo.picture import Picture
from kubeshard.cli.demo.scenario import Step

_COLOURS = {"ready": "green", "expired": "yellow", "uncertain": "yellow", "dead": "red", "orphaned": "red"}
_BAR = 24
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"

LEGEND = "(each shard: the state of its Lease, websites + children)"


def checklist(titles: Sequence[str], done: Sequence[Step], seconds: float) -> RenderableType:
    """All steps; `seconds` is how long the present one has been running."""
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


def ring(view: Picture, leader: str, moves: int, drains: int) -> RenderableType:
    """The ring at this moment."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("shard")
    table.add_column("lease", min_width=9)
    for name in ("websites", "children", "draining"):
        table.add_column(name, justify="right")
    table.add_column("", min_width=_BAR)
    most = max((row.objects for row in view.rows), default=0)
    for row in view.rows:
        state = row.state or "new"
        bar = "█" * (row.objects * _BAR // most if most else 0)
        table.add_row(
            row.shard,
            Text(state, _COLOURS.get(state, "dim")),
            str(row.objects),
            str(row.followers),
            Text(str(row.draining or ""), "yellow"),
            Text(bar, "cyan" if row.live else "red"),
        )
    counts = Text(
        f"{view.total} objects, {moves} moves, {drains} drains; leading: {leader or 'nobody'}", "dim"
    )
    return Padding(Group(table, _verdict(view), counts), (0, 2), expand=False)


def line(view: Picture) -> str:
    """The ring in one line."""
    shards = ", ".join(f"{row.shard} {row.state or 'new'} {row.objects}+{row.followers}" for row in view.rows)
    return f"{shards}; {_verdict(view)}"


def summary(steps: Sequence[Step]) -> RenderableType:
    table = Table(
        title="until every object was owned by the live shard that the ring gives it",
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


def _verdict(view: Picture) -> Text:
    if view.settled and any(row.live and row.state in ("expired", "uncertain") for row in view.rows):
        return Text("every object is where the Leases say, and a Lease is about to run out", "yellow")
    if view.settled:
        return Text("every object is where it belongs", "green")
    troubles = {
        "unassigned": view.unassigned,
        "on dead shards": view.stranded,
        "to be moved": view.misplaced,
        "draining": view.draining,
    }
    return Text(", ".join(f"{count} {what}" for what, count in troubles.items() if count), "yellow")
