"""An experiment on virtual time: the same scenarios, with more instances than any machine holds.

The programs' classes are the production ones, and the load, what is recorded and how it is judged are those of any
other experiment. What is not real: processes are tasks of this one, the API server is in memory, and what work costs is
given (`kubeshard_lab.simulation.costs`). So CPU seconds are those that were charged; memory and the metrics of the API
server are not recorded.

Guaranteed: on the same machine, the same settings give the same recording.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager, nullcontext
from pathlib import Path

import msgspec
from prometheus_client import generate_latest

from kubeshard.core.errors import KubeshardError
from kubeshard.manager.config_file import Duration, Endpoint, LeaderElectionConfig
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import heard_by
from kubeshard.sharder.config import SharderConfig
from kubeshard_lab.examples.webhosting.api import NAMESPACE
from kubeshard_lab.examples.webhosting.config import OperatorConfig, OperatorSettings
from kubeshard_lab.examples.webhosting.operator import build_operator
from kubeshard_lab.experiment.local import LEASE_SECONDS, OnThisMachine
from kubeshard_lab.experiment.processes import Processes
from kubeshard_lab.experiment.recording import Event, Usage
from kubeshard_lab.experiment.running import Wanted
from kubeshard_lab.experiment.servers import RunningServer
from kubeshard_lab.experiment.setups import MODES, SHARDERS, Launch, Programs, Setup
from kubeshard_lab.simulation.cluster import SimulatedCluster
from kubeshard_lab.simulation.costs import Charged
from kubeshard_lab.simulation.processes import Process

START = 0.4
"""Seconds that a program needs until its first line runs."""
_OF_THIS_PROCESS = re.compile(r"^(?:# (?:HELP|TYPE) )?(?:process_|\w+_created\b).*\n", re.M)
_NO_SERVER = RunningServer(Path(), (), lambda: "")
_ELECTION = LeaderElectionConfig(lease_duration=Duration(LEASE_SECONDS))


class OnVirtualTime(OnThisMachine):
    """Run it on a `VirtualTimeLoop`, in a `costly_cluster`."""

    def __init__(self, wanted: Wanted, cluster: SimulatedCluster, charged: Charged) -> None:
        self._cluster = cluster
        self._charged = charged
        super().__init__(wanted, cluster.outside, nullcontext(_NO_SERVER), {})

    async def conduct(self) -> None:
        with _logged(self._logs):
            await super().conduct()

    def _make_processes(self) -> SimulatedProcesses:
        self._simulated = SimulatedProcesses(
            self._logs, self._clock, self._note, self._cluster, self._charged, self._settings.setup
        )
        return self._simulated

    def _make_programs(self, server: RunningServer, user: str) -> Programs:
        self._simulated.user = user
        return SimulatedPrograms(self._settings.setup)

    @asynccontextmanager
    async def _connected(self, server: RunningServer) -> AsyncIterator[None]:
        async with self._cluster.admin() as client:
            self._client = client.with_user_agent("experiment")
            yield

    async def _metrics_of(self, launch: Launch) -> str | None:
        return self._simulated.metrics(launch.name)

    async def _scrape_server(self) -> None:
        """Its histograms know nothing of what its work is said to cost."""

    def _noted(self) -> Iterator[str]:
        yield from super()._noted()
        yield "simulated: CPU is what was charged for requests and events; memory was not simulated"


@contextmanager
def _logged(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(folder / "simulation.log", encoding="utf-8")
    with closing(handler), heard_by(handler, logging.WARNING):
        yield


class SimulatedPrograms(Programs):
    """Launches that `SimulatedProcesses` knows how to start: they have neither files nor ports."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self._numbers = itertools.count(1)

    def operator(self) -> Launch:
        return Launch(f"operator-{next(self._numbers)}", "operator", (), {})

    def sharders(self) -> Sequence[Launch]:
        many = SHARDERS if self.setup.kind == "external" else 0
        return [Launch(f"sharder-{number + 1}", "sharder", (), {}) for number in range(many)]


class SimulatedProcesses(Processes):
    """`user`: whom the API server takes the sharders for."""

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        record: Callable[[Event], None],
        cluster: SimulatedCluster,
        charged: Charged,
        setup: Setup,
    ) -> None:
        super().__init__(folder, {}, clock, record)
        self._cluster = cluster
        self._charged = charged
        self._setup = setup
        self._children: dict[str, SimulatedChild] = {}
        self._starts = Counter[str]()
        self.user = ""

    def usage(self) -> Sequence[Usage]:
        time, busy = self._clock.wall(), self._charged.busy
        return [
            Usage(time, name, running.launch.role, busy[process.name], 0, 0, 0)
            for name, running in self._running.items()
            if (process := self._alive(name))
        ]

    def metrics(self, name: str) -> str | None:
        """What the process exposes, without what is about the process that simulates it; None if it does not run."""
        process = self._alive(name)
        if process is None or process.manager is None:
            return None
        return _OF_THIS_PROCESS.sub("", generate_latest(process.manager.metrics.registry).decode())

    def _alive(self, name: str) -> Process | None:
        child = self._children.get(name)
        return child.process if child and child.running else None

    def _child(self, launch: Launch) -> SimulatedChild:
        self._starts[launch.name] += 1
        start = self._start_sharder if launch.role == "sharder" else self._start_operator
        again = self._starts[launch.name]
        process = launch.name if again == 1 else f"{launch.name}~{again}"
        child = self._children[launch.name] = SimulatedChild(lambda: start(process, launch.name))
        return child

    def _start_sharder(self, name: str, shard: str) -> Process:
        config = SharderConfig(leader_election=_ELECTION)
        if self.user:
            config = msgspec.structs.replace(config, sharders=(self.user,))
        return self._cluster.sharder(name, config)

    def _start_operator(self, name: str, shard: str) -> Process:
        process, setup, off = Process(self._cluster, name), self._setup, Endpoint(bind_address="0")
        config = OperatorConfig(
            metrics=off,
            health=off,
            leader_election=msgspec.structs.replace(_ELECTION, instance=shard),
            insecure_metrics=True,
        )
        mode = MODES[setup.kind]
        settings = OperatorSettings(
            config=config,
            sharding=None if mode == "off" else mode,
            ranges=setup.kind == "ranges",
            workers=setup.workers,
            shard_name=shard,
            namespace=NAMESPACE,
        )
        return process.start(build_operator(settings, process.client(), process.inside))


class SimulatedChild:
    """Stands for a `Child`. `process` is None until its first line runs."""

    pid = 0

    def __init__(self, start: Callable[[], Process]) -> None:
        self.process: Process | None = None
        self._ended: int | None = None
        self._problem = ""
        self._start = start
        self._starting = asyncio.get_running_loop().call_later(START, self._begin)

    def _begin(self) -> None:
        try:
            self.process = self._start()
        except KubeshardError as error:
            self._ended, self._problem = 1, str(error)

    @property
    def exit_code(self) -> int | None:
        if self._ended is not None or self.process is None or not self.process.dead:
            return self._ended
        dead = self.process.dead
        return 0 if dead == "stopped" else -signal.SIGKILL if dead.startswith(("killed", "watchdog")) else 1

    @property
    def running(self) -> bool:
        return self.exit_code is None

    def signal(self, number: int) -> None:
        if not self.running:
            return
        if self.process is None:
            self._starting.cancel()
            self._ended = -number
        elif number == signal.SIGTERM:
            self.process.terminate()
        else:
            self.process.kill()

    def kill(self) -> None:
        self.signal(signal.SIGKILL)

    def tail(self, lines: int = 20) -> str:
        return self._problem or (self.process.dead if self.process else "")
