"""An experiment on this machine: the server, the programs, and everything that watches them.

Guaranteed: everything that was started is stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, closing
from dataclasses import dataclass

from kubeshard.client import installing
from kubeshard.client.client import Client
from kubeshard.client.config import BearerToken
from kubeshard.client.kubeconfig import load_config
from kubeshard.core.errors import ApiError, ConfigurationError
from kubeshard.core.objects import metadata_only
from kubeshard.core.selectors import Selector
from kubeshard.kinds import SelfSubjectReview
from kubeshard.runtime.rng import Rng, one_of
from kubeshard.runtime.world import World
from kubeshard.sharding.names import RING_LABEL
from kubeshard_lab.experiment.plan import LoadPlan
from kubeshard_lab.experiment.processes import Processes
from kubeshard_lab.experiment.recording import Event, Usage
from kubeshard_lab.experiment.running import (
    AT_WORK_WITHIN,
    TICK,
    Experiment,
    NotAtWork,
    ServerLost,
    Wanted,
    ready_shards,
)
from kubeshard_lab.experiment.scenarios import Scenario
from kubeshard_lab.experiment.scrapes import Scraper, Scrapes
from kubeshard_lab.experiment.servers import RunningServer
from kubeshard_lab.experiment.setups import Launch, Programs

LEASE_SECONDS = 15.0
SCRAPE_EVERY = 5.0
_SERVER_SCRAPE_EVERY = 3
"""The server's metrics are long: they are read in each third round."""


_ENDS = 2
"""So often may a process end before it is at work: what fails once more will go on failing."""


_OUTAGE = 0.2


class OnThisMachine(Experiment):
    """`serving` is the API server, `environment` the programs'."""

    def __init__(
        self,
        wanted: Wanted,
        world: World,
        serving: AbstractAsyncContextManager[RunningServer],
        environment: Mapping[str, str],
    ) -> None:
        super().__init__(wanted, world)
        self._serving = serving
        self._environment = environment
        self._logs = wanted.folder / "logs"

    async def conduct(self) -> None:
        processes = self._processes = self._make_processes()
        try:
            async with self._serving as server, self._screen.showing(self.progress):
                try:
                    for watched in server.processes:
                        processes.watch(watched)
                    await self._on(server)
                finally:
                    processes.kill_all()  # before the server, which they would miss
        finally:
            self._end()

    async def _on(self, server: RunningServer) -> None:
        with closing(Scrapes(self._folder)) as self._scrapes:
            async with self._connected(server), self._background(self._watch(server), self._tick()):
                await self._prepared_and_loaded(server)

    # What a derived class may replace

    def _make_processes(self) -> Processes:
        return Processes(self._logs, self._environment, self._clock, self._note)

    def _make_programs(self, server: RunningServer, user: str) -> Programs:
        setup = self._settings.setup
        return Programs(setup, server.kubeconfig, self._logs, LEASE_SECONDS, self._clock, user)

    @asynccontextmanager
    async def _connected(self, server: RunningServer) -> AsyncIterator[None]:
        """Sets the client, and what reads the programs' metrics."""
        config = await load_config(kubeconfig=server.kubeconfig)
        token = config.auth.token if isinstance(config.auth, BearerToken) else ""
        async with (
            aclosing(Scraper(self._world, token)) as self._scraper,
            Client(config, world=self._world) as client,
        ):
            self._client = client.with_user_agent("experiment")
            yield

    async def _metrics_of(self, launch: Launch) -> str | None:
        """What a program exposes; None if it does not answer."""
        return await self._scraper.read(launch.metrics)

    # The run

    async def _prepared_and_loaded(self, server: RunningServer) -> None:
        setup = self._settings.setup
        plan = LoadPlan(self._settings.scenario, self._rng(0))
        self._doing = "preparing"
        async for _ in installing.install(
            self._client, self._subject.installation(ring=setup.kind == "external")
        ):
            pass
        async for _ in installing.install(self._client, self._subject.foundation(plan)):
            pass
        me = (await self._client.create(SelfSubjectReview())).status.user_info
        user = (me and me.username) or ""
        programs = self._programs = self._make_programs(server, user)
        self._disturbances = Disturbances(
            self._settings.scenario, self._processes, programs, self._rng(1), self._at_work
        )
        await self._loads(plan)

    async def _work_begins(self) -> None:
        self._doing = "waiting for the programs"
        await self._at_work(self._processes.launches("operator"))

    def _start(self) -> None:
        for launch in (*self._programs.sharders(), *self._programs.operators()):
            self._processes.start(launch)

    async def _before_load(self) -> None:
        await self._scrape_all()  # what was counted until now does not count

    async def _beside_load(self) -> None:
        async with self._background(self._scrape(), self._disturbed(self._disturbances.act)):
            await asyncio.Event().wait()

    def _turn(self) -> None:
        self._processes.tick()

    def _read_usage(self) -> Sequence[Usage]:
        return self._processes.usage()

    def _noted(self) -> Iterator[str]:
        yield f"{self._processes.restarts} restarts; objects moved {self._tracker.moves} times"

    def _ended_by_themselves(self) -> Sequence[str]:
        return self._processes.ended

    async def _watch(self, server: RunningServer) -> None:
        while not (why := server.lost()):  # noqa: ASYNC110 - another process, there is nothing to wait on
            await asyncio.sleep(TICK)
        self._note(Event(self._clock.wall(), "server-lost", "", why))
        self.run.invalid.append(f"the API server was lost: {why}")
        raise ServerLost(f"the API server was lost, and with it the rest of the run: {why}")

    async def _scrape(self) -> None:
        loop = asyncio.get_running_loop()
        due, rounds = loop.time(), 0
        while True:
            await self._scrape_all(server=rounds % _SERVER_SCRAPE_EVERY == 0)
            rounds += 1
            due = max(due + SCRAPE_EVERY, loop.time())
            await asyncio.sleep(due - loop.time())

    async def _scrape_all(self, *, server: bool = True) -> None:
        await asyncio.gather(
            *(
                self._scrape_one(launch)
                for role in ("sharder", "operator")
                for launch in self._processes.launches(role)
            )
        )
        if server:
            await self._scrape_server()

    async def _scrape_one(self, launch: Launch) -> None:
        text = await self._metrics_of(launch)
        if text is None:
            return
        self._scrapes.add(self._clock.wall(), launch.name, launch.role, text)
        if launch.role == "operator":
            self._queue.scraped(launch.name, text)
            self._reconcile.scraped(launch.name, text)

    async def _scrape_server(self) -> None:
        try:
            answer = await self._client.raw("GET", "/metrics", accept="text/plain")
        except ApiError:
            return
        self._scrapes.add(self._clock.wall(), "apiserver", "server", answer.body.decode(errors="replace"))

    async def _at_work(self, launches: Sequence[Launch]) -> None:
        """Returns once these instances work, or the run is to stop. Raises NotAtWork."""
        names = {launch.name for launch in launches}
        kind = self._settings.setup.kind
        until = asyncio.get_running_loop().time() + AT_WORK_WITHIN
        ended = self._processes.ends.copy()
        while not self._stopping.is_set():
            at_work = (
                {meta.name for meta in await ready_shards(self._client, self._subject.ring)}
                if kind != "singleton"
                else {launch.name for launch in launches if await self._metrics_of(launch) is not None}
            )
            if names <= at_work and (kind != "external" or await self._has_webhook()):
                for name in sorted(names):
                    self._note(Event(self._clock.wall(), "ready", name, ""))
                return
            if failing := [name for name, ends in (self._processes.ends - ended).items() if ends >= _ENDS]:
                raise NotAtWork(
                    f"{failing[0]} ended {_ENDS} times before it was at work; see {self._logs}; it said last: "
                    f"{self._processes.tail(failing[0])}"
                )
            if asyncio.get_running_loop().time() > until:
                missing = sorted(names - at_work)
                tails = "; ".join(f"{name}: {self._processes.tail(name)}" for name in missing[:1])
                raise NotAtWork(
                    f"not at work within {AT_WORK_WITHIN:g} s: {', '.join(missing) or 'the webhook'}; see "
                    f"{self._logs}; {tails}"
                )
            await asyncio.sleep(TICK)

    async def _has_webhook(self) -> bool:
        kind = await self._client.discovery.kind(
            "admissionregistration.k8s.io", kind="MutatingWebhookConfiguration"
        )
        labels = Selector.equals(RING_LABEL, self._subject.ring)
        return bool(await self._client.list_all(metadata_only(kind), label_selector=labels))


