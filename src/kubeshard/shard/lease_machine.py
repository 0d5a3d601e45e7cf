"""The life of a shard's Lease as a plain state machine: no I/O, no clock, no randomness of its own
(reliability 1.6).

Guaranteed: the right to work (`deadline`) is counted from the start of the last renewal that succeeded, never
from its answer; it ends for good `cancel_margin` before the deadline, or at the first sight of somebody
else's name or incarnation; an empty holder is written only after `release`, which a driver calls when all
work has stopped. Not guaranteed: anything about writes already on the wire - that is the fence's and the
transport's part.

| state | input | next | does |
|---|---|---|---|
| SEEKING | absent | SEEKING | create |
| SEEKING | holder empty | SEEKING | take |
| SEEKING | a sharder holds it | WAITING for the record's duration; by `Takeover.AT_ONCE` SEEKING | take |
| SEEKING | own name, no rival incarnation | SEEKING | take, acquire time and transitions stay |
| SEEKING | own name, rival incarnation | WAITING for twice the record's duration | |
| SEEKING | any other holder | REFUSED | |
| WAITING | record changed | WAITING, from the beginning | get, every renew interval |
| SEEKING | write succeeded | HELD | |
| HELD | renewal due, and healthy | HELD | put |
| HELD | conflict | CHECKING | get |
| HELD, CHECKING | absent | HELD | create, same incarnation |
| CHECKING | still ours | HELD | put on the new resource version, at once |
| HELD, CHECKING | another holder or incarnation; conflicts without end; time is up | LOST | |
| any | `release` | RELEASING if ours, else ENDED | put, holder empty |
| RELEASING | written, absent, not ours any more, or the deadline passed | ENDED | |

A Lease that was taken in any state but "own name" comes with `returning`: somebody may believe that the name was
given up. It stays true, and is written down in the Lease, until the driver says `reclaimed`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from kubeshard.core.builtin import Lease, LeaseSpec
from kubeshard.core.versions import compare
from kubeshard.shard.identity import ShardIdentity
from kubeshard.shard.incarnation import INCARNATION_ANNOTATION
from kubeshard.shard.lease_record import released, renewed, returning
from kubeshard.shard.timing import LONGEST_LEASE, SHORTEST_LEASE, LeaseTiming
from kubeshard.sharding.names import SHARDER_IDENTITY


class State(Enum):
    SEEKING = "seeking"
    """Not ours yet: reading, creating or taking it."""
    WAITING = "waiting"
    """Somebody else may still act under our name; reading until that has become impossible."""
    HELD = "held"
    """Ours; controllers may work until the deadline."""
    CHECKING = "checking"
    """Ours as far as we know, but a write met somebody else's: read who."""
    RELEASING = "releasing"
    """All work has stopped; giving the objects away."""
    LOST = "lost"
    """The right to work is over. Never left: the process has to end."""
    REFUSED = "refused"
    """The Lease belongs to somebody who is no shard of this name: a mistake in the set-up."""
    ENDED = "ended"
    """Over, and nothing was lost."""


LAST_STATES = frozenset({State.LOST, State.REFUSED, State.ENDED})


class Takeover(Enum):
    """When a Lease that a sharder took from a shard of this name may be taken back."""

    AFTER_RECORD = "after-record"
    """After the record's own duration since it was first seen here: meanwhile others get the objects."""
    AT_ONCE = "at-once"
    """For kubeshard's sharder only, and those who would rather have their shard back than their objects served at
    once. The Go sharder goes on taking objects, in a pass that it has begun, from a shard that is back.
    """


@dataclass(frozen=True, slots=True)
class Get:
    """Read the Lease from the API server's storage (resourceVersion ""). Answer: `found`, or `failed`."""

    timeout: float


@dataclass(frozen=True, slots=True)
class Create:
    """Answer: `written`, `rejected` (somebody created it first) or `failed`."""

    lease: Lease
    timeout: float


