"""Faults of clocks."""

from __future__ import annotations

from kubeshard.simulation.faults.injection import Injection, fault


@fault
async def skew(on: Injection) -> None:
    for process in on.rng.sample(on.workload.live(""), min(2, len(on.workload.live("")))):
        process.clock.skew = on.rng.uniform(-7200, 7200)
        on.effects += 1
