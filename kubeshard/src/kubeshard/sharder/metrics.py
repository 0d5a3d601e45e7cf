"""The sharder's metrics, declared in `kubeshard.metrics.declared`.

Movements, drains, calculations of hash rings, assignments by the webhook, and the gauges of rings and shards have the
Go sharder's names and labels; the others are additions.

Reasons for objects left unassigned by the webhook: `ring`, `object`, `resource`, `key`, `generate_name`, `stale`. The
webhook's metrics and the gauges of the caches are exported by every replica; all others are meaningful in the leader.

The number of series of a ring is bounded: no histogram has a label for the ring, since one would cost more than all its
other series, and a gauge of a ring appears when it is not zero for the first time. A ring by ranges has the metrics of
objects for its buckets (`BUCKETS`).

Guaranteed: a series is removed with its ring, or when its ring no longer lists the resource, and late counts do not
re-create it. Gauges of a process that does not lead any more are zero.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TypeAlias

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from kubeshard.cache.cache import Cache
from kubeshard.cache.errors import CacheBehind, UndeclaredKind
from kubeshard.cache.scope import Scope
from kubeshard.core.builtin import Lease
from kubeshard.core.kinds import GroupResource
from kubeshard.core.namespaces import ALL
from kubeshard.manager.fast_metrics import Counts, Durations, Levels, Number, with_samples
from kubeshard.metrics.declared import declared
from kubeshard.metrics.families import gauge
from kubeshard.sharder.lease_observer import shard_leases
from kubeshard.sharder.rings import Rings
from kubeshard.sharding.api import ControllerRing, ControllerRingStatus
from kubeshard.sharding.buckets import BUCKETS
from kubeshard.sharding.names import RING_LABEL, STATE_LABEL
from kubeshard.sharding.ring import NO_RESOURCE
from kubeshard.sharding.shard_states import ShardState

PREFIX = "controller_sharding"

RESYNC_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300)

_Metric: TypeAlias = Counts | Levels


COUNTED = (
    "movements",
    "drains",
    "late_assignments",
    "takeovers",
    "evictions",
    "ring_calculations",
    "move_failures",
    "crashes",
    "assignments",
    "webhook_unassigned",
    "webhook_restored",
)
MEASURED = (
    "drains_pending",
    "oldest_drain_seconds",
    "objects_unassigned",
    "objects_not_sharded",
    "oldest_unassigned_seconds",
    "webhook_unreached",
    "shards_failing_together",
    "objects_unconfirmed",
    "assignment_unusable",
)


class SharderMetrics:
    """The metrics of all rings."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.counts = {name: Counts(*declared(f"{PREFIX}_{name}_total")) for name in COUNTED}
        self.levels = {name: Levels(*declared(f"{PREFIX}_{name}")) for name in MEASURED}
        self.resyncs = Durations(*declared(f"{PREFIX}_resync_duration_seconds"), RESYNC_BUCKETS)
        for metric in (*self.counts.values(), *self.levels.values(), self.resyncs):
            registry.register(metric)

    def of(self, ring: str) -> RingMetrics:
        """The metrics of a ring. "" is for what belongs to none."""
        return RingMetrics(self, ring)


