"""What a reconcile is given to work with."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Container, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, ParamSpec, Protocol, TypeVar

from kubeshard.cache.cache import Cache
from kubeshard.client.client import Client
from kubeshard.controller.desired.execution import Immutable
from kubeshard.controller.desired.order import Placed, order_of
from kubeshard.controller.desired.plan import Applied, Plan, Unowned
from kubeshard.controller.desired.sets import ApplyRequest, DesiredSets, Whose
from kubeshard.controller.event_series import ObjectReference
from kubeshard.controller.events import EventRecorder
from kubeshard.controller.fencing import FencingToken, fencing_token
from kubeshard.controller.in_flight import CurrentRun
from kubeshard.controller.run import Run
from kubeshard.controller.status import write_status
from kubeshard.core.errors import NoSuchCluster, NotOurs
from kubeshard.core.namespaces import AllNamespaces
from kubeshard.core.objects import Form, KubeObject, Struct
from kubeshard.core.selectors import Selector
from kubeshard.runtime.blocking_calls import CallRunner
from kubeshard.runtime.logs import Logger
from kubeshard.workqueue.reasons import Cause

T = TypeVar("T", bound=KubeObject)
R = TypeVar("R")
P = ParamSpec("P")


class RemoteCluster(NamedTuple):
    """Another cluster of the manager than that of the reconciled object. `cache` contains what its controllers watch
    there.

    Guaranteed: a write with the client belongs to the run, so the object is busy until the outcome is known. It is
    refused whenever a write at home would be, because this process does not lead or has lost its shard's Lease, and in
    a cluster that is another shard's by now. Its field manager is the controller.
    Not guaranteed: that reads from the cache include what the controller wrote there; use the client for those.
    """

    client: Client
    cache: Cache


class _Cluster(Protocol):
    @property
    def client(self) -> Client: ...

    @property
    def cache(self) -> Cache: ...


class RemoteClusters:
    """The clusters of a manager, for one controller. `elsewhere`: the names of those that another process has if they
    are not in `clusters`.
    """

    def __init__(
        self, clusters: Mapping[str, _Cluster], field_manager: str, elsewhere: Container[str] = ()
    ) -> None:
        self._clusters = clusters
        self._elsewhere = elsewhere
        self._field_manager = field_manager
        self._seen: dict[str, tuple[_Cluster, RemoteCluster]] = {}

    def at(self, cluster: str) -> RemoteCluster:
        """The cluster with this name. Raises NotOurs for that of another process, and NoSuchCluster."""
        place = self._clusters.get(cluster)
        if place is None:
            if cluster in self._elsewhere:
                raise NotOurs(f"cluster {cluster} is another shard's: neither read nor written")
            there = ", ".join(repr(name) if name else "the home cluster" for name in self._clusters)
            raise NoSuchCluster(f"there is no cluster {cluster!r}, only {there}")
        known = self._seen.get(cluster)
        if known is None or known[0] is not place:
            client = place.client.with_field_manager(self._field_manager).entered_in(CurrentRun()).sparing()
            known = self._seen[cluster] = place, RemoteCluster(client, place.cache)
        return known[1]


@dataclass(frozen=True, slots=True)
class Services:
    """What the runs of one controller use, apart from its client and caches."""

    events: EventRecorder
    log: Logger
    threads: CallRunner
    sets: DesiredSets
    remote_clusters: RemoteClusters
    term: Callable[[], int] = int
    """See `Cluster`."""


class Context:
    """One run of a reconciler, and what it can use.

        website = await ctx.get(Website, "blog")            # from the cache, with this run's own writes
        await ensure(ctx, deployment, owner=website)        # creates or updates
        await ctx.status(website, WebsiteStatus(ready=True))

    `key`: namespace and name of the reconciled object. `client`: for writes, and for reads past the cache; when the
    manager is sharded, it refuses to write an object that is another shard's. `log`: its lines carry controller, object
    and reconcile id, as do those of every other logger in the task. `clock`: the time, also in tests. `reconcile_id`:
    different in every run. `form`: the primary kind, as it is read.
    """

    def __init__(self, run: Run, services: Services) -> None:
        self.key = run.key
        self.form = run.form
        """The primary kind, as it is read."""
        self.client = run.client
        self.log = services.log
        self.clock = run.clock
        self.reconcile_id = run.reconcile_id
        self._run = run
        self._services = services
        self._applied: dict[Whose, ApplyRequest] | None = None if run.lasting else {}
        """What this run has applied; None outside a run."""

    @property
    def why(self) -> tuple[Cause, ...]:
        """Some of the triggers of this run: what happened, to which object, and when. For logs and traces only."""
        return self._run.why

    @property
    def reasons(self) -> tuple[str, ...]:
        """`why` as phrases."""
        return tuple(str(cause) for cause in self.why)

    @property
    def cache(self) -> Cache:
        """The objects in memory, for reads that need not see what this run wrote."""
        return self._run.cache

    @property
    def cluster(self) -> str:
        """The manager's cluster that the object is in; `""` is the home cluster."""
        return self.key.cluster

    def at(self, cluster: str) -> RemoteCluster:
        """The client and the cache of another of the manager's clusters; `""` is the home cluster. Like those of
        `client`, the client's writes belong to the run, but reads do not wait for them. Raises NoSuchCluster, and
        NotOurs for a cluster that is another shard's in a ring by clusters.
        """
        return self._services.remote_clusters.at(cluster)

    async def get(
        self, target: type[T] | Form[T], name: str, namespace: str | None = None, *, ours: bool = False
    ) -> T | None:
        """The object, or None. `namespace` defaults to that of the reconciled object.

        Reads the cache, for which the kind must be declared. It first waits, for a few seconds at most, until the cache
        shows what runs for this key wrote to that kind. An object of a sharded kind that is not in this shard's part is
        read from the API server, except the reconciled one; with `ours` it counts as absent, which saves a request for
        each child that is looked for before this reconciler creates it. Raises CacheBehind, UndeclaredKind,
        WrongNamespace, UndecodableObject; of a sharded kind also ApiErrors.
        """
        found = await self._run.get(target, name, namespace)
        if found is not None or ours:
            return found
        return await self._run.get_of_others(target, name, namespace)

    async def list(
        self,
        target: type[T] | Form[T],
        namespace: str | AllNamespaces | None = None,
        *,
        index: tuple[str, str] | None = None,
        labels: Selector | None = None,
    ) -> Sequence[T]:
        """The objects of a namespace (default: that of the reconciled object) or of `ALL`, optionally with an index
        value and matching labels; a snapshot in no particular order.

        Reads the cache like `get`, and raises like it; also raises UndeclaredIndex. Only the first run of a new shard
        also returns objects of other shards, which are not in the cache.
        """
        return await self._run.list(target, namespace, index=index, labels=labels)

    async def apply(
        self,
        *objects: Placed,
        owner: KubeObject | None = None,
        set: str = "",
        unowned: Unowned = "refuse",
        immutable: Immutable = "refuse",
        create_once: Sequence[Placed] = (),
    ) -> Applied:
        """Creates or updates these objects on behalf of `owner` (default: the reconciled object), and prunes those that
        earlier runs applied and that are no longer given. Sends nothing if all are as desired. For its guarantees
        see `kubeshard.controller.desired`.

        Fields are merged as in `ensure`, and sent by server-side apply: fields that a desired object does not set stay
        as they are, and fields that it no longer sets are given up. `Controller.applies` must declare their kinds.
        Objects in the owner's namespace, and all objects of a cluster-scoped owner, get a controller reference to it.
        The garbage collector does not delete other objects: `Finalizer.deleting_members` does.

        Pass all objects of a set in one call: a second call in the same run that leaves some of them out is refused.
        `set` distinguishes several sets of one owner. `unowned`: what to do with objects that exist already, have no
        controller and are in no set: "refuse" or "adopt". `immutable`: what to do with members whose immutable fields
        differ: "refuse" or "recreate", which deletes them first. `create_once`: members that are created if they do not
        exist, and then left as they are, whatever their fields say: a generated password.

        An object given as `Ordered(web, after=[database])` is created or changed when the others are ready, and deleted
        before them. What has to wait is in `Applied.held`; no error is raised, and the run that goes on is triggered by
        the object that is waited for.

        The first apply of a new kind also writes to the owner: read the owner again before writing to it with
        `base=` in the same run. Raises ApplyFailed with the errors of all objects that failed; Conflict and similar
        errors after stale reads; ValueError, TypeError, WrongNamespace, UndeclaredKind, AnothersApplySet.
        """
        plain, once, order = order_of(objects, create_once)
        request = ApplyRequest(plain, owner, set, unowned, immutable, once, order)
        sets = self._services.sets
        if self._applied is None:
            return await sets.apply(self._run, request)
        whose = request.whose
        if (earlier := self._applied.get(whose)) is not None:
            request.check_beside(earlier)
        applied = await sets.apply(self._run, request)
        self._applied[whose] = request
        return applied

    async def plan(
        self,
        *objects: Placed,
        owner: KubeObject | None = None,
        set: str = "",
        unowned: Unowned = "refuse",
        create_once: Sequence[Placed] = (),
    ) -> Plan:
        """What `apply` would do now. Writes nothing."""
        plain, once, order = order_of(objects, create_once)
        request = ApplyRequest(plain, owner, set, unowned, create_once=once, order=order)
        return await self._services.sets.plan(self._run, request)

    async def status(self, obj: T, status: Struct) -> T:
        """Replaces what this controller states in the object's status with `status`, and returns the updated object.

            await ctx.status(app, AppStatus(url=url, conditions=(Condition(type="Ready", status="True", reason="Up"),)))

        Sends nothing if the object, including what earlier runs wrote, already says so. A field that is None is not
        stated, and is removed if this controller stated it before; what others state stays. `observed_generation`, of
        the status and of its conditions, is set to the generation of `obj`, and the last transition time of
        conditions is filled in; a message that is too long is cut. If the object is gone, the given one is returned.

        Conditions of other controllers stay where the kind's definition makes the list a map by type
        (`x-kubernetes-list-type: map`). Raises NoStatusSubresource (not retried) for a kind without the subresource
        `status`, TypeError for a status of another class than the object's, ValueError for a condition that is not a
        valid metav1.Condition, Conflict, CacheBehind, NotOurs and other ApiErrors. RBAC: `patch` on
        `<resource>/status`.
        """
        return await write_status(self._run, obj, status)

    async def run_blocking(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls `function` in a thread and waits for it. A controller has as many threads as workers.

        A thread cannot be stopped. If the run is cancelled or times out, the call continues, and the object stays
        busy until it returns: no other run of the object starts, it is not handed to another shard, and the
        process does not release its Lease. `asyncio.to_thread` is tracked in the same way in a program that
        `kubeshard.manager.run` runs; threads started in other ways are not.
        """
        call = partial(contextvars.copy_context().run, function, *args, **kwargs)
        thread = await self._services.threads.begin(call)
        self._run.activities.follow(thread)
        return await asyncio.wrap_future(thread)

    def wait(self, work: Coroutine[Any, Any, R]) -> R:
        """In a thread of `run_blocking`, or in a `BlockingReconciler`: runs `work` (`ctx.client.patch(...)`,
        `ctx.get(...)`) in the event loop and returns its result. Raises CancelledError once the run is over, and
        RuntimeError in any other thread.
        """
        return self._run.activities.wait(work)

    def fencing_token(self, obj: KubeObject) -> FencingToken:
        """A token for calls to other systems than the API server about this object, with which they can refuse those of
        a former owner (`FencingToken`). `obj`: the reconciled object as this run got it. Raises ValueError.
        """
        return fencing_token(obj, self._services.term())

    def event(
        self,
        regarding: KubeObject | ObjectReference,
        type: Literal["Normal", "Warning"],
        reason: str,
        message: str,
        *,
        action: str = "Reconcile",
        related: KubeObject | ObjectReference | None = None,
    ) -> None:
        """Records a Kubernetes event about an object, which `kubectl describe` shows. It is sent in the background, and
        similar events are aggregated. May be called from any thread. RBAC: `create` and `patch` on `events` in
        `events.k8s.io`.
        """
        record = partial(
            self._services.events.event, regarding, type, reason, message, action=action, related=related
        )
        self._run.activities.in_loop(record)


def run_of(ctx: Context) -> Run:
    """The state of the run, for the framework."""
    return ctx._run


def with_run(ctx: Context, run: Run) -> Context:
    """A context of the same controller for another run."""
    return Context(run, ctx._services)
