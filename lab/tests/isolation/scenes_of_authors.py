"""Scenes of what an operator's author writes (predicates, map functions, admission handlers, daemons, coroutines), and
of callers of the webhook.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import asgi_client
from neighbourhood import NAMESPACE, NEW, PEERS, PLAINS, POISON, TENANT, THINGS, Bad, Neighbourhood
from table import Misbehaviour, Scene, Unit, cell, nothing, shown

from kubeshard.controller import Context
from kubeshard.core import ConfigMap, Key
from kubeshard.core.patches import MergePatch
from kubeshard.manager import Runnable
from kubeshard.webhook.app import AdmissionApp, Webhook
from kubeshard.webhook.review import AdmissionAnswer, AdmissionRequest

E, N, S, F, M, L, X, C, B = Misbehaviour

BESIDE = (PEERS, PLAINS)
"""The other objects of the same controller, and another controller of the process."""

SYNCHRONOUS = (
    "It is a plain function, called in the event loop: one that blocks stops the process, as in every asyncio program, "
    "and the watchdog ends the process before another one acts."
)


def acting(function: str, act: Callable[[Neighbourhood], Callable[..., Any]]) -> Scene:
    """While the scene runs, an author's function does this for the object b0, which is created now."""

    @asynccontextmanager
    async def scene(at: Neighbourhood) -> AsyncIterator[None]:
        with at.act(function, act(at)):
            await at.create(Bad, POISON, NAMESPACE)
            await at.create(ConfigMap, POISON, NAMESPACE)
            yield

    return scene


def for_poison(
    do: Callable[[Neighbourhood, Any], Any], usual: Any
) -> Callable[[Neighbourhood], Callable[..., Any]]:
    def act(at: Neighbourhood) -> Callable[..., Any]:
        def function(obj: Any) -> Any:
            if obj.metadata.name != POISON:
                return usual
            at.reached.add("acted")
            return do(at, obj)

        return function

    return act


def raises(at: Neighbourhood, obj: Any) -> Any:
    raise ZeroDivisionError


# -- a predicate

cell(
    Unit.PREDICATE, X, "raises ZeroDivisionError for one object", BESIDE, said=(("log", "ZeroDivisionError"),)
)(acting("predicate", for_poison(raises, True)))
cell(Unit.PREDICATE, L, "returns no bool for one object", BESIDE)(
    acting("predicate", for_poison(lambda at, obj: object(), True))
)


@cell(
    Unit.PREDICATE,
    B,
    "raises for one object, and no longer does after 20 s",
    BESIDE,
    lasts=10,
    back=(PEERS, 75),
)
@asynccontextmanager
async def a_predicate_recovers(at: Neighbourhood) -> AsyncIterator[None]:
    with at.act("predicate", for_poison(raises, True)(at)):
        await at.add(PEERS, POISON)
        at.forget(PEERS, POISON)
        await asyncio.sleep(20)
        yield
    at.remember(PEERS, POISON)


nothing(Unit.PREDICATE, "It returns a bool or raises; there is no other answer.", E)
nothing(Unit.PREDICATE, SYNCHRONOUS, N, S, C)
nothing(Unit.PREDICATE, "It is called once for each change: a flood of it is a flood of the objects.", F, M)

# -- a map function

cell(Unit.MAPPER, X, "raises ZeroDivisionError for one object", BESIDE, said=(("log", "ZeroDivisionError"),))(
    acting("mapper", for_poison(raises, ()))
)
cell(Unit.MAPPER, F, "maps one object to three thousand keys", BESIDE, lasts=8)(
    acting("mapper", for_poison(lambda at, obj: [Key(TENANT, f"k{n}") for n in range(3000)], ()))
)
cell(Unit.MAPPER, L, "returns what is no key", BESIDE)(
    acting("mapper", for_poison(lambda at, obj: [7, None], ()))
)
nothing(Unit.MAPPER, "It returns keys or raises; there is no other answer.", E)
nothing(Unit.MAPPER, SYNCHRONOUS, N, S, C)
nothing(Unit.MAPPER, "Each watch has one, and each is called for its own kind only.", M)


