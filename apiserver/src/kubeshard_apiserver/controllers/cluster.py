"""The cluster as its controllers see it, and the accounts under which they write to it.

Controllers write through the API server's own verbs, so their writes pass admission as on a real cluster. The user is
the controller's service account, or a node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from kubeshard.core.errors import NotFound
from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard_apiserver.access import User
from kubeshard_apiserver.controllers.ownership import Node, Ownership, controller_of
from kubeshard_apiserver.model import EVERY_RIGHT, Rights, Target, WriteOptions
from kubeshard_apiserver.objects import Object, draft, key_of
from kubeshard_apiserver.resources.registry import Resource
from kubeshard_apiserver.server import ApiServer
from kubeshard_apiserver.steps import Steps
from kubeshard_apiserver.verbs.binding import BINDINGS, bind
from kubeshard_apiserver.verbs.deleting import DeleteOptions

MutateFn = Callable[[Object], Object]
_AUTHENTICATED = "system:authenticated"


def service_account(name: str) -> User:
    """Return the service account of a controller in kube-controller-manager."""
    groups = ("system:serviceaccounts", "system:serviceaccounts:kube-system", _AUTHENTICATED)
    return User(f"system:serviceaccount:kube-system:{name}", groups=groups)


def node_user(name: str) -> User:
    return User(f"system:node:{name}", groups=("system:nodes", _AUTHENTICATED))


SCHEDULER = User("system:kube-scheduler", groups=(_AUTHENTICATED,))


class ClusterView:
    """The stored objects and the index of their owner references."""

    def __init__(self, server: ApiServer, rights: Rights = EVERY_RIGHT) -> None:
        self.server = server
        self.rights = rights
        self.ownership = Ownership()
        self._last_event = 0
        self._resources: dict[GroupResource, Resource | None] = {}
        self._served = 0
        """The changes of the registry after which these resources were looked up."""
        self._asked: tuple[str, GroupResource, int] | None = None
        self._controlled: list[Object] = []

    def resource(self, resource: GroupResource) -> Resource | None:
        """Return the resource in its preferred version, or None if it is not served."""
        registry = self.server.registry
        if registry.changes != self._served:
            self._served = registry.changes
            self._resources.clear()
        if resource not in self._resources:
            found = next((each for each in registry if each.group_resource == resource), None)
            self._resources[resource] = found
        return self._resources[resource]

    def resources(self) -> Iterator[Resource]:
        """Yield each resource once, however many versions it has."""
        seen: set[GroupResource] = set()
        for found in self.server.registry:
            if found.group_resource not in seen and "delete" in found.verbs:
                seen.add(found.group_resource)
                yield found

    def get(self, node: Node) -> Object | None:
        return self.server.store.get(node.resource, node.key) if self.resource(node.resource) else None

    def in_namespace(self, resource: GroupResource, namespace: str) -> list[Object]:
        """Return the objects in a namespace, sorted by name."""
        objects = self.server.store.objects(resource)
        return [objects[key] for key in self.server.store.keys_in(resource, namespace)]

    def orphans(self, resource: GroupResource, namespace: str) -> list[Object]:
        """Return the objects without a controller. Only resources that can be adopted are indexed."""
        found = [self.get(Node(resource, key)) for key in self.ownership.orphans(resource, namespace)]
        return [obj for obj in found if obj is not None]

    def controlled(self, owner: Object, resource: GroupResource) -> list[Object]:
        """Return the objects that this owner controls, in the order of their creation."""
        uid = owner["metadata"]["uid"]
        if not self.ownership.dependents(uid):
            return []
        asked = (uid, resource, self.server.store.revision)
        if asked != self._asked:  # a reconcile asks several times between two writes
            nodes = self.ownership.dependents(uid)
            found = [self.get(node) for node in nodes if node.resource == resource]
            self._controlled = [obj for obj in found if obj and (controller_of(obj) or {}).get("uid") == uid]
            self._asked = asked
        return [*self._controlled]

    def wall(self) -> float:
        return self.server.clock.wall()

    def now(self) -> str:
        return self.server.now()

    def event_name(self, about: Object) -> str:
        """Return a name that has not been used before: it contains the current nanosecond, or a later one."""
        self._last_event = max(self._last_event + 1, int(self.wall() * 1e9))
        return f"{about['metadata']['name']}.{self._last_event:x}"


class Account:
    """The API verbs as one user. Changing or deleting an object that no longer exists is a no-op.

    Any other rejected request raises ApiError.
    """

    def __init__(self, cluster: ClusterView, user: User, *, manager: str = "kube-controller-manager") -> None:
        self._cluster = cluster
        self._server = cluster.server
        self._options = WriteOptions(manager=manager, validation="Ignore", user=user, rights=cluster.rights)

    def create(self, resource: GroupResource, body: Object, known: Object | None = None) -> Steps[Object]:
        """For `known` see `Writes.creating`."""
        namespace = body["metadata"].get("namespace", "")
        steps = self._server.writes.creating(
            self._target(Node(resource, Key(namespace, ""))), body, self._options, known
        )
        return (yield from steps).object

    def update(self, node: Node, mutate: MutateFn, subresource: str = "") -> Steps[None]:
        """Write the object that `mutate` returns. `subresource` applies only where the resource has it."""
        target = self._target(node, subresource)
        try:
            yield from self._server.writes.updating(
                target, lambda live: draft(mutate(live)), self._options, fresh=True
            )
        except NotFound:
            return

    def set_status(self, node: Node, status: Object) -> Steps[None]:
        live = self._cluster.get(node)
        if live is not None and live.get("status") != status:
            yield from self.update(node, lambda live: {**live, "status": status}, "status")

    def bind(self, pod: Object, resource: GroupResource, node: str) -> Steps[None]:
        """Bind the pod through its `binding` subresource, with admission. Raises Conflict if it is on another node."""
        meta = pod["metadata"]
        kind = BINDINGS.kind
        body: Object = {
            "kind": kind.kind,
            "apiVersion": kind.api_version,
            "metadata": {name: meta[name] for name in ("name", "namespace", "uid")},
            "target": {"kind": "Node", "name": node},
        }
        target = self._target(Node(resource, key_of(pod)))
        about = replace(target, subresource="binding")
        body = yield from self._server.admission.asking(about, body, self._options, BINDINGS)
        bind(self._server.model, target, body)

    def delete(
        self,
        obj: Object,
        resource: GroupResource,
        propagation: str = "Background",
        *,
        grace: int | None = None,
    ) -> Steps[None]:
        """Delete this very object, never another one with the same name. `grace` overrides the pod's grace period, in
        seconds.
        """
        meta = obj["metadata"]
        target = self._target(Node(resource, Key(meta.get("namespace", ""), meta["name"])))
        options = DeleteOptions(
            uid=meta["uid"],
            propagation=propagation,
            user=self._options.user,
            rights=self._cluster.rights,
            grace=grace,
        )
        try:
            yield from self._server.deletions.deleting(target, options)
        except NotFound:
            return

    def _target(self, node: Node, subresource: str = "") -> Target:
        resource = self._cluster.resource(node.resource)
        if resource is None:
            raise AssertionError(f"{node.resource} is not served")
        return Target(resource, node.key.namespace, node.key.name, subresource)
