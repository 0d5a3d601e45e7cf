"""The well-known strings of the wire contract.

Guaranteed: two sharders that agree on a ring's name agree on every string made here. A ring's name is at
most 63 characters (the CRD sees to it), so the label keys are valid; shard names are checked where Leases
are judged (`leases`).
"""

from __future__ import annotations

SYSTEM_NAMESPACE = "sharding-system"

APP_LABEL = "app.kubernetes.io/name"
APP_NAME = "controller-sharding"

RING_LABEL = "alpha.sharding.timebertt.dev/controllerring"
"""On Leases: which ring the shard belongs to. On MutatingWebhookConfigurations: which ring they serve."""

STATE_LABEL = "alpha.sharding.timebertt.dev/state"
"""On Leases, for people and dashboards. No decision reads it."""

SHARDER_IDENTITY = "shardlease-controller"
"""The holder of a Lease that a sharder took from a shard."""

SHARD_LABEL_PREFIX = "shard.alpha.sharding.timebertt.dev/"
DRAIN_LABEL_PREFIX = "drain.alpha.sharding.timebertt.dev/"

DRAIN_VALUE = "true"
"""What a sharder writes; readers only ask whether the label is present."""

WEBHOOK_NAME = "sharder.sharding.timebertt.dev"
WEBHOOK_PATH_PREFIX = "/webhooks/sharder/controllerring/"
WEBHOOK_PORT = 9443

MAX_RING_NAME = 63

SYNC_PERIOD = 300.0
"""Seconds between full looks of a sharder at the objects of a ring, unless it is configured otherwise."""
CONCURRENT_MOVES = 100
"""How many objects one look at one resource moves concurrently, unless it is configured otherwise."""


def shard_label(ring: str) -> str:
    """Key of the label that names an object's shard."""
    return SHARD_LABEL_PREFIX + ring


def drain_label(ring: str) -> str:
    """Key of the label that asks an object's shard to let go."""
    return DRAIN_LABEL_PREFIX + ring


def webhook_config_name(ring: str) -> str:
    """Name of the ring's MutatingWebhookConfiguration."""
    return f"controllerring-{ring}"


def webhook_path(ring: str) -> str:
    """Path at which the sharder's webhook server answers for the ring."""
    return WEBHOOK_PATH_PREFIX + ring


def ring_of_webhook_path(path: str) -> str:
    """The ring's name; the opposite of `webhook_path`. Raises ValueError with the protocol's message for
    any other path.
    """
    ring = path.removeprefix(WEBHOOK_PATH_PREFIX)
    if ring == path or not ring:
        raise ValueError(f"unexpected request path: {path}")
    return ring
