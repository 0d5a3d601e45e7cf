"""The load is sent when it is due, whatever the server does, and what it does is recorded truthfully."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from kubeshard.core.errors import ApiError, Conflict, NotFound, Unavailable
from kubeshard.core.objects import ObjectMeta
from kubeshard_lab.experiment.load import Load
from kubeshard_lab.experiment.plan import Due, LoadPlan
from kubeshard_lab.experiment.recording import Generation, Request
from kubeshard_lab.experiment.scenarios import Scenario
from kubeshard_lab.experiment.tracker import Tracker
from kubeshard_lab.virtual_time import VirtualClock, virtual_time
from kubeshard_lab.virtual_world import SeededRng

TEN_PER_SECOND = Scenario(name="ten", summary="", duration=10.0, create=10.0)


class Server:
    """Answers after `takes` seconds, with an error if there is one."""

    def __init__(self, takes: float = 0.0, error: Callable[[Due], ApiError | None] = lambda _: None) -> None:
        self.takes = takes
        self.error = error
        self.at_once = self.most_at_once = 0
        self.begun: list[Due] = []
        self.generations: dict[str, int] = {}

    async def send(self, due: Due) -> ObjectMeta | None:
        self.begun.append(due)
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        try:
            await asyncio.sleep(self.takes)
        finally:
            self.at_once -= 1
        if error := self.error(due):
            raise error
        if due.verb == "delete":
            return None
        self.generations[due.name] = self.generations.get(due.name, 0) + 1
        return ObjectMeta(
            name=due.name, namespace=due.namespace, uid=due.name, generation=self.generations[due.name]
        )


class Ran:
    def __init__(self, server: Server, parallel: int = 100) -> None:
        self.requests: list[Request] = []
        self.generations: list[Generation] = []
        self.tracker = Tracker(self.generations.append)
        self.load = Load(server.send, self.tracker, self.requests.append, VirtualClock(), parallel)

    async def run(self, scenario: Scenario) -> Ran:
        await self.load.run(LoadPlan(scenario, SeededRng(1)))
        return self


@virtual_time
async def test_a_request_is_sent_when_it_is_due_although_none_has_been_answered() -> None:
    server = Server(takes=60.0)
    ran = await Ran(server, parallel=1000).run(TEN_PER_SECOND)
    assert len(ran.requests) == 100
    assert server.most_at_once == 100
    assert max(request.sent - request.due for request in ran.requests) < 1e-6
    assert ran.load.late == ran.load.bound == 0


@virtual_time
async def test_a_request_that_waits_for_the_bound_counts_from_when_it_was_due() -> None:
    ran = await Ran(Server(takes=2.0), parallel=10).run(TEN_PER_SECOND)
    assert ran.load.bound == 90
    assert ran.load.late > 80
    last = max(ran.requests, key=lambda request: request.due)
    assert last.answered - last.due > 10.0
    assert 1.99 < last.answered - last.sent < 2.01
    tracked = [each.answered - each.due for each in _pending(ran)]
    assert max(tracked) > 10.0, "what the user waits for too"


@virtual_time
async def test_the_requests_of_one_object_are_sent_one_after_the_other() -> None:
    scenario = Scenario(
        name="changes", summary="", duration=50.0, create=0.02, change_every=1.0, storm_every=3.0
    )
    server = Server(takes=5.0)
    ran = await Ran(server).run(scenario)
    assert server.most_at_once == 1
    assert [due.number for due in server.begun] == sorted(due.number for due in server.begun)
    assert len({due.name for due in server.begun}) == 1
    assert ran.load.late > 30


@virtual_time
async def test_an_outcome_is_the_servers_and_only_successes_are_generations() -> None:
    errors = {
        0: None,
        1: Conflict("", code=409),
        2: Unavailable("refused"),
        3: Unavailable("", code=503),
        4: NotFound("", code=404),
    }
    ran = await Ran(Server(error=lambda due: errors[due.number % 5])).run(TEN_PER_SECOND)
    assert [request.outcome for request in ran.requests[:5]] == ["ok", "409", "unreachable", "503", "404"]
    assert math.isnan(ran.requests[2].answered)
    assert ran.load.reached == 20
    assert len(_pending(ran)) == 20


@virtual_time
async def test_a_load_that_ends_early_records_what_has_no_answer() -> None:
    ran = Ran(Server(takes=1000.0))
    running = asyncio.create_task(ran.run(TEN_PER_SECOND), name="load")
    await asyncio.sleep(1.05)
    running.cancel()
    await asyncio.wait([running])
    assert [request.outcome for request in ran.requests] == ["unanswered"] * 11


@virtual_time
async def test_a_deleted_object_is_gone_and_not_never_reconciled() -> None:
    ran = await Ran(Server()).run(Scenario(name="deletes", summary="", duration=10.0, create=1.0, delete=1.0))
    ran.tracker.end()
    assert [each.gone for each in ran.generations].count(True) == 10
    assert ran.tracker.never == 0


@virtual_time
async def test_existing_objects_are_created_in_parallel_and_not_recorded() -> None:
    server = Server(takes=1.0)
    ran = Ran(server)
    plan = LoadPlan(Scenario(name="cold", summary="", existing=64), SeededRng(1))
    await ran.load.create_existing(plan)
    assert server.most_at_once == 16
    assert ran.requests == []
    assert all(ran.load.uid_of(due) for due in plan.existing)


def _pending(ran: Ran) -> list[Generation]:
    ran.tracker.end()
    return ran.generations
