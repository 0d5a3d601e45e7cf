"""The declaration of a controller: what triggers it, what it does, and how fast. A manager starts it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import (
    Callable,
    Collection,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from datetime import datetime
from inspect import iscoroutinefunction
from itertools import combinations
from typing import Any, Generic, TypeVar

from kubeshard.cache.indexes import IndexFunction
from kubeshard.cache.scope import Scope
from kubeshard.controller.daemons import Daemon
from kubeshard.controller.finalizers import Finalizer, held_by
from kubeshard.controller.generator import Generator
from kubeshard.controller.outcomes import GiveUpAfter, check_give_up_after
from kubeshard.controller.reconciler import (
    BlockingReconciler,
    ReconcileFunction,
    Reconciler,
    ReconcilerWrapper,
    RunWrapper,
    check_reconciler,
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
from kubeshard.workqueue.delays import Debounce
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
"""Arguments of other libraries."""

_LISTS: Mapping[str, tuple[type, str]] = {
    "owns": (object, "ConfigMap"),
    "applies": (object, "ConfigMap"),
    "watches": (object, "Watch(Theme, to=...)"),
    "reads": (object, "ConfigMap"),
    "indexes": (Index, 'Index(Site, "theme", ...)'),
    "grants": (Grant, 'Grant.on(Pod, "delete")'),
    "finalizers": (Finalizer, "Finalizer(key, cleanup)"),
    "daemons": (Daemon, "Daemon(function)"),
}
"""Arguments that are lists, what they consist of, and an example. A Watch knows itself what a kind is."""

_SINGLE = (str, type, Form, Watch, Index, Grant, Finalizer, Daemon)
"""What is given in place of a list of it, by mistake."""


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
        """What is checked here is its own, or concerns several values together; the others are checked where they are
        made.
        """
        whose = f"controller {self.name}"
        self._check_values(whose)
        self._check_lists(whose)
        self._check_watches(whose)
        self._check_together(whose)

    def _check_values(self, whose: str) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"controller name {self.name!r}: lower case letters, digits, '-', '.' and '_', at most 63"
            )
        if not isinstance(self.workers, int):
            raise TypeError(f"{whose}: workers={self.workers!r} is not an int")
        if not isinstance(self.reconcile_timeout, int | float):
            raise TypeError(
                f"{whose}: reconcile_timeout={self.reconcile_timeout!r} is not a number of seconds"
            )
        if self.workers < 1 or self.reconcile_timeout <= 0:
            raise ValueError(f"{whose}: workers and reconcile_timeout must be positive")
        if not callable(self.order):
            raise TypeError(
                f"{whose}: order={self.order!r} cannot be called: give a function "
                "that creates an order, such as order=deque or order=lambda: RoundRobin(tenant)"
            )
        if not isinstance(self.debounce, Debounce | None):
            raise TypeError(f"{whose}: debounce takes a Debounce(quiet=..., longest=...)")
        expires: Any = self.expires
        if expires is not None and (not callable(expires) or iscoroutinefunction(expires)):
            raise TypeError(
                f"{whose}: expires is a plain function of the object, which returns a datetime or None"
            )
        check_give_up_after(whose, self.give_up_after)
        check_reconciler(whose, self.reconciler)
        check_clusters(whose, self.clusters)

    def _check_lists(self, whose: str) -> None:
        for name, (cls, example) in _LISTS.items():
            takes, given = f"{name} takes a list, as in {name}=[{example}]", getattr(self, name)
            if isinstance(given, _SINGLE):
                raise TypeError(f"{whose}: {takes}")
            for each in given:
                if not isinstance(each, cls):
                    raise TypeError(f"{whose}: {each!r} in {name} is not of the type {cls.__name__}: {takes}")

    def _check_watches(self, whose: str) -> None:
        """Which of them may have a map function, and be elsewhere than the primary objects."""
        for watch in (self.primary_watch, *self.owned_watches):
            if watch.to is not None:
                raise ValueError(f"{whose}: the map function of {watch.form} belongs in watches")
            if watch.clusters is not None:
                raise ValueError(
                    f"{whose}: the watch of {watch.form} is in the cluster of its primary objects: say `clusters` of "
                    "the controller, or of an entry of watches"
                )
        for watch in (*self.mapping_watches, *self.crossing_watches):
            if watch.to is None:
                raise ValueError(f"{whose}: the watch of {watch.form} in watches needs a map function `to`")
        for watch in map(as_watch, self.reads):
            if watch.to is not None or watch.when is not always:
                raise ValueError(
                    f"{whose}: changes of {watch.form} in reads trigger nothing, so leave `when` and `to` out, or put "
                    "it into watches"
                )
            if watch.clusters is not None:
                raise ValueError(
                    f"{whose}: {watch.form} in reads is read in the cluster of the primary objects; to read another "
                    "cluster, put it into watches with its `clusters`"
                )

    def _check_together(self, whose: str) -> None:
        owned = {as_watch(watch).form.kind.group_kind for watch in self.owns}
        for form in (watch.form for watch in self.applied_watches):
            if form.metadata_only:
                raise TypeError(
                    f"{whose}: {form} in applies: what is applied is compared whole, so give its class"
                )
            if form.kind.group_kind in owned:
                raise ValueError(
                    f"{whose}: {form} is in owns and in applies: what is applied is owned, so leave it out of owns"
                )
        if isinstance(self.reconciler, Generator) and not self.applies:
            raise ValueError(f"{whose}: say which kinds the Generator makes, as in applies=[ConfigMap]")
        keys = [each.key for each in self.finalizers]
        if len(set(keys)) < len(keys):
            raise ValueError(f"{whose}: two finalizers have the same key")
        if self.error_condition and not has_conditions(self.primary_watch.form.type):
            raise TypeError(
                f"{whose}: error_condition needs `conditions: tuple[Condition, ...] = ()` in the "
                f"status of {self.primary_watch.form.type.__name__}"
            )
        if self.sources and HOME_CLUSTER not in self.clusters:
            raise ValueError(
                f"{whose}: sources run at home, where it does not work: add HOME_CLUSTER to clusters"
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
    """Raises TypeError if this is not a list of controllers, ValueError for duplicate names, for two controllers that
    set the same finalizer on the same objects, and for indexes that could not be built where the controllers work.
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
    _check_indexes([(controller, _indexed(controller)) for controller in controllers])


