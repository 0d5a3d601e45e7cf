"""The declaration of a controller: what triggers it, what it does, and how fast. A manager starts it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import (
    AsyncIterable,
    Awaitable,
    Callable,
    Collection,
    Container,
    Iterable,
    Iterator,
    Sequence,
)
from dataclasses import dataclass
from datetime import datetime, timedelta
from inspect import iscoroutinefunction
from itertools import combinations
from typing import Any, Generic, TypeVar

from kubeshard.cache.scope import Scope
from kubeshard.controller.context import Context
from kubeshard.controller.daemons import Daemon
from kubeshard.controller.desired.execution import Immutable
from kubeshard.controller.desired.order import Placed
from kubeshard.controller.desired.plan import Applied, Unowned
from kubeshard.controller.finalizers import Finalizer, held_by
from kubeshard.controller.outcomes import GiveUpAfter
from kubeshard.controller.reconciler import (
    BlockingReconciler,
    ReconcileFunction,
    Reconciler,
    ReconcilerWrapper,
    Result,
    RunWrapper,
    is_plain,
    takes_two,
)
from kubeshard.controller.sources import Source
from kubeshard.controller.watch import AnyIndex, AnyWatch, Index, Watch, as_watch
from kubeshard.controller.when import Predicate, always, never
from kubeshard.core.argument_hints import ArgumentHints
from kubeshard.core.clusters import HOME_CLUSTER, check_clusters, overlap
from kubeshard.core.desired_status import has_conditions
from kubeshard.core.grants import Grant
from kubeshard.core.kinds import GroupKind
from kubeshard.core.namespaces import ALL
from kubeshard.core.objects import Form, Key, KubeObject, ObjectMeta, form_of, metadata_only
from kubeshard.runtime.world import World
from kubeshard.workqueue.debounce import Debounce
from kubeshard.workqueue.limits import Limiter
from kubeshard.workqueue.order import Order, RoundRobin

T = TypeVar("T", bound=KubeObject)


@dataclass(frozen=True, slots=True)
class Guard:
    """A wrapper that decides by the object's metadata whether a run may happen (`Controller.guarded`)."""

    wrapper: RunWrapper
    undecodable: Callable[[ObjectMeta], bool]
    """Decides by the metadata which objects that do not fit the controller's class trigger it."""


_NAME = re.compile(r"[a-z0-9]([-._a-z0-9]{0,61}[a-z0-9])?")


_INSTEAD = {
    "maps": "watches=[Watch(Theme, to=...)]",
    "writes": 'grants=[Grant.on(Pod, "create", "patch", "delete")]',
    "predicates": "primary=Watch(Site, when=when.generation_changed)",
}
"""Arguments of earlier versions, and of other libraries."""


