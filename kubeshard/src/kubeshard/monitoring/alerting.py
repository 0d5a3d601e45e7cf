"""Alerts as Prometheus rules. docs/alerts.md explains what each alert means and what to do.

An alert is about a problem that a person can fix, and only fires after the automatic recovery had its chance. A dead
shard is replaced automatically; the alert only reports that it died.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from kubeshard.monitoring.promql import by, expression

PAGE = "alerts.html"
"""Of the documentation as `make docs` builds it."""


class Alert(NamedTuple):
    name: str
    severity: Literal["critical", "warning", "info"]
    expr: str
    lasting: str
    """How long the expression has to hold."""
    summary: str
    """One line with the labels of the affected object."""


def _worst(sample: str, *labels: str, of: str = "max", **matchers: str) -> str:
    """An expression for the maximum over all processes."""
    return f"{of} {by(labels, sample)} ({expression(sample, **matchers)})"


def _grown(sample: str, window: str, *labels: str, **matchers: str) -> str:
    """An expression for a counter's increase over all processes."""
    return f"sum {by(labels, sample)} (increase({expression(sample, **matchers)}[{window}]))"


def _worst_within(sample: str, window: str, *labels: str) -> str:
    """An expression for the maximum over all processes and over the time until now."""
    return f"max {by(labels, sample)} (max_over_time({expression(sample)}[{window}]))"


_AVAILABLE = "controller_sharding_controllerring_status_available_shards"
_SHARDS = "controller_sharding_controllerring_status_shards"
_HAD_SHARDS = (
    f"({_worst(_SHARDS, 'controllerring')} > 0 or {_worst_within(_AVAILABLE, '7d', 'controllerring')} > 0)"
)
"""Of rings in use: the Leases of dead shards are removed, so the present number does not tell."""
_PENDING = _worst("controller_sharding_controllerring_metadata_generation", "controllerring")
_OBSERVED = _worst("controller_sharding_controllerring_observed_generation", "controllerring")

ALERTS: tuple[Alert, ...] = (
    Alert(
        "KubeshardShardTakenOver",
        "warning",
        f"{_grown('controller_sharding_takeovers_total', '10m', 'controllerring')} > 0",
        "0s",
        "A shard of ring {{ $labels.controllerring }} did not renew its Lease and was declared dead",
    ),
    Alert(
        "KubeshardNoShardAvailable",
        "critical",
        f"({_worst(_AVAILABLE, 'controllerring')} == 0) and on (controllerring) {_HAD_SHARDS}",
        "2m",
        "No shard works on the objects of ring {{ $labels.controllerring }}",
    ),
    Alert(
        "KubeshardDrainStuck",
        "warning",
        f"{_worst('controller_sharding_oldest_drain_seconds', 'controllerring')} > 60",
        "1m",
        "A shard of ring {{ $labels.controllerring }} does not release an object",
    ),
    Alert(
        "KubeshardObjectsUnassigned",
        "warning",
        f"{_worst('controller_sharding_oldest_unassigned_seconds', 'controllerring')} > 60",
        "1m",
        "Objects of ring {{ $labels.controllerring }} have no shard and cannot be assigned one",
    ),
    Alert(
        "KubeshardAssignmentUnusable",
        "warning",
        f"{_worst('controller_sharding_assignment_unusable', 'controllerring')} > 0",
        "2m",
        "Nothing moves in ring {{ $labels.controllerring }}: its assignment by ranges is not repaired by itself",
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
        f"{_worst('controller_sharding_webhook_unreached', 'controllerring')} > 0",
        "5m",
        "Objects of ring {{ $labels.controllerring }} are assigned late: the API server does not reach the webhook",
    ),
    Alert(
        "KubeshardRingNotReconciled",
        "warning",
        f"({_PENDING}) > ({_OBSERVED})",
        "5m",
        "ControllerRing {{ $labels.controllerring }} has changed, but the sharder has not applied the change",
    ),
    Alert(
        "KubeshardNoLeader",
        "critical",
        f"{_worst('leader_election_master_status', 'name')} == 0",
        "2m",
        "No process leads {{ $labels.name }}: what needs a leader does not run",
    ),
    Alert(
        "KubeshardSharderMissing",
        "critical",
        f"({_worst('controller_sharding_lease_held', 'controllerring')} > 0)"
        f" unless on (controllerring) ({_worst('controller_sharding_shard_info', 'controllerring')})",
        "2m",
        "Ring {{ $labels.controllerring }} has shards, but there are no metrics of a sharder for it",
    ),
    Alert(
        "KubeshardNoSharder",
        "critical",
        f"absent({expression('leader_election_master_status', name='~sharder(-.+)?')})",
        "5m",
        "There are no metrics of any sharder",
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
        "{{ $labels.instance }} receives no watch events for {{ $labels.kind }}",
    ),
    Alert(
        "KubeshardCertificateExpires",
        "critical",
        f"{_worst('cert_not_after', 'instance', 'job', of='min')} - time() < 3 * 86400",
        "10m",
        "The webhook certificate of {{ $labels.instance }} expires in less than three days",
    ),
)


def prometheus_rule(namespace: str, docs_url: str | None = None) -> dict[str, Any]:
    metadata = {"name": "kubeshard", "namespace": namespace}
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": metadata,
        "spec": rules(docs_url),
    }


def rules(docs_url: str | None = None) -> dict[str, Any]:
    """A Prometheus rule file. Annotations link to `docs_url`, or only name where to read more."""
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
                        "annotations": {"summary": alert.summary, **_runbook(alert, docs_url)},
                    }
                    for alert in ALERTS
                ],
            }
        ]
    }


def _runbook(alert: Alert, docs_url: str | None) -> dict[str, str]:
    if docs_url is None:
        return {"runbook": f"see {alert.name} in docs/alerts.md of the kubeshard sources"}
    return {"runbook_url": f"{docs_url.rstrip('/')}/{PAGE}#{alert.name.lower()}"}
