"""Has a shard work in the clusters that it owns, and in no others.

    for each cluster     its bucket is ours in a term     it is engaged in that term
                         it is not ours, or not in that term     it is released; and engaged again, if it is ours

What was engaged has been listed since: each engagement begins with empty caches, and lists are consistent. So a bucket
counts as listed in a term when nothing is engaged any more that was so in a former one.

Each cluster is dealt with in a task of its own, so one that does not let go, or cannot be engaged, holds up no other.

Guaranteed: a cluster that is ours and cannot be engaged is tried again, after pauses that double up to `LONGEST`
seconds. One that does not respond has been engaged all the same: its caches try, as those of any cluster.

A cluster that is silent (`controller.syncing`) for `PATIENCE` seconds may be so for this process only. So the Lease
says that it cannot be reached, and another shard gets it, if there is one that does not say so, too. This shard says so
for as long as it is silent, and for `FORGOTTEN` seconds once it has been handed over; twice as long each time, up to
`LONGEST_FORGOTTEN`, if it was silent again when it came back. So one that nobody reaches moves ever more rarely.

The Lease says which clusters the manager has, however many there are: they are what the coordinator divides evenly.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import NamedTuple, NoReturn

from kubeshard.core.errors import ConfigurationError
from kubeshard.manager.membership import SharedClusters
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.loop import set_within
from kubeshard.shard.range_ownership import RangeOwnership
from kubeshard.shard.shard_lease import HeldShardLease
from kubeshard.sharding.names import CLUSTERS_ANNOTATION, UNREACHABLE_ANNOTATION

FIRST, LONGEST = 1.0, 60.0
PATIENCE, LOOKED_AGAIN = 60.0, 10.0
FORGOTTEN, LONGEST_FORGOTTEN = 3600.0, 86_400.0

_log = get_logger("kubeshard.shard")


class _Unreachable(NamedTuple):
    """Until when it counts as such, and for how many seconds after it was silent last."""

    until: float
    seconds: float


class ClusterEngagement:
    """Of one process, while it holds its Lease."""

    def __init__(
        self, ring: str, clusters: SharedClusters, ownership: RangeOwnership, held: HeldShardLease
    ) -> None:
        self._ring = ring
        self._held = held
        self._clusters = clusters
        self._ownership = ownership
        self._engaged: dict[str, int] = {}
        """In which term each cluster was engaged."""
        self._settling: set[str] = set()
        """The clusters that have a task."""
        self._following = False
        self._silent: dict[str, float] = {}
        """Since when each cluster has been silent that this shard owns, or has not been engaged."""
        self._unreachable: dict[str, _Unreachable] = {}
        """What the Lease says, and said before."""
        self._changed = asyncio.Event()
        """The manager has got or lost a cluster."""
        self._begun = asyncio.Event()
        """This shard owns clusters anew, or has engaged one."""
        clusters.listen(self._heard)
        self._heard()

    async def take_over(self, terms: Mapping[int, int], tasks: asyncio.TaskGroup) -> None:
        """The `TakeOver`. The terms are those that the ownership has confirmed."""
        self._adjust(tasks)
        if not self._following:
            self._following = True
            tasks.create_task(self._follow(tasks), name="clusters of the manager")
            tasks.create_task(self._look(), name="silent clusters")

    def _heard(self) -> None:
        """In a task of the manager's, for which nothing may fail here: the group may have ended by now."""
        self._held.says(CLUSTERS_ANNOTATION, self._ownership.buckets.stated(self._clusters.names))
        self._changed.set()

    async def _follow(self, tasks: asyncio.TaskGroup) -> NoReturn:
        while True:
            await self._changed.wait()
            self._changed.clear()
            self._adjust(tasks)

    async def _look(self) -> NoReturn:
        """When a cluster has been engaged, may have become silent, or need not be another shard's any more; every
        `LOOKED_AGAIN` seconds while one is silent.
        """
        said, wait = "", LOOKED_AGAIN
        while True:
            await set_within(self._begun, wait)
            self._begun.clear()
            now, names = asyncio.get_running_loop().time(), self._clusters.names
            heard = [math.inf]
            for name in names:
                if self._wanted(name) is None:
                    self._silent.pop(name, None)
                elif name in self._engaged and (left := self._clusters.silent_in(name)) > 0:
                    self._silent.pop(name, None)
                    self._unreachable.pop(name, None)
                    heard.append(left)
                elif now - self._silent.setdefault(name, now) >= PATIENCE:
                    self._give_up(name, now)
            self._silent = {name: since for name, since in self._silent.items() if name in names}
            self._unreachable = {name: each for name, each in self._unreachable.items() if name in names}
            given_up = {name: each.until for name, each in self._unreachable.items() if now < each.until}
            if said != (said := self._ownership.buckets.stated(given_up)):
                self._held.says(UNREACHABLE_ANNOTATION, said)
            ends = [until - now for until in given_up.values()]
            wait = LOOKED_AGAIN if self._silent else max(LOOKED_AGAIN, min(heard + ends))

    def _give_up(self, name: str, now: float) -> None:
        last = self._unreachable.get(name, _Unreachable(now, FORGOTTEN / 2))
        if now < last.until:
            self._unreachable[name] = _Unreachable(now + last.seconds, last.seconds)
            return
        seconds = min(2 * last.seconds, LONGEST_FORGOTTEN)
        self._unreachable[name] = _Unreachable(now + seconds, seconds)
        _log.warning(
            "Cannot reach a cluster that this shard owns; another shard gets it, unless none can",
            ring=self._ring,
            cluster=name,
        )

    def _adjust(self, tasks: asyncio.TaskGroup) -> None:
        for name in sorted({*self._clusters.names, *self._engaged} - self._settling):
            if self._engaged.get(name) != self._wanted(name):
                self._settling.add(name)
                self._begun.set()
                tasks.create_task(self._settle(name), name=f"cluster {name}")
        self._tell_listed()

    async def _settle(self, name: str) -> None:
        """Returns when the cluster is engaged in the term that it should be."""
        pause = FIRST
        try:
            while self._engaged.get(name) != (term := self._wanted(name)):
                if name in self._engaged:
                    await self._clusters.release(name)
                    del self._engaged[name]
                    _log.info("Released a cluster", ring=self._ring, cluster=name)
                    self._tell_listed()
                elif term is not None and not self._engage(name, term, pause):
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, LONGEST)
        finally:
            self._settling.discard(name)

    def _engage(self, name: str, term: int, pause: float) -> bool:
        try:
            self._clusters.engage(name)
        except ConfigurationError as error:
            _log.error(
                "Cannot connect to a cluster that this shard owns; trying again",
                ring=self._ring,
                cluster=name,
                seconds=pause,
                error=error,
            )
            return False
        self._engaged[name] = term
        self._begun.set()
        _log.info("Engaged a cluster", ring=self._ring, cluster=name)
        return True

    def _wanted(self, name: str) -> int | None:
        """The present term of the cluster; None if no read has confirmed that it is this shard's."""
        return self._ownership.confirmed.get(self._bucket(name)) if name in self._clusters.names else None

    def _tell_listed(self) -> None:
        terms = self._ownership.confirmed
        former = {
            bucket for name, term in self._engaged.items() if terms.get(bucket := self._bucket(name)) != term
        }
        self._ownership.listed({bucket: term for bucket, term in terms.items() if bucket not in former})

    def _bucket(self, name: str) -> int:
        return self._ownership.buckets.of_key(name)
