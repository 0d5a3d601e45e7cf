"""How a run ended, and what that means for its key.

| the run | label | queue | log |
|---|---|---|---|
| returned None or `Result()` | `success` | forget | debug |
| returned `Result(requeue_after=s)` | `requeue_after` | forget, add after `s` | debug |
| raised that its reads were stale | `requeue` | add rate-limited | debug; many times in a row warning |
| met a kind that is not served (`syncing`) | `requeue` | parked until it is | debug |
| could not create anything in a namespace that is being deleted | `requeue` | forget, add after a pause | debug |
| could not give anything to an owner that the garbage collector is at | `requeue` | forget, add after a pause | debug |
| raised `Terminal`, `UndecodableObject` or `UndeclaredIndex` | `error` | nothing, not even forget | error |
| raised `Retry(after=s)` | `error` | add after `s` | error |
| raised another exception | `error` | add rate-limited | error; the stack trace of each unexpected one once |
| timed out | `error` | add rate-limited | error |
| crashed: a wrong type of result, a forgotten `await`, `SystemExit` | `error` | add rate-limited | error, stack trace |
| failed, and `Controller.give_up_after` has passed | `error` | nothing | error |

An exception group counts as its worst member. An exception is unexpected if it is neither one of kubeshard's nor an
OSError. Stale means that somebody else was faster, and the next run will
see it.

A controller may give an object up (`Controller.give_up_after`): after so many failed runs in a row, or so long after
the first of them. Failed runs are counted by key. A run that succeeds, a change of the object's spec
(`metadata.generation`) and its end reset the count; a run that only had stale reads, or met a kind that is not served,
does not count. After giving up, nothing is retried; a trigger still leads to a run, and if that fails, the object is
given up again. In memory only: a process that restarts counts anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from typing import Any, Literal, NamedTuple, Protocol

from kubeshard.cache.errors import CacheBehind
from kubeshard.cache.informer import Informer
from kubeshard.cache.store import UndeclaredIndex
from kubeshard.client.terminating_namespaces import is_terminating
from kubeshard.controller.forgotten_awaits import ForgottenAwait
from kubeshard.controller.reconciler import Result
from kubeshard.controller.run import Run
from kubeshard.controller.syncing import KindsMissing
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.errors import (
    AlreadyExists,
    Conflict,
    FieldConflict,
    Forbidden,
    KubeshardError,
    Retry,
    Terminal,
)
from kubeshard.core.objects import Key
from kubeshard.core.owners import LeavingOwner
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import Logger

STALE = (Conflict, AlreadyExists, CacheBehind)
"""Raised after stale reads. Do not catch them: the next run reads the current state."""

GiveUpAfter = int | timedelta | None
"""A number of failed runs in a row, or the time since the first of them; None for never."""


def check_give_up_after(whose: str, limit: Any) -> None:
    """Raises TypeError and ValueError for what is no limit."""
    if isinstance(limit, bool) or not isinstance(limit, int | timedelta | None):
        raise TypeError(f"{whose}: give_up_after takes a number of failed runs, or a timedelta")
    if limit is not None and not (limit > timedelta() if isinstance(limit, timedelta) else limit > 0):
        raise ValueError(f"{whose}: give_up_after={limit!r} must be positive")


class Ending(Enum):
    """The rows of the table, from best to worst."""

    SUCCESS = auto()
    REQUEUE_AFTER = auto()
    STALE = auto()
    PARKED = auto()
    LEAVING = auto()
    TERMINAL = auto()
    RETRY_AFTER = auto()
    FAILED = auto()
    TIMED_OUT = auto()
    CRASHED = auto()
    GAVE_UP = auto()


@dataclass(frozen=True, slots=True)
class Outcome:
    ending: Ending
    error: BaseException | None = None
    requeue_after: float = 0.0

    @property
    def label(self) -> str:
        """The value of the metric label `result`: one of the four that controller-runtime has."""
        match self.ending:
            case Ending.SUCCESS:
                return "success"
            case Ending.REQUEUE_AFTER:
                return "requeue_after"
            case Ending.STALE | Ending.PARKED | Ending.LEAVING:
                return "requeue"
            case _:
                return "error"

    @property
    def severity(self) -> int:
        """Higher is worse."""
        return _BY_SEVERITY.index(self.ending)

    @property
    def failed(self) -> bool:
        return self.ending in _FAILURES

    @property
    def retried(self) -> bool:
        """Whether it failed and is tried again."""
        return self.failed and self.ending not in (Ending.TERMINAL, Ending.GAVE_UP)


_FAILURES = (
    *(Ending.TERMINAL, Ending.RETRY_AFTER, Ending.FAILED),
    *(Ending.TIMED_OUT, Ending.CRASHED, Ending.GAVE_UP),
)
"""No set: the hash of a member is computed in Python."""


SUCCEEDED = Outcome(Ending.SUCCESS)


def slip_of(run: Run, result: object, what: str = "a reconcile") -> Exception | None:
    """Why code of the run's author has failed although it returned; None if it has not."""
    if run.activities.out_of_time:
        return out_of_time(run.activities.timeout)
    if run.activities.forgotten:
        return ForgottenAwait("; ".join(run.activities.forgotten))
    if result is not None and not isinstance(result, Result):
        return TypeError(f"{what} returned {type(result).__name__}: return None or a Result")
    return None


