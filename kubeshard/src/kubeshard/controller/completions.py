"""What an object lacks, apart from what the API server completed: sidecars, volumes, tolerations, defaults of a limit.

Admission adds to an object, and may change it, after its fields were attributed to those who wrote them. So

| the server has, and the desired object has not | it is |
|---|---|
| a member of a map, or an item of a list with keys, that no field manager owns | a completion |
| one that some manager owns: we did in an earlier version, or somebody else does | a difference |
| more in a list or map that is owned as a whole | a completion if a new object would get it, too; else a difference |
| another value | a difference; a completion if it cannot be changed and a new object would get the same |

Which of these it is, is read from `managedFields`, and from a create of the desired object that stores nothing (a dry
run). Nothing of that has to be remembered: another process finds the same. `Rewrites` only saves the requests.

RBAC: `get` on the kind, and `create`, without which what a new object would get is unknown: then it is a difference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kubeshard.client.client import Client
from kubeshard.core.encoding import encode, to_dict
from kubeshard.core.errors import ApiError, Conflict
from kubeshard.core.managed_fields import everyones, fields_of_item, keeping_unowned
from kubeshard.core.objects import KubeObject
from kubeshard.core.overlay import pairs, spliced
from kubeshard.core.patches import merge_patch

LONGEST_NAME = 200
"""Characters of a name that another one begins with."""


def may_be_completed(patch: Any) -> bool:
    """Whether a merge patch would remove something, or replace a list."""
    if isinstance(patch, str):
        return False  # most are text, of which an abstract class need not be asked
    if isinstance(patch, Mapping):
        return any(map(may_be_completed, patch.values()))
    return patch is None or isinstance(patch, list | tuple)


async def exact_patch(
    client: Client, live: KubeObject, target: KubeObject, new: KubeObject, *, refused: bool = False
) -> dict[str, Any]:
    """The merge patch from the server's object to the target that changes only what the class declares, also within
    lists, and nothing that the server completed; empty if there is nothing to change. `new`: the desired object as it
    would be created. `refused`: whether the server has refused to change it.

    Raises Conflict if the object has changed since it was cached.
    """
    path = live.KIND.path(live.metadata.namespace, live.metadata.name)
    whole = msgspec.json.decode((await client.raw("GET", path)).body)
    if whole["metadata"]["resourceVersion"] != live.metadata.resource_version:
        raise Conflict(f"{live.KIND} {live.key} changed since it was read")
    old, wanted = (msgspec.json.decode(encode(obj)) for obj in (live, target))
    said = to_dict(new)
    result = _body(spliced(whole, old, wanted))
    had = _body(whole)
    fields = everyones(whole)
    if fields:
        result = keeping_unowned(had, result, said, fields)
    if refused or (fields and _is_extended(had, result, fields)):
        made = await _made(client, new)
        if made is not None:
            result = _keeping(had, result, made)
    patch = merge_patch(had, result)
    metadata = merge_patch(whole["metadata"], spliced(whole["metadata"], old["metadata"], wanted["metadata"]))
    if not patch and not metadata:
        return {}
    return {**patch, "metadata": {**metadata, "resourceVersion": live.metadata.resource_version}}


def _body(document: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in ("metadata", "status")}


async def _made(client: Client, new: KubeObject) -> dict[str, Any] | None:
    """What the server would store for a new object; None if it refuses one."""
    prefix = f"{new.metadata.name[:LONGEST_NAME]}-"
    metadata = msgspec.structs.replace(new.metadata, name="", generate_name=prefix)
    try:
        made: KubeObject = await client.create(msgspec.structs.replace(new, metadata=metadata), dry_run=True)
    except ApiError:
        return None
    document: dict[str, Any] = msgspec.json.decode(encode(made))
    return document


def _is_extended(had: Any, new: Any, fields: Mapping[str, Any] | None) -> bool:
    """Whether a list or map that is owned as a whole has more than it is to have."""
    if isinstance(had, Mapping) and isinstance(new, Mapping):
        if not fields:
            return had.keys() > new.keys()
        return any(
            _is_extended(value, new[name], fields.get(f"f:{name}"))
            for name, value in had.items()
            if name in new
        )
    if not isinstance(had, list) or not isinstance(new, list):
        return False
    if not fields:
        return len(had) > len(new) and all(any(_covers(each, item) for each in had) for item in new)
    return any(
        _is_extended(had[place], item, fields_of_item(had[place], fields))
        for place, item in zip(pairs(had, new), new, strict=True)
        if place is not None
    )


def _covers(had: Any, new: Any) -> bool:
    if isinstance(had, Mapping) and isinstance(new, Mapping):
        return all(name in had and had[name] == value for name, value in new.items())
    return bool(had == new)


def _keeping(had: Any, new: Any, made: Any) -> Any:
    """`new`, with what `had` has instead wherever the server made the same."""
    if had in (new, made):
        return had
    match had, new, made:
        case Mapping(), Mapping(), Mapping():
            kept = {name: value for name, value in had.items() if name not in new and made.get(name) == value}
            return kept | {
                name: _keeping(had[name], value, made.get(name)) if name in had else value
                for name, value in new.items()
            }
        case list(), list(), list():
            items, taken = [], set()
            for place, model, item in zip(pairs(had, new), pairs(made, new), new, strict=True):
                if place is None or model is None:
                    return new
                taken.add(place)
                items.append(_keeping(had[place], item, made[model]))
            return items + [item for place, item in enumerate(had) if place not in taken and item in made]
        case _:
            return new
