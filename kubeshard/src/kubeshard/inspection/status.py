"""The current state of a ring as a value, as printed by `kubectl shard status`, its problems, and what to do about
them.

A ring whose sharder is inside its operator has no conditions, unless a ControllerRing has some of earlier: it counts as
ready while that sharder leads and there are shards. What else it finds wrong is in the log of the instance that leads.

RBAC: the rights that `cluster`, `counts` and `drains` need, and get on the Lease of the sharder service. Without the
latter, it is unknown whether a sharder leads.

| problem | advice |
|---|---|
| no leader, or the ring's current generation was not observed | run the sharder, check its log |
| a condition that reports a problem | follow its message |
| no shard | start one that names the ring |
| a webhook that is missing or not trusted | check the sharder's log and the certificate |
| objects without a shard although there are shards | the sharder assigns them |
| objects on shards that are gone | the sharder moves them |
| drains without acknowledgement | check the shard's log |
| an assignment by ranges that is gone, edited or restored | wait, check the log of the leader |
| a shard that does not begin, or does not say that it works on what it owns by ranges | check its log |
| objects that are not where the hash ring puts them | the next resync drains them or, for children, moves them |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from shlex import quote
from typing import Literal

import msgspec

from kubeshard.client.client import Client
from kubeshard.core.conditions import Condition
from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard.inspection.cluster import ClusterSnapshot, Sharder, read_sharder, shown
from kubeshard.inspection.counts import Counts, Some, count
from kubeshard.inspection.field_times import oldest_drain
from kubeshard.inspection.ranges import SeenRanges
from kubeshard.inspection.ring import SeenRing, see
from kubeshard.sharding.api import READY
from kubeshard.sharding.assignment import takes_by_labels
from kubeshard.sharding.conditions import (
    ASSIGNMENT_STUCK,
    CLEANED_UP,
    CONFIRMATION_AWAITED,
    CONFLICT,
    DRAIN_STUCK,
    DRAIN_STUCK_AFTER,
    LEASES_WRITTEN,
    OWN_CONDITIONS,
    PERMITTED,
    RESOURCES_RESOLVED,
    SELECTOR_VALID,
    SEVERAL_SHARDERS,
    SHARDS_ACCEPTED,
    WEBHOOK_CONTESTED,
    WEBHOOK_REACHED,
    shard_problems,
)
from kubeshard.sharding.members import said_by
from kubeshard.sharding.names import (
    DELIVERY_ANNOTATION,
    RING_LABEL,
    SHARD_NAMESPACES_ANNOTATION,
    WEIGHT_ANNOTATION,
    webhook_config_name,
)
from kubeshard.sharding.shard_states import ShardState


class ShardBuckets(msgspec.Struct, rename="camel", frozen=True):
    """What a shard owns in a ring by ranges: how many buckets, how many of these it is asked to hand over, and how many
    it says that it works on. `weight`: of its share, in proportion to the others. `clusters`: their names, in a ring by
    clusters.
    """

    owned: int
    draining: int
    reported: int
    weight: float
    clusters: list[str]


class ShardStatus(msgspec.Struct, rename="camel", frozen=True):
    """A shard, or a name in labels without a Lease (state `gone`)."""

    name: str
    namespace: str
    state: str
    sharder_says: str
    """The sharder's state label on the Lease; "" without one."""
    available: bool
    renewed_seconds_ago: float | None
    objects: dict[str, int]
    draining: int
    buckets: ShardBuckets | None = None


class ResourceStatus(msgspec.Struct, rename="camel", frozen=True):
    """`objects` is the number of those that the ring shards."""

    resource: str
    main: bool
    objects: int
    unassigned: int
    stranded: int
    misplaced: int
    refused: int
    not_sharded: int
    error: str


class AssignmentStatus(msgspec.Struct, rename="camel", frozen=True):
    """`config_map` is NAMESPACE/NAME; with a `problem`, numbers are what shards report. `selected`: by the server."""

    config_map: str
    by: str
    buckets: int
    epoch: int
    unowned: int
    draining: int
    selected: bool
    problem: str


