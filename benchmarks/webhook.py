"""Admission reviews per second of the sharder's webhook over HTTPS, as an API server sends them.

    python benchmarks/webhook.py                                  # our server, 3 and 50 shards
    python benchmarks/webhook.py --shards 3 10 50 --wrk           # under load from wrk
    python benchmarks/webhook.py --go-sharder PATH --wrk          # beside the Go reference's
    python benchmarks/webhook.py --url https://127.0.0.1:9443/webhooks/sharder/controllerring/<ring>

The server is the production one (`WebhookServer`, `ShardAdmission`) in its own process, pinned to one core. The load
comes from this process, pinned to another core: keep-alive connections with one request in flight each. Latencies are
those that the client sees. With `--wrk`, the load comes from wrk, which needs less CPU than the server, so that the
server can use all of its core. With `--url`, another server is measured: pin and configure it yourself, with a ring
that shards `websites.webhosting.timebertt.dev`; `--pid` adds its CPU seconds. With `--go-sharder`, both whole programs
are measured in turn, in their own control plane: see `webhook_beside_go`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import ssl
import statistics
import subprocess
import tempfile
import time
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import uvloop
from prometheus_client import CollectorRegistry

from kubeshard.cache import Added
from kubeshard.core import ObjectMeta
from kubeshard.core.selectors import LabelSelector
from kubeshard.runtime.clock import SystemClock
from kubeshard.runtime.world import REAL_WORLD
from kubeshard.sharder.admission import ShardAdmission
from kubeshard.sharder.metrics import SharderMetrics
from kubeshard.sharder.rings import Rings
from kubeshard.sharding.api import ControllerRing, ControllerRingSpec, RingResource
from kubeshard.sharding.names import WEBHOOK_PATH_PREFIX
from kubeshard.sharding.ring import RingInputs
from kubeshard.sharding.shard_states import Availability
from kubeshard.webhook.app import Webhook
from kubeshard.webhook.certificates import ServingCertificate
from kubeshard.webhook.selfsigned import renewed
from kubeshard.webhook.server import WebhookServer

RING = "benchmark"


def rings(shards: int) -> Rings:
    """A ring with the given number of shards that never changes."""
    names = tuple(sorted(f"operator-{number}" for number in range(shards)))
    known: Any = SimpleNamespace(
        availability=lambda ring, now: Availability(names, names), fresh=lambda now: True
    )
    kinds: Any = SimpleNamespace(learned=0, owner_kinds=lambda _: {})
    found = Rings(
        RingInputs(
            shards=known,
            kinds=kinds,
            metrics=SharderMetrics(CollectorRegistry()),
            clock=SystemClock(),
            default_selector=LabelSelector(),
        )
    )
    resource = RingResource(group="webhosting.timebertt.dev", resource="websites")
    spec = ControllerRingSpec(resources=(resource,))
    found.apply(Added(ControllerRing(metadata=ObjectMeta(name=RING), spec=spec)))
    return found


class Certificate:
    async def load(self, serving: ServingCertificate) -> None:
        serving.install(renewed(None, ("localhost",), SystemClock().wall()).serving)

    async def run(self, serving: ServingCertificate) -> None:
        await asyncio.Event().wait()


def serve(shards: int, core: int, loop: str, profile: str, pipe: Connection) -> None:
    os.sched_setaffinity(0, {core})

    async def run() -> None:
        routes = {
            WEBHOOK_PATH_PREFIX: Webhook(ShardAdmission(rings(shards), SystemClock()), on_failure="Ignore")
        }
        async with WebhookServer(routes, Certificate(), host="127.0.0.1", port=0).running(
            REAL_WORLD
        ) as server:
            pipe.send(server.port)
            await asyncio.to_thread(pipe.recv)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop if loop == "uvloop" else None) as runner:
        if profile:
            import cProfile

            with cProfile.Profile() as profiler:
                runner.run(run())
            profiler.dump_stats(profile)
        else:
            runner.run(run())


class Client(asyncio.Protocol):
    """One connection with one request in flight, which sends a list of requests in turn."""

    def __init__(self, requests: list[bytes], latencies: list[float]) -> None:
        self._requests = requests
        self._latencies = latencies
        self._next = 0
        self._sent = 0.0
        self._buffer = b""
        self.done = asyncio.get_running_loop().create_future()
        self.stopping = False
        self.answers: set[bytes] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        self._send()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        begin = head.lower().index(b"content-length: ") + 16
        if len(rest) < int(head[begin:].partition(b"\r")[0]):
            return
        self._latencies.append(time.perf_counter() - self._sent)
        self._buffer = b""
        if not head.startswith(b"HTTP/1.1 200 ") or b'"patch"' not in rest:
            self._end(RuntimeError(f"unexpected answer: {head[:60]!r} {rest[:300]!r}"))
        elif self.stopping:
            self._end(None)
        else:
            self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc or RuntimeError("connection closed"))

    def _send(self) -> None:
        self._next = (self._next + 1) % len(self._requests)
        self._sent = time.perf_counter()
        self._transport.write(self._requests[self._next])

    def _end(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(error) if error else self.done.set_result(None)
            self._transport.close()


class Result(NamedTuple):
    seconds: float
    cpu_seconds: float
    """The server's CPU time in seconds; 0 if its process is not known."""
    answered: int
    p50: float
    """The median latency in seconds."""
    p99: float


