"""The state that all verbs of the model work on, and the types of their arguments."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import msgspec

from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard.core.times import second_time
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.rng import Rng
from kubeshard_apiserver.access import ADMINISTRATOR, ALLOW_ALL, Authorizer, User
from kubeshard_apiserver.objects import Object
from kubeshard_apiserver.resources.builtin import builtin_resources
from kubeshard_apiserver.resources.conversion_webhooks import converting
from kubeshard_apiserver.resources.events import EVENTS
from kubeshard_apiserver.resources.registry import Registry, Resource
from kubeshard_apiserver.resources.strategy import Strategy
from kubeshard_apiserver.status import internal, not_found
from kubeshard_apiserver.steps import Steps
from kubeshard_apiserver.store import Store

T = TypeVar("T")


@dataclass(frozen=True)
class Target:
    """The object or collection that a request addresses. `name` is empty for a collection; `namespace` is empty for a
    cluster-scoped kind and for all namespaces.
    """

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    group_resource: GroupResource = field(init=False, repr=False, compare=False)
    key: Key = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "group_resource", self.resource.group_resource)
        object.__setattr__(self, "key", Key(self.namespace, self.name))


WriteCheck = Callable[[User, Target, Object, Object | None], None]
"""Checks that a user may replace the old object (None for a create) with the new one. Raises ApiError."""


def no_check(user: User, target: Target, new: Object, old: Object | None) -> None:
    """A `WriteCheck` that lets everything through."""


@dataclass(frozen=True)
class Rights:
    """The authorization checks that are made while a request is being processed. `check_write` is called for every
    create and update, after mutating admission and before validation; `authorizer` is called by policy expressions.
    """

    authorizer: Authorizer = ALLOW_ALL
    check_write: WriteCheck = no_check


EVERY_RIGHT = Rights()


class Duplicates(NamedTuple):
    """Fields that a body contains twice, or that an operation of a patch does not have: as warnings, and as listed in
    the error.
    """

    warnings: tuple[str, ...] = ()
    refused: str = ""


NO_DUPLICATES = Duplicates()


@dataclass(frozen=True)
class WriteOptions:
    """`validation` says how to treat unknown fields and `duplicates`: `Ignore`, `Warn` or `Strict`. `manager` is the
    field manager. The rest is for admission: `sent` are the options as the client sent them, `warnings` collects
    warnings for the client, even if the write is rejected, and `asks` is False for the server's own writes, which skip
    admission.
    """

    manager: str = "unknown"
    dry_run: bool = False
    force: bool = False
    validation: str = "Warn"
    duplicates: Duplicates = NO_DUPLICATES
    user: User = ADMINISTRATOR
    rights: Rights = EVERY_RIGHT
    sent: Mapping[str, Any] = field(default_factory=dict)
    warnings: list[str] | None = None
    asks: bool = True
    large: bool = False
    """Whether the body is so large that it is processed off the event loop."""


class Answer(NamedTuple):
    """`code` is the HTTP status; `warnings` are the texts of Warning headers."""

    code: int
    object: dict[str, Any]
    warnings: tuple[str, ...] = ()


class Model:
    """The store, the kinds, the clock and the source of unique names. Sans-IO: it does nothing on its own and never
    waits.
    """

    def __init__(self, *, clock: Clock, rng: Rng, window: int, plugins: Collection[str]) -> None:
        self.clock = clock
        self.rng = rng
        self.registry = Registry()
        self.store = Store(window=window, clock=clock)
        self._indexing: dict[GroupResource, Strategy] = {}
        for resource in builtin_resources(self._stored, plugins):
            self.registry.add(resource)
            self.store.open(resource.group_resource)
            if resource.strategy.indexes:
                self._indexing[resource.group_resource] = resource.strategy
        self.store.share(*EVENTS)
        self.store.subscribe(self._index)

    def _stored(self, resource: GroupResource) -> Mapping[Key, Object]:
        """Returns a copy, because rules may be checked off the event loop."""
        return dict(self.store.objects(resource))

    def _index(self, written: GroupResource) -> None:
        if (strategy := self._indexing.get(written)) is not None:
            strategy.noticed(*self.store.history(written).last.event[1:])

    def now(self) -> str:
        return second_time(self.clock.wall())

    def live(self, target: Target) -> Object:
        """Returns the stored object in the requested API version. Raises NotFound, and Unconverted if a webhook has to
        convert it (see `reading`).
        """
        found = self.store.get(target.group_resource, target.key)
        if found is None or (target.subresource and target.subresource not in target.resource.subresources):
            raise not_found(target.group_resource, target.name)
        return in_version(target.resource, found)

    def converting(self, do: Callable[[], T]) -> Steps[T]:
        """See `resources.conversion_webhooks.converting`."""
        return converting(self.rng.token, do)

    def reading(self, target: Target) -> Steps[Object]:
        """Returns the live object after its conversion. Raises NotFound."""
        if target.resource.strategy.needs_webhook:
            return (yield from self.converting(lambda: self.live(target)))
        return self.live(target)

    def storable(self, target: Target, obj: Object, live: Object | None = None) -> Steps[Object]:
        """Returns the object, which may replace the live one, in the version in which it is stored."""
        strategy = target.resource.strategy
        if strategy.needs_webhook:
            return (yield from self.converting(lambda: strategy.for_storage(obj, live)))
        return strategy.for_storage(obj, live)

    def shown(self, target: Target, stored: Object) -> Steps[Object]:
        """Returns what is stored in the requested API version."""
        if target.resource.strategy.needs_webhook:
            return (yield from self.converting(lambda: in_version(target.resource, stored)))
        return in_version(target.resource, stored)

    def is_live(self, target: Target, obj: Object) -> bool:
        """Whether this state of the object is still the stored one."""
        found = self.store.get(target.group_resource, target.key)
        return (
            found is not None and found["metadata"]["resourceVersion"] == obj["metadata"]["resourceVersion"]
        )


LARGEST = 1536 * 1024
"""The maximum size of an object, in bytes. On the real server it is the limit of a request to etcd."""
_LARGEST_MESSAGE = 2 * 1024 * 1024
_AROUND = 160
"""The bytes of such a request besides the object and its key."""


def check_size(target: Target, obj: Object) -> None:
    """Raises ApiError (500) for an object that is too large to be stored. For kinds with a Go type the real server
    measures protobuf, which is somewhat shorter.
    """
    meta, resource = obj["metadata"], target.group_resource
    key = f"/registry/{resource.group}/{resource.resource}/{meta.get('namespace', '')}/{meta['name']}"
    size = len(msgspec.json.encode(obj)) + len(key) + _AROUND
    if size > _LARGEST_MESSAGE:
        problem = f"trying to send message larger than max ({size} vs. {_LARGEST_MESSAGE})"
        raise internal(f"rpc error: code = ResourceExhausted desc = {problem}")
    if size > LARGEST:
        raise internal("etcdserver: request is too large")


def in_version(resource: Resource, obj: Object) -> Object:
    """Returns the object in the version of the resource. Raises Unconverted if a webhook has to convert it."""
    strategy = resource.strategy
    if strategy.reads_anew:
        obj = strategy.read(obj)
    return obj if obj["apiVersion"] == resource.api_version else strategy.converted(obj)
