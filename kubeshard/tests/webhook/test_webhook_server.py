from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from pathlib import Path
from typing import Any

import pytest

from kubeshard import Manager
from kubeshard.core.builtin import ConfigMap
from kubeshard.core.errors import ConfigurationError, NotFound
from kubeshard.runtime.asgi import Limits
from kubeshard.runtime.certificate_authority import new_authority, new_client_leaf
from kubeshard.runtime.clock import SystemClock
from kubeshard.runtime.tls import CertificatePair, load_pair
from kubeshard.runtime.world import REAL_WORLD
from kubeshard.webhook.certificates import CertificateSource, Identity, ServingCertificate
from kubeshard.webhook.review import AdmissionAnswer, AdmissionRequest
from kubeshard.webhook.selfsigned import renewed
from kubeshard.webhook.server import WebhookServer
from kubeshard.webhook.typed import validates
from kubeshard.webhook.webhooks import Webhooks
from kubeshard_apiserver.testing import MemoryApi

NAME = "sharder.sharding-system.svc"
IDENTITY = renewed(None, (NAME,), SystemClock().wall())
DAY = 86400.0
REVIEW = json.dumps({"apiVersion": "admission.k8s.io/v1", "request": {"uid": "u-1"}}).encode()


class Given:
    """A certificate source whose later pairs are provided by the test."""

    def __init__(self) -> None:
        self.later: asyncio.Queue[Identity] = asyncio.Queue()

    async def load(self, serving: ServingCertificate) -> None:
        serving.install(IDENTITY.serving)

    async def run(self, serving: ServingCertificate) -> None:
        while True:
            serving.install((await self.later.get()).serving)
            self.later.task_done()


def let_through(request: AdmissionRequest) -> AdmissionAnswer:
    return AdmissionAnswer(message="seen")


def server(source: Given | None = None, **options: object) -> WebhookServer:
    return WebhookServer(
        {"/hook/": let_through},
        source or Given(),
        host="127.0.0.1",
        port=0,
        server_name=NAME,
        **options,  # type: ignore[arg-type]
    )


def trusting(identity: Identity) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=identity.bundle.decode())
    return context


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(
        cls, server: WebhookServer, identity: Identity = IDENTITY, client: CertificatePair | None = None
    ) -> Connection:
        context = trusting(identity)
        if client is not None:
            load_pair(context, client)
        return cls(
            *await asyncio.open_connection("127.0.0.1", server.port, ssl=context, server_hostname=NAME)
        )

    async def post(self, body: bytes = REVIEW) -> bytes:
        self.writer.write(
            b"POST /hook/r?timeout=5s HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n" % len(body)
        )
        self.writer.write(body)
        async with asyncio.timeout(5):
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = next(
                int(line[16:]) for line in head.split(b"\r\n") if line.startswith(b"content-length")
            )
            return head.split(b"\r\n")[0] + b"\n" + await self.reader.readexactly(length)

    def close(self) -> None:
        self.writer.close()


async def test_reviews_are_answered_over_https_on_a_kept_connection() -> None:
    async with server().running(REAL_WORLD) as running:
        assert running.ready()
        connection = await Connection.open(running)
        for _ in range(3):
            answer = await connection.post()
            assert answer.startswith(b"HTTP/1.1 200 OK\n")
            assert json.loads(answer.partition(b"\n")[2])["response"]["uid"] == "u-1"
        connection.close()
    assert not running.ready()


async def test_a_new_certificate_is_served_to_new_connections_while_old_ones_go_on() -> None:
    source = Given()
    other = renewed(None, (NAME,), SystemClock().wall())
    async with server(source).running(REAL_WORLD) as running:
        old = await Connection.open(running)
        await source.later.put(other)
        await source.later.join()
        new = await Connection.open(running, other)
        with pytest.raises(ssl.SSLCertVerificationError):
            await Connection.open(running, IDENTITY)
        for connection in (old, new):
            assert (await connection.post()).startswith(b"HTTP/1.1 200")
            connection.close()


