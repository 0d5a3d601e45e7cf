"""Reads of what a controller declared, in the scopes in which it declared it.

Guaranteed: two controllers that watch one kind in different scopes each read their own. A kind that the
controller did not declare is read in the one scope in which the process has it; a kind that nobody declared
raises UndeclaredKind. Reads from the cache never wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from kubeshard.cache import Cache, Informer, Scope
from kubeshard.client import Client
from kubeshard.controller.watch import Index, Watch, narrowed
from kubeshard.core import Form, KubeObject, Selector, form_of

T = TypeVar("T", bound=KubeObject)


class ControllerReader:
    """The `Reader` of one controller. Where it watches a form in several scopes, the first one is read."""

    def __init__(
        self, cache: Cache, watches: Iterable[Watch[Any]] = (), indexes: Iterable[Index[Any]] = ()
    ) -> None:
        self.cache = cache
        self._declared: dict[Form[Any], Scope] = {}
        """What the author asked for, without what the manager added (the shard's label)."""
        for watch in watches:
            self._declared.setdefault(watch.form, watch.scope or Scope())
        self._scopes = {form: narrowed(cache.scope_of(form.kind), by) for form, by in self._declared.items()}
        self._index_functions = {(form_of(index.target), index.name): index.function for index in indexes}

    def get(self, target: type[T] | Form[T], name: str, namespace: str = "") -> T | None:
        form = form_of(target)
        return self.cache.get(form, name, namespace, scope=self._scopes.get(form))

    def list(
        self,
        target: type[T] | Form[T],
        namespace: str | None = None,
        *,
        index: tuple[str, str] | None = None,
        labels: Selector | None = None,
    ) -> Sequence[T]:
        form = form_of(target)
        return self.cache.list(form, namespace, index=index, labels=labels, scope=self._scopes.get(form))

    def informer(self, target: type[T] | Form[T]) -> Informer[T]:
        """What `get` and `list` read. Raises UndeclaredKind."""
        form = form_of(target)
        return self.cache.informer(form, self._scopes.get(form))

    async def list_live(
        self,
        client: Client,
        target: type[T] | Form[T],
        namespace: str | None,
        *,
        index: tuple[str, str] | None,
        labels: Selector | None,
    ) -> Sequence[T]:
        """What the API server has now in the scope the author asked for, whichever shard it belongs to."""
        form = form_of(target)
        scope = self._declared.get(form, Scope())
        selector = scope.labels & (labels or Selector())
        parts = scope.parts(form.kind) if namespace is None else (namespace,)
        found: list[T] = []
        for part in parts:
            found += await client.list_all(
                form,
                part or None,
                label_selector=selector,
                field_selector=scope.fields,
            )
        if index is None:
            return found
        name, value = index
        function = self._index_functions[form, name]
        return [obj for obj in found if value in function(obj)]
