"""The data of a cluster that all questions about a ring need: rings, shard Leases, namespaces, the time.

A ring is a ControllerRing or, where its operator is its own sharder, what the Lease of that sharder says
(`DECLARED_RING_ANNOTATION`). Such a Lease counts only beside those of the ring's shards.

RBAC: list on controllerrings, leases and namespaces; get on mutatingwebhookconfigurations. Without the latter, rings
are assumed to have the default namespace selector of a sharder without a configuration file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import NamedTuple

import msgspec

from kubeshard.client.client import Client
from kubeshard.core.builtin import Lease, Namespace
from kubeshard.core.errors import ApiError, Forbidden, NotFound
from kubeshard.core.kinds import GroupResource
from kubeshard.core.namespaces import ALL
from kubeshard.core.objects import Key, ObjectMeta
from kubeshard.core.partial_kinds import MutatingWebhookConfiguration
from kubeshard.core.selectors import LabelSelector, Selector
from kubeshard.core.times import parse_time
from kubeshard.inspection.errors import Unanswerable, needing, unknown
from kubeshard.sharder.config import WebhookConfig
from kubeshard.sharder.webhook_config import applied_selector
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.crd import NAME as DEFINITION
from kubeshard.sharding.names import (
    DECLARED_RING_ANNOTATION,
    RING_LABEL,
    SHARDER_LABEL,
    STATE_LABEL,
    STRICT_HANDOVER_ANNOTATION,
    SYSTEM_NAMESPACE,
    inside_election,
    webhook_config_name,
)
from kubeshard.sharding.shard_states import DEFAULT_DURATION, ShardState, ShardStates, written_state

ELECTION = Key(SYSTEM_NAMESPACE, "sharder")
"""The Lease of the leading sharder service, in installations with the default names."""


class SeenShard(NamedTuple):
    """A Lease of a ring. `state` follows from the Lease's own times; `labelled` is the sharder's label, or ""."""

    name: str
    namespace: str
    state: ShardState
    labelled: str
    held: bool
    """Whether the shard holds its Lease. It is then in the hash ring until a sharder takes the Lease over."""
    renewed: float | None
    """Seconds since the last renewal."""


class Sharder(NamedTuple):
    """Who assigns the objects of a ring."""

    election: Key
    """The Lease of the one that leads."""
    inside: bool = False
    leader: str = ""
    """The shard that leads, if it is inside."""
    problem: str | None = None
    """Why none leads, or why that is unknown."""


SILENT = (
    "its sharder is inside the operator, and does not say what it shards: its objects are in another cluster, or it"
    " follows a ControllerRing that does not exist"
)


class Unled(NamedTuple):
    """A ring without a sharder, whose operator had one inside: what is wrong, what to do, and where to begin."""

    problem: str
    remedy: str
    command: str


class Webhook(NamedTuple):
    """A ring's MutatingWebhookConfiguration. `known` is whether the user may read it."""

    known: bool
    exists: bool = False
    trusted: bool = False
    """Whether it has the CA bundle that the API server needs to call it."""
    selector: LabelSelector | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """See the module. `now` is in seconds since the epoch, by the API server's clock if it sends a date."""

    rings: Mapping[str, ControllerRing]
    """Also those that operators declare, which have no UID."""
    defined: bool
    """Whether there may be ControllerRings."""
    inside: Mapping[str, Lease]
    """The Leases of sharders inside operators, by ring."""
    leases: tuple[Lease, ...]
    namespaces: Mapping[str, Namespace]
    now: float
    states: ShardStates
    election: Key = ELECTION
    """The Lease of the leading sharder service."""

    def ring(self, name: str) -> ControllerRing:
        try:
            return self.rings[name]
        except KeyError:
            raise (unknown("ring", name, self.rings) if self.rings else self.no_rings()) from None

    def no_rings(self) -> Unanswerable:
        """Why there are none. What is known of rings that have Leases is said first."""
        known = [f"{name}: {each.problem}; {each.remedy}" for name, each in self.unled().items()]
        if known := [*known, *(f"{name}: {SILENT}" for name in self.silent())]:
            return Unanswerable("; ".join(known))
        why = (
            ""
            if self.defined
            else f", as the CustomResourceDefinition {DEFINITION} is not installed"
            " (`kubeshard manifests sharder` prints it)"
        )
        return Unanswerable(
            f"there is no ring: neither a ControllerRing{why}, nor an operator with a sharder inside; one with"
            ' Sharding(..., mode="both") makes its ring when it starts'
        )

    def is_declared(self, ring: str) -> bool:
        """Whether there is no ControllerRing, only what an operator declares."""
        return not self.rings[ring].metadata.uid

    def members(self, ring: str) -> list[SeenShard]:
        """The Leases of a ring by name and namespace."""
        leases = [lease for lease in self.leases if lease.metadata.label(RING_LABEL) == ring]
        return [self._member(lease) for lease in sorted(leases, key=lambda lease: lease.key[::-1])]

    def available(self, ring: str) -> tuple[str, ...]:
        """The shards in the hash ring, according to the sharder's own shard states."""
        return self.states.available(ring, self.now)

    def without_ring(self) -> list[str]:
        """Rings in Leases that are not among `rings`: deleted ones, and those only led by their operators."""
        used = {lease.metadata.label(RING_LABEL) for lease in self.leases}
        return sorted(used - set(self.rings))

    def silent(self) -> list[str]:
        """Those of them that an operator leads and does not describe."""
        return [name for name in self.without_ring() if self.leads_inside(name)]

    def orphans(self) -> list[str]:
        """Those of them for which nobody assigns objects."""
        return [name for name in self.without_ring() if not self.leads_inside(name)]

    def runs(self, ring: str) -> bool:
        """Whether any of its shards is at work."""
        return any(each.held and each.state is ShardState.READY for each in self.members(ring))

    def unled(self) -> dict[str, Unled]:
        """Of the orphans, those whose operator had a sharder inside."""
        return {name: self._unled(name) for name in self.orphans() if name in self.inside}

    def _unled(self, ring: str) -> Unled:
        lease = self.inside[ring]
        why = f"so nobody assigns its objects: {_leaderless(lease, self.now)}"
        if self.runs(ring):
            return Unled(
                f"no instance of its operator leads as sharder, {why}",
                "see what the logs of the instances say",
                shown(lease.key),
            )
        return Unled(
            f"its operator is stopped, with the sharder inside, {why}",
            "start it, or, if it was uninstalled, delete its Leases",
            f"kubectl --namespace {lease.metadata.namespace} get deployments,statefulsets",
        )

    def leads_inside(self, ring: str) -> bool:
        """Whether a sharder inside the ring's operator leads."""
        lease = self.inside.get(ring)
        return lease is not None and leads(lease, self.now)

    def _member(self, lease: Lease) -> SeenShard:
        renewed = parse_time(lease.spec.renew_time)
        meta, holder = lease.metadata, lease.spec.holder_identity
        return SeenShard(
            meta.name,
            meta.namespace,
            written_state(lease, self.now),
            meta.label(STATE_LABEL),
            bool(holder) and holder == meta.name,
            None if renewed is None else max(0.0, self.now - renewed),
        )


