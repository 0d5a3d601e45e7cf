"""`x-kubernetes-embedded-resource`: complete objects inside custom resources, with ordinary object metadata.

Source: k8s.io/apiextensions-apiserver `pkg/apiserver/schema/objectmeta`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kubeshard.core.errors import Invalid
from kubeshard.core.kinds import Kind
from kubeshard_apiserver.resources.metadata import segment_name, validate_metadata, without_empty
from kubeshard_apiserver.resources.pod_names import dns_1035_label
from kubeshard_apiserver.schema.catalog import object_meta
from kubeshard_apiserver.schema.decoding import Run
from kubeshard_apiserver.status import FieldError, bad_request, invalid_value, required

Visit = Callable[[dict[str, Any], str], None]
Walk = Callable[[Any, str, Visit], None]


class Embedded:
    """The embedded objects in one schema."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._walk = _walk(schema)

    def coerce(self, obj: dict[str, Any], kind: Kind) -> list[str]:
        """Decode the embedded metadata in place. Return the paths of dropped fields. `kind` is that of the outer
        object. Raises Invalid (400).
        """
        dropped: list[str] = []
        if self._walk is not None:
            run = Run(kind.kind, kind.version)
            self._walk(obj, "", lambda found, path: _coerce(found, path, dropped, run))
        return dropped

    def errors(self, obj: dict[str, Any]) -> list[FieldError]:
        errors: list[FieldError] = []
        if self._walk is not None:
            self._walk(obj, "", lambda found, path: errors.extend(_errors(found, path)))
        return errors


def _walk(schema: Mapping[str, Any]) -> Walk | None:
    """Return a function that visits all embedded objects in a value."""
    of_items = _walk(schema["items"]) if isinstance(schema.get("items"), Mapping) else None
    properties = {
        name: found
        for name, inner in (schema.get("properties") or {}).items()
        if (found := _walk(inner)) is not None
    }
    given = schema.get("additionalProperties")
    additional = _walk(given) if isinstance(given, Mapping) else None
    is_embedded = bool(schema.get("x-kubernetes-embedded-resource"))
    if not (of_items or properties or additional or is_embedded):
        return None

    def walk(value: Any, path: str, visit: Visit) -> None:
        if isinstance(value, list) and of_items is not None:
            for index, item in enumerate(value):
                of_items(item, f"{path}[{index}]", visit)
        if not isinstance(value, dict):
            return
        if is_embedded:
            visit(value, path)
        for name, member in value.items():
            if name in properties:
                properties[name](member, f"{path}.{name}" if path else name, visit)
            elif additional is not None:
                additional(member, f"{path}[{name}]", visit)

    return walk


class _Reading(Run):
    def refused(self, problem: str) -> Exception:
        return bad_request(problem)


def _coerce(obj: dict[str, Any], path: str, dropped: list[str], around: Run) -> None:
    for name in ("apiVersion", "kind"):
        if name in obj and not isinstance(obj[name], str):
            raise around.refused(str(invalid_value(f"{path}.{name}", obj[name], "must be a string")))
    if "metadata" not in obj:
        return
    run = _Reading("ObjectMeta", "v1")
    try:
        given = obj["metadata"]
        read = object_meta().decode({} if given is None else given, None, run)
    except Invalid as error:
        raise around.refused(str(invalid_value(f"{path}.metadata", obj["metadata"], error.message))) from None
    obj["metadata"] = without_empty(read)
    dropped += [f"{path}.metadata.{name.lstrip('.')}" for name in run.dropped]


def _errors(obj: dict[str, Any], path: str) -> Iterator[FieldError]:
    yield from (required(f"{path}.{name}") for name in ("apiVersion", "kind") if name not in obj)
    for name in ("apiVersion", "kind"):
        value = obj.get(name)
        where = f"{path}.{name}"
        if name not in obj:
            continue
        if not isinstance(value, str):
            yield invalid_value(where, value, "must be a string")
        elif not value:
            yield invalid_value(where, value, "must not be empty")
        elif name == "apiVersion" and value.count("/") > 1:
            yield invalid_value(where, value, f"unexpected GroupVersion string: {value}")
        elif name == "kind" and (problems := dns_1035_label(value.lower())):
            told = ",".join(problems)
            yield invalid_value(where, value, f"may have mixed case, but should otherwise match: {told}")
    meta = obj.get("metadata")
    if isinstance(meta, dict):
        named = {"metadata": {**meta, "name": meta.get("name") or "fakename"}}
        for error in validate_metadata(
            named, segment_name, namespaced=bool(meta.get("namespace")), qualified_finalizers=False
        ):
            yield error._replace(path=f"{path}.{error.path}")
