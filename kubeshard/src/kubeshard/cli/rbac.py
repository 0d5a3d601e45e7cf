"""The command `kubeshard rbac`."""

from __future__ import annotations

import click

from kubeshard.cli.loading import load_manager, program_name
from kubeshard.cli.names import account
from kubeshard.commands.options import Command


@click.command(
    cls=Command,
    short_help="Print the roles that an operator needs.",
    examples=(
        "kubeshard rbac my_operator:manager > manifests/rbac.yaml",
        "kubeshard rbac my_operator:manager --service-account my-system:my-operator | kubectl apply -f -",
    ),
)
@click.argument("target", metavar="MODULE[:MANAGER]")
@click.option(
    "--name",
    metavar="NAME",
    help="Name of the roles (default: the module's, or its package's if that is main).",
)
@click.option(
    "--namespace",
    metavar="NAMESPACE",
    help="Where the operator runs (default: the service account's namespace; without one, kubectl's -n decides).",
)
@click.option(
    "--service-account",
    metavar="NAMESPACE:NAME",
    help="Bind the roles to it.",
)
def rbac(target: str, name: str | None, namespace: str | None, service_account: str | None) -> None:
    """Print an operator's ClusterRole and Roles as YAML.

    They allow what its declarations need: to read the watched kinds and those in `reads`, to write status and
    finalizers of the primary kind, to write owned kinds, and also to delete those that it `applies`; Events, the Leases
    of leader election and sharding, and webhooks with their certificate. With in-manager sharding that includes the
    sharder's rights. If only a ControllerRing says what is sharded, every primary and owned kind counts as sharded.

    Declare anything else that your code does in the controller:
    `Controller(..., grants=[Grant.on(Pod, "get", "delete"), Grant.on(Deployment, "patch", subresource="scale")])`.
    """
    from kubeshard.core.yaml_output import documents
    from kubeshard.manager.roles import roles

    bound = account(service_account, "--service-account") if service_account is not None else None
    manager = load_manager(target)
    found = roles(
        manager.grants(),
        name or program_name(target),
        namespace=namespace or (bound[0] if bound else None),
        account=bound,
    )
    click.echo(documents(found), nl=False)
