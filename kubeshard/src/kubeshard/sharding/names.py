"""The well-known strings of the wire contract.

Guaranteed: two sharders that agree on a ring's name agree on every string generated here. A ring's name is at most 63
characters (the CRD ensures that), so the label keys are valid; `shard.identity` refuses a shard name
that is no valid label, and `shard_states` leaves out Leases with one.
"""

from __future__ import annotations

SYSTEM_NAMESPACE = "sharding-system"

APP_LABEL = "app.kubernetes.io/name"
APP_NAME = "controller-sharding"

RING_LABEL = "alpha.sharding.timebertt.dev/controllerring"
"""The label of Leases with the ring that the shard belongs to, and of MutatingWebhookConfigurations with the ring that
they serve.
"""

SYSTEM_NAMESPACES_ANNOTATION = "alpha.sharding.timebertt.dev/system-namespaces"
"""The annotation of a ControllerRing that confirms which system namespaces it selects, separated by commas."""

SHARDER_ANNOTATION = "alpha.sharding.timebertt.dev/sharder"
"""The annotation of a ring's MutatingWebhookConfiguration with the sharder that keeps it, by the namespace and name of
its election: that of another installation leaves it alone while this one lives. The reference ignores it.
"""

SELECTOR_ANNOTATION = "alpha.sharding.timebertt.dev/namespace-selector"
"""The annotation of the same with the `namespaceSelector` that the sharder applied: what is there beyond it was added
by others.
"""

STATE_LABEL = "alpha.sharding.timebertt.dev/state"
"""The label of Leases with the shard's state, for people and dashboards. Not used for decisions."""

INCARNATION_ANNOTATION = "alpha.sharding.timebertt.dev/incarnation"
"""The annotation of Leases with the process that acts under the shard's name. The reference's shards do not write it.
Shards that do have their name as field manager of acknowledgements.
"""

SHARD_NAMESPACES_ANNOTATION = "alpha.sharding.timebertt.dev/shard-namespaces"
"""The annotation of a ControllerRing with the namespaces of its shards' Leases, separated by commas. Without it they
may be anywhere. The reference ignores it.
"""

DELIVERY_ANNOTATION = "alpha.sharding.timebertt.dev/delivery"
"""The annotation of a ControllerRing whose objects reach its shards by hash ranges, not by labels: `Ranges`, or
`Ranges namespace/512` if its shards divide them differently. The sharder service then coordinates these, and has no
webhook for the ring. `SHARD_NAMESPACES_ANNOTATION` has to name one namespace. The reference ignores it.
"""

CLEAN_UP_FINALIZER = "alpha.sharding.timebertt.dev/clean-up"
"""The finalizer of a ControllerRing whose objects lose the ring's labels before it is gone. Its author sets it; the
sharder service removes it. The reference ignores it.
"""

SHARDER_FIELD_MANAGER = "sharder"
"""The field manager of a sharder's writes to objects; the reference's has it by the name of its program. Webhook and
shards know by it that a shard label was changed by a sharder.
"""

SHARDER_IDENTITY = "shardlease-controller"
"""The holder of a Lease that a sharder took over from a shard."""

PROOFS_ANNOTATION = "alpha.sharding.timebertt.dev/taken-with-proofs"
"""On a Lease that kubeshard's sharder took from a shard, with the number of its transitions then: it takes no object
from the shard without a proof that the Lease is not held, so the shard may take the Lease back at once. The Go sharder
neither writes nor removes it, but changes the number of transitions.
"""
REPORTED_SUFFIX = "/reported"
"""Ends the value if the Lease had not expired, and the kubelet had reported that the shard's containers have ended: the
last writes of the process may still take effect, so its successor waits for them.
"""

EVICTED_ANNOTATION = "alpha.sharding.timebertt.dev/evicted"
"""On a Lease that kubeshard's sharder took from a shard that was alive, with the number of its transitions then. The
shard counts as alive until the duration in the record is over, although it holds the Lease no more: it may still act
until it notices. The Go sharder does not know that; it neither writes nor removes the annotation, but changes the
number of transitions.
"""

STRICT_HANDOVER_ANNOTATION = "alpha.sharding.timebertt.dev/strict-handover"
"""The annotation of a ControllerRing whose objects leave a dead shard only when it is confirmed that its process has
ended (`confirmations`): `true`, or for how long they wait at most, such as `30m`. The reference ignores it.
"""

CONFIRMED_ANNOTATION = "alpha.sharding.timebertt.dev/confirmed-ended"
"""On a Lease that a sharder took, once it is confirmed that its former holder has ended: the number of its transitions
then, a slash, and who confirmed it. Go sharders neither write nor remove it, but change the number of transitions.
"""

WATCHDOG_ANNOTATION = "alpha.sharding.timebertt.dev/watchdog"
"""On the Lease of a shard whose watchdog is armed: how many seconds after a renewal it ends the process. For people:
a process that was ended says nothing. Not used for decisions; shards in Go do not have it.
"""

UNRELEASED_ANNOTATION = "alpha.sharding.timebertt.dev/unreleased"
"""On the Lease of a shard that cannot release objects because the API server refuses it: its answer, and the objects.
For people, who find it in a condition of the ring. Not used for decisions; shards in Go do not have it.
"""

OWNED_RANGES_ANNOTATION = "alpha.sharding.timebertt.dev/owned-ranges"
"""On the Lease of a shard of a ring that is sharded by ranges: what it works on (`assignment.Report`), written with the
renewals. From these the coordinator writes an assignment anew that was deleted or edited. What is written without a
renewal counts with the next one (`shard_states.Shard`), and so does what the following annotations say.
"""

