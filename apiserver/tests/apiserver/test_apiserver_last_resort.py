"""Whatever breaks inside the server, its client gets a response, the log gets a traceback, and the connection remains
usable.
"""

import http.client
import json
import ssl

import pytest

from kubeshard.runtime.background import in_background
from kubeshard.runtime.transport import HttpRequest
from kubeshard_apiserver import ApiServer, Front, InMemoryTransport
from kubeshard_apiserver.serving import EmbeddedServer

MAPS = "/api/v1/namespaces/default/configmaps"
HOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
HOOK = {
    "metadata": {"name": "hook"},
    "webhooks": [
        {
            "name": "hook.example.com",
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": [
                {"operations": ["*"], "apiGroups": [""], "apiVersions": ["*"], "resources": ["configmaps"]}
            ],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
    ],
}


class Planted(Exception):
    """An error that the server does not expect."""


class Broken:
    """A collaborator that fails whenever an attribute is read or called, or its result is awaited."""

    def __getattr__(self, name):
        raise Planted(name)

    def __call__(self, *_, **__):
        raise Planted


broken = Broken()


def ask(method, path, body=None, **headers):
    return HttpRequest(method, path, headers, None if body is None else json.dumps(body).encode())


def named(name, **fields):
    return {"metadata": {"name": name}, **fields}


LARGE = named("large", data={"a": "x" * 100_000})
BREAKS = {
    "the gate": (("gate", broken), ask("GET", MAPS)),
    "the caller of webhooks": (("_caller", broken), ask("POST", MAPS, named("a"))),
    "work aside": (("_offload", broken), ask("POST", MAPS, LARGE)),
    "the registry": (("server.registry.find", broken), ask("GET", MAPS)),
    "a read": (("server.store.get", broken), ask("GET", f"{MAPS}/a")),
    "a list": (("server.store.at", broken), ask("GET", MAPS)),
    "a watch": (("server.store.history", broken), ask("GET", f"{MAPS}?watch=1")),
    "a write": (("server.store.put", broken), ask("POST", MAPS, named("a"))),
    "a removal": (("server.store.remove", broken), ask("DELETE", f"{MAPS}/kube-root")),
    "the journal": (("_settled", broken), ask("GET", MAPS)),
    "the clock": (("server.clock", broken), ask("GET", MAPS)),
    "the source of names": (("server.rng", broken), ask("GET", MAPS)),
    "the metrics": (("metrics.answered", broken), ask("GET", MAPS)),
    "the page of metrics": (("metrics.page", broken), ask("GET", "/metrics")),
    "the probes": (("_probes", broken), ask("GET", "/readyz")),
    "the OpenAPI documents": (("_openapi", broken), ask("GET", "/openapi/v3")),
    "the headers of the request": ((), HttpRequest("GET", MAPS, broken)),
    "what cannot be written down": (
        ("server.model.live", lambda target: {"metadata": {"name": object()}}),
        ask("GET", f"{MAPS}/kube-root"),
    ),
}


def plant(front, monkeypatch, place, what):
    *parents, last = place.split(".")
    for parent in parents:
        front = getattr(front, parent)
    monkeypatch.setattr(front, last, what)


@pytest.mark.parametrize("case", BREAKS)
async def test_whatever_breaks_is_a_500_with_a_status_and_a_traceback_in_the_log(case, monkeypatch, caplog):
    front = Front(ApiServer())
    await front.reply(ask("POST", MAPS, named("kube-root")))
    if case == "the caller of webhooks":
        assert (await front.reply(ask("POST", HOOKS, HOOK))).status == 201
    planted, request = BREAKS[case]
    with monkeypatch.context() as patch:
        if planted:
            plant(front, patch, *planted)
        reply = await front.reply(request)
    status = json.loads(reply.body)
    assert (reply.status, status["kind"], status["reason"]) == (500, "Status", "InternalError")
    assert status["message"].startswith("Internal error occurred: the server failed to handle this request")
    assert {record.msg for record in caplog.records} == {"Failed to answer a request"}
    assert caplog.records[0].exc_info[1].__traceback__ is not None
    assert (await front.reply(ask("GET", MAPS))).status == 200


@pytest.mark.parametrize("place", ["server.store.revision", "_lines.line", "_settled"])
async def test_a_watch_that_breaks_ends_with_an_error(place, monkeypatch, caplog):
    front = Front(ApiServer())
    transport = InMemoryTransport(front)
    if place == "server.store.revision":
        monkeypatch.setattr("kubeshard_apiserver.front.streaming.BOOKMARK_SECONDS", 0.0)
    async with transport.stream(ask("GET", f"{MAPS}?watch=1&allowWatchBookmarks=1")) as stream:
        chunks = stream.chunks()
        plant(front, monkeypatch, place, broken)
        await front.reply(ask("POST", MAPS, named("a")))
        lines = b"".join([chunk async for chunk in chunks]).splitlines()
    event = json.loads(lines[-1])
    assert (event["type"], event["object"]["reason"]) == ("ERROR", "InternalError")
    assert event["object"]["code"] == 500
    assert "Failed to answer a request" in [record.msg for record in caplog.records]


@pytest.mark.parametrize("place", ["server.store.revision", "_lines.line"])
async def test_a_watch_that_breaks_on_a_connection_ends_with_an_error(place, monkeypatch):
    front = Front(ApiServer())
    if place == "server.store.revision":
        monkeypatch.setattr("kubeshard_apiserver.front.streaming.BOOKMARK_SECONDS", 0.0)
    source = front.begin(ask("GET", f"{MAPS}?watch=1&allowWatchBookmarks=1")).source
    source.begin(lambda: None)
    front.begin(ask("POST", MAPS, named("a")))
    plant(front, monkeypatch, place, broken)
    parts = list(iter(source.take, None))
    event = json.loads(parts[-1])
    assert (event["type"], event["object"]["reason"]) == ("ERROR", "InternalError")
    source.close()


def test_the_connection_of_a_request_that_broke_serves_the_next(monkeypatch):
    with in_background(EmbeddedServer, "broken") as served:
        context = ssl.create_default_context(cadata=served.credentials.ca)
        connection = http.client.HTTPSConnection("localhost", served.port, context=context, timeout=20)
        headers = {"Authorization": f"Bearer {served.token}"}
        asked = []
        for place in ("server.store.at", None):
            with monkeypatch.context() as patch:
                if place:
                    plant(served.front, patch, place, broken)
                connection.request("GET", MAPS, headers=headers)
                answer = connection.getresponse()
                asked.append(
                    (answer.status, json.loads(answer.read())["kind"], connection.sock.getsockname())
                )
        connection.close()
    assert [found[:2] for found in asked] == [(500, "Status"), (200, "ConfigMapList")]
    assert asked[0][2] == asked[1][2]


@pytest.mark.regression
@pytest.mark.parametrize(
    "body", [b"k8s\0\x08\x00", b"k8s\0\x0b\x0c", b"k8s\0\x0a\x02\x08\x00", b"k8s\0\xff\xff"]
)
async def test_a_malformed_envelope_of_protobuf_is_a_mistake_of_the_client(body):
    headers = {"content-type": "application/vnd.kubernetes.protobuf"}
    reply = await Front(ApiServer()).reply(HttpRequest("POST", MAPS, headers, body))
    assert (reply.status, json.loads(reply.body)["reason"]) == (400, "BadRequest")
