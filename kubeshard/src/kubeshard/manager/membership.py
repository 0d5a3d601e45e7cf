"""The interface between the manager and sharding, or anything else that grants the right to act.

`kubeshard.shard.Sharding` implements `Membership`; the manager knows nothing else about sharding. A right to
act is a context manager that is entered when it is acquired, and left in one of three ways:

| how | the manager | the right |
|---|---|---|
| graceful stop | drains the workers, calls `stopped_cleanly`, leaves | is released at once |
| graceful stop, but work hangs | cancels the workers, leaves | is not released, and expires |
| `lost` returns | cancels all work at once, leaves; exit code 1 | is already gone |

`holding` is the last line: it cancels the work when the right ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, TypeVar

from kubeshard.cache.cache import Cache
from kubeshard.cache.scope import Scope
from kubeshard.client.client import Client
from kubeshard.controller.controller import Controller
from kubeshard.controller.event_series import ObjectReference
from kubeshard.controller.events import EventRecorder
from kubeshard.core.errors import KubeshardError
from kubeshard.core.kinds import GroupKind
from kubeshard.leases.held_lease import Gate
from kubeshard.manager.leader_election import LeaderElection
from kubeshard.manager.metrics import Metrics
from kubeshard.manager.runnable import Work

HealthGate = Callable[[], str | None]
"""Returns why this process is unfit to keep its right to act, or None. It is called in the event loop, and never waits;
a loop that does not call it is blocked. A process is unfit, too, if all kinds that it reconciles have been silent for a
long time, or workers are far past their deadlines.
"""


class Right(Protocol):
    """The right to act, while it lasts. `kubeshard.leases.HeldLease` is one."""

    @property
    def gate(self) -> Gate:
        """A gate that is closed while no further reconcile may start."""
        ...

    async def lost(self) -> str:
        """Returns the reason as soon as the right is about to end and work must be cancelled; otherwise waits
        forever.
        """
        ...

    def stopped_cleanly(self) -> None:
        """Called when all work has ended by itself and nothing is in flight: leaving may release the right."""
        ...


class SharedClusters(Protocol):
    """The other clusters of a manager, for a ring that shares them out. See `other_clusters.OtherClusters`."""

    @property
    def names(self) -> Collection[str]:
        """Those that the manager has. It follows what is added and removed."""
        ...

    def listen(self, changed: Callable[[], None]) -> None:
        """`changed` is called whenever the manager gets or loses a cluster."""
        ...

    def engage(self, name: str) -> None:
        """Connects to the cluster, and has controllers begin there. Raises KeyError, ValueError if it is engaged, and
        ConfigurationError; nothing has changed then.
        """
        ...

    def silent_in(self, name: str) -> float:
        """Seconds until nothing can be read any more from the cluster, which is engaged, if nothing is until then; 0 or
        less: nothing can be read.
        """
        ...

    async def release(self, name: str) -> None:
        """Has controllers work there no more, and disconnects. Returns when the runs there have ended; if cancelled, it
        cancels them and goes on. Nothing happens to a cluster that is not engaged.
        """
        ...


class Membership(Protocol):
    """A process's membership in a ring of shards. Methods are called in this order."""

    def rename(self, name: str) -> None:
        """Gives the shard this name instead of the one that the program or the pod gives it. Raises
        ConfigurationError for a name that cannot work.
        """
        ...

    def number(self, process: int) -> None:
        """This process is one of several in its pod, and has this number among them: the shard's name ends with it.
        Raises ConfigurationError if several cannot be members, each with its own share.
        """
        ...

    async def prepare(
        self, client: Client, controllers: Sequence[Controller[Any]], clusters: Mapping[str, Client]
    ) -> None:
        """Reads what the ring shards, waiting for it if necessary. `clusters` are the clusters other than the one of
        `client`. Raises ConfigurationError for a ring that cannot work.
        """
        ...

    def scopes(self, cluster: str) -> Mapping[GroupKind, Scope]:
        """The kinds of which this process only caches its own share."""
        ...

    def client(self, client: Client, cluster: str) -> Client:
        """The client for controllers, with fenced writes."""
        ...

    @property
    def objects_in(self) -> str:
        """The name of the cluster with the ring's objects. It stays the same while the process runs."""
        ...

    @property
    def shares_clusters(self) -> bool:
        """Whether the ring shares out the manager's other clusters as a whole, so that this process works in those only
        that it engages, and that one of them does not respond says nothing about this process. It stays the same while
        the process runs.
        """
        ...

    @property
    def about(self) -> ObjectReference | None:
        """What stands for this process in the home cluster, once it is known: events about the process refer to it."""
        ...

    @property
    def unready(self) -> str:
        """For readiness: why this process could not take over what others do, so that a rollout had better stop; "" if
        it could, or only waits for others to end.
        """
        ...

    @property
    def state(self) -> str:
        """What this process has of the ring, in one line; "" before that is known."""
        ...

    @property
    def election(self) -> LeaderElection | None:
        """The election for controllers that need leadership, if the manager has none."""
        ...

    def wrap(self, controller: Controller[Any], cluster: str) -> Controller[Any] | None:
        """The controller as a shard runs it in that cluster; the same one if the ring does not shard its primary kind
        there, or None if it does not run in this process.
        """
        ...

    def gate(self, controller: Controller[Any], cluster: str) -> Gate | None:
        """A gate of this controller's own in that cluster, if it may have to wait although the process may work.
        Called once for each, after `wrap`. The controller opens it when it is drained.
        """
        ...

    def beside(self, events: EventRecorder, metrics: Metrics, health: HealthGate) -> Sequence[Work]:
        """What this process does for the ring in addition to its controllers, while it has the right to act. It is
        drained and cancelled together with them.
        """
        ...

    def held(
        self,
        health: HealthGate,
        caches: Mapping[str, Cache],
        refused: Callable[[str], None],
        clusters: SharedClusters,
    ) -> AbstractAsyncContextManager[Right]:
        """Enters when the right to act is acquired, however long that takes. `caches` are the caches by cluster that
        the work reads. The Lease is only renewed while `health` returns None. `refused` is called with the API server's
        answer if it refuses the Lease. `clusters`: what is engaged while the right is held, if clusters are shared out.
        """
        ...

    def leaving(self) -> None:
        """The process stops, and its last work takes long. The right is held until that has ended, but others may get
        what nothing works on any more.
        """
        ...


T = TypeVar("T", bound=Right)

LOSS_GRACE = 3.0
"""Seconds within which a process that lost its right must end. Others may act a little later."""


class RightLost(KubeshardError):
    """The right to act ended: leadership or the shard's Lease was lost. The process must end."""


@asynccontextmanager
async def holding(
    held: AbstractAsyncContextManager[T], what: str, ending: Callable[[float | None], None]
) -> AsyncIterator[T]:
    """Runs the block with a right. When the right is lost the block is cancelled at once, `ending` is called with the
    seconds that are left, and RightLost is raised (in an exception group).
    """
    async with held as right, asyncio.TaskGroup() as tasks:
        watcher = tasks.create_task(_raise_when_lost(right, what, ending), name=f"{what} watcher")
        yield right
        watcher.cancel()


async def _raise_when_lost(right: Right, what: str, ending: Callable[[float | None], None]) -> None:
    reason = await right.lost()
    ending(LOSS_GRACE)
    raise RightLost(f"lost {what}: {reason}")
