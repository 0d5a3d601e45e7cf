"""Values as messages show them. The server validates values of its internal types, and writes those into messages as
JSON. These types have no JSON names: fields have the names of Go, in its order, and what is absent is Go's zero value.
What they take from apimachinery, which has JSON names (labels, selectors), looks as it does in requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kubeshard_apiserver.schema.catalog import said_of
from kubeshard_apiserver.schema.decoding import SCALARS
from kubeshard_apiserver.schema.protobuf import field_numbers

_ABSENT_IS_ZERO = frozenset(
    {
        ("apps.v1.RollingUpdateStatefulSetStrategy", "partition"),
        *(
            (f"apps.v1.RollingUpdate{kind}", field)
            for kind in ("Deployment", "DaemonSet")
            for field in ("maxUnavailable", "maxSurge")
        ),
    }
)
"""Fields that are pointers in the types of the API only."""


def internal(of: str, value: Any) -> Any:
    """`of` is the type in the notation of `catalog`."""
    if value is None:
        return None if of.startswith(("*", "[]", "map[")) or of not in SCALARS else SCALARS[of].zero()
    of = of.removeprefix("*")
    if of in SCALARS:
        return value
    if of.startswith("[]"):
        return [internal(of[2:], item) for item in value]
    if of.startswith("map["):
        return {key: internal(of.removeprefix("map[string]"), value[key]) for key in sorted(value)}
    return dict(_with_json_names(of, value) if of.startswith("meta.") else _with_names_of_go(of, value))


def _with_json_names(of: str, value: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for field, said in _fields(of):
        if (
            (given := value.get(field))
            or said.get("always")
            or (said["type"][0] == "*" and given is not None)
        ):
            yield field, internal(said["type"], given)


def _with_names_of_go(of: str, value: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for field, said in _fields(of):
        if field == "metadata":  # is embedded
            yield from _with_json_names(said["type"], value.get(field) or {})
            continue
        type_ = said["type"].removeprefix("*" if (of, field) in _ABSENT_IS_ZERO else "")
        given = value.get(field)
        if given is None and type_ not in SCALARS and not type_.startswith(("*", "[]", "map[")):
            given = {}
        yield field[0].upper() + field[1:] if field != "apiGroup" else "APIGroup", internal(type_, given)


def _fields(of: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """In the order of Go, without those that say the kind."""
    said = said_of(of)["fields"]
    for field in field_numbers()[of].values():
        yield field.lstrip("*"), said[field.lstrip("*")]
