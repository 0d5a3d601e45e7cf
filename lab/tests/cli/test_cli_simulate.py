"""`kubeshard simulate`: what it says of a run, of a failure, and of mistakes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kubeshard.cli.program import cli
from kubeshard.core.errors import ConfigurationError
from measures import switched_off


@pytest.fixture(autouse=True)
def _logging() -> Iterator[None]:
    before = logging.root.manager.disable
    yield
    logging.disable(before)


def simulate(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["simulate", *map(str, arguments)])


@pytest.mark.long
def test_a_run_says_what_was_inflicted_and_that_all_holds(tmp_path: Path) -> None:
    result = simulate(
        "run", "--seeds", 3, "--minutes", 1, "--objects", 5, "--faults", "kill,drain", "-o", tmp_path
    )
    assert result.exit_code == 0, result.output
    assert "seed 3: all hold" in result.stdout
    assert "effects: kill" in result.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_a_run_without_faults_can_be_asked_for(tmp_path: Path) -> None:
    result = simulate("run", "--seeds", 3, "--minutes", 1, "--objects", 5, "--faults", "none", "-o", tmp_path)
    assert result.exit_code == 0, result.output
    assert "seed 3: all hold; 0 faults" in result.stdout


def test_faults_are_listed_with_what_happens() -> None:
    result = simulate("faults")
    assert result.exit_code == 0
    assert "\nlost                     Writes take effect, but their responses are lost.\n" in result.stdout


@pytest.mark.long
def test_a_fault_that_was_asked_for_and_had_no_effect_fails_the_run() -> None:
    result = simulate("run", "--seeds", 1, "--minutes", 0.5, "--objects", 5, "--faults", "webhook,kill")
    assert result.exit_code == 1
    assert "these faults had no effect: webhook" in result.stderr


@pytest.mark.nightly
def test_a_failure_can_be_replayed_from_its_script(tmp_path: Path) -> None:
    with switched_off(["healthy renewal"]):
        found = simulate(
            "run", "--seeds", 601, "--minutes", 1, "--calm", 0.7, "--faults", "block",
            "--no-shrink", "-o", tmp_path,
        )  # fmt: skip
        again = simulate("replay", tmp_path / "seed-601.json")
    assert found.exit_code == 1
    assert "BROKEN: hung" in found.stdout
    assert again.exit_code == 1
    assert "BROKEN: hung" in again.stdout
    assert ">>> hung: " in again.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "--faults", "flood"), "there is no fault flood; there are: assignment_deleted, "),
        (("run", "--seeds", "many"), "seeds must be as 1-20 or 7, not many"),
        (("run", "--faults", ""), "--faults names no fault: say which, or all, or none"),
        (("replay", "missing.json"), "missing.json cannot be read: No such file or directory"),
    ],
)
def test_a_mistake_is_named(arguments: tuple[str, ...], message: str) -> None:
    error = simulate(*arguments).exception
    assert isinstance(error, ConfigurationError)
    assert message in str(error)
