"""What goes wrong with the protocol of the Go project, and does not with ours: each trace on both, on virtual time."""

from __future__ import annotations

from typing import Any

import pytest
from trace_scene import Side, play
from trace_table import Trace
from traces_page import PAGE, TRACES, rendered


def _param(trace: Trace, side: Side) -> Any:
    """At night: traces that take long, and the reference's side, which says nothing about kubeshard."""
    marks = []
    if trace.slow or side is Side.REFERENCE:
        marks = [pytest.mark.nightly]
    elif trace.number == "01":
        marks = [pytest.mark.quick]
    if side is Side.KUBESHARD and not trace.held:
        marks.append(pytest.mark.xfail(strict=True, reason="not held yet: docs/guarantees.md"))
    return pytest.param(trace, side, id=f"trace_{trace.number}-{side.value}", marks=marks)


@pytest.mark.parametrize(("trace", "side"), [_param(trace, side) for trace in TRACES for side in Side])
def test_the_reference_breaks_what_kubeshard_holds(trace: Trace, side: Side) -> None:
    result = play(trace.script, side)
    if side is Side.REFERENCE:
        assert result.broken[trace.oracle], f"the trace shows nothing: {result.breaks}"
    else:
        assert not result.breaks


@pytest.mark.quick
def test_the_traces_are_numbered_without_a_gap() -> None:
    assert sorted({int(trace.number[:2]) for trace in TRACES}) == list(range(1, 31))


@pytest.mark.quick
def test_the_page_is_rendered_from_the_table() -> None:
    assert PAGE.read_text() == rendered(), "run `make traces`"
