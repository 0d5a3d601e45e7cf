"""The table of docs/reliability.md says who judges what; here is what they really judge."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import get_args

import pytest

import check_model
from kubeshard_lab.simulation import checker, properties
from kubeshard_lab.simulation.properties import OF_OPERATORS, OF_RINGS

ROOT = Path(__file__).parents[3]


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table below the heading, without those that say what is in its columns."""
    text = (ROOT / "docs" / page).read_text().partition(f"\n## {heading}\n")[2]
    table = re.search(r"^\|.*?\n\n", text, re.M | re.S)
    assert table
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table[0].splitlines()[2:] if line
    ]


def chaos() -> set[str]:
    """What the chaos checker and its run report; neither imports anything of kubeshard, nor is imported by it."""
    tree = ast.parse((ROOT / "kubeshard/tests/chaos/chaos_run.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "RULES":
            return set(ast.literal_eval(node.value))
    raise AssertionError("there are no RULES")


JUDGES = (
    {each.name for each in OF_RINGS},
    {each.name for each in OF_OPERATORS},
    set(get_args(checker.Rule)),
    chaos(),
    {f"`{each}`" for each in (check_model.WRITES, check_model.EXECUTION, check_model.IDENTITY)},
)


@pytest.mark.parametrize("judge", range(len(JUDGES)), ids=["ring", "operator", "history", "chaos", "model"])
def test_the_table_says_who_judges_what(judge: int) -> None:
    table = rows("reliability.md", "Who judges what")
    cells = [(row[0], row[2 + judge]) for row in table]
    assert {name if cell == "yes" else cell for name, cell in cells if cell} == JUDGES[judge]
    assert len({name for name, _ in cells}) == len(cells)


def test_the_page_for_authors_names_what_is_noticed_without_their_invariants() -> None:
    named = {name for row in rows("how-to/simulate.md", "What is noticed") for name in row[0].split(", ")}
    assert named == {each.name for each in OF_OPERATORS} - {"always", "eventually"}


def test_every_property_says_what_breaks_it_what_it_is_judged_by_and_what_its_bound_is() -> None:
    for each in (*OF_RINGS, *OF_OPERATORS):
        assert each.notices, each
        assert each.sees, each
        assert bool(each.bound) == bool(each.of), each


def test_the_numbers_of_the_checker_are_those_that_the_oracles_compute_from_the_product() -> None:
    """One that changes has to be changed in both, by somebody who knows why."""
    assert checker.GRACE == properties.AMNESTY == properties.NOT_OWNED.bound
    assert checker.TAIL == properties.LANDS_WITHIN
    assert checker.RIGHT_LASTS == properties.RIGHT
    assert checker.LEASE_LASTS == properties.STALE / properties.FASTEST
    assert checker.LEFT_FOR == properties.LEFT_FOR
    assert checker.REJOINED == properties.REJOINED
    assert checker.MOVED_WITHIN == properties.SEEN
