"""Handlers that wait, hang, fail or are removed do not affect each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
from msgspec.structs import replace
from scripted_client import ScriptedClient, Widget, unreadable

from failing_groups import (
    await_what_was_cancelled,
    be_late_after_a_group_has_failed,
    fail_in_a_group,
    fail_in_a_group_when_cancelled,
)
from kubeshard.cache import Added, Cache, Deleted, Delta, Informer, Registration, Updated
from kubeshard.cache.deltas import current
from kubeshard.client.watching import Failed
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.errors import Unavailable
from kubeshard.core.objects import ObjectMeta
from kubeshard.listwatch.state_machine import Listed
from kubeshard.runtime.pace import STEPS
from kubeshard_lab.virtual_time import settle, virtual_time

Told = list[Delta[Widget]]


class Slow:
    """An async handler that takes an hour per object, or as long as it is told to."""

    def __init__(self, seconds: float = 3600.0) -> None:
        self.seconds = seconds
        self.told: Told = []
        self.cancelled = 0

    async def __call__(self, delta: Delta[Widget]) -> None:
        self.told.append(delta)
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


@asynccontextmanager
async def running(
    api: ScriptedClient, *early: Slow
) -> AsyncIterator[tuple[Informer[Widget], list[Registration[Widget]]]]:
    cache = Cache(api.client)
    informer = cache.declare(Widget)
    registrations = [informer.add_handler(handler) for handler in early]
    async with cache.running():
        await informer.synced()
        yield informer, registrations
    assert len(asyncio.all_tasks()) == 1, "the cache left tasks behind"


@virtual_time
async def test_an_async_handler_is_called_for_one_delta_after_another() -> None:
    api = ScriptedClient()
    a = api.put("x/a")
    slow = Slow(1.0)
    async with running(api, slow):
        await settle()
        b = api.put("x/b")
        await settle()
        assert slow.told == [Added(a, initial=True)]
        await asyncio.sleep(1.5)
        assert slow.told == [Added(a, initial=True), Added(b)]


@virtual_time
async def test_a_handler_that_never_returns_holds_up_nobody_and_shows_since_when_and_what_waits() -> None:
    api = ScriptedClient()
    api.put("x/a")
    hung = Slow(float("inf"))
    async with running(api, hung) as (informer, (registration,)):
        told: Told = []
        informer.add_handler(told.append)
        quick = Slow(0.0)
        informer.add_handler(quick)
        await asyncio.sleep(30)
        for number in range(50):
            api.put(f"x/{number % 5}", str(number))
        await asyncio.sleep(30)
        assert len(told) == 51
        assert len(informer.store) == 6
        assert {current(delta).key: current(delta) for delta in quick.told} == {
            obj.key: obj for obj in informer.store.list()
        }
        assert registration.busy_since == 0.0
        assert registration.waiting == 5
        assert not registration.has_synced
        assert registration.name.endswith("Slow")


@virtual_time
async def test_what_waits_for_a_handler_that_never_returns_is_bounded_by_the_objects() -> None:
    api = ScriptedClient()
    for number in range(20):
        api.put(f"x/{number}")
    async with running(api, Slow(float("inf"))) as (_, (registration,)):
        for number in range(3000):
            key = f"x/{number % 40}"
            api.put(key, str(number))
            if number % 3 == 0:
                api.delete(key)
        await settle()
        assert registration.waiting <= 40


@virtual_time
async def test_a_slow_handler_hears_the_newest_state_of_each_object_and_not_of_those_that_came_and_went() -> (
    None
):
    api = ScriptedClient()
    a = api.put("x/a")
    slow = Slow(10.0)
    async with running(api, slow):
        await settle()
        api.put("x/b", "red")
        b = api.put("x/b", "blue")
        api.put("x/c")
        api.delete("x/c")
        api.put("x/a", "red")
        a3 = api.put("x/a", "blue")
        await asyncio.sleep(100)
        assert slow.told == [Added(a, initial=True), Added(b), Updated(a, a3)]


@virtual_time
async def test_each_handler_has_its_own_answer_to_whether_it_has_heard_of_everything() -> None:
    api = ScriptedClient()
    for number in range(3):
        api.put(f"x/{number}")
    slow = Slow(10.0)
    async with running(api, slow) as (informer, (early,)):
        plain = informer.add_handler(lambda _: None)
        await plain.synced()
        late = informer.add_handler(Slow(1.0))
        api.put("x/later")
        await late.synced()
        assert asyncio.get_running_loop().time() == 3.0
        assert plain.has_synced
        assert not early.has_synced
        await early.synced()
        assert asyncio.get_running_loop().time() == 30.0, "what came later is not waited for"


@virtual_time
async def test_a_handler_has_not_synced_before_the_store_is_filled() -> None:
    api = ScriptedClient()
    api.down = Unavailable("refused")
    cache = Cache(api.client)
    informer = cache.declare(Widget)
    both = informer.add_handler(Slow(0.0)), informer.add_handler(lambda _: None)
    async with cache.running():
        await asyncio.sleep(5)
        assert [registration.has_synced for registration in both] == [False, False]
        api.down = None
        for registration in both:
            await registration.synced()


@virtual_time
async def test_a_removed_async_handler_is_cancelled_and_hears_no_more() -> None:
    api = ScriptedClient()
    api.put("x/a")
    hung, later = Slow(float("inf")), Slow(float("inf"))
    async with running(api, hung) as (informer, (registration,)):
        await settle()
        registration.remove()
        api.put("x/b")
        await settle()
        assert (len(hung.told), hung.cancelled, registration.waiting) == (1, 1, 0)
        with informer.add_handler(later):
            await settle()
        await settle()
        assert (len(later.told), later.cancelled) == (1, 1)
        assert informer.handlers == ()
        assert informer.handler_errors == 0


@virtual_time
async def test_a_handler_may_remove_itself_in_a_call_and_finish_the_call() -> None:
    api = ScriptedClient()
    a = api.put("x/a")
    finished: Told = []
    async with running(api) as (informer, _):

        async def once(delta: Delta[Widget]) -> None:
            registration.remove()
            await asyncio.sleep(1)
            finished.append(delta)

        registration = informer.add_handler(once)
        api.put("x/b")
        await asyncio.sleep(5)
        assert finished == [Added(a, initial=True)]


@virtual_time
async def test_an_async_handler_that_raises_is_named_and_counted_and_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    api = ScriptedClient()
    told: Told = []

    async def broken(delta: Delta[Widget]) -> None:
        told.append(delta)
        if delta.object.metadata.name == "cancelled":  # type: ignore[union-attr]  # only additions here
            gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            gone.cancel()
            await gone
        raise RuntimeError("bug")

    async with running(api) as (informer, _):
        informer.add_handler(broken, name="inventory")
        informer.add_handler(partial(lambda _, __: 1 / 0, None))
        api.put("x/a")
        api.put("x/cancelled")
        api.put("x/b")
        await settle()
        assert len(told) == 3
        assert informer.handler_errors == 6
    names = [record.__dict__["fields"]["handler"] for record in caplog.records]
    assert names.count("inventory") == 1
    assert sum("lambda" in name for name in names) == 1


@pytest.mark.parametrize(
    "failing", [fail_in_a_group, be_late_after_a_group_has_failed, await_what_was_cancelled]
)
@virtual_time
async def test_an_async_handler_is_called_again_however_it_fails(
    failing: Callable[[], Awaitable[None]],
) -> None:
    api = ScriptedClient()
    told: Told = []

    async def broken(delta: Delta[Widget]) -> None:
        told.append(delta)
        await failing()

    async with running(api) as (informer, _):
        informer.add_handler(broken)
        for name in "abcde":
            api.put(f"x/{name}")
        await asyncio.sleep(60)
        assert len(told) == informer.handler_errors == 5


@virtual_time
async def test_a_handler_that_fails_as_it_is_cancelled_does_not_keep_the_cache_from_ending() -> None:
    api = ScriptedClient()

    async def broken(_: Delta[Widget]) -> None:
        await fail_in_a_group_when_cancelled()

    async with asyncio.timeout(60), running(api) as (informer, _):
        informer.add_handler(broken)
        api.put("x/a")
        await asyncio.sleep(1)


@virtual_time
async def test_a_handler_that_raises_for_every_object_is_logged_every_ten_seconds_and_hides_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Otherwise a bug would log a stack trace per object on every full read."""
    api = ScriptedClient()

    def broken(_: Delta[Widget]) -> None:
        raise RuntimeError("bug")

    async with running(api) as (informer, _):
        informer.add_handler(broken, name="first")
        informer.add_handler(broken, name="second")
        for number in range(200):
            api.put(f"x/{number}")
            await asyncio.sleep(0.1)
        assert informer.handler_errors == 400
    said = [(record.__dict__["fields"]["handler"], record.exc_info is not None) for record in caplog.records]
    assert sorted(said) == [("first", True)] * 2 + [("second", True)] * 2


