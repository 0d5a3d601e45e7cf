"""The installed sharder works with exactly what was installed, and is upgraded and rolled back under load."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from installed_cluster import Cluster
from replicas import Rollout
from witness import Witness

from kubeshard import Client, ObjectMeta
from kubeshard.core.yaml_output import documents
from kubeshard.manifests.ring import ring_objects
from kubeshard_apiserver.testing.control_plane import free_port
from kubeshard_lab.demo.processes import RingProcesses
from kubeshard_lab.examples.webhosting import manifests
from kubeshard_lab.examples.webhosting.api import RING, SKIP_WORKLOAD_LABEL, Website, WebsiteSpec

PROJECT = "project-installed"
UNASSIGNED_AT_MOST = 2.0


def values(port: int, **more: Any) -> Mapping[str, Any]:
    """Values for a cluster whose API server cannot reach Services: it calls the webhook at its address."""
    address = f"127.0.0.1:{port}"
    webhook = {
        "server": {"bindAddress": address, "reusePort": True},
        "config": {"clientConfig": {"url": f"https://{address}/"}},
    }
    return {"policies": {"enabled": False}, "config": {"webhook": webhook}, **more}


@pytest.fixture
def rollout(cluster: Cluster, tmp_path: Path) -> Iterator[Rollout]:
    made = Rollout(cluster, tmp_path)
    yield made
    made.kill()


@pytest.fixture
def processes(cluster: Cluster, tmp_path: Path) -> Iterator[RingProcesses]:
    made = RingProcesses(cluster.kubeconfig, tmp_path, 15.0)
    yield made
    made.stop_all()


async def test_an_upgrade_and_a_rollback_under_load_move_nothing_and_leave_nothing_to_nobody(
    cluster: Cluster, rollout: Rollout, processes: RingProcesses, tmp_path: Path
) -> None:
    port, file = free_port(), tmp_path / "values.yaml"

    def install(**more: Any) -> None:
        file.write_text(json.dumps(values(port, **more)))
        cluster.apply("-f", "-", "--force-conflicts", given=cluster.helm("--values", file))

    # Left over from an installation with other values: nothing prunes objects that later manifests omit.
    for kind in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
        cluster.kubectl("delete", kind, "--all")
    install()
    given = [
        *manifests.crds(),
        manifests.system_namespace(),
        manifests.project(PROJECT),
    ]
    cluster.apply("-f", "-", given=documents(given))
    cluster.kubectl("wait", "--for=condition=Established", "crd", "--all")
    cluster.apply("-f", "-", given=documents([manifests.theme("lame", "darkgray", "Times")]))
    ring = documents(ring_objects(manifests.controller_ring(RING), ("sharding-system", "sharder")))
    cluster.apply("-f", "-", given=ring)
    await asyncio.to_thread(rollout.roll)
    for name in ("shard-a", "shard-b", "shard-c"):
        processes.start_shard(name, "--namespace", PROJECT)
    async with await Client.connect(cluster.kubeconfig) as client, asyncio.TaskGroup() as tasks:
        witness = Witness()
        running = [tasks.create_task(witness.run(client)), tasks.create_task(load(client))]
        await until(lambda: cluster_is_settled(cluster, shards=3), 60)
        await until(lambda: len(witness.owners) > 50 and witness.all_owned, 60)
        began = time.monotonic()
        install(logLevel="debug", image="kubeshard:next")
        await asyncio.to_thread(rollout.roll)
        upgraded = time.monotonic()
        install()
        await asyncio.to_thread(rollout.roll)
        ended = time.monotonic()
        for task in running:
            task.cancel()
    processes.check()
    longest, moved = witness.unassigned(began), witness.moves(began)
    print(
        f"{len(witness.owners)} objects; upgrade {upgraded - began:.1f} s, rollback {ended - upgraded:.1f} s;"
        f" longest without a shard {longest:.2f} s; {len(moved)} moved"
    )
    assert not moved
    assert not witness.drains(began)
    assert longest <= UNASSIGNED_AT_MOST
    conditions = cluster.get("controllerring", RING)["status"]["conditions"]
    assert {(each["type"], each["status"]) for each in conditions} == {("Ready", "True")}


def cluster_is_settled(cluster: Cluster, *, shards: int) -> bool:
    status = cluster.get("controllerring", RING).get("status") or {}
    return bool(status.get("availableShards") == shards)


async def load(client: Client) -> None:
    """Creates ten Websites a second, until cancelled."""
    for number in itertools.count():
        metadata = ObjectMeta(name=f"site-{number}", namespace=PROJECT, labels={SKIP_WORKLOAD_LABEL: "true"})
        await client.create(Website(metadata=metadata, spec=WebsiteSpec(theme="lame")))
        await asyncio.sleep(0.1)


async def until(condition: Any, within: float) -> None:
    deadline = time.monotonic() + within
    while not await asyncio.to_thread(condition):
        assert time.monotonic() < deadline, f"not within {within} s"
        await asyncio.sleep(0.2)
