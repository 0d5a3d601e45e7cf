"""Field paths within a schema: `.spec.replicas`, `.spec.labels['a.b']`; and those of the subresource `scale`.

Source: k8s.io/apiextensions-apiserver `pkg/apiserver/schema/cel` (`ValidFieldPath`),
`pkg/apis/apiextensions/validation`, `pkg/registry/customresource`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kubeshard_apiserver.schema.numbers import go_value
from kubeshard_apiserver.schema.validation import go_type
from kubeshard_apiserver.status import FieldError, invalid_value, required

Schema = Mapping[str, Any]
_PART = re.compile(r"'(?:[^'\\]|\\.)*'|[.\[\]]|[^.\[\]]+", re.S)
_ESCAPE = re.compile(r"\\(.)", re.S)
_CHARS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "'": "'", "\\": "\\"}
_NO_FIELD = "does not refer to a valid field"


def find_field(text: str, schema: Schema, *, brackets: bool = True) -> tuple[tuple[str, ...], str, Schema]:
    """Return the names, the path as messages write it, and the schema found there. Raises ValueError with a message."""
    parts = _PART.findall(text)
    names: list[str] = []
    shown = ""
    while parts:
        part = parts.pop(0)
        if part == "[":
            if not brackets:
                raise ValueError("array notation is not allowed")
            name = _quoted(_next(parts))
            schema, is_named = _step(schema, name)
            if (end := _next(parts)) != "]":
                raise ValueError(f"expected ] but got {end}")
        elif part == ".":
            name = _next(parts)
            schema, is_named = _step(schema, name)
        else:
            raise ValueError(f"expected [ or . but got: {part}")
        names.append(name)
        shown += (f".{name}" if shown else name) if is_named else f"[{name}]"
    return tuple(names), shown, schema


def _step(schema: Schema, name: str) -> tuple[Schema, bool]:
    if properties := schema.get("properties"):
        if name not in properties:
            raise ValueError(_NO_FIELD)
        return properties[name], True
    additional = schema.get("additionalProperties")
    if not isinstance(additional, Mapping):
        raise ValueError(_NO_FIELD)
    return additional, False


def _next(parts: list[str]) -> str:
    if not parts:
        raise ValueError("unexpected end of JSON path")
    return parts.pop(0)


def _quoted(part: str) -> str:
    if len(part) < 2 or part[0] != "'" or part[-1] != "'":
        raise ValueError(f"expected single quoted string but got {part}")
    return _ESCAPE.sub(_unescaped, part[1:-1])


def _unescaped(found: re.Match[str]) -> str:
    if found[1] not in _CHARS:
        raise ValueError(f"invalid string literal: invalid escape char {found[0]}")
    return _CHARS[found[1]]


Path = tuple[str, ...]
_MOST = (1 << 31) - 1


@dataclass(frozen=True)
class ScalePaths:
    """The fields of the scale subresource, as paths from the object's root. `selector` is empty if there is none."""

    spec: Path = ("spec", "replicas")
    status: Path = ("status", "replicas")
    selector: Path = ()


def scale_paths(said: Mapping[str, Any] | None) -> ScalePaths | None:
    """Return the paths in `subresources.scale` of a version in a definition."""
    if said is None:
        return None
    spec, status = _path(said.get("specReplicasPath")), _path(said.get("statusReplicasPath"))
    return ScalePaths(spec, status, _path(said.get("labelSelectorPath")))


def scale_path_errors(path: str, said: Mapping[str, Any]) -> list[FieldError]:
    errors: list[FieldError] = []
    for field, roots in (
        ("specReplicasPath", ("spec",)),
        ("statusReplicasPath", ("status",)),
        ("labelSelectorPath", ("spec", "status")),
    ):
        given, at = said.get(field) or "", f"{path}.{field}"
        if not given:
            errors += [required(at)] if field != "labelSelectorPath" else []
        elif not given.startswith("."):
            errors.append(invalid_value(at, given, "must be a simple json path starting with ."))
        elif _path(given)[0] not in roots or len(_path(given)) < 2:
            listed = " or ".join(f".{root}" for root in roots)
            either = "either " if len(roots) > 1 else ""
            errors.append(invalid_value(at, given, f"should be a json path under {either}{listed}"))
    return errors


def scale_value_errors(obj: Mapping[str, Any], paths: ScalePaths, parts: tuple[str, ...]) -> list[FieldError]:
    """Validate the values. `parts`: whether to check the desired replicas (`spec`), the current (`status`), or both."""
    errors: list[FieldError] = []
    for part, path in (("spec", paths.spec), ("status", paths.status)):
        value = go_value(value_at(obj, path)) if part in parts else None
        where = "." + ".".join(path)
        if part in parts and (told := _lost(obj, path)):
            errors.append(invalid_value(where, 0, told))
        if value is None and not (part in parts and _is_null(obj, path)):
            continue
        if not isinstance(value, int) or isinstance(value, bool):
            told = f"{where} accessor error: {_go(value)} is of the type {go_type(value)}, expected int64"
            errors.append(invalid_value(where, 0, told))
        elif value < 0:
            errors.append(invalid_value(where, value, "should be a non-negative integer"))
        elif value > _MOST:
            errors.append(invalid_value(where, value, f"should be less than or equal to {_MOST}"))
    selector = value_at(obj, paths.selector) if paths.selector and "status" in parts else None
    if paths.selector and "status" in parts and (told := _lost(obj, paths.selector)):
        errors.append(invalid_value("." + ".".join(paths.selector), "", told))
    is_null = bool(paths.selector) and "status" in parts and _is_null(obj, paths.selector)
    if is_null or (selector is not None and not isinstance(selector, str)):
        where = "." + ".".join(paths.selector)
        told = f"{where} accessor error: {_go(selector)} is of the type {go_type(selector)}, expected string"
        errors.append(invalid_value(where, "", told))
    return errors


def _lost(obj: Mapping[str, Any], path: Path) -> str:
    """Return the problem if something on the way to the value is no object."""
    value: Any = obj
    for index, name in enumerate(path):
        if value is None:
            break
        if not isinstance(value, Mapping):
            where, kind = "." + ".".join(path[: index + 1]), go_type(value)
            return (
                f"{where} accessor error: {value} is of the type {kind}, expected map[string]interface {{}}"
            )
        value = value.get(name)
    return ""


def _is_null(obj: Mapping[str, Any], path: Path) -> bool:
    """Whether a null, and not nothing, is at the path."""
    *parents, name = path
    parent = value_at(obj, tuple(parents))
    return isinstance(parent, Mapping) and name in parent and parent[name] is None


def _go(value: Any) -> Any:
    return "<nil>" if value is None else value


def value_at(obj: Mapping[str, Any], path: Path) -> Any:
    """Return the value at the path, or None if there is none."""
    value: Any = obj
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def with_value(obj: Mapping[str, Any], path: Path, value: Any) -> dict[str, Any]:
    """Return a copy of the object with this value at the path."""
    name, *rest = path
    inner = obj.get(name)
    return {
        **obj,
        name: with_value(inner if isinstance(inner, Mapping) else {}, tuple(rest), value) if rest else value,
    }


def _path(text: str | None) -> Path:
    return tuple(text.lstrip(".").split(".")) if text else ()
