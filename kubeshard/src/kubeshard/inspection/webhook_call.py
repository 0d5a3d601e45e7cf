"""Whether the API server calls the webhook of a ring and, if it does not, why.

Only the API server knows, so it is asked as the sharder asks it (`kubeshard.sharding.waiting`): by a dry run that
takes an object's shard label away. Nothing is stored, and the answer has the label again if the webhook was called. If
it was not, what the API server would use is looked at: address, Service, endpoints, certificate authority. A webhook
with a URL is also called from here, with a review of an object that does not exist.

Guaranteed: nothing is written. Not guaranteed: that the cause is found, if it is in the network.

RBAC: list and patch on a resource of the ring; get on mutatingwebhookconfigurations; for the cause get on services and
list on endpointslices.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import AsyncIterator

from kubeshard.client.client import Client
from kubeshard.core.errors import NotFound
from kubeshard.core.namespaces import ALL
from kubeshard.core.objects import metadata_only
from kubeshard.core.partial_kinds import MutatingWebhookConfiguration
from kubeshard.core.patches import MergePatch
from kubeshard.core.selectors import Selector
from kubeshard.inspection.diagnosis import Finding
from kubeshard.inspection.errors import Unanswerable, needing
from kubeshard.inspection.ring import SeenRing
from kubeshard.kinds import EndpointSlice, Service
from kubeshard.runtime.tls import Tls
from kubeshard.sharder.webhook_registration import FIELD_MANAGER
from kubeshard.sharding.names import WEBHOOK_NAME, webhook_config_name
from kubeshard.webhook.call_check import called_from_here

LOOKED_AT = 500
"""Objects of a resource among which one is sought that the webhook is called for."""
TRIES = 2
"""Dry runs that have to agree that the webhook is not called."""


async def is_called(client: Client, ring: SeenRing) -> bool:
    """Raises Unanswerable if there is nothing to find it out with, MissingRight, ApiError."""
    if not ring.view.available:
        raise Unanswerable("no shard is available, and without one the webhook assigns nothing")
    if ring.webhook.selector is None:
        raise Unanswerable("its MutatingWebhookConfiguration cannot be read")
    selected = Selector.from_label_selector(ring.webhook.selector)
    places = {
        name
        for name, namespace in ring.cluster.namespaces.items()
        if selected.matches(namespace.metadata.labels or {})
    }
    label = ring.view.shard_label
    unlabelled = MergePatch({"metadata": {"labels": {label: None}}})
    quiet, tried = client.without_warnings(), 0  # the webhook warns whoever takes the label away
    for _, kind in ring.entries:
        form, seen = metadata_only(kind), 0
        with needing("list", kind.group_resource):
            async for obj in client.list(
                form, ALL, label_selector=Selector.exists(label), page_size=LOOKED_AT
            ):
                seen += 1
                if obj.metadata.namespace in places:
                    tried += 1
                    with needing("patch", kind.group_resource):
                        answer = await quiet.patch(
                            form, obj.metadata.name, obj.metadata.namespace, unlabelled, dry_run=True
                        )
                    if answer.metadata.has_label(label):
                        return True
                if tried >= TRIES or seen >= LOOKED_AT:
                    break
        if tried >= TRIES:
            break
    if tried:
        return False
    raise Unanswerable("there is no object that it could be tried with: create one, and ask again")


async def causes(client: Client, ring: str, namespace: str, part: str) -> AsyncIterator[Finding]:
    """What keeps the API server from calling it. `namespace` is the sharder's. Raises MissingRight, ApiError."""
    again = f"kubectl delete mutatingwebhookconfiguration {webhook_config_name(ring)}"
    with needing("get", MutatingWebhookConfiguration.KIND.group_resource):
        found = await client.get(MutatingWebhookConfiguration, webhook_config_name(ring))
    config = next(
        (each.get("clientConfig") or {} for each in found.webhooks if each.get("name") == WEBHOOK_NAME), None
    )
    if config is None:
        yield Finding(part, "error", f"ring {ring} has no webhook named {WEBHOOK_NAME}", again)
        return
    try:
        bundle = base64.b64decode(config.get("caBundle") or "", validate=True).decode()
        Tls(ca=bundle).check()
    except (binascii.Error, ValueError):
        yield Finding(part, "error", f"the caBundle of ring {ring}'s webhook is no certificate", again)
        return
    if url := config.get("url"):
        if problem := await called_from_here(client.world, url, bundle):
            yield Finding(
                part, "error", f"the webhook at {url} does not answer as it should: {problem}", again
            )
        return
    service = config.get("service") or {}
    place, name, port = service.get("namespace", ""), service.get("name", ""), service.get("port") or 443
    if place != namespace:
        yield Finding(
            part,
            "error",
            f"ring {ring}'s webhook is that of the Service {place}/{name}, but the sharder is in {namespace}",
            again,
        )
        return
    others = found.metadata.writers(FIELD_MANAGER)
    async for problem, command, fixes in _service(client, place, name, port):
        if others and fixes:  # a Service of that name would show another certificate than its own
            problem, command = f"{problem}; {others[0].manager} has written the configuration, too", again
        yield Finding(part, "error", problem, command, fixes)


async def _service(
    client: Client, namespace: str, name: str, port: int
) -> AsyncIterator[tuple[str, str, bool]]:
    """Problems, with a command for each, and whether it fixes it."""
    kubectl = f"kubectl --namespace {namespace}"
    with needing("get", Service.KIND.group_resource):
        try:
            service = await client.get(Service, name, namespace)
        except NotFound:
            yield (
                f"there is no Service {namespace}/{name}, at which the API server calls the webhook",
                f"{kubectl} expose deployment/sharder --name={name} --port={port} --target-port=webhook",
                True,
            )
            return
    ports = [each.port for each in service.spec.ports or ()]
    if port not in ports:
        patch = json.dumps({"spec": {"ports": [{"name": "webhook", "port": port, "targetPort": "webhook"}]}})
        yield (
            f"the API server calls the webhook at port {port} of the Service {namespace}/{name}, which has"
            f" {', '.join(map(str, ports)) or 'none'}",
            f"{kubectl} patch service {name} --patch '{patch}'",
            True,
        )
    with needing("list", EndpointSlice.KIND.group_resource):
        slices = await client.list_all(
            EndpointSlice, namespace, label_selector=Selector.equals("kubernetes.io/service-name", name)
        )
    endpoints = [each for found in slices for each in found.endpoints or ()]
    if not any(each.conditions is None or each.conditions.ready is not False for each in endpoints):
        yield (
            f"no pod behind the Service {namespace}/{name} is ready, so the API server can call none",
            f"{kubectl} get pods -l app.kubernetes.io/component=sharder",
            False,
        )