def out_of_time(seconds: float) -> TimeoutError:
    return TimeoutError(f"not done within {seconds:g} s")


def of_result(result: object) -> Outcome:
    """The outcome of a run that returned."""
    match result:
        case None | Result(requeue_after=None):
            return SUCCEEDED
        case Result(requeue_after=float() | int() as seconds):
            return Outcome(Ending.REQUEUE_AFTER, requeue_after=seconds)
    wrong = TypeError(f"a reconcile returned {type(result).__name__}: return None or a Result")
    return Outcome(Ending.CRASHED, wrong)


def of_error(error: BaseException) -> Outcome:
    """The outcome of a run that raised."""
    ending = max((_ending(leaf) for leaf in leaves(error)), key=_BY_SEVERITY.index)
    if ending is Ending.RETRY_AFTER:
        after = min(leaf.after for leaf in leaves(error) if isinstance(leaf, Retry) and leaf.after)
        return Outcome(ending, error, after)
    return Outcome(ending, error)


_BY_SEVERITY = list(Ending)


def _ending(error: BaseException) -> Ending:
    match error:
        case FieldConflict():
            return Ending.FAILED
        case error if isinstance(error, STALE):
            return Ending.STALE
        case KindsMissing():
            return Ending.PARKED
        case Forbidden() if is_terminating(error):
            return Ending.LEAVING
        case LeavingOwner():
            return Ending.LEAVING
        case Terminal() | UndecodableObject() | UndeclaredIndex():
            return Ending.TERMINAL
        case Retry(after=float() | int()):
            return Ending.RETRY_AFTER
        case Exception() if not isinstance(error, ForgottenAwait):
            return Ending.FAILED
        case _:
            return Ending.CRASHED


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors in a group, and in nested groups; otherwise the error itself."""
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from leaves(member)
    else:
        yield error


def origin(error: BaseException | None) -> tuple[str, str, int] | None:
    """What makes unexpected exceptions the same: class, file and line of the first one in a group. None if all are
    expected.
    """
    for leaf in leaves(error) if error is not None else ():
        if not isinstance(leaf, KubeshardError | OSError):
            trace = leaf.__traceback__
            while trace is not None and trace.tb_next is not None:
                trace = trace.tb_next
            place = (trace.tb_frame.f_code.co_filename, trace.tb_lineno) if trace is not None else ("", 0)
            return (type(leaf).__qualname__, *place)
    return None


def report(log: Logger, outcome: Outcome, fields: Mapping[str, Any], *, trace: bool) -> None:
    """Logs the one line of a run. `trace`: with the stack trace of an unexpected exception."""
    match outcome.ending:
        case Ending.SUCCESS | Ending.REQUEUE_AFTER:
            log.debug("Reconciled", **fields)
        case Ending.PARKED:
            log.debug("Not reconciled: a kind is missing", **fields)
        case Ending.LEAVING:
            log.debug("Not reconciled: the namespace or the owner is being deleted", **fields)
        case Ending.STALE:
            log.debug("Reconcile had stale reads; trying again", **fields)
        case Ending.TERMINAL:
            log.error("Reconcile failed permanently; not trying again", **fields)
        case Ending.CRASHED:
            if outcome.error is not None:
                _begin_with_the_authors_code(outcome.error)
            log.crash("Reconcile crashed", **fields)
        case Ending.GAVE_UP:
            log.error("Reconcile failed too often; giving up until the object changes", **fields)
        case _ if trace and outcome.error is not None:
            _begin_with_the_authors_code(outcome.error)
            log.crash("Reconcile failed", **fields)
        case _:
            log.error("Reconcile failed", **fields)


# Stale reads that go on

PERSISTENT = 5


def is_persistent(times: int) -> bool:
    """Whether this is the 5th, 10th, 20th, 40th ... time in a row. A single stale read is normal; many in a row mean
    that retrying does not help, and their cause is told, less and less often.
    """
    rounds, rest = divmod(times, PERSISTENT)
    return rest == 0 and rounds.bit_count() == 1


def stale_advice(error: BaseException, informers: Iterable[Informer[Any]]) -> str:
    """What the user can do about it. `informers`: what the controller caches."""
    error = next(leaves(error))
    if isinstance(error, CacheBehind):
        return "the cache does not follow: is its kind listed and watched without errors?"
    if not isinstance(error, AlreadyExists):
        return (
            "the object changes faster than it is reconciled, or is written with an old resourceVersion: "
            "patch only what must change"
        )
    resource = (str(error.details.get("group", "")), str(error.details.get("kind", "")))
    for informer in informers:
        kind, scope = informer.form.kind, informer.scope
        if kind.group_resource == resource:
            exists = f"{kind.kind} {error.details.get('name', '')} exists, but the cache"
            if narrow := scope.labels or scope.fields:
                return (
                    f"{exists} holds only what matches {narrow}: give it these labels, delete it, or choose another "
                    "name"
                )
            return f"{exists} does not show it: does it have the namespace of its scope?"
    return "the controller does not cache this kind: declare it in owns, or read it live before creating it"


class _Failures(NamedTuple):
    runs: int
    since: float
    """When the first of them ended (monotonic seconds)."""


class Patience:
    """The failed runs of one controller's objects."""

    def __init__(self, limit: GiveUpAfter, clock: Clock) -> None:
        self._limit = limit
        self._clock = clock
        self._failures: dict[Key, _Failures] = {}

    def is_last(self, key: Key) -> bool:
        """Whether the object is given up if its current run fails."""
        failures = self._failures.get(key)
        match self._limit:
            case int(runs):
                return (failures.runs if failures else 0) + 1 >= runs
            case timedelta() as time:
                since = self._clock.monotonic() if failures is None else failures.since
                return self._clock.monotonic() - since >= time.total_seconds()
        return False

    def failed(self, key: Key) -> None:
        if self._limit is not None:
            before = self._failures.get(key) or _Failures(0, self._clock.monotonic())
            self._failures[key] = before._replace(runs=before.runs + 1)

    def forget(self, key: Key) -> None:
        self._failures.pop(key, None)


