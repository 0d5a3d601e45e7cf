"""Shards come and go as their number and their program change."""

from __future__ import annotations

from kubeshard.simulation.faults.injection import Injection, fault


@fault
async def scale(on: Injection) -> None:
    """The number of shards is increased by one, and decreased the next time."""
    if "s9" in on.workload.names:
        on.retire("s9")
    else:
        on.workload.names.append("s9")
    on.effects += 1
