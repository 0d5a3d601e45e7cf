"""Plays scripts with an author's operator, and tells whether the same script gives the same run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

from kubeshard_lab.simulation.cluster import SimulatedCluster
from kubeshard_lab.simulation.digest import Recorder
from kubeshard_lab.simulation.operators.sealing import LeavesSimulation, sealed
from kubeshard_lab.simulation.operators.workload import Author, OperatorWorkload
from kubeshard_lab.simulation.oracles import SimulationResult
from kubeshard_lab.simulation.running import play
from kubeshard_lab.simulation.script import Script
from kubeshard_lab.simulation.workload import Workload


def play_operator(
    script: Script, author: Author, *, until: str = "", digest: Recorder | None = None
) -> SimulationResult:
    """Raises LeavesSimulation if it cannot be simulated, and ConfigurationError if it does not start."""
    left: list[LeavesSimulation] = []
    alarm: list[Callable[[], None]] = []

    def subject(cluster: SimulatedCluster, result: SimulationResult, script: Script, until: str) -> Workload:
        workload = OperatorWorkload(cluster, result, script, until, author)
        alarm.append(workload.oracles.alarm.set)
        return workload

    def leaves(error: LeavesSimulation) -> None:
        left.append(error)
        for stop in alarm:
            stop()

    recording = digest.recording if digest is not None else lambda cluster: nullcontext()
    with sealed(script.seed, leaves):
        try:
            return play(script, recording, until=until, subject=subject)
        finally:
            if left:  # whatever came of it
                raise left[0]


def difference(script: Script, author: Author, first: Recorder) -> str:
    again = Recorder(former=first, lines=False)
    play_operator(script, author, digest=again)
    if again.difference or again.digest == first.digest:
        return again.difference
    return "it ended earlier"
