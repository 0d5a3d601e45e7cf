"""The command `kubeshard manifests experiment`."""

from __future__ import annotations

import click

from kubeshard.cli.manifests import output_option, print_objects
from kubeshard.cli.names import label
from kubeshard.commands.options import Command
from kubeshard.version import __version__
from kubeshard_lab.cli.experiment_options import load_options
from kubeshard_lab.experiment.scenarios import SCENARIOS, scaled


@click.command(
    "experiment",
    cls=Command,
    short_help="Print a Job that runs an experiment.",
    examples=(
        "kubeshard manifests experiment --image example.com/kubeshard:v1 | kubectl apply --server-side -f -",
        "kubeshard manifests experiment chaos --scale 1 --image example.com/kubeshard:v1 --claim recordings",
    ),
)
@click.argument(
    "scenario", metavar="[SCENARIO]", default="basic", type=click.Choice([*SCENARIOS]), required=False
)
@click.option("--image", metavar="IMAGE", help="An image with kubeshard (default: that of this version).")
@click.option(
    "--namespace", metavar="NAME", default="experiment", show_default=True, help="Where the Job runs."
)
@click.option(
    "--claim",
    metavar="NAME",
    default="",
    help="A PersistentVolumeClaim there, for the recording (default: only the log remains).",
)
@load_options
@click.option("--ring", metavar="NAME", help="The operator's ring (default: webhosting-operator).")
@output_option
def experiment(
    scenario: str,
    image: str | None,
    namespace: str,
    claim: str,
    scale: float,
    duration: float | None,
    seed: int,
    ring: str | None,
    output: str,
) -> None:
    """Print a Job that runs `kubeshard experiment --on cluster`, with its service account and rights.

    SCENARIO is one of those of `kubeshard experiment --list` (default: basic). The image needs no extra: the Job writes
    the recording, and `kubeshard report` makes its page later, where the extra lab is installed.
    """
    from kubeshard.manifests.image import image_of
    from kubeshard.manifests.values import SharderValues, chosen, plain
    from kubeshard.shard.identity import check_ring_name
    from kubeshard_lab.examples.webhosting.api import RING
    from kubeshard_lab.experiment.job import job_objects

    check_ring_name(ring or RING)
    image = image_of(plain(chosen(SharderValues, {"image": image} if image else {}))["image"], __version__)
    arguments = [scenario, "--scale", f"{scale:g}", "--seed", str(seed), "--ring", ring or RING]
    if duration is not None:
        arguments += ["--duration", f"{duration:g}s"]
    print_objects(
        job_objects(
            scaled(SCENARIOS[scenario], scale, duration),
            arguments,
            ring or RING,
            image,
            label(namespace, "--namespace"),
            label(claim, "--claim") if claim else "",
        ),
        output,
    )
