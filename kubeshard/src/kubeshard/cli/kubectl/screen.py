"""A picture of a ring for a terminal, and one line for a pipe. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from kubeshard.inspection.stats import RingSnapshot, ShardRow, scale
from kubeshard.runtime.logs import one_line

COLOURS = {"ready": "green", "expired": "yellow", "uncertain": "yellow", "dead": "red", "orphaned": "red"}
BAR, SHORT_BAR = 30, 10
_MAIN, _FOLLOWER, _DRAINING, _DEAD = "cyan", "blue", "yellow", "red"

LEGEND = "(each shard: the state of its Lease, objects + children)"


def ring(
    view: RingSnapshot, objects: str = "objects", note: str = "", *, history: bool = True
) -> RenderableType:
    """The ring at this moment. `objects` is what its main objects are called. Without `history`, nothing is said of
    what has happened meanwhile: moves, drains, and how long there have been drains.
    """
    most = scale(view)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("shard", overflow="fold")
    table.add_column("lease", min_width=9, no_wrap=True)
    for name in (objects, "children", "draining", *(("moved",) if history else ())):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(_Scaled(partial(_ruler, most)))
    for row in view.rows:
        state = row.state or "new"
        table.add_row(
            Text(row.shard),
            Text(state, COLOURS.get(state, "dim")),
            str(row.objects),
            str(row.followers),
            Text(_draining(row) if history else str(row.draining or ""), _DRAINING),
            *((_moved(row),) if history else ()),
            _Scaled(partial(_bar, row, most)),
        )
    counts = f"{view.total} objects{f', {view.moves} moves, {view.drains} drains' if history else ''}"
    return Group(
        table,
        Text(one_line(view.verdict), "green" if view.well else "yellow"),
        Text(f"{counts}{f'; {note}' if note else ''}", "dim"),
    )


def top(
    rings: Mapping[str, RingSnapshot],
    chosen: str,
    happenings: Sequence[tuple[str, str]],
    below: Sequence[str],
) -> RenderableType:
    """The chosen ring, with the verdicts of the others above it and its history below: how long ago, and what. `below`
    are further lines, from names and messages of the cluster.
    """
    others = Table.grid(padding=(0, 2))
    for name, view in rings.items() if len(rings) > 1 else ():
        mark = "▶" if name == chosen else ""
        verdict = Text(one_line(view.verdict), "green" if view.well else "yellow")
        others.add_row(mark, Text(name, "bold" if name == chosen else ""), f"{view.total} objects", verdict)
    past = Table.grid(padding=(0, 2))
    for ago, what in happenings:
        past.add_row(Text(ago, "dim"), Text(one_line(what)))
    note = f"ring {chosen}, Ctrl-C ends"
    return Group(others, ring(rings[chosen], note=note), past, *(Text(one_line(each)) for each in below))


def line(view: RingSnapshot) -> str:
    shards = ", ".join(f"{row.shard} {row.state or 'new'} {row.objects}+{row.followers}" for row in view.rows)
    return f"{shards or 'no shards'}; {view.verdict}"


class _Scaled:
    """What is drawn as wide as there is room for it, up to `BAR` cells."""

    def __init__(self, drawn: Callable[[int], Text]) -> None:
        self._drawn = drawn

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._drawn(min(options.max_width, BAR))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(min(options.max_width, SHORT_BAR), min(options.max_width, BAR))


def _ruler(most: int, width: int) -> Text:
    """The numbers at the start, the middle and the end of the scale."""
    middle, end = f"{most / 2:g}", str(most)
    left = f"0{middle:>{width // 2 - 1 + len(middle) // 2}}"
    return Text(f"{left}{end:>{width - len(left)}}", no_wrap=True)


def _bar(row: ShardRow, most: int, width: int) -> Text:
    """A bar of main objects, those being drained in another colour, then children."""
    whole, main = _cells(row.objects + row.followers, most, width), _cells(row.objects, most, width)
    draining = _cells(min(row.draining, row.objects), most, width)
    bar = Text(no_wrap=True)
    bar.append("█" * (main - draining), _MAIN if row.live else _DEAD)
    bar.append("▒" * draining, _DRAINING)
    bar.append("█" * (whole - main), _FOLLOWER if row.live else _DEAD)
    return bar


def _cells(count: int, most: int, width: int) -> int:
    """The length of a bar; anything above 0 is visible."""
    return max(1, count * width // most) if count else 0


def _draining(row: ShardRow) -> str:
    if not row.draining:
        return ""
    return f"{row.draining} for {row.draining_for:.0f}s" if row.draining_for >= 1 else str(row.draining)


def _moved(row: ShardRow) -> Text:
    text = Text()
    if row.arrived:
        text.append(f"+{row.arrived}", "green")
    if row.left:
        text.append(f"{' ' if row.arrived else ''}-{row.left}", "magenta")
    return text
