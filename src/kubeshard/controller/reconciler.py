"""The contract between a controller and the code that its author writes: what a reconciler is asked for, and what it
may answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from inspect import iscoroutinefunction, isfunction, ismethod, signature, unwrap
from typing import Any, Generic, Protocol, TypeVar

from kubeshard.controller.context import Context
from kubeshard.core.objects import Key, KubeObject

T = TypeVar("T", bound=KubeObject)
T_contra = TypeVar("T_contra", bound=KubeObject, contravariant=True)


Request = Key
"""The unit of work: namespace and name of an object of the controller's primary kind. Never which event
brought it.
"""


@dataclass(frozen=True, slots=True)
class Result:
    """How a reconcile that did not fail ended. None and `Result()` mean: done, until something changes.

    `requeue_after`: done, but look again in so many seconds. It resets the key's backoff. Several requests
    for one key do not add up: the earliest counts, and an event in between does not cancel it.
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
    """Makes the world match one object. Subclass it, and implement `reconcile`.

    Guaranteed: one object is reconciled by one worker at a time; a change during a run leads to another run
    afterwards; the object is the newest that the cache has, and includes what earlier runs for this object
    wrote; each run has its own reconcile id in the logs and its own deadline
    (`Controller.reconcile_timeout`).

    Not guaranteed: one run per change (changes are collapsed), any order between objects, or that the object
    still is as given when something is written.

    How a run ends:

    | outcome | what happens next |
    |---|---|
    | None, `Result()` | nothing until the next trigger; the key's backoff starts anew |
    | `Result(requeue_after=s)` | another run in `s` seconds; the key's backoff starts anew |
    | `Conflict`, `NotOurs`, `AlreadyExists`, `CacheBehind` | stale reads: retried with backoff, quietly at first |
    | `Terminal` | an error line; nothing until the next trigger, and the key's backoff goes on |
    | any other exception, also the run's timeout and `FieldConflict` | an error line; retried with backoff |

    Cancellation means that the right to work has ended: do not catch it, or only to let go of something.

    Calls that block belong in `ctx.run_blocking`, or the whole reconcile in a `BlockingReconciler`.
    """

    async def reconcile(self, ctx: Context, obj: T_contra, /) -> Result | None:
        """Make the world match `obj`, which is shared and immutable."""
        ...

    async def gone(self, ctx: Context, key: Key, /) -> Result | None:
        """The object is not in the cache: deleted, or it left the cache's scope (with sharding: it is another
        shard's now).

        For forgetting what is kept in memory about it. Never the place to delete things in the cluster: that
        is what owner references and finalizers are for.
        """
        return None


class BlockingReconciler(Generic[T_contra]):
    """A reconciler whose methods block: each run has a thread, and a controller as many at once as workers.

    As `Reconciler`, but with plain functions. What is asynchronous in the context is done with `ctx.wait`; of the
    rest `log` and `event` may be used, but not `cache`, which belongs to the event loop's thread:

        def reconcile(self, ctx: Context, obj: Website) -> Result | None:
            ctx.wait(ctx.client.patch(...))

    A thread cannot be stopped: a run that is out of time, or has lost the right to work, goes on until its next
    `ctx.wait`, which raises CancelledError (let it pass). Until its thread has ended no other run of the object
    begins; it is reported as overdue, and costs the process its health as any run that does not end.
    """

    def reconcile(self, ctx: Context, obj: T_contra, /) -> Result | None:
        """Make the world match `obj`, which is shared and immutable."""
        raise NotImplementedError

    def gone(self, ctx: Context, key: Key, /) -> Result | None:
        """As `Reconciler.gone`."""
        return None


ReconcileFunction = Callable[[Context, T], Awaitable[Result | None]]
"""A reconciler without memory, as a plain `async def` function: what `Reconciler.reconcile` is. Of an object that is
gone it does not hear.
"""

ReconcileFn = Callable[[Context, Any], Awaitable[Result | None]]
"""One run: the context and the primary object, or None where it is gone."""

ReconcilerWrapper = Callable[[ReconcileFn], ReconcileFn]
"""Adds behaviour around every run of a controller: `wrapper(inner)` is called once, when the controller
starts.
"""


def is_plain(function: Callable[..., Any]) -> bool:
    """A `def` that is not an `async def`; what decorates an `async def` may be either."""
    function = unwrap(function)
    return (isfunction(function) or ismethod(function)) and not iscoroutinefunction(function)


def takes_two(function: Callable[..., Any]) -> bool:
    """Whether it can be called with two arguments by position; in doubt it can."""
    try:
        parameters = signature(function)
    except (TypeError, ValueError):  # some callables that are written in C do not tell
        return True
    try:
        parameters.bind(None, None)
    except TypeError:
        return False
    return True
