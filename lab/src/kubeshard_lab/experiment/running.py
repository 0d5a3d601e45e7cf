"""Runs the load of an experiment, and everything that watches what comes of it, wherever the programs run.

Guaranteed: whatever happens after the folder was made, what was gathered by then is in it, and `run.json` says how the
run ended.
"""

from __future__ import annotations

import asyncio
import math
import os
import platform
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from kubeshard.cache.watchers import Vanished, watcher
from kubeshard.client.client import Client
from kubeshard.client.watching import Changed
from kubeshard.core.builtin import Lease
from kubeshard.core.errors import ApiError, KubeshardError
from kubeshard.core.namespaces import ALL
from kubeshard.core.objects import ObjectMeta
from kubeshard.core.selectors import Selector
from kubeshard.runtime.rng import Rng
from kubeshard.runtime.world import World
from kubeshard.sharding.names import RING_LABEL, STATE_LABEL
from kubeshard.version import __version__
from kubeshard_lab.experiment.load import Load
from kubeshard_lab.experiment.plan import LoadPlan
from kubeshard_lab.experiment.progress import Percentiles, Progress, Screen
from kubeshard_lab.experiment.quantiles import Latencies, of_samples
from kubeshard_lab.experiment.recording import Event, Gauge, Recorder, RunRecord, Usage, save
from kubeshard_lab.experiment.scenarios import Scenario
from kubeshard_lab.experiment.setups import Setup
from kubeshard_lab.experiment.subject import Subject
from kubeshard_lab.experiment.tracker import Tracker, Written
from kubeshard_lab.experiment.validity import Conditions, objections

AT_WORK_WITHIN = 120.0
_SETTLE = 30.0
"""Seconds after the load for which the last generations may become ready."""
TICK = 0.25
_SHOWN_OF = 10
"""Seconds that the rates on the screen are of."""
_PROBE_WITHIN = 5.0
_QUEUE = "workqueue_queue_duration_seconds"
_RECONCILE = "controller_runtime_reconcile_time_seconds"


class Settings(NamedTuple):
    scenario: Scenario
    setup: Setup
    server: str
    scale: float
    seed: int
    parallel: int
    latency: float = 0.0
    """Seconds that the embedded server adds to each answer, or the simulated one."""
    costs: str = ""
    """What work costs in a simulation."""


class NotAtWork(KubeshardError):
    """The programs did not begin to work."""


class ServerLost(KubeshardError):
    """The API server ended while the experiment ran."""


class Wanted(NamedTuple):
    """`rng` is the load's, which decides what it is; `subject` makes what is loaded, given the run's id."""

    settings: Settings
    folder: Path
    rng: Callable[[int], Rng]
    screen: Screen
    subject: Callable[[str], Subject]