@dataclass(frozen=True, kw_only=True)
class Controller(ArgumentHints, Generic[T]):
    """Reconciles the objects of one kind, its primary kind, while all kinds that it watches are served (`syncing`).

    `name` is unique in the process: it labels metrics, logs and events (`<name>-controller`), and is the field
    manager of its writes. `reconciler`: an instance of a `Reconciler` or a `BlockingReconciler`, or an `async def`
    function of a context and the object.

    `owns`: kinds whose changes trigger their owner of the primary kind.
    `applies`: the same, for kinds of which `ctx.apply` or a `Generator` creates and prunes objects; both refuse other
    kinds. `watches`: kinds whose changes trigger the keys that `Watch.to` returns. `reads`: kinds that are cached for
    `ctx.get` and `ctx.list`, and whose changes trigger nothing. `indexes`: for `ctx.list`. `sources`: other triggers.
    `grants`: the rights that the reconciler needs beyond what these declare, as in `Grant.on(Pod, "delete")`; only
    `kubeshard rbac` and the manifests use them.

    `workers`: how many objects are reconciled at once. `limiter` creates the rate limiter for retries, as in `lambda
    world: ItemExponential(1.0, 30.0, rng=world.rng)`; default: 0.2 s doubling to 60 s, plus jitter. Recent changes have
    priority over the initial list and resyncs; at equal priority, the queue that `order` creates decides: by default
    namespaces take turns; `deque` is first in, first out. `debounce`: merges a burst of triggers of an object into one
    run, as in `Debounce(quiet=1.0, longest=10.0)`. `reconcile_timeout`: seconds after which a run is cancelled and
    counts as failed; one that does not end costs its own object only (`deadlines`). `needs_leadership`: run in one
    process at a time; has no effect on controllers of a sharding ring, because one shard reconciles each object anyway.
    `finalizers`: what to clean up before an object is deleted, in this order; with finalizers, `reconcile` is not
    called for objects that are being deleted. `error_condition`: the type of a condition, such as `Ready`, that shows
    whether and why the last run of an object failed. `give_up_after`: how many failed runs in a row (an int), or how
    long after the first of them (a timedelta), are enough: the object is not retried until it changes or something else
    triggers it; it gets an event, and the error condition has the reason `GaveUp`. `expires`: returns when an object is
    to be deleted, from what the object says, or None (`expiry`). `daemons`: background tasks, one per object for as
    long as it exists. `clusters`: the names of the manager's clusters in which it works, or
    `EVERY_CLUSTER` or `OTHER_CLUSTERS`; default: the home cluster. It has a separate queue, workers and informers in
    each. `sources` run only for the home cluster. `wrappers`: wrap every run, the first one outermost; `guards` wrap
    those.

    Raises ValueError and TypeError for a declaration that cannot work.
    """

    name: str
    reconciler: Reconciler[T] | BlockingReconciler[T] | ReconcileFunction[T]
    primary: Watch[T] | type[T] | Form[T]
    owns: Sequence[AnyWatch | type[KubeObject] | Form[Any]] = ()
    applies: Sequence[AnyWatch | type[KubeObject] | Form[Any]] = ()
    watches: Sequence[AnyWatch] = ()
    reads: Sequence[AnyWatch | type[KubeObject] | Form[Any]] = ()
    indexes: Sequence[AnyIndex] = ()
    sources: Sequence[Source] = ()
    grants: Sequence[Grant] = ()
    workers: int = 1
    limiter: Callable[[World], Limiter] | None = None
    order: Callable[[], Order[Key]] = RoundRobin
    debounce: Debounce | None = None
    reconcile_timeout: float = 600.0
    needs_leadership: bool = True
    finalizers: Sequence[Finalizer[T]] = ()
    error_condition: str = ""
    give_up_after: GiveUpAfter = None
    expires: Callable[[T], datetime | None] | None = None
    daemons: Sequence[Daemon[T]] = ()
    clusters: Container[str] = (HOME_CLUSTER,)
    wrappers: tuple[ReconcilerWrapper, ...] = ()
    guards: tuple[Guard, ...] = ()

    INSTEAD = _INSTEAD

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"controller name {self.name!r}: lower case letters, digits, '-', '.' and '_', at most 63"
            )
        if not isinstance(self.workers, int):
            raise TypeError(f"controller {self.name}: workers={self.workers!r} is not an int")
        if not isinstance(self.reconcile_timeout, int | float):
            raise TypeError(
                f"controller {self.name}: reconcile_timeout={self.reconcile_timeout!r} is not a number of seconds"
            )
        if self.workers < 1 or self.reconcile_timeout <= 0:
            raise ValueError(f"controller {self.name}: workers and reconcile_timeout must be positive")
        limit: Any = self.give_up_after
        if isinstance(limit, bool) or not isinstance(limit, int | timedelta | None):
            raise TypeError(
                f"controller {self.name}: give_up_after takes a number of failed runs, or a timedelta"
            )
        if limit is not None and not (limit > timedelta() if isinstance(limit, timedelta) else limit > 0):
            raise ValueError(f"controller {self.name}: give_up_after={limit!r} must be positive")
        _check_reconciler(self.name, self.reconciler)
        if not callable(self.order):
            raise TypeError(
                f"controller {self.name}: order={self.order!r} cannot be called: give a function "
                "that creates an order, such as order=deque or order=lambda: RoundRobin(tenant)"
            )
        if not isinstance(self.debounce, Debounce | None):
            raise TypeError(f"controller {self.name}: debounce takes a Debounce(quiet=..., longest=...)")
        for name in ("owns", "applies", "watches", "reads", "grants"):
            if isinstance(getattr(self, name), type | Form | Watch | Grant):
                raise TypeError(f"controller {self.name}: {name} takes a list")
        for watch in (*self.all_watches, *self.crossing_watches):
            form_of(watch.target)  # raises for what is not a kind
        for grant in self.grants:
            if not isinstance(grant, Grant):
                raise TypeError(
                    f"controller {self.name}: {grant!r} in grants is not a Grant: say which verbs, as in "
                    'Grant.on(Pod, "delete")'
                )
        for index in self.indexes:
            if not isinstance(index, Index):
                raise TypeError(f"controller {self.name}: {index!r} in indexes is not an Index")
        for watch in (*self.mapping_watches, *self.crossing_watches):
            if watch.to is None:
                raise ValueError(
                    f"controller {self.name}: the watch of {watch.form} in watches needs a map function `to`"
                )
            if iscoroutinefunction(watch.to):
                raise TypeError(
                    f"controller {self.name}: the map function of {watch.form} is a plain function, not `async def`"
                )
            if not takes_two(watch.to):
                raise TypeError(
                    f"controller {self.name}: the map function of {watch.form} takes two arguments: a reader of the "
                    "cache, and the object"
                )
        self._check_applies()
        self._check_deletion_and_report()
        for watch in (self.primary_watch, *self.owned_watches):
            if watch.to is not None:
                raise ValueError(
                    f"controller {self.name}: the map function of {watch.form} belongs in watches"
                )
            if watch.clusters is not None:
                raise ValueError(
                    f"controller {self.name}: the watch of {watch.form} is in the cluster of its primary objects: say "
                    "`clusters` of the controller, or of an entry of watches"
                )
        self._check_reads()
        check_clusters(f"controller {self.name}", self.clusters)
        if self.sources and HOME_CLUSTER not in self.clusters:
            raise ValueError(
                f"controller {self.name}: sources run at home, where it does not work: add HOME_CLUSTER to clusters"
            )

    def _check_reads(self) -> None:
        for watch in map(as_watch, self.reads):
            if watch.to is not None or watch.when is not always:
                raise ValueError(
                    f"controller {self.name}: changes of {watch.form} in reads trigger nothing, so leave `when` and "
                    "`to` out, or put it into watches"
                )
            if watch.clusters is not None:
                raise ValueError(
                    f"controller {self.name}: {watch.form} in reads is read in the cluster of the primary objects; "
                    "to read another cluster, put it into watches with its `clusters`"
                )

    def _check_applies(self) -> None:
        owned = {as_watch(watch).form.kind.group_kind for watch in self.owns}
        for form in (watch.form for watch in self.applied_watches):
            if form.metadata_only:
                raise TypeError(
                    f"controller {self.name}: {form} in applies: what is applied is compared whole, so give its class"
                )
            if form.kind.group_kind in owned:
                raise ValueError(
                    f"controller {self.name}: {form} is in owns and in applies: what is applied is owned, so leave it "
                    "out of owns"
                )
        if isinstance(self.reconciler, Generator) and not self.applies:
            raise ValueError(
                f"controller {self.name}: say which kinds the Generator makes, as in applies=[ConfigMap]"
            )

    def _check_deletion_and_report(self) -> None:
        finalizers: Any = self.finalizers
        if isinstance(finalizers, Finalizer) or not all(isinstance(each, Finalizer) for each in finalizers):
            raise TypeError(f"controller {self.name}: finalizers takes a list of Finalizer(key, cleanup)")
        daemons: Any = self.daemons
        if isinstance(daemons, Daemon) or not all(isinstance(each, Daemon) for each in daemons):
            raise TypeError(f"controller {self.name}: daemons takes a list of Daemon(function)")
        expires: Any = self.expires
        if expires is not None and (not callable(expires) or iscoroutinefunction(expires)):
            raise TypeError(
                f"controller {self.name}: expires is a plain function of the object, which returns a datetime or None"
            )
        keys = [each.key for each in self.finalizers]
        if len(set(keys)) < len(keys):
            raise ValueError(f"controller {self.name}: two finalizers have the same key")
        if self.error_condition and not has_conditions(self.primary_watch.form.type):
            raise TypeError(
                f"controller {self.name}: error_condition needs `conditions: tuple[Condition, ...] = ()` in the "
                f"status of {self.primary_watch.form.type.__name__}"
            )

    @property
    def primary_watch(self) -> Watch[T]:
        return as_watch(self.primary)

    @property
    def owned_watches(self) -> Sequence[Watch[Any]]:
        """The watches of `owns` and `applies`."""
        return (*map(as_watch, self.owns), *self.applied_watches)

    @property
    def applied_watches(self) -> Sequence[Watch[Any]]:
        return tuple(as_watch(watch) for watch in self.applies)

    @property
    def applied_kinds(self) -> Collection[GroupKind]:
        return frozenset(watch.form.kind.group_kind for watch in self.applied_watches)

    @property
    def deleted_sets(self) -> Collection[str] | None:
        """The desired sets whose members finalizers delete; None if some finalizer has a cleanup of its own."""
        sets = [finalizer.sets for finalizer in self.finalizers]
        return None if None in sets else {name for some in sets for name in some or ()}

    @property
    def mapping_watches(self) -> Sequence[Watch[Any]]:
        return tuple(watch for watch in map(as_watch, self.watches) if watch.clusters is None)

    @property
    def crossing_watches(self) -> Sequence[Watch[Any]]:
        """The watches of objects in other clusters than the primary ones."""
        return tuple(watch for watch in map(as_watch, self.watches) if watch.clusters is not None)

    @property
    def read_watches(self) -> Sequence[Watch[Any]]:
        """The watches of `reads`, which trigger nothing."""
        return tuple(dataclasses.replace(as_watch(watch), when=never) for watch in self.reads)

    @property
    def leaving_watches(self) -> Sequence[Watch[Any]]:
        """The metadata of the objects that may have left the selectors of the primary kind with a finalizer on them."""
        scope = self.primary_watch.scope
        if not self.finalizers or scope is None or not (scope.labels.requirements or scope.fields):
            return ()
        form = metadata_only(self.primary_watch.form.kind)
        return (Watch(form, when=held_by(self.finalizers), scope=Scope(scope.namespaces)),)

    @property
    def all_watches(self) -> Iterator[Watch[Any]]:
        """All watches in the cluster of the primary objects, the primary one first."""
        yield self.primary_watch
        yield from self.owned_watches
        yield from self.mapping_watches
        yield from self.read_watches
        yield from self.leaving_watches

    @property
    def declared_indexes(self) -> Sequence[Index[Any]]:
        """The declared indexes, including those of the watches, each once."""
        found = [*self.indexes, *(index for watch in self.all_watches for index in watch.indexes)]
        return tuple(dict.fromkeys(index for index in found if isinstance(index, Index)))

    def wrapped(self, wrapper: ReconcilerWrapper) -> Controller[T]:
        """A copy in which `wrapper` wraps every run, outside the existing wrappers."""
        return dataclasses.replace(self, wrappers=(wrapper, *self.wrappers))

    def guarded(
        self, wrapper: RunWrapper, undecodable: Callable[[ObjectMeta], bool] = lambda _: False
    ) -> Controller[T]:
        """Like `wrapped`, but outside all wrappers, and `wrapper` also gets objects that do not fit the controller's
        class: as a PartialObject, with `Run.undecodable` set. If it passes one on, the run ends with
        `UndecodableObject`. A change of such an object triggers a run if `undecodable` returns True for its metadata.
        """
        return dataclasses.replace(self, guards=(Guard(wrapper, undecodable), *self.guards))

    def filtered(self, when: Predicate[T]) -> Controller[T]:
        """A copy whose primary watch has this `when` instead; combine it with the `when` of `primary_watch` as
        needed.
        """
        return dataclasses.replace(self, primary=dataclasses.replace(self.primary_watch, when=when))


