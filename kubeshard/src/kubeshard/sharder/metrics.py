"""The sharder's metrics, declared in `kubeshard.metrics.declared`.

Movements, drains, calculations of hash rings, assignments by the webhook, and the gauges of rings and shards have the
Go sharder's names and labels; the others are additions.

Reasons for objects left unassigned by the webhook: `ring`, `object`, `resource`, `key`, `generate_name`, `stale`. The
webhook's metrics and the gauges of the caches are exported by every replica; all others are meaningful in the leader.

The number of series of a ring is bounded: no histogram has a label for the ring, since one would cost more than all its
other series, and a gauge of a ring appears when it is not zero for the first time.

Guaranteed: a series is removed with its ring, or when its ring no longer lists the resource, and late counts do not
re-create it. Gauges of a process that does not lead any more are zero.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from kubeshard.cache.cache import Cache
from kubeshard.cache.errors import CacheBehind, UndeclaredKind
from kubeshard.core.builtin import Lease
from kubeshard.core.kinds import GroupResource
from kubeshard.core.namespaces import ALL
from kubeshard.manager.fast_metrics import Counts, Durations, Levels, Number, with_samples
from kubeshard.metrics.declared import declared
from kubeshard.metrics.families import gauge
from kubeshard.sharder.lease_observer import SHARD_LEASES
from kubeshard.sharding.api import ControllerRing, ControllerRingStatus
from kubeshard.sharding.names import RING_LABEL, STATE_LABEL
from kubeshard.sharding.planner import NOT_SHARDED
from kubeshard.sharding.shard_states import ShardState

PREFIX = "controller_sharding"

RESYNC_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300)

M = TypeVar("M", Counts, Levels)
_Metric: TypeAlias = Counts | Levels


class SharderMetrics:
    """The metrics of all rings."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def make(kind: type[M], name: str) -> M:
            metric = kind(*declared(f"{PREFIX}_{name}"))
            registry.register(metric)
            return metric

        self.movements = make(Counts, "movements_total")
        self.drains = make(Counts, "drains_total")
        self.late_assignments = make(Counts, "late_assignments_total")
        self.takeovers = make(Counts, "takeovers_total")
        self.evictions = make(Counts, "evictions_total")
        self.calculations = make(Counts, "ring_calculations_total")
        self.failures = make(Counts, "move_failures_total")
        self.crashes = make(Counts, "crashes_total")
        self.drains_pending = make(Levels, "drains_pending")
        self.oldest_drain = make(Levels, "oldest_drain_seconds")
        self.objects_unassigned = make(Levels, "objects_unassigned")
        self.not_sharded = make(Levels, "objects_not_sharded")
        self.oldest_unassigned = make(Levels, "oldest_unassigned_seconds")
        self.resyncs = Durations(*declared(f"{PREFIX}_resync_duration_seconds"), RESYNC_BUCKETS)
        registry.register(self.resyncs)
        self.assignments = make(Counts, "assignments_total")
        self.webhook_unassigned = make(Counts, "webhook_unassigned_total")
        self.webhook_restored = make(Counts, "webhook_restored_total")

        self.webhook_unreached = make(Levels, "webhook_unreached")
        self.failing_together = make(Levels, "shards_failing_together")
        self.unconfirmed = make(Levels, "objects_unconfirmed")

    def crashed(self, part: str) -> None:
        """A part that serves all rings crashed."""
        self.crashes.series("", "", "", part).value += 1

    def of(self, ring: str) -> RingMetrics:
        """The metrics of a ring. "" is for all names that do not belong to a ring."""
        return RingMetrics(self, ring)