class RingStatus(msgspec.Struct, rename="camel", frozen=True):
    """`oldest_drain_seconds` is None if there is no drain or its age is unknown. `sharder` is the Lease of the one that
    leads, as NAMESPACE/NAME; `inside`: it is inside the ring's operator. `declared`: there is no ControllerRing.
    """

    ring: str
    sharder: str
    inside: bool
    declared: bool
    ready: str
    conditions: list[Condition]
    shards: list[ShardStatus]
    resources: list[ResourceStatus]
    draining: int
    oldest_drain_seconds: float | None
    troubles: list[Trouble]
    assignment: AssignmentStatus | None = None


async def status_of(
    client: Client, cluster: ClusterSnapshot, name: str, sharder: Sharder | None = None
) -> RingStatus:
    """`sharder`: who assigns its objects, if that is known already. Raises Unanswerable, ApiError."""
    ring = await see(client, cluster, name)
    counted = [counts async for counts in count(client, ring)]
    draining = sum(counts.draining.total() for counts in counted)
    age = _oldest_of(ring.ranges, cluster.now) if ring.ranges else await _oldest(client, ring, counted)
    sharder = sharder or await read_sharder(client, cluster, name)
    conditions = list(ring.resource.status.conditions) if ring.resource.status else []
    usable = ring.ranges is None or not ring.ranges.problem
    works = "True" if sharder.problem is None and ring.available and usable else "False"
    return RingStatus(
        ring=name,
        sharder=str(sharder.election),
        inside=sharder.inside,
        declared=cluster.is_declared(name),
        ready=works
        if sharder.inside
        else next((each.status for each in conditions if each.type == "Ready"), "Unknown"),
        conditions=conditions,
        shards=_shards(ring, counted),
        resources=[_resource(counts) for counts in counted],
        draining=draining,
        oldest_drain_seconds=age,
        troubles=troubles(ring, counted, sharder, age),
        assignment=_assignment(ring.ranges) if ring.ranges else None,
    )


def _assignment(ranges: SeenRanges) -> AssignmentStatus:
    places, buckets = ranges.assignment.places, ranges.buckets
    return AssignmentStatus(
        config_map=str(ranges.place),
        by=buckets.by,
        buckets=buckets.count,
        epoch=ranges.assignment.epoch,
        unowned=sum(not place.owner for place in places),
        draining=sum(bool(place.target) for place in places),
        selected=ranges.selected,
        problem=ranges.problem,
    )


def _oldest_of(ranges: SeenRanges, now: float) -> float | None:
    asked = [bucket for bucket, place in enumerate(ranges.assignment.places) if place.target]
    return max((age for bucket in asked if (age := ranges.since(bucket, now)) is not None), default=None)


async def _oldest(client: Client, ring: SeenRing, counted: Sequence[Counts]) -> float | None:
    label = ring.view.drain_label
    drained = [ring.kinds[counts.resource] for counts in counted if counts.draining.total()]
    known = [time for kind in drained if (time := await oldest_drain(client, kind, label)) is not None]
    return max(0.0, ring.cluster.now - min(known)) if known else None


def _shards(ring: SeenRing, counted: Sequence[Counts]) -> list[ShardStatus]:
    draining = Counter[str]()
    for counts in counted:
        draining.update(counts.draining)

    def row(name: str, namespace: str, state: str, labelled: str, renewed: float | None) -> ShardStatus:
        return ShardStatus(
            name=name,
            namespace=namespace,
            state=state,
            sharder_says=labelled,
            available=name in ring.available,
            renewed_seconds_ago=renewed,
            objects={str(counts.resource): counts.shards[name] for counts in counted if not counts.error},
            draining=draining[name],
            buckets=_buckets(ring.ranges, name) if ring.ranges else None,
        )

    known = [
        row(each.name, each.namespace, str(each.state), each.labelled, each.renewed) for each in ring.members
    ]
    named = {name for counts in counted for name in counts.shards}
    named |= ring.ranges.assignment.shards if ring.ranges else set()
    gone = sorted(named - {each.name for each in ring.members})
    return known + [row(name, "", "gone", "", None) for name in gone]


