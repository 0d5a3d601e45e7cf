"""Namespaces that are being deleted, in which the API server creates nothing any more.

A controller does not know that: it sees that a child is gone, and creates it again, for each of its objects, and again
after each refusal. Reports about these objects are refused, too.

Guaranteed, for clients that are `sparing`: after a refusal, no other create in the namespace is sent for QUIET seconds;
the same error is raised instead. Then one is sent to find out, and if it is refused as well, the pause grows up to
LONGEST. As soon as something is created, or the namespace does not exist, creates are sent as usual; also when there is
an object that was created after the last refusal (`saw`), which only the namespace's successor can have. Creates that
are in flight at the time of the first refusal are refused by the server, too.

Not guaranteed: that `saw` helps if this machine's clock differs from the API server's by more than the time between
the deletion and the object's creation. Then a refused create is sent in vain, or the pause is waited for.
"""

from __future__ import annotations

from dataclasses import dataclass

from kubeshard.core.errors import ApiError, Forbidden
from kubeshard.core.objects import ObjectMeta
from kubeshard.core.times import parse_time
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import get_logger

QUIET, GROWTH, LONGEST = 30.0, 4.0, 300.0

CAUSE = "NamespaceTerminating"
"""The API server's cause of a refused create."""

_log = get_logger("kubeshard.client")


def is_terminating(error: BaseException) -> bool:
    """Whether a create was refused because its namespace is being deleted."""
    return isinstance(error, ApiError) and any(cause.get("reason") == CAUSE for cause in error.causes)


@dataclass(slots=True)
class _Terminating:
    error: ApiError
    quiet: float
    until: float
    """When to ask again (monotonic seconds)."""
    since: float
    """When it was refused last (seconds since the epoch)."""
    asking: bool = False


class TerminatingNamespaces:
    """What the views of one client know."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, _Terminating] = {}

    def check(self, namespace: str) -> None:
        """Called before a create. Raises Forbidden instead of another refusal."""
        if (terminating := self._known.get(namespace)) is None:
            return
        now = self._clock.monotonic()
        if now >= terminating.until:
            terminating.until = now + terminating.quiet
            terminating.asking = True  # meanwhile, the caller finds out
            return
        error = terminating.error
        raise Forbidden(error.message, code=error.code, reason=error.reason, details=error.details)

    def refused(self, namespace: str, error: ApiError) -> None:
        """Called when a create was refused because the namespace is being deleted."""
        now, wall = self._clock.monotonic(), self._clock.wall()
        for name in [name for name, each in self._known.items() if now > each.until + LONGEST]:
            del self._known[name]  # nothing has been created there for long
        known = self._known.get(namespace)
        if known is None:
            _log.info("A namespace is being deleted; nothing is created in it", namespace=namespace)
            self._known[namespace] = _Terminating(error, QUIET, now + QUIET, wall)
        elif known.asking:  # others had been sent before
            known.quiet = min(GROWTH * known.quiet, LONGEST)
            known.until, known.since, known.asking = now + known.quiet, wall, False

    def answered(self, namespace: str) -> None:
        """Called when a create had any other outcome."""
        self._known.pop(namespace, None)

    def saw(self, meta: ObjectMeta) -> None:
        """Called with objects that exist."""
        if (terminating := self._known.get(meta.namespace)) is not None:
            created = parse_time(meta.creation_timestamp)
            if created is not None and created > terminating.since:
                del self._known[meta.namespace]
