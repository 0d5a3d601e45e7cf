"""The informers of a process, shared and strict.

Guaranteed: one list/watch and one store per (kind, form, scope), however many users it has, and so one class for
all readers of the kind there; reads are from memory and never wait; reading an undeclared kind is an error, and
never starts a silent copy of the whole cluster. Kinds can be declared before and while the cache runs. Not
guaranteed: that a read reflects the latest state (see `own_writes` for what this process wrote), or that two kinds
are from the same moment.

`metadata.managedFields` and kubectl's last-applied annotation are dropped before objects are stored.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

from kubeshard.cache.errors import CacheBehind, OutsideScope, UndeclaredKind
from kubeshard.cache.indexes import IndexFunction
from kubeshard.cache.informer import Informer
from kubeshard.cache.scope import Scope
from kubeshard.cache.stats import PATIENCE_FOR_LOGS
from kubeshard.cache.store import UndeclaredIndex
from kubeshard.cache.transforms import Transform
from kubeshard.client.client import Client
from kubeshard.core.clusters import HOME_CLUSTER
from kubeshard.core.errors import ConfigurationError
from kubeshard.core.kinds import GroupKind, Kind
from kubeshard.core.namespaces import ALL, AllNamespaces, namespace_of, namespaces_of
from kubeshard.core.objects import Form, Key, KubeObject, form_of, two_classes
from kubeshard.core.selectors import Selector
from kubeshard.listwatch.reflector import Interrupted
from kubeshard.listwatch.state_machine import SharedKnowledge
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.notices import Notices

T = TypeVar("T", bound=KubeObject)

_log = get_logger("kubeshard.cache")


class Cache:
    """Informers by form and scope.

    `scopes` maps kinds to scopes, `default_scope` is for all other kinds; `declare` can override both. `transforms`
    change objects of a kind before they are stored, to save memory or to keep secrets out of it (`transforms`).
    `on_watch_error` is called with the informer and the error each time that a list or watch fails, which is logged,
    counted and retried in any case. With `streaming_lists` False the server is never asked for a streaming list.
    `cluster`: the name that distinguishes its informers from those of other clusters in logs and metrics. `wholes`: the
    kinds of which `scopes` has only a part, because other processes cache the rest, with the scope of all parts.
    """

    def __init__(
        self,
        client: Client,
        *,
        scopes: Mapping[GroupKind | Kind, Scope] | None = None,
        default_scope: Scope | None = None,
        transforms: Mapping[GroupKind | Kind, Transform[Any]] | None = None,
        on_watch_error: Callable[[Informer[Any], Interrupted], None] | None = None,
        streaming_lists: bool = True,
        cluster: str = HOME_CLUSTER,
        wholes: Mapping[GroupKind, Scope] | None = None,
    ) -> None:
        self.cluster = cluster
        self.wholes = dict(wholes or {})
        self._client = client
        self._scopes = dict(scopes or {})
        self._default_scope = default_scope or Scope()
        self._transforms = dict(transforms or {})
        self._on_watch_error = on_watch_error
        self._shared = SharedKnowledge(enabled=streaming_lists)
        self._informers: dict[tuple[Form[Any], Scope], Informer[Any]] = {}
        self._of: dict[tuple[str, str], Sequence[Informer[Any]]] = {}
        """The same by group and kind, as far as it was asked for."""
        self._moved: dict[tuple[Form[Any], Scope], Informer[Any]] = {}
        """Rescoped informers by their previous scopes."""
        self._asked: set[tuple[Form[Any], Scope]] = set()
        """The forms and scopes that were declared or used, as opposed to intermediate ones."""
        self._users: Counter[Informer[Any]] = Counter()
        """User counts of informers that were not declared permanently."""
        self.declarations = 0
        """Incremented with every change of the declarations, which invalidates remembered informers."""
        self._redeclared: asyncio.Future[None] | None = None
        self._quiet = False
        self._tasks: asyncio.TaskGroup | None = None
        self._running: dict[Informer[Any], asyncio.Task[None]] = {}

    def leave_reporting(self) -> None:
        """From now on, the caller reports kinds that cannot be read; here they only cause debug lines."""
        self._quiet = True
        for informer in self._informers.values():
            informer.quiet = True

    @property
    def restores(self) -> int:
        """How often the server was noticed to have been restored from a backup."""
        return self._shared.rewrites

    def distrust(self) -> None:
        """The server was restored from a backup: informers list again at its next response or event."""
        self._shared.rewritten()

    # Declaring

    def declare(
        self, target: type[T] | Form[T], scope: Scope | None = None, *, optional: bool = False
    ) -> Informer[T]:
        """The informer of the form in the scope, by default the one that this cache has for the kind. On first use it
        is created, and started if the cache is running. `optional`: do not warn if the server does not serve the kind.

        Raises ConfigurationError if the kind is already cached with another class.
        """
        form = form_of(target)
        informer = self._made(form, scope or self.scope_of(form.kind))
        informer.optional &= optional
        self._users.pop(informer, None)
        return informer

    @asynccontextmanager
    async def using(
        self, target: type[T] | Form[T], scope: Scope | None = None
    ) -> AsyncIterator[Informer[T]]:
        """The informer of the form in the scope, while the block runs. It is shared with all other users and
        declarations. When the last user leaves, and it is not declared, it is removed, and its watch has ended when the
        block ends.

        A user must remove what it added to the informer: `with informer.add_handler(...)`. Raises
        ConfigurationError like `declare`.
        """
        informer = self._hold(target, scope)
        try:
            yield informer
        finally:
            await self._release(informer)

    def _hold(self, target: type[T] | Form[T], scope: Scope | None = None) -> Informer[T]:
        """`using` without a block: adds a user to the informer, until `_release`."""
        form = form_of(target)
        place = (form, scope or self.scope_of(form.kind))
        there = self._informers.get(place)
        informer = self._made(*place)
        informer.optional = False
        if there is None or there in self._users:
            self._users[informer] += 1
        return informer

    async def _release(self, informer: Informer[Any]) -> None:
        """Returns when the watch has ended, if that was the last user."""
        task = self._running.get(informer)
        if self._let_go(informer) and task is not None:
            await asyncio.wait([task])

    def _let_go(self, informer: Informer[Any]) -> bool:
        """`_release` without waiting for the end of the watch. Returns whether that was the last user."""
        last = self._users.get(informer) == 1
        if last:
            self.remove(informer)
        elif informer in self._users:
            self._users[informer] -= 1
        return last

    def add_index(
        self, target: type[T] | Form[T], name: str, function: IndexFunction[T], scope: Scope | None = None
    ) -> None:
        """Declares the kind and indexes its objects by the values of `function`: at once if there are few objects or
        the cache is not running, otherwise in the background. Reads by the index raise CacheBehind until
        `Informer.indexed` returns. Raises ValueError if the name is taken.
        """
        self.declare(target, scope).add_index(name, function)

    def remove(self, informer: Informer[Any]) -> None:
        """Stops the informer for all its users: reads raise UndeclaredKind, handlers are no longer called."""
        self._forget(informer)
        if task := self._running.pop(informer, None):
            task.cancel()

    async def rescope(self, informer: Informer[Any], scope: Scope) -> None:
        """Changes which objects the informer caches, for all its users, and returns when it has them.

        The new scope is listed while the old one stays in force and is watched, until all of the new scope has been
        listed; then reads, indexes and `informer.scope` change atomically. Handlers get a `Deleted` that is not final
        for objects that left, and an `Added` for objects that entered; for objects in both scopes they get only
        changes, and no change is missed. Namespaces in both scopes, and hashes in both of the same namespace, are not
        listed again unless a selector changes; everything else is listed by a request that is sent after the call, also
        what was in an earlier scope. It takes as long as the server takes: errors are reported like the informer's
        other errors, and retried forever. If cancelled before, nothing changes. A call waits for the informer's earlier
        ones, so what these list is not listed again.

        If the old scope was the kind's (`scope_of`), the new one replaces it. Users that declared the old scope keep
        reading this informer until that scope is declared again. Scopes that are narrowed by controllers' watches have
        their own informers, which do not change.

        Raises ConfigurationError if another informer has the scope, RuntimeError if the cache does not run or is
        stopped meanwhile.
        """
        async with informer.rescoping:
            if scope != informer.scope:
                await self._rescope(informer, scope)

    async def _rescope(self, informer: Informer[Any], scope: Scope) -> None:
        form, old = informer.form, informer.scope

        def exchanging() -> None:
            if (form, scope) in self._informers:
                raise ConfigurationError(f"{form} has an informer in that scope already: use that one")
            self._declarations_changed()
            del self._informers[form, old]
            self._informers[form, scope] = informer
            if (form, old) in self._asked:
                self._moved[form, old] = informer
            self._moved.pop((form, scope), None)
            if self.scope_of(form.kind) == old:
                self._scopes[form.kind] = scope

        if (form, scope) in self._informers:
            raise ConfigurationError(f"{form} has an informer in that scope already: use that one")
        await informer.rescope(scope, exchanging)

    def scope_of(self, kind: Kind) -> Scope:
        """The scope in which the kind is cached unless `declare` says otherwise."""
        return self._scopes.get(kind) or self._scopes.get(kind.group_kind) or self._default_scope

    def redeclared(self) -> asyncio.Future[None]:
        """Done at the next change of the declarations. Shared: wait with `asyncio.wait`, never cancel it."""
        if self._redeclared is None:
            self._redeclared = asyncio.get_running_loop().create_future()
        return self._redeclared

    def _declarations_changed(self) -> None:
        self.declarations += 1
        self._of.clear()
        if self._redeclared is not None:
            self._redeclared.set_result(None)
            self._redeclared = None

    # Reading

    def get(
        self,
        target: type[T] | Form[T],
        name: str,
        namespace: str | None = None,
        *,
        scope: Scope | None = None,
    ) -> T | None:
        """The object as last seen, or None. Raises WrongNamespace, UndeclaredKind, OutsideScope, CacheBehind before the
        cache is filled, and UndecodableObject if the server's object does not fit its class.
        """
        return self.get_from(self.informer(target, scope), name, namespace)

    def get_from(self, informer: Informer[T], name: str, namespace: str | None = None) -> T | None:
        """`get` for callers that already know the informer."""
        place = namespace_of(informer.form.kind, name, namespace)
        _check_readable(informer, place)
        return informer.store.get(Key(place, name))

    def list(
        self,
        target: type[T] | Form[T],
        namespace: str | AllNamespaces | None = None,
        *,
        index: tuple[str, str] | None = None,
        labels: Selector | None = None,
        scope: Scope | None = None,
    ) -> Sequence[T]:
        """A snapshot of the objects in one namespace or in `ALL`, with one (index name, value), matching labels.

        An object for which the index function raises is not found by the index (`IndexFunction`). Raises
        WrongNamespace, UndeclaredKind, OutsideScope, UndeclaredIndex, CacheBehind before the cache is filled and the
        index complete.
        """
        return self.list_from(self.informer(target, scope), namespace, index=index, labels=labels)

    def list_from(
        self,
        informer: Informer[T],
        namespace: str | AllNamespaces | None = None,
        *,
        index: tuple[str, str] | None = None,
        labels: Selector | None = None,
    ) -> Sequence[T]:
        """`list` for callers that already know the informer."""
        place = namespaces_of(informer.form.kind, namespace)
        _check_readable(informer, place)
        try:
            found = informer.store.by_index(*index, place) if index else informer.store.list(place)
        except UndeclaredIndex as error:
            raise UndeclaredIndex(f"{informer}: {error}") from None
        return [obj for obj in found if labels.matches(obj.metadata.labels)] if labels else found

    def informer(self, target: type[T] | Form[T], scope: Scope | None = None) -> Informer[T]:
        """The declared one: without a scope, that of the kind's own, or else the only one. Raises UndeclaredKind."""
        form = form_of(target)
        place = (form, scope or self.scope_of(form.kind))
        found = self._informers.get(place) or self._moved.get(place)
        if found is None and scope is None:
            others = [informer for informer in self._informers.values() if informer.form == form]
            found = others[0] if len(others) == 1 else None
            if len(others) > 1:
                raise UndeclaredKind(f"{form} is cached in {len(others)} scopes: specify which one to read")
        if found is None:
            for known, _ in self._informers:
                if known.same_but_class(form):
                    raise UndeclaredKind(two_classes(known, form))
            raise UndeclaredKind(
                f"{form} is not cached{' in this scope' if scope else ''}: declare it in the controller's "
                "`reads`, or in `owns` or `watches` if its changes shall trigger reconciles; or read it live with the "
                "client"
            )
        return cast("Informer[T]", found)

    @property
    def informers(self) -> Sequence[Informer[Any]]:
        return tuple(self._informers.values())

    def informers_of(self, kind: Kind | GroupKind) -> Sequence[Informer[Any]]:
        """The informers of a kind, in any version, form and scope."""
        known = self._of.get((kind.group, kind.kind))
        if known is None:
            known = self._of[kind.group, kind.kind] = tuple(
                informer
                for informer in self._informers.values()
                if (its := informer.form.kind).kind == kind.kind and its.group == kind.group
            )
        return known

    # Running

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Cache]:
        """Lists and watches while the block runs. The block's own exception is raised unchanged; an exception group
        means a bug in an informer.
        """
        assert self._tasks is None, "the cache runs already"
        failure: Exception | None = None
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            for informer in self._informers.values():
                self._start(informer, tasks)
            try:
                yield self
            except Exception as error:
                failure = error
            finally:
                self._tasks = None
                for task in self._running.values():
                    task.cancel()
                self._running.clear()
        if failure is not None:
            raise failure

    async def synced(self) -> None:
        """Waits until all informers are, also those declared meanwhile; forever if necessary. Logs after ten seconds
        what is missing, and when that changes.
        """
        notices = Notices()
        while waiting := self._unsynced():
            try:
                async with asyncio.timeout(PATIENCE_FOR_LOGS):
                    await waiting[0].synced()
            except TimeoutError:
                waiting = self._unsynced()
                kinds = tuple(str(informer) for informer in waiting)
                error = next((each.last_error for each in waiting if each.last_error is not None), None)
                if kinds and notices.due("unsynced", kinds):
                    tell = _log.debug if self._quiet else _log.warning
                    tell("Still waiting for caches to fill", kinds=", ".join(kinds), error=error)

    def _unsynced(self) -> Sequence[Informer[Any]]:
        return [informer for informer in self._informers.values() if not informer.has_synced]

    def _made(self, form: Form[T], scope: Scope) -> Informer[T]:
        """The informer for that form and scope, created and started if necessary. Raises ConfigurationError."""
        self._asked.add((form, scope))
        informer = self._informers.get((form, scope))
        if informer is not None:
            return informer
        for known, where in self._informers:
            if where == scope and known.same_but_class(form):
                raise ConfigurationError(two_classes(known, form))
        informer = self._informers[form, scope] = Informer(
            form,
            scope,
            self._client,
            shared=self._shared,
            transform=self._transforms.get(form.kind) or self._transforms.get(form.kind.group_kind),
            on_error=self._on_watch_error,
            cluster=self.cluster,
        )
        informer.quiet = self._quiet
        self._moved.pop((form, scope), None)
        self._declarations_changed()
        if self._tasks is not None:
            self._start(informer, self._tasks)
        return informer

    def _forget(self, informer: Informer[Any]) -> None:
        self._declarations_changed()
        self._users.pop(informer, None)
        for places in (self._informers, self._moved):
            for place in [place for place, known in places.items() if known is informer]:
                del places[place]
                self._asked.discard(place)

    def _start(self, informer: Informer[Any], tasks: asyncio.TaskGroup) -> None:
        self._running[informer] = tasks.create_task(informer.run(), name=f"informer {informer}")


def _check_readable(informer: Informer[Any], namespace: str | AllNamespaces) -> None:
    """Raises OutsideScope, CacheBehind."""
    kind = informer.form.kind
    if kind.namespaced and namespace is not ALL and not informer.scope.covers(kind, namespace):
        raise OutsideScope(f"namespace {namespace} is not in the cached scope of {informer.form}")
    if not informer.has_synced and not informer.store.resource_version:
        why = informer.last_error or "nothing has been listed yet: run the cache, and wait for `synced`"
        raise CacheBehind(f"the cache of {informer} is not filled yet: {why}")
