"""PersistentVolumes, StorageClasses, VolumeAttributesClasses, and the objects of CSI drivers.

Not covered: the contents of volume sources other than hostPath, local, nfs and csi. Source: k8s.io/kubernetes
`pkg/apis/storage`, `pkg/registry/storage`, `pkg/apis/core/validation`, `pkg/registry/core/persistentvolume`; the
admission plugin StorageObjectInUseProtection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from posixpath import normpath
from typing import Any

from kubeshard_apiserver.access import User
from kubeshard_apiserver.objects import JsonObject, Object, own, with_metadata
from kubeshard_apiserver.resources.field_rules import ACCESS_MODES, changed_errors, field_rule_errors
from kubeshard_apiserver.resources.pod_resources import positive_quantity
from kubeshard_apiserver.resources.pod_rules import node_selector_errors
from kubeshard_apiserver.resources.typed import Typed
from kubeshard_apiserver.schema.internal import internal
from kubeshard_apiserver.schema.name_formats import dns_subdomain, qualified_name, wrong
from kubeshard_apiserver.status import (
    FieldError,
    duplicate,
    forbidden_field,
    immutable,
    invalid_value,
    required,
    too_long,
    unsupported,
)

ATTRIBUTES_PROTECTION = "kubernetes.io/vac-protection"
"""The finalizer that admission adds to every new VolumeAttributesClass."""
_MOST_PARAMETERS, _LONGEST_PARAMETERS = 512, 256 * 1024
_OFF = (
    "podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount", "preventPodSchedulingIfMissing",
)  # fmt: skip
"""What a driver does not do unless it says so."""
_SHORTEST_TOKEN, _LONGEST_TOKEN = 600, 2**32
_LONGEST_MESSAGE = 1024


class StorageClasses(Typed):
    def set_defaults(self, obj: Object) -> None:
        obj.setdefault("reclaimPolicy", "Delete")
        obj.setdefault("volumeBindingMode", "Immediate")

    def validate(self, obj: Object) -> list[FieldError]:
        errors = field_rule_errors("storage.v1.StorageClass#provisioner", "", obj)
        errors += _parameters("parameters", obj.get("parameters") or {})
        return errors + field_rule_errors("storage.v1.StorageClass", "", obj)

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        fields = ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode")
        return self.validate(new) + changed_errors("", fields, new, old, declared=True)


class AttributesClasses(Typed):
    def prepare_create(self, obj: Object) -> None:
        super().prepare_create(obj)
        finalizers = obj["metadata"].get("finalizers") or []
        if ATTRIBUTES_PROTECTION not in finalizers:
            obj |= with_metadata(obj, finalizers=[*finalizers, ATTRIBUTES_PROTECTION])

    def validate(self, obj: Object) -> list[FieldError]:
        given = obj.get("parameters") or {}
        errors = field_rule_errors("storage.v1.VolumeAttributesClass", "", obj) + _parameters(
            "parameters", given
        )
        if not given:
            errors.append(required("parameters", "must contain at least one key/value pair"))
        return errors

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        return [
            forbidden_field(field, f"updates to {field} are forbidden.")
            for field in ("driverName", "parameters")
            if new.get(field) != old.get(field)
        ] + self.validate(new)


class Drivers(Typed):
    """CSIDrivers. They get a generation with their first change."""

    def set_defaults(self, obj: Object) -> None:
        spec = obj["spec"]
        spec.setdefault("attachRequired", True)
        for field in _OFF:
            spec.setdefault(field, False)
        spec.setdefault("fsGroupPolicy", "ReadWriteOnceWithFSType")
        if not spec.get("volumeLifecycleModes"):
            spec["volumeLifecycleModes"] = ["Persistent"]

    def prepare_update(self, new: Object, old: Object, subresource: str) -> None:
        super().prepare_update(new, old, subresource)
        if new["spec"] != old["spec"]:
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj["spec"]
        requests, secrets = spec.get("tokenRequests") or (), spec.get("serviceAccountTokenInSecrets")
        errors = field_rule_errors("storage.v1.CSIDriverSpec", "spec", spec) + _tokens(requests)
        errors += field_rule_errors("storage.v1.CSIDriverSpec#modes", "spec", spec)
        if secrets is not None and not requests:
            problem = "serviceAccountTokenInSecrets is set but no tokenRequests are specified"
            errors.append(invalid_value("spec.serviceAccountTokenInSecrets", secrets, problem))
        return errors

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        fields = (("attachRequired", "attachedRequired"), ("volumeLifecycleModes", "volumeLifecycleModes"))
        return self.validate(new) + [
            immutable(f"spec.{told}", new["spec"][field])
            for field, told in fields
            if new["spec"][field] != old["spec"][field]
        ]


class DriverNodes(Typed):
    """CSINodes."""

    def validate(self, obj: Object) -> list[FieldError]:
        errors: list[FieldError] = []
        seen: dict[str, set[Any]] = {}
        for index, driver in enumerate(obj["spec"].get("drivers") or ()):
            at = f"spec.drivers[{index}]"
            errors += field_rule_errors("storage.v1.CSINodeDriver", at, driver, seen)
            errors += _topology_keys(at, driver.get("topologyKeys") or ())
        return errors

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        had = {driver.get("name"): _fixed(driver) for driver in old["spec"].get("drivers") or ()}
        changed = [
            driver
            for driver in new["spec"].get("drivers") or ()
            if _fixed(driver) != had.get(driver.get("name"), _fixed(driver))
        ]
        return self.validate(new) + [
            immutable("spec.drivers", internal("storage.v1.CSINodeDriver", _fixed(driver)))
            for driver in changed
        ]


class Capacities(Typed):
    """CSIStorageCapacities."""

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        return changed_errors("", ("nodeTopology", "storageClassName"), new, old)


class Attachments(Typed):
    """VolumeAttachments."""

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj["spec"]
        volume = spec["source"].get("persistentVolumeName")
        errors = field_rule_errors("storage.v1.VolumeAttachmentSpec", "spec", spec)
        if (volume is None) == (spec["source"].get("inlineVolumeSpec") is None):
            problem = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
            errors.append(
                required("spec.source", problem)
                if volume is None
                else forbidden_field("spec.source", problem)
            )
        elif volume == "":
            problem = "must specify non empty persistentVolumeName"
            errors.append(required("spec.source.persistentVolumeName", problem))
        errors += field_rule_errors("storage.v1.VolumeAttachmentSpec#node", "spec", spec)
        for field in ("attachError", "detachError"):
            message = ((obj.get("status") or {}).get(field) or {}).get("message", "")
            if len(message) > _LONGEST_MESSAGE:
                errors.append(too_long(f"status.{field}.message", _LONGEST_PARAMETERS))
        return errors + field_rule_errors("storage.v1.VolumeAttachmentSource", "spec.source", spec["source"])

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        changed = new["spec"] != old["spec"]
        return self.validate(new) + ([immutable("spec", None)] if changed else [])


def _parameters(path: str, given: Mapping[str, str]) -> list[FieldError]:
    if len(given) > _MOST_PARAMETERS:
        return [too_long(path, _MOST_PARAMETERS)]
    errors = [invalid_value(path, "", "field can not be empty.")] if "" in given else []
    size = sum(len(key.encode()) + len(value.encode()) for key, value in given.items())
    return [*errors, too_long(path, _LONGEST_PARAMETERS)] if size > _LONGEST_PARAMETERS else errors


def _topology_keys(path: str, keys: Sequence[str]) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, key in enumerate(keys):
        errors += [] if key else [required(path)]
        errors += [duplicate(path, key)] if key in keys[:index] else []
        errors += wrong(path, key, qualified_name)
    return errors


def _tokens(requests: Sequence[JsonObject]) -> list[FieldError]:
    errors: list[FieldError] = []
    audiences = [request.get("audience", "") for request in requests]
    for index, request in enumerate(requests):
        at, seconds = f"spec.tokenRequests[{index}]", request.get("expirationSeconds")
        if audiences[index] in audiences[:index]:
            errors.append(duplicate(f"{at}.audience", audiences[index]))
        elif seconds is not None and seconds < _SHORTEST_TOKEN:
            problem = "may not specify a duration less than 10 minutes"
            errors.append(invalid_value(f"{at}.expirationSeconds", seconds, problem))
        elif seconds is not None and seconds > _LONGEST_TOKEN:
            problem = "may not specify a duration larger than 2^32 seconds"
            errors.append(invalid_value(f"{at}.expirationSeconds", seconds, problem))
    return errors


def _fixed(driver: JsonObject) -> JsonObject:
    return {name: value for name, value in driver.items() if name != "allocatable"}


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

    def set_defaults(self, obj: Object) -> None:
        obj["spec"].setdefault("persistentVolumeReclaimPolicy", "Retain")
        obj["spec"].setdefault("volumeMode", "Filesystem")
        obj["status"].setdefault("phase", "Pending")
        if (path := own(obj["spec"], "hostPath")) is not None:
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
        if before.get("phase") == after.get("phase") and after.get(field) is None and field in before:
            after[field] = before[field]
        new["status"] = after

    def stamp(self, new: Object, old: Object | None, user: User, now: str) -> None:
        if old is None:
            return
        before, after, field = old["status"], new["status"], "lastPhaseTransitionTime"
        if before.get("phase") != after.get("phase") and after.get(field) in (None, before.get(field)):
            new["status"] = {**after, field: now}

    def validate(self, obj: Object) -> list[FieldError]:
        return _volume_errors("spec", obj["spec"])

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


_CHANGED = "spec.persistentvolumesource is immutable after creation"


def _volume_errors(path: str, spec: JsonObject) -> list[FieldError]:
    modes, capacity = spec.get("accessModes") or (), spec.get("capacity") or {}
    errors = field_rule_errors("core.v1.PersistentVolumeSpec#modes", path, spec)
    if "ReadWriteOncePod" in modes and {*modes} & {*ACCESS_MODES[:3]}:
        problem = "may not use ReadWriteOncePod with other access modes"
        errors.append(forbidden_field(f"{path}.accessModes", problem))
    if not capacity:
        errors.append(required(f"{path}.capacity"))
    if capacity.keys() != {"storage"}:
        errors.append(unsupported(f"{path}.capacity", spec.get("capacity"), ("storage",)))
    for name, amount in capacity.items():
        errors += positive_quantity(f"{path}.capacity[{name}]", amount)
    errors += field_rule_errors("core.v1.PersistentVolumeSpec#reclaiming", path, spec)
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
    errors += field_rule_errors("core.v1.PersistentVolumeSpec", path, spec)
    if (name := spec.get("volumeAttributesClassName")) is not None:
        at = f"{path}.volumeAttributesClassName"
        errors += wrong(at, name, dns_subdomain) if name else [required(at, "an empty string is disallowed")]
        if spec.get("csi") is None:
            problem = "has to be specified when using volumeAttributesClassName"
            errors.append(required(f"{path}.csi", problem))
    return errors


def _source(spec: JsonObject) -> JsonObject:
    source = {name: value for name, value in spec.items() if name not in _OTHERS}
    if csi := source.get("csi"):
        source["csi"] = {name: value for name, value in csi.items() if name != "controllerExpandSecretRef"}
    return source


def _source_errors(path: str, spec: JsonObject) -> list[FieldError]:
    given = [name for name in spec if name not in _OTHERS]
    if not given:
        return [required(path, "must specify a volume type")]
    first, *more = given
    errors = field_rule_errors(_SOURCE, path, {first: spec[first]})
    if "local" in given and spec.get("nodeAffinity") is None:
        errors.append(required(f"{path}.nodeAffinity", "Local volume requires node affinity"))
    return errors + [
        forbidden_field(f"{path}.{name}", "may not specify more than 1 volume type") for name in more
    ]