def _buckets(ranges: SeenRanges, shard: str) -> ShardBuckets:
    places = ranges.assignment.places
    member = ranges.members.get(shard)
    return ShardBuckets(
        owned=sum(place.owner == shard for place in places),
        draining=sum(place.owner == shard and bool(place.target) for place in places),
        reported=len(ranges.reported.get(shard, ())),
        weight=float(member.weight) if member else 0.0,
        clusters=[name for name, bucket in ranges.clusters.items() if places[bucket].owner == shard],
    )


def _resource(counts: Counts) -> ResourceStatus:
    return ResourceStatus(
        resource=str(counts.resource),
        main=counts.main,
        objects=counts.total,
        unassigned=counts.unassigned.count,
        stranded=counts.stranded.count,
        misplaced=counts.misplaced.count,
        refused=counts.refused.count,
        not_sharded=counts.beyond,
        error=counts.error,
    )


Severity = Literal["error", "warning"]

EXAMINE = "kubectl shard doctor"

BEGUN_AFTER = 10.0
"""Seconds after it took its Lease in which a shard by ranges begins: it first reads what others say."""

_WRONG_WHEN_TRUE = frozenset(
    {
        CONFLICT,
        DRAIN_STUCK,
        ASSIGNMENT_STUCK,
        CONFIRMATION_AWAITED,
        WEBHOOK_CONTESTED,
        SEVERAL_SHARDERS,
    }
)

_EDIT = "edit the ring"
_INSTALL = "install its definition, or remove the resource from the ring"
_SHARDS = (
    "delete Leases that are not of shards; name each shard once, as a Kubernetes label value, with a Lease of a minute "
    "at most, and run shards where the ring allows it"
)
_RELEASING = (
    "wait: the ring is deleted when this is done, or makes no progress for five minutes; shards that do not release "
    "their objects can be stopped"
)
_REMEDIES = {
    CLEANED_UP: _RELEASING,
    SELECTOR_VALID: _EDIT,
    RESOURCES_RESOLVED: _INSTALL,
    SHARDS_ACCEPTED: _SHARDS,
    WEBHOOK_CONTESTED: "have it left to the sharder: exempt it there where somebody else sets it",
    SEVERAL_SHARDERS: "uninstall one of the sharders; the other one keeps the ring",
}
"""Of conditions whose message says only what is wrong."""


class Trouble(msgspec.Struct, frozen=True):
    """A problem, what to do about it, and the command to begin with. An `error` keeps objects from being assigned or
    moved; of a `warning` somebody should know; `unknown` is what the user may not read.
    """

    problem: str
    remedy: str
    command: str
    severity: Severity | Literal["unknown"] = "warning"
    fixes: bool = False
    """Whether the command puts it right, instead of showing more of it."""


def troubles(
    ring: SeenRing, counted: Sequence[Counts], sharder: Sharder, oldest_drain: float | None
) -> list[Trouble]:
    """Causes before their consequences; what a condition says is not said twice. `oldest_drain` is in seconds."""
    do = _Commands(ring, sharder)
    found = [
        *(_inside(sharder, do) if sharder.inside else _service(ring, sharder.problem, do)),
        *_conditions(ring, counted, do),
        *_specification(ring, counted, do),
        *_shard_troubles(ring, do),
        *_both_deliveries(ring, do),
        *(_uncoordinated(ring, ring.ranges, do) if ring.ranges and not sharder.inside else ()),
        *(_range_troubles(ring, ring.ranges, oldest_drain, do) if ring.ranges else ()),
        *(() if sharder.inside or ring.ranges or ring.resource.by_ranges else _webhook(ring, do)),
        *_objects(ring, counted, oldest_drain, do),
    ]
    said = [condition.message for condition in _wrong_conditions(ring)]
    return [each for each in found if not any(each.problem in message for message in said)]


