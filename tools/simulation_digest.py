"""Prints the digest of a simulated run (`kubeshard_lab.simulation.digest`).

    python tools/simulation_digest.py --seed 1 --minutes 30 --objects 100 --events /tmp/a
    python tools/simulation_digest.py --delivery uid --sharder in-manager

`--events` writes the events, one a line: the first line in which two files differ is where the leak is.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TextIO

from kubeshard_lab.simulation.digest import Digest, Recorder
from kubeshard_lab.simulation.oracles import SimulationResult
from kubeshard_lab.simulation.running import Recording, drawn, play
from kubeshard_lab.simulation.script import RANGES, Delivery, Script, Sharder
from kubeshard_lab.simulation.workload import SHARDERS

CALM = 5.0
"""In the swarm events follow each other faster, which costs more."""


def explore(
    seed: int,
    minutes: float,
    kinds: Sequence[str] = (),
    recording: Recording = lambda cluster: nullcontext(),
    **options: Any,
) -> SimulationResult:
    """Plays a script of random faults; `options` are those of `Script`."""
    return play(drawn(Script(seed=seed, minutes=minutes, **options), kinds), recording)


def of(
    seed: int,
    minutes: float,
    objects: int,
    kinds: Sequence[str] = (),
    calm: float = CALM,
    copy: TextIO | None = None,
    sharder: Sharder = "service",
    delivery: Delivery = "labels",
) -> Digest:
    recorder = Recorder(copy)
    options = {"objects": objects, "calm": calm, "sharder": sharder, "delivery": delivery}
    result = explore(seed, minutes, kinds, recorder.recording, **options)
    for line in result.breaks:
        print(line, file=sys.stderr)
    return recorder.digest


def main() -> int:
    parser = argparse.ArgumentParser(description="The digest of a run on virtual time.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=30.0, help="virtual ones, of faults")
    parser.add_argument("--objects", type=int, default=100)
    parser.add_argument("--faults", default="", help="only these")
    parser.add_argument("--calm", type=float, default=CALM, help="1: as the swarm")
    parser.add_argument("--collect", type=int, default=None, help="the collector's first threshold; 0: never")
    parser.add_argument("--events", type=Path, help="a file for them")
    parser.add_argument("--sharder", choices=SHARDERS, default="service", help="as of the swarm")
    parser.add_argument("--delivery", choices=RANGES, default="labels", help="as of the swarm")
    options = parser.parse_args()
    if options.collect is not None:
        gc.set_threshold(options.collect)
    kinds = [kind for kind in options.faults.split(",") if kind]
    began = time.process_time()
    with options.events.open("w") if options.events else nullcontext() as copy:
        shares = options.sharder, options.delivery
        digest = of(options.seed, options.minutes, options.objects, kinds, options.calm, copy, *shares)
    print(f"{digest.value} {digest.events} events")
    print(f"{time.process_time() - began:.1f} s CPU", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
