"""Informers on virtual time against a scripted API server: what handlers and readers see, whatever fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from scripted_client import Request, ScriptedClient, Widget, unreadable

from kubeshard.cache import Added, Cache, Deleted, Delta, Informer, Scope, Updated
from kubeshard.client.watching import Failed
from kubeshard.controller.syncing import SILENCE
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.errors import (
    ApiError,
    ConfigurationError,
    Gone,
    Invalid,
    NotFound,
    Throttled,
    Unauthorized,
    Unavailable,
)
from kubeshard.core.objects import Key
from kubeshard.core.selectors import Selector
from kubeshard.listwatch.reflector import READ_DEADLINE
from kubeshard.runtime.pace import STEPS
from kubeshard_lab.virtual_time import settle, virtual_time

Told = list[Delta[Widget]]


def cache_of(api: ScriptedClient, **options: object) -> Cache:
    return Cache(api.client, **options)  # type: ignore[arg-type]  # passed on


@asynccontextmanager
async def watching(
    api: ScriptedClient, scope: Scope | None = None, *, streaming: bool = True
) -> AsyncIterator[tuple[Informer[Widget], Told]]:
    """Runs a synced informer; yields it and the deltas that its handler has received."""
    cache = cache_of(api, streaming_lists=streaming)
    told: Told = []
    informer = cache.declare(Widget, scope)
    informer.add_handler(told.append)
    async with cache.running():
        await informer.synced()
        yield informer, told
    assert len(asyncio.all_tasks()) == 1, "the cache left tasks behind"


@virtual_time
async def test_existing_objects_come_first_then_changes() -> None:
    api = ScriptedClient()
    a = api.put("x/a", "red")
    async with watching(api) as (informer, told):
        assert told == [Added(a, initial=True)]
        b = api.put("x/b")
        a2 = api.put("x/a", "blue")
        api.delete("x/b")
        await settle()

        assert told[1:3] == [Added(b), Updated(a, a2)]
        assert isinstance(told[3], Deleted)
        assert told[3].final
        assert told[3].object.metadata.resource_version == str(api.version)
        assert informer.store.list() == [a2]
        assert informer.store.resource_version == str(api.version)


@virtual_time
async def test_objects_are_streamed_in_one_request_where_the_server_can() -> None:
    api = ScriptedClient()
    api.put("x/a")
    async with watching(api):
        assert api.requests == [Request(0.0, "stream")]


@virtual_time
async def test_a_server_without_streaming_lists_is_listed_and_asked_only_once() -> None:
    api = ScriptedClient()
    a = api.put("x/a")
    api.refuse.append(Invalid("sendInitialEvents is forbidden", code=422))
    async with watching(api) as (informer, told):
        assert told == [Added(a, initial=True)]
        await settle()
        api.end_streams(Gone("expired", code=410))
        await asyncio.sleep(10)
        assert [request.what for request in api.requests] == ["stream", "list", "watch", "list", "watch"]
        assert informer.full_reads == 2


@virtual_time
async def test_no_request_ever_names_version_zero() -> None:
    api = ScriptedClient()
    async with watching(api, streaming=False):
        await settle()
        api.end_streams(Gone("expired", code=410))
        await asyncio.sleep(10)
        assert [request.resource_version for request in api.requests] == ["", "100", "", "100"]


@virtual_time
async def test_a_broken_watch_goes_on_where_it_was_and_misses_nothing() -> None:
    api = ScriptedClient()
    async with watching(api) as (informer, told):
        a = api.put("x/a")
        await settle()
        api.end_streams(Unavailable("connection reset"))
        await settle()
        assert isinstance(informer.last_error, Unavailable)
        b = api.put("x/b")
        await asyncio.sleep(2)
        assert told == [Added(a), Added(b)]
        assert api.requests[-1].resource_version == a.metadata.resource_version
        assert informer.last_error is None
        assert informer.full_reads == 1


@virtual_time
async def test_a_watch_that_ended_in_good_order_is_reopened_at_once_after_its_last_bookmark() -> None:
    api = ScriptedClient()
    async with watching(api) as (informer, _):
        api.version += 50
        api.bookmark()
        await asyncio.sleep(5)
        api.end_streams()
        await settle()
        assert api.requests[-1] == Request(5.0, "watch", "150")
        assert informer.store.resource_version == "150"


@virtual_time
async def test_what_was_missed_behind_a_compaction_is_found_by_a_full_read() -> None:
    api = ScriptedClient()
    gone, recreated, kept = api.put("x/gone"), api.put("x/recreated"), api.put("x/kept")
    async with watching(api) as (informer, told):
        del told[:]
        api.end_streams(Unavailable("connection reset"))
        await settle()
        api.delete("x/gone")
        api.delete("x/recreated")
        again = api.put("x/recreated")
        changed = api.put("x/kept", "blue")
        api.compacted = api.version
        await asyncio.sleep(10)
        assert [r.what for r in api.requests] == ["stream", "probe", "watch", "stream"]
        assert set(told[:2]) == {Deleted(gone, final=False), Deleted(recreated, final=False)}
        assert set(told[2:]) == {Added(again), Updated(kept, changed, relisted=True)}
        assert set(informer.store.list()) == {again, changed}


@virtual_time
async def test_a_silent_watch_is_noticed_and_everything_read_again() -> None:
    api = ScriptedClient()
    async with watching(api) as (informer, _):
        await asyncio.sleep(76)
        assert api.requests == [
            Request(0.0, "stream"),
            Request(75.0, "stream"),
        ]
        assert informer.last_heard == 75.0
        assert informer.full_reads == 2


@pytest.mark.regression
def test_a_quiet_watch_is_not_cut_before_its_bookmark_and_reopened_before_it_counts_as_deaf() -> None:
    bookmark = 60.0
    assert bookmark + 15 <= READ_DEADLINE
    assert SILENCE >= READ_DEADLINE + 15


@virtual_time
async def test_bookmarks_keep_a_quiet_watch_alive() -> None:
    api = ScriptedClient()
    async with watching(api) as (informer, _):
        for _minute in range(5):
            await asyncio.sleep(60)
            api.bookmark()
        await settle()
        assert len(api.requests) == 1
        assert informer.last_heard == 300.0


@pytest.mark.parametrize("error", [Throttled("slow down", code=429), Unavailable("refused")])
def test_a_watch_that_cannot_be_opened_for_a_moment_goes_on_at_the_same_version_without_a_full_read(
    error: ApiError,
) -> None:
    @virtual_time
    async def check() -> None:
        api = ScriptedClient()
        async with watching(api) as (informer, _):
            await asyncio.sleep(5)
            api.down = error
            api.end_streams()
            await settle()
            api.down = None
            await asyncio.sleep(60)
            assert informer.last_error is None
            assert [request.what for request in api.requests] == ["stream", "probe", "probe", "watch"]
            assert informer.full_reads == 1

    check()


@pytest.mark.regression
@pytest.mark.parametrize(
    ("error", "full_reads"),
    [(Unavailable("refused"), 2), (Throttled("slow down", code=429, retry_after=5), 1)],
    ids=["refused", "asked to wait"],
)
def test_a_watch_that_cannot_be_opened_for_long_goes_on_with_a_full_read_unless_the_server_asks_to_wait(
    error: ApiError, full_reads: int
) -> None:
    @virtual_time
    async def check() -> None:
        api = ScriptedClient()
        async with watching(api) as (informer, _):
            await asyncio.sleep(5)
            api.down = error
            api.end_streams()
            await asyncio.sleep(60)
            assert ("watch", "100") not in {request[1:] for request in api.requests}
            assert 4 <= len(api.requests) <= 9, "the waits between attempts do not grow"
            assert informer.last_error is error
            api.down = None
            await asyncio.sleep(60)
            assert informer.last_error is None
            assert informer.full_reads == full_reads

    check()


@pytest.mark.regression
@virtual_time
async def test_a_watch_that_ended_in_good_order_and_is_turned_away_goes_on_where_it_was() -> None:
    api = ScriptedClient()
    async with watching(api) as (informer, _):
        for _ in range(8):
            await asyncio.sleep(60)
            api.bookmark()
        api.refuse.append(Throttled("slow down", code=429, retry_after=5))
        api.end_streams()
        await settle()
        api.put("ns/meanwhile")
        await asyncio.sleep(6)
        assert [request[1:] for request in api.requests] == [
            ("stream", ""),
            ("watch", "100"),
            ("watch", "100"),
        ]
        assert informer.full_reads == 1
        assert informer.store.get(Key("ns", "meanwhile"))


@pytest.mark.regression
@virtual_time
async def test_a_server_that_ignores_the_wish_for_a_streaming_list_is_listed_at_its_first_bookmark() -> None:
    api = ScriptedClient()
    api.streams_lists = False
    api.put("ns/a")
    asyncio.get_running_loop().call_later(60, api.bookmark)
    async with watching(api) as (informer, _):
        assert asyncio.get_running_loop().time() == 60
        assert [request.what for request in api.requests] == ["stream", "list", "watch"]
        api.put("ns/b")
        await settle()
        assert {obj.key for obj in informer.store.list()} == {Key("ns", "a"), Key("ns", "b")}


@virtual_time
async def test_a_full_read_that_fails_replaces_nothing() -> None:
    api = ScriptedClient()
    a = api.put("x/a")
    async with watching(api) as (informer, told):
        api.down = Unavailable("status 200 with HTML of a load balancer")
        api.end_streams(Gone("expired", code=410))
        await asyncio.sleep(300)
        assert informer.store.list() == [a]
        assert told == [Added(a, initial=True)]


@virtual_time
async def test_credentials_that_are_unusable_for_a_while_end_nothing() -> None:
    api = ScriptedClient()
    async with watching(api) as (informer, _):
        await asyncio.sleep(5)
        api.down = ConfigurationError("the token file is missing")
        api.end_streams()
        await asyncio.sleep(60)
        assert isinstance(informer.last_error, Unauthorized)
        api.down = None
        await asyncio.sleep(60)
        assert informer.last_error is None


@virtual_time
async def test_a_kind_that_is_installed_later_is_found_within_ten_seconds() -> None:
    api = ScriptedClient()
    api.down = NotFound("the server does not serve this path", code=404)
    cache = cache_of(api)
    informer = cache.declare(Widget)
    async with cache.running():
        await asyncio.sleep(600)
        assert not informer.has_synced
        assert isinstance(informer.last_error, NotFound)
        api.down = None
        api.put("x/a")
        async with asyncio.timeout(10):
            await cache.synced()
        assert informer.last_error is None
        assert len(informer.store) == 1


@virtual_time
async def test_an_object_that_leaves_the_selector_leaves_the_cache() -> None:
    api = ScriptedClient()
    a = api.put("x/a", labels={"shard": "me"})
    api.put("x/b", labels={"shard": "other"})
    async with watching(api, Scope(labels=Selector.equals("shard", "me"))) as (informer, told):
        assert told == [Added(a, initial=True)]
        api.put("x/a", labels={"shard": "other"})
        await settle()
        assert isinstance(told[-1], Deleted)
        assert told[-1].object.metadata.label("shard") == "me"
        assert Key("x", "a") in api.objects, "it still exists"
        back = api.put("x/a", labels={"shard": "me"})
        await settle()
        assert told[-1] == Added(back)
        assert informer.store.list() == [back]


@virtual_time
async def test_namespaces_of_a_scope_are_watched_one_by_one_and_read_as_one() -> None:
    api = ScriptedClient()
    a, b = api.put("x/a"), api.put("y/b")
    api.put("z/c")
    async with watching(api, Scope(namespaces=frozenset({"x", "y"}))) as (informer, told):
        assert informer.store.list() == [a, b]
        assert len(api.streams) == 2
        d = api.put("y/d")
        api.put("z/e")
        await settle()
        assert told == [Added(a, initial=True), Added(b, initial=True), Added(d)]


@virtual_time
async def test_a_scope_without_namespaces_is_empty_and_synced() -> None:
    async with watching(ScriptedClient(), Scope(namespaces=frozenset())) as (informer, told):
        assert informer.store.list() == []
        assert informer.last_heard is None
        assert told == []


@virtual_time
async def test_of_several_namespaces_the_one_that_is_silent_decides() -> None:
    api = ScriptedClient()
    async with watching(api, Scope(namespaces=frozenset({"x", "y"}))) as (informer, _):
        await asyncio.sleep(30)
        api.put("x/a")
        await settle()
        assert informer.last_heard == 0.0
        assert informer.store.resource_version == "100"
        assert informer.store.complete_up_to("x") == "101"


@virtual_time
async def test_a_late_handler_hears_of_everything_once() -> None:
    api = ScriptedClient()
    a = api.put("x/a")
    async with watching(api) as (informer, _):
        late: Told = []
        registration = informer.add_handler(late.append)
        await registration.synced()
        assert late == [Added(a, initial=True)]
        b = api.put("x/b")
        await settle()
        assert late[1:] == [Added(b)]
        registration.remove()
        api.put("x/c")
        await settle()
        assert len(late) == 2


@virtual_time
async def test_a_handler_added_while_a_full_read_is_told_hears_of_everything_once() -> None:
    api = ScriptedClient()
    for number in range(600):
        api.put(f"x/{number}")
    cache = cache_of(api)
    informer = cache.declare(Widget)
    late: Told = []

    def first(delta: Delta[Widget]) -> None:
        if isinstance(delta, Added) and delta.object.metadata.name == "300":
            informer.add_handler(late.append)

    informer.add_handler(first)
    async with cache.running():
        await cache.synced()
        await settle()
        assert len(late) == 600
        api.put("x/0", "blue")
        await settle()
        assert isinstance(late[600], Updated)


@pytest.mark.regression
@virtual_time
async def test_a_handler_added_to_a_large_cache_lets_others_run_and_hears_what_happens_meanwhile_in_order() -> (
    None
):
    api = ScriptedClient()
    for number in range(5000):
        api.put(f"x/{number}")
    async with watching(api) as (informer, _):
        late: Told = []
        registration = informer.add_handler(late.append)
        synced = asyncio.create_task(registration.synced())
        turns, longest = 0, 0
        while registration.behind:
            before = len(late)
            await asyncio.sleep(0)
            turns, longest = turns + 1, max(longest, len(late) - before)
            if turns == 3:
                changed, gone, new = api.put("x/4999", "blue"), api.delete("x/0"), api.put("x/new")
            assert registration.behind or synced.done() or len(late) == 5003
        assert longest <= STEPS
        assert turns > 15
        await synced
        copy: dict[Key, Widget] = {}
        for delta in late:
            match delta:
                case Added(obj):
                    assert obj.key not in copy
                    copy[obj.key] = obj
                case Updated(old, obj):
                    assert copy[old.key] is old
                    copy[obj.key] = obj
                case Deleted(obj):
                    del copy[obj.key]
        assert copy == {obj.key: obj for obj in informer.store.list()}
        assert len(late) == 5003
        assert [type(delta) for delta in late[5000:]] == [Updated, Deleted, Added]
        assert (copy[changed.key], copy[new.key], gone.key in copy) == (changed, new, False)
        last = api.put("x/last")
        await settle()
        assert late[5003:] == [Added(last)]


@virtual_time
async def test_a_handler_that_goes_while_it_catches_up_hears_no_more_and_is_waited_for_no_longer() -> None:
    api = ScriptedClient()
    for number in range(1000):
        api.put(f"x/{number}")
    async with watching(api) as (informer, _):
        late: Told = []
        registration = informer.add_handler(late.append)
        await asyncio.sleep(0)
        registration.remove()
        heard = len(late)
        await registration.synced()
        api.put("x/new")
        await settle()
        assert len(late) == heard < 1000


@virtual_time
async def test_a_handler_for_what_comes_later_hears_nothing_of_what_is_there() -> None:
    api = ScriptedClient()
    api.put("x/a")
    async with watching(api) as (informer, _):
        late: Told = []
        informer.add_handler(late.append, existing=False)
        b = api.put("x/b")
        await settle()
        assert late == [Added(b)]


@virtual_time
async def test_a_handler_that_raises_harms_nobody_and_is_counted() -> None:
    api = ScriptedClient()
    api.put("x/a")
    cache = cache_of(api)
    informer = cache.declare(Widget)
    told: Told = []

    def broken(_: Delta[Widget]) -> None:
        raise RuntimeError("bug")

    informer.add_handler(broken)
    informer.add_handler(told.append)
    async with cache.running():
        await cache.synced()
        api.put("x/b")
        await settle()
        assert len(told) == 2
        assert informer.handler_errors == 2


@virtual_time
async def test_handlers_find_in_the_store_what_they_are_told() -> None:
    api = ScriptedClient()
    a = api.put("x/a")
    cache = cache_of(api)
    informer = cache.declare(Widget)
    seen: list[Widget | None] = []
    informer.add_handler(lambda _: seen.append(cache.get(Widget, "a", "x")))
    async with cache.running():
        await cache.synced()
        a2 = api.put("x/a", "blue")
        await settle()
        api.delete("x/a")
        await settle()
    assert seen == [a, a2, None]


@virtual_time
async def test_others_run_while_thousands_of_objects_arrive() -> None:
    api = ScriptedClient()
    for number in range(5000):
        api.put(f"x/{number}")
    cache = cache_of(api)
    cache.declare(Widget)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with cache.running():
        task = asyncio.create_task(other())
        await cache.synced()
        task.cancel()
    assert turns > 30


@pytest.mark.parametrize("streaming", [True, False])
def test_an_object_that_does_not_fit_is_counted_and_never_fails_the_list(streaming: bool) -> None:
    @virtual_time
    async def check() -> None:
        api = ScriptedClient()
        fine = api.put("x/fine")
        api.unreadable.append(unreadable("x/bad", 42))
        async with watching(api, streaming=streaming) as (informer, _):
            await settle()
            assert informer.store.list() == [fine]
            assert informer.undecodable == 1
            with pytest.raises(UndecodableObject):
                informer.store.get(Key("x", "bad"))
            api.send(Failed("MODIFIED", unreadable("x/fine", 9999)))
            api.send(Failed("ADDED", UndecodableObject(informer.form, "no object", None)))
            await settle()
            assert informer.store.list() == []
            assert informer.undecodable == 3

    check()


@virtual_time
async def test_kubectls_copy_of_the_object_is_not_kept() -> None:
    api = ScriptedClient()
    api.put("x/a", annotations={"kubectl.kubernetes.io/last-applied-configuration": "{}", "mine": "1"})
    async with watching(api) as (informer, _):
        (stored,) = informer.store.list()
        assert stored.metadata.annotations == {"mine": "1"}
