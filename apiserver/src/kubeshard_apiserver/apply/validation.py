"""Validation of a configuration to be applied, with the server's messages. Pure.

Covers only the errors that prevent it from being divided into fields: wrong types, undeclared fields and missing list
keys. The server does not expect such a configuration, so it responds with an internal error (500). Source:
structured-merge-diff `typed/validate.go`.
"""

from __future__ import annotations

from typing import Any

from kubeshard.core.errors import ApiError
from kubeshard.core.kinds import Kind
from kubeshard_apiserver.apply.shape import UNTYPED, Path, Shape, item_element, readable
from kubeshard_apiserver.objects import Object
from kubeshard_apiserver.schema.validation import go_type
from kubeshard_apiserver.status import internal, shown

_FITS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "numeric": (int, float),
    "any scalar": (str, bool, int, float),
}

_NOT_IN_SETS: dict[type, str] = {dict: "map", list: "list"}


def validation_errors(shape: Shape, value: Any, *, with_repeated: bool = False) -> list[str]:
    """`with_repeated` means that sets may have an item, and lists with keys a key, several times."""
    found: list[str] = []
    _validate(shape, value, (), found, with_repeated)
    return found


def _validate(shape: Shape, value: Any, path: Path, found: list[str], with_repeated: bool) -> None:
    if value is None or shape.kind == "untyped":
        return
    if shape.kind == "scalar":
        if shape.scalar and not _fits(shape.scalar, value):
            found.append(f"{readable(path)}: expected {_expected(shape.scalar, value)}")
    elif shape.kind == "map" and isinstance(value, dict):
        items = shape.items or UNTYPED
        for name in sorted(value):
            inner, here = shape.fields.get(name), (*path, f"f:{name}")
            if inner is None and shape.closed:
                found.append(f"{readable(here)}: field not declared in schema")
            else:
                _validate(inner or items, value[name], here, found, with_repeated)
    elif shape.kind == "list" and isinstance(value, list):
        _validate_items(shape, value, path, found, with_repeated)
    else:
        found.append(f"{readable(path)}: expected {shape.kind}, got &{{{_plain(value)}}}")


def _validate_items(
    shape: Shape, items: list[Any], path: Path, found: list[str], with_repeated: bool
) -> None:
    """Stops checking the list at the first item without keys."""
    inner, seen = shape.items or UNTYPED, set()
    for index, item in enumerate(items):
        element = f"i:{index}"
        if shape.list_type in ("set", "map"):
            if problem := _key_error(shape, item):
                found.append(f"{readable(path)}: element {index}: {problem}")
                return
            element = item_element(shape, item)
            if element in seen and not with_repeated:
                found.append(f"{readable(path)}: duplicate entries for key {readable((element,))}")
            seen.add(element)
        _validate(inner, item, (*path, element), found, with_repeated)


def _key_error(shape: Shape, item: Any) -> str:
    if shape.list_type == "set":
        if item is None:
            return "associative list without keys has an element that's an explicit null"
        kind = _NOT_IN_SETS.get(type(item))
        return f"associative list without keys has an element that's a {kind} type" if kind else ""
    if item is None:
        return "associative list with keys may not have a null element"
    if not isinstance(item, dict):
        return "associative list with keys may not have non-map elements"
    if any(key in item or default is not None for key, default in shape.keys.items()):
        return ""
    names = " ".join(shown(key) for key in shape.keys)
    return (
        f"associative list with keys has an element that omits all key fields [{names}] "
        "(and doesn't have default values for any key fields)"
    )


def _fits(scalar: str, value: Any) -> bool:
    return type(value) in _FITS[scalar]


def _expected(scalar: str, value: Any) -> str:
    if scalar == "string":
        return f"string, got &value.valueUnstructured{{Value:{_literal(value)}}}"
    if scalar == "numeric":
        return f"numeric (int or float), got {go_type(value)}"
    return f"{scalar}, got &{{{_plain(value)}}}"


def _plain(value: Any) -> str:
    """Formats a value as Go's `%v` does."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{name}:{_plain(value[name])}' for name in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(_plain, value))}]"
    if value is None:
        return "<nil>"
    return value if isinstance(value, str) else shown(value)


def _literal(value: Any) -> str:
    """Formats a value as Go's `%#v` does."""
    if isinstance(value, dict):
        inner = ", ".join(f"{shown(name)}:{_literal(value[name])}" for name in sorted(value))
        return f"map[string]interface {{}}{{{inner}}}"
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(map(_literal, value))}}}"
    return "interface {}(nil)" if value is None else shown(value)


def check_fits(kind: Kind, shape: Shape, config: Object) -> None:
    """Checks that a configuration fits its kind. Raises ApiError (500)."""
    if problems := validation_errors(shape, config):
        problem = problems[0] if len(problems) == 1 else "\n  ".join(("errors:", *problems))
        raise internal(f"failed to create typed patch object {_where(kind, config)}: {problem}")


def inconvertible(kind: Kind, config: Object, problem: str) -> ApiError:
    """Returns the error for a value of the right type that cannot be parsed, such as invalid base64 or an invalid
    quantity.
    """
    told = problem.removeprefix(
        f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
    )
    if told.startswith("illegal base64"):
        told = f"error decoding from json: {told}"
    told = f"unable to convert unstructured object to {_version(kind)}: {told}"
    return internal(f"failed to convert new object {_where(kind, config)} to proper version: {told}")


def _where(kind: Kind, config: Object) -> str:
    meta = found if isinstance(found := config["metadata"], dict) else {}
    namespace, name = (
        text if isinstance(text := meta.get(part), str) else "" for part in ("namespace", "name")
    )
    return f"({namespace}/{name}; {_version(kind)})"


def _version(kind: Kind) -> str:
    return f"{kind.api_version if kind.group else f'/{kind.version}'}, Kind={kind.kind}"
