"""Event expiry: Events are removed some time after they were last written, as with kube-apiserver's `--event-ttl`."""

from __future__ import annotations

from collections.abc import Iterable

from kubeshard.core.kinds import GroupResource
from kubeshard.core.times import parse_time
from kubeshard_apiserver.controllers.cluster import Cluster
from kubeshard_apiserver.controllers.controller import Controller
from kubeshard_apiserver.controllers.ownership import Node
from kubeshard_apiserver.history import Event
from kubeshard_apiserver.objects import Object
from kubeshard_apiserver.steps import Steps

_EVENTS = (GroupResource("", "events"), GroupResource("events.k8s.io", "events"))


class EventExpiry(Controller[Node]):
    """Removes Events from the store directly, without admission or finalizers, like the real server. `ttl` is in
    seconds.
    """

    def __init__(self, cluster: Cluster, ttl: float) -> None:
        super().__init__(cluster)
        self._ttl = ttl

    def concerned(self, resource: GroupResource, event: Event) -> Iterable[Node]:
        return (Node(resource, event.key),) if resource in _EVENTS else ()

    def reconcile(self, key: Node) -> Steps[float | None]:
        yield from ()
        obj = self.cluster.get(key)
        if obj is None:
            return None
        left = _last_written(obj) + self._ttl - self.cluster.wall()
        if left > 0:
            return left
        self.cluster.server.store.remove(key.resource, key.key)
        return None


def _last_written(obj: Object) -> float:
    meta = obj["metadata"]
    times = [meta["creationTimestamp"], *(entry.get("time") for entry in meta.get("managedFields", ()))]
    return max(parse_time(time) or 0.0 for time in times)
