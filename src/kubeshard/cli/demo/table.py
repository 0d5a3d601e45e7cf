"""The ring as a table, for a terminal (live) or a pipe (lines)."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kubeshard.cli.demo.picture import Picture
from kubeshard.cli.demo.scenario import Step

_COLOURS = {"ready": "green", "expired": "yellow", "uncertain": "yellow", "dead": "red", "orphaned": "red"}
_BAR = 30


def live_view(view: Picture, moves: int, drains: int, now: str) -> RenderableType:
    """The whole screen of the running demo."""
    table = Table(title="ring webhosting-operator", title_justify="left", expand=False)
    for name in ("shard", "lease"):
        table.add_column(name)
    for name in ("websites", "children", "draining"):
        table.add_column(name, justify="right")
    table.add_column("share")
    most = max((row.objects for row in view.rows), default=0)
    for row in view.rows:
        state = row.state or "new"
        bar = "█" * (row.objects * _BAR // most if most else 0)
        table.add_row(
            row.shard,
            Text(state, style=_COLOURS.get(state, "dim")),
            str(row.objects),
            str(row.followers),
            str(row.draining or ""),
            Text(bar, style="cyan" if row.live else "red"),
        )
    trouble = f"{view.unassigned} unassigned, {view.stranded} on dead shards, {view.misplaced} to be moved"
    counts = Text(
        f"{view.total} objects, {moves} moves, {drains} drains so far; "
        + ("all where they belong" if view.settled else trouble)
    )
    return Group(table, counts, Text(now, style="bold"))


def line(view: Picture) -> str:
    """The picture in one line, for output that is not a terminal."""
    shards = ", ".join(f"{row.shard} {row.state or 'new'} {row.objects}+{row.followers}" for row in view.rows)
    return f"{shards}; {view.unassigned} unassigned, {view.stranded + view.misplaced} to be moved, {view.draining} draining"


def summary(steps: Sequence[Step]) -> RenderableType:
    table = Table(
        title="until every object was owned by the live shard that the ring gives it", title_justify="left"
    )
    table.add_column("what happened")
    for name in ("seconds", "moves", "drains"):
        table.add_column(name, justify="right")
    for step in steps:
        table.add_row(step.title, f"{step.seconds:.1f}", str(step.moves), str(step.drains))
    return table
