"""What a reconcile is given to work with."""

from __future__ import annotations

import asyncio
import contextvars
import copy
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, ParamSpec, Protocol, TypeVar

from kubeshard.cache.cache import Cache
from kubeshard.cache.own_writes import OwnWrites
from kubeshard.client.client import Client
from kubeshard.controller.desired.execution import Immutable
from kubeshard.controller.desired.plan import Applied, Plan, Unowned
from kubeshard.controller.desired.sets import ApplyRequest, DesiredSets, Whose
from kubeshard.controller.event_series import ObjectReference
from kubeshard.controller.in_flight import Run
from kubeshard.controller.reader import ControllerReader
from kubeshard.controller.remote_clusters import RemoteCluster, RemoteClusters
from kubeshard.controller.status import Report, write_status
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.errors import NotFound
from kubeshard.core.kinds import Kind
from kubeshard.core.namespaces import AllNamespaces, namespace_of, namespaces_of
from kubeshard.core.objects import Form, Key, KubeObject, Struct, form_of
from kubeshard.core.selectors import Selector
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import Logger
from kubeshard.runtime.threads import CallRunner
from kubeshard.workqueue.reasons import Cause, Wanted

T = TypeVar("T", bound=KubeObject)
R = TypeVar("R")
P = ParamSpec("P")


class EventSink(Protocol):
    """A destination of Kubernetes events, such as `EventRecorder`. It never waits and never raises."""

    def reporting_as(self, controller: str) -> EventSink: ...

    def event(
        self,
        regarding: KubeObject | ObjectReference,
        type: Literal["Normal", "Warning"],
        reason: str,
        message: str,
        *,
        action: str = "Reconcile",
        related: KubeObject | ObjectReference | None = None,
    ) -> None: ...


