"""Everything a program takes from outside, as one value: the clock, randomness, connections, threads, its host.

Who makes the outermost object (a Manager, a Client, an API server) may leave the world out and gets the real one.
Nothing below has a default: a default is a way past the simulation. How the world comes down:

- It travels with the client. What is given a client lives in `client.world`, and so does all that it makes.
- What has no client and listens, starts threads, or makes several parts, is given the world.
- A leaf is given the one or two fields that it reads, under their names: a queue its `clock`, a list/watch its `clock`
  and `rng`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from kubeshard.runtime import environ, pod
from kubeshard.runtime.clock import Clock, SystemClock
from kubeshard.runtime.http import HttpTransport
from kubeshard.runtime.rng import Rng, SystemRng
from kubeshard.runtime.thread import LoopRunner, LoopThread
from kubeshard.runtime.threads import CallRunner, Threads
from kubeshard.runtime.tls import Tls
from kubeshard.runtime.transport import Transport
from kubeshard.runtime.watchdog import Watchdog, default_watchdog

__all__ = ["REAL_WORLD", "World"]


class Connect(Protocol):
    """How a server is reached."""

    def __call__(self, server: str, tls: Tls, /, *, proxy: str | None = None) -> Transport:
        """Connections to the server of that URL. Raises ValueError for TLS settings that cannot work."""
        ...


class Host(Protocol):
    """Who this process is to others."""

    def name(self) -> str: ...

    def pod(self) -> pod.Pod | None:
        """None outside of a cluster."""
        ...

    def pod_namespace(self) -> str | None:
        """None outside of a cluster."""
        ...

    def boot_id(self) -> str:
        """Changes when the machine boots; "" where that cannot be known."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What differs between a process on a machine and the same program in a simulation."""

    clock: Clock
    rng: Rng
    connect: Connect
    thread: Callable[[str], LoopRunner]
    """Where what a blocked event loop must not delay runs, in a thread of that name."""
    threads: Callable[[str, int], CallRunner]
    """Where calls run that would block the event loop: at most so many at once, in threads of that name."""
    watchdog: Callable[[], Watchdog]
    """A fresh watchdog of this process. Raises NoSignals where it would do nothing."""
    host: Host


_CLOCK = SystemClock()

REAL_WORLD = World(
    clock=_CLOCK,
    rng=SystemRng(),
    connect=HttpTransport,
    thread=LoopThread,
    threads=Threads,
    watchdog=lambda: default_watchdog(_CLOCK),
    host=SystemHost(),
)
