"""The command `kubeshard run`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from kubeshard.commands.logging import log_options
from kubeshard.commands.options import CLUSTER_VARIABLE, Command, cluster_options, version_option
from kubeshard.core.errors import ConfigurationError
from kubeshard.version import how_to_install

if TYPE_CHECKING:
    from kubeshard.manager.manager import Manager


@click.command(
    cls=Command,
    short_help="Run the operator MODULE:MANAGER.",
    environment={
        **CLUSTER_VARIABLE,
        "METRICS_ADDRESS": "as --metrics-address",
        "HEALTH_ADDRESS": "as --health-address",
        "LEADER_ELECT": "as --leader-elect",
        "WATCH_NAMESPACE": "as --namespaces",
    },
    examples=(
        "kubeshard run my_operator:manager",
        "# without a cluster: on its own API server, which ends with the command",
        "kubeshard run my_operator:manager --embedded --apply manifests/crd.yaml",
        "# against a cluster, with no more rights than its pods have there",
        "kubeshard run my_operator:manager --context staging --as-deployed my-system:my-operator",
    ),
)
@click.argument("target", metavar="MODULE[:MANAGER]")
@click.option(
    "--apply",
    "manifests",
    metavar="FILE",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="First apply this YAML file, or those in this folder; may be repeated.",
)
@click.option(
    "--embedded",
    is_flag=True,
    help="Use an empty embedded API server, for experiments (needs kubeshard-apiserver).",
)
@click.option(
    "--metrics-address",
    metavar="ADDRESS",
    envvar="METRICS_ADDRESS",
    help="Serve metrics there instead of where the manager says: HOST:PORT, or 0 for none.",
)
@click.option(
    "--health-address",
    metavar="ADDRESS",
    envvar="HEALTH_ADDRESS",
    help="The same for the health pages, for several instances on a host.",
)
@click.option(
    "--leader-elect/--no-leader-elect",
    default=None,
    envvar="LEADER_ELECT",
    help="Whether to compete for the Lease that the manager declares (default: if it declares one).",
)
@click.option(
    "--namespaces",
    metavar="NAMES",
    envvar="WATCH_NAMESPACE",
    help="Read and reconcile only these namespaces, separated by commas (default: what the manager says).",
)
@click.option(
    "--as-deployed",
    metavar="NAMESPACE:NAME",
    help="Act as this service account, which the operator has in the cluster: with its rights, and in its namespace.",
)
@cluster_options
@log_options
@version_option
def run(
    target: str,
    manifests: tuple[Path, ...],
    embedded: bool,
    metrics_address: str | None,
    health_address: str | None,
    leader_elect: bool | None,
    namespaces: str | None,
    as_deployed: str | None,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Run an operator until Ctrl-C.

    MANAGER (default: manager) is a Manager in the module, or a function without arguments that makes one. Modules in
    the current folder are found.
    """
    from kubeshard.cli.loading import load_manager
    from kubeshard.cli.names import account
    from kubeshard.cli.yaml_files import objects_in
    from kubeshard.manager.program import run as run_manager
    from kubeshard.manager.settings import Settings, namespaces_of

    if embedded and (kubeconfig or context):
        raise ConfigurationError("--embedded brings its own cluster: leave out --kubeconfig and --context")
    objects = [document for path in manifests for document in objects_in(path)]
    manager = load_manager(target)
    manager.configure(
        Settings(
            metrics_address=metrics_address,
            health_address=health_address,
            leader_elect=leader_elect,
            namespaces=namespaces_of(namespaces) if namespaces else None,
        )
    )
    deployed = account(as_deployed, "--as-deployed") if as_deployed else None
    with _embedded() if embedded else _given(kubeconfig) as file:
        run_manager(_prepared(manager, file, context, objects, deployed), settings=Settings())


@contextmanager
def _given(kubeconfig: str | None) -> Iterator[str | None]:
    yield kubeconfig


@contextmanager
def _embedded() -> Iterator[str | None]:
    """The kubeconfig of an API server that lives as long as the block."""
    if find_spec("kubeshard_apiserver") is None:
        raise ConfigurationError(f"the embedded API server is not installed: {how_to_install('apiserver')}")
    from kubeshard_apiserver.serving.embedded import embedded_in_thread

    with embedded_in_thread() as served, TemporaryDirectory(prefix="kubeshard-run-") as folder:
        file = Path(folder) / "kubeconfig"
        file.write_text(served.kubeconfig)
        click.echo(f"export KUBECONFIG={file}", err=True)
        yield str(file)


@asynccontextmanager
async def _prepared(
    manager: Manager,
    kubeconfig: str | None,
    context: str | None,
    objects: list[dict[str, Any]],
    deployed: tuple[str, str] | None,
) -> AsyncIterator[Manager]:
    """Connects the manager to the chosen cluster, as the service account `deployed` if there is one, and applies the
    objects there first, as the user.
    """
    from kubeshard.client.connecting import connected
    from kubeshard.client.installing import install
    from kubeshard.client.loading import load_config
    from kubeshard.runtime.world import REAL_WORLD

    if kubeconfig or context or objects or deployed:
        config = await load_config(kubeconfig, context)
        if deployed:
            user = {"Impersonate-User": "system:serviceaccount:{}:{}".format(*deployed)}
            config = replace(config, namespace=deployed[0], impersonate=user)
        try:
            manager.connect_to(config)  # also decides where objects are applied: to the same cluster
        except ConfigurationError as error:
            raise ConfigurationError(
                f"{error}; --embedded, --kubeconfig, --context, --as-deployed and --apply are for managers without one"
            ) from error
    if objects:
        async with connected(kubeconfig, context, world=REAL_WORLD, patient=False) as client:
            async for manifest in install(client, objects):
                click.echo(f"applied {manifest['kind']} {manifest['metadata']['name']}", err=True)
    yield manager
