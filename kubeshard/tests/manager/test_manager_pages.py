"""Health, metrics and access to them, as HTTP responses."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import pytest
from manager_bench import JSON, Act, Item, ManagerBench, item
from prometheus_client import CollectorRegistry, Counter

from kubeshard.client import Client, ClusterConfig
from kubeshard.controller import Controller
from kubeshard.core import Terminal
from kubeshard.manager.health import Check, Checks, ping
from kubeshard.manager.http import pages_app
from kubeshard.manager.metrics import Metrics
from kubeshard.manager.metrics_access import REMEMBERED, MetricsAuth
from kubeshard.manager.process_health import ProcessHealth
from kubeshard.runtime.asgi import AsgiApp
from kubeshard.runtime.transport import HttpRequest, HttpResponse, TransportError
from kubeshard.workqueue import FastSlow, WorkQueue
from kubeshard_lab.virtual_time import VirtualClock, settle, virtual_time
from kubeshard_lab.virtual_world import virtual_world


class Got(NamedTuple):
    status: int
    body: str
    headers: dict[str, str]


async def get(
    app: AsgiApp,
    target: str,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    host: str = "1.2.3.4",
) -> Got:
    path, _, query = target.partition("?")
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    fields = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": fields,
        "client": (host, 1),
    }
    await app(scope, receive, send)
    answered = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return Got(sent[0]["status"], b"".join(m["body"] for m in sent[1:]).decode(), answered)


# -- health


def crashing() -> str | None:
    raise RuntimeError("bug with a secret")


CHECKS: dict[str, Check] = {"ping": ping, "informers": lambda: "10.0.0.1 is silent"}

HEALTH = [
    ({"ping": ping}, "/healthz", 200, "ok"),
    ({"ping": ping}, "/healthz/", 200, "ok"),
    ({"ping": ping}, "/healthz?verbose", 200, "[+]ping ok\nhealthz check passed\n"),
    (CHECKS, "/healthz", 500, "[+]ping ok\n[-]informers failed: reason withheld\nhealthz check failed\n"),
    (CHECKS, "/healthz/ping", 200, "ok"),
    (CHECKS, "/healthz/informers", 500, "internal server error: informers failed\n"),
    (CHECKS, "/healthz/nothing", 404, "not found\n"),
    (CHECKS, "/healthzz", 404, "not found\n"),
    (CHECKS, "/healthz?exclude=informers", 200, "ok"),
    (
        CHECKS,
        "/healthz?exclude=informers&verbose",
        200,
        "[+]ping ok\n[+]informers excluded: ok\nhealthz check passed\n",
    ),
    (
        {"ping": ping},
        "/healthz?verbose&exclude=x&exclude=y",
        200,
        "[+]ping ok\nwarn: no such checks to exclude: x, y\nhealthz check passed\n",
    ),
    ({"bad": crashing}, "/healthz", 500, "[-]bad failed: reason withheld\nhealthz check failed\n"),
]


@pytest.mark.parametrize(("checks", "target", "status", "body"), HEALTH, ids=[row[1] for row in HEALTH])
def test_health_answers_as_the_table_says(
    checks: dict[str, Check], target: str, status: int, body: str
) -> None:
    got = asyncio.run(get(pages_app(Checks("/healthz", checks).page), target))
    assert (got.status, got.body) == (status, body)


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("POST", "/healthz", 405),
        ("HEAD", "/healthz", 200),
        ("GET", "/healthz/../metrics", 404),
        ("GET", "/", 404),
    ],
)
def test_other_methods_and_paths_are_refused(method: str, target: str, status: int) -> None:
    got = asyncio.run(get(pages_app(Checks("/healthz", {"ping": ping}).page), target, method))
    assert got.status == status
    assert method != "HEAD" or got.body == ""


# -- health


@virtual_time
async def test_an_unfit_process_says_why_and_a_fit_one_nothing() -> None:
    clock = VirtualClock()
    heard: dict[str, float | None] = {"Site": None, "Page": None}
    hanging: list[str] = []
    health = ProcessHealth(clock, lambda: heard.items(), lambda: hanging)
    await asyncio.sleep(0.5)
    assert health.unfit() is None
    heard["Site"], heard["Page"] = 0.0, 0.5
    await asyncio.sleep(90)
    assert health.unfit() is None
    await asyncio.sleep(1)
    assert health.unfit() == (
        "no API server has responded for 91 s about any kind that this process reconciles, Page being the last"
    )
    heard["Site"] = clock.monotonic()
    await asyncio.sleep(1)
    assert health.unfit() is None  # one of them is enough
    heard.clear()
    await asyncio.sleep(518)
    assert health.unfit() is None
    hanging.append("controller site: 11 reconciles do not end")
    await asyncio.sleep(1)
    assert health.unfit() == health.hanging() == hanging[0]
    hanging.clear()
    await asyncio.sleep(1)
    assert health.unfit() is None


class Opened:
    """A page that keeps its application instead of listening."""

    port = 0

    async def open(self, stack: Any, app: AsgiApp, *, in_pod: bool) -> None:
        self.app = app


class Telling:
    """A server that makes requests to the API server; its name is that of its readiness check."""

    name = "webhooks"
    problem: str | None = "nobody listens yet"
    client: Client | None = None
    registry: CollectorRegistry | None = None

    async def run_with(self, client: Client) -> None:
        self.client = client
        self.registry = CollectorRegistry()
        Counter("webhook_requests", "Requests.", registry=self.registry).inc()
        await asyncio.get_running_loop().create_future()

    def unready(self) -> str | None:
        return self.problem


@virtual_time
async def test_a_server_that_is_given_the_client_says_whether_it_can_be_called_and_is_on_the_metrics_page() -> (
    None
):
    bench, server = ManagerBench(), Telling()
    manager = bench.manager(servers=[server])
    manager._process.pages.health = pages = Opened()  # type: ignore[assignment]
    run = asyncio.create_task(manager.run())
    await settle()
    assert server.client is bench.client
    assert "webhook_requests_total 1.0" in (await get(pages_app(manager.metrics.page), "/metrics")).body
    assert (await get(pages.app, "/readyz/webhooks")).status == 500
    server.problem = None
    assert (await get(pages.app, "/readyz/webhooks")).status == 200
    run.cancel()


@pytest.mark.regression
@virtual_time
async def test_an_api_server_that_is_silent_for_ten_minutes_is_no_matter_of_liveness_or_readiness() -> None:
    bench = ManagerBench(item())
    manager = bench.manager([Controller(name="items", reconciler=Act(), primary=Item)])
    manager._process.pages.health = pages = Opened()  # type: ignore[assignment]
    run = asyncio.create_task(manager.run())
    await settle()
    bench.cache.informer(Item)._reflectors._by_part[""].last_heard = bench.clock.monotonic()
    await asyncio.sleep(600)
    assert (await get(pages.app, "/healthz")).status == 200
    ready = await get(pages.app, "/readyz?verbose")
    assert (ready.status, ready.body) == (
        200,
        "[+]cache-sync ok\n[+]api-server ok\nwarn: controller items waits for Item.v1.example.com (unavailable)\n"
        "readyz check passed\n",
    )
    run.cancel()


@pytest.mark.regression
@virtual_time
async def test_a_failing_check_is_logged_once_until_it_is_fine_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    problem: list[str] = []
    app = pages_app(Checks("/healthz", {"check": lambda: problem[0] if problem else None}).page)
    for reasons in ([], ["1 s"], ["2 s"], [], ["3 s"], ["4 s"]):
        problem[:] = reasons
        await get(app, "/healthz")
    assert [record.__dict__["fields"]["reason"] for record in caplog.records] == ["1 s", "3 s"]
    assert {record.levelname for record in caplog.records} == {"WARNING"}


@virtual_time
async def test_a_check_that_fails_while_the_process_starts_is_no_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("INFO"):
        await get(pages_app(Checks("/readyz", {"cache-sync": lambda: "not synced"}).page), "/readyz")
    assert [(record.levelname, record.msg) for record in caplog.records] == [("INFO", "Health check failed")]


# -- metrics


@virtual_time
async def test_the_ecosystems_metrics_are_exposed() -> None:
    class Failing(Act):
        async def reconcile(self, ctx: Any, obj: Any, /) -> None:
            await ctx.client.get(Item, "other", "ns")

    bench = ManagerBench(item())
    manager = bench.manager(
        [
            Controller(name="items", reconciler=Act(), primary=Item, workers=3),
            Controller(name="failing", reconciler=Failing(), primary=Item),
        ]
    )
    run = asyncio.create_task(manager.run())
    await asyncio.sleep(0.1)
    got = await get(pages_app(manager.metrics.page), "/metrics")
    assert got.status == 200
    lines = got.body.splitlines()
    for line in (
        'controller_runtime_reconcile_total{controller="items",result="success"} 1.0',
        'controller_runtime_reconcile_total{controller="items",result="requeue_after"} 0.0',
        'controller_runtime_reconcile_total{controller="failing",result="error"} 1.0',
        'controller_runtime_reconcile_errors_total{controller="failing"} 1.0',
        'controller_runtime_terminal_reconcile_errors_total{controller="failing"} 0.0',
        'controller_runtime_reconcile_panics_total{controller="failing"} 0.0',
        'controller_runtime_reconcile_timeouts_total{controller="failing"} 0.0',
        'controller_runtime_reconcile_time_seconds_bucket{controller="items",le="0.005"} 1.0',
        'controller_runtime_max_concurrent_reconciles{controller="items"} 3.0',
        'controller_runtime_active_workers{controller="items"} 0.0',
        'workqueue_depth{controller="items",name="items",priority="0"} 0.0',
        'workqueue_depth{controller="items",name="items",priority="-100"} 0.0',
        'kubeshard_controller_reconcile_causes_total{controller="items",kind="Item",what="listed"} 1.0',
        'workqueue_adds_total{controller="items",name="items"} 1.0',
        'workqueue_queue_duration_seconds_count{controller="items",name="items"} 1.0',
        'workqueue_work_duration_seconds_count{controller="items",name="items"} 1.0',
        'workqueue_retries_total{controller="failing",name="failing"} 1.0',
        'workqueue_unfinished_work_seconds{controller="items",name="items"} 0.0',
        'workqueue_longest_running_processor_seconds{controller="items",name="items"} 0.0',
        'rest_client_requests_total{code="404",host="kube.test",method="GET"} 1.0',
    ):
        assert line in lines
    assert any(line.startswith("process_cpu_seconds_total ") for line in lines)
    assert not any("_created" in line for line in lines)
    run.cancel()


async def test_durations_of_requests_are_exposed_by_verb_and_host() -> None:
    metrics = Metrics()
    metrics.request("GET", "kube.test", 200, 0.02)
    metrics.request("GET", "kube.test", 404, 0.3)
    metrics.request("GET", "kube.test", 0, 90)
    metrics.request("PATCH", "kube.test", 200, 0.001)
    lines = (await get(pages_app(metrics.page), "/metrics")).body.splitlines()
    name, read = "rest_client_request_duration_seconds", 'host="kube.test"'
    for line in (
        f'{name}_bucket{{{read},le="0.005",verb="GET"}} 0.0',
        f'{name}_bucket{{{read},le="0.025",verb="GET"}} 1.0',
        f'{name}_bucket{{{read},le="60.0",verb="GET"}} 2.0',
        f'{name}_bucket{{{read},le="+Inf",verb="GET"}} 3.0',
        f'{name}_sum{{{read},verb="GET"}} 90.32',
        f'{name}_count{{{read},verb="PATCH"}} 1.0',
    ):
        assert line in lines


@virtual_time
async def test_of_many_priorities_twenty_five_have_a_series_and_the_rest_share_one() -> None:
    metrics = Metrics()
    queue: WorkQueue[int] = WorkQueue("q", clock=VirtualClock(), limiter=FastSlow(1, 1, 1))
    metrics.watch_queue(queue)
    for priority in range(1, 40):
        queue.add(priority, priority=priority)

    def depths() -> dict[str, float]:
        return {
            sample.labels["priority"]: sample.value
            for family in metrics.registry.collect()
            for sample in family.samples
            if sample.name == "workqueue_depth"
        }

    seen = depths()
    assert len(seen) == 26
    assert (seen["0"], seen["24"], seen["exceeded_cardinality_limit"]) == (0, 1, 15)
    queue.shut_down(discard=True)
    assert set(depths().values()) == {0}


def test_endings_are_counted_apart() -> None:
    from kubeshard.controller.outcomes import Outcome, of_error, of_result

    metrics = Metrics()
    observer = metrics.controller("c", 1)
    outcomes: list[Outcome | None] = [of_error(Terminal("t")), of_error(KeyError("bug")), of_result(7), None]
    for outcome in outcomes:
        observer.started()
        observer.finished(outcome, 0.1)

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(f"controller_runtime_{name}", {"controller": "c", **labels})

    assert value("reconcile_total", result="error") == 3
    assert value("terminal_reconcile_errors_total") == 1
    assert value("reconcile_panics_total") == 1
    assert value("active_workers") == 0


# -- access to metrics


class Reviews:
    """An API server that answers reviews. Tokens: `reader` may read, `user` may not; for `broken` the review fails."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def request(self, request: HttpRequest) -> HttpResponse:
        body = msgspec.json.decode(request.body or b"")
        self.asked.append(body)
        spec = body["spec"]
        if spec.get("token") == "broken":
            raise TransportError("down", sent=False)
        if body["kind"] == "TokenReview":
            known = spec["token"] in ("reader", "user")
            user = {"username": spec["token"], "groups": ["g"], "extra": {"k": ["v"]}}
            body["status"] = {"authenticated": known, "user": user} if known else {"error": "unknown"}
        else:
            body["status"] = {"allowed": spec["user"] == "reader"}
        return HttpResponse(201, JSON, msgspec.json.encode(body))

    def stream(self, request: HttpRequest) -> Any:
        raise NotImplementedError

    def abort(self) -> None: ...

    async def close(self) -> None: ...


