"""PersistentVolumeClaims. Source: k8s.io/kubernetes `pkg/apis/core/validation`,
`pkg/registry/core/persistentvolumeclaim`, `plugin/pkg/admission/storage`.
"""

from __future__ import annotations

from typing import Any

from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard_apiserver.objects import JsonObject, Object, with_metadata
from kubeshard_apiserver.resources.field_rules import ACCESS_MODES, field_rule_errors
from kubeshard_apiserver.resources.pod_defaults import default_claim_spec
from kubeshard_apiserver.resources.pod_resources import positive_quantity
from kubeshard_apiserver.resources.quotas import LIMIT_RANGES, check_claim_limits
from kubeshard_apiserver.resources.typed import Typed
from kubeshard_apiserver.schema.name_formats import dns_subdomain, wrong
from kubeshard_apiserver.schema.scalars import amount_of
from kubeshard_apiserver.status import (
    FieldError,
    forbidden,
    forbidden_field,
    immutable,
    invalid_value,
    required,
)

PROTECTION = "kubernetes.io/pvc-protection"
"""The finalizer that admission adds to every new claim."""
STORAGE_CLASSES = GroupResource("storage.k8s.io", "storageclasses")
_GENERAL = "storageclass.kubernetes.io/is-default-class"
_CLAIMS = GroupResource("", "persistentvolumeclaims")
_SOURCES = (("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot"))


class Claims(Typed):
    """Claims. A new claim gets the default storage class. Whether a bound claim may grow depends on its class."""

    def set_defaults(self, obj: Object) -> None:
        default_claim_spec(obj["spec"])
        obj["status"].setdefault("phase", "Pending")

    def prepare_create(self, obj: Object) -> None:
        super().prepare_create(obj)
        obj["status"] = {"phase": "Pending"}
        finalizers = obj["metadata"].get("finalizers") or []
        if PROTECTION not in finalizers:
            obj |= with_metadata(obj, finalizers=[*finalizers, PROTECTION])
        if "storageClassName" not in obj["spec"] and (general := self._general_class()):
            obj["spec"]["storageClassName"] = general
        _same_source(obj["spec"])

    def prepare_update(self, new: Object, old: Object, subresource: str) -> None:
        super().prepare_update(new, old, subresource)
        if subresource != "status":
            _same_source(new["spec"])

    def validate(self, obj: Object) -> list[FieldError]:
        errors = claim_spec_errors("spec", obj["spec"])
        if not errors:
            check_claim_limits(obj, self.stored(LIMIT_RANGES))
        return errors

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        if subresource == "status":
            return []
        errors = self.validate(new) + claim_update_errors(new, old)
        if (
            not errors
            and _storage(new) != _storage(old)
            and not self._grows(new["spec"].get("storageClassName"))
        ):
            problem = (
                "only dynamically provisioned pvc can be resized and the storageclass that provisions the "
            )
            problem += "pvc must support resize"
            raise forbidden(_CLAIMS, new["metadata"]["name"], problem)
        return errors

    def _general_class(self) -> str:
        """Return the default storage class: the newest if there are several, or an empty string if there is none."""
        general = [
            (one["metadata"]["creationTimestamp"], one["metadata"]["name"])
            for one in self.stored(STORAGE_CLASSES).values()
            if (one["metadata"].get("annotations") or {}).get(_GENERAL) == "true"
        ]
        return max(general)[1] if general else ""

    def _grows(self, name: str | None) -> bool:
        found = self.stored(STORAGE_CLASSES).get(Key("", name or ""))
        return bool(found and found.get("allowVolumeExpansion"))


def _same_source(spec: Object) -> None:
    """Keep the two data source fields in sync. The newer field also allows other kinds."""
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is not None and reference is None:
        given = (source.get("apiGroup") or "", source.get("kind", ""))
        if given in _SOURCES:
            spec["dataSourceRef"] = dict(source)
        else:
            del spec["dataSource"]
    elif reference is not None and source is None and not reference.get("namespace"):
        spec["dataSource"] = dict(reference)


def claim_spec_errors(path: str, spec: JsonObject) -> list[FieldError]:
    modes = spec.get("accessModes") or ()
    errors = field_rule_errors("core.v1.PersistentVolumeClaimSpec#modes", path, spec)
    if "ReadWriteOncePod" in modes and {*modes} & {*ACCESS_MODES[:3]}:
        problem = "may not use ReadWriteOncePod with other access modes"
        errors.append(forbidden_field(f"{path}.accessModes", problem))
    storage = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    at = f"{path}.resources[storage]"
    errors += [required(at)] if storage is None else positive_quantity(at, storage)
    errors += field_rule_errors("core.v1.PersistentVolumeClaimSpec", path, spec)
    for field in ("dataSource", "dataSourceRef"):
        if (source := spec.get(field)) is not None:
            errors += _source_errors(f"{path}.{field}", source)
    return errors + field_rule_errors("core.v1.PersistentVolumeClaimSpec#attributes", path, spec)


def claim_update_errors(new: JsonObject, old: JsonObject) -> list[FieldError]:
    """Reject any change of a claim, except to the size and the attributes class of a bound claim."""
    before, after = old["spec"], dict(new["spec"])
    errors: list[FieldError] = []
    bound = new["status"].get("phase") == "Bound"
    if not before.get("volumeName"):
        after.pop("volumeName", None)
    if before.get("storageClassName") is None:
        after.pop("storageClassName", None)
    asked, had = _storage(new), _storage(old)
    if bound:
        after = {**after, "resources": _with_storage(after.get("resources"), had)}
        after.pop("volumeAttributesClassName", None)
        before = {name: value for name, value in before.items() if name != "volumeAttributesClassName"}
    if after != before:
        problem = (
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for "
        )
        problem += "bound claims"
        errors.append(forbidden_field("spec", problem))
    if had is not None and amount_of(asked or "0") < amount_of(had):
        capacity = (new["status"].get("capacity") or {}).get("storage", "0")
        if amount_of(asked or "0") <= amount_of(capacity):
            problem = "field can not be less than status.capacity"
            errors.append(forbidden_field("spec.resources.requests.storage", problem))
    if new["spec"].get("volumeMode") != old["spec"].get("volumeMode"):
        errors.append(immutable("volumeMode", new["spec"].get("volumeMode")))
    return errors


def _storage(claim: JsonObject) -> Any:
    return ((claim["spec"].get("resources") or {}).get("requests") or {}).get("storage")


def _with_storage(resources: JsonObject | None, size: Any) -> JsonObject:
    resources = resources or {}
    return {**resources, "requests": {**(resources.get("requests") or {}), "storage": size}}


def _source_errors(path: str, source: JsonObject) -> list[FieldError]:
    errors = field_rule_errors("core.v1.TypedObjectReference", path, source)
    group, kind = source.get("apiGroup"), source.get("kind", "")
    if not group and kind != "PersistentVolumeClaim":
        problem = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        errors.append(invalid_value(path, kind, problem))
    if group:
        errors += wrong(f"{path}.apiGroup", group, dns_subdomain)
    return errors
