"""Waiting for an object takes one watch, whatever happens to that watch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kubeshard import errors, until, wait_for
from kubeshard.cache import WaitedTooLong
from kubeshard.client import Client
from kubeshard.core import ConfigMap, KubeObject, MergePatch, Namespace, ObjectMeta, UndecodableObject
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard_apiserver.server import ApiServer
from kubeshard_apiserver.testing.memory import MemoryApi
from kubeshard_lab.virtual_time import VirtualClock, settle, virtual_time
from kubeshard_lab.virtual_world import virtual_world


class Claim(KubeObject, version="v1", kind="PersistentVolumeClaim"):
    spec: Mapping[str, Any] | None = None
    status: Mapping[str, Any] | None = None


class Odd(KubeObject, version="v1", kind="ConfigMap"):
    data: int | None = None


class Missing(KubeObject, group="nobody.example.com", version="v1"):
    pass


@asynccontextmanager
async def cluster() -> AsyncIterator[tuple[MemoryApi, Client]]:
    api = MemoryApi(ApiServer(world=virtual_world(clock=VirtualClock())))
    async with api.client() as client:
        yield api, client


def config(name: str = "a", **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace="default"), data=data)


def has(key: str) -> until.WaitCondition:
    return until.holds(f"has {key}", lambda obj: key in (obj.data or {}))


@virtual_time
async def test_a_condition_that_is_met_already_is_answered_at_once() -> None:
    async with cluster() as (_, client):
        made = await client.create(config())
        assert await wait_for(client, made, until.exists, timeout=1) == made
        gone = await wait_for(client, ConfigMap, until.deleted(), name="b", namespace="default", timeout=1)
        assert gone is None


@virtual_time
async def test_it_returns_with_the_state_that_meets_the_condition() -> None:
    async with cluster() as (_, client):
        waiting = asyncio.create_task(wait_for(client, config(), has("x"), timeout=60))
        await settle()
        await client.create(config())
        await client.create(config("b", x="another object"))
        await asyncio.sleep(1)
        assert not waiting.done()
        await client.patch(ConfigMap, "a", "default", MergePatch({"data": {"x": "1"}}))
        found = await waiting
        assert found is not None
        assert found.data == {"x": "1"}


@virtual_time
async def test_a_cluster_scoped_object_is_waited_for_without_a_namespace() -> None:
    async with cluster() as (_, client):
        waiting = asyncio.create_task(wait_for(client, Namespace, until.exists, name="team", timeout=60))
        await settle()
        await client.create(Namespace(metadata=ObjectMeta(name="team")))
        assert (await waiting) is not None


@virtual_time
async def test_a_namesake_is_not_the_object_that_was_to_be_deleted() -> None:
    async with cluster() as (_, client):
        made = await client.create(config())
        by_uid = asyncio.create_task(wait_for(client, made, until.deleted(made.metadata.uid), timeout=60))
        unchanged = asyncio.create_task(wait_for(client, made, until.deleted("another"), timeout=60))
        await settle()
        assert unchanged.done()
        assert not by_uid.done()
        await client.delete(ConfigMap, "a", "default")
        await client.create(config())
        await asyncio.wait_for(by_uid, 1)


@virtual_time
async def test_readiness_is_waited_for_and_too_long_says_what_it_is_instead() -> None:
    async with cluster() as (_, client):
        meta = ObjectMeta(name="a", namespace="default")
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        claim = await client.create(Claim(metadata=meta, spec=spec))
        with pytest.raises(
            WaitedTooLong, match="default/a: not ready after 30 s: InProgress: it is not bound"
        ):
            await wait_for(client, claim, until.ready, timeout=30)
        waiting = asyncio.create_task(wait_for(client, claim, until.ready, timeout=30))
        await settle()
        bound = MergePatch({"status": {"phase": "Bound"}})
        await client.patch(Claim, "a", "default", bound, subresource="status")
        assert (await waiting) is not None


@virtual_time
async def test_a_broken_watch_and_lost_history_do_not_end_the_wait() -> None:
    async with cluster() as (api, client):
        made = await client.create(config())
        waiting = asyncio.create_task(wait_for(client, made, until.deleted(), timeout=600))
        await settle()
        api.cut()
        api.forget()
        await asyncio.sleep(5)
        assert not waiting.done()
        api.cut()
        await client.delete(ConfigMap, "a", "default")
        api.forget()
        assert await waiting is None


@virtual_time
async def test_one_object_is_watched_and_nothing_is_polled() -> None:
    async with cluster() as (_, client):
        begun: list[str] = []
        client.observers.append(lambda method, host, code, seconds: begun.append(method))
        with pytest.raises(WaitedTooLong, match="there is no such object"):
            await wait_for(client, config(), until.exists, timeout=120)
        assert begun == ["GET"]


@virtual_time
async def test_what_waiting_does_not_mend_is_raised_at_once() -> None:
    async with cluster() as (_, client):
        await client.create(config(x="1"))
        with pytest.raises(UndecodableObject):
            await wait_for(client, Odd, until.exists, name="a", namespace="default", timeout=60)
        with pytest.raises(TypeError, match="ConfigMap does not declare status"):
            await wait_for(client, config(), until.condition("Ready"), timeout=60)
        with pytest.raises(ValueError, match="has namespaces"):
            await wait_for(client, ConfigMap, until.exists, name="a", timeout=60)
        with pytest.raises(ValueError, match="specify which object"):
            await wait_for(client, ConfigMap(), until.exists, timeout=60)
        with pytest.raises(ZeroDivisionError):
            await wait_for(client, config(), until.holds("fails", lambda _: 1 / 0 > 1), timeout=60)


class Refusing:
    """A transport whose server rejects everything."""

    async def request(self, request: HttpRequest) -> HttpResponse:
        body = b'{"kind":"Status","reason":"Forbidden","message":"no right","code":403}'
        return HttpResponse(403, {"content-type": "application/json"}, body)

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[Any]:
        answer = await self.request(request)

        class Stream:
            status, headers = answer.status, answer.headers

            async def read(self) -> bytes:
                return answer.body

        yield Stream()

    async def close(self) -> None: ...

    def abort(self) -> None: ...


@virtual_time
async def test_a_missing_right_ends_the_wait() -> None:
    async with cluster() as (_, client):
        refused = Client(client.config, transport=Refusing(), world=virtual_world())
        with pytest.raises(errors.Forbidden):
            await wait_for(refused, config(), until.exists, timeout=60)


@virtual_time
async def test_a_kind_that_is_not_served_has_no_objects_and_is_named_when_it_does_not_come() -> None:
    async with cluster() as (_, client):
        missing = Missing(metadata=ObjectMeta(name="a", namespace="default"))
        assert await wait_for(client, missing, until.deleted(), timeout=60) is None
        with pytest.raises(WaitedTooLong, match=r"there is no such object; .*missings"):
            await wait_for(client, missing, until.exists, timeout=60)
