"""The metrics of a shard.

| metric | type | labels |
|---|---|---|
| `controller_sharding_lease_held` | gauge | controllerring, shard |
| `controller_sharding_lease_margin_seconds` | gauge | controllerring, shard |
| `controller_sharding_lease_renewals_total` | counter | controllerring, shard |
| `controller_sharding_lease_renewal_failures_total` | counter | controllerring, shard, reason |
| `controller_sharding_refused_writes_total` | counter | controllerring, by |
| `controller_sharding_unfenced_writes_total` | counter | controllerring |
| `controller_sharding_drains_acknowledged_total` | counter | controllerring, group, resource |
| `controller_sharding_drain_acknowledgement_seconds` | histogram | controllerring, group, resource |

The margin is 0 while the Lease is not held. Only refusals by the fence count: a patch with an outdated resourceVersion
is a conflict like any other. The number of series is bounded by the ring's resources.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kubeshard.core.kinds import GroupResource
from kubeshard.leases.renewer import RENEWAL_FAILURES, RenewalFailure
from kubeshard.manager.series import Durations
from kubeshard.shard.identity import ShardIdentity

PREFIX = "controller_sharding"

ACKNOWLEDGEMENT_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class ShardMetrics(Collector):
    """The metrics of one shard. `margin` returns the seconds until its right to work ends; `refused` and `unfenced`
    return the writes that its client counted. The Lease renewer also reports to it, from its own thread.
    """

    def __init__(
        self,
        shard: ShardIdentity,
        *,
        margin: Callable[[], float],
        refused: Callable[[], tuple[int, int]],
        unfenced: Callable[[], int],
    ) -> None:
        self._shard = shard
        self._margin = margin
        self._refused = refused
        self._unfenced = unfenced
        self._held = False
        self._renewals = 0
        self._failures: Counter[RenewalFailure] = Counter(dict.fromkeys(RENEWAL_FAILURES, 0))
        self._acknowledged: Counter[GroupResource] = Counter()
        self._durations = Durations(
            f"{PREFIX}_drain_acknowledgement_seconds",
            "Time from the request to release an object until this shard released it.",
            ("controllerring", "group", "resource"),
            ACKNOWLEDGEMENT_BUCKETS,
        )

    def of_resource(self, resource: GroupResource) -> None:
        """Creates the series for drains of the resource, so that they start at zero."""
        self._acknowledged.setdefault(resource, 0)
        self._durations.series(self._shard.ring, *resource)

    def acknowledged(self, resource: GroupResource, seconds: float) -> None:
        """The shard released an object this long after the request."""
        self._acknowledged[resource] += 1
        self._durations.series(self._shard.ring, *resource).observe(seconds)

    # Implements LeaseMetrics for the renewer

    def holding(self, name: str, holds: bool) -> None:
        self._held = holds

    def slow_path(self, name: str) -> None: ...

    def renewed(self, name: str) -> None:
        self._renewals += 1

    def not_renewed(self, name: str, why: RenewalFailure) -> None:
        self._failures[why] += 1

    # Collection

    def collect(self) -> Iterator[Metric]:
        ring = self._shard.ring
        lease, labels = (ring, self._shard.name), ("controllerring", "shard")
        held = GaugeMetricFamily(f"{PREFIX}_lease_held", "Whether this shard holds its Lease.", labels=labels)
        held.add_metric(lease, self._held)
        margin = GaugeMetricFamily(
            f"{PREFIX}_lease_margin_seconds",
            "How long this shard may keep working without renewing its Lease.",
            labels=labels,
        )
        margin.add_metric(lease, self._margin())
        renewals = CounterMetricFamily(
            f"{PREFIX}_lease_renewals", "How often the Lease was acquired or renewed.", labels=labels
        )
        renewals.add_metric(lease, self._renewals)
        failures = CounterMetricFamily(
            f"{PREFIX}_lease_renewal_failures",
            "Failed requests for the Lease, and times when the process was unfit to renew it.",
            labels=(*labels, "reason"),
        )
        for reason, count in self._failures.items():
            failures.add_metric((*lease, reason), count)
        yield from (held, margin, renewals, failures)
        yield from self._writes(ring)
        drains = CounterMetricFamily(
            f"{PREFIX}_drains_acknowledged",
            "Objects that this shard released on request.",
            labels=("controllerring", "group", "resource"),
        )
        for resource, count in self._acknowledged.items():
            drains.add_metric((ring, *resource), count)
        yield drains
        yield from self._durations.collect()

    def _writes(self, ring: str) -> Iterator[Metric]:
        refused = CounterMetricFamily(
            f"{PREFIX}_refused_writes",
            "Writes rejected because the shard no longer owned the object or its time to write was over.",
            labels=("controllerring", "by"),
        )
        for by, count in zip(("shard", "server"), self._refused(), strict=True):
            refused.add_metric((ring, by), count)
        unfenced = CounterMetricFamily(
            f"{PREFIX}_unfenced_writes",
            "Writes that were explicitly exempted from proving ownership of the object.",
            labels=("controllerring",),
        )
        unfenced.add_metric((ring,), self._unfenced())
        yield from (refused, unfenced)
