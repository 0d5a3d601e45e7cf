"""Faults of clocks: they are wrong, fast or slow, or stand still with their machines."""

from __future__ import annotations

from kubeshard_lab.simulation.faults.injection import Injection, fault_of
from kubeshard_lab.simulation.properties import FASTEST

_A_YEAR = 365 * 86_400.0


@fault_of("any")
async def skew(on: Injection) -> None:
    """The clocks of two processes are up to two hours fast or slow."""
    for process in on.rng.sample(on.workload.live(""), min(2, len(on.workload.live("")))):
        process.clock.skew = on.rng.uniform(-7200, 7200)
        on.effects += 1


@fault_of("any")
async def year_off(on: Injection) -> None:
    """The clock of a process is a year fast or slow."""
    if process := on.one(on.rng.choice("sx")):
        process.clock.skew = on.rng.choice((-_A_YEAR, _A_YEAR))


@fault_of("any")
async def clock_rate(on: Injection) -> None:
    """The clock of a process runs up to 5 % too fast or too slow, and its timers with it."""
    if process := on.one(on.rng.choice("sx")):
        process.run_clock(on.rng.uniform(2 - FASTEST, FASTEST))
        await on.lasts(30, 300)
        process.run_clock(1.0)


@fault_of("any")
async def suspended(on: Injection) -> None:
    """The machine of a process is suspended and resumed: monotonic time and timers stood still meanwhile."""
    process = on.one(on.rng.choice("sx"))
    if process is not None and not process.stopped:
        await process.suspended(on.lasts(1, 60))