def guarded() -> tuple[Reviews, AsgiApp]:
    reviews = Reviews()
    client = Client(ClusterConfig("http://kube.test"), transport=reviews, world=virtual_world())
    return reviews, MetricsAuth(client).guard(pages_app(Metrics().page))


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        (None, 401),
        ("Basic cmVhZGVyOg==", 401),
        ("Bearer", 401),
        ("Bearer unknown", 401),
        ("Bearer user", 403),
        ("Bearer broken", 503),
        ("Bearer reader", 200),
        ("bearer reader", 200),
    ],
)
def test_the_api_server_decides_who_reads_metrics(authorization: str | None, status: int) -> None:
    @virtual_time
    async def check() -> None:
        _, app = guarded()
        got = await get(app, "/metrics", headers={"Authorization": authorization} if authorization else {})
        assert got.status == status
        assert (got.headers.get("www-authenticate") == "Bearer") is (status == 401)
        assert ("process_cpu" in got.body) is (status == 200)

    check()


@virtual_time
async def test_the_review_names_user_path_and_verb() -> None:
    reviews, app = guarded()
    await get(app, "/metrics", headers={"Authorization": "Bearer user"})
    assert reviews.asked[1]["spec"] == {
        "user": "user",
        "groups": ["g"],
        "extra": {"k": ["v"]},
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
    }


