"""How a run ended, and what that means for its key.

| the run | label | queue | log |
|---|---|---|---|
| returned None or `Result()` | `success` | forget | debug |
| returned `Result(requeue_after=s)` | `requeue_after` | forget, add after `s` | debug |
| raised that its reads were stale | `requeue` | add rate-limited | debug; many times in a row warning |
| met a kind that is not served (`syncing`) | `requeue` | parked until it is | debug |
| could not create anything in a namespace that is being deleted | `requeue` | forget, add after a pause | debug |
| raised `Terminal`, `UndecodableObject` or `UndeclaredIndex` | `error` | nothing, not even forget | error |
| raised another error of the API or the network | `error` | add rate-limited | error |
| timed out | `error` | add rate-limited | error |
| crashed: another exception or type of result, a forgotten `await` | `error` | add rate-limited | error, stack trace |

An exception group counts as its worst member. Stale means that somebody else was faster, and the next run will
see it.

A single stale read is normal and logged at debug level: somebody else was faster, and the next run sees it. Many in a
row mean that retrying does not help. Then the likely cause is logged: the fifth time, and from then on less and less
often (`warn_if_persistent`).

`ForgottenAwaits` finds coroutines that a reconcile created and never awaited: what they were to do did not happen,
without an error. Python reports such a coroutine when it is dropped, as a RuntimeWarning, which is easily missed, and
is shown once per line. Guaranteed: nothing is noted that was awaited, or closed on purpose. Not guaranteed: that one
is noted that a reference cycle keeps, or an interpreter other than CPython; there, Python's warning is all. It costs
nothing while nothing is forgotten.
"""

from __future__ import annotations

import asyncio
import sys
import warnings
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import FrameType
from typing import Any, Self

from kubeshard.cache.errors import CacheBehind
from kubeshard.cache.informer import Informer
from kubeshard.cache.store import UndeclaredIndex
from kubeshard.client.client import Client
from kubeshard.client.terminating import is_terminating
from kubeshard.controller.reconciler import Result
from kubeshard.controller.syncing import KindsMissing
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.errors import AlreadyExists, Conflict, FieldConflict, Forbidden, KubeshardError, Terminal
from kubeshard.core.kinds import Kind
from kubeshard.core.objects import Key, metadata_only
from kubeshard.runtime.logs import Logger

STALE = (Conflict, AlreadyExists, CacheBehind)
"""Raised after stale reads. Do not catch them: the next run reads the current state."""


class Ending(Enum):
    """The rows of the table, from best to worst."""

    SUCCESS = "success"
    REQUEUE_AFTER = "requeue_after"
    STALE = "requeue"
    PARKED = "parked"
    LEAVING = "leaving"
    TERMINAL = "terminal"
    FAILED = "error"
    TIMED_OUT = "timeout"
    CRASHED = "panic"


@dataclass(frozen=True, slots=True)
class Outcome:
    ending: Ending
    error: BaseException | None = None
    requeue_after: float = 0.0

    @property
    def label(self) -> str:
        """The value of the metric label `result`: one of the four that controller-runtime has."""
        if self.ending in (Ending.PARKED, Ending.LEAVING):
            return Ending.STALE.value
        return "error" if self.failed else self.ending.value

    @property
    def severity(self) -> int:
        """Higher is worse."""
        return _BY_SEVERITY.index(self.ending)

    @property
    def failed(self) -> bool:
        return self.ending in (Ending.TERMINAL, Ending.FAILED, Ending.TIMED_OUT, Ending.CRASHED)


SUCCEEDED = Outcome(Ending.SUCCESS)


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
    return Outcome(max((_ending(leaf) for leaf in leaves(error)), key=_BY_SEVERITY.index), error)


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
        case Terminal() | UndecodableObject() | UndeclaredIndex():
            return Ending.TERMINAL
        case KubeshardError() | OSError():
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


def report(log: Logger, outcome: Outcome, fields: Mapping[str, Any]) -> None:
    """Logs the one line of a run."""
    match outcome.ending:
        case Ending.SUCCESS | Ending.REQUEUE_AFTER:
            log.debug("Reconciled", **fields)
        case Ending.PARKED:
            log.debug("Not reconciled: a kind is missing", **fields)
        case Ending.LEAVING:
            log.debug("Not reconciled: a namespace is being deleted", **fields)
        case Ending.STALE:
            log.debug("Reconcile had stale reads; trying again", **fields)
        case Ending.TERMINAL:
            log.error("Reconcile failed permanently; not trying again", **fields)
        case Ending.CRASHED:
            if outcome.error is not None:
                _begin_with_the_authors_code(outcome.error)
            log.crash("Reconcile crashed", **fields)
        case _:
            log.error("Reconcile failed", **fields)


