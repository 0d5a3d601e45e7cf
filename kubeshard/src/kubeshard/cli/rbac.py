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

    They allow what its declarations need: what controllers watch, own, read and write, events, leases and webhooks.
    Declare anything else that the code does in the `grants` of its Controller.
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
