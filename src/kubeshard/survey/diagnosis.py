"""What is wrong with a ring, and what to do about it, as text for people.

| problem | advice |
|---|---|
| no leader, or the ring's current generation was not observed | run the sharder, look into its log |
| a condition that reports a problem | what its message says |
| no shard | start one that names the ring |
| a webhook that is missing or not trusted | look into the sharder's log, check the certificate |
| objects without a shard although there are shards | wait for the periodic look |
| objects on shards that are gone | the sharder moves them |
| drains without acknowledgement | look into the log of the shard |
| objects that are not where the hash ring puts them | they are drained, or as children moved, with the next look |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from kubeshard.core.conditions import Condition
from kubeshard.sharder.reports import CONFLICT, DRAIN_STUCK, DRAIN_STUCK_AFTER, OWN_CONDITIONS, shard_problems
from kubeshard.sharding.api import READY
from kubeshard.sharding.leases import MAX_SHARDS
from kubeshard.sharding.states import ShardState
from kubeshard.survey.counts import Counts, Some
from kubeshard.survey.ring import SeenRing

_WRONG_WHEN_TRUE = frozenset({CONFLICT, DRAIN_STUCK})


class Trouble(msgspec.Struct, frozen=True):
    """What is wrong, and what to do."""

    problem: str
    remedy: str


def troubles(
    ring: SeenRing, counted: Sequence[Counts], leaderless: str | None, oldest_drain: float | None
) -> list[Trouble]:
    """All problems, causes before their consequences. `leaderless`: why no sharder leads;
    `oldest_drain`: its age in seconds.
    """
    return [
        *_sharder(ring, leaderless),
        *_conditions(ring),
        *_specification(ring, counted),
        *_shards(ring),
        *_webhook(ring),
        *_objects(ring, counted, oldest_drain),
    ]


def _sharder(ring: SeenRing, leaderless: str | None) -> Iterator[Trouble]:
    status, generation = ring.resource.status, ring.resource.metadata.generation
    if status is None:
        yield Trouble(
            f"no sharder has seen the ring{f': {leaderless}' if leaderless else ''}",
            "run the sharder, two replicas of it; if it runs, look into its log",
        )
    elif status.observed_generation < generation:
        yield Trouble(
            f"the sharder has seen generation {status.observed_generation} of the ring, not {generation}"
            f"{f': {leaderless}' if leaderless else ''}",
            "look into the log of the leading sharder",
        )
    elif leaderless:
        yield Trouble(
            leaderless, "see that two replicas of the sharder run; until one leads, nothing is moved"
        )


def _conditions(ring: SeenRing) -> Iterator[Trouble]:
    for condition in ring.resource.status.conditions if ring.resource.status else ():
        if _is_wrong(condition):
            yield Trouble(
                f"condition {condition.type} is {condition.status}: {condition.message or condition.reason}",
                "what the message says"
                if condition.type != READY
                else "look into the log of the leading sharder",
            )


def _is_wrong(condition: Condition) -> bool:
    if condition.type in _WRONG_WHEN_TRUE:
        return condition.status == "True"
    return condition.status != "True" and condition.type in (READY, *OWN_CONDITIONS)


def _specification(ring: SeenRing, counted: Sequence[Counts]) -> Iterator[Trouble]:
    if not ring.resource.spec.resources:
        yield Trouble("the ring lists no resources", "name them in its spec.resources")
    for problem in ring.problems:
        yield Trouble(problem, "edit the ring")
    for counts in counted:
        if counts.error and counts.resource in ring.unresolved:
            yield Trouble(counts.error, "install its definition, or take the resource out of the ring")
        elif counts.error:
            yield Trouble(f"not counted: {counts.error}", "ask for the right to list it")


def _shards(ring: SeenRing) -> Iterator[Trouble]:
    shards = ring.cluster.book.shards(ring.name, ring.cluster.now)
    if not ring.view.available:
        yield Trouble(
            "no shard is available, so objects stay where they are, and new ones get none",
            f"start an instance of the controller that holds a Lease with the ring's label ({ring.name})",
        )
    for problem in shard_problems(shards, MAX_SHARDS):
        yield Trouble(problem, "name each shard once, as a Kubernetes label value")
    for member in ring.members:
        if member.held and member.state is not ShardState.READY:
            yield Trouble(
                f"shard {member.name} has not renewed its Lease for {member.renewed or 0:.0f} s",
                "look into its log; the sharder takes the Lease after twice its duration",
            )


def _webhook(ring: SeenRing) -> Iterator[Trouble]:
    webhook = ring.webhook
    if not webhook.known:
        yield Trouble(
            "you may not get mutatingwebhookconfigurations, so it is not known whether the ring has its webhook",
            "ask for the verb get on them",
        )
    if not webhook.known or ring.resource.status is None:
        return
    remedy = "look into the log of the leading sharder; until then objects get a shard by its watch or periodic look"
    if not webhook.exists:
        yield Trouble("the ring's MutatingWebhookConfiguration is missing", remedy)
    elif not webhook.trusted:
        yield Trouble("the ring's webhook has no caBundle: the API server cannot call it", remedy)


def _objects(ring: SeenRing, counted: Sequence[Counts], oldest_drain: float | None) -> Iterator[Trouble]:
    for counts in counted:
        if counts.refused.count:
            yield Trouble(
                f"{counts.resource} that cannot be assigned: {_some(counts.refused)}",
                "`kubectl shard why` says why of each",
            )
        if counts.unassigned.count and ring.view.available:
            yield Trouble(
                f"{counts.resource} without a shard: {_some(counts.unassigned)}",
                "the sharder's next look assigns them; if they stay, it lacks a right: look into its log",
            )
        if counts.stranded.count and ring.view.available:
            yield Trouble(
                f"{counts.resource} on shards that are gone: {_some(counts.stranded)}",
                "the leading sharder moves them; if they stay, look into its log",
            )
        if counts.misplaced.count and counts.main:
            yield Trouble(
                f"{counts.resource} that are not where the hash ring puts them: {_some(counts.misplaced)}",
                "the sharder's next look asks their shards to let go of them",
            )
        elif counts.misplaced.count:
            yield Trouble(
                f"{counts.resource} that are not with their owner: {_some(counts.misplaced)}",
                "the sharder's next look moves them",
            )
    if oldest_drain is not None and oldest_drain > DRAIN_STUCK_AFTER:
        slow = sorted({shard for counts in counted for shard, drains in counts.draining.items() if drains})
        yield Trouble(
            f"a drain is pending for {oldest_drain:.0f} s on {', '.join(slow)}",
            "the shard runs and does not let go: look into its log, or restart it",
        )


def _some(some: Some) -> str:
    shown = ", ".join(some.names[:3]) + (", ..." if some.count > 3 else "")
    return f"{some.count} ({shown})"
