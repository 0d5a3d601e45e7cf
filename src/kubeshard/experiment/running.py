"""Runs an experiment from its start to its end: the server, the programs, the load, and everything that watches them.

Guaranteed: whatever happens after the folder was made, what was gathered by then is in it, and `run.json` says how the
run ended; everything that was started is stopped.
"""

from __future__ import annotations

import asyncio
import math
import platform
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import psutil

from kubeshard.cache.watchers import Vanished, watcher
from kubeshard.client import installing
from kubeshard.client.client import Client
from kubeshard.client.config import BearerToken
from kubeshard.client.loading import load_config
from kubeshard.client.watching import Changed
from kubeshard.core.builtin import Lease
from kubeshard.core.errors import ApiError, KubeshardError
from kubeshard.core.namespaces import ALL
from kubeshard.core.objects import metadata_only
from kubeshard.core.selectors import Selector
from kubeshard.experiment.disturbances import Disturbances
from kubeshard.experiment.histograms import Latencies
from kubeshard.experiment.load import Load
from kubeshard.experiment.plan import Plan
from kubeshard.experiment.processes import Launch, Processes
from kubeshard.experiment.quantiles import of_samples
from kubeshard.experiment.recording import Event, Gauge, Recorder, Run, Usage
from kubeshard.experiment.scenarios import Scenario
from kubeshard.experiment.scraping import Scraper, Scrapes
from kubeshard.experiment.screen import Percentiles, Picture, Screen
from kubeshard.experiment.servers import Place
from kubeshard.experiment.setups import Programs, Setup
from kubeshard.experiment.subject import Subject
from kubeshard.experiment.tracker import Tracker, Written
from kubeshard.experiment.validity import Conditions, objections
from kubeshard.runtime.rng import Rng
from kubeshard.runtime.world import World
from kubeshard.sharding.names import RING_LABEL, STATE_LABEL
from kubeshard.version import __version__

LEASE_SECONDS = 15.0
"""As on a cluster."""
SCRAPE_EVERY = 5.0
_SERVER_SCRAPE_EVERY = 3
"""The server's metrics are long: they are read in each third round."""
_ENDS = 2
"""So often may a process end before it is at work: what fails once more will go on failing."""
_AT_WORK_WITHIN = 120.0
_SETTLE = 30.0
"""Seconds after the load for which the last generations may become ready."""
_TICK = 0.25
_SHOWN_OF = 10
"""Seconds that the rates on the screen are of."""
_PROBE_WITHIN = 5.0
_QUEUE = "workqueue_queue_duration_seconds"
_RECONCILE = "controller_runtime_reconcile_time_seconds"


class Asked(NamedTuple):
    """What to run. `scenario` has been scaled already; `scale` says by how much."""

    scenario: Scenario
    setup: Setup
    server: str
    scale: float
    seed: int
    parallel: int
    pinning: Mapping[str, Sequence[int]]
    latency: float = 0.0
    """Seconds that the embedded server adds to each answer."""


class ServerLost(KubeshardError):
    """The API server ended while the experiment ran."""


class NotAtWork(KubeshardError):
    """The programs did not begin to work."""


