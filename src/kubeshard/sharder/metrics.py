"""The sharder's metrics. Names and labels are the Go sharder's; additions of kubeshard are marked with a star.

| metric | type | labels |
|---|---|---|
| `controller_sharding_movements_total` | counter | controllerring, group, resource |
| `controller_sharding_drains_total` | counter | controllerring, group, resource |
| `controller_sharding_ring_calculations_total` | counter | controllerring |
| `controller_sharding_late_assignments_total` * | counter | controllerring, group, resource |
| `controller_sharding_takeovers_total` * | counter | controllerring |
| `controller_sharding_move_failures_total` * | counter | controllerring, group, resource, reason |
| `controller_sharding_crashes_total` * | counter | controllerring, group, resource, part |
| `controller_sharding_drains_pending` * | gauge | controllerring, group, resource |
| `controller_sharding_oldest_drain_seconds` * | gauge | controllerring |
| `controller_sharding_objects_unassigned` * | gauge | controllerring, group, resource |
| `controller_sharding_oldest_unassigned_seconds` * | gauge | controllerring |
| `controller_sharding_resync_duration_seconds` * | histogram | reach |
| `controller_sharding_assignments_total` | counter | controllerring, group, resource |
| `controller_sharding_webhook_unassigned_total` * | counter | controllerring, reason |
| `controller_sharding_webhook_restored_total` * | counter | controllerring |
| `controller_sharding_controllerring_*`, `controller_sharding_shard_*` | gauges of the caches | `StateCollector` |

Reasons for objects left unassigned by the webhook: `ring`, `object`, `resource`, `key`, `generate_name`, `stale`. The
webhook's metrics and the gauges of the caches are exported by every replica; all others are meaningful in the leader.

The number of series of a ring is bounded: no histogram has a label for the ring, since one would cost more than all its
other series, and a gauge of a ring appears when it is not zero for the first time.

Guaranteed: a series is removed with its ring, or when its ring no longer lists the resource, and late counts do not
re-create it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kubeshard.cache.cache import Cache
from kubeshard.cache.errors import CacheBehind, UndeclaredKind
from kubeshard.core.builtin import Lease
from kubeshard.core.kinds import GroupResource
from kubeshard.core.namespaces import ALL
from kubeshard.sharder.lease_observer import SHARD_LEASES
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.names import RING_LABEL, STATE_LABEL
from kubeshard.sharding.states import ShardState

PREFIX = "controller_sharding"

M = TypeVar("M", Counter, Gauge, Histogram)


class SharderMetrics:
    """The metrics of all rings."""

    def __init__(self, registry: CollectorRegistry) -> None:
        ring, resource = ["controllerring"], ["controllerring", "group", "resource"]

        def make(kind: type[M], name: str, text: str, labels: list[str], **options: Any) -> M:
            return kind(f"{PREFIX}_{name}", text, labels, registry=registry, **options)

        self.movements = make(
            Counter, "movements", "Objects whose shard label the sharder changed.", resource
        )
        self.drains = make(
            Counter, "drains", "Objects that the sharder asked their shard to drain.", resource
        )
        self.late_assignments = make(
            Counter,
            "late_assignments",
            "Objects missed by the webhook that the sharder found unassigned and assigned to a shard.",
            resource,
        )
        self.takeovers = make(
            Counter, "takeovers", "Leases taken over from shards that did not renew them.", ring
        )
        self.calculations = make(Counter, "ring_calculations", "Hash rings calculated.", ring)
        self.failures = make(
            Counter,
            "move_failures",
            "Movements and drains that failed for one object.",
            [*resource, "reason"],
        )
        self.crashes = make(
            Counter,
            "crashes",
            "Unexpected exceptions (bugs) of a part of the sharder, which started again.",
            [*resource, "part"],
        )
        self.drains_pending = make(
            Gauge, "drains_pending", "Objects with the drain label, as of the last resync.", resource
        )
        self.oldest_drain = make(
            Gauge, "oldest_drain_seconds", "Age of the oldest pending drain, as of the last resync.", ring
        )
        self.objects_unassigned = make(
            Gauge,
            "objects_unassigned",
            "Objects without an available shard that could not be assigned one, as of the last resync.",
            resource,
        )
        self.oldest_unassigned = make(
            Gauge,
            "oldest_unassigned_seconds",
            "Time since the first of these objects was found unassigned, as of the last resync.",
            ring,
        )
        self.resyncs = make(
            Histogram,
            "resync_duration_seconds",
            "Duration of resyncs of one resource of a ring.",
            ["reach"],
            buckets=(0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300),
        )
        self.assignments = make(
            Counter, "assignments", "Objects assigned to a shard by the webhook.", resource
        )
        self.webhook_unassigned = make(
            Counter,
            "webhook_unassigned",
            "Objects that the webhook let through without a shard although they may need one.",
            [*ring, "reason"],
        )
        self.webhook_restored = make(
            Counter, "webhook_restored", "Shard labels that the webhook restored.", ring
        )

        self.webhook_unreached = make(
            Gauge,
            "webhook_unreached",
            "Whether dry runs show that the API server does not call the ring's webhook.",
            ring,
        )

    def crashed(self, part: str) -> None:
        """A part that serves all rings crashed."""
        self.crashes.labels("", "", "", part).inc()

    def of(self, ring: str) -> RingMetrics:
        """The metrics of a ring. "" is for all names that do not belong to a ring."""
        return RingMetrics(self, ring)


class RingMetrics:
    """The series of one ring."""

    def __init__(self, metrics: SharderMetrics, ring: str) -> None:
        self._metrics = metrics
        self._ring = ring
        self._series: dict[tuple[Any, GroupResource | None, str], Any] = {}
        self._resources: Collection[GroupResource] = ()
        self._ended = False

    def moved(self, resource: GroupResource) -> None:
        self._of(self._metrics.movements, resource).inc()

    def assigned_late(self, resource: GroupResource) -> None:
        self._of(self._metrics.late_assignments, resource).inc()

    def taken_over(self) -> None:
        self._of(self._metrics.takeovers).inc()

    def drained(self, resource: GroupResource) -> None:
        self._of(self._metrics.drains, resource).inc()

    def failed(self, resource: GroupResource, reason: str) -> None:
        self._of(self._metrics.failures, resource, reason).inc()

    def crashed(self, resource: GroupResource, part: str) -> None:
        self._of(self._metrics.crashes, resource, part).inc()

    def calculated(self) -> None:
        self._of(self._metrics.calculations).inc()

    def pending(self, resource: GroupResource, count: int) -> None:
        self._set(self._metrics.drains_pending, count, resource)

    def oldest_drain(self, seconds: float) -> None:
        self._set(self._metrics.oldest_drain, seconds)

    def unassigned(self, resource: GroupResource, count: int) -> None:
        self._set(self._metrics.objects_unassigned, count, resource)

    def oldest_unassigned(self, seconds: float) -> None:
        self._set(self._metrics.oldest_unassigned, seconds)

    def resynced(self, reach: str, seconds: float) -> None:
        self._metrics.resyncs.labels(reach).observe(seconds)

    def assigned(self, resource: GroupResource) -> None:
        self._of(self._metrics.assignments, resource).inc()

    def left_unassigned(self, reason: str) -> None:
        self._of(self._metrics.webhook_unassigned, None, reason).inc()

    def restored(self) -> None:
        self._of(self._metrics.webhook_restored).inc()

    def webhook_unreached(self, unreached: bool) -> None:
        self._of(self._metrics.webhook_unreached).set(unreached)

    def keep(self, resources: Collection[GroupResource]) -> None:
        """Sets the ring's resources: series of other resources are removed."""
        self._resources = resources
        self._remove([key for key in self._series if key[1] is not None and key[1] not in resources])
        # A counter that first appears with its first count hides that count from rates.
        self._of(self._metrics.takeovers)
        for resource in resources:
            self._of(self._metrics.late_assignments, resource)

    def end(self) -> None:
        """The ring was deleted: removes its series."""
        self._ended = True
        self._remove(list(self._series))

    def _set(self, metric: Gauge, value: float, resource: GroupResource | None = None) -> None:
        if value or (metric, resource, "") in self._series:
            self._of(metric, resource).set(value)

    def _of(self, metric: M, resource: GroupResource | None = None, more: str = "") -> M:
        series: M | None = self._series.get((metric, resource, more))
        if series is not None:
            return series
        if self._ended or (resource is not None and resource not in self._resources):
            return _NOWHERE  # type: ignore[no-any-return]
        self._series[metric, resource, more] = series = metric.labels(*self._values(resource, more))
        return series

    def _values(self, resource: GroupResource | None, more: str) -> tuple[str, ...]:
        return (self._ring, *(resource or ()), *((more,) if more else ()))

    def _remove(self, some: Iterable[tuple[Any, GroupResource | None, str]]) -> None:
        for metric, resource, more in some:
            del self._series[metric, resource, more]
            with suppress(KeyError):
                metric.remove(*self._values(resource, more))


class _Nowhere:
    def inc(self) -> None: ...
    def set(self, value: float) -> None: ...


_NOWHERE: Any = _Nowhere()


class StateCollector(Collector):
    """ControllerRings and shards from the caches: none before the caches have synced."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def collect(self) -> Iterator[GaugeMetricFamily]:
        rings: Sequence[ControllerRing] = ()
        leases: Sequence[Lease] = ()
        # The page has other metrics, above all those that show why the caches have not synced.
        with suppress(CacheBehind, UndeclaredKind):
            rings = self._cache.list(ControllerRing)
        with suppress(CacheBehind, UndeclaredKind):
            leases = self._cache.list(Lease, ALL, scope=SHARD_LEASES)
        yield from _ring_metrics(rings)
        yield from _shard_metrics(leases)

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Returns the names without reading the caches."""
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
