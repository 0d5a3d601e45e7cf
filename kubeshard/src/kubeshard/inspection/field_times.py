"""When fields were last written, by the API server's clock: from `metadata.managedFields`.

Guaranteed: a field is at least as old as reported, because the time is that of the last write by its field manager.
Not guaranteed: that the age is known; `metadata.managedFields` may have been cleared.

The label that asks for a drain has no time of its own, so its age is this one. A Lease's renewTime is its holder's
clock, and the time of the field manager that wrote it is the API server's, of the same moment and in whole seconds: so
the clock of a holder is known from one read.

RBAC: list on the resource; for clocks list on leases, and get on the sharder's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from kubeshard.client.client import Client
from kubeshard.core.builtin import Lease, LeaseSpec
from kubeshard.core.errors import ApiError, NotFound
from kubeshard.core.kinds import Kind
from kubeshard.core.namespaces import ALL
from kubeshard.core.objects import Form, Key, KubeObject, ObjectMeta, field
from kubeshard.core.selectors import Selector
from kubeshard.core.times import parse_time
from kubeshard.inspection.errors import needing
from kubeshard.sharding.names import RING_LABEL

LOOKED_AT = 500
"""The number of drains per resource whose age is looked up."""

TOLERATED = 10.0
"""Seconds. A request that takes long makes the holder's clock look slow by as much."""


class WrittenMeta(ObjectMeta):
    managed_fields: tuple[Mapping[str, Any], ...] = ()

    def written(self, *path: str) -> Iterator[tuple[str, float]]:
        """The names of the fields below this one, each with the time of a field manager that has written it."""
        for entry in self.managed_fields:
            fields: Mapping[str, Any] = entry.get("fieldsV1") or {}
            for name in path:
                fields = fields.get(f"f:{name}") or {}
            if (at := parse_time(str(entry.get("time")))) is not None:
                yield from ((name.removeprefix("f:"), at) for name in fields)

    def labelled_at(self, label: str) -> float | None:
        return min((at for name, at in self.written("metadata", "labels") if name == label), default=None)


class Written(KubeObject):
    """An object's metadata, and who wrote it when."""

    metadata: WrittenMeta = field(default_factory=WrittenMeta)


class RenewedLease(Written, group="coordination.k8s.io", version="v1", kind="Lease"):
    spec: LeaseSpec = field(default_factory=LeaseSpec)

    @property
    def skew(self) -> float | None:
        """How many seconds its holder's clock was ahead when it was last renewed; None if nobody knows."""
        renewed = parse_time(self.spec.renew_time)
        written = max((at for name, at in self.metadata.written("spec") if name == "renewTime"), default=None)
        if renewed is None or written is None:
            return None
        return max(0.0, renewed - written - 1.0) if renewed > written else renewed - written


def with_writers(kind: Kind) -> Form[Written]:
    return Form(kind, Written, metadata_only=True)


async def oldest_drain(client: Client, kind: Kind, drain_label: str) -> float | None:
    """When the oldest of the pending drains that are read was requested, since the epoch. None if unknown."""
    times = list[float]()
    drained = client.list(
        with_writers(kind), ALL, label_selector=Selector.exists(drain_label), page_size=LOOKED_AT
    )
    seen = 0
    with suppress(ApiError):
        async for obj in drained:
            if (at := obj.metadata.labelled_at(drain_label)) is not None:
                times.append(at)
            seen += 1
            if seen == LOOKED_AT:
                break
    return min(times, default=None)


class Clock(NamedTuple):
    namespace: str
    name: str
    ahead: float
    """Seconds; negative if it is behind."""


async def wrong_clocks(client: Client, elections: Iterable[Key]) -> AsyncIterator[Clock]:
    """The shards, and the leading sharders, whose clocks are wrong. Raises MissingRight, ApiError."""
    with needing("list", Lease.KIND.group_resource):
        leases = await client.list_all(RenewedLease, ALL, label_selector=Selector.exists(RING_LABEL))
    for election in elections:
        with needing("get", Lease.KIND.group_resource), suppress(NotFound):
            leases.append(await client.get(RenewedLease, election.name, election.namespace))
    for lease in leases:
        if (ahead := lease.skew) is not None and abs(ahead) > TOLERATED:
            yield Clock(lease.metadata.namespace, lease.metadata.name, ahead)
