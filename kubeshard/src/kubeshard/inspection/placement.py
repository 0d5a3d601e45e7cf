"""Why an object is on its shard: what the sharder sees, what it would do next, and what prevents that.

| reason | |
|---|---|
| `Placed` | it is on the shard that the hash ring names |
| `NamespaceNotSelected`, `NoController`, `ForeignController` | the ring does not shard it, and a label says nothing |
| `NotAssignable` | it cannot be keyed; the message says why |
| `NoShardAvailable` | the ring has no available shard |
| `Unassigned` | it has no shard although some are available |
| `ShardGone` | its shard is not available |
| `NotConfirmed` | its shard is not available, and the ring waits for a confirmation that it has ended |
| `DrainPending` | its shard was asked to release it |
| `ToBeDrained` | its shard will be asked to release it |
| `WaitsForOwner` | it is controlled, and its owner has to move first |
| `ToBeMoved` | it is controlled, and its owner is already on another shard |
| `AheadOfOwner` | it is controlled, and already where its owner will be, which is still on another shard |
| `NotReported` | by ranges: its shard is the owner, but has not seen that yet |
| `AssignmentUnusable` | by ranges: the ConfigMap is gone, edited or restored; shards keep what they have |

RBAC: list on the resource, on that of its owner if it has one, and on the resources that it controls in the ring.

A user names the object as with kubectl, by a resource, a kind, a singular or a short name, with or without its group:
`secret/foo`, `Website foo`, `deploy/foo`, `websites.webhosting.timebertt.dev/foo`. In a ring by clusters it is the
cluster that has a place: `cluster/eu`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from shlex import quote
from typing import Any, NamedTuple

import msgspec

from kubeshard.client.client import Client
from kubeshard.core.errors import ApiError, ConfigurationError, Forbidden
from kubeshard.core.kinds import GroupResource, Kind
from kubeshard.core.namespaces import ALL, AllNamespaces
from kubeshard.core.objects import ObjectMeta, metadata_only
from kubeshard.core.owners import NOTED_OWNER, controller_of, group_kind_of
from kubeshard.core.selectors import FieldSelector
from kubeshard.inspection.counts import held_by
from kubeshard.inspection.errors import Unanswerable, needing
from kubeshard.inspection.field_times import Written, WrittenMeta, with_writers
from kubeshard.inspection.ranges import SeenRanges
from kubeshard.inspection.ring import SeenRing
from kubeshard.inspection.status import EXAMINE, MARKED, log_of, restart, weighted
from kubeshard.sharding.conditions import (
    ASSIGNMENT_STUCK,
    DRAIN_STUCK,
    DRAIN_STUCK_AFTER,
    PERMITTED,
    RESOURCES_RESOLVED,
)
from kubeshard.sharding.hash_ring import kind_of_key, object_of_key, point_of
from kubeshard.sharding.names import (
    RETURNING,
    RING_LABEL,
    SYSTEM_NAMESPACES_ANNOTATION,
    UNRELEASED_ANNOTATION,
)
from kubeshard.sharding.planner import NOT_SELECTED, Action, Decision
from kubeshard.sharding.ring_resources import RingEntry, noted_main
from kubeshard.sharding.shard_states import MAX_DURATION

CLUSTER, CLUSTERS = "cluster", "clusters"
SUCCESSORS = 3


class Child(msgspec.Struct, rename="camel", frozen=True):
    """The controlled objects of one resource: their number by shard ("" is none). `error`: why there may be more."""

    resource: str
    shards: dict[str, int]
    error: str = ""


class Owner(msgspec.Struct, rename="camel", frozen=True):
    """The main object that it belongs to. `shard` is "" if it has none or does not exist."""

    kind: str
    name: str
    shard: str
    draining: bool
    exists: bool


class BucketPlace(msgspec.Struct, rename="camel", frozen=True):
    """The bucket of an object in a ring by ranges. `group`: the buckets that are written together with it, such as
    `0683-1023`. `epoch`: that of its place. `since_seconds`: for how long at least. `reported`: whether the owner says
    that it works on it. `pinned`: whether the shard that is due gets it whatever its weight.
    """

    number: int
    of: int
    by: str
    group: str
    owner: str
    target: str
    epoch: int
    since_seconds: float | None
    reported: bool
    pinned: bool
    config_map: str


class Placement(msgspec.Struct, rename="camel", frozen=True):
    """An object in a ring. `key` is what is hashed and `point` the hash in hexadecimal; both are "" if the object is
    not sharded. `desired` is the shard that is due, by the hash ring or by ranges. `successors` are the shards that get
    the object if that one leaves, in this order. `held_by`: the finalizers that keep it from being deleted. `command`
    is what to begin with, and `fixes` whether that is all.
    """

    ring: str
    resource: str
    namespace: str
    name: str
    exists: bool
    main: bool
    shard: str
    shard_state: str
    desired: str
    draining: bool
    draining_seconds: float | None
    key: str
    point: str
    successors: list[str]
    held_by: list[str]
    reason: str
    message: str
    remedy: str
    command: str
    fixes: bool
    owner: Owner | None
    children: list[Child]
    bucket: BucketPlace | None = None


async def placement_of(
    client: Client, ring: SeenRing, kind: Kind, name: str, namespace: str, *, family: bool = True
) -> Placement:
    """Of a main object that does not exist, the future one. `family`: with owner and children. Raises ApiError."""
    entry = ring.view.resources.entry(kind.group_resource)
    found = await find(client, kind, name, namespace)
    meta = found.metadata if found else WrittenMeta(name=name, namespace=namespace if kind.namespaced else "")
    decision = await ring.decide(entry, meta)
    hashed = await ring.hashed(entry, meta)
    if hashed is None:
        delivered = _Delivered(_without_key(ring, entry, meta))
    elif ring.ranges is not None:
        delivered = _by_ranges(ring, ring.ranges, hashed, decision)
    else:
        delivered = await _by_labels(
            client, ring, entry, kind, meta, decision, family=family and found is not None
        )
    if found is None:
        delivered = delivered._replace(why=_Why("NotFound", "it does not exist"))
    place = _Place(str(entry.resource), name, meta.namespace, entry.main, held_by(meta))
    return _placement(ring, place, delivered, decision.source, ring.draining(hashed), found is not None)


def cluster_placement(ring: SeenRing, ranges: SeenRanges, name: str) -> Placement:
    """The placement of one of the clusters of a ring by clusters, or where it would be."""
    bucket = ranges.buckets.of_key(name)
    decision = ranges.decide_bucket(bucket)
    delivered = _in_bucket(ring, ranges, bucket, name, f"{ranges.buckets.hash_of(name):016x}", decision)
    shard = decision.source
    if not (exists := ranges.has_cluster(name)):
        why, shard = _Why("NotFound", "no shard says that its program has a cluster of this name"), ""
        delivered = delivered._replace(why=why)
    draining = bool(delivered.bucket and delivered.bucket.target)
    return _placement(ring, _Place(CLUSTERS, name), delivered, shard, draining, exists)


class _Place(NamedTuple):
    """Which object it is; see `Placement`."""

    resource: str
    name: str
    namespace: str = ""
    main: bool = True
    held_by: Sequence[str] = ()


def _placement(
    ring: SeenRing, place: _Place, delivered: _Delivered, shard: str, draining: bool, exists: bool
) -> Placement:
    found = {**place._asdict(), **delivered._asdict(), **delivered.why._asdict()}
    del found["why"]
    lists = {each: list(found[each]) for each in ("successors", "held_by", "children")}
    state = state_of(ring, shard)
    known = {"ring": ring.name, "shard": shard, "shard_state": state, "draining": draining, "exists": exists}
    return Placement(**{**found, **lists, **known})


class _Why(NamedTuple):
    """The reason is the planner's; see `Placement`."""

    reason: str
    message: str
    remedy: str = ""
    command: str = ""
    fixes: bool = False


