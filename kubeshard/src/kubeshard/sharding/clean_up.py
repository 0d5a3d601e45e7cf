"""The clean-up of one ring that is being deleted: whether the labels are gone, and when to stop trying. Sans-IO.

The caller reports how many objects of each resource carried the shard label when it was read. The clean-up is over

* when every resource was read without an error, and none had any, by reads that began `SETTLED` seconds after the
  clean-up, when every replica's webhook has seen that the ring is being deleted; or
* when it has made no progress for `PATIENCE` seconds: no resource had fewer than ever before, and none was read for the
  first time. So a shard that does not release its objects, a missing right, or another sharder that assigns them again
  cannot keep a ring, and the time is bounded by the number of objects and not by what fails. A process that begins to
  lead has not seen any progress: its patience begins when it asks for the state first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from enum import Enum, auto
from typing import NamedTuple

from kubeshard.core.kinds import GroupResource

SETTLED = 5.0
PATIENCE = 300.0
NAMED = 5
"""Shards that are named as those with objects left."""


class CleanUpState(Enum):
    UNDER_WAY = auto()
    CLEAN = auto()
    GIVEN_UP = auto()


class _Read(NamedTuple):
    began: float
    holders: Mapping[str, int]

    @property
    def left(self) -> int:
        return sum(self.holders.values())


class CleanUp:
    """See the module. All times are monotonic seconds; `began`: when this process first saw that the ring is being
    deleted.
    """

    def __init__(self, began: float) -> None:
        self._began = began
        self._progress: float | None = None
        """When there was some; None if nobody has read or asked yet."""
        self._reads: dict[GroupResource, _Read] = {}
        self._fewest: dict[GroupResource, int] = {}

    def found(self, resource: GroupResource, holders: Mapping[str, int], began: float, now: float) -> None:
        """The resource was read completely by a read that began then: the number of objects by shard."""
        read = self._reads[resource] = _Read(began, dict(holders))
        if resource not in self._fewest or read.left < self._fewest[resource]:
            self._fewest[resource] = read.left
            self._progress = now

    def state(self, resources: Collection[GroupResource], now: float) -> CleanUpState:
        """Whether it is over, for a ring with these resources."""
        if now - self._began >= SETTLED and all(self._is_clean(each) for each in resources):
            return CleanUpState.CLEAN
        if self._progress is None:
            self._progress = now
        if now - self._progress >= PATIENCE:
            return CleanUpState.GIVEN_UP
        return CleanUpState.UNDER_WAY

    def left(self, resources: Collection[GroupResource]) -> str:
        """What is left, in words; "" if nothing is."""
        unread = sorted(str(each) for each in resources if each not in self._reads)
        objects, shards = dict[GroupResource, int](), Counter[str]()
        for resource in resources:
            if (read := self._reads.get(resource)) is not None and read.left:
                objects[resource] = read.left
                shards.update(read.holders)
        parts = [f"{count} {resource}" for resource, count in sorted(objects.items())]
        text = f"{', '.join(parts)} with shards {_named(shards)}" if parts else ""
        return "; ".join(filter(None, (text, f"not read yet: {', '.join(unread)}" if unread else "")))

    def _is_clean(self, resource: GroupResource) -> bool:
        read = self._reads.get(resource)
        return read is not None and read.began - self._began >= SETTLED and not read.left


def _named(shards: Counter[str]) -> str:
    most = [name or "(none)" for name, _ in shards.most_common(NAMED)]
    return ", ".join(sorted(most)) + (", ..." if len(shards) > NAMED else "")
