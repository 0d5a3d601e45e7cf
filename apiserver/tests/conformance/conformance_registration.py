"""Registers webhooks and policies for one test case, and waits until they are in force: the real server takes a moment.

Besides the webhooks of the test case, every configuration contains one that rejects objects with a certain label. Once
it does, the configuration is in force.
"""

from __future__ import annotations

from typing import Any

from conformance_api import until
from conformance_kinds import config_map
from conformance_webhooks import READY_LABEL, Hooks

REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
CONFIG_MAPS = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE", "UPDATE", "DELETE"],
    "resources": ["configmaps"],
}


class Registration:
    """Registers webhooks for the namespace of a test case, under its name."""

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


class PolicyRegistration:
    """Puts policies in force for the namespace of a test case, under its name."""

    def __init__(self, api: Any, ns: str) -> None:
        self._api = api
        self._ns = ns
        self._made: list[str] = []

    async def create(self, binding: dict[str, Any] | None = None, *, bound: bool = True, **spec: Any) -> None:
        """Creates a policy, for ConfigMaps unless `spec` says otherwise, and a binding that denies."""
        constraints = {"resourceRules": [CONFIG_MAPS], **spec.pop("matchConstraints", {})}
        await self._policy(self._ns, {"validations": [{"expression": "true"}], **spec}, constraints)
        if bound:
            await self._binding(self._ns, binding or {})
        ready = {"resourceRules": [CONFIG_MAPS], "objectSelector": {"matchLabels": {READY_LABEL: "yes"}}}
        await self._policy(f"{self._ns}-ready", {"validations": [{"expression": "false"}]}, ready)
        await self._binding(f"{self._ns}-ready", {})
        await until(self._in_force)

    async def _policy(self, name: str, spec: dict[str, Any], constraints: dict[str, Any]) -> None:
        here = {"matchLabels": {"kubernetes.io/metadata.name": self._ns}}
        constraints = {"namespaceSelector": here, **constraints}
        await self._create("validatingadmissionpolicies", name, {**spec, "matchConstraints": constraints})

    async def _binding(self, name: str, spec: dict[str, Any]) -> None:
        spec = {"policyName": name, "validationActions": ["Deny"], **spec}
        await self._create("validatingadmissionpolicybindings", name, spec)

    async def _create(self, plural: str, name: str, spec: dict[str, Any]) -> None:
        body = {"metadata": {"name": name}, "spec": spec}
        answer = await self._api.create(f"{REGISTRATION}/{plural}", body)
        assert answer.status == 201, answer.text
        self._made.append(f"{REGISTRATION}/{plural}/{name}")

    async def _in_force(self) -> bool:
        body = config_map("ready", labels={READY_LABEL: "yes"})
        maps = f"/api/v1/namespaces/{self._ns}/configmaps"
        answer = await self._api.create(maps, body, dryRun="All")
        return answer.status != 201

    async def remove(self) -> None:
        for path in reversed(self._made):
            await self._api.delete(path)
        self._made.clear()
