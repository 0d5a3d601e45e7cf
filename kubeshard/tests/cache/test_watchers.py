"""A watcher on virtual time against a scripted API server: its documented guarantees, and how gaps are reported."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from scripted_client import ScriptedClient, Widget, unreadable

from kubeshard.cache import Complete, Interrupted, Vanished, WatcherEvent, watcher
from kubeshard.cache.watchers import AHEAD
from kubeshard.client import Changed, Failed
from kubeshard.core.errors import (
    ApiError,
    ConfigurationError,
    Forbidden,
    Gone,
    Invalid,
    KubeshardError,
    Timeout,
    Unavailable,
)
from kubeshard.core.namespaces import ALL, AllNamespaces
from kubeshard.core.objects import Key
from kubeshard.core.selectors import Selector
from kubeshard.listwatch.reflector import READ_DEADLINE
from kubeshard_lab.virtual_time import settle, virtual_time

Told = list[WatcherEvent[Widget]]


class Api(ScriptedClient):
    def lose(self, *keys: str) -> None:
        """Removes objects and compacts away the events that a watch would have received."""
        for key in keys:
            self.delete(key)
        self.compacted = self.version


@asynccontextmanager
async def listening(api: Api, namespace: str | AllNamespaces = ALL, **options: Any) -> AsyncIterator[Told]:
    """Yields the watcher's events, from its first full read on."""
    told: Told = []

    async def listen() -> None:
        async with aclosing(watcher(api.client, Widget, namespace, **options)) as events:
            async for event in events:
                told.append(event)

    task = asyncio.create_task(listen())
    await settle()
    try:
        yield told
    finally:
        task.cancel()
        await asyncio.wait([task])
    assert not api.streams, "the watcher left its watch open"


def since_the_gap(told: Told) -> Told:
    """Returns the events after the last interruption."""
    last = max(number for number, event in enumerate(told) if isinstance(event, Interrupted))
    return told[last + 1 :]


@virtual_time
async def test_existing_objects_come_first_then_the_marker_then_changes() -> None:
    api = Api()
    a = api.put("x/a", "red")
    async with listening(api) as told:
        complete = Complete(str(api.version))
        b = api.put("x/b")
        a2 = api.put("x/a", "blue")
        api.delete("x/b")
        await settle()
    gone = told.pop()
    assert told == [Changed("ADDED", a), complete, Changed("ADDED", b), Changed("MODIFIED", a2)]
    assert isinstance(gone, Changed)
    assert (gone.type, gone.object.key) == ("DELETED", b.key)
    assert gone.object.metadata.resource_version == str(api.version)


@virtual_time
async def test_a_kind_without_objects_is_complete_at_once() -> None:
    async with listening(Api()) as told:
        assert told == [Complete("100")]


@virtual_time
async def test_a_server_without_streaming_lists_is_listed() -> None:
    api = Api()
    a = api.put("x/a")
    api.refuse.append(Invalid("sendInitialEvents is forbidden", code=422))
    async with listening(api) as told:
        assert told == [Changed("ADDED", a), Complete("101")]
        assert [request.what for request in api.requests] == ["stream", "list", "watch"]


@virtual_time
async def test_a_watch_that_broke_goes_on_where_it_was_and_repeats_nothing() -> None:
    api = Api()
    api.put("x/a")
    async with listening(api) as told:
        api.end_streams(Unavailable("connection reset"))
        await settle()
        assert isinstance(told[-1], Interrupted)
        assert isinstance(told[-1].error, Unavailable)
        b = api.put("x/b")
        await asyncio.sleep(5)
        assert since_the_gap(told) == [Changed("ADDED", b)]
        assert [request.what for request in api.requests] == ["stream", "probe", "watch"]


@virtual_time
async def test_a_watch_that_ended_in_good_order_is_opened_again_without_a_word() -> None:
    api = Api()
    api.put("x/a")
    async with listening(api) as told:
        before = list(told)
        for _minute in range(8):
            await asyncio.sleep(60)
            api.bookmark()
        await settle()
        api.end_streams()
        b = api.put("x/b")
        await settle()
        assert told == [*before, Changed("ADDED", b)]


