"""What a shard must not believe of its cache around a hand-over of an object.

Two facts, both told by resourceVersions of the object itself, both process-wide or per controller as they
have to be:

- `Floors`: a copy older than version *v* is no evidence that the object is ours, because at *v* we were asked for
  it, or gave it away. So no controller of the process can begin a reconcile between the sight of a drain label and
  the next assignment, however far the cache it reads lags behind.
- `Arrivals`: since the object came to us at version *v* no run has succeeded that read live. Until one has, the
  cache may lack what the former owner just did.

Guaranteed: both never forget within the time in which a lagging cache can matter; a cache that lags longer
than `KEPT` belongs to a process that has lost its Lease.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from kubeshard.cache.deltas import Added, Deleted, Delta, Updated
from kubeshard.cache.informer import Informer
from kubeshard.core.clusters import HOME
from kubeshard.core.kinds import GroupKind
from kubeshard.core.objects import Key, KubeObject, ObjectMeta
from kubeshard.core.versions import at_least, newest
from kubeshard.runtime.clock import Clock

KEPT = 300.0
"""Seconds: well above the 90 s of silence after which a process is not fit to keep its Lease."""


class Floors:
    """Of each object lately asked for or given away: the oldest version that may be believed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._floors: OrderedDict[tuple[GroupKind, Key], tuple[str, float]] = OrderedDict()
        """Version and time of the last change, the oldest change first."""

    def lift(self, kind: GroupKind, key: Key, version: str) -> None:
        """Copies older than `version` count for nothing from now on."""
        now = self._clock.monotonic()
        floor, _ = self._floors.pop((kind, key), ("", now))
        self._floors[kind, key] = newest(floor, version), now
        while next(iter(self._floors.values()))[1] < now - KEPT:
            self._floors.popitem(last=False)

    def admit(self, kind: GroupKind, key: Key, version: str) -> bool:
        """Whether a copy of that version may be believed."""
        floor = self._floors.get((kind, key))
        return floor is None or at_least(version, floor[0])

    def lifted(self, kind: GroupKind, key: Key) -> float | None:
        """When the floor was last lifted (monotonic seconds); None if not lately."""
        floor = self._floors.get((kind, key))
        return None if floor is None else floor[1]

    def forget(self, kind: GroupKind, key: Key) -> None:
        """The version was undone: the API server was restored from a backup, and every cache was read anew since."""
        self._floors.pop((kind, key), None)

    def __len__(self) -> int:
        return len(self._floors)


class Arrivals:
    """Of one controller: the objects that came to this shard and were not yet reconciled with live reads.

    An object arrives when it enters a filtered cache. After the cache was read anew every object that changed
    meanwhile counts as arrived: it may have gone and come back unseen.
    """

    def __init__(self) -> None:
        self._versions: dict[Key, str] = {}
        self._first: dict[str, dict[str, KubeObject]] = {}
        """What was in the store at first, by namespace and name, and has not been looked at since."""

    def follow(self, informer: Informer[Any]) -> None:
        """Hears of everything that is or will be in the informer's store."""
        read_up_to: dict[str, tuple[int, str]] = {}
        """Of each namespace: which full read, and its version."""

        def unseen(metadata: ObjectMeta) -> bool:
            """Whether the version came with a full read, so that versions before it may be unknown here."""
            reads, limit = read_up_to.get(metadata.namespace, (0, ""))
            if reads != informer.full_reads:
                limit = informer.store.complete_up_to(metadata.namespace)
                read_up_to[metadata.namespace] = informer.full_reads, limit
            return at_least(limit, metadata.resource_version)

        def hear(delta: Delta[Any]) -> None:
            if self._first:
                self._look_at(delta.new.key if isinstance(delta, Updated) else delta.object.key)
            match delta:
                case Added(obj):
                    self._versions[obj.key] = obj.metadata.resource_version
                case Deleted(obj):
                    self._versions.pop(obj.key, None)
                case Updated(_, obj) if unseen(obj.metadata):
                    self._versions[obj.key] = obj.metadata.resource_version

        # All at once, since no run may begin before it is known what has arrived; so in a large store without a look
        # at each object, which would hold up everything else.
        informer.add_handler(hear, existing=False)
        first = informer.store.copy()
        for namespace, objects in self._first.items():
            first[namespace] = objects | first.get(namespace, {})
        self._first = first

    def pending(self, key: Key) -> str | None:
        """The version at which the object arrived, None when a run has read live since."""
        key = key.at(HOME)  # what is heard of an object does not name the cluster, which is one
        self._look_at(key)
        return self._versions.get(key)

    def settle(self, key: Key, version: str) -> None:
        """A run that read live has succeeded; unless the object arrived once more meanwhile, the cache will
        do.
        """
        key = key.at(HOME)
        if self._versions.get(key) == version:
            del self._versions[key]

    def _look_at(self, key: Key) -> None:
        objects = self._first.get(key.namespace)
        if objects and (obj := objects.pop(key.name, None)) is not None:
            self._versions[key] = obj.metadata.resource_version
            if not objects:
                del self._first[key.namespace]
