"""Leader election: only one of several instances of a program acts.

`LeaderElector.held()` waits until this instance is the leader, and returns the right to act, a
`kubeshard.tenure.Tenure`:

- its gate closes two seconds before the deadline (start nothing new) and opens again if a renewal succeeds in time;
- `lost()` returns one second before the deadline, or when another instance holds the Lease: cancel all work and end the
  process;
- leaving releases the Lease if `stopped_cleanly()` was called. Otherwise the Lease expires, so that no other instance
  takes over while a reconcile that did not end may still write.

The keeper of the Lease shares the event loop with the work: while the loop is blocked, the Lease is not renewed, so the
deadline passes and `check()` raises from then on, even before `lost()` can return.

RBAC: `get`, `create` and `update` on `leases` in `coordination.k8s.io`, in the election's namespace.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar

from kubeshard.client.client import Client
from kubeshard.controller.controller import Controller
from kubeshard.core.builtin import Lease
from kubeshard.core.errors import ConfigurationError
from kubeshard.core.grants import Grant
from kubeshard.core.names import is_dns_subdomain
from kubeshard.runtime.thread import SameLoop
from kubeshard.runtime.watchdog import NoWatchdog
from kubeshard.tenure.claim import Claim
from kubeshard.tenure.keeper import LeaseKeeper, TenureMetrics
from kubeshard.tenure.machine import Machine
from kubeshard.tenure.tenure import Tenure
from kubeshard.tenure.timing import Timing

HANG_TOLERANCE = 20.0
"""Seconds after the end of the lease duration when a leader that did not renew it counts as hung."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionTiming(Timing):
    """The timing of an election. The defaults are client-go's."""

    what: ClassVar[str] = "leader election"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderElection:
    """The Lease to compete for. `namespace` defaults to the pod's or, outside a pod, to that of the kubeconfig's
    context. `identity` defaults to `<hostname>_<uuid>`, which is unique per process and readable. Raises
    ConfigurationError for a `name` that is not a valid Lease name.
    """

    name: str
    namespace: str | None = None
    identity: str = ""
    timing: ElectionTiming = field(default_factory=ElectionTiming)

    def __post_init__(self) -> None:
        if not is_dns_subdomain(self.name):
            raise ConfigurationError(
                f"leader election: {self.name!r} is not a valid Lease name: lower case letters, digits, '-' and '.'"
            )

    def grants(self, controllers: Iterable[Controller[Any]]) -> Iterator[Grant]:
        """The RBAC rules that it needs (`kubeshard.manager.roles`)."""
        yield Grant.on(Lease, "create", namespace=self.namespace or None)
        yield Grant.on(Lease, "get", "update", namespace=self.namespace or None, name=self.name)


class LeaderElector:
    """One candidate for one Lease. Enter `held` once."""

    def __init__(self, client: Client, election: LeaderElection, metrics: TenureMetrics) -> None:
        world = client.world
        self.identity = election.identity or f"{world.host.name()}_{world.rng.token()}"
        # A renewal that waits for the rate limit, or for the Retry-After of a throttling server, would be too late.
        self._client = client.with_user_agent("leader-election").impatient()
        self._clock = world.clock
        self._metrics = metrics
        namespace = election.namespace or world.host.pod_namespace() or client.namespace
        claim = Claim(namespace, election.name, self.identity, election.timing)
        self._machine = Machine(claim, world.rng.uniform)

    @property
    def leader(self) -> str:
        """The identity of the current leader as last observed here; `""` for none."""
        return self._machine.holder

    def hung(self) -> bool:
        """Whether this instance believes that it leads, but has not renewed for far too long: restart it."""
        machine, timing = self._machine, self._machine.timing
        if not machine.holds or machine.deadline is None:
            return False
        renewed = machine.deadline - timing.renew_deadline
        return self._clock.boottime() > renewed + timing.lease_duration + HANG_TOLERANCE

    @asynccontextmanager
    async def held(
        self, health: Callable[[], str | None], rewound: Callable[[], None] = lambda: None
    ) -> AsyncIterator[Tenure]:
        """Enters when this instance has become the leader, however long that takes; renews until the block
        ends.

        `health` returns why this process is unfit to lead, or None: while it is unfit the Lease is not renewed.
        `rewound` is called when the Lease shows that etcd was restored from a backup.
        """
        tenure = Tenure(self._clock, "this instance is no longer the leader", lambda: None)
        keeper = LeaseKeeper(
            self._machine,
            tenure,
            health,
            connect=lambda: nullcontext(self._client),
            watches=False,
            watchdog=NoWatchdog(),
            clock=self._clock,
            metrics=self._metrics,
            rewound=rewound,
        )
        async with keeper.held(SameLoop(), release=True):
            yield tenure
