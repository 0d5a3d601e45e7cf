"""What the demo shows on a terminal and in a pipe."""

from __future__ import annotations

import io

import pytest
from rich.console import Console, RenderableType

from kubeshard.cli.demo import table
from kubeshard.cli.demo.picture import Picture, ShardRow
from kubeshard.cli.demo.scenario import Step

ROWS = (
    ShardRow("shard-1", "ready", True, 10, 40, 0),
    ShardRow("shard-2", "dead", False, 5, 20, 1),
    ShardRow("shard-3", "", True, 0, 0, 0),
)


def shown(renderable: RenderableType) -> list[str]:
    output = io.StringIO()
    Console(width=100, file=output).print(renderable)
    return [line.strip() for line in output.getvalue().splitlines() if line.strip()]


def picture(rows: tuple[ShardRow, ...] = ROWS, **trouble: int) -> Picture:
    counts = {"unassigned": 0, "stranded": 0, "misplaced": 0, "draining": 0, "total": 75, **trouble}
    return Picture(rows, **counts)


def test_a_shard_is_a_line_with_a_bar_of_its_share() -> None:
    lines = shown(table.ring(picture(), "sharder-1", 3, 2))
    bars = {line.split()[0]: line.count("█") for line in lines if line.startswith("shard-")}
    assert bars == {"shard-1": 24, "shard-2": 12, "shard-3": 0}
    assert lines[-1] == "75 objects, 3 moves, 2 drains; leading: sharder-1"


@pytest.mark.parametrize(
    ("view", "verdict"),
    [
        (picture(), "every object is where it belongs"),
        (picture(unassigned=1, draining=2), "1 unassigned, 2 draining"),
        (picture(stranded=3, misplaced=4), "3 on dead shards, 4 to be moved"),
        (
            picture((ShardRow("a", "expired", True, 1, 0, 0),)),
            "every object is where the Leases say, and a Lease is about to run out",
        ),
    ],
)
def test_the_verdict_says_what_is_left_to_do(view: Picture, verdict: str) -> None:
    assert table.line(view).endswith(f"; {verdict}")


def test_a_line_has_every_shard_with_its_lease_and_objects() -> None:
    assert table.line(picture()).startswith("shard-1 ready 10+40, shard-2 dead 5+20, shard-3 new 0+0; ")


def test_the_checklist_tells_what_is_done_what_runs_and_what_comes() -> None:
    done = [Step("one", 1.24, 0, 0)]
    first, second, third = shown(table.checklist(("one", "two", "three"), done, 3.0))
    assert (first.split(), second.split()[1:], third) == (
        ["✓", "one", "1.2", "s"],
        ["two", "3.0", "s"],
        "three",
    )


def test_the_summary_has_a_row_for_each_step() -> None:
    lines = shown(table.summary([Step("shard-1 is killed", 12.04, 30, 2)]))
    assert lines[-1].split() == ["shard-1", "is", "killed", "12.0", "30", "2"]
