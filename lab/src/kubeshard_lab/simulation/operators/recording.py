"""The history of a simulated operator: of its objects, whatever their kinds are."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard.runtime.transport import HttpRequest
from kubeshard_apiserver.history import Event
from kubeshard_lab.simulation.cluster import SimulatedCluster
from kubeshard_lab.simulation.deliveries import LEASES
from kubeshard_lab.simulation.history import Entry, LeaseChanged, Recorder
from kubeshard_lab.simulation.operators.families import Families, controller_uid
from kubeshard_lab.simulation.operators.shape import Shape
from kubeshard_lab.simulation.processes import name_of


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
        super().__init__(world, ring)
        self._families = families

    def _asked(self, request: HttpRequest) -> tuple[str, str, str]:
        requested = Requested.of(request)
        family = ""
        if not requested.says_nothing:
            there = self._object(requested)
            family = self._families.name(requested.resource, there or {"metadata": requested.metadata})
        return requested.resource.resource, family, requested.what

    def _object(self, requested: Requested) -> Any:
        store = self._world.server.store
        if not requested.name or not store.has(requested.resource):
            return None
        return store.get(requested.resource, Key(requested.namespace, requested.name))

    def _entry(self, resource: GroupResource, event: Event, number: int) -> Entry | None:
        old, new, name = event.old, event.new, event.key.name
        if resource == LEASES:
            shards = {name_of(process) for process in self._world.processes}
            holder = None if new is None else new["spec"].get("holderIdentity") or ""
            return LeaseChanged(self._now, number, name, holder, "", elected=name not in shards)
        some: Any = new or old
        family = self._families.name(resource, some)
        if not family or resource.resource == "events":
            return None
        kind, what = (
            "child" if controller_uid(some["metadata"]) else "main",
            some.get("kind") or resource.resource,
        )
        return self._change(event, number, kind, family, what=f"{what} {name}")
