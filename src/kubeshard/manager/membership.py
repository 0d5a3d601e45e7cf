"""What the manager asks of sharding, and of everything else that grants the right to work.

`kubeshard.shard.Sharding` implements `Membership`; the manager knows nothing else about sharding. A right to
work is entered when it is acquired, and left in one of three ways:

| how | the manager | the right |
|---|---|---|
| graceful stop | drains the workers, calls `stopped_cleanly`, leaves | gives the right back at once |
| graceful stop, but work hangs | cancels the workers, leaves | is silent: the right expires by itself |
| `lost` returns | cancels all work at once, leaves; exit code 1 | has nothing to give back |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from kubeshard.cache.cache import Cache
from kubeshard.cache.scope import Scope
from kubeshard.client.client import Client
from kubeshard.controller.context import EventSink
from kubeshard.controller.controller import Controller
from kubeshard.core.kinds import GroupKind
from kubeshard.manager.leader_election import LeaderElection
from kubeshard.manager.metrics import Metrics
from kubeshard.manager.runnable import Work
from kubeshard.tenure.tenure import Gate

HealthGate = Callable[[], str | None]
"""Why this process is not fit to keep its right to work, or None. Safe to call from any thread; never waits.
Unfit: the event loop does not turn, nothing was heard for long of a kind whose objects the right is about, a
worker is far over its own limit.
"""


class Right(Protocol):
    """The right to work, while it lasts. `kubeshard.tenure.Tenure` is one."""

    @property
    def gate(self) -> Gate:
        """Closed while no further reconcile may begin."""
        ...

    async def lost(self) -> str:
        """Returns the reason as soon as the right is about to end and work has to be cancelled; else waits
        for ever.
        """
        ...

    def stopped_cleanly(self) -> None:
        """All work has ended by itself, nothing is in flight: leaving may give the right back."""
        ...


class Membership(Protocol):
    """A process's part in a ring of shards. Called in the order of the methods."""

    async def prepare(
        self, client: Client, controllers: Sequence[Controller[Any]], clusters: Mapping[str, Client]
    ) -> None:
        """Learns what the ring shards, waiting for it if need be. `clusters`: those beside the one of `client`. Raises
        ConfigurationError for what cannot work.
        """
        ...

    def scopes(self, cluster: str) -> Mapping[GroupKind, Scope]:
        """The kinds of which this process caches its own share only."""
        ...

    def client(self, client: Client, cluster: str) -> Client:
        """The client for controllers: what it writes is fenced."""
        ...

    @property
    def election(self) -> LeaderElection | None:
        """The one for controllers that need leadership, in a manager without an election of its own."""
        ...

    def wrap(self, controller: Controller[Any], cluster: str) -> Controller[Any] | None:
        """The controller as a shard runs it in that cluster; the very same one if its primary kind is not sharded there
        by the ring. None: it does not run in this process.
        """
        ...

    def beside(self, events: EventSink, metrics: Metrics, health: HealthGate) -> Sequence[Work]:
        """What this process does for the ring beside its controllers, while it has the right to work. Drained
        and cancelled together with them.
        """
        ...

    def held(self, health: HealthGate, caches: Mapping[str, Cache]) -> AbstractAsyncContextManager[Right]:
        """Enters when the right to work on what `caches`, by cluster, show is acquired, however long that takes. The
        Lease is renewed only while `health` gives None.
        """
        ...