async def test_only_clients_with_a_certificate_of_the_authority_are_answered(tmp_path: Path) -> None:
    now = SystemClock().wall()
    authority, foreign = (new_authority(name, now, DAY) for name in ("control-plane", "elsewhere"))
    file = tmp_path / "ca.crt"
    file.write_bytes(authority.certificate)
    source = Given()
    async with server(source, client_authority=file).running(REAL_WORLD) as running:
        await source.later.put(renewed(None, (NAME,), now))  # a new certificate changes nothing about clients
        await source.later.join()
        with pytest.raises(ssl.SSLCertVerificationError):
            await Connection.open(running)
        await source.later.put(IDENTITY)
        await source.later.join()
        known = await Connection.open(running, client=new_client_leaf(authority, "apiserver", (), now, DAY))
        assert (await known.post()).startswith(b"HTTP/1.1 200")
        known.close()
        for stranger in (None, new_client_leaf(foreign, "apiserver", (), now, DAY), IDENTITY.serving):
            with pytest.raises((ssl.SSLError, OSError, asyncio.IncompleteReadError)):
                await (await Connection.open(running, client=stranger)).post()


@pytest.mark.regression
async def test_another_authority_of_clients_counts_without_a_restart(tmp_path: Path) -> None:
    """aerospike/aerospike-backup-service#644"""
    now = SystemClock().wall()
    authorities = [new_authority(name, now, DAY) for name in ("former", "next")]
    clients = [new_client_leaf(authority, "apiserver", (), now, DAY) for authority in authorities]
    file, source = tmp_path / "ca.crt", Given()
    file.write_bytes(authorities[0].certificate)
    made = server(source, client_authority=file)
    made._certificates[0]._interval = 0.01  # type: ignore[attr-defined]

    async def served(client: CertificatePair) -> bool:
        try:
            connection = await Connection.open(running, client=client)
            answer = await connection.post()
        except (ssl.SSLError, OSError, asyncio.IncompleteReadError):
            return False
        connection.close()
        return answer.startswith(b"HTTP/1.1 200")

    async def until_served(*expected: bool) -> None:
        async with asyncio.timeout(10):
            while [await served(client) for client in clients] != list(expected):  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)

    async with made.running(REAL_WORLD) as running:
        kept = await Connection.open(running, client=clients[0])
        await until_served(True, False)
        file.write_bytes(b"".join(each.certificate for each in authorities))
        await until_served(True, True)
        file.write_bytes(authorities[1].certificate)
        await until_served(False, True)
        file.write_bytes(b"no certificate")
        await source.later.put(IDENTITY)
        await source.later.join()
        await until_served(False, True)
        assert (await kept.post()).startswith(b"HTTP/1.1 200")
        kept.close()


def test_a_client_of_a_former_authority_cannot_go_on_with_its_session(tmp_path: Path) -> None:
    """Who resumes a session shows no certificate."""
    now, file = SystemClock().wall(), tmp_path / "ca.crt"
    authorities = [new_authority(name, now, DAY) for name in ("former", "next")]
    context, serving = trusting(IDENTITY), ServingCertificate(NAME, clock=SystemClock())
    load_pair(context, new_client_leaf(authorities[0], "apiserver", (), now, DAY))
    serving.install(IDENTITY.serving)

    def connect(session: ssl.SSLSession | None) -> ssl.SSLObject:
        up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(down, up, server_hostname=NAME, session=session)
        accepted = serving.context.wrap_bio(up, down, server_side=True)
        for step in (client, accepted) * 2:
            with contextlib.suppress(ssl.SSLWantReadError):
                step.do_handshake()
        accepted.write(b"x")
        assert client.read(1) == b"x"
        return client

    file.write_bytes(authorities[0].certificate)
    serving.require_clients_of(file)
    session = connect(None).session
    file.write_bytes(authorities[1].certificate)
    serving.require_clients_of(file)
    with pytest.raises(ssl.SSLError, match="VERIFY_FAILED"):
        connect(session)


