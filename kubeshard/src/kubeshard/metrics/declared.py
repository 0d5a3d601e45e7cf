"""All declared metrics: of rings, shards and the assigning webhook, and of every process that runs controllers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple, get_args

Type = Literal["counter", "gauge", "histogram"]
Side = Literal["sharder", "shard", "both"]
_TYPES: Mapping[str, Type] = {each: each for each in get_args(Type)}


class Definition(NamedTuple):
    """A metric. A counter's name ends in `_total`; a histogram has the series `_bucket`, `_sum` and `_count`."""

    name: str
    type: Type
    labels: tuple[str, ...]
    side: Side
    """The side that exposes it, even if only some of its processes do (a leader, one with async handlers)."""
    about: str

    @property
    def samples(self) -> tuple[str, ...]:
        if self.type == "histogram":
            return tuple(f"{self.name}_{part}" for part in ("bucket", "sum", "count"))
        return (self.name,)

    @property
    def unit(self) -> str:
        """The unit: `seconds`, `bytes`, or "" for a plain number."""
        base = self.name.removesuffix("_total")
        return next((unit for unit in ("seconds", "bytes") if base.endswith(f"_{unit}")), "")


def table(side: Side, text: str) -> tuple[Definition, ...]:
    """Definitions from a text: for each metric a line `NAME: TYPE by LABEL LABEL ...`, and indented lines that say what
    it means. Raises KeyError for another type.
    """
    found = []
    for block in re.split(r"\n(?=\S)", text.strip()):
        head, about = block.split("\n", 1)
        name, _, kind = head.partition(": ")
        type_, _, labels = kind.partition(" by ")
        found.append(Definition(name, _TYPES[type_], tuple(labels.split()), side, " ".join(about.split())))
    return tuple(found)


RINGS = table(
    "sharder",
    """
controller_sharding_movements_total: counter by controllerring group resource
    Objects whose shard label the sharder changed.
controller_sharding_drains_total: counter by controllerring group resource
    Objects that the sharder asked their shard to drain.
controller_sharding_late_assignments_total: counter by controllerring group resource
    Objects missed by the webhook that the sharder found unassigned and assigned to a shard.
controller_sharding_takeovers_total: counter by controllerring
    Leases taken over from shards that did not renew them.
controller_sharding_evictions_total: counter by controllerring
    Leases taken over from shards that were alive, but did not release objects.
controller_sharding_ring_calculations_total: counter by controllerring
    Hash rings calculated.
controller_sharding_move_failures_total: counter by controllerring group resource reason
    Movements and drains that failed for one object.
controller_sharding_crashes_total: counter by controllerring group resource part
    Unexpected exceptions (bugs) of a part of the sharder, which started again.
controller_sharding_drains_pending: gauge by controllerring group resource
    Objects with the drain label, as of the last resync.
controller_sharding_oldest_drain_seconds: gauge by controllerring
    Age of the oldest pending drain, as of the last resync.
controller_sharding_objects_unassigned: gauge by controllerring group resource
    Objects without an available shard that could not be assigned one, as of the last resync.
controller_sharding_objects_not_sharded: gauge by controllerring group resource reason
    Objects that the ring does not shard although it selects their namespace, as of the last full resync.
controller_sharding_oldest_unassigned_seconds: gauge by controllerring
    Time since the first of these objects was found unassigned, as of the last resync.
controller_sharding_resync_duration_seconds: histogram by scope
    Duration of resyncs of one resource of a ring.
controller_sharding_assignments_total: counter by controllerring group resource
    Objects assigned to a shard by the webhook.
controller_sharding_webhook_unassigned_total: counter by controllerring reason
    Objects that the webhook let through without a shard although they may need one.
controller_sharding_webhook_restored_total: counter by controllerring
    Shard labels that the webhook restored.
controller_sharding_webhook_unreached: gauge by controllerring
    Whether dry runs show that the API server does not call the ring's webhook.
controller_sharding_shards_failing_together: gauge by controllerring
    Shards that failed at about the same time, while their Leases are not taken over because of that.
controller_sharding_objects_unconfirmed: gauge by controllerring
    Objects that wait until it is confirmed that their dead shard has ended, with strict hand-over.
controller_sharding_assignment_unusable: gauge by controllerring
    Whether nothing moves in a ring by ranges: the assignment is gone, edited or restored, or cannot be written.
controller_sharding_controllerring_metadata_generation: gauge by controllerring uid
    The ring's generation.
controller_sharding_controllerring_observed_generation: gauge by controllerring uid
    Generation last reconciled.
controller_sharding_controllerring_status_shards: gauge by controllerring uid
    Shards of the ring.
controller_sharding_controllerring_status_available_shards: gauge by controllerring uid
    Available shards.
controller_sharding_shard_info: gauge by namespace shard controllerring uid
    Information about a shard.
controller_sharding_shard_state: gauge by namespace shard controllerring state
    The shard's state label.
""",
)

