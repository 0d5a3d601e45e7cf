"""A registration replaces what is there, and a temporary one puts it back, also after a crash."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from failing_groups import FOREVER
from kubeshard import Client, KubeObject, Manager, Struct, field
from kubeshard.client import ClusterConfig
from kubeshard.core import LabelSelector, Namespace, ObjectMeta, Secret
from kubeshard.core.errors import ApiError, ConfigurationError, Forbidden, NotFound
from kubeshard.core.partial_kinds import CustomResourceDefinition, ValidatingWebhookConfiguration
from kubeshard.core.patches import ApplyPatch, MergePatch
from kubeshard.crd import CustomResource, definition
from kubeshard.runtime.transport import HttpRequest, HttpResponse, HttpStream, Transport
from kubeshard.webhook import Webhooks, converts, defaults, validates
from kubeshard.webhook.registrar import BEFORE, Registrar
from kubeshard_apiserver.server import ApiServer
from kubeshard_apiserver.testing import MemoryApi
from kubeshard_lab.virtual_time import VirtualClock, virtual_time
from kubeshard_lab.virtual_world import virtual_world


class NoteSpec(Struct):
    text: str = ""


@CustomResource(storage=True)
class Note(KubeObject, group="notes.example.com", version="v2"):
    spec: NoteSpec = field(default_factory=NoteSpec)


@CustomResource()
class OldNote(KubeObject, group="notes.example.com", version="v1", kind="Note"):
    spec: NoteSpec = field(default_factory=NoteSpec)


@validates(Note)
def written(note: Note) -> None: ...


@validates(Note)
def short(note: Note) -> None: ...


@defaults(Note)
def titled(note: Note) -> None: ...


@converts(OldNote, Note)
def up(old: OldNote) -> Note:
    return Note(spec=old.spec)


@converts(Note, OldNote)
def down(new: Note) -> OldNote:
    return OldNote(spec=new.spec)


FUNCTIONS = [written, short, up, down]
DEFINITION = "notes.notes.example.com"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations/notes"
CRD = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{DEFINITION}"
VALIDATING = CONFIGURATIONS.format("validating")


def deployed(*functions: Any) -> Webhooks:
    return Webhooks("notes", functions or FUNCTIONS, namespace="notes-system")


def developed(*functions: Any, **options: Any) -> Webhooks:
    webhooks = deployed(*functions)
    webhooks.call_at("https://dev.example.org:9443", **options)
    return webhooks


async def register(client: Client, webhooks: Webhooks, bundle: str = "Y2E=") -> Registrar:
    registrar = Registrar(client, annotations=webhooks._annotations, temporary=webhooks._temporary)
    await webhooks._write(registrar, bundle, "notes-system")
    return registrar


async def read(client: Client, path: str) -> Any:
    """The object without what any write changes."""
    found = json.loads((await client.raw("GET", path)).body)
    metadata = found["metadata"]
    for each in ("managedFields", "resourceVersion", "generation"):
        metadata.pop(each, None)
    if not metadata.get("annotations"):
        metadata.pop("annotations", None)
    found.pop("status", None)
    return found


async def addresses(client: Client) -> list[Any]:
    """Where validators and the conversion lead."""
    validating, crd = await read(client, VALIDATING), await read(client, CRD)
    configs = [each["clientConfig"] for each in validating["webhooks"]]
    configs.append(crd["spec"]["conversion"]["webhook"]["clientConfig"])
    return [{key for key in config if key != "caBundle"} for config in configs]


async def installed(kube_memory: MemoryApi) -> None:
    await kube_memory.install(definition(OldNote, Note))


async def test_a_temporary_registration_never_blocks_and_puts_back_what_was_registered(
    kube_memory: MemoryApi,
) -> None:
    await installed(kube_memory)
    async with kube_memory.client() as client:
        await register(client, deployed(written, up, down))
        before = [await read(client, path) for path in (VALIDATING, CRD)]
        registrar = await register(client, developed())
        during = await read(client, VALIDATING)
        assert [each["failurePolicy"] for each in during["webhooks"]] == ["Ignore", "Ignore"]
        assert during["webhooks"][0]["clientConfig"] == {
            "url": "https://dev.example.org:9443/validate/written",
            "caBundle": "Y2E=",
        }
        assert await addresses(client) == [{"url"}] * 3
        await registrar.restore()
        assert [await read(client, path) for path in (VALIDATING, CRD)] == before


@pytest.mark.regression
async def test_webhooks_that_nobody_serves_keep_their_own_pods_and_nodes_from_nothing_they_need(
    kube_memory: MemoryApi,
) -> None:
    """Otherwise an operator that is down could not begin again (kubernetes/kubernetes#109964, topolvm/topolvm#57)."""

    @validates(Secret)
    def checked(secret: Secret) -> None: ...

    @validates(Secret, namespaces=LabelSelector())
    def everywhere(secret: Secret) -> None: ...

    @validates(Secret, failure_policy="Ignore")
    def softly(secret: Secret) -> None: ...

    secrets = {
        name: Secret(metadata=ObjectMeta(name="s", namespace=name)) for name in ("notes-system", "default")
    }
    async with kube_memory.client() as client:
        await client.create(Namespace(metadata=ObjectMeta(name="notes-system")))
        await register(client, deployed(checked))
        for namespace in ("notes-system", "kube-system"):
            await client.create(Secret(metadata=ObjectMeta(name="s", namespace=namespace)))
        with pytest.raises(ApiError, match="failed calling webhook"):
            await client.create(secrets["default"])
        found = await read(client, VALIDATING)
        await register(client, deployed(everywhere, softly))
        named = {
            each["name"].partition(".")[0]: each for each in (await read(client, VALIDATING))["webhooks"]
        }
    assert found["webhooks"][0]["namespaceSelector"]["matchExpressions"][0]["values"] == [
        "kube-system",
        "notes-system",
    ]
    assert [named[each]["namespaceSelector"] for each in ("everywhere", "softly")] == [{}, {}]


async def test_where_nothing_was_registered_nothing_is_left(kube_memory: MemoryApi) -> None:
    await installed(kube_memory)
    async with kube_memory.client() as client:
        before = await read(client, CRD)
        registrar = await register(client, developed())
        await registrar.restore()
        assert await read(client, CRD) == {
            **before,
            "spec": {**before["spec"], "conversion": {"strategy": "None"}},
        }
        with pytest.raises(NotFound):
            await client.raw("GET", VALIDATING)


async def test_functions_that_only_the_deployed_program_has_are_not_called_meanwhile(
    kube_memory: MemoryApi,
) -> None:
    mutating = CONFIGURATIONS.format("mutating")
    await installed(kube_memory)
    async with kube_memory.client() as client:
        await register(client, deployed(titled, up, down))
        registrar = await register(client, developed())
        assert not (await read(client, mutating)).get("webhooks")
        await registrar.restore()
        (webhook,) = (await read(client, mutating))["webhooks"]
        assert (webhook["failurePolicy"], set(webhook["clientConfig"])) == ("Fail", {"caBundle", "service"})


async def test_after_a_crash_the_next_development_puts_back_what_was_before_the_first(
    kube_memory: MemoryApi,
) -> None:
    await installed(kube_memory)
    async with kube_memory.client() as client:
        await register(client, deployed())
        before = [await read(client, path) for path in (VALIDATING, CRD)]
        await register(client, developed())  # and no restore
        registrar = await register(client, developed(written, up, down))
        await registrar.restore()
        assert [await read(client, path) for path in (VALIDATING, CRD)] == before


async def test_after_a_crash_the_start_in_the_cluster_repairs_the_registration(
    kube_memory: MemoryApi,
) -> None:
    await installed(kube_memory)
    async with kube_memory.client() as client:
        await register(client, deployed())
        before = [await read(client, path) for path in (VALIDATING, CRD)]
        crashed = await register(client, developed())
        await register(client, deployed())
        assert [await read(client, path) for path in (VALIDATING, CRD)] == before
        await crashed.restore()  # somebody else has registered since: nothing is put back
        assert [await read(client, path) for path in (VALIDATING, CRD)] == before
        version = (await client.raw("GET", CRD)).body
        await register(client, deployed())
        assert (await client.raw("GET", CRD)).body == version, (
            "a registration that changes nothing writes nothing"
        )


async def test_a_registration_by_hand_is_replaced_and_put_back(kube_memory: MemoryApi) -> None:
    """Server-side apply alone would leave both a Service and a URL, which no API server accepts."""
    await installed(kube_memory)
    async with kube_memory.client() as client:
        (manifest,) = deployed(written, short).manifests("Y2E=")
        await client.apply(manifest, field_manager="kubectl")
        before = await read(client, VALIDATING)
        registrar = await register(client, developed())
        assert await addresses(client) == [{"url"}] * 3
        await registrar.restore()
        assert await read(client, VALIDATING) == before
        await register(client, deployed(written))
        assert [each["name"] for each in (await read(client, VALIDATING))["webhooks"]] == [
            "written.notes.notes.example.com"
        ]


async def test_an_injected_authority_is_kept_and_not_injected_during_development(
    kube_memory: MemoryApi,
) -> None:
    injects = {"cert-manager.io/inject-ca-from": "a/b"}
    await installed(kube_memory)
    async with kube_memory.client() as client:
        webhooks = Webhooks("notes", FUNCTIONS, namespace="notes-system", annotations=injects)
        await register(client, webhooks, "")
        found = json.loads((await client.raw("GET", VALIDATING)).body)
        for each in found["webhooks"]:
            each["clientConfig"]["caBundle"] = "aW5qZWN0ZWQ="
        await client.raw("PUT", VALIDATING, json.dumps(found).encode())
        await register(client, webhooks, "")
        before = await read(client, VALIDATING)
        assert {each["clientConfig"]["caBundle"] for each in before["webhooks"]} == {"aW5qZWN0ZWQ="}
        webhooks.call_at("https://dev.example.org", ca_bundle="")
        registrar = await register(client, webhooks)
        during = await read(client, VALIDATING)
        assert during["metadata"]["annotations"].keys() == {BEFORE}
        assert [set(each["clientConfig"]) for each in during["webhooks"]] == [{"url"}] * 2
        await registrar.restore()
        assert await read(client, VALIDATING) == before


async def test_without_the_right_to_delete_the_configuration_is_emptied(
    kube_memory: MemoryApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: Any, **__: Any) -> None:
        raise Forbidden("no")

    await installed(kube_memory)
    async with kube_memory.client() as client:
        registrar = await register(client, developed())
        monkeypatch.setattr(Client, "delete", refused)
        await registrar.restore()
        assert not (await read(client, VALIDATING)).get("webhooks")


@asynccontextmanager
async def kept_registered(*functions: Any) -> AsyncIterator[Client]:
    """A client of the cluster in which they are registered."""
    kube = MemoryApi(ApiServer(world=virtual_world(clock=VirtualClock())))
    await installed(kube)
    async with kube.client() as client:
        webhooks = deployed(*functions)
        certificates = webhooks._certificates(client, "notes-system")
        registering = asyncio.create_task(webhooks._registering(client, certificates, "notes-system"))
        await webhooks.registered()
        try:
            yield client
        finally:
            registering.cancel()
            await asyncio.wait([registering])


@virtual_time
async def test_a_registration_that_somebody_takes_away_is_back_after_a_minute() -> None:
    """As NVIDIA/nodewright#164: an upgrade of the chart did that, and no pod repaired it."""
    async with kept_registered(written, short) as client:
        before = (await read(client, VALIDATING))["webhooks"]
        await client.raw("DELETE", VALIDATING)
        await asyncio.sleep(66)
        assert (await read(client, VALIDATING))["webhooks"] == before


@virtual_time
async def test_a_registration_that_nobody_changes_is_only_read() -> None:
    async with kept_registered(written, titled, up, down) as client:
        methods: list[str] = []
        client.observers.append(lambda method, *_: methods.append(method))
        await asyncio.sleep(600)
        assert 27 <= methods.count("GET") == len(methods) <= 33


@virtual_time
async def test_a_conversion_that_somebody_leads_elsewhere_is_back_after_a_minute_and_that_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", logger="kubeshard.webhook")
    async with kept_registered(up, down) as client:
        before = (await read(client, CRD))["spec"]["conversion"]
        elsewhere = MergePatch({"spec": {"conversion": {"strategy": "None", "webhook": None}}})
        await client.patch(CustomResourceDefinition, DEFINITION, None, elsewhere)
        await asyncio.sleep(66)
        assert (await read(client, CRD))["spec"]["conversion"] == before
    assert "Webhooks that somebody else had changed are registered again" in [
        record.msg for record in caplog.records
    ]


@virtual_time
async def test_who_may_only_patch_a_definition_registers_its_conversion_nevertheless(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Roles of operators that are installed already say so."""
    get = Client.get

    async def forbidden(client: Client, cls: Any, *args: Any, **options: Any) -> Any:
        if cls is CustomResourceDefinition:
            raise Forbidden("no")
        return await get(client, cls, *args, **options)

    monkeypatch.setattr(Client, "get", forbidden)
    async with kept_registered(up, down) as client:
        assert (await read(client, CRD))["spec"]["conversion"]["strategy"] == "Webhook"


@virtual_time
async def test_who_keeps_changing_a_registration_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    async with kept_registered(written) as client:
        before = (await read(client, VALIDATING))["webhooks"]
        changed = ApplyPatch(
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "ValidatingWebhookConfiguration",
                "metadata": {"name": "notes"},
                "webhooks": [{**each, "failurePolicy": "Ignore"} for each in before],
            }
        )
        for _ in range(8):
            await client.patch(
                ValidatingWebhookConfiguration, "notes", None, changed, field_manager="gitops", force=True
            )
            await asyncio.sleep(66)
            assert (await read(client, VALIDATING))["webhooks"] == before
    (said,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "gitops" in said.getMessage()


def test_a_free_port_is_not_written_before_it_is_known() -> None:
    webhooks = Webhooks("notes", FUNCTIONS, url="https://127.0.0.1", port=0)
    config = webhooks.conversion(DEFINITION)["webhook"]["clientConfig"]
    assert config == {"url": "https://127.0.0.1/convert/note.notes.example.com"}


def test_a_url_that_cannot_lead_to_the_webhooks_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"the manager has none: add servers=\[Webhooks"):
        Manager().call_webhooks_at("https://dev.example.org")
    manager = Manager(servers=[deployed(written), Webhooks("others", [short], port=9444)])
    with pytest.raises(ConfigurationError, match="the manager has 2 servers: leave out the port"):
        manager.call_webhooks_at("https://dev.example.org:9443")
    with pytest.raises(ConfigurationError, match="the API server cannot call url="):
        manager.call_webhooks_at("http://dev.example.org")


def test_what_cannot_be_put_back_in_time_does_not_keep_the_rest_from_it_also_in_a_program_that_is_cancelled() -> (
    None
):
    @virtual_time
    async def scene() -> None:
        kube = MemoryApi(ApiServer(world=virtual_world(clock=VirtualClock())))
        await installed(kube)
        reading = Hanging(kube.transport())
        config = ClusterConfig("http://in-memory")
        async with (
            kube.client() as user,
            Client(config, transport=reading, world=kube.server.world) as client,
        ):
            registrar = await register(client, developed())
            assert await addresses(user) == [{"url"}] * 3

            async def program() -> None:
                try:
                    await asyncio.sleep(FOREVER)
                finally:
                    await registrar.restore()

            running = asyncio.create_task(program())
            await asyncio.sleep(1)
            reading.hangs = "validatingwebhookconfigurations"
            running.cancel()
            await asyncio.wait([running])
            crd = await read(user, CRD)
            assert crd["spec"]["conversion"] == {"strategy": "None"}

    scene()


class Hanging:
    """A transport that never gets a response to a request for `hangs`."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.hangs = ""

    async def request(self, request: HttpRequest) -> HttpResponse:
        if self.hangs and self.hangs in request.target:
            await asyncio.sleep(FOREVER)
        return await self._inner.request(request)

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpStream]:
        return self._inner.stream(request)

    def abort(self) -> None:
        self._inner.abort()

    async def close(self) -> None:
        await self._inner.close()
