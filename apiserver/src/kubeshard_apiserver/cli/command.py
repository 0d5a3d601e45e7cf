"""The command `kubeshard apiserver`."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path

import click

from kubeshard.commands.logging import log_options
from kubeshard.commands.options import Command, version_option
from kubeshard_apiserver.resources.admission_plugins import ADMISSION_PLUGINS
from kubeshard_apiserver.verbs.shard_selectors import SHARDED_LIST_AND_WATCH

DEFAULT_PORT = 6443
_LONGEST_ROUND_TRIP = 60.0


def _a_number(_context: click.Context, _option: click.Parameter, value: float) -> float:
    """Rejects NaN, which passes every range check."""
    if value != value:
        raise click.BadParameter("is not a number")
    return value


def _a_round_trip(_context: click.Context, _option: click.Parameter, value: str) -> float:
    """Returns the seconds."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s)", value)
    seconds = float(found[1]) * {"ms": 0.001, "s": 1.0}[found[2]] if found else -1.0
    if not 0 <= seconds <= _LONGEST_ROUND_TRIP:
        raise click.BadParameter(f"{value} is not a duration of at most 60s, such as 10ms or 0.1s")
    return seconds


def _plugins(_context: click.Context, _option: click.Parameter, value: str) -> frozenset[str]:
    names = frozenset(filter(None, (name.strip() for name in value.split(","))))
    if unknown := sorted(names.difference(ADMISSION_PLUGINS)):
        raise click.BadParameter(f"{', '.join(unknown)}: choose from {', '.join(ADMISSION_PLUGINS)}")
    return names


def _gates(_context: click.Context, _option: click.Parameter, value: str) -> frozenset[str]:
    """Returns the features that are on."""
    enabled = set[str]()
    for gate in filter(None, (gate.strip() for gate in value.split(","))):
        name, _, wanted = gate.partition("=")
        if name != SHARDED_LIST_AND_WATCH:
            raise click.BadParameter(f"{name}: this server knows {SHARDED_LIST_AND_WATCH} only")
        if wanted.lower() not in ("true", "false"):
            raise click.BadParameter(f"{gate}: write {name}=true or {name}=false")
        (enabled.add if wanted.lower() == "true" else enabled.discard)(name)
    return frozenset(enabled)


@click.command(
    cls=Command,
    short_help="Run a Kubernetes API server on this machine.",
    examples=(
        "kubeshard apiserver",
        "# in another terminal, as printed",
        "export KUBECONFIG=~/.kube/kubeshard",
        "kubectl create deployment web --image=nginx --replicas=3",
        "# a second server that keeps its data",
        "kubeshard apiserver --port 0 --data cluster --kubeconfig cluster.yaml",
    ),
)
@click.option(
    "--kubeconfig",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where to write the administrator's kubeconfig (default: kubeconfig in the data folder, or "
    "~/.kube/kubeshard), readable by you only. A kubeconfig of another cluster or of a running server is not "
    "overwritten.",
)
@click.option(
    "--host",
    metavar="ADDRESS",
    default="127.0.0.1",
    show_default=True,
    help="The address to listen on. Any address but loopback exposes the server to the network.",
)
@click.option(
    "--port",
    metavar="PORT",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="The port to listen on; 0 picks a free one.",
)
@click.option(
    "--data",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep objects, tokens and keys in this folder (default: in memory, lost on exit).",
)
@click.option(
    "--no-controllers",
    is_flag=True,
    help="Run no controllers: no garbage collection, namespace deletion, Event expiry or pods.",
)
@click.option("--no-pods", is_flag=True, help="Do not create simulated pods for workloads.")
@click.option(
    "--ready-after",
    metavar="SECONDS",
    type=click.FloatRange(0, 86400),
    callback=_a_number,
    default=1.0,
    show_default=True,
    help="How long a simulated pod takes to become ready.",
)
@click.option(
    "--allow-all",
    is_flag=True,
    help="Disable RBAC: anyone with valid credentials may do everything, and nobody without them anything.",
)
@click.option(
    "--disable-admission-plugins",
    "disabled",
    metavar="NAMES",
    callback=_plugins,
    default="",
    help=f"Admission plugins that do not change pods, separated by commas: {', '.join(ADMISSION_PLUGINS)}.",
)
@click.option(
    "--feature-gates",
    "feature_gates",
    metavar="GATES",
    callback=_gates,
    default="",
    help=f"Features to switch on or off, separated by commas: {SHARDED_LIST_AND_WATCH}=true. As in Kubernetes 1.37, "
    "it is off by default.",
)
@click.option(
    "--latency",
    metavar="DURATION",
    callback=_a_round_trip,
    default="0ms",
    show_default=True,
    help="Delay every response by this much, and every event of a watch by half of it, as if the server were on "
    "another machine: 10ms, 0.1s. It limits neither concurrency nor throughput, and does not apply to webhook calls.",
)
@log_options
@version_option
def apiserver(
    kubeconfig: Path | None,
    host: str,
    port: int,
    data: Path | None,
    no_controllers: bool,
    no_pods: bool,
    ready_after: float,
    allow_all: bool,
    latency: float,
    disabled: frozenset[str],
    feature_gates: frozenset[str],
) -> None:
    """Run a Kubernetes API server: no etcd, no containers, ready in an instant.

    It behaves like kube-apiserver, and includes the controllers of a cluster and simulated pods, so that operators,
    kubectl and tests work as usual. Tokens and keys are random, and new at every start unless there is a data folder.
    The first Ctrl-C shuts it down gracefully.
    """
    from kubeshard_apiserver.cli.run import Options, run

    if not is_loopback(host):
        click.secho(
            f"WARNING: listening on {host or 'all addresses'}: anyone who can reach this machine can reach this "
            "server, and anyone with the kubeconfig has full control of it",
            fg="red",
            bold=True,
            err=True,
        )
    run(
        Options(
            kubeconfig,
            host,
            port,
            data,
            not no_controllers,
            not no_pods,
            ready_after,
            not allow_all,
            latency,
            [name for name in ADMISSION_PLUGINS if name not in disabled],
            feature_gates,
        )
    )


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
