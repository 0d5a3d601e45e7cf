"""Documents that name the test for a claim name only existing tests."""

from __future__ import annotations

import re

from source_tree import ROOT, is_a_test, name, proofs, tracked

DOCUMENTS = [path for path in tracked() if path.suffix == ".md" and "::test_" in path.read_text()]
MUST = {
    "A": "1 2 3 4 7 7b 8 9 10 11 11b 13 13b 14 15 16 17 18 19 20 21 22 23",
    "B": "1",
    "D": "1 2 3 4 5 7 8 9",
}
"""Rows of docs/defects.md that must exist."""


def test_every_proof_that_is_named_is_there() -> None:
    assert not [
        f"{name(document)}: {file}::{test}"
        for document in DOCUMENTS
        for file, test in proofs(document.read_text())
        if not is_a_test(file, test)
    ]


def test_every_required_defect_has_its_row() -> None:
    rows = re.findall(r"^\| ([A-D]\d[\w, ]*) \|", (ROOT / "docs" / "defects.md").read_text(), re.M)
    listed = {part.strip() for row in rows for part in row.split(",")}
    wanted = {letter + number for letter, numbers in MUST.items() for number in numbers.split()}
    assert not wanted - listed


def test_the_search_reads_a_test_of_the_file_named_before() -> None:
    assert list(proofs("`a/b.py::test_x`, `::test_y`; `c.py::test_z`")) == [
        ("a/b.py", "test_x"),
        ("a/b.py", "test_y"),
        ("c.py", "test_z"),
    ]
