"""What the sharder may do, verb by verb, and why. Guaranteed: without any one of these rights, something observable
fails.

| resource | verbs | for |
|---|---|---|
| leases | list, watch | seeing shards come, renew and go |
| leases | patch | setting the state label |
| leases | get, update | taking the Lease of a shard that died, and leader election |
| leases | delete | removing the Lease of a shard that is long dead |
| leases | create | restoring a live shard's Lease that somebody deleted, and leader election |
| controllerrings | list, watch | |
| controllerrings | patch | removing the finalizer of a deleted ring whose labels are gone |
| controllerrings/status | update | |
| controllerrings/finalizers | update | owning webhook configurations under `OwnerReferencesPermissionEnforcement` |
| namespaces | list, watch | knowing which ones a ring selects |
| mutatingwebhookconfigurations | list, watch | repairing a ring's webhook as soon as somebody changes it |
| events | create, patch | reporting what happened |
| tokenreviews, subjectaccessreviews | create | checking who may read metrics |
| secrets, in its namespace | create, and get, update of one | the certificate, if cert-manager does not provide it |
| pods, only with `podReports.enabled` | get | giving up a shard as soon as its containers have ended |
| mutatingwebhookconfigurations, that of a ring | create, patch | the ring's webhook |
| configmaps, that of a ring by ranges | create, get, list, watch, patch | its assignment, next to the shards' Leases |
| a ring's resources | list, watch | finding objects |
| a ring's resources | get, patch | reading and assigning them |

The Leases are those of shards in all namespaces; an admission policy (`policies`) protects all others from the sharder.
If a ring names its namespaces, Secrets may be read and patched in these only; if they are more than a few, they are
found by lists and watches of all namespaces. Rings share watches of other resources, which they may read everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubeshard.core.builtin import ConfigMap, Lease, Namespace, Secret
from kubeshard.core.grants import Grant
from kubeshard.core.partial_kinds import MutatingWebhookConfiguration, Pod
from kubeshard.manager.roles import EVENTS
from kubeshard.sharder.webhook_config import SECRET_NAME
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.names import assignment_name, webhook_config_name
from kubeshard.sharding.ring_resources import FEW_NAMESPACES, RingResources, named_namespaces


def sharder_grants() -> Iterator[Grant]:
    """The sharder's rights in all namespaces."""
    yield Grant.on(EVENTS, "create", "patch")
    yield Grant.on(Namespace, "list", "watch")
    yield Grant.on(MutatingWebhookConfiguration, "list", "watch")
    yield Grant.on(Lease, "get", "list", "watch", "create", "update", "patch", "delete")
    yield Grant.on(ControllerRing, "list", "watch", "patch")
    yield Grant.on(ControllerRing, "update", subresource="status")
    yield Grant.on(ControllerRing, "update", subresource="finalizers")


def certificate_grants(namespace: str) -> Iterator[Grant]:
    """The rights to manage a certificate of the sharder's own."""
    yield Grant.on(Secret, "create", namespace=namespace)
    yield Grant.on(Secret, "get", "update", namespace=namespace, name=SECRET_NAME)


def pod_grants() -> Iterator[Grant]:
    """The optional right to see that the containers of a shard have ended."""
    yield Grant.on(Pod, "get")


def ring_grants(ring: ControllerRing) -> Iterator[Grant]:
    """The sharder's rights on the ring's resources, and to its webhook. It creates that by a server-side apply, which
    names it, so that the right to create it can name it, too.
    """
    yield Grant.on(MutatingWebhookConfiguration, "create", "patch", name=webhook_config_name(ring.name))
    if ring.by_ranges:
        for namespace in sorted(ring.shard_namespaces or ()):
            yield Grant.on(ConfigMap, "create", namespace=namespace)
            name = assignment_name(ring.name)
            yield Grant.on(ConfigMap, "get", "list", "watch", "patch", namespace=namespace, name=name)
    namespaces = named_namespaces(ring.spec.namespace_selector)
    for entry in RingResources(ring.spec.resources).entries:
        if namespaces and entry.resource == Secret.KIND.group_resource:
            few = len(namespaces) <= FEW_NAMESPACES
            if not few:
                yield Grant.on(entry.resource, "list", "watch")
            for namespace in namespaces:
                read = ("list", "watch") if few else ()
                yield Grant.on(entry.resource, "get", *read, "patch", namespace=namespace)
        else:
            yield Grant.on(entry.resource, "list", "watch", "get", "patch")
