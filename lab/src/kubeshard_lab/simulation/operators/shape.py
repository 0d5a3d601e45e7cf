"""What a simulation has to know about an operator: how many instances share its work, and how."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubeshard.controller.controller import Controller
from kubeshard.controller.reconciler import BlockingReconciler
from kubeshard.core.encoding import encode
from kubeshard.core.errors import ConfigurationError
from kubeshard.core.kinds import GroupResource
from kubeshard.manager.manager import Manager
from kubeshard.manifests.operator import definitions
from kubeshard.shard.sharding import Sharding
from kubeshard.sharding.crd import controller_ring_crd
from kubeshard.sharding.names import shard_label
from kubeshard_lab.simulation.faults.injection import TARGETS

HOME_NAMESPACE = "default"


@dataclass(frozen=True)
class Shape:
    """How a manager's instances share the work: as `shards`, or `in_turns`; or there is only one."""

    controllers: Sequence[Controller[Any]]
    sharding: Sharding | None
    in_turns: bool
    manifests: Sequence[Mapping[str, Any]]
    """What the manager itself says that it needs."""
    namespaces: frozenset[str]

    @classmethod
    def of(cls, manager: Manager) -> Shape:
        """Raises ConfigurationError for a manager that cannot be simulated."""
        needs = manager.deployment_needs()
        for controller in needs.controllers:
            if isinstance(controller.reconciler, BlockingReconciler):
                raise ConfigurationError(
                    f"controller {controller.name}: a BlockingReconciler works in threads, which are not simulated"
                )
        if not needs.controllers:
            raise ConfigurationError("the manager has no controllers to simulate")
        sharding = needs.sharding if isinstance(needs.sharding, Sharding) else None
        if sharding is not None and sharding.named:
            raise ConfigurationError(
                f"every instance would be the shard {sharding.named}: leave Sharding(name=...) out, and each has the "
                "name of its host"
            )
        ring = None if sharding is None else sharding.declared_ring(needs.controllers)
        made = [*definitions(manager, HOME_NAMESPACE)]
        if sharding is not None:
            made.append(controller_ring_crd())
        if ring is not None:
            made.append(json.loads(encode(ring)))
        named = (grant.namespace for grant in manager.grants())
        return cls(
            tuple(needs.controllers),
            sharding,
            needs.takes_turns and sharding is None,
            made,
            frozenset(each for each in named if isinstance(each, str)),
        )

    @property
    def instances(self) -> int:
        return 3 if self.sharding else 2 if self.in_turns else 1

    @property
    def has_sharders(self) -> bool:
        """Whether its ring needs a sharder service."""
        return self.sharding is not None and self.sharding.mode == "shard"

    @property
    def label(self) -> str:
        return "" if self.sharding is None else shard_label(self.sharding.ring)

    @property
    def faults(self) -> tuple[str, ...]:
        """What can be inflicted on it: not what users do to a ring, which is for those who change kubeshard."""
        hit = {
            "any",
            *(["several"] if self.instances > 1 else []),
            *(["service"] if self.has_sharders else []),
        }
        return tuple(sorted(kind for kind, target in TARGETS.items() if target in hit))

    def exclusive(self, controller: Controller[Any]) -> bool:
        """Whether two instances must not work on one object."""
        return not self.in_turns or controller.needs_leadership

    @property
    def resources(self) -> frozenset[GroupResource]:
        kinds = (controller.primary_watch.form.kind for controller in self.controllers)
        return frozenset(GroupResource(*kind.group_resource) for kind in kinds)
