"""Faults, by name. Each is a coroutine that inflicts one fault and returns when it is over, at the latest when all
faults are (`Conditions.over`).

A fault draws its victim and its duration from a stream of its own, so a run stays the same up to the point at which a
fault is left out. It counts its effects: how many processes, requests or objects it really hit.
"""

from kubeshard_lab.simulation.faults import (  # noqa: F401 - they register themselves
    assignments,
    failovers,
    network,
    processes,
    rollouts,
    server,
    streams,
    users,
)