def check_controllers(controllers: Any) -> None:
    """Raises TypeError if this is not a list of controllers, ValueError for duplicate names, and for two controllers
    that set the same finalizer on the same objects.
    """
    if isinstance(controllers, Controller):
        raise TypeError(f"a manager takes a list of controllers: Manager([{controllers.name}])")
    for controller in controllers:
        if not isinstance(controller, Controller):
            raise TypeError(f"{controller!r} is not a Controller: put it into Controller(name=..., ...)")
    names = [controller.name for controller in controllers]
    if doubles := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"several controllers are named {', '.join(doubles)}")
    for one, other in combinations([controller for controller in controllers if controller.finalizers], 2):
        shared = {each.key for each in one.finalizers} & {each.key for each in other.finalizers}
        if shared and _may_share_objects(one, other):
            raise ValueError(
                f"controllers {one.name} and {other.name} both set the finalizer {min(shared)} on "
                f"{one.primary_watch.form.kind.kind}s: the first of them to clean up would remove it while the other "
                "still works; give each its own key, or move both cleanups into one controller"
            )


def _may_share_objects(one: Controller[Any], other: Controller[Any]) -> bool:
    """Whether both may reconcile the same object. An object keeps its namespace but not its labels, so only different
    namespaces keep two controllers apart.
    """
    kind = one.primary_watch.form.kind
    if kind.group_kind != other.primary_watch.form.kind.group_kind:
        return False
    if not overlap(one.clusters, other.clusters):
        return False
    mine, theirs = ((each.primary_watch.scope or Scope()).namespaces for each in (one, other))
    return not kind.namespaced or mine is ALL or theirs is ALL or not mine.isdisjoint(theirs)


