"""The sharder's metrics (protocol 7). Names and labels are the reference's; what kubeshard adds is marked
with a star.

| metric | type | labels |
|---|---|---|
| `controller_sharding_movements_total` | counter | controllerring, group, resource |
| `controller_sharding_drains_total` | counter | controllerring, group, resource |
| `controller_sharding_ring_calculations_total` | counter | controllerring |
| `controller_sharding_move_failures_total` * | counter | controllerring, group, resource, reason |
| `controller_sharding_drains_pending` * | gauge | controllerring, group, resource |
| `controller_sharding_oldest_drain_seconds` * | gauge | controllerring |
| `controller_sharding_objects_unassigned` * | gauge | controllerring, group, resource |
| `controller_sharding_oldest_unassigned_seconds` * | gauge | controllerring |
| `controller_sharding_resync_duration_seconds` * | histogram | controllerring, reach |
| `controller_sharding_controllerring_*`, `controller_sharding_shard_*` | gauges of the caches | `StateCollector` |

`controller_sharding_assignments_total` is the webhook's (`admission`). The state metrics are exported by
every replica.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kubeshard.cache.cache import Cache
from kubeshard.core.builtin import Lease
from kubeshard.core.kinds import GroupResource
from kubeshard.sharder.lease_observer import SHARD_LEASES
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.names import RING_LABEL, STATE_LABEL
from kubeshard.sharding.states import ShardState

PREFIX = "controller_sharding"
_RESOURCE = ["controllerring", "group", "resource"]

M = TypeVar("M", Counter, Gauge, Histogram)


class _Series(NamedTuple):
    """One combination of label values that a metric has."""

    metric: Counter | Gauge | Histogram
    values: tuple[str, ...]
    resource: GroupResource | None


class SharderMetrics:
    """Counters of what the sharder does."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._movements = Counter(
            f"{PREFIX}_movements",
            "Objects whose shard label the sharder changed.",
            _RESOURCE,
            registry=registry,
        )
        self._drains = Counter(
            f"{PREFIX}_drains",
            "Objects that the sharder asked their shard to drain.",
            _RESOURCE,
            registry=registry,
        )
        self._calculations = Counter(
            f"{PREFIX}_ring_calculations", "Hash rings calculated.", ["controllerring"], registry=registry
        )
        self._failures = Counter(
            f"{PREFIX}_move_failures",
            "Movements and drains that failed for one object.",
            [*_RESOURCE, "reason"],
            registry=registry,
        )
        self._series: dict[str, set[_Series]] = {}
        """By ring."""
        self._pending = Gauge(
            f"{PREFIX}_drains_pending",
            "Objects with the drain label, at the last look.",
            _RESOURCE,
            registry=registry,
        )
        self._oldest = Gauge(
            f"{PREFIX}_oldest_drain_seconds",
            "Age of the oldest pending drain, at the last look.",
            ["controllerring"],
            registry=registry,
        )
        self._unassigned = Gauge(
            f"{PREFIX}_objects_unassigned",
            "Objects without an available shard that could not be given one, at the last look.",
            _RESOURCE,
            registry=registry,
        )
        self._oldest_unassigned = Gauge(
            f"{PREFIX}_oldest_unassigned_seconds",
            "How long the first of these objects has been found so, at the last look.",
            ["controllerring"],
            registry=registry,
        )
        self._resync = Histogram(
            f"{PREFIX}_resync_duration_seconds",
            "Duration of looks at the objects of one of a ring's resources.",
            ["controllerring", "reach"],
            buckets=(0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300),
            registry=registry,
        )

    def moved(self, ring: str, resource: GroupResource) -> None:
        self._of(self._movements, ring, resource).inc()

    def drained(self, ring: str, resource: GroupResource) -> None:
        self._of(self._drains, ring, resource).inc()

    def calculated(self, ring: str) -> None:
        self._of(self._calculations, ring).inc()

    def failed(self, ring: str, resource: GroupResource, reason: str) -> None:
        self._of(self._failures, ring, resource, reason).inc()

    def pending(self, ring: str, resource: GroupResource, count: int) -> None:
        self._of(self._pending, ring, resource).set(count)

    def oldest_drain(self, ring: str, seconds: float) -> None:
        self._of(self._oldest, ring).set(seconds)

    def unassigned(self, ring: str, resource: GroupResource, count: int) -> None:
        self._of(self._unassigned, ring, resource).set(count)

    def oldest_unassigned(self, ring: str, seconds: float) -> None:
        self._of(self._oldest_unassigned, ring).set(seconds)

    def forget_resource(self, ring: str, resource: GroupResource) -> None:
        """The ring does not have the resource any more: what was counted for it goes."""
        self._forget(ring, [series for series in self._series.get(ring, ()) if series.resource == resource])

    def forget(self, ring: str) -> None:
        """The ring is gone, and what was counted for it."""
        self._forget(ring, list(self._series.get(ring, ())))
        self._series.pop(ring, None)

    def resynced(self, ring: str, reach: str, seconds: float) -> None:
        self._of(self._resync, ring, None, reach).observe(seconds)

    def _of(self, metric: M, ring: str, resource: GroupResource | None = None, *more: str) -> M:
        """The metric's series of the ring, remembered so that it can be forgotten."""
        values = (ring, *((resource.group, resource.resource) if resource else ()), *more)
        self._series.setdefault(ring, set()).add(_Series(metric, values, resource))
        return metric.labels(*values)

    def _forget(self, ring: str, some: Iterable[_Series]) -> None:
        for series in some:
            with suppress(KeyError):
                series.metric.remove(*series.values)
            self._series[ring].discard(series)


