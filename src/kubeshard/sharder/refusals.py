"""Log lines about what the API server refuses again and again until somebody mends it.

| refused | logged |
|---|---|
| a request on a resource on which a right is missing | not here: the ring's report says which rule to grant |
| another one that is forbidden, as by a policy | after a minute, in which the report may come to say so |
| any other | at once |

and then every ten minutes, with a count of the failures in between. Bounded by the resources of the ring.
"""

from __future__ import annotations

from kubeshard.core.errors import ApiError, Forbidden
from kubeshard.core.kinds import GroupResource
from kubeshard.runtime.clock import Clock
from kubeshard.sharder.reports import RingReport

EVERY = 600.0
UNTIL_EXPLAINED = 60.0


class Refusals:
    """Of one ring."""

    def __init__(self, report: RingReport, clock: Clock) -> None:
        self._report = report
        self._clock = clock
        self._known: dict[tuple[GroupResource, str, str], tuple[float, int]] = {}
        """When the next line about each is due, and how many failures had none since the last one."""

    def line(self, resource: GroupResource, verb: str, error: ApiError) -> int | None:
        """Whether this failure is worth a line: how many before it had none, or None if it has none either."""
        if self._report.missing_verbs.get(resource):
            return None
        now, kind = self._clock.monotonic(), (resource, verb, type(error).__name__)
        first = now + UNTIL_EXPLAINED if isinstance(error, Forbidden) else now
        due, silent = self._known.get(kind, (first, 0))
        told = now >= due
        self._known[kind] = (now + EVERY, 0) if told else (due, silent + 1)
        return silent if told else None
