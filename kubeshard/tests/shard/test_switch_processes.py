"""An operator with leader election becomes sharded, and goes back, while its instances run (docs/how-to/rollout.md),
and so does a ring by labels that works by ranges from now on (docs/migration.md).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeshard_apiserver.testing import wait_until
from kubeshard_apiserver.testing.child import Child
from kubeshard_apiserver.testing.kube_api import EmbeddedApi

pytestmark = pytest.mark.system

PROGRAM = """
import asyncio, sys
from kubeshard import ConfigMap, Controller, LeaderElection, Manager, Sharding, Watch, run

name, way = sys.argv[1].partition(".")[0], sys.argv[2]
election = LeaderElection("maps", namespace="default")
rights = {
    "elected": lambda: {"leader_election": election},
    "maps": lambda: {"sharding": Sharding("maps", name, "default", mode="both", replaces=election)},
    "labels": lambda: {"sharding": Sharding("maps", name, "default", mode="both")},
    "ranges": lambda: {"sharding": Sharding("maps", name, "default", mode="both", delivery="ranges")},
    "others": lambda: {"sharding": Sharding("others", name, "default", mode="both", replaces=election)},
}

async def reconcile(ctx, obj):
    print("begin", obj.metadata.name, flush=True)
    await asyncio.sleep(0.5)
    print("end", obj.metadata.name, flush=True)

maps = Watch(ConfigMap, resync=0.5, sharded=way != "elected")
controller = Controller(name="maps", reconciler=reconcile, primary=maps)
run(Manager([controller], status_pages=None, **rights[way]()))
"""
MAPS = [
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"m{i}", "namespace": "default"}}
    for i in range(4)
]


class Instances:
    def __init__(self, api: EmbeddedApi, folder: Path) -> None:
        self._folder = folder
        self._environment = {**os.environ, "KUBECONFIG": str(api.kubeconfig)}
        self.running: dict[str, Child] = {}

    def start(self, way: str, *names: str) -> None:
        for name in names:
            command = [sys.executable, "-c", PROGRAM, name, way]
            self.running[name] = Child(name, command, self._folder / name, self._environment)

    def stop(self, *names: str) -> None:
        for name in names:
            child = self.running.pop(name)
            child.stop(20)
            assert child.exit_code == 0, child.tail()

    def works(self, name: str) -> bool:
        return "begin " in (self._folder / name).read_text()

    def says(self, name: str, text: str) -> bool:
        return text in (self._folder / name).read_text()

    def waits(self, name: str) -> bool:
        return "Waiting for the Lease" in (self._folder / name).read_text() and not self.works(name)


@pytest.fixture
def instances(tmp_path: Path) -> Iterator[Instances]:
    api = EmbeddedApi(controllers=False, pods=False)
    for each in MAPS:
        api.install(each)
    instances = Instances(api, tmp_path)
    try:
        yield instances
    finally:
        for child in instances.running.values():
            child.kill()
        api.stop()


def test_from_an_election_to_a_ring_and_another_ring_and_back_nobody_begins_beside_a_former_instance(
    instances: Instances,
) -> None:
    instances.start("elected", "old")
    wait_until(lambda: instances.works("old"), 30, "the leader works")
    instances.start("maps", "a", "b")
    wait_until(
        lambda: instances.waits("a") and instances.waits("b"), 30, "the shards wait for the election's Lease"
    )
    instances.stop("old")
    wait_until(lambda: instances.works("a") and instances.works("b"), 40, "the shards work")

    instances.start("others", "c")
    instances.start("elected", "back")
    wait_until(lambda: instances.waits("c") and instances.waits("back"), 30, "another ring and a leader wait")
    instances.stop("a")
    instances.stop("b")
    assert not instances.works("c")
    assert not instances.works("back")
    wait_until(lambda: instances.works("c") or instances.works("back"), 60, "one of both works")
    first, second = ("c", "back") if instances.works("c") else ("back", "c")
    instances.stop(first)
    assert not instances.works(second)
    wait_until(lambda: instances.works(second), 60, "the other one works")
    instances.stop(second)


def test_from_labels_to_ranges_and_back_under_the_same_names_nobody_begins_beside_an_instance_of_the_former_kind(
    instances: Instances,
) -> None:
    instances.start("labels", "a", "b")
    wait_until(lambda: instances.works("a") and instances.works("b"), 40, "shards by labels work")
    instances.stop("a")
    instances.start("ranges", "a.2")
    wait_until(lambda: instances.says("a.2", "Acquired the Lease"), 30, "one by ranges has begun")
    instances.stop("b")
    assert not instances.works("a.2")
    instances.start("ranges", "b.2")
    wait_until(lambda: instances.works("a.2") or instances.works("b.2"), 40, "shards by ranges work")

    instances.stop("a.2")
    instances.start("labels", "a.3")
    wait_until(
        lambda: instances.says("a.3", "waits until those that work by ranges have ended"), 30, "it waits"
    )
    instances.stop("b.2")
    assert not instances.works("a.3")
    wait_until(lambda: instances.works("a.3"), 40, "a shard by labels works")

    instances.start("ranges", "b.3")
    wait_until(lambda: instances.says("b.3", "Cannot believe what the assignment says"), 30, "it waits")
    instances.stop("a.3")
    assert not instances.works("b.3")
    wait_until(lambda: instances.works("b.3"), 40, "a shard by ranges works")
    instances.stop("b.3")