_Indexed = Mapping[tuple[Form[Any], Scope, str], IndexFunction[Any]]
"""The functions of a controller's indexes, by what is indexed, and their names."""


def _indexed(controller: Controller[Any]) -> _Indexed:
    scopes: dict[Form[Any], Scope] = {}
    for watch in controller.all_watches:
        scopes.setdefault(watch.form, watch.scope or Scope())
    functions: dict[tuple[Form[Any], Scope, str], IndexFunction[Any]] = {}
    for index in controller.declared_indexes:
        form = form_of(index.target)
        if form not in scopes:
            raise ValueError(
                f"controller {controller.name}: index {index.name!r} is of {form}, which it does not watch: add it to "
                "owns, watches or reads"
            )
        if functions.setdefault((form, scopes[form], index.name), index.function) is not index.function:
            raise ValueError(f"controller {controller.name} has two indexes {index.name!r} of {form}")
    return functions


def _check_indexes(indexed: Iterable[tuple[Controller[Any], _Indexed]]) -> None:
    for (one, ours), (other, theirs) in combinations([each for each in indexed if each[1]], 2):
        for what in ours.keys() & theirs.keys():
            form, _, name = what
            if ours[what] is not theirs[what] and overlap(one.clusters, other.clusters):
                raise ValueError(
                    f"controllers {one.name} and {other.name} have different indexes {name!r} of {form}: share one, or "
                    "give them two names"
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
