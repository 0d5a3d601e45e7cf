"""What an object lacks of somebody's wish: the one idea behind `ensure` and desired sets.

Guaranteed: what the wish does not say is kept (`kubeshard.core.overlay` is the table), so an object that lacks
nothing needs no request, whatever the server and others added to it. Pure, but for what `Rewrites` remembers.
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
    """The live object with what `desired` says: metadata merged, status left alone. `live` itself where it is so
    already. Raises AlreadyControlled, IllegalOwner.
    """
    metadata = _merged_metadata(live.metadata, desired.metadata)
    if owner is not None and not is_controlled_by(metadata, owner):
        metadata = with_owner(metadata, owner, controller=True)
    target = overlaid(live, desired, without=("metadata", "status"))
    return target if metadata is live.metadata else msgspec.structs.replace(target, metadata=metadata)


def lacking(live: T, target: T, rewrites: Rewrites) -> dict[str, Any]:
    """The merge patch that makes `live` the target, without what the server is known not to store."""
    if target is live:
        return {}
    had = to_dict(live)
    return rewrites.without_known(live.KIND, merge_patch(had, to_dict(target)), had)


def learn(answer: T, target: T, rewrites: Rewrites, sent: Mapping[str, Any] | None = None) -> None:
    """Remembers where the answer to a write differs from what was to become of it. `sent`: the merge patch; None: the
    whole object.
    """
    if target is not answer:
        has = to_dict(answer)
        rewrites.learn(answer.KIND, sent, merge_patch(has, to_dict(target)), has)


def without_status(obj: T) -> T:
    """As it is written: a status is never part of a wish."""
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


def _with(live: Mapping[str, str] | None, wish: Mapping[str, str] | None) -> Mapping[str, str] | None:
    if not wish or (live is not None and wish.items() <= live.items()):
        return live
    return {**(live or {}), **wish}
