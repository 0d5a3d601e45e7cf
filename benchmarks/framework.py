"""The overhead of the framework, beside an older version of kubeshard, kopf and controller-runtime.

    python benchmarks/framework.py [--before CHECKOUT] [--rounds 5] [--only no-op,sets,kopf,sync,import]

| row | CPU of | beside |
|---|---|---|
| no-op | a reconcile that has nothing to do, triggered by key | kubeshard in the checkout of `--before` |
| sets | a reconcile of a desired set of five objects that needs no change, without creating the objects | a no-op |
| kopf | a change of an object: the handler does nothing, or writes a status | kopf, with the same handlers |
| sync | filling a cache with 10 000 and 100 000 objects, and its memory | controller-runtime, built with Go |
| import | the imports of a program with a controller | `import kopf` |

The first two and the last run in one process, the others on the embedded API server, over HTTPS. Programs take turns in
each round; the figures are medians with their spread. CPU is what the kernel has counted for the program's process. All
Python programs run on this interpreter, with uvloop if it is installed; kopf has to be installed next to kubeshard.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from fleet import cost_of, progress
from framework_programs.gauge import NAMESPACE, Gauge, gauge
from import_cost import cost
from websites import idle

from kubeshard import ALL
from kubeshard.client import Client, load_config
from kubeshard.core import MergePatch, NotFound
from kubeshard.crd import definition
from kubeshard_apiserver.testing.child import Child

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "framework_programs"
_CLIENTS = 16

WITH_KOPF = {
    "no-ops": "a change of an object, for which there is nothing to do",
    "events": "the same, kopf's handler being one of events, which is not retried",
    "handlers": "the same, both being handlers of events",
    "statuses": "a change of an object, and its status is written",
}


class Row(NamedTuple):
    """The figures of each round; lower is better."""

    what: str
    unit: str
    """The unit of the figures."""
    ours: Sequence[float]
    peer: str
    theirs: Sequence[float]

    def show(self) -> None:
        print(
            f"| {self.what} | {_cell(self.ours)} {self.unit} | {self.peer} {_cell(self.theirs)} {self.unit} | ",
            end="",
        )
        if self.theirs:
            ratio = statistics.median(self.theirs) / statistics.median(self.ours)
            print(f"{1 / ratio:.2f} ({ratio:.1f} times as cheap) |", flush=True)
        else:
            print("|", flush=True)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--before", type=Path, help="a checkout of an older version")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="no-op,sets,kopf,sync,import")
    parser.add_argument("--objects", type=int, nargs="+", default=[10_000, 100_000], help="of the sync")
    given = parser.parse_args()
    only = given.only.split(",")
    os.environ.pop(
        "PYTHONDONTWRITEBYTECODE", None
    )  # an installed program does not compile its modules at every start
    print("| what | kubeshard | beside | ratio |\n|---|---|---|---|")
    if "no-op" in only:
        no_ops(given.before, given.rounds)
    if "sets" in only:
        sets(given.rounds)
    if "import" in only:
        imports(given.rounds)
    with tempfile.TemporaryDirectory(prefix="kubeshard-framework-") as name:
        folder = Path(name)
        if "kopf" in only:
            for what in WITH_KOPF:
                await beside_kopf(what, given.rounds, folder)
        if "sync" in only:
            go = built(folder)
            for objects in given.objects:
                await sync(objects, given.rounds, go, folder)


# -- no-op, import


def no_ops(before: Path | None, rounds: int, objects: int = 5000) -> None:
    """Runs each round in its own process, which returns the median of several measurements."""
    trees = {"now": HERE.parent} | ({"before": before.resolve()} if before else {})
    spent: dict[str, list[float]] = {name: [] for name in trees}
    for number in range(rounds):
        for name in sorted(trees, reverse=bool(number % 2)):
            sources = (trees[name] / "kubeshard" / "src", trees[name] / "src")  # once at the top
            environment = {**os.environ, "PYTHONPATH": str(next(filter(Path.is_dir, sources)))}
            command = [sys.executable, str(PROGRAMS / "no_ops.py"), str(objects), "5"]
            ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)  # noqa: S603
            spent[name].append(statistics.median(json.loads(ran.stdout)) / objects * 1e6)
    Row("no-op reconcile, CPU", "µs", spent["now"], "before", spent.get("before", ())).show()


def sets(rounds: int, objects: int = 1000) -> None:
    bare, with_set = [], []
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(HERE.parent / part) for part in ("kubeshard/src", "apiserver/src")),
    }
    for _ in range(rounds):
        command = [sys.executable, str(PROGRAMS / "desired_sets.py"), str(objects), "5"]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)  # noqa: S603
        spent = {how: statistics.median(each) / objects * 1e6 for how, each in json.loads(ran.stdout).items()}
        bare.append(spent["bare"])
        with_set.append(spent["bare"] + spent["applied"] - spent["made"])
    Row("reconcile with an unchanged desired set, CPU", "µs", with_set, "no-op", bare).show()


def imports(rounds: int) -> None:
    ours = {
        "import of what an author needs to declare a kind": "from kubeshard import KubeObject, Struct, field",
        "... and of what runs a controller": "from kubeshard import Context, Controller, Manager, ensure, run",
    }
    found: dict[str, list[float]] = {program: [] for program in ("pass", "import kopf", *ours.values())}
    for _ in range(rounds + 1):  # the first one compiles
        for program in found:
            found[program].append(cost(program).cpu * 1000)
    alone = statistics.median(found["pass"][1:])
    beyond = {program: [max(0.1, each - alone) for each in costs[1:]] for program, costs in found.items()}
    for what, program in ours.items():
        Row(f"{what}, CPU", "ms", beyond[program], "kopf", beyond["import kopf"]).show()


# -- beside third-party programs, on a server


class Bench:
    """An API server with the kind Gauge."""

    def __init__(self, client: Client, server: Child, kubeconfig: Path, folder: Path) -> None:
        self.client = client
        self.server = server
        self._kubeconfig = kubeconfig
        self._folder = folder

    def start(self, name: str, command: Sequence[str], **environment: str) -> Child:
        log = self._folder / f"{name}.log"
        log.unlink(missing_ok=True)
        paths = os.pathsep.join([str(HERE.parent / "kubeshard/src"), str(PROGRAMS)])
        given = {**os.environ, "KUBECONFIG": str(self._kubeconfig), "PYTHONPATH": paths, **environment}
        return Child(name, command, log, given)

    async def each(self, numbers: range, act: Callable[[int], Awaitable[object]]) -> None:
        """Calls `act` with each number, with several concurrent clients."""
        left = iter(numbers)

        async def some() -> None:
            for number in left:
                await act(number)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(_CLIENTS):
                tasks.create_task(some())

    async def create(self, numbers: range) -> None:
        await self.each(numbers, lambda number: self.client.create(gauge(number)))

    async def change(self, count: int, value: int) -> None:
        patch = MergePatch({"spec": {"value": value}})
        name = "gauge-{:06}".format
        await self.each(range(count), lambda number: self.client.patch(Gauge, name(number), NAMESPACE, patch))


@asynccontextmanager
async def bench(folder: Path) -> AsyncIterator[Bench]:
    kubeconfig = folder / "kubeconfig"
    kubeconfig.unlink(missing_ok=True)
    sources = os.pathsep.join(str(HERE.parent / part) for part in ("kubeshard/src", "apiserver/src"))
    command = [sys.executable, "-m", "kubeshard", "apiserver", "--kubeconfig", str(kubeconfig)]
    server = Child("apiserver", command, folder / "apiserver.log", {**os.environ, "PYTHONPATH": sources})
    try:
        await _until(kubeconfig.exists, server)
        async with Client(await load_config(kubeconfig=kubeconfig)) as client:
            await client.apply_manifest(definition(Gauge))
            while True:
                try:
                    await client.list_all(Gauge, ALL)
                    break
                except NotFound:
                    await asyncio.sleep(0.1)
            yield Bench(client, server, kubeconfig, folder)
    finally:
        server.kill()


async def beside_kopf(what: str, rounds: int, folder: Path, objects: int = 2000) -> None:
    commands = {
        "kubeshard": [sys.executable, str(PROGRAMS / "on_kubeshard.py"), what],
        "kopf": [
            sys.executable,
            *["-m", "kopf", "run", "--quiet", "--standalone", "-n"],
            NAMESPACE,
            str(PROGRAMS / "on_kopf.py"),
        ],
    }
    spent: dict[str, list[float]] = {name: [] for name in commands}
    async with bench(folder) as cluster:
        await cluster.create(range(objects))
        value = 0
        for number in range(rounds):
            for name in sorted(commands, reverse=bool(number % 2)):
                progress(f"{what}, round {number + 1}: {name}")
                child = cluster.start(name, commands[name], BENCHMARK=what)
                await idle(child)
                before, value = cost_of(child).cpu, value + 1
                await cluster.change(objects, value)
                await idle(child)
                spent[name].append((cost_of(child).cpu - before) / objects * 1e6)
                if what == "statuses":
                    await _check_statuses(cluster, value, child)
                child.stop()
    Row(f"{WITH_KOPF[what]}, CPU", "µs", spent["kubeshard"], "kopf", spent["kopf"]).show()


async def _check_statuses(cluster: Bench, value: int, child: Child) -> None:
    for found in await cluster.client.list_all(Gauge, ALL):
        if found.status is None or found.status.seen != value:
            raise RuntimeError(f"{child.name} did not write a status:\n{child.tail()}")


def built(folder: Path) -> Path:
    """Builds the Go program and returns its path."""
    binary = folder / "controller-runtime"
    command = ["go", "build", "-o", str(binary), "."]
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false", "GOTOOLCHAIN": "local"}
    subprocess.run(command, cwd=PROGRAMS / "controller_runtime", env=environment, check=True)  # noqa: S603
    return binary


async def sync(objects: int, rounds: int, go: Path, folder: Path) -> None:
    commands = {
        "kubeshard": [sys.executable, str(PROGRAMS / "on_kubeshard.py"), "sync"],
        "controller-runtime": [str(go)],
    }
    cpu: dict[str, list[float]] = {name: [] for name in commands}
    memory: dict[str, list[float]] = {name: [] for name in commands}
    async with bench(folder) as cluster:
        progress(f"creating {objects} objects")
        await cluster.create(range(objects))
        for number in range(rounds):
            for name in sorted(commands, reverse=bool(number % 2)):
                progress(f"sync of {objects}, round {number + 1}: {name}")
                child = cluster.start(name, commands[name])
                await _until(partial(_said, child, "ready"), child)
                await idle(child)
                before = cost_of(child)
                child.signal(signal.SIGUSR1)
                await _until(partial(_said, child, f"synced {objects}\n"), child)
                await idle(child)
                after = cost_of(child)
                cpu[name].append((after.cpu - before.cpu) / objects * 1e6)
                memory[name].append((after.peak_mib - before.peak_mib) / objects * 1024 * 1024)
                child.kill()
    for what, unit, figures in (("CPU", "µs", cpu), ("peak memory", "bytes", memory)):
        ours, theirs = figures["kubeshard"], figures["controller-runtime"]
        Row(f"sync of {objects} objects, {what} per object", unit, ours, "controller-runtime", theirs).show()


def _said(child: Child, text: str) -> bool:
    return text in child.log.read_text()


async def _until(condition: Callable[[], bool], child: Child) -> None:
    while not condition():
        if not child.running:
            raise RuntimeError(f"{child.name} ended:\n{child.tail()}")
        await asyncio.sleep(0.1)


def _cell(values: Sequence[float]) -> str:
    if not values:
        return "-"
    middle, least, most = (f"{value:.4g}" for value in (statistics.median(values), min(values), max(values)))
    return f"{middle} ({least}-{most})"


if __name__ == "__main__":
    asyncio.run(main())
