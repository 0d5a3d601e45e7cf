"""What must hold in a simulation: each property once, as data.

Oracles judge them while a run lasts: those in `OF_RINGS` for the Things of a ring (`ring_oracles`), those in
`OF_OPERATORS` for an author's operator (`operators.oracles`). docs/reliability.md says who else judges what, and why
there are several.

Exceptions that cannot be avoided: for a minute after etcd was restored, labels may name former owners, and only labels;
a reconcile that began before that, and ignores its cancellation, may overlap with others until it ends; where no
webhook is called, a user may take an object from its shard, for a minute; and a child may be created for an object that
was deleted and created again a moment ago, or that was brought back by a restore, for a minute.

By ranges, a user takes objects from a shard who edits the assignment at a greater epoch than it knows. Each of its
processes may begin and send what it likes until it knows, and what it has begun by then may go on until it ends.

Bounds that follow from facts of the product are computed from it, here and nowhere else. The checker of the history
writes its own out, and says why.
"""

from __future__ import annotations

from dataclasses import dataclass

from kubeshard.controller.run import YOUNG
from kubeshard.listwatch.reflector import READ_DEADLINE
from kubeshard.runtime.transport import UNDELIVERED
from kubeshard.shard.timing import LeaseTiming
from kubeshard.sharding import take_overs
from kubeshard.sharding.names import MASS_FAILURE_GRACE, SHORTEST_DRAIN_TIMEOUT
from kubeshard.sharding.shard_states import STALE_AFTER
from kubeshard.sharding.waiting import ASSIGNMENT_DELAY

_TIMING = LeaseTiming()

FASTEST = 1.05
"""How many seconds pass in a second by the fastest clock."""
AMNESTY = 60.0
"""The length of the grace period after a restore, and after a user changed a shard label, in seconds."""
UNDER_WAY = 40.0
"""How many seconds a request may take to arrive, at most."""
RIGHT = _TIMING.renew_deadline
"""How many seconds after the beginning of its last renewal a process may act."""
STALE = _TIMING.lease_duration
"""How many seconds after its last renewal a Lease is held."""
REJOINED = 2 * STALE / (2 - FASTEST)
"""For how many seconds a process waits for a former one of its name that may still live, by a slow clock."""
LANDS_WITHIN = UNDELIVERED + _TIMING.request_bound
"""How many seconds after its time limit a request may still take effect: 4 in the kernel, 5 in the server."""
SEEN = 15.0
"""How many seconds may pass until a sharder has seen that a shard is back, or has moved its objects."""
UNHEARD = READ_DEADLINE + SEEN
"""Seconds for which a sharder may not have heard of a ring: its watch is silent until it is given up."""
OVERDUE = (SHORTEST_DRAIN_TIMEOUT - 2.0) / FASTEST
"""How many seconds a shard has at least to release an object before a sharder evicts it."""
RELEASED = REJOINED + LANDS_WITHIN
"""Seconds for which a released object may still lead to an eviction: seen late, written late."""
LEFT_FOR = MASS_FAILURE_GRACE + (take_overs.PARTS - 1) * take_overs.EVERY
"""For how many seconds more shards that fail together may be waited for, until the last of them is given up."""
QUIET = 60.0
"""For how many seconds the cluster is watched in the end."""


@dataclass(frozen=True, slots=True)
class Property:
    """`notices`: when it does not hold. `sees`: what it takes to judge. `bound`: how far it may go, as `of` says."""

    name: str
    notices: str
    sees: str
    bound: float = 0.0
    of: str = ""


