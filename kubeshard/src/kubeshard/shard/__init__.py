"""The shard library: an instance of a controller that reconciles a part of all objects.

Three ways to use it:

- one argument: `Manager(controllers=[...], sharding=Sharding(ring="my-ring"))`;
- the parts, with another loop or framework: `identify`, `ShardLease`, `reclaim`, `ShardFence`
  (`docs/shard-in-any-language.md` shows how they fit together);
- no Python at all: the same page is the protocol, request by request.

Guaranteed: no write of this process takes effect on an object whose label names another shard, as far as the
API server can check it (`ShardFence`); no write starts after the Lease's deadline, and a process that cannot ensure
that is killed by the kernel (`shard_lease`); an object is released only when nothing in the process works on it
(`handover`).

Not covered: effects outside the API server while the whole virtual machine is paused; other programs that write the
same objects with another ServiceAccount; aggregated API servers without generic admission.
"""

from kubeshard.shard.identity import ShardIdentity, identify
from kubeshard.shard.range_work import OwnedRanges, work_by_ranges
from kubeshard.shard.reclaiming import reclaim
from kubeshard.shard.settings import DeclaredRing, LeaseTerms, Ranges, SharderSettings
from kubeshard.shard.shard_lease import HeldShardLease, ShardFence, ShardLease, Takeover
from kubeshard.shard.sharding import Sharding
from kubeshard.shard.timing import LeaseTiming, scaled
from kubeshard.sharding.api import RingResource

__all__ = [
    "DeclaredRing",
    "HeldShardLease",
    "LeaseTerms",
    "LeaseTiming",
    "OwnedRanges",
    "Ranges",
    "RingResource",
    "ShardFence",
    "ShardIdentity",
    "ShardLease",
    "SharderSettings",
    "Sharding",
    "Takeover",
    "identify",
    "reclaim",
    "scaled",
    "work_by_ranges",
]
