"""List entries of others that keep a desired entry out.

Server-side apply merges some lists by a key that is not the name of an entry: the ports of a Service by port and
protocol. Where somebody else gave the name of a desired entry to another port, an apply adds the desired one beside
it, and the server refuses both for their equal names. Which lists have which key is in the object's managedFields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from kubeshard.core.errors import Invalid
from kubeshard.core.managed_fields import united
from kubeshard.core.patches import pointer, replace

DUPLICATE = "FieldValueDuplicate"
"""The API server's cause of a refusal: two values are equal and must not be."""


def names_a_duplicate(error: Invalid) -> bool:
    """Whether entries can be what is wrong. If a field cannot be changed, those of others stay where they are."""
    return any(cause.get("reason") == DUPLICATE for cause in error.causes)


def collisions(desired: Mapping[str, Any], live: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Operations of a JSON patch that put each desired entry in the place of one with its name and another key. Both
    are whole objects; the operations do not touch the metadata.
    """
    fields: dict[str, Any] = {}
    for entry in live["metadata"].get("managedFields") or ():
        fields = united(fields, entry.get("fieldsV1", {}))
    return [
        operation
        for name, value in desired.items()
        if name != "metadata" and name in live
        for operation in _below(value, live[name], fields.get(f"f:{name}", {}), (name,))
    ]


def _below(
    desired: Any, live: Any, fields: Mapping[str, Any], path: tuple[str | int, ...]
) -> Iterator[dict[str, Any]]:
    if isinstance(desired, Mapping) and isinstance(live, Mapping):
        for name, value in desired.items():
            if name in live:
                yield from _below(value, live[name], fields.get(f"f:{name}", {}), (*path, name))
    elif isinstance(desired, list | tuple) and isinstance(live, list):
        keys = {name: msgspec.json.decode(name[2:]) for name in fields if name.startswith("k:")}
        free = set(range(len(live)))
        left = []
        # First those that say their whole key: one that leaves a part to the server may seem to have it, too.
        for entry in sorted(desired, key=lambda entry: not any(_has(entry, key) for key in keys.values())):
            for name, key in keys.items():
                index = next((index for index in free if _has(live[index], key)), None)
                if index is not None and _may_have(entry, key):
                    free.remove(index)
                    yield from _below(entry, live[index], fields[name], (*path, index))
                    break
            else:
                left.append(entry)
        for entry in left:
            for index in free if keys and "name" in entry else ():
                if live[index].get("name") == entry["name"]:
                    yield replace(pointer(*path, index), entry)


def _has(entry: Mapping[str, Any], key: Mapping[str, Any]) -> bool:
    return all(entry.get(name) == value for name, value in key.items())


def _may_have(entry: Mapping[str, Any], key: Mapping[str, Any]) -> bool:
    """Once the server has filled in what is not said."""
    return all(entry.get(name, value) == value for name, value in key.items())