async def read_cluster(client: Client, election: Key = ELECTION) -> ClusterSnapshot:
    """Reads the data. `election` is the Lease of the leading sharder service. Raises MissingRight, ApiError."""
    now = await server_time(client)
    defined, resources = True, list[ControllerRing]()
    try:
        with needing("list", ControllerRing.KIND.group_resource):
            resources = await client.list_all(ControllerRing)
    except NotFound:
        defined = False
    leases = await read_leases(client)
    inside = await _read_inside(client, leases, now)
    with needing("list", Namespace.KIND.group_resource):
        namespaces = await client.list_all(Namespace)
    states = ShardStates()
    for lease in leases:
        states.observe(lease, now)
    for ring in resources:
        states.confine(ring.name, ring.shard_namespaces, now)
    declared = [
        said
        for name, lease in inside.items()
        if (leads(lease, now) or states.available(name, now)) and (said := _declared(name, lease))
    ]
    return ClusterSnapshot(
        rings={ring.name: ring for ring in sorted([*declared, *resources], key=_by_name)},
        defined=defined,
        inside=inside,
        leases=tuple(leases),
        namespaces={namespace.metadata.name: namespace for namespace in namespaces},
        now=now,
        states=states,
        election=election,
    )


def _by_name(ring: ControllerRing) -> tuple[str, bool]:
    """A ControllerRing after what an operator declares for the ring, which it replaces."""
    return ring.name, bool(ring.metadata.uid)


async def _read_inside(client: Client, leases: Iterable[Lease], now: float) -> dict[str, Lease]:
    places = {(lease.metadata.label(RING_LABEL), lease.metadata.namespace) for lease in leases}
    if not places:
        return {}
    with needing("list", Lease.KIND.group_resource):
        found = await client.list_all(Lease, ALL, label_selector=Selector.exists(SHARDER_LABEL))
    known: dict[str, Lease] = {}
    for lease in sorted(found, key=lambda lease: (leads(lease, now), lease.spec.renew_time or "")):
        ring = lease.metadata.label(SHARDER_LABEL)
        if lease.metadata.name == inside_election(ring) and (ring, lease.metadata.namespace) in places:
            known[ring] = lease
    return known


