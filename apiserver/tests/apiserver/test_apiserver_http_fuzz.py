"""Whatever bytes arrive on a connection, the server responds below 500 or closes it in time, and serves the next
client.
"""

import http.client
import json
import re
import socket
import ssl

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_apiserver_fuzz import DEFINITION, PATHS, QUERIES, TYPES, bodies

from kubeshard.runtime.asgi import Limits
from kubeshard.runtime.background import in_background
from kubeshard_apiserver.serving import EmbeddedServer

WITHIN = 20
LIMITS = Limits(header_timeout=0.2, body_timeout=0.2, keep_alive=0.2, stop_grace=1)
FUZZ = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def served():
    with in_background(lambda: EmbeddedServer(limits=LIMITS), "fuzzed") as running:
        status, answer = ask(
            running, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION
        )
        assert status == 201, answer
        for name in ("configmaps", "secrets"):
            ask(running, "POST", f"/api/v1/namespaces/default/{name}", {"metadata": {"name": "a"}})
        yield running


def connection(served):
    context = ssl.create_default_context(cadata=served.credentials.ca)
    raw = socket.create_connection(("127.0.0.1", served.port), timeout=WITHIN)
    return context.wrap_socket(raw, server_hostname="localhost")


def ask(served, method, path, body):
    asking = http.client.HTTPSConnection(
        "localhost",
        served.port,
        context=ssl.create_default_context(cadata=served.credentials.ca),
        timeout=WITHIN,
    )
    headers = {"Authorization": f"Bearer {served.token}", "Content-Type": "application/json"}
    asking.request(method, path, json.dumps(body), headers)
    answer = asking.getresponse()
    status, text = answer.status, answer.read()
    asking.close()
    return status, text


def exchange(served, data):
    """Returns all responses on one connection, until it ends or the server waits for more."""
    with connection(served) as wire:
        try:
            wire.sendall(data)
            received = b""
            while part := wire.recv(65536):
                received += part
        except (ConnectionError, ssl.SSLError):
            return b""
    return received


def statuses(received):
    return [
        int(line.split()[1])
        for line in received.split(b"\r\n")
        if line.startswith(b"HTTP/1.1 ") and line[9:10].isdigit()
    ]


def request(served, method, path, content_type, body, extra=("connection: close",)):
    lines = [f"{method} {path} HTTP/1.1", "host: x", f"authorization: Bearer {served.token}"]
    lines += [f"content-type: {content_type}", f"content-length: {len(body)}", *extra]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


visible = st.characters(codec="latin-1", exclude_characters="\r\n", exclude_categories=("Cc",))
headers = st.tuples(
    st.sampled_from(
        ["accept", "authorization", "impersonate-user", "impersonate-group", "user-agent", "content-encoding",
         "transfer-encoding", "expect", "upgrade", "connection", "range", "audit-id", "x-a"]
    ),
    st.text(visible, max_size=20)
    | st.sampled_from(
        ["application/json;as=Table;g=meta.k8s.io;v=v1", "100-continue", "gzip", "websocket", "Bearer x"]
    ),
)  # fmt: skip
ENDLESS = re.compile(r"watch(?!.*timeoutSeconds=1)")
"""A watch that does not end by itself."""
queries = (
    st.sampled_from([*QUERIES, "?watch=1&timeoutSeconds=1", "?limit=-1", "?timeoutSeconds=x"])
    | st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=20).map("?{}".format)
).filter(lambda query: not ENDLESS.search(query))


@given(
    st.sampled_from(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"]),
    st.sampled_from([*PATHS, "/metrics", "/readyz", "/openapi/v2", "/openapi/v3/api/v1", "/version", "/"]),
    queries,
    st.sampled_from(TYPES),
    bodies,
    st.lists(headers, max_size=3),
)
@FUZZ
def test_no_request_is_answered_with_a_server_error(served, method, path, query, content_type, body, extra):
    lines = [f"{name}: {value}" for name, value in extra]
    last = request(served, "GET", "/version", "", b"")
    received = exchange(served, request(served, method, path + query, content_type, body, lines) + last)
    # A real server, too, says 500 for a resource version that is no number, except for lists.
    assert all(status < 500 for status in statuses(received)) or query == "?resourceVersion=x", received
    head, _, rest = received.partition(b"\r\n\r\n")
    if b"\ncontent-type: application/json\r" in head and b"chunked" not in head:
        length = int(head.partition(b"content-length: ")[2].split()[0])
        assert not length or json.loads(rest[:length])


@given(st.data())
@FUZZ
def test_no_bytes_are_answered_with_a_server_error(served, data):
    whole = request(served, "POST", PATHS[2], "application/json", b'{"metadata": {"name": "b"}}')
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=4)))
    pieces = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    junk = data.draw(st.lists(st.binary(max_size=8), min_size=len(pieces), max_size=len(pieces)))
    order = data.draw(st.permutations(pieces))
    received = exchange(served, b"".join(part for pair in zip(order, junk, strict=True) for part in pair))
    assert all(status < 500 for status in statuses(received)), received


@pytest.mark.parametrize("noise", [b"", b"\x00" * 1000, b"GET / HTTP/1.1\r\n\r\n"])
def test_what_is_no_tls_ends_its_connection(served, noise):
    with socket.create_connection(("127.0.0.1", served.port), timeout=WITHIN) as raw:
        raw.sendall(noise)
        try:
            while raw.recv(65536):
                pass
        except ConnectionError:
            return


def test_after_all_of_it_the_next_client_is_served(served):
    status, text = ask(served, "GET", "/api/v1/namespaces", None)
    assert status == 200
    assert {item["metadata"]["name"] for item in json.loads(text)["items"]} >= {"default"}