SHARDS = table(
    "shard",
    """
controller_sharding_lease_held: gauge by controllerring shard
    Whether this shard holds its Lease.
controller_sharding_lease_margin_seconds: gauge by controllerring shard
    How long this shard may keep working without renewing its Lease.
controller_sharding_lease_renewals_total: counter by controllerring shard
    How often the Lease was acquired or renewed.
controller_sharding_lease_renewal_failures_total: counter by controllerring shard reason
    Failed requests for the Lease, and times when the process was unfit to renew it.
controller_sharding_refused_writes_total: counter by controllerring by
    Writes rejected because the shard no longer owned the object or its time to write was over.
controller_sharding_unfenced_writes_total: counter by controllerring
    Writes that were explicitly exempted from proving ownership of the object.
controller_sharding_drains_acknowledged_total: counter by controllerring group resource
    Objects that this shard released on request.
controller_sharding_drain_acknowledgement_seconds: histogram by controllerring group resource
    Time from the request to release an object until this shard released it.
controller_sharding_buckets: gauge by controllerring shard state
    Buckets of this shard in a ring by ranges: acquiring (runs wait for kinds that
    they read and that are not listed yet), owned, draining, leaving (not run).
""",
)

WEBHOOKS = table(
    "sharder",
    """
controller_runtime_webhook_requests_total: counter by webhook code
    Total number of admission requests by HTTP status code.
controller_runtime_webhook_latency_seconds: histogram by webhook
    Histogram of the latency of processing admission requests.
controller_runtime_webhook_requests_in_flight: gauge by webhook
    Current number of admission requests being served.
controller_runtime_webhook_panics_total: counter
    Total number of exceptions of webhook handlers.
certwatcher_read_certificate_total: counter
    Reads of a certificate.
certwatcher_read_certificate_errors_total: counter
    Reads that did not yield a usable certificate.
cert_not_after: gauge
    End of validity of the served certificate, seconds since the epoch.
""",
)

CONTROLLERS = table(
    "both",
    """
kubeshard_controller_reconcile_causes_total: counter by controller what kind
    Reconciles by reason: what happened, and to which kind.
controller_runtime_reconcile_errors_total: counter by controller
    Reconciles that failed, for any reason.
controller_runtime_terminal_reconcile_errors_total: counter by controller
    Reconciles that failed permanently.
controller_runtime_reconcile_panics_total: counter by controller
    Reconciles that crashed.
controller_runtime_reconcile_timeouts_total: counter by controller
    Reconciles that timed out.
kubeshard_controller_trigger_errors_total: counter by controller source step
    Predicates and map functions that raised, by the watched kind.
kubeshard_controller_overdue_reconciles: gauge by controller
    Reconciles, or threads of them, that have not ended after their deadline.
controller_runtime_max_concurrent_reconciles: gauge by controller
    Workers of the controller.
controller_runtime_reconcile_total: counter by controller result
    Reconciles, by result.
controller_runtime_reconcile_time_seconds: histogram by controller
    How long reconciles took.
controller_runtime_active_workers: gauge by controller
    Workers that are reconciling.
kubeshard_controller_waiting: gauge by controller kind
    Whether the controller waits for the kind.
""",
)

QUEUES = table(
    "both",
    """
workqueue_adds_total: counter by name controller
    Keys added.
workqueue_retries_total: counter by name controller
    Keys added with a delay.
workqueue_queue_duration_seconds: histogram by name controller
    How long keys waited for a worker.
workqueue_work_duration_seconds: histogram by name controller
    How long processing took.
workqueue_depth: gauge by name controller priority
    Keys that wait for a worker, by priority.
workqueue_unfinished_work_seconds: gauge by name controller
    Seconds of unfinished processing, over all workers.
workqueue_longest_running_processor_seconds: gauge by name controller
    Seconds of the longest unfinished processing.
""",
)

