"""Faults of processes: they die, are restarted, stopped and blocked, and live twice; their clocks are wrong, fast or
slow, or stand still with their machines.
"""

from __future__ import annotations

from collections.abc import Callable

from kubeshard_lab.simulation.faults.injection import Injection, fault, fault_of
from kubeshard_lab.simulation.faults.rollouts import scale
from kubeshard_lab.simulation.processes import Process, name_of
from kubeshard_lab.simulation.properties import FASTEST

_A_YEAR = 365 * 86_400.0

_Happens = Callable[[Process], object]


def _hits(which: str, name: str, summary: str, hit: _Happens, over: _Happens | None = None) -> None:
    """Makes a fault: that happens to a shard (`s`) or a sharder (`x`), and is `over` after a while."""

    async def inflict(on: Injection) -> None:
        if process := on.one(which):
            hit(process)
            if over:
                await on.lasts(0.1, 60)
                over(process)

    inflict.__name__, inflict.__doc__ = name, summary
    fault_of("any" if which == "s" else "service")(inflict)


_BLOCKED = "The main loop of a shard is blocked; the thread that renews its Lease goes on."
_hits("s", "kill", "A shard dies.", Process.kill)
_hits("x", "sharder_kill", "A sharder dies.", Process.kill)
_hits("s", "terminate", "A shard is asked to stop.", Process.terminate)
_hits("s", "pause", "A shard is stopped, and goes on after a while.", Process.pause, Process.resume)
_hits("x", "sharder_pause", "A sharder is stopped, and goes on after a while.", Process.pause, Process.resume)
_hits("s", "block", _BLOCKED, Process.block, Process.unblock)


@fault_of("any")
async def replace(on: Injection) -> None:
    """A shard dies, and one with another name takes its place."""
    if process := on.one("s"):
        name = name_of(process.name)
        process.kill()
        if name in on.workload.names:
            on.workload.names[on.workload.names.index(name)] = f"s{int(name[1:]) + 10}"


@fault_of("any")
async def restart(on: Injection) -> None:
    """A shard dies and is restarted at once."""
    if process := on.one("s"):
        process.kill()
        on.workload.start(name_of(process.name))


@fault
async def twin(on: Injection) -> None:
    """A second process starts under the name of a running one."""
    if process := on.one("s"):
        on.workload.start(name_of(process.name))


@fault_of("any")
async def starved(on: Injection) -> None:
    """A process gets little CPU time: a few milliseconds every now and then."""
    process, over = on.one(on.rng.choice("sx")), on.conditions.now + on.rng.uniform(5, 60)
    while process and not process.dead and on.conditions.now < over and not on.conditions.over.is_set():
        process.pause()
        await on.lasts(0.05, 4)
        process.resume()
        await on.lasts(0.001, 0.05)


@fault
async def hang(on: Injection) -> None:
    """Reconciles of a shard do not end, and it has to hand objects over; or else it is evicted."""
    if process := on.one("s"):
        hanging = on.workload.hanging
        hanging.add(process.name)
        try:
            await on.lasts(5, 20)
            if not on.conditions.over.is_set():  # nobody stops shards when all faults are over
                await scale(on)
            await on.lasts(80, 150)
        finally:
            hanging.discard(process.name)


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
