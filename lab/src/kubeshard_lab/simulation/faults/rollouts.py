"""Shards come and go as their number and their program change."""

from __future__ import annotations

from kubeshard_lab.simulation.faults.injection import Injection, fault_of


@fault_of("several")
async def scale(on: Injection) -> None:
    """The number of shards is increased by one, and decreased the next time."""
    if "s9" in on.workload.names:
        on.retire("s9")
    else:
        on.workload.names.append("s9")
    on.effects += 1


@fault_of("several")
async def rolling_update(on: Injection) -> None:
    """Each shard is replaced by one with another name, which is there before the former one is stopped."""
    for name in tuple(on.workload.names):
        successor = f"s{int(name[1:]) + 100}"
        on.workload.names.append(successor)
        await on.until(lambda named=successor: on.holder(named) == named, 30)  # type: ignore[misc]
        on.retire(name)
        on.effects += 1


@fault_of("several")
async def scale_to_zero(on: Injection) -> None:
    """All shards are stopped, and started again after a while."""
    names = tuple(on.workload.names)
    for name in names:
        on.retire(name)
        on.effects += 1
    await on.lasts(2, 60)
    on.workload.names.extend(name for name in names if name not in on.workload.names)


@fault_of("several")
async def flapping(on: Injection) -> None:
    """A shard comes and goes every few seconds."""
    name = f"s{on.rng.randint(50, 59)}"
    for _ in range(on.rng.randint(3, 10)):
        if name in on.workload.names:
            on.retire(name)
        else:
            on.workload.names.append(name)
            on.effects += 1
        await on.lasts(1, 8)
    on.retire(name)
