"""Finalizers: cleanup that must succeed before an object is deleted.

| the object | our finalizers on it | what a run does |
|---|---|---|
| lives | some are missing | adds the missing ones, in one patch; then reconciles the object that the patch returned |
| lives | all | reconciles |
| is being deleted | some | runs the cleanup of the first one declared, removes it, continues with the next |
| is being deleted | none | nothing: other finalizers belong to others |

Guaranteed: `reconcile` is never called for an object that lacks a finalizer, so it creates nothing that would not be
cleaned up, and never for one that is being deleted; a cleanup starts when those declared before it are done; a
finalizer is removed only after its cleanup has returned None. Patches are JSON patches that test the object's UID
and the exact position in the list, so finalizers of others are never touched and a race with them is a quiet retry.
A cleanup that raises, or never ends, is treated like any other run: retried with backoff, cancelled at its deadline,
and without effect on other objects.

An object that left the selectors of the controller's watch keeps its finalizers, and is cleaned up when it is deleted:
the metadata of all objects of the kind is watched for that. One that does not fit the controller's class any more says
so in an event, and is cleaned up when it fits again.

Not guaranteed: that an object is cleaned up in a namespace that the process does not read any more, or when its kind
was taken out of the ring: `kubeshard release-finalizers` lists and releases these.

Not guaranteed: that a cleanup runs once. The process may end after a cleanup succeeded and before the finalizer was
removed, so a cleanup must accept that things are already gone. Nor that it runs at all: people can remove finalizers by
hand or with `kubeshard release-finalizers`.

Until a cleanup succeeds, a Warning event on the object says which finalizer is waiting, for how long and why. So does
the condition of `Controller.error_condition`. RBAC: `patch` on the kind.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kubeshard.cache.deltas import Added, Delta, Updated
from kubeshard.controller.context import Context, run_of
from kubeshard.controller.desired.applyset import address_of
from kubeshard.controller.event_series import reference
from kubeshard.controller.functions import is_plain, takes_two
from kubeshard.controller.outcomes import STALE, slip_of
from kubeshard.controller.reconciler import ReconcileFn, Result
from kubeshard.controller.when import Predicate
from kubeshard.core.conditions import for_people
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.errors import Conflict, NotFound, PatchTestFailed
from kubeshard.core.finalizers import adding, deletion_age, is_finalizer, removing, spoken
from kubeshard.core.objects import KubeObject, ObjectMeta
from kubeshard.core.patches import JsonPatch
from kubeshard.runtime.logs import error_line

T = TypeVar("T", bound=KubeObject)

STUCK = 60.0
"""Seconds after a deletion when a cleanup that only asks for more time is called and reported, too; also the pause of
one that waits for a change.
"""

_NOT_DONE = "its cleanup returned Result(), which means that it is not done: None means that nothing is left"

UNWATCHED = 5.0
"""Seconds after which members are looked for again of which the controller sees no events."""


class AnyFinalizer:
    """A `Finalizer` for any kind."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Finalizer(AnyFinalizer, Generic[T]):
    """One cleanup before an object of the controller's primary kind is deleted.

    `key`: `<your domain>/<what>`, unique across controllers: a manager refuses two that set the same key on the same
    objects. `cleanup`: an `async def` function of a context and the
    object. It returns None when nothing is left, `Result(requeue_after=...)` to be called again after that time, or
    `Result()`, which is not "done" either: to be called again with the next change, and after a minute at the latest.
    It may be called earlier, when there is nothing to clean up, and again after it succeeded.
    Raises ValueError, TypeError.

    To retire a finalizer that earlier versions of a program have set, keep it declared with a cleanup that does
    nothing: undeclared, it would block the deletion of its objects forever.
    """

    key: str
    cleanup: Callable[[Context, T], Awaitable[Result | None]]

    def __post_init__(self) -> None:
        if not is_finalizer(self.key):
            raise ValueError(f"finalizer {self.key!r}: <your domain>/<what>, as in example.com/bucket")
        cleanup: Any = self.cleanup
        if not callable(cleanup) or is_plain(cleanup) or not takes_two(cleanup):
            raise TypeError(f"finalizer {self.key}: cleanup is an `async def` function of (ctx, obj)")

    @classmethod
    def deleting_members(cls, key: str, *sets: str) -> Finalizer[T]:
        """Deletes the members of the object's desired sets (default: the one without a name), wherever they are, in the
        reverse of their order, and waits until they are gone.

        The sets are deleted one after the other. A member that somebody else's finalizer keeps keeps the object.
        """

        async def delete(ctx: Context, obj: T) -> Result | None:
            for name in sets or ("",):
                applied = await ctx.apply(owner=obj, set=name)
                if applied.leaving:
                    names = ", ".join(str(address_of(member)) for member in applied.leaving)
                    run_of(ctx).unfinished += f", waits for {names}"
                    return Result(requeue_after=_again_after(ctx, applied.leaving))
            return None

        delete.sets = sets or ("",)  # type: ignore[attr-defined]
        return cls(key, delete)

    @property
    def sets(self) -> Sequence[str] | None:
        """The sets whose members it deletes; None if that is not known, because it has a cleanup of its own."""
        return getattr(self.cleanup, "sets", None)