WEIGHT_ANNOTATION = "alpha.sharding.timebertt.dev/weight"
"""On the same: how much the shard gets, as a number in proportion to the others'. Without it 1; with 0 nothing."""

LEAVING_ANNOTATION = "alpha.sharding.timebertt.dev/leaving"
"""On the same: `true` while the shard stops and its last work takes long. Others get what nothing works on any more."""

PINNED_ANNOTATION = "alpha.sharding.timebertt.dev/pinned"
"""On the same: what the shard gets in any case, whatever its weight, separated by commas: namespaces in a ring by
namespaces, uids of objects in one by uids, clusters in one by clusters. The rest of their buckets comes along.
"""

CLUSTERS_ANNOTATION = "alpha.sharding.timebertt.dev/clusters"
"""On the same, in a ring by clusters: the names of all clusters that the shard's program has, separated by commas; or
if these are too long, `buckets:` and the buckets of all, in their order, such as `0004-0004,0031-0039`.
"""

UNREACHABLE_ANNOTATION = "alpha.sharding.timebertt.dev/unreachable"
"""On the same, in a ring by clusters: the clusters that the shard cannot reach, as above. Another one gets them, unless
all say so. A shard that has handed one over says so for some time, which doubles when it was the same again.
"""

KINDS_ANNOTATION = "alpha.sharding.timebertt.dev/kinds"
"""On the same: the primary kinds of the controllers of the shard's program, as resources, separated by commas. Shards
with none in common do not share out buckets. Without it, the shard is taken to work on all of them.
"""

SHARDER_LABEL = "alpha.sharding.timebertt.dev/sharder"
"""The label of the Lease of a sharder inside an operator, `sharder-<ring>`, with its ring. For people and tools."""

DECLARED_RING_ANNOTATION = "alpha.sharding.timebertt.dev/declared-ring"
"""On that Lease: what the operator declares as sharded, as the ControllerRing that would say the same, in JSON. For
people and tools, where there is no ControllerRing. Absent if the objects are in another cluster than the Leases.
"""

SHARD_LABEL_PREFIX = "shard.alpha.sharding.timebertt.dev/"
DRAIN_LABEL_PREFIX = "drain.alpha.sharding.timebertt.dev/"
BUCKET_LABEL_PREFIX = "bucket.alpha.sharding.timebertt.dev/"

DRAIN_VALUE = "true"
"""The value that a sharder writes; readers only check whether the label is present."""

WEBHOOK_NAME = "sharder.sharding.timebertt.dev"
WEBHOOK_PATH_PREFIX = "/webhooks/sharder/controllerring/"
WEBHOOK_PORT = 9443

RETURNING = "returning"
"""The value of the drain label of an object that its own shard has marked for a moment, to have all earlier moves of it
refused: it will keep the object.
"""
TAKEN = "taken"
"""The value of the drain label of an object that a sharder is about to take from a dead shard by a test of its labels.
Shards ignore the value: a live one releases the object, and one that is back removes the label.
"""
MAX_RING_NAME = 63

SYNC_PERIOD = 300.0
"""Default seconds between a sharder's full resyncs of the objects of a ring."""
CONCURRENT_MOVES = 100
"""The default number of objects that a resync of one resource moves concurrently."""
SHORTEST_DRAIN_TIMEOUT = 60.0
"""A drain that is pending for so many seconds is stuck: a shard is not evicted earlier."""
MASS_FAILURE_GRACE = 45.0
"""Default seconds for which shards are not given up when many of a ring fail at once (`take_overs`): longer than a
process that is restarted under its name may wait for its predecessor's Lease, which is twice a lease duration.
"""


def shard_label(ring: str) -> str:
    """Key of the label with an object's shard."""
    return SHARD_LABEL_PREFIX + ring


def drain_label(ring: str) -> str:
    """Key of the label that asks an object's shard to release it."""
    return DRAIN_LABEL_PREFIX + ring


def bucket_label(ring: str) -> str:
    """Key of the label of a controlled object with its owner's bucket, in a ring that is sharded by ranges of uids."""
    return BUCKET_LABEL_PREFIX + ring


def pod_of_process(shard: str) -> str:
    """The name of the pod, if the shard's is that of one of several processes in a pod, as `pod-0`; otherwise ""."""
    pod, _, number = shard.rpartition("-")
    return pod if number.isdecimal() else ""


def assignment_name(ring: str) -> str:
    """Name of the ConfigMap with the ring's assignment by ranges (`assignment`), next to the shards' Leases. It has the
    label `RING_LABEL`.
    """
    return f"ranges-{ring}"


def inside_election(ring: str) -> str:
    """Name of the Lease of the ring's sharder, if that is inside its operator."""
    return f"sharder-{ring}"


def webhook_config_name(ring: str) -> str:
    """Name of the ring's MutatingWebhookConfiguration."""
    return f"controllerring-{ring}"


def webhook_path(ring: str) -> str:
    """Path of the ring at the sharder's webhook server."""
    return WEBHOOK_PATH_PREFIX + ring


def ring_of_webhook_path(path: str) -> str:
    """The ring's name; the inverse of `webhook_path`. Raises ValueError with the protocol's message for
    any other path.
    """
    ring = path.removeprefix(WEBHOOK_PATH_PREFIX)
    if ring == path or not ring:
        raise ValueError(f"unexpected request path: {path}")
    return ring