class _Delivered(NamedTuple):
    """What depends on how objects reach their shards; see `Placement`."""

    why: _Why
    desired: str = ""
    key: str = ""
    point: str = ""
    successors: Sequence[str] = ()
    draining_seconds: float | None = None
    owner: Owner | None = None
    children: Sequence[Child] = ()
    bucket: BucketPlace | None = None


async def _by_labels(
    client: Client,
    ring: SeenRing,
    entry: RingEntry,
    kind: Kind,
    meta: WrittenMeta,
    decision: Decision,
    *,
    family: bool,
) -> _Delivered:
    key, hashring, age = decision.key, ring.view.hashring, None
    if (asked := meta.labelled_at(ring.view.drain_label)) is not None:
        age = max(0.0, ring.cluster.now - asked)
    owner = await _owner(client, ring, entry, key) if family and not entry.main else None
    return _Delivered(
        why=_why(ring, entry, kind, meta, decision, owner, age),
        desired=hashring.owner(key) if key else "",
        key=key,
        point=f"{point_of(key):016x}" if key else "",
        successors=[shard for shard in hashring.successors(key) if key][1 : 1 + SUCCESSORS],
        draining_seconds=age,
        owner=owner,
        children=await _children(client, ring, entry, key) if family and key and entry.main else [],
    )


