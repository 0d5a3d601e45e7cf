"""The model in memory and the server over HTTPS respond to any request with the same bytes, so one run of a test case
covers both.
"""

import asyncio
import itertools
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_apiserver_fuzz import DEFINITION, PATHS, QUERIES, TYPES, bodies

from kubeshard.runtime.background import in_background
from kubeshard.runtime.http import HttpTransport
from kubeshard.runtime.tls import Tls
from kubeshard.runtime.transport import HttpRequest
from kubeshard.runtime.world import REAL_WORLD
from kubeshard_apiserver import ApiServer, Front, Identity, InMemoryTransport, User
from kubeshard_apiserver.serving import Credentials, EmbeddedServer

TOKEN = "same"
ADMIN = User("admin", "admin", ("system:masters",))
OF_THE_CONNECTION = {"connection", "content-length", "date", "keep-alive", "server", "transfer-encoding"}
"""Headers that depend on the connection, not on the response."""

METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
TARGETS = [*PATHS, "/", "/api", "/apis/apps/v1", "/openapi/v3", "/version", "/readyz", "/no/such/path"]
ENDLESS = "watch=1"
ACCEPTED = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json;as=Table;g=meta.k8s.io;v=v1",
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    "text/html",
    "*/*",
]


class Stopped:
    """A clock that stands still, so that timestamps are equal."""

    def monotonic(self):
        return 0.0

    def boottime(self):
        return 0.0

    def wall(self):
        return 1_767_225_600.0


class Counting:
    """Generates names by counting."""

    def __init__(self):
        self._numbers = itertools.count()

    def uniform(self, low, high):
        return low

    def token(self):
        return f"00000000-0000-4000-8000-{next(self._numbers):012}"


class Twins:
    """Two servers that get the same requests."""

    def __init__(self, in_memory, served, credentials):
        self._in_memory = in_memory
        self._served = served
        self._credentials = credentials

    def ask(self, *requests):
        """Returns the responses of both, which should be equal in pairs."""
        return asyncio.run(self._ask(requests))

    async def _ask(self, requests):
        model = InMemoryTransport(self._in_memory)
        https = HttpTransport(self._served.url, Tls(ca=self._credentials.ca))
        try:
            return [[_said(await each.request(request)) for each in (model, https)] for request in requests]
        finally:
            await https.close()


@pytest.fixture(scope="module")
def twins():
    clock = Stopped()
    credentials = Credentials.made(clock.wall())
    servers = [ApiServer(world=replace(REAL_WORLD, clock=clock, rng=Counting())) for _ in range(2)]
    gates = [Identity(server, tokens={TOKEN: ADMIN}) for server in servers]

    def serve():
        return EmbeddedServer(servers[1], credentials=credentials, gate=gates[1])

    with in_background(serve, "same-bytes") as served:
        twins = Twins(Front(servers[0], gate=gates[0]), served, credentials)
        definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        (made,) = twins.ask(request("POST", definitions, body=json.dumps(DEFINITION).encode()))
        assert [status for status, _, _ in made] == [201, 201]
        yield twins


def request(method, target, content_type="application/json", accept="application/json", body=None):
    headers = {"Authorization": f"Bearer {TOKEN}", "User-Agent": "same/1", "Accept": accept}
    if body is not None:
        headers["Content-Type"] = content_type
    return HttpRequest(method, target, headers, body, 30.0)


def _said(answer):
    headers = {name.lower(): value for name, value in answer.headers.items()}
    return answer.status, {n: v for n, v in headers.items() if n not in OF_THE_CONNECTION}, answer.body


requests = st.builds(
    lambda method, path, query, *rest: request(
        method, path + query, *rest[:2], None if method in ("GET", "HEAD", "OPTIONS") else rest[2]
    ),
    st.sampled_from(METHODS),
    st.sampled_from(TARGETS),
    st.sampled_from([query for query in QUERIES if ENDLESS not in query]),
    st.sampled_from(TYPES),
    st.sampled_from(ACCEPTED),
    bodies,
)


LIVING = [
    ("/api/v1/namespaces/default/configmaps", "v1", "ConfigMap"),
    ("/apis/coordination.k8s.io/v1/namespaces/default/leases", "coordination.k8s.io/v1", "Lease"),
    ("/apis/fuzz.example.com/v1/namespaces/default/sites", "fuzz.example.com/v1", "Site"),
]


@pytest.mark.parametrize(("collection", "version", "kind"), LIVING)
def test_the_whole_life_of_an_object_is_the_same_bytes(twins, collection, version, kind):
    """Covers requests that would mostly be rejected if they were generated at random."""

    def body(**metadata):
        metadata = {"name": "life", **metadata}
        return json.dumps({"apiVersion": version, "kind": kind, "metadata": metadata}).encode()

    one, merge = f"{collection}/life", "application/merge-patch+json"
    answers = twins.ask(
        request("POST", collection, body=body()),
        request("POST", collection, body=body()),
        *(request("GET", target, accept=accept) for target in (one, collection) for accept in ACCEPTED),
        request("HEAD", one),
        request("PATCH", one, merge, body=body(labels={"a": "ü" * 60})),
        request("PATCH", one, merge, body=body(labels={"a": "b"}, annotations={"é": None, "x": "ü"})),
        request(
            "PATCH", f"{one}?fieldManager=m", "application/apply-patch+yaml", body=body(labels={"c": ""})
        ),
        request("PATCH", one, "application/json-patch+json", body=b'[{"op": "test", "path": "/a"}]'),
        request("GET", f"{collection}?labelSelector=a%3Db&limit=1"),
        request("DELETE", one, body=b'{"preconditions": {"resourceVersion": "1"}}'),
        request("DELETE", one),
        request("GET", one),
    )
    for model, https in answers:
        assert https == model
    assert {status for (status, _, _), _ in answers} >= {200, 201, 404, 406, 409, 422}


@given(st.lists(requests, min_size=1, max_size=8))
def test_the_model_and_the_server_over_https_answer_the_same_bytes(twins, requests):
    for model, https in twins.ask(*requests):
        assert https == model
