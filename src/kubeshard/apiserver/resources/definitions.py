"""CustomResourceDefinitions: their own rules, and the kinds they add.

Covered: names and versions, structural schemas (the rules that authors run into), defaults, the conditions
NamesAccepted and Established. Not covered: conversion webhooks, CEL, printer columns, the full list of rules
for structural schemas.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from kubeshard.apiserver.objects import Object, with_metadata
from kubeshard.apiserver.printing import custom_printer
from kubeshard.apiserver.resources.custom import CustomResources
from kubeshard.apiserver.resources.registry import Resource
from kubeshard.apiserver.resources.scale_paths import scale_path_errors, scale_paths
from kubeshard.apiserver.resources.typed import Typed
from kubeshard.apiserver.status import FieldError, immutable, invalid_value, required, unsupported
from kubeshard.core.kinds import GroupResource, Kind

DEFINITIONS = GroupResource("apiextensions.k8s.io", "customresourcedefinitions")
CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"


class Definitions(Typed):
    qualified_finalizers = False

    def set_defaults(self, obj: Object) -> None:
        spec, names = obj["spec"], obj["spec"]["names"]
        if not names.get("singular") and names["kind"]:
            names["singular"] = names["kind"].lower()
        if not names.get("listKind") and names["kind"]:
            names["listKind"] = names["kind"] + "List"
        spec.setdefault("conversion", {"strategy": "None"})

    def prepare_create(self, obj: Object) -> None:
        super().prepare_create(obj)
        stored = [
            version.get("name", "") for version in obj["spec"]["versions"] or () if version.get("storage")
        ]
        obj["status"] = {**self.zero["status"], "storedVersions": stored or None}

    def validate(self, obj: Object) -> list[FieldError]:
        spec, names = obj["spec"], obj["spec"]["names"]
        versions = spec["versions"] or []
        errors = []
        wanted = f"{names['plural']}.{spec['group']}"
        if obj["metadata"].get("name") != wanted:
            problem = 'must be spec.names.plural+"."+spec.group'
            errors.append(invalid_value("metadata.name", obj["metadata"].get("name", ""), problem))
        if not spec["group"]:
            errors.append(required("spec.group"))
        if spec["scope"] not in ("Cluster", "Namespaced"):
            errors.append(
                unsupported("spec.scope", spec["scope"], ("Cluster", "Namespaced"))
                if spec["scope"]
                else required("spec.scope")
            )
        errors += _versions(versions)
        errors += [
            required(f"spec.names.{name}")
            for name in ("plural", "singular", "kind", "listKind")
            if not names.get(name)
        ]
        if not obj["status"].get("storedVersions"):
            errors.append(
                invalid_value("status.storedVersions", None, "must have at least one stored version")
            )
        return errors

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        before, after = old["spec"], new["spec"]
        errors = [
            immutable(f"spec.{name}", after[name])
            for name in ("group", "scope")
            if after[name] != before[name]
        ]
        errors += [
            immutable(f"spec.names.{name}", after["names"][name])
            for name in ("kind", "plural")
            if after["names"][name] != before["names"][name]
        ]
        return errors + self.validate(new)

    def prepare_delete(self, obj: Object) -> None:
        obj["metadata"].pop("deletionGracePeriodSeconds", None)

    def is_held(self, obj: Object) -> bool:
        """Always at first: the objects of the kind go before it."""
        meta = obj["metadata"]
        return not meta.get("deletionTimestamp") or bool(meta.get("finalizers"))


def kinds_of(definition: Object) -> Iterator[Resource]:
    """The served versions, the storage version first."""
    spec, names = definition["spec"], definition["spec"]["names"]
    for version in sorted(spec["versions"], key=lambda version: not version.get("storage")):
        if version.get("served"):
            kind = Kind(
                spec["group"], version["name"], names["kind"], names["plural"], spec["scope"] == "Namespaced"
            )
            strategy = CustomResources(
                kind,
                (version.get("schema") or {}).get("openAPIV3Schema") or {},
                subresources=frozenset({"status", "scale"} & (version.get("subresources") or {}).keys()),
                scales=scale_paths((version.get("subresources") or {}).get("scale")),
                selectable=tuple(
                    field["jsonPath"].lstrip(".") for field in version.get("selectableFields") or ()
                ),
            )
            yield Resource(
                strategy,
                names["singular"],
                tuple(names.get("shortNames") or ()),
                tuple(names.get("categories") or ()),
                list_kind=names["listKind"],
                own_printer=custom_printer(version.get("additionalPrinterColumns")),
            )


def resource_of(definition: Object) -> GroupResource:
    return GroupResource(definition["spec"]["group"], definition["spec"]["names"]["plural"])


def established(definition: Object, now: str) -> Object:
    """The definition as the controllers leave it that accept names and establish kinds."""
    conditions = [
        _condition("NamesAccepted", "NoConflicts", "no conflicts found", now),
        _condition("Established", "InitialNamesAccepted", "the initial names have been accepted", now),
    ]
    status = {**definition["status"], "conditions": conditions, "acceptedNames": definition["spec"]["names"]}
    return {**definition, "status": status}


def terminating(definition: Object, now: str) -> Object:
    """With the finalizer that keeps it until the objects of its kind are gone."""
    finalizers = [*(definition["metadata"].get("finalizers") or ()), CLEANUP_FINALIZER]
    return with_metadata(definition, deletionTimestamp=now, finalizers=list(dict.fromkeys(finalizers)))


def _condition(type_: str, reason: str, message: str, now: str) -> dict[str, str]:
    return {"type": type_, "status": "True", "lastTransitionTime": now, "reason": reason, "message": message}


def _versions(versions: list[dict[str, Any]]) -> Iterator[FieldError]:
    for index, version in enumerate(versions):
        if not version.get("name"):
            yield required(f"spec.versions[{index}].name")
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        path = f"spec.versions[{index}].schema.openAPIV3Schema"
        if schema is None:
            yield required(path)
        else:
            # Of a single version the server still names the field by the place it had in v1beta1.
            yield from _structural(schema, "spec.validation.openAPIV3Schema" if len(versions) == 1 else path)
        if (scale := (version.get("subresources") or {}).get("scale")) is not None:
            place = "spec" if len(versions) == 1 else f"spec.versions[{index}]"
            yield from scale_path_errors(f"{place}.subresources.scale", scale)
    if sum(bool(version.get("storage")) for version in versions) != 1:
        yield invalid_value(
            "spec.versions", versions, "must have exactly one version marked as storage version"
        )


def _structural(schema: Mapping[str, Any], path: str, *, root: bool = True) -> Iterator[FieldError]:
    exempt = schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields")
    if not schema.get("type") and (root or not exempt):
        where = "at the root" if root else "for specified object fields"
        yield required(f"{path}.type", f"must not be empty {where}")
    if problem := _pattern_problem(schema.get("pattern") or ""):
        yield invalid_value(f"{path}.pattern", schema["pattern"], problem)
    for name, inner in (schema.get("properties") or {}).items():
        yield from _structural(inner, f"{path}.properties[{name}]", root=False)
    if isinstance(items := schema.get("items"), Mapping):
        yield from _structural(items, f"{path}.items", root=False)
    if isinstance(additional := schema.get("additionalProperties"), Mapping):
        yield from _structural(additional, f"{path}.additionalProperties", root=False)


def _pattern_problem(pattern: str) -> str | None:
    try:
        re.compile(pattern)
    except re.error as error:
        return f"must be a valid regular expression, but isn't: {error}"
    return None
