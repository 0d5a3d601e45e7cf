from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from asgi_client import PATH, Answer, call
from prometheus_client import CollectorRegistry, generate_latest

from kubeshard.core import ConfigMap
from kubeshard.runtime.asgi import Fields, Message
from kubeshard.runtime.clock import SystemClock
from kubeshard.webhook.app import AdmissionApp, Webhook
from kubeshard.webhook.metrics import WebhookMetrics
from kubeshard.webhook.review import AdmissionAnswer, AdmissionHandler, AdmissionRequest
from kubeshard_lab.virtual_time import virtual_time

REVIEW = json.dumps(
    {"apiVersion": "admission.k8s.io/v1", "request": {"uid": "u-1", "operation": "CREATE", "name": "a"}}
).encode()
JSON = (b"content-type", b"application/json")


def let_through(request: AdmissionRequest) -> AdmissionAnswer:
    return AdmissionAnswer(message=f"seen {request.path}")


def app(**options: Any) -> AdmissionApp:
    return AdmissionApp({"/hook/": let_through}, clock=SystemClock(), **options)


def response(answer: Answer) -> dict[str, Any]:
    assert answer.status == 200
    assert answer.headers[b"content-type"] == b"application/json"
    assert answer.headers[b"content-length"] == b"%d" % len(answer.body)
    decoded: dict[str, Any] = json.loads(answer.body)["response"]
    return decoded


async def test_a_review_is_answered_by_the_handler_of_its_path() -> None:
    assert response(await call(app(), REVIEW))["status"]["message"] == "seen /hook/ring"


async def test_the_longest_matching_prefix_counts() -> None:
    def inner(request: AdmissionRequest) -> AdmissionAnswer:
        return AdmissionAnswer(message="inner")

    both = AdmissionApp({"/hook/": let_through, "/hook/in/": inner}, clock=SystemClock())
    assert response(await call(both, REVIEW, path="/hook/in/x"))["status"]["message"] == "inner"
    assert response(await call(both, REVIEW, path="/hook/x"))["status"]["message"] == "seen /hook/x"


async def test_a_body_in_pieces_is_put_together() -> None:
    assert response(await call(app(), [REVIEW[:10], b"", REVIEW[10:]]))["uid"] == "u-1"


@pytest.mark.parametrize(
    "value", [b"application/json; charset=utf-8", b"Application/JSON", b"application/json ;x"]
)
async def test_parameters_of_the_content_type_are_allowed(value: bytes) -> None:
    assert response(await call(app(), REVIEW, headers=[(b"content-type", value)]))["allowed"] is True


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"])
async def test_other_methods_are_405(method: str) -> None:
    assert (await call(app(), REVIEW, method=method)).status == 405


@pytest.mark.parametrize("path", ["/", "/hook", "/other/ring", "", "//hook/ring", "/hook%2fring"])
async def test_paths_outside_of_the_prefixes_are_404(path: str) -> None:
    assert (await call(app(), REVIEW, path=path)).status == 404


@pytest.mark.parametrize("value", [None, b"", b"text/plain", b"application/jsonx", b"application/x-protobuf"])
async def test_other_content_types_are_415(value: bytes | None) -> None:
    headers = [] if value is None else [(b"content-type", value)]
    assert (await call(app(), REVIEW, headers=headers)).status == 415


@pytest.mark.parametrize("encoding", [b"gzip", b"GZIP", b"deflate, gzip", b"br"])
async def test_compressed_bodies_are_415_and_never_unpacked(encoding: bytes) -> None:
    answer = await call(app(), b"\x1f\x8b" * 10, headers=[JSON, (b"content-encoding", encoding)])
    assert answer.status == 415
    assert answer.read == 0


async def test_a_declared_length_beyond_the_limit_is_413_before_reading() -> None:
    answer = await call(app(), b"x", headers=[JSON, (b"content-length", b"7340033")])
    assert answer.status == 413
    assert answer.read == 0


@pytest.mark.parametrize("length", [b"-1", b"x", b"", b"9" * 5000])
async def test_a_length_that_is_no_number_is_refused(length: bytes) -> None:
    assert (await call(app(), REVIEW, headers=[JSON, (b"content-length", length)])).status in (400, 413)


async def test_an_undeclared_body_is_413_as_soon_as_it_passes_the_limit() -> None:
    answer = await call(app(max_body=100), [b"x" * 60] * 1000)
    assert answer.status == 413
    assert answer.read == 2
    assert answer.headers[b"connection"] == b"close"


async def test_seven_mebibytes_are_read() -> None:
    spec = b"x" * (7 * 1024 * 1024 - len(REVIEW) - len(b',"s":""'))
    data = REVIEW[:-1] + b',"s":"' + spec + b'"}'
    assert len(data) == 7 * 1024 * 1024
    assert response(await call(app(), data))["allowed"] is True