@cell(
    Unit.MAPPER, B, "raises for one object, and no longer does after 20 s", BESIDE, lasts=10, back=(PEERS, 75)
)
@asynccontextmanager
async def a_mapper_recovers(at: Neighbourhood) -> AsyncIterator[None]:
    with at.act("mapper", for_poison(raises, ())(at)):
        await at.create(ConfigMap, POISON, NAMESPACE)
        await asyncio.sleep(20)
        yield


# -- an admission handler

REVIEW = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}


def review(name: str) -> bytes:
    request = {
        "uid": "u",
        "operation": "CREATE",
        "name": name,
        "namespace": "n",
        "object": {"metadata": {"name": name}},
    }
    return json.dumps({**REVIEW, "request": request}).encode()


def handling(act: Callable[[Neighbourhood, AdmissionRequest], Any]) -> Scene:
    """A webhook whose handler does this for half of the requests, while the other half, and another route, are asked
    for ten times per second: each of these is answered within a tenth of a second.
    """

    @asynccontextmanager
    async def scene(at: Neighbourhood) -> AsyncIterator[None]:
        async def handler(request: AdmissionRequest) -> AdmissionAnswer:
            if request.name != POISON:
                return AdmissionAnswer(message="good")
            at.reached.add("handled")
            result = act(at, request)
            return await result if asyncio.iscoroutine(result) else result

        def good(request: AdmissionRequest) -> AdmissionAnswer:
            return AdmissionAnswer(message="good")

        app = AdmissionApp({"/bad": Webhook(handler), "/good": Webhook(good)}, clock=at.world.clock)

        async def ask(path: str, name: str) -> asgi_client.Answer:
            return await asgi_client.call(app, review(name), path=path, query=b"timeout=5s")

        async def traffic() -> None:
            asked = set()
            while True:
                poisoned = asyncio.create_task(ask("/bad", POISON))
                asked.add(poisoned)
                poisoned.add_done_callback(asked.discard)
                for path in ("/bad", "/good"):
                    async with asyncio.timeout(0.1):
                        assert b"good" in (await ask(path, "a")).body
                await asyncio.sleep(0.1)

        async with at.meanwhile(traffic()):
            yield

    return scene


def raising(at: Neighbourhood, request: AdmissionRequest) -> Any:
    raise ZeroDivisionError


async def hanging(at: Neighbourhood, request: AdmissionRequest) -> AdmissionAnswer:
    await asyncio.get_running_loop().create_future()
    raise AssertionError


async def taking_3_s(at: Neighbourhood, request: AdmissionRequest) -> AdmissionAnswer:
    await asyncio.sleep(3)
    return AdmissionAnswer()


async def ignoring(at: Neighbourhood, request: AdmissionRequest) -> AdmissionAnswer:
    for _ in range(3):
        try:
            await asyncio.sleep(5)
        except asyncio.CancelledError:
            at.reached.add("ignored")
    return AdmissionAnswer()


cell(Unit.HANDLER, E, "denies", BESIDE, lasts=10)(
    handling(lambda at, request: AdmissionAnswer(allowed=False))
)
cell(Unit.HANDLER, X, "raises ZeroDivisionError", BESIDE, lasts=10, said=(("log", "ZeroDivisionError"),))(
    handling(raising)
)
cell(Unit.HANDLER, N, "never returns", BESIDE, lasts=30)(handling(hanging))
cell(Unit.HANDLER, S, "takes 3 s", BESIDE, lasts=10)(handling(taking_3_s))
cell(Unit.HANDLER, L, "returns no answer", BESIDE, lasts=10)(handling(lambda at, request: 7))
cell(Unit.HANDLER, C, "ignores that it is cancelled after the API server's timeout", BESIDE, lasts=30)(
    handling(ignoring)
)
nothing(Unit.HANDLER, "It is called once for each request: see the callers.", F, B)
nothing(Unit.HANDLER, "Each has a path of its own; the limits hold for the server.", M)

# -- a daemon


def daemon(act: Callable[[Neighbourhood, Context, Any], Any]) -> Scene:
    def acts(at: Neighbourhood) -> Callable[..., Any]:
        async def function(ctx: Context, obj: Any) -> None:
            if obj.metadata.name == POISON:
                at.reached.add("daemon")
                await act(at, ctx, obj)

        return function

    return acting("daemon", acts)


