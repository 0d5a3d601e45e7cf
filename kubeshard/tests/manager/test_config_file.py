"""Configuration files of components: what is accepted, what is rejected, and with which message."""

import json
import sys
from pathlib import Path

import pytest

from kubeshard.core.errors import ConfigurationError
from kubeshard.manager.config_file import (
    ComponentConfig,
    Duration,
    election_document,
    load_config_file,
    parse_config,
)

API, KIND = "config.example.dev/v1alpha1", "ExampleConfig"

DEEP = "nested too deeply" if sys.version_info < (3, 12) else "field metrics: Expected `object`"
"""Newer interpreters can read what is nested as deeply as YAML may be."""


def parse(body: str) -> tuple[ComponentConfig, tuple[str, ...]]:
    return parse_config(
        f"apiVersion: {API}\nkind: {KIND}\n{body}", ComponentConfig, api_version=API, kind=KIND
    )


def test_an_empty_document_gives_the_defaults() -> None:
    config, unknown = parse("")
    assert unknown == ()
    assert config.health_address == ":8081"
    assert config.metrics_address == ":8080"
    assert config.graceful_shut_down == 15
    assert (config.leader_election.lease_duration, config.leader_election.renew_deadline) == (15, 10)


def test_a_null_field_counts_as_absent() -> None:
    assert parse("health:\nmetrics: {bindAddress: }")[0] == ComponentConfig()


def test_an_unknown_field_is_named_with_its_path_and_is_not_fatal() -> None:
    config, unknown = parse("leaderElection: {leaseDuratio: 3s, renewDeadline: 4s}\nextra: 1")
    assert config.leader_election.renew_deadline == 4
    assert unknown == (
        "unknown field leaderElection.leaseDuratio (did you mean leaseDuration?)",
        "unknown field extra",
    )


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("15s", 15), ("1m30s", 90), ("500ms", 0.5), ("0", 0), ("-1s", -1), ("1.5h", 5400), ("2us", 2e-6)],
)
def test_durations_are_written_as_go_writes_them(text: str, seconds: float) -> None:
    assert Duration.parse(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "15", "s", "1 s", "1s 2m", "1d", "--1s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        Duration.parse(text)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "leaderElection: {leaseDuration: soon}",
            "field leaderElection.leaseDuration: 'soon' is not a duration",
        ),
        ("leaderElection: {leaderElect: maybe}", "field leaderElection.leaderElect: Expected `bool`"),
        ("metrics: 8080", "field metrics: Expected `object`"),
        ("[", "not YAML on line"),
        (f"metrics: {'[' * 900}{']' * 900}", DEEP),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_field(body: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(body)
    assert str(caught.value).startswith(message)


def test_another_kind_of_document_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"expected apiVersion .* found v1 and Pod"):
        parse_config("apiVersion: v1\nkind: Pod", ComponentConfig, api_version=API, kind=KIND)
    with pytest.raises(ConfigurationError, match="expected a mapping"):
        parse_config("- 1", ComponentConfig, api_version=API, kind=KIND)


def test_an_error_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"missing.yaml: No such file"):
        load_config_file(tmp_path / "missing.yaml", ComponentConfig, api_version=API, kind=KIND)
    broken = tmp_path / "broken.yaml"
    broken.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match=r"broken.yaml: it is not UTF-8"):
        load_config_file(broken, ComponentConfig, api_version=API, kind=KIND)


def test_the_document_of_an_election_keeps_the_proportions_of_the_defaults() -> None:
    defaults = parse(f"leaderElection: {json.dumps(election_document(15))}")[0]
    assert defaults == ComponentConfig()
    election = parse(f"leaderElection: {json.dumps(election_document(5))}")[0].leader_election
    assert election.renew_deadline == pytest.approx(10 / 3, rel=1e-4)
    assert election.retry_period == pytest.approx(2 / 3, rel=1e-4)
