"""The contract between a controller and its author's code: what a reconciler gets, and what it may return."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import Any, Generic, Protocol, TypeVar

from kubeshard.controller.context import Context
from kubeshard.controller.functions import is_plain, takes_two
from kubeshard.controller.run import Run
from kubeshard.core.objects import Key, KubeObject

T = TypeVar("T", bound=KubeObject)
T_contra = TypeVar("T_contra", bound=KubeObject, contravariant=True)


Request = Key
"""The unit of work: namespace and name of an object of the controller's primary kind, without the event that
triggered it.
"""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a reconcile that did not fail. None and `Result()` mean that nothing is left to do until something
    changes.

    `requeue_after` means that the object is reconciled again after this many seconds. It resets the key's backoff.
    Several requests for one key do not add up: the earliest wins, and an event in between does not cancel it.
    """

    requeue_after: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.requeue_after, int | float | None):
            raise TypeError(f"requeue_after={self.requeue_after!r} is not a number of seconds")
        if self.requeue_after is not None and not self.requeue_after > 0:
            raise ValueError(
                f"requeue_after {self.requeue_after} s must be positive; None means not to requeue"
            )


class Reconciler(Protocol[T_contra]):
    """Makes the world match one object. Subclass it and implement `reconcile`.

    Guaranteed: one object is reconciled by one worker at a time; a change during a run leads to another run
    afterwards; the object is the newest that the cache has, and includes what earlier runs for this object
    wrote; each run has its own reconcile id in the logs and its own deadline
    (`Controller.reconcile_timeout`).

    Not guaranteed: one run per change (changes are coalesced), any order between objects, or that the object is
    unchanged when something is written.

    How a run ends:

    | outcome | what happens next |
    |---|---|
    | None, `Result()` | nothing until the next trigger; the key's backoff is reset |
    | `Result(requeue_after=s)` | another run in `s` seconds; the key's backoff is reset |
    | `Conflict`, `NotOurs`, `AlreadyExists`, `CacheBehind` | stale reads: retried with backoff, quietly at first |
    | `Terminal` | an error line; nothing until the next trigger, and the key's backoff is kept |
    | `Retry(after=s)` | an error line; another run in `s` seconds |
    | any other exception, including the run's timeout and `FieldConflict` | an error line; retried with backoff |

    Cancellation means that the right to act has ended: do not catch it, except to release something.

    Calls that block belong in `ctx.run_blocking`, or the whole reconcile in a `BlockingReconciler`.
    """

    async def reconcile(self, ctx: Context, obj: T_contra, /) -> Result | None:
        """Make the world match `obj`, which is shared and immutable."""
        ...

    async def gone(self, ctx: Context, key: Key, /) -> Result | None:
        """Called when the object is not in the cache: it was deleted, or it left the cache's scope (with sharding: it
        belongs to another shard now, perhaps with its cluster), or its cluster has been removed. Not called when the
        process ends or loses the right to act.

        Use it to drop what is kept in memory about the object, never to delete things in the cluster: that is what
        owner references and finalizers are for.
        """
        return None


class BlockingReconciler(Generic[T_contra]):
    """A reconciler whose methods block: each run has a thread, and a controller has as many threads as workers.

    Like `Reconciler`, but with plain functions. Call asynchronous methods of the context with `ctx.wait`; `log` and
    `event` may be used directly, but not `cache`, which belongs to the event loop's thread:

        def reconcile(self, ctx: Context, obj: Website) -> Result | None:
            ctx.wait(ctx.client.patch(...))

    A thread cannot be stopped: a run that has timed out, or lost the right to act, continues until its next
    `ctx.wait`, which raises CancelledError (do not catch it). Until its thread has ended no other run of the object
    starts; the run is reported as overdue, and makes the process unhealthy like any run that does not end.
    """

    def reconcile(self, ctx: Context, obj: T_contra, /) -> Result | None:
        """Make the world match `obj`, which is shared and immutable."""
        raise NotImplementedError

    def gone(self, ctx: Context, key: Key, /) -> Result | None:
        """See `Reconciler.gone`."""
        return None


ReconcileFunction = Callable[[Context, T], Awaitable[Result | None]]
"""A stateless reconciler as an `async def` function, like `Reconciler.reconcile`. It is not called for an object that
is gone.
"""

ReconcileFn = Callable[[Context, Any], Awaitable[Result | None]]
"""One run: the context and the primary object, or None if it is gone."""

ReconcilerWrapper = Callable[[ReconcileFn], ReconcileFn]
"""Adds behaviour around every run of a controller: `wrapper(inner)` is called once, when the controller
starts.
"""


RunFn = Callable[[Run, Any], Awaitable[Result | None]]
"""Like `ReconcileFn`, with all that the framework knows about the run."""

RunWrapper = Callable[[RunFn], RunFn]


async def no_run(result: Result | None) -> Result | None:
    """What a wrapper returns in place of a run that has nothing to do."""
    return result


def check_reconciler(whose: str, reconciler: Any) -> None:
    """Raises TypeError before the first run for mistakes because of which every run would fail or do nothing."""
    if isinstance(reconciler, type):
        raise TypeError(_no_reconciler(whose, reconciler))
    if all(callable(getattr(reconciler, method, None)) for method in ("reconcile", "gone")):
        _check_methods(whose, reconciler)
    elif callable(reconciler):
        _check_function(whose, reconciler)
    else:
        raise TypeError(_no_reconciler(whose, reconciler))


def _no_reconciler(whose: str, what: object) -> str:
    return (
        f"{whose}: {what!r} is not a reconciler: give an instance of a subclass of Reconciler, or an "
        "`async def` function of a context and an object"
    )


def _check_function(whose: str, function: Callable[..., Any]) -> None:
    what = f"{whose}: {getattr(function, '__qualname__', None) or repr(function)}"
    if not takes_two(function):
        raise TypeError(f"{what} takes other arguments than (ctx, obj)")
    if is_plain(function):
        raise TypeError(f"{what} is not an `async def`: make it one, or derive from BlockingReconciler")


def _check_methods(whose: str, reconciler: Any) -> None:
    what = f"{whose}: {type(reconciler).__name__}"
    if getattr(type(reconciler), "reconcile", None) in (Reconciler.reconcile, BlockingReconciler.reconcile):
        raise TypeError(f"{what} has no method `reconcile`")
    for name, arguments in (("reconcile", "ctx, obj"), ("gone", "ctx, key")):
        method = getattr(reconciler, name)
        if not takes_two(method):
            raise TypeError(f"{what}.{name} takes other arguments than ({arguments})")
        blocking = isinstance(reconciler, BlockingReconciler)
        if blocking and iscoroutinefunction(method):
            raise TypeError(
                f"{what}.{name} is `async def`: derive from Reconciler, or make it a plain function"
            )
        if not blocking and is_plain(method):
            raise TypeError(
                f"{what}.{name} is not an `async def`: make it one, or derive from BlockingReconciler"
            )
