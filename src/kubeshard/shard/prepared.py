"""What a process knows about its ring and itself once it has read the ring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubeshard.cache.cache import Cache
from kubeshard.client.client import Client
from kubeshard.controller.controller import Controller
from kubeshard.core.errors import ConfigurationError
from kubeshard.core.kinds import GroupKind, Kind
from kubeshard.core.namespaces import ALL, AllNamespaces
from kubeshard.runtime.logs import get_logger
from kubeshard.shard.handover import Handovers
from kubeshard.shard.identity import ShardIdentity
from kubeshard.shard.label_restorer import LabelRestorer
from kubeshard.shard.metrics import ShardMetrics
from kubeshard.shard.reclaiming import Reclaiming
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.ring_resources import RingResources

_log = get_logger("kubeshard.shard")


class Prepared:
    """What is known once the ring has been read."""

    def __init__(
        self,
        shard: ShardIdentity,
        resources: RingResources,
        kinds: Mapping[GroupKind, Kind],
        client: Client,
        objects: Client,
        declared: ControllerRing | None,
        metrics: ShardMetrics,
    ) -> None:
        self.shard = shard
        self.declared = declared
        self.metrics = metrics
        for entry in resources.entries:
            if entry.main:
                metrics.of_resource(entry.resource)
        self.resources = resources
        self.kinds = kinds
        self.handovers = Handovers(
            shard.label,
            shard.drain,
            shard.name,
            lambda kind: kind.group_resource in resources,
            client.world.clock,
            metrics.acknowledged,
        )
        self.reclaiming = Reclaiming()
        self.label_restorer = LabelRestorer(shard, resources, self.handovers.losses, client.world.clock)
        self.client = client
        self.objects = objects
        """The client of the cluster with the ring's objects."""

    def places(self, cache: Cache) -> list[tuple[Kind, str | AllNamespaces]]:
        """The kinds and namespaces in which this process sees objects of the ring."""
        return [
            (kind, namespace or ALL)
            for kind in self.kinds.values()
            for namespace in {part for i in cache.informers_of(kind) for part in i.scope.parts(kind)}
        ]

    def refuse_shares(self, controllers: Sequence[Controller[Any]]) -> None:
        """For a process that is not a shard: raises ConfigurationError for a controller that would run here but reads
        kinds of which a shard only sees its share.
        """
        for controller in controllers:
            primary, *others = (watch.form.kind.group_resource for watch in controller.all_watches)
            if primary not in self.resources and (
                shared := [each for each in others if each in self.resources]
            ):
                raise ConfigurationError(
                    f"controller {controller.name} is not sharded but watches {', '.join(map(str, shared))}, of which "
                    "a process in the mode sharder has no share: take the mode both"
                )

    def warn_about_idle_resources(self, controllers: Sequence[Controller[Any]]) -> None:
        """Warns about main resources without a controller: their objects are assigned to us, but no drain would be
        acknowledged.
        """
        reconciled = {controller.primary_watch.form.kind.group_resource for controller in controllers}
        for entry in self.resources.entries:
            if entry.main and entry.resource not in reconciled:
                _log.warning(
                    "No controller here reconciles a main resource of the ring; its objects will never be drained",
                    ring=self.shard.ring,
                    resource=str(entry.resource),
                )