@dataclass
class Disturbances:
    """`at_work` returns once an instance of that name works."""

    _scenario: Scenario
    _processes: Processes
    _programs: Programs
    _rng: Rng
    _at_work: Callable[[Sequence[Launch]], Awaitable[None]]

    def __post_init__(self) -> None:
        if self._scenario.disturbance == "outage" and self._programs.setup.kind != "external":
            raise ConfigurationError(
                f"--setup {self._programs.setup.kind} has no webhook: run {self._scenario.name} with --setup external"
            )

    @property
    def act(self) -> Callable[[], Awaitable[None]] | None:
        return {
            "none": None,
            "kill": self._kill,
            "crash": self._crash,
            "roll": self._roll,
            "outage": self._outage,
            "flap": self._flap,
        }[self._scenario.disturbance]

    async def _kill(self) -> None:
        """As when a pod of a Deployment is deleted: it is asked to end, and another one starts at once."""
        self._replace_one(lambda name, detail: self._processes.stop(name, "killed", detail))

    async def _crash(self) -> None:
        """As when a node is lost: it is killed, and another one starts."""
        self._replace_one(self._processes.crash)

    def _replace_one(self, end: Callable[[str, str], None]) -> None:
        """`end` ends an instance, given its name and what is to be said about that."""
        victim = one_of(self._rng, self._processes.launches("operator"))
        other = self._programs.operator()
        end(victim.name, f"{other.name} takes its place")
        self._processes.start(other)

    async def _roll(self) -> None:
        """As a Deployment does: one more is started, and one of the old ones is stopped once it works."""
        for old in self._processes.launches("operator"):
            new = self._programs.operator()
            self._processes.start(new)
            await self._at_work([new])
            self._processes.stop(old.name, "rolled", f"{new.name} takes its place")

    async def _outage(self) -> None:
        sharders = self._processes.launches("sharder")
        for sharder in sharders:
            self._processes.stop(sharder.name, "stopped", "outage of the webhook")
        await asyncio.sleep(self._scenario.disturbed_every * _OUTAGE)
        while any(self._processes.runs(sharder.name) for sharder in sharders):  # noqa: ASYNC110 - other processes
            await asyncio.sleep(0.1)
        for sharder in sharders:
            self._processes.start(sharder)

    async def _flap(self) -> None:
        guest = self._programs.operator()
        self._processes.start(guest, "joined")
        await asyncio.sleep(self._scenario.disturbed_every / 2)
        self._processes.stop(guest.name, "left")
