"""Volumes of pods, how containers mount them, and the downward API: references to fields and resources of pods.

The volume sources that controllers commonly use are validated; vendor-specific ones are stored as given. Source:
k8s.io/kubernetes `pkg/apis/core/validation`, `pkg/apis/core/pods`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from kubeshard_apiserver.objects import JsonObject
from kubeshard_apiserver.resources.claims import claim_spec_errors
from kubeshard_apiserver.resources.field_rules import field_rule_errors
from kubeshard_apiserver.schema import name_formats as names
from kubeshard_apiserver.schema.name_formats import qualified_name, wrong
from kubeshard_apiserver.status import (
    FieldError,
    duplicate,
    forbidden_field,
    invalid_value,
    required,
    unsupported,
)

_SUBSCRIPTED = re.compile(r"(.+?)\['(.+)'\]")
_KNOWN = (
    "metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName",
    "spec.restartPolicy", "spec.serviceAccountName", "spec.schedulerName", "status.phase", "status.hostIP",
    "status.hostIPs", "status.podIP", "status.podIPs",
)  # fmt: skip
_RESOURCES = tuple(
    f"{of}.{name}" for of in ("limits", "requests") for name in ("cpu", "ephemeral-storage", "memory")
)
_HUGE_PAGES = ("requests.hugepages-", "limits.hugepages-")
_BYTES = ("1", *(f"1{p}" for p in "kMGTPE"), *(f"1{p}i" for p in "KMGTPE"))
_DIVISORS = {
    "cpu": (("1m", "1"), "only divisor's values 1m and 1 are supported with the cpu resource"),
    **{
        name: (_BYTES, f"only divisor's values {', '.join(_BYTES)} are supported with the {told} resource")
        for name, told in (("memory", "memory"), ("ephemeral-storage", "local ephemeral storage"))
    },
}


def field_ref_errors(path: str, ref: JsonObject, supported: Sequence[str]) -> list[FieldError]:
    field = ref.get("fieldPath", "")
    if not ref.get("apiVersion"):
        return [required(f"{path}.apiVersion")]
    if not field:
        return [required(f"{path}.fieldPath")]
    problem = ""
    subscripted = _SUBSCRIPTED.fullmatch(field)
    if ref["apiVersion"] != "v1":
        problem = f"unsupported pod version: {ref['apiVersion']}"
    elif subscripted and subscripted[1] not in ("metadata.annotations", "metadata.labels"):
        problem = f"field label does not support subscript: {field}"
    elif not subscripted and field != "spec.host" and field not in _KNOWN:
        problem = f"field label not supported: {field}"
    if problem:
        return [invalid_value(f"{path}.fieldPath", field, f"error converting fieldPath: {problem}")]
    if subscripted:
        key = subscripted[2]
        return wrong(path, key.lower() if subscripted[1] == "metadata.annotations" else key, qualified_name)
    field = "spec.nodeName" if field == "spec.host" else field
    return [] if field in supported else [unsupported(f"{path}.fieldPath", field, supported)]


def resource_ref_errors(path: str, ref: JsonObject, *, names_container: bool) -> list[FieldError]:
    """Validate a resource reference. With `names_container` it must name a container, because it is not inside one."""
    resource, divisor = ref.get("resource", ""), str(ref.get("divisor", "0"))
    errors = []
    if names_container and not ref.get("containerName"):
        errors.append(required(f"{path}.containerName"))
    elif not resource:
        errors.append(required(f"{path}.resource"))
    elif resource not in _RESOURCES and not resource.startswith(_HUGE_PAGES):
        errors.append(unsupported(f"{path}.resource", resource, _RESOURCES))
    rule = _DIVISORS.get(resource.partition(".")[2])
    if rule and divisor != "0" and divisor not in rule[0]:
        errors.append(invalid_value(f"{path}.divisor", resource, rule[1]))
    return errors


SOURCES = (
    "emptyDir", "hostPath", "gitRepo", "gcePersistentDisk", "awsElasticBlockStore", "secret", "nfs", "iscsi",
    "glusterfs", "flocker", "persistentVolumeClaim", "rbd", "cinder", "cephfs", "quobyte", "downwardAPI", "fc",
    "flexVolume", "configMap", "azureFile", "vsphereVolume", "azureDisk", "photonPersistentDisk", "portworxVolume",
    "projected", "scaleIO", "storageos", "csi", "ephemeral", "image",
)  # fmt: skip
_SOURCE = "core.v1.Volume#source"
_DOWNWARD_PATHS = (
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
)
_PROPAGATIONS = ("Bidirectional", "HostToContainer", "None")
_RECURSIVE_READ_ONLY = ("Disabled", "Enabled", "IfPossible")
_ONE_TYPE = "may not specify more than 1 volume type"


def volume_errors(
    path: str, volumes: Sequence[JsonObject], pod: str
) -> tuple[dict[str, JsonObject], list[FieldError]]:
    """Return the valid volumes by name, for mounts to refer to, and the errors. `pod` is empty for a template."""
    errors: list[FieldError] = []
    sound: dict[str, JsonObject] = {}
    for index, volume in enumerate(volumes):
        at, name = f"{path}[{index}]", volume.get("name", "")
        found = _source_errors(at, volume, pod)
        found += names.wrong(f"{at}.name", name, names.dns_label) if name else [required(f"{at}.name")]
        if name in sound:
            found.append(duplicate(f"{at}.name", name))
        if not found:
            sound[name] = volume
        errors += found
    return sound, errors


def mount_errors(
    path: str,
    mounts: Sequence[JsonObject],
    devices: Sequence[JsonObject],
    volumes: JsonObject,
    *,
    privileged: bool,
) -> list[FieldError]:
    errors: list[FieldError] = []
    taken = {device.get("name", ""): device.get("devicePath", "") for device in devices}
    points: set[str] = set()
    for index, mount in enumerate(mounts):
        at, name, point = f"{path}[{index}]", mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            errors.append(required(f"{at}.name"))
        if name not in volumes:
            errors.append(names.not_found_value(f"{at}.name", name))
        if not point:
            errors.append(required(f"{at}.mountPath"))
        if point in points:
            errors.append(invalid_value(f"{at}.mountPath", point, "must be unique"))
        points.add(point)
        if name in taken:
            errors.append(invalid_value(f"{at}.name", name, "must not already exist in volumeDevices"))
        if point in taken.values():
            problem = "must not already exist as a path in volumeDevices"
            errors.append(invalid_value(f"{at}.mountPath", point, problem))
        errors += _sub_path_errors(path, at, mount)
        errors += _propagation_errors(path, mount, privileged)
    return errors


def device_errors(
    path: str, devices: Sequence[JsonObject], mounts: Sequence[JsonObject], volumes: JsonObject
) -> list[FieldError]:
    errors: list[FieldError] = []
    mounted = {mount.get("name", ""): mount.get("mountPath", "") for mount in mounts}
    used: set[str] = set()
    points: set[str] = set()
    for index, device in enumerate(devices):
        name, point = device.get("name", ""), device.get("devicePath", "")
        name_at, point_at = f"{path}[{index}].name", f"{path}[{index}].devicePath"
        if not name:
            errors.append(required(name_at))
        if name in used:
            errors.append(invalid_value(name_at, name, "must be unique"))
        if name not in volumes:
            errors.append(names.not_found_value(name_at, name))
        elif not {"persistentVolumeClaim", "ephemeral"} & volumes[name].keys():
            problem = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            errors.append(invalid_value(name_at, name, problem))
        if not point:
            errors.append(required(point_at))
        if point in points:
            errors.append(invalid_value(point_at, point, "must be unique"))
        if ".." in point.split("/"):
            errors.append(invalid_value(point_at, point, "can not contain backsteps ('..')"))
        if name in mounted:
            errors.append(invalid_value(name_at, name, "must not already exist in volumeMounts"))
        if point in mounted.values():
            errors.append(invalid_value(point_at, point, "must not already exist as a path in volumeMounts"))
        used.add(name)
        points.add(point)
    return errors


def _source_errors(path: str, volume: JsonObject, pod: str) -> list[FieldError]:
    given = [source for source in SOURCES if volume.get(source) is not None]
    if not given:
        return [required(path, "must specify a volume type")]
    first, *more = given
    rule = _RULES.get(first)
    source = {first: volume[first]}
    errors = rule(f"{path}.{first}", volume[first]) if rule else field_rule_errors(_SOURCE, path, source)
    errors += [forbidden_field(f"{path}.{source}", _ONE_TYPE) for source in more]
    if first == "ephemeral" and pod and (name := volume.get("name")):
        claim = f"{pod}-{name}"
        errors += [
            invalid_value(f"{path}.name", name, f'PVC name "{claim}": {problem}')
            for problem in names.dns_subdomain(claim)
        ]
    return errors


def _empty_dir(path: str, source: JsonObject) -> list[FieldError]:
    if str(source.get("sizeLimit") or "").startswith("-"):
        return [forbidden_field(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity")]
    return []


def _downward(path: str, source: JsonObject) -> list[FieldError]:
    errors = field_rule_errors("core.v1.DownwardAPIVolumeSource", path, source)
    for file in source.get("items") or ():
        errors += _downward_file(path, file)
    return errors


def _ephemeral(path: str, source: JsonObject) -> list[FieldError]:
    template = source.get("volumeClaimTemplate")
    if template is None:
        return [required(f"{path}.volumeClaimTemplate")]
    return claim_spec_errors(f"{path}.volumeClaimTemplate.spec", template.get("spec") or {})


def _projected(path: str, source: JsonObject) -> list[FieldError]:
    errors = field_rule_errors("core.v1.ProjectedVolumeSource", path, source)
    paths: set[str] = set()
    for index, part in enumerate(source.get("sources") or ()):
        at = f"{path}.sources[{index}]"
        for kind in ("secret", "configMap"):
            if (given := part.get(kind)) is not None:
                errors += field_rule_errors("core.v1.SecretProjection", f"{at}.{kind}", given)
                errors += _conflicts(path, given.get("items") or (), paths, given.get("name", ""))
        if (given := part.get("downwardAPI")) is not None:
            for file in given.get("items") or ():
                errors += _downward_file(f"{at}.downwardAPI", file)
            errors += _conflicts(path, given.get("items") or (), paths, None)
        if (given := part.get("serviceAccountToken")) is not None:
            errors += _token(path, f"{at}.serviceAccountToken", given)
        if len(part) > 1:
            errors.append(forbidden_field(at, f"{_ONE_TYPE} per source"))
    return errors


def _token(path: str, at: str, token: JsonObject) -> list[FieldError]:
    errors = field_rule_errors("core.v1.ServiceAccountTokenProjection", at, token)
    return errors + field_rule_errors("core.v1.ServiceAccountTokenProjection#path", path, token)


def _conflicts(
    path: str, items: Sequence[JsonObject], paths: set[str], shown: str | None
) -> list[FieldError]:
    errors = []
    for item in items:
        if target := item.get("path"):
            if target in paths:
                told = target if shown is None else shown
                errors.append(invalid_value(path, told, "conflicting duplicate paths"))
            paths.add(target)
    return errors


def _downward_file(path: str, file: JsonObject) -> list[FieldError]:
    errors = field_rule_errors("core.v1.DownwardAPIVolumeFile", path, file)
    if (field := file.get("fieldRef")) is not None:
        errors += field_ref_errors(f"{path}.fieldRef", field, _DOWNWARD_PATHS)
        if file.get("resourceFieldRef") is not None:
            problem = "fieldRef and resourceFieldRef can not be specified simultaneously"
            errors.append(invalid_value(path, "resource", problem))
    elif (resource := file.get("resourceFieldRef")) is not None:
        errors += resource_ref_errors(f"{path}.resourceFieldRef", resource, names_container=True)
    else:
        errors.append(required(path, "one of fieldRef and resourceFieldRef is required"))
    return errors + field_rule_errors("core.v1.DownwardAPIVolumeFile#mode", path, file)


def _sub_path_errors(path: str, at: str, mount: JsonObject) -> list[FieldError]:
    errors, sub_path, expression = [], mount.get("subPath"), mount.get("subPathExpr")
    if sub_path:
        errors += names.wrong(f"{path}.subPath", sub_path, names.relative_path)
    if expression:
        if sub_path:
            problem = "subPathExpr and subPath are mutually exclusive"
            errors.append(invalid_value(f"{at}.subPathExpr", expression, problem))
        errors += names.wrong(f"{path}.subPathExpr", expression, names.relative_path)
    return errors


def _propagation_errors(path: str, mount: JsonObject, privileged: bool) -> list[FieldError]:
    errors, propagation, recursive = [], mount.get("mountPropagation"), mount.get("recursiveReadOnly")
    if propagation is not None and propagation not in _PROPAGATIONS:
        errors.append(unsupported(f"{path}.mountPropagation", propagation, _PROPAGATIONS))
    if propagation == "Bidirectional" and not privileged:
        problem = "Bidirectional mount propagation is available only to privileged containers"
        errors.append(forbidden_field(f"{path}.mountPropagation", problem))
    if recursive is not None and recursive not in _RECURSIVE_READ_ONLY:
        errors.append(unsupported(f"{path}.recursiveReadOnly", recursive, _RECURSIVE_READ_ONLY))
    if recursive in ("Enabled", "IfPossible"):
        at = f"{path}.recursiveReadOnly"
        if not mount.get("readOnly"):
            errors.append(forbidden_field(at, "may only be specified when readOnly is true"))
        if propagation not in (None, "None"):
            problem = "may only be specified when mountPropagation is None or not specified"
            errors.append(forbidden_field(at, problem))
    return errors


_RULES: Mapping[str, Callable[[str, JsonObject], list[FieldError]]] = {
    "emptyDir": _empty_dir,
    "downwardAPI": _downward,
    "projected": _projected,
    "ephemeral": _ephemeral,
}
