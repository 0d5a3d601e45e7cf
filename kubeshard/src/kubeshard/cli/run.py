"""The command `kubeshard run`."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from functools import wraps
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from kubeshard.commands.logging import LOG_VARIABLES, log_options
from kubeshard.commands.options import (
    CLUSTER_VARIABLE,
    Command,
    apply_option,
    cluster_options,
    version_option,
)
from kubeshard.core.errors import ApiError, ConfigurationError, Invalid
from kubeshard.core.namespaces import WrongNamespace
from kubeshard.manager.settings import SWITCHES, VARIABLES, Settings
from kubeshard.version import how_to_install

if TYPE_CHECKING:
    from kubeshard.cli.yaml_files import Given
    from kubeshard.client.client import Client
    from kubeshard.manager.manager import Manager

DEFINITION = "CustomResourceDefinition"

_CALLED_WITHIN = 20.0
"""Seconds within which an API server calls webhooks that were registered."""


_SETTINGS = {
    "metrics_address": (
        "ADDRESS",
        "Serve metrics there instead of where the manager says: HOST:PORT, or 0 for none.",
    ),
    "health_address": ("ADDRESS", "The same for the health pages, for several instances on a host."),
    "leader_elect": (
        None,
        "Whether to compete for the Lease that the manager declares (default: if it declares one).",
    ),
    "namespaces": (
        "NAMES",
        "Read and reconcile only these namespaces, separated by commas (default: what the manager says).",
    ),
    "shard_name": (
        "NAME",
        "The name of this shard, for several on one machine (default: what the program says, or the pod's).",
    ),
    "processes": (
        "N",
        "Run this many processes, each a shard with its own share, to use several processors; auto: the container's "
        "CPU limit, rounded up, or without a container what the machine has (default: what the manager says, or 1).",
    ),
    "webhooks": (
        None,
        "Whether to serve and register the manager's webhooks: one process on a machine is enough (default: yes).",
    ),
    "webhook_port": (
        "PORT",
        "Serve the webhooks at this port instead of where the manager says; 0 for a free one.",
    ),
}
"""The options that are a program's settings, too: what stands for a value, and the help."""


def _settings_options(function: Callable[..., None]) -> Callable[..., None]:
    """Adds these options, passed to the function as `settings`."""

    @wraps(function)
    def with_settings(*args: Any, **options: Any) -> None:
        given = {name: options.pop(name) for name in _SETTINGS}
        function(*args, settings=Settings.given(given), **options)

    found: Callable[..., None] = with_settings
    for name, (metavar, help_) in reversed(_SETTINGS.items()):
        flag = name.replace("_", "-")
        spelt = f"--{flag}/--no-{flag}" if name in SWITCHES else f"--{flag}"
        option = click.option(spelt, metavar=metavar, default=None, envvar=VARIABLES[name], help=help_)
        found = option(found)
    return found


