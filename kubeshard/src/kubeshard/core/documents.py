"""Objects as plain JSON, for rules that read fields by name.

A class declares the fields that its users need, so an absent field may be one that exists on the server and is not
declared. Guaranteed: a rule that lists the fields it reads never sees such a field as absent, but gets
a TypeError that says what to declare.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from kubeshard.core.encoding import to_dict
from kubeshard.core.objects import KubeObject

Path = tuple[str, ...]
"""Names on the wire, from the root of the object; lists are passed through: `("status", "conditions", "type")`."""


def document_of(obj: KubeObject | Mapping[str, Any], reads: Sequence[Path]) -> Mapping[str, Any]:
    """As on the wire; a manifest unchanged. Raises TypeError for a class without the fields that are read."""
    if isinstance(obj, Mapping):
        return obj
    require_declared(type(obj), reads)
    return to_dict(obj)


def require_declared(type_: type[KubeObject], reads: Sequence[Path]) -> None:
    """Raises TypeError with the fields that the class does not declare."""
    missing = [".".join(path) for path in reads if not declares(type_, path)]
    if missing:
        name = type_.__name__
        raise TypeError(
            f"{name} does not declare {', '.join(missing)}, so nothing can be told by it: declare "
            f"{'it' if len(missing) == 1 else 'them'}, or `status: Mapping[str, Any] | None = None` for all of it"
        )


@cache
def declares(type_: Any, path: Path) -> bool:
    """Whether the class declares the field; a map or `Any` on the path declares everything below it."""
    if not path:
        return True
    for field in msgspec.structs.fields(type_):
        if field.encode_name == path[0]:
            return _may_have(type_hints_of(type_).get(field.name, Any), path[1:])
    return False


def at(document: Any, *path: str, default: Any = None) -> Any:
    """The value at the path, or the default if it is absent or null."""
    for name in path:
        document = document.get(name) if isinstance(document, Mapping) else None
    return default if document is None else document


def _may_have(hint: Any, path: Path) -> bool:
    if not path or hint is Any:
        return True
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return declares(hint, path)
    origin = get_origin(hint) or hint
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return True
    if origin is Union or type(hint).__name__ == "UnionType" or isinstance(origin, type):
        return any(_may_have(part, path) for part in get_args(hint))
    return False


def type_hints_of(type_: type) -> dict[str, Any]:
    """The types of a class's fields; empty if they cannot be resolved."""
    try:
        return get_type_hints(type_)
    except NameError:  # names local to the function that defines the class
        return {}