class Experiment:
    """One run. `rng` is the load's, which decides what it is; `environment` that of the programs; `subject` makes what
    is loaded, given the run's id.
    """

    def __init__(
        self,
        asked: Asked,
        folder: Path,
        world: World,
        rng: Callable[[int], Rng],
        environment: Mapping[str, str],
        screen: Screen,
        subject: Callable[[str], Subject],
    ) -> None:
        self._asked = asked
        self._world = world
        self._clock = world.clock
        self._environment = environment
        self._rng = rng
        self._screen = screen
        self._folder = folder
        self._logs = folder / "logs"
        self._recorder = Recorder(folder)
        setup = asked.setup
        self.run = Run(
            id=world.rng.token(),
            scenario=asked.scenario.name,
            setup=setup.kind,
            program=setup.program,
            server=asked.server,
            instances=setup.instances,
            workers=setup.workers,
            scale=asked.scale,
            seed=asked.seed,
            duration=asked.scenario.duration,
            latency=asked.latency,
            machine=dict(machine()),
        )
        self._recorder.save(self.run)
        self._happened: list[Event] = []
        self._doing = "starting"
        self._tracker = Tracker(self._recorder.add)
        self._subject = subject(self.run.id)
        self._load: Load | None = None
        self._probes: list[float] = []
        self._busy: list[float] = []
        self._usage: list[tuple[Usage, float]] = []
        self._counts: deque[tuple[int, int]] = deque([(0, 0)], maxlen=_SHOWN_OF + 1)
        """Requests that were due, and that were answered with success, at the end of each second."""
        self._queue = Latencies(_QUEUE, ("name", self._subject.controller))
        self._reconcile = Latencies(_RECONCILE, ("controller", self._subject.controller))
        self._stopping = asyncio.Event()
        self._wire_problem = ""

    @property
    def controller(self) -> str:
        """The name of the controller whose latencies count."""
        return self._subject.controller

    def stop(self) -> None:
        """Ends the load, and then the run."""
        self._doing = "stopping"
        self._stopping.set()

    async def conduct(self, serving: AbstractAsyncContextManager[Place]) -> None:
        """Runs the experiment. Raises KubeshardError: ServerLost, NotAtWork, ServerFailed, ...; ApiError if the
        cluster refuses what is needed.
        """
        processes = Processes(self._logs, self._environment, self._clock, self._note, self._asked.pinning)
        self._processes = processes
        try:
            async with serving as place, self._screen.showing(self.picture):
                try:
                    for watched in place.processes:
                        processes.watch(watched)
                    await self._on(place)
                finally:
                    self._wire_problem = processes.wire_problem
                    processes.kill_all()  # before the server, which they would miss
        finally:
            self._end()

    async def _on(self, place: Place) -> None:
        config = await load_config(kubeconfig=place.kubeconfig)
        token = config.auth.token if isinstance(config.auth, BearerToken) else ""
        async with Client(config, world=self._world) as client:
            self._client = client.with_user_agent("experiment")
            self._place = place
            self._scraper = Scraper(self._world, token)
            self._scrapes = Scrapes(self._folder)
            try:
                async with self._background(self._watch_server(), self._tick()):
                    await self._prepared_and_loaded(place)
            finally:
                await self._scraper.close()
                self._scrapes.close()

    async def _prepared_and_loaded(self, place: Place) -> None:
        setup = self._asked.setup
        scenario = self._asked.scenario
        plan = Plan(scenario, self._rng(0))
        self._doing = "preparing"
        async for _ in installing.install(
            self._client, self._subject.installation(ring=setup.kind == "external")
        ):
            pass
        async for _ in installing.install(self._client, self._subject.foundation(plan)):
            pass
        programs = Programs(setup, place.kubeconfig, self._logs, LEASE_SECONDS, self._clock)
        disturbances = Disturbances(scenario, self._processes, programs, self._rng(1), self._at_work)
        load = self._load = Load(
            lambda due: self._subject.send(self._client, due),
            self._tracker,
            self._recorder.add,
            self._clock,
            self._asked.parallel,
        )
        self._processes.measure_wire()
        async with self._background(self._follow()):
            if not scenario.cold:
                await self._start(programs)
            if plan.existing:
                self._doing = f"creating {len(plan.existing)} objects"
                await load.create_existing(plan)
            if not scenario.cold:
                await self._until(
                    lambda: self._tracker.ready_objects >= len(plan.existing), "the existing objects: ready"
                )
            await self._scrape_all()  # what was counted until now does not count
            self._begin()
            if scenario.cold:
                for launch in (*programs.sharders(), *programs.operators()):
                    self._processes.start(launch)
                self._existing_are_due(load, plan)
            async with self._background(self._sample(), self._scrape(), self._probe(), disturbances.run()):
                await self._loaded(load, plan)
                self._note(Event(self._clock.wall(), "load-ended", "", ""))
                self.run = msgspec.structs.replace(self.run, ended=self._clock.wall())
                self._doing = "settling"
                await self._settled()

    async def _start(self, programs: Programs) -> None:
        self._doing = "waiting for the programs"
        for launch in programs.sharders():
            self._processes.start(launch)
        operators = programs.operators()
        for launch in operators:
            self._processes.start(launch)
        await self._at_work(operators)

    def _begin(self) -> None:
        self._doing = "loading"
        self.run = msgspec.structs.replace(self.run, began=self._clock.wall())
        self._recorder.save(self.run)
        self._note(Event(self.run.began, "load-began", "", ""))

    def _existing_are_due(self, load: Load, plan: Plan) -> None:
        """In a cold start, users wait for all objects from the moment on at which the programs start."""
        began = self.run.began
        for due in plan.existing:
            if uid := load.uid_of(due):
                self._tracker.wrote(Written(due.namespace, due.name, uid, 1, began, began, began))

    async def _loaded(self, load: Load, plan: Plan) -> None:
        """Returns at the end of the load, or once it is to stop."""
        loading = asyncio.create_task(load.run(plan), name="load")
        stopping = asyncio.create_task(self._stopping.wait(), name="stop")
        seconds = self._asked.scenario.duration
        try:
            deadline = asyncio.get_running_loop().time() + seconds
            await asyncio.wait([loading, stopping], return_when=asyncio.FIRST_COMPLETED)
            left = deadline - asyncio.get_running_loop().time()
            if loading.done() and not self._stopping.is_set():
                loading.result()
                await self._rest(left)
            self.run = msgspec.structs.replace(self.run, finished=not self._stopping.is_set())
        finally:
            for task in (loading, stopping):
                task.cancel()
            await asyncio.wait([loading, stopping])

    async def _rest(self, seconds: float) -> None:
        """The time after the last request: until the end or, after a cold start, until all is ready."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while loop.time() < until and not self._stopping.is_set():
            if self._asked.scenario.cold and not self._tracker.unready:
                return
            await asyncio.sleep(min(_TICK, max(0.0, until - loop.time())))

    async def _settled(self) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + _SETTLE
        while self._tracker.unready and loop.time() < until:  # noqa: ASYNC110 - many events, of which none counts
            await asyncio.sleep(_TICK)

    def _end(self) -> None:
        self._tracker.end()
        load = self._load
        if load is not None and not math.isnan(self.run.began):
            conditions = Conditions(
                load.due, load.late, load.bound, self._asked.parallel, self._probes, self._busy,
                self._processes.ended,
            )  # fmt: skip
            notes = [
                f"{self._tracker.ready} generations became ready; {self._tracker.never} never did",
                f"{self._processes.restarts} restarts; objects moved {self._tracker.moves} times",
            ]
            if self._wire_problem:
                notes.append(f"bytes on the wire were not measured: {self._wire_problem}")
            invalid = [*self.run.invalid, *objections(conditions)]
            self.run = msgspec.structs.replace(self.run, invalid=invalid, notes=notes)
        if math.isnan(self.run.ended):
            self.run = msgspec.structs.replace(self.run, ended=self._clock.wall())
        self._doing = "ended"
        self._recorder.save(self.run)
        self._recorder.close()

    # What goes on beside the load

    @asynccontextmanager
    async def _background(self, *works: Awaitable[None]) -> AsyncIterator[None]:
        """Runs work as long as the block lasts. What one of them raises, the block raises."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(_awaited(work), name=f"experiment {number}")
                    for number, work in enumerate(works)
                ]
                yield
                for task in tasks:
                    task.cancel()
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        second = loop.time()
        while True:
            self._processes.tick()
            if loop.time() >= second:
                second += 1.0
                self._look_at_processes()
                self._recorder.flush()
            await asyncio.sleep(_TICK)

    async def _watch_server(self) -> None:
        while not (why := self._place.lost()):  # noqa: ASYNC110 - another process, there is nothing to wait on
            await asyncio.sleep(_TICK)
        self._note(Event(self._clock.wall(), "server-lost", "", why))
        self.run = msgspec.structs.replace(
            self.run, invalid=[*self.run.invalid, f"the API server was lost: {why}"]
        )
        raise ServerLost(f"the API server was lost, and with it the rest of the run: {why}")

    async def _follow(self) -> None:
        """Tells the tracker what a user sees."""
        form = await self._subject.form(self._client)
        events = watcher(self._client, form, ALL, label_selector=self._subject.selector)
        async with aclosing(events):
            async for event in events:
                match event:
                    case Changed("DELETED", obj):
                        self._tracker.removed(obj.metadata.uid)
                    case Changed(_, obj):
                        seen = self._subject.seen(obj)
                        self._tracker.saw(seen.uid, seen.generation, seen.shard, self._clock.wall())
                    case Vanished(_, uid):
                        self._tracker.removed(uid)

    async def _sample(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        load = self._load
        assert load is not None
        while True:
            due += 1.0
            await asyncio.sleep(due - loop.time())
            before = self._counts[-1]
            self._counts.append((load.due, load.reached))
            time, tracker = self._clock.wall(), self._tracker
            for name, subject, value in (
                ("rate-wanted", "", load.due - before[0]),
                ("rate-reached", "", load.reached - before[1]),
                ("late", "", load.lateness),
                ("in-flight", "", load.in_flight),
                ("unready", "", tracker.unready),
                ("objects", "", len(tracker)),
                ("moves", "", tracker.moves),
                *(("objects-of-shard", shard, count) for shard, count in tracker.shards.items()),
            ):
                self._recorder.add(Gauge(time, name, subject, value))

    async def _probe(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        client = self._client.with_timeout(_PROBE_WITHIN)
        while True:
            due = max(due + 1.0, loop.time())
            await asyncio.sleep(due - loop.time())
            began = loop.time()
            try:
                await client.raw("GET", "/api/v1/namespaces/default")
                took = loop.time() - began
            except ApiError:
                took = math.inf
            self._probes.append(took)
            self._recorder.add(Gauge(self._clock.wall(), "probe", "", took))

    async def _scrape(self) -> None:
        loop = asyncio.get_running_loop()
        due, rounds = loop.time(), 0
        while True:
            await self._scrape_all(server=rounds % _SERVER_SCRAPE_EVERY == 0)
            rounds += 1
            due = max(due + SCRAPE_EVERY, loop.time())
            await asyncio.sleep(due - loop.time())

    async def _scrape_all(self, *, server: bool = True) -> None:
        await asyncio.gather(*(self._scrape_one(launch) for launch in self._launches()))
        if server:
            await self._scrape_server()

    async def _scrape_one(self, launch: Launch) -> None:
        text = await self._scraper.read(launch.metrics)
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

    def _launches(self) -> Sequence[Launch]:
        return [*self._processes.launches("sharder"), *self._processes.launches("operator")]

    def _look_at_processes(self) -> None:
        before = {usage.process: usage for usage, _ in self._usage}
        self._usage = []
        for usage in self._processes.usage():
            last = before.get(usage.process)
            cores = 0.0
            if last is not None and usage.cpu >= last.cpu and usage.time > last.time:
                cores = (usage.cpu - last.cpu) / (usage.time - last.time)
            self._usage.append((usage, cores))
            self._recorder.add(usage)
            if usage.role == "tool" and self._doing == "loading":
                self._busy.append(cores)

    # Waiting

    async def _at_work(self, launches: Sequence[Launch]) -> None:
        """Returns once these instances work, or the run is to stop. Raises NotAtWork."""
        names = {launch.name for launch in launches}
        kind = self._asked.setup.kind
        until = asyncio.get_running_loop().time() + _AT_WORK_WITHIN
        ended = self._processes.ends.copy()
        while not self._stopping.is_set():
            at_work = await self._ready_shards() if kind != "singleton" else await self._answering(launches)
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
                    f"not at work within {_AT_WORK_WITHIN:g} s: {', '.join(missing) or 'the webhook'}; see "
                    f"{self._logs}; {tails}"
                )
            await asyncio.sleep(_TICK)

    async def _ready_shards(self) -> set[str]:
        labels = Selector.equals(RING_LABEL, self._subject.ring)
        leases = await self._client.list_all(Lease, ALL, label_selector=labels)
        return {lease.metadata.name for lease in leases if lease.metadata.label(STATE_LABEL) == "ready"}

    async def _answering(self, launches: Sequence[Launch]) -> set[str]:
        return {launch.name for launch in launches if await self._scraper.read(launch.metrics) is not None}

    async def _has_webhook(self) -> bool:
        kind = await self._client.discovery.kind(
            "admissionregistration.k8s.io", kind="MutatingWebhookConfiguration"
        )
        labels = Selector.equals(RING_LABEL, self._subject.ring)
        return bool(await self._client.list_all(metadata_only(kind), label_selector=labels))

    async def _until(self, condition: Callable[[], bool], what: str) -> None:
        """Raises NotAtWork."""
        loop = asyncio.get_running_loop()
        self._doing = f"waiting for {what}"
        until = loop.time() + max(_AT_WORK_WITHIN, self._asked.scenario.duration)
        while not condition() and not self._stopping.is_set():
            if loop.time() > until:
                raise NotAtWork(f"it took too long: {what}")
            await asyncio.sleep(_TICK)

    def _note(self, event: Event) -> None:
        self._happened.append(event)
        self._recorder.add(event)

    def picture(self) -> Picture:
        now = self._clock.wall()
        waited = self._tracker.waited(now)
        load = self._load
        warnings = []
        if load is not None and load.late:
            warnings.append(f"{load.late} requests were sent late")
        if load is not None and load.bound:
            warnings.append(f"{load.bound} had to wait for others")
        began, ended = self.run.began, self.run.ended
        until = now if math.isnan(ended) else ended
        seconds = max(1, len(self._counts) - 1)
        return Picture(
            title=self.run.title,
            doing=self._doing,
            elapsed=0.0 if math.isnan(began) else until - began,
            duration=self.run.duration,
            wanted=(self._counts[-1][0] - self._counts[0][0]) / seconds,
            reached=(self._counts[-1][1] - self._counts[0][1]) / seconds,
            in_flight=load.in_flight if load else 0,
            late=load.late if load else 0,
            waited=Percentiles(of_samples(0.5, waited), of_samples(0.99, waited)),
            queue=Percentiles(self._queue.quantile(0.5), self._queue.quantile(0.99)),
            reconcile=Percentiles(self._reconcile.quantile(0.5), self._reconcile.quantile(0.99)),
            objects=len(self._tracker),
            unready=self._tracker.unready,
            shards=dict(self._tracker.shards),
            usage=self._usage,
            happened=self._happened,
            warnings=warnings,
        )


async def _awaited(work: Awaitable[None]) -> None:
    await work


def machine() -> Mapping[str, str]:
    """What the figures of a run depend on."""
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": f"{platform.machine()}, {psutil.cpu_count()} cores",
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "kubeshard": __version__,
    }
