"""What an object lacks of the desired state: the common basis of `ensure` and desired sets.

Guaranteed: fields that the desired object does not set are kept (rules: `kubeshard.core.overlay`), so an object that
lacks nothing needs no request, whatever the server and others added to it. Pure, except for what `Rewrites` remembers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from kubeshard.controller.rewrites import Rewrites
from kubeshard.core.encoding import to_dict
from kubeshard.core.objects import UNSET, KubeObject, ObjectMeta
from kubeshard.core.overlay import overlaid
from kubeshard.core.owners import is_controlled_by, with_owner
from kubeshard.core.patches import merge_patch

T = TypeVar("T", bound=KubeObject)


def merged(live: T, desired: T, owner: KubeObject | None = None) -> T:
    """The live object with the fields of `desired`: metadata merged, status ignored. Returns `live` itself if nothing
    differs. Raises AlreadyControlled, IllegalOwner.
    """
    metadata = _merged_metadata(live.metadata, desired.metadata)
    if owner is not None and not is_controlled_by(metadata, owner):
        metadata = with_owner(metadata, owner, controller=True)
    target = overlaid(live, desired, without=("metadata", "status"))
    return target if metadata is live.metadata else msgspec.structs.replace(target, metadata=metadata)


def lacking(live: T, target: T, rewrites: Rewrites) -> dict[str, Any]:
    """The merge patch from `live` to the target, without what the server is known not to store."""
    if target is live:
        return {}
    had = to_dict(live)
    return rewrites.without_known(live.KIND, merge_patch(had, to_dict(target)), had)


def learn(answer: T, target: T, rewrites: Rewrites, sent: Mapping[str, Any] | None = None) -> None:
    """Remembers where the response to a write differs from what was intended. `sent`: the merge patch; None: the
    whole object.
    """
    if target is not answer:
        has = to_dict(answer)
        rewrites.learn(answer.KIND, sent, merge_patch(has, to_dict(target)), has)


def without_status(obj: T) -> T:
    """The object as it is written: a status is never part of the desired state."""
    if "status" not in obj.__struct_fields__:
        return obj
    changes: dict[str, Any] = {"status": UNSET}
    return msgspec.structs.replace(obj, **changes)


def _merged_metadata(live: ObjectMeta, desired: ObjectMeta) -> ObjectMeta:
    labels = _with(live.labels, desired.labels)
    annotations = _with(live.annotations, desired.annotations)
    if labels is live.labels and annotations is live.annotations:
        return live
    return msgspec.structs.replace(live, labels=labels, annotations=annotations)


def _with(live: Mapping[str, str] | None, desired: Mapping[str, str] | None) -> Mapping[str, str] | None:
    if not desired or (live is not None and desired.items() <= live.items()):
        return live
    return {**(live or {}), **desired}
