"""Building requests: paths, queries and headers of the Kubernetes API. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlencode

from kubeshard.core.encoding import to_json
from kubeshard.core.hash_ranges import HashRanges
from kubeshard.core.kinds import Kind
from kubeshard.core.namespaces import ALL, AllNamespaces, namespace_of, namespaces_of
from kubeshard.core.objects import Form
from kubeshard.core.patches import ApplyPatch, JsonPatch, MergePatch
from kubeshard.core.selectors import FieldSelector, Selector

JSON = "application/json"
_PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
_PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"

_ESCAPED = tuple(
    (each.encode(), f"\\u{ord(each):04x}".encode()) for each in ("<", ">", "&", "\u2028", "\u2029")
)
"""Characters that Go escapes in JSON."""

Patch = MergePatch | JsonPatch | ApplyPatch


def accept(form: Form[Any]) -> str:
    """`Accept` for one object, or a watch, of the form."""
    return _PARTIAL if form.metadata_only else JSON


def accept_list(form: Form[Any]) -> str:
    return _PARTIAL_LIST if form.metadata_only else JSON


@lru_cache(maxsize=256)
def write_query(timeout: float | None, field_manager: str | None, force: bool, dry_run: bool) -> str:
    """The query of a write. Cached: nearly all writes of a client have the same."""
    given = {"timeout": server_timeout(timeout), "fieldManager": field_manager, "force": force}
    return query({**given, "dryRun": "All" if dry_run else None})


@lru_cache(maxsize=256)
def headers(
    user_agent: str, more: tuple[tuple[str, str], ...], accept: str, content_type: str | None
) -> Mapping[str, str]:
    """The headers of a request. Cached as well."""
    given = {"User-Agent": user_agent, **dict(more), "Accept": accept}
    return given if content_type is None else {**given, "Content-Type": content_type}


def patch_content_type(patch: Patch) -> str:
    """Raises TypeError for anything but a patch: a plain mapping is ambiguous."""
    match patch:
        case MergePatch():
            return "application/merge-patch+json"
        case JsonPatch():
            return "application/json-patch+json"
        case ApplyPatch():
            return "application/apply-patch+yaml"
    raise TypeError(f"a patch is a MergePatch, a JsonPatch or an ApplyPatch, not {type(patch).__name__}")


def patch_body(patch: Patch, name: str) -> bytes:
    """The body to send; `name`: of the kind, in errors. API servers compare the values of a `test` as texts of JSON,
    and write some characters in another way than other programs: so these are written like that here, too. Raises
    TypeError, ValueError (`kubeshard.core.encoding.to_json`).
    """
    if not isinstance(patch, JsonPatch):
        return to_json(patch.body, name)
    body = to_json(patch.ops, name)
    for character, escaped in _ESCAPED:
        if character in body:
            body = body.replace(character, escaped)
    return body


def object_path(kind: Kind, name: str, namespace: str | None, subresource: str | None = None) -> str:
    """The path of one object. Raises ValueError for a missing name, WrongNamespace."""
    if not name:
        raise ValueError(f"{kind}: an object's name is missing")
    return kind.path(namespace_of(kind, name, namespace), name, subresource)


def creation_path(kind: Kind, name: str, namespace: str | None) -> str:
    """The path to create an object at; it may have no name yet. Raises WrongNamespace."""
    return kind.path(namespace_of(kind, name, namespace))


def collection_path(kind: Kind, namespace: str | AllNamespaces | None) -> str:
    """The path of all objects, or of those in a namespace. Raises WrongNamespace."""
    place = namespaces_of(kind, namespace)
    return kind.path(None if place is ALL else place)


def query(parameters: Mapping[str, str | int | float | bool | None]) -> str:
    """`?a=b&c=true`, or `""`; None and empty values are left out."""
    given = tuple(  # of a list: a generator is entered once for each of them
        [
            (name, str(value).lower() if isinstance(value, bool) else str(value))
            for name, value in parameters.items()
            if value is not None and value != "" and value is not False
        ]
    )
    return _encoded(given) if given else ""


def selectors(
    labels: Selector | None, fields: FieldSelector | None, hashes: HashRanges | None = None
) -> dict[str, str]:
    """Raises TypeError for text, which only the API server would read, and ValueError for empty ranges."""
    given: tuple[tuple[str, object, type], ...] = (
        ("label_selector", labels, Selector),
        ("field_selector", fields, FieldSelector),
    )
    for name, selector, wanted in given:
        if selector is not None and not isinstance(selector, wanted):
            raise TypeError(f"{name}={selector!r}: give {wanted.__name__}.parse({str(selector)!r})")
    found = {"labelSelector": str(labels or ""), "fieldSelector": str(fields or "")}
    if hashes is not None:
        if not hashes:
            raise ValueError("shard_selector: there is no range in it, so there is nothing to ask for")
        if hashes.moves:
            found["labelSelector"] = ",".join(filter(None, (found["labelSelector"], str(hashes.asked))))
        else:
            found["shardSelector"] = str(hashes.asked)
    return found


def server_timeout(seconds: float | None) -> str | None:
    """The `timeout` parameter: the server gives up when the client does. Whole seconds, at least one."""
    return None if seconds is None else f"{max(1, math.ceil(seconds))}s"


@lru_cache(maxsize=64)
def _encoded(given: tuple[tuple[str, str], ...]) -> str:
    # All writes of a controller use the same one or two.
    return "?" + urlencode(given, quote_via=quote)
