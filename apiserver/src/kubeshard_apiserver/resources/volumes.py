"""PersistentVolumes. Source: k8s.io/kubernetes `pkg/apis/core/validation`, `pkg/registry/core/persistentvolume`; the
admission plugin StorageObjectInUseProtection.

Not covered: the contents of volume sources other than hostPath, local, nfs and csi.
"""

from __future__ import annotations

from collections.abc import Mapping
from posixpath import normpath
from typing import Any

from kubeshard_apiserver.objects import Object, with_metadata
from kubeshard_apiserver.resources.facts import ACCESS_MODES, fact_errors
from kubeshard_apiserver.resources.pod_names import dns_subdomain, wrong
from kubeshard_apiserver.resources.pod_resources import positive_quantity
from kubeshard_apiserver.resources.pod_selectors import node_selector_errors
from kubeshard_apiserver.resources.typed import Typed
from kubeshard_apiserver.status import (
    FieldError,
    forbidden_field,
    immutable,
    required,
    unsupported,
)

Given = Mapping[str, Any]
PROTECTION = "kubernetes.io/pv-protection"
"""The finalizer that admission adds to every new volume."""
_SOURCE = "core.v1.PersistentVolumeSpec#source"
_OTHERS = (
    "accessModes", "capacity", "claimRef", "mountOptions", "nodeAffinity", "persistentVolumeReclaimPolicy",
    "storageClassName", "volumeAttributesClassName", "volumeMode",
)  # fmt: skip
"""The fields that are not a volume source."""


class Volumes(Typed):
    """PersistentVolumes. The time of every phase change is recorded."""

    selectable = ("metadata.name", "name")

    def set_defaults(self, obj: Object) -> None:
        obj["spec"].setdefault("persistentVolumeReclaimPolicy", "Retain")
        obj["spec"].setdefault("volumeMode", "Filesystem")
        obj["status"].setdefault("phase", "Pending")
        if (path := obj["spec"].get("hostPath")) is not None:
            path.setdefault("type", "")

    def prepare_create(self, obj: Object) -> None:
        super().prepare_create(obj)
        since = obj["metadata"]["creationTimestamp"]
        obj["status"] = {"phase": "Pending", "lastPhaseTransitionTime": since}
        finalizers = obj["metadata"].get("finalizers") or []
        if PROTECTION not in finalizers:
            obj |= with_metadata(obj, finalizers=[*finalizers, PROTECTION])

    def prepare_update(self, new: Object, old: Object, subresource: str) -> None:
        super().prepare_update(new, old, subresource)
        if subresource != "status":
            return
        before, after, field = old["status"], dict(new["status"]), "lastPhaseTransitionTime"
        if before.get("phase") == after.get("phase"):
            if after.get(field) is None and field in before:
                after[field] = before[field]
        elif after.get(field) in (None, before.get(field)):
            after[field] = _now(new)
        new["status"] = after

    def validate(self, obj: Object) -> list[FieldError]:
        return volume_errors("spec", obj["spec"])

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        if subresource == "status":
            return []
        errors, spec, before = self.validate(new), new["spec"], old["spec"]
        if _source(spec) != _source(before):
            errors.append(forbidden_field("spec.persistentvolumesource", _CHANGED))
        if spec["volumeMode"] != before["volumeMode"]:
            errors.append(immutable("volumeMode", spec["volumeMode"]))
        if (
            before.get("volumeAttributesClassName") is not None
            and spec.get("volumeAttributesClassName") is None
        ):
            problem = "update from non-nil value to nil is forbidden"
            errors.append(forbidden_field("spec.volumeAttributesClassName", problem))
        return errors

    def fields_for_selection(self, obj: Object) -> dict[str, str]:
        return {**super().fields_for_selection(obj), "name": obj["metadata"]["name"]}

    def selector_problem(self, path: str) -> str:
        return f"field label not supported: {path}"


_CHANGED = "spec.persistentvolumesource is immutable after creation"


def volume_errors(path: str, spec: Given) -> list[FieldError]:
    modes, capacity = spec.get("accessModes") or (), spec.get("capacity") or {}
    errors = fact_errors("core.v1.PersistentVolumeSpec#modes", path, spec)
    if "ReadWriteOncePod" in modes and {*modes} & {*ACCESS_MODES[:3]}:
        problem = "may not use ReadWriteOncePod with other access modes"
        errors.append(forbidden_field(f"{path}.accessModes", problem))
    if not capacity:
        errors.append(required(f"{path}.capacity"))
    if capacity.keys() != {"storage"}:
        errors.append(unsupported(f"{path}.capacity", spec.get("capacity"), ("storage",)))
    for name, amount in capacity.items():
        errors += positive_quantity(f"{path}.capacity[{name}]", amount)
    errors += fact_errors("core.v1.PersistentVolumeSpec#reclaiming", path, spec)
    if (affinity := spec.get("nodeAffinity")) is not None:
        at = f"{path}.nodeAffinity.required"
        wanted = affinity.get("required")
        errors += (
            [required(at, "must specify required node constraints")]
            if wanted is None
            else node_selector_errors(at, wanted)
        )
    errors += _source_errors(path, spec)
    host = (spec.get("hostPath") or {}).get("path", "")
    if host and normpath(host) == "/" and spec.get("persistentVolumeReclaimPolicy") == "Recycle":
        problem = "may not be 'recycle' for a hostPath mount of '/'"
        errors.append(forbidden_field(f"{path}.persistentVolumeReclaimPolicy", problem))
    errors += fact_errors("core.v1.PersistentVolumeSpec", path, spec)
    if (name := spec.get("volumeAttributesClassName")) is not None:
        at = f"{path}.volumeAttributesClassName"
        errors += wrong(at, name, dns_subdomain) if name else [required(at, "an empty string is disallowed")]
        if spec.get("csi") is None:
            problem = "has to be specified when using volumeAttributesClassName"
            errors.append(required(f"{path}.csi", problem))
    return errors


def _source(spec: Given) -> Given:
    source = {name: value for name, value in spec.items() if name not in _OTHERS}
    if csi := source.get("csi"):
        source["csi"] = {name: value for name, value in csi.items() if name != "controllerExpandSecretRef"}
    return source


def _source_errors(path: str, spec: Given) -> list[FieldError]:
    given = [name for name in spec if name not in _OTHERS]
    if not given:
        return [required(path, "must specify a volume type")]
    first, *more = given
    errors = fact_errors(_SOURCE, path, {first: spec[first]})
    if "local" in given and spec.get("nodeAffinity") is None:
        errors.append(required(f"{path}.nodeAffinity", "Local volume requires node affinity"))
    return errors + [
        forbidden_field(f"{path}.{name}", "may not specify more than 1 volume type") for name in more
    ]


def _now(obj: Object) -> str:
    """Return the time of this write, which is recorded in its managed fields."""
    return max(str(entry["time"]) for entry in obj["metadata"].get("managedFields") or ())
