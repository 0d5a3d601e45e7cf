"""The checksum controller as a process, in one namespace: a shard of its ring, its sharder, both, or a singleton.

RBAC, in the namespace: `get`, `list`, `watch`, `patch` on secrets, `list`, `watch`, `create`, `patch` on
configmaps; and what a shard needs (`kubeshard.shard.Sharding`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from kubeshard import Client, ConfigMap, Controller, LeaderElection, Manager, Scope, Sharding, Watch, when
from kubeshard.core.builtin import Secret
from kubeshard.core.selectors import LabelSelector
from kubeshard.examples.checksum.reconciler import SecretChecksums
from kubeshard.manager.connecting import connected
from kubeshard.runtime.world import World
from kubeshard.shard.sharding import Mode

WORKERS = 5
GRACEFUL_TIMEOUT = 5.0
RING = "checksum-controller"


def build_checksum_controller(
    client: Client,
    *,
    ring: str = RING,
    namespace: str = "default",
    shard_name: str | None = None,
    lease_namespace: str | None = None,
    mode: Mode | None = "shard",
) -> Manager:
    """The manager of one process. `mode` None means a singleton, which needs `lease_namespace`. The caller keeps
    ownership of the client. Raises ConfigurationError for invalid names.
    """
    sharding, election = None, None
    if mode is not None:
        of_one = LabelSelector(match_labels={"kubernetes.io/metadata.name": namespace})
        sharding = Sharding(ring, shard_name, lease_namespace, mode=mode, namespace_selector=of_one)
    elif lease_namespace:
        election = LeaderElection(name=ring, namespace=lease_namespace, identity=shard_name or "")
    return Manager(
        [secret_checksums()],
        client=client,
        default_scope=Scope(frozenset({namespace})),
        sharding=sharding,
        leader_election=election,
        metrics_address=None,
        health_address=None,
        graceful_timeout=GRACEFUL_TIMEOUT,
    )


@asynccontextmanager
async def connected_checksum_controller(
    kubeconfig: str | None, context: str | None, world: World, **options: Any
) -> AsyncIterator[Manager]:
    """Like `build_checksum_controller`, whose `options` it takes, but with its own client. Raises ConfigurationError,
    Unauthorized.
    """
    async with connected(kubeconfig, context, world=world) as client:
        yield build_checksum_controller(client, **options)


def secret_checksums() -> Controller[Secret]:
    """The controller `secret-checksums`. Like the Go one, it reacts to deleted ConfigMaps; unlike it, it also reacts to
    changes to either object (D5 in docs/defects.md).
    """
    return Controller(
        name="secret-checksums",
        reconciler=SecretChecksums(),
        primary=Watch(
            Secret, when=when.changed(lambda secret: (secret.data, secret.metadata.labels)), sharded=True
        ),
        owns=(Watch(ConfigMap, when=when.changed(lambda config_map: config_map.data), sharded=True),),
        workers=WORKERS,
    )
