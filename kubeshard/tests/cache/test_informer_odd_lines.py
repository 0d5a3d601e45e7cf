"""An informer on the real client whose watch receives garbage: it counts the lines, and recovers the server's state."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeshard.cache import Cache
from kubeshard.client import Client, ClusterConfig
from kubeshard.core import ConfigMap, ObjectMeta
from kubeshard.manager.cache_metrics import CacheMetrics
from kubeshard.runtime.transport import HttpRequest, HttpStream
from kubeshard_apiserver import ApiServer, InMemoryTransport
from kubeshard_apiserver.front.handlers import Front
from kubeshard_lab.simulation.processes import StreamAround
from kubeshard_lab.virtual_time import run_virtual, virtual_time
from kubeshard_lab.virtual_world import virtual_world

pytestmark = pytest.mark.regression

ODD_LINES = [
    b'{"type":"ERROR","object":null}',
    b'{"type":"ERROR","object":"rate limited"}',
    b'{"type":"ERROR","object":{"kind":"Status","status":"Failure"}}',
    b'{"type":"ERROR","object":{"kind":"Status","reason":"Timeout"}}',
    b'{"type":"BOOKMARK","object":null}',
    b'{"type":"BOOKMARK","object":{"kind":"ConfigMap","metadata":{}}}',
    b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":12}}}',
    b'{"type":"ADDED","object":null}',
    b'{"type":"DELETED","object":{"kind":"ConfigMap","metadata":{}}}',
    b'{"type":"RENAMED","object":{"kind":"ConfigMap","metadata":{"name":"a"}}}',
    b'{"type":"MODIFIED","object":{"kind":"ConfigMap","metadata":{"name":"a","na',
    b"\xff\xfe\xfd",
    b"[[[",
    b"<html>502 Bad Gateway</html>",
]


class Nonsense:
    """A transport that inserts garbage into each watch after its initial events, as long as there is any left."""

    def __init__(self, inner: InMemoryTransport) -> None:
        self._inner = inner
        self.request = inner.request
        self.abort = inner.abort
        self.close = inner.close
        self.pieces: list[bytes] = []

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[HttpStream]:
        async with self._inner.stream(request) as stream:
            yield _Mixed(stream, self.pieces)


class _Mixed(StreamAround):
    def __init__(self, inner: HttpStream, pieces: list[bytes]) -> None:
        super().__init__(inner)
        self._pieces = pieces

    async def chunks(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner.chunks():
            yield chunk
            if b"initial-events-end" in chunk and self._pieces:
                yield self._pieces.pop(0)


async def informed_of_nonsense(pieces: list[bytes]) -> dict[str, float]:
    """Returns the metrics after the informer has recovered."""
    world = virtual_world()
    server = ApiServer(world=world)
    transport = Nonsense(InMemoryTransport(Front(server)))
    transport.pieces += pieces
    client = Client(ClusterConfig("http://sim"), transport=transport, world=world)
    cache = Cache(client)
    informer = cache.declare(ConfigMap)

    async def write(name: str) -> None:
        await client.create(ConfigMap(metadata=ObjectMeta(name=name, namespace="default")))

    await write("before")
    async with cache.running():
        await cache.synced()
        await asyncio.sleep(1)
        await write("meanwhile")
        await asyncio.sleep(120 + 60 * len(pieces))
        assert {cm.metadata.name for cm in informer.store.list("default")} == {"before", "meanwhile"}
        return {
            sample.name: sample.value
            for metric in CacheMetrics(lambda: [cache], world.clock).collect()
            for sample in metric.samples
        }


@pytest.mark.parametrize("line", ODD_LINES, ids=lambda line: line.decode(errors="replace")[:40])
def test_an_odd_line_is_counted_and_ends_in_a_full_read(line: bytes) -> None:
    @virtual_time
    async def check() -> None:
        counted = await informed_of_nonsense([line + b"\n"])
        assert counted["kubeshard_cache_full_reads_total"] == 2
        assert counted["kubeshard_cache_failures_total"] == 1
        unexpected = 0 if b'"Status"' in line else 1
        assert counted["kubeshard_cache_unexpected_answers_total"] == unexpected

    check()


@pytest.mark.long
@given(st.lists(st.one_of(st.sampled_from(ODD_LINES), st.binary(min_size=1, max_size=20)), max_size=3))
def test_whatever_the_lines_the_informer_lives_and_knows_the_truth_in_the_end(lines: list[bytes]) -> None:
    run_virtual(informed_of_nonsense([line + b"\n" for line in lines]))