@pytest.mark.parametrize(
    "data", [b"", b"{", b"null", b"\xff", b"[" * 100_000], ids=["", "{", "null", "ff", "deep"]
)
async def test_what_is_no_review_is_400_without_traceback(data: bytes) -> None:
    answer = await call(app(), data)
    assert answer.status == 400
    assert len(answer.body) < 200
    assert b"Traceback" not in answer.body


async def test_a_failing_handler_lets_the_request_through_with_a_warning_and_is_counted() -> None:
    def broken(request: AdmissionRequest) -> AdmissionAnswer:
        raise RuntimeError("secret")

    metrics = WebhookMetrics()
    ignoring = AdmissionApp(
        {"/hook/": Webhook(broken, on_failure="Ignore")}, clock=SystemClock(), metrics=metrics
    )
    answer = response(await call(ignoring, REVIEW))
    assert answer["allowed"] is True
    assert answer["uid"] == "u-1"
    assert answer["warnings"] == ["admission webhook failed, request was let through: RuntimeError"]
    assert metrics.panics == 1


def raises(request: AdmissionRequest) -> AdmissionAnswer:
    raise RuntimeError("secret")


async def raises_later(request: AdmissionRequest) -> AdmissionAnswer:
    await asyncio.sleep(1)
    raise RuntimeError("secret")


async def hangs(request: AdmissionRequest) -> AdmissionAnswer:
    return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]


def answers_nothing(request: AdmissionRequest) -> AdmissionAnswer:
    return None  # type: ignore[return-value]


def answers_what_is_no_json(request: AdmissionRequest) -> AdmissionAnswer:
    return AdmissionAnswer(patch=({"op": "add", "path": "/x", "value": object()},))


def expects_another_kind(request: AdmissionRequest) -> AdmissionAnswer:
    request.whole(ConfigMap)
    return AdmissionAnswer()


FAILURES = {
    "raises": (raises, "RuntimeError"),
    "raises later": (raises_later, "RuntimeError"),
    "hangs": (hangs, "TimeoutError"),
    "answers nothing": (answers_nothing, "TypeError"),
    "answers what is not JSON": (answers_what_is_no_json, "TypeError"),
    "expects another kind": (expects_another_kind, "UnexpectedObject"),
}


@pytest.mark.regression
@pytest.mark.parametrize(("handler", "name"), FAILURES.values(), ids=FAILURES)
@virtual_time
async def test_a_handler_that_fails_fails_the_call_so_that_the_registration_decides(
    handler: AdmissionHandler, name: str
) -> None:
    metrics = WebhookMetrics()
    secret = {"metadata": {"name": "a"}, "apiVersion": "v1", "kind": "Secret"}
    request = {"uid": "u-1", "operation": "CREATE", "name": "a", "object": secret}
    body = json.dumps({"apiVersion": "admission.k8s.io/v1", "request": request}).encode()
    answer = await call(AdmissionApp({"/hook/": handler}, clock=SystemClock(), metrics=metrics), body)
    assert answer.status == 500
    assert answer.body.decode() == f"the webhook's handler failed: {name}"
    assert metrics.panics == 1
    ignoring = AdmissionApp(
        {"/hook/": Webhook(handler, on_failure="Ignore")}, clock=SystemClock(), metrics=metrics
    )
    allowed = response(await call(ignoring, body))
    assert allowed["allowed"] is True
    assert allowed["warnings"] == [f"admission webhook failed, request was let through: {name}"]


@pytest.mark.regression
@pytest.mark.parametrize(("query", "seconds"), [(b"timeout=5s", 5), (b"", 30), (b"timeout=9999s", 30)])
@virtual_time
async def test_an_async_handler_answers_and_is_given_up_when_the_api_server_no_longer_waits(
    query: bytes, seconds: int
) -> None:
    async def denies(request: AdmissionRequest) -> AdmissionAnswer:
        await asyncio.sleep(1)
        return AdmissionAnswer(allowed=False, code=403, message="not today", warnings=(str(request.dry_run),))

    answer = response(await call(AdmissionApp({"/hook/": denies}, clock=SystemClock()), REVIEW, query=query))
    assert answer["allowed"] is False
    assert answer["status"] == {"code": 403, "message": "not today"}
    began = asyncio.get_running_loop().time()
    assert (
        await call(AdmissionApp({"/hook/": hangs}, clock=SystemClock()), REVIEW, query=query)
    ).status == 500
    assert asyncio.get_running_loop().time() - began == pytest.approx(seconds)


def counts(metrics: WebhookMetrics) -> list[tuple[str, dict[str, str], float]]:
    return [
        (sample.name, sample.labels, sample.value)
        for family in metrics.collect()
        for sample in family.samples
        if "latency" not in sample.name or sample.name.endswith("_count")
    ]