class _Commands:
    """What one types next, for a ring."""

    def __init__(self, ring: SeenRing, sharder: Sharder) -> None:
        namespace = sharder.election.namespace
        self.leases = f"kubectl get leases --all-namespaces -l {RING_LABEL}={ring.name}"
        who = sharder.leader if sharder.inside else "deployment/sharder"
        self.lease = shown(sharder.election)
        self.log = f"kubectl --namespace {namespace} logs {who}" if who else self.lease
        declared = ring.cluster.is_declared(ring.name)
        selector = "" if ring.ranges else ", or DeclaredRing(namespace_selector=)"
        self.edit = (
            f"# in the operator's program: change its watches with sharded=True{selector}"
            if declared
            else f"kubectl edit controllerring {ring.name}"
        )
        self.where_listed = "the operator's watches with sharded=True" if declared else "spec.resources"
        self.why_not = (
            "the leader's log says why" if sharder.inside else "a condition says why within a minute"
        )
        self.grant = (
            f"kubectl get controllerring {ring.name} -o yaml | kubeshard manifests ring - --sharder {namespace}:sharder"
            " | kubectl apply --server-side --force-conflicts -f -"
        )
        webhook = webhook_config_name(ring.name)
        self.writers = f"kubectl get mutatingwebhookconfiguration {webhook} -o yaml --show-managed-fields"
        self.sharders = "kubectl get deployments --all-namespaces -l app.kubernetes.io/component=sharder"
        self.webhook = f"kubectl delete mutatingwebhookconfiguration {webhook}"


def _inside(sharder: Sharder, do: _Commands) -> Iterator[Trouble]:
    if sharder.problem:
        yield Trouble(
            f"the sharder inside the operator does not lead: {sharder.problem}",
            'make sure that an instance with mode="both" or "sharder" runs; until one leads, nothing is assigned',
            do.lease,
            "error",
        )


def _service(ring: SeenRing, leaderless: str | None, do: _Commands) -> Iterator[Trouble]:
    status, generation = ring.resource.status, ring.resource.metadata.generation
    if status is None:
        yield Trouble(
            f"no sharder has seen the ring{f': {leaderless}' if leaderless else ''}",
            "run the sharder with two replicas; if it runs, check its log",
            EXAMINE if leaderless else do.log,
            "error",
        )
    elif status.observed_generation < generation:
        yield Trouble(
            f"the sharder has seen generation {status.observed_generation} of the ring, but the current one is "
            f"{generation}{f': {leaderless}' if leaderless else ''}",
            "check the log of the leading sharder",
            do.log,
            "error",
        )
    elif leaderless:
        yield Trouble(
            leaderless,
            "make sure that two replicas of the sharder run; until one leads, nothing is moved",
            EXAMINE,
            "error",
        )


def _conditions(ring: SeenRing, counted: Sequence[Counts], do: _Commands) -> Iterator[Trouble]:
    wrong = _wrong_conditions(ring)
    slow = _slow(ring, counted)
    alone = [each.type for each in wrong] == [READY] and wrong[0].reason == "ReconciliationFailed"
    commands = {
        PERMITTED: do.grant,
        DRAIN_STUCK: log_of(slow[0], ring) if slow else do.leases,
        CLEANED_UP: do.leases,
        CONFIRMATION_AWAITED: _release(ring) or do.leases,
        ASSIGNMENT_STUCK: do.log,
        WEBHOOK_REACHED: EXAMINE,
        LEASES_WRITTEN: do.leases,
        WEBHOOK_CONTESTED: do.writers,
        SEVERAL_SHARDERS: do.sharders,
        SHARDS_ACCEPTED: do.leases,
        READY: do.webhook if alone else do.log,
    }
    for condition in wrong:
        if condition.type != READY:
            remedy = _REMEDIES.get(condition.type, "follow the message")
        elif len(wrong) > 1:
            remedy = "see the other conditions first; if it remains, check the log of the leading sharder"
        elif alone:
            remedy = "have the webhook configuration left to the sharder, and delete it: the sharder makes it again"
        else:
            remedy = "check the log of the leading sharder"
        yield Trouble(
            f"condition {condition.type} is {condition.status}: {condition.message or condition.reason}",
            remedy,
            commands.get(condition.type, do.edit),
            "error" if condition.type == READY else "warning",
            fixes=condition.type == PERMITTED
            or (condition.type == READY and alone)
            or (condition.type == CONFIRMATION_AWAITED and bool(ring.unconfirmed)),
        )


def _wrong_conditions(ring: SeenRing) -> list[Condition]:
    status = ring.resource.status
    return [condition for condition in status.conditions if _is_wrong(condition)] if status else []


