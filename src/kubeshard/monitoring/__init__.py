"""Grafana dashboards and Prometheus rules for the metrics of sharder and shards, rendered from one table of metrics.

Guaranteed: rules and panels only use metrics and labels from the table; the table agrees with what a sharder and a
shard expose in type, labels and description. Not guaranteed: thresholds that suit every cluster; docs/alerts.md
explains each.
"""

from kubeshard.monitoring.alerting import ALERTS, Alert, rules
from kubeshard.monitoring.definition import Definition
from kubeshard.monitoring.definitions import METRICS
from kubeshard.monitoring.grafana import dashboards

__all__ = ["ALERTS", "METRICS", "Alert", "Definition", "dashboards", "rules"]
