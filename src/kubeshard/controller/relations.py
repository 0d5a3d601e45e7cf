"""Watches of kinds that the primary kind refers to, or that refer to it.

    watches=[related(Secret, App, Index(App, "secret", lambda app: [app.spec.secret]))]     # apps name secrets
    watches=[related(Binding, App, Index(Binding, "app", lambda b: [b.spec.app]))]          # bindings name apps

An index records which objects refer to which; the reconciler uses it in the other direction:

    apps = await ctx.list(App, index=("secret", secret.metadata.name))
    bindings = await ctx.list(Binding, index=("app", app.metadata.name))

Values of the index are names in the object's own namespace, or `namespace/name` for another namespace; plain names for
cluster-scoped kinds. Guaranteed, as for every map function: an object that stops referring to another triggers the one
it referred to before, and a deleted object triggers all that it referred to.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from kubeshard.controller.mapping import MapFunction, Reader
from kubeshard.controller.watch import Index, Watch
from kubeshard.controller.when import Predicate, always
from kubeshard.core.kinds import Kind
from kubeshard.core.namespaces import ALL
from kubeshard.core.objects import Form, Key, KubeObject, form_of

T = TypeVar("T", bound=KubeObject)
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
