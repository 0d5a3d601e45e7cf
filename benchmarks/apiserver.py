"""Compares the embedded API server with kube-apiserver and etcd: writes, lists, watches, memory, start.

    python benchmarks/apiserver.py [--rounds 5] [--only create ...] [--profile DIRECTORY]

All servers run at the same time, each in its own processes, over HTTPS with a token and RBAC. They are measured in
turn, round by round. `--servers` selects them: `embedded` keeps everything in memory, `durable` runs with `--data` (it
waits for the disk, which etcd does not do here), and `real` is kube-apiserver with etcd. None runs controllers.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from urllib.parse import urlsplit

import uvloop
import yaml
from http_load import Endpoint, Load, Remote, in_process, send_all, untrusting, watch_in_process

from kubeshard_apiserver.testing import ControlPlane

GROUP = "benchmark.kubeshard.dev"
CONFIG_MAPS = "/api/v1/namespaces/{}/configmaps"
THINGS = f"/apis/{GROUP}/v1/namespaces/{{}}/things"
DEPLOYMENTS = "/apis/apps/v1/namespaces/{}/deployments"
META = "as={};g=meta.k8s.io;v=v1,application/json"
PARTIAL = "application/json;" + META.format("PartialObjectMetadataList")
TABLE = "application/json;" + META.format("Table")
MERGE = "application/merge-patch+json"
LISTED = "listed"
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"things.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "theme": {"type": "string", "maxLength": 100},
                                    "replicas": {"type": "integer", "minimum": 0, "default": 1},
                                },
                            },
                            "status": {
                                "type": "object",
                                "properties": {
                                    "observed": {"type": "integer"},
                                    "phase": {"type": "string"},
                                },
                            },
                        },
                    }
                },
            }
        ],
    },
}


class Server:
    """A running server: its address and its processes."""

    def __init__(self, name: str, kubeconfig: Path, pids: list[int], start: float) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        url = urlsplit(config["clusters"][0]["cluster"]["server"])
        self.name = name
        self.pids = pids
        self.start = start
        self.endpoint = Endpoint(str(url.hostname), url.port or 443, config["users"][0]["user"]["token"])

    def ask(self, method: str, path: str, body: object = None) -> int:
        connection = HTTPSConnection(self.endpoint.host, self.endpoint.port, context=untrusting(), timeout=10)
        headers = {"Authorization": f"Bearer {self.endpoint.token}", "Content-Type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        status = connection.getresponse().status
        connection.close()
        return status

    @property
    def cpu(self) -> float:
        return sum(cpu_seconds(pid) for pid in self.pids)

    @property
    def rss(self) -> float:
        """Resident memory in MiB."""
        pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self.pids)
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def start_embedded(name: str, stack: ExitStack, profile: str, *, controllers: bool = False) -> Server:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
    kubeconfig = folder / "kubeconfig"
    command = [sys.executable, *(["-m", "cProfile", "-o", f"{profile}/{name}"] if profile else [])]
    command += ["-m", "kubeshard", "apiserver", "--port=0", f"--kubeconfig={kubeconfig}"]
    command += [] if controllers else ["--no-controllers"]
    command += ["--data", str(folder / "data")] if name == "durable" else []
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 - ourselves
    stack.callback(process.wait)
    stack.callback(process.terminate)
    assert process.stdout is not None
    process.stdout.readline()
    server = Server(name, kubeconfig, [process.pid], 0.0)
    while not is_ready(server):
        time.sleep(0.002)
    server.start = time.perf_counter() - began
    return server


def start_real(stack: ExitStack) -> Server:
    began = time.perf_counter()
    plane = stack.enter_context(ControlPlane())
    elapsed = time.perf_counter() - began
    return Server("real", plane.kubeconfig, [child.pid for child in plane.children], elapsed)


def is_ready(server: Server) -> bool:
    try:
        return server.ask("GET", "/readyz") == 200
    except (OSError, HTTPException):
        return False


def config_map(name: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"app": "benchmark"}},
        "data": {"key": "value", "text": "x" * 200},
    }


def thing(name: str) -> dict[str, object]:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Thing",
        "metadata": {"name": name, "labels": {"app": "benchmark"}},
        "spec": {"theme": "x" * 50},
    }


def deployment(name: str) -> dict[str, object]:
    labels = {"app": name}
    container = {
        "name": "main",
        "image": "nginx:1.27",
        "ports": [{"containerPort": 80}],
        "env": [{"name": "A", "value": "1"}],
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


MAKERS: dict[str, Callable[[str], dict[str, object]]] = {
    CONFIG_MAPS: config_map,
    THINGS: thing,
    DEPLOYMENTS: deployment,
}


def load(endpoint: Endpoint, requests: Iterator[bytes], connections: int) -> Load:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(send_all(endpoint, requests, connections))


def create(
    endpoint: Endpoint, path: str, namespace: str, connections: int, seconds: float, most: int = 10**9
) -> Load:
    """Creates objects with new names, for the given seconds or up to the given number."""
    make, where, prefix = MAKERS[path], path.format(namespace), f"c{time.time_ns()}"

    def requests() -> Iterator[bytes]:
        end = time.perf_counter() + seconds
        for number in itertools.islice(itertools.count(), most):
            if time.perf_counter() > end:
                return
            yield endpoint.request("POST", where, json.dumps(make(f"{prefix}-{number}")).encode())

    return load(endpoint, requests(), connections)


def patch(
    endpoint: Endpoint, path: str, namespace: str, subresource: str, connections: int, seconds: float
) -> Load:
    """Patches the same few objects, each time with a new value."""
    names = [f"p{time.time_ns()}-{number}" for number in range(connections)]
    where, make = path.format(namespace), MAKERS[path]
    made = iter([endpoint.request("POST", where, json.dumps(make(name)).encode()) for name in names])
    load(endpoint, made, 1)

    def requests() -> Iterator[bytes]:
        end = time.perf_counter() + seconds
        for number in itertools.count():
            if time.perf_counter() > end:
                return
            body: object = {"data": {"key": str(number)}}
            if subresource:
                body = {"status": {"observed": number, "phase": "Ready"}}
            url = f"{where}/{names[number % len(names)]}{subresource}"
            yield endpoint.request("PATCH", url, json.dumps(body).encode(), MERGE)

    return load(endpoint, requests(), connections)


def read(endpoint: Endpoint, url: str, accept: str, times: int) -> Load:
    return load(endpoint, iter([endpoint.request("GET", url, accept=accept)] * times), 1)


def pages(endpoint: Endpoint, url: str, objects: int, limit: int) -> Load:
    """Lists in pages, like kubectl and reflectors without streaming."""
    connection = HTTPSConnection(endpoint.host, endpoint.port, context=untrusting())
    token, count, size, began = "", 0, 0, time.perf_counter()
    while not count or token:
        more = f"&continue={token}" if token else ""
        connection.request(
            "GET", f"{url}?limit={limit}{more}", headers={"Authorization": f"Bearer {endpoint.token}"}
        )
        body = connection.getresponse().read()
        token = json.loads(body[: body.index(b'"items"')].rstrip(b",") + b"}")["metadata"].get("continue", "")
        count, size = count + 1, size + len(body)
    return Load(1, time.perf_counter() - began, size, began)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Results:
    """The values of each measurement by server, round by round."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, list[float]]] = {}
        self._units: dict[str, tuple[str, bool]] = {}

    def add(self, what: str, server: Server, value: float, unit: str, *, more_is_better: bool = True) -> None:
        self._values.setdefault(what, {}).setdefault(server.name, []).append(value)
        self._units[what] = (unit, more_is_better)
        print(f"  {server.name:>9}  {what}: {value:,.4g} {unit}", flush=True)

    def show(self) -> None:
        """Prints the values and how many times better than the real server they are: above 1 is better."""
        print(f"\n{'':44} {'server':>9} {'median':>10} {'spread':>21}  ratio")
        for what, servers in self._values.items():
            unit, more_is_better = self._units[what]
            peer = statistics.median(servers["real"]) if "real" in servers else 0.0
            for name, values in servers.items():
                median = statistics.median(values)
                spread = f"{min(values):,.4g}-{max(values):,.4g}"
                ratio = ""
                if peer and median and name != "real":
                    ratio = f"{median / peer if more_is_better else peer / median:.2f}"
                print(f"{what + ', ' + unit:44} {name:>9} {median:>10,.4g} {spread:>21}  {ratio}")


