"""What a ring needs besides its shards: the ControllerRing itself, the sharder's right to assign its objects, and
admission policies that make the API server enforce what shards and sharder may do to objects and Leases.

| policy | who | may |
|---|---|---|
| `sharding-RING-fence` | the shards' accounts | change and delete objects whose label names their own shard (1); by \
ranges, write objects of the ring only while they hold their Lease (2) |
| `sharding-RING-leases` | everybody | write Leases of the ring: a shard its own, the sharder any, others none |
| `sharding-RING-labels` | the sharder's account | change the ring's labels of an object, and nothing else |

(1) Also objects of controlled resources that nothing controls: these belong to no shard
(`kubeshard.sharding.ring_resources`).

(2) Nothing on an object says whose it is, and expressions can neither compute its hash nor know the time. What they can
compare is the Lease, as a watch has shown it to the API server: not one that has expired, but one that was released, or
that the coordinator has taken, which it does before it gives anything to another shard.

A shard is known by the pod that its token is bound to, so shards must be named after their pods, which is the default.
The API server evaluates the fence by labels in the transaction that stores the object, so it rejects a write that was
sent before a hand-over and arrives after it, whoever sends it. Needs Kubernetes 1.30 or newer.

Not guaranteed: by labels, anything about objects that shards create, since these had no owner before. By ranges,
anything about a shard that holds its Lease, whatever it has handed over; or about one whose Lease was deleted, as it is
a minute after its end; that a write is refused which reaches an API server before what the watch says of the Lease
does, or that it is not refused for a moment if its shard has just begun again under its former name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from kubeshard.core.builtin import Lease
from kubeshard.core.errors import ConfigurationError
from kubeshard.core.kinds import GroupResource
from kubeshard.manager.config_file import unknown_fields
from kubeshard.manager.roles import roles
from kubeshard.manifests.policies import policy, rule, same
from kubeshard.manifests.rights import ring_grants
from kubeshard.shard.identity import check_ring_name
from kubeshard.sharding.api import ControllerRing, SharedRanges
from kubeshard.sharding.names import (
    APP_LABEL,
    APP_NAME,
    RING_LABEL,
    SHARD_NAMESPACES_ANNOTATION,
    bucket_label,
    drain_label,
    shard_label,
)
from kubeshard.sharding.ring_resources import RingResources
from kubeshard.sharding.shard_states import MAX_DURATION, MIN_DURATION

Manifest = dict[str, Any]


Account = tuple[str, str]
"""The namespace and name of a service account."""


CLEANERS = ("generic-garbage-collector", "namespace-controller")
"""Kubernetes' own accounts that may delete any Lease."""


ME = "request.userInfo.?extra[?'authentication.kubernetes.io/pod-name'].orValue([''])[0]"
_LABEL_VALUE = "^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"


def ring_objects(
    manifest: Mapping[str, Any],
    sharder: Account,
    *,
    shards: Sequence[Account] = (),
    labels_only: bool = False,
) -> Iterator[Manifest]:
    """The ControllerRing, and a ClusterRole that is bound to the sharder's account. If the shards' accounts are given,
    the ring says in which namespaces they are, and policies restrict each shard to its own objects; with `labels_only`,
    a policy restricts the sharder to its labels.

    Raises ConfigurationError if it is not a ControllerRing, if it shards nothing, if it shards what no ring may, if it
    has fields that no ring has, or if its annotations do not say how it is delivered.
    """
    ring = _ring(manifest)
    resources = RingResources(ring.spec.resources)
    if problems := [problem.message for problem in resources.problems]:
        raise ConfigurationError(f"ControllerRing {ring.name}: {'; '.join(problems)}")
    if not resources.entries:
        raise ConfigurationError(f"ControllerRing {ring.name}: spec.resources is empty, so it shards nothing")
    confined = _confined(manifest, shards) if shards else dict(manifest)
    ring = _ring(confined)
    try:
        _ = ring.ranges
    except ValueError as error:
        raise ConfigurationError(f"ControllerRing {ring.name}: {error}") from None
    yield confined
    for role in roles(ring_grants(ring), f"sharding:controllerring:{ring.name}", account=sharder):
        yield {**role, "metadata": {**role["metadata"], "labels": {APP_LABEL: APP_NAME}}}
    if shards:
        yield from shard_policies(ring, shards, sharder)
    if labels_only:
        yield from label_policy(ring, sharder)


