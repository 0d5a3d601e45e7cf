"""Values: defaults, files, settings, and error messages that say what to do."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kubeshard.core.errors import ConfigurationError
from kubeshard.manifests.chart import chart
from kubeshard.manifests.sharder import config_text, sharder_objects
from kubeshard.manifests.values import OperatorValues, SharderValues, chosen, described, plain
from kubeshard.sharder.config import load_sharder_config


def test_a_setting_wins_over_a_file_and_a_file_over_the_defaults() -> None:
    values = chosen(
        SharderValues, {"replicas": 3, "resources": {"limits": {"memory": "1Gi"}}}, ["replicas=4"]
    )
    assert (values.replicas, values.resources.limits.memory, values.log_level) == (4, "1Gi", "info")
    assert values.resources.requests.memory == SharderValues().resources.requests.memory


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["replicas"], "write KEY=VALUE"),
        (["replicas=many"], "value replicas: Expected `int`"),
        (["replicas=0"], "value replicas: Expected `int` >= 1"),
        (["replica=3"], "there is no value replica: did you mean replicas?"),
        (["colour=red"], "there is no value colour: there are image, replicas"),
        (["resources.limit.memory=1Gi"], "there is no value resources.limit: did you mean resources.limits?"),
        (["image="], "there is no value; leave it out"),
        (["namespace=Upper"], "value namespace: expected at most 63 lower-case letters"),
        (["image=1.0"], "value image: Expected `str | object`"),
        (
            ["resources.limits.gpu=1"],
            "there is no value resources.limits.gpu: did you mean resources.limits.cpu",
        ),
        (
            ["resources.limits.ephemeral-storage=much"],
            "value resources.limits.ephemeral-storage: expected a quantity",
        ),
        (["certManager.duration=soon"], "value certManager.duration"),
        (["resources.limits.memory=much"], "value resources.limits.memory: expected a quantity, as in 250m"),
        (["logLevel=loud"], "value logLevel: choose one of debug, info, warning, error"),
        (["config={"], "the value is not YAML"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_its_name(settings: list[str], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        chosen(SharderValues, None, settings)


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("config.controller.sharder.syncPeriod=5", "field controller.sharder.syncPeriod"),
        ("config.controler={}", "unknown field controler"),
        ("config.controller.sharder.concurrentMoves=0", "must be positive"),
        ("config.webhook.config.clientConfig.url=https://127.0.0.1:9443", "policies.enabled=false"),
        ("config.leaderElection.resourceName=other", "policies.enabled=false"),
    ],
)
def test_a_configuration_that_the_sharder_would_not_take_is_refused(setting: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        sharder_objects(chosen(SharderValues, None, [setting]))


def test_a_field_of_the_configuration_that_is_null_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="leave it out"):
        sharder_objects(chosen(SharderValues, {"config": {"metrics": {"bindAddress": None}}}))


def test_an_operator_has_no_default_image() -> None:
    with pytest.raises(ConfigurationError, match="value image is missing: set it with --set image="):
        chosen(OperatorValues)


@pytest.mark.parametrize("type_", [SharderValues, OperatorValues])
def test_every_value_says_what_it_is(type_: Any) -> None:
    assert all(text for _, text in described(type_))


def test_the_sharder_of_another_namespace_is_told_of_it(tmp_path: Any) -> None:
    values = chosen(SharderValues, None, ["namespace=here", "certManager.enabled=true"])
    file = tmp_path / "config.yaml"
    file.write_text(config_text(plain(values)))
    assert "here" not in file.read_text()
    config, unknown = load_sharder_config(file, {"POD_NAMESPACE": "here"})
    assert not unknown
    assert config.election_namespace == "here"
    assert config.sharders == ("system:serviceaccount:here:sharder",)
    assert config.webhook.config.annotations == {"cert-manager.io/inject-ca-from": "here/webhook-server"}
    service = config.webhook.config.client_config.service
    assert service is not None
    assert (service.namespace, service.name) == ("here", "sharder")
    excluded = config.webhook.config.namespace_selector.match_expressions[0].values
    assert set(excluded) == {"kube-system", "here"}


def test_with_a_url_the_webhook_is_registered_without_the_service() -> None:
    settings = ["policies.enabled=false", "config.webhook.config.clientConfig.url=https://127.0.0.1:9443"]
    text = config_text(plain(chosen(SharderValues, None, settings)))
    assert '"url"' in text
    assert '"service"' not in text


def test_the_table_of_a_chart_is_in_the_order_of_its_values() -> None:
    """The image, and what else is the program's own, before what every program has."""
    files = chart()
    told = dict.fromkeys(re.findall(r"^\| `(\w+)", files["README.md"], re.MULTILINE))
    assert list(told) == re.findall(r"^(\w+):", files["values.yaml"], re.MULTILINE)
