"""When a shard must not trust its cache around a hand-over of an object.

Two records, both based on resourceVersions of the object itself, one process-wide and one per controller:

- `StaleGuard`: a copy older than version *v* does not prove that the object is ours, because at *v* it was drained or
  released. So no controller of the process can start a reconcile between seeing a drain label and the next
  assignment, however far its cache lags behind.
- `FirstRuns`: since the object was assigned to us at version *v*, no run with live reads has succeeded. Until one has,
  the cache may lack the previous owner's latest writes; and its children, which follow later, so a run that read one
  that the cache lacks does not count.

Guaranteed: entries are kept for as long as a lagging cache can matter. Where a kind's cache has not followed the server
for 90 s, no run of its objects starts (`controller.syncing`); and when runs start again, the cache has been listed
anew, so it shows everything that happened before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from kubeshard.cache.deltas import Added, Deleted, Delta, Updated
from kubeshard.cache.informer import Informer
from kubeshard.core.clusters import HOME_CLUSTER
from kubeshard.core.kinds import GroupKind
from kubeshard.core.objects import Key, KubeObject, ObjectMeta
from kubeshard.core.versions import at_least, may_be_at_least, newest
from kubeshard.runtime.clock import Clock

KEPT = 300.0
"""Seconds: well above the 90 s after which no run starts on a cache that does not follow the server."""


class StaleGuard:
    """For each recently drained or released object, the oldest version that can be trusted."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.required: OrderedDict[tuple[GroupKind, Key], tuple[str, float]] = OrderedDict()
        """Version and time of the last change, the oldest change first. To be read only: mostly there are none."""

    def require(self, kind: GroupKind, key: Key, version: str) -> None:
        """Copies older than `version` are not trusted from now on."""
        now = self._clock.monotonic()
        required, _ = self.required.pop((kind, key), ("", now))
        self.required[kind, key] = newest(version, required), now
        while next(iter(self.required.values()))[1] < now - KEPT:
            self.required.popitem(last=False)

    def admits(self, kind: GroupKind, key: Key, version: str) -> bool:
        """Whether a copy of that version can be trusted."""
        required = self.required.get((kind, key))
        return required is None or at_least(version, required[0])

    def may_admit(self, kind: GroupKind, key: Key, version: str) -> bool:
        """Whether nobody can tell: versions are no numbers."""
        return may_be_at_least(version, self.required[kind, key][0])

    def required_since(self, kind: GroupKind, key: Key) -> float | None:
        """When a newer version was last required (monotonic seconds); None if not recently."""
        required = self.required.get((kind, key))
        return None if required is None else required[1]

    def forget(self, kind: GroupKind, key: Key) -> None:
        """Drops a version that was undone: the API server was restored from a backup, and every cache was listed
        again.
        """
        self.required.pop((kind, key), None)

    def __len__(self) -> int:
        return len(self.required)


class FirstRuns:
    """The objects that were assigned to this shard and not yet reconciled with live reads; for one controller.

    An object arrives when it enters a filtered cache. After a full list, every object that changed meanwhile counts
    as arrived: it may have left and returned unnoticed.
    """

    def __init__(self) -> None:
        self._versions: dict[Key, str] = {}
        self._shown: set[Key] = set()
        """Those of them that a live read has shown to be this shard's."""
        self._initial: dict[str, dict[str, KubeObject]] = {}
        """The initial contents of the store, by namespace and name, that have not been checked since."""

    def follow(self, informer: Informer[Any], left: Callable[[KubeObject], None] = lambda _: None) -> None:
        """Tracks everything that is or will be in the informer's store. `left` is called for each object that was
        `confirmed` and leaves it.
        """
        read_up_to: dict[str, tuple[int, str]] = {}
        """The number and the version of the last full list, by namespace."""

        def unseen(metadata: ObjectMeta) -> bool:
            """Whether the version is from a full list, so that earlier versions may have been missed."""
            reads, limit = read_up_to.get(metadata.namespace, (0, ""))
            if reads != informer.full_reads:
                limit = informer.store.complete_up_to(metadata.namespace)
                read_up_to[metadata.namespace] = informer.full_reads, limit
            return may_be_at_least(limit, metadata.resource_version)

        def on_delta(delta: Delta[Any]) -> None:
            if self._initial:
                self._check_initial(delta.new.key if isinstance(delta, Updated) else delta.object.key)
            match delta:
                case Added(obj):
                    self._arrived(obj)
                case Deleted(obj):
                    if self.confirmed(obj.key):
                        left(obj)
                    self._versions.pop(obj.key, None)
                    self._shown.discard(obj.key)
                case Updated(_, obj) if unseen(obj.metadata):
                    self._arrived(obj)

        # All at once, since no run may start before arrivals are known; and without looking at each object, which
        # would block the loop for a large store.
        informer.add_handler(on_delta, existing=False)
        first = informer.store.copy()
        for namespace, objects in self._initial.items():
            first[namespace] = objects | first.get(namespace, {})
        self._initial = first

    def pending(self, key: Key) -> str | None:
        """The version at which the object arrived; None if a run with live reads has succeeded since."""
        key = key.at(HOME_CLUSTER)  # changes of an object do not name the cluster, since there is only one
        if self._initial:
            self._check_initial(key)
        return self._versions.get(key)

    def settle(self, key: Key, version: str) -> None:
        """Called after a successful run with live reads: from now on the cache suffices, unless the object arrived
        again meanwhile.
        """
        key = key.at(HOME_CLUSTER)
        if self._versions.get(key) == version:
            del self._versions[key]
            self._shown.discard(key)

    def show(self, key: Key, version: str) -> None:
        """A live read has shown that the object is this shard's, unless it arrived again meanwhile."""
        if self._versions.get(key := key.at(HOME_CLUSTER)) == version:
            self._shown.add(key)

    def confirmed(self, key: Key) -> bool:
        """Of an object in the cache: whether a live read has shown that it is this shard's. Until then a sharder may
        have moved it with good reason, before this process held the Lease.
        """
        key = key.at(HOME_CLUSTER)
        return self.pending(key) is None or key in self._shown

    def _arrived(self, obj: KubeObject) -> None:
        self._versions[obj.key] = obj.metadata.resource_version
        self._shown.discard(obj.key)

    def _check_initial(self, key: Key) -> None:
        objects = self._initial.get(key.namespace)
        if objects and (obj := objects.pop(key.name, None)) is not None:
            self._versions[key] = obj.metadata.resource_version
            if not objects:
                del self._initial[key.namespace]
