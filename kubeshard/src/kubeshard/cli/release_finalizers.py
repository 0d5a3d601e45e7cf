"""The command `kubeshard release-finalizers`."""

from __future__ import annotations

import asyncio
import sys

import click

from kubeshard.commands.options import CLUSTER_VARIABLE, Command, cluster_options


@click.command(
    cls=Command,
    short_help="Release objects that an uninstalled operator holds.",
    environment=CLUSTER_VARIABLE,
    examples=(
        "# which objects are held, and for how long they have been terminating",
        "kubeshard release-finalizers --finalizer example.com/bucket",
        "kubeshard release-finalizers --finalizer example.com/bucket --release",
        "kubeshard release-finalizers --finalizer example.com/bucket --kind buckets.example.com --release --yes",
    ),
)
@click.option(
    "--finalizer",
    "keys",
    metavar="KEY",
    multiple=True,
    required=True,
    help="The finalizer, as in metadata.finalizers; may be repeated.",
)
@click.option(
    "--kind",
    "kinds",
    metavar="RESOURCE.GROUP",
    multiple=True,
    help="Only objects of this kind, as in buckets.example.com; may be repeated (default: all kinds).",
)
@click.option("-n", "--namespace", metavar="NAME", default="", help="Only objects in this namespace.")
@click.option(
    "--release",
    is_flag=True,
    help="Remove the finalizers, after confirmation. Without this option, nothing is changed.",
)
@click.option("--yes", is_flag=True, help="With --release: skip the confirmation.")
@cluster_options
def release_finalizers(
    keys: tuple[str, ...],
    kinds: tuple[str, ...],
    namespace: str,
    release: bool,
    yes: bool,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Find the objects that the finalizers of an uninstalled operator still hold, and release them.

    A deleted object with a finalizer stays until its operator has cleaned up. If the operator is gone, nothing does:
    the object stays forever, and so does its namespace. Uninstall the operator first, because a running one would set
    its finalizers again, and clean up yourself what it would have cleaned up. Only the named finalizers are removed,
    and only from the objects that were listed; those of Kubernetes itself are refused.

    The command needs the right to list and patch these objects. Kinds that cannot be listed are reported, and the exit
    code is 1; webhooks of the operator that are in the way are reported, too.
    """
    from kubeshard.client import leftover_finalizers
    from kubeshard.client.connecting import connected
    from kubeshard.core.errors import ApiError
    from kubeshard.core.finalizers import deletion_age, spoken
    from kubeshard.core.kinds import GroupResource
    from kubeshard.core.namespaces import ALL
    from kubeshard.runtime.logs import one_line
    from kubeshard.runtime.world import REAL_WORLD

    if yes and not release:
        raise click.UsageError("--yes requires --release")
    leftover_finalizers.check_keys(keys)
    parts = [kind.partition(".") for kind in kinds]
    resources = [GroupResource(group, resource) for resource, _, group in parts]

    async def find() -> tuple[list[leftover_finalizers.Held], int]:
        found: list[leftover_finalizers.Held] = []
        failures = 0
        async with connected(kubeconfig, context, world=REAL_WORLD, patient=False) as client:
            async for each in leftover_finalizers.held(
                client, keys, resources=resources, namespace=namespace or ALL
            ):
                if isinstance(each, leftover_finalizers.Unseen):
                    failures += 1
                    remedy = await leftover_finalizers.in_the_way(client, each.error)
                    click.echo(one_line(f"not searched: {each.what}: {each.error}{advice(remedy)}"), err=True)
                    continue
                found.append(each)
                age = deletion_age(each.metadata, REAL_WORLD.clock.wall())
                since = f"being deleted, for {spoken(age)}" if each.metadata.deleting else "not being deleted"
                click.echo(one_line(f"{named(each)}  {', '.join(each.keys)}  {since}"))
        return found, failures

    async def let_go(found: list[leftover_finalizers.Held]) -> int:
        failures = 0
        async with connected(kubeconfig, context, world=REAL_WORLD, patient=False) as client:
            for each in found:
                try:
                    done = await leftover_finalizers.release(client, each)
                except ApiError as error:
                    failures += 1
                    remedy = await leftover_finalizers.in_the_way(client, error)
                    click.echo(one_line(f"not released: {named(each)}: {error}{advice(remedy)}"), err=True)
                else:
                    click.echo(one_line(f"{'released' if done else 'released already'}: {named(each)}"))
        return failures

    def advice(remedy: str) -> str:
        return f"; if that is a webhook of the removed operator: {remedy}" if remedy else ""

    def named(held: leftover_finalizers.Held) -> str:
        meta = held.metadata
        return f"{held.kind.group_resource} {f'{meta.namespace}/' if meta.namespace else ''}{meta.name}"

    found, failures = asyncio.run(find())
    held = f"{len(found)} {'object is' if len(found) == 1 else 'objects are'} held"
    if not found or not release:
        click.echo(f"{held}{'; nothing was changed; use --release to release them' if found else ''}")
    else:
        if not yes:  # asked outside of an event loop, where the first Ctrl-C ends it
            click.confirm(f"{held}. Remove the finalizers?", abort=True)
        failures += asyncio.run(let_go(found))
    if failures:
        sys.exit(1)
