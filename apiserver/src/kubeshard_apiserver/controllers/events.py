"""Events about the actions of controllers, as `kubectl describe` and `kubectl events` show them, and their expiry.

Guaranteed: a repeated Event only increases its count. Events that differ only in their message are combined from the
tenth on. A source emits at most 25 Events about an object in a burst, and one every five minutes after that. An Event
that cannot be written is lost, as on a real cluster. Events are removed some time after they were last written, as with
kube-apiserver's `--event-ttl`. Source: client-go `tools/record`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple, TypeVar

from kubeshard.core.errors import ApiError
from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard.core.times import micro_time, parse_time, second_time
from kubeshard.runtime.logs import get_logger
from kubeshard_apiserver.controllers.cluster import Account, ClusterView
from kubeshard_apiserver.controllers.controller import Controller
from kubeshard_apiserver.controllers.ownership import Node
from kubeshard_apiserver.controllers.pods import PODS
from kubeshard_apiserver.history import Event
from kubeshard_apiserver.objects import Object
from kubeshard_apiserver.resources.events import EVENTS
from kubeshard_apiserver.steps import Steps

_log = get_logger("kubeshard_apiserver.controllers.events")
_REMEMBERED = 4096
_SIMILAR, _SIMILAR_WITHIN = 10, 600.0
_BURST, _REFILL = 25.0, 300.0
_RESOURCE = EVENTS[0]
V = TypeVar("V")


class _Written(NamedTuple):
    name: str
    first: str
    times: int


class _Similar(NamedTuple):
    messages: frozenset[str]
    last: float


class _Budget(NamedTuple):
    left: float
    at: float


class Recorder:
    """Records the Events of one source, `component`."""

    def __init__(self, cluster: ClusterView, account: Account, component: str) -> None:
        self._cluster = cluster
        self._account = account
        self._component = component
        self._written: dict[Hashable, _Written] = {}
        self._similar: dict[Hashable, _Similar] = {}
        self._budgets: dict[Hashable, _Budget] = {}

    def warn(self, about: Object, reason: str, message: str, **more: str) -> Steps[None]:
        yield from self.tell(about, reason, message, type_="Warning", **more)

    def tell(
        self,
        about: Object,
        reason: str,
        message: str,
        *,
        type_: str = "Normal",
        host: str = "",
        field_path: str = "",
    ) -> Steps[None]:
        """Emit an Event. `field_path` is the part of the object that it is about; `host` is where the source runs."""
        clock, now = self._cluster.server.clock.monotonic(), second_time(self._cluster.wall())
        similar = (about["metadata"].get("uid"), host, type_, reason)
        known = self._similar.get(similar, _Similar(frozenset(), clock))
        messages = known.messages if clock - known.last <= _SIMILAR_WITHIN else frozenset()
        key: Hashable = (*similar, field_path, message)
        reporter: Object = {"reportingComponent": self._component, "reportingInstance": host}
        if len(messages | {message}) >= _SIMILAR:
            key, message = similar, f"(combined from similar events): {message}"
            reporter = {}
        else:
            messages |= {message}
        _keep(self._similar, similar, _Similar(messages, clock))
        written = self._written.get(key)
        first, count = (written.first, written.times + 1) if written else (now, 1)
        name = written.name if written else self._cluster.event_name(about)
        _keep(self._written, key, _Written(name, first, count))
        if not self._affordable((about["metadata"].get("uid"), host, type_), clock):
            return
        body = {
            **_head(about, name, field_path),
            **reporter,
            "reason": reason,
            "message": message,
            "type": type_,
            "source": {"component": self._component, **({"host": host} if host else {})},
            "count": count,
            "firstTimestamp": first,
            "lastTimestamp": now,
        }
        yield from self._write(body)

    def announce(
        self, about: Object, reason: str, message: str, action: str, *, type_: str = "Normal"
    ) -> Steps[None]:
        """Emit an Event the way sources that use `events.k8s.io/v1` do."""
        body = {
            **_head(about, self._cluster.event_name(about), ""),
            "reportingComponent": self._component,
            "reportingInstance": f"{self._component}-pretended",
            "action": action,
            "reason": reason,
            "message": message,
            "type": type_,
            "eventTime": micro_time(self._cluster.wall()),
        }
        yield from self._write(body)

    def _write(self, body: Object) -> Steps[None]:
        meta = body["metadata"]
        node = Node(_RESOURCE, Key(meta["namespace"], meta["name"]))
        said: Object = {name: body[name] for name in ("message", "count", "lastTimestamp") if name in body}
        try:
            if self._cluster.get(node) is None:
                yield from self._account.create(_RESOURCE, body)
            else:
                yield from self._account.update(node, lambda live: {**live, **said})
        except ApiError as error:
            _log.debug("An event was refused", source=self._component, error=error)

    def _affordable(self, key: Hashable, clock: float) -> bool:
        left, at = self._budgets.get(key, _Budget(_BURST, clock))
        left = min(_BURST, left + (clock - at) / _REFILL)
        affordable = left >= 1
        _keep(self._budgets, key, _Budget(left - affordable, clock))
        return affordable


class PodControl:
    """Creates and deletes pods for their owners, with Events on the owners."""

    def __init__(self, account: Account, recorder: Recorder) -> None:
        self._account = account
        self._recorder = recorder

    def create(self, owner: Object, body: Object) -> Steps[Object]:
        """Raises ApiError."""
        try:
            pod = yield from self._account.create(PODS, body)
        except ApiError as error:
            yield from self._recorder.warn(owner, "FailedCreate", f"Error creating: {error.message}")
            raise
        yield from self._recorder.tell(owner, "SuccessfulCreate", f"Created pod: {pod['metadata']['name']}")
        return pod

    def delete(self, owner: Object, pod: Object) -> Steps[None]:
        """Raises ApiError."""
        try:
            yield from self._account.delete(pod, PODS)
        except ApiError as error:
            yield from self._recorder.warn(owner, "FailedDelete", f"Error deleting: {error.message}")
            raise
        yield from self._recorder.tell(owner, "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")


def _head(about: Object, name: str, field_path: str) -> Object:
    meta = about["metadata"]
    reference: dict[str, Any] = {
        "kind": about["kind"],
        "namespace": meta.get("namespace"),
        "name": meta["name"],
        "uid": meta.get("uid"),
        "apiVersion": about["apiVersion"],
        "resourceVersion": meta.get("resourceVersion"),
        "fieldPath": field_path,
    }
    return {
        "metadata": {"name": name, "namespace": meta.get("namespace") or "default"},
        "involvedObject": {field: value for field, value in reference.items() if value},
    }


def _keep(memory: dict[Hashable, V], key: Hashable, value: V) -> None:
    """Store the value as the most recent; the oldest is dropped if there are too many."""
    memory.pop(key, None)
    memory[key] = value
    if len(memory) > _REMEMBERED:
        del memory[next(iter(memory))]


_EVENTS = (GroupResource("", "events"), GroupResource("events.k8s.io", "events"))


class EventExpiry(Controller[Node]):
    """Removes Events from the store directly, without admission or finalizers, like the real server. `ttl` is in
    seconds.
    """

    watched = _EVENTS

    def __init__(self, cluster: ClusterView, ttl: float) -> None:
        super().__init__(cluster)
        self._ttl = ttl

    def concerned(self, resource: GroupResource, event: Event) -> Iterable[Node]:
        return (Node(resource, event.key),)

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
