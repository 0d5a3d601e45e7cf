"""The output of `kubeshard monitoring` is what monitoring tools read."""

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


def test_an_alert_links_to_the_documentation_where_that_is_published_and_else_has_no_link() -> None:
    """The page has a section of each name, as another test sees to."""
    rules = yaml.safe_load(printed("rules", "--docs-url", "https://docs.example.com/kubeshard/"))
    annotations = rules["groups"][0]["rules"][0]["annotations"]
    assert annotations["runbook_url"] == (
        "https://docs.example.com/kubeshard/alerts.html#kubeshardshardtakenover"
    )
    plain = yaml.safe_load(printed("rules"))["groups"][0]["rules"][0]["annotations"]
    assert "runbook_url" not in plain
    assert plain["runbook"] == "see KubeshardShardTakenOver in docs/alerts.md of the kubeshard sources"


def test_a_path_is_no_url_of_the_documentation() -> None:
    result = CliRunner().invoke(cli, ["monitoring", "rules", "--docs-url", "docs"])
    assert result.exit_code == 2
    assert "expected a URL" in result.stderr


@pytest.mark.parametrize("name", ["sharder", "operators", "webhosting"])
def test_a_dashboard_is_json_with_an_id_of_its_own(name: str) -> None:
    assert json.loads(printed("dashboard", name))["uid"] == f"kubeshard-{name}"


def test_a_dashboard_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(ConfigurationError, match="choose one of sharder, operators, webhosting"):
        CliRunner().invoke(cli, ["monitoring", "dashboard", "shard"], catch_exceptions=False)


def test_all_metrics_are_listed() -> None:
    listed = printed("metrics")
    assert all(f"| `{metric.name}` |" in listed for metric in METRICS)
