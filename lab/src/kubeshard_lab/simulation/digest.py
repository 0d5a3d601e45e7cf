"""A digest of everything that happens in a run: the same seed gives the same digest in every process.

Two runs of a seed can differ only by what the code takes from somewhere else than its world: the order of a set (which
differs with PYTHONHASHSEED and with the addresses of what is in it), the moment of a garbage collection, the machine's
clock, randomness without a seed. So the digest is taken over every event in its order: each request with its time as it
reaches the API server, each answer, each piece of a watch as its reader gets it, each change that is stored, each line
that is logged, the beginning and the end of each reconcile and of each process, each fault.
"""

from __future__ import annotations

import hashlib
import logging
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, TextIO

from kubeshard.core.kinds import GroupResource
from kubeshard.runtime.logs import TextFormatter, heard_by
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard_apiserver.store import Store
from kubeshard_lab.simulation.cluster import SimulatedCluster
from kubeshard_lab.simulation.deliveries import stored_last
from kubeshard_lab.simulation.processes import Process


class Digest(NamedTuple):
    value: str
    events: int


class Recorder:
    """Computes the digest of a world. `copy`: where the events are also written. `former`: the recorder of another run
    in this process, which should be the same. `lines`: whether what is logged counts.
    """

    def __init__(
        self, copy: TextIO | None = None, former: Recorder | None = None, *, lines: bool = True
    ) -> None:
        self._logged = lines
        self._hash = hashlib.sha256()
        self._events = 0
        self._copy = copy
        self._lines = array("q")
        self._former = former
        self.difference = ""
        """The first event that the former run did not have, without what is in objects: it may be secret."""

    @property
    def digest(self) -> Digest:
        return Digest(self._hash.hexdigest(), self._events)

    @contextmanager
    def recording(self, world: SimulatedCluster) -> Iterator[None]:
        """Records what happens in the world from now until the end of the block."""
        self._world = world
        world.observers.append(self._exchanged)
        for store in world.stores:
            store.subscribe(partial(self._stored, store))
        world.hearers.append(self._heard)
        if not self._logged:
            yield
            return
        with heard_by(_Lines(self), logging.INFO):
            yield

    def record(self, what: str, shown: str = "") -> None:
        """`shown` tells what it is about, if `what` has bodies of objects."""
        line = f"{self._world.loop.time()!r} {what}\n"
        self._hash.update(line.encode())
        self._lines.append(hash(line))
        former = self._former
        if (
            former
            and not self.difference
            and former._lines[self._events : self._events + 1] != self._lines[-1:]
        ):
            self.difference = f"{self._world.loop.time():.2f} s: {shown or what}"
        self._events += 1
        if self._copy is not None:
            self._copy.write(line)

    def _exchanged(self, process: Process, request: HttpRequest, answer: HttpResponse | None) -> None:
        asked = f"{process.name} {request.method} {request.target}"
        if answer is None:
            headers = sorted(request.headers.items())
            self.record(f"{asked} {headers} {request.timeout} {request.body!r}", asked)
        else:
            told = f"{asked}: {answer.status}"
            self.record(f"{told} {sorted(answer.headers.items())} {answer.body!r}", told)

    def _heard(self, process: Process, request: HttpRequest, chunk: bytes) -> None:
        heard = f"{process.name} {request.method} {request.target} hears"
        self.record(f"{heard} {chunk!r}", f"{heard} a change")

    def _stored(self, store: Store, resource: GroupResource) -> None:
        event = stored_last(store, resource)
        told = f"stored {resource} {event.key}"
        self.record(f"{told}: {event.new}", told)


class _Lines(logging.Handler):
    """Log lines without their (real) time."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder
        self.setFormatter(TextFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            record = logging.makeLogRecord({**record.__dict__, "exc_info": None, "exc_text": None})
        self._recorder.record(self.format(record).partition(" ")[2])