def _begin_with_the_authors_code(error: BaseException) -> None:
    """Drops the framework's frames before the author's code from the stack trace: they are the same in every run."""
    trace = error.__traceback__
    while trace is not None and _is_framework(trace.tb_frame.f_globals.get("__name__", "")):
        trace = trace.tb_next
    if trace is not None:
        error.__traceback__ = trace


def _is_framework(module: str) -> bool:
    return module.startswith("kubeshard.")


# What is observed

TriggerStep = Literal["predicate", "map"]


class ControllerMetrics(Protocol):
    """Observations of one controller. Called inline: must neither block nor raise. The manager turns them into the
    metrics that Kubernetes dashboards know: `controller_runtime_reconcile_total`, ...
    """

    def started(self) -> None:
        """A worker started a run."""
        ...

    def finished(self, outcome: Outcome | None, seconds: float) -> None:
        """The run ended; without an outcome if the process lost its Lease first."""
        ...

    def overdue(self, change: int) -> None:
        """A run has become overdue (1), or an overdue run has ended (-1)."""
        ...

    def trigger_failed(self, source: str, step: TriggerStep) -> None:
        """A predicate or map function of the watch of `source` raised."""
        ...


class NoMetrics:
    def started(self) -> None: ...
    def finished(self, outcome: Outcome | None, seconds: float) -> None: ...
    def overdue(self, change: int) -> None: ...
    def trigger_failed(self, source: str, step: TriggerStep) -> None: ...
