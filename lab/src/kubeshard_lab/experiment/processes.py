"""The processes of an experiment on this machine: started, watched, restarted as a kubelet would, and counted.

Guaranteed: none outlives this process (`kubeshard_apiserver.testing.child`); one that ends by itself is recorded, and
started again under its name with the back-off of a kubelet.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import psutil

from kubeshard.runtime.clock import Clock
from kubeshard_apiserver.testing.child import Child
from kubeshard_lab.experiment.recording import Event, Usage
from kubeshard_lab.experiment.setups import Launch, Watched

GRACE = 30.0
"""Seconds from SIGTERM to SIGKILL, as for a pod."""


FIRST = 10.0
LONGEST = 300.0
FORGIVEN_AFTER = 600.0


class Started(Protocol):
    """A program that was started: a `Child`, or what stands for one in a simulation."""

    @property
    def pid(self) -> int: ...

    @property
    def exit_code(self) -> int | None:
        """None while it runs, negative if a signal ended it."""
        ...

    @property
    def running(self) -> bool: ...

    def signal(self, number: int) -> None: ...

    def kill(self) -> None: ...

    def tail(self, lines: int = 20) -> str: ...


class _Running:
    def __init__(self, launch: Launch, child: Started, since: float) -> None:
        self.launch = launch
        self.child = child
        self.since = since
        self.back_off = BackOff()
        self.start_at: float | None = None
        """When to start it again."""
        self.stop_by: float | None = None
        """When to kill it; None: it is to run."""


class Processes:
    """`record` takes what happens. Call `tick` several times a second."""

    def __init__(
        self, folder: Path, environment: Mapping[str, str], clock: Clock, record: Callable[[Event], None]
    ) -> None:
        self._folder = folder
        # Like an installed program, it must not compile its modules at every start.
        self._environment = {
            name: value for name, value in environment.items() if name != "PYTHONDONTWRITEBYTECODE"
        }
        self._clock = clock
        self._record = record
        self._running: dict[str, _Running] = {}
        self._watched: list[Watched] = []
        self._known: dict[int, psutil.Process] = {}
        self.ended: list[str] = []
        """A sentence for each process that ended by itself."""
        self.ends = Counter[str]()
        self.restarts = 0
        folder.mkdir(parents=True, exist_ok=True)
        self._watched.append(Watched("experiment", "tool", os.getpid()))

    def start(self, launch: Launch, kind: str = "started") -> Started:
        child = self._child(launch)
        self._running[launch.name] = _Running(launch, child, self._clock.monotonic())
        self._happened(kind, launch.name, "")
        return child

    def watch(self, watched: Watched) -> None:
        self._watched.append(watched)

    def stop(self, name: str, kind: str = "stopped", detail: str = "") -> None:
        """Asks it to end, and returns at once; it is killed after `GRACE`."""
        running = self._running[name]
        if running.stop_by is None:
            running.stop_by = self._clock.monotonic() + GRACE
            self._happened(kind, name, detail)
            running.child.signal(signal.SIGTERM)

    def crash(self, name: str, detail: str = "") -> None:
        """Kills it; it is not started again."""
        running = self._running[name]
        running.stop_by = self._clock.monotonic()  # so it is to end
        self._happened("crashed", name, detail)
        running.child.signal(signal.SIGKILL)

    def runs(self, name: str) -> bool:
        running = self._running.get(name)
        return running is not None and running.child.running

    def launches(self, role: str) -> Sequence[Launch]:
        return [
            each.launch
            for each in self._running.values()
            if each.launch.role == role and each.stop_by is None
        ]

    def tail(self, name: str) -> str:
        return self._running[name].child.tail(5) if name in self._running else ""

    def tick(self) -> None:
        now = self._clock.monotonic()
        for name, running in list(self._running.items()):
            if running.child.running:
                if running.stop_by is not None and now >= running.stop_by:
                    running.child.signal(signal.SIGKILL)
            elif running.stop_by is not None:
                del self._running[name]
            elif running.start_at is None:
                self._ended(running, now)
            elif now >= running.start_at:
                running.child, running.since, running.start_at = self._child(running.launch), now, None
                self.restarts += 1
                self._happened("restarted", name, "")

    def usage(self) -> Sequence[Usage]:
        time = self._clock.wall()
        found = []
        alive = [
            *self._watched,
            *(Watched(name, each.launch.role, each.child.pid) for name, each in self._running.items()),
        ]
        for name, role, pid in alive:
            try:
                process = self._known.get(pid)
                if process is None:
                    process = self._known[pid] = psutil.Process(pid)
                with process.oneshot():
                    cpu, switches = process.cpu_times(), process.num_ctx_switches()
                    resident = process.memory_info().rss
            except psutil.Error:
                continue
            found.append(
                Usage(
                    time,
                    name,
                    role,
                    cpu.user + cpu.system,
                    resident,
                    switches.voluntary,
                    switches.involuntary,
                )
            )
        return found

    def kill_all(self) -> None:
        for running in self._running.values():
            running.child.kill()
        self._running.clear()

    def _child(self, launch: Launch) -> Started:
        return Child(
            launch.name,
            launch.command,
            self._folder / f"{launch.name}.log",
            {**self._environment, **launch.environment},
        )

    def _ended(self, running: _Running, now: float) -> None:
        code = running.child.exit_code
        how = f"exit code {code}" if code is None or code >= 0 else signal.Signals(-code).name
        last = running.child.tail(1).strip()
        name = running.launch.name
        self.ends[name] += 1
        self.ended.append(f"{name}, {how}{f': {last}' if last else ''}")
        self._happened("ended", name, how)
        pause = running.back_off.pause(now - running.since)
        running.start_at = now + pause if running.launch.restart else float("inf")

    def _happened(self, kind: str, name: str, detail: str) -> None:
        self._record(Event(self._clock.wall(), kind, name, detail))


class BackOff:
    """When a container that ended is started again: at once the first time, then after 10 s, and after twice as long
    each time, at most five minutes; from the beginning again once it has run for ten minutes. Sans I/O.
    """

    def __init__(self) -> None:
        self._next = 0.0

    def pause(self, ran: float) -> float:
        """Seconds to wait before the next start; it `ran` this long."""
        if ran >= FORGIVEN_AFTER:
            self._next = 0.0
        pause = self._next
        self._next = min(max(FIRST, 2 * pause), LONGEST)
        return pause