def _by_ranges(ring: SeenRing, ranges: SeenRanges, meta: ObjectMeta, decision: Decision) -> _Delivered:
    if (bucket := ranges.bucket_of(meta)) is None:
        return _Delivered(_Why("NotFound", "its uid says where it will be"))
    return _in_bucket(ring, ranges, bucket, *ranges.key(meta), decision)


def _in_bucket(
    ring: SeenRing, ranges: SeenRanges, bucket: int, key: str, point: str, decision: Decision
) -> _Delivered:
    place, assignment = ranges.assignment.places[bucket], ranges.assignment
    since = ranges.since(bucket, ring.cluster.now)
    found = BucketPlace(
        number=bucket,
        of=ranges.buckets.count,
        by=ranges.buckets.by,
        group=assignment.buckets.key(assignment.run_of(bucket)),
        owner=place.owner,
        target=place.target,
        epoch=place.epoch,
        since_seconds=since,
        reported=bucket in ranges.reported.get(place.owner, ()),
        pinned=bucket in ranges.pins,
        config_map=str(ranges.place),
    )
    return _Delivered(
        why=_unreached(ranges, bucket, _why_by_ranges(ring, ranges, found, decision)),
        desired=decision.target,
        key=key,
        point=point,
        successors=tuple(_successors(ranges, bucket)),
        draining_seconds=since if place.target else None,
        bucket=found,
    )


def _successors(ranges: SeenRanges, bucket: int) -> Iterator[str]:
    """Who gets the bucket if the shard that is due leaves, and then that one."""
    for _ in range(SUCCESSORS):
        ranges = ranges.with_shards(ranges.present - {ranges.due[bucket]})
        if not ranges.due[bucket]:
            return
        yield ranges.due[bucket]


