"""How often processes wake up that have nothing to do.

    python benchmarks/idle.py [--seconds 60] [--subjects manager,elected] [--who] [--go-sharder PATH]

| subject | a process with |
|---|---|
| manager | a `Manager` with one controller |
| elected | the same with leader election, which it has won |
| labels | a shard whose objects are delivered by labels |
| ranges | a shard whose objects are delivered by ranges, and which is not the elected one |
| assigning | the elected one, which assigns them |
| sharder | `kubeshard sharder`: by labels for the shard above, and one by ranges for three shards of its own |
| served | one of these three |

All run at the same time, each as a whole program (`kubeshard.run`), next to the embedded API server in this process;
nothing changes. The sharder by ranges and its shards have an API server of their own. Counted is what the kernel says
of their threads: "wake-ups" are voluntary context switches, one for each time that a thread had waited and went on.
"Moments" is how often the process began to run after all its threads had slept for some 20 ms: what keeps a processor
awake is the moment, not the number of threads that share it.

The Go reference's sharder, elected as ours is, has an API server and a shard by labels of its own.

With `--who`, each says which of their threads woke up how often, and for what their event loops were woken (asyncio's
own loop, whatever is installed).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import threading
import time
from asyncio import base_events, events
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from fleet import GO_WEBHOOK_PORT, Program, Results, add_go_option, cost_of, progress, sharder_document
from msgspec.structs import replace

from kubeshard import ConfigMap, Context, Controller, LeaderElection, Manager, Settings, Sharding, Watch, run
from kubeshard.core import Namespace, ObjectMeta
from kubeshard.manager import program
from kubeshard.sharder.app import run_sharder
from kubeshard.sharder.config import SharderConfig
from kubeshard.sharding.api import ControllerRing, ControllerRingSpec, RingResource
from kubeshard.sharding.crd import controller_ring_crd
from kubeshard.sharding.names import DELIVERY_ANNOTATION, SHARD_NAMESPACES_ANNOTATION, SYSTEM_NAMESPACE
from kubeshard_apiserver.testing import EmbeddedApi
from kubeshard_apiserver.testing.child import Child
from kubeshard_apiserver.testing.control_plane import free_port
from kubeshard_apiserver.verbs.shard_selectors import SHARDED_LIST_AND_WATCH

TOGETHER = ("manager", "elected", "sharder", "labels", "assigning", "ranges")
APART = ("sharder", "served", "served-2", "served-3")
"""A ring by ranges, with a sharder that has no other one."""
SUBJECTS = (*TOGETHER, "served")
RING = "idle"
BY_RANGES = ("assigning", "ranges")
SETTLED = 30.0
"""Seconds after which what a start leaves to be done is over."""
STEP = 0.01
OURS, RANGES = Program("kubeshard"), Program("ranges")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--subjects", type=lambda text: text.split(","), default=SUBJECTS)
    parser.add_argument("--who", action="store_true")
    add_go_option(parser, "--go-sharder", "KUBESHARD_GO_SHARDER")
    parser.add_argument("--be", metavar="SUBJECT", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.be:
        be(given.be, who=given.who)
        return
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        results = stack.enter_context(Results({"wake-ups": "/min", "moments": "/min", "CPU": "ms/min"}))

        def begin(subjects: Sequence[str], program: Program = OURS) -> dict[str, Child]:
            api = EmbeddedApi(feature_gates=(SHARDED_LIST_AND_WATCH,))
            stack.callback(api.stop)
            return started(api, folder, subjects, program, who=given.who)

        together = begin([subject for subject in given.subjects if subject in TOGETHER])
        children = [(RANGES if name in BY_RANGES else OURS, each) for name, each in together.items()]
        if {*APART} & {*given.subjects}:
            apart = begin(APART, RANGES)
            children += [(RANGES, each) for name, each in apart.items() if name in given.subjects]
        if given.go_sharder:
            go = Program("go", given.go_sharder)
            children.append((go, begin(("sharder", "labels"), go)["sharder"]))
        measure(children, given.seconds, results, who=given.who)


def started(
    api: EmbeddedApi, folder: Path, subjects: Sequence[str], program: Program, *, who: bool
) -> dict[str, Child]:
    api.install(controller_ring_crd())
    maps = RingResource(group="", resource="configmaps")
    metadata = ObjectMeta(name=RING)
    if program is RANGES:
        by_ranges = {DELIVERY_ANNOTATION: "Ranges", SHARD_NAMESPACES_ANNOTATION: SYSTEM_NAMESPACE}
        metadata = ObjectMeta(name=RING, annotations=by_ranges)
    ring = ControllerRing(metadata=metadata, spec=ControllerRingSpec(resources=(maps,)))
    api.call(lambda client: client.create(Namespace(metadata=ObjectMeta(name=SYSTEM_NAMESPACE))))
    api.call(lambda client: client.create(ring))
    environment = {**os.environ, "KUBECONFIG": str(api.kubeconfig), "POD_NAMESPACE": SYSTEM_NAMESPACE}
    children = dict[str, Child]()
    for subject in subjects:
        command = [sys.executable, __file__, "--be", subject, *(["--who"] if who else [])]
        if program.go and subject == "sharder":
            config = folder / "sharder.json"
            config.write_text(json.dumps(sharder_document(folder, GO_WEBHOOK_PORT)))
            command = [str(program.go), "--config", str(config)]
        children[subject] = Child(subject, command, folder / f"{program.name}-{subject}.log", environment)
        time.sleep(2.0)  # the first of two that can be elected is
    return children


def measure(
    children: Sequence[tuple[Program, Child]], seconds: float, results: Results, *, who: bool
) -> None:
    progress(f"{SETTLED:.0f} s until nothing is left to be done, then {seconds:.0f} s")
    time.sleep(SETTLED)
    for of, child in children:
        child.signal(signal.SIGUSR2 if who and not of.go else 0)
    watched = [(of, Watched(child)) for of, child in children]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(STEP)
        for _, each in watched:
            each.look()
    for of, each in watched:
        per_minute = 60 / seconds
        figures = {name: count * per_minute for name, count in each.figures().items()}
        results.add(each.child.name, of, **figures)
        each.child.signal(signal.SIGUSR2 if who and not of.go else 0)
        each.child.stop()
        if who and not of.go:
            print(each.child.name, each.child.tail(30), sep="\n", flush=True)


class Watched:
    def __init__(self, child: Child) -> None:
        assert child.running, child.tail()
        self.child = child
        self._first = self._last = self._switches()
        self._cpu = cost_of(child).cpu
        self._moments = self._quiet = 0

    def look(self) -> None:
        now = self._switches()
        if now == self._last:
            self._quiet += 1
            return
        self._moments += self._quiet > 1
        self._last, self._quiet = now, 0

    def figures(self) -> dict[str, float]:
        cpu = (cost_of(self.child).cpu - self._cpu) * 1000
        return {"wake-ups": self._last - self._first, "moments": self._moments, "CPU": cpu}

    def _switches(self) -> int:
        """Of all threads so far, as long as none ends."""
        return sum(switches(self.child.pid).values())


def switches(process: int) -> dict[int, int]:
    """Voluntary ones so far of each thread."""
    return {
        int(thread.name): int(
            (thread / "status").read_text().rpartition("\nvoluntary_ctxt_switches:")[2].split()[0]
        )
        for thread in Path("/proc", str(process), "task").iterdir()
    }


def be(subject: str, *, who: bool) -> None:
    if who:
        told = Woken()
        signal.signal(signal.SIGUSR2, lambda *_: told.look())
        setattr(program, "loop_factory", lambda: asyncio.new_event_loop)  # noqa: B010 - a name of that module alone
    if subject == "sharder":
        config = SharderConfig()
        nowhere = replace(config.health, bind_address="0")
        server = replace(config.webhook.server, bind_address=f"127.0.0.1:{free_port()}")
        config = replace(config, health=nowhere, metrics=replace(config.metrics, bind_address="0"))
        run_sharder(replace(config, webhook=replace(config.webhook, server=server)), None, None)
    else:
        run(manager_of(subject), settings=Settings(metrics_address="0", health_address="0"))
    if who:
        told.tell()


def manager_of(subject: str) -> Manager:
    async def nothing(ctx: Context, obj: ConfigMap) -> None: ...

    controller = Controller(name=subject, reconciler=nothing, primary=Watch(ConfigMap, sharded=True))
    match subject:
        case "elected":
            return Manager([controller], leader_election=LeaderElection(name="idle"))
        case "labels":
            return Manager([controller], sharding=Sharding(RING, subject))
        case _ if subject in BY_RANGES:
            member = Sharding("by-ranges", subject, mode="both", delivery="ranges")
            return Manager([controller], sharding=member)
        case _ if subject in APART:
            return Manager(
                [controller], sharding=Sharding(RING, subject, SYSTEM_NAMESPACE, delivery="ranges")
            )
    return Manager([Controller(name=subject, reconciler=nothing, primary=ConfigMap)])


class Woken:
    """Which threads of this process woke up, and what its event loops were woken for."""

    def __init__(self) -> None:
        self._before: dict[int, int] | None = None
        self._causes = Counter[str]()
        self._threads = Counter[str]()
        loops: Any = base_events.BaseEventLoop
        handles: Any = events.Handle
        turn, handle = loops._run_once, handles._run

        def run_once(loop: Any) -> None:
            waits = not loop._ready
            loop._woken = waits
            turn(loop)

        def run_handle(self_: Any) -> None:
            if getattr(self_._loop, "_woken", False):
                self_._loop._woken = False
                self._causes[cause(self_)] += 1
            handle(self_)

        loops._run_once = run_once
        handles._run = run_handle

    def look(self) -> None:
        """Begins to count, and then ends."""
        now, before = switches(os.getpid()), self._before
        self._before = now
        if before is None:
            self._causes.clear()
            return
        names = {thread.native_id: thread.name for thread in threading.enumerate()}
        for thread, count in now.items():
            self._threads[names.get(thread, "not Python's")] += count - before.get(thread, 0)

    def tell(self) -> None:
        for counted in self._threads, self._causes:
            for name, count in counted.most_common(25):
                print(f"{count:6} {name}")


def cause(handle: Any) -> str:
    callback, args = handle._callback, handle._args or ()
    owner: Any = getattr(callback, "__self__", None)
    if owner is None and args and isinstance(args[0], asyncio.Future):  # a sleep
        waiting = [getattr(each, "__self__", None) for each, _ in args[0]._callbacks or ()]
        owner = next((each for each in waiting if isinstance(each, asyncio.Task)), None)
    kind = "timer" if isinstance(handle, asyncio.TimerHandle) else "event"
    where = getattr(callback, "__qualname__", repr(callback))
    if isinstance(owner, asyncio.Task):
        return f"{kind} {where} of {owner.get_name()}: {innermost(owner.get_coro())}"
    if where.startswith("Timeout"):
        return f"{kind} {where} of {owner._task.get_name()}: {innermost(owner._task.get_coro())}"
    return f"{kind} {where}"


def innermost(coroutine: Any) -> str:
    name = ""
    while coroutine is not None and hasattr(coroutine, "cr_await"):
        name, coroutine = coroutine.__qualname__, coroutine.cr_await
    return name


if __name__ == "__main__":
    main()
