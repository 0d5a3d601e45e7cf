"""The command `release`."""

from __future__ import annotations

import click

from kubeshard.cli.kubectl.asking import Access, access_options, ask, say
from kubeshard.commands.options import CLUSTER_VARIABLE, Command


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
    from kubeshard.inspection.release import confirm, read_unconfirmed

    found = ask(access, lambda client: read_unconfirmed(client, shard, ring, namespace))
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
    ask(access, lambda client: confirm(client, found))
    say(f"confirmed: the sharder moves the objects of {shard}{condition}")
