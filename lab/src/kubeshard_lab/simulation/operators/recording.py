"""The history of a simulated operator: of its objects, whatever their kinds are."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard.runtime.transport import HttpRequest
from kubeshard_apiserver.store import Store
from kubeshard_lab.simulation.cluster import SimulatedCluster
from kubeshard_lab.simulation.history import Changed, LeaseChanged, Recorder, Sent, stored_last
from kubeshard_lab.simulation.operators.families import Families, controller_uid
from kubeshard_lab.simulation.operators.shape import Shape
from kubeshard_lab.simulation.oracles import LEASES
from kubeshard_lab.simulation.processes import Process, is_sharders, name_of


class Requested(NamedTuple):
    """What a write is about. `name` is empty for one that creates."""

    resource: GroupResource
    namespace: str
    name: str
    body: Any

    @classmethod
    def of(cls, request: HttpRequest) -> Requested:
        parts = request.target.partition("?")[0].strip("/").split("/")
        group = "" if parts[0] == "api" else "".join(parts[1:2])
        parts = parts[2:] if parts[0] == "api" else parts[3:]
        namespace = ""
        if len(parts) > 2 and parts[0] == "namespaces":
            namespace, parts = parts[1], parts[2:]
        try:
            body = json.loads(request.body or b"{}")
        except ValueError:  # server-side apply in YAML
            body = {}
        name = parts[1] if len(parts) > 1 else ""
        return cls(GroupResource(group, parts[0] if parts else ""), namespace, name, body)

    @property
    def metadata(self) -> Any:
        """What is known of the object's metadata without the object: its name from the path, and what the body says."""
        given = self.body.get("metadata") if isinstance(self.body, dict) else None
        return ({"name": self.name} if self.name else {}) | (given if isinstance(given, dict) else {})

    @property
    def what(self) -> str:
        """What is asked for, with what is known of its name."""
        name = self.metadata.get("name") or f"{self.metadata.get('generateName', '')}*"
        return f"{self.resource.resource} {name}"

    @property
    def says_nothing(self) -> bool:
        """Whether it is about Leases, or Events, which are no part of an operator's work."""
        return self.resource.resource in ("leases", "events")


class OperatorRecorder(Recorder):
    """Objects have the names of their families."""

    def __init__(self, world: SimulatedCluster, shape: Shape, families: Families) -> None:
        ring = shape.sharding.ring if shape.sharding else "none"
        super().__init__(world, (world.server.store,), ring)
        self._families = families

    def _send(self, process: Process, request: HttpRequest) -> None:
        requested = Requested.of(request)
        family = ""
        if not requested.says_nothing:
            there = self._object(requested)
            family = self._families.name(requested.resource, there or {"metadata": requested.metadata})
        self._sent += 1
        self._numbers[id(request)] = self._sent, request
        self.add(
            Sent(
                self._now,
                self._sent,
                process.name,
                is_sharders(process, request),
                request.method,
                requested.resource.resource,
                family,
                request.timeout or 0.0,
                requested.what,
            )
        )

    def _object(self, requested: Requested) -> Any:
        store = self._stores[0]
        if not requested.name or not store.has(requested.resource):
            return None
        return store.get(requested.resource, Key(requested.namespace, requested.name))

    def _stored(self, store: Store, resource: GroupResource) -> None:
        event = stored_last(store, resource)
        sender = self._world.sender.get()
        number = 0 if sender is None else self._numbers.get(id(sender[1]), (0, None))[0]
        old, new, name = event.old, event.new, event.key.name
        if resource == LEASES:
            shards = {name_of(process) for process in self._world.processes}
            holder = None if new is None else new["spec"].get("holderIdentity") or ""
            self.add(LeaseChanged(self._now, number, name, holder, "", elected=name not in shards))
            return
        some = new or old
        assert some is not None
        family = self._families.name(resource, some)
        if not family or resource.resource == "events":
            return
        kind = some.get("kind") or resource.resource
        self.add(
            Changed(
                self._now,
                number,
                "child" if controller_uid(some["metadata"]) else "main",
                family,
                some["metadata"]["uid"],
                old is not None,
                new is not None,
                (self._owner(old), self._owner(new)),
                (self._draining(old), self._draining(new)),
                labels_only=False,
                main_owner="",
                main_uid="",
                what=f"{kind} {name}",
            )
        )