def _why_by_ranges(ring: SeenRing, ranges: SeenRanges, bucket: BucketPlace, decision: Decision) -> _Why:
    source, target = decision.source, decision.target
    status = f"kubectl shard status {ring.name}"
    soon = "the leader does that within seconds; if not, see the problems of the ring"
    if ranges.problem:
        kept = f"; {source} says that it works on it, and keeps it" if source and bucket.reported else ""
        return _Why("AssignmentUnusable", f"{ranges.problem}{kept}", "see the problems of the ring", status)
    if not target and ranges.weights:
        return _Why(
            "NoShardAvailable",
            "the shards that are available have the weight 0, so none gets anything",
            "give one of them another weight",
            weighted(ranges),
            fixes=True,
        )
    if not target:
        return _Why("NoShardAvailable", "no shard of the ring is available", "start one", status)
    if not source:
        return _Why("Unassigned", f"nobody has had its bucket yet, and {target} should get it", soon, status)
    if source not in ring.available:
        gone = state_of(ring, source)
        if source in ring.unconfirmed:
            return _not_confirmed(ring, source, target, gone)
        return _Why("ShardGone", f"its shard {source} is {gone}, and {target} should get it", soon, status)
    if bucket.target:
        since = "" if bucket.since_seconds is None else f" at least {bucket.since_seconds:.0f} s ago"
        return _Why(
            "DrainPending",
            f"{source} was asked{since} to hand its bucket over to {bucket.target}",
            f"if this lasts, check the log of {source}: it hands over when the runs of its objects have ended",
            log_of(source, ring),
        )
    if source != target:
        return _Why(
            "ToBeDrained", f"{source} will be asked to hand its bucket over to {target}", soon, status
        )
    if not bucket.reported:
        return _Why(
            "NotReported",
            f"{source} owns its bucket, but does not say yet that it works on it",
            "it says so within a second; if not, it cannot read the ConfigMap: check its log",
            log_of(source, ring),
        )
    pinned = f"; the bucket is pinned to {source}" if bucket.pinned else ""
    return _Why("Placed", f"{source} owns its bucket, and says that it works on it{pinned}")


def _unreached(ranges: SeenRanges, bucket: int, why: _Why) -> _Why:
    """Says who is passed over in a ring by clusters."""
    if not (shards := ranges.unable.get(bucket)):
        return why
    others = {shard for shard, weight in ranges.weights.items() if weight} - shards
    said = (
        f"{', '.join(sorted(shards))} could not reach the cluster, and gets it only if no shard can"
        if others
        else "no shard can reach the cluster, so it stays where it is"
    )
    return why._replace(message=f"{why.message}; {said}")


def _not_confirmed(ring: SeenRing, source: str, target: str, gone: str) -> _Why:
    return _Why(
        "NotConfirmed",
        f"its shard {source} is {gone}, and {target} gets it when it is confirmed that {source} has ended",
        "if you know that it has, confirm it",
        f"kubectl shard release {source} --ring {ring.name}",
        fixes=True,
    )


def state_of(ring: SeenRing, shard: str) -> str:
    """The state of the shard that a label names; "" without a label."""
    if not shard:
        return ""
    states = [member.state for member in ring.members if member.name == shard]
    return str(max(states)) if states else "gone"


