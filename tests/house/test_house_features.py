"""The page of features makes no unproven claim: every feature has a name and a test, and every missing one has a
reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from typing import NamedTuple

import pytest
from source_tree import ROOT, is_a_test, proofs

PAGE = ROOT / "docs" / "project" / "features.md"
HEAD = "| capability | here | where | proof, or what is missing |"
STATES = ("yes", "in part", "no")
_NAME = re.compile(r"`([\w.]+)`")
_REASON = 25
"""The minimum length of a reason in characters."""


class Row(NamedTuple):
    section: str
    capability: str
    here: str
    where: str
    said: str


def rows(text: str) -> Iterator[Row]:
    """Yields the rows of the tables of capabilities."""
    for section, table in _tables(text, HEAD):
        for cells in table:
            yield Row(section, *cells)


def mistakes(row: Row) -> Iterator[str]:
    """Yields what is wrong with a row, whatever it claims."""
    named, tests = _NAME.findall(row.where), list(proofs(row.said))
    _, _, lacking = row.said.partition("; lacks ")
    if row.here not in STATES:
        yield f"state {row.here!r}"
    if row.here == "no":
        if named or tests:
            yield "is not here, and has a name or a test"
        if len(row.said) < _REASON:
            yield "is not here, and nothing says why"
        return
    if not named:
        yield "has no name"
    if not tests:
        yield "has no test"
    if (row.here == "in part") is (len(lacking) < _REASON):
        yield "is here in part, and does not say what it lacks, or the other way round"
    yield from (f"{name} is not there" for name in named if not is_there(name))
    yield from (f"{file}::{test} is not there" for file, test in tests if not is_a_test(file, test))


def is_there(name: str) -> bool:
    """Whether the name can be imported: a module, or a member of a module or of a class."""
    module, parts = name, []
    while module:
        try:
            thing: object = import_module(module)
        except ModuleNotFoundError:
            module, _, part = module.rpartition(".")
            parts.insert(0, part)
            continue
        for part in parts:
            if not hasattr(thing, part):
                return False
            thing = getattr(thing, part)
        return True
    return False


def _tables(text: str, head: str) -> Iterator[tuple[str, list[list[str]]]]:
    for section in re.split(r"^## ", text, flags=re.M)[1:]:
        title, _, body = section.partition("\n")
        for table in re.findall(rf"^{re.escape(head)}\n\|[-|]+\n((?:\|.*\n?)+)", body, re.M):
            yield title, [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]


ROWS = list(rows(PAGE.read_text()))


def test_what_is_here_has_a_name_and_a_test_and_what_is_not_has_a_reason() -> None:
    assert not [(row.section, row.capability, mistake) for row in ROWS for mistake in mistakes(row)]


def test_no_capability_has_two_rows() -> None:
    places = [(row.section, row.capability) for row in ROWS]
    assert sorted(set(places)) == sorted(places)


def test_the_counts_are_those_of_the_rows() -> None:
    ((_, counted),) = list(
        _tables("## counts\n" + PAGE.read_text().partition("\n## ")[0], "| | yes | in part | no |")
    )
    sections = list(dict.fromkeys(row.section for row in ROWS))
    expected = [
        [
            name,
            *(
                str(sum(row.here == state and name in (row.section, "all") for row in ROWS))
                for state in STATES
            ),
        ]
        for name in (*sections, "all")
    ]
    assert counted == expected


_PROOF = "`house/test_house_features.py::test_a_row_that_claims_too_much_is_found`"


@pytest.mark.parametrize(
    ("row", "mistake"),
    [
        ("| a | yes | `kubeshard.Manager` | |", "has no test"),
        (f"| a | yes | | {_PROOF} |", "has no name"),
        (f"| a | yes | `kubeshard.Manger` | {_PROOF} |", "kubeshard.Manger is not there"),
        (f"| a | yes | `kubeshard.Manager.rum` | {_PROOF} |", "kubeshard.Manager.rum is not there"),
        ("| a | yes | `kubeshard.Manager` | `a.py::test_x` |", "a.py::test_x is not there"),
        (
            f"| a | in part | `kubeshard.Manager` | {_PROOF} |",
            "is here in part, and does not say what it lacks, or the other way round",
        ),
        ("| a | no | | |", "is not here, and nothing says why"),
        (f"| a | no | | {_PROOF} |", "is not here, and has a name or a test"),
        ("| a | maybe | | |", "state 'maybe'"),
    ],
)
def test_a_row_that_claims_too_much_is_found(row: str, mistake: str) -> None:
    (found,) = rows(f"## A section\n\n{HEAD}\n|---|---|---|---|\n{row}\n")
    assert mistake in list(mistakes(found))
