"""The oracles of a simulation: what they notice, and what those of rings and those of an author's operator share."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from kubeshard.core.kinds import GroupResource
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard_apiserver.history import Event
from kubeshard_apiserver.store import Store
from kubeshard_lab.simulation.cluster import SimulatedCluster
from kubeshard_lab.simulation.deliveries import LEASES
from kubeshard_lab.simulation.history import Entry
from kubeshard_lab.simulation.processes import Process
from kubeshard_lab.simulation.properties import CRASH, OVERLAP, Property


class Violation(NamedTuple):
    """What an oracle noticed. `about`: the name of the object. `authors`: the oracle is an invariant of the author."""

    at: float
    oracle: str
    what: str
    about: str = ""
    authors: bool = False

    def __str__(self) -> str:
        return f"{self.at:.2f} {self.title}"

    @property
    def title(self) -> str:
        return f"{self.oracle}: {self.what}"


@dataclass
class SimulationResult:
    violations: list[Violation] = field(default_factory=list)
    """In the order in which they were noticed."""
    counts: Counter[str] = field(default_factory=Counter)
    owned_after: float = 0.0
    history: list[Entry] = field(default_factory=list)

    def noticed(self, at: float, oracle: str, what: str, about: str = "", *, authors: bool = False) -> None:
        named = re.search(r"\bt\d+\b", what)
        about = about or (named.group() if named else "")
        self.violations.append(Violation(round(at, 6), oracle, what, about, authors))

    @property
    def breaks(self) -> list[str]:
        return [str(each) for each in self.violations]

    @property
    def broken(self) -> Counter[str]:
        return Counter(each.oracle for each in self.violations)

    @property
    def main(self) -> Violation:
        """The violation that is shrunk and told: the first of an invariant of the author, or else the first of all."""
        return next((each for each in self.violations if each.authors), self.violations[0])


class Job(NamedTuple):
    """Work on an object (one UID), for all controllers or one (`of` is its name): one process at a time."""

    of: str
    uid: str


Sender = tuple[Process, HttpRequest] | None
"""Who wrote what is stored; None for a user."""


class Oracles:
    """Judges `properties` of a world. `alarm` is set when the oracle `until` notices something."""

    properties: tuple[Property, ...] = (OVERLAP, CRASH)

    def __init__(self, world: SimulatedCluster, result: SimulationResult, until: str = "") -> None:
        self._world = world
        self._result = result
        self._until = until
        self.alarm = asyncio.Event()
        self._at_work: dict[Job, list[str]] = defaultdict(list)
        """Which processes do each job; those of which several reconciles do it, several times."""
        world.leaving.append(self._leaving)
        world.observers.append(self._observed)
        world.deaths.append(self._died)
        for server in dict.fromkeys((world.server, world.home, *world.others.values())):
            server.store.subscribe(partial(self._changed, server.store))

    def broken(self, oracle: Property, what: str, about: str = "", *, invariant: str = "") -> None:
        """Called when a property does not hold. `invariant`: the name of the author's. For `about` see `Violation`."""
        assert oracle.name in [each.name for each in self.properties], f"{oracle.name} is not judged here"
        name = f"{oracle.name}: {invariant}" if invariant else oracle.name
        self._result.noticed(self._now, name, what, about, authors=bool(invariant))
        if name == self._until:
            self.alarm.set()

    def restored(self) -> None:
        """Called when etcd has just been restored."""

    def replaced(self, name: str, before: str, *, seen: bool, unheard: bool = False) -> None:
        """A user has replaced an object of `before` by one without labels. `seen`: by a webhook; `unheard`: which has
        not heard of the ring.
        """

    def expects(self, error: BaseException | None) -> bool:
        """Whether it is no crash that this was logged with its traceback."""
        return False

    def is_at_work(self, process: str) -> bool:
        """Whether a reconcile of the process has begun and not ended."""
        return any(process in at_work for at_work in self._at_work.values())

    # -- what is seen

    def _leaving(self, process: Process, request: HttpRequest) -> None:
        """Called when a request leaves a process."""

    def _observed(self, process: Process, request: HttpRequest, answer: HttpResponse | None) -> None:
        """Called when a request reaches the server (None), and with its answer."""

    def _stored(self, resource: GroupResource, event: Event, sender: Sender) -> None:
        """Called when something was stored."""

    def _changed(self, store: Store, resource: GroupResource) -> None:
        delivery = self._world.delivery
        for which, event in delivery.changes(store, resource):
            forgotten = delivery.unremembered and which != LEASES
            self._stored(which, event, None if forgotten else self._world.sender.get())

    def _died(self, process: Process) -> None:
        if process.dead.startswith("ended") and "RightLost" not in process.dead:
            self.broken(CRASH, f"{process.name} {process.dead}")

    # -- who is at work

    def _at_work_with(self, process: str, job: Job) -> list[str]:
        """The other processes that may not be."""
        return [each for each in self._at_work[job] if each != process and not self._dead(each)]

    def _dead(self, process: str) -> bool:
        return bool(self._world.processes[process].dead)

    def _judge_overlap(self, process: str, job: Job, name: str, about: str = "") -> None:
        if others := list(dict.fromkeys(self._at_work_with(process, job))):
            works = "works" if len(others) == 1 else "work"
            self.broken(
                OVERLAP, f"{process} begins with {name}, on which {' and '.join(others)} {works}", about
            )

    @property
    def _now(self) -> float:
        return self._world.loop.time()


class Crashes(logging.Handler):
    def __init__(self, oracles: Oracles) -> None:
        super().__init__(logging.ERROR)
        self._oracles = oracles

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and not self._oracles.expects(record.exc_info[1]):
            self._oracles.broken(CRASH, f"{record.getMessage()}: {record.exc_info[1]!r}")


def labels_of(obj: Any) -> dict[str, str]:
    """None has none."""
    return {} if obj is None else obj["metadata"].get("labels") or {}
