"""The command tree of `kubeshard`, with the commands that other distributions provide."""

from __future__ import annotations

import click

from kubeshard.cli.crd import crd
from kubeshard.cli.init import init
from kubeshard.cli.manifests import manifests
from kubeshard.cli.monitoring import monitoring
from kubeshard.cli.rbac import rbac
from kubeshard.cli.release_finalizers import release_finalizers
from kubeshard.cli.run import run
from kubeshard.cli.sharder import sharder
from kubeshard.cli.types import types_command
from kubeshard.commands.ending import run_program
from kubeshard.commands.options import version_option
from kubeshard.commands.provided import CommandsInOrder, NotInstalled


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
    NotInstalled("demo", "Watch a ring of shards at work on this machine.", "lab"),
    init,
    run,
    NotInstalled("apiserver", "Run a Kubernetes API server on this machine.", "apiserver"),
    sharder,
    manifests,
    crd,
    types_command,
    rbac,
    release_finalizers,
    monitoring,
    NotInstalled(
        "simulate", "Inflict random faults on your operator, or on a whole ring, on virtual time.", "lab"
    ),
    NotInstalled("experiment", "Load an operator, and measure how long its users wait.", "lab"),
    NotInstalled("measure", "Ask a Prometheus for figures, and check service levels.", "lab"),
    NotInstalled("report", "Make a page of what an experiment recorded.", "lab"),
):
    cli.add_command(_command)


def main() -> None:
    """Entry point of the command `kubeshard`."""
    run_program(cli, "kubeshard")