def _why(
    ring: SeenRing,
    entry: RingEntry,
    kind: Kind,
    meta: ObjectMeta,
    decision: Decision,
    owner: Owner | None,
    age: float | None,
) -> _Why:
    source, target = decision.source, decision.target
    place = meta.namespace or meta.name  # a Namespace is in itself
    if decision.reason == NOT_SELECTED:
        return _not_selected(ring, place)
    if decision.action is Action.REFUSED:
        remedy = "give it a name, or a complete controller reference"
        return _Why("NotAssignable", decision.reason, remedy, _get(kind, meta))
    if not decision.key:
        return _without_key(ring, entry, meta)
    leases = f"kubectl get leases --all-namespaces -l {RING_LABEL}={ring.name}"
    if not target:
        return _Why(
            "NoShardAvailable",
            "no shard of the ring is available",
            "start an instance of the controller",
            leases,
        )
    blocked = _blocked(ring, entry.resource)
    status = f"kubectl shard status {ring.name}"
    waits = (
        blocked or "the sharder does that in its next resync, after five minutes at the latest",
        status if blocked else EXAMINE,
    )
    why_owner = (
        f"kubectl shard why {owner.kind}/{owner.name}{_in_namespace(object_of_key(decision.key).namespace)}"
        if owner
        else ""
    )
    if source == target and meta.label(ring.view.drain_label) == RETURNING:
        said = (
            f"{source} marked it when it came back{'' if age is None else f', {age:.0f} s ago'}, and keeps it"
        )
        if age is None or age <= DRAIN_STUCK_AFTER:
            return _Why("Marked", said, f"nothing: {source} takes the mark away, within half a minute")
        return _Why("Marked", said, MARKED, restart(source, ring), fixes=True)
    if source == target and meta.has_label(ring.view.drain_label):
        return _Why(
            "DrainPending",
            f"{source} was asked to release it, and the hash ring assigns it to {target} again",
            "nothing: the shards of the ring changed again after the drain was requested, or somebody set the label",
        )
    if source == target and owner and owner.exists and owner.shard not in ("", source):
        return _Why(
            "AheadOfOwner",
            f"its owner, {owner.kind} {owner.name}, is on {owner.shard}, and will be on {source}, too",
            "see what its owner waits for",
            why_owner,
        )
    if source == target and owner and owner.exists:
        return _Why("Placed", f"{source} is the shard of its owner, {owner.kind} {owner.name}")
    if source == target:
        return _Why("Placed", f"{source} is the shard that the hash ring assigns it to")
    if not source:
        remedy = blocked or "the sharder does that within seconds; if not, see the problems of the ring"
        return _Why("Unassigned", f"it has no shard, and {target} should get it", remedy, status)
    if source not in ring.available:
        gone = state_of(ring, source)
        if source in ring.unconfirmed or (ring.strict_handover and gone == "gone"):
            return _not_confirmed(ring, source, target, gone)
        remedy, command = waits
        if gone == "gone" and not blocked:
            remedy = (
                "if its Lease was deleted a short time ago: nothing, the sharder gives it up after twice the Lease's"
                f" duration, at most {2 * MAX_DURATION:.0f} s; otherwise {remedy}"
            )
        return _Why("ShardGone", f"its shard {source} is {gone}, and {target} should get it", remedy, command)
    if decision.action is Action.WAIT:
        since = f" {age:.0f} s ago" if age is not None else ""
        leases_of_it = ring.cluster.states.named(ring.name, source)
        told = [lease.metadata.annotation(UNRELEASED_ANNOTATION) for lease in leases_of_it]
        return _Why(
            "DrainPending",
            f"{source} was asked{since} to release it for {target}",
            next((f"{source} says that the API server does not let it: {why}" for why in told if why), "")
            or f"if this lasts, check the log of {source}: it releases the object when the current reconcile has ended",
            log_of(source, ring),
        )
    if entry.main:
        return _Why("ToBeDrained", f"{source} will be asked to release it for {target}", *waits)
    if owner and owner.exists and owner.shard == source:
        remedy = blocked or "see what its owner waits for"
        return _Why(
            "WaitsForOwner", f"its owner is still on {source}; then it moves to {target}", remedy, why_owner
        )
    return _Why("ToBeMoved", f"its owner belongs to {target}, but it is on {source}", *waits)


def _not_selected(ring: SeenRing, place: str) -> _Why:
    declared = ring.cluster.is_declared(ring.name)
    if place in ring.left_out:
        confirmed = ring.resource.metadata.annotation(SYSTEM_NAMESPACES_ANNOTATION)
        wanted = sorted({name.strip() for name in confirmed.split(",")} - {""} | {place})
        annotation = quote(f"{SYSTEM_NAMESPACES_ANNOTATION}={','.join(wanted)}")
        return _Why(
            "NamespaceNotSelected",
            f"{place} is a system namespace, which the ring does not confirm",
            "confirm it, if you mean it; others that the selector selects are left out as well",
            "" if declared else f"kubectl annotate --overwrite controllerring {ring.name} {annotation}",
            fixes=not declared,
        )
    return _Why(
        "NamespaceNotSelected",
        f"the ring's namespaceSelector does not select the namespace {place}",
        "label the namespace, or change the ring's namespaceSelector",
        f"kubectl get namespace/{place}{'' if declared else f' controllerring/{ring.name}'} -o yaml",
    )


