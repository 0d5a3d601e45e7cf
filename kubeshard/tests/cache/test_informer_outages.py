"""Outages that informers of running programs survive, against the embedded API server in memory, on virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from msgspec import json

from kubeshard.cache import Added, Cache, Deleted, Delta, Informer, Updated
from kubeshard.cache.stats import InformerNotices
from kubeshard.client import Client, ClusterConfig
from kubeshard.client.config import Auth, BearerToken, TokenFile
from kubeshard.core import ConfigMap, Key, KubeObject, ObjectMeta
from kubeshard.core.errors import ApiError, Gone, NotFound, Unauthorized, Unavailable
from kubeshard.crd import definition
from kubeshard.listwatch.reflector import Interrupted
from kubeshard.runtime.clock import SystemClock
from kubeshard.runtime.transport import TransportClosed, TransportError, TransportTimeout
from kubeshard_apiserver import ADMINISTRATOR, ApiServer, Identity, InMemoryTransport
from kubeshard_apiserver.front.handlers import Front
from kubeshard_apiserver.testing.memory import MemoryApi
from kubeshard_lab.virtual_time import virtual_time
from kubeshard_lab.virtual_world import virtual_world


class Gizmo(KubeObject, group="sim.example", version="v1"):
    pass


GIZMOS = definition(Gizmo)


class Copy:
    """The copy that a handler keeps if it trusts its deltas; fails on a lost or duplicate delta."""

    def __init__(self) -> None:
        self.known: dict[Key, KubeObject] = {}
        self.told: Counter[str] = Counter()

    def __call__(self, delta: Delta[Any]) -> None:
        self.told[type(delta).__name__] += 1
        match delta:
            case Added(obj):
                assert obj.key not in self.known
                self.known[obj.key] = obj
            case Updated(old, new):
                assert self.known[old.key] is old
                self.known[new.key] = new
            case Deleted(last):
                assert self.known.pop(last.key).metadata.uid == last.metadata.uid


@asynccontextmanager
async def following(client: Client, kind: type[KubeObject]) -> AsyncIterator[tuple[Informer[Any], Copy]]:
    cache, copy = Cache(client), Copy()
    informer = cache.declare(kind)
    informer.add_handler(copy)
    async with cache.running():
        await informer.synced()
        yield informer, copy
        assert informer.handler_errors == 0


async def write(client: Client, name: str, value: str) -> None:
    metadata = ObjectMeta(name=name, namespace="default")
    await client.apply(ConfigMap(metadata=metadata, data={"value": value}), force=True)


async def until_equal(client: Client, informer: Informer[Any], copy: Copy, within: float) -> None:
    """Waits until the store and the handler's copy equal the server's state."""
    async with asyncio.timeout(within):
        while True:
            truth = {obj.key: obj for obj in await client.list_all(informer.form, "default")}
            here = {obj.key: obj for obj in informer.store.list("default")}
            if here == truth == {key: obj for key, obj in copy.known.items() if key.namespace == "default"}:
                return
            await asyncio.sleep(0.1)


@pytest.mark.long
@virtual_time
async def test_a_storm_of_410_is_weathered_with_growing_pauses_and_every_change_is_known_in_the_end() -> None:
    api = MemoryApi(ApiServer(world=virtual_world()))
    async with api.client() as client, following(client, ConfigMap) as (informer, copy):
        reads = informer.full_reads
        for second in range(600):  # no watch can be resumed
            await write(client, f"map-{second % 7}", str(second))
            api.forget()
            api.cut()
            await asyncio.sleep(1)
        assert informer.full_reads - reads < 60, "it would overload a server that is in trouble already"
        await until_equal(client, informer, copy, within=61)
        assert informer.last_error is None


class Restarting(InMemoryTransport):
    """An API server that accepts no connections while it is `down`."""

    down = False

    async def request(self, request: Any) -> Any:
        if self.down:
            raise TransportError("connection refused", sent=False)
        return await super().request(request)

    @asynccontextmanager
    async def stream(self, request: Any) -> AsyncIterator[Any]:
        if self.down:
            raise TransportError("connection refused", sent=False)
        async with super().stream(request) as stream:
            yield stream


@virtual_time
async def test_after_a_restart_of_the_api_server_what_happened_meanwhile_is_told_once() -> None:
    server = ApiServer(world=virtual_world())
    wire = Restarting(server)
    async with (
        MemoryApi(server).client() as other,
        Client(ClusterConfig("http://in-memory"), transport=wire, world=server.world) as client,
    ):
        for name in ("stays", "changes", "goes"):
            await write(other, name, "before")
        async with following(client, ConfigMap) as (informer, copy):
            for past_is_known in (True, False):
                copy.told.clear()
                wire.down = True
                wire.abort()
                await write(other, "changes", f"after {past_is_known}")
                await other.delete(ConfigMap, "goes", "default")
                await write(other, f"new-{int(past_is_known)}", "")
                if not past_is_known:
                    server.store.compact()
                await asyncio.sleep(20)
                assert informer.store.get(Key("default", "goes")) is not None, "reads go on"
                wire.down = False
                await until_equal(other, informer, copy, within=61)
                assert copy.told == {"Added": 1, "Updated": 1, "Deleted": 1}
                assert informer.last_error is None
                await write(other, "goes", "again")
                await until_equal(other, informer, copy, within=1)


class WithholdingProxy(InMemoryTransport):
    """An API server behind a proxy that passes the head of a response on together with the first bytes of its body."""

    watches = other = 0

    async def request(self, request: Any) -> Any:
        self.other += 1
        return await super().request(request)

    @asynccontextmanager
    async def stream(self, request: Any) -> AsyncIterator[Any]:
        async with super().stream(request) as stream:
            chunks = stream.chunks()
            try:
                async with asyncio.timeout(request.timeout):
                    first = await anext(chunks, b"")
            except TimeoutError:
                raise TransportTimeout("no response") from None
            self.watches += 1

            async def replayed() -> AsyncIterator[bytes]:
                yield first
                async for chunk in chunks:
                    yield chunk

            with patch.object(stream, "chunks", replayed):
                yield stream


@virtual_time
async def test_watches_continue_without_lists_behind_a_proxy_that_holds_heads_back_until_the_first_event() -> (
    None
):
    server = ApiServer(world=virtual_world())
    wire = WithholdingProxy(server)
    async with (
        MemoryApi(server).client() as other,
        Client(ClusterConfig("http://in-memory"), transport=wire, world=server.world) as client,
    ):
        await write(other, "a", "before")
        async with following(client, ConfigMap) as (informer, copy):
            before = informer.full_reads, wire.other
            for minute in range(120):  # the events that open a watch come long after it was asked for
                await asyncio.sleep(60)
                if minute > 60:
                    await write(other, "a", str(minute))
            await until_equal(other, informer, copy, within=61)
            assert (informer.full_reads, wire.other) == before
            assert wire.watches > 7200 / 600


@virtual_time
async def test_a_token_that_is_rotated_under_open_watches_is_never_missed(tmp_path: Path) -> None:
    server = ApiServer(world=virtual_world())
    front = Front(server, gate=Identity(server, tokens={"admin": ADMINISTRATOR}, rbac=False))
    path = tmp_path / "token"
    account = "/api/v1/namespaces/default/serviceaccounts"

    def client_of(auth: Auth) -> Client:
        config = ClusterConfig("http://in-memory", auth=auth)
        return Client(config, transport=InMemoryTransport(front), world=server.world)

    async with client_of(BearerToken("admin")) as admin:
        await admin.raw("POST", account, json.encode({"metadata": {"name": "operator"}}))

        async def rotate() -> None:
            wanted = json.encode({"spec": {"expirationSeconds": 600}})
            answer = await admin.raw("POST", f"{account}/operator/token", wanted)
            path.write_text(json.decode(answer.body)["status"]["token"])

        await rotate()
        first = path.read_text()
        async with (
            client_of(TokenFile(path)) as client,
            following(client, ConfigMap) as (informer, copy),
        ):
            for turn in range(30):  # a new token every 8 minutes, for a lifetime of 10
                await asyncio.sleep(480)
                await rotate()
                await write(admin, "beat", str(turn))
                await until_equal(admin, informer, copy, within=2)
            assert informer.errors == {}
            assert informer.full_reads == 1
        async with client_of(BearerToken(first)) as late:
            with pytest.raises(Unauthorized):
                await late.list_all(ConfigMap, "default")


@virtual_time
async def test_a_definition_that_is_deleted_and_made_anew_is_followed_again_with_its_new_objects() -> None:
    api = MemoryApi(ApiServer(world=virtual_world()))
    await api.install(GIZMOS)
    async with api.client() as client:
        meta = ObjectMeta(name="a", namespace="default")
        await client.create(Gizmo(metadata=meta))
        async with following(client, Gizmo) as (informer, copy):
            (first,) = informer.store.list()
            await client.raw(
                "DELETE", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gizmos.sim.example"
            )
            async with asyncio.timeout(60):
                while not isinstance(informer.last_error, NotFound):  # noqa: ASYNC110 - virtual time
                    await asyncio.sleep(1)
            await asyncio.sleep(300)
            await api.install(GIZMOS)
            await client.create(Gizmo(metadata=meta))
            await until_equal(client, informer, copy, within=11)
            (second,) = informer.store.list()
            assert second.metadata.uid != first.metadata.uid
            assert copy.told == {"Added": 2, "Deleted": 1}
            assert informer.last_error is None


@pytest.mark.parametrize(("error", "level"), [(Gone("too old"), "INFO"), (Unavailable("no"), "WARNING")])
def test_a_history_that_the_server_has_dropped_alarms_nobody(
    error: ApiError, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    InformerNotices("Gadget", SystemClock()).interrupted(Interrupted(error, 1.0), "", quiet=False)
    assert [each.levelname for each in caplog.records] == [level]


def test_that_the_client_was_closed_alarms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """A process that has lost its Lease closes it, and then ends."""
    caplog.set_level("INFO")
    closed, refused = Unavailable("closed"), Unavailable("refused")
    closed.__cause__ = TransportClosed("the client is closed", sent=False)
    refused.__cause__ = TransportError("connection refused", sent=False)
    notices = InformerNotices("Gadget", SystemClock())
    for error in (closed, refused):
        notices.interrupted(Interrupted(error, 1.0), "", quiet=False)
    assert [each.__dict__["fields"]["error"] for each in caplog.records] == [refused]