@virtual_time
async def test_a_plain_function_that_returns_a_coroutine_is_told_to_be_async(
    caplog: pytest.LogCaptureFixture,
) -> None:
    api = ScriptedClient()
    slow = Slow()
    async with running(api) as (informer, _):
        informer.add_handler(lambda delta: slow(delta))  # type: ignore[arg-type,return-value]  # the mistake
        api.put("x/a")
        await settle()
        assert informer.handler_errors == 1
    assert "declare it with `async def`" in str(caplog.records[-1].__dict__["fields"]["error"])


@pytest.mark.long
@pytest.mark.parametrize("sort", ["plain", "async"])
def test_fifty_thousand_objects_are_handed_to_a_new_handler_a_few_at_a_time_while_others_run(
    sort: str,
) -> None:
    @virtual_time
    async def check() -> None:
        informer = Cache(ScriptedClient().client).declare(Widget)
        form = ObjectMeta(namespace="x", uid="u", resource_version="1")
        objects = [Widget(metadata=replace(form, name=str(number))) for number in range(50_000)]
        run = asyncio.create_task(informer.run())
        await settle()
        await informer.listed(Listed("1"), {obj.key: obj for obj in objects}, "")
        told: Told = []

        async def later(delta: Delta[Widget]) -> None:
            told.append(delta)

        registration = informer.add_handler(told.append if sort == "plain" else later)
        assert told == []
        turns = longest = 0
        while not registration.has_synced:
            before = len(told)
            await asyncio.sleep(0)
            turns, longest = turns + 1, max(longest, len(told) - before)
        assert len(told) == 50_000
        assert longest <= STEPS
        assert turns >= 50_000 / STEPS
        run.cancel()

    check()


