"""Runs that look like real ones, made from a seed: what reports are tried on."""

from __future__ import annotations

import math
import random
from pathlib import Path

from kubeshard_lab.experiment.objectives import QUEUE
from kubeshard_lab.experiment.quantiles import of_samples
from kubeshard_lab.experiment.recording import (
    Event,
    Gauge,
    Generation,
    Level,
    Recorder,
    Request,
    RunRecord,
    Usage,
    save,
)

BEGAN = 1_700_000_000.0
MIB = 1 << 20
BOUNDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, math.inf)


def make_run(
    folder: Path,
    *,
    seed: int = 1,
    scenario: str = "basic",
    setup: str = "external",
    program: str = "kubeshard",
    instances: int = 3,
    workers: int = 15,
    scale: float = 0.1,
    duration: float = 120.0,
    rate: float = 12.0,
    capacity: float = 1e9,
    killed_at: float = math.nan,
    cut_off_at: float = math.inf,
    invalid: tuple[str, ...] = (),
    operator: str = "operator-{}",
) -> Path:
    """Requests come at a rate that grows to `rate`; above `capacity` per second users wait longer and longer. At
    `killed_at` the first operator is killed, and restarted 2 s later. At `cut_off_at` the tool itself is.
    """
    made = _Made(seed, folder, min(duration, cut_off_at))
    run = RunRecord(
        id=f"made-{seed}",
        scenario=scenario,
        setup=setup,
        program=program,
        server="embedded",
        instances=instances,
        workers=workers,
        scale=scale,
        seed=seed,
        duration=duration,
        began=BEGAN,
        machine={"processor": "a made one", "cores": "2", "memory": "8 GiB", "python": "3.11.2"},
    )
    save(folder, run)
    made.load(rate, capacity, killed_at)
    names = [operator.format(number) for number in range(1, instances + 1)]
    share = (1.0 if setup == "singleton" else 1.25 / instances) * (0.9 if program == "go" else 0.5)
    for number, name in enumerate(names):
        leads = 1.6 if setup == "in-manager" and not number else 1.0
        killed = killed_at if not number else math.nan
        made.process(name, "operator", 0.003 * rate * share * leads, 60 + 70 * share, killed)
        made.shard(name, rate / instances * (1.1 - 0.1 * number), killed)
    if setup == "external":
        made.process("sharder-1", "sharder", 0.0003 * rate, 62)
        made.process("sharder-2", "sharder", 0.0001 * rate, 58)
    made.scrapes([name.replace(" ", "-") for name in names], 1.0 if rate <= capacity else 400.0)
    made.process("kube-apiserver", "server", 0.006 * rate, 180)
    made.process("experiment", "tool", 0.002 * rate, 90)
    if math.isfinite(killed_at):
        made.event(killed_at, "killed", names[0], "by the scenario")
        made.event(killed_at + 2, "restarted", names[0])
        made.event(killed_at + 6, "joined", names[0])
    if not math.isfinite(cut_off_at):
        worst = of_samples(0.99, [row for row in made.waited if math.isfinite(row)])
        save(
            folder,
            RunRecord(
                **{name: getattr(run, name) for name in run.__struct_fields__}
                | {
                    "ended": BEGAN + duration,
                    "finished": True,
                    "invalid": list(invalid),
                    "levels": [
                        Level("queue p99", 1.0, 0.0985 if rate <= capacity else 2.5, rate <= capacity),
                        Level("reconcile p99", 5.0, worst, worst <= 5.0),
                        Level("API server, writes, p99", 1.0, 0.0245, True),
                    ],
                }
            ),
        )
    made.recorder.close()
    return folder


