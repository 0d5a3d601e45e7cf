"""The commands `kubeshard manifests`: what a cluster needs, for `kubectl apply -f -`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kubeshard.cli.loading import load_manager, program_name
from kubeshard.cli.names import account, label
from kubeshard.cli.yaml_files import read_documents, source_name
from kubeshard.commands.options import Command
from kubeshard.commands.provided import CommandsInOrder
from kubeshard.core.errors import ConfigurationError

if TYPE_CHECKING:
    from kubeshard.manifests.pod_values import Values

FORMS = ["helm", "kustomize"]

Function = TypeVar("Function", bound=Callable[..., Any])


class _WithValues(Command):
    """Lists the values below the options. `values` is their class."""

    def __init__(self, *args: Any, values: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._values = values

    def tables(self) -> dict[str, list[tuple[str, str]]]:
        from kubeshard.manifests import values

        type_: type[Values] = getattr(values, self._values)
        return {"Values": list(values.described(type_)), **super().tables()}


def values_options(function: Function) -> Function:
    """Adds `--set` and `--values`, passed to the function as `settings` and `file`."""
    settings = click.option(
        "--set",
        "settings",
        metavar="KEY=VALUE",
        multiple=True,
        help="Set a value (see below) by its dotted path; may be repeated: --set replicas=3.",
    )
    file = click.option(
        "--values",
        "file",
        metavar="FILE",
        type=click.Path(dir_okay=False, path_type=Path),
        help="A YAML file of values, like Helm's; - reads standard input.",
    )
    return settings(file(function))


def output_option(function: Function) -> Function:
    return click.option(
        "--output",
        "-o",
        metavar="yaml|json",
        type=click.Choice(["yaml", "json"]),
        default="yaml",
        show_default=True,
        help="YAML documents, or a List in JSON.",
    )(function)


class _Manifests(CommandsInOrder):
    provided = "kubeshard.commands.manifests"


@click.group(
    cls=_Manifests,
    subcommand_metavar="COMMAND [ARGS]...",
    short_help="Print manifests for a sharder, ring or operator.",
)
def manifests() -> None:
    """Print the manifests that a sharder, a ring or an operator needs in a cluster.

    The output is meant for `kubectl apply --server-side -f -`. It grants the fewest rights, and its pods run in
    namespaces of the Pod Security level restricted.
    """


@manifests.command(
    cls=_WithValues,
    values="SharderValues",
    short_help="Print what the sharder needs.",
    examples=(
        "kubeshard manifests sharder | kubectl apply --server-side -f -",
        "kubeshard manifests sharder --set replicas=3 --set certManager.enabled=true",
        "kubeshard manifests sharder --set config.controller.sharder.syncPeriod=10m -o json",
    ),
)
@click.option(
    "--part",
    "parts",
    metavar="PART",
    multiple=True,
    help="Print only this part, such as crd, rights or policies; may be repeated.",
)
@values_options
@output_option
def sharder(settings: tuple[str, ...], file: Path | None, parts: tuple[str, ...], output: str) -> None:
    """Print the sharder's objects: CRD, roles, configuration, Deployment, Service and what protects them."""
    from kubeshard.manifests.sharder import sharder_objects
    from kubeshard.manifests.values import SharderValues, chosen

    print_objects(sharder_objects(chosen(SharderValues, _file(file), settings), parts), output)


@manifests.command(
    cls=Command,
    short_help="Print what a ring needs.",
    examples=(
        "kubeshard manifests ring ring.yaml | kubectl apply --server-side -f -",
        "kubeshard manifests ring ring.yaml --shards my-system:my-operator --labels-only",
        "kubectl kustomize rings | kubeshard manifests ring - -o json",
    ),
)
@click.argument("path", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--sharder",
    metavar="NAMESPACE:NAME",
    default="sharding-system:sharder",
    show_default=True,
    help="The sharder's service account.",
)
@click.option(
    "--shards",
    metavar="NAMESPACE:NAME",
    multiple=True,
    help="A service account of shards named after their pods: admission policies restrict each shard to its own "
    "objects (by ranges: to writes while it holds its Lease) and Lease, in the namespaces of the ring's annotation "
    "alpha.sharding.timebertt.dev/shard-namespaces. Recommended wherever others may create Leases, as the stock role "
    "edit allows; may be repeated.",
)
@click.option(
    "--labels-only",
    is_flag=True,
    help="Add an admission policy that keeps the sharder from changing anything but its labels on the ring's "
    "objects. A request in which another mutating webhook changes more then fails.",
)
@output_option
def ring(path: Path, sharder: str, shards: tuple[str, ...], labels_only: bool, output: str) -> None:
    """Print the ControllerRings of a file, the sharder's roles on their resources, and admission policies.

    If FILE is -, standard input is read.

    Policies need Kubernetes 1.30 or newer.
    """
    from kubeshard.manifests.ring import is_ring, ring_objects
    from kubeshard.sharding.api import ControllerRing

    found = [document for document in read_documents(path) if is_ring(document)]
    if not found:
        raise ConfigurationError(
            f"{source_name(path)} has no ControllerRing of {ControllerRing.KIND.api_version}"
        )
    service, accounts = account(sharder, "--sharder"), [account(each, "--shards") for each in shards]
    made = (ring_objects(each, service, shards=accounts, labels_only=labels_only) for each in found)
    print_objects([obj for objects in made for obj in objects], output)


