"""The command `release`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kubeshard.cli.kubectl.asking import Access, access_options, ask, say
from kubeshard.commands.options import CLUSTER_VARIABLE, Command

if TYPE_CHECKING:
    from kubeshard.client.client import Client
    from kubeshard.inspection.release import Unconfirmed


@click.command(
    cls=Command,
    short_help="Confirm that a dead shard has ended, so that its objects can move.",
    environment=CLUSTER_VARIABLE,
    examples=("kubectl shard release webhosting-operator-2",),
)
@click.argument("shard")
@click.option("--ring", metavar="RING", help="The shard's ring, if it does not follow from its name.")
@click.option(
    "-n", "--namespace", metavar="NAME", help="Where the shard's Lease was, if it has been deleted."
)
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@access_options
def release(shard: str, ring: str | None, namespace: str | None, yes: bool, access: Access) -> None:
    """Confirm that the process of a dead shard has ended, in a ring with strict hand-over. Its objects move to the
    other shards, and a process of its name may begin.

    A ring without a ControllerRing has strict hand-over if its operator says so; in others this changes nothing.

    Nothing can check that the process has ended. If its machine stands still or cannot be reached, turn it off first.
    """
    found = ask(access, lambda client: _found(client, shard, ring, namespace))
    condition = "" if found.asked else ", if its operator asks for that"
    say(
        f"{shard} of the ring {found.ring} is dead by its Lease;"
        f" its objects wait until it is known to have ended{condition}."
    )
    if not yes:
        try:
            click.confirm(f"Is it certain that no process of {shard} runs, or will go on?", abort=True)
        except click.Abort:
            say("\nnothing was done")
            raise
    ask(access, lambda client: _confirm(client, found))
    say(f"confirmed: the sharder moves the objects of {shard}{condition}")


async def _found(client: Client, shard: str, ring: str | None, namespace: str | None) -> Unconfirmed:
    from kubeshard.core.errors import ConfigurationError
    from kubeshard.inspection.cluster import read_cluster, read_leases
    from kubeshard.inspection.errors import NoControllerRings, Unanswerable, unknown
    from kubeshard.inspection.release import unconfirmed, unconfirmed_by_leases
    from kubeshard.inspection.ring import see
    from kubeshard.sharding.names import RING_LABEL, STRICT_HANDOVER_ANNOTATION

    try:
        cluster = await read_cluster(client)
        rings, leases = cluster.rings, cluster.leases
    except NoControllerRings:
        cluster, rings, leases = None, {}, tuple(await read_leases(client))
    labelled = {each.metadata.label(RING_LABEL) for each in leases}
    named = {each.metadata.label(RING_LABEL) for each in leases if each.metadata.name == shard}
    if ring is None:
        strict = {
            name for name, each in rings.items() if each.metadata.annotation(STRICT_HANDOVER_ANNOTATION)
        }
        candidates = sorted((strict & named) | (named - rings.keys()) or strict)
        if not candidates:
            if loose := sorted(labelled - rings.keys()):
                raise Unanswerable(
                    f"no ControllerRing has strict hand-over, and {shard} has no Lease: choose a ring without"
                    f" ControllerRing with --ring: {', '.join(loose)}"
                )
            raise Unanswerable("no ring has strict hand-over: the objects of dead shards wait for nothing")
        if len(candidates) > 1:
            raise ConfigurationError(f"choose a ring with --ring: {', '.join(candidates)}")
        (ring,) = candidates
    if ring not in labelled | rings.keys():
        raise unknown("ring", ring, labelled | rings.keys())
    if cluster is not None and ring in rings:
        return unconfirmed(await see(client, cluster, ring), shard, namespace)
    return unconfirmed_by_leases(leases, ring, shard, namespace)


async def _confirm(client: Client, found: Unconfirmed) -> None:
    from kubeshard.inspection.release import confirm

    await confirm(client, found)
