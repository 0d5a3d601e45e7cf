"""The embedded server on a socket: who may connect, what is written to disk, and how it shuts down."""

import asyncio
import json
import ssl
import stat
import urllib.request
from contextlib import suppress
from dataclasses import replace

import pytest

from kubeshard import ALL
from kubeshard.client import Client, load_config
from kubeshard.core import ConfigMap, ObjectMeta
from kubeshard.core.errors import ConfigurationError
from kubeshard.runtime.certificate_authority import new_client_leaf
from kubeshard.runtime.http import HttpTransport
from kubeshard.runtime.tls import Tls
from kubeshard.runtime.transport import HttpRequest
from kubeshard_apiserver.front.gate import Open
from kubeshard_apiserver.serving import EmbeddedServer, embedded_in_thread
from kubeshard_apiserver.serving.embedded import LIMITS


def trusting(served):
    return ssl.create_default_context(cadata=served.credentials.ca)


async def asked(served, headers, path="/api/v1/namespaces", ca=None, pair=None, body=None):
    tls = Tls(
        ca=ca or served.credentials.ca,
        certificate=pair and pair.certificate.decode(),
        key=pair and pair.private_key.decode(),
    )
    transport = HttpTransport(served.url, tls)
    try:
        return await transport.request(HttpRequest("POST" if body else "GET", path, headers, body, timeout=5))
    finally:
        await transport.close()


async def test_the_kubeconfig_leads_to_the_server_and_is_for_its_owner_only(tmp_path):
    async with EmbeddedServer() as served:
        path = tmp_path / "kubeconfig"
        served.write_kubeconfig(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        async with Client(await load_config(kubeconfig=str(path))) as client:
            await client.create(ConfigMap(metadata=ObjectMeta(name="a", namespace="default")))
            assert [found.metadata.name async for found in client.list(ConfigMap, ALL)] == ["a"]


async def test_a_kubeconfig_that_cannot_be_written_is_a_mistake_in_words(tmp_path):
    async with EmbeddedServer() as served:
        with pytest.raises(ConfigurationError, match=r"cannot write .*: No such file or directory"):
            served.write_kubeconfig(tmp_path / "no" / "kubeconfig")


async def test_who_has_no_token_or_another_one_is_not_let_in():
    async with EmbeddedServer() as one, EmbeddedServer() as other:
        assert one.token != other.token
        for headers in ({}, {"Authorization": f"Bearer {other.token}"}, {"Authorization": one.token}):
            assert (await asked(one, headers)).status in (401, 403)
        assert (await asked(one, {"Authorization": f"Bearer {one.token}"})).status == 200
        assert (await asked(one, {}, "/readyz")).body == b"ok"


async def test_clients_of_another_server_do_not_trust_this_one():
    async with EmbeddedServer() as one, EmbeddedServer() as other:
        with pytest.raises(Exception, match="certificate verify failed"):
            await asked(one, {}, ca=other.credentials.ca)


async def test_a_client_certificate_reaches_the_gate_as_it_is():
    seen = []

    class Watching(Open):
        def enter(self, request, attributes, peer):
            seen.append(peer.certificate)
            return super().enter(request, attributes, peer)

    async with EmbeddedServer(gate=Watching()) as served:
        now = served.server.clock.wall()
        pair = new_client_leaf(served.credentials.authority, "jane", ["system:masters"], now, 3600)
        await asked(served, {}, pair=pair)
        await asked(served, {})
    assert seen == [ssl.PEM_cert_to_DER_cert(pair.certificate.decode()), b""]


async def test_a_client_certificate_of_another_authority_is_no_way_in():
    async with EmbeddedServer() as served, EmbeddedServer() as other:
        pair = new_client_leaf(other.credentials.authority, "jane", ["system:masters"], 1.8e9, 3600)
        with pytest.raises(Exception, match=r"GET /api"):
            await asked(served, {}, pair=pair)


async def test_each_warning_is_a_header_line_of_its_own():
    body = b'{"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "a", "odd": 1, "other": 2}}'
    async with EmbeddedServer() as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port, ssl=trusting(served))
        head = f"POST /api/v1/namespaces HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {served.token}\r\n"
        writer.write(
            f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
        )
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
        writer.close()
    assert [
        value for name, _, value in (line.partition(": ") for line in lines) if name.lower() == "warning"
    ] == [
        r'299 - "unknown field \"metadata.odd\""',
        r'299 - "unknown field \"metadata.other\""',
    ]


