"""The tables of docs/guarantees.md on isolation, rendered from the table of this folder: `make isolation`."""

from __future__ import annotations

import re
from pathlib import Path

import scenes_of_authors
import scenes_of_rings
import scenes_of_servers
from table import TABLE, Cell, Misbehaviour, Shown, Unit

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "guarantees.md"
SCENES = (scenes_of_servers, scenes_of_rings, scenes_of_authors)
"""Importing them fills the table."""

_SECTION = re.compile(r"(?<=make isolation`\) -->\n).*?(?=<!-- end: isolation -->)", re.S)

COLUMNS = "| misbehaviour | others within | back within | said |\n|---|---|---|---|\n"


def rendered() -> str:
    """The text of the page, with the tables of this folder."""
    text = ""
    for unit in Unit:
        text += f"\n### {unit.value[0].upper()}{unit.value[1:]}\n\n{COLUMNS}"
        for misbehaviour in Misbehaviour:
            entry = TABLE[unit, misbehaviour]
            if isinstance(entry, Cell):
                back = f"{entry.back[1]:g} s" if entry.back else ""
                said = "; ".join(f"{where} `{what}`" for where, what in entry.said)
                text += f"| {misbehaviour.value}: {entry.what} | {entry.within:g} s | {back} | {said} |\n"
            elif isinstance(entry, Shown):
                text += f"| {misbehaviour.value}: {entry.what} | | | |\n"
    return _SECTION.sub(lambda _: f"{text}\n", PAGE.read_text())


if __name__ == "__main__":
    PAGE.write_text(rendered())
