"""How long a user waited for each generation that they wrote; sans I/O.

A generation counts as ready when a status is first seen that says so of it or of a later one. In the second case it is
*backfilled*, once. The time is when the experiment's watch saw it. A generation whose object the load deletes first is
*gone*, and one that is neither by the end was never reconciled; both are recorded, without a time.

Guaranteed: each written generation is recorded exactly once, also if the watch sees the status before the answer to
the write has arrived. Not guaranteed: that a write without an answer is known here; it is among the requests.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kubeshard_lab.experiment.recording import Generation

RECENT = 30.0
"""Seconds of readiness that the screen's percentiles are of."""


class Written(NamedTuple):
    """A generation that a user wrote. Times are Unix times."""

    namespace: str
    name: str
    uid: str
    generation: int
    due: float
    sent: float
    answered: float


@dataclass(slots=True)
class _Known:
    pending: list[Written] = field(default_factory=list)
    newest: int = 0
    """The newest generation that was written."""
    early: list[tuple[int, float]] = field(default_factory=list)
    """Generations beyond the newest that are ready already, and since when."""
    shard: str = ""
    ready: bool = False


class Tracker:
    """`record` takes each generation that is decided."""

    def __init__(self, record: Callable[[Generation], None]) -> None:
        self._record = record
        self._known: dict[str, _Known] = {}
        self._recent: deque[tuple[float, float]] = deque()
        self.shards: Counter[str] = Counter()
        """The number of objects of each shard; `""` is none."""
        self.moves = 0
        """How often an object went from one shard to another."""
        self.unready = 0
        self.ready = 0
        self.never = 0
        self.ready_objects = 0
        """Objects of which some generation was ready."""

    def wrote(self, written: Written) -> None:
        """A write was answered. One that made no new generation is ignored."""
        known = self._know(written.uid)
        if written.generation <= known.newest:
            return
        known.newest = written.generation
        for generation, time in known.early:
            if generation >= written.generation:
                self._decided(written, time, backfilled=generation > written.generation)
                break
        else:
            known.pending.append(written)
            self.unready += 1
        known.early = [(generation, time) for generation, time in known.early if generation > known.newest]

    def saw(self, uid: str, generation: int, shard: str, time: float) -> None:
        """The watch saw an object. `generation` is the one that its status says is ready; 0 if none is."""
        known = self._know(uid)
        if shard != known.shard:
            self.shards[known.shard] -= 1
            self.shards[shard] += 1
            self.moves += bool(known.shard and shard)
            known.shard = shard
        if generation and not known.ready:
            known.ready = True
            self.ready_objects += 1
        if known.pending and generation >= known.pending[0].generation:
            done = [written for written in known.pending if written.generation <= generation]
            known.pending = known.pending[len(done) :]
            self.unready -= len(done)
            for written in done:
                self._decided(written, time, backfilled=written.generation < generation)
        if generation > known.newest and (not known.early or generation > known.early[-1][0]):
            known.early.append((generation, time))

    def removed(self, uid: str) -> None:
        """The object is gone, or the load has deleted it."""
        known = self._known.pop(uid, None)
        if known is None:
            return
        self.shards[known.shard] -= 1
        self.ready_objects -= known.ready
        self.unready -= len(known.pending)
        for written in known.pending:
            self._record(Generation(*written, ready=math.nan, backfilled=False, gone=True))

    def end(self) -> None:
        for known in self._known.values():
            for written in known.pending:
                self._record(Generation(*written, ready=math.nan, backfilled=False, gone=False))
                self.never += 1
        self.unready = 0
        self._known.clear()

    def waited(self, now: float) -> Sequence[float]:
        """How long users waited for the generations that became ready recently."""
        while self._recent and self._recent[0][0] < now - RECENT:
            self._recent.popleft()
        return [wait for _, wait in self._recent]

    def __len__(self) -> int:
        return len(self._known)

    def _know(self, uid: str) -> _Known:
        if uid not in self._known:
            self._known[uid] = _Known()
            self.shards[""] += 1
        return self._known[uid]

    def _decided(self, written: Written, time: float, *, backfilled: bool) -> None:
        self.ready += 1
        self._recent.append((time, time - written.due))
        self._record(Generation(*written, ready=time, backfilled=backfilled, gone=False))
