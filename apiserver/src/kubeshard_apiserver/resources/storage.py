"""StorageClasses, VolumeAttributesClasses, and the objects of CSI drivers.

Source: k8s.io/kubernetes `pkg/apis/storage`, `pkg/registry/storage`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubeshard_apiserver.objects import Object, with_metadata
from kubeshard_apiserver.resources.facts import changed_errors, fact_errors
from kubeshard_apiserver.resources.pod_names import qualified_name, wrong
from kubeshard_apiserver.resources.typed import Typed
from kubeshard_apiserver.status import (
    FieldError,
    duplicate,
    forbidden_field,
    immutable,
    invalid_value,
    required,
    too_long,
)

Given = Mapping[str, Any]
ATTRIBUTES_PROTECTION = "kubernetes.io/vac-protection"
"""The finalizer that admission adds to every new VolumeAttributesClass."""
_MOST_PARAMETERS, _LONGEST_PARAMETERS = 512, 256 * 1024
_SHORTEST_TOKEN, _LONGEST_TOKEN = 600, 2**32
_LONGEST_MESSAGE = 1024


class StorageClasses(Typed):
    def set_defaults(self, obj: Object) -> None:
        obj.setdefault("reclaimPolicy", "Delete")
        obj.setdefault("volumeBindingMode", "Immediate")

    def validate(self, obj: Object) -> list[FieldError]:
        errors = fact_errors("storage.v1.StorageClass#provisioner", "", obj)
        errors += _parameters("parameters", obj.get("parameters") or {})
        return errors + fact_errors("storage.v1.StorageClass", "", obj)

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        fields = ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode")
        return self.validate(new) + changed_errors("", fields, new, old)


class AttributesClasses(Typed):
    def prepare_create(self, obj: Object) -> None:
        super().prepare_create(obj)
        finalizers = obj["metadata"].get("finalizers") or []
        if ATTRIBUTES_PROTECTION not in finalizers:
            obj |= with_metadata(obj, finalizers=[*finalizers, ATTRIBUTES_PROTECTION])

    def validate(self, obj: Object) -> list[FieldError]:
        given = obj.get("parameters") or {}
        errors = fact_errors("storage.v1.VolumeAttributesClass", "", obj) + _parameters("parameters", given)
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
        for field in ("podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"):
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
        errors = fact_errors("storage.v1.CSIDriverSpec", "spec", spec) + _tokens(requests)
        errors += fact_errors("storage.v1.CSIDriverSpec#modes", "spec", spec)
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
            errors += fact_errors("storage.v1.CSINodeDriver", at, driver, seen)
            errors += _topology_keys(at, driver.get("topologyKeys") or ())
        return errors

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        had = {driver.get("name"): _fixed(driver) for driver in old["spec"].get("drivers") or ()}
        changed = [
            driver
            for driver in new["spec"].get("drivers") or ()
            if _fixed(driver) != had.get(driver.get("name"), _fixed(driver))
        ]
        return self.validate(new) + [immutable("spec.drivers", _shown(driver)) for driver in changed]


class Capacities(Typed):
    """CSIStorageCapacities."""

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        return changed_errors("", ("nodeTopology", "storageClassName"), new, old)


class Attachments(Typed):
    """VolumeAttachments."""

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj["spec"]
        volume = spec["source"].get("persistentVolumeName")
        errors = fact_errors("storage.v1.VolumeAttachmentSpec", "spec", spec)
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
        errors += fact_errors("storage.v1.VolumeAttachmentSpec#node", "spec", spec)
        for field in ("attachError", "detachError"):
            message = ((obj.get("status") or {}).get(field) or {}).get("message", "")
            if len(message) > _LONGEST_MESSAGE:
                errors.append(too_long(f"status.{field}.message", _LONGEST_PARAMETERS))
        return errors + fact_errors("storage.v1.VolumeAttachmentSource", "spec.source", spec["source"])

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        changed = new["spec"] != old["spec"]
        return self.validate(new) + ([immutable("spec", _shown_attachment(new["spec"]))] if changed else [])


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


def _tokens(requests: Sequence[Given]) -> list[FieldError]:
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


def _fixed(driver: Given) -> Given:
    return {name: value for name, value in driver.items() if name != "allocatable"}


def _shown(driver: Given) -> Given:
    """Return the driver as messages show it, with the names of Go's fields."""
    return {
        "Name": driver.get("name", ""),
        "NodeID": driver.get("nodeID", ""),
        "TopologyKeys": driver.get("topologyKeys"),
        "Allocatable": None,
    }


def _shown_attachment(spec: Given) -> Given:
    source = spec["source"]
    return {
        "Attacher": spec.get("attacher", ""),
        "Source": {
            "PersistentVolumeName": source.get("persistentVolumeName"),
            "InlineVolumeSpec": source.get("inlineVolumeSpec"),
        },
        "NodeName": spec.get("nodeName", ""),
    }
