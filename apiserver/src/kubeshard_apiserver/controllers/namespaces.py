"""Namespaces: the objects that each one gets, and their deletion.

Guaranteed: a namespace has a default ServiceAccount and the API server's certificate authority. On deletion, pods are
deleted first, and everything else once no pod is left (KEP-5080). Objects with finalizers are waited for, and kinds of
which an object cannot be deleted do not keep the others. Once the pods are gone, the conditions report what remains and
what cannot be deleted, worded like those of the real controller. Source: pkg/controller/namespace/deletion,
pkg/controller/serviceaccount, pkg/controller/certificates/rootcacertpublisher.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from kubeshard.core.errors import AlreadyExists, ApiError
from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard_apiserver.controllers.cluster import Account, ClusterView, service_account
from kubeshard_apiserver.controllers.controller import Controller
from kubeshard_apiserver.controllers.ownership import Node
from kubeshard_apiserver.history import Event
from kubeshard_apiserver.objects import Object, is_deleting
from kubeshard_apiserver.resources.namespaces import NAMESPACES
from kubeshard_apiserver.steps import Steps

_ACCOUNTS = GroupResource("", "serviceaccounts")
_MAPS = GroupResource("", "configmaps")
_ACCOUNT, _ROOT_CA = "default", "kube-root-ca.crt"
_DESCRIPTION = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the "
    "internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of "
    "Kubernetes clusters."
)


class NamespaceDefaults(Controller[str]):
    """Creates these objects, recreates them after deletion, and restores the content of the ConfigMap."""

    watched = (NAMESPACES, _ACCOUNTS, _MAPS)

    def __init__(self, cluster: ClusterView, root_ca: str) -> None:
        super().__init__(cluster)
        self._data = {"ca.crt": root_ca}
        self._accounts = Account(cluster, service_account("service-account-controller"))
        self._publisher = Account(cluster, service_account("root-ca-cert-publisher"))

    def concerned(self, resource: GroupResource, event: Event) -> Iterable[str]:
        if resource == NAMESPACES and event.old is None:
            return (event.key.name,)
        removed = event.new is None
        if resource == _ACCOUNTS and event.key.name == _ACCOUNT and removed:
            return (event.key.namespace,)
        if resource == _MAPS and event.key.name == _ROOT_CA and event.old is not None:
            return (event.key.namespace,)
        return ()

    def reconcile(self, key: str) -> Steps[float | None]:
        namespace = self.cluster.get(Node(NAMESPACES, Key("", key)))
        if namespace is None or is_deleting(namespace):
            return None
        if self.cluster.get(Node(_ACCOUNTS, Key(key, _ACCOUNT))) is None:
            yield from _created(self._accounts, _ACCOUNTS, {"metadata": {"name": _ACCOUNT, "namespace": key}})
        node = Node(_MAPS, Key(key, _ROOT_CA))
        found = self.cluster.get(node)
        if found is None:
            meta = {
                "name": _ROOT_CA,
                "namespace": key,
                "annotations": {"kubernetes.io/description": _DESCRIPTION},
            }
            yield from _created(self._publisher, _MAPS, {"metadata": meta, "data": self._data})
        elif found.get("data") != self._data:
            yield from self._publisher.update(node, lambda live: {**live, "data": self._data})
        return None


def _created(account: Account, resource: GroupResource, body: dict[str, object]) -> Steps[None]:
    try:
        yield from account.create(resource, body)
    except AlreadyExists:
        return


_FINALIZER = "kubernetes"
_AGAIN = 5.0
_PODS = GroupResource("", "pods")


class NamespaceController(Controller[str]):
    def __init__(self, cluster: ClusterView) -> None:
        super().__init__(cluster)
        self._account = Account(cluster, service_account("namespace-controller"))
        self._terminating: set[str] = set()

    def concerned(self, resource: GroupResource, event: Event) -> Iterable[str]:
        if resource == NAMESPACES:
            if event.new is None:
                self._terminating.discard(event.key.name)
            elif is_deleting(event.new):
                self._terminating.add(event.key.name)
                return (event.key.name,)
        elif event.key.namespace in self._terminating:
            return (event.key.namespace,)
        return ()

    def reconcile(self, key: str) -> Steps[float | None]:
        node = Node(NAMESPACES, Key("", key))
        namespace = self.cluster.get(node)
        if namespace is None or not is_deleting(namespace) or _FINALIZER not in _finalizers(namespace):
            return None
        refused = yield from self._emptied([_PODS], key)
        pods_left = bool(self.cluster.in_namespace(_PODS, key))
        left: dict[GroupResource, list[Object]] = {}
        if not pods_left:
            others = [each.group_resource for each in self.cluster.resources() if each.kind.namespaced]
            refused |= yield from self._emptied(others, key)
            left = {resource: self.cluster.in_namespace(resource, key) for resource in others}
        # While there are pods, nothing is counted, not even the pods; nor is what cannot be deleted.
        counted = {resource: found for resource, found in left.items() if resource not in refused}
        conditions = _conditions(namespace, counted, sorted(refused.values()), self.cluster.now())
        yield from self._account.set_status(node, {**namespace["status"], "conditions": conditions})
        if not pods_left and not any(left.values()):
            yield from self._account.update(node, _finalized, "finalize")
        return _AGAIN if refused else None

    def _emptied(self, resources: Iterable[GroupResource], namespace: str) -> Steps[dict[GroupResource, str]]:
        """Returns why objects are not deleted, by their resource: others are deleted nevertheless."""
        refused = {}
        for resource in resources:
            try:
                for obj in self.cluster.in_namespace(resource, namespace):
                    if not is_deleting(obj):
                        yield from self._account.delete(obj, resource)
            except ApiError as error:
                refused[resource] = error.message
        return refused


def _finalizers(namespace: Object) -> list[str]:
    return list(namespace["spec"].get("finalizers") or ())


def _finalized(live: Object) -> Object:
    left = [name for name in _finalizers(live) if name != _FINALIZER]
    return {**live, "spec": {"finalizers": left} if left else {}}


def _conditions(
    namespace: Object, left: Mapping[GroupResource, list[Object]], refused: Sequence[str], now: str
) -> list[dict[str, str]]:
    """Return the conditions as the real controller words them. A transition time changes with the status only."""
    objects = sorted(
        (f"{resource.resource}.{resource.group}", len(found)) for resource, found in left.items() if found
    )
    finalizers = Counter(
        name for found in left.values() for obj in found for name in obj["metadata"].get("finalizers") or ()
    )
    content = ", ".join(f"{name} has {count} resource instances" for name, count in objects)
    held = ", ".join(f"{name} in {count} resource instances" for name, count in sorted(finalizers.items()))
    said = [
        (
            "NamespaceDeletionDiscoveryFailure",
            "",
            "ResourcesDiscovered",
            "All resources successfully discovered",
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            "",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        (
            (
                "NamespaceDeletionContentFailure",
                "refused",
                "ContentDeletionFailed",
                f"Failed to delete all resource types, {len(refused)} remaining: {', '.join(refused)}",
            )
            if refused
            else (
                "NamespaceDeletionContentFailure",
                "",
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization",
            )
        ),
        (
            (
                "NamespaceContentRemaining",
                content,
                "SomeResourcesRemain",
                f"Some resources are remaining: {content}",
            )
            if content
            else ("NamespaceContentRemaining", "", "ContentRemoved", "All content successfully removed")
        ),
        (
            (
                "NamespaceFinalizersRemaining",
                held,
                "SomeFinalizersRemain",
                f"Some content in the namespace has finalizers remaining: {held}",
            )
            if held
            else (
                "NamespaceFinalizersRemaining",
                "",
                "ContentHasNoFinalizers",
                "All content-preserving finalizers finished",
            )
        ),
    ]
    former = {each["type"]: each for each in namespace["status"].get("conditions") or ()}
    return [
        {
            "type": type_,
            "status": (status := "True" if holds else "False"),
            "lastTransitionTime": (
                former[type_]["lastTransitionTime"]
                if type_ in former and former[type_]["status"] == status
                else now
            ),
            "reason": reason,
            "message": message,
        }
        for type_, holds, reason, message in said
    ]