@click.command(
    cls=Command,
    short_help="Run the operator MODULE:MANAGER.",
    environment={
        **CLUSTER_VARIABLE,
        **{VARIABLES[name]: f"as --{name.replace('_', '-')}" for name in _SETTINGS},
        **LOG_VARIABLES,
    },
    examples=(
        "kubeshard run my_operator:manager",
        "# without a cluster: on its own API server, which ends with the command",
        "kubeshard run my_operator:manager --embedded --apply manifests/crd.yaml",
        "# a second shard beside one that runs on this machine",
        "kubeshard run my_operator:manager --shard-name b --no-webhooks",
        "# on all processors of the machine, each process with its share",
        "kubeshard run my_operator:manager --processes auto",
        "# against a cluster, with no more rights than its pods have there",
        "kubeshard run my_operator:manager --context staging --as-deployed my-system:my-operator",
        "# against a cluster that calls its webhooks here, through a tunnel (ssh -R 9443:127.0.0.1:9443 ...)",
        "kubeshard run my_operator:manager --context staging --webhook-url https://dev.example.org:9443",
    ),
)
@click.argument("target", metavar="MODULE[:MANAGER]")
@apply_option(
    "First apply this file, or those in this folder, as `kubectl apply -f` reads them: YAML, JSON, lists; may be "
    "repeated."
)
@click.option(
    "--embedded",
    is_flag=True,
    help="Use an embedded cluster that starts empty and ends with the command (needs kubeshard-apiserver). Prints the "
    "`export KUBECONFIG=...` for kubectl in another terminal. It calls the manager's webhooks, whatever address they "
    "declare, and workloads get pretended pods.",
)
@_settings_options
@click.option(
    "--as-deployed",
    metavar="NAMESPACE:NAME",
    help="Act as this service account, which the operator has in the cluster: with its rights, and in its namespace. "
    "You need the right to impersonate it; --apply still acts as you.",
)
@click.option(
    "--webhook-url",
    metavar="URL",
    help="Have the cluster call the webhooks at this URL, which leads here, until the command ends. Meanwhile their "
    "failure policy is Ignore, so that nobody's request fails because this machine cannot be reached.",
)
@click.option(
    "--webhook-cert-dir",
    metavar="FOLDER",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Serve webhooks with the tls.crt and tls.key of this folder; its ca.crt is their authority, if it is not a "
    "public one.",
)
@click.option(
    "--webhook-public-ca",
    is_flag=True,
    help="The URL has a certificate that every host trusts, as behind a tunnel that ends TLS.",
)
@click.option(
    "--no-webhook-registration",
    is_flag=True,
    help="Only serve the webhooks, with the certificate of --webhook-cert-dir: somebody else registers them.",
)
@cluster_options
@log_options
@version_option
def run(
    target: str,
    manifests: tuple[Path, ...],
    embedded: bool,
    settings: Settings,
    as_deployed: str | None,
    webhook_url: str | None,
    webhook_cert_dir: Path | None,
    webhook_public_ca: bool,
    no_webhook_registration: bool,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Run an operator until Ctrl-C.

    MANAGER (default: manager) is a Manager in the module, or a function without arguments that makes one. Modules in
    the current folder are found. If kubeshard refuses a declaration, the command exits with one line that names your
    file and line; any other exception of your code is printed with its stack trace.

    Files of --apply are applied before the manager starts. If it has webhooks, only definitions are: everything else
    follows as soon as these are called. A manager that was created with a client already has its cluster: then
    --embedded, --apply, --kubeconfig and --context are refused.

    A program that calls `run(manager)` reads the environment variables below, too, and with `run(manager,
    settings=Settings.parse())` it has the options as well. Outside of a pod, a default port (8080 and 8081) that is
    taken is replaced by a free one, and the log says which.
    """
    from kubeshard.cli.loading import load_manager
    from kubeshard.cli.names import account
    from kubeshard.cli.yaml_files import objects_in
    from kubeshard.manager.program import run as run_manager

    if embedded and (kubeconfig or context):
        raise ConfigurationError("--embedded brings its own cluster: leave out --kubeconfig and --context")
    objects = [each for path in manifests for each in objects_in(path)]
    manager = load_manager(target)
    manager.configure(settings)
    if (embedded or objects) and manager.processes > 1:
        raise ConfigurationError(
            "each of several processes runs this command: leave out --embedded and --apply, and before it run "
            "`kubeshard apiserver` and `kubectl apply`"
        )
    if settings.webhooks is False and (webhook_url or webhook_cert_dir or no_webhook_registration):
        raise ConfigurationError("--no-webhooks serves none: leave out the other options of webhooks")
    if no_webhook_registration:
        if webhook_cert_dir is None or webhook_url:
            raise ConfigurationError(
                "--no-webhook-registration needs a --webhook-cert-dir, and excludes --webhook-url"
            )
        manager.only_serve_webhooks(_certificates(webhook_cert_dir, public=False)["certificates"])
    elif webhook_url:
        manager.call_webhooks_at(webhook_url, **_certificates(webhook_cert_dir, webhook_public_ca))
    elif webhook_cert_dir or webhook_public_ca:
        raise ConfigurationError(
            "--webhook-cert-dir and --webhook-public-ca belong to a --webhook-url or --no-webhook-registration"
        )
    elif embedded and manager.has_webhooks:
        manager.call_webhooks_at("https://127.0.0.1", temporary=False)
    deployed = account(as_deployed, "--as-deployed") if as_deployed else None
    with _embedded() if embedded else _given(kubeconfig) as file:
        run_manager(_prepared(manager, file, context, objects, deployed), settings=Settings())


def _certificates(folder: Path | None, public: bool) -> dict[str, Any]:
    """What is served at the URL, and what the API server has to trust there, if it is not what is made at the start."""
    from kubeshard.webhook.certificates import CertificateFiles

    if folder is None:
        return {"ca_bundle": ""} if public else {}
    authority = folder / "ca.crt"
    known = authority.is_file() and not public
    return {
        "certificates": CertificateFiles(folder / "tls.crt", folder / "tls.key"),
        "ca_bundle": b64encode(authority.read_bytes()).decode() if known else "",
    }


@contextmanager
def _given(kubeconfig: str | None) -> Iterator[str | None]:
    yield kubeconfig


@contextmanager
def _embedded() -> Iterator[str | None]:
    """The kubeconfig of an API server and its controllers, which live as long as the block."""
    if find_spec("kubeshard_apiserver") is None:
        raise ConfigurationError(f"the embedded API server is not installed: {how_to_install('apiserver')}")
    from kubeshard_apiserver.serving.cluster import cluster_in_thread

    with cluster_in_thread() as served, TemporaryDirectory(prefix="kubeshard-run-") as folder:
        file = Path(folder) / "kubeconfig"
        file.write_text(served.kubeconfig)
        click.echo(f"export KUBECONFIG={file}", err=True)
        yield str(file)


@asynccontextmanager
async def _prepared(
    manager: Manager,
    kubeconfig: str | None,
    context: str | None,
    objects: list[Given],
    deployed: tuple[str, str] | None,
) -> AsyncIterator[Manager]:
    """Connects the manager to the chosen cluster, as the service account `deployed` if there is one, and applies the
    objects there, as the user: before it starts, or once its webhooks are called if it has any.
    """
    from kubeshard.client.connecting import connected
    from kubeshard.client.kubeconfig import load_config
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
    async with AsyncExitStack() as stack:
        if objects:
            client = await stack.enter_async_context(
                connected(kubeconfig, context, world=REAL_WORLD, patient=False)
            )
            # What the operator's own webhooks convert and check waits for them.
            waits = [each for each in objects if manager.has_webhooks and each.manifest["kind"] != DEFINITION]
            await _applied(client, [each for each in objects if each not in waits])
            if waits:
                await stack.enter_async_context(_meanwhile(manager, _applied_later(manager, client, waits)))
        yield manager


async def _applied(client: Client, objects: list[Given]) -> None:
    """Raises ConfigurationError for a mistake in an object, ApiError."""
    from kubeshard.client.discovery import KindNotServed
    from kubeshard.client.installing import in_order, install

    sources = {id(each.manifest): each.source for each in objects}
    left = in_order(each.manifest for each in objects)
    try:
        async for manifest in install(client, left, client.config.namespace):
            click.echo(f"applied {manifest['kind']} {manifest['metadata']['name']}", err=True)
            left = left[1:]
    except (Invalid, WrongNamespace, KindNotServed) as error:
        kind, metadata = left[0]["kind"], left[0]["metadata"]
        name = "/".join(str(part) for part in (metadata.get("namespace"), metadata["name"]) if part)
        # What the server says, without the request.
        problem = str(error).partition(": ")[2] if isinstance(error, Invalid) else error
        raise ConfigurationError(f"{sources[id(left[0])]}: {kind} {name}: {problem}") from error


async def _applied_later(manager: Manager, client: Client, objects: list[Given]) -> None:
    """Applies the objects once the API server calls the manager's webhooks."""
    await manager.webhooks_registered()
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _CALLED_WITHIN
    for each in objects:
        while True:
            try:
                await _applied(client, [each])
                break
            except ApiError as error:
                # A server learns of a registration by a watch, and answers 500 while it cannot call a webhook.
                if error.code != HTTPStatus.INTERNAL_SERVER_ERROR or loop.time() > deadline:
                    raise
            await asyncio.sleep(0.2)


@asynccontextmanager
async def _meanwhile(manager: Manager, work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Beside the block, in which the manager runs: if it fails, the manager stops, and its error is raised."""
    task = asyncio.create_task(work, name="apply")
    task.add_done_callback(lambda done: manager.stop() if not done.cancelled() and done.exception() else None)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
    if not task.cancelled() and (error := task.exception()):
        raise error
