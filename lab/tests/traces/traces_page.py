"""The traces of docs/guarantees.md; and, as a program, what the oracles notice: `make traces`."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import traces_of_sharders
import traces_of_shards
import traces_of_users
from trace_scene import Side, play
from trace_table import TABLE, Trace

PAGE = Path(__file__).resolve().parents[3] / "docs" / "guarantees.md"
SCRIPTS = (traces_of_shards, traces_of_sharders, traces_of_users)
"""Importing them fills the table."""
TRACES = sorted(TABLE, key=lambda trace: trace.number)

_SECTION = re.compile(r"(?<=make traces`\) -->\n).*?(?=<!-- end: traces -->)", re.S)

COLUMNS = """\
| | what happens | with the Go project's protocol | with kubeshard | because of |
|---|---|---|---|---|
"""

NOT_HELD = """
kubeshard does not hold these by default either. A test of each says when that has changed.

"""


def rendered() -> str:
    """The text of the page, with the table of this folder."""
    held, others = ("".join(_row(each) for each in TRACES if each.held is held) for held in (True, False))
    text = "\n" + COLUMNS + held + (NOT_HELD + COLUMNS + others if others else "") + "\n"
    return _SECTION.sub(lambda _: text, PAGE.read_text())


def _row(trace: Trace) -> str:
    number = trace.number.lstrip("0")
    cells = (number, trace.what, trace.reference, trace.kubeshard, trace.measure)
    return f"| {' | '.join(cells)} |\n"


def _played(trace: Trace) -> tuple[str, bool]:
    """What was noticed, as a line, and whether it is as the table says."""
    noticed = {side: play(trace.script, side).broken for side in Side}
    as_said = bool(noticed[Side.REFERENCE][trace.oracle]) and trace.held is not bool(noticed[Side.KUBESHARD])
    told = [f"{side.value}: {', '.join(sorted(broken)) or 'all hold'}" for side, broken in noticed.items()]
    return (
        f"{trace.number:4} {'' if as_said else 'NOT AS SAID '}{trace.what}\n     {'; '.join(told)}",
        as_said,
    )


if __name__ == "__main__":
    logging.disable()  # the processes of both sides have much to say
    PAGE.write_text(rendered())
    wrong = 0
    for each in TRACES:
        line, is_as_said = _played(each)
        print(line, flush=True)
        wrong += not is_as_said
    raise SystemExit(wrong > 0)
