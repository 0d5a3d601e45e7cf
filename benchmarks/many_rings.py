"""What many rings cost one sharder. Run: python benchmarks/many_rings.py [--rings 100 1000] [--kube] [--replicas]

Starts an API server (`kubeshard apiserver`, or with --kube a real control plane without controllers) and the sharder,
each in a process of its own. Every ring has two resources, Secrets and ConfigMaps, selects one namespace, and has two
shards, whose Leases this program renews. In each namespace there is one object of both resources before the sharder
starts, and one of both is created after all rings are served, which the webhook assigns. A ring is served when its
status shows both shards as available and its objects have a shard. With --replicas, a second replica is started then,
the first one is stopped, the second takes over, and finally a third one starts after the second was stopped.

| figure | meaning |
|---|---|
| served | seconds from the start of the process until every ring is served; of a replica that takes over, from the \
stop of the leader until it has scanned all objects of every ring |
| turn | the longest time that the event loop was busy before it returned to its timers: CPU time of its thread, and \
wall time, which includes what other processes took. Start-up is included, imports are not |
| memory | peak resident memory |
| connections | the most at the same time, to the API server |
| scrape | the size of /metrics when every ring is served, as Prometheus transfers it, compressed; as plain text; and \
its series |
| CPU | seconds until every ring is served; then in thousandths of a core while Leases are renewed, and scraped |
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import gzip
import itertools
import json
import os
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from fleet import Program, Results, cost_of, progress

from kubeshard import ALL
from kubeshard.client import Client, load_config
from kubeshard.core import (
    ConfigMap,
    Lease,
    MergePatch,
    Namespace,
    ObjectMeta,
    Secret,
    metadata_only,
)
from kubeshard.core.builtin import LeaseSpec
from kubeshard.core.errors import ApiError, NotFound
from kubeshard.core.selectors import LabelSelector
from kubeshard.core.times import micro_time
from kubeshard.manager import Manager, run
from kubeshard.runtime.world import REAL_WORLD
from kubeshard.sharder import config as sharder_config
from kubeshard.sharder.app import connected_sharder
from kubeshard.sharding.api import ControllerRing, ControllerRingSpec, RingResource
from kubeshard.sharding.crd import controller_ring_crd
from kubeshard.sharding.names import RING_LABEL, SYSTEM_NAMESPACE, shard_label
from kubeshard.webhook.selfsigned import renewed
from kubeshard_apiserver.testing import ControlPlane
from kubeshard_apiserver.testing.child import Child
from kubeshard_apiserver.testing.control_plane import free_port

SHARDS = 2
TICK = 0.005
"""Seconds between looks at the clocks of the loop's thread."""
LEASE_SECONDS, RENEW_EVERY, RENEW_EVERY_EMBEDDED = 60, 10.0, 40.0
"""Longer than shards have it, so that a busy machine does not end shards."""
CONCURRENT = 16
SCRAPE_EVERY = 15.0
SCANS = b'controller_sharding_resync_duration_seconds_count{scope="all"}'
PATIENCE = 900.0
STANDBY = 20
"""Seconds."""


# In the sharder's process


async def note_turns(path: Path) -> None:
    """Writes the longest turns so far, in seconds of CPU and of wall time."""
    longest_cpu = longest_wall = 0.0
    while True:
        cpu, wall = time.thread_time(), time.monotonic()
        await asyncio.sleep(TICK)
        cpu, wall = time.thread_time() - cpu, time.monotonic() - wall - TICK
        if cpu > longest_cpu or wall > longest_wall:
            longest_cpu, longest_wall = max(cpu, longest_cpu), max(wall, longest_wall)
            path.write_text(f"{longest_cpu} {longest_wall}")  # noqa: ASYNC240 - a few bytes


@asynccontextmanager
async def noted(sharder: AbstractAsyncContextManager[Manager], turns: Path) -> AsyncIterator[Manager]:
    async with sharder as manager:
        noting = asyncio.create_task(note_turns(turns))
        yield manager
        noting.cancel()


def be_the_sharder(config: str, turns: str) -> None:
    settings, _ = sharder_config.load_sharder_config(config)
    run(noted(connected_sharder(settings, None, None, REAL_WORLD), Path(turns)))


# In the benchmark's process