async def daemon_raises(at: Neighbourhood, ctx: Context, obj: Any) -> None:
    raise ZeroDivisionError


async def daemon_waits(at: Neighbourhood, ctx: Context, obj: Any) -> None:
    await asyncio.get_running_loop().create_future()


async def daemon_asks_for_nothing(at: Neighbourhood, ctx: Context, obj: Any) -> None:
    while True:
        await ctx.client.get(ConfigMap, "no-such", NAMESPACE)


async def daemon_floods(at: Neighbourhood, ctx: Context, obj: Any) -> None:
    for number in range(1_000_000):
        patch = MergePatch({"metadata": {"annotations": {"n": str(number)}}})
        await ctx.client.patch(ConfigMap, POISON, NAMESPACE, patch)
        await asyncio.sleep(0.01)


cell(Unit.DAEMON, X, "raises ZeroDivisionError", BESIDE, said=(("log", "ZeroDivisionError"),))(
    daemon(daemon_raises)
)
cell(Unit.DAEMON, E, "its requests are answered 404", BESIDE)(daemon(daemon_asks_for_nothing))
cell(Unit.DAEMON, N, "waits for ever", BESIDE)(daemon(daemon_waits))
cell(Unit.DAEMON, F, "writes a hundred times per second", BESIDE, lasts=8)(daemon(daemon_floods))


@cell(Unit.DAEMON, M, "five hundred objects have one", BESIDE, lasts=10)
@asynccontextmanager
async def many_daemons(at: Neighbourhood) -> AsyncIterator[None]:
    async def waits(ctx: Context, obj: Any) -> None:
        at.reached.add("daemon")
        await asyncio.get_running_loop().create_future()

    with at.act("daemon", waits):
        for number in range(500):
            await at.create(Bad, f"m{number}", TENANT)
        yield


@cell(Unit.DAEMON, C, "ignores that it is cancelled when its object is deleted", BESIDE, lasts=60)
@asynccontextmanager
async def a_daemon_ignores(at: Neighbourhood) -> AsyncIterator[None]:
    over = False

    async def ignores(ctx: Context, obj: Any) -> None:
        while obj.metadata.name == POISON and not over:
            try:
                await asyncio.sleep(5)
            except asyncio.CancelledError:
                at.reached.add("ignored")

    with at.act("daemon", ignores):
        await at.create(Bad, POISON, NAMESPACE)
        await asyncio.sleep(1)
        async with at.world.admin() as client:
            await client.delete(Bad, POISON, NAMESPACE)
        try:
            yield
        finally:
            over = True


@cell(Unit.DAEMON, B, "raises every second time", BESIDE)
@asynccontextmanager
async def a_daemon_recovers(at: Neighbourhood) -> AsyncIterator[None]:
    starts = 0

    async def sometimes(ctx: Context, obj: Any) -> None:
        nonlocal starts
        if obj.metadata.name == POISON:
            starts += 1
            if starts % 2:
                raise ZeroDivisionError
            await asyncio.sleep(1)

    with at.act("daemon", sometimes):
        await at.create(Bad, POISON, NAMESPACE)
        await asyncio.sleep(5)
        assert starts >= 2
        at.reached.add("restarted")
        yield


nothing(Unit.DAEMON, "A daemon that waits for slow answers waits alone: it is a task of its own.", S)
nothing(Unit.DAEMON, "It returns nothing that somebody reads.", L)

# -- an author's coroutine: a Runnable of a manager, or what a reconciler starts


@cell(
    Unit.COROUTINE,
    X,
    "a Runnable raises: its process stops, and another one takes over",
    (THINGS, NEW),
    lasts=10,
    back=(PLAINS, 20),
)
@asynccontextmanager
async def a_runnable_raises(at: Neighbourhood) -> AsyncIterator[None]:
    async def fails() -> None:
        await asyncio.sleep(5)
        at.reached.add("raised")
        raise ZeroDivisionError

    at.kill("op")
    at.operator("op~2", runnables=[Runnable("fails", fails)])
    await asyncio.sleep(1)
    at.operator("op~3")
    at.expected_deaths.add("op~2")
    await asyncio.sleep(30)
    assert "ended" in at.world.processes["op~2"].dead
    yield