def _begin_with_the_authors_code(error: BaseException) -> None:
    """Drops the framework's frames before the author's code from the stack trace: they are the same in every run."""
    trace = error.__traceback__
    while trace is not None and _is_framework(trace.tb_frame.f_globals.get("__name__", "")):
        trace = trace.tb_next
    if trace is not None:
        error.__traceback__ = trace


def _is_framework(module: str) -> bool:
    return module.startswith("kubeshard.") and not module.startswith("kubeshard.examples.")


PERSISTENT = 5

PATIENCE = 5.0
"""Seconds for the one read that an explanation may need."""


def is_persistent(times: int) -> bool:
    """Whether this is the 5th, 10th, 20th, 40th ... time in a row."""
    rounds, rest = divmod(times, PERSISTENT)
    return rest == 0 and rounds.bit_count() == 1


async def warn_if_persistent(
    log: Logger,
    times: int,
    error: BaseException,
    key: Key,
    informers: Sequence[Informer[Any]],
    client: Client,
) -> None:
    """`times`: how many runs in a row, with this one."""
    if is_persistent(times):
        log.warning(
            "Reconcile keeps having stale reads",
            times=times,
            error=error,
            advice=await advice(next(leaves(error)), key, informers, client),
        )


async def advice(error: BaseException, key: Key, informers: Sequence[Informer[Any]], client: Client) -> str:
    """What the user can do about it. RBAC: `get` on the kind whose create failed; without it the advice is less
    precise.
    """
    match error:
        case AlreadyExists():
            return await _of_taken_name(error, key, informers, client)
        case CacheBehind():
            return "the cache does not follow: is its kind listed and watched without errors?"
        case _:
            return (
                "the object changes faster than it is reconciled, or is written with an old resourceVersion: "
                "patch only what must change"
            )


async def _of_taken_name(
    error: AlreadyExists, key: Key, informers: Sequence[Informer[Any]], client: Client
) -> str:
    name = str(error.details.get("name", ""))
    resource = (str(error.details.get("group", "")), str(error.details.get("kind", "")))
    informer = next((each for each in informers if each.form.kind.group_resource == resource), None)
    if informer is None:
        return (
            "the controller does not cache this kind: declare it in owns, or read it live before creating it"
        )
    kind, scope = informer.form.kind, informer.scope
    with suppress(KubeshardError, TimeoutError):
        async with asyncio.timeout(PATIENCE):
            live = await client.get(metadata_only(kind), name, key.namespace if kind.namespaced else "")
        if not scope.may_select(kind, live.metadata):
            return (
                f"{_named(kind, name)} exists, but the cache holds only what matches {scope.labels or scope.fields}: "
                "give it these labels, delete it, or choose another name"
            )
        return f"{_named(kind, name)} exists, but the cache does not show it yet"
    return (
        f"{_named(kind, name)} exists, but the cache does not show it: "
        "does it have the namespace and labels of its scope?"
    )


def _named(kind: Kind, name: str) -> str:
    return f"{kind.kind} {name}"


_found: ContextVar[list[str] | None] = ContextVar("kubeshard.unawaited", default=None)

_HOOK = "_warn_unawaited_coroutine"
"""What CPython calls when it drops a coroutine that was never started."""

_HERE = str(Path(__file__).parents[1])


class ForgottenAwait(TypeError):
    """A reconcile created a coroutine and did not await it."""


class ForgottenAwaits:
    """A context manager: `error` is about the coroutines that were dropped inside, None if there was none."""

    __slots__ = ("_found", "_reset")

    def __enter__(self) -> Self:
        _install()
        self._found: list[str] = []
        self._reset = _found.set(self._found)
        return self

    def __exit__(self, *_: object) -> None:
        _found.reset(self._reset)

    @property
    def error(self) -> ForgottenAwait | None:
        return ForgottenAwait("; ".join(self._found)) if self._found else None


def _install() -> None:
    before = getattr(warnings, _HOOK, None)
    if before is None or getattr(before, "notes", False):
        return

    def note(coroutine: Coroutine[Any, Any, Any]) -> None:
        found = _found.get()
        if found is not None:
            found.append(_explained(coroutine, sys._getframe(1)))
        before(coroutine)

    note.notes = True  # type: ignore[attr-defined]
    setattr(warnings, _HOOK, note)


def _explained(coroutine: Coroutine[Any, Any, Any], frame: FrameType | None) -> str:
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    name = getattr(coroutine, "__qualname__", "a coroutine")
    where = (
        f" ({frame.f_code.co_filename}, line {frame.f_lineno})" if frame and _is_the_authors(frame) else ""
    )
    return f"{name}(...) was never awaited, so it did nothing{where}: write `await`"


def _is_the_authors(frame: FrameType) -> bool:
    """False for a loop that runs the reconcile: it dropped the coroutine in a variable after it had ended."""
    return frame.f_globals.get("__name__", "").partition(".")[0] not in ("asyncio", "uvloop")
