"""One Kubernetes cluster as controllers see it.

Client, cache and events belong to a cluster, not to the process: a process that serves several clusters has
several of these.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from kubeshard.cache.cache import Cache
from kubeshard.cache.informer import Informer
from kubeshard.cache.store import IndexFunction
from kubeshard.client.client import Client
from kubeshard.controller.context import EventSink
from kubeshard.controller.controller import Controller
from kubeshard.controller.in_flight import InFlight
from kubeshard.controller.reader import ControllerReader
from kubeshard.controller.watch import Index, narrowed


@dataclass(frozen=True, slots=True)
class Cluster:
    """`client` is what reconcilers write with: fenced, where the process is a shard. `in_flight` is shared by all
    controllers.
    """

    client: Client
    cache: Cache
    events: EventSink
    in_flight: InFlight = field(default_factory=InFlight)
    _indexes: WeakKeyDictionary[Informer[Any], dict[str, IndexFunction[Any]]] = field(
        default_factory=WeakKeyDictionary
    )
    """Of each informer, by name; informers come and go."""

    def hold(self, controller: Controller[Any], reader: ControllerReader) -> list[Informer[Any]]:
        """An informer for each watch of the controller, with its indexes: to be released by whoever calls this.

        Raises ConfigurationError, ValueError; then nothing is held.
        """
        held: list[Informer[Any]] = []
        try:
            for watch in controller.watches:
                narrow = watch.scope and narrowed(self.cache.scope_of(watch.form.kind), watch.scope)
                held.append(self.cache.hold(watch.form, narrow))
            for index in controller.declared_indexes:
                self.add_index(reader.informer(index.target), index)
        except BaseException:
            for informer in held:
                self.cache.let_go(informer)
            raise
        return held

    def add_index(self, informer: Informer[Any], index: Index[Any]) -> None:
        """Files the informer's objects; several controllers may ask for the same index. Raises ValueError for
        another index of that name.
        """
        known = self._indexes.setdefault(informer, {})
        if known.get(index.name) is not index.function:
            informer.store.add_index(index.name, index.function)
            known[index.name] = index.function
