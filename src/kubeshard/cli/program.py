"""The command tree of `kubeshard`."""

from __future__ import annotations

import click

from kubeshard.cli.crd import crd
from kubeshard.cli.demo.command import demo
from kubeshard.cli.experiment import experiment
from kubeshard.cli.init import init
from kubeshard.cli.manifests import manifests
from kubeshard.cli.measure import measure
from kubeshard.cli.monitoring import monitoring
from kubeshard.cli.provided import CommandsInOrder, NotInstalled
from kubeshard.cli.rbac import rbac
from kubeshard.cli.release_finalizers import release_finalizers
from kubeshard.cli.report import report
from kubeshard.cli.run import run
from kubeshard.cli.sharder import sharder
from kubeshard.cli.simulate import simulate
from kubeshard.cli.types import types_command
from kubeshard.commands.ending import run_program
from kubeshard.commands.options import version_option


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
