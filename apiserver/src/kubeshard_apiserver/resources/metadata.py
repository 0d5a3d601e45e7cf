"""The `metadata` rules that apply to every kind: names, labels, owners, and what an update may change.

Source: k8s.io/apimachinery `api/validation`, `util/validation`; k8s.io/apiserver `registry/rest`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kubeshard.core.names import is_dns_label, is_dns_subdomain
from kubeshard_apiserver.objects import Object
from kubeshard_apiserver.schema.name_formats import annotation_keys, labels, qualified_name, wrong
from kubeshard_apiserver.status import (
    FieldError,
    forbidden_field,
    immutable,
    invalid_value,
    required,
    too_long,
)

NameRule = Callable[[str], str | None]
"""Returns what is wrong with a name, or None."""

_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and "
    "end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
STANDARD_FINALIZERS = ("orphan", "foregroundDeletion", "kubernetes")
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_LONGEST_GENERATED = 63
_LONGEST_MANAGER = 128
_MOST_ANNOTATED = 256 * 1024


def segment_name(name: str) -> str | None:
    """Accept any name that can be a path segment."""
    if name in (".", ".."):
        return f"may not be '{name}'"
    return next((f"may not contain '{char}'" for char in "/%" if char in name), None)


def subdomain_name(name: str) -> str | None:
    if len(name) > 253:
        return "must be no more than 253 characters"
    return None if is_dns_subdomain(name) else _SUBDOMAIN


def label_name(name: str) -> str | None:
    if "." in name:
        return "must not contain dots"
    if len(name) > 63:
        return "must be no more than 63 characters"
    return None if is_dns_label(name) else _LABEL


def generated_name(prefix: str, token: str) -> str:
    """Return `prefix` with five characters derived from the token (the text of a UUID) appended."""
    number = int(token.replace("-", ""), 16)
    suffix = ""
    for _ in range(5):
        number, rest = divmod(number, len(_SUFFIX_ALPHABET))
        suffix += _SUFFIX_ALPHABET[rest]
    return prefix[: _LONGEST_GENERATED - 5] + suffix


def validate_metadata(
    obj: Object, name_rule: NameRule, *, namespaced: bool, qualified_finalizers: bool
) -> list[FieldError]:
    """Validate the metadata of an object to be stored. The core group requires finalizers to have a domain."""
    meta = obj["metadata"]
    errors: list[FieldError] = []
    name, prefix = meta.get("name") or "", meta.get("generateName") or ""
    if prefix and (problem := name_rule(f"{prefix[:-2]}a" if prefix[1:].endswith("-") else prefix)):
        errors.append(invalid_value("metadata.generateName", prefix, problem))
    if not name:
        errors.append(required("metadata.name", "name or generateName is required"))
    elif problem := name_rule(name):
        errors.append(invalid_value("metadata.name", name, problem))
    if not namespaced and meta.get("namespace"):
        errors.append(forbidden_field("metadata.namespace", "not allowed on this type"))
    if (generation := meta.get("generation") or 0) < 0:
        errors.append(invalid_value("metadata.generation", generation, "must be greater than or equal to 0"))
    errors += labels("metadata.labels", meta.get("labels"))
    if annotations := meta.get("annotations"):
        errors += annotation_keys("metadata.annotations", annotations)
        longest = 4 * (sum(map(len, annotations)) + sum(map(len, annotations.values())))
        if (
            longest
            > _MOST_ANNOTATED
            < sum(len(key.encode()) + len(text.encode()) for key, text in annotations.items())
        ):
            errors.append(too_long("metadata.annotations", _MOST_ANNOTATED))
    if owners := meta.get("ownerReferences"):
        errors += _owners(owners)
    if finalizers := meta.get("finalizers"):
        errors += _finalizers(finalizers, strict=qualified_finalizers)
    for index, entry in enumerate(meta.get("managedFields") or ()):
        if len((entry.get("manager") or "").encode()) > _LONGEST_MANAGER:
            errors.append(too_long(f"metadata.managedFields[{index}].manager", _LONGEST_MANAGER))
    return errors


def validate_metadata_update(new: Object, old: Object) -> list[FieldError]:
    after, before = new["metadata"], old["metadata"]
    errors = [
        immutable(f"metadata.{field}", after.get(field))
        for field in ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
        if after.get(field) != before.get(field)
    ]
    if before.get("deletionTimestamp"):
        fresh = [
            item for item in after.get("finalizers") or () if item not in (before.get("finalizers") or ())
        ]
        if fresh:
            listed = ", ".join(f'"{item}"' for item in fresh)
            errors.append(
                forbidden_field(
                    "metadata.finalizers",
                    "no new finalizers can be added if the object is being deleted, "
                    f"found new finalizers []string{{{listed}}}",
                )
            )
    return errors


def keep_servers_own(new: Object, old: Object) -> None:
    """Restore in place what a request may omit or cannot change."""
    after, before = new["metadata"], old["metadata"]
    after.setdefault("uid", before["uid"])
    after["creationTimestamp"] = before["creationTimestamp"]
    after.pop("generation", None)
    after.pop("selfLink", None)
    for field in ("generation", "deletionTimestamp"):
        if field in before:
            after[field] = before[field]
    if after.get("deletionGracePeriodSeconds") is None and "deletionGracePeriodSeconds" in before:
        after["deletionGracePeriodSeconds"] = before["deletionGracePeriodSeconds"]


def without_empty(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata the way the server writes it: without empty or null values."""
    return {
        name: value
        for name, value in meta.items()
        if value not in (None, "", {}, [], 0) or name == "deletionGracePeriodSeconds"
    }


