"""The webhosting operator and its samples as programs.

python -m kubeshard_lab.examples.webhosting operator --sharding shard
python -m kubeshard_lab.examples.webhosting samples apply
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from kubeshard.commands.ending import run_program
from kubeshard.commands.logging import log_options
from kubeshard.commands.options import (
    CLUSTER_VARIABLE,
    LEADER_VARIABLE,
    POD_VARIABLE,
    Command,
    cluster_options,
    config_options,
    report_unknown,
    sharding_option,
    version_option,
)

if TYPE_CHECKING:
    from kubeshard import Client

PROGRAM = "python -m kubeshard_lab.examples.webhosting"


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@version_option
def webhosting() -> None:
    """An example of a sharded operator: a web server for every Website."""


@webhosting.command(
    cls=Command,
    short_help="Run the operator.",
    environment={
        "ENABLE_SHARDING": "true: be a shard of the ring webhosting-operator, with a sharder service (default: false)",
        "SHARDING_ENABLED": "true: be a shard of that ring, and a candidate for its sharder (default: false)",
        "SHARD_MODE": "shard, both or sharder: the role to take if one of these is true",
        "SHARD_NAME": "this shard's name (default: SHARD_ID, the pod's or the host's)",
        "SHARD_ID": "the same",
        "WEBSITE_CONCURRENT_SYNCS": "how many Websites are reconciled at once (default: 15)",
        **LEADER_VARIABLE,
        **POD_VARIABLE,
        **CLUSTER_VARIABLE,
    },
    examples=(
        "# one instance for everything, on your own machine",
        f"LEADER_ELECT=false {PROGRAM} operator",
        "# one shard; start as many as you like",
        f"{PROGRAM} operator --sharding shard --shard-name one",
        "# the same without a sharder service: the elected shard does its work",
        f"{PROGRAM} operator --sharding both --shard-name one",
    ),
)
@config_options
@sharding_option(
    None,
    "What this process is in the ring webhosting-operator: one elected instance does all the work (off), a shard, "
    "its sharder where it is elected, both. Default: see Environment.",
)
@click.option(
    "--delivery",
    type=click.Choice(("labels", "ranges")),
    default="labels",
    show_default=True,
    help="How the ring shares out Websites: by labels on them, or by hash ranges, with nothing written to them.",
)
@click.option(
    "--shard-name",
    metavar="NAME",
    help="This shard's name (default: SHARD_NAME, SHARD_ID, the pod's or the host's name).",
)
@click.option(
    "--namespace",
    metavar="NAMESPACE",
    help="Where the Lease of the shard or leader lives (default: leaderElection.resourceNamespace, the pod's, "
    "webhosting-system).",
)
@cluster_options
@log_options
@version_option
def operator(
    path: str | None,
    strict_config: bool,
    sharding: str | None,
    delivery: str,
    shard_name: str | None,
    namespace: str | None,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Run the webhosting operator: a web server for every Website.

    With --sharding shard it is one of the shards of the ring `webhosting-operator`, and needs a sharder and that
    ring; with --sharding both the elected shard is the sharder; otherwise the one elected instance does all the
    work. It is the operator with which the reference runs its measurements.

    It writes only what it is responsible for in a Website's objects: labels, annotations and fields that others add are
    kept. So a label that is removed from a Website stays on the Website's objects.
    """
    import msgspec

    from kubeshard import Settings, run
    from kubeshard.runtime.world import REAL_WORLD
    from kubeshard_lab.examples.webhosting.config import load_settings
    from kubeshard_lab.examples.webhosting.operator import connected_operator

    settings, unknown = load_settings(path, os.environ)
    report_unknown(unknown, strict=strict_config)
    changes = {"shard_name": shard_name, "namespace": namespace, "sharding": sharding}
    settings = msgspec.structs.replace(settings, ranges=delivery == "ranges")
    settings = msgspec.structs.replace(settings, **{name: value for name, value in changes.items() if value})
    if sharding == "off":
        settings = msgspec.structs.replace(settings, sharding=None)
    run(connected_operator(settings, kubeconfig, context, REAL_WORLD), settings=Settings())


