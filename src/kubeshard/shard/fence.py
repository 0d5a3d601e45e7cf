"""The proof in every write of a shard: the Lease has not expired, and the object is still ours.

The client does the work (`Client.fenced`): it adds to each write of a sharded kind the condition that the API
server checks in the same transaction: the resourceVersion of an object that had our label, or a `test` of the
label itself. This module decides what is sharded and until when.
"""

from __future__ import annotations

from collections.abc import Callable, Container

from kubeshard.core.kinds import GroupResource, Kind
from kubeshard.shard.identity import ShardIdentity


class ShardFence:
    """The `kubeshard.client.fence.Fence` of one shard. `check` is `HeldShardLease.check`, or anything else that raises
    NotOurs in time.
    """

    def __init__(
        self, shard: ShardIdentity, resources: Container[GroupResource], check: Callable[[], None]
    ) -> None:
        self.label_key = shard.label
        self.shard = shard.name
        self._resources = resources
        self._check = check

    def covers(self, kind: Kind) -> bool:
        """Whether the ring shards the kind, as a main or a controlled resource, in any version."""
        return kind.group_resource in self._resources

    def check(self) -> None:
        """Raises NotOurs once no write may start any more."""
        self._check()
