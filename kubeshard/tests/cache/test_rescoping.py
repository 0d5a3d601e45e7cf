"""An informer whose scope changes while it runs: readers and handlers switch to the new scope without a gap."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_client import ScriptedClient, ScriptedWatch, Stream, Widget, WidgetSpec, unreadable

from kubeshard import ALL
from kubeshard.cache import (
    Added,
    Cache,
    CacheBehind,
    Deleted,
    Delta,
    Informer,
    OutsideScope,
    Scope,
    UndeclaredKind,
    Updated,
)
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.errors import ConfigurationError, Forbidden, Gone, Unavailable
from kubeshard.core.objects import Key
from kubeshard.core.selectors import FieldSelector, Selector
from kubeshard.runtime.pace import STEPS
from kubeshard_lab.virtual_time import settle, virtual_time


class Api(ScriptedClient):
    """An API whose watches can lag: events that happen after they were opened are delayed."""

    def __init__(self) -> None:
        super().__init__()
        self.lagging = False
        self.held: list[Stream] = []

    @asynccontextmanager
    async def watch(self, *place: Any, **options: Any) -> AsyncIterator[ScriptedWatch]:
        async with super().watch(*place, **options) as events:
            if self.lagging:
                self.streams[-1].hold()
                self.held.append(self.streams[-1])
            yield events

    def arrive(self) -> None:
        """Delivers the delayed events."""
        self.lagging = False
        for stream in self.held:
            while stream.queue is not stream.live and not stream.queue.empty():
                stream.live.put_nowait(stream.queue.get_nowait())
            stream.queue = stream.live
        self.held.clear()


def namespaces(*names: str) -> Scope:
    return Scope(namespaces=frozenset(names))


X, Y, XY = namespaces("x"), namespaces("y"), namespaces("x", "y")
MINE = Scope(labels=Selector.equals("shard", "me"))


class World(NamedTuple):
    api: Api
    cache: Cache
    informer: Informer[Widget]
    told: list[Delta[Widget]]

    def known(self) -> dict[Key, Widget]:
        """Returns the copy that a handler keeps if it trusts its deltas; fails on a lost or duplicate delta."""
        known: dict[Key, Widget] = {}
        for delta in self.told:
            match delta:
                case Added(obj):
                    assert obj.key not in known
                    known[obj.key] = obj
                case Updated(old, new):
                    assert known[old.key] is old
                    assert int(old.metadata.resource_version) < int(new.metadata.resource_version)
                    known[new.key] = new
                case Deleted(last):
                    assert known.pop(last.key).metadata.uid == last.metadata.uid
        return known


@asynccontextmanager
async def world(scope: Scope, *objects: str) -> AsyncIterator[World]:
    api = Api()
    for key in objects:
        api.put(key)
    cache = Cache(api.client, default_scope=scope)
    informer = cache.declare(Widget)
    told: list[Delta[Widget]] = []
    informer.add_handler(told.append)
    async with cache.running():
        await cache.synced()
        yield World(api, cache, informer, told)
    assert len(asyncio.all_tasks()) == 1, "the cache left tasks behind"


def names(objects: Sequence[Widget]) -> list[str]:
    return sorted(str(obj.key) for obj in objects)


def watched(streams: Sequence[Stream]) -> list[str]:
    return sorted(str(stream.namespace) for stream in streams)


@virtual_time
async def test_what_leaves_is_told_as_not_final_and_what_comes_as_added_and_what_stays_not_at_all() -> None:
    async with world(namespaces("x", "y"), "x/a", "y/b", "z/c") as (api, cache, informer, told):
        del told[:]
        b = informer.store.get(Key("y", "b"))
        await cache.rescope(informer, namespaces("y", "z"))
        assert informer.scope == namespaces("y", "z")
        assert [type(delta) for delta in told] == [Deleted, Added]
        assert isinstance(told[0], Deleted)
        assert (told[0].object.metadata.name, told[0].final) == ("a", False)
        assert told[1] == Added(api.objects[Key("z", "c")])
        assert informer.store.get(Key("y", "b")) is b
        await settle()
        assert watched(api.streams) == ["y", "z"]
        api.put("x/d")
        e = api.put("z/e")
        await settle()
        assert told[2:] == [Added(e)]


@virtual_time
async def test_a_namespace_of_both_scopes_is_not_read_again() -> None:
    async with world(XY, "x/a", "y/b") as (api, cache, informer, _):
        before = len(api.requests)
        await cache.rescope(informer, X)
        assert len(api.requests) == before
        assert names(informer.store.list()) == ["x/a"]
        await settle()
        assert watched(api.streams) == ["x"]


@pytest.mark.parametrize(
    ("before", "after"),
    [(Scope(), X), (X, Scope()), (XY, MINE), (MINE, Scope()), (X, namespaces()), (namespaces(), XY)],
    ids=["all-one", "one-all", "two-labels", "labels-all", "one-none", "none-two"],
)
def test_any_scope_can_follow_any_other(before: Scope, after: Scope) -> None:
    @virtual_time
    async def check() -> None:
        async with world(before) as w:
            api, cache, informer, _ = w
            for number, namespace in enumerate("xyxyz"):
                api.put(f"{namespace}/{number}", labels={"shard": "me"} if number % 2 else {})
            await settle()
            await cache.rescope(informer, after)
            selected = [obj for obj in api.objects.values() if after.may_select(Widget.KIND, obj.metadata)]
            assert names(informer.store.list()) == names(selected)
            assert w.known() == {obj.key: obj for obj in selected}
            api.put("x/more", labels={"shard": "me"})
            await settle()
            assert len(w.known()) == len(selected) + bool(after != namespaces())

    check()


@virtual_time
async def test_the_old_scope_is_read_and_followed_until_all_of_the_new_one_has_been_read() -> None:
    async with world(X, "x/a", "y/b") as (api, cache, informer, told):
        del told[:]
        api.refuse.extend([Forbidden("no", code=403)] * 3)
        moving = asyncio.create_task(cache.rescope(informer, Y))
        await asyncio.sleep(1)
        c = api.put("x/c")
        await settle()
        assert told == [Added(c)]
        assert cache.get(Widget, "c", "x") == c
        with pytest.raises(OutsideScope):
            cache.get(Widget, "b", "y")
        assert informer.errors["Forbidden"] >= 1
        assert informer.last_error is None, "the scope that is in force works"
        assert isinstance(informer.listing_error, Forbidden)
        await moving
        assert names(cache.list(Widget, "y")) == ["y/b"]
        with pytest.raises(OutsideScope):
            cache.get(Widget, "c", "x")


@virtual_time
async def test_a_rescoping_that_is_cancelled_leaves_everything_as_it_was() -> None:
    async with world(X, "x/a") as (api, cache, informer, told):
        api.down = Forbidden("no", code=403)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(20):
                await cache.rescope(informer, Y)
        api.down = None
        await settle()
        assert watched(api.streams) == ["x"]
        b = api.put("x/b")
        await asyncio.sleep(60)
        assert told[-1] == Added(b)
        assert informer.scope == X
        await cache.rescope(informer, Y)
        assert names(informer.store.list()) == []


@virtual_time
async def test_a_rescoping_waits_for_an_earlier_one_and_needs_a_cache_that_runs() -> None:
    cache = Cache(ScriptedClient().client)
    with pytest.raises(RuntimeError, match="run the cache first"):
        await cache.rescope(cache.declare(Widget), X)
    async with world(X) as (api, cache, informer, _):
        api.down = Forbidden("no", code=403)
        moving = asyncio.create_task(cache.rescope(informer, Y))
        await asyncio.sleep(1)
        next_ = asyncio.create_task(cache.rescope(informer, XY))
        api.down = None
        await moving
        assert informer.scope == Y
        before = len(api.requests)
        await next_
        assert informer.scope == XY
        assert len(api.requests) == before + 1, "one namespace had been listed"
        api.down = Forbidden("no", code=403)
        moving = asyncio.create_task(cache.rescope(informer, namespaces("z")))
        next_ = asyncio.create_task(cache.rescope(informer, Y))
        await asyncio.sleep(1)
        cache.remove(informer)
        with pytest.raises(RuntimeError, match="was stopped"):
            await moving
        with pytest.raises(RuntimeError, match="run the cache first"):
            await next_


@virtual_time
async def test_an_informer_that_is_stopped_meanwhile_stays_in_its_scope_though_a_handler_takes_long_to_end() -> (
    None
):
    async with world(X, "x/a") as (api, cache, informer, _):

        async def stubborn(delta: Delta[Widget]) -> None:
            try:
                await asyncio.sleep(float("inf"))
            finally:
                await asyncio.sleep(10)

        informer.add_handler(stubborn)
        api.down = Forbidden("no", code=403)
        moving = asyncio.create_task(cache.rescope(informer, Y))
        await asyncio.sleep(1)
        cache.remove(informer)
        with pytest.raises(RuntimeError, match="was stopped"):
            await moving
        with pytest.raises(RuntimeError, match="does not run"):
            await informer.rescope(Y, lambda: None)
        late: list[Delta[Widget]] = []
        informer.add_handler(late.append)
        assert informer.scope == X
        assert late == [Added(obj, initial=True) for obj in informer.store.list()]
        assert names(informer.store.list()) == ["x/a"]


@virtual_time
async def test_an_informer_does_not_take_the_place_of_another() -> None:
    async with world(X, "x/a") as (api, cache, informer, _):
        cache.declare(Widget, Y)
        await settle()
        with pytest.raises(ConfigurationError, match="an informer in that scope already"):
            await cache.rescope(informer, Y)
        api.refuse.append(Forbidden("no", code=403))
        moving = asyncio.create_task(cache.rescope(informer, XY))
        await asyncio.sleep(0.1)
        other = cache.declare(Widget, XY)
        with pytest.raises(ConfigurationError, match="an informer in that scope already"):
            await moving
        assert (informer.scope, cache.informer(Widget, XY)) == (X, other)


@virtual_time
async def test_who_declared_the_old_scope_goes_on_reading_the_informer() -> None:
    async with world(X, "y/b") as (_, cache, informer, _):
        await cache.rescope(informer, Y)
        assert cache.scope_of(Widget.KIND) == Y
        assert cache.informer(Widget) is cache.informer(Widget, X) is cache.informer(Widget, Y) is informer
        assert names(cache.list(Widget, ALL, scope=X)) == ["y/b"]
        anew = cache.declare(Widget, X)
        assert cache.informer(Widget, X) is anew
        await cache.rescope(informer, namespaces("z"))
        await cache.rescope(informer, Y)
        assert cache.informer(Widget) is informer
        cache.remove(informer)
        assert cache.informers == (anew,)


@virtual_time
async def test_scopes_that_nobody_asked_for_are_not_remembered() -> None:
    async with world(X) as (_, cache, informer, _):
        for number in range(20):
            await cache.rescope(informer, namespaces(f"n{number}"))
        assert cache.informer(Widget, X) is informer
        with pytest.raises(UndeclaredKind):
            cache.informer(Widget, namespaces("n3"))
        assert len(cache._moved) == 1


@virtual_time
async def test_a_scope_that_changes_before_the_old_one_was_read_has_its_objects_told_as_initial() -> None:
    api = ScriptedClient()
    b = api.put("y/b")
    api.refuse.append(Forbidden("no", code=403))
    cache = Cache(api.client)
    informer = cache.declare(Widget, X)
    told: list[Delta[Widget]] = []
    registration = informer.add_handler(told.append)
    async with cache.running():
        await settle()
        with pytest.raises(CacheBehind):
            cache.list(Widget, "x", scope=X)
        await cache.rescope(informer, Y)
        assert informer.has_synced
        assert registration.has_synced
        assert told == [Added(b, initial=True)]


@virtual_time
async def test_indexes_hold_what_the_new_scope_has() -> None:
    api = ScriptedClient()
    for key, color in (("x/a", "red"), ("y/b", "red"), ("y/c", "blue")):
        api.put(key, color)
    cache = Cache(api.client, default_scope=X)
    cache.add_index(Widget, "color", lambda widget: [widget.spec.color])
    async with cache.running():
        await cache.synced()
        await cache.rescope(cache.informer(Widget), Y)
        assert names(cache.list(Widget, ALL, index=("color", "red"))) == ["y/b"]


@virtual_time
async def test_a_handler_added_while_the_difference_is_told_hears_of_everything_once() -> None:
    async with world(X) as (api, cache, informer, _):
        for number in range(3 * STEPS):
            api.put(f"y/{number}")
        late: list[Delta[Widget]] = []

        def first(delta: Delta[Widget]) -> None:
            if isinstance(delta, Added) and delta.object.metadata.name == "300":
                informer.add_handler(late.append)

        informer.add_handler(first)
        await cache.rescope(informer, Y)
        await settle()
        assert len(late) == 3 * STEPS


@virtual_time
async def test_what_happens_while_the_difference_is_told_is_told_after_it() -> None:
    async with world(X) as w:
        api, cache, informer, told = w
        for number in range(3 * STEPS):
            api.put(f"y/{number}")
        moving = asyncio.create_task(cache.rescope(informer, Y))
        for _turn in range(100):
            await asyncio.sleep(0)
            if told:
                break
        assert 0 < len(told) < 3 * STEPS
        last = f"y/{3 * STEPS - 1}"
        newest = api.put(last, "blue")
        gone = api.delete("y/700")
        await moving
        await settle()
        known = w.known()
        assert known[newest.key] == newest
        assert gone.key not in known
        assert len(known) == 3 * STEPS - 1


@virtual_time
async def test_a_rescoping_cancelled_while_the_difference_is_told_leaves_no_handler_behind_the_store() -> (
    None
):
    async with world(X, "x/a") as w:
        api, cache, informer, told = w
        for number in range(3 * STEPS):
            api.put(f"y/{number}")
        moving = asyncio.create_task(cache.rescope(informer, Y))
        for _turn in range(100):
            await asyncio.sleep(0)
            if len(told) > 1:
                break
        assert len(told) < 3 * STEPS
        moving.cancel()
        await asyncio.wait([moving])
        assert informer.scope == Y
        api.put("y/new")
        await settle()
        assert w.known() == {obj.key: obj for obj in informer.store.list()}
        assert len(informer.store) == 3 * STEPS + 1


@virtual_time
async def test_an_object_that_does_not_fit_stays_one_in_the_new_scope() -> None:
    async with world(X, "x/a") as (api, cache, informer, _):
        heard: list[UndecodableObject] = []
        informer.add_handler(lambda _: None, undecodable=heard.append)
        api.unreadable.append(unreadable("y/bad", 42))
        await cache.rescope(informer, Y)
        with pytest.raises(UndecodableObject):
            cache.get(Widget, "bad", "y")
        assert heard == api.unreadable


@virtual_time
async def test_a_full_read_of_the_new_scope_that_is_repeated_counts_as_one_beginning() -> None:
    async with world(X, "x/a", "y/b") as (api, cache, informer, _):
        reads = informer.full_reads
        await cache.rescope(informer, Y)
        assert informer.full_reads == reads + 1
        moment = asyncio.get_running_loop().time()
        assert not informer.read_after("y", moment)
        await asyncio.sleep(5)
        api.end_streams(Gone("expired", code=410))
        await asyncio.sleep(5)
        assert informer.full_reads == reads + 2
        assert informer.read_after("y", moment)
        assert not informer.read_after("x", moment)


@virtual_time
async def test_what_the_old_scope_showed_meanwhile_is_not_undone_by_what_the_new_one_read_before() -> None:
    async with world(Scope(), "y/changed", "y/gone", "y/back") as w:
        api, cache, informer, told = w
        api.lagging = True
        moving = asyncio.create_task(cache.rescope(informer, XY))
        await asyncio.sleep(0)
        api.refuse.append(Unavailable("refused"))  # one of the two namespaces is listed a second later
        await settle()
        assert watched(api.held) == ["y"]
        changed, _, new = api.put("y/changed", "blue"), api.delete("y/gone"), api.put("y/new")
        api.delete("y/back")
        back = api.put("y/back")
        await settle()
        before = list(told)
        await moving
        assert told == before, "nothing came and nothing left"
        assert set(informer.store.list()) == {changed, back, new}
        api.arrive()
        await settle()
        assert told == before
        assert w.known() == api.objects


@virtual_time
async def test_what_the_old_scope_showed_is_left_out_where_nobody_can_say_that_the_new_one_has_it() -> None:
    red = Scope(namespaces=frozenset("xy"), fields=FieldSelector.parse("spec.color=red"))
    async with world(Scope()) as (api, cache, informer, told):
        api.lagging = True
        moving = asyncio.create_task(cache.rescope(informer, red))
        await asyncio.sleep(0)
        api.refuse.append(Unavailable("refused"))
        await settle()
        assert watched(api.held) == ["y"]
        api.put("y/new")
        await moving
        assert informer.store.list() == []
        api.arrive()
        await settle()
        assert informer.store.list() == list(api.objects.values()), "its own watch tells of it"
        assert [type(delta) for delta in told] == [Added, Deleted, Added]


@pytest.mark.long
@given(
    st.sampled_from([Scope(), XY, MINE]),
    st.sampled_from([Scope(), Y, MINE, namespaces("x", "z")]),
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.sampled_from(["x/a", "y/a", "z/a", "y/b"]), st.booleans()),
            st.tuples(st.just("delete"), st.sampled_from(["x/a", "y/a", "z/a", "y/b"])),
            st.tuples(st.just("turns"), st.integers(1, 6)),
            st.tuples(st.just("refuse")),
            st.tuples(st.just("arrive")),
            st.tuples(st.just("second")),
            st.tuples(st.just("break")),
        ),
        max_size=40,
    ),
)
def test_whatever_happens_meanwhile_no_delta_is_lost_or_doubled_and_no_object_goes_back(
    before: Scope, after: Scope, actions: list[tuple[object, ...]]
) -> None:
    @virtual_time
    async def check() -> None:
        async with world(before, "x/a", "y/a", "y/b") as w:
            api, cache, informer, _ = w
            api.lagging = True
            moving = asyncio.create_task(cache.rescope(informer, after))
            for action, *arguments in actions:
                match action, *arguments:
                    case "put", str(key), mine:
                        api.put(key, labels={"shard": "me"} if mine else {})
                    case "delete", str(key) if Key(*key.split("/")) in api.objects:
                        api.delete(key)
                    case "turns", int(count):
                        for _turn in range(count):
                            await asyncio.sleep(0)
                    case ("refuse",):
                        api.refuse.append(Unavailable("refused"))
                    case ("arrive",):
                        api.arrive()
                    case ("second",):
                        await asyncio.sleep(1)
                    case ("break",):
                        api.end_streams(Gone("expired", code=410))
                w.known()
            api.arrive()
            await asyncio.sleep(3600)  # forty failures take forty backoffs
            assert moving.done()
            await moving
            selected = [obj for obj in api.objects.values() if after.may_select(Widget.KIND, obj.metadata)]
            assert names(informer.store.list()) == names(selected)
            assert w.known() == {obj.key: obj for obj in selected}

    check()


@virtual_time
async def test_a_restore_that_only_the_new_scopes_list_shows_leaves_no_object_of_the_lost_history() -> None:
    """Its version comes again with another content."""
    async with world(Scope(), "x/a") as (api, cache, informer, told):
        api.version += 50
        api.bookmark()
        await settle()
        lost = api.objects[Key("x", "a")]
        again = api.objects[Key("x", "a")] = msgspec.structs.replace(lost, spec=WidgetSpec(color="again"))
        api.version -= 50
        del told[:]
        await cache.rescope(informer, X)
        assert told == [Updated(lost, again, relisted=True)]
        assert informer.store.list() == [again]
