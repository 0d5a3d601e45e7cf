"""A Lease that is gone, or older than before, does not say that its shard has ended."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kubeshard.core.builtin import Lease, LeaseSpec
from kubeshard.core.objects import ObjectMeta
from kubeshard.shard.ring_leases import RingLeases
from kubeshard.sharding.assignment import takes_by_labels
from kubeshard.sharding.members import said_by
from kubeshard.sharding.names import OWNED_RANGES_ANNOTATION
from kubeshard_lab.virtual_time import VirtualClock, virtual_time

SHARD: Any = SimpleNamespace(name="a", ring="r", namespace="ops")


def lease(
    name: str = "b", said: str = "", version: int = 5, holder: str | None = None, renewed: str = "1"
) -> Lease:
    meta = ObjectMeta(
        name=name, resource_version=str(version), annotations={OWNED_RANGES_ANNOTATION: said} if said else {}
    )
    spec = LeaseSpec(
        holder_identity=name if holder is None else holder, lease_duration_seconds=15, renew_time=renewed
    )
    return Lease(metadata=meta, spec=spec)


class Reads:
    """What a shard takes for alive, one list after the other."""

    def __init__(self) -> None:
        self._listed: tuple[Lease, ...] = ()
        client: Any = SimpleNamespace(list_all=self._list_all, world=SimpleNamespace(clock=VirtualClock()))
        self._leases = RingLeases(SHARD, client, takes_by_labels)

    async def _list_all(self, *_: object, **__: object) -> list[Lease]:
        return list(self._listed)

    async def __call__(self, *listed: Lease) -> set[str]:
        self._listed = listed
        return set(said_by(await self._leases.read()))

    def unrenewed(self, *listed: Lease) -> dict[str, float]:
        return self._leases.unrenewed(listed)


@pytest.mark.parametrize("undone", [(), (lease(version=3, holder=""),)], ids=["gone", "older"])
@virtual_time
async def test_a_shard_whose_lease_was_deleted_or_undone_counts_for_its_duration(
    undone: tuple[Lease, ...],
) -> None:
    reads = Reads()
    assert await reads(lease()) == {"b"}
    await asyncio.sleep(14)
    assert await reads(*undone) == {"b"}
    await asyncio.sleep(2)
    assert await reads(*undone) == set()


@pytest.mark.parametrize("name", ["a", "b"])
@virtual_time
async def test_what_is_read_counts_at_once_if_the_shard_has_ended_or_is_not_of_another_delivery(
    name: str,
) -> None:
    """Or is this shard itself: what it has lost others do not see."""
    reads = Reads()
    assert await reads(lease(name, "uid/2:/1" if name == "b" else "")) == {name}
    assert await reads() == set()
    assert await reads(lease(version=5)) == {"b"}
    assert await reads(lease(version=6, holder="")) == set()
    assert await reads() == set()


@virtual_time
async def test_a_shard_that_writes_its_lease_anew_counts_until_that_is_released() -> None:
    reads = Reads()
    await reads(lease())
    await reads()
    assert await reads(lease(version=8)) == {"b"}
    assert await reads(lease(version=9, holder="")) == set()


@pytest.mark.parametrize(
    ("later", "seconds", "waits"),
    [
        (lease(renewed="3"), 2, True),
        (lease(renewed="2"), 2, True),
        (lease(renewed="4"), 2, False),
        (lease(renewed="4", holder=""), 2, False),
        (lease(renewed="3"), 16, False),
    ],
    ids=["as it was", "undone by a restore", "renewed", "given up", "expired"],
)
@virtual_time
async def test_what_a_lease_says_counts_once_it_has_been_renewed_before_the_eyes_of_who_reads_it(
    later: Lease, seconds: float, waits: bool
) -> None:
    reads = Reads()
    await reads(lease(renewed="3"), lease("a", renewed="3"))
    await asyncio.sleep(seconds)
    await reads(later, lease("a", renewed="3"), lease("new", renewed="1"))
    assert reads.unrenewed(later, lease("a", renewed="3"), lease("new", renewed="1")) == (
        {"b": 15 - seconds} if waits else {}
    )
