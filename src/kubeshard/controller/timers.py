"""Functions that are called again and again for each object, as daemons: `timer` and `poll`.

    Controller(..., daemons=[
        timer(rotate, every=3600.0, initial_delay=60.0),
        poll(size_of_bucket, every=30.0),
    ])

Guaranteed, in addition to what `daemons` guarantees: calls for one object never overlap; a call that raises is logged,
and the next one comes after the usual interval. Not guaranteed: exact times, or anything across restarts of the
process, which begin anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from kubeshard.controller.context import Context, run_of
from kubeshard.controller.daemons import Daemon
from kubeshard.core.encoding import to_dict
from kubeshard.core.objects import KubeObject
from kubeshard.runtime.loop import apart

T = TypeVar("T", bound=KubeObject)

CHANGED = "polled value changed"
"""Why a poll triggers a reconcile."""


def timer(
    function: Callable[[Context, T], Awaitable[None]],
    *,
    every: float,
    initial_delay: float = 0.0,
    idle: float = 0.0,
) -> Daemon[T]:
    """A daemon that calls `function` with the current object every so many seconds, counted from the end of a call.

    `initial_delay`: seconds before the first call. `idle`: calls only once the object has not changed for so many
    seconds; what counts is its spec (`metadata.generation`) or, of kinds without a generation, everything but metadata
    and status. A change then starts the timer anew, with both delays. Context variables that a call sets end with it.
    Raises ValueError.
    """
    _check(every, initial_delay, idle)

    async def call(ctx: Context, obj: T) -> None:
        await asyncio.sleep(max(initial_delay, idle))
        while (now := await ctx.get(type(obj), ctx.key.name)) is not None:
            try:
                await apart(function, ctx, now)
            except Exception as error:
                ctx.log.error(
                    "Timer failed; calling it again", timer=_name(function), seconds=every, error=error
                )
            await asyncio.sleep(every)

    call.__name__ = _name(function)
    return Daemon(call, restart_on=_substance) if idle else Daemon(call)


def poll(
    function: Callable[[Context, T], Awaitable[object]], *, every: float, initial_delay: float = 0.0
) -> Daemon[T]:
    """A daemon that asks something outside the cluster about each object: calls `function` every so many seconds, and
    triggers a reconcile of the object when it returns another value than last time. The reconcile reads what it needs
    itself: the value is only compared, so a digest or a version will do.

    The first value triggers nothing, because a reconcile has just begun. Raises ValueError.
    """
    _check(every, initial_delay)

    async def watch(ctx: Context, obj: T) -> None:
        known: list[object] = []

        async def look(ctx: Context, obj: T) -> None:
            value = await function(ctx, obj)
            if known and known[0] != value:
                run_of(ctx).trigger(CHANGED)
            known[:] = [value]

        look.__name__ = _name(function)
        await timer(look, every=every, initial_delay=initial_delay).function(ctx, obj)

    watch.__name__ = _name(function)
    return Daemon(watch)


def _check(every: float, *delays: float) -> None:
    if every <= 0 or min(delays) < 0:
        raise ValueError(f"every={every} s must be positive, and no delay negative")


def _substance(obj: KubeObject) -> object:
    """What counts as a change for `idle`."""
    if obj.metadata.generation:
        return obj.metadata.generation
    body = to_dict(obj)
    return {name: value for name, value in body.items() if name not in ("metadata", "status")}


def _name(function: Callable[..., object]) -> str:
    return getattr(function, "__name__", None) or repr(function)
