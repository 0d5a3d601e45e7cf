"""The metrics of rings, shards and the webhook that assigns objects."""

from __future__ import annotations

from kubeshard.metrics.definition import table

RINGS = table(
    "sharder",
    (
        "controller_sharding_movements_total",
        "counter",
        "controllerring group resource",
        "Objects whose shard label the sharder changed.",
    ),
    (
        "controller_sharding_drains_total",
        "counter",
        "controllerring group resource",
        "Objects that the sharder asked their shard to drain.",
    ),
    (
        "controller_sharding_late_assignments_total",
        "counter",
        "controllerring group resource",
        "Objects missed by the webhook that the sharder found unassigned and assigned to a shard.",
    ),
    (
        "controller_sharding_takeovers_total",
        "counter",
        "controllerring",
        "Leases taken over from shards that did not renew them.",
    ),
    ("controller_sharding_ring_calculations_total", "counter", "controllerring", "Hash rings calculated."),
    (
        "controller_sharding_move_failures_total",
        "counter",
        "controllerring group resource reason",
        "Movements and drains that failed for one object.",
    ),
    (
        "controller_sharding_crashes_total",
        "counter",
        "controllerring group resource part",
        "Unexpected exceptions (bugs) of a part of the sharder, which started again.",
    ),
    (
        "controller_sharding_drains_pending",
        "gauge",
        "controllerring group resource",
        "Objects with the drain label, as of the last resync.",
    ),
    (
        "controller_sharding_oldest_drain_seconds",
        "gauge",
        "controllerring",
        "Age of the oldest pending drain, as of the last resync.",
    ),
    (
        "controller_sharding_objects_unassigned",
        "gauge",
        "controllerring group resource",
        "Objects without an available shard that could not be assigned one, as of the last resync.",
    ),
    (
        "controller_sharding_oldest_unassigned_seconds",
        "gauge",
        "controllerring",
        "Time since the first of these objects was found unassigned, as of the last resync.",
    ),
    (
        "controller_sharding_resync_duration_seconds",
        "histogram",
        "scope",
        "Duration of resyncs of one resource of a ring.",
    ),
    (
        "controller_sharding_assignments_total",
        "counter",
        "controllerring group resource",
        "Objects assigned to a shard by the webhook.",
    ),
    (
        "controller_sharding_webhook_unassigned_total",
        "counter",
        "controllerring reason",
        "Objects that the webhook let through without a shard although they may need one.",
    ),
    (
        "controller_sharding_webhook_restored_total",
        "counter",
        "controllerring",
        "Shard labels that the webhook restored.",
    ),
    (
        "controller_sharding_webhook_unreached",
        "gauge",
        "controllerring",
        "Whether dry runs show that the API server does not call the ring's webhook.",
    ),
    (
        "controller_sharding_shards_failing_together",
        "gauge",
        "controllerring",
        "Shards that failed at about the same time, while their Leases are not taken over because of that.",
    ),
    (
        "controller_sharding_controllerring_metadata_generation",
        "gauge",
        "controllerring uid",
        "The ring's generation.",
    ),
    (
        "controller_sharding_controllerring_observed_generation",
        "gauge",
        "controllerring uid",
        "Generation last reconciled.",
    ),
    (
        "controller_sharding_controllerring_status_shards",
        "gauge",
        "controllerring uid",
        "Shards of the ring.",
    ),
    (
        "controller_sharding_controllerring_status_available_shards",
        "gauge",
        "controllerring uid",
        "Available shards.",
    ),
    (
        "controller_sharding_shard_info",
        "gauge",
        "namespace shard controllerring uid",
        "Information about a shard.",
    ),
    (
        "controller_sharding_shard_state",
        "gauge",
        "namespace shard controllerring state",
        "The shard's state label.",
    ),
)

SHARDS = table(
    "shard",
    (
        "controller_sharding_lease_held",
        "gauge",
        "controllerring shard",
        "Whether this shard holds its Lease.",
    ),
    (
        "controller_sharding_lease_margin_seconds",
        "gauge",
        "controllerring shard",
        "How long this shard may keep working without renewing its Lease.",
    ),
    (
        "controller_sharding_lease_renewals_total",
        "counter",
        "controllerring shard",
        "How often the Lease was acquired or renewed.",
    ),
    (
        "controller_sharding_lease_renewal_failures_total",
        "counter",
        "controllerring shard reason",
        "Failed requests for the Lease, and times when the process was unfit to renew it.",
    ),
    (
        "controller_sharding_refused_writes_total",
        "counter",
        "controllerring by",
        "Writes rejected because the shard no longer owned the object or its time to write was over.",
    ),
    (
        "controller_sharding_unfenced_writes_total",
        "counter",
        "controllerring",
        "Writes that were explicitly exempted from proving ownership of the object.",
    ),
    (
        "controller_sharding_drains_acknowledged_total",
        "counter",
        "controllerring group resource",
        "Objects that this shard released on request.",
    ),
    (
        "controller_sharding_drain_acknowledgement_seconds",
        "histogram",
        "controllerring group resource",
        "Time from the request to release an object until this shard released it.",
    ),
)

WEBHOOKS = table(
    "sharder",
    (
        "controller_runtime_webhook_requests_total",
        "counter",
        "webhook code",
        "Total number of admission requests by HTTP status code.",
    ),
    (
        "controller_runtime_webhook_latency_seconds",
        "histogram",
        "webhook",
        "Histogram of the latency of processing admission requests.",
    ),
    (
        "controller_runtime_webhook_requests_in_flight",
        "gauge",
        "webhook",
        "Current number of admission requests being served.",
    ),
    (
        "controller_runtime_webhook_panics_total",
        "counter",
        "",
        "Total number of exceptions of webhook handlers.",
    ),
    ("certwatcher_read_certificate_total", "counter", "", "Reads of a certificate."),
    (
        "certwatcher_read_certificate_errors_total",
        "counter",
        "",
        "Reads that did not yield a usable certificate.",
    ),
    ("cert_not_after", "gauge", "", "End of validity of the served certificate, seconds since the epoch."),
)
