"""The client's CPU time per object, from bytes to handlers. Run: python benchmarks/informer.py [--objects 20000]

It runs the production client, reflector, store and informer over a transport in memory: no sockets, no TLS, no server.
The peer reads the same bytes with `json.loads`, line by line or page by page, into a dict. Times depend on the machine;
the ratio hardly does. "longest turn" is the longest time that other tasks of the loop had to wait.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from store import Deployment, deployment

from kubeshard.cache import Cache, Delta
from kubeshard.client import Client, ClusterConfig
from kubeshard.runtime.tls import Tls
from kubeshard.runtime.transport import HttpRequest, HttpResponse

CHUNK = 64 * 1024
PAGE = 500
JSON = {"content-type": "application/json"}
BOOKMARK = (
    b'{"type":"BOOKMARK","object":{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"resourceVersion":"%d",'
    b'"annotations":{"k8s.io/initial-events-end":"true"}}}}\n'
)


class Wire:
    """A `Transport` that serves prepared bytes: a streaming list, then events; or pages."""

    def __init__(self, objects: list[bytes], updates: list[bytes], *, streaming: bool) -> None:
        self._streaming = streaming
        self._pages = [page(objects, start) for start in range(0, len(objects), PAGE)]
        self.initial = (
            b"".join(b'{"type":"ADDED","object":%b}\n' % obj for obj in objects) + BOOKMARK % 2_000_000
        )
        self.events = b"".join(b'{"type":"MODIFIED","object":%b}\n' % obj for obj in updates)
        self.go_on = asyncio.Event()

    @property
    def pages(self) -> list[bytes]:
        return self._pages

    async def request(self, request: HttpRequest) -> HttpResponse:
        _, _, token = request.target.partition("continue=")
        return HttpResponse(200, JSON, self._pages[int(token.partition("&")[0] or 0)])

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[Stream]:
        initial = "sendInitialEvents=true" in request.target
        if initial and not self._streaming:
            yield Stream(422, [b'{"kind":"Status","status":"Failure","reason":"Invalid","code":422}'])
        else:
            yield Stream(200, [self.initial if initial else b"", self.events], self.go_on)

    def renew(self, tls: Tls) -> None: ...

    def abort(self) -> None: ...

    async def close(self) -> None: ...


class Stream:
    headers = JSON

    def __init__(self, status: int, parts: list[bytes], go_on: asyncio.Event | None = None) -> None:
        self.status = status
        self._parts = parts
        self._go_on = go_on

    async def chunks(self) -> AsyncIterator[bytes]:
        for part in self._parts:
            for start in range(0, len(part), CHUNK):
                yield part[start : start + CHUNK]
            assert self._go_on is not None
            await self._go_on.wait()
        await asyncio.Event().wait()

    async def read(self) -> bytes:
        return b"".join(self._parts)


def page(objects: list[bytes], start: int) -> bytes:
    end = start + PAGE
    token = f',"continue":"{end // PAGE}"' if end < len(objects) else ""
    head = (
        f'{{"kind":"DeploymentList","apiVersion":"apps/v1","metadata":{{"resourceVersion":"2000000"{token}}}'
    )
    return head.encode() + b',"items":[' + b",".join(objects[start:end]) + b"]}"


class Turns:
    """Measures how long other tasks wait for the loop."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def run(self) -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0)
            self.longest = max(self.longest, time.perf_counter() - before)


async def ours(wire: Wire, count: int) -> tuple[float, float, float]:
    """Returns the CPU seconds until the informer has synced, the CPU seconds for the events, and the longest turn."""
    client = Client(ClusterConfig(server="https://example.com"), transport=wire)
    cache = Cache(client)
    told = 0
    done = asyncio.Event()

    def handler(_: Delta[Deployment]) -> None:
        nonlocal told
        told += 1
        if told == 2 * count:
            done.set()

    cache.add_index(Deployment, "app", lambda obj: [obj.metadata.label("app")])
    cache.declare(Deployment).add_handler(handler)
    turns = Turns()
    gc.collect()
    async with cache.running():
        other = asyncio.create_task(turns.run())
        started = time.process_time()
        await cache.synced()
        synced = time.process_time() - started
        wire.go_on.set()
        started = time.process_time()
        await done.wait()
        followed = time.process_time() - started
        other.cancel()
    return synced, followed, turns.longest


def peer(read: Callable[[Any], Any], data: Any) -> float:
    gc.collect()
    started = time.process_time()
    read(data)
    return time.process_time() - started


def read_lines(data: bytes) -> dict[tuple[str, str], Any]:
    known = {}
    for line in data.splitlines():
        obj = json.loads(line)["object"]
        known[obj["metadata"].get("namespace"), obj["metadata"].get("name")] = obj
    return known


def read_pages(pages: list[bytes]) -> dict[tuple[str, str], Any]:
    known = {}
    for data in pages:
        for obj in json.loads(data)["items"]:
            known[obj["metadata"]["namespace"], obj["metadata"]["name"]] = obj
    return known


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--objects", type=int, default=20_000)
    count = parser.parse_args().objects
    objects = [deployment(number) for number in range(count)]
    updates = [deployment(number, 2) for number in range(count)]
    print(f"{count} Deployments of {len(objects[0])} bytes, CPU time")
    print(f"{'':24}{'µs/object':>10}{'objects/s':>11}{'json.loads':>12}{'ratio':>7}{'longest turn ms':>17}")
    for name, streaming in (("streaming list", True), ("paged list", False)):
        wire = Wire(objects, updates, streaming=streaming)
        synced, followed, longest = asyncio.run(ours(wire, count))
        theirs = peer(read_lines, wire.initial) if streaming else peer(read_pages, wire.pages)
        row(name, synced, theirs, count, longest)
        if streaming:
            row("changes", followed, peer(read_lines, wire.events), count, None)


def row(name: str, seconds: float, theirs: float, count: int, longest: float | None) -> None:
    turn = "" if longest is None else f"{longest * 1e3:17.1f}"
    ours_, theirs_ = seconds / count * 1e6, theirs / count * 1e6
    print(f"{name:24}{ours_:10.2f}{count / seconds:11.0f}{theirs_:12.2f}{seconds / theirs:7.2f}{turn}")


if __name__ == "__main__":
    main()
