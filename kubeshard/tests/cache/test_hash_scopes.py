"""An informer whose scope is some of the hashes, against an API server that filters by them or does not."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any
from unittest.mock import patch
from urllib.parse import parse_qs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeshard import ALL
from kubeshard.cache import Added, Cache, Deleted, Delta, Informer, Scope, Updated
from kubeshard.cache.own_writes import OwnWrites
from kubeshard.cache.reflectors import MOST_PARTS
from kubeshard.client import Client, ClusterConfig
from kubeshard.client.write_records import record_of
from kubeshard.core import ConfigMap, Key, ObjectMeta
from kubeshard.core.errors import NotFound
from kubeshard.core.hash_ranges import HASHES, HashRanges, LabelledHash
from kubeshard.core.selectors import Selector
from kubeshard.runtime.transport import HttpRequest, HttpStream, TransportError
from kubeshard_apiserver import ApiServer, InMemoryTransport
from kubeshard_lab.virtual_time import VirtualClock, settle, virtual_time
from kubeshard_lab.virtual_world import virtual_world

GATE = "ShardedListAndWatch"


def eighths(*which: int) -> HashRanges:
    return HashRanges.of("uid", [(each * HASHES // 8, (each + 1) * HASHES // 8) for each in which])


def of(*which: int) -> Scope:
    return Scope(hashes=eighths(*which))


LOW, HIGH, ALL_OF_THEM, NONE = of(0, 1, 2, 3), of(4, 5, 6, 7), of(*range(8)), of()


class Held:
    """A stream that may be slow: what it sends arrives when `gate` is set. `at_once`: all of it, or so many lines."""

    def __init__(self, stream: HttpStream, at_once: int | None) -> None:
        self.status, self.headers, self.read = stream.status, stream.headers, stream.read
        self.gate = asyncio.Event()
        self.at_once = at_once
        if at_once is None:
            self.gate.set()
        self._stream = stream

    async def chunks(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream.chunks():
            for line in chunk.splitlines(keepends=True):
                if self.at_once:
                    self.at_once -= 1
                else:
                    await self.gate.wait()
                yield line


class Wire(InMemoryTransport):
    """`asked` are the lists and watches so far: what, and for which hashes. `deaf`: the server does not know the
    parameter at the moment.
    """

    def __init__(self, server: ApiServer) -> None:
        super().__init__(server)
        self.asked: list[tuple[str, str]] = []
        self.deaf = False
        self.refuses = 0
        """How many of the next requests fail."""
        self.open: list[Held] = []
        self.at_once: int | None = None
        """Of streams that are opened from now on."""

    async def request(self, request: HttpRequest) -> Any:
        return await super().request(self._heard(request))

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[Any]:
        async with super().stream(self._heard(request)) as stream:
            held = Held(stream, self.at_once)
            self.open.append(held)
            try:
                yield held
            finally:
                self.open.remove(held)

    def hurry(self) -> None:
        self.at_once = None
        for stream in self.open:
            stream.gate.set()

    def _heard(self, request: HttpRequest) -> HttpRequest:
        if request.method != "GET":
            return request
        path, _, query = request.target.partition("?")
        given = parse_qs(query)
        what = "list" if "watch" not in given else "stream" if "sendInitialEvents" in given else "watch"
        if what == "list" and "limit=1" in request.target.split("&"):
            what = "probe"
        self.asked.append((what, given.get("shardSelector", [""])[0]))
        if self.refuses:
            self.refuses -= 1
            raise TransportError("refused", sent=False)
        if self.deaf:
            query = "&".join(each for each in query.split("&") if not each.startswith("shardSelector"))
        return request._replace(target=f"{path}?{query}")


class World:
    """A cache of ConfigMaps, with a handler that trusts its deltas, and a client that changes them."""

    def __init__(self, server: ApiServer, writer: Client, wire: Wire, cache: Cache, scope: Scope) -> None:
        self.server = server
        self.writer = writer
        self.wire = wire
        self.cache = cache
        self.informer: Informer[ConfigMap] = cache.declare(ConfigMap, scope)
        self.told: list[Delta[ConfigMap]] = []
        self.known: dict[Key, ConfigMap] = {}
        self.informer.add_handler(self.hear)

    def hear(self, delta: Delta[ConfigMap]) -> None:
        self.told.append(delta)
        match delta:
            case Added(obj):
                assert obj.key not in self.known
                self.known[obj.key] = obj
            case Updated(old, new):
                assert self.known[old.key] is old
                assert int(old.metadata.resource_version) < int(new.metadata.resource_version)
                self.known[new.key] = new
            case Deleted(last):
                assert self.known.pop(last.key).metadata.uid == last.metadata.uid
        if not isinstance(delta, Deleted):
            shown = delta.new if isinstance(delta, Updated) else delta.object
            assert self.informer.scope.may_select(ConfigMap.KIND, shown.metadata), "it is not in the scope"

    async def write(self, name: str, value: str, **metadata: Any) -> ConfigMap:
        meta = ObjectMeta(name=name, namespace=metadata.pop("namespace", "default"), **metadata)
        return await self.writer.apply(ConfigMap(metadata=meta, data={"value": value}), force=True)

    async def there(self) -> dict[Key, ConfigMap]:
        """What the server has in the scope."""
        scope = self.informer.scope
        found = await self.writer.list_all(ConfigMap, ALL)
        return {obj.key: obj for obj in found if scope.may_select(ConfigMap.KIND, obj.metadata)}

    async def is_complete(self) -> None:
        await settle()
        there = await self.there()
        assert {obj.key: obj for obj in self.informer.store.list()} == there
        assert {obj.key: obj for obj in self.known.values()} == there
        assert self.informer.handler_errors == 0

    @property
    def asked(self) -> Sequence[tuple[str, str]]:
        """The requests since this was read last."""
        found, self.wire.asked = self.wire.asked, []
        return found


@asynccontextmanager
async def world(
    scope: Scope, *, gate: bool = True, objects: int = 40, streaming: bool = True
) -> AsyncIterator[World]:
    server = ApiServer(world=virtual_world(), feature_gates=[GATE] if gate else [])
    config, wire = ClusterConfig("http://in-memory"), Wire(server)
    async with (
        Client(config, transport=InMemoryTransport(server), world=server.world) as writer,
        Client(config, transport=wire, world=server.world) as client,
    ):
        found = World(server, writer, wire, Cache(client, streaming_lists=streaming), scope)
        for number in range(objects):
            await found.write(f"map-{number}", "first")
        async with found.cache.running():
            await found.cache.synced()
            yield found
            await found.is_complete()


either = pytest.mark.parametrize("gate", [True, False], ids=["filters", "ignores"])


@either
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (LOW, HIGH),
        (LOW, ALL_OF_THEM),
        (ALL_OF_THEM, LOW),
        (of(0, 2, 4), of(2, 3, 4, 5)),
        (NONE, LOW),
        (LOW, NONE),
        (Scope(), LOW),
        (LOW, Scope()),
        (LOW, Scope(hashes=HashRanges.of("namespace", [(0, HASHES // 2)]))),
        (LOW, Scope(hashes=LOW.hashes, namespaces=frozenset({"default"}))),
        (Scope(hashes=LOW.hashes, namespaces=frozenset({"default", "x"})), Scope(hashes=HIGH.hashes)),
        (LOW, Scope(hashes=LOW.hashes, labels=Selector.parse("app=web"))),
    ],
    ids=str,
)
def test_any_hashes_can_follow_any_others(before: Scope, after: Scope, gate: bool) -> None:
    @virtual_time
    async def check() -> None:
        async with world(before, gate=gate) as w:
            await w.is_complete()
            await w.write("web", "web", labels={"app": "web"})
            await w.cache.rescope(w.informer, after)
            await w.is_complete()
            for number in range(0, 60, 5):
                await w.write(f"map-{number}", "second")
            await w.writer.delete(ConfigMap, "map-3", "default")
            await w.writer.delete(ConfigMap, "map-5", "default")

    check()


@either
@virtual_time
async def test_only_hashes_that_are_new_are_asked_for(gate: bool) -> None:
    async with world(LOW, gate=gate) as w:
        assert [each for each in w.asked if each[0] != "watch"] == [("stream", str(LOW.hashes))]
        await w.cache.rescope(w.informer, of(2, 3, 4, 5))
        assert w.asked == [("stream", str(eighths(4, 5)))]
        await w.cache.rescope(w.informer, of(2, 5))
        assert w.asked == []
        assert {type(delta) for delta in w.told[-5:]} == {Deleted}
        assert not any(delta.final for delta in w.told if isinstance(delta, Deleted))


@either
@virtual_time
async def test_what_has_left_is_not_shown_though_its_watch_still_sends_it(gate: bool) -> None:
    async with world(ALL_OF_THEM, gate=gate) as w:
        await w.cache.rescope(w.informer, LOW)
        told = len(w.told)
        left = await w.writer.list_all(ConfigMap, ALL, shard_selector=HIGH.hashes)
        for obj in left:
            await w.write(obj.metadata.name, "second")
        await w.writer.delete(ConfigMap, left[0].metadata.name, "default")
        await settle()
        assert len(w.told) == told
        assert w.informer.store.resource_version == await w.writer.current_version(ConfigMap, ALL)


@either
@pytest.mark.parametrize("streaming", [True, False], ids=["streams", "pages"])
@virtual_time
async def test_what_a_server_sends_that_was_not_asked_for_is_counted(streaming: bool, gate: bool) -> None:
    async with world(LOW, gate=gate, streaming=streaming) as w:
        others = 40 - len(w.known)
        assert w.informer.foreign == (0 if gate else others)
        other = next(obj for obj in await w.writer.list_all(ConfigMap, ALL, shard_selector=HIGH.hashes))
        await w.write(other.metadata.name, "second")
        for name in [key.name for key in w.known]:
            await w.write(name, "second")
        await settle()
        assert w.informer.foreign == (0 if gate else others + 1)


@either
@virtual_time
async def test_hashes_that_come_back_are_listed_anew(gate: bool) -> None:
    async with world(ALL_OF_THEM, gate=gate) as w:
        await w.cache.rescope(w.informer, LOW)
        left = await w.writer.list_all(ConfigMap, ALL, shard_selector=HIGH.hashes)
        await w.write(left[0].metadata.name, "second")
        w.wire.asked.clear()
        await w.cache.rescope(w.informer, ALL_OF_THEM)
        assert w.asked == [("stream", str(HIGH.hashes))]
        assert w.informer.store.get(left[0].key).data == {"value": "second"}  # type: ignore[union-attr]


def labelled(*which: int) -> Scope:
    ranges = [(each * HASHES // 8, (each + 1) * HASHES // 8) for each in which]
    return Scope(hashes=HashRanges.of(LabelledHash("part", 8), ranges))


@pytest.mark.parametrize("seed", range(3))
@virtual_time
async def test_what_moves_from_label_to_label_is_where_its_label_says_also_while_the_scope_changes(
    seed: int,
) -> None:
    rng = random.Random(seed)
    async with world(labelled(0, 1)) as w:

        async def move(times: int) -> None:
            for _ in range(times):
                labels = (
                    {"part": rng.choice(["0", "1", "2", "5", "7", "8", "x"])} if rng.random() < 0.9 else {}
                )
                await w.write(f"map-{rng.randrange(10)}", str(rng.random()), labels=labels)

        await move(30)
        await w.is_complete()
        for which in (0, 1, 2), (1, 2, 5), (2, 5, 7), (0, 2), (), (1, 2, 5, 7), (7,):
            moving = asyncio.create_task(move(20))
            await w.cache.rescope(w.informer, labelled(*which))
            await moving
            await move(10)
            await w.is_complete()
        assert all(not asked for _, asked in w.asked), "labels are no shardSelector"


@virtual_time
async def test_what_loses_its_label_while_list_watches_wait_is_gone_afterwards() -> None:
    async with world(labelled(0, 1, 2)) as w:
        await w.write("map-1", "first", labels={"part": "0"})
        await w.cache.rescope(w.informer, labelled(0, 1))
        await settle()
        with w.informer._holding():
            await w.write("map-1", "second", labels={"part": "2"})
            await settle()
            assert w.known
        await w.is_complete()
        assert not w.known


@virtual_time
@pytest.mark.parametrize(
    "scopes", [(labelled(0, 1), labelled(0, 1, 2, 3)), (LOW, ALL_OF_THEM)], ids=["labels", "uids"]
)
async def test_a_reader_does_not_wait_for_idle_list_watches_to_see_what_it_wrote(
    scopes: Sequence[Scope],
) -> None:
    before, after = scopes
    async with world(before, objects=0) as w:
        await w.cache.rescope(w.informer, after)
        assert len(w.informer.store.versions) == 2
        for part in range(4):
            writes = OwnWrites(VirtualClock())
            obj = await w.write(f"of-{part}", "written", labels={"part": str(part)})
            writes.record(record_of(ConfigMap.KIND, obj.metadata))
            await settle()
            await writes.settled(w.cache, w.informer, timeout=0)
        await w.is_complete()


@virtual_time
async def test_without_any_hashes_nothing_is_asked_and_nothing_is_there() -> None:
    async with world(NONE) as w:
        await settle()
        assert w.informer.has_synced
        assert w.asked == []
        assert w.cache.list(ConfigMap, ALL) == []
        await w.cache.rescope(w.informer, LOW)
        assert len(w.cache.list(ConfigMap, ALL)) == len(await w.there()) > 0


@either
@virtual_time
async def test_indexes_have_what_is_in_the_scope(gate: bool) -> None:
    async with world(LOW, gate=gate) as w:
        w.informer.add_index("value", lambda obj: obj.data.values())
        for scope in (of(2, 3, 4), of(3), of(3, 7), ALL_OF_THEM):
            await w.cache.rescope(w.informer, scope)
            await w.write("map-1", str(scope))
            await settle()
            for value in ("first", str(scope)):
                found = w.cache.list(ConfigMap, ALL, index=("value", value), scope=scope)
                wanted = [obj for obj in (await w.there()).values() if value in obj.data.values()]
                assert sorted(obj.key for obj in found) == sorted(obj.key for obj in wanted)


@virtual_time
async def test_a_list_of_some_hashes_is_the_same_whether_the_server_filters_or_not() -> None:
    async with world(NONE) as w:
        found = await w.writer.list_all(ConfigMap, ALL)
        for deaf in (False, True):
            w.wire.deaf = deaf
            client = w.cache._client
            stream = client.list(ConfigMap, ALL, shard_selector=LOW.hashes, page_size=7)
            listed = [obj async for obj in stream]
            assert listed == [obj for obj in found if LOW.may_select(ConfigMap.KIND, obj.metadata)]
            assert stream.shard_info == ("" if deaf else str(LOW.hashes))
            assert stream.foreign == (len(found) - len(listed) if deaf else 0)
        with pytest.raises(ValueError, match="no range"):
            await client.list_all(ConfigMap, ALL, shard_selector=NONE.hashes)


@either
@virtual_time
async def test_hashes_that_leave_while_everything_is_listed_again_are_not_in_what_was_listed(
    gate: bool,
) -> None:
    async with world(ALL_OF_THEM, gate=gate) as w:
        w.wire.at_once = 20
        w.wire.abort()
        await settle()
        await w.write("map-1", "second")
        w.server.store.compact()
        await asyncio.sleep(30)
        assert [stream.at_once for stream in w.wire.open] == [0], "a list has begun, and is not complete"
        await w.cache.rescope(w.informer, LOW)
        told = len(w.told)
        w.wire.hurry()
        await settle()
        assert w.informer.full_reads == 2
        assert len(w.told) == told


SEVERAL_MINUTES = 500.0
"""In which every watch ends and is opened again."""


async def in_the_range(w: World, *which: int) -> str:
    """The name of a new object that is in one of these eighths."""
    number = 100
    while True:
        number += 1
        obj = await w.write(f"map-{number}", "new")
        if of(*which).may_select(ConfigMap.KIND, obj.metadata):
            return obj.metadata.name


@either
@virtual_time
async def test_list_watches_are_joined_when_one_of_them_opens_its_watch_again_and_nothing_is_told_twice(
    gate: bool,
) -> None:
    async with world(of(0, 1), gate=gate) as w:
        await w.cache.rescope(w.informer, of(0, 1, 5))
        await w.cache.rescope(w.informer, of(0, 5, 6))
        assert len(w.wire.open) == 3
        name = await in_the_range(w, 5, 6)
        await w.writer.delete(ConfigMap, name, "default")
        await settle()
        w.wire.asked.clear()
        told = len(w.told)
        await asyncio.sleep(SEVERAL_MINUTES)
        assert len(w.wire.open) == 1
        assert w.asked[0] == ("watch", str(eighths(0, 5, 6)))
        assert len(w.told) == told
        await w.write("map-1", "second")
        await w.is_complete()
        assert w.informer.full_reads == 3


@virtual_time
async def test_more_than_a_handful_of_list_watches_are_joined_at_once() -> None:
    async with world(of(0)) as w:
        for most in range(1, 8):
            await w.cache.rescope(w.informer, of(*range(most + 1)))
            await settle()
            assert len(w.wire.open) <= MOST_PARTS
        assert [each for each in w.asked if each[0] != "watch"] == [
            ("stream", str(eighths(number))) for number in range(8)
        ]


@virtual_time
async def test_a_joined_watch_begins_at_the_oldest_position_and_does_not_bring_back_what_was_deleted_since() -> (
    None
):
    async with world(of(0, 1)) as w:
        w.wire.open[0].gate.clear()
        await w.cache.rescope(w.informer, of(0, 1, 5, 6, 7))
        late = next(
            key.name for key, obj in w.known.items() if of(0, 1).may_select(ConfigMap.KIND, obj.metadata)
        )
        await w.write(late, "second")
        name = await in_the_range(w, 5, 6, 7)
        await settle()
        await w.writer.delete(ConfigMap, name, "default")
        await settle()
        told = [delta for delta in w.told if key_of(delta).name == name]
        assert [type(delta) for delta in told] == [Added, Deleted]
        await asyncio.sleep(SEVERAL_MINUTES)
        assert len(w.wire.open) == 1
        assert [delta for delta in w.told if key_of(delta).name == name] == told
        assert w.known[Key("default", late)].data == {"value": "second"}


def key_of(delta: Delta[ConfigMap]) -> Key:
    return delta.new.key if isinstance(delta, Updated) else delta.object.key


@virtual_time
async def test_a_watch_asks_for_fewer_hashes_when_it_is_opened_again() -> None:
    async with world(ALL_OF_THEM) as w:
        await w.cache.rescope(w.informer, of(3))
        w.wire.asked.clear()
        await asyncio.sleep(SEVERAL_MINUTES)
        assert w.asked == [("watch", str(eighths(3)))]


@virtual_time
async def test_a_selector_has_a_bounded_length_and_more_is_left_out_here() -> None:
    many = HashRanges.of(
        "uid", [(each * HASHES // 500, (each * 2 + 1) * HASHES // 1000) for each in range(500)]
    )
    async with world(Scope(hashes=many)) as w:
        assert len(w.asked[0][1]) <= 4096
        await w.is_complete()
        stream = w.cache._client.list(ConfigMap, ALL, shard_selector=many)
        assert len([obj async for obj in stream]) == len(w.known)
        assert stream.foreign == 0


ACTIONS = st.one_of(
    st.tuples(st.just("rescope"), st.sets(st.integers(0, 7))),
    st.tuples(st.just("rescope"), st.sets(st.integers(0, 7))),
    st.tuples(st.just("put"), st.integers(0, 9)),
    st.tuples(st.just("put"), st.integers(0, 9)),
    st.tuples(st.just("delete"), st.integers(0, 9)),
    st.tuples(st.just("turns"), st.integers(1, 12)),
    st.tuples(st.just("seconds"), st.sampled_from([1, 60, 250])),
    st.tuples(st.just("slow"), st.integers(0, 3)),
    st.tuples(st.just("slow from now on"), st.integers(0, 4)),
    st.tuples(st.just("take over"), st.integers(0, 9)),
    st.tuples(st.just("quick"), st.just(0)),
    st.tuples(st.just("deaf"), st.integers(0, 1)),
    st.tuples(st.just("refuse"), st.integers(1, 3)),
    st.tuples(st.just("cut"), st.just(0)),
    st.tuples(st.just("forget"), st.just(0)),
)


@pytest.mark.long
@pytest.mark.parametrize(
    ("scope_of", "gate"), [(of, True), (of, False), (labelled, True)], ids=["filters", "ignores", "labels"]
)
@pytest.mark.parametrize("streaming", [True, False], ids=["streams", "pages"])
@given(actions=st.lists(ACTIONS, min_size=10, max_size=80))
def test_whatever_happens_the_store_is_what_the_server_has_in_the_scope_and_nothing_else_was_shown(
    streaming: bool, scope_of: Callable[..., Scope], gate: bool, actions: list[tuple[str, Any]]
) -> None:
    @virtual_time
    async def check() -> None:
        async with world(scope_of(0, 1, 2, 3), gate=gate, objects=10, streaming=streaming) as w:
            w.informer.add_index("value", lambda obj: obj.data.values())
            rescoping: set[asyncio.Task[None]] = set()
            for number, (action, what) in enumerate(actions):
                match action:
                    case "rescope":
                        rescoping.add(asyncio.create_task(w.cache.rescope(w.informer, scope_of(*what))))
                    case "put":
                        labels = {"part": str((what + number) % 9)}
                        await w.write(f"map-{what}", str(number), labels=labels)
                    case "delete":
                        with suppress(NotFound):
                            await w.writer.delete(ConfigMap, f"map-{what}", "default")
                    case "turns":
                        for _ in range(what):
                            await asyncio.sleep(0)
                    case "seconds":
                        await asyncio.sleep(what)
                    case "slow":
                        for stream in w.wire.open[what : what + 1]:
                            stream.gate.clear()
                    case "slow from now on":
                        w.wire.at_once = what
                    case "take over":
                        with suppress(NotFound):
                            await w.writer.delete(ConfigMap, f"map-{what}", "default")
                        await w.write(f"map-{what}", str(number))
                    case "quick":
                        w.wire.hurry()
                    case "deaf":
                        w.wire.deaf = bool(what)
                    case "refuse":
                        w.wire.refuses = what
                    case "cut":
                        w.wire.abort()
                    case "forget":
                        w.server.store.compact()
            w.wire.hurry()
            await asyncio.sleep(60)
            for task in rescoping:
                assert task.done()
                await task
            await w.is_complete()
            values = {obj.data["value"] for obj in w.known.values()}
            found = [obj for value in values for obj in w.informer.store.by_index("value", value)]
            assert sorted(obj.key for obj in found) == sorted(w.known)
            w.wire.hurry()
            await asyncio.sleep(SEVERAL_MINUTES)
            assert len(w.wire.open) <= 1

    with patch("kubeshard.runtime.pace.STEPS", 2):  # others get their turns in the midst of everything
        check()
