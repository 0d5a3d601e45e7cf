"""What sharder and shards expose, and what to make of it: dashboards for Grafana and rules for Prometheus, rendered
from one table of metrics.

Guaranteed: a rule or a panel names only metrics and labels of the table; the table is what a sharder and a shard
expose, in type, labels and description. Not guaranteed: thresholds that fit every cluster; docs/alerts.md says what
each means.
"""

from kubeshard.monitoring.alerting import ALERTS, Alert, rules
from kubeshard.monitoring.definition import Definition
from kubeshard.monitoring.definitions import METRICS
from kubeshard.monitoring.grafana import dashboards

__all__ = ["ALERTS", "METRICS", "Alert", "Definition", "dashboards", "rules"]