def as_given(meta: Mapping[str, Any], body: Any) -> dict[str, Any]:
    """Return decoded metadata without empty or null values, except for an empty list with which the body of a kind
    with a Go type resets managedFields.
    """
    resets = isinstance(body, Mapping) and body.get("managedFields") == []
    return {**without_empty(meta), "managedFields": []} if resets else without_empty(meta)


def _owners(owners: Sequence[Mapping[str, Any]]) -> list[FieldError]:
    errors = []
    for index, owner in enumerate(owners):
        path = f"metadata.ownerReferences[{index}]"
        errors += [
            required(f"{path}.{field}", "must not be empty")
            for field in ("apiVersion", "kind", "name", "uid")
            if not owner.get(field)
        ]
        version = owner.get("apiVersion") or ""
        if version and not _GROUP_VERSION.fullmatch(version):
            problem = "must be <group>/<version> or <version>"
            errors.append(invalid_value(f"{path}.apiVersion", version, problem))
        if (version, owner.get("kind")) == ("v1", "Event"):
            errors.append(
                invalid_value(path, dict(owner), "/v1, Kind=Event is disallowed from being an owner")
            )
    controllers = [
        f"{owner.get('kind', '')}/{owner.get('name', '')}" for owner in owners if owner.get("controller")
    ]
    for other in controllers[1:]:
        problem = "Only one reference can have Controller set to true. "
        problem += f'Found "true" in references for {controllers[0]} and {other}'
        errors.append(invalid_value("metadata.ownerReferences", list(owners), problem))
    return errors


_GROUP_VERSION = re.compile("(?:[^/]*/)?[^/]+")


_UNQUALIFIED = "name is neither a standard finalizer name nor is it fully qualified"


def finalizer_errors(path: str, finalizer: str) -> list[FieldError]:
    """Validate a finalizer that needs a domain."""
    errors = wrong(path, finalizer, qualified_name)
    return errors if _has_domain(finalizer) else [*errors, invalid_value(path, finalizer, _UNQUALIFIED)]


def _has_domain(finalizer: str) -> bool:
    return "/" in finalizer or finalizer in STANDARD_FINALIZERS


def _finalizers(finalizers: Sequence[str], *, strict: bool) -> list[FieldError]:
    errors = [
        error for finalizer in finalizers for error in wrong("metadata.finalizers", finalizer, qualified_name)
    ]
    errors += [
        invalid_value(f"metadata.finalizers[{index}]", finalizer, _UNQUALIFIED)
        for index, finalizer in enumerate(finalizers)
        if strict and not _has_domain(finalizer)
    ]
    if {"orphan", "foregroundDeletion"} <= set(finalizers):
        both = "finalizer orphan and foregroundDeletion cannot be both set"
        errors.append(invalid_value("metadata.finalizers", list(finalizers), both))
    return errors