def is_ring(manifest: Any) -> bool:
    kind = ControllerRing.KIND
    return isinstance(manifest, Mapping) and (manifest.get("apiVersion"), manifest.get("kind")) == (
        kind.api_version,
        kind.kind,
    )


def _ring(manifest: Mapping[str, Any]) -> ControllerRing:
    try:
        ring = msgspec.convert(manifest, ControllerRing)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"not a ControllerRing: {error}") from None
    if not is_ring(manifest) or not ring.name:
        raise ConfigurationError(f"not a ControllerRing of {ControllerRing.KIND.api_version} with a name")
    check_ring_name(ring.name)
    own = {key: value for key, value in manifest.items() if key not in ("apiVersion", "kind", "metadata")}
    if unknown := list(unknown_fields(own, ControllerRing, "")):
        raise ConfigurationError(f"ControllerRing {ring.name}: {'; '.join(unknown)}")
    return ring


def _confined(manifest: Mapping[str, Any], shards: Sequence[Account]) -> Manifest:
    """The ring with the namespaces of its shards, unless it names some itself."""
    meta = manifest["metadata"]
    namespaces = ",".join(sorted({namespace for namespace, _ in shards}))
    annotations = {SHARD_NAMESPACES_ANNOTATION: namespaces, **(meta.get("annotations") or {})}
    return {**manifest, "metadata": {**meta, "annotations": annotations}}


SHORTEST, LONGEST = int(MIN_DURATION), int(MAX_DURATION)
"""The shortest and the longest duration of a shard's Lease in seconds."""


def shard_policies(
    ring: ControllerRing, shards: Sequence[tuple[str, str]], sharder: tuple[str, str]
) -> Iterator[Manifest]:
    """The fence, and the policy on who may write Leases. An account is a pair of namespace and name."""
    users = [user_name(account) for account in shards]
    yield from _fence(ring, users) if (ranges := ring.ranges) is None else _lease_fence(ring, users, ranges)
    yield from _leases(ring, users, user_name(sharder))


def label_policy(ring: ControllerRing, sharder: tuple[str, str]) -> Iterator[Manifest]:
    """If a mutating webhook changes more than labels during the sharder's request, the request fails."""
    by_ranges = ring.ranges is not None
    ours = json.dumps(
        [bucket_label(ring.name)] if by_ranges else [shard_label(ring.name), drain_label(ring.name)]
    )
    kept = "['labels', 'managedFields', 'resourceVersion', 'generation']"
    variables = {
        "before": "oldObject.metadata.?labels.orValue({})",
        "after": "object.metadata.?labels.orValue({})",
    }
    validations = [
        rule(
            same("object", "oldObject", "['metadata']")
            + " && "
            + same("object.metadata", "oldObject.metadata", kept),
            "the sharder changes labels only",
        ),
        rule(
            same("variables.after", "variables.before", ours),
            "the sharder changes the labels of its ring only",
        ),
    ]
    yield from policy(
        f"sharding-{ring.name}-labels",
        [(resource, ("UPDATE",)) for resource in _resources(ring)],
        f"request.userInfo.username == '{user_name(sharder)}'",
        validations,
        variables,
    )


def user_name(account: tuple[str, str]) -> str:
    return f"system:serviceaccount:{account[0]}:{account[1]}"


