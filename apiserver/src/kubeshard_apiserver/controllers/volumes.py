"""Binds claims at once, each to a new volume that is deleted with the claim.

It does the work of the provisioner, the binder and the claim-protection controller, the same for every storage class.
A claim with a `volumeName` is bound to that volume if it exists.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard_apiserver.controllers.cluster import Account, ClusterView, service_account
from kubeshard_apiserver.controllers.controller import Controller
from kubeshard_apiserver.controllers.ownership import Node
from kubeshard_apiserver.controllers.pods import CLAIMS, PODS, has_ended
from kubeshard_apiserver.history import Event
from kubeshard_apiserver.objects import Object, is_deleting, without_finalizer
from kubeshard_apiserver.steps import Steps

VOLUMES = GroupResource("", "persistentvolumes")
_PROTECTED = "kubernetes.io/pvc-protection"
_VOLUME_PROTECTED = "kubernetes.io/pv-protection"


class VolumeController(Controller[Node]):
    watched = (CLAIMS, VOLUMES, PODS)

    def __init__(self, cluster: ClusterView) -> None:
        super().__init__(cluster)
        self._account = Account(cluster, service_account("persistent-volume-binder"))

    def concerned(self, resource: GroupResource, event: Event) -> Iterable[Node]:
        if resource in (CLAIMS, VOLUMES):
            yield Node(resource, event.key)
        if resource == CLAIMS and event.new is None:
            name = event.old["spec"].get("volumeName", "") if event.old else ""
            yield Node(VOLUMES, Key("", name))
        if resource == PODS and event.old and (event.new is None or has_ended(event.new)):
            for name in _claims_of(event.old):
                yield Node(CLAIMS, Key(event.key.namespace, name))

    def reconcile(self, key: Node) -> Steps[float | None]:
        obj = self.cluster.get(key)
        if obj is None:
            return None
        if key.resource == VOLUMES:
            yield from self._keep_volume(key, obj)
        elif is_deleting(obj):
            if not self._in_use(key.key):
                yield from self._account.update(key, lambda live: without_finalizer(live, _PROTECTED))
        elif (obj.get("status") or {}).get("phase") != "Bound":
            yield from self._bind(key, obj)
        return None

    def _bind(self, key: Node, claim: Object) -> Steps[None]:
        spec = claim["spec"]
        name = spec.get("volumeName") or f"pvc-{claim['metadata']['uid']}"
        volume = Node(VOLUMES, Key("", name))
        if self.cluster.get(volume) is None:
            if spec.get("volumeName"):
                return
            yield from self._account.create(VOLUMES, _volume(claim, name))
        yield from self._account.set_status(volume, {"phase": "Bound"})
        yield from self._account.update(
            key, lambda live: {**live, "spec": {**live["spec"], "volumeName": name}}
        )
        capacity = (spec.get("resources") or {}).get("requests") or {}
        status = {"phase": "Bound", "accessModes": spec.get("accessModes") or [], "capacity": capacity}
        yield from self._account.set_status(key, status)

    def _keep_volume(self, key: Node, volume: Object) -> Steps[None]:
        """Delete a provisioned volume whose claim is gone."""
        reference = volume["spec"].get("claimRef") or {}
        if is_deleting(volume):
            yield from self._account.update(key, lambda live: without_finalizer(live, _VOLUME_PROTECTED))
        elif volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete" and reference:
            place = Key(reference.get("namespace", ""), reference["name"])
            claim = self.cluster.get(Node(CLAIMS, place))
            if claim is None or claim["metadata"]["uid"] != reference.get("uid"):
                yield from self._account.delete(volume, VOLUMES)

    def _in_use(self, claim: Key) -> bool:
        pods = self.cluster.in_namespace(PODS, claim.namespace)
        return any(claim.name in _claims_of(pod) and not has_ended(pod) for pod in pods)


def _claims_of(pod: Object) -> list[str]:
    volumes = pod["spec"].get("volumes") or ()
    return [
        volume["persistentVolumeClaim"]["claimName"]
        for volume in volumes
        if "persistentVolumeClaim" in volume
    ]


def _volume(claim: Object, name: str) -> Object:
    meta, spec = claim["metadata"], claim["spec"]
    body: dict[str, Any] = {
        "metadata": {"name": name},
        "spec": {
            "accessModes": spec.get("accessModes") or ["ReadWriteOnce"],
            "capacity": (spec.get("resources") or {}).get("requests") or {},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": meta["namespace"],
                "name": meta["name"],
                "uid": meta["uid"],
            },
            "hostPath": {"path": f"/pretended/{name}"},
            "persistentVolumeReclaimPolicy": "Delete",
            "volumeMode": spec.get("volumeMode", "Filesystem"),
        },
    }
    if spec.get("storageClassName"):
        body["spec"]["storageClassName"] = spec["storageClassName"]
    return body
