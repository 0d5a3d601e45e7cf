"""Log lines about requests that the API server rejects repeatedly until someone fixes the cause.

| rejected | logged |
|---|---|
| a request without permission for the resource | not here: the ring's report says which rule to grant |
| another forbidden request, for example by a policy | after a minute, unless the report shows it by then |
| any other | at once |

and then every ten minutes, with a count of the failures in between. Limited by the number of resources of the ring.
"""

from __future__ import annotations

from kubeshard.core.errors import Forbidden
from kubeshard.core.kinds import GroupResource
from kubeshard.runtime.clock import Clock
from kubeshard.sharder.reports import RingReport

EVERY = 600.0
UNTIL_EXPLAINED = 60.0


class Refusals:
    """The log lines of one ring."""

    def __init__(self, report: RingReport, clock: Clock) -> None:
        self._report = report
        self._clock = clock
        self._known: dict[tuple[GroupResource, str, str], tuple[float, int]] = {}
        """When the next line about each is due, and how many failures were not logged since the last one."""

    def line(self, resource: GroupResource, verb: str, error: Exception) -> int | None:
        """The number of failures not logged before this one if it should be logged, else None."""
        if self._report.missing_verbs.get(resource):
            return None
        now, kind = self._clock.monotonic(), (resource, verb, type(error).__name__)
        first = now + UNTIL_EXPLAINED if isinstance(error, Forbidden) else now
        due, silent = self._known.get(kind, (first, 0))
        told = now >= due
        self._known[kind] = (now + EVERY, 0) if told else (due, silent + 1)
        return silent if told else None
