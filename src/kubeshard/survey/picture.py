"""A snapshot of a ring as a value: for a terminal, a web page, a pipe."""

from __future__ import annotations

import msgspec

LOOSE = ("expired", "uncertain")
"""States of a Lease that was not renewed in time, and not taken over."""


class ShardRow(msgspec.Struct, frozen=True, rename="camel"):
    """One shard, or a name in labels without a Lease (state `gone`)."""

    shard: str
    state: str
    """Of its Lease: as the sharder labelled it, `""` before it did."""
    live: bool
    """The shard holds its Lease."""
    objects: int
    """Of main resources."""
    followers: int
    """That they control."""
    draining: int
    draining_for: float = 0.0
    """Seconds since there was no drain on it."""
    arrived: int = 0
    left: int = 0
    """Objects that recently moved from and to other shards (`Tally.RECENT`)."""


class Picture(msgspec.Struct, frozen=True, rename="camel"):
    rows: tuple[ShardRow, ...]
    unassigned: int = 0
    stranded: int = 0
    """Objects labelled with a shard that does not hold its Lease."""
    misplaced: int = 0
    """Objects on a live shard other than the one that the hash ring names."""
    draining: int = 0
    total: int = 0
    moves: int = 0
    """Observed movements of objects from one shard to another."""
    drains: int = 0
    """Observed drain requests."""
    unread: tuple[str, ...] = ()
    """What is missing in the numbers, and why."""

    @property
    def settled(self) -> bool:
        """Whether every object is on the live shard that the hash ring names."""
        return not (self.unassigned or self.stranded or self.misplaced or self.draining or self.unread)

    @property
    def verdict(self) -> str:
        """The ring in one sentence."""
        if self.unread:
            return f"not everything is seen: {'; '.join(self.unread)}"
        if self.settled and any(row.live and row.state in LOOSE for row in self.rows):
            return "every object is where the Leases say, and a Lease is about to run out"
        if self.settled:
            return "every object is where it belongs"
        troubles = {
            "unassigned": self.unassigned,
            "on dead shards": self.stranded,
            "to be moved": self.misplaced,
            "draining": self.draining,
        }
        return ", ".join(f"{count} {what}" for what, count in troubles.items() if count)


def scale(view: Picture) -> int:
    """What a full bar stands for: a round number that no shard exceeds."""
    most = max((row.objects + row.followers for row in view.rows), default=0)
    size = 1
    while size < most:
        for factor in (2, 5, 10):
            if size * factor >= most:
                return size * factor
        size *= 10
    return size
