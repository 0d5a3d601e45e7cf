"""Whether the figures of a run say something about its controllers; sans I/O.

They do not if the generator fell behind, if the API server or the machine was the limit, or if the tool itself was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kubeshard_lab.experiment.quantiles import of_samples

LATE = 0.5
"""Seconds after its due time from which a request was sent late."""
MAY_BE_LATE = 0.01
PROBE_LIMIT = 0.5
"""Seconds: the p99 of a small read. It takes a few milliseconds on a machine that is not starved."""
TOOL_LIMIT = 0.9
"""Of a core."""
MAY_BE_BUSY = 0.05


class Conditions(NamedTuple):
    due: int
    """Requests that were due."""
    late: int
    """... and were sent late, or not at all."""
    bound: int
    """How many requests had to wait because the bound on parallel ones was reached."""
    parallel: int
    probes: Sequence[float]
    """Seconds that each control probe took; infinite without an answer."""
    busy: Sequence[float]
    """Cores that the tool used, for each second."""
    ended: Sequence[str]
    """Processes that ended although the experiment did not end them, with what is known of the cause."""


def objections(conditions: Conditions) -> Iterator[str]:
    """A sentence for each reason why the run is not valid."""
    if conditions.late > conditions.due * MAY_BE_LATE:
        why = ""
        if conditions.bound:
            why = f"; {conditions.bound} waited because {conditions.parallel} others were unanswered"
        yield (
            f"the load fell behind: {conditions.late} of {conditions.due} requests were sent more than {LATE:g} s late"
            f"{why}"
        )
    slow = of_samples(0.99, conditions.probes)
    if slow > PROBE_LIMIT:
        took = "had no answer" if slow == float("inf") else f"took {slow:.2f} s"
        yield (
            f"the API server or the machine was the limit: the p99 of a small read {took} (at most {PROBE_LIMIT:g} s)"
        )
    busy = sum(each > TOOL_LIMIT for each in conditions.busy)
    if busy > len(conditions.busy) * MAY_BE_BUSY:
        yield (
            f"the experiment itself was the limit: it used more than {TOOL_LIMIT:.0%} of a core in {busy} of "
            f"{len(conditions.busy)} seconds"
        )
    for sentence in conditions.ended:
        yield f"a process ended although the experiment did not end it: {sentence}"
