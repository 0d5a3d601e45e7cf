"""What `kubeshard monitoring` prints is what tools read."""

from __future__ import annotations

import json

import pytest
import yaml
from click.testing import CliRunner

from kubeshard.cli.program import cli
from kubeshard.core.errors import ConfigurationError
from kubeshard.monitoring import ALERTS, METRICS


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(cli, ["monitoring", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_the_rules_are_a_file_of_prometheus_or_a_resource_of_its_operator() -> None:
    rules = yaml.safe_load(printed("rules"))
    assert [rule["alert"] for rule in rules["groups"][0]["rules"]] == [alert.name for alert in ALERTS]
    resource = yaml.safe_load(printed("rules", "--resource", "my-system"))
    assert (resource["kind"], resource["metadata"]["namespace"]) == ("PrometheusRule", "my-system")
    assert resource["spec"] == rules


@pytest.mark.parametrize("name", ["sharder", "shards"])
def test_a_dashboard_is_json_with_an_id_of_its_own(name: str) -> None:
    assert json.loads(printed("dashboard", name))["uid"] == f"kubeshard-{name}"


def test_a_dashboard_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(ConfigurationError, match="choose one of sharder, shards"):
        CliRunner().invoke(cli, ["monitoring", "dashboard", "shard"], catch_exceptions=False)


def test_all_metrics_are_listed() -> None:
    listed = printed("metrics")
    assert all(f"| `{metric.name}` |" in listed for metric in METRICS)
