"""Grafana dashboards and Prometheus rules for the metrics of sharder and shards, rendered from the
table of metrics (`kubeshard.metrics`).

Guaranteed: rules and panels only use metrics and labels from the table, from which the programs take type, labels and
description, too. Not guaranteed: thresholds that suit every cluster; docs/alerts.md
explains each.
"""

from kubeshard.metrics.declared import METRICS, Definition
from kubeshard.monitoring.alerting import ALERTS, Alert, rules
from kubeshard.monitoring.grafana import dashboards

__all__ = ["ALERTS", "METRICS", "Alert", "Definition", "dashboards", "rules"]
