"""Leader election: only one of several instances of a program acts.

`LeaderElector.held()` waits until this instance is the leader, and returns the right to act, a
`kubeshard.leases.HeldLease`:

- its gate closes two seconds before the deadline (start nothing new) and opens again if a renewal succeeds in time;
- `lost()` returns one second before the deadline, or when another instance holds the Lease: cancel all work and end the
  process;
- leaving releases the Lease if `stopped_cleanly()` was called. Otherwise the Lease expires, so that no other instance
  takes over while a reconcile that did not end may still write.

The Lease is kept like a shard's: in a thread with its own connection, while `health` finds the process fit; and a
watchdog ends the process at the deadline, `renew_deadline` after the last renewal, unless all work has verifiably
ended before. So a leader whose reconcile blocks the event loop, or that is stopped, no longer exists when another
instance may act, `lease_duration` after the last renewal that it saw.

Not guaranteed: that no request of a former leader is still on its way: a Lease is not a fence. Without the watchdog
(`LeaderElection.watchdog`) only: from the deadline on `check()` raises, so no write of its reconcilers starts, even
before `lost()` can return; but what a reconcile does elsewhere, and a write that a stopped process was about to send,
may happen while another instance acts. That is what client-go guarantees.

RBAC: `get`, `create` and `update` on `leases` in `coordination.k8s.io`, in the election's namespace.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Protocol

from kubeshard.client.client import Client
from kubeshard.controller.controller import Controller
from kubeshard.core.builtin import Lease
from kubeshard.core.errors import ConfigurationError, NotOurs
from kubeshard.core.grants import Grant
from kubeshard.core.kinds import Kind
from kubeshard.core.names import is_dns_subdomain
from kubeshard.leases.claim import Claim, GroupClaim
from kubeshard.leases.former import until_free
from kubeshard.leases.held_lease import HeldLease
from kubeshard.leases.renewer import LeaseMetrics, LeaseRenewer, NoLeaseMetrics
from kubeshard.leases.state_machine import LeaseStateMachine
from kubeshard.leases.timing import Timing
from kubeshard.runtime.loop_thread import SameLoop
from kubeshard.runtime.watchdog import NoSignals, NoWatchdog, Watchdog

HANG_TOLERANCE = 20.0
"""Seconds after the end of the lease duration when a leader that did not renew it counts as hung."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionTiming(Timing):
    """The timing of an election. The defaults are client-go's."""

    what: ClassVar[str] = "leader election"


class LeaderFence:
    """Refuses writes while this process does not lead, even just before the work is cancelled. Objects do not carry the
    leader's name, so the server does not reject a late write.
    """

    def __init__(self) -> None:
        self.leadership: HeldLease | None = None

    def proof(self, kind: Kind) -> None:
        return None

    def check(self) -> None:
        if self.leadership is None:
            raise NotOurs("this instance is not the leader")
        self.leadership.check()


class ReplacedRight(Protocol):
    """A right to act that another one replaces: nobody may begin with the new one while somebody has the old one."""

    @property
    def grant_to_replace(self) -> Grant:
        """What `ended` needs."""
        ...

    async def ended(self, client: Client) -> None:
        """Returns when nobody has the right any more: it was released, or has expired as seen from here. Whether
        somebody acquires it again later is not its business.
        """
        ...


