"""What cannot be run is refused in one line, before anything is started or written."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from kubeshard.cli.program import cli
from kubeshard.core.errors import ConfigurationError
from kubeshard_lab.experiment.scenarios import SCENARIOS

GREETING = "{apiVersion: example.com/v1, kind: Greeting, metadata: {name: $name}, spec: {text: $random}}"
OPERATOR = """
from kubeshard import ConfigMap, Controller, Manager

async def reconcile(ctx, obj): ...

def one():
    return Manager([Controller(name="maps", reconciler=reconcile, primary=ConfigMap)])
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KUBESHARD_GO_SHARDER", raising=False)
    monkeypatch.delenv("KUBESHARD_GO_OPERATOR", raising=False)
    (tmp_path / "template.yaml").write_text(GREETING)
    (tmp_path / "mine.py").write_text(OPERATOR)
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "run.json").write_text("{}")
    return tmp_path


OWN = ("--operator", "mine.py:one", "--template", "template.yaml")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--setup", "singleton", "--instances", "2"), "has one instance: leave out --instances"),
        (("--program", "go"), "name the Go project's operator with --go-operator or KUBESHARD_GO_OPERATOR"),
        (
            ("--sharder-program", "go"),
            "name the Go project's sharder with --go-sharder or KUBESHARD_GO_SHARDER",
        ),
        (
            ("--setup", "in-manager", "--program", "go", "--go-operator", "mine.py"),
            "needs kubeshard's operator",
        ),
        (("--program", "go", "--go-operator", "absent", "--go-sharder", "absent"), "absent does not exist"),
        (("--output", "used"), "the folder is not empty"),
        (("--operator", "mine.py:one"), "both --operator and --template"),
        (("--ring", "r"), "both --operator and --template"),
        ((*OWN, "--ring", "r"), "there is none in a singleton"),
        ((*OWN, "--setup", "external"), "--ring names your operator's ring"),
        ((*OWN, "--controller", "other"), "--controller: choose one of maps"),
        ((*OWN, "--workers", "3"), "are those of your module"),
        (("--costs", "rate=5"), "--costs needs --on simulation"),
        (("--on", "simulation", "--costs", "rate=0"), "--costs: rate cannot be 0: write rate=333"),
        (("--on", "simulation", "--costs", "rate=inf"), "--costs: rate cannot be inf: write rate=333"),
        (
            ("--on", "simulation", "--costs", "request=3"),
            "--costs: request cannot be '3': write request=0.8ms",
        ),
        (("--on", "simulation", "--costs", "event=1h"), "--costs: event cannot be 1h: write event=0.2ms"),
        (("--on", "simulation", "--costs", "rate=5, rate=6"), "--costs: rate is there twice"),
        (
            ("--on", "simulation", "--costs", "memory=1"),
            "--costs: 'memory' is none of request, event, rate: write",
        ),
        (("--on", "simulation", "--latency", "20s"), "--latency: 2s at most in a simulation"),
        (("--on", "simulation", "--program", "go", "--ring", "r"), "leave out --program, --ring"),
        (("--on", "simulation", *OWN, "--ring", "r"), "leave out --operator, --template, --ring"),
        ((*OWN, "--ready", "spec.x=1"), "write a condition's type, or status.FIELD=VALUE"),
    ],
)
def test_options_that_cannot_work_together_are_refused(
    folder: Path, options: tuple[str, ...], says: str
) -> None:
    result = CliRunner().invoke(cli, ["experiment", "basic", *options])
    assert isinstance(result.exception, ConfigurationError), result.output
    assert says in str(result.exception)
    assert not (folder / "experiments").exists()


@pytest.mark.parametrize("duration", ["0s", "-1m", "soon", "5"])
def test_a_duration_is_positive_and_has_a_unit(folder: Path, duration: str) -> None:
    result = CliRunner().invoke(cli, ["experiment", "basic", "--duration", duration])
    assert result.exit_code == 2
    assert "'--duration'" in result.output


def test_the_list_has_every_scenario() -> None:
    result = CliRunner().invoke(cli, ["experiment", "--list"])
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.output.splitlines()] == list(SCENARIOS)
