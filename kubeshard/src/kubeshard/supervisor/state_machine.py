"""When the supervisor starts, stops and kills its processes: a pure state machine.

| state | event | next state | command |
|---|---|---|---|
| | begin | STARTING | Start |
| STARTING | answers that it is alive | UP | |
| STARTING, UP | ends | WAITING | |
| STARTING, UP | ends with exit code 2, a user's mistake | ENDED; all others STOPPING | Stop the others |
| UP | has not answered that it is alive for `HUNG_AFTER` | STOPPING | Kill |
| WAITING | its time has come | STARTING | Start |
| STARTING, UP | stop | STOPPING | Stop |
| WAITING | stop | ENDED | |
| STOPPING | ends | ENDED; WAITING unless all stop | |
| STOPPING | a second stop | | Kill |

A process that ends is started again, whatever its exit code, as the kubelet does it with containers: after a second,
and after twice as long each time that it ends again within ten minutes, up to a minute; and up to half as long again.

Guaranteed: a process is started only after the one with its number has ended. A mistake of the user ends all: nothing
is gained by trying again. Not guaranteed: an end of a process that hangs while it stops, which limits that itself.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import NamedTuple

from kubeshard.runtime.backoff import Backoff, BackoffPolicy
from kubeshard.runtime.rng import Rng

HUNG_AFTER = 30.0
"""Seconds without a sign of life after which a process is killed, as the kubelet does it by default. Its watchdog is
usually faster.
"""

RESTARTS = BackoffPolicy(initial=1.0, factor=2.0, cap=60.0, jitter=0.5, reset_after=600.0)

IN_ORDER = (0, -signal.SIGTERM)
"""How a process ends that was asked to stop; the latter before it could do anything."""

MISTAKE = 2
"""The exit code of a program that refuses what it was told (`kubeshard.manager.program`)."""


class State(Enum):
    """Its value says it to people."""

    STARTING = "is starting"
    UP = "runs"
    STOPPING = "is stopping"
    WAITING = "has ended, and is about to be started again"
    ENDED = "has ended"


class Start(NamedTuple):
    number: int


class Stop(NamedTuple):
    """Asks the process to end in order."""

    number: int


class Kill(NamedTuple):
    number: int


Command = Start | Stop | Kill


class _Process:
    def __init__(self, number: int, rng: Rng) -> None:
        self.number = number
        self.state = State.STARTING
        self.ready = False
        self.alive = -math.inf
        """When it last answered that it is."""
        self.starts_at = math.inf
        self.backoff = Backoff(RESTARTS, rng)


class Supervision:
    """The state of so many processes, numbered from 0. Times are monotonic seconds."""

    def __init__(self, count: int, rng: Rng) -> None:
        self._processes = [_Process(number, rng) for number in range(count)]
        self._stopping = False
        self._code = 0

    def begin(self) -> list[Command]:
        return [Start(each.number) for each in self._processes]

    def answered(self, number: int, now: float, *, alive: bool, ready: bool) -> None:
        """What a process said, or did not say, when it was asked for its health."""
        process = self._processes[number]
        process.ready = ready
        if alive:
            process.alive = now
            if process.state is State.STARTING:
                process.state = State.UP

    def ended(self, number: int, code: int, now: float) -> Iterable[Command]:
        process = self._processes[number]
        process.ready = False
        if self._stopping:
            process.state = State.ENDED
            self._code = self._code or int(code not in IN_ORDER)
        elif code == MISTAKE:
            process.state = State.ENDED
            commands = list(self.stop())
            self._code = code
            return commands
        else:
            process.state = State.WAITING
            process.starts_at = now + process.backoff.failed(now)
        return ()

    def due(self, now: float) -> Iterator[Command]:
        for process in self._processes:
            if process.state is State.WAITING and process.starts_at <= now:
                process.state = State.STARTING
                yield Start(process.number)
            elif process.state is State.UP and process.alive + HUNG_AFTER <= now:
                process.state = State.STOPPING
                yield Kill(process.number)

    @property
    def wake_at(self) -> float:
        """When `due` has something to do."""
        times = {State.WAITING: lambda each: each.starts_at, State.UP: lambda each: each.alive + HUNG_AFTER}
        return min(
            (times[each.state](each) for each in self._processes if each.state in times), default=math.inf
        )

    def stop(self) -> Iterator[Command]:
        """Ends all: in order, and the second time at once."""
        again, self._stopping = self._stopping, True
        for process in self._processes:
            if process.state is State.WAITING:
                process.state = State.ENDED
            elif process.state is not State.ENDED:
                process.state = State.STOPPING
                yield Kill(process.number) if again else Stop(process.number)

    def runs(self, number: int) -> bool:
        return self._processes[number].state in (State.STARTING, State.UP)

    def is_up(self, number: int) -> bool:
        return self._processes[number].state is State.UP

    def starts_in(self, number: int, now: float) -> float | None:
        """The seconds until the process is started again, if it is."""
        process = self._processes[number]
        return process.starts_at - now if process.state is State.WAITING else None

    def unready(self, number: int) -> str | None:
        """Why the process is not ready, or None."""
        process = self._processes[number]
        if process.state is not State.UP:
            return f"process {number} {process.state.value}"
        return None if process.ready else f"process {number} is not ready"

    @property
    def exit_code(self) -> int | None:
        """Once all have ended: 0 if they did so in order, after having been asked to."""
        return self._code if all(each.state is State.ENDED for each in self._processes) else None