async def test_headers_are_read_and_written_in_utf_8():
    body = (
        b'{"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1", "gr\xc3\xb6\xc3\x9fer": 1}'
    )
    async with EmbeddedServer() as served:
        headers = {
            "Authorization": f"Bearer {served.token}",
            "Content-Type": "application/json",
            "Impersonate-User": "Jürgen 日本",
        }
        answer = await asked(served, headers, "/apis/authentication.k8s.io/v1/selfsubjectreviews", body=body)
    assert json.loads(answer.body)["status"]["userInfo"]["username"] == "Jürgen 日本"
    assert answer.headers["warning"] == r'299 - "unknown field \"größer\""'


async def test_a_port_that_is_taken_is_a_mistake_in_words():
    async with EmbeddedServer() as served:
        with pytest.raises(
            ConfigurationError, match=f"{served.port}: the address is in use by another process"
        ):
            async with EmbeddedServer(port=served.port):
                pass


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", ""])
async def test_the_url_leads_there_whatever_it_listens_on(host):
    async with EmbeddedServer(host=host) as served:
        assert (await asked(served, {}, "/readyz")).status == 200


async def test_stopping_ends_watches_in_order_and_leaves_no_task():
    before = asyncio.all_tasks()
    async with EmbeddedServer(limits=replace(LIMITS, stop_grace=60)) as served:
        transport = HttpTransport(served.url, Tls(ca=served.credentials.ca))
        headers = {"Authorization": f"Bearer {served.token}"}
        request = HttpRequest("GET", "/api/v1/namespaces?watch=1", headers, timeout=60, idle_timeout=60)
        async with transport.stream(request) as stream:
            chunks = stream.chunks()
            first = await anext(chunks)
            assert b'"ADDED"' in first
            async with asyncio.timeout(30):
                await served.__aexit__()
                assert [chunk async for chunk in chunks if b'"ADDED"' not in chunk] == []
        await transport.close()
    assert asyncio.all_tasks() == before


async def test_stopping_does_not_wait_for_a_request_that_never_ends():
    async with asyncio.timeout(5):
        async with EmbeddedServer() as served:
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port, ssl=trusting(served))
            writer.write(b"POST /api/v1/namespaces HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\n{")
            await writer.drain()
        with suppress(ConnectionResetError):  # what the server has not read yet resets the connection
            assert await reader.read() == b""
        writer.close()


def test_code_without_an_event_loop_gets_a_server_too(tmp_path):
    with embedded_in_thread() as served:
        path = tmp_path / "kubeconfig"
        served.write_kubeconfig(path)
        opened = urllib.request.urlopen(f"{served.url}/readyz", context=trusting(served), timeout=5)
        assert opened.read() == b"ok"
        url = served.url
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"{url}/readyz", timeout=5)


def test_a_thread_that_cannot_begin_says_why():
    with (
        embedded_in_thread() as served,
        pytest.raises(ConfigurationError, match="another process"),
        embedded_in_thread(port=served.port),
    ):
        pass


async def test_the_configuration_of_the_kubeconfig_verifies_the_server(tmp_path):
    async with EmbeddedServer() as served:
        path = tmp_path / "kubeconfig"
        served.write_kubeconfig(path)
        tls = (await load_config(kubeconfig=str(path))).tls
        assert (tls.ca, tls.insecure, tls.server_name) == (served.credentials.ca, False, None)
