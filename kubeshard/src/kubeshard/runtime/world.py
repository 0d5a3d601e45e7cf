"""Everything a program takes from its environment, as one value: clock, randomness, connections, threads, host.

The outermost objects (a Manager, a Client, an API server) use the real world by default.
Nothing below them has a default, which would bypass a simulation. How the world is passed down:

- With the client. An object with a client uses `client.world`, and so does everything it creates.
- An object without a client that listens, starts threads, or creates several parts gets the world.
- A leaf gets the one or two fields that it uses, under their names: a queue its `clock`, a list/watch its `clock`
  and `rng`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from kubeshard.runtime import environ, pod, processes
from kubeshard.runtime.alarm import Alarm, default_alarm
from kubeshard.runtime.blocking_calls import CallRunner, Threads
from kubeshard.runtime.clock import Clock, SystemClock
from kubeshard.runtime.loop_thread import LoopRunner, LoopThread
from kubeshard.runtime.loop_watch import LoopWatch, LoopWatchThread
from kubeshard.runtime.rng import Rng, SystemRng
from kubeshard.runtime.tls import Tls
from kubeshard.runtime.transport import Transport
from kubeshard.runtime.watchdog import Watchdog, default_watchdog

__all__ = ["REAL_WORLD", "World"]


class Connect(Protocol):
    def __call__(self, server: str, tls: Tls, /, *, proxy: str | None = None) -> Transport:
        """Connections to the server of that URL. Raises ValueError for TLS settings that cannot work."""
        ...


class Host(Protocol):
    """The identity of this process."""

    def name(self) -> str: ...

    def pod(self) -> pod.Pod | None:
        """None outside of a cluster."""
        ...

    def pod_namespace(self) -> str | None:
        """None outside of a cluster."""
        ...

    def boot_id(self) -> str:
        """Changes when the machine boots; "" if unknown."""
        ...

    def process(self) -> str:
        """The name of this process among all of its machine since that booted; "" if unknown."""
        ...

    def has_ended(self, process: str) -> bool:
        """Whether another process of this machine, of that name, has provably ended."""
        ...


class SystemHost:
    def name(self) -> str:
        return environ.hostname()

    def pod(self) -> pod.Pod | None:
        return pod.this_pod()

    def pod_namespace(self) -> str | None:
        return environ.pod_namespace()

    def boot_id(self) -> str:
        return pod.boot_id()

    def process(self) -> str:
        return processes.this_process()

    def has_ended(self, process: str) -> bool:
        return processes.has_ended(process)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The differences between a real process and the same program in a simulation."""

    clock: Clock
    alarm: Callable[[Clock, asyncio.Event], Alarm]
    """Makes an alarm for an event."""
    rng: Rng
    connect: Connect
    thread: Callable[[str], LoopRunner]
    """Runs work that a blocked event loop must not delay, in a thread of that name."""
    loop_watch: Callable[[Callable[[str], None]], LoopWatch]
    """Watches an event loop; called with what is to be called with the name of each task that blocks it."""
    threads: Callable[[str, int], CallRunner]
    """Runs calls that would block the event loop: at most so many at once, in threads of that name."""
    watchdog: Callable[[], Watchdog]
    """A new watchdog for this process. Raises NoSignals if it would have no effect."""
    host: Host


def _connect(server: str, tls: Tls, /, *, proxy: str | None = None) -> Transport:
    from kubeshard.runtime.http import HttpTransport  # libcurl: 6 MiB, until it connects

    return HttpTransport(server, tls, proxy=proxy)


_CLOCK = SystemClock()

REAL_WORLD = World(
    clock=_CLOCK,
    alarm=default_alarm,
    rng=SystemRng(),
    connect=_connect,
    thread=LoopThread,
    loop_watch=LoopWatchThread,
    threads=Threads,
    watchdog=lambda: default_watchdog(_CLOCK),
    host=SystemHost(),
)
