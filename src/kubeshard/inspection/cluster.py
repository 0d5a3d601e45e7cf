"""The data of a cluster that all questions about a ring need: rings, shard Leases, namespaces, the time.

RBAC: list on controllerrings, leases and namespaces; get on mutatingwebhookconfigurations. Without the latter, rings
are assumed to have the default namespace selector of a sharder without a configuration file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import NamedTuple

import msgspec

from kubeshard.client.client import Client
from kubeshard.core.builtin import Lease, Namespace
from kubeshard.core.errors import ApiError, Forbidden, NotFound
from kubeshard.core.grants import Grant
from kubeshard.core.kinds import GroupResource
from kubeshard.core.namespaces import ALL
from kubeshard.core.objects import Key
from kubeshard.core.selectors import FieldSelector, LabelSelector, Selector
from kubeshard.core.times import parse_time
from kubeshard.inspection.errors import NoControllerRings, needing, unknown
from kubeshard.sharder.config import WebhookConfig
from kubeshard.sharder.webhook_config import MutatingWebhookConfiguration
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.names import RING_LABEL, STATE_LABEL, SYSTEM_NAMESPACE, webhook_config_name
from kubeshard.sharding.shard_states import DEFAULT_DURATION, ShardState, ShardStates, written_state

ELECTION = Key(SYSTEM_NAMESPACE, "sharder")
"""The Lease of the leading sharder, in installations with the default names."""


class Member(NamedTuple):
    """A Lease of a ring. `state` follows from the Lease's own times. `labelled` is the sharder's state label,
    "" if unset.
    """

    name: str
    namespace: str
    state: ShardState
    labelled: str
    held: bool
    """Whether the shard holds its Lease. It is then in the hash ring until a sharder takes the Lease over."""
    renewed: float | None
    """Seconds since the last renewal."""


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
    leases: tuple[Lease, ...]
    """The Leases of shards."""
    namespaces: Mapping[str, Namespace]
    now: float
    states: ShardStates
    election: Key = ELECTION
    """The Lease of the leading sharder."""

    def ring(self, name: str) -> ControllerRing:
        """The ring of this name. Raises Unanswerable, with similar names."""
        try:
            return self.rings[name]
        except KeyError:
            raise unknown("ControllerRing", name, self.rings) from None

    def members(self, ring: str) -> list[Member]:
        """The Leases of a ring by name and namespace."""
        leases = [lease for lease in self.leases if lease.metadata.label(RING_LABEL) == ring]
        return [self._member(lease) for lease in sorted(leases, key=lambda lease: lease.key[::-1])]

    def available(self, ring: str) -> tuple[str, ...]:
        """The shards in the hash ring, according to the sharder's own shard states."""
        return self.states.available(ring, self.now)

    def without_ring(self) -> list[str]:
        """Names of rings in Leases without a ControllerRing: rings sharded in the manager, or deleted ones."""
        used = {lease.metadata.label(RING_LABEL) for lease in self.leases}
        return sorted(used - set(self.rings))

    def _member(self, lease: Lease) -> Member:
        renewed = parse_time(lease.spec.renew_time)
        meta, holder = lease.metadata, lease.spec.holder_identity
        return Member(
            meta.name,
            meta.namespace,
            written_state(lease, self.now),
            meta.label(STATE_LABEL),
            bool(holder) and holder == meta.name,
            None if renewed is None else max(0.0, self.now - renewed),
        )


async def read_cluster(client: Client, election: Key = ELECTION) -> ClusterSnapshot:
    """Reads the data. `election` is the Lease of the leading sharder. Raises NoControllerRings, MissingRight,
    ApiError.
    """
    now = await server_time(client)
    try:
        with needing("list", ControllerRing.KIND.group_resource):
            rings = await client.list_all(ControllerRing)
    except NotFound:
        raise NoControllerRings(
            "the cluster has no ControllerRings, because their CustomResourceDefinition is not installed: "
            "`kubeshard manifests sharder` prints it"
        ) from None
    leases = await read_leases(client)
    with needing("list", Namespace.KIND.group_resource):
        namespaces = await client.list_all(Namespace)
    states = ShardStates()
    for lease in leases:
        states.observe(lease, now)
    for ring in rings:
        states.confine(ring.name, ring.shard_namespaces, now)
    return ClusterSnapshot(
        rings={ring.name: ring for ring in sorted(rings, key=lambda ring: ring.name)},
        leases=tuple(leases),
        namespaces={namespace.metadata.name: namespace for namespace in namespaces},
        now=now,
        states=states,
        election=election,
    )


async def read_leases(client: Client) -> list[Lease]:
    """The Leases of all shards. Raises MissingRight, ApiError."""
    with needing("list", Lease.KIND.group_resource):
        return await client.list_all(Lease, ALL, label_selector=Selector.exists(RING_LABEL))


async def read_orphans(client: Client, cluster: ClusterSnapshot) -> list[str]:
    """Names of rings in Leases for which nobody assigns objects: there is no ControllerRing, and no instance leads the
    election of a sharder inside the operator. Raises ApiError.
    """
    found = []
    for ring in cluster.without_ring():
        only = FieldSelector.equals("metadata.name", f"sharder-{ring}")
        elections = await client.list_all(Lease, ALL, field_selector=only)
        if not any(each.spec.holder_identity and not _silence(each, cluster.now) for each in elections):
            found.append(ring)
    return found


async def read_webhook(client: Client, ring: str) -> Webhook:
    """Reads the webhook of a ring. Raises ApiError, except for a missing right."""
    try:
        found = await client.get(MutatingWebhookConfiguration, webhook_config_name(ring))
    except Forbidden:
        return Webhook(known=False)
    except NotFound:
        return Webhook(known=True)
    entry = found.webhooks[0] if found.webhooks else {}
    try:
        selector = msgspec.convert(entry.get("namespaceSelector") or {}, LabelSelector)
    except msgspec.ValidationError:
        selector = None
    config = entry.get("clientConfig")
    trusted = isinstance(config, Mapping) and bool(config.get("caBundle"))
    return Webhook(known=True, exists=True, trusted=trusted, selector=selector)


async def read_leader(client: Client, cluster: ClusterSnapshot) -> str | None:
    """Why no sharder leads, or why that is unknown; None if one leads. Raises ApiError."""
    election = cluster.election
    try:
        lease = await client.get(Lease, election.name, election.namespace)
    except NotFound:
        return f"there is no Lease {election}: no sharder leads"
    except Forbidden:
        return f"you may not get the Lease {election}, so it is not known whether a sharder leads"
    if not lease.spec.holder_identity:
        return f"nobody holds the Lease {election}: no sharder runs"
    if seconds := _silence(lease, cluster.now):
        return f"{lease.spec.holder_identity} has not renewed the Lease {election} for {seconds:.0f} s"
    return None


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


def reader_grants(resources: Iterable[GroupResource]) -> Iterator[Grant]:
    """The rights of read-only users. `resources` are the main and controlled resources of the rings that they may
    inspect.
    """
    yield Grant.on(ControllerRing, "list", "watch")
    yield Grant.on(Lease, "list", "watch")
    yield Grant.on(Lease, "get", namespace=ELECTION.namespace, name=ELECTION.name)
    yield Grant.on(Namespace, "list", "watch")
    yield Grant.on(MutatingWebhookConfiguration, "get")
    for resource in resources:
        yield Grant.on(resource, "list", "watch")
