"""The command `drain`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from kubeshard.cli.kubectl.asking import Access, access_options, ask, print_table, say, stop_in_order
from kubeshard.commands.options import CLUSTER_VARIABLE, Command

if TYPE_CHECKING:
    from kubeshard.client.client import Client
    from kubeshard.inspection.ring import SeenRing
    from kubeshard.inspection.shard_drain import ShardDrain


@click.command(
    cls=Command,
    short_help="Make a shard leave its ring gracefully.",
    environment=CLUSTER_VARIABLE,
    examples=(
        "# what would happen",
        "kubectl shard drain webhosting-operator-2 --dry-run",
        "kubectl shard drain webhosting-operator-2 --yes",
    ),
)
@click.argument("shard")
@click.option("--ring", metavar="RING", help="The shard's ring, if several rings have a shard of this name.")
@click.option("--dry-run", is_flag=True, help="Only print what would happen.")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.IntRange(0),
    default=300,
    show_default=True,
    help="How long to wait until its objects have other shards; 0 to not wait.",
)
@access_options
def drain(
    shard: str,
    ring: str | None,
    dry_run: bool,
    yes: bool,
    timeout: int,
    access: Access,
) -> None:
    """Drain a shard: its pod is evicted, so it ends its work and releases its Lease, and the sharder moves its objects
    to the other shards.

    By labels, nothing gentler works: a shard that runs and holds its Lease is a member of the hash ring, so it would
    get back every object that it gave up. By ranges, annotate its Lease with alpha.sharding.timebertt.dev/weight=0
    instead, and it goes on without objects. PodDisruptionBudgets are respected. The pod's controller starts another
    pod; scale it down to get rid of the shard.
    """
    seen, leaving = ask(access, lambda client: _prepared(client, shard, ring))
    _report(leaving)
    if dry_run:
        say("nothing was done (--dry-run)")
        return
    if not yes:  # prompt outside the event loop, so that the first Ctrl-C ends it
        try:
            click.confirm("Evict the pod?", abort=True)
        except click.Abort:
            say("\nnothing was done")
            raise
    stop_in_order()
    drain = _Drain(seen, leaving)
    try:
        ask(access, lambda client: drain.run(client, timeout))
    except KeyboardInterrupt:
        say(f"\n{drain.interrupted}")
        raise


async def _prepared(client: Client, shard: str, ring: str | None) -> tuple[SeenRing, ShardDrain]:
    from kubeshard.inspection.shard_drain import plan_drain

    seen = await _ring_of(client, shard, ring)
    return seen, await plan_drain(client, seen, shard)


class _Drain:
    """An eviction, and the wait for its effects. `sent` and `evicted` say how far it has come."""

    def __init__(self, seen: SeenRing, leaving: ShardDrain) -> None:
        self._ring = seen
        self._leaving = leaving
        self.sent = self.evicted = False

    async def run(self, client: Client, timeout: int) -> None:
        from kubeshard.inspection.errors import MissingRight, Unanswerable
        from kubeshard.inspection.shard_drain import begin, progress

        shard = self._leaving.shard
        self.sent = True
        await begin(client, self._leaving)
        self.evicted = True
        say(f"the pod {self._leaving.namespace}/{shard} is evicted")
        if not timeout:
            return
        try:
            async with asyncio.timeout(timeout):
                async for line in progress(client, self._ring, self._leaving):
                    say(line)
        except TimeoutError:
            raise Unanswerable(f"{shard} has not left within {timeout} s; {self._continues}") from None
        except MissingRight as error:
            raise Unanswerable(f"{error}; {self._continues}") from error

    @property
    def interrupted(self) -> str:
        """What is true if the user does not wait any longer."""
        leaving = self._leaving
        if self.evicted:
            return f"this stops the waiting only; {self._continues}"
        if self.sent:
            return (
                "it is not known whether the pod was evicted: see whether it is terminating, with"
                f" `kubectl get pod {leaving.shard} -n {leaving.namespace}`"
            )
        return "nothing was done"

    @property
    def _continues(self) -> str:
        return f"the drain continues: see `kubectl shard status {self._ring.name}`"


async def _ring_of(client: Client, shard: str, ring: str | None) -> SeenRing:
    """The shard's ring. Raises ConfigurationError if that is ambiguous, Unanswerable."""
    from kubeshard.core.errors import ConfigurationError
    from kubeshard.inspection.cluster import read_cluster
    from kubeshard.inspection.errors import unknown
    from kubeshard.inspection.ring import see
    from kubeshard.sharding.names import RING_LABEL

    cluster = await read_cluster(client)
    if ring is None:
        rings = {lease.metadata.label(RING_LABEL) for lease in cluster.leases if lease.metadata.name == shard}
        found = sorted(rings & cluster.rings.keys())
        if not found:
            raise unknown("shard", shard, {lease.metadata.name for lease in cluster.leases})
        if len(found) > 1:
            raise ConfigurationError(
                f"{shard} is a shard of several rings: choose one with --ring: {', '.join(found)}"
            )
        (ring,) = found
    return await see(client, cluster, ring)


def _report(leaving: ShardDrain) -> None:
    pod = f"{leaving.namespace}/{leaving.shard}"
    say(
        f"{leaving.shard} leaves the ring {leaving.ring}: its pod {pod} is evicted, has {leaving.grace} s to end the"
        " reconciles under way,\nand releases its Lease. Then these objects move:\n"
    )
    flows = [each for each in leaving.plan.flows if each.source == leaving.shard]
    rows = [(each.resource, each.target, each.objects) for each in flows]
    print_table([("RESOURCE", "TO", "OBJECTS"), *rows], indent="  ")
    say()
    if leaving.comes_back:
        say(
            f"{leaving.runs_it} starts a pod of the same name, which gets its objects back. If you scale it down by\n"
            "one, it removes the pod with the highest number for good.\n"
        )
    elif leaving.runs_it:
        say(
            f"{leaving.runs_it} starts another pod: a new shard, to which objects of every shard move. To end\n"
            "up with one shard fewer, annotate the pod with\n"
            "controller.kubernetes.io/pod-deletion-cost=-1 and scale down.\n"
        )
