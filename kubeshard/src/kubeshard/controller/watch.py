"""What a controller watches, as plain data."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import Any, Generic, TypeVar, cast

from kubeshard.cache.indexes import IndexFunction
from kubeshard.cache.scope import Scope
from kubeshard.controller.functions import takes_two
from kubeshard.controller.mapping import MapFunction, Reader
from kubeshard.controller.when import Predicate, always
from kubeshard.core.argument_hints import ArgumentHints
from kubeshard.core.clusters import check_clusters
from kubeshard.core.encoding import decoder
from kubeshard.core.errors import ConfigurationError
from kubeshard.core.kinds import Kind
from kubeshard.core.namespaces import ALL
from kubeshard.core.objects import Form, Key, KubeObject, form_of, two_classes

T = TypeVar("T", bound=KubeObject)

RESYNC = 36_000.0
"""Default seconds between two resyncs of a watch: ten hours, as in controller-runtime."""


_LABELS = (
    'scope=Scope(labels=Selector.parse("app=web")) to read only these objects, or '
    'when=when.label_selector("app=web") to be triggered only by these'
)
_FIELDS = 'scope=Scope(fields=FieldSelector.parse("metadata.name=web"))'
_NAMESPACES = 'scope=Scope(namespaces=frozenset({"default"}))'
_INSTEAD = {
    **dict.fromkeys(("label_selector", "labels", "selector"), _LABELS),
    **dict.fromkeys(("field_selector", "fields"), _FIELDS),
    **dict.fromkeys(("namespace", "namespaces"), _NAMESPACES),
    **dict.fromkeys(
        ("predicate", "predicates", "filter"),
        "when=when.generation_changed, or another predicate",
    ),
    **dict.fromkeys(("map", "mapping", "map_function"), "to=, in Controller.watches"),
}
"""Arguments that other libraries, or other functions of this one, have."""


class AnyWatch(ArgumentHints):
    """A `Watch` for any kind.

    Lists of watches are declared with this class and not with `Watch[Any]`, which would make a type checker infer every
    argument inside them as `Any`, and miss a wrong map function.
    """

    __slots__ = ()
    INSTEAD = _INSTEAD


@dataclass(frozen=True, slots=True)
class Watch(AnyWatch, Generic[T]):
    """Triggers reconciles on changes of a kind. RBAC: `list` and `watch` on the resource.

    `target`: a class, or `metadata_only(...)`. `when`: which changes trigger; other objects are still cached. `scope`:
    narrows the scope in which the manager caches the kind. `to`: the map function, only for watches in
    `Controller.watches`. `any_owner`: in `Controller.owns`, also trigger owners that do not control the object.
    `resync`: seconds, give or take a tenth, after which every cached object of the kind triggers again as if it had
    just been added; 0: never. A resync sends no request, and has lower priority than changes (`triggers`). `indexes`:
    the indexes that the map function uses, as if they were in `Controller.indexes`.

    `echoes`: whether an event triggers an object although it only shows what a run for this object has written. False
    saves the run that finds nothing to do after most of those that write. It is for reconcilers that go on with what
    their writes return, and do not return in order to be called again by the event. A new spec of the reconciled object
    triggers it in any case, and so does what its finalizers, daemons or `expires` wait for.

    `sharded`: in a manager that is a shard, objects of the kind are distributed over the shards: objects of the primary
    kind by their own name; in `owns`, `watches` and `reads` together with the object that controls them, and only those
    that have a controller. All controllers of the process see this shard's part of the kind. Has no effect without
    sharding. A ControllerRing, if there is one, decides, and must list the kind.

    `clusters`: in `Controller.watches`, the manager's clusters whose objects trigger, such as `OTHER_CLUSTERS`; by
    default the cluster of the primary objects. In any case, `to` returns keys of that cluster and reads from it.
    `sharded` has no effect then.

    Raises ValueError for a negative `resync`, TypeError for what is not a kind, a predicate or a map function.
    """

    target: type[T] | Form[T]
    when: Predicate[T] = always
    scope: Scope | None = None
    to: MapFunction[T] | None = None
    any_owner: bool = False
    resync: float = RESYNC
    sharded: bool = False
    indexes: Sequence[AnyIndex] = ()
    clusters: Container[str] | None = None
    echoes: bool = True

    def __post_init__(self) -> None:
        whose = f"watch of {self.form}"  # raises for what is not a kind
        if self.clusters is not None:
            check_clusters(whose, self.clusters)
        if not 0 <= self.resync < math.inf:
            raise ValueError(f"{whose}: resync {self.resync} s must not be negative; 0 is never")
        when: object = self.when
        if not isinstance(when, Predicate):
            name = getattr(when, "__qualname__", None) or repr(when)
            raise TypeError(
                f"{whose}: when={name} is not a predicate: give one such as when.generation_changed, "
                "when.changed(lambda obj: ...) or when.matching(lambda obj: ...)"
            )

        if self.to is None:
            return
        if iscoroutinefunction(self.to):
            raise TypeError(f"{whose}: the map function `to` is a plain function, not `async def`")
        if not takes_two(self.to):
            raise TypeError(
                f"{whose}: the map function `to` takes two arguments: a reader of the cache, and the object"
            )

    @property
    def form(self) -> Form[T]:
        return form_of(self.target)


class AnyIndex:
    """An `Index` for any kind: like `AnyWatch`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Index(AnyIndex, Generic[T]):
    """Cached objects of a kind indexed by strings: `ctx.list(Website, ALL, index=("theme", "dark"))`."""

    target: type[T] | Form[T]
    name: str
    function: IndexFunction[T]


