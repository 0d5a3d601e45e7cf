"""What the demo shows about its steps."""

from __future__ import annotations

import io

from rich.console import Console, RenderableType

from kubeshard_lab.demo.scenario import Step
from kubeshard_lab.demo.screen import checklist, summary


def shown(renderable: RenderableType) -> list[str]:
    output = io.StringIO()
    Console(width=100, file=output).print(renderable)
    return [line.strip() for line in output.getvalue().splitlines() if line.strip()]


def test_the_checklist_tells_what_is_done_what_runs_and_what_comes() -> None:
    done = [Step("one", 1.24, 0, 0)]
    first, second, third = shown(checklist(("one", "two", "three"), done, 3.0))
    assert (first.split(), second.split()[1:], third) == (
        ["✓", "one", "1.2", "s"],
        ["two", "3.0", "s"],
        "three",
    )


def test_the_summary_has_a_row_for_each_step() -> None:
    lines = shown(summary([Step("shard-1 is killed", 12.04, 30, 2)]))
    assert lines[-1].split() == ["shard-1", "is", "killed", "12.0", "30", "2"]
