"""Alerts, as rules of Prometheus. docs/alerts.md says of each what it means and what to do.

An alert is about what a person can mend, and waits until the machinery had its chance: a shard that dies is replaced
without anybody's help, and what is told is that it died.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from kubeshard.monitoring.definitions import by, expression

WEBHOOK = "/webhooks/sharder/controllerring/"

DOCUMENT = "docs/alerts.md"


class Alert(NamedTuple):
    name: str
    severity: Literal["critical", "warning", "info"]
    expr: str
    lasting: str
    """For how long the expression has to hold."""
    summary: str
    """One line, with the labels of what it is about."""


def _worst(sample: str, *labels: str, of: str = "max", **matchers: str) -> str:
    """The series' maximum over all processes."""
    return f"{of} {by(labels, sample)} ({expression(sample, **matchers)})"


def _grown(sample: str, window: str, *labels: str, **matchers: str) -> str:
    """By how much a counter has grown, over all processes."""
    return f"sum {by(labels, sample)} (increase({expression(sample, **matchers)}[{window}]))"


_PENDING = _worst("controller_sharding_controllerring_metadata_generation", "controllerring")
_OBSERVED = _worst("controller_sharding_controllerring_observed_generation", "controllerring")
_SERVED_BY_WEBHOOK = f"count({expression('controller_runtime_webhook_requests_total', webhook=WEBHOOK)}) > 0"

ALERTS: tuple[Alert, ...] = (
    Alert(
        "KubeshardShardTakenOver",
        "warning",
        f"{_grown('controller_sharding_takeovers_total', '10m', 'controllerring')} > 0",
        "0s",
        "A shard of ring {{ $labels.controllerring }} did not renew its Lease and was given up",
    ),
    Alert(
        "KubeshardNoShardAvailable",
        "critical",
        f"{_worst('controller_sharding_controllerring_status_available_shards', 'controllerring')} == 0",
        "2m",
        "Nobody works on the objects of ring {{ $labels.controllerring }}",
    ),
    Alert(
        "KubeshardDrainStuck",
        "warning",
        f"{_worst('controller_sharding_oldest_drain_seconds', 'controllerring')} > 60",
        "1m",
        "A shard of ring {{ $labels.controllerring }} does not let go of an object",
    ),
    Alert(
        "KubeshardObjectsUnassigned",
        "warning",
        f"{_worst('controller_sharding_oldest_unassigned_seconds', 'controllerring')} > 60",
        "1m",
        "Objects of ring {{ $labels.controllerring }} have no shard, and could not be given one",
    ),
    Alert(
        "KubeshardMovesFail",
        "warning",
        f"{_grown('controller_sharding_move_failures_total', '5m', 'controllerring', 'group', 'resource', 'reason')}"
        " > 0",
        "5m",
        "Moves of {{ $labels.resource }} in ring {{ $labels.controllerring }} fail: {{ $labels.reason }}",
    ),
    Alert(
        "KubeshardWebhookNotAssigning",
        "warning",
        f"({_grown('controller_sharding_late_assignments_total', '5m', 'controllerring')} > 0)"
        f" and on () ({_SERVED_BY_WEBHOOK})",
        "10m",
        "Objects of ring {{ $labels.controllerring }} are assigned late: the API server does not reach the webhook",
    ),
    Alert(
        "KubeshardRingNotReconciled",
        "warning",
        f"({_PENDING}) > ({_OBSERVED})",
        "5m",
        "ControllerRing {{ $labels.controllerring }} has changed, and the sharder does not follow",
    ),
    Alert(
        "KubeshardNoLeader",
        "critical",
        f"{_worst('leader_election_master_status', 'name')} == 0",
        "2m",
        "Nobody leads {{ $labels.name }}: what needs a leader stands still",
    ),
    Alert(
        "KubeshardShardLeaseNotRenewed",
        "warning",
        f"{_grown('controller_sharding_lease_renewal_failures_total', '5m', 'controllerring', 'shard', 'reason')} > 2",
        "0s",
        "Shard {{ $labels.shard }} of ring {{ $labels.controllerring }} cannot renew its Lease: {{ $labels.reason }}",
    ),
    Alert(
        "KubeshardEventLoopBlocked",
        "warning",
        f"{_worst('kubeshard_event_loop_lag_seconds', 'instance', 'job')} > 1",
        "0s",
        "Something blocks the event loop of {{ $labels.instance }}",
    ),
    Alert(
        "KubeshardKindUnreadable",
        "warning",
        f"{_worst('kubeshard_controller_waiting', 'job', 'controller', 'kind')} > 0",
        "3m",
        "Controller {{ $labels.controller }} waits for {{ $labels.kind }}, which cannot be read",
    ),
    Alert(
        "KubeshardCacheSilent",
        "warning",
        f"{_worst('kubeshard_cache_silence_seconds', 'instance', 'job', 'kind')} > 120",
        "1m",
        "{{ $labels.instance }} hears nothing of {{ $labels.kind }}",
    ),
    Alert(
        "KubeshardCertificateExpires",
        "critical",
        f"{_worst('cert_not_after', 'instance', 'job', of='min')} - time() < 3 * 86400",
        "10m",
        "The webhook's certificate of {{ $labels.instance }} is valid for less than three days",
    ),
)


def prometheus_rule(namespace: str) -> dict[str, Any]:
    """The same for the Prometheus operator."""
    metadata = {"name": "kubeshard", "namespace": namespace}
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": metadata,
        "spec": rules(),
    }


def rules() -> dict[str, Any]:
    """The content of a file of rules."""
    return {
        "groups": [
            {
                "name": "kubeshard",
                "rules": [
                    {
                        "alert": alert.name,
                        "expr": alert.expr,
                        "for": alert.lasting,
                        "labels": {"severity": alert.severity},
                        "annotations": {
                            "summary": alert.summary,
                            "runbook": f"{DOCUMENT}#{alert.name.lower()}",
                        },
                    }
                    for alert in ALERTS
                ],
            }
        ]
    }