def _declared(name: str, lease: Lease) -> ControllerRing | None:
    """What the sharder inside an operator says of its ring."""
    try:
        ring = msgspec.json.decode(lease.metadata.annotation(DECLARED_RING_ANNOTATION), type=ControllerRing)
    except (msgspec.MsgspecError, RecursionError):
        return None
    annotations = {
        key: text
        for key, text in (ring.metadata.annotations or {}).items()
        if key == STRICT_HANDOVER_ANNOTATION
    }
    return ControllerRing(metadata=ObjectMeta(name=name, annotations=annotations), spec=ring.spec)


async def read_leases(client: Client) -> list[Lease]:
    """The Leases of all shards. Raises MissingRight, ApiError."""
    with needing("list", Lease.KIND.group_resource):
        return await client.list_all(Lease, ALL, label_selector=Selector.exists(RING_LABEL))


async def read_webhook(client: Client, ring: str) -> Webhook:
    try:
        found = await client.get(MutatingWebhookConfiguration, webhook_config_name(ring))
    except Forbidden:
        return Webhook(known=False)
    except NotFound:
        return Webhook(known=True)
    entry = found.webhooks[0] if found.webhooks else {}
    applied = applied_selector(found)  # others may have narrowed the one that is there
    try:
        selector = msgspec.convert(applied or entry.get("namespaceSelector") or {}, LabelSelector)
    except msgspec.ValidationError:
        selector = None
    config = entry.get("clientConfig")
    trusted = isinstance(config, Mapping) and bool(config.get("caBundle"))
    return Webhook(known=True, exists=True, trusted=trusted, selector=selector)


async def read_sharder(client: Client, cluster: ClusterSnapshot, ring: str) -> Sharder:
    """The service or, if that does not lead, the sharder inside the operator, if there is one. Raises ApiError."""
    lease, problem = cluster.inside.get(ring), None
    if not cluster.is_declared(ring):
        problem = await read_leader(client, cluster)
        seen = cluster.ring(ring).status is not None
        if lease is None or problem is None or (seen and not cluster.leads_inside(ring)):
            return Sharder(cluster.election, problem=problem)
    assert lease is not None  # it declares the ring
    holder = (lease.spec.holder_identity or "").rpartition("_")[0]
    return Sharder(lease.key, True, holder, _leaderless(lease, cluster.now))


async def read_leader(client: Client, cluster: ClusterSnapshot) -> str | None:
    """Why no sharder service leads, or why that is unknown; None if one leads. Raises ApiError."""
    election = cluster.election
    try:
        lease = await client.get(Lease, election.name, election.namespace)
    except NotFound:
        return f"there is no Lease {election}: no sharder leads"
    except Forbidden:
        return f"you may not get the Lease {election}, so it is not known whether a sharder leads"
    return _leaderless(lease, cluster.now)


def _leaderless(lease: Lease, now: float) -> str | None:
    if not lease.spec.holder_identity:
        return f"nobody holds the Lease {lease.key}: no sharder runs"
    if seconds := _silence(lease, now):
        return f"{lease.spec.holder_identity} has not renewed the Lease {lease.key} for {seconds:.0f} s"
    return None


def shown(lease: Key) -> str:
    """The command that shows it."""
    return f"kubectl --namespace {lease.namespace} get lease {lease.name} --output yaml"


def leads(lease: Lease, now: float) -> bool:
    """Whether somebody holds and renews the Lease of an election."""
    return _leaderless(lease, now) is None


def _silence(lease: Lease, now: float) -> float:
    """The seconds without renewal, if they are more than twice the Lease's duration: nobody leads then. Otherwise 0."""
    renewed = parse_time(lease.spec.renew_time)
    seconds = 0.0 if renewed is None else now - renewed
    return seconds if seconds > 2 * (lease.spec.lease_duration_seconds or DEFAULT_DURATION) else 0.0


def default_selector(webhook: Webhook) -> LabelSelector:
    """The selector that applies to rings without a namespace selector."""
    return WebhookConfig().namespace_selector if webhook.selector is None else webhook.selector


def server_error(resource: GroupResource, error: ApiError) -> str:
    """Why a resource could not be read."""
    if isinstance(error, Forbidden):
        return f"you may not list {resource}"
    return str(error)


async def server_time(client: Client) -> float:
    """The time by the API server's clock. With a wrong local clock, the Leases of shards would look expired."""
    answer = await client.raw("GET", "/version")
    try:
        return parsedate_to_datetime(answer.headers["date"]).timestamp()
    except (KeyError, ValueError):
        return client.world.clock.wall()
