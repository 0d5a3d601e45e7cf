"""Services: maintains their EndpointSlices and Endpoints.

Guaranteed: each Service with a selector has EndpointSlices for its address families with all pods that have an address,
and an Endpoints object of the same name. A Service without pods has one empty slice. Slices and Endpoints are deleted
with their Service. Not implemented: topology hints, the annotation with the time of the last change, the limit of 1000
addresses in Endpoints, and mirroring Endpoints that users write.
Source: pkg/controller/endpointslice, pkg/controller/endpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard_apiserver.controllers.cluster import Account, Cluster, service_account
from kubeshard_apiserver.controllers.controller import Controller
from kubeshard_apiserver.controllers.endpoint_subsets import (
    MANAGED_BY,
    SERVICE_NAME,
    Part,
    families_of,
    filled,
    labels_for,
    parts,
    seen_of,
    selected,
    selector_of,
    subsets,
)
from kubeshard_apiserver.controllers.ownership import Node
from kubeshard_apiserver.controllers.pods import NODES, PODS, controller_reference
from kubeshard_apiserver.history import Event
from kubeshard_apiserver.objects import Object, is_deleting, key_of, labels_of, with_metadata
from kubeshard_apiserver.resources.services import SERVICES
from kubeshard_apiserver.steps import Steps

SLICES = GroupResource("discovery.k8s.io", "endpointslices")
ENDPOINTS = GroupResource("", "endpoints")
_SLICE_MANAGER = "endpointslice-controller.k8s.io"
_ENDPOINTS_MANAGED_BY = "endpoints.kubernetes.io/managed-by"
_ENDPOINTS_MANAGER = "endpoint-controller"


class EndpointsController(Controller[Key]):
    """Reconciles Services, identified by their keys."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._slices = Account(cluster, service_account("endpointslice-controller"))
        self._endpoints = Account(cluster, service_account("endpoint-controller"))
        # Selectors of Services by namespace and name: every change of a pod is matched against all of its namespace.
        self._selectors: dict[str, dict[str, Mapping[str, str]]] = {}

    def concerned(self, resource: GroupResource, event: Event) -> Iterable[Key]:
        if resource == PODS:
            return self._of_pod(event)
        if resource == SERVICES:
            self._remember(event)
            return (event.key,)
        if resource == ENDPOINTS and event.new is None:
            return (event.key,)
        if resource == SLICES and event.old and labels_of(event.old).get(MANAGED_BY) == _SLICE_MANAGER:
            return (Key(event.key.namespace, labels_of(event.old).get(SERVICE_NAME, "")),)
        return ()

    def reconcile(self, key: Key) -> Steps[float | None]:
        service, endpoints = self.cluster.get(Node(SERVICES, key)), Node(ENDPOINTS, key)
        if service is None:
            found = self.cluster.get(endpoints)
            if found is not None and _ENDPOINTS_MANAGED_BY in labels_of(found):
                yield from self._endpoints.delete(found, ENDPOINTS)
            return None
        selector = selector_of(service)
        if not selector or is_deleting(service):
            return None
        pods = [pod for pod in self.cluster.in_namespace(PODS, key.namespace) if selected(selector, pod)]
        yield from self._keep_slices(service, pods)
        yield from self._keep_endpoints(service, pods, endpoints)
        return None

    def _of_pod(self, event: Event) -> Iterable[Key]:
        if seen_of(event.old) == seen_of(event.new):
            return
        pods = [pod for pod in (event.old, event.new) if pod]
        for name, selector in self._selectors.get(event.key.namespace, {}).items():
            if any(selected(selector, pod) for pod in pods):
                yield Key(event.key.namespace, name)

    def _remember(self, event: Event) -> None:
        selector = selector_of(event.new) if event.new else {}
        known = self._selectors.setdefault(event.key.namespace, {})
        known.pop(event.key.name, None)
        if selector:
            known[event.key.name] = selector

    def _keep_slices(self, service: Object, pods: list[Object]) -> Steps[None]:
        meta = service["metadata"]
        nodes = {key.name: node for key, node in self.cluster.server.store.objects(NODES).items()}
        families = families_of(service)
        mine = [
            each
            for each in self.cluster.controlled(service, SLICES)
            if labels_of(each).get(MANAGED_BY) == _SLICE_MANAGER and not is_deleting(each)
        ]
        labels = labels_for(service, {SERVICE_NAME: meta["name"], MANAGED_BY: _SLICE_MANAGER})
        for family in families:
            slices = [each for each in mine if each["addressType"] == family]
            wanted = filled(parts(service, pods, nodes, family), slices)
            used = {key_of(each) for each, _ in wanted if each}
            free = [each for each in slices if key_of(each) not in used]
            for each, part in wanted:
                # Reuse a slice that is no longer needed.
                each = each or (free.pop(0) if free else None)
                yield from self._write_slice(service, each, part, labels, family)
            for each in free:
                yield from self._slices.delete(each, SLICES)
        for each in mine:
            if each["addressType"] not in families:
                yield from self._slices.delete(each, SLICES)

    def _write_slice(
        self, service: Object, former: Object | None, part: Part, labels: dict[str, str], family: str
    ) -> Steps[None]:
        meta = service["metadata"]
        content = {"endpoints": list(part.endpoints), "ports": list(part.ports)}
        if former is None:
            head = {
                "generateName": f"{meta['name']}-",
                "namespace": meta["namespace"],
                "labels": labels,
                "ownerReferences": [controller_reference(service)],
            }
            yield from self._slices.create(SLICES, {"metadata": head, "addressType": family, **content})
        elif any((former.get(field) or []) != content[field] for field in content) or labels != labels_of(
            former
        ):
            yield from self._slices.change(
                Node(SLICES, key_of(former)), lambda live: with_metadata({**live, **content}, labels=labels)
            )

    def _keep_endpoints(self, service: Object, pods: list[Object], node: Node) -> Steps[None]:
        labels = labels_for(service, {_ENDPOINTS_MANAGED_BY: _ENDPOINTS_MANAGER})
        wanted, found = subsets(service, pods, families_of(service)[0]), self.cluster.get(node)
        if found is None:
            head = {"name": node.key.name, "namespace": node.key.namespace, "labels": labels}
            yield from self._endpoints.create(ENDPOINTS, {"metadata": head, "subsets": wanted})
        elif (found.get("subsets") or []) != wanted or labels != labels_of(found):
            yield from self._endpoints.change(
                node, lambda live: with_metadata({**live, "subsets": wanted}, labels=labels)
            )
