"""The budget of every operation (tools/budget.toml), and what counts it."""

from __future__ import annotations

import asyncio
import platform
import sys

import pytest

import budget
from kubeshard.core import ObjectMeta

ROW = budget.Row(100.0, 50.0, 1.0, 200.0, 1000.0)


@pytest.mark.parametrize("play", budget.PLAYS, ids=str)
def test_an_operation_keeps_to_its_budget(play: budget.Play) -> None:
    if sys.version_info[:2] != budget.PINNED or platform.python_implementation() != "CPython":
        pinned = ".".join(map(str, budget.PINNED))
        pytest.skip(f"calls are counted on CPython {pinned}, as in CI; another one makes other calls")
    rows = {name: counts.row for name, counts in play.counted().items()}
    said = budget.complaints(rows, {name: row for name, row in budget.table().items() if name in rows})
    assert not said, "\n".join(
        [*said, "`make budget` counts all; with ARGS='--functions ROW' it shows where"]
    )


def test_two_percent_more_calls_are_too_many_and_five_fewer_lower_the_row() -> None:
    def said(**figures: float) -> list[str]:
        return budget.complaints({"assign": ROW._replace(**figures)}, {"assign": ROW})

    assert said() == said(python=102, c=51, sent=204) == said(python=95.5, received=951) == []
    assert said(python=103) == ["assign: python: 103 instead of 100, +3.0%"]
    assert said(requests=1.08) == ["assign: requests: 1.08 instead of 1, +8.0%"]
    assert said(received=940) == ["assign: received: 940 instead of 1000: lower the row"]


def test_a_row_that_nothing_counts_is_noticed() -> None:
    assert budget.complaints({"b": ROW}, {"a": ROW}) == ["a: not counted any more", "b: has no row"]


def test_calls_of_the_product_count_and_those_outside_do_not() -> None:
    meter = budget.Meter()

    async def work() -> None:
        await asyncio.sleep(0)
        ObjectMeta(name="a").has_label("b")

    async def both() -> None:
        await budget.Outside(work())
        await work()

    with meter.on():
        asyncio.run(both())
    assert meter.counts().python == {"core/objects.py:ObjectMeta.has_label": 1}
