"""Functions that are called again and again for each object, as daemons: `timer` and `poll`.

    Controller(..., daemons=[
        timer(rotate, every=3600.0, initial_delay=60.0),
        poll(size_of_bucket, every=30.0),
    ])

Guaranteed, in addition to what `daemons` guarantees: calls for one object never overlap. After calls that raise, the
next one comes later and later: the pause doubles from the second in a row on, up to `LONGEST_PAUSE`. When what they ask
is down, all objects fail in the same way: that is one line in the log, and another one when none fails any more.

Not guaranteed: exact times, or anything across restarts of the process, which begin anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from kubeshard.controller.context import Context, run_of
from kubeshard.controller.daemons import Daemon
from kubeshard.core.encoding import to_dict
from kubeshard.core.objects import Key, KubeObject
from kubeshard.runtime.loop import apart
from kubeshard.runtime.notices import Notices

T = TypeVar("T", bound=KubeObject)

CHANGED = "polled value changed"
"""Why a poll triggers a reconcile."""

LONGEST_PAUSE = 300.0
"""Seconds between two calls that fail, unless `every` is longer."""


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
    call = _repeated(function, every, max(initial_delay, idle), _Failing())
    return Daemon(call, restart_on=_substance) if idle else Daemon(call)


def poll(
    function: Callable[[Context, T], Awaitable[object]], *, every: float, initial_delay: float = 0.0
) -> Daemon[T]:
    """A daemon that asks something outside the cluster about each object: calls `function` every so many seconds, and
    triggers a reconcile of the object when it returns another value than last time. The reconcile reads what it needs
    itself: the value is only compared, so a digest or a version will do.

    An exception counts as a value: the reconcile is triggered when the calls begin to fail, so that it can say so on
    the object, and when they work again. The first value triggers nothing, because a reconcile has just begun. Raises
    ValueError.
    """
    _check(every, initial_delay)
    failing = _Failing()

    async def watch(ctx: Context, obj: T) -> None:
        known: list[object] = []

        async def look(ctx: Context, obj: T) -> None:
            try:
                value = await function(ctx, obj)
            except Exception as error:
                seen(ctx, type(error))
                raise
            seen(ctx, value)

        def seen(ctx: Context, value: object) -> None:
            if known and known[0] != value:
                run_of(ctx).trigger(CHANGED)
            known[:] = [value]

        look.__name__ = _name(function)
        await _repeated(look, every, initial_delay, failing)(ctx, obj)

    watch.__name__ = _name(function)
    return Daemon(watch)


class _Failing:
    """Which daemons of a timer fail, of all objects: they say so together."""

    def __init__(self) -> None:
        self._daemons: set[Key] = set()
        self._notices = Notices()

    def failed(self, ctx: Context, timer: str, error: Exception, pause: float) -> None:
        self._daemons.add(ctx.key)
        if self._notices.due(type(error).__name__):
            ctx.log.error(
                "Timer failed; calling it again, less and less often",
                timer=timer,
                seconds=pause,
                error=error,
            )

    def works(self, ctx: Context, timer: str) -> None:
        if self._daemons == {ctx.key}:
            ctx.log.info("Timer works again", timer=timer)
        self.ended(ctx)

    def ended(self, ctx: Context) -> None:
        self._daemons.discard(ctx.key)
        if not self._daemons:
            self._notices.clear()


def _repeated(
    function: Callable[[Context, T], Awaitable[None]], every: float, delay: float, failing: _Failing
) -> Callable[[Context, T], Awaitable[None]]:
    async def call(ctx: Context, obj: T) -> None:
        await asyncio.sleep(delay)
        failures, pause = 0, every
        try:
            while (now := await ctx.get(type(obj), ctx.key.name)) is not None:
                try:
                    await apart(function, ctx, now)
                except Exception as error:
                    failures += 1
                    pause = every if failures == 1 else min(2 * pause, max(LONGEST_PAUSE, every))
                    failing.failed(ctx, call.__name__, error, pause)
                else:
                    failures, pause = 0, every
                    failing.works(ctx, call.__name__)
                await asyncio.sleep(pause)
        finally:
            failing.ended(ctx)

    call.__name__ = _name(function)
    return call


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
