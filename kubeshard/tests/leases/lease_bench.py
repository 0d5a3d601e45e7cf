"""One Lease behind a `Transport`, with the failures of a real server and network, and a process that holds it."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from typing import NoReturn

import msgspec
from msgspec.structs import replace

from kubeshard.client import Client, ClusterConfig
from kubeshard.core.builtin import Lease, LeaseSpec
from kubeshard.core.encoding import encode
from kubeshard.leases.claim import Claim
from kubeshard.leases.held_lease import HeldLease
from kubeshard.leases.renewer import LeaseRenewer, RenewalFailure
from kubeshard.leases.state_machine import LeaseStateMachine
from kubeshard.leases.timing import Timing
from kubeshard.runtime.loop_thread import LoopRunner, SameLoop
from kubeshard.runtime.tls import Tls
from kubeshard.runtime.transport import HttpRequest, HttpResponse, Transport, TransportError, TransportTimeout
from kubeshard_lab.virtual_time import VirtualClock
from kubeshard_lab.virtual_world import virtual_world

JSON = {"content-type": "application/json"}


Trouble = Callable[[HttpRequest], Awaitable[HttpResponse | None]]
"""Runs before a request is executed; may wait, raise, or respond itself."""


class LeaseServer:
    """`lease` is the stored Lease. `down`: requests get no response; `slow`: seconds before each response; `read_only`:
    writes are rejected; `loses_answers`: writes take effect, but their responses are lost. Bound to one loop.
    """

    def __init__(self) -> None:
        self.lease: Lease | None = None
        self.down = False
        self.slow = 0.0
        self.read_only = False
        self.loses_answers = False
        self.trouble: Trouble | None = None
        self.requests: list[tuple[float, str]] = []
        self.writes: list[tuple[float, Lease]] = []
        self.agents: set[str] = set()
        self.aborts = 0
        self._version = 0
        self._watchers: list[asyncio.Queue[bytes]] = []
        self._cut = asyncio.Event()

    @property
    def spec(self) -> LeaseSpec:
        assert self.lease is not None
        return self.lease.spec

    @property
    def holder(self) -> str | None:
        return self.lease.spec.holder_identity if self.lease else None

    # What others do to the Lease

    def edit(self, *, holder: str | None = None, labels: Mapping[str, str] | None = None) -> None:
        assert self.lease is not None
        meta, spec = self.lease.metadata, self.lease.spec
        if labels is not None:
            meta = replace(meta, labels={**(meta.labels or {}), **labels})
        if holder is not None:
            spec = replace(spec, holder_identity=holder)
        self._store("MODIFIED", replace(self.lease, metadata=meta, spec=spec))

    def restore(self, lease: Lease) -> None:
        """etcd is restored from a backup: versions go backwards, and no watch reports it."""
        self.lease = lease
        self._version = int(lease.metadata.resource_version)

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
        self.requests.append((asyncio.get_running_loop().time(), request.method))
        if self.down:
            await unanswered(request)
        if self.trouble and (answer := await self.trouble(request)):
            return answer
        await asyncio.sleep(self.slow)
        match request.method:
            case "GET" if self.lease is None:
                return status(404, "NotFound")
            case "GET":
                assert self.lease is not None
                return HttpResponse(200, JSON, encode(self.lease))
            case _ if self.read_only:
                return status(403, "Forbidden")
            case "POST" if self.lease is not None:
                return status(409, "AlreadyExists")
            case "PUT" if self.lease is None:
                return status(404, "NotFound")
        assert request.body is not None
        lease = msgspec.json.decode(request.body, type=Lease)
        if request.method == "PUT":
            assert self.lease is not None
            if lease.metadata.resource_version != self.lease.metadata.resource_version:
                return status(409, "Conflict")
        lease = self._store("MODIFIED" if request.method == "PUT" else "ADDED", lease)
        self.writes.append((asyncio.get_running_loop().time(), lease))
        if self.loses_answers:
            await unanswered(request)
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

    def renew(self, tls: Tls) -> None: ...

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


async def unanswered(request: HttpRequest) -> NoReturn:
    await asyncio.sleep(request.timeout or 3600)
    raise TransportTimeout("no answer")


async def refused(request: HttpRequest) -> NoReturn:
    raise TransportError("connection refused", sent=False)


def status(code: int, reason: str) -> HttpResponse:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code}
    return HttpResponse(code, JSON, msgspec.json.encode(body))


class Watchdog:
    """Records its calls."""

    kind = "kernel timer"

    def __init__(self) -> None:
        self.deadline: float | None = None
        self.bitten_at: float | None = None

    def arm(self, deadline: float) -> None:
        self.deadline = deadline

    def disarm(self) -> None:
        self.deadline = None

    def bite(self) -> None:
        self.bitten_at = asyncio.get_running_loop().time()


class Metrics:
    def __init__(self) -> None:
        self.holds: list[bool] = []
        self.slow = 0
        self.renewals = 0
        self.failures = Counter[RenewalFailure]()

    def holding(self, name: str, holds: bool) -> None:
        self.holds.append(holds)

    def slow_path(self, name: str) -> None:
        self.slow += 1

    def renewed(self, name: str) -> None:
        self.renewals += 1

    def not_renewed(self, name: str, why: RenewalFailure) -> None:
        self.failures[why] += 1


class Middle:
    """A random source that returns the middle: no jitter."""

    def uniform(self, low: float, high: float) -> float:
        return (low + high) / 2

    def token(self) -> str:
        return "00000000-0000-4000-8000-000000000000"


class Process:
    """A process with its own clock and watchdog."""

    def __init__(self, server: LeaseServer, identity: str = "me", *, watches: bool = True) -> None:
        self.server = server
        self.identity = identity
        self.watches = watches
        self.clock = VirtualClock()
        self.watchdog = Watchdog()
        self.metrics = Metrics()
        self.sick: str | None = None
        self.aborts = self.rewinds = 0
        self.held_lease = HeldLease(self.clock, "the right is over", self.abort)
        self.machine = LeaseStateMachine(Claim("ns", "lock", identity, Timing()), Middle().uniform)
        self.world = dataclasses.replace(
            virtual_world(clock=self.clock, connect=self.connect),
            rng=Middle(),
            watchdog=lambda: self.watchdog,
        )

    def client(self) -> Client:
        return Client(ClusterConfig("https://api"), world=self.world)

    def connect(self, server: str, tls: Tls, /, *, proxy: str | None = None) -> Transport:
        return self.server

    def abort(self) -> None:
        self.aborts += 1

    def rewound(self) -> None:
        self.rewinds += 1

    def health(self) -> str | None:
        return self.sick

    @property
    def now(self) -> float:
        return self.clock.boottime()

    @asynccontextmanager
    async def held(self, *, runner: LoopRunner | None = None) -> AsyncIterator[HeldLease]:
        renewer = LeaseRenewer(
            self.machine,
            self.held_lease,
            lambda: self.health(),
            connect=lambda: nullcontext(self.client()),
            watches=self.watches,
            watchdog=self.watchdog,
            clock=self.clock,
            alarm=self.world.alarm,
            metrics=self.metrics,
            rewound=self.rewound,
        )
        async with renewer.held(runner or SameLoop()):
            yield self.held_lease
