"""An informer whose scope is some of the hashes, against an API server that filters by them or does not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs

import pytest

from kubeshard import ALL
from kubeshard.cache import Added, Cache, Deleted, Delta, Informer, Scope, Updated
from kubeshard.client import Client, ClusterConfig
from kubeshard.core import ConfigMap, Key, ObjectMeta
from kubeshard.core.hash_ranges import HASHES, HashRanges
from kubeshard.core.selectors import Selector
from kubeshard.runtime.transport import HttpRequest
from kubeshard_apiserver import ApiServer, InMemoryTransport
from kubeshard_lab.virtual_time import settle, virtual_time
from kubeshard_lab.virtual_world import virtual_world

GATE = "ShardedListAndWatch"


def eighths(*which: int) -> HashRanges:
    return HashRanges.of("uid", [(each * HASHES // 8, (each + 1) * HASHES // 8) for each in which])


def of(*which: int) -> Scope:
    return Scope(hashes=eighths(*which))


LOW, HIGH, ALL_OF_THEM, NONE = of(0, 1, 2, 3), of(4, 5, 6, 7), of(*range(8)), of()


class Wire(InMemoryTransport):
    """`asked` are the lists and watches so far: what, and for which hashes. `deaf`: the server does not know the
    parameter at the moment.
    """

    def __init__(self, server: ApiServer) -> None:
        super().__init__(server)
        self.asked: list[tuple[str, str]] = []
        self.deaf = False

    async def request(self, request: HttpRequest) -> Any:
        return await super().request(self._heard(request))

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[Any]:
        async with super().stream(self._heard(request)) as stream:
            yield stream

    def _heard(self, request: HttpRequest) -> HttpRequest:
        if request.method != "GET":
            return request
        path, _, query = request.target.partition("?")
        given = parse_qs(query)
        what = "list" if "watch" not in given else "stream" if "sendInitialEvents" in given else "watch"
        self.asked.append((what, given.get("shardSelector", [""])[0]))
        if self.deaf:
            query = "&".join(each for each in query.split("&") if not each.startswith("shardSelector"))
        return request._replace(target=f"{path}?{query}")


class World:
    """A cache of ConfigMaps, with a handler that trusts its deltas, and a client that changes them."""

    def __init__(self, writer: Client, wire: Wire, cache: Cache, scope: Scope) -> None:
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
async def world(scope: Scope, *, gate: bool = True, objects: int = 40) -> AsyncIterator[World]:
    server = ApiServer(world=virtual_world(), feature_gates=[GATE] if gate else [])
    config, wire = ClusterConfig("http://in-memory"), Wire(server)
    async with (
        Client(config, transport=InMemoryTransport(server), world=server.world) as writer,
        Client(config, transport=wire, world=server.world) as client,
    ):
        found = World(writer, wire, Cache(client), scope)
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