def _is_wrong(condition: Condition) -> bool:
    if condition.type in _WRONG_WHEN_TRUE:
        return condition.status == "True"
    return condition.status != "True" and condition.type in (READY, *OWN_CONDITIONS)


def _specification(ring: SeenRing, counted: Sequence[Counts], do: _Commands) -> Iterator[Trouble]:
    edit = do.edit
    if not ring.resource.spec.resources and not (ring.ranges and ring.ranges.by_cluster):
        yield Trouble("the ring lists no resources", f"name them in {do.where_listed}", edit, "error")
    for problem in ring.problems:
        yield Trouble(problem, _EDIT, edit, "error")
    for counts in counted:
        if counts.error and counts.resource in ring.unresolved:
            yield Trouble(counts.error, _INSTALL, edit, "error")
        elif counts.forbidden:
            may = f"kubectl auth can-i list {counts.resource} --all-namespaces"
            yield Trouble(f"not counted: {counts.error}", "ask for the right to list it", may, "unknown")
        elif counts.error:
            lists = f"kubectl get {counts.resource} --all-namespaces"
            yield Trouble(f"not counted: {counts.error}", "see why the API server cannot list it", lists)


def _shard_troubles(ring: SeenRing, do: _Commands) -> Iterator[Trouble]:
    shards, leases = ring.cluster.states.shards(ring.name, ring.cluster.now), do.leases
    if not ring.available:
        yield Trouble(
            "no shard is available, so objects stay where they are, and new ones get no shard",
            f"start an instance of the controller that holds a Lease with the ring's label ({ring.name})",
            leases,
            "error",
        )
    for problem in shard_problems(shards, declared=ring.cluster.is_declared(ring.name)):
        yield Trouble(problem, _SHARDS, leases)
    for member in ring.members:
        if member.held and member.state is not ShardState.READY:
            yield Trouble(
                f"shard {member.name} has not renewed its Lease for {member.renewed or 0:.0f} s",
                "check its log; the sharder takes the Lease after twice its duration",
                log_of(member.name, ring),
            )


def _both_deliveries(ring: SeenRing, do: _Commands) -> Iterator[Trouble]:
    """Shards by ranges beside shards by labels: those of one kind wait, unless they are programs that cannot."""
    said = _said(ring)
    by_labels = sorted(name for name, text in said.items() if takes_by_labels(text))
    by_ranges = sorted(said.keys() - set(by_labels))
    if not by_labels or not by_ranges:
        return
    if ring.ranges is not None and (unaware := [name for name in by_labels if not said[name]]):
        yield Trouble(
            f"beside shards by ranges, objects are taken by labels on {', '.join(unaware)}: an object may be on two",
            "stop those by labels",
            do.leases,
            "error",
        )
        return
    waiting, working = (by_ranges, by_labels) if ring.ranges is None else (by_labels, by_ranges)
    how = ("ranges", "labels") if ring.ranges is None else ("labels", "ranges")
    yield Trouble(
        f"by {how[0]}, and waiting until the shards by {how[1]} ({', '.join(working)}) have ended:"
        f" {', '.join(waiting)}",
        "nothing, if the ring goes from one to the other; otherwise stop those that wait",
        do.leases,
    )


def _said(ring: SeenRing) -> dict[str, str]:
    return said_by(each for each in ring.cluster.leases if each.metadata.label(RING_LABEL) == ring.name)


def _uncoordinated(ring: SeenRing, ranges: SeenRanges, do: _Commands) -> Iterator[Trouble]:
    """While shards by labels wait, the ControllerRing says what comes next."""
    if ranges.by_cluster:
        yield Trouble(
            "its shards share out clusters, which no sharder service does: nobody gives them anything",
            'run some of them with mode="both"',
            do.leases,
            "error",
        )
    elif not ring.resource.by_ranges and not any(map(takes_by_labels, _said(ring).values())):
        stated = quote(f"{DELIVERY_ANNOTATION}=Ranges {ranges.buckets}")
        place = f"{SHARD_NAMESPACES_ANNOTATION}={ranges.place.namespace}"
        yield Trouble(
            "its shards are by ranges, but the ControllerRing does not say so: no sharder gives them anything",
            'have the sharder coordinate them, or run some of them with mode="both"',
            f"kubectl annotate --overwrite controllerring {ring.name} {stated} {place}",
            "error",
            fixes=True,
        )