class Experiment:
    """One run. A derived class says where the programs are (`local`, `cluster`), and sets `_client`."""

    _client: Client

    def __init__(self, wanted: Wanted, world: World) -> None:
        settings, folder, self._rng, self._screen, subject = wanted
        self._settings, self._folder = settings, folder
        self._world, self._clock = world, world.clock
        self._recorder = Recorder(folder)
        setup = settings.setup
        self.run = RunRecord(
            id=world.rng.token(),
            scenario=settings.scenario.name,
            setup=setup.kind,
            program=setup.program,
            server=settings.server,
            instances=setup.instances,
            workers=setup.workers,
            scale=settings.scale,
            seed=settings.seed,
            duration=settings.scenario.duration,
            latency=settings.latency,
            costs=settings.costs,
            machine=dict(machine()),
        )
        save(self._folder, self.run)
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

    async def conduct(self) -> None:
        """Raises KubeshardError: NotAtWork, those of the place, ...; ApiError if the cluster refuses."""
        raise NotImplementedError

    @property
    def controller(self) -> str:
        return self._subject.controller

    def stop(self) -> None:
        """Ends the load, and then the run."""
        self._screen.say(
            "stopping the load; what was measured is judged next (Ctrl-C once more ends it at once)"
        )
        self._doing = "stopping"
        self._stopping.set()

    async def _loads(self, plan: LoadPlan) -> None:
        """The run, on a cluster that has what the plan needs."""
        scenario = self._settings.scenario
        load = self._load = Load(
            lambda due: self._subject.send(self._client, due),
            self._tracker,
            self._recorder.add,
            self._clock,
            self._settings.parallel,
        )
        async with self._background(self._follow()):
            if not scenario.cold:
                self._start()
                await self._work_begins()
            if plan.existing:
                self._doing = f"creating {len(plan.existing)} objects"
                await load.create_existing(plan)
            if not scenario.cold:
                await self._until(
                    lambda: self._tracker.ready_objects >= len(plan.existing), "the existing objects: ready"
                )
            await self._before_load()
            self._begin()
            if scenario.cold:
                self._start()
                self._existing_are_due(load, plan)
            async with self._background(self._sample(), self._probe(), self._beside_load()):
                await self._loaded(load, plan)
                self._note(Event(self._clock.wall(), "load-ended", "", ""))
                self.run.ended = self._clock.wall()
                self._doing = "settling"
                await self._settled()

    # What depends on where the programs run

    def _start(self) -> None:
        """Starts the programs. In a cold start they find all existing objects."""

    async def _work_begins(self) -> None:
        """Returns once the programs are at work. Raises NotAtWork."""

    async def _before_load(self) -> None:
        """Called immediately before the load begins."""

    async def _beside_load(self) -> None:
        """Until cancelled."""

    def _turn(self) -> None:
        """Called several times a second."""

    def _read_usage(self) -> Sequence[Usage]:
        """Of all processes that can be watched, this one included."""
        raise NotImplementedError

    def _noted(self) -> Iterator[str]:
        """What else is to be said about the run."""
        yield from ()

    def _ended_by_themselves(self) -> Sequence[str]:
        """A sentence for each process."""
        return ()

    # The load

    def _begin(self) -> None:
        self._doing = "loading"
        self.run.began = self._clock.wall()
        save(self._folder, self.run)
        self._note(Event(self.run.began, "load-began", "", ""))

    def _existing_are_due(self, load: Load, plan: LoadPlan) -> None:
        """In a cold start, users wait for all objects from the moment on at which the programs start."""
        began = self.run.began
        for due in plan.existing:
            if uid := load.uid_of(due):
                self._tracker.wrote(Written(due.namespace, due.name, uid, 1, began, began, began))

    async def _loaded(self, load: Load, plan: LoadPlan) -> None:
        """Returns at the end of the load, or once it is to stop."""
        loading = asyncio.create_task(load.run(plan), name="load")
        stopping = asyncio.create_task(self._stopping.wait(), name="stop")
        seconds = self._settings.scenario.duration
        try:
            deadline = asyncio.get_running_loop().time() + seconds
            await asyncio.wait([loading, stopping], return_when=asyncio.FIRST_COMPLETED)
            left = deadline - asyncio.get_running_loop().time()
            if loading.done() and not self._stopping.is_set():
                loading.result()
                await self._rest(left)
            self.run.finished = not self._stopping.is_set()
        finally:
            for task in (loading, stopping):
                task.cancel()
            await asyncio.wait([loading, stopping])

    async def _rest(self, seconds: float) -> None:
        """The time after the last request: until the end or, after a cold start, until all is ready."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while loop.time() < until and not self._stopping.is_set():
            if self._settings.scenario.cold and not self._tracker.unready:
                return
            await asyncio.sleep(min(TICK, max(0.0, until - loop.time())))

    async def _settled(self) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + _SETTLE
        while self._tracker.unready and loop.time() < until:  # noqa: ASYNC110 - many events, of which none counts
            await asyncio.sleep(TICK)

    def _end(self) -> None:
        self._tracker.end()
        load = self._load
        if load is not None and not math.isnan(self.run.began):
            conditions = Conditions(
                load.due, load.late, load.bound, self._settings.parallel, self._probes, self._busy,
                self._ended_by_themselves(),
            )  # fmt: skip
            ready, never = self._tracker.ready, self._tracker.never
            self.run.notes = [f"{ready} generations became ready; {never} never did", *self._noted()]
            self.run.invalid += objections(conditions)
        else:
            self.run.invalid.append("the load did not begin")
        if math.isnan(self.run.ended):
            self.run.ended = self._clock.wall()
        self._doing = "ended"
        save(self._folder, self.run)
        self._recorder.close()

    # What goes on beside the load

    @asynccontextmanager
    async def _background(self, *works: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(work, name=f"experiment {number}") for number, work in enumerate(works)
                ]
                yield
                for task in tasks:
                    task.cancel()
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _disturbed(self, act: Callable[[], Awaitable[None]] | None) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while act is not None:
            due += self._settings.scenario.disturbed_every
            await asyncio.sleep(due - loop.time())
            await act()

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        second = loop.time()
        while True:
            self._turn()
            if loop.time() >= second:
                second += 1.0
                self._look_at_processes()
                self._recorder.flush()
            await asyncio.sleep(TICK)

    async def _follow(self) -> None:
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

    def _look_at_processes(self) -> None:
        before = {usage.process: usage for usage, _ in self._usage}
        self._usage = []
        for usage in self._read_usage():
            last = before.get(usage.process)
            cores = 0.0
            if last is not None and usage.cpu >= last.cpu and usage.time > last.time:
                cores = (usage.cpu - last.cpu) / (usage.time - last.time)
            self._usage.append((usage, cores))
            self._recorder.add(usage)
            if usage.role == "tool" and self._doing == "loading":
                self._busy.append(cores)

    # Waiting

    async def _until(self, condition: Callable[[], bool], what: str) -> None:
        """Raises NotAtWork."""
        loop = asyncio.get_running_loop()
        self._doing = f"waiting for {what}"
        until = loop.time() + max(AT_WORK_WITHIN, self._settings.scenario.duration)
        while not condition() and not self._stopping.is_set():
            if loop.time() > until:
                raise NotAtWork(f"it took too long: {what}")
            await asyncio.sleep(TICK)

    def _note(self, event: Event) -> None:
        self._happened.append(event)
        self._recorder.add(event)

    def progress(self) -> Progress:
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
        return Progress(
            title=self.run.title,
            doing=self._doing,
            elapsed=0.0 if math.isnan(began) else until - began,
            duration=self.run.duration,
            wanted=(self._counts[-1][0] - self._counts[0][0]) / seconds,
            reached=(self._counts[-1][1] - self._counts[0][1]) / seconds,
            in_flight=load.in_flight if load else 0,
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


async def ready_shards(client: Client, ring: str) -> Sequence[ObjectMeta]:
    leases = await client.list_all(Lease, ALL, label_selector=Selector.equals(RING_LABEL, ring))
    return [lease.metadata for lease in leases if lease.metadata.label(STATE_LABEL) == "ready"]


def machine() -> Mapping[str, str]:
    """What the figures of a run depend on."""
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": f"{platform.machine()}, {os.cpu_count()} cores",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "kubeshard": __version__,
    }