def _check_reconciler(controller: str, reconciler: Any) -> None:
    """Raises before the first run for mistakes because of which every run would fail or do nothing."""
    if isinstance(reconciler, type):
        raise TypeError(_no_reconciler(controller, reconciler))
    if all(callable(getattr(reconciler, method, None)) for method in ("reconcile", "gone")):
        _check_methods(controller, reconciler)
    elif callable(reconciler):
        _check_function(controller, reconciler)
    else:
        raise TypeError(_no_reconciler(controller, reconciler))


def _no_reconciler(controller: str, what: object) -> str:
    return (
        f"controller {controller}: {what!r} is not a reconciler: give an instance of a subclass of Reconciler, or an "
        "`async def` function of a context and an object"
    )


def _check_function(controller: str, function: Callable[..., Any]) -> None:
    whose = f"controller {controller}: {_name_of(function)}"
    if not takes_two(function):
        raise TypeError(f"{whose} takes other arguments than (ctx, obj)")
    if is_plain(function):
        raise TypeError(f"{whose} is not an `async def`: make it one, or derive from BlockingReconciler")


def _name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", None) or repr(function)


def _check_methods(controller: str, reconciler: Any) -> None:
    whose = f"controller {controller}: {type(reconciler).__name__}"
    if getattr(type(reconciler), "reconcile", None) in (Reconciler.reconcile, BlockingReconciler.reconcile):
        raise TypeError(f"{whose} has no method `reconcile`")
    for name, arguments in (("reconcile", "ctx, obj"), ("gone", "ctx, key")):
        method = getattr(reconciler, name)
        if not takes_two(method):
            raise TypeError(f"{whose}.{name} takes other arguments than ({arguments})")
        blocking = isinstance(reconciler, BlockingReconciler)
        if blocking and iscoroutinefunction(method):
            raise TypeError(
                f"{whose}.{name} is `async def`: derive from Reconciler, or make it a plain function"
            )
        if not blocking and is_plain(method):
            raise TypeError(
                f"{whose}.{name} is not an `async def`: make it one, or derive from BlockingReconciler"
            )


