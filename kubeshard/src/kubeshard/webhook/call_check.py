"""Whether webhooks are called where they are registered: probed from here, and by the API server itself.

The API server is probed with a registration of its own, for one ConfigMap that nobody else creates, and a dry run that
creates it. Guaranteed: nothing is stored but this registration, which blocks nothing; without the right to remove it,
it is not created. It is removed at the end, or, if this process is killed or the API server does not answer then, by
the next probe of that name. Until then it has the annotation of all that leads to a program under development
(`kubeshard.webhook.registrar.BEFORE`).

API servers learn of both kinds of webhook configurations separately, but of all of a kind in the order in which they
were written. So a server that calls a probe calls what was registered before in configurations of its kind.

RBAC, of whoever probes: create and delete on the kind of webhook configurations, create on configmaps.
"""

from __future__ import annotations

import asyncio
import base64
import json
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from kubeshard.client.client import Client
from kubeshard.core.builtin import ConfigMap
from kubeshard.core.errors import Forbidden, KubeshardError, NotFound
from kubeshard.core.managed_fields import ManagedMeta
from kubeshard.core.namespaces import KUBE_SYSTEM
from kubeshard.core.objects import ObjectMeta
from kubeshard.core.partial_kinds import ValidatingWebhookConfiguration, WebhookConfiguration
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.rng import letters
from kubeshard.runtime.tls import Tls
from kubeshard.runtime.transport import HttpRequest, TransportError
from kubeshard.runtime.world import World
from kubeshard.webhook.registrar import BEFORE
from kubeshard.webhook.registration import Address
from kubeshard.webhook.review import AdmissionAnswer, AdmissionRequest

LABEL = "kubeshard.dev/probe"
WITHIN = 15.0
"""Seconds within which an API server learns of a registration, by a watch."""
_AGAIN_AFTER = 0.5
_TIMEOUT = 2
"""Seconds that the API server waits for an answer."""
_PATIENCE = 5.0
"""Seconds for a call from here."""
_REMOVED_WITHIN = 10.0

_LOG = get_logger("kubeshard.webhook")


class RegistrationProbe:
    """One probe, of the webhooks of that name in configurations of that class. Serve `handler` at `path`."""

    def __init__(
        self, client: Client, name: str, cls: type[WebhookConfiguration] = ValidatingWebhookConfiguration
    ) -> None:
        self._client = client
        self._cls = cls
        self._id = letters(client.world.rng, 10)
        self._name = f"{name}-kubeshard-probe"
        self._called = asyncio.Event()
        self.path = f"/probe/{self._id}"

    def handler(self, _: AdmissionRequest) -> AdmissionAnswer:
        self._called.set()
        return AdmissionAnswer()

    async def by_api_server(self, address: Address, ca_bundle: str) -> bool:
        """Whether it calls this process. Raises ApiError, before anything is written if a right is missing."""
        webhook = {
            "name": f"{self._name}.kubeshard.dev",
            "clientConfig": address.client_config(self.path, ca_bundle),
            "rules": [
                {
                    "operations": ["CREATE"],
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "resources": ["configmaps"],
                    "scope": "Namespaced",
                }
            ],
            "objectSelector": {"matchLabels": {LABEL: self._id}},
            "failurePolicy": "Ignore",
            "timeoutSeconds": _TIMEOUT,
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
        meta = ManagedMeta(name=self._name, annotations={BEFORE: "null"})
        quiet = self._client.without_warnings()
        await self._check_rights()
        await self._remove(quiet)
        try:
            await quiet.create(self._cls(metadata=meta, webhooks=(webhook,)))
            return await self._is_called(quiet)
        finally:
            await self._clean_up(quiet)

    async def from_here(self, address: Address, ca_bundle: str) -> str:
        """What is wrong when this process calls the address, or "" if it reaches itself."""
        self._called.clear()
        problem = await called_from_here(
            self._client.world, f"{address.url.removesuffix('/')}{self.path}", decoded(ca_bundle)
        )
        if self._called.is_set():
            return ""
        return problem or "another program answers"

    async def _check_rights(self) -> None:
        group, resource = self._cls.KIND.group_resource
        missing = [
            f"{verb} {resource}"
            for verb, group, resource, scope in (
                ("create", group, resource, {}),
                ("delete", group, resource, {"name": self._name}),
                ("create", "", "configmaps", {"namespace": self._client.namespace}),
            )
            if not await self._client.can_i(verb, group, resource, **scope)
        ]
        if missing:
            raise Forbidden(f"not allowed: {', '.join(missing)}")

    async def _is_called(self, client: Client) -> bool:
        meta = ObjectMeta(name=self._name, namespace=client.namespace, labels={LABEL: self._id})
        loop = asyncio.get_running_loop()
        deadline = loop.time() + WITHIN
        while not self._called.is_set() and loop.time() < deadline:
            await client.create(ConfigMap(metadata=meta), dry_run=True)
            if not self._called.is_set():
                await asyncio.sleep(_AGAIN_AFTER)
        return self._called.is_set()

    async def _clean_up(self, client: Client) -> None:
        """Whatever comes of it, the probe's own result stands."""
        try:
            async with asyncio.timeout(_REMOVED_WITHIN):
                await self._remove(client)
        except (KubeshardError, TimeoutError) as error:
            kind = self._cls.KIND.kind
            _LOG.warning(
                "Cannot remove the probe's registration; the next probe does",
                kind=kind,
                name=self._name,
                error=error,
            )

    async def _remove(self, client: Client) -> None:
        with suppress(NotFound):
            await client.delete(self._cls, self._name)


def decoded(ca_bundle: str) -> str | None:
    """A `caBundle` as PEM; None if there is none, and so the system's authorities count. Raises ValueError."""
    return base64.b64decode(ca_bundle, validate=True).decode() if ca_bundle else None


async def called_from_here(world: World, url: str, authority: str | None) -> str:
    """Sends a review as an API server would. Returns what is wrong, or ""."""
    address = urlsplit(url)
    body = json.dumps(_REVIEW).encode()
    request = HttpRequest("POST", address.path or "/", {"content-type": "application/json"}, body, _PATIENCE)
    try:
        transport = world.connect(f"{address.scheme}://{address.netloc}", Tls(ca=authority))
    except ValueError as error:
        return str(error)
    try:
        answer = await transport.request(request)
    except TransportError as error:
        return str(error)
    finally:
        await transport.close()
    try:
        uid = json.loads(answer.body)["response"]["uid"]
    except (ValueError, LookupError, TypeError):
        return f"the answer has the status {answer.status} and no AdmissionReview"
    return "" if uid == _UID else "it answers another question"


_UID = "00000000-0000-0000-0000-000000000000"
_OBJECT: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "kubeshard-probe", "namespace": KUBE_SYSTEM},
}
_REVIEW = {
    "apiVersion": "admission.k8s.io/v1",
    "kind": "AdmissionReview",
    "request": {
        "uid": _UID,
        "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "resource": {"group": "", "version": "v1", "resource": "configmaps"},
        "name": "kubeshard-probe",
        "namespace": KUBE_SYSTEM,
        "operation": "CREATE",
        "userInfo": {"username": "kubeshard-probe"},
        "object": _OBJECT,
        "oldObject": None,
        "dryRun": True,
    },
}
"""Of a namespace in which no webhook of a ring is called."""