@dataclass(frozen=True, slots=True)
class Put:
    """Answer: `written`, `rejected` (conflict), `found(None)` (it is gone) or `failed`."""

    lease: Lease
    timeout: float


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do before `until`, unless something is observed."""

    until: float


@dataclass(frozen=True, slots=True)
class Done:
    """The machine is in one of its last states; `reason` and `released` say how."""


Action: TypeAlias = Get | Create | Put | Wait | Done

UNHEALTHY_POLL = 0.2
"""Seconds after which an unhealthy process is asked again whether it may renew."""


class LeaseMachine:
    """Ask `next` for the one thing to do, do it, report the answer, ask again. Times are seconds of one
    boot-time clock.
    """

    def __init__(
        self,
        shard: ShardIdentity,
        timing: LeaseTiming,
        uniform: Callable[[float, float], float],
        takeover: Takeover = Takeover.AFTER_RECORD,
    ) -> None:
        self.state = State.SEEKING
        self.deadline: float | None = None
        """When the right to work ends at the latest; None before the Lease was ever held."""
        self.reason = ""
        """Why the state is LOST, REFUSED or ENDED, or what is being waited for; for people."""
        self.released = False
        self.returning = False
        """Whether somebody may have been told, before the Lease became ours, that nobody acts under the name."""
        self._shard = shard
        self._timing = timing
        self._uniform = uniform
        self._takeover = takeover
        self._lease: Lease | None = None
        self._known = False
        """Whether `_lease` (None: absent) is what the server said last, so that a write may build on it."""
        self._seen_spec: LeaseSpec | None = None
        self._seen_at = 0.0
        self._asked_at = 0.0
        self._asked_write = False
        self._asked_release = False
        self._due = 0.0
        self._conflicts = 0
        self._unhealthy = ""
        self._failure = ""

    @property
    def holds(self) -> bool:
        """Whether controllers may work now, as far as the machine has been told the time."""
        return self.state in (State.HELD, State.CHECKING)

    @property
    def begin_until(self) -> float:
        """From when on no new work may begin, unless the Lease is renewed before."""
        return -math.inf if self.deadline is None else self.deadline - self._timing.stop_margin

    @property
    def work_until(self) -> float:
        """From when on work is over for good."""
        return -math.inf if self.deadline is None else self.deadline - self._timing.cancel_margin

    # What to do

    def next(self, now: float, wall: float, unhealthy: str | None = None) -> Action:
        """The one thing to do now. `unhealthy`: why this process must not renew, None if it may (reliability
        F15).
        """
        if self.holds and now >= self.work_until:
            self._lose(self._deadline_reason())
        if self.state in LAST_STATES:
            return Done()
        if self.state is State.RELEASING and self.deadline is not None and now >= self.deadline:
            self._end("the lease was not released before its deadline" + self._because())
            return Done()
        if now < self._due:
            return Wait(min(self._due, self._horizon(now)))
        self._unhealthy = (unhealthy or "") if self.holds else ""
        if self._unhealthy:
            return Wait(min(now + UNHEALTHY_POLL, self.work_until))
        self._asked_at = now
        self._asked_write = self._asked_release = False
        timeout = min(self._timing.attempt_timeout, self._horizon(now) - now)
        if not self._known or self.state is State.WAITING:
            return Get(timeout)
        self._asked_write = True
        if self.state is State.RELEASING:
            assert self._lease is not None
            self._asked_release = True
            return Put(released(self._lease, self._shard, wall), timeout)
        lease = self._renewed(wall)
        return Create(lease, timeout) if self._lease is None else Put(lease, timeout)

    # What came of it

    def found(self, lease: Lease | None, now: float) -> None:
        """The server's answer to a read, or (None) that the Lease is gone."""
        self._failure = ""
        self._lease, self._known = lease, True
        self._due = now
        if self.state in LAST_STATES:
            return
        if self.state is State.RELEASING:
            if lease is None or not self._ours(lease):
                self._end("there was no lease of ours to release")
        elif self.holds:
            if lease is not None and not self._ours(lease):
                self._lose(self._stranger(lease))
            else:
                self.state = State.HELD
        elif lease is not None:
            self._consider(lease, now)
        else:
            self.state = State.SEEKING

    def written(self, lease: Lease, now: float) -> None:
        """The server accepted the write and answered with `lease`."""
        self._failure = ""
        self._lease, self._known = lease, True
        self._conflicts = 0
        if self.state in LAST_STATES:
            return
        if self._asked_release:
            self.released = True
            self._end("the lease was released")
            return
        self.deadline = self._asked_at + self._timing.renew_deadline
        if self.state is not State.RELEASING:
            self.state, self.reason = State.HELD, ""
            jitter = self._timing.renew_jitter
            self._due = self._asked_at + self._timing.renew_interval * self._uniform(1 - jitter, 1 + jitter)

    def rejected(self, now: float) -> None:
        """The write met a newer version of the Lease."""
        self._known = False
        self._due = now
        self._conflicts += 1
        if self.holds:
            self.state = State.CHECKING
            if self._conflicts >= self._timing.max_conflicts:
                self._lose(f"{self._conflicts} renewals in a row were overtaken by somebody else's write")
        elif self._conflicts > 1:
            self._due = now + self._retry_pause()

    def failed(self, error: str, now: float) -> None:
        """No usable answer: whether a write took effect is unknown, so the next attempt finds out by its own
        conflict.
        """
        self._failure = error
        self._due = now + self._retry_pause()
        if not self.holds:
            self._known = False

    def observed(self, lease: Lease, now: float, *, deleted: bool = False) -> None:
        """A watch on the own Lease reported it. News older than what is known is ignored."""
        if not self.holds:
            return
        known = self._lease.metadata.resource_version if self._lease else ""
        if compare(lease.metadata.resource_version, known) <= 0:
            return
        if deleted:
            self._lease, self._known = None, True
            self._due = now
        elif self._ours(lease):
            self._lease, self._known = lease, True
        else:
            self._lose(self._stranger(lease))

    def reclaimed(self) -> None:
        """Whoever was told so before cannot take an object from us any more."""
        self.returning = False

    def release(self, now: float) -> None:
        """All work has been proven stopped: give the Lease back, so that the sharder moves the objects at
        once.
        """
        if self.holds:
            self.state = State.RELEASING
            self._due = now
            if self._known and self._lease is None:
                self._end("there was no lease of ours to release")
        elif self.state is State.SEEKING and self._asked_write:
            # A take-over is on its way: find out whether it worked, and undo it.
            self.state = State.RELEASING
            self.deadline = now + self._timing.renew_deadline
            self._known = False
        elif self.state in (State.SEEKING, State.WAITING):
            self._end("stopped before the lease was acquired")

    def abandon(self) -> None:
        """Stop without giving the Lease back: it expires, and until then the objects stay where they are."""
        if self.state not in LAST_STATES:
            self._end("stopped without releasing the lease")

    # How it is judged

    def _horizon(self, now: float) -> float:
        """No attempt and no wait lasts longer than the right it serves."""
        if self.holds:
            return self.work_until
        if self.state is State.RELEASING and self.deadline is not None:
            return self.deadline
        return now + self._timing.renew_interval + self._timing.attempt_timeout

    def _consider(self, lease: Lease, now: float) -> None:
        """Whether a Lease that is not held yet may be taken."""
        if lease.spec != self._seen_spec:
            self._seen_spec, self._seen_at = lease.spec, now
        holder = lease.spec.holder_identity or ""
        theirs = lease.metadata.annotation(INCARNATION_ANNOTATION)
        patience = 0.0
        if holder == self._shard.name:
            me = self._shard.incarnation
            if theirs not in ("", str(me)) and not me.outlived(theirs):
                patience = 2 * self._clamped_duration(lease)
                self.reason = (
                    f"another process ({theirs.strip('/')}) may still act under this shard's name: waiting until it "
                    f"has not renewed the lease for {patience:g} s; if it is to stay, give this shard another name"
                )
        elif holder == SHARDER_IDENTITY:
            if self._takeover is Takeover.AFTER_RECORD:
                patience = self._clamped_duration(lease)
                self.reason = "a sharder took the lease"
        elif holder:
            self.state = State.REFUSED
            self.reason = (
                f"lease {self._shard} is held by {holder!r}, which is neither "
                "this shard nor a sharder: give this shard another name"
            )
            return
        if now >= self._seen_at + patience:
            self.state = State.SEEKING
            self._due = now
        else:
            self.state = State.WAITING
            self._due = min(now + self._timing.renew_interval, self._seen_at + patience)

    def _clamped_duration(self, lease: Lease) -> float:
        duration = lease.spec.lease_duration_seconds or self._timing.lease_duration
        return min(max(duration, SHORTEST_LEASE), LONGEST_LEASE)

    def _ours(self, lease: Lease) -> bool:
        incarnation = lease.metadata.annotation(INCARNATION_ANNOTATION)
        return lease.spec.holder_identity == self._shard.name and incarnation in (
            "",
            str(self._shard.incarnation),
        )

    def _stranger(self, lease: Lease) -> str:
        if lease.spec.holder_identity == self._shard.name:
            rival = lease.metadata.annotation(INCARNATION_ANNOTATION)
            return f"another process ({rival}) holds the lease under this shard's name"
        return f"the lease is held by {lease.spec.holder_identity or 'nobody'!r}"

    def _lose(self, reason: str) -> None:
        self.state, self.reason = State.LOST, reason

    def _end(self, reason: str) -> None:
        self.state, self.reason = State.ENDED, reason

    def _deadline_reason(self) -> str:
        return (
            f"not renewed for {self._timing.renew_deadline - self._timing.cancel_margin:g}s" + self._because()
        )

    def _because(self) -> str:
        cause = self._unhealthy or self._failure
        return f": {cause}" if cause else ""

    def _renewed(self, wall: float) -> Lease:
        if not self.holds:
            self.returning = returning(self._lease, self._shard)
        duration = self._timing.lease_duration
        return renewed(self._lease or Lease(), self._shard, duration, wall, returning=self.returning)

    def _retry_pause(self) -> float:
        return self._uniform(self._timing.retry_min, self._timing.retry_max)
