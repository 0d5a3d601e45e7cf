"""The metrics of every process that runs controllers."""

from __future__ import annotations

from kubeshard.metrics.definition import table

CONTROLLERS = table(
    "both",
    (
        "kubeshard_controller_reconcile_causes_total",
        "counter",
        "controller what kind",
        "Reconciles by reason: what happened, and to which kind.",
    ),
    (
        "controller_runtime_reconcile_errors_total",
        "counter",
        "controller",
        "Reconciles that failed, for any reason.",
    ),
    (
        "controller_runtime_terminal_reconcile_errors_total",
        "counter",
        "controller",
        "Reconciles that failed permanently.",
    ),
    ("controller_runtime_reconcile_panics_total", "counter", "controller", "Reconciles that crashed."),
    (
        "controller_runtime_reconcile_timeouts_total",
        "counter",
        "controller",
        "Reconciles that timed out.",
    ),
    (
        "kubeshard_controller_trigger_errors_total",
        "counter",
        "controller source step",
        "Predicates and map functions that raised, by the watched kind.",
    ),
    (
        "kubeshard_controller_overdue_reconciles",
        "gauge",
        "controller",
        "Reconciles, or threads of them, that have not ended after their deadline.",
    ),
    ("controller_runtime_max_concurrent_reconciles", "gauge", "controller", "Workers of the controller."),
    ("controller_runtime_reconcile_total", "counter", "controller result", "Reconciles, by result."),
    ("controller_runtime_reconcile_time_seconds", "histogram", "controller", "How long reconciles took."),
    ("controller_runtime_active_workers", "gauge", "controller", "Workers that are reconciling."),
    (
        "kubeshard_controller_waiting",
        "gauge",
        "controller kind",
        "Whether the controller waits for the kind.",
    ),
)

QUEUES = table(
    "both",
    ("workqueue_adds_total", "counter", "name controller", "Keys added."),
    ("workqueue_retries_total", "counter", "name controller", "Keys added with a delay."),
    (
        "workqueue_queue_duration_seconds",
        "histogram",
        "name controller",
        "How long keys waited for a worker.",
    ),
    ("workqueue_work_duration_seconds", "histogram", "name controller", "How long processing took."),
    ("workqueue_depth", "gauge", "name controller priority", "Keys that wait for a worker, by priority."),
    (
        "workqueue_unfinished_work_seconds",
        "gauge",
        "name controller",
        "Seconds of unfinished processing, over all workers.",
    ),
    (
        "workqueue_longest_running_processor_seconds",
        "gauge",
        "name controller",
        "Seconds of the longest unfinished processing.",
    ),
)

CACHES = table(
    "both",
    ("kubeshard_cache_objects", "gauge", "kind", "Objects in memory."),
    ("kubeshard_cache_synced", "gauge", "kind", "Informers that have read everything at least once."),
    (
        "kubeshard_cache_silence_seconds",
        "gauge",
        "kind",
        "How long the API server has sent nothing about the kind, not even a bookmark.",
    ),
    (
        "kubeshard_cache_full_reads_total",
        "counter",
        "kind",
        "Full lists, including the first one.",
    ),
    (
        "kubeshard_cache_rewinds_total",
        "counter",
        "kind",
        "Full lists that showed a rewritten history: the API server was restored from a backup.",
    ),
    ("kubeshard_cache_failures_total", "counter", "kind", "Lists and watches that failed."),
    (
        "kubeshard_cache_unexpected_answers_total",
        "counter",
        "kind",
        "Lists and watches that failed because of an invalid response.",
    ),
    (
        "kubeshard_cache_undecodable_objects_total",
        "counter",
        "kind",
        "Objects that did not fit their class, counted each time they were received.",
    ),
    (
        "kubeshard_cache_stale_events_total",
        "counter",
        "kind",
        "Old events that were received again and dropped.",
    ),
    ("kubeshard_cache_index_errors_total", "counter", "kind", "Calls of index functions that raised."),
    (
        "kubeshard_cache_transform_errors_total",
        "counter",
        "kind",
        "Objects that cannot be read because their transform failed.",
    ),
    ("kubeshard_cache_handler_errors_total", "counter", "kind", "Calls of handlers that raised."),
    (
        "kubeshard_cache_errors_total",
        "counter",
        "kind error",
        "Lists and watches that failed, by the class of the error.",
    ),
    (
        "kubeshard_cache_handler_waiting",
        "gauge",
        "kind handler",
        "Objects that an async handler has yet to process.",
    ),
    (
        "kubeshard_cache_handler_seconds",
        "gauge",
        "kind handler",
        "How long the current call of an async handler has been running.",
    ),
    (
        "kubeshard_informer_undecodable_objects",
        "gauge",
        "kind",
        "Cached objects that do not fit their class and so are neither read nor reconciled.",
    ),
)

PROCESSES = table(
    "both",
    (
        "kubeshard_events_lost_total",
        "counter",
        "reason",
        "Kubernetes events that were not sent because there were too many, or that the API server refused.",
    ),
    (
        "rest_client_requests_total",
        "counter",
        "code method host",
        "Requests to the API server, by code (<error>: no response), method and host.",
    ),
    (
        "rest_client_request_duration_seconds",
        "histogram",
        "verb host",
        "How long requests to the API server took until the response, or until there was none.",
    ),
    ("leader_election_master_status", "gauge", "name", "Whether this process leads, by name of the Lease."),
    ("leader_election_slowpath_total", "counter", "name", "Renewals that needed a read of the Lease first."),
    (
        "kubeshard_leader_election_renewals_total",
        "counter",
        "name",
        "How often the Lease was acquired or renewed.",
    ),
    (
        "kubeshard_leader_election_renewal_failures_total",
        "counter",
        "name reason",
        "Failed requests for the Lease, and times when the process was unfit to renew it.",
    ),
    (
        "kubeshard_event_loop_blockages_total",
        "counter",
        "task",
        "How often the event loop was blocked for longer than is healthy, by the task that ran then.",
    ),
    (
        "kubeshard_cluster_up",
        "gauge",
        "cluster",
        "Whether reads from one of the manager's other clusters succeed.",
    ),
    (
        "kubeshard_build_info",
        "gauge",
        "version python_version",
        "Always 1; the labels are the version and the Python version.",
    ),
    (
        "kubeshard_event_loop_lag_seconds",
        "gauge",
        "",
        "The maximum lag of the event loop within the last minute.",
    ),
    ("process_virtual_memory_bytes", "gauge", "", "Virtual memory size in bytes."),
    ("process_resident_memory_bytes", "gauge", "", "Resident memory size in bytes."),
    ("process_start_time_seconds", "gauge", "", "Start time of the process since unix epoch in seconds."),
    ("process_cpu_seconds_total", "counter", "", "Total user and system CPU time spent in seconds."),
    ("process_open_fds", "gauge", "", "Number of open file descriptors."),
    ("process_max_fds", "gauge", "", "Maximum number of open file descriptors."),
    ("python_info", "gauge", "implementation major minor patchlevel version", "Python platform information"),
    ("python_gc_objects_collected_total", "counter", "generation", "Objects collected during gc"),
    (
        "python_gc_objects_uncollectable_total",
        "counter",
        "generation",
        "Uncollectable objects found during GC",
    ),
    ("python_gc_collections_total", "counter", "generation", "Number of times this generation was collected"),
)
