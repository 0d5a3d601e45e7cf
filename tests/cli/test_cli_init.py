"""`kubeshard init`: what it makes is formatted, typed, tested and runs, whatever it is called."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from kubeshard.cli.program import cli
from kubeshard.core import ConfigurationError

ROOT = Path(__file__).parents[2]
TREE = os.pathsep.join((str(ROOT / "src"), str(ROOT / "apiserver" / "src")))
STYLE = (
    "--line-length=110",
    "--config=lint.isort.known-first-party=['my_operator', 'web']",
    "--config=lint.isort.known-third-party=['kubeshard']",
)


def made(folder: Path, *options: str) -> Path:
    done = CliRunner().invoke(cli, ["init", str(folder), *options], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return folder


def run(folder: Path, *command: str) -> str:
    """In the project, as its author would. Fails the test if the command fails."""
    environment = {**os.environ, "PYTHONPATH": TREE, "MYPYPATH": TREE}
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


PROJECTS = [("my-operator", ()), ("web", ("--kind", "Policy", "--group", "web.example.com"))]


@pytest.mark.parametrize(("name", "options"), PROJECTS)
@pytest.mark.system
def test_the_tests_of_a_new_project_pass(tmp_path: Path, name: str, options: tuple[str, ...]) -> None:
    assert "2 passed" in run(made(tmp_path / name, *options), "pytest", "-q", "-p", "no:cacheprovider")


@pytest.mark.parametrize(("name", "options"), PROJECTS)
@pytest.mark.system
def test_a_new_project_is_formatted_linted_and_typed(
    tmp_path: Path, name: str, options: tuple[str, ...]
) -> None:
    project = made(tmp_path / name, *options)
    run(project, "ruff", "format", "--check", "--isolated", STYLE[0], ".")
    run(project, "ruff", "check", "--isolated", "--select=E,F,W,I,UP,B", *STYLE, ".")
    run(project, "mypy", "--cache-dir", str(tmp_path / "cache"))


def test_the_manifests_are_of_the_kind(tmp_path: Path) -> None:
    folder = made(tmp_path / "web", "--kind", "Policy", "--group", "web.example.com") / "manifests"
    documents = [each for file in folder.iterdir() for each in yaml.safe_load_all(file.read_text())]
    (definition,) = (each for each in documents if each["kind"] == "CustomResourceDefinition")
    assert definition["metadata"]["name"] == "policies.web.example.com"
    (example,) = (each for each in documents if each["kind"] == "Policy")
    assert example["apiVersion"] == "web.example.com/v1alpha1"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["My_Operator"], r"^project name 'My_Operator': give one such as my-operator$"),
        (["web", "--kind", "website"], r"^--kind 'website': give one such as Website$"),
        (["web", "--group", "example"], r"^--group 'example': give one such as web\.example\.com$"),
        (["full"], r"^full exists and is not an empty folder: choose another one$"),
        (["full/file"], r"^full/file exists and is not an empty folder: choose another one$"),
    ],
)
def test_a_mistake_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    with pytest.raises(ConfigurationError, match=message):
        cli.main(["init", *arguments], standalone_mode=False)
    assert [path.name for path in tmp_path.rglob("*")] == ["full", "file"]
    assert (tmp_path / "full" / "file").read_text() == "mine"