async def directly(app: AdmissionApp, body: bytes, url: str = PATH, **options: Any) -> Answer:
    """Does what `AsgiServer` does with a request that arrived in one piece."""
    headers = options.get("headers", [JSON])
    direct = app.direct(b"POST", url.encode(), Fields(headers))
    found = direct(body, {}) if direct else app
    if isinstance(found, bytes):
        head, _, content = found.partition(b"\r\n\r\n")
        line, *lines = head.splitlines()
        return Answer(int(line.split()[1]), dict(each.split(b": ") for each in lines), content)
    return await call(found, body, path=url.partition("?")[0], **options)


@pytest.mark.parametrize(
    ("handler", "path", "headers"),
    [
        (let_through, PATH, [JSON]),
        (let_through, "/nowhere", [JSON]),
        (let_through, PATH, [(b"content-type", b"text/plain")]),
        (let_through, PATH, [JSON, (b"content-encoding", b"gzip")]),
        (raises, PATH, [JSON]),
        (answers_nothing, PATH, [JSON]),
        (raises_later, PATH, [JSON]),
        (Webhook(raises, on_failure="Ignore"), PATH, [JSON]),
        (Webhook(raises_later, on_failure="Ignore"), PATH, [JSON]),
    ],
)
@pytest.mark.parametrize("body", [REVIEW, b"{}", b"x" * 2000])
@virtual_time
async def test_the_direct_way_gives_the_same_answers_and_counts_the_same(
    handler: AdmissionHandler | Webhook, path: str, headers: list[tuple[bytes, bytes]], body: bytes
) -> None:
    usual, direct = WebhookMetrics(), WebhookMetrics()
    for url in (path, f"{path}?timeout=5s"):
        expected = await call(
            AdmissionApp({"/hook/": handler}, clock=SystemClock(), metrics=usual, max_body=1000),
            body,
            path=path,
            headers=headers,
        )
        other = AdmissionApp({"/hook/": handler}, clock=SystemClock(), metrics=direct, max_body=1000)
        found = await directly(other, body, url, headers=headers)
        assert (found.status, found.headers, found.body) == (expected.status, expected.headers, expected.body)
    assert direct.panics == usual.panics
    assert counts(direct) == counts(usual)


async def test_beyond_the_limit_requests_are_503_at_once_and_later_ones_are_served_again() -> None:
    """While the others are decided about; for bodies that are not complete see below."""
    go_on = asyncio.Event()
    waiting = asyncio.Semaphore(0)

    async def slow_handler(request: AdmissionRequest) -> AdmissionAnswer:
        waiting.release()
        await go_on.wait()
        return AdmissionAnswer()

    busy = AdmissionApp({"/hook/": slow_handler}, clock=SystemClock(), max_in_flight=2)
    slow = [asyncio.ensure_future(call(busy, REVIEW)) for _ in range(2)]
    for _ in slow:
        await waiting.acquire()
    refused = await call(busy, REVIEW)
    assert refused.status == 503
    assert refused.read == 0
    assert b"connection" not in refused.headers
    go_on.set()
    await asyncio.gather(*slow)
    assert (await call(busy, REVIEW)).status == 200


class Unfinished:
    """A client that sends pieces of a body, and waits in vain before the last one."""

    def __init__(self, app: AdmissionApp, *pieces: bytes, path: str = "/hook/ring") -> None:
        self._pieces = list(pieces)
        self.sent = asyncio.Event()
        self.answer: list[Message] = []
        scope = {"type": "http", "method": "POST", "path": path, "headers": [JSON]}
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))

    @property
    def status(self) -> int:
        return self.answer[0]["status"] if self.answer else 0

    async def _receive(self) -> Message:
        if self._pieces:
            return {"type": "http.request", "body": self._pieces.pop(0), "more_body": True}
        self.sent.set()
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    async def _send(self, message: Message) -> None:
        self.answer.append(message)


@pytest.mark.regression
async def test_bodies_that_are_never_finished_keep_nobody_out_and_have_a_limited_size_together() -> None:
    mebibyte = b" " * 2**20
    served = app(max_bytes=10 * 2**20)
    slow = [Unfinished(served, *[mebibyte] * 4) for _ in range(50)]
    for each in slow:
        await each.sent.wait() if each in slow[-2:] else await asyncio.sleep(0)
    await asyncio.gather(*(each.task for each in slow[:-2]))
    assert [each.status for each in slow] == [503] * 48 + [0] * 2
    assert all((b"connection", b"close") in each.answer[0]["headers"] for each in slow[:-2])
    assert (await call(served, [mebibyte, mebibyte, REVIEW])).status == 200
    assert (await call(served, [mebibyte, mebibyte, mebibyte, REVIEW])).status == 200
    await slow[-2].task
    assert (slow[-2].status, slow[-1].status) == (503, 0)
    slow[-1].task.cancel()
    assert (await call(served, [*[mebibyte] * 6, REVIEW])).status == 200


