"""Receiving bodies: decodes and defaults them by their kind, and reports unknown and duplicate fields.

Source: k8s.io/apiserver `endpoints/handlers`, KEP-2885 (field validation).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeshard.core.errors import Invalid
from kubeshard.core.kinds import GroupKind
from kubeshard_apiserver.model import Duplicates, Target, WriteOptions
from kubeshard_apiserver.objects import Object, with_metadata
from kubeshard_apiserver.schema.validation import go_kind
from kubeshard_apiserver.status import bad_request, invalid, invalid_value, missing_in_object, shown


def decoded(
    target: Target,
    body: Any,
    options: WriteOptions,
    *,
    applied: bool = False,
    known: Object | None = None,
) -> tuple[Object, tuple[str, ...]]:
    """`applied` means that the body is the result of an apply. For `known` see `Writes.creating`."""
    check_type_meta(body, target.resource.kind.kind)
    obj, unknown, refused = _read(target, body, options, applied, known)
    if refused:
        kind = target.resource.kind
        raise bad_request(
            f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {refused}'
        )
    return with_owners_once(obj, options, "contains duplicate entries"), unknown


def _read(
    target: Target, body: Any, options: WriteOptions, applied: bool = False, live: Object | None = None
) -> tuple[Object, tuple[str, ...], str]:
    """Reads a body that says of what type it is. Returns the object, the warnings, and the reason if the object is
    rejected.
    """
    obj = body if body.get("metadata") is not None else {**body, "metadata": {}}
    strategy = target.resource.strategy
    dropped = strategy.complete(obj) if applied else strategy.decode(obj, live)
    unknown = tuple(f'unknown field "{path}"' for path in dropped)
    twice = options.duplicates
    if twice.warnings and dropped and not strategy.is_custom:
        twice = _known(twice, dropped)
    if options.validation == "Strict" and (unknown or twice.warnings):
        problems = (twice.refused, *unknown) if twice.warnings else unknown
        return obj, (), f"strict decoding error: {', '.join(problems)}"
    warnings = (*twice.warnings, *unknown) if options.validation == "Warn" else ()
    # Warnings are sent whatever the outcome of the request.
    warn(options, list(warnings))
    return obj, warnings, ""


def decoded_patch(
    target: Target, result: Object, options: WriteOptions, live: Object | None = None
) -> tuple[Object, tuple[str, ...]]:
    """Decodes the result of a patch of `live`. Decoding errors are blamed on the patch, so they are a 422 rather than a
    400.
    """
    kind = target.resource.kind
    try:
        check_type_meta(result, kind.kind)
    except Invalid as error:
        raise invalid(
            GroupKind("", ""), "", [invalid_value("patch", _as_patched(result), error.message)]
        ) from None
    if target.resource.strategy.is_custom:
        _check_custom_type(result, target)
        if target.subresource == "status":
            # Only the status is taken from it.
            result = {**result, "apiVersion": kind.api_version, "kind": kind.kind}
    elif not result.get("kind") and result.get("apiVersion"):
        result = {**result, "kind": kind.kind}
    if not result.get("apiVersion"):
        raise _other_name("", target)
    given = _as_patched(result) if options.validation == "Strict" else ""
    try:
        obj, warnings, refused = _read(target, result, options, live=live)
    except Invalid as error:
        given, refused = _as_patched(result), error.message
    if refused:
        raise invalid(GroupKind("", ""), "", [invalid_value("patch", given, refused)]) from None
    if not result.get("metadata"):
        raise _other_name("", target)
    return obj, warnings


TWICE_AFTER_ADMISSION = "contains duplicate entries after mutating admission happens"
"""As the server says it of all patches: it looks at what these make of the owners only then."""


def with_owners_once(obj: Object, options: WriteOptions, problem: str = TWICE_AFTER_ADMISSION) -> Object:
    owners = obj["metadata"].get("ownerReferences") or ()
    if len(owners) < 2:
        return obj
    once = [owner for index, owner in enumerate(owners) if owner not in owners[:index]]
    if len(once) == len(owners):
        return obj
    uids = [owner.get("uid", "") for index, owner in enumerate(owners) if owner in owners[:index]]
    warn(options, [f".metadata.ownerReferences {problem}{_OWNERS_ONCE}{', '.join(uids)}"])
    return with_metadata(obj, ownerReferences=once)


_OWNERS_ONCE = (
    "; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; "
    "please fix your requests; duplicate UID(s) observed: "
)


def _check_custom_type(result: Object, target: Target) -> None:
    """Raises ApiError or Invalid for a patched custom resource without a type, or of another version."""
    kind, given = target.resource.kind, result.get("apiVersion") or ""
    problem = "" if result.get("kind") else f"Object 'Kind' is missing in '{_as_patched(result)}'"
    if not given and not problem:
        raise missing_in_object("apiVersion")
    if not problem and given.count("/") > 1:
        problem = f"unexpected GroupVersion string: {given}"
    if problem:
        raise invalid(GroupKind("", ""), "", [invalid_value("patch", _as_patched(result), problem)])
    if given != kind.api_version and result.get("metadata") and target.subresource != "status":
        group, name = given.rpartition("/")[0], result["metadata"].get("name", "")
        error = invalid_value("apiVersion", given, f"must be {kind.api_version}")
        raise invalid(GroupKind(group, result["kind"]), name, [error])


def _as_patched(result: Object) -> str:
    """The result of a patch, as messages show it."""
    return shown(dict(sorted(result.items())))


def check_namespace(target: Target, obj: Object) -> None:
    given = obj["metadata"].get("namespace", "")
    if target.resource.kind.namespaced and given and given != target.namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def check_name(target: Target, obj: Object) -> None:
    """Raises Invalid (400) if the name differs from the one in the path."""
    if (name := obj["metadata"].get("name", "")) != target.name:
        raise _other_name(name, target)


def _other_name(name: str, target: Target) -> Exception:
    if not name:
        return bad_request(
            f"the name of the object ({target.name} based on URL) was undeterminable: name must be provided"
        )
    return bad_request(f"the name of the object ({name}) does not match the name on the URL ({target.name})")


def _known(twice: Duplicates, dropped: list[str]) -> Duplicates:
    """Returns the duplicates without those inside unknown fields."""
    inside = tuple(f'duplicate field "{path}{mark}' for path in dropped for mark in ".[")
    kept = tuple(text for text in twice.warnings if not text.startswith(inside))
    return twice if kept == twice.warnings else Duplicates(kept, ", ".join(kept))


def warn(options: WriteOptions, warnings: list[str]) -> None:
    if warnings and options.warnings is not None:
        options.warnings.extend(warnings)


def check_type_meta(obj: Mapping[str, Any], kind: str) -> None:
    """Raises Invalid (400) for an apiVersion or kind that is not a string."""
    for name in ("apiVersion", "kind"):
        value = obj.get(name)
        if value is not None and not isinstance(value, str):
            raise bad_request(
                f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse "
                f"error: json: cannot unmarshal {go_kind(value)} into Go struct field .{name} of type string"
            )
