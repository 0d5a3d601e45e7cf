"""Field paths within a schema: `.spec.replicas`, `.spec.labels['a.b']`.

Source: `ValidFieldPath` in k8s.io/apiextensions-apiserver `pkg/apiserver/schema/cel`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

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
