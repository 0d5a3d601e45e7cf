"""Which changes of a main object concern this shard."""

from __future__ import annotations

from typing import Any, TypeVar

from kubeshard.cache.deltas import Updated
from kubeshard.controller.predicates import Predicate, always, current
from kubeshard.core.objects import KubeObject
from kubeshard.sharding.names import drain_label, shard_label

T = TypeVar("T", bound=KubeObject)


def shard_predicate(ring: str, shard: str, when: Predicate[T] = always) -> Predicate[T]:
    """Passes objects that carry the drain label, whatever its value and whosever they are, and those of this shard for
    which `when` is true or which this shard may work on only now: a run that saw the drain label did nothing, and
    `when` may find nothing new in its removal. For the watch of a main kind only.
    """
    own, drain = shard_label(ring), drain_label(ring)

    def assigned(obj: KubeObject) -> bool:
        return obj.metadata.label(own) == shard and not obj.metadata.has_label(drain)

    draining: Predicate[Any] = Predicate(lambda delta: current(delta).metadata.has_label(drain))
    ours: Predicate[Any] = Predicate(lambda delta: current(delta).metadata.label(own) == shard)
    returned: Predicate[Any] = Predicate(
        lambda delta: isinstance(delta, Updated) and assigned(delta.new) and not assigned(delta.old)
    )
    return draining | returned | (ours & when)
