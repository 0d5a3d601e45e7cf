"""The tables of docs/guarantees.md on isolation, rendered from the table of this folder: `make isolation`."""

from __future__ import annotations

import re
from pathlib import Path

import scenes_of_authors
import scenes_of_rings
import scenes_of_servers
from table import TABLE, Cell, Misbehaviour, Shown, Unit

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "guarantees.md"
SCENES = (scenes_of_servers, scenes_of_rings, scenes_of_authors)
"""Importing them fills the table."""

_SECTION = re.compile(r"(?<=make isolation`\) -->\n).*?(?=<!-- end: isolation -->)", re.S)


def rendered() -> str:
    """The text of the page, with the table of this folder: what happens to the others in the worst case of a row."""
    text = "\n| unit | what happens | others within | back within | said by |\n|---|---|---|---|---|\n"
    for unit in Unit:
        entries = {each: TABLE[unit, each] for each in Misbehaviour}
        cells = {each: entry for each, entry in entries.items() if isinstance(entry, Cell)}
        ways = [cell.what for cell in cells.values()]
        ways += [each.value for each, entry in entries.items() if isinstance(entry, Shown)]
        back = max((cell.back[1] for cell in cells.values() if cell.back), default=0)
        said = dict.fromkeys(f"{where} `{what}`" for cell in cells.values() for where, what in cell.said)
        within = max((cell.within for cell in cells.values()), default=0)
        row = (unit.value, "; ".join(ways), _seconds(within), _seconds(back), "; ".join(said))
        text += f"| {' | '.join(row)} |\n"
    return _SECTION.sub(lambda _: f"{text}\n", PAGE.read_text())


def _seconds(seconds: float) -> str:
    return f"{seconds:g} s" if seconds else ""


if __name__ == "__main__":
    PAGE.write_text(rendered())