class Bench:
    def __init__(self, servers: list[Server], options: argparse.Namespace) -> None:
        self.servers = servers
        self.options = options
        self.results = Results()
        self._filled: set[str] = set()

    def rate(self, what: str, server: Server, function: Callable[..., Load], *arguments: object) -> None:
        cpu = server.cpu
        done = in_process(function, server.endpoint, *arguments)
        self.results.add(what, server, done.requests / done.seconds, "per s")
        self.results.add(
            f"{what}: CPU", server, 1000 * (server.cpu - cpu) / done.requests, "ms each", more_is_better=False
        )

    def create(self, server: Server, namespace: str) -> None:
        for kind, path in (("ConfigMap", CONFIG_MAPS), ("custom", THINGS), ("Deployment", DEPLOYMENTS)):
            for clients in (1, 32):
                what = f"create {kind}, {clients} in flight"
                self.rate(what, server, create, path, namespace, clients, self.options.seconds)

    def patch(self, server: Server, namespace: str) -> None:
        for clients in (1, 32):
            what = f"patch ConfigMap, {clients} in flight"
            self.rate(what, server, patch, CONFIG_MAPS, namespace, "", clients, self.options.seconds)
            what = f"patch status of custom, {clients} in flight"
            self.rate(what, server, patch, THINGS, namespace, "/status", clients, self.options.seconds)

    def list(self, server: Server, namespace: str) -> None:
        objects = self.options.objects
        if server.name not in self._filled:
            self._filled.add(server.name)
            server.ask("POST", "/api/v1/namespaces", {"metadata": {"name": LISTED}})
            for path in (CONFIG_MAPS, THINGS):
                in_process(create, server.endpoint, path, LISTED, 16, 10**6, objects)
        for kind, path in (("ConfigMaps", CONFIG_MAPS), ("custom", THINGS)):
            for form, accept in (("", ""), (", metadata", PARTIAL), (", table", TABLE)):
                cpu, times = server.cpu, 3
                done = in_process(read, server.endpoint, path.format(LISTED), accept, times)
                what = f"list {objects} {kind}{form}"
                self.results.add(what, server, done.seconds / times, "s", more_is_better=False)
                self.results.add(
                    f"{what}: CPU", server, (server.cpu - cpu) / times, "s", more_is_better=False
                )
        done = in_process(pages, server.endpoint, CONFIG_MAPS.format(LISTED), objects, 500)
        what = f"list {objects} ConfigMaps in pages of 500"
        self.results.add(what, server, done.seconds, "s", more_is_better=False)

    def watch(self, server: Server, namespace: str) -> None:
        watchers, events = self.options.watchers, self.options.events
        path = CONFIG_MAPS.format(namespace) + "?watch=true&resourceVersion=0"
        halves = [
            Remote(watch_in_process, server.endpoint, [path] * count, events)
            for count in (watchers // 2, watchers - watchers // 2)
        ]
        for half in halves:
            half.told()
        cpu = server.cpu
        created = in_process(create, server.endpoint, CONFIG_MAPS, namespace, 32, 10**6, events)
        outcomes = [half.result() for half in halves]
        ended = max(one.ended for one in outcomes)
        what = f"{events} creates to {watchers} watchers"
        self.results.add(what, server, ended - created.began, "s", more_is_better=False)
        self.results.add(f"{what}: thrown out", server, sum(one.again for one in outcomes), "times")
        self.results.add(f"{what}: CPU", server, server.cpu - cpu, "s", more_is_better=False)

    def run(self) -> None:
        for number in range(self.options.rounds):
            for one in ("create", "patch", "watch", "list"):
                if one in self.options.only:
                    for server in self.servers:
                        namespace = f"{one}-{number}"
                        server.ask("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
                        getattr(self, one)(server, namespace)

    def memory(self) -> None:
        """Measured once, in fresh servers, because earlier work would change the result."""
        for server in self.servers:
            server.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "memory"}})
            self.results.add("memory when started", server, server.rss, "MiB", more_is_better=False)
            before, there = server.rss, 0
            for count in self.options.memory:
                in_process(create, server.endpoint, CONFIG_MAPS, "memory", 16, 10**6, count - there)
                there = count
                each = (server.rss - before) * 1024 / count
                self.results.add(
                    f"memory of each of {count} ConfigMaps", server, each, "KiB", more_is_better=False
                )

    def idle(self) -> None:
        time.sleep(3)
        before = [server.cpu for server in self.servers]
        time.sleep(self.options.idle)
        for server, cpu in zip(self.servers, before, strict=True):
            used = 1000 * (server.cpu - cpu) / self.options.idle
            self.results.add("CPU when idle", server, used, "ms per s", more_is_better=False)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = ("start", "memory", "create", "patch", "watch", "list")
    parser.add_argument("--servers", nargs="+", default=["embedded", "durable", "real"])
    parser.add_argument("--only", nargs="+", default=parts, choices=parts)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement of writes")
    parser.add_argument("--objects", type=int, default=10_000, help="in a list")
    parser.add_argument("--watchers", type=int, default=50)
    parser.add_argument("--events", type=int, default=1000)
    parser.add_argument("--memory", type=int, nargs="+", default=[10_000, 50_000])
    parser.add_argument("--idle", type=float, default=10.0)
    parser.add_argument("--profile", default="", help="write cProfiles of ours to this folder")
    options = parser.parse_args()
    with ExitStack() as stack:
        servers = [
            start_real(stack) if name == "real" else start_embedded(name, stack, options.profile)
            for name in options.servers
        ]
        bench = Bench(servers, options)
        if "start" in options.only:
            for server in servers:
                bench.results.add("start", server, server.start, "s", more_is_better=False)
            for _ in range(options.rounds - 1):
                for name in options.servers:
                    with ExitStack() as short:
                        again = start_real(short) if name == "real" else start_embedded(name, short, "")
                        bench.results.add("start", again, again.start, "s", more_is_better=False)
            bench.idle()
        for server in servers:
            assert (
                server.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION)
                == 201
            )
            while server.ask("GET", THINGS.format("default")) != 200:
                time.sleep(0.1)
        if "memory" in options.only:
            bench.memory()
        bench.run()
        bench.results.show()


if __name__ == "__main__":
    main()