@manifests.command(
    cls=_WithValues,
    values="OperatorValues",
    short_help="Print what an operator needs.",
    examples=(
        "kubeshard manifests operator my_operator:manager --set image=example.com/my-operator:v1",
        "kubeshard manifests operator my_operator --values values.yaml | kubectl apply --server-side -f -",
        "# with its ring, for a sharder service, and what looks at it",
        "kubeshard manifests operator kubeshard_lab.examples.webhosting.operator --name webhosting-operator "
        "--set image=example.com/kubeshard:v1 --set ring.enabled=true --set serviceMonitor.enabled=true "
        "--set dashboards.enabled=true",
        "# the same objects as a Helm chart, or as a kustomization",
        "kubeshard manifests operator my_operator --set image=example.com/my-operator:v1 --format helm --folder chart",
    ),
)
@click.argument("target", metavar="MODULE[:MANAGER]")
@click.option(
    "--name",
    metavar="NAME",
    help="Name of the objects and of the namespace (default: the module's; its package's if that is main).",
)
@click.option(
    "--dashboard",
    "dashboard_files",
    metavar="FILE",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A dashboard of your own, as JSON, for the value dashboards.enabled=true; may be repeated.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMS),
    help="Write files instead of printing: a Helm chart, of which the values are the defaults, or a kustomization.",
)
@click.option(
    "--folder",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where to write them (default: the format's name).",
)
@values_options
@output_option
def operator(
    target: str,
    name: str | None,
    dashboard_files: tuple[Path, ...],
    form: str | None,
    folder: Path | None,
    settings: tuple[str, ...],
    file: Path | None,
    output: str,
) -> None:
    """Print the objects of an operator: CRDs of its own kinds, roles, Deployment, Services.

    They follow from what its Manager declares. MODULE[:MANAGER] is the argument of `kubeshard run` in the image.

    An operator's metrics have a certificate of its own. If they are served over HTTPS, its ServiceMonitor does not
    verify it; that of a sharder is verified.
    """
    from kubeshard.manifests.operator import LONGEST_OPERATOR, operator_objects
    from kubeshard.manifests.operator_files import operator_chart, operator_kustomization
    from kubeshard.manifests.values import OperatorValues, chosen

    if target.partition(":")[0].endswith(".py"):
        raise ConfigurationError(f"{target}: give the module's name in the image, as in my_operator:manager")
    manager = load_manager(target)
    name = label(name or program_name(target), "--name", LONGEST_OPERATOR)
    values = chosen(OperatorValues, _file(file), settings)
    own = {label(f"{name}-{each.stem}", "--dashboard"): _dashboard(each) for each in dashboard_files}
    if form is None:
        if folder is not None:
            raise ConfigurationError("--folder: add --format, which says what to write there")
        print_objects(operator_objects(manager, target, name, values, own), output)
        return
    make = operator_chart if form == "helm" else operator_kustomization
    files = make(manager, target, name, values, own)
    click.echo(f"wrote {_write(files, folder or Path(form))}", err=True)


def _write(files: Mapping[str, str], folder: Path) -> Path:
    """Writes the files, and removes those of the folder that were made so before and are no longer."""
    from kubeshard.manifests.operator_files import GENERATED

    for path in folder.rglob("*.yaml"):
        if str(path.relative_to(folder)) not in files and path.read_text().startswith(GENERATED):
            path.unlink()
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def _dashboard(path: Path) -> dict[str, Any]:
    import json

    try:
        found = json.loads(path.read_text())
    except ValueError as error:
        raise ConfigurationError(f"--dashboard {path}: not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ConfigurationError(f"--dashboard {path}: expected one dashboard")
    return found


def _file(path: Path | None) -> Any:
    if path is None:
        return None
    documents = read_documents(path)
    if len(documents) > 1 or not all(isinstance(each, dict) for each in documents):
        raise ConfigurationError(f"{source_name(path)}: expected one mapping of values")
    return documents[0] if documents else None


def print_objects(objects: Iterable[Any], output: str) -> None:
    from kubeshard.core.yaml_output import documents
    from kubeshard.manifests.output import listed

    click.echo(listed(objects) if output == "json" else documents(objects), nl=False)
