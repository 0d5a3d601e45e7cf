"""One Lease behind a `Transport`, with the failures a real server and network have. For one loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import msgspec
from msgspec.structs import replace

from kubeshard.client import Client, ClusterConfig
from kubeshard.core.builtin import Lease
from kubeshard.core.encoding import encode
from kubeshard.runtime.transport import HttpRequest, HttpResponse, TransportError, TransportTimeout
from kubeshard.testing.virtual_world import virtual_world

JSON = {"content-type": "application/json"}


class LeaseServer:
    """`lease` is what is stored. `down`: requests get no answer; `slow`: seconds before each answer;
    `read_only`: writes are refused.
    """

    def __init__(self) -> None:
        self.lease: Lease | None = None
        self.down = False
        self.slow = 0.0
        self.read_only = False
        self.writes: list[tuple[float, Lease]] = []
        self.agents: set[str] = set()
        self.aborts = 0
        self._version = 0
        self._watchers: list[asyncio.Queue[bytes]] = []
        self._cut = asyncio.Event()

    def client(self) -> Client:
        return Client(ClusterConfig("https://api"), transport=self, world=virtual_world())

    # What others do to the lease

    def edit(self, *, holder: str | None = None, labels: Mapping[str, str] | None = None) -> None:
        assert self.lease is not None
        meta, spec = self.lease.metadata, self.lease.spec
        if labels is not None:
            meta = replace(meta, labels={**(meta.labels or {}), **labels})
        if holder is not None:
            spec = replace(spec, holder_identity=holder)
        self._store("MODIFIED", replace(self.lease, metadata=meta, spec=spec))

    def put(self, lease: Lease) -> None:
        self._store("ADDED", lease)

    def delete(self) -> None:
        assert self.lease is not None
        self._store("DELETED", self.lease)
        self.lease = None

    def cut_watches(self) -> None:
        self._cut.set()
        self._cut = asyncio.Event()

    # Transport

    async def request(self, request: HttpRequest) -> HttpResponse:
        self.agents.add(request.headers["User-Agent"])
        if self.down:
            await asyncio.sleep(request.timeout or 3600)
            raise TransportTimeout("no answer")
        await asyncio.sleep(self.slow)
        match request.method:
            case "GET" if self.lease is None:
                return _status(404, "NotFound")
            case "GET":
                assert self.lease is not None
                return HttpResponse(200, JSON, encode(self.lease))
            case _ if self.read_only:
                return _status(403, "Forbidden")
            case "POST" if self.lease is not None:
                return _status(409, "AlreadyExists")
            case "PUT" if self.lease is None:
                return _status(404, "NotFound")
        assert request.body is not None
        lease = msgspec.json.decode(request.body, type=Lease)
        if request.method == "PUT":
            assert self.lease is not None
            if lease.metadata.resource_version != self.lease.metadata.resource_version:
                return _status(409, "Conflict")
        lease = self._store("MODIFIED" if request.method == "PUT" else "ADDED", lease)
        self.writes.append((asyncio.get_running_loop().time(), lease))
        return HttpResponse(200, JSON, encode(lease))

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[_Stream]:
        if self.down:
            raise TransportError("refused")
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._watchers.append(queue)
        try:
            yield _Stream(queue, self._cut)
        finally:
            self._watchers.remove(queue)

    def abort(self) -> None:
        self.aborts += 1

    async def close(self) -> None: ...

    def _store(self, event: str, lease: Lease) -> Lease:
        self._version += 1
        meta = replace(lease.metadata, resource_version=str(self._version), uid="uid")
        self.lease = replace(lease, metadata=meta)
        line = b'{"type":"%s","object":%s}\n' % (event.encode(), encode(self.lease))
        for watcher in self._watchers:
            watcher.put_nowait(line)
        return self.lease


class _Stream:
    status = 200
    headers = JSON

    def __init__(self, queue: asyncio.Queue[bytes], cut: asyncio.Event) -> None:
        self._queue = queue
        self._cut = cut

    async def chunks(self) -> AsyncIterator[bytes]:
        while True:
            getting = asyncio.create_task(self._queue.get())
            cutting = asyncio.create_task(self._cut.wait())
            try:
                await asyncio.wait((getting, cutting), return_when=asyncio.FIRST_COMPLETED)
                if cutting.done():
                    raise TransportError("connection reset")
                yield getting.result()
            finally:
                getting.cancel()
                cutting.cancel()

    async def read(self) -> bytes:
        return b""


def _status(code: int, reason: str) -> HttpResponse:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code}
    return HttpResponse(code, JSON, msgspec.json.encode(body))