@webhosting.group()
def samples() -> None:
    """Sample objects for the webhosting operator."""


@samples.command(
    cls=Command,
    examples=(
        f"{PROGRAM} samples show --crds | kubectl apply -f -",
        "# for a sharder service: the ring, and the sharder's role for it",
        f"{PROGRAM} samples show --ring | kubectl apply -f -",
        f"{PROGRAM} samples show | kubectl apply -f -",
    ),
)
@click.option(
    "--crds", is_flag=True, help="Print the CustomResourceDefinitions of Themes and Websites instead."
)
@click.option("--ring", is_flag=True, help="Print the ControllerRing and the sharder's role for it instead.")
def show(crds: bool, ring: bool) -> None:
    """Print a project, two themes and two Websites as YAML.

    Apply their CustomResourceDefinitions first and separately, because `kubectl apply` looks up every kind before it
    applies anything.
    """
    from kubeshard.core.yaml_output import documents
    from kubeshard_lab.examples.webhosting import manifests

    if crds and ring:
        raise click.UsageError("--crds and --ring exclude each other")
    found = manifests.crds() if crds else manifests.ring() if ring else manifests.samples()
    click.echo(documents(found), nl=False)


@samples.command(
    cls=Command, environment=CLUSTER_VARIABLE, short_help="Create or update the samples in a cluster."
)
@cluster_options
def apply(kubeconfig: str | None, context: str | None) -> None:
    """Create or update in a cluster what `show --crds` and `show` print, and `show --ring` if a sharder is there."""
    from kubeshard.client.connecting import connected
    from kubeshard.client.discovery import KindNotServed
    from kubeshard.client.installing import install
    from kubeshard.runtime.world import REAL_WORLD
    from kubeshard.sharding.api import GROUP as RING_GROUP
    from kubeshard_lab.examples.webhosting import manifests

    async def do() -> None:
        async with connected(kubeconfig, context, world=REAL_WORLD, patient=False) as client:
            await applied(client, manifests.crds())
            try:
                await client.discovery.kind(RING_GROUP, resource="controllerrings")
                await applied(client, manifests.ring())
            except KindNotServed:
                click.echo("no ControllerRing: the cluster has no sharder", err=True)
            await applied(client, manifests.samples())

    async def applied(client: Client, objects: Iterable[Mapping[str, Any]]) -> None:
        async for manifest in install(client, objects):
            click.echo(f"applied {manifest['kind']} {manifest['metadata']['name']}")

    asyncio.run(do())


@samples.command(
    cls=Command,
    environment=CLUSTER_VARIABLE,
    examples=(
        f"{PROGRAM} samples generate",
        f"{PROGRAM} samples generate --count 100 --namespace project-foo --skip-workload",
    ),
)
@click.option(
    "-c",
    "--count",
    metavar="NUMBER",
    type=click.IntRange(1),
    help="Websites per project (default: a random number from 1 to 50).",
)
@click.option(
    "-n",
    "--namespace",
    "namespaces",
    metavar="PROJECT",
    multiple=True,
    help="Only in this project; may be repeated, or list several with commas.",
)
@click.option("--skip-workload", is_flag=True, help="Create Websites that run no pods and serve no Ingress.")
@cluster_options
def generate(
    count: int | None,
    namespaces: tuple[str, ...],
    skip_workload: bool,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Create Websites with random names and themes in every project.

    A project is a namespace with the label webhosting.timebertt.dev/project=true.
    """
    from kubeshard.client.connecting import connected
    from kubeshard.runtime.world import REAL_WORLD
    from kubeshard_lab.examples.webhosting import generator

    chosen = {name for given in namespaces for name in given.split(",") if name}

    async def do() -> None:
        async with connected(kubeconfig, context, world=REAL_WORLD, patient=False) as client:
            async for made in generator.generate(
                client, count=count, namespaces=chosen, skip_workload=skip_workload
            ):
                click.echo(f'created {made.websites} Websites in project "{made.project}"')

    asyncio.run(do())


if __name__ == "__main__":
    run_program(webhosting, PROGRAM)