class _Made:
    def __init__(self, seed: int, folder: Path, until: float) -> None:
        self.random = random.Random(seed)
        self.folder = folder
        self.recorder = Recorder(folder)
        self.until = until
        self.waited: list[float] = []

    def load(self, rate: float, capacity: float, killed_at: float) -> None:
        due, created, behind = 0.0, 0, 0.0
        objects: list[tuple[str, int]] = []
        while True:
            now = rate * min(1.0, 0.1 + due / (0.8 * self.until))
            step = self.random.expovariate(now)
            due += step
            if due >= self.until:
                break
            behind = max(0.0, behind + step * (now - capacity) / capacity)
            if objects and self.random.random() > 0.25:
                number = self.random.randrange(len(objects))
                name, generation = objects[number][0], objects[number][1] + 1
                objects[number] = name, generation
                verb = "patch"
            else:
                created += 1
                name, generation, verb = f"experiment-{created:05}", 1, "create"
                objects.append((name, 1))
            self._write(verb, name, generation, due, behind, killed_at)
        for second in range(int(self.until)):
            at = BEGAN + second + 0.5
            wanted = rate * min(1.0, 0.1 + second / (0.8 * self.until))
            self.recorder.add(Gauge(at, "rate-wanted", "", wanted))
            self.recorder.add(Gauge(at, "unready", "", wanted * 0.05 * self.random.uniform(0.8, 1.2)))

    def scrapes(self, names: list[str], slow: float) -> None:
        """Every 5 s, with queue times that are `slow` times as long once the load has come halfway."""
        counts = {name: dict.fromkeys(BOUNDS, 0) for name in names}
        with (self.folder / "scrapes.txt").open("w") as file:
            for second in range(0, int(self.until), 5):
                for name in names:
                    for _ in range(200):
                        took = self.random.lognormvariate(-5.5, 0.9) * (
                            slow if second > self.until / 2 else 1
                        )
                        for bound in BOUNDS:
                            counts[name][bound] += took <= bound
                    file.write(f"# scrape {BEGAN + second:.3f} {name} operator\n# TYPE {QUEUE} histogram\n")
                    for bound, count in counts[name].items():
                        le = "+Inf" if math.isinf(bound) else bound
                        file.write(f'{QUEUE}_bucket{{name="website",le="{le}"}} {count}\n')

    def _write(
        self, verb: str, name: str, generation: int, due: float, behind: float, killed_at: float
    ) -> None:
        sent = due + self.random.expovariate(1 / 0.0004)
        answered = sent + 0.004 + self.random.expovariate(1 / 0.003)
        failed = self.random.random() < 0.0003
        self.recorder.add(
            Request(
                verb,
                "project-1",
                name,
                BEGAN + due,
                BEGAN + sent,
                BEGAN + answered,
                "409" if failed else "ok",
            )
        )
        if failed:
            return
        waited = answered - due + 0.012 + self.random.lognormvariate(-4, 0.8) + behind
        if 0 <= due - killed_at < 8 and self.random.random() < 0.3:
            waited += max(0.0, 8 - (due - killed_at))
        ready = BEGAN + due + waited if due + waited < self.until + 5 else math.nan
        gone = self.random.random() < 0.0005
        backfilled = self.random.random() < 0.002 and not gone and not math.isnan(ready)
        self.waited.append(ready - BEGAN - due)
        self.recorder.add(
            Generation(
                "project-1",
                name,
                f"uid-{name}",
                generation,
                BEGAN + due,
                BEGAN + sent,
                BEGAN + answered,
                math.nan if gone else ready,
                backfilled,
                gone,
            )
        )

    def process(self, name: str, role: str, cores: float, mib: float, killed_at: float = math.nan) -> None:
        cpu = 1.5
        for second in range(-5, int(self.until) + 5):
            if 0 <= second - killed_at < 2:
                cpu = 0.0
                continue
            grown = min(1.0, 0.1 + max(0, second) / (0.8 * self.until))
            cpu += cores * grown * self.random.uniform(0.8, 1.2)
            resident = int((mib * (0.6 + 0.4 * grown) + self.random.uniform(-0.5, 0.5)) * MIB)
            self.recorder.add(Usage(BEGAN + second + 0.3, name, role, cpu, resident, second + 5, second + 5))

    def shard(self, name: str, rate: float, killed_at: float) -> None:
        for second in range(int(self.until)):
            away = 1 <= second - killed_at < 6
            self.recorder.add(
                Gauge(
                    BEGAN + second,
                    "objects-of-shard",
                    name,
                    0.0 if away else float(int(rate * second * 0.2)),
                )
            )

    def event(self, time: float, kind: str, subject: str, detail: str = "") -> None:
        if time < self.until:
            self.recorder.add(Event(BEGAN + time, kind, subject, detail))