GROUP_TIMING = ElectionTiming(lease_duration=30.0, renew_deadline=13.0, retry_period=4.0)
"""Each member reads the Lease once per period, and one of them writes it. The right is shorter than the usual duration
of 15 s, for which some candidates wait whatever the record says: those of client-go before 0.27, and of fabric8.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderElection:
    """The Lease to compete for. `namespace` defaults to the pod's or, outside a pod, to that of the kubeconfig's
    context. `identity` defaults to `<hostname>_<uuid>`, which is unique per process and readable. Raises
    ConfigurationError for a `name` that is not a valid Lease name.

    `watchdog=False`: a leader that does not stop on its own is not killed; see the module for what is guaranteed then.
    For a process that must survive the loss of its leadership (a test, a manager inside a larger program), and for
    process 1 of a container that `kubeshard.manager.run` cannot move under an init.

    `replaces`: the election or sharding (`kubeshard.shard.Sharding`) that earlier instances of the program had. This
    election does not compete until nobody holds a right from the old one (`ReplacedRight`). See docs/how-to/rollout.md.

    `fence`: for the program's own clients that only the leader may write with, `client.fenced(election.fence)`. It
    follows whichever manager of this declaration became the leader last. Reconcilers do not need it: their clients
    have the fence of their manager.
    """

    name: str = field(kw_only=False)
    namespace: str | None = None
    identity: str = ""
    timing: ElectionTiming = field(default_factory=ElectionTiming)
    watchdog: bool = True
    replaces: ReplacedRight | None = None
    fence: LeaderFence = field(default_factory=LeaderFence, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not is_dns_subdomain(self.name):
            raise ConfigurationError(
                f"leader election: {self.name!r} is not a valid Lease name: lower case letters, digits, '-' and '.'"
            )

    def grants(self, controllers: Iterable[Controller[Any]], scope_of: object = None) -> Iterator[Grant]:
        """The RBAC rules that it needs (`kubeshard.manager.roles`)."""
        yield Grant.on(Lease, "create", namespace=self.namespace or None)
        yield Grant.on(Lease, "get", "update", namespace=self.namespace or None, name=self.name)
        if self.replaces is not None:
            yield self.replaces.grant_to_replace

    @property
    def grant_to_replace(self) -> Grant:
        return Grant.on(Lease, "get", namespace=self.namespace or None, name=self.name)

    async def ended(self, client: Client) -> None:
        await until_free(client, _namespace(self, client), name=self.name)

    @asynccontextmanager
    async def held_by_group(self, client: Client, group: str) -> AsyncIterator[HeldLease]:
        """Holds the election's Lease together with the other processes of the group, so that none of its candidates
        becomes the leader. Enters when no leader can act any more, however long that takes.
        """
        world = client.world
        machine = LeaseStateMachine(
            GroupClaim(_namespace(self, client), self.name, group, GROUP_TIMING), world.rng.uniform
        )
        held = HeldLease(world.clock, f"{group} no longer holds the Lease {self.name}", lambda: None)
        renewer = LeaseRenewer(
            machine,
            held,
            None,
            connect=partial(_connection, client),
            watches=False,
            watchdog=NoWatchdog(),
            clock=world.clock,
            alarm=world.alarm,
            metrics=NoLeaseMetrics(),
            rewound=lambda: None,
        )
        async with renewer.held(SameLoop()):
            yield held


USER_AGENT = "leader-election"
"""The suffix of the user agent of Lease requests."""

AS_INIT = (
    "leader election: this is process 1 of its container, which the kernel would not end at its deadline. Use "
    "kubeshard.manager.run before any thread has started, which adds an init process; or an init in the container: "
    "tini, docker run --init, shareProcessNamespace: true; or LeaderElection(..., watchdog=False), with which a leader "
    "that is stopped or blocked may act beside the next one"
)


class LeaderElector:
    """One candidate for one Lease. Enter `held` once. `metrics` is called from the renewer's thread.

    The renewer has its own client, with the configuration of `client`, in the same world. `labels` and `annotations`
    are what the leader writes to its Lease. `watches`: whether a candidate watches it, and so leads at once after a
    leader that has stopped, instead of up to five seconds later. RBAC for that: `watch` on the Lease. `defers`: whether
    it lets others go first, and leads only if none of them has looked at the free Lease twice and taken it.
    """

    def __init__(
        self,
        client: Client,
        election: LeaderElection,
        metrics: LeaseMetrics,
        *,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        watches: bool = False,
        defers: bool = False,
    ) -> None:
        world, timing = client.world, election.timing
        self._watches = watches
        self.identity = election.identity or f"{world.host.name()}_{world.rng.token()}"
        self.fence = LeaderFence()
        """For the clients of this manager's reconcilers."""
        self._election = election
        self._client = client
        self._clock = world.clock
        self._metrics = metrics
        claim = Claim(
            _namespace(election, client),
            election.name,
            self.identity,
            timing,
            labels=labels,
            annotations=annotations,
            defers=2 * timing.retry_period * (1 + timing.jitter) if defers else 0.0,
        )
        self._machine = LeaseStateMachine(claim, world.rng.uniform)
        self._term = 0

    @property
    def leader(self) -> str:
        """The identity of the current leader as last observed here; `""` for none."""
        return self._machine.holder

    def term(self) -> int:
        """The version of the Lease when this instance became the leader: greater than in every earlier term. 0 before
        that, and with an API server whose versions are no numbers.
        """
        return self._term

    @property
    def first(self) -> bool:
        """Whether nobody has led before this instance, unless the Lease was deleted since."""
        return self._machine.claim.first

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
    ) -> AsyncIterator[HeldLease]:
        """Enters when this instance has become the leader, however long that takes; renews until the block
        ends.

        `health` returns why this process is unfit to lead, or None: while it is unfit, or this loop is blocked, the
        Lease is not renewed. `rewound` is called when the Lease shows that etcd was restored from a backup. Both are
        called in this loop. Raises ConfigurationError where the watchdog would have no effect.
        """
        world, here = self._client.world, asyncio.get_running_loop()

        def in_this_loop(callback: Callable[..., None], *args: object) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody wants to know any more
                here.call_soon_threadsafe(callback, *args)

        def connect() -> Client:
            own = _connection(self._client)
            own.observers.extend(partial(in_this_loop, observer) for observer in self._client.observers)
            return own

        if self._election.replaces is not None:
            await self._election.replaces.ended(self._client)
        held = HeldLease(self._clock, "this instance is no longer the leader", lambda: None)
        renewer = LeaseRenewer(
            self._machine,
            held,
            health,
            connect=connect,
            watches=self._watches,
            watchdog=self._watchdog(),
            clock=self._clock,
            alarm=world.alarm,
            metrics=self._metrics,
            rewound=partial(in_this_loop, rewound),
        )
        async with renewer.held(world.thread(USER_AGENT)):
            self._term = int(version) if (version := self._machine.version).isdigit() else 0
            self.fence.leadership = self._election.fence.leadership = held
            yield held

    def _watchdog(self) -> Watchdog:
        if not self._election.watchdog:
            return NoWatchdog()
        try:
            return self._client.world.watchdog()
        except NoSignals as error:
            raise ConfigurationError(AS_INIT) from error


def _namespace(election: LeaderElection, client: Client) -> str:
    return election.namespace or client.world.host.pod_namespace() or client.namespace


def _connection(client: Client) -> Client:
    """A renewal that waits for a rate limit, or for a throttling server's Retry-After, would be too late."""
    return Client(client.config, world=client.world).with_user_agent(USER_AGENT).impatient()