class RingMetrics:
    """The series of one ring."""

    def __init__(self, metrics: SharderMetrics, ring: str) -> None:
        self._metrics = metrics
        self._ring = ring
        self._series: dict[tuple[_Metric, GroupResource | None, str], Number] = {}
        self._resources: Collection[GroupResource] = ()
        self._ended = False

    def add(
        self, name: str, resource: GroupResource | None = None, more: str = "", *, count: int = 1
    ) -> None:
        """Counts (`COUNTED`). `more`: the last label."""
        metric = self._metrics.counts[name]
        series = self._series.get((metric, resource, more)) or self._of(metric, resource, more)
        series.value += count

    def set(self, name: str, value: float, resource: GroupResource | None = None, more: str = "") -> None:
        """Sets a gauge (`MEASURED`)."""
        metric = self._metrics.levels[name]
        if value or (metric, resource, more) in self._series:
            self._of(metric, resource, more).value = value

    def scanned(self, scope: str, seconds: float) -> None:
        self._metrics.resyncs.series(scope).observe(seconds)

    def keep(self, resources: Collection[GroupResource]) -> None:
        """Sets the ring's resources: series of other resources are removed."""
        self._resources = resources
        self._remove([key for key in self._series if not self._has(key[1])])
        # A counter that first appears with its first count hides that count from rates, and there is an alert on this.
        self._of(self._metrics.counts["takeovers"])

    def leads_no_more(self) -> None:
        """This process does not see any more what the gauges are about, and another one does: counters stay."""
        for (metric, _, _), series in self._series.items():
            if isinstance(metric, Levels):
                series.value = 0.0

    def end(self) -> None:
        """The ring was deleted: removes its series."""
        self._ended = True
        self._remove(list(self._series))

    def _of(self, metric: _Metric, resource: GroupResource | None = None, more: str = "") -> Number:
        series = self._series.get((metric, resource, more))
        if series is not None:
            return series
        if self._ended or not self._has(resource):
            return Number()  # which is not exposed
        self._series[metric, resource, more] = series = metric.series(*self._values(resource, more))
        return series

    def _has(self, resource: GroupResource | None) -> bool:
        return resource in (None, NO_RESOURCE, BUCKETS) or resource in self._resources

    def _values(self, resource: GroupResource | None, more: str) -> tuple[str, ...]:
        return (self._ring, *(resource or ()), *((more,) if more else ()))

    def _remove(self, some: Iterable[tuple[_Metric, GroupResource | None, str]]) -> None:
        for metric, resource, more in some:
            del self._series[metric, resource, more]
            metric.remove(*self._values(resource, more))


class StateCollector(Collector):
    """ControllerRings and shards from the caches: none before the caches have synced. Leases of others than these rings
    are left out, because anybody may label them.
    """

    def __init__(self, cache: Cache, rings: Rings, leases: Scope | None = None) -> None:
        self._cache = cache
        self._rings = rings
        self._leases = leases or shard_leases()

    def collect(self) -> Iterator[Metric]:
        rings: Sequence[ControllerRing] = ()
        leases: Sequence[Lease] = ()
        # The page has other metrics, above all those that show why the caches have not synced.
        with suppress(CacheBehind, UndeclaredKind):
            rings = self._cache.list(ControllerRing)
        with suppress(CacheBehind, UndeclaredKind):
            leases = self._cache.list(Lease, ALL, scope=self._leases)
        yield from _ring_metrics(rings)
        yield from _shard_metrics(leases, self._rings)

    def describe(self) -> Iterator[Metric]:
        """Returns the names without reading the caches."""
        yield from _ring_metrics(())
        yield from _shard_metrics((), self._rings)


def _ring_metrics(rings: Iterable[ControllerRing]) -> Iterator[Metric]:
    none = ControllerRingStatus()

    def of(name: str, value: Callable[[ControllerRing], float]) -> Metric:
        full = f"{PREFIX}_controllerring_{name}"

        def samples() -> Iterator[Sample]:
            for ring in rings:
                labels = {"controllerring": ring.metadata.name, "uid": ring.metadata.uid}
                yield Sample(full, labels, value(ring))

        return with_samples(gauge(full), samples)

    yield of("metadata_generation", lambda ring: ring.metadata.generation)
    yield of("observed_generation", lambda ring: (ring.status or none).observed_generation)
    yield of("status_shards", lambda ring: (ring.status or none).shards)
    yield of("status_available_shards", lambda ring: (ring.status or none).available_shards)


def _shard_metrics(leases: Iterable[Lease], rings: Rings) -> Iterator[Metric]:
    info, state = f"{PREFIX}_shard_info", f"{PREFIX}_shard_state"

    def shards() -> Iterator[Lease]:
        return (lease for lease in leases if rings.get(lease.metadata.label(RING_LABEL)) is not None)

    def infos() -> Iterator[Sample]:
        for lease in shards():
            yield Sample(info, {**_place(lease), "uid": lease.metadata.uid}, 1)

    def states() -> Iterator[Sample]:
        for lease in shards():
            place, current = _place(lease), ShardState.parse(lease.metadata.label(STATE_LABEL))
            for known in ShardState:
                yield Sample(state, {**place, "state": str(known)}, known is current)

    yield with_samples(gauge(info), infos)
    yield with_samples(gauge(state), states)


def _place(lease: Lease) -> dict[str, str]:
    meta = lease.metadata
    return {"namespace": meta.namespace, "shard": meta.name, "controllerring": meta.label(RING_LABEL)}
