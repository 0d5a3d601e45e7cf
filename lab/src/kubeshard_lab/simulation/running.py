"""Plays a script: shards and sharders work while everything around them fails, and the oracles watch.

Afterwards an independent checker goes through the history of the run; if it and the oracles disagree about a violation,
the run has failed, too.

60 s after the last fault every object must be owned by a live shard, and none may be being drained. It may take longer
if most shards fail together, since they are waited for, or all that share out. Soon after, each object and its child
must be on the shard that the ring chooses, and the last change of its spec must have been seen.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import msgspec

from kubeshard_apiserver.verbs.shard_selectors import SHARDED_LIST_AND_WATCH
from kubeshard_lab.simulation.checker import check
from kubeshard_lab.simulation.cluster import SimulatedCluster, simulate
from kubeshard_lab.simulation.faults.injection import AIMED, KINDS, Conditions, Injection, apply_to
from kubeshard_lab.simulation.faults.users import mended_again
from kubeshard_lab.simulation.history import Calm, Finished, Inflicted, Recorder
from kubeshard_lab.simulation.oracles import Crashes, SimulationResult
from kubeshard_lab.simulation.properties import OVERLAP, STALE_WRITE
from kubeshard_lab.simulation.ring_oracles import RingOracles
from kubeshard_lab.simulation.script import RANGES, Script, TimedFault, stream
from kubeshard_lab.simulation.workload import Things, Workload

BOTH_SEE = (STALE_WRITE.name, OVERLAP.name)
"""What the oracles and the checker of the history must agree about."""

Recording = Callable[[SimulatedCluster], AbstractContextManager[None]]


def drawn(script: Script, kinds: Sequence[str] = ()) -> Script:
    """Returns the script with faults of these kinds, by default of all that are not aimed, at random times."""
    times, choices = stream(script.seed, "times"), stream(script.seed, "kinds")
    names, after, faults = sorted(kinds or apply_to(script.delivery) - AIMED), 0.0, list[TimedFault]()
    while (after := round(after + script.calm * times.uniform(1, 20), 3)) < script.minutes * 60:
        faults.append(TimedFault(after, choices.choice(names), f"{script.seed}/{len(faults)}"))
    return msgspec.structs.replace(script, faults=tuple(faults))


Subject = Callable[[SimulatedCluster, SimulationResult, Script, str], Workload]
"""Returns what is simulated in the cluster, and judged."""


def things(cluster: SimulatedCluster, result: SimulationResult, script: Script, until: str) -> Workload:
    """The Things of a ring."""
    oracles = RingOracles(cluster, result, until)
    recorder = Recorder(cluster, cluster.ring)
    return Things(cluster, oracles, recorder, result, script)


def play(
    script: Script,
    recording: Recording = lambda cluster: nullcontext(),
    *,
    until: str = "",
    subject: Subject = things,
) -> SimulationResult:
    """Runs the script on virtual time, to its end or until this oracle notices something."""
    result = SimulationResult()

    async def scene() -> None:
        gates, ranges = (SHARDED_LIST_AND_WATCH,), RANGES[script.delivery]
        async with SimulatedCluster(
            script.seed, latency=(0.001, 0.03), feature_gates=gates, ranges=ranges
        ) as cluster:
            conditions = Conditions(cluster, script.seed)
            workload = subject(cluster, result, script, until)
            result.history = workload.recorder.entries
            with recording(cluster):
                playing = asyncio.create_task(_play(script, workload, conditions), name="script")
                alarm = asyncio.create_task(workload.oracles.alarm.wait(), name="alarm")
                await asyncio.wait([playing, alarm], return_when=asyncio.FIRST_COMPLETED)
                alarm.cancel()
                if not playing.done():
                    playing.cancel()
                    await asyncio.wait([playing])
                elif error := playing.exception():
                    raise error

    simulate(scene)
    if subject is things:
        _check_again(result, by_version=script.delivery != "labels")
    return result


def _check_again(result: SimulationResult, *, by_version: bool) -> None:
    """Checks the history, and whether the oracles saw the same."""
    findings = check(result.history, by_version=by_version)
    for finding in findings:
        if finding.rule not in BOTH_SEE:
            result.noticed(finding.at, f"history: {finding.rule}", finding.what)
    for rule in BOTH_SEE:
        found = [finding for finding in findings if finding.rule == rule]
        noticed = [each for each in result.violations if each.oracle == rule]
        if bool(found) != bool(noticed):
            first = (found or noticed)[0]
            seen = "the history" if found else "the oracle"
            result.noticed(first.at, "disagreement", f"only {seen} shows: {rule}: {first.what}")


async def _play(script: Script, workload: Workload, conditions: Conditions) -> None:
    loop, oracles, counts = workload.world.loop, workload.oracles, workload.result.counts
    conditions.kinds = {fault.kind for fault in script.faults}
    crashes = Crashes(oracles)
    logging.getLogger().addHandler(crashes)

    async def inflict(number: int, fault: TimedFault) -> None:
        injection = Injection(workload, conditions, stream(fault.draws), fault.stretch, number)
        workload.recorder.add(Inflicted, number, fault.kind)
        await KINDS[fault.kind](injection)
        workload.recorder.add(Inflicted, number, fault.kind, True)
        counts[f"effects: {fault.kind}"] += injection.effects

    around: list[asyncio.Task[None]] = []
    inflicted: list[asyncio.Task[None]] = []
    try:
        await workload.begin()
        began = loop.time()
        around.append(asyncio.create_task(workload.respawn(), name="respawn"))
        around.append(churning := asyncio.create_task(workload.churn(), name="churn"))
        for number, fault in enumerate(script.faults):
            await asyncio.sleep(began + fault.after - loop.time())
            counts[f"fault: {fault.kind}"] += 1
            inflicted.append(asyncio.create_task(inflict(number, fault), name=fault.kind))
        await asyncio.sleep(began + script.minutes * 60 - loop.time())
        conditions.over.set()
        await asyncio.gather(*inflicted)
        churning.cancel()
        counts["virtual seconds"] = int(loop.time())
        if isinstance(workload, Things):
            await mended_again(workload)
        workload.recorder.add(Calm)
        await workload.end()
        workload.recorder.add(Finished)
    finally:
        for task in (*around, *inflicted):
            task.cancel()
        logging.getLogger().removeHandler(crashes)
        counts.update(conditions.counts)
