"""`docs/commands.md` from the commands themselves: their help, options, variables and examples.

What comes before the first command is written by hand.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator
from inspect import cleandoc
from pathlib import Path

import click

from kubeshard.cli.program import cli
from kubeshard.commands.options import Command
from kubeshard.commands.provided import NotInstalled
from kubeshard_lab.examples.checksum import __main__ as checksum
from kubeshard_lab.examples.webhosting import __main__ as webhosting

PATH = "docs/commands.md"
PROGRAMS = {
    "kubeshard": cli,
    webhosting.PROGRAM: webhosting.webhosting,
    checksum.PROGRAM: checksum.checksum_controller,
}
SKIPPED = frozenset({"--help", "--version", "--log-level", "--log-format", "LOG_LEVEL", "LOG_FORMAT"})
"""Options and variables of which the hand-written part tells once."""

MORE = {
    "kubeshard demo": "[one of the shards is the sharder](in-manager-sharding.md)",
    "kubeshard init": "[the tutorial](tutorial.md), [webhooks](admission-webhooks.md)",
    "kubeshard run": "[webhooks that a cluster calls on your machine](how-to/ship.md#develop-webhooks), "
    "[the log](how-to/observe.md#log)",
    "kubeshard apiserver": "[the embedded API server](apiserver.md), "
    "[sharded lists and watches](apiserver.md#sharded-lists-and-watches)",
    "kubeshard sharder": "[installing it](install.md), [its configuration](configuration.md#sharderconfig)",
    "kubeshard manifests sharder": "[the most common values](install.md#values)",
    "kubeshard manifests operator": "[shipping an operator](how-to/ship.md#ship-an-operator)",
    "kubeshard manifests experiment": "[experiments in a cluster](how-to/experiments.md#in-a-cluster)",
    "kubeshard crd": "[custom resources](custom-resources.md), [conversion](admission-webhooks.md)",
    "kubeshard types": "[the built-in kinds](how-to/triggers.md#the-built-in-kinds)",
    "kubeshard rbac": "[rights](how-to/triggers.md#rights)",
    "kubeshard monitoring": "[metrics](metrics.md), [alerts](alerts.md)",
    "kubeshard simulate": "[simulating your operator](how-to/simulate.md), [random faults](testing.md#random-faults), "
    "[the faults](reliability.md#the-faults-of-a-simulation)",
    "kubeshard experiment": "[how to read it](how-to/experiments.md), "
    "[your own operator](how-to/experiments.md#your-own-operator), "
    "[more instances than a machine holds](how-to/experiments.md#more-instances-than-a-machine-holds)",
    "kubeshard measure": "[measuring service levels](how-to/observe.md#measure-service-levels)",
    f"{webhosting.PROGRAM} operator": "[its configuration](configuration.md#webhostingoperatorconfig), "
    "[the elected shard is the sharder](in-manager-sharding.md)",
}
"""Pages, which help cannot name: wheels have none."""


def commands_page(root: Path) -> str:
    before, _, _ = (root / PATH).read_text().partition("\n## kubeshard ")
    return f"{before.rstrip()}\n\n" + "\n\n".join(_sections()) + "\n"


def _sections() -> Iterator[str]:
    for program, command in PROGRAMS.items():
        if isinstance(command, click.Group):
            for name, part, extra in _parts(command):
                yield from _section(f"{program} {name}", part, extra, level=2)
        else:
            yield from _section(program, command, "", level=2)


def _parts(group: click.Group) -> Iterator[tuple[str, click.Command, str]]:
    """Each command, also those that other distributions provide, with the extra that installs it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command, own = group.get_command(context, name), group.commands.get(name)
        assert command is not None
        yield name, command, own.extra if isinstance(own, NotInstalled) else ""


def _section(path: str, command: click.Command, extra: str, level: int) -> Iterator[str]:
    context = click.Context(command)
    yield f"{'#' * level} {path}"
    yield f"`{' '.join([path, *command.collect_usage_pieces(context)])}`"
    yield from map(_paragraph, cleandoc(command.help or "").split("\n\n"))
    if extra:
        yield f"Installed with the extra `{extra}`."
    if path in MORE:
        yield f"More: {MORE[path]}."
    if rows := list(_options(command, context)):
        yield _table("option", rows)
    if isinstance(command, Command):
        for title, listed in command.tables().items():
            yield _table(
                {"Environment": "environment variable", "Values": "value"}[title],
                (row for row in listed if row[0] not in SKIPPED),
            )
        if command.examples:
            yield "\n".join(["```sh", *command.examples, "```"])
    if isinstance(command, click.Group):
        for name, part, _ in _parts(command):
            yield from _section(f"{path} {name}", part, "", level + 1)


def _options(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    for option in command.get_params(context):
        record = option.get_help_record(context)
        if record is not None and isinstance(option, click.Option) and SKIPPED.isdisjoint(option.opts):
            yield record


def _table(first: str, rows: Iterable[tuple[str, str]]) -> str:
    return "\n".join(
        [
            f"| {first} | meaning |",
            "|---|---|",
            *(f"| `{_cell(name)}` | {_cell(_prose(text))} |" for name, text in rows),
        ]
    )


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def _paragraph(text: str) -> str:
    return textwrap.fill(_prose(text), 140, break_long_words=False, break_on_hyphens=False)


def _prose(text: str) -> str:
    """A paragraph of help in one line, with options and placeholders as code."""
    words = re.split("(`[^`]*`)", " ".join(text.split()))
    words[::2] = (re.sub(r"(?<![\w`-])(--?[a-z][a-z-]*\b|\$[a-z]+)", r"`\1`", plain) for plain in words[::2])
    return "".join(words)
