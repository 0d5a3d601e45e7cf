"""What a sharder keeps of the Leases with a ring's label: anybody who may create Leases may set it, on any number of
Leases, for rings that exist or not, with annotations of 256 KiB.

Guaranteed: what is kept of a Lease (`kept`), and known of it, takes 2 to 5 KB. At most so many are kept of each
namespace, which take 7 MB, and never more than 17:

| Lease | at most |
|---|---|
| of a ring that exists, held by its shard | four times as many as a ring may have shards |
| of a ring that exists, held by nobody, or by a sharder | twice as many |
| of a ring that does not exist: it may appear | as many |

None of these takes the place of another, and no namespace that of another one: whoever fills a namespace hides no shard
elsewhere. So the memory is bounded by the number of namespaces, which a sharder keeps as well. A Lease beyond that
counts as one that does not exist, and is looked at again with its next change, or list.

Not guaranteed: which Leases of a namespace are kept. The first ones are; whoever may write Leases among those of the
shards may also take theirs away.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import Enum
from typing import Protocol

from kubeshard.cache.transforms import NotKept
from kubeshard.core.builtin import Lease, LeaseSpec
from kubeshard.core.objects import Key, ObjectMeta
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.notices import Notices
from kubeshard.sharding.names import (
    CONFIRMED_ANNOTATION,
    EVICTED_ANNOTATION,
    INCARNATION_ANNOTATION,
    PROOFS_ANNOTATION,
    RING_LABEL,
    STATE_LABEL,
    UNRELEASED_ANNOTATION,
    WATCHDOG_ANNOTATION,
)
from kubeshard.sharding.shard_states import MAX_SHARDS

_LABELS = (RING_LABEL, STATE_LABEL)
_ANNOTATIONS = (
    INCARNATION_ANNOTATION,
    PROOFS_ANNOTATION,
    EVICTED_ANNOTATION,
    CONFIRMED_ANNOTATION,
    WATCHDOG_ANNOTATION,
    UNRELEASED_ANNOTATION,
)
LONGEST = 512
"""Characters of a text of a Lease: more than a name, a time or an incarnation has."""

LOGGED_EVERY = 600.0

_log = get_logger("kubeshard.sharder")


def kept(lease: Lease) -> Lease:
    """What a sharder needs of a shard's Lease, whatever else it has. Not for writing it."""
    meta, spec = lease.metadata, lease.spec
    labels, annotations, holder = meta.labels or {}, meta.annotations or {}, spec.holder_identity
    acquired, renewed = spec.acquire_time, spec.renew_time
    return Lease(
        metadata=ObjectMeta(
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            resource_version=meta.resource_version,
            creation_timestamp=meta.creation_timestamp,
            deletion_timestamp=meta.deletion_timestamp,
            labels={key: labels[key] for key in _LABELS if key in labels},
            annotations={
                key: annotations[key]
                for key in _ANNOTATIONS
                if key in annotations and len(annotations[key]) <= LONGEST
            },
        ),
        spec=LeaseSpec(
            # One that is cut is no shard's name, nor a time.
            holder_identity=holder and holder[:LONGEST],
            lease_duration_seconds=spec.lease_duration_seconds,
            acquire_time=acquired and acquired[:LONGEST],
            renew_time=renewed and renewed[:LONGEST],
            lease_transitions=spec.lease_transitions,
        ),
    )


class Sort(Enum):
    """See the module."""

    HELD = "held"
    NOT_HELD = "not held"
    NO_RING = "no ring"


MOST = {Sort.HELD: 4 * MAX_SHARDS, Sort.NOT_HELD: 2 * MAX_SHARDS, Sort.NO_RING: MAX_SHARDS}
"""How many of a namespace are kept."""


class KnowsRings(Protocol):
    rings: Callable[[str], object | None]
    """Returns something for the rings that exist."""


class KeptLeases:
    """Which ones this process keeps, from whatever source. `of` knows which rings exist."""

    def __init__(self, of: KnowsRings, clock: Clock) -> None:
        self._of = of
        self.sorts: dict[tuple[str, str], Sort] = {}
        """Those that are kept."""
        self.left_out: dict[tuple[str, Sort], float] = {}
        """The namespaces of the others, and when one was left out there."""
        self._counts = Counter[tuple[str, Sort]]()
        self._clock = clock
        self._notices = Notices(clock, every=LOGGED_EVERY)

    def __call__(self, lease: Lease) -> Lease:
        """The transform of an informer. Raises NotKept."""
        if not self.keeps(lease):
            raise NotKept
        return kept(lease)

    def keeps(self, lease: Lease) -> bool:
        """Whether there is room for it; if so, it counts from now on."""
        meta = lease.metadata
        key, labels = (meta.namespace, meta.name), meta.labels  # a Key costs a call, for each renewal
        if self._of.rings(labels[RING_LABEL] if labels and RING_LABEL in labels else "") is None:
            sort = Sort.NO_RING
        else:
            sort = Sort.HELD if lease.spec.holder_identity == meta.name else Sort.NOT_HELD
        if key in self.sorts and self.sorts[key] is sort:
            return True
        self.forget(key)
        if self._counts[meta.namespace, sort] >= MOST[sort]:
            self.left_out[meta.namespace, sort] = self._clock.monotonic()
            return False
        self.sorts[key] = sort
        self._counts[meta.namespace, sort] += 1
        return True

    def passed_over(self, sort: Sort) -> bool:
        """Whether such Leases may be there that are left out."""
        return any(sort is each for _, each in self.left_out)

    def listed(self, asked: float) -> None:
        """Call it after a complete list. Only now it is told what is left out: before the rings are known, all Leases
        seem to be of none.
        """
        self.left_out = {place: at for place, at in self.left_out.items() if at >= asked}
        for place in self.left_out:
            if self._notices.due(place):
                namespace, sort = place
                _log.warning(
                    "A namespace has too many Leases with the label of a ring; the others are left out",
                    namespace=namespace,
                    which=sort.value,
                    most=MOST[sort],
                )

    def forget(self, key: tuple[str, str]) -> None:
        """It does not exist any more."""
        if (sort := self.sorts.pop(key, None)) is not None:
            place = key[0], sort
            self._counts[place] -= 1
            if not self._counts[place]:
                del self._counts[place]

    def only(self, there: Callable[[Key], bool]) -> None:
        """The others do not exist any more, whatever was missed."""
        for key in [key for key in self.sorts if not there(Key(*key))]:
            self.forget(key)
