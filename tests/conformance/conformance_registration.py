"""Registers webhooks and policies for one case, and waits until they are in force: the real server takes a moment.

Every configuration has, beside the webhooks of the case, one that refuses objects with a certain label: by it a
case knows that the configuration is in force.
"""

from __future__ import annotations

from typing import Any

from conformance_kinds import config_map
from conformance_webhooks import READY_LABEL, Hooks

from conftest import until

REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
CONFIG_MAPS = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE", "UPDATE", "DELETE"],
    "resources": ["configmaps"],
}


class Registration:
    """Registers webhooks for the namespace of a case, under the case's name."""

    def __init__(self, api: Any, hooks: Hooks, ns: str) -> None:
        self._api = api
        self._ns = ns
        self.hooks = hooks
        self.made: list[str] = []

    def webhook(self, path: str, **fields: Any) -> dict[str, Any]:
        return {
            "name": f"{path.strip('/')}.example.com",
            "clientConfig": self.hooks.client(path),
            "rules": [CONFIG_MAPS],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self._ns}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 5,
            **fields,
        }

    async def mutating(self, *webhooks: dict[str, Any], suffix: str = "") -> None:
        await self._register("Mutating", webhooks, suffix)

    async def validating(self, *webhooks: dict[str, Any], suffix: str = "") -> None:
        await self._register("Validating", webhooks, suffix)

    async def _register(self, kind: str, webhooks: tuple[dict[str, Any], ...], suffix: str) -> None:
        path = f"{REGISTRATION}/{kind.lower()}webhookconfigurations"
        ready = self.webhook("/ready.sentinel", objectSelector={"matchLabels": {READY_LABEL: "yes"}})
        body = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": f"{kind}WebhookConfiguration",
            "metadata": {"name": f"{self._ns}{suffix}"},
            "webhooks": [*webhooks, ready],
        }
        answer = await self._api.create(path, body)
        assert answer.status == 201, answer.text
        self.made.append(f"{path}/{self._ns}{suffix}")
        await until(self._in_force)
        self.hooks.order.clear()

    async def _in_force(self) -> bool:
        maps = f"/api/v1/namespaces/{self._ns}/configmaps"
        body = config_map("ready", labels={READY_LABEL: "yes"})
        return (await self._api.create(maps, body, dryRun="All")).status != 201

    async def remove(self) -> None:
        for path in self.made:
            await self._api.delete(path)
        self.made.clear()
