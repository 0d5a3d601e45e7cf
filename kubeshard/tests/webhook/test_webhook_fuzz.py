"""Arbitrary input never harms the webhook: every request gets a response, never a 5xx."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

from asgi_client import Answer, call
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kubeshard.runtime.clock import SystemClock
from kubeshard.webhook.app import AdmissionApp, Webhook
from kubeshard.webhook.review import AdmissionAnswer, AdmissionRequest

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
METADATA = st.fixed_dictionaries(
    {},
    optional={
        "name": JSON,
        "generateName": JSON,
        "namespace": JSON,
        "labels": JSON | st.dictionaries(st.text(), st.text()),
        "ownerReferences": JSON | st.lists(st.dictionaries(st.text(), JSON)),
        "generation": JSON,
    },
)
OBJECT = JSON | st.fixed_dictionaries({}, optional={"kind": JSON, "metadata": JSON | METADATA, "spec": JSON})
REQUEST = st.fixed_dictionaries(
    {"uid": st.text(min_size=1) | JSON},
    optional={
        "operation": st.sampled_from(["CREATE", "UPDATE", "DELETE"]) | JSON,
        "object": OBJECT,
        "oldObject": OBJECT,
        "userInfo": JSON,
        "dryRun": JSON,
        "resource": st.fixed_dictionaries({"group": st.text(), "resource": st.text()}) | JSON,
    },
)
REVIEW = st.fixed_dictionaries(
    {"apiVersion": st.just("admission.k8s.io/v1") | JSON, "request": REQUEST | JSON}
)


def careless(request: AdmissionRequest) -> AdmissionAnswer:
    """A webhook function that fails on any unusual input."""
    assert request.object is not None
    return AdmissionAnswer(patch=({"op": "add", "path": "/", "value": request.object.metadata.name},))


APP = AdmissionApp({"/hook/": Webhook(careless, on_failure="Ignore")}, clock=SystemClock())


def answer_to(body: bytes | list[bytes], headers: list[tuple[bytes, bytes]] | None = None) -> Answer:
    async def bounded() -> Answer:
        async with asyncio.timeout(5):
            return await call(APP, body, headers=headers or [(b"content-type", b"application/json")])

    return asyncio.run(bounded())


def check(answer: Answer) -> None:
    assert answer.status in (200, 400, 413, 415)
    if answer.status == 200:
        response = json.loads(answer.body)["response"]
        assert response["uid"]
        assert response["allowed"] is True
        if "patch" in response:
            json.loads(base64.b64decode(response["patch"]))


quickly = settings(suppress_health_check=[HealthCheck.too_slow])


@given(st.binary())
@example(b"\xef\xbb\xbf{}")
@example(b'{"a":' * 3000)
@quickly
def test_any_bytes_are_answered(body: bytes) -> None:
    check(answer_to(body))


@given(REVIEW)
@quickly
def test_any_review_shaped_json_is_answered_and_its_uid_echoed(review: dict[str, Any]) -> None:
    answer = answer_to(json.dumps(review).encode("utf-8", "surrogatepass"))
    check(answer)
    if answer.status == 200:
        assert json.loads(answer.body)["response"]["uid"] == review["request"]["uid"]


@given(REVIEW, st.data())
@quickly
def test_any_damaged_review_is_answered(review: dict[str, Any], data: st.DataObject) -> None:
    body = bytearray(json.dumps(review).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body)))
    check(answer_to([bytes(body[:cut]), bytes(body[cut:])]))


@given(
    st.lists(
        st.tuples(st.sampled_from([b"content-type", b"content-length", b"content-encoding"]), st.binary())
    )
)
@quickly
def test_any_headers_are_answered(headers: list[tuple[bytes, bytes]]) -> None:
    check(answer_to(b"{}", headers))