Generate = Callable[[Context, T], AsyncIterable[Placed] | Awaitable[Iterable[Placed]]]
"""An `async def` function that yields or returns the objects that should exist for an object, with their order."""

Then = Callable[[Context, T, Applied], Awaitable[Result | None]]
"""Called with the objects as they are after they have been applied, for example to call `ctx.status(...)`."""


class Generator(Reconciler[T]):
    """A reconciler that only declares which objects should exist for an object.

        async def pages(ctx: Context, page: Page) -> AsyncIterator[KubeObject]:
            yield ConfigMap(...)
            if page.spec.public:
                yield Ingress(...)

        Controller(name="page", reconciler=Generator(pages), primary=Page, applies=[ConfigMap, Ingress])

    The yielded objects are the desired set of the object (`ctx.apply`, `kubeshard.controller.desired`): they are
    created or updated, and those that were yielded before and no longer are get pruned. Also guaranteed: if the
    function raises, nothing is applied or deleted, however much it had yielded; a function that returns None has
    forgotten something, which is an error and not an empty set.

    When the object is deleted, the garbage collector deletes what refers to it: all generated objects in its namespace,
    or all generated objects if it is cluster-scoped. For other objects, give the controller the finalizer that
    `cleanup` returns.

    `then` is called with the result of `ctx.apply`, and returns the result of the run. `set`, `unowned`, `immutable`
    and RBAC: see `ctx.apply`.
    """

    def __init__(
        self,
        generate: Generate[T],
        *,
        then: Then[T] | None = None,
        set: str = "",
        unowned: Unowned = "refuse",
        immutable: Immutable = "refuse",
    ) -> None:
        for function in (generate, then):
            if function is not None and not callable(function):
                raise TypeError(f"{function!r} is not a function of (ctx, obj)")
        if not takes_two(generate):
            raise TypeError(f"{generate!r} takes other arguments than (ctx, obj)")
        self._generate = generate
        self._then = then
        self._set = set
        self._unowned: Unowned = unowned
        self._immutable: Immutable = immutable

    async def reconcile(self, ctx: Context, obj: T, /) -> Result | None:
        """Generates nothing for an object that is being deleted: its objects are deleted with it."""
        if obj.metadata.deleting:
            return None
        wanted = await self._wanted(ctx, obj)
        applied = await ctx.apply(
            *wanted, owner=obj, set=self._set, unowned=self._unowned, immutable=self._immutable
        )
        return None if self._then is None else await self._then(ctx, obj, applied)

    def cleanup(self, key: str) -> Finalizer[T]:
        """`Finalizer.deleting_members` for what was generated."""
        return Finalizer.deleting_members(key, self._set)

    async def _wanted(self, ctx: Context, obj: T) -> list[Placed]:
        found: Any = self._generate(ctx, obj)
        if isinstance(found, AsyncIterable):
            return [each async for each in found]
        if isinstance(found, Awaitable):
            found = await found
        if isinstance(found, Iterable) and not isinstance(found, str | bytes):
            return list(found)
        name = getattr(self._generate, "__qualname__", None) or repr(self._generate)
        raise TypeError(
            f"{name} returned {found!r}: yield the objects, or return a list of them, which may be empty"
        )