def _range_troubles(
    ring: SeenRing, ranges: SeenRanges, oldest_drain: float | None, do: _Commands
) -> Iterator[Trouble]:
    if ranges.problem:
        yield Trouble(
            ranges.problem,
            "nothing: shards keep what they work on, and the leader writes it anew from what they report, within"
            " half a minute; if it remains, the log of the leader says what it waits for",
            do.log,
            "error",
        )
    for shard, note in ranges.notes:
        yield Trouble(
            note,
            "correct what its program states (`Sharding`), or the annotation of its Lease",
            shown(Key(ranges.place.namespace, shard)) if shard else do.leases,
        )
    alive = {each.name for each in ring.members if each.held and each.state is ShardState.READY}
    for name in sorted(alive & ranges.waiting.keys()):
        if ring.cluster.now - ranges.waiting[name] > BEGUN_AFTER:
            yield Trouble(
                f"{name} has not begun: it cannot read or hand over a share",
                "its log says why",
                log_of(name, ring),
                "warning" if ranges.weights else "error",
            )
    for name in sorted(alive & ranges.reported.keys()):
        if (unseen := ranges.unreported(name)) and not ranges.problem:
            yield Trouble(
                f"{name} does not say that it works on buckets that it owns: {ranges.named(unseen)}",
                "it says so within a second; if it remains, it cannot read the ConfigMap: check its log",
                log_of(name, ring),
            )
    if ranges.weights and not any(ranges.weights.values()):
        yield Trouble(
            "no shard gets anything: those that are available have the weight 0",
            "give one of them another weight",
            weighted(ranges),
            "error",
            fixes=True,
        )
    slow = sorted({each.owner for each in ranges.assignment.places if each.target} & alive)
    if oldest_drain is not None and oldest_drain > DRAIN_STUCK_AFTER and slow:
        yield Trouble(
            f"{', '.join(slow)} was asked to hand over buckets at least {oldest_drain:.0f} s ago",
            "it ends its runs first; if it does not, check its log, or restart it",
            log_of(slow[0], ring),
        )


def _webhook(ring: SeenRing, do: _Commands) -> Iterator[Trouble]:
    webhook = ring.webhook
    if not webhook.known:
        yield Trouble(
            "you may not get mutatingwebhookconfigurations, so it is not known whether the ring has its webhook",
            "ask for the right to get them",
            "kubectl auth can-i get mutatingwebhookconfigurations",
            "unknown",
        )
    if not webhook.known or ring.resource.status is None:
        return
    remedy = "check the log of the leading sharder; until then its watch or resync assigns objects"
    if not webhook.exists:
        yield Trouble("the ring's MutatingWebhookConfiguration is missing", remedy, do.log)
    elif not webhook.trusted:
        yield Trouble(
            "the ring's webhook has no caBundle: the API server cannot call it",
            remedy,
            do.writers,
        )


