"""The command tree: help that teaches, version, flags that Go users type, completion, logging."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint

import click
import pytest
from click.testing import CliRunner

from kubeshard import __version__
from kubeshard.cli.kubectl.program import shard
from kubeshard.cli.program import cli
from kubeshard.commands.logging import log_options
from kubeshard.commands.options import Command
from kubeshard_lab.demo.command import demo
from kubeshard_lab.examples.checksum.__main__ import checksum_controller
from kubeshard_lab.examples.webhosting.__main__ import generate, operator, webhosting


def groups(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yields the group and its subgroups."""
    yield path
    context = click.Context(group)
    for name in group.list_commands(context):
        if isinstance(command := group.get_command(context, name), click.Group):
            yield from groups(command, (*path, name))


def commands(
    group: click.Group = cli, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


EXAMPLES = click.Group(commands={"webhosting": webhosting, "checksum": checksum_controller})
ALL_COMMANDS = [*commands(), *commands(EXAMPLES, ("examples",))]


@pytest.mark.parametrize(("path", "command"), ALL_COMMANDS, ids=lambda value: str(value))
def test_every_command_and_option_explains_itself(path: tuple[str, ...], command: click.Command) -> None:
    text = CliRunner().invoke(command, ["--help"]).output
    assert command.help
    assert command.help.split(".")[0].split()[0] in text
    for option in command.params:
        if isinstance(option, click.Argument):
            assert option.make_metavar(click.Context(command)) in text
            continue
        assert isinstance(option, click.Option)
        assert option.hidden or option.help, option.name


@pytest.mark.parametrize("command", ["run", "sharder"])
def test_help_lists_the_variables_of_the_log(command: str) -> None:
    _, _, environment = CliRunner().invoke(cli, [command, "--help"]).output.partition("Environment:")
    assert "LOG_LEVEL" in environment
    assert "LOG_FORMAT" in environment


@pytest.mark.parametrize("program", [cli, shard, EXAMPLES], ids=["kubeshard", "kubectl shard", "examples"])
def test_help_points_to_nothing_that_an_installation_does_not_have(program: click.Group) -> None:
    """Wheels contain no documentation."""
    pages = [*groups(program), *(path for path, _ in commands(program))]
    texts = {path: CliRunner().invoke(program, [*path, "--help"]).output for path in pages}
    assert all(text.startswith("Usage:") for text in texts.values())
    repository = re.compile(r"\b(?:docs|deploy|tests|tools|benchmarks)/|\.md\b")
    assert not {path for path, text in texts.items() if repository.search(text)}


@pytest.mark.parametrize("command", [cli.commands["sharder"], demo, operator, generate, checksum_controller])
def test_help_shows_environment_and_examples_line_by_line(command: click.Command) -> None:
    text = CliRunner().invoke(command, ["--help"]).output
    assert isinstance(command, Command)
    lines = [line.strip() for line in text.splitlines()]
    assert command.examples
    assert all(example in lines for example in command.examples)
    for variable in command.environment:
        assert any(line.startswith(f"{variable} ") for line in lines)


@pytest.mark.parametrize("command", [cli, cli.commands["sharder"], webhosting, operator, checksum_controller])
def test_version(command: click.Command) -> None:
    result = CliRunner().invoke(command, ["--version"])
    assert (result.exit_code, result.output) == (0, f"kubeshard, version {__version__}\n")


@pytest.mark.parametrize(
    ("command", "own"),
    [
        (cli.commands["sharder"], {"--config"}),
        (operator, {"--config", "--kubeconfig"}),
        (checksum_controller, {"--controllerring", "--namespace", "--lease-namespace", "--shard-name"}),
    ],
)
def test_every_flag_of_the_go_programs_is_known(command: click.Command, own: set[str]) -> None:
    known = {flag for option in command.params for flag in option.opts}
    zap = {"devel", "encoder", "log-level", "stacktrace-level", "time-encoding"}
    assert {f"--zap-{flag}" for flag in zap} | {"--version"} <= known
    assert own <= known


def test_the_flags_of_the_samples_generator_of_the_go_project_are_known() -> None:
    known = {flag for option in generate.params for flag in option.opts}
    assert {"-c", "--count", "-n", "--namespace", "--skip-workload"} <= known


@pytest.mark.parametrize(
    ("arguments", "level", "json"),
    [
        ([], logging.INFO, False),
        (["--log-level", "warning", "--log-format", "json"], logging.WARNING, True),
        (["--zap-log-level=debug", "--zap-encoder=json"], logging.DEBUG, True),
        (["--zap-log-level", "3"], logging.DEBUG, False),
        (["--zap-log-level", "panic", "--zap-encoder", "console"], logging.ERROR, False),
        (["--zap-devel"], logging.DEBUG, False),
        (["--zap-devel=true", "--log-level", "info"], logging.INFO, False),
        (["--zap-devel=false"], logging.INFO, False),
        (["--zap-stacktrace-level=error", "--zap-time-encoding=iso8601"], logging.INFO, False),
    ],
)
def test_log_flags(arguments: list[str], level: int, json: bool) -> None:
    seen = []

    @click.command()
    @log_options
    def command() -> None:
        root = logging.getLogger()
        (handler,) = [handler for handler in root.handlers if handler.get_name() == "kubeshard"]
        seen.append((root.level, type(handler.formatter).__name__ == "JsonFormatter"))

    before = logging.getLogger().level
    try:
        result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    finally:
        root = logging.getLogger()
        root.handlers = [handler for handler in root.handlers if handler.get_name() != "kubeshard"]
        root.setLevel(before)
    assert result.exit_code == 0, result.output
    assert seen == [(level, json)]


@pytest.mark.parametrize("flag", ["--log-level=loud", "--zap-log-level=0", "--log-format=xml"])
def test_a_wrong_log_flag_is_refused(flag: str) -> None:
    result = CliRunner().invoke(cli, ["sharder", flag])
    assert result.exit_code == 2
    assert flag.split("=")[0] in result.output


@pytest.mark.system
def test_shells_complete_commands_and_options() -> None:
    def completed(words: str) -> list[str]:
        environment = {
            **os.environ,
            "_KUBESHARD_COMPLETE": "bash_complete",
            "COMP_WORDS": f"kubeshard {words}",
            "COMP_CWORD": str(len(words.split())),
        }
        done = subprocess.run(
            [sys.executable, "-m", "kubeshard"], env=environment, capture_output=True, text=True
        )
        return [line.partition(",")[2] for line in done.stdout.splitlines()]

    assert completed("shar") == ["sharder"]
    assert completed("sharder --str") == ["--strict-config"]


def test_samples_are_printed_as_yaml_for_kubectl() -> None:
    import yaml

    def kinds(*arguments: str) -> list[str]:
        printed = CliRunner().invoke(webhosting, ["samples", "show", *arguments]).output
        return [document["kind"] for document in yaml.safe_load_all(printed)]

    assert kinds("--crds") == ["CustomResourceDefinition"] * 2
    assert kinds() == ["Namespace", "Theme", "Theme", "Website", "Website"]


@pytest.mark.regression
def test_no_number_is_no_time_until_a_pod_is_ready() -> None:
    result = CliRunner().invoke(cli, ["apiserver", "--port", "0", "--ready-after", "nan"])
    assert result.exit_code == 2
    assert result.output.splitlines()[-1] == "Error: Invalid value for '--ready-after': is not a number"


@pytest.fixture
def provided(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The entry points of installed distributions, by name."""
    values: dict[str, str] = {}

    def entry_points(*, group: str, name: str = "") -> list[EntryPoint]:
        assert group == "kubeshard.commands"
        return [EntryPoint(each, values[each], group) for each in values if name in ("", each)]

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)
    return values


mine = click.Command("mine")


def test_commands_that_other_distributions_provide_are_listed_last(provided: dict[str, str]) -> None:
    provided.update(mine=f"{__name__}:mine", apiserver=f"{__name__}:mine")
    context = click.Context(cli)
    assert cli.get_command(context, "mine") is cli.get_command(context, "apiserver") is mine
    assert cli.list_commands(context) == [*cli.commands, "mine"]


def test_a_command_of_kubeshard_goes_before_one_that_is_provided(provided: dict[str, str]) -> None:
    provided["sharder"] = f"{__name__}:mine"
    assert cli.get_command(click.Context(cli), "sharder") is cli.commands["sharder"]


def test_a_provided_command_that_cannot_be_imported_counts_as_not_installed(provided: dict[str, str]) -> None:
    provided.update(apiserver="no_such_module:command", mine="no_such_module:command")
    assert cli.get_command(click.Context(cli), "apiserver") is cli.commands["apiserver"]
    assert cli.get_command(click.Context(cli), "mine") is None