class StateCollector(Collector):
    """ControllerRings and shards as the caches show them; to be registered once these run."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield from _ring_metrics(self._cache.list(ControllerRing))
        yield from _shard_metrics(self._cache.list(Lease, scope=SHARD_LEASES))

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Lets a registry take the names without asking the caches."""
        yield from _ring_metrics(())
        yield from _shard_metrics(())


def _ring_metrics(rings: Iterable[ControllerRing]) -> Iterator[GaugeMetricFamily]:
    prefix, labels = f"{PREFIX}_controllerring", ["controllerring", "uid"]
    generation = GaugeMetricFamily(f"{prefix}_metadata_generation", "The ring's generation.", labels=labels)
    observed = GaugeMetricFamily(
        f"{prefix}_observed_generation", "Generation last reconciled.", labels=labels
    )
    shards = GaugeMetricFamily(f"{prefix}_status_shards", "Shards of the ring.", labels=labels)
    available = GaugeMetricFamily(f"{prefix}_status_available_shards", "Available shards.", labels=labels)
    for ring in rings:
        values = [ring.metadata.name, ring.metadata.uid]
        generation.add_metric(values, ring.metadata.generation)
        observed.add_metric(values, ring.status.observed_generation if ring.status else 0)
        shards.add_metric(values, ring.status.shards if ring.status else 0)
        available.add_metric(values, ring.status.available_shards if ring.status else 0)
    yield from (generation, observed, shards, available)


def _shard_metrics(leases: Iterable[Lease]) -> Iterator[GaugeMetricFamily]:
    labels = ["namespace", "shard", "controllerring"]
    info = GaugeMetricFamily(f"{PREFIX}_shard_info", "Information about a shard.", labels=[*labels, "uid"])
    state = GaugeMetricFamily(f"{PREFIX}_shard_state", "The shard's state label.", labels=[*labels, "state"])
    for lease in leases:
        meta = lease.metadata
        values = [meta.namespace, meta.name, meta.label(RING_LABEL)]
        info.add_metric([*values, meta.uid], 1)
        current = ShardState.parse(meta.label(STATE_LABEL))
        for known in ShardState:
            state.add_metric([*values, str(known)], known is current)
    yield from (info, state)
