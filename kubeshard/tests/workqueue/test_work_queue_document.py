"""The programs of docs/work-queue.md run unchanged, and the numbers on the page are right."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from kubeshard.workqueue import LOW, NORMAL, ItemExponential
from kubeshard.workqueue.order import SHARE
from kubeshard.workqueue.reasons import MAX_CLASSES, MAX_REASONS
from kubeshard_lab.virtual_world import SeededRng

PAGE = (Path(__file__).parents[3] / "docs" / "work-queue.md").read_text()
PROGRAMS = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_the_programs_of_the_page_run(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("program_of_the_page")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(PROGRAMS[number], f"work-queue.md, program {number}", "exec"), vars(module))


def test_the_backoff_table_is_what_the_default_limiter_says() -> None:
    row = re.search(r"^\| waits, in seconds \|(.*)\|$", PAGE, re.M)
    assert row is not None
    told = [tuple(map(float, cell.split("-"))) for cell in row[1].split("|")]

    for column, jitter in enumerate((0.0, 1.0)):
        limiter = ItemExponential(rng=Always(jitter))
        waits = [limiter.when("key") for _ in range(20)]
        assert waits[:10] == pytest.approx([cell[column] for cell in told])
        assert set(waits[10:]) == {waits[9]}


class Always(SeededRng):
    """A random source that always returns the same value."""

    def __init__(self, value: float) -> None:
        super().__init__(0)
        self._value = value

    def uniform(self, low: float, high: float) -> float:
        return self._value


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    assert (NORMAL, LOW, SHARE, MAX_REASONS, MAX_CLASSES) == (0, -100, 20, 8, 64)
    for words in ("`NORMAL`, 0", "`LOW`, -100", "every twentieth key", "first eight", "at most 65 pairs"):
        assert words in PAGE
