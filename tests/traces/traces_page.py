"""docs/traces.md, rendered from the table of this folder; and, as a program, what the oracles notice: `make traces`."""

from __future__ import annotations

import logging
from pathlib import Path

import traces_of_sharders
import traces_of_shards
import traces_of_users
from trace_scene import Side, play
from trace_table import TABLE, Trace

PAGE = Path(__file__).resolve().parents[2] / "docs" / "traces.md"
SCRIPTS = (traces_of_shards, traces_of_sharders, traces_of_users)
"""Importing them fills the table."""
TRACES = sorted(TABLE, key=lambda trace: trace.number)

HEAD = """\
# Traces

<!-- Generated from tests/traces: edit the table there, and run `make traces`. -->

The protocol of the Go project keeps two shards from working on one object while all processes live and rings grow and
shrink. In the situations of this page it does not, or an object is without a living shard for minutes, or users and
others are harmed. Each row is a script on virtual time, which `tests/traces` runs twice, and the same oracles watch
both runs:

* on a port of the protocol, `tests/traces/reference_protocol.py`: the oracle notices what the row says;
* on kubeshard's classes with default settings, unless the row says otherwise: no oracle notices anything.

`make traces` runs all of them and prints what was noticed. What the oracles check is in `kubeshard.simulation.oracles`.
The traces add these:

| oracle | notices |
|---|---|
| not owned | an object that has no living shard in time |
| not back | a shard that does not hold its Lease again in time |
| refused | a user's request that the webhook denies or makes invalid |
| duplicate child | two children where there should be one |
| apart | a controlled object that is not on its owner's shard in time |
| moved | an object that moves although no shard joined or left |
| touched | a shard label on an object that is not the ring's |

"""

COLUMNS = """\
| | what happens | with the Go project's protocol | noticed as | with kubeshard | because of |
|---|---|---|---|---|---|
"""

NOT_HELD = """
## Not held

kubeshard does not hold these by default either. A test of each says when that has changed.

"""


def rendered() -> str:
    """The text of the page."""
    held, others = ("".join(_row(each) for each in TRACES if each.held is held) for held in (True, False))
    return HEAD + COLUMNS + held + (NOT_HELD + COLUMNS + others if others else "")


def _row(trace: Trace) -> str:
    number = trace.number.lstrip("0")
    cells = (number, trace.what, trace.reference, trace.oracle, trace.kubeshard, trace.measure)
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
