"""Tracks whether the kinds that a controller reads are served, and pauses the controller while they are not.

An informer is live when it has been filled and is connected to the server. Otherwise there is a cause:

| cause | means |
|---|---|
| `unanswered` | it has not been filled, and the server has not said why |
| `not served` | the kind is not or no longer installed: noticed at once |
| `forbidden` | a permission is missing |
| `refused` | the credentials are missing or not accepted |
| `rejected` | the server rejects the request itself: the scope of a watch cannot work |
| `crashed` | reading it raised an unexpected exception in this process |
| `unavailable` | no usable response: an outage, a timeout, an overloaded server, an error about this kind |

An informer that was filled counts as live until its store has not followed the server for SILENCE seconds, unless its
kind is not served. A controller works while all its informers are live; otherwise keys are parked (`Inputs`). That
affects only this controller: no other one waits. No cause ends the process, except that all kinds of all controllers
are silent (`manager.process_health`). The reflector keeps retrying forever, at most ten seconds apart if the kind is
not served. After an interruption of more than a few seconds it lists everything again, and the informer is live only
when that list is in the store; so a controller that resumes sees nothing older than its pause.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple, NoReturn

from kubeshard.cache.informer import Informer
from kubeshard.core.errors import (
    ANONYMOUS,
    NO_CREDENTIALS,
    ApiError,
    Forbidden,
    Invalid,
    KubeshardError,
    NotFound,
    Throttled,
    Timeout,
    Unauthorized,
)
from kubeshard.listwatch.reflector import ReadingCrashed
from kubeshard.runtime.clock import Clock

SILENCE = 90.0
"""Seconds without an event, a bookmark or a list. The API server sends a bookmark about once a minute."""

CHECK = 1.0
"""Seconds between two checks while some informer is not live."""

_SHORTEST_WAIT = 0.1

Cause = Literal["unanswered", "not served", "forbidden", "refused", "rejected", "crashed", "unavailable"]


class KindsMissing(KubeshardError):
    """Not all kinds that the controller reads are served. The key is parked, and runs when they are."""


class SyncProblem(NamedTuple):
    """Why an informer is not live. `advice` is human-readable."""

    cause: Cause
    error: ApiError | None
    advice: str


def sync_problem(informer: Informer[Any], now: float) -> SyncProblem | None:
    """What is wrong with the informer at `now` (monotonic seconds); None if it is live."""
    error = informer.last_error
    if informer.has_synced and not isinstance(error, NotFound):
        heard = informer.last_heard
        if heard is None or now - heard <= SILENCE:
            return None
    return explained(informer, error)


def is_served(informer: Informer[Any]) -> bool:
    """False while the server reports that the kind does not exist. Then there are no objects to miss."""
    return not isinstance(informer.last_error, NotFound)


async def until_answered(informers: Collection[Informer[Any]]) -> None:
    """Returns when each has been filled, or the server has responded with an error."""
    await _until(informers, lambda informer: informer.has_synced or informer.last_error is not None)


async def until_filled(informers: Collection[Informer[Any]]) -> None:
    """Returns when each has been filled or its kind is not served; waits forever if necessary."""
    await _until(informers, _is_filled)


async def until_readable(informers: Collection[Informer[Any]]) -> None:
    """Returns when this process reads what others could read in its place: when each informer has been filled, its kind
    is not served, or the server fails for a reason that is the kind's, like its conversion webhook: while it answers
    about another one. Waits forever for a right that is missing, say: others may have it.
    """
    if informers:
        await until_any_filled(informers)
    # Errors from before may be about the server, which has not asked yet who may read what.
    before = {informer: informer.last_error for informer in informers}

    def fails(informer: Informer[Any]) -> bool:
        error = informer.last_error
        if error is None or error is before[informer]:
            return False
        return isinstance(error, Timeout) or error.code >= 500

    await _until(informers, lambda informer: _is_filled(informer) or fails(informer))


async def until_any_filled(informers: Collection[Informer[Any]]) -> None:
    """Returns when one has been filled or its kind is not served; waits forever if necessary."""
    while not any(map(_is_filled, informers)):
        await _next_check(informers)


async def until_doubtful(
    informers: Collection[Informer[Any]],
    clock: Clock,
    *besides: asyncio.Future[None],
    until: float = math.inf,
) -> None:
    """Waits while all informers are live: until a list or watch of one fails, or one has been silent for too long; or
    until something `besides` happens, or that moment.
    """
    heard = [each.last_heard for each in informers if each.last_heard is not None]
    seconds = min([until, *(at + SILENCE for at in heard)]) - clock.monotonic()
    failures = [each.failure() for each in informers]
    timeout = max(_SHORTEST_WAIT, seconds) if seconds < math.inf else None
    await asyncio.wait([*failures, *besides], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)


def _is_filled(informer: Informer[Any]) -> bool:
    return informer.has_synced or not is_served(informer)


class Inputs:
    """The informers of one controller. `complete` is checked before each run; `follow` runs alongside the workers."""

    def __init__(self, informers: Sequence[Informer[Any]], clock: Clock) -> None:
        self.informers = tuple(informers)
        self._clock = clock
        self._complete = False

    def problems(self) -> dict[str, SyncProblem]:
        """What is currently missing, by kind."""
        now = self._clock.monotonic()
        return {str(each): found for each in self.informers if (found := sync_problem(each, now))}

    def complete(self) -> bool:
        """Whether all are live; those that were live at the last check count as live."""
        if not self._complete:
            self._complete = not self.problems()
        return self._complete

    def check(self) -> None:
        """Raises KindsMissing."""
        if not self.complete():
            raise KindsMissing(f"waiting for {', '.join(self.problems())}")

    async def follow(self, resume: Callable[[], Awaitable[None]]) -> NoReturn:
        """Checks when one may not be live any more, periodically until all are again, and then calls `resume`."""
        while True:
            self._complete = not self.problems()
            if self._complete:
                await resume()
                await until_doubtful(self.informers, self._clock)
            else:
                await _next_check([each for each in self.informers if not each.has_synced])


async def _until(informers: Collection[Informer[Any]], done: Callable[[Informer[Any]], bool]) -> None:
    while waiting := [informer for informer in informers if not done(informer)]:
        await _next_check(waiting)


async def _next_check(unfilled: Iterable[Informer[Any]]) -> None:
    """Waits briefly for the first of them to be filled."""
    if (first := next(iter(unfilled), None)) is None:
        await asyncio.sleep(CHECK)
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(CHECK):
            await first.synced()


def explained(informer: Informer[Any], error: ApiError | None) -> SyncProblem:
    """An explanation of the error, for when it lasts."""
    kind, scope = informer.form.kind, informer.scope
    match error:
        case NotFound():
            what = f"{kind.plural}.{kind.group}" if kind.group else kind.plural
            return SyncProblem(
                "not served",
                error,
                f"install the CustomResourceDefinition {what} with version {kind.version}, or correct the class "
                f"{kind.kind}: version=, or plural= if the server calls the resource something else than {kind.plural} "
                "(`kubectl api-resources`); work starts when the server serves the kind",
            )
        case Forbidden(message=said) if ANONYMOUS in said:
            return SyncProblem("refused", error, NO_CREDENTIALS)
        case Forbidden():
            parts = [part for part in scope.parts(kind) if part]
            where = f"a Role in {', '.join(parts)}" if parts else "a ClusterRole"
            return SyncProblem(
                "forbidden",
                error,
                f"bind {where} with the rule apiGroups: [{kind.group!r}], resources: [{kind.plural!r}], "
                "verbs: [list, watch]",
            )
        case Unauthorized():
            return SyncProblem("refused", error, "renew the token or certificate of this process")
        case Invalid():
            return SyncProblem(
                "rejected",
                error,
                f"correct the scope of the watch ({scope}): as field selectors, the server supports metadata.name, "
                "metadata.namespace and few others, which for a custom resource are its `selectableFields`",
            )
        case ReadingCrashed():
            return SyncProblem("crashed", error, "a bug: the log has its stack trace; trying again")
        case None if not informer.has_synced:
            return SyncProblem("unanswered", None, "the server has not answered yet")
        case ApiError(code=code) if code >= 500 and not isinstance(error, Throttled):
            return SyncProblem(
                "unavailable",
                error,
                "check what the API server needs for this kind: the conversion webhook of its definition, or its "
                "aggregated API server; retrying",
            )
        case Throttled(code=code) if code:
            return SyncProblem(
                "unavailable",
                error,
                "the API server is overloaded, or its flow control has no room for this process; retrying",
            )
        case ApiError(code=code) if code:
            return SyncProblem(
                "unavailable",
                error,
                f"the server answers, but not a list or watch of {kind.plural}: see what serves it; retrying",
            )
        case _:
            return SyncProblem("unavailable", error, "check the API server and the network to it; retrying")