class RingMetrics:
    """The series of one ring."""

    def __init__(self, metrics: SharderMetrics, ring: str) -> None:
        self._metrics = metrics
        self._ring = ring
        self._series: dict[tuple[_Metric, GroupResource | None, str], Number] = {}
        self._resources: Collection[GroupResource] = ()
        self._ended = False

    def moved(self, resource: GroupResource) -> None:
        self._of(self._metrics.movements, resource).value += 1

    def assigned_late(self, resource: GroupResource) -> None:
        self._of(self._metrics.late_assignments, resource).value += 1

    def taken_over(self) -> None:
        self._of(self._metrics.takeovers).value += 1

    def evicted(self) -> None:
        self._of(self._metrics.evictions).value += 1

    def drained(self, resource: GroupResource) -> None:
        self._of(self._metrics.drains, resource).value += 1

    def failed(self, resource: GroupResource, reason: str) -> None:
        self._of(self._metrics.failures, resource, reason).value += 1

    def crashed(self, resource: GroupResource, part: str) -> None:
        self._of(self._metrics.crashes, resource, part).value += 1

    def calculated(self) -> None:
        self._of(self._metrics.calculations).value += 1

    def pending(self, resource: GroupResource, count: int) -> None:
        self._set(self._metrics.drains_pending, count, resource)

    def oldest_drain(self, seconds: float) -> None:
        self._set(self._metrics.oldest_drain, seconds)

    def unassigned(self, resource: GroupResource, count: int) -> None:
        self._set(self._metrics.objects_unassigned, count, resource)

    def not_sharded(self, resource: GroupResource, counts: Mapping[str, int]) -> None:
        """By reason (`NOT_SHARDED`)."""
        for reason in NOT_SHARDED:
            self._set(self._metrics.not_sharded, counts.get(reason, 0), resource, reason)

    def oldest_unassigned(self, seconds: float) -> None:
        self._set(self._metrics.oldest_unassigned, seconds)

    def scanned(self, scope: str, seconds: float) -> None:
        self._metrics.resyncs.series(scope).observe(seconds)

    def assigned(self, resource: GroupResource) -> None:
        self._of(self._metrics.assignments, resource).value += 1

    def left_unassigned(self, reason: str) -> None:
        self._of(self._metrics.webhook_unassigned, None, reason).value += 1

    def restored(self) -> None:
        self._of(self._metrics.webhook_restored).value += 1

    def webhook_unreached(self, unreached: bool) -> None:
        self._set(self._metrics.webhook_unreached, float(unreached))

    def failing_together(self, count: int) -> None:
        self._set(self._metrics.failing_together, count)

    def unconfirmed(self, count: int) -> None:
        self._set(self._metrics.unconfirmed, count)

    def keep(self, resources: Collection[GroupResource]) -> None:
        """Sets the ring's resources: series of other resources are removed."""
        self._resources = resources
        self._remove([key for key in self._series if key[1] is not None and key[1] not in resources])
        # A counter that first appears with its first count hides that count from rates, and there is an alert on this.
        self._of(self._metrics.takeovers)

    def leads_no_more(self) -> None:
        """This process does not see any more what the gauges are about, and another one does: counters stay."""
        for (metric, _, _), series in self._series.items():
            if isinstance(metric, Levels):
                series.value = 0.0

    def end(self) -> None:
        """The ring was deleted: removes its series."""
        self._ended = True
        self._remove(list(self._series))

    def _set(
        self, metric: Levels, value: float, resource: GroupResource | None = None, more: str = ""
    ) -> None:
        if value or (metric, resource, more) in self._series:
            self._of(metric, resource, more).value = value

    def _of(self, metric: _Metric, resource: GroupResource | None = None, more: str = "") -> Number:
        series = self._series.get((metric, resource, more))
        if series is not None:
            return series
        if self._ended or (resource is not None and resource not in self._resources):
            return Number()  # which is not exposed
        self._series[metric, resource, more] = series = metric.series(*self._values(resource, more))
        return series

    def _values(self, resource: GroupResource | None, more: str) -> tuple[str, ...]:
        return (self._ring, *(resource or ()), *((more,) if more else ()))

    def _remove(self, some: Iterable[tuple[_Metric, GroupResource | None, str]]) -> None:
        for metric, resource, more in some:
            del self._series[metric, resource, more]
            metric.remove(*self._values(resource, more))


class StateCollector(Collector):
    """ControllerRings and shards from the caches: none before the caches have synced. `ring` returns the ring of a
    name; Leases of others are left out, because anybody may label them.
    """

    def __init__(self, cache: Cache, ring: Callable[[str], object | None]) -> None:
        self._cache = cache
        self._ring = ring

    def collect(self) -> Iterator[Metric]:
        rings: Sequence[ControllerRing] = ()
        leases: Sequence[Lease] = ()
        # The page has other metrics, above all those that show why the caches have not synced.
        with suppress(CacheBehind, UndeclaredKind):
            rings = self._cache.list(ControllerRing)
        with suppress(CacheBehind, UndeclaredKind):
            leases = self._cache.list(Lease, ALL, scope=SHARD_LEASES)
        yield from _ring_metrics(rings)
        yield from _shard_metrics(leases, self._ring)

    def describe(self) -> Iterator[Metric]:
        """Returns the names without reading the caches."""
        yield from _ring_metrics(())
        yield from _shard_metrics((), self._ring)


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


def _shard_metrics(leases: Iterable[Lease], ring: Callable[[str], object | None]) -> Iterator[Metric]:
    info, state = f"{PREFIX}_shard_info", f"{PREFIX}_shard_state"

    def shards() -> Iterator[Lease]:
        return (lease for lease in leases if ring(lease.metadata.label(RING_LABEL)) is not None)

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
