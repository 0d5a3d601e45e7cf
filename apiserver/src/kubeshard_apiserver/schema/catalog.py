"""The built-in kinds of release 1.37 and their types, extracted from a server by `make types`.

`kinds.json` contains the resources of every group version as in discovery, each with the name of its type. `types.json`
contains the structs and their fields. Each field has a `type` in Go's notation (`*` if absent differs from zero, `[]`
for lists, `map[string]`, names of structs such as `core.v1.Container`, and the names in `decoding.SCALARS`) and
markers: `required`, `always` (written even when empty), `go` (the name of the Go type, if it differs from the
notation), `embedded` (the Go struct it is promoted from), `list`, `keys`, `map`, `merge-key`, `strategy`, `default`.

Both are read on first use; a struct is built when a kind first needs it. The hand-written `field_rules.json` next to
them defines the valid values of fields (see `resources.field_rules`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from kubeshard.core.kinds import Kind
from kubeshard_apiserver.schema.decoding import (
    RESOURCES,
    SCALARS,
    Field,
    List,
    Map,
    Pointer,
    Scalar,
    SchemaOr,
    Struct,
    Type,
)

RELEASE = "v1.37.2"
"""The Kubernetes release that these kinds, types and behaviour come from."""


class Entry(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """A resource or a subresource, as in discovery. `group` and `version` are set if they differ from those of the
    list.
    """

    name: str
    singular_name: str
    namespaced: bool
    kind: str
    verbs: tuple[str, ...]
    group: str = ""
    version: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    storage_version_hash: str = ""
    type: str = ""


class Served(msgspec.Struct, frozen=True):
    """A kind with its subresources by name."""

    kind: Kind
    entry: Entry
    subresources: Mapping[str, Entry]


def served_kinds() -> Iterable[Served]:
    """Returns the built-in kinds in the server's order."""
    return _served().values()


def served(kind: Kind) -> Served:
    """Returns a built-in kind with its subresources. Raises KeyError for any other kind."""
    return _served()[kind]


def type_of(kind: Kind) -> Struct:
    """Returns the Go type of a built-in kind. Raises KeyError for any other kind."""
    return struct(type_name(kind))


def type_name(kind: Kind) -> str:
    return f"{kind.group.partition('.')[0] or 'core'}.{kind.version}.{kind.kind}"


def object_meta() -> Struct:
    return struct("meta.v1.ObjectMeta")


_made: dict[str, Struct] = {}


def struct(name: str) -> Struct:
    """Returns a struct by its name, such as `core.v1.Container`. Raises KeyError."""
    if name in _made:
        return _made[name]
    said = said_of(name)
    made = _made[name] = Struct(name.partition(".")[2], atomic=bool(said.get("atomic")))
    for field, markers in said["fields"].items():
        made.fields[field] = Field(made, field, _type(markers["type"], markers.get("go", "")), markers)
    return made


def said_of(name: str) -> dict[str, Any]:
    """Returns the entry of a struct: its `fields`, and whether it is `atomic`. Raises KeyError."""
    said: dict[str, Any] = msgspec.json.decode(_types()[name])
    return said


def _type(expression: str, go: str = "") -> Type:
    """Builds a type from its notation. `go` is the name of the Go type, if it differs from the notation."""
    if expression.startswith("*"):
        return Pointer(_type(expression[1:], go))
    if expression.startswith("[]"):
        return List(_type(expression[2:], go[2:]), go)
    if expression.startswith("map[string]"):
        if go == RESOURCES.go:
            return RESOURCES
        _, _, values = go.partition("]")
        return Map(_type(expression.removeprefix("map[string]"), values), go)
    if expression.startswith("schema-or-"):
        return SchemaOr(struct("apiextensions.v1.JSONSchemaProps"), expression.removeprefix("schema-or-"))
    if expression == "string" and go:
        return Scalar(go, str, "")
    return SCALARS.get(expression) or struct(expression)


@cache
def _served() -> Mapping[Kind, Served]:
    found = {}
    for group_version, entries in _document("kinds.json", dict[str, list[Entry]]).items():
        group, _, version = group_version.rpartition("/")
        inner: dict[str, dict[str, Entry]] = {}
        for entry in entries:
            plural, _, subresource = entry.name.partition("/")
            if subresource:
                inner[plural][subresource] = entry
            else:
                kind = Kind(group, version, entry.kind, entry.name, entry.namespaced)
                found[kind] = Served(kind, entry, inner.setdefault(entry.name, {}))
    return found


@cache
def _types() -> Mapping[str, msgspec.Raw]:
    types: Mapping[str, msgspec.Raw] = _document("types.json", dict[str, msgspec.Raw])
    return types


def _document(name: str, type_: Any) -> Any:
    return msgspec.json.decode((files(__package__) / name).read_bytes(), type=type_)
