"""The checksum controller as a process, in one namespace: a shard of its ring, its sharder, both, or a singleton.

RBAC, in the namespace: `get`, `list`, `watch`, `patch` on secrets, `list`, `watch`, `create`, `patch` on
configmaps; and what a shard needs (`kubeshard.shard.Sharding`).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from kubeshard import (
    CacheSettings,
    Client,
    ConfigMap,
    Context,
    Controller,
    LeaderElection,
    Manager,
    ObjectMeta,
    Reconciler,
    Result,
    Scope,
    Sharding,
    StatusPages,
    Watch,
    ensure,
    safe_name,
    when,
)
from kubeshard.client.connecting import connected
from kubeshard.core.builtin import Secret
from kubeshard.core.names import is_label_value
from kubeshard.core.selectors import LabelSelector
from kubeshard.runtime.world import World
from kubeshard.shard.settings import DeclaredRing
from kubeshard.shard.sharding import Mode

WORKERS = 5
GRACEFUL_TIMEOUT = 5.0
RING = "checksum-controller"


def manager() -> Manager:
    """The controller for `kubeshard run` and `kubeshard manifests operator`: a shard of its ring, with a sharder
    service, for the Secrets in the namespace `default`; its Lease is in the pod's namespace.
    """
    return build_checksum_controller(None, status_pages=StatusPages())


def build_checksum_controller(
    client: Client | None,
    *,
    ring: str = RING,
    namespace: str = "default",
    shard_name: str | None = None,
    lease_namespace: str | None = None,
    mode: Mode | None = "shard",
    status_pages: StatusPages | None = None,
) -> Manager:
    """The manager of one process. `mode` None means a singleton, which needs `lease_namespace`. The caller keeps
    ownership of the client. Raises ConfigurationError for invalid names.
    """
    sharding, election = None, None
    if mode is not None:
        of_one = LabelSelector(match_labels={"kubernetes.io/metadata.name": namespace})
        sharding = Sharding(
            DeclaredRing(ring, namespace_selector=of_one), shard_name, lease_namespace, mode=mode
        )
    elif lease_namespace:
        election = LeaderElection(name=ring, namespace=lease_namespace, identity=shard_name or "")
    return Manager(
        [secret_checksums()],
        client=client,
        cache=CacheSettings(default_scope=Scope(frozenset({namespace}))),
        sharding=sharding,
        leader_election=election,
        status_pages=status_pages,
        graceful_timeout=GRACEFUL_TIMEOUT,
    )


@asynccontextmanager
async def connected_checksum_controller(
    kubeconfig: str | None, context: str | None, world: World, **options: Any
) -> AsyncIterator[Manager]:
    """`build_checksum_controller` with its own client. Raises ConfigurationError, Unauthorized."""
    async with connected(kubeconfig, context, world=world) as client:
        yield build_checksum_controller(client, **options)


def secret_checksums() -> Controller[Secret]:
    """Like the Go one, it reacts to deleted ConfigMaps; unlike it, also to changes of either object."""
    return Controller(
        name="secret-checksums",
        reconciler=SecretChecksums(),
        primary=Watch(
            Secret, when=when.changed(lambda secret: (secret.data, secret.metadata.labels)), sharded=True
        ),
        owns=(Watch(ConfigMap, when=when.changed(lambda config_map: config_map.data), sharded=True),),
        workers=WORKERS,
    )


SECRET_LABEL = "secret"  # noqa: S105 - the name of a label


class SecretChecksums(Reconciler[Secret]):
    """Creates the ConfigMap and updates it when the Secret changes."""

    async def reconcile(self, ctx: Context, secret: Secret) -> Result | None:
        if not secret.metadata.deleting:
            await ensure(ctx, checksums(secret), owner=secret)
        return None


def checksums(secret: Secret) -> ConfigMap:
    """The ConfigMap of a Secret. Its label `secret` is left out if the name is too long for a label value."""
    name = secret.metadata.name
    own_label = {SECRET_LABEL: name} if is_label_value(name) else {}
    return ConfigMap(
        metadata=ObjectMeta(
            name=safe_name("checksums", name, dots=True),
            namespace=secret.metadata.namespace,
            labels={**(secret.metadata.labels or {}), **own_label},
        ),
        data={
            key: hashlib.sha256(base64.b64decode(value)).hexdigest()
            for key, value in (secret.data or {}).items()
        },
    )
