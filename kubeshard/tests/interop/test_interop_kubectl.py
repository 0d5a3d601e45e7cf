"""`kubectl shard` at a ring that the Go sharder serves with Go shards: its answers are what is there, and what it
predicts is what the Go programs then do.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from objects import Leases
from programs import Programs
from ring import Ring, differing, eventually, on
from service import service

from kubeshard.core import AlreadyExists, ConfigMap, Namespace, NotFound, ObjectMeta, Secret
from kubeshard.inspection.shard_drain import Pod
from kubeshard.sharding.hash_ring import HashRing
from kubeshard.sharding.names import SYSTEM_NAMESPACE
from kubeshard_apiserver.testing.child import Child

pytestmark = pytest.mark.interop

SECRETS = [f"secret-{number}" for number in range(40)]


class Fleet:
    """The ring, the Go sharder, and Go checksum controllers as shards, each with a pod of its name."""

    def __init__(self, ring: Ring, programs: Programs, kubeconfig: Path, checksum: Path) -> None:
        self.ring = ring
        self._programs = programs
        self._kubeconfig = kubeconfig
        self._checksum = checksum
        self._shards: dict[str, Child] = {}

    async def join(self, shard: str) -> None:
        namespace = self.ring.namespace
        self._shards[shard] = self._programs.checksums(shard, self.ring.name, namespace, self._checksum)
        await eventually(lambda: self._holds(shard))

    async def stop(self, shard: str) -> None:
        assert await asyncio.to_thread(self._shards.pop(shard).stop, 20) == 0

    async def fill(self) -> None:
        for name in SECRETS:
            await self.ring.client.create(
                Secret(metadata=ObjectMeta(name=name, namespace=self.ring.namespace))
            )

    async def settles(self, *shards: str) -> dict[str, str]:
        """Returns where the Secrets are, once they and their ConfigMaps are where these shards should have them."""
        hashring = HashRing(shards)
        placement = {name: hashring.owner(f"/Secret/{self.ring.namespace}/{name}") for name in SECRETS}

        async def so() -> bool:
            self._programs.check()
            children = {f"checksums-{name}": shard for name, shard in placement.items()}
            return await self.ring.labels() == on(placement) and await self.ring.labels(ConfigMap) == on(
                children
            )

        await eventually(so, 60)
        return placement

    async def asked(self, *words: str, code: int = 0) -> str:
        """What `kubectl shard` prints."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", "from kubeshard.cli import shard_main; shard_main()", *words),
            env={**os.environ, "KUBECONFIG": str(self._kubeconfig)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, errors = await process.communicate()
        assert (process.returncode, errors.decode()) == (code, "")
        return out.decode()

    async def answer(self, *words: str) -> Any:
        return json.loads(await self.asked(*words, "-o", "json"))

    async def _holds(self, shard: str) -> bool:
        self._programs.check()
        return await self.ring.holder(shard) == shard


@pytest.fixture
async def fleet(
    ring: Ring, programs: Programs, kubeconfig: Path, go_sharder: Path, go_checksum: Path
) -> AsyncIterator[Fleet]:
    with suppress(AlreadyExists):
        await ring.client.create(Namespace(metadata=ObjectMeta(name=SYSTEM_NAMESPACE)))
    async with service(SYSTEM_NAMESPACE) as replicas:
        programs.sharder(go_sharder, replica_of=replicas)
        await ring.create()
        try:
            yield Fleet(ring, programs, kubeconfig, go_checksum)
        finally:
            programs.stop()


async def test_a_settled_ring_is_what_it_says(fleet: Fleet) -> None:
    ring = fleet.ring
    for shard in ("a", "b"):
        await fleet.join(shard)
    await fleet.fill()
    placement = await fleet.settles("a", "b")
    counts = Counter(placement.values())

    await eventually(lambda: is_ready(fleet))
    (status,) = (await fleet.answer("status", ring.name))["rings"]
    assert status["troubles"] == []
    assert [
        (
            each["name"],
            each["state"],
            each["sharderSays"],
            each["available"],
            each["objects"],
            each["draining"],
        )
        for each in status["shards"]
    ] == [
        (shard, "ready", "ready", True, {"secrets": counts[shard], "configmaps": counts[shard]}, 0)
        for shard in ("a", "b")
    ]
    assert "!" not in await fleet.asked("status", ring.name)

    for name in SECRETS[:3]:
        namespace = ("-n", ring.namespace)
        assert (
            await fleet.asked("where", f"secret/{name}", *namespace, "-o", "name") == f"{placement[name]}\n"
        )
        (found,) = (await fleet.answer("why", f"configmap/checksums-{name}", *namespace))["placements"]
        assert (found["shard"], found["desired"], found["reason"]) == (
            placement[name],
            placement[name],
            "Placed",
        )
        assert (found["owner"]["name"], found["owner"]["shard"]) == (name, placement[name])
        (found,) = (await fleet.answer("why", f"secret/{name}", *namespace))["placements"]
        assert found["children"] == [{"resource": "configmaps", "shards": {placement[name]: 1}, "error": ""}]

    shown = ", ".join(f"{shard} ready {counts[shard]}+{counts[shard]}" for shard in ("a", "b"))
    assert await fleet.asked("top", ring.name, "--once") == f"{shown}; every object is where it belongs\n"
    plan = await fleet.answer("plan", ring.name)
    assert (plan["flows"], plan["strays"], plan["objects"]) == ([], [], {"secrets": 40, "configmaps": 40})


async def test_what_moves_is_what_was_planned(fleet: Fleet) -> None:
    ring = fleet.ring
    for shard in ("a", "b"):
        await fleet.join(shard)
    await fleet.fill()
    await fleet.settles("a", "b")
    for change, shards in ((("--add", "c"), "abc"), (("--remove", "a"), "bc")):
        planned = await fleet.asked("plan", ring.name, *change, "-o", "name")
        numbers = await fleet.answer("plan", ring.name, *change)
        before = await ring.shards_of()
        async with ring.history() as secrets, ring.history(ConfigMap) as config_maps:
            await (fleet.join if change[0] == "--add" else fleet.stop)(change[1])
            after = await fleet.settles(*shards)
        moved = [f"secrets/{name}" for name in secrets] + [f"configmaps/{name}" for name in config_maps]
        assert sorted(planned.splitlines()) == sorted(f"{each} -n {ring.namespace}" for each in moved)
        assert numbers["moving"] == {"secrets": len(secrets), "configmaps": len(config_maps)}
        assert sorted(secrets) == sorted(differing(before, after))
        flows = Counter((before[name], after[name]) for name in secrets)
        told = {(each["source"], each["target"]): each["objects"] for each in numbers["flows"]}
        assert told == flows


async def test_a_drain_that_nobody_acknowledges_is_seen(fleet: Fleet) -> None:
    """The shard `idle` renews its Lease, and does nothing else."""
    ring = fleet.ring
    idle = Leases(ring)
    await idle.join("idle")
    try:
        await eventually(lambda: are_members(fleet, "idle"))
        await fleet.fill()
        await eventually(lambda: are_on(fleet, "idle"), 60)
        await fleet.join("busy")
        leaving = sorted(
            name
            for name in SECRETS
            if HashRing(("idle", "busy")).owner(f"/Secret/{ring.namespace}/{name}") == "busy"
        )
        await eventually(lambda: are_draining(fleet, leaving), 60)

        (status,) = (await fleet.answer("status", ring.name))["rings"]
        assert {each["name"]: each["draining"] for each in status["shards"]} == {
            "idle": len(leaving),
            "busy": 0,
        }
        assert 0 <= status["oldestDrainSeconds"] < 60
        words = (f"secret/{leaving[0]}", "-n", ring.namespace)
        (found,) = (await fleet.answer("why", *words))["placements"]
        assert (found["shard"], found["desired"], found["reason"]) == ("idle", "busy", "DrainPending")
        assert 0 <= found["drainingSeconds"] < 60
        assert f"{len(leaving)} draining" in await fleet.asked("top", ring.name, "--once")
        plan = await fleet.answer("plan", ring.name)
        assert (plan["moving"]["secrets"], plan["anyway"]) == (len(leaving), len(leaving))
    finally:
        idle.stop()


async def test_a_shard_that_is_drained_ends_and_its_objects_have_the_other_one(fleet: Fleet) -> None:
    ring = fleet.ring
    for shard in ("a", "b"):
        await fleet.join(shard)
        await ring.client.apply_manifest(pod(shard, ring.namespace))
    await fleet.fill()
    before = await fleet.settles("a", "b")
    mine = Counter(before.values())["a"]
    said = await fleet.asked("drain", "a", "--ring", ring.name, "--dry-run")
    assert ["secrets", "b", str(mine)] in [line.split() for line in said.splitlines()]
    assert await fleet.settles("a", "b") == before

    async def kubelet() -> None:
        await eventually(lambda: is_evicted(ring, "a"))
        await fleet.stop("a")
        with suppress(NotFound):
            await ring.client.delete(Pod, "a", ring.namespace, grace_period=0)

    ending = asyncio.create_task(kubelet())
    said = await fleet.asked("drain", "a", "--ring", ring.name, "--yes", "--timeout", "60")
    await ending
    assert said.splitlines()[-1] == "the pod of a is gone, and no object is on it"
    await fleet.settles("b")


def pod(name: str, namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "automountServiceAccountToken": False,
            "containers": [{"name": "operator", "image": "operator"}],
        },
    }


async def is_evicted(ring: Ring, name: str) -> bool:
    try:
        return bool((await ring.client.get(Pod, name, ring.namespace)).metadata.deleting)
    except NotFound:
        return True


async def is_ready(fleet: Fleet) -> bool:
    (status,) = (await fleet.answer("status", fleet.ring.name))["rings"]
    return bool(status["ready"] == "True")


async def are_members(fleet: Fleet, *shards: str) -> bool:
    (status,) = (await fleet.answer("status", fleet.ring.name))["rings"]
    return {each["name"] for each in status["shards"] if each["sharderSays"] == "ready"} == set(shards)


async def are_on(fleet: Fleet, shard: str) -> bool:
    return await fleet.ring.labels() == on(dict.fromkeys(SECRETS, shard))


async def are_draining(fleet: Fleet, names: list[str]) -> bool:
    labels = await fleet.ring.labels()
    return sorted(name for name, each in labels.items() if "drain" in each) == names