@pytest.mark.parametrize("sort", ["plain", "async"])
def test_a_handler_of_some_objects_hears_when_one_comes_to_be_one_of_them_and_when_it_no_longer_is(
    sort: str,
) -> None:
    @virtual_time
    async def check() -> None:
        api = ScriptedClient()
        red = api.put("x/red", "red")
        api.put("x/blue", "blue")
        told: Told = []

        async def later(delta: Delta[Widget]) -> None:
            told.append(delta)

        async with running(api) as (informer, _):
            handler = told.append if sort == "plain" else later
            registration = informer.add_handler(handler, only=lambda widget: widget.spec.color == "red")
            await registration.synced()
            happened = [Added(red, initial=True)]
            assert told == happened
            came = api.put("x/blue", "red")
            await settle()
            still = api.put("x/blue", "red", labels={"a": "b"})
            await settle()
            left = api.put("x/blue", "green")
            await settle()
            api.put("x/blue", "blue")
            await settle()
            api.delete("x/blue")
            await settle()
            assert told[1:] == [Added(came), Updated(came, still), Deleted(left)]
            api.delete("x/red")
            await settle()
            assert isinstance(told[-1], Deleted)
            assert len(told) == 5

    check()


@virtual_time
async def test_objects_that_do_not_fit_are_told_at_once_though_the_handler_is_busy() -> None:
    api = ScriptedClient()
    api.put("x/a")
    api.unreadable.append(unreadable("x/bad", 42))
    heard: list[UndecodableObject] = []
    async with running(api) as (informer, _):
        informer.add_handler(Slow(float("inf")), undecodable=heard.append)
        await settle()
        assert heard == [], "what was there is told in its turn"
        worse = unreadable("x/worse", 9999)
        api.send(Failed("ADDED", worse))
        await settle()
        assert heard == [worse]


@virtual_time
async def test_an_async_handler_goes_on_when_the_cache_runs_again() -> None:
    api = ScriptedClient()
    a = api.put("x/a")
    slow = Slow(1.0)
    cache = Cache(api.client)
    cache.declare(Widget).add_handler(slow)
    async with cache.running():
        await cache.synced()
        await settle()
        b = api.put("x/b")
        await settle()
    assert (slow.told, slow.cancelled) == ([Added(a, initial=True)], 1)
    api.delete("x/a")
    async with cache.running():
        await asyncio.sleep(5)
    assert slow.told[1:] == [Added(b), Deleted(a, final=False)]


@virtual_time
async def test_a_cache_that_stops_while_a_full_read_is_told_leaves_no_handler_behind_the_store() -> None:
    api = ScriptedClient()
    for number in range(3 * STEPS):
        api.put(f"x/{number}")
    cache = Cache(api.client)
    informer = cache.declare(Widget)
    told: Told = []
    informer.add_handler(told.append)
    async with cache.running():
        for _turn in range(100):
            await asyncio.sleep(0)
            if told:
                break
        assert 0 < len(told) < len(informer.store)
    assert len(told) == len(informer.store) == 3 * STEPS
