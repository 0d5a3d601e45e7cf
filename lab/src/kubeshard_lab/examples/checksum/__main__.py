"""The checksum controller as a program: `python -m kubeshard_lab.examples.checksum`."""

from __future__ import annotations

import click

from kubeshard.commands.ending import run_program
from kubeshard.commands.logging import log_options
from kubeshard.commands.options import (
    CLUSTER_VARIABLE,
    Command,
    cluster_options,
    sharding_option,
    version_option,
)

PROGRAM = "python -m kubeshard_lab.examples.checksum"


@click.command(
    cls=Command,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    environment=CLUSTER_VARIABLE,
    examples=(
        "# two shards on your own machine",
        f"{PROGRAM} --shard-name one --lease-namespace default &",
        f"{PROGRAM} --shard-name two --lease-namespace default &",
        "# the same without a sharder service and a ControllerRing",
        f"{PROGRAM} --sharding both --shard-name one --lease-namespace default &",
        f"{PROGRAM} --sharding both --shard-name two --lease-namespace default &",
    ),
)
@sharding_option(
    "shard",
    "What this process is in the ring: one elected instance does all the work (off), a shard, its sharder where it "
    "is elected, both.",
)
@click.option(
    "--controllerring",
    metavar="NAME",
    default="checksum-controller",
    show_default=True,
    help="The ControllerRing that this shard belongs to.",
)
@click.option(
    "--namespace",
    metavar="NAMESPACE",
    default="default",
    show_default=True,
    help="The namespace of the Secrets.",
)
@click.option(
    "--shard-name", metavar="NAME", help="This shard's name (default: the pod's or the host's name)."
)
@click.option(
    "--lease-namespace", metavar="NAMESPACE", help="Where the shard's Lease lives (default: the pod's)."
)
@cluster_options
@log_options
@version_option
def checksum_controller(
    sharding: str,
    controllerring: str,
    namespace: str,
    shard_name: str | None,
    lease_namespace: str | None,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Run the checksum controller: for each Secret a ConfigMap with the SHA-256 of every value.

    A small example of a sharded controller. Unlike the reference's, it also follows changes of a Secret. It needs a
    sharder and a ControllerRing for secrets with configmaps, or --sharding both. The first Ctrl-C stops it gracefully
    and hands its Secrets over; the second ends it immediately, like a crash.
    """
    from kubeshard import Settings, run
    from kubeshard.core.names import is_dns_label
    from kubeshard.runtime.environ import pod_namespace
    from kubeshard.runtime.world import REAL_WORLD
    from kubeshard_lab.examples.checksum.operator import connected_checksum_controller

    if not controllerring:
        raise click.BadParameter("must not be empty", param_hint="--controllerring")
    if not is_dns_label(namespace):
        raise click.BadParameter(f"{namespace!r} is not a valid namespace name", param_hint="--namespace")
    if not (lease_namespace or pod_namespace()):
        raise click.UsageError("outside of a pod give --lease-namespace, where the shard's Lease lives")
    run(
        connected_checksum_controller(
            kubeconfig,
            context,
            REAL_WORLD,
            ring=controllerring,
            namespace=namespace,
            shard_name=shard_name,
            lease_namespace=lease_namespace or pod_namespace(),
            mode=None if sharding == "off" else sharding,
        ),
        settings=Settings(),
    )


if __name__ == "__main__":
    run_program(checksum_controller, PROGRAM)
