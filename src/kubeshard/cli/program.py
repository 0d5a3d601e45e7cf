"""The command tree of `kubeshard`, with the commands that other distributions provide, as entry points of the group
`kubeshard.commands`:

    [project.entry-points."kubeshard.commands"]
    apiserver = "kubeshard_apiserver.cli.command:apiserver"

The object is a `click.Command`. A command of `kubeshard` itself goes before one of the same name. The entry points are
only read for such a command, and for the list of all commands, since reading them takes longer than starting.
"""

from __future__ import annotations

from typing import Any

import click

from kubeshard.cli.crd import crd
from kubeshard.cli.demo.command import demo
from kubeshard.cli.experiment import experiment
from kubeshard.cli.init import init
from kubeshard.cli.manifests import manifests
from kubeshard.cli.measure import measure
from kubeshard.cli.monitoring import monitoring
from kubeshard.cli.rbac import rbac
from kubeshard.cli.release_finalizers import release_finalizers
from kubeshard.cli.report import report
from kubeshard.cli.run import run
from kubeshard.cli.sharder import sharder
from kubeshard.cli.simulate import simulate
from kubeshard.cli.types import types_command
from kubeshard.commands.ending import run_program
from kubeshard.commands.options import version_option
from kubeshard.core.errors import ConfigurationError
from kubeshard.version import how_to_install

GROUP = "kubeshard.commands"


class CommandsInOrder(click.Group):
    """Lists its commands in the order in which they were added, the most used first, and then those that other
    distributions provide.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        from importlib.metadata import entry_points

        return [*self.commands, *sorted({each.name for each in entry_points(group=GROUP)} - {*self.commands})]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        own = self.commands.get(cmd_name)
        return _provided(cmd_name) or own if own is None or isinstance(own, NotInstalled) else own


class NotInstalled(click.Command):
    """Stands for a command of a distribution that is not installed, and says what to install."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(
            name,
            callback=self._refuse,
            help=f"Run {what}. It comes in a separate package, kubeshard-{name}.",
            short_help=f"Run {what} (not installed).",
            context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
        )

    def _refuse(self, **_: Any) -> None:
        assert self.name is not None
        raise ConfigurationError(
            f"the package kubeshard-{self.name} is not installed: {how_to_install(self.name)}"
        )


def _provided(name: str) -> click.Command | None:
    from importlib.metadata import entry_points

    for entry in entry_points(group=GROUP, name=name):
        try:
            command: click.Command = entry.load()
        except ImportError:  # something that it needs is missing
            continue
        return command
    return None


@click.group(
    cls=CommandsInOrder,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog='Shell completion, in ~/.bashrc: eval "$(_KUBESHARD_COMPLETE=bash_source kubeshard)"; zsh_source for zsh.',
)
@version_option
def cli() -> None:
    """Horizontally scalable Kubernetes controllers.

    The sharder spreads the objects of a controller over its live instances, the shards. `kubeshard demo` shows a whole
    ring at work on this machine.
    """


for _command in (
    demo,
    init,
    run,
    NotInstalled("apiserver", "a Kubernetes API server on this machine"),
    sharder,
    manifests,
    crd,
    types_command,
    rbac,
    release_finalizers,
    monitoring,
    experiment,
    measure,
    report,
    simulate,
):
    cli.add_command(_command)


def main() -> None:
    """Entry point of the command `kubeshard`."""
    run_program(cli, "kubeshard")
