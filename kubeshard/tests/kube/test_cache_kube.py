"""The cache against a real API server, over a transport that records requests and can be cut."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kubeshard import ALL
from kubeshard.cache import Added, Cache, Deleted, Delta, Informer, Scope, UndeclaredKind, Updated
from kubeshard.cache.own_writes import OwnWrites
from kubeshard.client import Client, load_config
from kubeshard.core import ConfigMap, Namespace, ObjectMeta, Selector, metadata_only
from kubeshard.core.errors import NotFound
from kubeshard.core.objects import Key, KubeObject
from kubeshard.core.patches import MergePatch
from kubeshard.crd import definition
from kubeshard.runtime.clock import SystemClock
from kubeshard.runtime.transport import HttpRequest, HttpResponse, HttpStream, Transport, TransportError

SHARD = "shard.alpha.sharding.timebertt.dev/cache-test"


class Late(KubeObject, group="cache.kubeshard.test", version="v1"):
    """A kind whose CRD is installed in the middle of a test."""


class Young(KubeObject, group="cache.kubeshard.test", version="v1"):
    """A kind that the server has served only for a moment."""


class CutWire:
    """Forwards everything, records the targets, rewrites them on request, and can break all open streams."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self._cut = asyncio.Event()
        self.asked: list[str] = []
        self.rewrite: Callable[[str], str] = lambda target: target

    def cut(self) -> None:
        self._cut.set()
        self._cut = asyncio.Event()

    async def request(self, request: HttpRequest) -> HttpResponse:
        return await self._inner.request(self._note(request))

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[HttpStream]:
        async with self._inner.stream(self._note(request)) as stream:
            yield CutStream(stream, self._cut)

    async def close(self) -> None:
        await self._inner.close()

    def _note(self, request: HttpRequest) -> HttpRequest:
        self.asked.append(request.target)
        return request._replace(target=self.rewrite(request.target))


class CutStream:
    def __init__(self, inner: HttpStream, cut: asyncio.Event) -> None:
        self._inner = inner
        self._cut = cut
        self.status = inner.status
        self.headers = inner.headers

    async def read(self) -> bytes:
        return await self._inner.read()

    async def chunks(self) -> AsyncIterator[bytes]:
        chunks: asyncio.Queue[bytes | TransportError | None] = asyncio.Queue()

        async def receive() -> None:
            try:
                async for chunk in self._inner.chunks():
                    chunks.put_nowait(chunk)
                chunks.put_nowait(None)
            except TransportError as error:
                chunks.put_nowait(error)

        async def cut() -> None:
            await self._cut.wait()
            chunks.put_nowait(TransportError("cut"))

        tasks = [asyncio.create_task(receive()), asyncio.create_task(cut())]
        try:
            while (chunk := await chunks.get()) is not None:
                if isinstance(chunk, TransportError):
                    raise chunk
                yield chunk
        finally:
            for task in tasks:
                task.cancel()


@pytest.fixture
async def wire(kubeconfig: Path) -> AsyncIterator[CutWire]:
    async with Client(await load_config(kubeconfig=str(kubeconfig))) as client:
        yield CutWire(client.transport)


@pytest.fixture
async def cached_client(kubeconfig: Path, wire: CutWire) -> Client:
    """The cache's own connection."""
    return Client(await load_config(kubeconfig=str(kubeconfig)), transport=wire)


Told = list[Delta[Any]]


@asynccontextmanager
async def watching(
    client: Client, scope: Scope, *, kind: type[KubeObject] = ConfigMap, streaming: bool = True
) -> AsyncIterator[tuple[Informer[Any], Told]]:
    cache = Cache(client, streaming_lists=streaming)
    told: Told = []
    informer = cache.declare(kind, scope)
    informer.add_handler(told.append)
    async with cache.running():
        async with asyncio.timeout(20):
            await cache.synced()
        yield informer, told


