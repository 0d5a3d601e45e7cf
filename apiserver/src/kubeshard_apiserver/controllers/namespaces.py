"""Namespace deletion: removes the contents, then the namespace itself.

Guaranteed: pods are deleted first, and everything else once no pod is left (KEP-5080). Objects with finalizers are
waited for. Once the pods are gone, the conditions report what remains, worded like those of the real controller.
Source: pkg/controller/namespace/deletion.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard_apiserver.controllers.cluster import Account, Cluster, service_account
from kubeshard_apiserver.controllers.controller import Controller
from kubeshard_apiserver.controllers.ownership import Node
from kubeshard_apiserver.history import Event
from kubeshard_apiserver.objects import Object, is_deleting
from kubeshard_apiserver.resources.namespaces import NAMESPACES
from kubeshard_apiserver.steps import Steps

_FINALIZER = "kubernetes"
_PODS = GroupResource("", "pods")


class NamespaceController(Controller[str]):
    def __init__(self, cluster: Cluster) -> None:
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
        yield from self._empty(_PODS, key)
        pods_left = bool(self.cluster.in_namespace(_PODS, key))
        left: dict[GroupResource, list[Object]] = {}
        if not pods_left:
            others = [each.group_resource for each in self.cluster.resources() if each.kind.namespaced]
            for resource in others:
                yield from self._empty(resource, key)
            left = {resource: self.cluster.in_namespace(resource, key) for resource in others}
        # While there are pods, nothing is counted, not even the pods.
        status = {**namespace["status"], "conditions": _conditions(namespace, left, self.cluster.now())}
        yield from self._account.set_status(node, status)
        if not pods_left and not any(left.values()):
            yield from self._account.change(node, _finalized, "finalize")
        return None

    def _empty(self, resource: GroupResource, namespace: str) -> Steps[None]:
        for obj in self.cluster.in_namespace(resource, namespace):
            if not is_deleting(obj):
                yield from self._account.delete(obj, resource)


def _finalizers(namespace: Object) -> list[str]:
    return list(namespace["spec"].get("finalizers") or ())


def _finalized(live: Object) -> Object:
    left = [name for name in _finalizers(live) if name != _FINALIZER]
    return {**live, "spec": {"finalizers": left} if left else {}}


def _conditions(
    namespace: Object, left: Mapping[GroupResource, list[Object]], now: str
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
            "NamespaceDeletionContentFailure",
            "",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
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
