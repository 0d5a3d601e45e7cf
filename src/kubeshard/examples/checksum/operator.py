"""The checksum controller as a process: a shard of its ring in one namespace (protocol 9.4)."""

from __future__ import annotations

from kubeshard.cache import Scope
from kubeshard.client import Client, ClusterConfig
from kubeshard.controller import Controller, Watch, changed
from kubeshard.core import ConfigMap, Secret
from kubeshard.examples.checksum.reconciler import SecretChecksums
from kubeshard.manager import Manager
from kubeshard.shard import Sharding

WORKERS = 5
GRACEFUL_TIMEOUT = 5.0


def build_checksum_controller(
    *,
    ring: str = "checksum-controller",
    namespace: str = "default",
    shard_name: str | None = None,
    lease_namespace: str | None = None,
    client: Client | ClusterConfig | None = None,
) -> Manager:
    """The manager of one shard. Raises ConfigurationError for names that cannot work."""
    return Manager(
        [secret_checksums()],
        client=client,
        default_scope=Scope(frozenset({namespace})),
        sharding=Sharding(ring, shard_name, lease_namespace),
        metrics_address=None,
        health_address=None,
        graceful_timeout=GRACEFUL_TIMEOUT,
    )


def secret_checksums() -> Controller[Secret]:
    """The controller `secret-checksums`."""
    return Controller(
        name="secret-checksums",
        reconciler=SecretChecksums(),
        primary=Watch(Secret, when=changed(lambda secret: (secret.data, secret.metadata.labels))),
        owns=(Watch(ConfigMap, when=changed(lambda config_map: config_map.data)),),
        workers=WORKERS,
    )