@virtual_time
async def test_answers_are_remembered_60_s_if_positive_and_10_s_if_not_and_failures_never() -> None:
    reviews, app = guarded()

    async def ask(token: str) -> int:
        reviews.asked.clear()
        await get(app, "/metrics", headers={"Authorization": f"Bearer {token}"})
        return len(reviews.asked)

    assert [await ask("reader"), await ask("user"), await ask("unknown")] == [2, 2, 1]
    await asyncio.sleep(9)
    assert [await ask("reader"), await ask("user"), await ask("unknown")] == [0, 0, 0]
    await asyncio.sleep(2)
    assert [await ask("reader"), await ask("user"), await ask("unknown")] == [0, 2, 1]
    await asyncio.sleep(50)
    assert await ask("reader") == 2
    assert await ask("broken") > 0
    assert await ask("broken") > 0


@virtual_time
async def test_one_address_cannot_flood_the_api_server_with_reviews() -> None:
    _, app = guarded()
    statuses = [
        (await get(app, "/metrics", headers={"Authorization": f"Bearer {number}"})).status
        for number in range(30)
    ]
    assert statuses == [401] * 20 + [429] * 10
    other = await get(app, "/metrics", headers={"Authorization": "Bearer reader"}, host="5.6.7.8")
    assert other.status == 200


@virtual_time
async def test_the_memory_of_answers_is_bounded() -> None:
    reviews = Reviews()
    auth = MetricsAuth(Client(ClusterConfig("http://kube.test"), transport=reviews, world=virtual_world()))
    app = auth.guard(pages_app(Metrics().page))
    for number in range(REMEMBERED + 10):
        await get(app, "/metrics", headers={"Authorization": f"Bearer {number}"}, host=str(number))
    assert len(auth._remembered) == len(auth._buckets) == REMEMBERED
