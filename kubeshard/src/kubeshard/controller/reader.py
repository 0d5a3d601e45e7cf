"""Reads the kinds that a controller declared, in the scopes in which it declared them.

Guaranteed: two controllers that watch one kind in different scopes each read their own scope. A kind that the
controller did not declare is read in the only scope in which the process has it. An object is reported as absent only
if the cache would show it; a read that the cache cannot answer is an error:

| read | raises |
|---|---|
| a kind that nobody declared | UndeclaredKind |
| an index that nobody declared | UndeclaredIndex |
| a namespace that is missing, or that the kind does not have | WrongNamespace |
| a cache that has not been filled yet | CacheBehind |

`get` and `list` never wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from kubeshard.cache.cache import Cache
from kubeshard.cache.errors import CacheBehind, UndeclaredKind
from kubeshard.cache.informer import Informer
from kubeshard.cache.own_writes import PATIENCE
from kubeshard.cache.scope import Scope
from kubeshard.cache.store import UndeclaredIndex
from kubeshard.client.client import Client
from kubeshard.controller.watch import Index, Watch, narrowed
from kubeshard.core.kinds import GroupKind
from kubeshard.core.namespaces import ALL, AllNamespaces, namespace_of, namespaces_of
from kubeshard.core.objects import Form, Key, KubeObject, form_of
from kubeshard.core.selectors import Selector

T = TypeVar("T", bound=KubeObject)


class ControllerReader:
    """The `Reader` of one controller. If the controller watches a form in several scopes, the first one is read."""

    def __init__(
        self, cache: Cache, watches: Iterable[Watch[Any]] = (), indexes: Iterable[Index[Any]] = ()
    ) -> None:
        self.cache = cache
        watches = tuple(watches)
        self.declared: dict[Form[Any], Scope] = {}
        """The scopes that the author declared, without what the manager added (the shard's label)."""
        for watch in watches:
            self.declared.setdefault(watch.form, watch.scope or Scope())
        self._scopes = {form: narrowed(cache.scope_of(form.kind), by) for form, by in self.declared.items()}
        self._watched = [
            (each.form, narrowed(cache.scope_of(each.form.kind), each.scope or Scope())) for each in watches
        ]
        self._informers: dict[object, Informer[Any]] = {}
        """Cached by target: finding the form and the scope of a class costs more than the read."""
        self._of: dict[GroupKind, Collection[Informer[Any]]] = {}
        self._looked_at = -1
        self._index_functions = {(form_of(index.target), index.name): index.function for index in indexes}

    def get(self, target: type[T] | Form[T], name: str, namespace: str | None = None) -> T | None:
        informer = self.informer(target)
        place = namespace_of(informer.form.kind, name, namespace)
        _check_filled(informer)
        return self.get_from(informer, name, place)

    def get_from(self, informer: Informer[T], name: str, place: str) -> T | None:
        """`get` for callers that know the informer, that it is filled, and the object's namespace."""
        if informer.scope.namespaces is not ALL:
            return self.cache.get_from(informer, name, place)  # raises for what is outside
        return informer.store.get(Key(place, name))

    def list(
        self,
        target: type[T] | Form[T],
        namespace: str | AllNamespaces | None = None,
        *,
        index: tuple[str, str] | None = None,
        labels: Selector | None = None,
    ) -> Sequence[T]:
        informer = self.informer(target)
        place = namespaces_of(informer.form.kind, namespace)
        _check_filled(informer)
        return self.cache.list_from(informer, place, index=index, labels=labels)

    def whole_scope(self, form: Form[Any]) -> Scope:
        """The scope in which the controller reads the form, together with those of other processes of its ring."""
        whole = self.cache.wholes.get(form.kind.group_kind) or self.cache.scope_of(form.kind)
        return narrowed(whole, self.declared.get(form, Scope()))

    def informer(self, target: type[T] | Form[T]) -> Informer[T]:
        """The informer that `get` and `list` read. Raises UndeclaredKind."""
        if self._looked_at != self.cache.declarations:
            self._look_again()
        informer = self._informers.get(target)
        if informer is None:
            form = form_of(target)
            informer = self._informers[target] = self.cache.informer(form, self._scopes.get(form))
        return informer

    def informers_of(self, kind: GroupKind) -> Collection[Informer[Any]]:
        """Those of the kind that this controller may read, or that trigger it: of a form that it declared, its own."""
        if self._looked_at != self.cache.declarations:
            self._look_again()
        found = self._of.get(kind)
        if found is None:
            own: set[Informer[Any]] = set()
            for form, scope in self._watched:
                with suppress(UndeclaredKind):  # it has been let go
                    own.add(self.cache.informer(form, scope))
            found = self._of[kind] = [
                each
                for each in self.cache.informers_of(kind)
                if each in own or each.form not in self.declared
            ]
        return found

    def _look_again(self) -> None:
        self._informers.clear()
        self._of.clear()
        self._looked_at = self.cache.declarations

    async def filled(self, target: type[T] | Form[T]) -> None:
        """Waits for a cache that has not been filled yet, for a few seconds. Raises CacheBehind."""
        informer = self.informer(target)
        if not informer.has_synced:
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    await informer.synced()
            _check_filled(informer)

    async def list_live(
        self,
        client: Client,
        target: type[T] | Form[T],
        namespace: str | AllNamespaces,
        *,
        index: tuple[str, str] | None,
        labels: Selector | None,
    ) -> Sequence[T]:
        """Lists from the API server in the scope that the author declared, including objects of other shards."""
        form = form_of(target)
        if index is not None and (form, index[0]) not in self._index_functions:
            raise UndeclaredIndex(
                f"{form}: there is no index {index[0]!r}: declare it with "
                f"`indexes=[Index(KIND, {index[0]!r}, function)]` of this controller"
            )
        scope = self.declared.get(form, Scope())
        selector = scope.labels & (labels or Selector())
        parts = scope.parts(form.kind) if namespace is ALL else (namespace,)
        found: list[T] = []
        for part in parts:
            found += await client.list_all(
                form,
                part or ALL,
                label_selector=selector,
                field_selector=scope.fields,
                shard_selector=scope.hashes,
            )
        if index is None:
            return found
        name, value = index
        function = self._index_functions[form, name]
        return [obj for obj in found if value in function(obj)]


def _check_filled(informer: Informer[Any]) -> None:
    if not informer.has_synced:
        why = informer.last_error or "the server has not answered yet"
        raise CacheBehind(f"the cache of {informer.form} has not been filled yet: {why}")
