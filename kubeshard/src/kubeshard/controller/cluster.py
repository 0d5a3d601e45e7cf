"""One Kubernetes cluster as controllers see it.

Client, cache and events belong to a cluster, not to the process: a process that serves several clusters has several of
these, and none of them waits for another.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from kubeshard.cache.cache import Cache
from kubeshard.cache.errors import UndeclaredKind
from kubeshard.cache.indexes import IndexFunction
from kubeshard.cache.informer import Informer
from kubeshard.client.client import Client
from kubeshard.controller.controller import Controller
from kubeshard.controller.events import EventRecorder
from kubeshard.controller.in_flight import InFlight
from kubeshard.controller.reader import ControllerReader
from kubeshard.controller.watch import Index, Watch, narrowed


@dataclass(frozen=True, slots=True)
class Cluster:
    """`client` is what reconcilers write with; it is fenced when the process is a shard. `in_flight` is shared by all
    controllers. `clusters` contains the current clusters of the process, by name, and `elsewhere` the names of those in
    which another process works if this one does not.
    """

    client: Client
    cache: Cache
    events: EventRecorder
    in_flight: InFlight = field(default_factory=InFlight)
    clusters: Mapping[str, Cluster] = field(default_factory=dict)
    elsewhere: Container[str] = ()
    term: Callable[[], int] = int
    """The term of this process as the leader (`kubeshard.controller.fencing`); 0 where it needs not lead."""
    _indexes: WeakKeyDictionary[Informer[Any], dict[str, _Indexed]] = field(default_factory=WeakKeyDictionary)
    """Indexes by informer, then by name; informers are added and removed."""

    @property
    def name(self) -> str:
        """`""` is the home cluster."""
        return self.cache.cluster

    def hold(self, controller: Controller[Any], reader: ControllerReader) -> list[Informer[Any]]:
        """Acquires an informer for each watch of the controller, with its indexes, until `release`.

        If it raises ConfigurationError or ValueError, nothing has been acquired.
        """
        held: list[Informer[Any]] = []
        indexed: list[tuple[Informer[Any], Index[Any]]] = []
        try:
            for watch in controller.all_watches:
                informer = self.hold_watched(watch)
                held.append(informer)
            for index in controller.declared_indexes:
                informer = reader.informer(index.target)
                self.add_index(informer, index)
                indexed.append((informer, index))
        except BaseException:
            for informer, index in indexed:
                self.drop_index(informer, index)
            for informer in held:
                self.cache._let_go(informer)
            raise
        return held

    def hold_watched(self, watch: Watch[Any]) -> Informer[Any]:
        """An informer for one watch, until it is let go. Raises ConfigurationError."""
        narrow = watch.scope and narrowed(self.cache.scope_of(watch.form.kind), watch.scope)
        return self.cache._hold(watch.form, narrow)

    def let_go(
        self, controller: Controller[Any], reader: ControllerReader, held: Iterable[Informer[Any]]
    ) -> None:
        """Like `release`, but without waiting for informers to stop."""
        self._drop_indexes(controller, reader)
        for informer in held:
            self.cache._let_go(informer)

    async def release(
        self, controller: Controller[Any], reader: ControllerReader, held: Iterable[Informer[Any]]
    ) -> None:
        """Releases what `hold` acquired. Returns when informers without another user have stopped."""
        self._drop_indexes(controller, reader)
        for informer in held:
            await self.cache._release(informer)

    def _drop_indexes(self, controller: Controller[Any], reader: ControllerReader) -> None:
        for index in controller.declared_indexes:
            with suppress(UndeclaredKind):  # the informer was removed, and its indexes with it
                self.drop_index(reader.informer(index.target), index)

    def add_index(self, informer: Informer[Any], index: Index[Any]) -> None:
        """Indexes the informer's objects; several controllers may share an index. Raises ValueError if a different
        index has that name.
        """
        known = self._indexes.setdefault(informer, {})
        indexed = known.get(index.name)
        if indexed is None or indexed.function is not index.function:
            informer.add_index(index.name, index.function)
            indexed = known[index.name] = _Indexed(index.function)
        indexed.users += 1

    def drop_index(self, informer: Informer[Any], index: Index[Any]) -> None:
        """Removes one user of the index, and the index with its last user."""
        known = self._indexes.get(informer, {})
        indexed = known.get(index.name)
        if indexed is None or indexed.function is not index.function:
            return
        indexed.users -= 1
        if not indexed.users:
            del known[index.name]
            informer.store.remove_index(index.name)


@dataclass(slots=True)
class _Indexed:
    function: IndexFunction[Any]
    users: int = 0