def _fence(ring: ControllerRing, users: Sequence[str]) -> Iterator[Manifest]:
    controlled = [
        f"{entry.resource.group}/{entry.resource.resource}"
        for entry in RingResources(ring.spec.resources).entries
        if not entry.main
    ]
    variables = {"me": ME, "owner": f"oldObject.metadata.?labels[?'{shard_label(ring.name)}'].orValue('')"}
    own = "variables.me == variables.owner"
    if controlled:
        variables["free"] = (
            f"request.resource.group + '/' + request.resource.resource in {json.dumps(controlled)}"
            " && !oldObject.metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false))"
        )
        own = f"({own} || variables.free)"
    yield from policy(
        f"sharding-{ring.name}-fence",
        [(resource, ("UPDATE", "DELETE")) for resource in _with_subresources(ring)],
        f"request.userInfo.username in {json.dumps(users)}",
        [rule(f"variables.me != '' && {own}", "the object is another shard's")],
        variables,
    )


def _lease_fence(ring: ControllerRing, users: Sequence[str], ranges: SharedRanges) -> Iterator[Manifest]:
    held = "params.spec.?holderIdentity.orValue('') == variables.me"
    yield from policy(
        f"sharding-{ring.name}-fence",
        [(resource, ("CREATE", "UPDATE", "DELETE")) for resource in _with_subresources(ring)],
        f"request.userInfo.username in {json.dumps(users)}",
        [
            rule(
                f"variables.me != '' && (params.metadata.name != variables.me || {held})",
                "the shard does not hold its Lease",
            )
        ],
        {"me": ME},
        of_each=Lease,
        selected={"namespace": ranges.namespace, "selector": {"matchLabels": {RING_LABEL: ring.name}}},
    )


def _leases(ring: ControllerRing, shards: Sequence[str], sharder: str) -> Iterator[Manifest]:
    def labelled(which: str) -> str:
        return f"({which} != null && {which}.metadata.?labels[?'{RING_LABEL}'].orValue('') == '{ring.name}')"

    cleaners = [f"system:serviceaccount:kube-system:{name}" for name in CLEANERS]
    variables = {
        "user": "request.userInfo.username",
        "me": ME,
        "name": "(object == null ? oldObject : object).metadata.name",
        "shard": f"request.userInfo.username in {json.dumps(shards)}",
        "holder": "object == null ? '' : object.spec.?holderIdentity.orValue('')",
        "seconds": "object == null ? 0 : object.spec.?leaseDurationSeconds.orValue(0)",
    }
    validations = [
        rule(
            f"variables.shard || variables.user == '{sharder}'"
            f" || (request.operation == 'DELETE' && variables.user in {json.dumps(cleaners)})",
            "Leases of a ring belong to its shards and its sharder",
        ),
        rule(
            "!variables.shard || (request.operation != 'DELETE' && variables.me == variables.name"
            " && variables.holder in ['', variables.me])",
            "a shard writes the Lease of its own pod only",
        ),
        rule(
            f"variables.name.matches('{_LABEL_VALUE}')", "the name of a shard's Lease has to be a label value"
        ),
        rule(
            f"!variables.shard || variables.holder == ''"
            f" || ({SHORTEST} <= variables.seconds && variables.seconds <= {LONGEST})",
            f"the duration of a shard's Lease is from {SHORTEST} to {LONGEST} seconds",
        ),
    ]
    yield from policy(
        f"sharding-{ring.name}-leases",
        [(Lease.KIND.group_resource, ("CREATE", "UPDATE", "DELETE"))],
        f"{labelled('object')} || {labelled('oldObject')}",
        validations,
        variables,
    )


def _with_subresources(ring: ControllerRing) -> list[GroupResource]:
    return [
        GroupResource(group, name)
        for group, resource in _resources(ring)
        for name in (resource, f"{resource}/*")
    ]


def _resources(ring: ControllerRing) -> list[GroupResource]:
    return [entry.resource for entry in RingResources(ring.spec.resources).entries]
