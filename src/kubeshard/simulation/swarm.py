"""Random faults: shards and sharders work while everything around them fails, and the oracles watch.

    python -m kubeshard.simulation.swarm --seeds 1-20 --minutes 30
    python -m kubeshard.simulation.swarm --seeds 7 --faults kill,late --events 100
    python -m kubeshard.simulation.swarm --sharder in-manager

Prints a line per seed (virtual minutes, seconds of CPU). If one fails, it prints its last events and exits with 1. 60 s
after the last fault every object must be owned by a live shard, and none may be being drained; soon after, each object
and its child must be on the shard that the ring chooses, and the last change of its spec must have been seen.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from kubeshard.simulation import faults
from kubeshard.simulation.cluster import SimulatedCluster, simulate
from kubeshard.simulation.oracles import Crashes, Oracles, Outcome
from kubeshard.simulation.workload import SHARDERS, Workload


async def _season(workload: Workload, weather: faults.Weather, kinds: list[str], minutes: float) -> None:
    """Runs the whole scene: the start, this many minutes of faults, and the end."""
    crashes = Crashes(workload.oracles)
    logging.getLogger().addHandler(crashes)
    await workload.begin()
    respawning = asyncio.create_task(workload.respawn(), name="respawn")
    churning = asyncio.create_task(workload.churn(), name="churn")
    inflicted: list[asyncio.Task[None]] = []
    end = workload.world.loop.time() + minutes * 60
    try:
        while (wait := workload.calm * workload.rng.uniform(1, 20)) + workload.world.loop.time() < end:
            await asyncio.sleep(wait)
            kind = workload.rng.choice(kinds)
            workload.outcome.counts[f"fault: {kind}"] += 1
            workload.oracles.event(f"fault: {kind}")
            inflicted.append(asyncio.create_task(faults.KINDS[kind](workload, weather), name=kind))
        weather.over.set()
        await asyncio.gather(*inflicted)
        churning.cancel()
        await faults.ring_as_it_was(workload)
        await workload.end()
    finally:
        respawning.cancel()
        churning.cancel()
        logging.getLogger().removeHandler(crashes)
        workload.outcome.counts.update(weather.counts)


def _not_recorded(world: SimulatedCluster) -> AbstractContextManager[None]:
    return nullcontext()


def run(
    seed: int,
    minutes: float,
    kinds: list[str] | None = None,
    *,
    count: int = 30,
    calm: float = 1.0,
    sharder: str = "service",
    recording: Callable[[SimulatedCluster], AbstractContextManager[None]] = _not_recorded,
) -> Outcome:
    """Runs a seed, with this many virtual minutes of faults. `kinds`: the kinds of faults; all by default. `calm`: the
    factor by which faults, and changes of an object, are further apart than usual. `sharder`: where the sharders are:
    `service`, in their own processes; `in-manager`, in the shards, without a ControllerRing; `both`.
    """
    outcome = Outcome()
    kinds = kinds or sorted(faults.KINDS)

    async def scene() -> None:
        rng = random.Random(seed)  # noqa: S311 - repeatable, not secret
        async with SimulatedCluster(seed=seed, latency=(0.001, 0.03)) as world:
            oracles = Oracles(world, outcome)
            workload = Workload(world, oracles, outcome, rng, count, calm, sharder)
            weather = faults.Weather(world, oracles, random.Random(-seed))  # noqa: S311
            with recording(world):
                await _season(workload, weather, kinds, minutes)

    simulate(scene)
    return outcome


def _seeds(text: str) -> list[int]:
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


def main() -> int:
    parser = argparse.ArgumentParser(description="Random faults on virtual time.")
    parser.add_argument("--seeds", type=_seeds, default=_seeds("1-5"), help="as 1-20, or one")
    parser.add_argument("--minutes", type=float, default=10.0, help="virtual ones, of faults, for each seed")
    parser.add_argument("--faults", default="", help=f"only these: {', '.join(sorted(faults.KINDS))}")
    parser.add_argument(
        "--events", type=int, default=40, help="how many of the last ones are told of a break"
    )
    parser.add_argument("--sharder", choices=SHARDERS, default="service")
    options = parser.parse_args()
    logging.basicConfig(level=logging.CRITICAL)
    kinds = [kind for kind in options.faults.split(",") if kind]
    total: Counter[str] = Counter()
    broken = []
    for seed in options.seeds:
        began = time.process_time()
        outcome = run(seed, options.minutes, kinds, sharder=options.sharder)
        total += outcome.counts
        verdict = f"BROKEN {len(outcome.breaks)}" if outcome.breaks else "ok"
        late = outcome.counts["late creates"] + outcome.counts["late updates of children"]
        took = time.process_time() - began
        print(
            f"seed {seed}: {verdict}, {options.minutes:g} min, {outcome.counts['writes']} writes, {late} late, "
            f"owned after {outcome.owned_after:.0f} s, {took:.0f} s CPU",
            flush=True,
        )
        if outcome.breaks:
            broken.append(seed)
            for line in [*outcome.breaks[:10], "last events:", *_before(outcome, options.events)]:
                print("    ", line)
    print("\n".join(f"{number:8} {what}" for what, number in sorted(total.items())))
    print(f"broken: {broken}" if broken else "all hold")
    return bool(broken)


def _before(outcome: Outcome, count: int) -> list[str]:
    """Returns the events up to the first violation."""
    events = list(outcome.events)
    first = next((n for n, event in enumerate(events) if "BROKEN" in event), len(events) - 1)
    return events[max(0, first + 1 - count) : first + 1]


if __name__ == "__main__":
    sys.exit(main())
