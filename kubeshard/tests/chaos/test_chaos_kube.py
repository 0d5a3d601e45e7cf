"""Processes on a real control plane, killed and cut off; and one that lies, which the checker notices."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from chaos_checker import check
from chaos_rig import RING, Rig
from chaos_run import repeat
from chaos_scenarios import Scenario, Step

pytestmark = [pytest.mark.kube, pytest.mark.system]

CALM = 120.0
"""A bound that a busy machine keeps."""
KILLED = Scenario(
    "killed",
    "a shard is cut off, killed, and started again under its name while what it sent is on its way",
    (
        Step("fault", "victim", faults={"hold_requests": True}),
        Step("until effect", seconds=30),
        Step("kill", "victim"),
        Step("start", "victim"),
        Step("heal", "victim"),
        Step("wait", seconds=1),
    ),
    leases=0,
    seconds=CALM,
)


@pytest.fixture(params=["service", pytest.param("namespaces", marks=pytest.mark.nightly)])
async def rig(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    rig = Rig(tmp_path / "chaos", shards=2, objects=6, lease=15, mode=request.param, seed=1)
    async with rig.running():
        yield rig


async def test_a_killed_shard_costs_nobody_anything_and_one_that_lies_is_noticed(rig: Rig) -> None:
    verdict, _, _ = await repeat(rig, KILLED)
    assert not verdict.findings

    rig.begin()
    liar = rig.start_liar()
    await rig.until(lambda: {"stale write", "overlap"} <= found(rig), 30, "the liar is noticed")
    liar.kill()


def found(rig: Rig) -> set[str]:
    verdict = check(rig.collected(), RING, CALM, by_versions=bool(rig.by))
    return {finding.rule for finding in verdict.findings}
