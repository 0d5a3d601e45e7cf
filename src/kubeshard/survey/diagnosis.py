"""Problems of a ring and what to do about them, as human-readable text.

| problem | advice |
|---|---|
| no leader, or the ring's current generation was not observed | run the sharder, check its log |
| a condition that reports a problem | follow its message |
| no shard | start one that names the ring |
| a webhook that is missing or not trusted | check the sharder's log and the certificate |
| objects without a shard although there are shards | the sharder assigns them |
| objects on shards that are gone | the sharder moves them |
| drains without acknowledgement | check the shard's log |
| objects that are not where the hash ring puts them | the next resync drains them or, for children, moves them |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from kubeshard.core.conditions import Condition
from kubeshard.sharder.reports import (
    CONFLICT,
    DRAIN_STUCK,
    DRAIN_STUCK_AFTER,
    OWN_CONDITIONS,
    RESOURCES_RESOLVED,
    SELECTOR_VALID,
    SHARDS_ACCEPTED,
    shard_problems,
)
from kubeshard.sharding.api import READY
from kubeshard.sharding.leases import MAX_SHARDS
from kubeshard.sharding.states import ShardState
from kubeshard.survey.counts import Counts, Some
from kubeshard.survey.ring import SeenRing

_WRONG_WHEN_TRUE = frozenset({CONFLICT, DRAIN_STUCK})

_EDIT = "edit the ring"
_INSTALL = "install its definition, or remove the resource from the ring"
_SHARDS = (
    "delete Leases that are not of shards; name each shard once, as a Kubernetes label value, with a Lease of a minute "
    "at most, and run shards where the ring allows it"
)
_REMEDIES = {SELECTOR_VALID: _EDIT, RESOURCES_RESOLVED: _INSTALL, SHARDS_ACCEPTED: _SHARDS}
"""Of conditions whose message says only what is wrong."""


class Trouble(msgspec.Struct, frozen=True):
    """A problem, and what to do about it."""

    problem: str
    remedy: str


def troubles(
    ring: SeenRing, counted: Sequence[Counts], leaderless: str | None, oldest_drain: float | None
) -> list[Trouble]:
    """All problems, causes before their consequences. `leaderless` is why no sharder leads; `oldest_drain` is its age
    in seconds. What a condition says is not said twice.
    """
    found = [
        *_sharder(ring, leaderless),
        *_conditions(ring),
        *_specification(ring, counted),
        *_shards(ring),
        *_webhook(ring),
        *_objects(ring, counted, oldest_drain),
    ]
    said = [condition.message for condition in _wrong_conditions(ring)]
    return [each for each in found if not any(each.problem in message for message in said)]


def _sharder(ring: SeenRing, leaderless: str | None) -> Iterator[Trouble]:
    status, generation = ring.resource.status, ring.resource.metadata.generation
    if status is None:
        yield Trouble(
            f"no sharder has seen the ring{f': {leaderless}' if leaderless else ''}",
            "run the sharder with two replicas; if it runs, check its log",
        )
    elif status.observed_generation < generation:
        yield Trouble(
            f"the sharder has seen generation {status.observed_generation} of the ring, but the current one is "
            f"{generation}{f': {leaderless}' if leaderless else ''}",
            "check the log of the leading sharder",
        )
    elif leaderless:
        yield Trouble(
            leaderless, "make sure that two replicas of the sharder run; until one leads, nothing is moved"
        )


def _conditions(ring: SeenRing) -> Iterator[Trouble]:
    wrong = _wrong_conditions(ring)
    for condition in wrong:
        if condition.type != READY:
            remedy = _REMEDIES.get(condition.type, "follow the message")
        elif len(wrong) > 1:
            remedy = "see the other conditions first; if it remains, check the log of the leading sharder"
        else:
            remedy = "check the log of the leading sharder"
        yield Trouble(
            f"condition {condition.type} is {condition.status}: {condition.message or condition.reason}",
            remedy,
        )


def _wrong_conditions(ring: SeenRing) -> list[Condition]:
    status = ring.resource.status
    return [condition for condition in status.conditions if _is_wrong(condition)] if status else []


def _is_wrong(condition: Condition) -> bool:
    if condition.type in _WRONG_WHEN_TRUE:
        return condition.status == "True"
    return condition.status != "True" and condition.type in (READY, *OWN_CONDITIONS)


def _specification(ring: SeenRing, counted: Sequence[Counts]) -> Iterator[Trouble]:
    if not ring.resource.spec.resources:
        yield Trouble("the ring lists no resources", "name them in its spec.resources")
    for problem in ring.problems:
        yield Trouble(problem, _EDIT)
    for counts in counted:
        if counts.error and counts.resource in ring.unresolved:
            yield Trouble(counts.error, _INSTALL)
        elif counts.error:
            yield Trouble(f"not counted: {counts.error}", "ask for the right to list it")


def _shards(ring: SeenRing) -> Iterator[Trouble]:
    shards = ring.cluster.book.shards(ring.name, ring.cluster.now)
    if not ring.view.available:
        yield Trouble(
            "no shard is available, so objects stay where they are, and new ones get no shard",
            f"start an instance of the controller that holds a Lease with the ring's label ({ring.name})",
        )
    for problem in shard_problems(shards, MAX_SHARDS):
        yield Trouble(problem, _SHARDS)
    for member in ring.members:
        if member.held and member.state is not ShardState.READY:
            yield Trouble(
                f"shard {member.name} has not renewed its Lease for {member.renewed or 0:.0f} s",
                "check its log; the sharder takes the Lease after twice its duration",
            )


def _webhook(ring: SeenRing) -> Iterator[Trouble]:
    webhook = ring.webhook
    if not webhook.known:
        yield Trouble(
            "you may not get mutatingwebhookconfigurations, so it is not known whether the ring has its webhook",
            "ask for the right to get them",
        )
    if not webhook.known or ring.resource.status is None:
        return
    remedy = "check the log of the leading sharder; until then its watch or resync assigns objects"
    if not webhook.exists:
        yield Trouble("the ring's MutatingWebhookConfiguration is missing", remedy)
    elif not webhook.trusted:
        yield Trouble("the ring's webhook has no caBundle: the API server cannot call it", remedy)


def _objects(ring: SeenRing, counted: Sequence[Counts], oldest_drain: float | None) -> Iterator[Trouble]:
    for counts in counted:
        if counts.refused.count:
            yield Trouble(
                f"{counts.resource} that cannot be assigned: {_some(counts.refused)}",
                "`kubectl shard why` explains each",
            )
        if counts.unassigned.count and ring.view.available:
            yield Trouble(
                f"{counts.resource} without a shard: {_some(counts.unassigned)}",
                "the sharder assigns them within seconds; if they remain, it lacks a right: check its log",
            )
        if counts.stranded.count and ring.view.available:
            yield Trouble(
                f"{counts.resource} on shards that are gone: {_some(counts.stranded)}",
                "the leading sharder moves them; if they remain, check its log",
            )
        if counts.misplaced.count and counts.main:
            yield Trouble(
                f"{counts.resource} that are not where the hash ring puts them: {_some(counts.misplaced)}",
                "the sharder's next resync asks their shards to release them",
            )
        elif counts.misplaced.count:
            yield Trouble(
                f"{counts.resource} that are not on their owner's shard: {_some(counts.misplaced)}",
                "the sharder's next resync moves them",
            )
    if oldest_drain is not None and oldest_drain > DRAIN_STUCK_AFTER:
        draining = {shard for counts in counted for shard, drains in counts.draining.items() if drains}
        alive = {each.name for each in ring.members if each.held and each.state is ShardState.READY}
        if slow := sorted(draining & alive):
            yield Trouble(
                f"a drain has been pending for {oldest_drain:.0f} s on {', '.join(slow)}",
                "the shard runs but does not release the objects: check its log, or restart it",
            )


def _some(some: Some) -> str:
    shown = ", ".join(some.names[:3]) + (", ..." if some.count > 3 else "")
    return f"{some.count} ({shown})"