class Context:
    """One run of a reconciler.

    `client` writes, and is fenced when the manager is sharded. Later calls of `get` and `list`, in this run and in
    later runs for the same key, see what it wrote. `cache` is for reads that do not need this guarantee. `why` contains
    some of the triggers, each with what happened, to which object, and when; `reasons` has the same as phrases. Both
    are for logs and traces only. `log` and every other logger of the task carry controller, object and reconcile id.
    """

    _unfinished: str = ""
    """A human-readable note of which part of the object's deletion is in progress; set by finalizers."""
    _report: Report | None = None
    """What this run has reported about its outcome (`Controller.error_condition`)."""

    def __init__(
        self,
        *,
        key: Key,
        form: Form[Any],
        client: Client,
        reader: ControllerReader,
        writes: OwnWrites,
        events: EventSink,
        log: Logger,
        clock: Clock,
        run: Run,
        threads: CallRunner,
        reconcile_id: str = "",
        wanted: Wanted | None = None,
        sets: DesiredSets | None = None,
        remote_clusters: RemoteClusters | None = None,
    ) -> None:
        self.key = key
        self.form = form
        """The primary kind, as it is read."""
        self.client = client
        self.log = log
        self.clock = clock
        self.reconcile_id = reconcile_id
        self._wanted = wanted
        self._sets = sets or DesiredSets("kubeshard", ())
        self._applied: dict[Whose, ApplyRequest] | None = {}
        """What this run has applied; None outside a run."""
        self._rewrites = self._sets.rewrites
        """How the API server stores what the controller sends."""
        self._fresh: Callable[[Kind], bool] = _none
        """The kinds that `get` and `list` read from the API server instead of the cache."""
        self.undecodable: UndecodableObject | None = None
        """Why only the object's metadata could be decoded. Only a controller's guards see such objects."""
        self._reader = reader
        self._writes = writes
        self._events = events
        self._run = run
        """What this run has in flight."""
        self._threads = threads
        self._remote_clusters = remote_clusters or RemoteClusters({}, "")

    @property
    def why(self) -> tuple[Cause, ...]:
        return () if self._wanted is None else self._wanted.causes

    @property
    def reasons(self) -> tuple[str, ...]:
        return tuple(str(cause) for cause in self.why)

    @property
    def cache(self) -> Cache:
        return self._reader.cache

    @property
    def cluster(self) -> str:
        """The manager's cluster that the object is in; `""` is the home cluster."""
        return self.key.cluster

    def at(self, cluster: str) -> RemoteCluster:
        """The client and the cache of another of the manager's clusters; `""` is the home cluster. Like those of
        `client`, the client's writes belong to the run, but reads do not wait for them. Raises NoSuchCluster.
        """
        return self._remote_clusters.at(cluster)

    async def get(self, target: type[T] | Form[T], name: str, namespace: str | None = None) -> T | None:
        """The object, or None. `namespace` defaults to that of the reconciled object.

        Reads the cache, for which the kind must be declared. It first waits, for a few seconds at most, until the cache
        shows what runs for this key wrote to that kind. Raises CacheBehind, UndeclaredKind, WrongNamespace,
        UndecodableObject; in the first run of a new shard also ApiErrors.
        """
        informer = self._reader.informer(target)
        form = informer.form
        place = namespace_of(form.kind, name, namespace, self.key.namespace)
        if self._fresh is not _none and self._fresh(form.kind):
            try:
                return await self.client.get(form, name, place)
            except NotFound:
                return None
        if not informer.has_synced:
            await self._reader.filled(form)
        if self._writes:
            await self._writes.settled(self.cache, form)
        return self._reader.get_from(informer, name, place)

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

        Otherwise like `get`; also raises UndeclaredIndex. The first run of a new shard also returns objects of
        other shards, which are not in the cache.
        """
        form = form_of(target)
        place = namespaces_of(form.kind, namespace, own=self.key.namespace)
        if self._fresh(form.kind):
            self._reader.informer(form)
            return await self._reader.list_live(self.client, form, place, index=index, labels=labels)
        if not self._reader.informer(form).has_synced:
            await self._reader.filled(form)
        if self._writes:
            await self._writes.settled(self.cache, form)
        return self._reader.list(form, place, index=index, labels=labels)

    async def apply(
        self,
        *objects: KubeObject,
        owner: KubeObject | None = None,
        set: str = "",
        unowned: Unowned = "refuse",
        immutable: Immutable = "refuse",
    ) -> Applied:
        """Creates or updates these objects on behalf of `owner` (default: the reconciled object), and prunes those that
        earlier runs applied and that are no longer given. Sends nothing if all are as desired. For its guarantees
        see `kubeshard.controller.desired`.

        Fields are merged as in `ensure`, and sent by server-side apply: fields that a desired object does not set stay
        as they are, and fields that it no longer sets are given up. `Controller.applies` must declare their kinds.
        Objects in the owner's namespace, and all objects of a cluster-scoped owner, get a controller reference to it.
        The garbage collector does not delete other objects: apply an empty set in a finalizer to delete them.

        Pass all objects of a set in one call: a second call in the same run that leaves some of them out is refused.
        `set` distinguishes several sets of one owner. `unowned`: what to do with objects that exist already, have no
        controller and are in no set: "refuse" or "adopt". `immutable`: what to do with members whose immutable fields
        differ: "refuse" or "recreate", which deletes them first.

        The first apply of a new kind also writes to the owner: read the owner again before writing to it with
        `base=` in the same run. Raises ApplyFailed with the errors of all objects that failed; Conflict and similar
        errors after stale reads; ValueError, WrongNamespace, UndeclaredKind, AnothersApplySet.
        """
        request = ApplyRequest(objects, owner, set, unowned, immutable)
        if self._applied is None:
            return await self._sets.apply(self, self._reader, self._writes, request)
        request.check_beside(self._applied.get(request.whose))
        applied = await self._sets.apply(self, self._reader, self._writes, request)
        self._applied[request.whose] = request
        return applied

    async def plan(
        self,
        *objects: KubeObject,
        owner: KubeObject | None = None,
        set: str = "",
        unowned: Unowned = "refuse",
    ) -> Plan:
        """What `apply` would do now. Writes nothing."""
        return await self._sets.plan(
            self, self._reader, self._writes, ApplyRequest(objects, owner, set, unowned)
        )

    async def status(self, obj: T, status: Struct) -> T:
        """Replaces what this controller states in the object's status with `status`, and returns the updated object.

            await ctx.status(app, AppStatus(url=url, conditions=(Condition(type="Ready", status="True", reason="Up"),)))

        Sends nothing if the object, including what earlier runs wrote, already says so. A field that is None is not
        stated, and is removed if this controller stated it before; what others state stays. `observed_generation`, of
        the status and of its conditions, is set to the generation of `obj`, and the last transition time of
        conditions is filled in; a message that is too long is cut. An object that is gone is returned as given.

        Conditions of other controllers stay where the kind's definition makes the list a map by type
        (`x-kubernetes-list-type: map`). Raises NoStatusSubresource (not retried) for a kind without the subresource
        `status`, TypeError for a status of another class than the object's, ValueError for a condition that is not a
        valid metav1.Condition, Conflict, CacheBehind, NotOurs and other ApiErrors. RBAC: `patch` on
        `<resource>/status`.
        """
        return await write_status(self, obj, status)

    async def run_blocking(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls `function` in a thread and waits for it. A controller has as many threads as workers.

        A thread cannot be stopped. If the run is cancelled or times out, the call continues, and the object stays
        busy until it returns: no other run of the object starts, it is not handed to another shard, and the
        process does not release its Lease. `asyncio.to_thread` is tracked in the same way in a program that
        `kubeshard.manager.run` runs; threads started in other ways are not.
        """
        call = partial(contextvars.copy_context().run, function, *args, **kwargs)
        thread = await self._threads.begin(call)
        self._run.follow(thread)
        return await asyncio.wrap_future(thread)

    def wait(self, work: Coroutine[Any, Any, R]) -> R:
        """In a thread of `run_blocking`, or in a `BlockingReconciler`: runs `work` (`ctx.client.patch(...)`,
        `ctx.get(...)`) in the event loop and returns its result. Raises CancelledError once the run is over, and
        RuntimeError in any other thread.
        """
        return self._run.wait(work)

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
        record = partial(self._events.event, regarding, type, reason, message, action=action, related=related)
        self._run.in_loop(record)

    def _reading_live(self, kinds: Callable[[Kind], bool] = lambda _: True) -> Context:
        """A copy of this context that reads these kinds live. It is for the first reconcile after the object became
        ours, when the cache may not yet show what its previous shard wrote.
        """
        live = copy.copy(self)
        live._fresh = kinds
        return live

    def _lasting(self) -> Context:
        """A context for a task that outlives this run: its activities, threads and own writes are not the run's."""
        lasting = copy.copy(self)
        lasting._run = self._run.another()
        lasting._writes = OwnWrites(self.clock)
        lasting._applied = None
        lasting._fresh, lasting._report, lasting._wanted = _none, None, None
        return lasting

    @contextmanager
    def _entered(self) -> Iterator[None]:
        """What this task writes belongs to this context until the block ends."""
        with self._writes.recording(), self._run:
            yield

    def _prune(self) -> None:
        """Forgets writes that the cache has caught up with."""
        self._writes.prune(self.cache)


def _none(_: Kind) -> bool:
    return False
