"""Records which shard had each object, and when none had it."""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import aclosing
from itertools import pairwise

from kubeshard import ALL, Client, metadata_only, watcher
from kubeshard.sharding.names import drain_label, shard_label
from kubeshard_lab.examples.webhosting.api import RING, Website


class Witness:
    """Watches Websites, with the clock of this process."""

    def __init__(self) -> None:
        self.owners: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
        """(since when, owner) by name of the object; the owner is "" while it has none."""
        self.drained: dict[str, float] = {}
        """When each object was last seen with the drain label."""
        self.synced = False

    async def run(self, client: Client) -> None:
        async with aclosing(watcher(client, metadata_only(Website), ALL)) as events:
            async for event in events:
                obj = getattr(event, "object", None)
                if obj is None:
                    self.synced = True
                    continue
                owner, seen = obj.metadata.label(shard_label(RING)), self.owners[obj.metadata.name]
                if obj.metadata.has_label(drain_label(RING)):
                    self.drained[obj.metadata.name] = time.monotonic()
                if not seen or seen[-1][1] != owner:
                    seen.append((time.monotonic(), owner))

    def unassigned(self, since: float) -> float:
        """Returns the longest time that an object was without a shard."""
        now, longest = time.monotonic(), 0.0
        for seen in self.owners.values():
            for (begun, owner), (ended, _) in zip(seen, [*seen[1:], (now, "")], strict=True):
                if not owner and ended > since:
                    longest = max(longest, ended - max(begun, since))
        return longest

    def moves(self, since: float) -> list[str]:
        """Returns the objects that moved from one shard to another."""
        moved = []
        for name, seen in self.owners.items():
            owned = [(at, owner) for at, owner in seen if owner]
            if any(at > since and owner != before for (_, before), (at, owner) in pairwise(owned)):
                moved.append(name)
        return moved

    def drains(self, since: float) -> list[str]:
        return [name for name, at in self.drained.items() if at > since]

    @property
    def all_owned(self) -> bool:
        return bool(self.owners) and all(seen[-1][1] for seen in self.owners.values())
