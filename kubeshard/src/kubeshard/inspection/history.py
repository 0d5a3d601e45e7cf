"""What happened in a ring while somebody looked: who joined and left, and how many objects moved; sans I/O.

Guaranteed: memory is bounded. Not guaranteed: what happens and ends between two pictures.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import msgspec

from kubeshard.inspection.stats import RingSnapshot, ShardRow

KEPT = 200
TOGETHER = 5.0
"""Moves that follow each other within so many seconds are one happening."""


class Happening(msgspec.Struct):
    at: float
    """Seconds since the epoch."""
    what: str
    moves: int = 0
    """How many objects moved; 0 if it is about a shard."""


class History:
    """See the module. The first complete snapshot is what later ones are compared with."""

    def __init__(self) -> None:
        self._kept: deque[Happening] = deque(maxlen=KEPT)
        self._rows: dict[str, ShardRow] | None = None
        self._moves = 0

    def see(self, snapshot: RingSnapshot, wall: float) -> None:
        """Compares the snapshot with the one before. One that is incomplete is left out."""
        if snapshot.unread:
            return
        rows = {row.shard: row for row in snapshot.rows}
        if self._rows is not None:
            for what in _changes(self._rows, rows):
                self._kept.append(Happening(wall, what))
            if moved := max(0, snapshot.moves - self._moves):
                self._moved(moved, wall)
        self._rows, self._moves = rows, snapshot.moves

    def latest(self, count: int) -> list[Happening]:
        """The latest first."""
        return [self._kept[-number] for number in range(1, min(count, len(self._kept)) + 1)]

    def _moved(self, moved: int, wall: float) -> None:
        last = self._kept[-1] if self._kept else None
        if last is not None and last.moves and wall - last.at <= TOGETHER:
            last.moves += moved
            last.at = wall
        else:
            last = Happening(wall, "", moved)
            self._kept.append(last)
        last.what = f"{last.moves} object{'s' if last.moves > 1 else ''} moved"


def _changes(before: dict[str, ShardRow], now: dict[str, ShardRow]) -> Iterator[str]:
    for name, row in now.items():
        old = before.get(name)
        if row.live and not (old and old.live):
            yield f"{name} joined"
        elif old and old.live and not row.live:
            yield f"{name} left: its Lease is {row.state or 'not its own'}"
        elif old and old.state and row.state != old.state:
            yield f"{name} is {row.state}"
    for name in before.keys() - now.keys():
        yield f"{name} is gone"