STALE_WRITE = Property(
    "stale write",
    "a write by a shard that takes effect on an object, or on the child of one, that is not the shard's",
    "writes and what they store",
    LANDS_WITHIN,
    "seconds after its time limit at which a write to a child is not judged any more, but counted: the API server has "
    "nothing to compare it with (docs/design/labels.md#the-label-is-the-fence)",
)
FORMER_PROCESS = Property(
    "former process",
    "a write of a dead process that takes effect after its successor of the same name has begun with the object",
    "reconciles, and writes to main objects",
)
OVERLAP = Property(
    "overlap",
    "two processes at work on one object (one UID), unless the kernel has ended one of them",
    "reconciles",
)
NOT_OURS = Property(
    "not ours",
    "a process that begins with an object that it has released, or that was taken from it",
    "reconciles, and shard labels",
)
STALE_READ = Property(
    "stale read",
    "a reconcile that begins with its object as it was before it came to this shard, or before a write by a reconcile "
    "of the same controller in the same process; a child with a generated name that is created while the cache lacks "
    "an earlier one",
    "reconciles, writes and caches",
)
EXPIRED = Property(
    "expired",
    "a request for an object that a process sends after its right to act has ended, by a clock that stands still with "
    "its machine",
    "requests and renewals",
    RIGHT,
    "seconds since its last renewal began",
)
MISSED_CHILD = Property(
    "missed child",
    "a shard that creates a child of its object which another one has created",
    "creates as they reach the API server",
    YOUNG + UNDER_WAY,
    "seconds: of a younger object, a shard may guess that it has no children, and its creates are refused",
)
TAKEN_ALIVE = Property(
    "taken alive",
    "a sharder that takes an object from a live shard which works on it and was not asked to release it",
    "shard and drain labels, and reconciles",
)
PARTED = Property(
    "parted",
    "a sharder that takes a child from a live shard which has the child's owner",
    "shard labels, and what sharders read",
    1.0,
    "seconds before it moves a child in which a sharder has read where the owner is: nothing that is written to one "
    "object depends on another one",
)
DEAD_TARGET = Property(
    "dead target",
    "an object that a sharder or its webhook gives to a shard that has held no Lease for a while",
    "shard labels and Leases",
    STALE,
    "seconds without a Lease",
)
HASTY = Property(
    "hasty",
    "an object whose label a user removed, and that a sharder gives to another shard before its own could take it back",
    "shard labels",
    ASSIGNMENT_DELAY - 0.1,
    "seconds since it lost its label",
)
NOT_RESTORED = Property(
    "not restored",
    "a shard label that a user dropped in an update which a webhook has seen, and that is gone afterwards",
    "what users replace",
    STALE_AFTER,
    "seconds for which the shard has held its Lease: webhooks may not have heard of it before",
)
LIVE_LEASE = Property(
    "live Lease",
    "a Lease that a sharder takes over or deletes although it was renewed a moment ago; not if the kubelet says that "
    "its process has ended, nor if it is taken from a shard that does not release an object",
    "Leases and drains",
    2 * STALE / FASTEST,
    "seconds since it was renewed",
)
HUNG = Property(
    "hung",
    "a process that renews its Lease although its main loop is blocked",
    "Leases and processes",
    3.0,
    "seconds since it was blocked. It may acquire a Lease, and repeat that until it hears that it has: from then on a "
    "watchdog ends it",
)
RELEASED_AT_WORK = Property(
    "released at work",
    "a process that releases its Lease while it works on an object",
    "Leases and reconciles",
)
STALE_LEADER = Property(
    "stale leader",
    "a write that a reconcile sends while another instance leads",
    "writes, and the Leases of elections",
)
CRASH = Property(
    "crash",
    "a process that ends with an error, or a logged traceback that is not a reconcile's",
    "processes and logs",
)
NOT_OWNED = Property(
    "not owned",
    "an object that has no live shard in the end, or is still being drained",
    "the end",
    60.0,
    f"seconds since the last fault; {LEFT_FOR:g} more if most shards, and at least three, failed together. Where "
    f"shards share out, and none of them acts: since one does, {REJOINED:.0f} seconds after the last fault at most",
)
NOT_SETTLED = Property(
    "not settled",
    "an object, or a child, that is not in the end where the hash ring wants it, or was not reconciled at its last "
    "version",
    "the end",
    120.0,
    "seconds since the last fault",
)
MOVED = Property("moved", "with the fault `renewals_refused`: an object that changes hands", "shard labels")
LATE_TAKE_OVER = Property(
    "late take-over",
    "with the fault `container_ended`: a Lease that is not taken soon",
    "Leases",
    8.0,
    "seconds since the shard died",
)
UNNEEDED_WRITE = Property(
    "unneeded write",
    "by ranges, a write to an object that no reconcile of it has decided on; but for the label of a controlled object "
    "that somebody else left out, or has changed",
    "writes and reconciles",
)
NEGLECTED = Property(
    "neglected",
    "with the fault `no_coordinator`: an object that is not worked on after a user has created or changed it",
    "reconciles",
    15.0,
    "seconds",
)
ALWAYS = Property("always", "an invariant of yours that a write breaks", "every write")
EVENTUALLY = Property("eventually", "an invariant of yours that does not hold in the end", "the end")
FORGOTTEN = Property(
    "forgotten",
    "an object that, once all faults are over, is not reconciled at its last generation, or was deleted and is still "
    "there",
    "reconciles, and the end",
    240.0,
    "seconds since the last fault: a new leader may have to be elected, and failed reconciles back off for a minute",
)
ENDLESS_WRITES = Property(
    "endless writes",
    "writes although nothing changes any more",
    "the end",
    4,
    f"writes of one object in {QUIET:g} s",
)
HOT_LOOP = Property(
    "hot loop",
    "many reconciles although nothing changes any more",
    "the end",
    30,
    f"reconciles of one object in {QUIET:g} s: a `requeue_after` of some seconds is none",
)

OF_BOTH = (STALE_WRITE, OVERLAP, STALE_READ, CRASH)
OF_OBJECTS = (FORMER_PROCESS, NOT_OURS, EXPIRED, MISSED_CHILD, TAKEN_ALIVE, PARTED, HASTY, NOT_RESTORED)
OF_LEASES = (DEAD_TARGET, LIVE_LEASE, HUNG, RELEASED_AT_WORK, LATE_TAKE_OVER)
OF_RINGS = (*OF_BOTH, *OF_OBJECTS, *OF_LEASES, NOT_OWNED, NOT_SETTLED, MOVED, UNNEEDED_WRITE, NEGLECTED)
OF_OPERATORS = (*OF_BOTH, STALE_LEADER, ALWAYS, EVENTUALLY, FORGOTTEN, ENDLESS_WRITES, HOT_LOOP)