@virtual_time
async def test_after_a_gap_what_is_new_is_told_and_what_is_gone_has_vanished() -> None:
    api = Api()
    gone, recreated, changed, same = (
        api.put(f"x/{name}") for name in ("gone", "recreated", "changed", "same")
    )
    async with listening(api) as told:
        api.end_streams(Gone("expired", code=410))
        await settle()
        assert isinstance(told[-1], Interrupted)
        api.lose("x/gone", "x/recreated")
        anew, changed, new = api.put("x/recreated"), api.put("x/changed", "blue"), api.put("x/new")
        await asyncio.sleep(5)
        seen = since_the_gap(told)
        assert seen[0] == Vanished(Key("x", "gone"), gone.metadata.uid)
        assert seen[-1] == Complete(str(api.version))
        assert sorted(seen[1:-1], key=str) == sorted(
            [
                Vanished(Key("x", "recreated"), recreated.metadata.uid),
                Changed("ADDED", anew),
                Changed("MODIFIED", changed),
                Changed("ADDED", new),
            ],
            key=str,
        )
        assert same not in [event.object for event in seen if isinstance(event, Changed)]
        assert seen.index(Vanished(Key("x", "recreated"), recreated.metadata.uid)) < seen.index(
            Changed("ADDED", anew)
        )


@virtual_time
async def test_after_a_restore_every_object_is_told_again() -> None:
    api = Api()
    a = api.put("x/a")
    async with listening(api) as told:
        api.version -= 50
        api.end_streams(Gone("expired", code=410))
        await asyncio.sleep(5)
        assert since_the_gap(told) == [Changed("MODIFIED", a), Complete(str(api.version))]


@virtual_time
async def test_an_object_that_does_not_fit_is_told_as_such_and_hides_no_other() -> None:
    api = Api()
    api.unreadable = [unreadable("x/bad", 100)]
    a = api.put("x/a")
    async with listening(api) as told:
        worse = unreadable("x/bad", 9999)
        api.send(Failed("DELETED", worse))
        await settle()
        assert told[0] == Changed("ADDED", a)
        assert told[1:] == [Failed("ADDED", api.unreadable[0]), Complete("101"), Failed("DELETED", worse)]


@virtual_time
@pytest.mark.parametrize("error", [Forbidden("no", code=403), ConfigurationError("no such file")], ids=str)
async def test_errors_are_told_and_everything_is_tried_again_at_growing_intervals(error: ApiError) -> None:
    api = Api()
    a = api.put("x/a")
    api.down = error
    async with listening(api) as told:
        await asyncio.sleep(300)
        pauses = [event.seconds for event in told if isinstance(event, Interrupted)]
        assert len(pauses) == len(told) > 4
        assert 0.8 <= pauses[0] <= 1.6
        assert 20 < max(pauses) <= 60
        api.down = None
        await asyncio.sleep(70)
        assert since_the_gap(told) == [Changed("ADDED", a), Complete("101")]


@virtual_time
async def test_only_what_is_selected_is_told() -> None:
    api = Api()
    api.put("x/other")
    async with listening(api, "y", label_selector=Selector.parse("app=web")) as told:
        web = api.put("y/a", labels={"app": "web"})
        api.put("y/b")
        left = api.put("y/a")
        await settle()
        assert told[:2] == [Complete("101"), Changed("ADDED", web)]
        assert isinstance(told[2], Changed)
        assert (told[2].type, told[2].object.key) == ("DELETED", left.key)


@virtual_time
async def test_a_consumer_that_stops_leaves_nothing_open() -> None:
    api = Api()
    api.put("x/a")
    async with aclosing(watcher(api.client, Widget, ALL)) as events:
        async for _ in events:
            break
    assert not api.streams
    assert len(asyncio.all_tasks()) == 1


@virtual_time
async def test_a_slow_consumer_holds_up_the_connection_and_hardly_any_events_wait_for_it() -> None:
    api = Api()
    for number in range(1000):
        api.put(f"x/{number}")
    async with aclosing(watcher(api.client, Widget, ALL)) as events:
        told = [await anext(events)]
        (stream,) = api.streams
        for number in range(500):
            api.put(f"x/{number}", "blue")
        await settle()
        assert stream.queue.qsize() == 500, "it read on"
        while len(told) < 1501:
            told.append(await anext(events))
        assert told[1000] == Complete("1100")
        for number in range(500):
            api.put(f"x/{number}", "red")
        told.append(await anext(events))
        await settle()
        assert stream.queue.qsize() == 500 - (1 + AHEAD)


@virtual_time
async def test_a_watch_that_stays_silent_is_told_as_an_interruption_and_tried_again_at_once() -> None:
    api = Api()
    async with listening(api) as told:
        await asyncio.sleep(READ_DEADLINE + 1)
        assert [type(event) for event in told] == [Complete, Interrupted, Complete]
        interrupted = told[1]
        assert isinstance(interrupted, Interrupted)
        assert (type(interrupted.error), interrupted.seconds) == (Timeout, 0.0)


@virtual_time
async def test_a_bug_ends_the_iteration_and_is_not_taken_for_an_error_of_the_server() -> None:
    api = Api()
    api.down = KubeshardError("a bug")
    async with aclosing(watcher(api.client, Widget, ALL)) as events:
        with pytest.raises(KubeshardError, match="a bug"):
            await anext(events)
