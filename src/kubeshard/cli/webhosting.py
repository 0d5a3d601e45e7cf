"""The commands `kubeshard webhosting-operator` and `kubeshard samples`."""

from __future__ import annotations

import asyncio
import os

import click
import msgspec
import yaml

from kubeshard.cli.options import config_option, log_options, report_unknown, strict_option
from kubeshard.client import Client
from kubeshard.examples.webhosting import build_operator, manifests
from kubeshard.examples.webhosting.config import load_settings
from kubeshard.examples.webhosting.generator import generate
from kubeshard.manager import run


@click.command("webhosting-operator")
@config_option
@click.option(
    "--shard-name",
    metavar="NAME",
    help="This shard's name (default: SHARD_NAME, the pod's or the host's name).",
)
@click.option("--namespace", metavar="NAMESPACE", help="Where the Lease of the shard or leader lives.")
@strict_option
@log_options
def operator(path: str | None, shard_name: str | None, namespace: str | None, strict_config: bool) -> None:
    """Run the webhosting operator: a server for every Website.

    With ENABLE_SHARDING=true it is one of the shards of the ring `webhosting-operator` (needs a sharder and
    the ring); otherwise the one elected instance does all the work.

    \b Environment: ENABLE_SHARDING           true or false (default) LEADER_ELECT              overrides
    leaderElection.leaderElect WEBSITE_CONCURRENT_SYNCS  Websites reconciled at once (default 15) KUBECONFIG
    the cluster; without it ~/.kube/config or the pod
    """
    settings = load_settings(path, os.environ)
    report_unknown(settings.warnings, strict=strict_config)
    changes = {"shard_name": shard_name, "namespace": namespace}
    settings = msgspec.structs.replace(settings, **{name: value for name, value in changes.items() if value})
    run(build_operator(settings))


@click.group()
def samples() -> None:
    """Sample objects for the webhosting operator."""


@samples.command("show")
def show() -> None:
    """Print CRDs, a project, themes and three Websites as YAML, for `kubectl apply -f -`."""
    documents = [*manifests.crds(), *manifests.samples()]
    click.echo(yaml.safe_dump_all(documents, sort_keys=False), nl=False)


@samples.command("apply")
def apply() -> None:
    """Create or update the same objects in the cluster."""

    async def do() -> None:
        async with await Client.connect() as client:
            for manifest in [*manifests.crds(), *manifests.samples()]:
                await client.apply_manifest(manifest)
                click.echo(f"applied {manifest['kind']} {manifest['metadata']['name']}")

    asyncio.run(do())


@samples.command("generate")
@click.option(
    "-c", "--count", type=click.IntRange(1), help="Websites per project (default: 1 to 50, by chance)."
)
@click.option("-n", "--namespace", "namespaces", multiple=True, help="Only in this project; may be repeated.")
@click.option("--skip-workload", is_flag=True, help="Websites without pods and without a served Ingress.")
def generate_command(count: int | None, namespaces: tuple[str, ...], skip_workload: bool) -> None:
    """Create Websites with random names and themes in every project.

    A project is a namespace with the label webhosting.timebertt.dev/project=true.
    """

    async def do() -> None:
        async with await Client.connect() as client:
            async for made in generate(
                client, count=count, namespaces=namespaces, skip_workload=skip_workload
            ):
                click.echo(f'created {made.websites} Websites in project "{made.project}"')

    asyncio.run(do())
