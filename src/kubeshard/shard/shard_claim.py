"""A shard's claim to its Lease: what it writes there, and when it may acquire it.

| holder | incarnation | patience |
|---|---|---|
| nobody | | none |
| this shard's name | none, this process's, or that of a process that must be gone | none |
| this shard's name | another process's | twice the record's duration |
| a sharder | | the record's duration; none with `Takeover.AT_ONCE` |
| anybody else | | infinite: a mistake in the set-up |
"""

from __future__ import annotations

import math
from enum import Enum

from msgspec.structs import replace

from kubeshard.core.builtin import Lease
from kubeshard.core.objects import ObjectMeta
from kubeshard.leases.claim import Claim, Patience
from kubeshard.runtime.watchdog import ended_by_watchdog
from kubeshard.shard.identity import ShardIdentity
from kubeshard.shard.timing import LONGEST_LEASE, SHORTEST_LEASE, LeaseTiming
from kubeshard.sharding.names import INCARNATION_ANNOTATION, RING_LABEL, SHARDER_IDENTITY, WATCHDOG_ANNOTATION

RETURNING_ANNOTATION = "alpha.sharding.timebertt.dev/returning"
"""On a Lease that was acquired after the name had been given up, until its holder has reclaimed the objects with that
name (`reclaim`): if the process ends before that, its successor must do it.
"""


class Takeover(Enum):
    """When a Lease that a sharder took from a shard of this name may be taken back."""

    AFTER_RECORD = "after-record"
    """After the record's duration since it was first seen here: meanwhile others get the objects."""
    AT_ONCE = "at-once"
    """For use with kubeshard's sharder only, if getting the shard back is more important than serving its objects at
    once. During a pass that has already started, the Go sharder continues to take objects from a shard that is back.
    """


class ShardClaim(Claim):
    """The claim of one process of one shard. `armed`: whether a watchdog ends the process at its deadline."""

    def __init__(
        self, shard: ShardIdentity, timing: LeaseTiming, takeover: Takeover, *, armed: bool = False
    ) -> None:
        super().__init__(shard.namespace, shard.name, shard.name, timing)
        self.returning = False
        """Whether the name may have appeared unused to others before we acquired the Lease."""
        self.reclaimed = False
        """Whether others that saw it unused can no longer take an object from us. May be read from any thread."""
        self._shard = shard
        self._takeover = takeover
        self._armed = armed

    def ours(self, lease: Lease) -> bool:
        return super().ours(lease) and _incarnation(lease) in ("", str(self._shard.incarnation))

    def whose(self, lease: Lease) -> str:
        if super().ours(lease):
            return f"another process ({_incarnation(lease)}) holds the Lease under this shard's name"
        return super().whose(lease)

    def patience(self, lease: Lease) -> Patience:
        written = lease.spec.lease_duration_seconds or self.timing.lease_duration
        duration = min(max(written, SHORTEST_LEASE), LONGEST_LEASE)
        if super().ours(lease):
            rival = _incarnation(lease)
            if self._shard.incarnation.outlived(rival):
                return Patience()
            return Patience(
                2 * duration,
                f"another process ({rival.strip('/')}) may still act under this shard's name: waiting until it has not "
                f"renewed the Lease for {2 * duration:g}s; if it is to stay, give this shard another name",
            )
        if lease.spec.holder_identity != SHARDER_IDENTITY:
            return Patience(
                math.inf,
                f"Lease {self} is held by {lease.spec.holder_identity!r}, which is neither this shard nor a sharder: "
                "give this shard another name",
            )
        if self._takeover is Takeover.AT_ONCE:
            return Patience()
        return Patience(duration, "a sharder took the Lease")

    def taking(self, found: Lease | None) -> None:
        super().taking(found)
        self.returning = (
            found is None or not super().ours(found) or bool(found.metadata.annotation(RETURNING_ANNOTATION))
        )

    def fate(self, lease: Lease) -> str:
        seconds = lease.metadata.annotation(WATCHDOG_ANNOTATION)
        return ended_by_watchdog(seconds) if seconds else "unknown: it had no watchdog"

    def metadata(self, found: ObjectMeta, *, held: bool) -> ObjectMeta:
        annotations = dict(found.annotations or {})
        if held:
            annotations[INCARNATION_ANNOTATION] = str(self._shard.incarnation)
        else:  # a successor in Go would keep it, and does not sign its acknowledgements
            annotations.pop(INCARNATION_ANNOTATION, None)
        if held and self.returning and not self.reclaimed:
            annotations[RETURNING_ANNOTATION] = "true"
        else:
            annotations.pop(RETURNING_ANNOTATION, None)
        if held and self._armed:
            annotations[WATCHDOG_ANNOTATION] = f"{self.timing.renew_deadline:g}"
        else:
            annotations.pop(WATCHDOG_ANNOTATION, None)
        labels = {**(found.labels or {}), RING_LABEL: self._shard.ring}
        return replace(super().metadata(found, held=held), labels=labels, annotations=annotations)


def _incarnation(lease: Lease) -> str:
    return lease.metadata.annotation(INCARNATION_ANNOTATION)