CACHES = table(
    "both",
    """
kubeshard_cache_objects: gauge by kind
    Objects in memory.
kubeshard_cache_synced: gauge by kind
    Informers that have read everything at least once.
kubeshard_cache_silence_seconds: gauge by kind
    How long the API server has sent nothing about the kind, not even a bookmark.
kubeshard_cache_full_reads_total: counter by kind
    Full lists, including the first one.
kubeshard_cache_rewinds_total: counter by kind
    Full lists that showed a rewritten history: the API server was restored from a backup.
kubeshard_cache_failures_total: counter by kind
    Lists and watches that failed.
kubeshard_cache_unexpected_answers_total: counter by kind
    Lists and watches that failed because of an invalid response.
kubeshard_cache_undecodable_objects_total: counter by kind
    Objects that did not fit their class, counted each time they were received.
kubeshard_cache_stale_events_total: counter by kind
    Old events that were received again and dropped.
kubeshard_cache_foreign_objects_total: counter by kind
    Objects that were not asked for: the API server ignores shardSelector, and they were left out.
kubeshard_cache_index_errors_total: counter by kind
    Calls of index functions that raised.
kubeshard_cache_transform_errors_total: counter by kind
    Objects that cannot be read because their transform failed.
kubeshard_cache_handler_errors_total: counter by kind
    Calls of handlers that raised.
kubeshard_cache_errors_total: counter by kind error
    Lists and watches that failed, by the class of the error.
kubeshard_cache_handler_waiting: gauge by kind handler
    Objects that an async handler has yet to process.
kubeshard_cache_handler_seconds: gauge by kind handler
    How long the current call of an async handler has been running.
kubeshard_informer_undecodable_objects: gauge by kind
    Cached objects that do not fit their class and so are neither read nor reconciled.
""",
)

PROCESSES = table(
    "both",
    """
kubeshard_events_lost_total: counter by reason
    Kubernetes events that were not sent because there were too many, or that the API server refused.
rest_client_requests_total: counter by code method host
    Requests to the API server, by code (<error>: no response), method and host.
rest_client_request_duration_seconds: histogram by verb host
    How long requests to the API server took until the response, or until there was none.
leader_election_master_status: gauge by name
    Whether this process leads, by name of the Lease.
leader_election_slowpath_total: counter by name
    Renewals that needed a read of the Lease first.
kubeshard_leader_election_renewals_total: counter by name
    How often the Lease was acquired or renewed.
kubeshard_leader_election_renewal_failures_total: counter by name reason
    Failed requests for the Lease, and times when the process was unfit to renew it.
kubeshard_event_loop_blockages_total: counter by task
    How often the event loop was blocked for longer than is healthy, by the task that ran then.
kubeshard_process_restarts_total: counter by process
    How often a process ended and was started again, in a pod of several.
kubeshard_cluster_up: gauge by cluster
    Whether reads from one of the manager's other clusters succeed.
kubeshard_build_info: gauge by version python_version
    Always 1; the labels are the version and the Python version.
kubeshard_event_loop_lag_seconds: gauge
    The maximum lag of the event loop within the last minute.
process_virtual_memory_bytes: gauge
    Virtual memory size in bytes.
process_resident_memory_bytes: gauge
    Resident memory size in bytes.
process_start_time_seconds: gauge
    Start time of the process since unix epoch in seconds.
process_cpu_seconds_total: counter
    Total user and system CPU time spent in seconds.
process_open_fds: gauge
    Number of open file descriptors.
process_max_fds: gauge
    Maximum number of open file descriptors.
python_info: gauge by implementation major minor patchlevel version
    Python platform information
python_gc_objects_collected_total: counter by generation
    Objects collected during gc
python_gc_objects_uncollectable_total: counter by generation
    Uncollectable objects found during GC
python_gc_collections_total: counter by generation
    Number of times this generation was collected
""",
)

PARTS = {
    "Rings": RINGS,
    "Shards": SHARDS,
    "Webhooks": WEBHOOKS,
    "Controllers": CONTROLLERS,
    "Work queues": QUEUES,
    "Caches": CACHES,
    "Processes": PROCESSES,
}

METRICS: tuple[Definition, ...] = tuple(metric for part in PARTS.values() for metric in part)

_BY_NAME = {metric.name: metric for metric in METRICS}
_BY_SAMPLE = {sample: metric for metric in METRICS for sample in metric.samples}


def defined(sample: str) -> Definition:
    """The metric that a series belongs to. Raises KeyError for an unknown name."""
    return _BY_SAMPLE[sample]


def declared(name: str) -> tuple[str, str, tuple[str, ...]]:
    """Name, meaning and labels, for prometheus_client and `fast_metrics`. Raises KeyError for another name."""
    metric = _BY_NAME[name]
    return metric.name, metric.about, metric.labels


def tables() -> str:
    """The metrics as Markdown, a heading and a table for each part: what docs/metrics.md is generated from."""
    return "\n".join(_table_lines())


def _table_lines() -> Iterator[str]:
    for title, metrics in PARTS.items():
        yield f"## {title}\n"
        yield "| metric | type | labels | exposed by | |"
        yield "|---|---|---|---|---|"
        for metric in metrics:
            labels = ", ".join(f"`{label}`" for label in metric.labels)
            yield f"| `{metric.name}` | {metric.type} | {labels} | {metric.side} | {metric.about} |"
        yield ""
