"""Services: maintains their EndpointSlices and Endpoints.

Guaranteed: each Service with a selector has EndpointSlices for its address families with all pods that have an address,
and an Endpoints object of the same name. A Service without pods has one empty slice. Slices and Endpoints are deleted
with their Service. Not implemented: topology hints, the annotation with the time of the last change, the limit of 1000
addresses in Endpoints, and mirroring Endpoints that users write.
Source: pkg/controller/endpointslice, pkg/controller/endpoint, staging/src/k8s.io/endpointslice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address
from typing import Any, NamedTuple

from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard_apiserver.controllers.cluster import Account, ClusterView, service_account
from kubeshard_apiserver.controllers.controller import Controller
from kubeshard_apiserver.controllers.ownership import Node
from kubeshard_apiserver.controllers.pods import (
    NODES,
    PODS,
    controller_reference,
    has_ended,
    is_ready,
    without_zeros,
)
from kubeshard_apiserver.history import Event
from kubeshard_apiserver.objects import Object, is_deleting, key_of, labels_of, with_metadata
from kubeshard_apiserver.resources.services import SERVICES
from kubeshard_apiserver.steps import Steps

_MOST = 100
"""The maximum number of endpoints in a slice."""
_HEADLESS = "service.kubernetes.io/headless"
SERVICE_NAME = "kubernetes.io/service-name"
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
_RESERVED = (_HEADLESS, SERVICE_NAME, MANAGED_BY)
_ZONE = "topology.kubernetes.io/zone"


class Subset(NamedTuple):
    """Pods of a Service that share the same ports."""

    ports: Sequence[Object]
    endpoints: Sequence[Object]


def _selector_of(service: Object) -> Mapping[str, str]:
    """Return the Service's selector. It is empty if the Service's endpoints are not managed here."""
    spec = service.get("spec") or {}
    return {} if spec.get("type") == "ExternalName" else spec.get("selector") or {}


def selected(selector: Mapping[str, str], pod: Object) -> bool:
    return selector.items() <= labels_of(pod).items()


def _seen_of(pod: Object | None) -> tuple[Any, ...]:
    """Return the parts of a pod that matter for endpoints."""
    if pod is None:
        return ()
    spec, status = pod["spec"], pod.get("status") or {}
    place = (spec.get("nodeName"), spec.get("hostname"), spec.get("subdomain"), status.get("podIPs"))
    return (*place, labels_of(pod), is_ready(pod), is_deleting(pod), has_ended(pod))


def _is_headless(service: Object) -> bool:
    return service["spec"].get("clusterIP", "None") in ("None", "")


def _labels_for(service: Object, own: Mapping[str, str]) -> dict[str, str]:
    labels = {key: value for key, value in labels_of(service).items() if key not in _RESERVED}
    return {**labels, **({_HEADLESS: ""} if _is_headless(service) else {}), **own}


def _families_of(service: Object) -> Sequence[str]:
    return service["spec"].get("ipFamilies") or ("IPv4",)


def parts(service: Object, pods: Iterable[Object], nodes: Mapping[str, Object], family: str) -> list[Subset]:
    """Group the pods that have an address of the family, ready or not, by their ports."""
    found: dict[Any, tuple[list[Object], list[Object]]] = {}
    for pod in pods:
        addresses = _addresses(pod, family)
        node = nodes.get(pod["spec"].get("nodeName", ""))
        shown = service["spec"].get("publishNotReadyAddresses", False)
        if has_ended(pod) or not addresses or (node is None and not shown):
            continue
        ports = _ports_of(service, pod)
        _, endpoints = found.setdefault(_ports_key(ports), (ports, []))
        endpoints.append(_endpoint(service, pod, node, addresses))
    return [Subset(ports, endpoints) for ports, endpoints in found.values()]


def _ports_key(ports: Iterable[Object] | None) -> Any:
    return frozenset(tuple(sorted(port.items())) for port in ports or ())


def filled(wanted: Sequence[Subset], slices: Sequence[Object]) -> list[tuple[Object | None, Subset]]:
    """Return the contents of each slice; None stands for a new slice. Slices that do not appear are not needed.

    An endpoint stays in its slice; new endpoints go where there is room.
    """
    result: list[tuple[Object | None, Subset]] = []
    for part in wanted:
        left = {endpoint["targetRef"]["uid"]: endpoint for endpoint in part.endpoints}
        kept: list[tuple[Object | None, list[Object]]] = []
        for each in slices:
            if _ports_key(each.get("ports")) == _ports_key(part.ports):
                uids = [endpoint["targetRef"]["uid"] for endpoint in each.get("endpoints") or ()]
                kept.append((each, [left.pop(uid) for uid in uids if uid in left]))
        for _, endpoints in kept:
            while left and len(endpoints) < _MOST:
                endpoints.append(left.pop(next(iter(left))))
        more = list(left.values())
        kept += [(None, more[first : first + _MOST]) for first in range(0, len(more), _MOST)]
        result += [(each, Subset(part.ports, endpoints)) for each, endpoints in kept if endpoints]
        # There is always at least one slice.
    return result or [(None, Subset((), ()))]


def subsets(service: Object, pods: Iterable[Object], family: str) -> list[Object]:
    """Return the subsets of an Endpoints object: ports with the same addresses are grouped."""
    shown = service["spec"].get("publishNotReadyAddresses", False)
    by_port: dict[Any, tuple[Object | None, dict[str, tuple[bool, Object]]]] = {}
    for pod in pods:
        addresses = _addresses(pod, family)
        if has_ended(pod) or not addresses or (is_deleting(pod) and not shown):
            continue
        spec = pod["spec"]
        address: Object = {
            "ip": addresses[0],
            "nodeName": spec.get("nodeName", ""),
            "targetRef": _reference(pod),
        }
        if _is_named(service, pod):
            address["hostname"] = spec["hostname"]
        ports: Sequence[Object | None] = _ports_of(service, pod)
        if not service["spec"].get("ports") and _is_headless(service):
            ports = [None]
        for port in ports:
            _, reached = by_port.setdefault(_ports_key([port] if port else None), (port, {}))
            reached[pod["metadata"]["uid"]] = (shown or is_ready(pod), address)
    together: dict[Any, tuple[dict[str, tuple[bool, Object]], list[Object]]] = {}
    for port, reached in by_port.values():
        same = frozenset((uid, ready) for uid, (ready, _) in reached.items())
        _, group = together.setdefault(same, (reached, []))
        group += [port] if port else []
    return [_subset(reached, ports) for reached, ports in together.values()]


def _subset(reached: Mapping[str, tuple[bool, Object]], ports: list[Object]) -> Object:
    def those(wanted: bool) -> list[Object]:
        found = [address for ready, address in reached.values() if ready is wanted]
        return sorted(found, key=lambda address: (str(address["ip"]), str(address["targetRef"]["uid"])))

    subset = {"addresses": those(True), "notReadyAddresses": those(False), "ports": ports}
    return {field: value for field, value in subset.items() if value}


def _ports_of(service: Object, pod: Object) -> list[Object]:
    found = []
    for port in service["spec"].get("ports") or ():
        number = _number(port, pod)
        if number is None:
            continue
        one = {"name": port.get("name", ""), "port": number, "protocol": port.get("protocol", "TCP")}
        if port.get("appProtocol"):
            one["appProtocol"] = port["appProtocol"]
        found.append(one)
    return found


def _number(port: Object, pod: Object) -> int | None:
    """Return the port's number. A name refers to a container port; init containers count only if they are sidecars."""
    target = port.get("targetPort") or port["port"]
    if isinstance(target, int):
        return target
    spec = pod["spec"]
    sidecars = [each for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"]
    for container in [*spec["containers"], *sidecars]:
        for each in container.get("ports") or ():
            same = each.get("protocol", "TCP") == port.get("protocol", "TCP")
            if each.get("name") == target and same:
                return int(each["containerPort"])
    return None


def _endpoint(service: Object, pod: Object, node: Object | None, addresses: list[str]) -> Object:
    serving, terminating = is_ready(pod), is_deleting(pod)
    shown = service["spec"].get("publishNotReadyAddresses", False)
    endpoint: Object = {
        "addresses": addresses,
        "conditions": {
            "ready": shown or (serving and not terminating),
            "serving": serving,
            "terminating": terminating,
        },
        "targetRef": _reference(pod),
    }
    if pod["spec"].get("nodeName"):
        endpoint["nodeName"] = pod["spec"]["nodeName"]
    if node is not None and (zone := labels_of(node).get(_ZONE)):
        endpoint["zone"] = zone
    if _is_named(service, pod):
        endpoint["hostname"] = pod["spec"]["hostname"]
    return endpoint


def _is_named(service: Object, pod: Object) -> bool:
    spec = pod["spec"]
    return bool(spec.get("hostname")) and spec.get("subdomain") == service["metadata"]["name"]


def _reference(pod: Object) -> Object:
    meta = pod["metadata"]
    return {"kind": "Pod", "namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]}


def _addresses(pod: Object, family: str) -> list[str]:
    given = [str(each["ip"]) for each in (pod.get("status") or {}).get("podIPs") or ()]
    return [address for address in given if f"IPv{ip_address(address).version}" == family]


SLICES = GroupResource("discovery.k8s.io", "endpointslices")
ENDPOINTS = GroupResource("", "endpoints")
_SLICE_MANAGER = "endpointslice-controller.k8s.io"
_ENDPOINTS_MANAGED_BY = "endpoints.kubernetes.io/managed-by"
_ENDPOINTS_MANAGER = "endpoint-controller"


class EndpointsController(Controller[Key]):
    """Reconciles Services, identified by their keys."""

    watched = (SERVICES, ENDPOINTS, SLICES, PODS)

    def __init__(self, cluster: ClusterView) -> None:
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
        selector = _selector_of(service)
        if not selector or is_deleting(service):
            return None
        pods = [pod for pod in self.cluster.in_namespace(PODS, key.namespace) if selected(selector, pod)]
        yield from self._keep_slices(service, pods)
        yield from self._keep_endpoints(service, pods, endpoints)
        return None

    def _of_pod(self, event: Event) -> Iterable[Key]:
        if _seen_of(event.old) == _seen_of(event.new):
            return
        pods = [pod for pod in (event.old, event.new) if pod]
        for name, selector in self._selectors.get(event.key.namespace, {}).items():
            if any(selected(selector, pod) for pod in pods):
                yield Key(event.key.namespace, name)

    def _remember(self, event: Event) -> None:
        selector = _selector_of(event.new) if event.new else {}
        known = self._selectors.setdefault(event.key.namespace, {})
        known.pop(event.key.name, None)
        if selector:
            known[event.key.name] = selector

    def _keep_slices(self, service: Object, pods: list[Object]) -> Steps[None]:
        meta = service["metadata"]
        nodes = {key.name: node for key, node in self.cluster.server.store.objects(NODES).items()}
        families = _families_of(service)
        mine = [
            each
            for each in self.cluster.controlled(service, SLICES)
            if labels_of(each).get(MANAGED_BY) == _SLICE_MANAGER and not is_deleting(each)
        ]
        labels = _labels_for(service, {SERVICE_NAME: meta["name"], MANAGED_BY: _SLICE_MANAGER})
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
        self, service: Object, former: Object | None, part: Subset, labels: dict[str, str], family: str
    ) -> Steps[None]:
        meta = service["metadata"]
        content = {"endpoints": list(part.endpoints) or None, "ports": list(part.ports) or None}
        if former is None:
            head = {
                "generateName": f"{meta['name']}-",
                "namespace": meta["namespace"],
                "labels": labels,
                "ownerReferences": [controller_reference(service)],
            }
            yield from self._slices.create(SLICES, {"metadata": head, "addressType": family, **content})
        elif any(former.get(field) != content[field] for field in content) or labels != labels_of(former):
            yield from self._slices.update(
                Node(SLICES, key_of(former)), lambda live: with_metadata({**live, **content}, labels=labels)
            )

    def _keep_endpoints(self, service: Object, pods: list[Object], node: Node) -> Steps[None]:
        labels = _labels_for(service, {_ENDPOINTS_MANAGED_BY: _ENDPOINTS_MANAGER})
        wanted, found = subsets(service, pods, _families_of(service)[0]), self.cluster.get(node)
        if found is None:
            head = {"name": node.key.name, "namespace": node.key.namespace, "labels": labels}
            yield from self._endpoints.create(ENDPOINTS, {"metadata": head, "subsets": wanted})
        elif (found.get("subsets") or []) != wanted or labels != labels_of(found):
            yield from self._endpoints.update(
                node, lambda live: with_metadata(without_zeros({**live, "subsets": wanted}), labels=labels)
            )