@contextmanager
def served(kube: bool, folder: Path) -> Iterator[tuple[Path, tuple[Child, ...]]]:
    """An API server: its kubeconfig and its processes."""
    if kube:
        with ControlPlane() as plane:
            yield plane.kubeconfig, tuple(plane.children)
        return
    kubeconfig = folder / "kubeconfig"
    command = [sys.executable, "-m", "kubeshard", "apiserver", "--port", "0", "--no-controllers"]
    child = Child("apiserver", [*command, "--kubeconfig", str(kubeconfig)], folder / "apiserver.log")
    try:
        while not kubeconfig.exists():
            time.sleep(0.1)
        yield kubeconfig, (child,)
    finally:
        child.stop()


async def each(work: Callable[[int], Awaitable[object]], numbers: Iterable[int]) -> None:
    """Does the work for all numbers, some at a time."""
    left = iter(numbers)

    async def some() -> None:
        for number in left:
            await work(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(CONCURRENT):
            group.create_task(some())


def name_of(ring: int) -> str:
    return f"ring-{ring:04}"


async def make_ring(client: Client, number: int) -> None:
    name = name_of(number)
    await client.create(Namespace(metadata=ObjectMeta(name=name, labels={"ring": name})))
    await make_objects(client, number, "before")
    resources = (RingResource(resource="secrets"), RingResource(resource="configmaps"))
    selector = LabelSelector(match_labels={"ring": name})
    await client.create(
        ControllerRing(
            metadata=ObjectMeta(name=name),
            spec=ControllerRingSpec(resources=resources, namespace_selector=selector),
        )
    )
    for shard in range(SHARDS):
        now = micro_time(time.time())
        spec = LeaseSpec(
            holder_identity=f"{name}-{shard}",
            lease_duration_seconds=LEASE_SECONDS,
            acquire_time=now,
            renew_time=now,
        )
        meta = ObjectMeta(name=f"{name}-{shard}", namespace=name, labels={RING_LABEL: name})
        await client.create(Lease(metadata=meta, spec=spec))


async def make_objects(client: Client, number: int, name: str) -> None:
    for kind in (Secret, ConfigMap):
        await client.create(kind(metadata=ObjectMeta(name=name, namespace=name_of(number))))


async def renew(client: Client, rings: range, period: float) -> None:
    """Renews all Leases once in so many seconds, evenly spread, or as fast as the API server lets it."""
    every = [(name_of(ring), f"{name_of(ring)}-{shard}") for ring in rings for shard in range(SHARDS)]
    began, numbers = time.monotonic(), itertools.count()

    async def some() -> None:
        for number in numbers:
            await asyncio.sleep(max(0.0, began + number * period / len(every) - time.monotonic()))
            namespace, name = every[number % len(every)]
            patch = MergePatch({"spec": {"renewTime": micro_time(time.time())}})
            try:
                await client.patch(Lease, name, namespace, patch)
            except ApiError as error:
                progress(f"  not renewed: {error}")

    async with asyncio.TaskGroup() as group:
        for _ in range(CONCURRENT):
            group.create_task(some())


class Sharder:
    """A replica, and what it cost. `server`: the port of the API server."""

    def __init__(self, kubeconfig: Path, server: int, folder: Path, webhook: int, name: str) -> None:
        self.began = time.monotonic()
        self.metrics = free_port()
        self._turns = folder / f"{name}.turns"
        self.child = start_sharder(kubeconfig, folder, webhook, self.metrics, self._turns, name)
        self.connections = Connections(self.child, server)

    def figures(self) -> dict[str, float]:
        cpu, wall = (float(word) for word in self._turns.read_text().split())
        return {
            "turn (CPU)": cpu * 1000,
            "turn (wall)": wall * 1000,
            "memory": cost_of(self.child).peak_mib,
            "connections": self.connections.most,
        }

    async def has_scanned(self, scans: int) -> None:
        """Waits until it has scanned all objects of so many resources of rings."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and self.child.running:
            self.connections.note()
            with suppress(OSError):  # it does not listen yet
                if (await asyncio.to_thread(scrape, self.metrics)).scans >= scans:
                    return
            await asyncio.sleep(0.5)
        raise RuntimeError(f"it has not scanned everything; running: {self.child.running}")


def make_certificate(folder: Path) -> None:
    identity = renewed(None, ["127.0.0.1"], time.time())
    (folder / "tls.crt").write_bytes(identity.serving.certificate)
    (folder / "tls.key").write_bytes(identity.serving.private_key)
    (folder / "ca.crt").write_bytes(identity.bundle)


def start_sharder(
    kubeconfig: Path, folder: Path, webhook: int, metrics: int, turns: Path, name: str
) -> Child:
    document = {
        "apiVersion": sharder_config.API_VERSION,
        "kind": sharder_config.KIND,
        "health": {"bindAddress": "0"},
        "metrics": {"bindAddress": f"127.0.0.1:{metrics}"},
        "insecureMetrics": True,
        "webhook": {
            "server": {"certDir": str(folder), "bindAddress": f"127.0.0.1:{webhook}", "reusePort": True},
            "config": {
                "clientConfig": {
                    "url": f"https://127.0.0.1:{webhook}/",
                    "caBundle": base64.b64encode((folder / "ca.crt").read_bytes()).decode(),
                }
            },
        },
    }
    config = folder / f"{name}.json"
    config.write_text(json.dumps(document))
    command = [sys.executable, __file__, "--be-the-sharder", str(config), str(turns)]
    return Child(name, command, folder / f"{name}.log", {**os.environ, "KUBECONFIG": str(kubeconfig)})


async def all_served(client: Client, rings: range, sharder: Child, note: Callable[[], None]) -> None:
    """Waits until every ring is served; notes figures meanwhile."""
    deadline, told = time.monotonic() + PATIENCE, 0.0
    done: set[int] = set()
    while time.monotonic() < deadline and sharder.running:
        note()
        with suppress(ApiError):  # the API server may be too busy
            done = await served_rings(client, rings)
        if len(done) == len(rings):
            return
        if time.monotonic() - told > 5:
            told = time.monotonic()
            progress(f"  {len(done)} rings are served")
        await asyncio.sleep(max(0.5, len(rings) / 400))  # it reads everything
    raise RuntimeError(f"{len(done)} of {len(rings)} rings are served; running: {sharder.running}")


async def served_rings(client: Client, rings: range) -> set[int]:
    """Raises ApiError."""
    statuses = {ring.name: ring.status for ring in await client.list_all(ControllerRing, ALL)}
    done = {n for n in rings if (s := statuses.get(name_of(n))) and s.available_shards == SHARDS}
    for kind in (Secret, ConfigMap):
        for obj in await client.list_all(metadata_only(kind), ALL):
            name = obj.metadata.namespace
            if name.startswith("ring-") and not obj.metadata.label(shard_label(name)):
                done.discard(int(name.removeprefix("ring-")))
    return done


class Connections:
    """The most connections of a process to a port."""

    def __init__(self, child: Child, port: int) -> None:
        self._child = child
        self._port = port
        self.most = 0

    def note(self) -> None:
        own = set(_targets(Path("/proc", str(self._child.pid), "fd")))
        count = 0
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            peer = int(fields[2].rpartition(":")[2], 16)
            count += peer == self._port and fields[3] == "01" and f"socket:[{fields[9]}]" in own
        self.most = max(self.most, count)


def _targets(folder: Path) -> Iterator[str]:
    for each in folder.iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            yield os.readlink(each)


class Scrape(NamedTuple):
    compressed: int
    plain: int
    series: int
    scans: int
    """At all objects of a resource of a ring."""


def scrape(port: int) -> Scrape:
    """Scrapes as Prometheus does."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - loopback
        body: bytes = answer.read()
    page = gzip.decompress(body)
    series = [line for line in page.splitlines() if not line.startswith(b"#")]
    scans = (line for line in series if line.startswith(SCANS))
    return Scrape(len(body), len(page), len(series), int(sum(float(line.split()[-1]) for line in scans)))


async def holder(client: Client) -> tuple[str, int]:
    lease = await client.get(Lease, "sharder", SYSTEM_NAMESPACE)
    return lease.spec.holder_identity or "", lease.spec.lease_transitions or 0


async def measure(
    rings: int, kube: bool, replicas: bool, seconds: float, results: Results, keep: Path | None
) -> None:
    with TemporaryDirectory() as temporary:
        folder = keep / str(rings) if keep else Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        with served(kube, folder) as (kubeconfig, servers):
            config = await load_config(kubeconfig=kubeconfig)
            async with Client(config) as client:
                await client.apply_manifest(controller_ring_crd())
                while True:
                    try:
                        await client.list_all(ControllerRing, ALL)
                        break
                    except NotFound:
                        await asyncio.sleep(0.1)
                await client.create(Namespace(metadata=ObjectMeta(name=SYSTEM_NAMESPACE)))
                progress(f"making {rings} rings")
                await each(lambda number: make_ring(client, number), range(rings))
                async with asyncio.TaskGroup() as group:
                    # The embedded API server is not made for hundreds of writes per second.
                    period = RENEW_EVERY if kube else RENEW_EVERY_EMBEDDED
                    renewing = group.create_task(renew(client, range(rings), period))
                    make_certificate(folder)
                    webhook = free_port()
                    server = int(config.server.rpartition(":")[2])
                    first = Sharder(kubeconfig, server, folder, webhook, "sharder")
                    try:
                        await with_sharder(first, client, rings, seconds, servers, results)
                        if replicas:
                            await other_replicas(first, kubeconfig, server, folder, webhook, rings, results)
                    finally:
                        first.child.stop()
                    renewing.cancel()


async def with_sharder(
    replica: Sharder,
    client: Client,
    rings: int,
    seconds: float,
    servers: tuple[Child, ...],
    results: Results,
) -> None:
    sharder, connections = replica.child, replica.connections
    await all_served(client, range(rings), sharder, connections.note)
    took, cost = time.monotonic() - replica.began, cost_of(sharder)
    first = await holder(client)
    progress(f"  all served after {took:.1f} s, {cost.cpu:.1f} s of CPU")
    await each(lambda number: make_objects(client, number, "after"), range(rings))
    await all_served(client, range(rings), sharder, connections.note)
    await asyncio.sleep(5)
    before, server = cost_of(sharder).cpu, [cost_of(child).cpu for child in servers]
    idle, scraped = time.monotonic(), 0
    page = await asyncio.to_thread(scrape, replica.metrics)
    while time.monotonic() - idle < seconds:
        await asyncio.sleep(1)
        connections.note()
        if (waited := time.monotonic() - idle) >= scraped * SCRAPE_EVERY:
            scraped = int(waited // SCRAPE_EVERY) + 1
            page = await asyncio.to_thread(scrape, replica.metrics)
    idle = time.monotonic() - idle
    cpu = (cost_of(sharder).cpu - before) / idle
    api_cpu = sum(cost_of(child).cpu - then for child, then in zip(servers, server, strict=True)) / idle
    if await holder(client) != first:
        raise RuntimeError("the sharder has lost its Lease")
    results.add(
        f"{rings} rings",
        Program("kubeshard"),
        **replica.figures(),
        **{
            "served": took,
            "CPU until then": cost.cpu,
            "scrape": page.compressed / 1024,
            "plain": page.plain / 1024,
            "series": page.series,
            "CPU at rest": cpu * 1000,
            "server's CPU": api_cpu * 1000,
        },
    )


async def other_replicas(
    first: Sharder,
    kubeconfig: Path,
    server: int,
    folder: Path,
    webhook: int,
    rings: int,
    results: Results,
) -> None:
    """The second replica stands by and takes over; the third starts when there is no other."""
    second = Sharder(kubeconfig, server, folder, webhook, "second")
    third: Sharder | None = None
    try:
        await second.has_scanned(0)  # it answers
        for _ in range(STANDBY):
            await asyncio.sleep(1)
            second.connections.note()
        standby = cost_of(second.child).cpu
        results.add(f"{rings} rings: stands by", Program("kubeshard"), **second.figures())
        stopped = time.monotonic()
        await asyncio.to_thread(first.child.stop)
        await second.has_scanned(2 * rings)
        spent = {"served": time.monotonic() - stopped, "CPU until then": cost_of(second.child).cpu - standby}
        results.add(f"{rings} rings: takes over", Program("kubeshard"), **second.figures(), **spent)
        await asyncio.to_thread(second.child.stop)
        third = Sharder(kubeconfig, server, folder, webhook, "third")
        await third.has_scanned(2 * rings)
        spent = {"served": time.monotonic() - third.began, "CPU until then": cost_of(third.child).cpu}
        results.add(f"{rings} rings: restarted", Program("kubeshard"), **third.figures(), **spent)
    finally:
        for replica in (second, third):
            if replica is not None:
                replica.child.stop()


UNITS = {
    "served": "s",
    "CPU until then": "s",
    "turn (CPU)": "ms",
    "turn (wall)": "ms",
    "memory": "MiB",
    "connections": "",
    "scrape": "KiB",
    "plain": "KiB",
    "series": "",
    "CPU at rest": "m",
    "server's CPU": "m",
}


async def main(given: argparse.Namespace) -> None:
    with Results(UNITS) as results:
        for rings in given.rings:
            await measure(rings, given.kube, given.replicas, given.seconds, results, given.keep)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--be-the-sharder"]:
        be_the_sharder(*sys.argv[2:])
    else:
        parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
        parser.add_argument("--rings", type=int, nargs="+", default=[100, 1000])
        parser.add_argument("--seconds", type=float, default=20.0)
        parser.add_argument("--kube", action="store_true")
        parser.add_argument("--replicas", action="store_true")
        parser.add_argument("--keep", type=Path, help="a folder for logs and configuration")
        asyncio.run(main(parser.parse_args()))