@cell(
    Unit.COROUTINE,
    C,
    "a Runnable ignores its cancellation: the process ends nevertheless",
    (THINGS, NEW),
    lasts=10,
    back=(PLAINS, 60),
)
@asynccontextmanager
async def a_runnable_does_not_end(at: Neighbourhood) -> AsyncIterator[None]:
    over = False

    async def ignores() -> None:
        while not over:
            try:
                await asyncio.sleep(5)
            except asyncio.CancelledError:
                at.reached.add("ignored")

    at.kill("op")
    first = at.operator("op~2", runnables=[Runnable("stubborn", ignores)])
    await asyncio.sleep(40)
    at.operator("op~3")
    at.expected_deaths.add("op~2")
    assert first.manager is not None
    first.manager.stop()
    await asyncio.sleep(5)
    try:
        yield
    finally:
        over = True


@cell(Unit.COROUTINE, M, "a Runnable starts a thousand tasks that wait", (PLAINS, PEERS, THINGS), lasts=10)
@asynccontextmanager
async def many_tasks(at: Neighbourhood) -> AsyncIterator[None]:
    async def many() -> None:
        at.reached.add("started")
        async with asyncio.TaskGroup() as tasks:
            for _ in range(1000):
                tasks.create_task(asyncio.sleep(10_000))

    at.kill("op")
    at.operator("op~2", runnables=[Runnable("many", many)])
    await at.goes_on(PLAINS, 60)
    yield


nothing(Unit.COROUTINE, "It answers nobody, and nobody waits for it.", E, S, L)
nothing(Unit.COROUTINE, "What it sends too much of are requests: see the daemon.", F)
nothing(Unit.COROUTINE, "A Runnable that returns has ended, and is not started again.", B)

# -- a caller of the webhook: whoever reaches its port. Sockets take real time, so tests of the server show it.

WEBHOOK, ASGI = "webhook/test_webhook_app.py", "runtime/test_asgi.py"
shown(
    Unit.CALLER,
    E,
    "What is no review gets 400, an unknown path 404, another content type 415, and the connection is closed.",
    f"{WEBHOOK}::test_what_is_no_review_is_400_without_traceback",
)
shown(
    Unit.CALLER,
    N,
    "A client that stops in the middle of a request is cut off, and the others are served meanwhile.",
    f"{ASGI}::test_a_client_that_stops_in_the_middle_is_cut_off",
)
shown(
    Unit.CALLER,
    S,
    "A client that sends byte by byte gets no more time than one that sends nothing.",
    f"{ASGI}::test_a_client_that_sends_byte_by_byte_gets_no_more_time",
)
shown(
    Unit.CALLER,
    F,
    "Beyond a number of requests in flight there is a 503 at once, and later requests are served again.",
    f"{WEBHOOK}::test_beyond_the_limit_requests_are_503_at_once_and_later_ones_are_served_again",
)
shown(
    Unit.CALLER,
    M,
    "Beyond the number of connections, the one that has waited longest for its client is given up; if none waits, there"
    " is a 503 at once.",
    f"{ASGI}::test_clients_that_complete_no_request_keep_nobody_out",
)
shown(
    Unit.CALLER,
    L,
    "Every review is answered, whatever is in it, and allowed if it makes no sense.",
    "webhook/test_webhook_fuzz.py::test_any_damaged_review_is_answered",
)
shown(
    Unit.CALLER,
    X,
    "An exception that it causes in the application is a 500 for this caller only.",
    f"{ASGI}::test_an_exception_of_the_application_is_a_500_without_traceback",
)
shown(
    Unit.CALLER,
    B,
    "A client that leaves frees its place.",
    f"{WEBHOOK}::test_a_client_that_leaves_gets_no_answer_and_frees_its_place",
)
nothing(Unit.CALLER, "A caller is no task of ours.", C)

shown(
    Unit.COROUTINE,
    N,
    "One that blocks the event loop stops its process: the watchdog ends it before another process acts.",
    "manager/test_leader_processes.py::"
    "test_a_leader_whose_reconcile_blocks_longer_than_its_lease_is_dead_before_another_acts",
)
