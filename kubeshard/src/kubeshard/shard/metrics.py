"""The metrics of a shard, declared in `kubeshard.metrics.declared`.

The margin is 0 while the Lease is not held. Only refusals by the fence count: a patch with an outdated resourceVersion
is a conflict like any other. The number of series is bounded by the ring's resources.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from kubeshard.core.kinds import GroupResource
from kubeshard.leases.renewer import RENEWAL_FAILURES, RenewalFailure
from kubeshard.manager.fast_metrics import Durations
from kubeshard.metrics.declared import declared
from kubeshard.metrics.families import counter, gauge
from kubeshard.shard.identity import ShardIdentity
from kubeshard.shard.range_ownership import RangeOwnership, State

HELD_STATES = tuple(state for state in State if state is not State.FOREIGN)
ACKNOWLEDGEMENT_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class ShardMetrics(Collector):
    """The metrics of one shard. `margin` returns the seconds until its right to act ends; `refused` and `unfenced`
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
        self.ranges: RangeOwnership | None = None
        """Of a shard by ranges."""
        self._held = False
        self._renewals = 0
        self._failures: Counter[RenewalFailure] = Counter(dict.fromkeys(RENEWAL_FAILURES, 0))
        self._acknowledged: Counter[GroupResource] = Counter()
        self._durations = Durations(
            *declared("controller_sharding_drain_acknowledgement_seconds"), ACKNOWLEDGEMENT_BUCKETS
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
        lease = ring, self._shard.name
        held = gauge("controller_sharding_lease_held")
        held.add_metric(lease, self._held)
        margin = gauge("controller_sharding_lease_margin_seconds")
        margin.add_metric(lease, self._margin())
        renewals = counter("controller_sharding_lease_renewals_total")
        renewals.add_metric(lease, self._renewals)
        failures = counter("controller_sharding_lease_renewal_failures_total")
        for reason, count in self._failures.items():
            failures.add_metric((*lease, reason), count)
        yield from (held, margin, renewals, failures)
        yield from self._writes(ring)
        drains = counter("controller_sharding_drains_acknowledged_total")
        for resource, count in self._acknowledged.items():
            drains.add_metric((ring, *resource), count)
        buckets = gauge("controller_sharding_buckets")
        if self.ranges is not None:
            states = self.ranges.states
            for state in HELD_STATES:
                buckets.add_metric((*lease, state.name.lower()), states[state])
        yield from (buckets, drains)
        yield from self._durations.collect()

    def _writes(self, ring: str) -> Iterator[Metric]:
        refused = counter("controller_sharding_refused_writes_total")
        for by, count in zip(("shard", "server"), self._refused(), strict=True):
            refused.add_metric((ring, by), count)
        unfenced = counter("controller_sharding_unfenced_writes_total")
        unfenced.add_metric((ring,), self._unfenced())
        yield from (refused, unfenced)
