"""The command tree of `kubectl shard`, and how kubectl completes it."""

from __future__ import annotations

import os
import sys

import click
from click.shell_completion import ShellComplete

from kubeshard.cli.kubectl.doctor import doctor
from kubeshard.cli.kubectl.drain import drain
from kubeshard.cli.kubectl.planning import plan
from kubeshard.cli.kubectl.questions import status, where, why
from kubeshard.cli.kubectl.release import release
from kubeshard.cli.kubectl.top import top
from kubeshard.cli.kubectl.web import web
from kubeshard.commands.ending import run_program
from kubeshard.commands.options import version_option

COMPLETE = "_KUBECTL_SHARD_COMPLETE"


class _InOrder(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(
    cls=_InOrder,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Completion works through kubectl's own: kubectl_complete-shard is installed next to kubectl-shard.",
)
@version_option
def shard() -> None:
    """Inspect the rings of sharded controllers: which shard has which objects, why, and what would move.

    Works with every sharder that speaks the protocol, and needs read access only, except for `drain` and `release`.
    """


for _command in (status, where, why, plan, top, web, drain, release, doctor):
    shard.add_command(_command)


def main() -> None:
    # Shell completion is registered for the program, not for a subcommand of kubectl.
    run_program(shard, "kubectl-shard" if COMPLETE in os.environ else "kubectl shard", complete_var=COMPLETE)


def complete() -> None:
    """Entry point of kubectl's plugin completion. The arguments are the words so far, the last one incomplete. The
    output is one word per line, and a directive that no file names are wanted.
    """
    words = sys.argv[1:] or [""]
    for item in ShellComplete(shard, {}, "kubectl-shard", COMPLETE).get_completions(words[:-1], words[-1]):
        click.echo(f"{item.value}\t{item.help}" if item.help else item.value)
    click.echo(":4")