async def until(condition: Callable[[], Any], seconds: float = 15.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - conditions of many kinds
            await asyncio.sleep(0.01)


def config_map(namespace: str, name: str, labels: dict[str, str] | None = None, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(namespace=namespace, name=name, labels=labels), data=data or None)


async def test_an_object_enters_and_leaves_a_shards_cache_with_its_label(
    kube_client: Client, cached_client: Client, namespace: str
) -> None:
    scope = Scope(frozenset({namespace}), labels=Selector.equals(SHARD, "me"))
    made = await kube_client.create(config_map(namespace, "a", {SHARD: "other"}))
    async with watching(cached_client, scope) as (informer, told):

        async def assign(shard: str | None) -> ConfigMap:
            patch = MergePatch({"metadata": {"labels": {SHARD: shard}}})
            return await kube_client.patch(ConfigMap, "a", namespace, patch)

        mine = await assign("me")
        await until(lambda: told)
        assert told == [Added(mine)]

        theirs = await assign("other")
        await until(lambda: len(told) == 2)
        assert isinstance(told[1], Deleted)
        assert told[1].object.metadata.uid == made.metadata.uid
        assert told[1].object.metadata.resource_version == theirs.metadata.resource_version
        assert told[1].object.metadata.label(SHARD) == "me"
        assert (await kube_client.get(ConfigMap, "a", namespace)).metadata.uid == made.metadata.uid

        back = await assign("me")
        await until(lambda: len(told) == 3)
        assert told[2] == Added(back)
        await kube_client.delete(ConfigMap, "a", namespace)
        await until(lambda: len(told) == 4)
        assert isinstance(told[3], Deleted)
        assert informer.full_reads == 1


async def test_the_initial_state_is_streamed_by_one_consistent_watch(
    kube_client: Client, cached_client: Client, wire: CutWire, namespace: str
) -> None:
    made = [await kube_client.create(config_map(namespace, f"map-{number}")) for number in range(3)]
    async with watching(cached_client, Scope(frozenset({namespace}))) as (informer, told):
        assert told == [Added(obj, initial=True) for obj in made]
        (asked,) = wire.asked
        assert "sendInitialEvents=true" in asked
        assert "resourceVersion=0" not in asked
        assert informer.failures == 0


async def test_a_server_that_refuses_streaming_lists_is_read_by_pages(
    kube_client: Client, cached_client: Client, wire: CutWire, namespace: str
) -> None:
    wire.rewrite = lambda target: target.replace("NotOlderThan", "UnknownToOldServers")
    names = [f"map-{number:03}" for number in range(501)]
    for begin in range(0, len(names), 50):  # a server has five seconds for the handshakes of all
        some = names[begin : begin + 50]
        await asyncio.gather(*(kube_client.create(config_map(namespace, name)) for name in some))
    async with watching(cached_client, Scope(frozenset({namespace}))) as (informer, told):
        assert {delta.object.metadata.name for delta in told if isinstance(delta, Added)} == set(names)
        await until(lambda: len(wire.asked) == 4)
        streamed, first, second, watched = wire.asked
        assert "sendInitialEvents=true" in streamed
        assert "limit=500" in first
        assert "continue=" in second
        assert f"resourceVersion={informer.store.resource_version}" in watched
        changed = await kube_client.patch(ConfigMap, names[0], namespace, MergePatch({"data": {"a": "b"}}))
        await until(lambda: len(told) == 502)
        assert isinstance(told[-1], Updated)
        assert told[-1].new == changed


async def test_after_a_cut_the_watch_goes_on_at_its_version_and_misses_nothing(
    kube_client: Client, cached_client: Client, wire: CutWire, namespace: str
) -> None:
    async with watching(cached_client, Scope(frozenset({namespace}))) as (informer, told):
        await kube_client.create(config_map(namespace, "seen"))
        await until(lambda: told)
        version = informer.store.resource_version
        wire.cut()
        await until(lambda: informer.last_error)
        await kube_client.create(config_map(namespace, "missed"))
        await kube_client.delete(ConfigMap, "seen", namespace)
        await until(lambda: len(told) == 3)
        assert [type(delta) for delta in told] == [Added, Added, Deleted]
        assert f"resourceVersion={version}" in wire.asked[-1]
        assert informer.full_reads == 1


async def test_a_version_the_server_has_forgotten_leads_to_a_full_read(
    kube_client: Client,
    cached_client: Client,
    wire: CutWire,
    namespace: str,
    install_crd: Callable[[dict[str, Any]], None],
) -> None:
    # The server's watch cache of a new kind begins now, so it cannot serve a watch from version 1.
    await asyncio.to_thread(install_crd, definition(Young))

    async def create(name: str) -> Young:
        return await kube_client.create(Young(metadata=ObjectMeta(namespace=namespace, name=name)))

    gone, recreated = await create("gone"), await create("recreated")
    async with watching(cached_client, Scope(frozenset({namespace})), kind=Young) as (informer, told):
        del told[:]
        wire.rewrite = lambda target: re.sub(r"resourceVersion=\d+", "resourceVersion=1", target)
        wire.cut()
        await until(lambda: informer.last_error)
        await kube_client.delete(Young, "gone", namespace)
        await kube_client.delete(Young, "recreated", namespace)
        again = await create("recreated")
        await until(lambda: informer.full_reads == 2 and len(told) == 3)
        assert set(told[:2]) == {Deleted(gone, final=False), Deleted(recreated, final=False)}
        assert told[2] == Added(again)
        assert informer.last_error is None


async def test_objects_of_the_greatest_size_pass_through_list_and_watch(
    kube_client: Client, cached_client: Client, namespace: str
) -> None:
    listed = await kube_client.create(config_map(namespace, "listed", big="x" * 1_000_000))
    for streaming in (True, False):
        scope = Scope(frozenset({namespace}))
        async with watching(cached_client, scope, streaming=streaming) as (informer, told):
            assert told == [Added(listed, initial=True)]
            sent = await kube_client.create(config_map(namespace, "sent", big="y" * 1_000_000))
            await until(lambda told=told: len(told) == 2)
            assert told[1] == Added(sent)
            assert informer.full_reads == 1
        await kube_client.delete(ConfigMap, "sent", namespace)


async def test_the_metadata_form_holds_metadata_of_many_namespaces_and_nothing_else(
    kube_client: Client, cached_client: Client, namespace: str
) -> None:
    other = f"{namespace}-other"
    await kube_client.create(Namespace(metadata=ObjectMeta(name=other)))
    await kube_client.create(config_map(namespace, "a", {"app": "x"}, key="value"))
    await kube_client.create(config_map(other, "b", {"app": "y"}, key="value"))
    for streaming in (True, False):
        cache = Cache(cached_client, streaming_lists=streaming)
        form = metadata_only(ConfigMap)
        cache.declare(form, Scope(frozenset({namespace, other})))
        cache.add_index(
            form, "app", lambda obj: [obj.metadata.label("app")], Scope(frozenset({namespace, other}))
        )
        async with cache.running(), asyncio.timeout(20):
            await cache.synced()
            assert {obj.key for obj in cache.list(form, ALL)} == {Key(namespace, "a"), Key(other, "b")}
            (found,) = cache.list(form, ALL, index=("app", "y"))
            assert not hasattr(found, "data")
            with pytest.raises(UndeclaredKind):
                cache.get(ConfigMap, "a", namespace)
    await kube_client.delete(Namespace, other)


async def test_a_kind_whose_crd_comes_later_is_cached_when_it_is_there(
    cached_client: Client, install_crd: Callable[[dict[str, Any]], None]
) -> None:
    cache = Cache(cached_client)
    informer = cache.declare(Late)
    async with cache.running():
        await until(lambda: informer.last_error)
        assert isinstance(informer.last_error, NotFound)
        assert not informer.has_synced
        await asyncio.to_thread(install_crd, definition(Late))
        async with asyncio.timeout(15):
            await cache.synced()
        assert informer.last_error is None


async def test_a_writer_reads_its_own_writes_also_those_that_leave_the_selector(
    kube_client: Client, cached_client: Client, namespace: str
) -> None:
    writes = OwnWrites(SystemClock())
    writer = kube_client.on_write(writes.record)
    scope = Scope(frozenset({namespace}), labels=Selector.equals(SHARD, "me"))
    cache = Cache(cached_client)
    informer = cache.declare(ConfigMap, scope)

    async def read() -> ConfigMap | None:
        await writes.settled(cache, informer)
        assert not writes
        return cache.get(ConfigMap, "a", namespace, scope=scope)

    async with cache.running():
        await cache.synced()
        for _ in range(5):
            made = await writer.create(config_map(namespace, "a", {SHARD: "me"}))
            assert await read() == made
            nothing = await writer.patch(
                ConfigMap, "a", namespace, MergePatch({"metadata": {"labels": {SHARD: "me"}}})
            )
            assert nothing.metadata.resource_version == made.metadata.resource_version
            assert await read() == made
            await writer.patch(
                ConfigMap, "a", namespace, MergePatch({"metadata": {"labels": {SHARD: "other"}}})
            )
            assert await read() is None
            await writer.patch(ConfigMap, "a", namespace, MergePatch({"data": {"a": "b"}}))
            assert await read() is None
            await writer.delete(ConfigMap, "a", namespace)
            assert await read() is None

            await writer.create(config_map(namespace, "a", {SHARD: "me"}))
            await writer.delete(ConfigMap, "a", namespace)
            assert await read() is None
