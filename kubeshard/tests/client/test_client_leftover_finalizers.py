"""Finalizers that an uninstalled operator left behind: all of them are found, and only they are removed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kubeshard.client import Client, ClusterConfig
from kubeshard.client.leftover_finalizers import Held, Unseen, check_keys, held, in_the_way, release
from kubeshard.core import (
    ConfigMap,
    ConfigurationError,
    JsonPatch,
    KubeObject,
    Namespace,
    ObjectMeta,
    Secret,
    Unavailable,
)
from kubeshard.core.errors import Forbidden
from kubeshard.core.kinds import GroupResource, Kind
from kubeshard.core.objects import metadata_only
from kubeshard.core.patches import add
from kubeshard.crd import definition
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard_apiserver import ApiServer, InMemoryTransport
from kubeshard_apiserver.testing.memory import MemoryApi

MINE, SECOND, THEIRS = "example.com/bucket", "example.com/entry", "others.example.com/x"


def config(name: str, *finalizers: str, namespace: str = "default") -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace, finalizers=finalizers))


@asynccontextmanager
async def cluster(**secrets: str) -> AsyncIterator[tuple[MemoryApi, Client]]:
    api = MemoryApi()
    async with api.client() as client:
        await client.create(Namespace(metadata=ObjectMeta(name="team", finalizers=(MINE,))))
        await client.create(config("one", THEIRS, MINE, SECOND))
        await client.create(config("two", THEIRS))
        await client.create(config("three", SECOND, namespace="team"))
        await client.create(Secret(metadata=ObjectMeta(name="s", namespace="team", finalizers=(MINE,))))
        yield api, client


async def found(client: Client, *keys: str, **options: Any) -> list[str]:
    names = [
        f"{each.kind.plural} {each.metadata.name}"
        async for each in held(client, keys, **options)
        if isinstance(each, Held)
    ]
    return sorted(names)


async def finalizers(client: Client, name: str = "one") -> tuple[str, ...]:
    return (await client.get(ConfigMap, name, "default")).metadata.finalizers


async def the_one(client: Client) -> Held:
    async for each in held(client, (MINE, SECOND)):
        if isinstance(each, Held) and each.metadata.name == "one":
            return each
    raise AssertionError


async def test_that_kinds_are_deprecated_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with cluster() as (_, client):
        await client.list_all(
            metadata_only(Kind("", "v1", "ComponentStatus", "componentstatuses", namespaced=False))
        )
        assert "deprecated" in caplog.text
        caplog.clear()
    async with cluster() as (_, client):
        await found(client, MINE)
        assert "deprecated" not in caplog.text


async def test_objects_of_all_kinds_are_found_or_of_those_that_are_named() -> None:
    async with cluster() as (_, client):
        assert await found(client, MINE) == ["configmaps one", "namespaces team", "secrets s"]
        assert await found(client, MINE, SECOND, namespace="team") == ["configmaps three", "secrets s"]
        secrets = [GroupResource("", "secrets")]
        assert await found(client, MINE, resources=secrets) == ["secrets s"]
        assert await found(client, "example.com/nothing") == []


async def test_nothing_but_the_finalizers_that_are_named_is_taken_off() -> None:
    async with cluster() as (_, client):
        one = await the_one(client)
        assert one.keys == (MINE, SECOND)
        assert await release(client, one)
        assert await finalizers(client) == (THEIRS,)
        assert not await release(client, one)


async def test_others_who_change_the_list_meanwhile_lose_nothing() -> None:
    async with cluster() as (_, client):
        one = await the_one(client)
        patch = JsonPatch([add("/metadata/finalizers/0", "others.example.com/y")])
        await client.patch(ConfigMap, "one", "default", patch)
        assert await release(client, one)
        assert await finalizers(client) == ("others.example.com/y", THEIRS)


class Store(KubeObject, group="example.com", version="v1"):
    pass


class DyingKinds(InMemoryTransport):
    """Discovery as of a kube-apiserver, of a kind whose definition is being deleted."""

    async def request(self, request: HttpRequest) -> HttpResponse:
        answer = await super().request(request)
        if request.target not in ("/apis", "/apis/example.com/v1"):
            return answer
        document = json.loads(answer.body)
        groups = [each for each in document.get("items", ()) if each["metadata"]["name"] == "example.com"]
        versions = [version for group in groups for version in group["versions"]]
        for resource in [
            *document.get("resources", ()),
            *(each for one in versions for each in one["resources"]),
        ]:
            resource["verbs"] = ["delete", "deletecollection", "get", "list", "watch"]
        return answer._replace(body=json.dumps(document).encode())


@pytest.mark.regression
@pytest.mark.parametrize("resources", [(), (GroupResource("example.com", "stores"),)])
async def test_objects_of_a_kind_whose_definition_is_being_deleted_are_found_and_released(
    resources: tuple[GroupResource, ...],
) -> None:
    async with Client(ClusterConfig("http://in-memory"), transport=DyingKinds(ApiServer())) as client:
        await client.apply_manifest(definition(Store))
        meta = ObjectMeta(name="photos", namespace="default", finalizers=(MINE,))
        await client.create(Store(metadata=meta))
        (each,) = [each async for each in held(client, [MINE], resources=resources)]
        assert isinstance(each, Held)
        assert await release(client, each)
        assert (await client.get(Store, "photos", "default")).metadata.finalizers == ()


def configuration(kind: str, name: str, *webhooks: str) -> dict[str, Any]:
    call = {
        "clientConfig": {"url": "https://127.0.0.1:1"},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "rules": [],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "webhooks": [{"name": each, **call} for each in webhooks],
    }


@pytest.mark.regression
@pytest.mark.parametrize(
    ("message", "command"),
    [
        (
            'Internal error occurred: failed calling webhook "fine.stores.example.com": failed to call webhook: ...',
            "kubectl delete validatingwebhookconfiguration stores",
        ),
        (
            'admission webhook "filled.stores.example.com" denied the request: not now',
            "kubectl delete mutatingwebhookconfiguration stores",
        ),
        (
            "conversion webhook for example.com/v1, Kind=Store failed: Post ...: connection refused",
            "kubectl patch crd stores.example.com --type=merge -p "
            '\'{"spec":{"conversion":{"strategy":"None","webhook":null}}}\'',
        ),
        ('failed calling webhook "gone.example.com": ...', ""),
        ("conversion webhook for other.example.com/v1, Kind=Store failed: ...", ""),
        ("the server is busy", ""),
    ],
)
async def test_the_webhook_in_the_way_is_named_with_the_command_that_removes_it(
    message: str, command: str
) -> None:
    api = MemoryApi()
    await api.install(
        definition(Store),
        configuration("ValidatingWebhookConfiguration", "others", "x.others.example.com"),
        configuration(
            "ValidatingWebhookConfiguration", "stores", "a.stores.example.com", "fine.stores.example.com"
        ),
        configuration("MutatingWebhookConfiguration", "stores", "filled.stores.example.com"),
    )
    async with api.client() as client:
        assert await in_the_way(client, Unavailable(f"PATCH /x: {message}", code=500)) == command


async def test_who_may_not_list_webhooks_gets_the_error_alone() -> None:
    api = MemoryApi()
    api.inject("list", "validatingwebhookconfigurations", status=403)
    async with api.client() as client:
        assert await in_the_way(client, Unavailable('failed calling webhook "fine.example.com": ...')) == ""


async def test_a_namesake_and_an_object_that_is_gone_are_left_alone() -> None:
    async with cluster() as (_, client):
        one = await the_one(client)
        await client.patch(ConfigMap, "one", "default", JsonPatch([add("/metadata/finalizers", [])]))
        await client.delete(ConfigMap, "one", "default")
        assert not await release(client, one)
        await client.create(config("one", MINE))
        assert not await release(client, one)
        assert await finalizers(client) == (MINE,)


class WithoutSecrets:
    """A transport whose server forbids listing Secrets."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def request(self, request: HttpRequest) -> HttpResponse:
        if "/secrets" in request.target:
            body = b'{"kind":"Status","reason":"Forbidden","message":"no right","code":403}'
            return HttpResponse(403, {"content-type": "application/json"}, body)
        answer: HttpResponse = await self._inner.request(request)
        return answer

    async def close(self) -> None: ...

    def abort(self) -> None: ...

    def stream(self, request: HttpRequest) -> Any:
        raise NotImplementedError


async def test_a_kind_that_may_not_be_listed_is_told_and_hides_no_other() -> None:
    async with cluster() as (api, client):
        poor = Client(client.config, transport=WithoutSecrets(api.transport()), world=api.server.world)
        seen = [each async for each in held(poor, (MINE,))]
        (unseen,) = [each for each in seen if isinstance(each, Unseen)]
        assert unseen.what == "secrets"
        assert isinstance(unseen.error, Forbidden)
        assert len(seen) == 3


async def test_a_kind_that_is_not_served_is_told() -> None:
    async with cluster() as (_, client):
        (unseen,) = [each async for each in held(client, (MINE,), resources=[GroupResource("a.b", "cs")])]
        assert isinstance(unseen, Unseen)
        assert unseen.what == "cs.a.b"


@pytest.mark.parametrize("key", ["foregroundDeletion", "kubernetes.io/pvc-protection", "a.k8s.io/b"])
def test_what_kubernetes_takes_off_itself_is_refused(key: str) -> None:
    check_keys([MINE])
    with pytest.raises(ConfigurationError, match="removed by Kubernetes itself"):
        check_keys([MINE, key])