def _objects(
    ring: SeenRing, counted: Sequence[Counts], oldest_drain: float | None, do: _Commands
) -> Iterator[Trouble]:
    log = do.log
    rolls = ring.ranges is None and not all(map(takes_by_labels, _said(ring).values()))
    when = "when the shards by labels have ended, at the latest" if rolls else "within seconds"
    for counts in counted:
        if counts.refused.count:
            yield Trouble(
                f"{counts.resource} that cannot be assigned: {_some(counts.refused)}",
                "`kubectl shard why` explains each",
                _why(counts.resource, counts.refused),
            )
        if counts.foreign.count and not counts.total:
            yield Trouble(
                f"none of the {counts.resource} is sharded, because the ring does not list what controls them: "
                f"{_some(counts.foreign)}",
                f"list what controls them, too, in {do.where_listed}, or remove the resource there",
                _why(counts.resource, counts.foreign),
            )
        if counts.held.count:
            yield Trouble(
                f"{counts.resource} that a finalizer keeps from being deleted, but the ring does not shard: "
                f"{_some(counts.held)}",
                "if the ring's operator has set it, it cleans up when the ring shards them again; or clean up "
                "yourself, and remove it from these alone: the command shows the others that have it",
                f"kubeshard release-finalizers --finalizer {counts.finalizer} --kind {counts.resource}",
            )
        if counts.unassigned.count and ring.available:
            yield Trouble(
                f"{counts.resource} without a shard: {_some(counts.unassigned)}",
                f"the sharder assigns them {when}; if they remain, {do.why_not}",
                log,
                "error",
            )
        if counts.stranded.count and ring.available:
            release = _release(ring)
            yield Trouble(
                f"{counts.resource} on shards that are gone: {_some(counts.stranded)}",
                "they wait until it is confirmed that these have ended"
                if ring.strict_handover
                else f"the leading sharder moves them {when}; if they remain, check its log",
                release or log,
                "error",
                fixes=bool(release),
            )
        if counts.misplaced.count and ring.ranges is not None:
            yield Trouble(
                f"{counts.resource} that are not on the shard that is due: {_some(counts.misplaced)}",
                "the leader asks their shards to hand them over, within seconds",
                _why(counts.resource, counts.misplaced),
            )
        elif counts.misplaced.count and counts.main:
            yield Trouble(
                f"{counts.resource} that are not where the hash ring puts them: {_some(counts.misplaced)}",
                "the sharder's next resync asks their shards to release them",
                _why(counts.resource, counts.misplaced),
            )
        elif counts.misplaced.count:
            yield Trouble(
                f"{counts.resource} that are not on their owner's shard: {_some(counts.misplaced)}",
                "the sharder's next resync moves them",
                _why(counts.resource, counts.misplaced),
            )
    if oldest_drain is None or oldest_drain <= DRAIN_STUCK_AFTER or ring.ranges is not None:
        return
    if marked := _alive(ring, (counts.marked for counts in counted)):
        yield Trouble(
            f"marks that {', '.join(marked)} set on coming back are still there after up to {oldest_drain:.0f} s",
            MARKED,
            restart(marked[0], ring),
            fixes=True,
        )
    if slow := _slow(ring, counted):
        yield Trouble(
            f"a drain has been pending for {oldest_drain:.0f} s on {', '.join(slow)}",
            "the shard runs but does not release the objects: check its log, or restart it",
            log_of(slow[0], ring),
        )


def _slow(ring: SeenRing, counted: Sequence[Counts]) -> list[str]:
    """Shards that are at work, and have objects to release."""
    return _alive(ring, (counts.draining - counts.marked for counts in counted))


def _alive(ring: SeenRing, counted: Iterable[Counter[str]]) -> list[str]:
    """Shards that are at work, and have some of these objects."""
    theirs = {shard for counts in counted for shard, number in counts.items() if number}
    alive = {each.name for each in ring.members if each.held and each.state is ShardState.READY}
    return sorted(theirs & alive)


def _release(ring: SeenRing) -> str:
    """Confirms that one of the shards that are waited for has ended; "" if none is."""
    shard = min(ring.unconfirmed, default="") if ring.strict_handover else ""
    return f"kubectl shard release {shard} --ring {ring.name}" if shard else ""


def log_of(shard: str, ring: SeenRing) -> str:
    """Shards are named after their pods."""
    return f"{_in_namespace_of(shard, ring)} logs {shard}"


def weighted(ranges: SeenRanges) -> str:
    """Has one of the shards that are available get something again."""
    shard, place = min(ranges.weights), ranges.place.namespace
    return f"kubectl --namespace {place} annotate lease {shard} {WEIGHT_ANNOTATION}-"


MARKED = "restart it: it takes the mark away when it begins"


def restart(shard: str, ring: SeenRing) -> str:
    return f"{_in_namespace_of(shard, ring)} delete pod {shard}"


def _in_namespace_of(shard: str, ring: SeenRing) -> str:
    return f"kubectl --namespace {next(each.namespace for each in ring.members if each.name == shard)}"


def _why(resource: GroupResource, some: Some) -> str:
    namespace, _, name = some.names[0].rpartition("/")
    place = f" --namespace {namespace}" if namespace else ""
    return f"kubectl shard why {resource}/{name}{place}"


def _some(some: Some) -> str:
    shown = ", ".join(some.names[:3]) + (", ..." if some.count > 3 else "")
    return f"{some.count} ({shown})"
