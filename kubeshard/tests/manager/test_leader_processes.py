"""Leaders as processes: one that blocks, or is stopped, is dead before another acts."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeshard_apiserver.testing import wait_until
from kubeshard_apiserver.testing.child import Child
from kubeshard_apiserver.testing.kube_api import EmbeddedApi

pytestmark = pytest.mark.system

PROGRAM = """
import asyncio, sys, time
from kubeshard import ConfigMap, Controller, LeaderElection, Manager, Watch, run
from kubeshard.manager.leader_election import ElectionTiming

name, blocks, watchdog = sys.argv[1], float(sys.argv[2]), sys.argv[3] == "watchdog"

def act(seconds):
    end = time.monotonic() + seconds
    while True:
        print("acts", name, time.monotonic(), flush=True)
        if time.monotonic() >= end:
            return
        time.sleep(0.02)

async def reconcile(ctx, obj):
    act(0)
    await asyncio.sleep(0.5)
    act(blocks)
    print("ended", name, flush=True)

timing = ElectionTiming(
    lease_duration=4, renew_deadline=3, retry_period=0.5, attempt_timeout=1, stop_margin=0.6, cancel_margin=0.3
)
election = LeaderElection(name="leader", namespace="default", identity=name, timing=timing, watchdog=watchdog)
controller = Controller(name="maps", reconciler=reconcile, primary=Watch(ConfigMap, resync=0.2))
run(Manager([controller], leader_election=election, status_pages=None))
"""
MANIFEST = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}}


class Candidates:
    """Processes that note when they act."""

    def __init__(self, api: EmbeddedApi, folder: Path) -> None:
        self._folder = folder
        self._environment = {**os.environ, "KUBECONFIG": str(api.kubeconfig)}
        self._children: list[Child] = []

    def start(self, name: str, *, blocks: float = 0.0, watchdog: bool = True) -> Child:
        command = [sys.executable, "-c", PROGRAM, name, str(blocks), "watchdog" if watchdog else "none"]
        child = Child(name, command, self._folder / name, self._environment)
        self._children.append(child)
        return child

    def acts(self, name: str) -> list[float]:
        """When it acted."""
        lines = (self._folder / name).read_text().splitlines()
        return [
            float(line.split()[2]) for line in lines if line.startswith("acts ") and len(line.split()) == 3
        ]

    def stop(self) -> None:
        for child in self._children:
            child.kill()


@pytest.fixture
def candidates(tmp_path: Path) -> Iterator[Candidates]:
    api = EmbeddedApi(controllers=False, pods=False)
    api.install(MANIFEST)
    candidates = Candidates(api, tmp_path)
    try:
        yield candidates
    finally:
        candidates.stop()
        api.stop()


def test_a_leader_whose_reconcile_blocks_longer_than_its_lease_is_dead_before_another_acts(
    candidates: Candidates,
) -> None:
    first = candidates.start("first", blocks=10)
    wait_until(lambda: len(candidates.acts("first")) > 1, 30, "the first leader acts")
    candidates.start("second")
    wait_until(lambda: bool(candidates.acts("second")), 30, "the second leader acts")
    assert first.exit_code == -signal.SIGKILL, first.tail()
    assert candidates.acts("first")[-1] < candidates.acts("second")[0]
    told = first.log.read_text()
    assert "Not renewing the Lease until this process works again" in told
    assert "Lost the Lease" in told


def test_a_leader_that_was_stopped_is_dead_before_another_acts_and_goes_on_with_nothing(
    candidates: Candidates,
) -> None:
    first = candidates.start("first", blocks=0.1)
    wait_until(lambda: len(candidates.acts("first")) > 1, 30, "the first leader acts")
    candidates.start("second")
    first.signal(signal.SIGSTOP)
    wait_until(lambda: bool(candidates.acts("second")), 30, "the second leader acts")
    assert first.exit_code == -signal.SIGKILL
    assert candidates.acts("first")[-1] < candidates.acts("second")[0]


def test_without_the_watchdog_a_blocked_leader_goes_on_beside_the_next_one_and_ends_afterwards(
    candidates: Candidates,
) -> None:
    """What `LeaderElection.watchdog` is for."""
    first = candidates.start("first", blocks=10, watchdog=False)
    wait_until(lambda: len(candidates.acts("first")) > 1, 30, "the first leader acts")
    candidates.start("second")
    wait_until(lambda: bool(candidates.acts("second")), 30, "the second leader acts")
    assert first.running
    wait_until(lambda: not first.running, 30, "the end of the first leader")
    assert first.exit_code == 1
    assert candidates.acts("first")[-1] > candidates.acts("second")[0]
