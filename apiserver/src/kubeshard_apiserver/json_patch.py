"""Applies the operations of a JSON Patch (RFC 6902) to JSON, without changing what it is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kubeshard.core.errors import Invalid, PatchTestFailed
from kubeshard.core.patches import json_equal, pointer
from kubeshard_apiserver.objects import copied


def apply_json_patch(document: Any, ops: Sequence[Mapping[str, Any]]) -> Any:
    """The document after all operations. Raises PatchTestFailed for a failed test, Invalid for
    everything else that the API server would reject (unknown operation, missing path).
    """
    result = copied(document)
    for op in ops:
        result = apply_operation(result, op)
    return result


def _as_it_is(value: Any) -> Any:
    return value


def apply_operation(document: Any, op: Mapping[str, Any], tested: Callable[[Any], Any] = _as_it_is) -> Any:
    """Applies one operation in place. Returns the document, which is another one if the operation replaces it. `tested`
    says as what a `test` compares what it finds. Raises what `apply_json_patch` raises, and may then have changed a
    part of the document.
    """
    path = _parts(op.get("path", ""))
    match op.get("op"):
        case "add":
            return _add(document, path, copied(op["value"]))
        case "remove":
            return _remove(document, path)
        case "replace":
            _get(document, path)
            return _add(_remove(document, path) if path else None, path, copied(op["value"]))
        case "move":
            source = _parts(op["from"])
            value = _get(document, source)
            return _add(_remove(document, source), path, value)
        case "copy":
            return _add(document, path, copied(_get(document, _parts(op["from"]))))
        case "test":
            found = tested(_get(document, path, absent_is_none=op.get("value") is None))
            if not json_equal(found, op.get("value")):
                raise PatchTestFailed(f"test of {op.get('path')} failed", code=422, reason="Invalid")
            return document
        case unknown:
            raise Invalid(f"unknown JSON Patch operation {unknown!r}", code=422, reason="Invalid")


def _parts(path: str) -> list[str]:
    if path and not path.startswith("/"):
        raise Invalid(f"JSON pointer {path!r} does not start with a slash", code=422, reason="Invalid")
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


def _get(document: Any, parts: Sequence[str], absent_is_none: bool = False) -> Any:
    for part in parts:
        try:
            document = document[_index(part, document) if isinstance(document, list) else part]
        except (KeyError, IndexError, TypeError):
            if absent_is_none:
                return None
            raise _missing(parts) from None
    return document


def _add(document: Any, parts: Sequence[str], value: Any) -> Any:
    if not parts:
        return value
    parent, last = _get(document, parts[:-1]), parts[-1]
    if isinstance(parent, list):
        index = len(parent) if last == "-" else _index(last, parent)
        if index > len(parent):
            raise _missing(parts)
        parent.insert(index, value)
    elif isinstance(parent, dict):
        parent[last] = value
    else:
        raise _missing(parts)
    return document


def _remove(document: Any, parts: Sequence[str]) -> Any:
    _get(document, parts)
    if not parts:
        return None
    parent = _get(document, parts[:-1])
    del parent[_index(parts[-1], parent) if isinstance(parent, list) else parts[-1]]
    return document


def _index(part: str, parent: list[Any]) -> int:
    if not part.isdecimal():
        raise Invalid(f"{part!r} is not an index into a list of {len(parent)}", code=422, reason="Invalid")
    return int(part)


def _missing(parts: Sequence[str]) -> Invalid:
    return Invalid(f"no such path: {pointer(*parts)}", code=422, reason="Invalid")