@pytest.mark.regression
async def test_bodies_that_are_never_begun_take_no_places_from_others() -> None:
    served = app(max_in_flight=3)
    slow = [Unfinished(served) for _ in range(10)]
    for each in slow[-3:]:
        await each.sent.wait()
    for _ in range(2):
        assert (await call(served, REVIEW)).status == 200
    await asyncio.gather(*(each.task for each in slow[:9]))
    assert [each.status for each in slow] == [503] * 9 + [0]
    slow[-1].task.cancel()


@pytest.mark.regression
async def test_bodies_that_are_never_finished_take_no_places_from_other_routes() -> None:
    class Converter:
        max_body = 1000
        max_in_flight = 4

        async def answer(self, body: bytes | bytearray, failed: object, patience: float) -> bytes:
            return b"{}"

    served = AdmissionApp(
        {"/convert": Converter(), "/hook/": let_through}, clock=SystemClock(), max_in_flight=3
    )
    slow = [Unfinished(served, path=path) for path in ("/convert/a", "/hook/b", "/convert/c")]
    for each in slow:
        await each.sent.wait()
    assert (await call(served, REVIEW)).status == 200
    await slow[0].task
    assert [each.status for each in slow] == [503, 0, 0]
    later = Unfinished(served, path="/hook/d"), Unfinished(served, path="/hook/e")
    await asyncio.gather(slow[1].task, later[1].sent.wait())
    assert [each.status for each in slow] == [503, 503, 0]
    assert (await call(served, REVIEW)).status == 200
    await slow[2].task
    assert [each.status for each in slow] == [503, 503, 503]
    for unfinished in later:
        unfinished.task.cancel()


@pytest.mark.regression
async def test_bodies_of_requests_that_are_decided_about_count_and_are_not_given_up() -> None:
    go_on, began = asyncio.Event(), asyncio.Event()

    async def slow_handler(request: AdmissionRequest) -> AdmissionAnswer:
        began.set()
        await go_on.wait()
        return AdmissionAnswer()

    served = AdmissionApp({"/hook/": slow_handler}, clock=SystemClock(), max_bytes=3 * 2**20)
    first = asyncio.ensure_future(call(served, [b" " * 2**21, REVIEW]))
    await began.wait()
    refused = await call(served, [b" " * 2**21, REVIEW])
    assert (refused.status, refused.headers[b"connection"]) == (503, b"close")
    second = asyncio.ensure_future(call(served, [b" " * 2**18, REVIEW]))
    go_on.set()
    assert [(await answer).status for answer in (first, second)] == [200, 200]


async def test_a_route_with_a_limit_of_its_own_holds_no_more_bodies_than_that_and_others_go_on() -> None:
    class Slow:
        max_body = 1000
        max_in_flight = 1

        async def answer(self, body: bytes | bytearray, failed: object, patience: float) -> bytes:
            began.set()
            await go_on.wait()
            return b"{}"

    began, go_on = asyncio.Event(), asyncio.Event()
    both = AdmissionApp({"/convert": Slow(), "/hook/": let_through}, clock=SystemClock())
    first = asyncio.ensure_future(call(both, REVIEW, path="/convert"))
    await began.wait()
    assert (await call(both, REVIEW, path="/convert")).status == 503
    assert (await call(both, REVIEW)).status == 200
    go_on.set()
    assert (await first).status == 200


async def test_a_client_that_leaves_gets_no_answer_and_frees_its_place() -> None:
    small = app(max_in_flight=1)
    for _ in range(3):
        assert (await call(small, REVIEW[:10], leaves=True)).status == 0
        assert (await call(small, [])).status == 0
    assert (await call(small, REVIEW)).status == 200


async def test_requests_are_counted_under_the_names_of_controller_runtime() -> None:
    registry = CollectorRegistry()
    counted = app(metrics=WebhookMetrics(registry))
    await call(counted, REVIEW)
    await call(counted, b"")
    await call(counted, REVIEW, path="/else")

    def sample(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"controller_runtime_webhook_{name}", labels)

    assert sample("requests_total", webhook="/hook/", code="200") == 1
    assert sample("requests_total", webhook="/hook/", code="400") == 1
    assert sample("requests_total", webhook="", code="404") == 1
    assert sample("requests_in_flight", webhook="/hook/") == 0
    assert sample("latency_seconds_count", webhook="/hook/") == 2
    assert sample("latency_seconds_bucket", webhook="/hook/", le="+Inf") == 2
    assert sample("panics_total") == 0
    assert b"controller_runtime_webhook_latency_seconds_sum" in generate_latest(registry)