def _again_after(ctx: Context, leaving: Sequence[KubeObject]) -> float:
    """The end of a member that is watched triggers the next run; the others are looked for."""
    declared = run_of(ctx).reader.declared
    for obj in leaving:
        kind, namespace = obj.KIND, obj.metadata.namespace
        if not any(
            form.kind.group_kind == kind.group_kind and scope.covers(kind, namespace)
            for form, scope in declared.items()
        ):
            return UNWATCHED
    return STUCK


def holding(finalizers: Sequence[Finalizer[Any]], meta: ObjectMeta) -> str:
    """The first of the finalizers that keeps an object from being deleted; empty if none does."""
    if not meta.deleting:
        return ""
    return next((each.key for each in finalizers if each.key in meta.finalizers), "")


def held_by(finalizers: Sequence[Finalizer[Any]]) -> Predicate[Any]:
    """Passes what may begin, or go on, to be held by the finalizers."""

    def test(delta: Delta[Any]) -> bool:
        match delta:
            case Added(obj):
                return bool(holding(finalizers, obj.metadata))
            case Updated(old, new):
                before, now = old.metadata, new.metadata
                if not holding(finalizers, now):
                    return False
                return (
                    not before.deleting or before.labels != now.labels or before.finalizers != now.finalizers
                )
        return False

    return Predicate(test, "held")


def finalized(finalizers: Sequence[Finalizer[Any]], inner: ReconcileFn) -> ReconcileFn:
    """The reconciler behind its finalizers."""

    async def run(ctx: Context, obj: KubeObject | None) -> Result | None:
        if obj is None:
            return await inner(ctx, None)
        if obj.metadata.deleting:
            return await _finalize(ctx, obj, finalizers)
        missing = [each.key for each in finalizers if each.key not in obj.metadata.finalizers]
        if missing:
            contests, lacks = run_of(ctx).contests, {"metadata": {"finalizers": missing}}
            repair = await contests.check(ctx.client, obj, lacks, by=(ctx.key, "finalizers"))
            try:
                obj = await _patched(ctx, obj, adding(obj.metadata, missing))
            except NotFound:
                return None  # the cache will show it soon
            contests.wrote(repair)
        return await inner(ctx, obj)

    return run


async def _finalize(ctx: Context, obj: KubeObject, finalizers: Sequence[Finalizer[Any]]) -> Result | None:
    for finalizer in finalizers:
        if finalizer.key not in obj.metadata.finalizers:
            continue
        waited = deletion_age(obj.metadata, ctx.clock.wall())
        run_of(ctx).unfinished = f"finalizer {finalizer.key}, {spoken(waited)} after the deletion"
        try:
            result = await finalizer.cleanup(ctx, obj)
            if (slip := slip_of(run_of(ctx), result, "the cleanup")) is not None:
                raise slip
        except STALE:
            raise
        except Exception as error:
            _warn(ctx, obj, error_line(error))
            raise
        if result is not None:
            if waited < STUCK:
                after = result.requeue_after or STUCK
                return Result(requeue_after=min(after, STUCK))
            _warn(ctx, obj, "not cleaned up yet" if result.requeue_after else _NOT_DONE)
            return result if result.requeue_after else Result(requeue_after=STUCK)
        try:
            obj = await _patched(ctx, obj, removing(obj.metadata, (finalizer.key,)))
        except NotFound:
            return None  # somebody removed it, and it was the last finalizer
        finally:
            run_of(ctx).unfinished = ""
        ctx.log.info("Finalized", finalizer=finalizer.key)
    return None


def refuse_cleanup(ctx: Context, obj: KubeObject, key: str, why: UndecodableObject) -> None:
    """Says on an object that does not fit its class that its cleanup cannot be called, and what helps."""
    waited = deletion_age(obj.metadata, ctx.clock.wall())
    run_of(ctx).unfinished = f"finalizer {key}, {spoken(waited)} after the deletion"
    helps = f"correct it, or see `kubeshard release-finalizers --finalizer {key}`"
    message = for_people(f"{run_of(ctx).unfinished}: {why}", 1024 - 3 - len(helps))
    about = reference(ctx.form.kind, obj.metadata)
    ctx.event(about, "Warning", "CleanupPending", f"{message}; {helps}", action="Finalize")


async def _patched(ctx: Context, obj: KubeObject, patch: JsonPatch) -> KubeObject:
    """Raises Conflict if a test of the patch fails."""
    meta = obj.metadata
    try:
        patched: KubeObject = await ctx.client.patch(ctx.form, meta.name, meta.namespace or None, patch)
    except PatchTestFailed as error:
        raise Conflict(f"the finalizers of {ctx.form.kind} {ctx.key} changed since they were read") from error
    return patched


def _warn(ctx: Context, obj: KubeObject, why: str) -> None:
    ctx.event(obj, "Warning", "CleanupPending", f"{run_of(ctx).unfinished}: {why}", action="Finalize")
