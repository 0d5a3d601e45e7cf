"""The command tree and what all commands share: version, log options, errors in one line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from kubeshard import __version__
from kubeshard.core.errors import ConfigurationError, KubeshardError

Command = TypeVar("Command", bound=Callable[..., Any])

_COMMANDS = {
    "sharder": "kubeshard.cli.sharder:sharder",
    "webhosting-operator": "kubeshard.cli.webhosting:operator",
    "samples": "kubeshard.cli.webhosting:samples",
    "checksum-controller": "kubeshard.cli.checksum:checksum_controller",
    "demo": "kubeshard.cli.demo.command:demo",
}


class _LazyGroup(click.Group):
    """Imports a command's module when it is asked for, so that `--help` of one needs no extras of another."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        target = _COMMANDS.get(cmd_name)
        if target is None:
            return None
        module_name, _, attribute = target.partition(":")
        module = __import__(module_name, fromlist=[attribute])
        command = getattr(module, attribute)
        assert isinstance(command, click.Command)
        return command


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="The cluster comes from KUBECONFIG, from ~/.kube/config, or from the pod that the command runs in.",
)
@click.version_option(__version__, "--version", prog_name="kubeshard")
def cli() -> None:
    """Horizontally scalable Kubernetes controllers.

    The sharder spreads the objects of a controller over its live instances (shards). See a whole ring at work
    on this machine with `kubeshard demo`.
    """


def main() -> None:
    """Entry point of the command `kubeshard`."""
    try:
        cli.main(standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except KubeshardError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(2 if isinstance(error, ConfigurationError) else 1)
    except BrokenPipeError:
        sys.exit(1)
