"""What may be set of a membership in a ring, by what it is about. Each value is checked where it is made."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kubeshard.core.errors import ConfigurationError
from kubeshard.core.objects import ObjectMeta
from kubeshard.core.selectors import InvalidSelector, LabelSelector, Selector
from kubeshard.shard.identity import check_ring_name
from kubeshard.shard.shard_lease import Takeover
from kubeshard.shard.timing import LeaseTiming
from kubeshard.sharding.api import ControllerRing, ControllerRingSpec, RingResource
from kubeshard.sharding.buckets import Buckets, By
from kubeshard.sharding.names import (
    CONCURRENT_MOVES,
    MASS_FAILURE_GRACE,
    PINNED_ANNOTATION,
    SHORTEST_DRAIN_TIMEOUT,
    STRICT_HANDOVER_ANNOTATION,
    SYNC_PERIOD,
    WEIGHT_ANNOTATION,
)
from kubeshard.sharding.shares import weight_of


@dataclass(frozen=True, slots=True)
class DeclaredRing:
    """A ring as its program declares it. If there is a ControllerRing of that name, that counts instead, unless
    `resources` are given.

    `resources`: what is sharded, so that no ControllerRing is read; by default the watches with `sharded=True`.
    `namespace_selector`: where; by default everywhere but in kube-system and sharding-system. `strict_handover`: others
    begin with the objects of a shard only when it is confirmed that its process has ended; True, or for how many
    seconds they wait at most (docs/how-to/late-calls.md).

    Raises ConfigurationError.
    """

    name: str
    resources: Sequence[RingResource] | None = None
    namespace_selector: LabelSelector | None = None
    strict_handover: bool | float = False

    def __post_init__(self) -> None:
        check_ring_name(self.name)
        if self.resources is not None:
            object.__setattr__(self, "resources", tuple(self.resources))
        if self.namespace_selector is not None:
            try:
                Selector.from_label_selector(self.namespace_selector)
            except InvalidSelector as error:
                raise ConfigurationError(f"namespace_selector: {error}") from None
        if self.strict_handover is not True and not 0 <= self.strict_handover < math.inf:
            raise ConfigurationError(
                f"strict_handover: {self.strict_handover}: give True, or a number of seconds"
            )

    @property
    def handover(self) -> str:
        """The value of the annotation `STRICT_HANDOVER_ANNOTATION`; "" for none."""
        if self.strict_handover is True:
            return "true"
        return f"{self.strict_handover:.0f}s" if self.strict_handover else ""

    def controller_ring(self, resources: Iterable[RingResource]) -> ControllerRing:
        """The ControllerRing that would say the same, for these resources."""
        spec = ControllerRingSpec(resources=tuple(resources), namespace_selector=self.namespace_selector)
        annotations = {STRICT_HANDOVER_ANNOTATION: self.handover} if self.handover else None
        return ControllerRing(metadata=ObjectMeta(name=self.name, annotations=annotations), spec=spec)


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """How a shard holds its Lease. `takeover`: when to take back a Lease that a sharder took. `keep_on_stop`: do not
    release it, so that a restart under the same name within the lease duration still has its objects (StatefulSets).
    `pod_name_required`: it has to have the pod's name, because the ring has admission policies.

    `weight`, in a ring by ranges: how much it gets, in proportion to the others, which have 1; with 0 nothing but what
    is `pinned` to it: clusters, namespaces or uids of objects, whatever the ring divides by. None and (): what
    annotations of the Lease say.

    Raises ConfigurationError.
    """

    timing: LeaseTiming = field(default_factory=LeaseTiming)
    takeover: Takeover = Takeover.WITH_PROOF
    keep_on_stop: bool = False
    pod_name_required: bool = False
    weight: float | None = None
    pinned: Sequence[str] = ()

    def __post_init__(self) -> None:
        if isinstance(self.pinned, str):
            raise ConfigurationError(f"pinned: {self.pinned!r}: give a list")
        try:
            weight_of(self.says.get(WEIGHT_ANNOTATION, ""))
        except ValueError as error:
            raise ConfigurationError(f"weight: {error}") from None

    @property
    def says(self) -> Mapping[str, str]:
        """Annotations of the Lease."""
        said = {PINNED_ANNOTATION: ",".join(self.pinned)} if self.pinned else {}
        return said if self.weight is None else {WEIGHT_ANNOTATION: f"{self.weight:g}", **said}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranges:
    """A ring whose objects are delivered by hash ranges (docs/in-manager-sharding.md). Nothing on an object shows its
    shard, and nothing is written to it, but for a label of what objects control. All programs of a ring state the same,
    for the life of the ring.

    `by`: what is hashed. By `uid` objects spread evenly, whatever their namespaces, each with all that it controls. By
    `namespace` everything in a namespace is on one shard. By `cluster` everything in one of the manager's other
    clusters is, and a shard connects to its own clusters only (docs/several-clusters.md). `buckets`: into how many
    parts objects or clusters are divided, a power of two. `drain_timeout`: seconds after which runs are cancelled that
    keep a bucket from being handed over.

    Raises ConfigurationError.
    """

    by: By = "uid"
    buckets: int = 1024
    drain_timeout: float = 30.0

    def __post_init__(self) -> None:
        try:
            Buckets(self.buckets, self.by)
        except ValueError as error:
            raise ConfigurationError(f"ranges: {error}") from None
        if not 0 <= self.drain_timeout < math.inf:
            raise ConfigurationError(f"drain_timeout: {self.drain_timeout}: give a number of seconds")

    @property
    def divided(self) -> Buckets:
        return Buckets(self.buckets, self.by)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharderSettings:
    """How this process works while it is the ring's sharder, as in the configuration of a sharder service
    (docs/configuration.md). Durations are seconds.

    Raises ConfigurationError.
    """

    sync_period: float = SYNC_PERIOD
    concurrent_moves: int = CONCURRENT_MOVES
    mass_failure_grace: float = MASS_FAILURE_GRACE
    drain_timeout: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.sync_period < math.inf:
            raise ConfigurationError(f"sync_period: {self.sync_period}: give a positive number of seconds")
        if self.concurrent_moves < 1:
            raise ConfigurationError(f"concurrent_moves: {self.concurrent_moves}: must be positive")
        if not 0 <= self.mass_failure_grace < math.inf:
            raise ConfigurationError(
                f"mass_failure_grace: {self.mass_failure_grace}: give a number of seconds"
            )
        if self.drain_timeout and not SHORTEST_DRAIN_TIMEOUT <= self.drain_timeout < math.inf:
            raise ConfigurationError(
                f"drain_timeout: {self.drain_timeout}: give 0, or {SHORTEST_DRAIN_TIMEOUT:.0f} seconds or more"
            )
