"""Finalizers: what has to be done before an object may go.

| the object | our finalizers on it | what a run does |
|---|---|---|
| lives | some are missing | adds those that are missing, in one patch; then reconciles what that patch returned |
| lives | all | reconciles |
| is being deleted | some | cleans up for the first one declared, takes it off, goes on with the next |
| is being deleted | none | nothing: what is left of it is the business of others |

Guaranteed: `reconcile` is called of no object that lacks a finalizer, so nothing has been made outside that nobody
would clean up; never of one that is being deleted; a cleanup begins when those declared before it are done; a
finalizer comes off only after its cleanup has returned None. Patches are JSON patches that test the
object's UID and the very place in the list, so finalizers of others are never touched and a race with them is a quiet
retry. A cleanup that raises, or never ends, is a run like any other: retried with backoff, cancelled when it is out
of time, and of no consequence for other objects.

Not guaranteed: that a cleanup runs once. It may have worked and the process may have ended before the finalizer came
off: what is gone already must be no error for it. Nor that it runs at all: people can take finalizers off by hand,
and `kubeshard release-finalizers` does.

While a cleanup has not succeeded, a Warning event on the object says of which finalizer, for how long and why; with
`Controller.error_condition` also that condition. RBAC: `patch` on the kind.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kubeshard.controller.context import Context
from kubeshard.controller.outcomes import STALE
from kubeshard.controller.reconciler import ReconcileFn, Result, is_plain, takes_two
from kubeshard.core.errors import Conflict, NotFound, PatchTestFailed
from kubeshard.core.finalizers import adding, deletion_age, is_finalizer, removing, spoken
from kubeshard.core.objects import KubeObject
from kubeshard.core.patches import JsonPatch

T = TypeVar("T", bound=KubeObject)

STUCK = 60.0
"""Seconds after a deletion from which on a cleanup that only asks for more time is told of, too."""


class AnyFinalizer:
    """A `Finalizer` of some kind, where it does not matter of which."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Finalizer(AnyFinalizer, Generic[T]):
    """One thing to be cleaned up before an object of the controller's primary kind goes.

    `key`: `<your domain>/<what>`, different from that of everybody else. `cleanup`: an `async def` function of a
    context and the object. It returns None when nothing is left; `Result(requeue_after=...)` to be asked again then,
    `Result()` with the next change. It may be called when there is nothing to clean up, and again after it succeeded.
    Raises ValueError, TypeError.

    To give up a finalizer that earlier versions of a program have set, leave it declared with a cleanup that does
    nothing: undeclared, it would keep its objects for ever.
    """

    key: str
    cleanup: Callable[[Context, T], Awaitable[Result | None]]

    def __post_init__(self) -> None:
        if not is_finalizer(self.key):
            raise ValueError(f"finalizer {self.key!r}: <your domain>/<what>, as in example.com/bucket")
        cleanup: Any = self.cleanup
        if not callable(cleanup) or is_plain(cleanup) or not takes_two(cleanup):
            raise TypeError(f"finalizer {self.key}: cleanup is an `async def` function of (ctx, obj)")


def finalized(finalizers: Sequence[Finalizer[Any]], inner: ReconcileFn) -> ReconcileFn:
    """The reconciler behind its finalizers."""

    async def run(ctx: Context, obj: KubeObject | None) -> Result | None:
        if obj is None:
            return await inner(ctx, None)
        if obj.metadata.deleting:
            return await _finalize(ctx, obj, finalizers)
        missing = [each.key for each in finalizers if each.key not in obj.metadata.finalizers]
        if missing:
            try:
                obj = await _patched(ctx, obj, adding(obj.metadata, missing))
            except NotFound:
                return None  # the cache is about to say so
        return await inner(ctx, obj)

    return run


async def _finalize(ctx: Context, obj: KubeObject, finalizers: Sequence[Finalizer[Any]]) -> Result | None:
    for finalizer in finalizers:
        if finalizer.key not in obj.metadata.finalizers:
            continue
        waited = deletion_age(obj.metadata, ctx.clock.wall())
        ctx.unfinished = f"finalizer {finalizer.key}, {spoken(waited)} after the deletion"
        try:
            result = await finalizer.cleanup(ctx, obj)
        except STALE:
            raise
        except Exception as error:
            _warn(ctx, obj, f"{type(error).__name__}: {error}")
            raise
        if result is not None:
            if waited >= STUCK:
                _warn(ctx, obj, "not cleaned up yet")
            return result
        try:
            obj = await _patched(ctx, obj, removing(obj.metadata, (finalizer.key,)))
        except NotFound:
            return None  # people took it off, and nothing else kept the object
        finally:
            ctx.unfinished = ""
        ctx.log.info("Finalized", finalizer=finalizer.key)
    return None


async def _patched(ctx: Context, obj: KubeObject, patch: JsonPatch) -> KubeObject:
    """Raises Conflict where a test does not hold."""
    meta = obj.metadata
    try:
        patched: KubeObject = await ctx.client.patch(ctx.form, meta.name, meta.namespace or None, patch)
    except PatchTestFailed as error:
        raise Conflict(f"the finalizers of {ctx.form.kind} {ctx.key} changed since they were read") from error
    return patched


def _warn(ctx: Context, obj: KubeObject, why: str) -> None:
    ctx.event(obj, "Warning", "CleanupPending", f"{ctx.unfinished}: {why}", action="Finalize")
