"""Validation of a definition other than its schemas: groups, names, versions, columns, paths, conversion.

Source: k8s.io/apiextensions-apiserver `pkg/apis/apiextensions/validation`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kubeshard_apiserver.resources.field_paths import scale_path_errors
from kubeshard_apiserver.resources.field_rules import field_rule_errors, list_errors
from kubeshard_apiserver.resources.metadata import subdomain_name
from kubeshard_apiserver.resources.webhook_configurations import (
    client_errors,
    review_version_errors,
)
from kubeshard_apiserver.schema.name_formats import definition_name, wrong
from kubeshard_apiserver.status import (
    FieldError,
    duplicate,
    forbidden_field,
    invalid_value,
    required,
    too_many,
)

Version = Mapping[str, Any]

_MOST_SELECTABLE = 8
_APPROVED = "api-approved.kubernetes.io"
_ABOUT_APPROVAL = "see https://github.com/kubernetes/enhancements/pull/1111"


def spec_errors(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    """Validate everything but the versions."""
    group, names = spec.get("group") or "", spec["names"]
    if not group:
        yield required("spec.group")
    elif problem := subdomain_name(group):
        yield invalid_value("spec.group", group, problem)
    elif "." not in group:
        yield invalid_value("spec.group", group, "should be a domain with at least one dot")
    yield from field_rule_errors("apiextensions.v1.CustomResourceDefinitionSpec", "spec", spec)
    yield from field_rule_errors("apiextensions.v1.CustomResourceDefinitionNames#needed", "spec.names", names)
    yield from name_errors(names, "spec.names")
    yield from _conversion_errors(spec.get("conversion") or {})
    if spec.get("preserveUnknownFields"):
        instead = "set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        problem = f"cannot set to true, {instead}"
        yield invalid_value("spec.preserveUnknownFields", True, problem)


def name_errors(names: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    yield from field_rule_errors("apiextensions.v1.CustomResourceDefinitionNames", path, names)
    if names.get("kind") and names["kind"] == names.get("listKind"):
        yield invalid_value(f"{path}.listKind", names["listKind"], "kind and listKind may not be the same")


def version_list_errors(versions: Sequence[Version]) -> Iterator[FieldError]:
    names = [version.get("name") or "" for version in versions]
    yield from list_errors("apiextensions.v1.CustomResourceDefinitionVersion", "spec.versions", versions)
    if names and names[0]:
        yield from wrong("spec.version", names[0], definition_name)  # the first one stands there, too
    if len(set(names)) != len(names):
        yield invalid_value("spec.versions", list(versions), "must contain unique version names")
    if sum(bool(version.get("storage")) for version in versions) != 1:
        problem = "must have exactly one version marked as storage version"
        yield invalid_value("spec.versions", list(versions), problem)


def stored_version_errors(stored: Sequence[str] | None, versions: Sequence[Version]) -> Iterator[FieldError]:
    path = "status.storedVersions"
    if not stored:
        yield invalid_value(path, stored or None, "must have at least one stored version")
        return
    names = [version.get("name") or "" for version in versions]
    for version in versions:
        if version.get("storage") and version.get("name") not in stored:
            yield invalid_value(path, list(stored), f"must have the storage version {version.get('name')}")
    for index, name in enumerate(stored):
        if name not in names:
            problem = (
                f"missing from spec.versions; {name} was previously a storage version, and must remain in "
                f"spec.versions until a storage migration ensures no data remains persisted in {name} and removes "
                f"{name} from status.storedVersions"
            )
            yield invalid_value(f"{path}[{index}]", name, problem)


def approval_errors(definition: Mapping[str, Any], old: Mapping[str, Any] | None) -> Iterator[FieldError]:
    """Require community groups to link to their approval."""
    if not is_protected(definition):
        return
    given = (definition["metadata"].get("annotations") or {}).get(_APPROVED) or ""
    if old is not None and approval(old)[0] == approval(definition)[0]:
        return
    path = f"metadata.annotations[{_APPROVED}]"
    match approval(definition):
        case "Missing", problem:
            yield required(path, problem)
        case "Invalid", problem:
            yield invalid_value(path, given, problem)


def is_protected(definition: Mapping[str, Any]) -> bool:
    return re.search(r"(?:^|\.)(?:k8s|kubernetes)\.io$", definition["spec"].get("group") or "") is not None


def approval(definition: Mapping[str, Any]) -> tuple[str, str]:
    """Return `Approved`, `Unapproved`, `Missing` or `Invalid`, and the message."""
    given = (definition["metadata"].get("annotations") or {}).get(_APPROVED) or ""
    said = f'protected groups must have approval annotation "{_APPROVED}"'
    if not given:
        return "Missing", f"{said}, {_ABOUT_APPROVAL}"
    if given.startswith("unapproved"):
        return "Unapproved", f'not approved: "{given}"'
    if re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*://[^/\s]", given):
        return "Approved", f"approved in {given}"
    return "Invalid", f'{said} with either a URL or a reason starting with "unapproved", {_ABOUT_APPROVAL}'


def deprecation_errors(version: Version, path: str) -> Iterator[FieldError]:
    warning, where = version.get("deprecationWarning"), f"{path}.deprecationWarning"
    if warning is None:
        return
    if not version.get("deprecated"):
        yield invalid_value(where, warning, "can only be set for deprecated versions")
        return
    if len(warning.encode()) > 256:
        yield invalid_value(where, warning, "must be <= 256 characters long")
    if not warning:
        yield invalid_value(where, warning, "must not be an empty string")
    for index, char in enumerate(warning):
        if not char.isprintable():
            at = len(warning[:index].encode())
            problem = "must only contain printable UTF-8 characters; non-printable character found at index"
            yield invalid_value(where, warning, f"{problem} {at}")
            break


def subresource_errors(subresources: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    if subresources.get("scale") is not None:
        yield from scale_path_errors(f"{path}.scale", subresources["scale"])


def column_errors(columns: Sequence[Mapping[str, Any]], path: str) -> Iterator[FieldError]:
    for index, column in enumerate(columns):
        where = f"{path}[{index}]"
        yield from field_rule_errors("apiextensions.v1.CustomResourceColumnDefinition", where, column)
        json_path = column.get("jsonPath") or ""
        if not json_path:
            yield required(f"{where}.JSONPath")
        elif not json_path.startswith("."):
            problem = "must be a simple json path starting with ."
            yield invalid_value(f"{where}.JSONPath", json_path, problem)


def selectable_errors(
    fields: Sequence[Mapping[str, Any]],
    path: str,
    find: Callable[[str], tuple[tuple[str, ...], Mapping[str, Any]]],
) -> Iterator[FieldError]:
    """Validate selectable fields. `find` follows a path in the schema and raises ValueError."""
    seen: set[tuple[str, ...]] = set()
    for index, field in enumerate(fields):
        given, where = field.get("jsonPath") or "", f"{path}[{index}].jsonPath"
        if not given:
            yield required(where)
            continue
        try:
            steps, schema = find(given)
        except ValueError as error:
            yield invalid_value(where, given, f"is an invalid path: {error}")
            continue
        if steps[:1] == ("metadata",):
            yield invalid_value(where, given, "must not point to fields in metadata")
        if schema.get("type") not in ("string", "boolean", "integer"):
            allowed = "Enum string fields and strings with formats are allowed."
            problem = f"must point to a field of type string, boolean or integer. {allowed}"
            yield invalid_value(where, given, problem)
        if steps in seen:
            yield duplicate(where, given)
        seen.add(steps)
    if len(seen) > _MOST_SELECTABLE:
        yield too_many(path, len(seen), _MOST_SELECTABLE)


def _conversion_errors(conversion: Mapping[str, Any]) -> Iterator[FieldError]:
    path, strategy = "spec.conversion", conversion.get("strategy") or ""
    webhook = conversion.get("webhook") or {}
    yield from field_rule_errors("apiextensions.v1.CustomResourceConversion", path, conversion)
    if strategy == "Webhook":
        if webhook.get("clientConfig") is None:
            yield required(f"{path}.webhookClientConfig", "required when strategy is set to Webhook")
        else:
            yield from client_errors(f"{path}.webhookClientConfig", webhook["clientConfig"])
        versions = webhook.get("conversionReviewVersions") or []
        if versions:
            yield from review_version_errors(f"{path}.conversionReviewVersions", versions)
        else:
            yield required(f"{path}.conversionReviewVersions")
    elif webhook:
        problem = "should not be set when strategy is not set to Webhook"
        if webhook.get("clientConfig") is not None:
            yield forbidden_field(f"{path}.webhookClientConfig", problem)
        if webhook.get("conversionReviewVersions"):
            yield forbidden_field(f"{path}.conversionReviewVersions", problem)