async def load(url: str, connections: int, seconds: float, pid: int | None) -> Result:
    """Measures for the given seconds, after one second of warming up."""
    parts = urlsplit(url)
    requests = [request(parts.netloc, parts.path, i) for i in range(1000)]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    latencies: list[float] = []
    loop = asyncio.get_running_loop()
    clients = []
    for i in range(connections):
        shifted = requests[i * 31 :] + requests[: i * 31]
        connected = partial(Client, shifted, latencies)
        _, client = await loop.create_connection(
            connected, parts.hostname or "", parts.port or 443, ssl=context
        )
        clients.append(client)
    await asyncio.sleep(1.0)
    latencies.clear()
    began, cpu = time.perf_counter(), cpu_seconds(pid)
    await asyncio.wait([client.done for client in clients], timeout=seconds)
    elapsed, cpu = time.perf_counter() - began, cpu_seconds(pid) - cpu
    latencies.sort()
    count = len(latencies)
    result = Result(elapsed, cpu, count, latencies[count // 2], latencies[int(count * 0.99)])
    for client in clients:
        client.stopping = True
    await asyncio.gather(*(client.done for client in clients))
    return result


def request(host: str, path: str, number: int) -> bytes:
    """Returns the request that kube-apiserver sends when kubectl creates a small custom resource."""
    name = f"website-{number:06}"
    website = {
        "apiVersion": "webhosting.timebertt.dev/v1alpha1",
        "kind": "Website",
        "metadata": {
            "name": name,
            "namespace": f"project-{number % 10}",
            "uid": f"00000000-0000-4000-8000-{number:012}",
            "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"generated-by": "benchmark"},
            "managedFields": [
                {
                    "manager": "benchmark",
                    "operation": "Update",
                    "apiVersion": "webhosting.timebertt.dev/v1alpha1",
                    "time": "2026-01-01T00:00:00Z",
                    "fieldsType": "FieldsV1",
                    "fieldsV1": {
                        "f:metadata": {"f:labels": {".": {}, "f:generated-by": {}}},
                        "f:spec": {"f:theme": {}},
                    },
                }
            ],
        },
        "spec": {"theme": "lame-theme"},
    }
    resource = {"group": "webhosting.timebertt.dev", "version": "v1alpha1", "resource": "websites"}
    kind = {"group": "webhosting.timebertt.dev", "version": "v1alpha1", "kind": "Website"}
    review = {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": f"11111111-0000-4000-8000-{number:012}",
            "kind": kind,
            "resource": resource,
            "requestKind": kind,
            "requestResource": resource,
            "name": name,
            "namespace": website["metadata"]["namespace"],  # type: ignore[index]
            "operation": "CREATE",
            "userInfo": {
                "username": "kubernetes-admin",
                "groups": ["kubeadm:cluster-admins", "system:authenticated"],
            },
            "object": website,
            "oldObject": None,
            "dryRun": False,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    }
    body = json.dumps(review, separators=(",", ":")).encode()
    head = (
        f"POST {path}?timeout=5s HTTP/1.1\r\nHost: {host}\r\nUser-Agent: kube-apiserver-admission\r\n"
        f"Content-Length: {len(body)}\r\nAccept: application/json, */*\r\nContent-Type: application/json\r\n"
        "Accept-Encoding: gzip\r\n\r\n"
    )
    return head.encode() + body


def wrk(url: str, connections: int, seconds: float, pid: int | None) -> Result:
    """Like `load`, but with wrk, and without warming up."""
    parts = urlsplit(url)
    bodies = [request(parts.netloc, parts.path, i).partition(b"\r\n\r\n")[2].decode() for i in range(1000)]
    script = "\n".join(
        [
            "local requests, n = {}, 0",
            'local headers = {["Content-Type"] = "application/json", ["User-Agent"] = "kube-apiserver-admission"}',
            "local bodies = {" + ",".join(f"[==[{body}]==]" for body in bodies) + "}",
            "function init() for i, body in ipairs(bodies) do "
            'requests[i] = wrk.format("POST", wrk.path .. "?timeout=5s", headers, body) end end',
            "function request() n = n % #requests + 1; return requests[n] end",
            "function done(summary, latency) io.write(string.format("
            '"RESULT %d %d %d %d %d\\n", summary.requests, summary.duration, latency:percentile(50), '
            "latency:percentile(99), summary.errors.status + summary.errors.read + summary.errors.timeout)) end",
        ]
    )
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        file.write(script)
        file.flush()
        command = ["wrk", "-t1", f"-c{connections}", f"-d{round(seconds)}s", "-s", file.name, url]
        cpu = cpu_seconds(pid)
        found = subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603 - our own
        cpu = cpu_seconds(pid) - cpu
    requests, duration, p50, p99, errors = map(int, found.partition("RESULT ")[2].split())
    if errors:
        raise RuntimeError(f"{errors} requests failed")
    return Result(duration / 1e6, cpu, requests, p50 / 1e6, p99 / 1e6)


def cpu_seconds(pid: int | None) -> float:
    if pid is None:
        return 0.0
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def loaded(url: str, pid: int | None, arguments: argparse.Namespace) -> Result:
    if arguments.wrk:
        return wrk(url, arguments.connections, arguments.seconds, pid)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(load(url, arguments.connections, arguments.seconds, pid))


def measure_beside_go(arguments: argparse.Namespace) -> None:
    from webhook_beside_go import beside_go

    def measured(url: str, pid: int) -> tuple[float, float, float, float]:
        result = loaded(url, pid, arguments)
        per_cpu, rate = result.answered / result.cpu_seconds, result.answered / result.seconds
        return per_cpu, rate, 1000 * result.p50, 1000 * result.p99

    body = request("", "", 0).partition(b"\r\n\r\n")[2]
    go, core = arguments.go_sharder, arguments.server_core
    asyncio.run(beside_go(go, arguments.shards, arguments.repeat, core, body, measured))


def measure(name: str, url: str, pid: int | None, arguments: argparse.Namespace) -> float:
    elapsed, cpu, count, p50, p99 = loaded(url, pid, arguments)
    line = (
        f"{name:>12}: {count / elapsed:7.0f} requests/s  p50 {1000 * p50:6.2f} ms  p99 {1000 * p99:6.2f} ms"
    )
    if cpu:
        line += f"  server CPU {cpu / elapsed:4.0%}, {count / cpu:6.0f} requests per CPU second"
    print(line, flush=True)
    return count / elapsed


def measure_ours(shards: int, arguments: argparse.Namespace) -> float:
    ours, theirs = multiprocessing.Pipe()
    settings = (shards, arguments.server_core, arguments.loop, arguments.profile, theirs)
    process = multiprocessing.get_context("spawn").Process(target=serve, args=settings)
    process.start()
    try:
        url = f"https://127.0.0.1:{ours.recv()}{WEBHOOK_PATH_PREFIX}{RING}"
        return measure(f"{shards} shards", url, process.pid, arguments)
    finally:
        ours.send(None)
        process.join(15)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", help="measure the server there instead of ours")
    parser.add_argument("--pid", type=int, help="process of that server, for its CPU seconds")
    parser.add_argument(
        "--go-sharder", type=Path, metavar="PATH", help="the Go reference's program to measure beside"
    )
    parser.add_argument("--shards", type=int, nargs="+", default=[3, 50])
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--repeat", type=int, default=1, help="rounds; their medians are printed too")
    parser.add_argument("--wrk", action="store_true", help="load from wrk, which must be installed")
    parser.add_argument("--server-core", type=int, default=0)
    parser.add_argument("--load-core", type=int, default=1)
    parser.add_argument("--loop", choices=["uvloop", "asyncio"], default="uvloop", help="of our server")
    parser.add_argument("--profile", default="", help="write a cProfile of our server to this file")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {arguments.load_core})
    if arguments.go_sharder:
        measure_beside_go(arguments)
        return
    rates: dict[str, list[float]] = {}
    for _ in range(arguments.repeat):
        if arguments.url:
            rate = measure("url", arguments.url, arguments.pid, arguments)
            rates.setdefault("url", []).append(rate)
            continue
        for shards in arguments.shards:
            rates.setdefault(f"{shards} shards", []).append(measure_ours(shards, arguments))
    if arguments.repeat > 1:
        for name, values in rates.items():
            print(
                f"{name:>12}: median {statistics.median(values):.0f}, {min(values):.0f}-{max(values):.0f} requests/s"
            )


if __name__ == "__main__":
    main()
