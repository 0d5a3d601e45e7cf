"""The commands `status`, `where` and `why`."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from kubeshard.cli.kubectl.asking import (
    Access,
    access_options,
    ask,
    namespace_option,
    object_argument,
    output_option,
    print_facts,
    print_table,
    print_value,
    say,
    seconds,
)
from kubeshard.commands.options import CLUSTER_VARIABLE, Command
from kubeshard.runtime.logs import one_line

if TYPE_CHECKING:
    from kubeshard.client.client import Client
    from kubeshard.inspection.cluster import Unled
    from kubeshard.inspection.placement import BucketPlace, Placement
    from kubeshard.inspection.status import AssignmentStatus, RingStatus, ShardStatus

CLUSTERS_SHOWN = 5


@click.command(
    cls=Command,
    short_help="Show rings, their shards, and problems.",
    environment=CLUSTER_VARIABLE,
    examples=("kubectl shard status", "kubectl shard status webhosting-operator -o json"),
)
@click.argument("ring", metavar="[RING]", required=False)
@output_option
@access_options
def status(ring: str | None, output: str | None, access: Access) -> None:
    """Show rings: shards and the state of their Leases, the objects of each shard, what is unassigned or being drained,
    problems, and what to do about them.

    Lists every object of the ring once. Resources that cannot be listed are reported, and then the exit code is 1.
    """

    async def question(client: Client) -> tuple[list[RingStatus], list[str], list[str], dict[str, Unled]]:
        from kubeshard.inspection.cluster import read_cluster
        from kubeshard.inspection.status import status_of

        cluster = await read_cluster(client)
        without = [name for name in cluster.without_ring() if ring in (None, name)]
        names = list(cluster.rings) if ring is None else [] if without else [cluster.ring(ring).name]
        if not (names or without or cluster.defined):
            raise cluster.no_rings()
        found = [await status_of(client, cluster, name) for name in names]
        return found, without, cluster.orphans(), cluster.unled()

    found, without, orphans, unled = ask(access, question)
    if output == "name":
        for each in found:
            lease = f"lease.coordination.k8s.io/{each.sharder.partition('/')[2]}"
            say(lease if each.declared else f"controllerring.sharding.timebertt.dev/{each.ring}")
    elif output:
        print_value({"rings": found, "withoutControllerRing": without, "orphaned": orphans}, output)
    else:
        _print_status(found, without, orphans, unled)
    if any(resource.error for each in found for resource in each.resources):
        sys.exit(1)


def _print_status(
    rings: Sequence[RingStatus], without: Sequence[str], orphans: Sequence[str], unled: Mapping[str, Unled]
) -> None:
    from kubeshard.inspection.cluster import SILENT

    for number, ring in enumerate(rings):
        if number:
            say()
        available = sum(shard.available for shard in ring.shards)
        leases = sum(shard.state != "gone" for shard in ring.shards)
        drains = (
            f"{ring.draining} (oldest {seconds(ring.oldest_drain_seconds) or '?'})" if ring.draining else "0"
        )
        print_table(
            [
                ("RING", "READY", "SHARDS", "OBJECTS", "UNASSIGNED", "DRAINING"),
                (
                    ring.ring,
                    ring.ready,
                    f"{available}/{leases}",
                    sum(each.objects for each in ring.resources),
                    sum(each.unassigned for each in ring.resources),
                    drains,
                ),
            ]
        )
        if ring.inside:
            say(f"  its sharder is inside the operator: Lease {ring.sharder}")
        if (its := ring.assignment) is not None:
            say(
                f"  {its.buckets} buckets by {its.by}: ConfigMap {its.config_map}, epoch {its.epoch};"
                f" each shard {_reads(its)}"
            )
        _print_shards(ring)
        for trouble in ring.troubles:
            say(f"\n  ! {one_line(trouble.problem)}\n    {one_line(trouble.remedy)}")
            say(f"    {commented(trouble.command, trouble.fixes)}")
    for name in without:
        if name in unled:
            say(f"{name}: {unled[name].problem}\n  {unled[name].remedy}\n  {unled[name].command}")
        elif name in orphans:
            say(
                f"{name}: there are Leases of its shards, but no ControllerRing, and no sharder inside the operator:"
                " nobody assigns its objects\n"
                '  run some of its shards with mode="both", or create the ControllerRing; if the ring was given up,'
                " stop its shards and delete their Leases"
            )
        else:
            say(f"{name}: {SILENT}")
    if not rings and not without:
        say("there is no ring: neither a ControllerRing, nor an operator with a sharder inside")


def _reads(its: AssignmentStatus) -> str:
    if its.by == "cluster":
        return "connects to its own clusters"
    if its.selected:
        return "receives its own objects"
    return "receives all objects, as the API server does not select them"


def _print_shards(ring: RingStatus) -> None:
    if not ring.shards:
        return
    resources = [each for each in ring.resources if not each.error]
    by_ranges = ("WEIGHT", "BUCKETS", "REPORTED") if ring.assignment else ()
    by_cluster = ring.assignment is not None and ring.assignment.by == "cluster"
    say()
    print_table(
        [
            (
                "SHARD",
                "LEASE",
                "RENEWED",
                *by_ranges,
                *(each.resource.upper() for each in resources),
                "DRAINING",
                *(("CLUSTERS",) if by_cluster else ()),
            ),
            *(
                (
                    shard.name,
                    _state(shard.state, shard.sharder_says),
                    seconds(shard.renewed_seconds_ago),
                    *_owned(shard),
                    *(shard.objects[each.resource] for each in resources),
                    shard.draining,
                    *((_few(shard),) if by_cluster else ()),
                )
                for shard in ring.shards
            ),
        ],
        indent="  ",
    )


def _owned(shard: ShardStatus) -> tuple[str, ...]:
    """In a ring by ranges."""
    if (has := shard.buckets) is None:
        return ()
    leaving = f" (-{has.draining})" if has.draining else ""
    return f"{has.weight:g}", f"{has.owned}{leaving}", str(has.reported)


def _few(shard: ShardStatus) -> str:
    """The clusters that fit into a line."""
    names = shard.buckets.clusters if shard.buckets else []
    more = f", and {len(names) - CLUSTERS_SHOWN} more" if len(names) > CLUSTERS_SHOWN else ""
    return ", ".join(names[:CLUSTERS_SHOWN]) + more


def _state(state: str, labelled: str) -> str:
    return state if labelled in ("", state) else f"{state} (sharder: {labelled})"


@click.command(
    cls=Command,
    short_help="Show which shard has an object.",
    environment=CLUSTER_VARIABLE,
    examples=("kubectl shard where secret/foo -n default", "kubectl shard where website homepage"),
)
@object_argument
@namespace_option
@output_option
@access_options
def where(
    words: tuple[str, ...],
    namespace: str | None,
    output: str | None,
    access: Access,
) -> None:
    """Show which shard has an object, and to which one the hash ring assigns it, or its range of hashes.

    For an object that does not exist, it shows where the object would go, and the exit code is 1.
    """
    found = ask(access, placements(words, namespace, family=False))
    if output == "name":
        for each in found:
            if each.shard:
                say(each.shard)
    elif output:
        print_value({"placements": found}, output)
    else:
        print_table(
            [
                (
                    "RING",
                    "OBJECT",
                    "SHARD",
                    "LEASE",
                    "DUE" if any(each.bucket for each in found) else "HASH RING",
                    "",
                ),
                *(
                    (
                        each.ring,
                        _object(each),
                        each.shard or "<none>",
                        each.shard_state or "-",
                        each.desired or "<none>",
                        each.reason,
                    )
                    for each in found
                ),
            ]
        )
    _end(found)


@click.command(
    cls=Command,
    short_help="Explain why an object is on its shard.",
    environment=CLUSTER_VARIABLE,
    examples=("kubectl shard why secret/foo -n default", "kubectl shard why deployment/a -n team -o yaml"),
)
@object_argument
@namespace_option
@output_option
@access_options
def why(
    words: tuple[str, ...],
    namespace: str | None,
    output: str | None,
    access: Access,
) -> None:
    """Explain why an object is on its shard, or on none: its hash key, which shards come next, what the sharder would
    do with it and what that waits for, its owner, and what it controls. In a ring by ranges: its bucket, who owns that
    and since when, and whether the owner says so.
    """
    found = ask(access, placements(words, namespace, family=True))
    if output == "name":
        for each in found:
            say(each.reason)
    elif output:
        print_value({"placements": found}, output)
    else:
        for number, each in enumerate(found):
            if number:
                say()
            _explain(each)
    _end(found)


def _explain(found: Placement) -> None:
    say(title_of(found))
    print_facts(facts_of(found))


def title_of(found: Placement) -> str:
    return f"{_object(found)} in ring {found.ring}"


def facts_of(found: Placement) -> list[tuple[str, str]]:
    """Why an object is where it is, as names and values; some values may be empty."""
    owner = found.owner
    drains = f", drain requested {seconds(found.draining_seconds) or '?'} ago" if found.draining else ""
    where_owner = (
        "" if owner is None else (owner.shard or "no shard") if owner.exists else "it does not exist"
    )
    return [
        ("shard", f"{found.shard} ({found.shard_state}){drains}" if found.shard else "none"),
        ("hash ring" if found.bucket is None else "due", found.desired),
        ("hash key", f"{found.key} -> {found.point}" if found.key else ""),
        *(_bucket(found.bucket) if found.bucket else ()),
        ("next", ", ".join(found.successors)),
        ("held by", ", ".join(found.held_by)),
        ("owner", f"{owner.kind} {owner.name}: {where_owner}" if owner else ""),
        *(("controls", _children(child.resource, child.shards, child.error)) for child in found.children),
        ("why", f"{found.reason}: {found.message}"),
        ("do", found.remedy),
        ("command", commented(found.command, found.fixes)),
    ]


def _bucket(its: BucketPlace) -> list[tuple[str, str]]:
    since = "" if its.since_seconds is None else f", {seconds(its.since_seconds)} ago or earlier"
    target = f", asked to hand it to {its.target}" if its.target else ""
    said = f"{'' if its.reported else 'not '}on the Lease of {its.owner}"
    return [
        ("bucket", f"{its.number} of {its.of} by {its.by}"),
        (
            "range",
            f"{its.group}: {its.owner or 'nobody'}{target}, epoch {its.epoch}{since}; {its.config_map}",
        ),
        ("reported", said if its.owner else ""),
    ]


def commented(command: str, fixes: bool) -> str:
    """A command as it can be typed, which says if it is not all that is needed."""
    return command if fixes or not command else f"{command}  # does not fix it, but shows the cause"


def _children(resource: str, shards: dict[str, int], error: str) -> str:
    counts = ", ".join(f"{count} on {shard or 'no shard'}" for shard, count in shards.items())
    return f"{resource}: {'; '.join(filter(None, (counts, error))) or 'none'}"


def placements(
    words: Sequence[str], namespace: str | None, *, family: bool
) -> Callable[[Client], Awaitable[list[Placement]]]:
    """The placements of the object that `words` name, in each ring that shards its kind."""

    async def question(client: Client) -> list[Placement]:
        from kubeshard.inspection.cluster import read_cluster
        from kubeshard.inspection.placement import (
            CLUSTER,
            CLUSTERS,
            cluster_placement,
            placement_of,
            rings_of,
            wanted,
        )
        from kubeshard.inspection.ring import see

        word, name = wanted(words)
        cluster = await read_cluster(client)
        if not cluster.rings:
            raise cluster.no_rings()
        rings = [await see(client, cluster, ring) for ring in cluster.rings]
        by_cluster = [each for each in rings if each.ranges and each.ranges.by_cluster]
        if by_cluster and word.lower() in (CLUSTER, CLUSTERS):
            return [cluster_placement(ring, ring.ranges, name) for ring in by_cluster if ring.ranges]
        place = namespace or client.namespace
        return [
            await placement_of(client, ring, kind, name, place, family=family)
            for ring, kind in await rings_of(client, rings, word)
        ]

    return question


def _object(found: Placement) -> str:
    return f"{found.resource} {f'{found.namespace}/' if found.namespace else ''}{found.name}"


def _end(found: Sequence[Placement]) -> None:
    if not any(each.exists for each in found):
        click.echo(f"Error: {one_line(_object(found[0]))} does not exist", err=True)
        sys.exit(1)
