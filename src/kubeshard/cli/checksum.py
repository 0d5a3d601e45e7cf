"""The command `kubeshard checksum-controller`."""

from __future__ import annotations

import click

from kubeshard.cli.options import log_options
from kubeshard.examples.checksum import build_checksum_controller
from kubeshard.manager import run


@click.command("checksum-controller")
@click.option(
    "--controllerring", default="checksum-controller", show_default=True, help="The ring to be a shard of."
)
@click.option(
    "--namespace", default="default", show_default=True, help="The namespace whose Secrets are looked at."
)
@click.option(
    "--shard-name", metavar="NAME", help="This shard's name (default: the pod's or the host's name)."
)
@click.option(
    "--lease-namespace", metavar="NAMESPACE", help="Where the shard's Lease lives (default: the pod's)."
)
@log_options
def checksum_controller(
    controllerring: str, namespace: str, shard_name: str | None, lease_namespace: str | None
) -> None:
    """Run the checksum controller: for each Secret a ConfigMap with the SHA-256 of every value.

    A small example of a sharded controller. The first Ctrl-C stops it in order and hands its Secrets over,
    the second ends it at once, as a crash would.
    """
    run(
        build_checksum_controller(
            ring=controllerring, namespace=namespace, shard_name=shard_name, lease_namespace=lease_namespace
        )
    )
