"""What the load of the Go project's evaluation costs the embedded API server, by how much is stored.

    python benchmarks/apiserver_load.py [--websites 1000 9000] [--changes 1500]

For each number a new server with its controllers is filled with that many websites, each with its ConfigMap, Service,
Ingress and Deployment (of no replicas), written as the webhosting operator writes them, while as many watches are open
as three shards, a sharder and the experiment's tool have. Then the operations are driven at full speed, one kind after
the other: a new theme of a website (five writes, and what the Deployment controller makes of them), a new website, a
deletion. The CPU time of each is counted from its first request until the controllers have nothing left to do.

The cost of an operation should not depend on what is stored. The last column is the share of a core that the
evaluation's `basic` load takes at its end: 150 new themes, 12 new websites and 2 deletions per second.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import time
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import msgspec
import uvloop
from http_load import Endpoint, Remote, untrusting, watch_in_process

from apiserver import Server, start_embedded
from kubeshard.core.encoding import to_dict
from kubeshard.core.objects import KubeObject
from kubeshard_lab.examples.webhosting import children, manifests
from kubeshard_lab.examples.webhosting.api import PROJECT_LABEL, Theme, ThemeSpec, Website
from kubeshard_lab.examples.webhosting.config import IngressConfig

PROJECTS, THEMES, SHARDS = 20, 50, 3
SHARD = "shard.alpha.sharding.timebertt.dev/webhosting-operator"
WEBSITES = "/apis/webhosting.timebertt.dev/v1alpha1"
PLACES = {
    "ConfigMap": ("/api/v1", "configmaps"),
    "Service": ("/api/v1", "services"),
    "Ingress": ("/apis/networking.k8s.io/v1", "ingresses"),
    "Deployment": ("/apis/apps/v1", "deployments"),
    "Website": (WEBSITES, "websites"),
}
JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
PER_SECOND = {"theme": 150, "create": 12, "delete": 2}
FOREVER = 10**9

WEBHOOKS = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "MutatingWebhookConfiguration",
    "metadata": {"name": "sharding"},
    "webhooks": [
        {
            "name": "sharder.sharding.timebertt.dev",
            "clientConfig": {"url": "https://127.0.0.1:1/never-called-because-all-objects-have-a-shard"},
            "rules": [
                {
                    "operations": ["CREATE", "UPDATE"],
                    "apiGroups": [group],
                    "apiVersions": ["*"],
                    "resources": [plural],
                }
                for group, plural in (
                    ("webhosting.timebertt.dev", "websites"),
                    ("", "configmaps"),
                    ("", "services"),
                    ("networking.k8s.io", "ingresses"),
                    ("apps", "deployments"),
                )
            ],
            "namespaceSelector": {"matchLabels": {PROJECT_LABEL: "true"}},
            "objectSelector": {"matchExpressions": [{"key": SHARD, "operator": "DoesNotExist"}]},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
    ],
}


class Api:
    """Connections that stay open, because TLS handshakes are not part of what is measured."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._connections: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    def ask(self, method: str, path: str, body: object = None) -> Any:
        data = b"" if body is None else json.dumps(body).encode()
        request = self._endpoint.request(method, path, data)
        (connection, *_) = self._opened(1)
        return msgspec.json.decode(self._runner.run(_answered(*connection, request)))

    def send(self, requests: Iterator[bytes], connections: int = 8) -> list[bytes]:
        """Sends the requests over several connections; returns the answers in any order."""

        async def work(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> list[bytes]:
            return [await _answered(reader, writer, request) for request in requests]

        answers = self._runner.run(_all(work(*each) for each in self._opened(connections)))
        return [answer for each in answers for answer in each]

    def _opened(self, count: int) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """Opens connections when they are needed, because the server closes those that send nothing for a while."""
        host, port = self._endpoint.host, self._endpoint.port
        self._runner.run(asyncio.sleep(0.1))  # notices the ends of connections
        self._connections = [each for each in self._connections if not each[0].at_eof()]
        self._connections += self._runner.run(
            _all(
                asyncio.open_connection(host, port, ssl=untrusting(), limit=2**30)
                for _ in range(count - len(self._connections))
            )
        )
        return self._connections


async def _all(doing: Iterable[Awaitable[Any]]) -> list[Any]:
    return await asyncio.gather(*doing)


async def _answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> bytes:
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    body = await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r")[0]))
    if not head.startswith(b"http/1.1 20"):
        raise RuntimeError(f"{request[:200]!r}: {body[:400]!r}")
    return body


class Loads:
    """Writes what the tools and the operator write."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._api = Api(server.endpoint)
        self._numbers = itertools.count()
        self.themes = [
            Theme(
                metadata=_meta(f"theme-{number}"),
                spec=ThemeSpec(color=f"#{number:06x}", font_family="Futura"),
            )
            for number in range(THEMES)
        ]

    def prepare(self) -> None:
        for definition in manifests.crds():
            self._api.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        for number in range(PROJECTS):
            labels = {PROJECT_LABEL: "true"}
            self._api.ask(
                "POST", "/api/v1/namespaces", {"metadata": {"name": f"p{number}", "labels": labels}}
            )
        for theme in self.themes:
            self._api.ask("POST", f"{WEBSITES}/themes", to_dict(theme))
        self._api.ask("POST", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", WEBHOOKS)

    def create(self, count: int) -> list[Website]:
        """Creates websites with everything that they own; returns them."""
        names = [f"experiment-{next(self._numbers):08}" for _ in range(count)]
        answers = self._api.send(self._request("POST", _website(name)) for name in names)
        made = [msgspec.json.decode(answer, type=Website, strict=False) for answer in answers]
        self._api.send(request for website in made for request in self._children(website))
        self._api.send(request for website in made for request in self._statuses(website, 1))
        return made

    def change(self, websites: list[Website], theme: Theme) -> None:
        """Gives each website a new theme, and reconciles it."""
        self._api.send(request for website in websites for request in self._rethemed(website, theme))

    def delete(self, websites: list[Website]) -> None:
        self._api.send(self._request("DELETE", website) for website in websites)

    def _children(self, website: Website) -> Iterator[bytes]:
        for child in _owned(website, self.themes[0]):
            yield self._request("POST", child)

    def _rethemed(self, website: Website, theme: Theme) -> Iterator[bytes]:
        yield self._patched(website, {"spec": {"theme": theme.metadata.name}}, MERGE)
        files, *_, deployment = _owned(website, theme)
        for child, path in (
            (files, "/data"),
            (deployment, "/spec/template/metadata/annotations"),
        ):
            value: Any = to_dict(child)
            for step in path[1:].split("/"):
                value = value[step]
            shard = {"op": "test", "path": f"/metadata/labels/{SHARD.replace('/', '~1')}"}
            yield self._patched(
                child,
                [{**shard, "value": _shard(website)}, {"op": "replace", "path": path, "value": value}],
                JSON_PATCH,
            )
        yield from self._statuses(website, 2)

    def _statuses(self, website: Website, generation: int) -> Iterator[bytes]:
        for phase in ("Pending", "Ready"):
            now = f"2026-01-01T00:00:00.{next(self._numbers) % 10**6:06}Z"
            status = {"observedGeneration": generation, "phase": phase, "lastTransitionTime": now}
            body = [{"op": "add", "path": "/status", "value": status}]
            yield self._patched(website, body, JSON_PATCH, "/status")

    def _request(self, method: str, obj: KubeObject) -> bytes:
        body = b"" if method == "DELETE" else json.dumps(to_dict(obj)).encode()
        name = f"/{obj.metadata.name}" if method == "DELETE" else ""
        return self.server.endpoint.request(method, _collection(obj) + name, body)

    def _patched(self, obj: KubeObject, body: object, content: str, subresource: str = "") -> bytes:
        path = f"{_collection(obj)}/{obj.metadata.name}{subresource}"
        return self.server.endpoint.request("PATCH", path, json.dumps(body).encode(), content)


def _meta(name: str, **fields: Any) -> Any:
    return msgspec.convert({"name": name, **fields}, type(Website().metadata))


def _website(name: str) -> Website:
    number = int(name.rpartition("-")[2])
    labels = {
        SHARD: f"shard-{number % SHARDS}",
        "generated-by": "experiment",
        "scenario": "basic",
        "skip-workload": "true",
        "run-id": "c0e2dc5e-3a5b-4b8e-9a5c-8a1de0e5c0fe",
    }
    meta = _meta(name, namespace=f"p{number % PROJECTS}", labels=labels)
    return Website(metadata=meta, spec=msgspec.convert({"theme": "theme-0"}, type(Website().spec)))


def _shard(website: Website) -> str:
    return website.metadata.label(SHARD)


def _owned(website: Website, theme: Theme) -> list[KubeObject]:
    files = children.config_map(website, theme)
    owned = [
        files,
        children.service(website),
        children.ingress(website, IngressConfig(), None),
        children.deployment(website, files, None),
    ]
    owner = {
        "apiVersion": "webhosting.timebertt.dev/v1alpha1",
        "kind": "Website",
        "name": website.metadata.name,
        "uid": website.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    reference: Mapping[str, Any] = {"ownerReferences": [owner]}
    return [
        msgspec.structs.replace(
            child,
            metadata=_meta(
                child.metadata.name,
                namespace=child.metadata.namespace,
                labels=child.metadata.labels,
                **reference,
            ),
        )
        for child in owned
    ]


def _collection(obj: KubeObject) -> str:
    api, plural = PLACES[type(obj).KIND.kind]
    return f"{api}/namespaces/{obj.metadata.namespace}/{plural}"


def watched(server: Server) -> Remote:
    """Opens the watches: of every shard for all five kinds, of the sharder, and of the experiment's tool."""
    paths = [f"{WEBSITES}/websites?watch=true&resourceVersion=0"] * 2
    for api, plural in PLACES.values():
        for shard in range(SHARDS):
            selector = f"labelSelector={SHARD.replace('/', '%2F')}%3Dshard-{shard}"
            paths.append(f"{api}/{plural}?watch=true&resourceVersion=0&{selector}")
    watches = Remote(watch_in_process, server.endpoint, paths, FOREVER)
    watches.told()
    return watches


def settled(server: Server) -> float:
    """Waits until the server does nothing; returns its CPU time."""
    before = -1.0
    while (now := server.cpu) - before > 0.02:
        before = now
        time.sleep(1)
    return now


def measure(websites: int, changes: int, profile: str) -> dict[str, float]:
    with ExitStack() as stack:
        server = start_embedded("embedded", stack, profile, controllers=True)
        loads = Loads(server)
        loads.prepare()
        watches = watched(server)
        began = server.cpu
        stored = loads.create(websites - changes // 8)
        stored += loads.create(changes // 8)
        ready = settled(server)
        figures = {"fill": 1000 * (ready - began) / websites, "RSS filled": server.rss}
        print(f"{websites} websites are stored: {figures}", flush=True)
        moved = stored[:changes]
        cpu = settled(server)
        loads.change(moved, loads.themes[1])
        figures["theme"] = 1000 * (settled(server) - cpu) / len(moved)
        cpu = settled(server)
        new = loads.create(changes // 8)
        figures["create"] = 1000 * (settled(server) - cpu) / len(new)
        cpu = settled(server)
        loads.delete(new)
        figures["delete"] = 1000 * (settled(server) - cpu) / len(new)
        figures["RSS"] = server.rss
        figures["basic"] = sum(figures[what] * rate for what, rate in PER_SECOND.items()) / 10
        watches.stop()
        return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--websites", type=int, nargs="+", default=[1000, 9000])
    parser.add_argument("--changes", type=int, default=800)
    parser.add_argument("--profile", default="", help="write a cProfile of the server to this folder")
    options = parser.parse_args()
    shown = {
        "fill": "filling, ms of CPU per website",
        "theme": "a new theme, ms",
        "create": "a new website, ms",
        "delete": "a deletion, ms",
        "RSS filled": "RSS when filled, MiB",
        "RSS": "RSS at the end, MiB",
        "basic": "`basic` at its end, % of a core",
    }
    rows = {number: measure(number, options.changes, options.profile) for number in options.websites}
    print("| websites |", " | ".join(map(str, rows)), "|")
    print("|---|" + "---|" * len(rows))
    for name, title in shown.items():
        print(f"| {title} |", " | ".join(f"{row[name]:.3g}" for row in rows.values()), "|")


if __name__ == "__main__":
    main()
