"""Labels that an author hands on from an object to what is made for it.

The labels of a ring say on which shard an object is, and change when it moves. In the template of a pod they would
replace all pods with every move, and in a selector, which cannot be changed, they would break the object for good. So
`ensure` and `ctx.apply` never write them: on an object itself, they are up to the sharder and to
`kubeshard.client.fence`, and anywhere else they are left out, with a warning. Nor are the labels of a desired set
inherited by what `ensure` writes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from kubeshard.controller.desired.applyset import RESERVED
from kubeshard.controller.merging import Rewrites
from kubeshard.core.encoding import decode, to_dict
from kubeshard.core.kinds import Kind
from kubeshard.core.objects import KubeObject, form_of
from kubeshard.core.patches import pointer
from kubeshard.runtime.logs import get_logger
from kubeshard.sharding.names import BUCKET_LABEL_PREFIX, DRAIN_LABEL_PREFIX, SHARD_LABEL_PREFIX

T = TypeVar("T", bound=KubeObject)

_log = get_logger("kubeshard.controller")

OF_RINGS = (SHARD_LABEL_PREFIX, DRAIN_LABEL_PREFIX, BUCKET_LABEL_PREFIX)
IN_BOTH = ".alpha.sharding.timebertt.dev/"
"""What each label of a ring contains."""


def labels_to_inherit(obj: KubeObject) -> dict[str, str]:
    """The object's labels without those that are about this object only: on which shard it is, and to which desired set
    it belongs. For authors who give the labels of an object to its children, their templates and selectors.
    """
    return {
        key: value
        for key, value in (obj.metadata.labels or {}).items()
        if not key.startswith(OF_RINGS) and key not in RESERVED
    }


def without_own(obj: T) -> T:
    """The desired object without such labels in its metadata."""
    metadata = msgspec.structs.replace(obj.metadata, labels=labels_to_inherit(obj))
    return msgspec.structs.replace(obj, metadata=metadata)


def without_inner(obj: T) -> tuple[T, list[str]]:
    """The desired object without labels of rings outside of its metadata, and where they were."""
    whole, found = to_dict(obj), list[str]()
    kept = {
        name: value if name == "metadata" else _without(value, (name,), found)
        for name, value in whole.items()
    }
    return (decode(form_of(type(obj)), msgspec.json.encode(kept)), found) if found else (obj, found)


def tell_inner(rewrites: Rewrites, kind: Kind, found: Collection[str]) -> None:
    """`rewrites`: the memory of the controller that wanted to write them."""
    if found and rewrites.says_once(("inner labels", kind)):
        _log.warning(
            "Labels of a ring are left out of what is written: hand on labels_to_inherit(obj)",
            kind=kind,
            fields=", ".join(found),
        )


def _without(value: Any, path: tuple[str | int, ...], found: list[str]) -> Any:
    if isinstance(value, Mapping):
        kept = {}
        for name, inner in value.items():
            if isinstance(name, str) and name.startswith(OF_RINGS):
                found.append(pointer(*path, name))
            else:
                kept[name] = _without(inner, (*path, name), found)
        return kept
    if isinstance(value, list | tuple):
        return list(_items(value, path, found))
    return value


def _items(
    items: list[Any] | tuple[Any, ...], path: tuple[str | int, ...], found: list[str]
) -> Iterator[Any]:
    for index, item in enumerate(items):
        key = item.get("key") if isinstance(item, Mapping) and "operator" in item else None
        if isinstance(key, str) and key.startswith(OF_RINGS):  # a requirement of a selector
            found.append(pointer(*path, index, "key"))
        else:
            yield _without(item, (*path, index), found)
