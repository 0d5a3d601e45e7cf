"""The checksum controllers of both implementations in one ring, under either sharder."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from pathlib import Path

import pytest
from programs import LEASE_SECONDS, Programs
from ring import Ring, eventually, on

from kubeshard.core import ConfigMap, ObjectMeta, Secret
from kubeshard.sharding.hash_ring import HashRing
from kubeshard.sharding.names import SHARDER_IDENTITY, shard_label
from kubeshard_apiserver.testing.child import Child

pytestmark = pytest.mark.interop

SECRETS = [f"secret-{number}" for number in range(20)]


async def create(ring: Ring, name: str) -> None:
    metadata = ObjectMeta(name=name, namespace=ring.namespace)
    value = base64.b64encode(name.encode()).decode()
    await ring.client.create(Secret(metadata=metadata, data={"name": value}))


async def written(ring: Ring, placement: dict[str, str]) -> bool:
    """Whether every Secret is on its shard, and its checksum is in a ConfigMap next to it."""
    label = shard_label(ring.name)
    found = {
        config_map.metadata.name.removeprefix("checksums-"): (
            config_map.metadata.label(label),
            dict(config_map.data or {}),
        )
        for config_map in await ring.client.list_all(ConfigMap, ring.namespace)
    }
    wanted = {
        name: (shard, {"name": hashlib.sha256(name.encode()).hexdigest()})
        for name, shard in placement.items()
    }
    return found == wanted and await ring.labels() == on(placement)


def placement(ring: Ring, names: list[str], *shards: str) -> dict[str, str]:
    hashring = HashRing(shards)
    return {name: hashring.owner(f"/Secret/{ring.namespace}/{name}") for name in names}


@pytest.mark.parametrize("sharder", ["kubeshard", "go"])
async def test_both_checksum_controllers_share_a_ring_and_take_over_from_each_other(
    ring: Ring, programs: Programs, go_checksum: Path, request: pytest.FixtureRequest, sharder: str
) -> None:
    await ring.create()
    programs.sharder(request.getfixturevalue("go_sharder") if sharder == "go" else None)
    gopher = programs.checksums("gopher", ring.name, ring.namespace, go_checksum)
    await eventually(lambda: _holds(ring, programs, "gopher"))
    for name in SECRETS:
        await create(ring, name)
    await eventually(lambda: written(ring, placement(ring, SECRETS, "gopher")))
    python = programs.checksums("python", ring.name, ring.namespace)
    await eventually(lambda: written(ring, placement(ring, SECRETS, "gopher", "python")))
    assert await asyncio.to_thread(gopher.stop, 20) == 0
    await create(ring, "later")
    await eventually(lambda: written(ring, placement(ring, [*SECRETS, "later"], "python")))
    programs.checksums("gopher-2", ring.name, ring.namespace, go_checksum)
    await eventually(lambda: written(ring, placement(ring, [*SECRETS, "later"], "gopher-2", "python")))
    assert await asyncio.to_thread(python.stop, 20) == 0
    await eventually(lambda: written(ring, placement(ring, [*SECRETS, "later"], "gopher-2")))


async def test_a_shard_that_comes_back_after_the_go_sharder_seized_its_lease_waits_for_the_record(
    ring: Ring, programs: Programs, go_sharder: Path
) -> None:
    """The Go sharder acts on its cache of the Lease, so the cache must have had time to update."""

    def start(name: str) -> None:
        shard = programs.script(
            name,
            Path(__file__).with_name("returning_shard.py"),
            *(ring.name, name, ring.namespace, str(LEASE_SECONDS)),
        )
        processes[name] = shard

    processes: dict[str, Child] = {}
    await ring.create()
    programs.sharder(go_sharder)
    for name in ("a", "b"):
        start(name)
        await eventually(lambda name=name: _holds(ring, programs, name))
    for name in SECRETS:
        await create(ring, name)
    await eventually(lambda: written(ring, placement(ring, SECRETS, "a", "b")))
    processes["a"].kill()
    await eventually(lambda: _is_held_by(ring, "a", SHARDER_IDENTITY), 4 * LEASE_SECONDS)
    start("a")
    await eventually(lambda: written(ring, placement(ring, SECRETS, "b")))
    waited = await eventually(lambda: _holds(ring, programs, "a"))
    assert waited > LEASE_SECONDS
    assert (await ring.lease("a")).spec.lease_transitions == 2
    await eventually(lambda: written(ring, placement(ring, SECRETS, "a", "b")))


async def _holds(ring: Ring, programs: Programs, shard: str) -> bool:
    programs.check()
    return await _is_held_by(ring, shard, shard)


async def _is_held_by(ring: Ring, shard: str, identity: str) -> bool:
    return await ring.holder(shard) == identity
