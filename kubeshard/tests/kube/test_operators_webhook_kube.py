"""An operator's own webhooks: registered, called over TLS, with complete objects, and failing."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from kubeshard.client import Client
from kubeshard.core import ConfigMap, MergePatch, ObjectMeta
from kubeshard.core.errors import ApiError, KubeshardError
from kubeshard.core.partial_kinds import MutatingWebhookConfiguration
from kubeshard.core.patches import add
from kubeshard.runtime.clock import SystemClock
from kubeshard.runtime.world import REAL_WORLD
from kubeshard.webhook import AdmissionAnswer, AdmissionRequest, Identity, Webhook, WebhookServer
from kubeshard.webhook.certificates import ServingCertificate
from kubeshard.webhook.selfsigned import renewed

PROBE = "probe"


def default_size(request: AdmissionRequest) -> AdmissionAnswer:
    settings = request.whole(ConfigMap)
    if settings is None or "size" in (settings.data or {}):
        return AdmissionAnswer()
    return AdmissionAnswer(patch=(add("/data", {**(settings.data or {}), "size": "1"}),))


async def only_grows(request: AdmissionRequest) -> AdmissionAnswer:
    await asyncio.sleep(0)
    old, new = request.whole_old(ConfigMap), request.whole(ConfigMap)
    if old and new and int((new.data or {})["size"]) < int((old.data or {})["size"]):
        return AdmissionAnswer(allowed=False, code=403, message="a size only grows")
    return AdmissionAnswer()


class Dry:
    """Records which requests were dry runs and which were not."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, bool]] = []

    def __call__(self, request: AdmissionRequest) -> AdmissionAnswer:
        if request.name != PROBE:
            self.seen.append((request.name, request.dry_run))
        return AdmissionAnswer()


def fails(request: AdmissionRequest) -> AdmissionAnswer:
    if request.name == PROBE:
        return AdmissionAnswer(warnings=("probed",))
    raise RuntimeError("broken")


class Given:
    """A certificate source."""

    def __init__(self) -> None:
        self.identity: Identity = renewed(None, ("127.0.0.1",), SystemClock().wall())

    async def load(self, serving: ServingCertificate) -> None:
        serving.install(self.identity.serving)

    async def run(self, serving: ServingCertificate) -> None:
        await asyncio.get_running_loop().create_future()


@pytest.fixture
async def dry(kube_client: Client, namespace: str) -> AsyncIterator[Dry]:
    """Webhooks for ConfigMaps: `/default` and `/grows` for all, the failing ones for those with a certain label."""
    dry, given = Dry(), Given()
    routes = {
        "/default": default_size,
        "/grows": only_grows,
        "/dry": dry,
        "/fails": fails,
        "/warns": Webhook(fails, on_failure="Ignore"),
    }
    server = WebhookServer(routes, given, host="127.0.0.1", port=0)
    async with server.running(REAL_WORLD):

        def webhook(path: str, policy: str, *, labelled: bool = True) -> dict[str, Any]:
            selector = {"matchLabels": {"fails": f"{path}-{policy}".lower()}} if labelled else {}
            return {
                "name": f"{path}-{policy}.{namespace}.example.com".lower(),
                "clientConfig": {
                    "url": f"https://127.0.0.1:{server.port}/{path}",
                    "caBundle": base64.b64encode(given.identity.bundle).decode(),
                },
                "rules": [
                    {
                        "operations": ["CREATE", "UPDATE"],
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "resources": ["configmaps"],
                    }
                ],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "objectSelector": selector,
                "failurePolicy": policy,
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }

        configuration = {
            "apiVersion": MutatingWebhookConfiguration.KIND.api_version,
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": f"{namespace}.example.com"},
            "webhooks": [
                webhook("default", "Fail", labelled=False),
                webhook("grows", "Fail", labelled=False),
                webhook("dry", "Fail", labelled=False),
                webhook("fails", "Fail"),
                webhook("fails", "Ignore"),
                webhook("warns", "Fail"),
            ],
        }
        await kube_client.apply(configuration)
        async with asyncio.timeout(20):
            while (await kube_client.create(config_map(PROBE, namespace), dry_run=True)).data is None:  # noqa: ASYNC110 - the server learns of it by its own watch
                await asyncio.sleep(0.05)
        yield dry
        with suppress(KubeshardError):
            await kube_client.delete(MutatingWebhookConfiguration, f"{namespace}.example.com")


def config_map(name: str, namespace: str, size: str = "", **labels: str) -> ConfigMap:
    meta = ObjectMeta(name=name, namespace=namespace, labels=labels)
    return ConfigMap(metadata=meta, data={"size": size} if size else None)


@pytest.mark.regression
async def test_an_operators_webhook_sees_whole_objects_and_a_dry_run(
    kube_client: Client, namespace: str, dry: Dry
) -> None:
    assert (await kube_client.create(config_map("a", namespace), dry_run=True)).data == {"size": "1"}
    assert (await kube_client.create(config_map("a", namespace))).data == {"size": "1"}
    await kube_client.patch(ConfigMap, "a", namespace, MergePatch({"data": {"size": "2"}}))
    with pytest.raises(ApiError, match="a size only grows") as denied:
        await kube_client.patch(ConfigMap, "a", namespace, MergePatch({"data": {"size": "1"}}))
    assert denied.value.code == 403
    assert dry.seen[:3] == [("a", True), ("a", False), ("a", False)]


@pytest.mark.regression
async def test_a_webhook_that_fails_refuses_or_lets_through_as_it_is_registered(
    kube_client: Client, namespace: str, dry: Dry
) -> None:
    with pytest.raises(ApiError, match="fails-fail"):
        await kube_client.create(config_map("refused", namespace, fails="fails-fail"))
    await kube_client.create(config_map("ignored", namespace, fails="fails-ignore"))
    await kube_client.create(config_map("warned", namespace, fails="warns-fail"))
