"""Finds the existing objects of a desired set: in the caches of the controller, or at the API server if not cached.

Guaranteed: finds members of all kinds that the controller declares, and in kinds and namespaces that it no longer
declares, for as long as the owner records them. Only the latter cost requests, and only until they are pruned.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from kubeshard.cache.informer import Informer
from kubeshard.cache.own_writes import OwnWrites
from kubeshard.client.client import Client
from kubeshard.client.discovery import KindNotServed
from kubeshard.controller.desired.applyset import (
    PART_OF,
    SET,
    Address,
    ApplySet,
    Memory,
    address_of,
    memory_of,
    remembered,
)
from kubeshard.controller.desired.known import KnownSets
from kubeshard.controller.desired.members import Member
from kubeshard.controller.desired.planning import Observed
from kubeshard.controller.reader import ControllerReader
from kubeshard.controller.rewrites import Rewrites
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.errors import ApiError, Terminal
from kubeshard.core.kinds import GroupKind, Kind
from kubeshard.core.namespaces import ALL
from kubeshard.core.objects import Form, Key, KubeObject, PartialObject, form_of, metadata_only
from kubeshard.core.selectors import Selector

T = TypeVar("T", bound=KubeObject)


class Run(Protocol):
    """The part of `Context` that a set needs."""

    @property
    def key(self) -> Key: ...
    @property
    def form(self) -> Form[Any]: ...
    @property
    def client(self) -> Client: ...
    @property
    def _rewrites(self) -> Rewrites: ...
    @property
    def _fresh(self) -> Callable[[Kind], bool]: ...

    async def get(self, target: type[T] | Form[T], name: str, namespace: str | None = None) -> T | None: ...


class Observer:
    """Finds the objects for one run."""

    def __init__(self, run: Run, reads: ControllerReader, writes: OwnWrites, known: KnownSets) -> None:
        self._known = known
        self._run = run
        self._reads = reads
        self._writes = writes

    async def filed(
        self, set_: ApplySet, wanted: Container[GroupKind]
    ) -> dict[Form[Any], Mapping[Key, KubeObject]]:
        """The marked objects of all declared kinds, by form; from the API server, only those of the wanted kinds.
        Views of caches change with them: read them at once.
        """
        found: dict[Form[Any], Mapping[Key, KubeObject]] = {}
        for form in self._reads.declared:
            if not self._run._fresh(form.kind):
                informer = await self._settled(form)
                await self._known.follow(informer)
                found[form] = self._known.filed(informer.store, set_)
            elif form.kind.group_kind in wanted:
                listed = await self._reads.list_live(
                    self._run.client, form, ALL, index=None, labels=_selector(set_)
                )
                found[form] = {obj.key: obj for obj in listed}
        return found

    def shown_by_caches(self, set_: ApplySet, objects: Sequence[KubeObject]) -> bool:
        """Whether the caches have exactly these objects for the set at this moment."""
        shown: set[int] = set()
        for form in self._reads.declared:
            store = self._reads.informer(form).store
            if self._run._fresh(form.kind) or not self._known.follows(store):
                return False
            shown |= {*map(id, self._known.filed(store, set_).values())}
        return shown == {*map(id, objects)}

    async def observe(self, set_: ApplySet, members: Mapping[Address, Member[Any]]) -> Observed:
        """Raises UndeclaredKind, CacheBehind, and Terminal for objects that the controller's watches would not show."""
        memory, wanted = remembered(set_.owner.metadata, set_.name), memory_of(members)
        for member in members.values():
            self._check_shown(member)
        filed = await self.filed(set_, memory.kinds | wanted.kinds)
        marked = {address_of(obj): obj for objects in filed.values() for obj in objects.values()}
        marked |= {address_of(obj): obj for obj in self._undecodable(set_, filed)}
        unseen: dict[Address, Exception] = {}
        if not memory.within(wanted):
            marked |= {address_of(obj): obj for obj in await self._elsewhere(set_, memory, unseen)}
        live: dict[Address, KubeObject] = {}
        unreadable: dict[Address, Exception] = {}
        for address, member in members.items():
            obj = marked.pop(address, None)
            if type(obj) is not type(member.obj):
                try:
                    obj = await self._run.get(type(member.obj), address.key.name, address.key.namespace)
                except UndecodableObject as error:
                    unreadable[address] = error
                    continue
            if obj is not None:
                live[address] = obj
        return Observed(live, marked.values(), unreadable, unseen)

    def _check_shown(self, member: Member[Any]) -> None:
        metadata, scope = member.obj.metadata, self._reads.declared.get(form_of(type(member.obj)))
        if scope is not None and not scope.labels.matches(metadata.labels):
            raise Terminal(
                f"{member.address} would be invisible: the controller's watch of {member.address.kind.kind} shows only "
                f"{scope.labels}; give the object these labels, or remove the scope from the watch"
            )

    async def _settled(self, form: Form[Any]) -> Informer[Any]:
        """The informer, once it shows what runs for this key wrote."""
        informer = self._reads.informer(form)
        if not informer.has_synced:
            await self._reads.filled(form)
        if self._writes:
            await self._writes.settled(self._reads.cache, form)
        return informer

    def _undecodable(self, set_: ApplySet, forms: Iterable[Form[Any]]) -> Iterator[PartialObject]:
        """Members that no longer fit their class, which can still be deleted."""
        for form in forms:
            for error in self._reads.informer(form).store.undecodable.values():
                if error.partial is not None and set_.marks(error.partial):
                    yield error.partial

    async def _elsewhere(
        self, set_: ApplySet, memory: Memory, unseen: dict[Address, Exception]
    ) -> list[KubeObject]:
        """Marked objects of kinds, and in namespaces, that this version of the program does not watch. Collects in
        `unseen` what cannot be listed.
        """
        found: list[KubeObject] = []
        for group_kind in sorted(memory.kinds):
            watched = [
                (form.kind, scope)
                for form, scope in self._reads.declared.items()
                if form.kind.group_kind == group_kind
            ]
            if any(scope.namespaces is ALL or not kind.namespaced for kind, scope in watched):
                continue
            try:
                kind = await self._run.client.discovery.kind(group_kind.group, kind=group_kind.kind)
            except KindNotServed:
                continue  # and no objects of it are left
            except ApiError as error:
                unseen[Address(group_kind, Key("", "*"))] = error
                continue
            form: Form[Any] = metadata_only(kind)
            for namespace in sorted(memory.namespaces) if kind.namespaced else ("",):
                if any(scope.covers(kind, namespace) for _, scope in watched):
                    continue
                place = namespace if kind.namespaced else ALL
                try:
                    found += await self._run.client.list_all(form, place, label_selector=_selector(set_))
                except ApiError as error:
                    unseen[Address(group_kind, Key(namespace, "*"))] = error
        return found


def _selector(set_: ApplySet) -> Selector:
    return Selector.equals(PART_OF, set_.id) & Selector.equals(SET, set_.name)
