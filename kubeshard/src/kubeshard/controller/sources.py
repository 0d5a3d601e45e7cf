"""Triggers other than watches: events in memory, and time.

expiries = ChannelSource()
Controller(..., sources=[expiries, TimerSource(300, every_ring)])
expiries.trigger(Key("", "my-ring"), "lease expired")
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from kubeshard.core.objects import Key
from kubeshard.workqueue.order import NORMAL
from kubeshard.workqueue.reasons import Reason


class Enqueue(Protocol):
    """Adds a key to the controller's queue: now (`Controller.debounce` applies), or after some seconds. `reason` is a
    human-readable phrase or a `kubeshard.workqueue.Reason`. For `priority` see `kubeshard.workqueue.LOW`.
    """

    def __call__(
        self, key: Key, reason: Reason | str = "", *, after: float = 0.0, priority: int = NORMAL
    ) -> None: ...


class Source(Protocol):
    """Something that triggers reconciles on its own."""

    async def run(self, enqueue: Enqueue) -> None:
        """Calls `enqueue` until cancelled; runs while the controller runs. May return if there are no further
        triggers. An exception ends the process.
        """
        ...


class ChannelSource:
    """Triggers reconciles on request. Keys that are triggered before the controller runs are kept, each once. Use it in
    the event loop's thread only.
    """

    def __init__(self) -> None:
        self._early: dict[Key, str] = {}
        self._enqueue: Enqueue | None = None

    def trigger(self, key: Key, reason: str = "") -> None:
        if self._enqueue is None:
            self._early.setdefault(key, reason)
        else:
            self._enqueue(key, reason)

    async def run(self, enqueue: Enqueue) -> None:
        assert self._enqueue is None, "a channel source belongs to one controller"
        self._enqueue = enqueue
        try:
            for key, reason in self._early.items():
                enqueue(key, reason)
            self._early.clear()
            await asyncio.get_running_loop().create_future()
        finally:
            self._enqueue = None


class TimerSource:
    """Triggers the keys that `keys` returns every `interval` seconds, for the first time after one interval."""

    def __init__(self, interval: float, keys: Callable[[], Iterable[Key]], reason: str = "timer") -> None:
        if interval <= 0:
            raise ValueError(f"interval {interval} s must be positive")
        self._interval = interval
        self._keys = keys
        self._reason = reason

    async def run(self, enqueue: Enqueue) -> None:
        while True:
            await asyncio.sleep(self._interval)
            for key in self._keys():
                enqueue(key, self._reason)
