"""The pure logic of sharding: hash ring, keys, shard states, names on the wire, the ControllerRing type
and the planner.

Guaranteed: everything here is a function of its arguments; the same available shards and the same object
give the same decision in every process, and the same assignment as the reference. No I/O, no
clocks, no controllers.
"""

from kubeshard.sharding.api import (
    ControllerRing,
    ControllerRingSpec,
    ControllerRingStatus,
    RingGroupResource,
    RingResource,
)
from kubeshard.sharding.classification import Problem, ResourceNotInRing, RingEntry, RingResources
from kubeshard.sharding.hash_ring import HashRing, ring_of
from kubeshard.sharding.keys import GeneratedName, KeyRefused, controlled_key, main_key
from kubeshard.sharding.leases import LeaseBook, LeaseTimes, Shard, ShardChange, ShardState, state_of
from kubeshard.sharding.names import (
    RING_LABEL,
    SHARDER_IDENTITY,
    STATE_LABEL,
    SYSTEM_NAMESPACE,
    drain_label,
    shard_label,
    webhook_config_name,
    webhook_path,
)
from kubeshard.sharding.planner import Action, Decision, RingView, hash_key, plan

__all__ = [
    "RING_LABEL",
    "SHARDER_IDENTITY",
    "STATE_LABEL",
    "SYSTEM_NAMESPACE",
    "Action",
    "ControllerRing",
    "ControllerRingSpec",
    "ControllerRingStatus",
    "Decision",
    "GeneratedName",
    "HashRing",
    "KeyRefused",
    "LeaseBook",
    "LeaseTimes",
    "Problem",
    "ResourceNotInRing",
    "RingEntry",
    "RingGroupResource",
    "RingResource",
    "RingResources",
    "RingView",
    "Shard",
    "ShardChange",
    "ShardState",
    "controlled_key",
    "drain_label",
    "hash_key",
    "main_key",
    "plan",
    "ring_of",
    "shard_label",
    "state_of",
    "webhook_config_name",
    "webhook_path",
]
