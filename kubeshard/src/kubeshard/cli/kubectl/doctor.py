"""The command `doctor`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from kubeshard.cli.kubectl.asking import Access, access_options, ask, output_option, print_value, say
from kubeshard.cli.kubectl.questions import commented
from kubeshard.cli.names import label
from kubeshard.commands.options import CLUSTER_VARIABLE, Command
from kubeshard.core.errors import ApiError
from kubeshard.runtime.logs import one_line

if TYPE_CHECKING:
    from kubeshard.inspection.diagnosis import Diagnosis


@click.command(
    cls=Command,
    short_help="Examine the installation, and say what fixes it.",
    environment=CLUSTER_VARIABLE,
    examples=(
        "kubectl shard doctor",
        "# in a pipeline: 0 if all is well, 1 after warnings, 2 after errors",
        "kubectl shard doctor -o json > doctor.json",
    ),
)
@click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    default="sharding-system",
    show_default=True,
    help="Namespace of the sharder.",
)
@output_option
@access_options
def doctor(namespace: str, output: str | None, access: Access) -> None:
    """Examine the installation: whether everything is there, current, permitted and at work, and whether the API
    server calls the webhook.

    Each finding has a command that fixes it or, which is said then, only shows its cause. Nothing is written; the
    webhook is tried with a dry run. What the user may not read is left out, and said. The exit code is 0 if nothing is
    wrong, 1 after warnings, and 2 after errors or if the cluster does not answer.
    """
    from kubeshard.inspection.doctor import examine

    namespace = label(namespace, "--namespace")
    try:
        found = ask(access, lambda client: examine(client, namespace))
    except ApiError as error:
        click.echo(f"Error: the cluster does not answer: {one_line(str(error))}", err=True)
        sys.exit(2)
    if output == "name":
        for finding in found.findings:
            say(finding.part)
    elif output:
        print_value(found, output)
    else:
        _print(found)
    sys.exit(found.exit_code)


def _print(found: Diagnosis) -> None:
    wrong = {each.part: each for each in found.findings}
    unknown = {each.part for each in found.unchecked}
    for part in found.examined:
        if part not in wrong and part not in unknown:
            say(f"ok       {part}")
    for finding in found.findings:
        say(f"{finding.severity:<8} {finding.part}: {finding.problem}")
        say(f"           {commented(finding.command, finding.fixes)}")
    for each in found.unchecked:
        say(f"unknown  {each.part}: {each.reason}")
