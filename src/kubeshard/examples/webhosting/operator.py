"""The webhosting operator as a process: a shard of its ring, its sharder, both, or a singleton with leader election.

RBAC: `manifests.rbac`; a process that may be the sharder also needs `manifests.sharder_rbac`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kubeshard import ALL, Client, Manager, Sharding
from kubeshard.core.selectors import LabelSelector
from kubeshard.examples.webhosting.api import OPERATOR, PROJECT_LABEL, RING, Theme, Website
from kubeshard.examples.webhosting.config import OperatorSettings
from kubeshard.examples.webhosting.controller import website_controller
from kubeshard.examples.webhosting.metrics import StateMetrics
from kubeshard.manager.connecting import connected
from kubeshard.manager.metrics_certificate import self_signed
from kubeshard.manager.runnable import Runnable
from kubeshard.runtime.world import World
from kubeshard.shard.sharding import Mode
from kubeshard.shard.timing import scaled


def build_operator(settings: OperatorSettings, client: Client) -> Manager:
    """The operator, ready to run. The caller keeps ownership of the client. Raises ConfigurationError."""
    config = settings.config
    secure = not config.insecure_metrics and config.metrics_address != "0"

    async def export_state() -> None:
        # Runs once the caches have synced; before that, exported metrics would be wrong.
        manager.metrics.registry.register(
            StateMetrics(lambda: manager.cache.list(Website, ALL), lambda: manager.cache.list(Theme))
        )

    election = config.leader_election
    manager = Manager(
        [website_controller(config.ingress, workers=settings.workers)],
        client=client,
        sharding=_membership(settings, settings.sharding) if settings.sharding else None,
        leader_election=None
        if settings.sharding
        else election.election(OPERATOR, settings.namespace, client.world.rng),
        runnables=[Runnable("state-metrics", export_state)],
        metrics_address=config.metrics_address,
        metrics_ssl=self_signed(client.world) if secure else None,
        metrics_auth=secure,
        health_address=config.health_address,
        debug=config.debug_access,
        graceful_timeout=config.graceful_shut_down,
    )
    return manager


@asynccontextmanager
async def connected_operator(
    settings: OperatorSettings, kubeconfig: str | None, context: str | None, world: World
) -> AsyncIterator[Manager]:
    """The operator with its own client, which is closed when the block is left. Raises ConfigurationError,
    Unauthorized.
    """
    limiter = settings.config.client_connection.limiter(world.clock)
    async with connected(kubeconfig, context, world=world, limiter=limiter) as client:
        yield build_operator(settings, client)


def _membership(settings: OperatorSettings, mode: Mode) -> Sharding:
    return Sharding(
        RING,
        settings.shard_name or None,
        settings.namespace,
        mode=mode,
        namespace_selector=LabelSelector(match_labels={PROJECT_LABEL: "true"}),
        timing=scaled(settings.config.leader_election.lease_duration),
    )
