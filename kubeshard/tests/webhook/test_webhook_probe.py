"""A probe leaves nothing behind: not without rights, not when it is cancelled, not after one that was killed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeshard import Client
from kubeshard.core.errors import Forbidden, Unavailable
from kubeshard.core.partial_kinds import ValidatingWebhookConfiguration
from kubeshard.webhook.call_check import RegistrationProbe
from kubeshard.webhook.registrar import BEFORE
from kubeshard.webhook.registration import Address
from kubeshard.webhook.review import AdmissionRequest, GroupVersionResource, UserInfo
from kubeshard.webhook.webhooks import _probe
from kubeshard_apiserver.testing import MemoryApi

ADDRESS = Address(url="https://dev.example.org:9443")
CONFIGURATIONS = "validatingwebhookconfigurations"
CALL = AdmissionRequest(
    path="",
    uid="1",
    operation="CREATE",
    resource=GroupVersionResource(),
    sub_resource="",
    namespace="default",
    name="",
    dry_run=True,
    user=UserInfo(username="system:apiserver"),
)


def called(client: Client) -> RegistrationProbe:
    """A probe that the API server has called."""
    probe = RegistrationProbe(client, "notes")
    probe.handler(CALL)
    return probe


async def test_who_could_not_try_whether_it_is_called_does_not_take_that_for_a_call(
    kube_memory: MemoryApi,
) -> None:
    async with kube_memory.client() as client:
        assert await _probe([called(client)], ADDRESS, "") == ""
        kube_memory.inject("create", CONFIGURATIONS, status=403)
        assert "could not be tried: " in await _probe([called(client)], ADDRESS, "")


async def left(client: Client) -> list[ValidatingWebhookConfiguration]:
    return await client.list_all(ValidatingWebhookConfiguration)


async def during(client: Client, probe: RegistrationProbe) -> asyncio.Task[bool]:
    """A probe that is under way."""
    task = asyncio.create_task(probe.by_api_server(ADDRESS, ""))
    while not await left(client):
        pass
    return task


@pytest.mark.parametrize(
    "missing", [("create", CONFIGURATIONS), ("delete", CONFIGURATIONS), ("create", "configmaps")]
)
async def test_without_each_of_its_rights_nothing_is_created(
    missing: tuple[str, str], kube_memory: MemoryApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def can_i(_: Client, verb: str, group: str, resource: str, *__: Any, **___: Any) -> bool:
        return (verb, resource) != missing

    monkeypatch.setattr(Client, "can_i", can_i)
    create = kube_memory.inject("create", CONFIGURATIONS, status=500)
    async with kube_memory.client() as client:
        with pytest.raises(Forbidden, match=f"not allowed: {' '.join(missing)}$"):
            await RegistrationProbe(client, "notes").by_api_server(ADDRESS, "")
    assert create.hits == 0


async def test_a_cancelled_probe_is_removed(kube_memory: MemoryApi) -> None:
    async with kube_memory.client() as client:
        task = await during(client, RegistrationProbe(client, "notes"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await left(client) == []


async def test_a_probe_whose_creation_got_no_answer_is_removed(kube_memory: MemoryApi) -> None:
    kube_memory.inject("create", CONFIGURATIONS, lost=True)
    async with kube_memory.client() as client:
        with pytest.raises(Unavailable):
            await called(client).by_api_server(ADDRESS, "")
        assert await left(client) == []


async def test_a_failing_delete_is_said_and_hides_no_result_and_the_next_probe_removes_what_is_left(
    kube_memory: MemoryApi, caplog: pytest.LogCaptureFixture
) -> None:
    async with kube_memory.client() as client:
        task = await during(client, probe := RegistrationProbe(client, "notes"))
        refusal = kube_memory.inject("delete", CONFIGURATIONS, status=403)
        probe.handler(CALL)
        assert await task
        (one,) = await left(client)
        assert one.metadata.annotation(BEFORE) == "null"
        (said,) = [record for record in caplog.records if record.levelname == "WARNING"]
        assert one.metadata.name in said.getMessage()
        refusal.stop()
        assert await called(client).by_api_server(ADDRESS, "")
        assert await left(client) == []
