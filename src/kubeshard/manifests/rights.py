"""What the sharder may do, verb by verb, and why. Guaranteed: without any one of these something observable fails.

| resource | verbs | for |
|---|---|---|
| leases | list, watch | to see shards come, renew and go |
| leases | patch | the state label |
| leases | get, update | taking the Lease of a shard that died, and leader election |
| leases | delete | removing the Lease of a shard that is long dead |
| leases | create | restoring the Lease that somebody deleted under its shard, and leader election |
| controllerrings | list, watch | |
| controllerrings/status | update | |
| controllerrings/finalizers | update | owning webhook configurations under `OwnerReferencesPermissionEnforcement` |
| namespaces | list, watch | which ones a ring selects |
| mutatingwebhookconfigurations | create, patch | a ring's webhook |
| mutatingwebhookconfigurations | list, watch | mending it as soon as somebody changed it |
| events | create, patch | telling people |
| tokenreviews, subjectaccessreviews | create | who may read metrics |
| secrets, in its namespace | create, and get, update of one | the certificate, where cert-manager does not provide it |
| a ring's resources | list, watch, get, patch | finding, reading and assigning objects |

Leases are those of shards in all namespaces; an admission policy (`policies`) keeps the sharder off all others.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubeshard.core.builtin import Lease, Namespace, Secret
from kubeshard.core.grants import Grant
from kubeshard.manager.roles import EVENTS
from kubeshard.sharder.webhook_config import SECRET_NAME, MutatingWebhookConfiguration
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.classification import RingResources

RING_VERBS = ("get", "list", "watch", "patch")


def sharder_grants() -> Iterator[Grant]:
    """In all namespaces."""
    yield Grant.on(EVENTS, "create", "patch")
    yield Grant.on(Namespace, "list", "watch")
    yield Grant.on(MutatingWebhookConfiguration, "list", "watch", "create", "patch")
    yield Grant.on(Lease, "get", "list", "watch", "create", "update", "patch", "delete")
    yield Grant.on(ControllerRing, "list", "watch")
    yield Grant.on(ControllerRing, "update", subresource="status")
    yield Grant.on(ControllerRing, "update", subresource="finalizers")


def certificate_grants(namespace: str) -> Iterator[Grant]:
    """For a certificate of the sharder's own."""
    yield Grant.on(Secret, "create", namespace=namespace)
    yield Grant.on(Secret, "get", "update", namespace=namespace, name=SECRET_NAME)


def ring_grants(ring: ControllerRing) -> Iterator[Grant]:
    """On the resources that the ring may shard."""
    for entry in RingResources(ring.spec.resources).entries:
        yield Grant.on(entry.resource, *RING_VERBS)
