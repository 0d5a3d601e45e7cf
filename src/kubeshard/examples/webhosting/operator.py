"""The webhosting operator as a process: a shard of its ring, or the elected instance of a singleton (protocol 9.1)."""

from __future__ import annotations

from kubeshard.client import Client, ClusterConfig
from kubeshard.examples.webhosting.api import RING, Theme, Website
from kubeshard.examples.webhosting.config import OperatorSettings
from kubeshard.examples.webhosting.controller import website_controller
from kubeshard.examples.webhosting.metrics import StateMetrics
from kubeshard.manager import LeaderElection, Manager, Runnable
from kubeshard.shard import Sharding, scaled


def build_operator(settings: OperatorSettings, client: Client | ClusterConfig | None = None) -> Manager:
    """The operator's manager. `client` defaults to the cluster of the environment. Raises ConfigurationError."""
    config = settings.config
    election = config.leader_election

    async def export_state() -> None:
        # Runs once the caches are full; before that there is nothing true to export.
        manager.metrics.registry.register(
            StateMetrics(lambda: manager.cache.list(Website), lambda: manager.cache.list(Theme))
        )

    manager = Manager(
        [website_controller(config.ingress, workers=settings.workers)],
        client=client,
        sharding=_membership(settings) if settings.sharded else None,
        leader_election=(
            LeaderElection(name=election.resource_name, namespace=settings.namespace, timing=election.timing)
            if election.leader_elect and not settings.sharded
            else None
        ),
        runnables=[Runnable("state-metrics", export_state)],
        metrics_address=config.metrics_address,
        health_address=config.health_address,
        graceful_timeout=config.graceful_shut_down,
    )
    return manager


def _membership(settings: OperatorSettings) -> Sharding:
    return Sharding(
        RING,
        settings.shard_name or None,
        settings.namespace,
        timing=scaled(settings.config.leader_election.lease_duration),
    )
