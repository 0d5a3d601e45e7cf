"""A simulated world: virtual time, seeded randomness, one thread, and the connections that a test provides.

    @virtual_time
    async def test_a_client_backs_off() -> None:
        world = virtual_world(seed=7, connect=lambda *_, **__: transport)
        client = Client(ClusterConfig("http://sim"), world=world)

Guaranteed: two runs of a test draw the same numbers and names. Not guaranteed: anything about blocking calls, which run
in real threads here as well. Create worlds inside the running loop.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from kubeshard.runtime.alarm import SleepAlarm
from kubeshard.runtime.blocking_calls import Threads
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.loop_thread import SameLoop
from kubeshard.runtime.pod import Pod
from kubeshard.runtime.tls import Tls
from kubeshard.runtime.transport import Transport
from kubeshard.runtime.watchdog import NoWatchdog
from kubeshard.runtime.world import Connect, World
from kubeshard_lab.virtual_time import VirtualClock

__all__ = ["SeededRng", "VirtualHost", "VirtualLoopWatch", "virtual_world"]


class SeededRng:
    """A reproducible `Rng`."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - repeatable, not secret

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)

    def token(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))


@dataclass(frozen=True, slots=True)
class VirtualHost:
    hostname: str = "virtual"
    in_pod: Pod | None = None
    in_namespace: str | None = None
    boot: str = "boot"
    named: str = ""
    ended: Callable[[str], bool] = lambda process: False

    def name(self) -> str:
        return self.hostname

    def pod(self) -> Pod | None:
        return self.in_pod

    def pod_namespace(self) -> str | None:
        return self.in_namespace

    def boot_id(self) -> str:
        return self.boot

    def process(self) -> str:
        return self.named

    def has_ended(self, process: str) -> bool:
        return self.ended(process)


class VirtualLoopWatch:
    """A loop on virtual time is as late as a simulation says."""

    def __init__(self, blocked: Callable[[str], None]) -> None:
        self.limit = self.late = 0.0

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def lag(self) -> float:
        return self.late

    def longest_lag(self) -> float:
        return self.late


def virtual_world(
    *, clock: Clock | None = None, seed: int = 1, connect: Connect | None = None, hostname: str = "virtual"
) -> World:
    """`clock` is the running loop's; without `connect`, no server. Change it by `dataclasses.replace`."""
    return World(
        clock=clock or VirtualClock(),
        alarm=SleepAlarm,
        rng=SeededRng(seed),
        connect=connect or _nowhere,
        thread=lambda name: SameLoop(),
        loop_watch=VirtualLoopWatch,
        threads=Threads,
        watchdog=NoWatchdog,
        host=VirtualHost(hostname),
    )


def _nowhere(server: str, tls: Tls, /, *, proxy: str | None = None) -> Transport:
    raise ValueError(f"this world has no connection to {server}")