@pytest.mark.parametrize("content", [None, b"", b"no certificate"])
async def test_an_authority_of_clients_that_cannot_be_read_is_a_configuration_error(
    tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "ca.crt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"ca\.crt: .*put its certificate there"):
        await server(client_authority=file).run(REAL_WORLD)


async def test_the_port_opens_only_after_the_caches_are_synced() -> None:
    synced = asyncio.Event()
    waiting = server(after=synced.wait)
    task = asyncio.ensure_future(waiting.run(REAL_WORLD))
    await asyncio.sleep(0)
    assert waiting.port == 0
    assert not waiting.ready()
    synced.set()
    async with asyncio.timeout(5):
        while not waiting.ready():  # noqa: ASYNC110 - what a readiness probe does
            await asyncio.sleep(0.005)
    (await Connection.open(waiting)).close()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("how", ["told by the command", "declared"])
async def test_webhooks_that_somebody_else_registers_are_served_without_knowing_where_they_are_called(
    kube_memory: MemoryApi, how: str
) -> None:
    given: CertificateSource = Given()
    webhooks = Webhooks("notes", [], host="127.0.0.1", port=0, certificates=given, register=False)
    if how == "told by the command":
        webhooks = Webhooks("notes", [], host="127.0.0.1", port=0)
        webhooks.only_serve(given)
    async with kube_memory.client() as client, asyncio.TaskGroup() as tasks:
        running = tasks.create_task(webhooks.run_with(client))
        async with asyncio.timeout(5):
            while webhooks.unready():  # noqa: ASYNC110 - what a readiness probe does
                await asyncio.sleep(0.005)
        running.cancel()


async def test_a_manager_whose_webhooks_others_register_serves_them_and_registers_none(
    kube_memory: MemoryApi,
) -> None:
    @validates(ConfigMap)
    def checked(_: ConfigMap) -> None: ...

    webhooks = Webhooks("notes", [checked], namespace="notes", host="127.0.0.1", port=0)
    async with kube_memory.client() as client, asyncio.TaskGroup() as tasks:
        made = Manager(servers=[webhooks], client=client, status_pages=None)
        made.only_serve_webhooks(Given())
        assert list(made.grants()) == []
        running = tasks.create_task(made.run())
        async with asyncio.timeout(20):
            await made.webhooks_registered()
            while webhooks.unready():  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)
        with pytest.raises(NotFound):
            await client.raw(
                "GET", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/notes"
            )
        running.cancel()


async def test_a_taken_port_is_a_configuration_error() -> None:
    async with server().running(REAL_WORLD) as running:
        second = WebhookServer({"/": let_through}, Given(), host="127.0.0.1", port=running.port)
        with pytest.raises(
            ConfigurationError,
            match=f"webhook server: cannot listen on 127.0.0.1:{running.port}: the address is in use",
        ):
            await second.run(REAL_WORLD)


async def test_a_client_that_does_not_finish_its_handshake_is_cut_off() -> None:
    async with server(limits=Limits(header_timeout=0.05)).running(REAL_WORLD) as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(b"\x16\x03\x01")
        async with asyncio.timeout(5):
            assert await reader.read() == b""
        writer.close()


async def test_plain_http_is_not_spoken() -> None:
    async with server().running(REAL_WORLD) as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(b"GET /hook/r HTTP/1.1\r\nhost: x\r\n\r\n")
        async with asyncio.timeout(5):
            assert b"HTTP/1.1" not in await reader.read()
        writer.close()


async def test_too_large_a_body_is_refused_before_it_was_sent() -> None:
    async with server().running(REAL_WORLD) as running:
        connection = await Connection.open(running)
        connection.writer.write(
            b"POST /hook/r HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 99999999\r\n\r\n"
        )
        async with asyncio.timeout(5):
            assert (await connection.reader.read()).startswith(b"HTTP/1.1 413 ")
        connection.close()


async def test_an_endless_chunked_body_is_refused() -> None:
    async with server().running(REAL_WORLD) as running:
        connection = await Connection.open(running)
        connection.writer.write(
            b"POST /hook/r HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        chunk = b"80000\r\n" + b" " * 0x80000 + b"\r\n"
        answer = asyncio.ensure_future(connection.reader.read())
        sent = 0
        with contextlib.suppress(ConnectionError):
            while not answer.done():
                assert sent < 100
                connection.writer.write(chunk)
                sent += 1
                await connection.writer.drain()
                await asyncio.sleep(0)  # drain does not yield while the buffer has room
        connection.close()
        answer.cancel()


@pytest.mark.parametrize(
    ("routes", "error", "says"),
    [
        ({"default": lambda request: None}, ValueError, "its path begins with '/', as in '/default'"),
        ({"/default": "keep_one"}, TypeError, "'keep_one' is not a function of an AdmissionRequest"),
    ],
)
def test_routes_that_could_never_answer_are_refused(routes: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        WebhookServer(routes, Given())