def _get(kind: Kind, meta: ObjectMeta) -> str:
    return f"kubectl get {kind.group_resource}/{meta.name}{_in_namespace(meta.namespace)} -o yaml"


def _in_namespace(namespace: str) -> str:
    return f" --namespace {namespace}" if namespace else ""


def _without_key(ring: SeenRing, entry: RingEntry, meta: ObjectMeta) -> _Why:
    reference, shard = controller_of(meta), meta.label(ring.view.shard_label)
    owners = " or ".join(sorted(str(owner) for owner in entry.owners))
    label = f"; its label, {shard}, says nothing: any shard may write it" if shard and not ring.ranges else ""
    if reference is None and (named := meta.annotation(NOTED_OWNER)):
        gone = noted_main(ring.view.owner_kinds.get(entry.resource), meta) is not None
        return _Why(
            "NoController",
            f"its annotation {NOTED_OWNER} names {named}, which "
            f"{'does not exist' if gone else f'is none of the {owners} that the ring shards'}{label}",
            "correct the annotation, or delete the object if nobody needs it",
            _get(ring.kinds[entry.resource], meta),
        )
    if reference is None:
        return _Why(
            "NoController",
            f"it is sharded with its controller, but has none ({owners}){label}",
            "nothing, unless it should have an owner reference with controller: true, or where that is not legal the "
            f"annotation {NOTED_OWNER}",
        )
    kind = group_kind_of(reference)
    if kind in ring.view.owner_kinds.get(entry.resource, {}):
        return _Why(
            "ForeignController",
            f"its controller, {kind} {reference.name}, is gone or not controlled by {owners}{label}",
            "nothing, unless that should have an owner reference with controller: true",
        )
    return _Why(
        "ForeignController",
        f"its controller is a {kind}, but the ring {ring.name} shards what {owners} control{label}",
        "nothing, unless the ring should list that resource",
    )


_BLOCKING = {
    (PERMITTED, "False"),
    (RESOURCES_RESOLVED, "False"),
    (ASSIGNMENT_STUCK, "True"),
    (DRAIN_STUCK, "True"),
}
"""Conditions that say why the sharder cannot do anything with objects."""


def _blocked(ring: SeenRing, resource: GroupResource) -> str:
    """Why the sharder cannot do anything with the resource, according to the ring's conditions."""
    conditions: Sequence[tuple[str, str]] = [
        (each.type, each.message)
        for each in (ring.resource.status.conditions if ring.resource.status else ())
        if (each.type, each.status) in _BLOCKING and resource.resource in each.message
    ]
    return "; ".join(message for _, message in conditions)


async def _owner(client: Client, ring: SeenRing, entry: RingEntry, key: str) -> Owner | None:
    """The main object with this hash key, if its kind is in the ring."""
    if not key:
        return None
    for resource in entry.owners & ring.kinds.keys():
        kind = ring.kinds[resource]
        if kind.group_kind == kind_of_key(key):
            place = object_of_key(key)
            found = await find(client, kind, place.name, place.namespace)
            labels = found.metadata if found else ObjectMeta()
            return Owner(
                kind.kind,
                place.name,
                labels.label(ring.view.shard_label),
                labels.has_label(ring.view.drain_label),
                found is not None,
            )
    return None


async def _children(client: Client, ring: SeenRing, entry: RingEntry, key: str) -> list[Child]:
    children = []
    for child, kind in ring.entries:
        if entry.resource in child.owners:
            children.append(await _children_of(client, ring, child, kind, key))
    return children


async def _children_of(client: Client, ring: SeenRing, entry: RingEntry, kind: Kind, key: str) -> Child:
    """Those that follow the main object with this key, in whatever namespace they are, as far as one may list them."""
    own = object_of_key(key).namespace
    try:
        return await _counted(client, ring, entry, kind, key, ALL)
    except Forbidden as error:
        if own and kind.namespaced:
            with suppress(ApiError):
                found = await _counted(client, ring, entry, kind, key, own)
                here = f"only those in {own}: you may not list them in all namespaces"
                return Child(found.resource, found.shards, "; ".join(filter(None, (here, found.error))))
        return Child(str(kind.group_resource), {}, str(error))
    except ApiError as error:
        return Child(str(kind.group_resource), {}, str(error))


