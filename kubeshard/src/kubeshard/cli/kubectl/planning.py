"""The command `plan`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from kubeshard.cli.kubectl.asking import (
    Access,
    access_options,
    ask,
    only_ring,
    output_option,
    print_table,
    print_value,
    say,
)
from kubeshard.commands.options import CLUSTER_VARIABLE, Command

if TYPE_CHECKING:
    from kubeshard.client.client import Client
    from kubeshard.inspection.planning import MovePlan, ShardSetChange
    from kubeshard.inspection.ring import SeenRing


@click.command(
    cls=Command,
    short_help="Show what would move with other shards.",
    environment=CLUSTER_VARIABLE,
    examples=(
        "kubectl shard plan --shards 5",
        "kubectl shard plan webhosting-operator --remove webhosting-operator-2",
        "# the objects themselves, one per line, as arguments of kubectl",
        "kubectl shard plan --add shard-4 -o name",
    ),
)
@click.argument("ring", metavar="[RING]", required=False)
@click.option("--shards", metavar="NUMBER", type=click.IntRange(0, 500), help="With this many shards.")
@click.option("--add", metavar="NAME", multiple=True, help="With a shard of this name; may be repeated.")
@click.option("--remove", metavar="NAME", multiple=True, help="Without this shard; may be repeated.")
@output_option
@access_options
def plan(
    ring: str | None,
    shards: int | None,
    add: tuple[str, ...],
    remove: tuple[str, ...],
    output: str | None,
    access: Access,
) -> None:
    """Show what would move, and how much, if a ring had other shards. Nothing is changed.

    The decisions are the sharder's own, so the plan is what will happen if the shards get these names. For a
    StatefulSet, the names of new pods are known; for a Deployment they are made up, so only the numbers are
    meaningful. Without options, it shows what will move anyway, and children that are not on their owner's shard, which
    the Go sharder leaves behind until its next sync.
    """
    if shards is not None and (add or remove):
        raise click.UsageError("give --shards, or --add and --remove")

    def change_of(seen: SeenRing) -> ShardSetChange:
        from kubeshard.inspection.planning import resized, with_shards

        return with_shards(seen, add=add, remove=remove) if shards is None else resized(seen, shards)

    if output == "name":
        ask(access, lambda client: _print_moves(client, ring, change_of))
        return
    found = ask(access, lambda client: _planned(client, ring, change_of))
    if output:
        print_value(found, output)
    else:
        _print_plan(found)


async def _print_moves(
    client: Client, name: str | None, change_of: Callable[[SeenRing], ShardSetChange]
) -> None:
    from kubeshard.inspection.planning import Seen, moves

    ring = await only_ring(client, name)
    async for move in moves(client, ring, change_of(ring), Seen()):
        namespace = f" -n {move.key.namespace}" if move.key.namespace else ""
        say(f"{move.resource}/{move.key.name}{namespace}")


async def _planned(
    client: Client, name: str | None, change_of: Callable[[SeenRing], ShardSetChange]
) -> MovePlan:
    from kubeshard.inspection.planning import planned

    ring = await only_ring(client, name)
    return await planned(client, ring, change_of(ring))


def _print_plan(plan: MovePlan) -> None:
    added, removed = set(plan.then) - set(plan.now), set(plan.now) - set(plan.then)
    changes = [f"+ {name}" for name in sorted(added)] + [f"- {name}" for name in sorted(removed)]
    say(f"{plan.ring}: {len(plan.now)} -> {len(plan.then)} shards{''.join(f', {each}' for each in changes)}")
    if plan.guessed and plan.then:
        say(
            "the cluster will choose other shards than these: the numbers are what to expect, not the objects"
        )
    if not plan.then:
        say("without any shard nothing is moved, and no shard works on any object")
        return
    say()
    print_table(
        [
            ("RESOURCE", "OBJECTS", "MOVE", ""),
            *(
                [("(buckets)", *plan.buckets, _share(plan.buckets[1], plan.buckets[0]))]
                if plan.buckets
                else []
            ),
            *(
                (resource, count, plan.moving[resource], _share(plan.moving[resource], count))
                for resource, count in plan.objects.items()
            ),
        ]
    )
    if plan.flows:
        say()
        flows = [(each.source or "<none>", each.target, each.resource, each.objects) for each in plan.flows]
        print_table([("FROM", "TO", "RESOURCE", "OBJECTS"), *sorted(flows)])
    if plan.anyway:
        say(
            f"\n{plan.anyway} of these move in any case: they are not where they belong with the present shards"
        )
    for strays in plan.strays:
        shown = ", ".join(strays.names) + (", ..." if strays.objects > len(strays.names) else "")
        say(f"\n{strays.resource} that are not on their owner's shard now: {strays.objects} ({shown})")


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else ""
