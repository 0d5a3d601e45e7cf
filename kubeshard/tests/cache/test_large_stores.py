"""However many objects there are, a full read, a new index and a changed scope block nobody, and no reader sees them
half done. The tests count the objects that are processed between two turns of other tasks, not the time that this
takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace
from scripted_client import ScriptedClient, Widget, WidgetSpec

from kubeshard import ALL
from kubeshard.cache import Cache, CacheBehind, Informer, Scope
from kubeshard.cache.scope import whole
from kubeshard.cache.snapshot import Snapshot
from kubeshard.cache.store import Store
from kubeshard.core.hash_ranges import HASHES, HashRanges
from kubeshard.core.objects import Key, ObjectMeta
from kubeshard.listwatch.state_machine import Listed
from kubeshard.runtime.pace import STEPS
from kubeshard_lab.virtual_time import settle, virtual_time

MANY = 20_000


def widget(name: str, version: int, color: str, namespace: str = "x") -> Widget:
    metadata = ObjectMeta(namespace=namespace, name=name, uid=f"uid-{name}", resource_version=str(version))
    return Widget(metadata=metadata, spec=WidgetSpec(color=color))


def widgets(version: int, color: str, count: int = MANY) -> Snapshot[Widget]:
    one = widget("", version, color)
    metadata = one.metadata
    return Snapshot(replace(one, metadata=replace(metadata, name=str(number))) for number in range(count))


class ByColor:
    """An index function that counts."""

    def __init__(self) -> None:
        self.filed = 0

    def __call__(self, obj: Widget) -> Iterable[str]:
        self.filed += 1
        return [obj.spec.color]


class Turns:
    """Counts the objects that are processed between two turns of a task that is always ready."""

    def __init__(self, work: Callable[[], int]) -> None:
        self.longest = self.count = 0
        self._work = work

    async def until_done(self, task: asyncio.Task[None], look: Callable[[], None]) -> None:
        while not task.done():
            before = self._work()
            await asyncio.sleep(0)
            self.count, self.longest = self.count + 1, max(self.longest, self._work() - before)
            look()
        await task


@contextmanager
def followed(informer: Informer[Widget]) -> Iterator[None]:
    run = asyncio.create_task(informer.run())
    try:
        yield
    finally:
        run.cancel()


def found(informer: Informer[Widget]) -> dict[str, int]:
    return {color: len(informer.store.by_index("color", color)) for color in ("red", "blue")}


@pytest.mark.long
@virtual_time
async def test_a_full_read_that_changes_everything_is_filed_in_steps_and_seen_at_one_stroke() -> None:
    informer = Cache(ScriptedClient().client).declare(Widget)
    by_color = ByColor()
    informer.add_index("color", by_color)
    with followed(informer):
        await settle()
        await informer.listed(Listed("1"), widgets(1, "red"), "")
        seen: list[tuple[int, int, str]] = []

        def look() -> None:
            colors = found(informer)
            seen.append((colors["red"], colors["blue"], informer.store.resource_version))
            assert {obj.spec.color for obj in informer.store.list()[:: MANY // 3]} == {
                "red" if colors["red"] else "blue"
            }

        turns = Turns(lambda: by_color.filed)
        reading = asyncio.create_task(informer.listed(Listed("2"), widgets(2, "blue"), ""))
        await turns.until_done(reading, look)
        assert set(seen) == {(MANY, 0, "1"), (0, MANY, "2")}
        assert turns.longest <= STEPS
        assert turns.count >= 2 * MANY / STEPS, "neither the comparison nor the index was done at one go"


@virtual_time
async def test_an_index_of_many_objects_is_filed_in_steps_and_not_read_before_it_is_complete() -> None:
    cache = Cache(ScriptedClient().client)
    informer = cache.declare(Widget)
    by_color = ByColor()
    with followed(informer):
        await settle()
        await informer.listed(Listed("1"), widgets(1, "red"), "")
        cache.add_index(Widget, "color", by_color)
        refused = 0

        def look() -> None:
            nonlocal refused
            if refused == 3:
                informer.put(widget("0", 2, "blue"), "")
                informer.put(widget(str(MANY - 1), 3, "blue"), "")
            try:
                assert found(informer) == {"red": MANY - 2, "blue": 2}
            except CacheBehind:
                refused += 1

        turns = Turns(lambda: by_color.filed)
        await turns.until_done(asyncio.create_task(informer.indexed()), look)
        look()
        assert refused >= MANY / STEPS / 2
        assert turns.longest <= STEPS
        with pytest.raises(ValueError, match="color"):
            cache.add_index(Widget, "color", by_color)


@virtual_time
async def test_a_new_index_of_an_informer_that_ends_is_filed_when_it_runs_again() -> None:
    informer = Cache(ScriptedClient().client).declare(Widget)
    with followed(informer):
        await settle()
        await informer.listed(Listed("1"), widgets(1, "red", 3 * STEPS), "")
        informer.add_index("color", ByColor())
        await asyncio.sleep(0)
    await settle()
    with pytest.raises(CacheBehind, match="'color' is not complete"):
        found(informer)
    with followed(informer):
        await informer.indexed()
        assert sum(found(informer).values()) == len(informer.store)


@virtual_time
async def test_another_scope_of_many_objects_is_prepared_in_steps_while_changes_wait() -> None:
    api = ScriptedClient()
    count = 20 * STEPS
    for number in range(count):
        api.put(f"x/{number}", "red")
        api.put(f"y/{number}", "red")
    cache = Cache(api.client, default_scope=Scope(namespaces=frozenset("x")))
    by_color = ByColor()
    cache.add_index(Widget, "color", by_color)
    informer = cache.informer(Widget)
    async with cache.running():
        await cache.synced()
        seen: list[tuple[int, int]] = []

        def look() -> None:
            if len(seen) % 10 == 5:
                api.put(f"x/{len(seen)}", "blue")
                api.put(f"y/{len(seen)}", "blue")
            place = {obj.metadata.namespace for obj in informer.store.list()}
            assert informer.scope.namespaces == place
            colors = found(informer)
            assert sum(colors.values()) == count
            seen.append((len(place), sum(colors.values())))

        turns = Turns(lambda: by_color.filed)
        moving = asyncio.create_task(cache.rescope(informer, Scope(namespaces=frozenset("y"))))
        await turns.until_done(moving, look)
        await settle()
        assert turns.longest <= STEPS + 2, "beside a step, a change or two are filed"
        assert {obj.key: obj for obj in informer.store.list()} == {
            key: obj for key, obj in api.objects.items() if key.namespace == "y"
        }
        assert found(informer)["blue"] == sum(
            obj.spec.color == "blue" for obj in api.objects.values() if obj.metadata.namespace == "y"
        )


LOW, BOTH = (Scope(hashes=HashRanges.of("uid", [(0, HASHES // parts)])) for parts in (2, 1))


@pytest.mark.parametrize(("before", "after"), [(BOTH, LOW), (LOW, BOTH)], ids=["fewer", "more"])
@virtual_time
async def test_other_hashes_of_many_objects_are_prepared_in_steps_and_seen_at_one_stroke(
    before: Scope, after: Scope
) -> None:
    api = ScriptedClient()
    for number in range(20 * STEPS):
        api.put(f"x/{number}", "red")
    cache = Cache(api.client, default_scope=before)
    by_color = ByColor()
    cache.add_index(Widget, "color", by_color)
    informer = cache.informer(Widget)
    judged = 0

    def judging(hashes: HashRanges, metadata: ObjectMeta) -> bool:
        nonlocal judged
        judged += 1
        return hashes.selects(metadata)

    async with cache.running():
        await cache.synced()
        counts = {
            scope: sum(scope.may_select(Widget.KIND, obj.metadata) for obj in api.objects.values())
            for scope in (before, after)
        }
        seen: list[tuple[Scope, int]] = []

        def look() -> None:
            seen.append((informer.scope, found(informer)["red"]))
            assert len(informer.store) == counts[informer.scope]

        with patch.object(HashRanges, "may_select", judging):
            turns = Turns(lambda: max(by_color.filed, judged))
            await turns.until_done(asyncio.create_task(cache.rescope(informer, after)), look)
        assert set(seen) == set(counts.items())
        assert turns.longest <= STEPS + 2
        assert turns.count >= 20


@virtual_time
async def test_changes_of_other_hashes_wait_while_a_list_of_many_objects_is_prepared() -> None:
    api = ScriptedClient()
    for number in range(5 * STEPS):
        api.put(f"x/{number}", "red")
    cache = Cache(api.client, default_scope=LOW)
    informer = cache.declare(Widget)
    async with cache.running():
        await cache.synced()
        await cache.rescope(informer, BOTH)
        await settle()
        low, _ = informer.store.parts
        here = [obj for obj in api.objects.values() if LOW.may_select(Widget.KIND, obj.metadata)]
        others = [obj for obj in api.objects.values() if obj not in here]
        listing = asyncio.create_task(informer.listed(Listed(str(api.version)), Snapshot(here), low))
        while not listing.done():
            await asyncio.sleep(0)
            if others:
                api.put(f"x/{others.pop().metadata.name}", "blue")
        await listing
        await settle()
        assert {obj.key: obj for obj in informer.store.list()} == api.objects


def test_an_index_that_is_removed_while_it_is_filed_is_filed_no_further_whatever_becomes_of_the_store() -> (
    None
):
    store: Store[Widget] = Store(whole("x"))
    store.replace(Snapshot(widget(str(number), 1, "red") for number in range(5)), "1", "x")
    by_color = ByColor()
    steps = store.begin_index("color", by_color)
    next(steps)
    store.remove_index("color")
    objects = Snapshot(store.objects())
    list(store.exchange(store.replacement(objects, {"": "2"}, whole([""]))))
    assert len(list(steps)) <= 1
    assert by_color.filed == 1


@virtual_time
async def test_an_index_function_that_raises_for_one_object_hinders_no_other_while_all_are_filed_and_read() -> (
    None
):
    informer = Cache(ScriptedClient().client).declare(Widget)

    def by_color(obj: Widget) -> Iterable[str]:
        if obj.metadata.name == "7":
            raise ValueError("no")
        return [obj.spec.color]

    with followed(informer):
        await settle()
        await informer.listed(Listed("1"), widgets(1, "red", 10 * STEPS), "")
        informer.add_index("color", by_color)
        reading = asyncio.create_task(informer.listed(Listed("2"), widgets(2, "blue", 10 * STEPS), ""))
        await asyncio.sleep(0)
        await informer.indexed()
        await reading
        assert found(informer) == {"red": 0, "blue": 10 * STEPS - 1}
        assert [key.name for key in informer.store.unfiled("color")] == ["7"]


@virtual_time
async def test_a_rescoping_that_is_cancelled_while_it_is_prepared_leaves_everything_as_it_was() -> None:
    api = ScriptedClient()
    for number in range(4 * STEPS):
        api.put(f"x/{number}", "red")
        api.put(f"y/{number}", "red")
    scope = Scope(namespaces=frozenset("x"))
    cache = Cache(api.client, default_scope=scope)
    informer = cache.declare(Widget)
    async with cache.running():
        await cache.synced()
        moving = asyncio.create_task(cache.rescope(informer, Scope(namespaces=frozenset("y"))))
        while informer._held is None:  # noqa: ASYNC110 - it lasts for some turns only
            await asyncio.sleep(0)
        waits = api.put("x/new", "blue")
        for _ in range(4):
            await asyncio.sleep(0)
        assert informer._held is not None
        assert informer.store.get(waits.key) is None
        moving.cancel()
        await settle()
        assert moving.cancelled()
        assert informer.scope == scope
        assert informer.store.get(waits.key) is waits
        assert len(cache.list(Widget, ALL)) == 4 * STEPS + 1


# Anything may happen between the steps

PARTS = ("x", "y")
COLORS = ("red", "blue")
OBJECTS = st.tuples(st.sampled_from(PARTS), st.sampled_from("abcd"), st.sampled_from(COLORS))
STEP = st.one_of(
    st.tuples(st.just("put"), OBJECTS),
    st.tuples(st.just("delete"), OBJECTS),
    st.tuples(st.just("step"), st.sampled_from(("index", "replacement"))),
    st.tuples(st.just("read"), st.sampled_from(PARTS), st.lists(OBJECTS, max_size=5)),
    st.tuples(st.just("exchange")),
    st.tuples(st.just("index")),
    st.tuples(st.just("remove index")),
)


class Steps:
    """A store, its expected content, and a full read and an index build that may be in progress."""

    def __init__(self) -> None:
        self.store: Store[Widget] = Store(whole(PARTS))
        self.model: dict[Key, Widget] = {}
        self.version = 10
        self.filing: Iterator[None] = iter(())
        self.replacing: tuple[str, Mapping[Key, Widget], Iterator[None], Callable[[], None]] | None = None
        for part in PARTS:
            self.store.replace({}, "10", part)

    def put(self, namespace: str, name: str, color: str) -> None:
        if self.replacing is None or self.replacing[0] != namespace:  # whose list/watch is waiting
            self.version += 1
            obj = widget(name, self.version, color, namespace)
            self.store.apply(obj, namespace)
            self.model[obj.key] = obj

    def delete(self, namespace: str, name: str, color: str) -> None:
        if self.replacing is None or self.replacing[0] != namespace:
            self.version += 1
            obj = widget(name, self.version, color, namespace)
            self.store.remove(obj, namespace)
            self.model.pop(obj.key, None)

    def read(self, part: str, objects: list[tuple[str, str, str]]) -> None:
        if self.replacing is not None:
            return
        self.version += 1
        entries: dict[Key, Widget] = {}
        for _, name, color in objects:
            same = self.model.get(Key(part, name))
            entries[Key(part, name)] = same or widget(name, self.version, color, part)
        replacement = self.store.replacement(entries, {part: str(self.version)})

        def exchange() -> None:
            for _ in self.store.exchange(replacement):
                pass

        self.replacing = (part, entries, replacement.steps, exchange)

    def exchange(self) -> None:
        if self.replacing is not None:
            part, entries, _, exchange = self.replacing
            exchange()
            self.replacing = None
            self.model = {key: obj for key, obj in self.model.items() if key.namespace != part} | dict(
                entries
            )

    def step(self, what: str) -> None:
        steps = self.filing if what == "index" else self.replacing and self.replacing[2]
        if steps:
            next(steps, None)

    def index(self) -> None:
        if "color" not in self.store._indexes:
            self.filing = self.store.begin_index("color", lambda obj: [obj.spec.color])

    def remove_index(self) -> None:
        self.store.remove_index("color")

    def check(self) -> None:
        assert {obj.key: obj for obj in self.store.list()} == self.model
        if not self.store.has_index("color"):
            return
        for color in COLORS:
            wanted = {key: obj for key, obj in self.model.items() if obj.spec.color == color}
            assert self.store.filed("color", color) == wanted
            for namespace in PARTS:
                there = {obj.key for obj in self.store.by_index("color", color, namespace)}
                assert there == {key for key in wanted if key.namespace == namespace}


@example([("read", "x", []), ("step", "replacement"), ("index",)])
@given(st.lists(STEP, max_size=60))
def test_whatever_happens_between_the_steps_readers_see_all_of_it_or_nothing(
    steps: list[tuple[str, ...]],
) -> None:
    told = Steps()
    for what, *rest in [*steps, ("exchange",)]:
        match what, rest:
            case ("put" | "delete") as act, [thing]:
                getattr(told, act)(*thing)
            case _:
                getattr(told, what.replace(" ", "_"))(*rest)
        told.check()
    for _ in told.filing:
        told.check()
    told.check()
