"""Daemons: background tasks, one for each object, that run as long as the object exists.

    async def listen(ctx: Context, sensor: Sensor) -> None:
        async for reading in readings_of(sensor.spec.address):
            await ctx.status(sensor, SensorStatus(reading=reading))

    Controller(name="sensor", reconciler=reconcile, primary=Sensor, daemons=[Daemon(listen)])

| what happens | the daemon |
|---|---|
| the object exists, at the start or later | starts with the object's first run, after finalizers were set |
| `restart_on` returns another value | is cancelled, and restarts with the current object |
| its function raises | restarts after a backoff of one second to one minute |
| its function returns | does not run again until `restart_on` returns another value or the process restarts |
| the object is being deleted, or gone | is cancelled, and has ended before a finalizer's cleanup or `gone` is called |
| the object is drained from this shard | is cancelled, and has ended before another shard gets it |
| the process stops, or loses its Lease | is cancelled, and has ended before the Lease is released |

Also guaranteed: one daemon per object and function at a time; its writes are fenced like those of a reconciler; a
daemon that fails, or that does not end, affects no other object. `ctx.get` in a daemon includes what the daemon itself
wrote.

Not guaranteed:

- that a daemon ends at once. One that swallows its cancellation keeps its object: the run that waits for it is
  reported as overdue, and no other shard gets the object meanwhile;
- any order between a daemon and `reconcile`, which run concurrently: if both write the same fields, leave them to
  `reconcile`;
- that a daemon is notified of changes: it calls `ctx.get`, or is restarted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from kubeshard.controller.context import Context, run_of, with_run
from kubeshard.controller.functions import is_plain, takes_two
from kubeshard.controller.in_flight import Activity
from kubeshard.controller.reconciler import ReconcileFn, Result
from kubeshard.controller.sources import Enqueue
from kubeshard.core.objects import Key, KubeObject
from kubeshard.runtime.backoff import Backoff, BackoffPolicy
from kubeshard.runtime.loop import apart

T = TypeVar("T", bound=KubeObject)

RESTARTS = BackoffPolicy(initial=1.0, factor=2.0, cap=60.0, jitter=0.2, reset_after=300.0)


def _nothing(_: object) -> object:
    return None


class AnyDaemon:
    """A `Daemon` for any kind."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Daemon(AnyDaemon, Generic[T]):
    """A task for each object of the controller's primary kind, for as long as the object exists.

    `function`: an `async def` function of a context and the object as it was when the task started. It is cancelled
    when the object is deleted, and may return earlier. `restart_on`: returns the part of the object whose changes
    restart the task, as in `lambda sensor: sensor.spec.address`. Raises TypeError.
    """

    function: Callable[[Context, T], Awaitable[None]]
    restart_on: Callable[[T], object] = _nothing

    def __post_init__(self) -> None:
        given: Any = self.function
        if not callable(given) or is_plain(given) or not takes_two(given):
            raise TypeError(f"Daemon({given!r}): give an `async def` function of (ctx, obj)")
        if not callable(self.restart_on):
            raise TypeError(
                f"{self.name}: restart_on is a function of the object, as in lambda obj: obj.spec"
            )

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", None) or repr(self.function)


class _Life:
    """A daemon of one object."""

    __slots__ = ("ctx", "of", "returned", "task")

    def __init__(self, of: object, ctx: Context) -> None:
        self.of = of
        self.ctx = ctx
        self.returned = False
        self.task: asyncio.Task[None]

    @property
    def over(self) -> bool:
        """Whether it ended without having been cancelled by us."""
        return self.task.done() and not self.returned


class Daemons:
    """The daemons of one controller. `ending` and `beginning` are wrappers around its reconciler, the first outside
    finalizers and the second inside; as a source it cancels the remaining daemons when the controller ends.
    """

    def __init__(self, controller: str, daemons: Sequence[Daemon[Any]]) -> None:
        self._controller = controller
        self._daemons = daemons
        self._lives: dict[Key, dict[Daemon[Any], _Life]] = {}
        self._enqueue: Enqueue | None = None

    async def run(self, enqueue: Enqueue) -> None:
        """Waits for the controller's end, then ends all daemons."""
        self._enqueue = enqueue
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await _ended([life for lives in self._lives.values() for life in lives.values()])

    def ending(self, inner: ReconcileFn) -> ReconcileFn:
        async def run(ctx: Context, obj: KubeObject | None) -> Result | None:
            if (obj is None or obj.metadata.deleting) and ctx.key in self._lives:
                await _ended(self._lives[ctx.key].values())
                del self._lives[ctx.key]
            return await inner(ctx, obj)

        return run if self._daemons else inner

    def beginning(self, inner: ReconcileFn) -> ReconcileFn:
        async def run(ctx: Context, obj: KubeObject | None) -> Result | None:
            if obj is not None and not obj.metadata.deleting:
                for daemon in self._daemons:
                    await self._keep(daemon, ctx, obj)
            return await inner(ctx, obj)

        return run if self._daemons else inner

    async def _keep(self, daemon: Daemon[Any], ctx: Context, obj: KubeObject) -> None:
        of = (obj.metadata.uid, daemon.restart_on(obj))
        lives = self._lives.setdefault(ctx.key, {})
        life = lives.get(daemon)
        if life is not None:
            run_of(life.ctx).prune()
            if life.of == of and not life.over:
                return
            await _ended([life])
        run = run_of(ctx).for_a_task()
        run.trigger = partial(self._trigger, ctx.key)
        lives[daemon] = self._begin(daemon, of, with_run(ctx, run), obj)

    def _trigger(self, key: Key, reason: str) -> None:
        if self._enqueue is not None:
            self._enqueue(key, reason)

    def _begin(self, daemon: Daemon[Any], of: object, ctx: Context, obj: KubeObject) -> _Life:
        life = _Life(of, ctx)
        name = f"{self._controller} daemon {daemon.name} {ctx.key}"
        life.task = asyncio.create_task(_live(daemon, life, obj), name=name)
        activities = run_of(ctx).activities
        activity = Activity(activities.in_flight, activities.owner, activities.object, stop=life.task.cancel)
        life.task.add_done_callback(lambda _: activity.end())
        return life


async def _live(daemon: Daemon[Any], life: _Life, obj: Any) -> None:
    ctx = life.ctx
    backoff = Backoff(RESTARTS, ctx.client.world.rng)
    first = True
    with run_of(ctx).entered():
        while True:
            try:
                if not first:
                    obj = await ctx.get(ctx.form, ctx.key.name)
                    if obj is None:
                        return  # the run that handles it is already triggered
                first = False
                await apart(daemon.function, ctx, obj)
            except Exception as error:
                seconds = backoff.failed(ctx.clock.monotonic())
                ctx.log.error(
                    "Daemon failed; restarting it", daemon=daemon.name, seconds=seconds, error=error
                )
            else:
                life.returned = True
                return
            await asyncio.sleep(seconds)


async def _ended(lives: Iterable[_Life]) -> None:
    """Cancels the daemons, and returns when they have ended."""
    tasks = [life.task for life in lives if not life.task.done()]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
