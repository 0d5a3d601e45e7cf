"""What those who operate the server observe: its health, and metrics of requests and of the store.

`/livez`, `/readyz` and `/healthz` are the health of the server, as a whole and check by check. Guaranteed: `ok` while
writes can be stored; every method is accepted, as on the real server. Only the checks that make sense here exist, under
their real names: `etcd` checks the store and its file.

Metrics have the names that kube-apiserver uses:

| metric | |
|---|---|
| `apiserver_request_total` | requests by verb, dry run, group, version, resource, subresource, scope and code |
| `apiserver_request_duration_seconds` | their response times, except for watches |
| `apiserver_longrunning_requests` | open watches |
| `apiserver_resource_objects` | stored objects |
| `process_*`, `python_info` | of the Prometheus client |

Counting a request costs two dictionary look-ups; the Prometheus client is imported on the first scrape. Label values
come only from served kinds and known paths, so clients cannot create new ones.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from kubeshard_apiserver.front.replies import Reply, page_not_found, text_reply
from kubeshard_apiserver.front.requests import Request
from kubeshard_apiserver.front.routes import resource_path
from kubeshard_apiserver.patching import APPLY
from kubeshard_apiserver.server import ApiServer
from kubeshard_apiserver.store import Store

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

_PROBES = ("healthz", "livez", "readyz")
_ALWAYS = ("ping", "log")
_STARTED = (
    "poststarthook/start-apiextensions-controllers",
    "poststarthook/start-system-namespaces-controller",
    "poststarthook/rbac/bootstrap-roles",
)


class Probes:
    def __init__(self, store: Store) -> None:
        self._checks: dict[str, Callable[[], bool]] = {
            **dict.fromkeys(_ALWAYS, _fine),
            "etcd": lambda: not store.problem,
            **dict.fromkeys(_STARTED, _fine),
        }

    def reply(self, request: Request) -> Reply | None:
        """Replies to a probe; returns None for any other request."""
        probe, _, check = request.path.removeprefix("/").partition("/")
        if probe not in _PROBES or not request.path.startswith("/"):
            return None
        if check or request.path.endswith("/"):
            if check not in self._checks:
                return page_not_found()
            return (
                text_reply(200, "ok")
                if self._checks[check]()
                else text_reply(500, "internal server error: reason withheld\n")
            )
        excluded = set(request.every("exclude"))
        works = all(check() for name, check in self._checks.items() if name not in excluded)
        if works and "verbose" not in request.query:
            return text_reply(200, "ok")
        end = f"{probe} check {'passed' if works else 'failed'}\n"
        return text_reply(200 if works else 500, "".join(self._lines(excluded)) + end)

    def _lines(self, excluded: set[str]) -> Iterator[str]:
        for name, check in self._checks.items():
            if name in excluded:
                yield f"[+]{name} excluded: ok\n"
            elif check():
                yield f"[+]{name} ok\n"
            else:
                yield f"[-]{name} failed: reason withheld\n"
        if unknown := sorted(excluded - self._checks.keys()):
            named = ", ".join(f'"{name}"' for name in unknown)
            yield f"warn: some health checks cannot be excluded: no matches for {named}\n"


def _fine() -> bool:
    return True


BUCKETS = (
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
)  # fmt: skip
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_KNOWN = (
    "/healthz",
    "/livez",
    "/readyz",
    "/metrics",
    "/version",
    "/openapi/v2",
    "/openapi/v3",
    "/api",
    "/apis",
)
_BEFORE_3_0 = "text/plain; version=0.0.4; charset=utf-8"


class RequestLabels(NamedTuple):
    """The kind of a request: the labels of `apiserver_request_duration_seconds`, in order."""

    component: str
    dry_run: str
    group: str
    resource: str
    scope: str
    subresource: str
    verb: str
    version: str


class _Durations:
    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.sum = 0.0


class Metrics:
    """The metrics of one front."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._total: dict[tuple[RequestLabels, int], int] = {}
        self._durations: dict[RequestLabels, _Durations] = {}
        self._running: dict[RequestLabels, int] = {}

    def answered(self, request: Request, status: int, seconds: float) -> None:
        what = self._what(request)
        self._count(what, status)
        durations = self._durations.get(what) or self._durations.setdefault(what, _Durations())
        durations.counts[bisect_left(BUCKETS, seconds)] += 1
        durations.sum += seconds

    @contextmanager
    def watching(self, request: Request) -> Iterator[None]:
        """Counts a stream while it lasts."""
        what = self._what(request)
        self._running[what] = self._running.get(what, 0) + 1
        try:
            yield
        finally:
            self._running[what] -= 1
            self._count(what, 200)

    def page(self) -> Reply:
        """Returns all metrics in the text format of Prometheus."""
        from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest

        registry = CollectorRegistry()
        registry.register(self)
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        return Reply(200, {"content-type": _BEFORE_3_0}, generate_latest(registry))

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        labels = list(RequestLabels._fields)
        total = CounterMetricFamily("apiserver_request", "Number of requests.", labels=["code", *labels])
        for (what, status), count in self._total.items():
            total.add_metric([str(status), *what], count)
        yield total
        durations = HistogramMetricFamily(
            "apiserver_request_duration_seconds", "Response time of requests.", labels=labels
        )
        for what, seen in self._durations.items():
            durations.add_metric(list(what), list(_cumulated(seen)), seen.sum)
        yield durations
        running = GaugeMetricFamily(
            "apiserver_longrunning_requests", "Number of open watches.", labels=labels
        )
        for what, count in self._running.items():
            running.add_metric(list(what), count)
        yield running
        stored = GaugeMetricFamily(
            "apiserver_resource_objects", "Number of stored objects.", labels=["group", "resource"]
        )
        for resource in sorted({resource.group_resource for resource in self._server.registry}):
            if self._server.store.has(resource):
                stored.add_metric(list(resource), len(self._server.store.objects(resource)))
        yield stored

    def _count(self, what: RequestLabels, status: int) -> None:
        key = (what, status)
        self._total[key] = self._total.get(key, 0) + 1

    def _what(self, request: Request) -> RequestLabels:
        path = resource_path(request.path)
        verb = request.method if request.method in _METHODS else "other"
        resource = path and self._server.registry.find(path.group, path.version, path.plural)
        if path is None or resource is None:
            return RequestLabels("", "", "", "", "", request.path if request.path in _KNOWN else "", verb, "")
        if verb == "GET":
            verb = "WATCH" if path.watch or request.watches else "GET" if path.name else "LIST"
        elif verb == "PATCH" and request.content_type == APPLY:
            verb = "APPLY"
        elif verb == "DELETE" and not path.name:
            verb = "DELETECOLLECTION"
        whole = "namespace" if path.namespace else "cluster"
        return RequestLabels(
            "apiserver",
            "All" if request.query.get("dryRun") == "All" else "",
            path.group,
            path.plural,
            "resource" if path.name or verb == "POST" else whole,
            path.subresource if path.subresource in resource.subresources else "",
            verb,
            path.version,
        )


def _cumulated(seen: _Durations) -> Iterator[tuple[str, float]]:
    so_far = 0
    for bound, count in zip((*map(str, BUCKETS), "+Inf"), seen.counts, strict=True):
        so_far += count
        yield bound, so_far
