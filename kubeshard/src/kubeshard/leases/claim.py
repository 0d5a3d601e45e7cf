"""Who holds a Lease, when it may be taken over, and what its holder writes there.

Guaranteed: everything else stays as it was read: labels and annotations of others, owners, finalizers, the fields of
coordinated elections; `acquireTime` and `leaseTransitions` change only with the holder; a released Lease has a holder
that is present but empty, and a duration of one second, so that anybody may acquire it at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from msgspec.structs import replace

from kubeshard.core.builtin import Lease
from kubeshard.core.objects import ObjectMeta
from kubeshard.core.times import micro_time
from kubeshard.leases.timing import Timing
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.watchdog import ended_by_watchdog

LONGEST_KEPT = 300.0
"""Seconds: no version of this library holds a Lease for a group with a longer duration."""

_log = get_logger("kubeshard.leases")


@dataclass(frozen=True, slots=True)
class TakeoverDelay:
    """How long a record must stay unchanged, as observed here, before its Lease may be taken. Infinite: never."""

    seconds: float = 0.0
    reason: str = ""
    """What is being waited for, or why waiting is useless; human-readable."""
    confirmed: bool | None = None
    """False: somebody has to confirm that the former holder has ended, so an infinite delay may end. True: that is
    confirmed, of whoever held the Lease before, also if it was deleted meanwhile. None: nobody asks for it.
    """


class Claim:
    """One process's claim to one Lease, for one thread.

    Like client-go, it acquires a Lease without a holder, or one whose record has not changed, as observed here, for its
    own duration: clocks of other machines never matter. `labels` and `annotations` are what its holder writes there.
    Subclasses know more about other holders, and use the Lease's metadata. `defers`: for how many seconds it leaves a
    Lease to other candidates that it could take.
    """

    shared: ClassVar[bool] = False
    """Whether several processes hold the Lease together, under the same holder (`GroupClaim`)."""

    def __init__(
        self,
        namespace: str,
        name: str,
        holder: str,
        timing: Timing,
        *,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        defers: float = 0.0,
    ) -> None:
        self.namespace = namespace
        self.name = name
        self.holder = holder
        """The holder in the Lease while it is ours."""
        self.timing = timing
        self.defers = defers
        self._labels = labels
        self._annotations = annotations
        self.left_behind: Lease | None = None
        """The Lease as its former holder left it, if that did not release it: the holder ended, or may still act."""
        self.first = True
        """Whether nobody may have held the Lease before; false also if that is not certain."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    def ours(self, lease: Lease) -> bool:
        return lease.spec.holder_identity == self.holder

    def whose(self, lease: Lease) -> str:
        """A human-readable description of who has a Lease that is not ours."""
        holder = lease.spec.holder_identity
        return f"the Lease is held by {holder!r}" if holder else "the Lease is held by nobody"

    def takeover_delay(self, lease: Lease) -> TakeoverDelay:
        """How long to wait for a Lease that is not ours."""
        seconds = lease.spec.lease_duration_seconds or 0
        return TakeoverDelay(seconds if seconds >= 1 else self.timing.lease_duration, self.whose(lease))

    def taking(self, found: Lease | None) -> None:
        """Called before the Lease is acquired as it was found, or (None) created. This may happen several times until
        it is ours.
        """
        self.first = self.first and found is None
        if found is None or not found.spec.holder_identity:
            self.left_behind = None
        elif not self.ours(found):
            self.left_behind = found

    def fate(self, lease: Lease) -> str:
        """What must have become of the holder of a Lease that was left behind; human-readable."""
        return ended_by_watchdog(f"{self.timing.renew_deadline:g}") + " (if it has kubeshard's watchdog)"

    def metadata(self, found: ObjectMeta, *, held: bool) -> ObjectMeta:
        """The metadata of the Lease while it is ours, or (not `held`) when it is released."""
        found = replace(found, namespace=self.namespace, name=self.name)
        if held and self._labels:
            found = replace(found, labels={**(found.labels or {}), **self._labels})
        if held and self._annotations:
            found = replace(found, annotations={**(found.annotations or {}), **self._annotations})
        return found

    def renewed_lease(self, found: Lease, wall: float) -> Lease:
        """`found` as ours from now on. One without a resourceVersion is a new Lease."""
        spec, now = found.spec, micro_time(wall)
        same_holder = spec.holder_identity == self.holder
        transitions = spec.lease_transitions or 0
        if found.metadata.resource_version and not same_holder:
            transitions += 1
        spec = replace(
            spec,
            holder_identity=self.holder,
            lease_duration_seconds=int(self.timing.lease_duration),
            acquire_time=(spec.acquire_time if same_holder else None) or now,
            renew_time=now,
            lease_transitions=transitions,
        )
        return replace(found, metadata=self.metadata(found.metadata, held=True), spec=spec)

    def released(self, found: Lease, wall: float) -> Lease:
        now = micro_time(wall)
        spec = replace(
            found.spec, holder_identity="", lease_duration_seconds=1, acquire_time=now, renew_time=now
        )
        return replace(found, metadata=self.metadata(found.metadata, held=False), spec=spec)


class GroupClaim(Claim):
    """The claim of one member of a group that holds a Lease together, so that nobody outside of it acts while one of
    them does.

    Each member could renew the Lease for itself, and they would conflict all the time. So a member looks when a renewal
    is due, and writes only if no other has since it looked last: about one write for each `retry_period`, whatever the
    number of members. What has changed since a member looked was written after that, so its right is counted from
    there.

    Candidates wait for the duration in the record, and each member counts its right from any member's renewal. So no
    member writes a shorter duration than it finds: those of another version may have a longer right. `LONGEST_KEPT`
    bounds that: with what somebody else may have written, nobody could take the Lease for years.

    No member knows whether it is the last one, so none releases the Lease: it expires.
    """

    shared: ClassVar[bool] = True

    def renewed_lease(self, found: Lease, wall: float) -> Lease:
        lease = super().renewed_lease(found, wall)
        written = found.spec.lease_duration_seconds or 0
        if not self.ours(found) or written <= self.timing.lease_duration:
            return lease
        kept = min(written, int(LONGEST_KEPT))
        if kept < written:
            _log.warning(
                "Somebody has written a duration into a Lease that no process of the group asks for; shortening it",
                lease=str(self),
                seconds=written,
                shortened_to=kept,
            )
        return replace(lease, spec=replace(lease.spec, lease_duration_seconds=kept))
