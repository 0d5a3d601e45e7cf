"""A snapshot of a ring as a value, for a terminal, a web page, or a pipe."""

from __future__ import annotations

import msgspec

LOOSE = ("expired", "uncertain")
"""States of a Lease that was not renewed in time and has not been taken over."""


class ShardRow(msgspec.Struct, frozen=True, rename="camel"):
    """One shard, or a name in labels without a Lease (state `gone`)."""

    shard: str
    state: str
    """The state of its Lease: the sharder's label, or `""` before there is one."""
    live: bool
    """Whether the shard holds its Lease."""
    objects: int
    """The number of its objects of main resources."""
    followers: int
    """The number of objects that these control."""
    draining: int
    draining_for: float = 0.0
    """How many seconds there have been drains on it."""
    arrived: int = 0
    left: int = 0
    """The number of objects that recently moved from and to other shards (`Tally.RECENT`)."""


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
    """What is missing from the numbers, and why."""

    @property
    def settled(self) -> bool:
        """Whether every object is on the live shard that the hash ring names."""
        return not (self.unassigned or self.stranded or self.misplaced or self.draining or self.unread)

    @property
    def verdict(self) -> str:
        """The ring in one sentence."""
        if self.unread:
            return f"the picture is incomplete: {'; '.join(self.unread)}"
        if self.settled and any(row.live and row.state in LOOSE for row in self.rows):
            return "every object is where it belongs, but a Lease is about to expire"
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
    """The number that a full bar stands for: a round number that no shard exceeds."""
    most = max((row.objects + row.followers for row in view.rows), default=0)
    size = 1
    while size < most:
        for factor in (2, 5, 10):
            if size * factor >= most:
                return size * factor
        size *= 10
    return size