async def _counted(
    client: Client, ring: SeenRing, entry: RingEntry, kind: Kind, key: str, namespace: str | AllNamespaces
) -> Child:
    """Those in the namespace. Raises ApiError."""
    shards: Counter[str] = Counter()
    unknown = dict[str, ApiError]()

    def listed_again() -> None:
        shards.clear()
        unknown.clear()

    async for obj in client.list(metadata_only(kind), namespace, on_restart=listed_again):
        try:
            decision = await ring.decide(entry, obj.metadata)
        except ApiError as error:
            unknown[obj.metadata.name] = error
            continue
        if decision.key == key:
            shards[obj.metadata.label(ring.view.shard_label)] += 1
    why = next((f"the owner of {name} cannot be looked up: {error}" for name, error in unknown.items()), "")
    more = f", nor those of {len(unknown) - 1} others" if len(unknown) > 1 else ""
    return Child(str(kind.group_resource), dict(sorted(shards.items())), why + more)


class Wanted(NamedTuple):
    """An object as the user named it."""

    word: str
    name: str


def wanted(words: Sequence[str]) -> Wanted:
    """Parses `KIND/NAME` or `KIND NAME`. Raises ConfigurationError."""
    parts = words[0].split("/", 1) if len(words) == 1 else list(words)
    if len(parts) != 2 or not all(parts):
        raise ConfigurationError(f"{' '.join(words)}: write KIND/NAME or KIND NAME, as in secret/foo")
    return Wanted(*parts)


async def rings_of(client: Client, rings: Iterable[SeenRing], word: str) -> list[tuple[SeenRing, Kind]]:
    """The rings that shard the resource of this name. Raises Unanswerable if none does."""
    rings = list(rings)
    found = [(ring, kind) for ring in rings for kind in ring.kinds.values() if word.lower() in _called(kind)]
    if not found:
        for ring in rings:
            for kind in ring.kinds.values():
                if word.lower() in await _short_names(client, kind):
                    found.append((ring, kind))  # noqa: PERF401 - it waits for answers
    if not found:
        served = {str(resource) for ring in rings for resource in ring.kinds}
        unserved = {f"{resource} (not served)" for ring in rings for resource in ring.unresolved}
        sharded = ", ".join(sorted(served | unserved))
        shown = f"the rings shard {sharded}" if sharded else "the rings list no resources"
        raise Unanswerable(f"no ring shards {word}; {shown}")
    resources = {kind.group_resource for _, kind in found}
    if len(resources) > 1:
        raise ConfigurationError(
            f"{word} may be {' or '.join(sorted(map(str, resources)))}: name one of them"
        )
    return found


async def find(client: Client, kind: Kind, name: str, namespace: str) -> Written | None:
    selector = FieldSelector.equals("metadata.name", name)
    place = namespace if kind.namespaced else ALL
    with needing("list", kind.group_resource):
        async for obj in client.list(with_writers(kind), place, field_selector=selector):
            return obj
    return None


def _called(kind: Kind) -> set[str]:
    names = {kind.plural, kind.kind.lower()}
    return names | {f"{name}.{kind.group}" for name in names} | {f"{kind.plural}.{kind.version}.{kind.group}"}


async def _short_names(client: Client, kind: Kind) -> set[str]:
    path = kind.path().rsplit("/", 1)[0]
    with suppress(ApiError, ValueError):
        answer: Mapping[str, Any] = json.loads((await client.raw("GET", path)).body)
        for resource in answer.get("resources") or ():
            if resource.get("name") == kind.plural:
                return {*(resource.get("shortNames") or ()), resource.get("singularName") or ""}
    return set()
