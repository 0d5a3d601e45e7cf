"""What may happen to a ring, what the Go project's protocol makes of it, and what kubeshard does: the traces.

Each is a script on virtual time, which `test_traces.py` runs on both. `traces_page.py` renders them in
docs/guarantees.md, and prints what the oracles noticed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from trace_scene import Scene

Script = Callable[[Scene], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Trace:
    """`oracle` notices what goes wrong in the reference. `slow`: it is left to `make test-nightly`. `held`: whether
    kubeshard holds it by default; one that it does not is known, and the test says when that has changed.
    """

    number: str
    what: str
    reference: str
    kubeshard: str
    measure: str
    oracle: str
    slow: bool
    held: bool
    script: Script


TABLE: list[Trace] = []


def trace(
    number: str,
    what: str,
    *,
    reference: str,
    kubeshard: str,
    measure: str,
    oracle: str,
    slow: bool = False,
    held: bool = True,
) -> Callable[[Script], Script]:
    """Enters a script in the table."""

    def enter(script: Script) -> Script:
        TABLE.append(Trace(number, what, reference, kubeshard, measure, oracle, slow, held, script))
        return script

    return enter
