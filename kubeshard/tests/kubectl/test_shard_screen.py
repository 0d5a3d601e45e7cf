"""How a ring is displayed on a terminal and in a pipe."""

from __future__ import annotations

import io

import pytest
from rich.console import Console, RenderableType

from kubeshard.cli.kubectl import screen
from kubeshard.inspection.stats import RingSnapshot, ShardRow, scale

ROWS = (
    ShardRow("shard-1", "ready", True, 10, 40, 0),
    ShardRow("shard-2", "dead", False, 5, 20, 1, 12.3, 0, 4),
    ShardRow("shard-3", "", True, 0, 0, 0, 0.0, 4, 1),
)


def shown(renderable: RenderableType, width: int = 120) -> list[str]:
    output = io.StringIO()
    Console(width=width, file=output).print(renderable)
    return [line.rstrip() for line in output.getvalue().splitlines() if line.strip()]


def snapshot(rows: tuple[ShardRow, ...] = ROWS, **trouble: int) -> RingSnapshot:
    return RingSnapshot(rows, **{"total": 75, **trouble})


def test_a_bar_is_as_long_as_its_part_of_the_scale() -> None:
    lines = shown(screen.ring(snapshot()))
    bars = {
        line.split()[0]: line.count("█") + line.count("▒")
        for line in lines
        if line.strip().startswith("shard-")
    }
    assert bars == {"shard-1": screen.BAR, "shard-2": screen.BAR // 2, "shard-3": 0}


def test_the_scale_stands_above_the_bars() -> None:
    heading, _, first, *_ = shown(screen.ring(snapshot()))
    assert heading.split()[-3:] == ["0", "25", "50"]
    assert len(heading) == first.index("█") + screen.BAR


def test_where_there_is_little_room_bars_are_shorter_and_nothing_else_is_cut() -> None:
    heading, _, _, dead, *_ = shown(screen.ring(snapshot(), "websites"), width=80)
    assert heading.split() == ["shard", "lease", "websites", "children", "draining", "moved", "0", "25", "50"]
    assert dead.split()[:-1] == ["shard-2", "dead", "5", "20", "1", "for", "12s", "-4"]
    assert screen.SHORT_BAR <= len(heading) - dead.index("▒") < screen.BAR


@pytest.mark.parametrize(
    ("most", "full"),
    [(0, 1), (1, 1), (2, 2), (3, 5), (7, 10), (50, 50), (51, 100), (101, 200), (99_999, 100_000)],
)
def test_a_full_bar_is_a_round_number(most: int, full: int) -> None:
    assert scale(snapshot((ShardRow("a", "ready", True, most, 0, 0),))) == full


def test_what_is_being_drained_is_a_part_of_the_bar_and_has_an_age() -> None:
    (line,) = [line for line in shown(screen.ring(snapshot())) if line.strip().startswith("shard-2")]
    assert line.count("▒") == 1
    assert "1 for 12s" in line


def test_what_a_server_says_does_not_steer_the_terminal() -> None:
    view = RingSnapshot(ROWS, unread=("secrets: \x1b[2Jgone\nvery",))
    (line,) = [line for line in shown(screen.ring(view)) if "x1b" in line]
    assert line.endswith(r"secrets: \x1b[2Jgone\nvery")


def test_what_moves_is_seen_at_both_ends() -> None:
    moved = {
        line.split()[0]: line for line in shown(screen.ring(snapshot())) if line.strip().startswith("shard-")
    }
    assert "-4" in moved["shard-2"]
    assert "+4 -1" in moved["shard-3"]


def test_totals_and_a_note_stand_below() -> None:
    lines = shown(screen.ring(snapshot(moves=3, drains=2), note="leading: sharder-1"))
    assert lines[-1] == "75 objects, 3 moves, 2 drains; leading: sharder-1"


@pytest.mark.parametrize(
    ("view", "verdict"),
    [
        (snapshot(), "every object is where it belongs"),
        (snapshot(unassigned=1, draining=2), "1 unassigned, 2 draining"),
        (snapshot(stranded=3, misplaced=4), "3 on dead shards, 4 to be moved"),
        (
            snapshot((ShardRow("a", "expired", True, 1, 0, 0),)),
            "every object is where it belongs, but not renewed: the Lease of a",
        ),
        (RingSnapshot((), unread=("secrets: no",)), "the picture is incomplete: secrets: no"),
    ],
)
def test_the_verdict_says_what_is_left_to_do(view: RingSnapshot, verdict: str) -> None:
    assert screen.line(view).endswith(f"; {verdict}")


def test_what_is_not_well_is_not_shown_in_green() -> None:
    """Also where every object is in its place, but a shard does not renew its Lease."""
    for state, green in (("ready", True), ("expired", False), ("uncertain", False), ("dead", True)):
        view = snapshot(
            (ShardRow("a", "ready", True, 1, 0, 0), ShardRow("b", state, state != "dead", 0, 0, 0))
        )
        assert view.settled
        assert view.well is green
    assert not snapshot(()).well


def test_a_line_has_every_shard_with_its_lease_and_objects() -> None:
    assert screen.line(snapshot()).startswith("shard-1 ready 10+40, shard-2 dead 5+20, shard-3 new 0+0; ")


def test_a_line_of_a_ring_without_shards_says_so() -> None:
    assert screen.line(snapshot(())).startswith("no shards; ")