def as_watch(target: AnyWatch | type[Any] | Form[Any]) -> Watch[Any]:
    if isinstance(target, Watch):
        return target
    return Watch(cast("type[Any] | Form[Any]", target))


def narrowed(scope: Scope, by: Scope) -> Scope:
    """The intersection of both scopes."""
    namespaces = scope.namespaces
    if by.namespaces is not ALL:
        namespaces = by.namespaces if namespaces is ALL else namespaces & by.namespaces
    hashes = scope.hashes if by.hashes is None else by.hashes
    if scope.hashes is not None and by.hashes is not None:
        hashes = scope.hashes & by.hashes
    return Scope(namespaces, scope.labels & by.labels, scope.fields & by.fields, hashes)


def check_classes(watches: Iterable[Watch[Any]]) -> None:
    """Raises ConfigurationError for watches of one kind in one scope with two classes, because a cache keeps only
    one, and for classes whose fields cannot be decoded.
    """
    known: dict[tuple[Kind, bool, Scope], Form[Any]] = {}
    for watch in watches:
        form = watch.form
        cls: Any = form.type
        try:
            decoder(cls)
        except (NameError, TypeError) as error:
            raise ConfigurationError(
                f"class {cls.__name__}: {error}; correct the types of its fields"
            ) from error
        place = (form.kind, form.metadata_only, watch.scope or Scope())
        if known.setdefault(place, form).same_but_class(form):
            raise ConfigurationError(two_classes(known[place], form))


P = TypeVar("P", bound=KubeObject)


def related(
    watched: type[T] | Form[T],
    primary: type[P] | Form[P],
    index: Index[T] | Index[P],
    *,
    when: Predicate[T] = always,
) -> Watch[T]:
    """A watch for `Controller.watches`: a change of a `watched` object triggers the `primary` objects that are related
    to it by the index. The index is on one of the two kinds, and is declared with the watch.

    If the index is on the primary kind, its values are names of watched objects: the primary objects that refer to the
    changed one are triggered. If it is on the watched kind, its values are names of primary objects, and these are
    triggered. Raises ValueError for an index on a third kind. RBAC: `list` and `watch` on the watched kind.

        watches=[related(Secret, App, Index(App, "secret", lambda app: [app.spec.secret]))]     # apps name secrets
        watches=[related(Binding, App, Index(Binding, "app", lambda b: [b.spec.app]))]          # bindings name apps

    An index records which objects refer to which; the reconciler uses it in the other direction:

        apps = await ctx.list(App, index=("secret", secret.metadata.name))
        bindings = await ctx.list(Binding, index=("app", app.metadata.name))

    Values of the index are names in the object's own namespace, or `namespace/name` for another namespace; plain names
    for cluster-scoped kinds. Guaranteed, as for every map function: an object that stops referring to another triggers
    the one it referred to before, and a deleted object triggers all that it referred to.
    """
    named: Index[Any] = index
    form, main, indexed = form_of(watched), form_of(primary), form_of(named.target)
    to: MapFunction[T]
    if indexed == main:
        to = _those_that_name(main, form.kind, index.name)
    elif indexed == form:
        to = _those_named(main.kind, named)
    else:
        raise ValueError(
            f"index {index.name!r} is on {indexed}: to relate {form} to {main} it must be on one of them"
        )
    return Watch(form, when=when, to=to, indexes=(index,))


def _those_that_name(primary: Form[Any], named: Kind, index: str) -> MapFunction[Any]:
    everywhere = ALL if primary.kind.namespaced else None

    def keys(reader: Reader, obj: KubeObject) -> Iterable[Key]:
        name, namespace = obj.metadata.name, obj.metadata.namespace
        if not named.namespaced:
            found = reader.list(primary, everywhere, index=(index, name))
        else:
            found = reader.list(primary, everywhere, index=(index, f"{namespace}/{name}"))
            if primary.kind.namespaced:
                found = [*found, *reader.list(primary, namespace, index=(index, name))]
        return {each.key: None for each in found}

    return keys


def _those_named(primary: Kind, index: Index[Any]) -> MapFunction[Any]:
    def keys(_: Reader, obj: KubeObject) -> Iterable[Key]:
        for value in index.function(obj):
            namespace, slash, name = value.rpartition("/")
            if not slash:
                namespace = obj.metadata.namespace
            if name and (namespace or not primary.namespaced):
                yield Key(namespace if primary.namespaced else "", name)

    return keys
