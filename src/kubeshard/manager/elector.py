"""Leader election on a Lease as a plain state machine: no I/O, no clock (framework 2.11, reliability F1).

Guaranteed: the right to lead (`deadline`) is counted from the start of the last renewal that succeeded, never
from its answer; it is lost for good `abort_margin` before the deadline, or at the first sight of another
holder. A candidate takes over only when the record has not changed, as seen here, for the duration that the
record itself names: clocks of other machines never matter, and the *rates* of two clocks may differ by as
much as lease duration and renew deadline do. An empty holder is written only after `release`, which a driver
calls when all work has stopped.

Not guaranteed: that nothing of a lost leader is still on the wire. Election is no fence: what must exclude a
late write has to carry a precondition.

| state | what is known of the Lease | next action | after success |
|---|---|---|---|
| SEEKING | nothing, or it is time to look again | Read | |
| SEEKING | there is none | Create | LEADING |
| SEEKING | the holder is empty, or us | Replace | LEADING |
| SEEKING | somebody else's, unchanged for its duration | Replace, transitions + 1 | LEADING |
| SEEKING | somebody else's, still valid | Wait a retry period, with jitter, then Read | |
| LEADING | ours | Wait a retry period, then Replace (fast path: no Read) | LEADING, new deadline |
| LEADING | a write was refused | Read (slow path); still ours: Replace at once | LEADING, new deadline |
| LEADING | there is none any more | Create | LEADING, new deadline |
| LEADING | somebody else's or nobody's; refused too often; time is up | → LOST | |
| RELEASING | ours | Replace, holder empty, duration 1 s | ENDED |
| RELEASING | not ours any more, or time is up | → ENDED | |

`boottime` throughout: time goes on while the machine is suspended.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

import msgspec

from kubeshard.core.builtin import Lease, LeaseSpec
from kubeshard.core.errors import ConfigurationError
from kubeshard.core.objects import ObjectMeta
from kubeshard.core.times import micro_time
from kubeshard.runtime.rng import SYSTEM_RNG, Rng


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionTiming:
    """All in seconds, but `jitter`, `max_refusals`. Raises ConfigurationError for numbers that cannot
    work.
    """

    lease_duration: float = 15.0
    """How long others wait after the last renewal they saw. Whole seconds."""
    renew_deadline: float = 10.0
    """How long after the start of the last successful renewal the leader may act."""
    retry_period: float = 2.0
    """Between renewals, and between looks at somebody else's Lease."""
    jitter: float = 1.2
    """A candidate waits up to this many retry periods more."""
    attempt_timeout: float = 2.5
    """Of one request: a dead connection must not eat the deadline."""
    failure_pause: float = 0.5
    """A leader's pause after a request that got no answer."""
    stop_margin: float = 2.0
    """Before the deadline: begin nothing new."""
    abort_margin: float = 1.0
    """Before the deadline: the right is lost, work is cancelled. What is left is for the cancelling."""
    max_refusals: int = 5
    """So many renewals refused in a row: somebody else writes this Lease."""

    def __post_init__(self) -> None:
        def require(condition: bool, message: str) -> None:
            if not condition:
                raise ConfigurationError(f"leader election: {message}")

        require(self.retry_period > 0, "the retry period must be positive")
        require(self.lease_duration >= 1, "the lease duration must be at least 1 s")
        require(self.lease_duration == int(self.lease_duration), "a Lease counts whole seconds")
        require(
            self.lease_duration > self.renew_deadline,
            f"the lease duration must be longer than the renew deadline of {self.renew_deadline:g}s",
        )
        require(
            self.renew_deadline > self.retry_period * self.jitter,
            f"renew deadline {self.renew_deadline:g}s must be longer than {self.jitter:g} retry periods",
        )
        require(
            0 <= self.abort_margin <= self.stop_margin < self.renew_deadline - self.retry_period,
            f"renew deadline {self.renew_deadline:g}s leaves no time for a renewal before work has to stop",
        )


class State(Enum):
    SEEKING = auto()
    """Not the leader: waiting for the Lease to become free."""
    LEADING = auto()
    """The leader, until the deadline."""
    RELEASING = auto()
    """All work has stopped; giving the Lease back."""
    LOST = auto()
    """Was the leader, and must not act any more. Never left: the process has to end."""
    ENDED = auto()
    """Done with the Lease, in order."""


@dataclass(frozen=True, slots=True)
class Read:
    """GET the Lease, then `observed`; without an answer, `failed`."""


@dataclass(frozen=True, slots=True)
class Create:
    """POST the Lease, then `written`; if it exists already, `refused`; without an answer, `failed`."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class Replace:
    """PUT the Lease with its resourceVersion, then `written`; on conflict or absence `refused`; else
    `failed`.
    """

    lease: Lease


@dataclass(frozen=True, slots=True)
class Wait:
    """Ask again at this time."""

    until: float


@dataclass(frozen=True, slots=True)
class Stop:
    """LOST or ENDED: nothing more to do."""


Action: TypeAlias = Read | Create | Replace | Wait | Stop


class Elector:
    """One candidate. Ask `next`, do it, report the result, ask again."""

    def __init__(
        self, name: str, namespace: str, identity: str, timing: ElectionTiming, rng: Rng = SYSTEM_RNG
    ) -> None:
        self._metadata = ObjectMeta(name=name, namespace=namespace)
        self._identity = identity
        self._timing = timing
        self._rng = rng
        self._lease: Lease | None = None
        """As last seen or written here; None when there was none."""
        self._changed = 0.0
        """When its spec last changed as seen here: what a candidate's patience is counted from."""
        self._outdated = True
        """Whether it has to be read before the next write."""
        self._not_before = 0.0
        """The next request's time."""
        self._refusals = 0
        self.state = State.SEEKING
        self.reason = ""
        """Why the right to lead was lost."""
        self.deadline = 0.0
        """While LEADING: when the right to lead ends."""

    @property
    def leader(self) -> str:
        """Who holds the Lease, as last seen; `""` for nobody."""
        return (self._lease.spec.holder_identity or "") if self._lease else ""

    @property
    def slow(self) -> bool:
        """Whether a leader has to read before it can renew."""
        return self.state is State.LEADING and self._outdated

    @property
    def stop_at(self) -> float:
        """While LEADING: from when on nothing new may begin."""
        return self.deadline - self._timing.stop_margin

    @property
    def abort_at(self) -> float:
        """While LEADING: when the right is lost unless it is renewed before."""
        return self.deadline - self._timing.abort_margin

    def next(self, now: float, wall: float, *, fit: bool = True) -> Action:
        """What to do now. An unfit leader does not renew."""
        if self.state is State.LEADING:
            self._check_right(now)
        elif self.state is State.RELEASING and (
            now >= self.deadline or (not self._outdated and not self._ours)
        ):
            self.state = State.ENDED
        if self.state in (State.LOST, State.ENDED):
            return Stop()
        if now < self._not_before:
            until = self._not_before
            return Wait(min(until, self.abort_at) if self.state is State.LEADING else until)
        if self.state is State.LEADING and not fit:
            return Wait(min(now + self._timing.failure_pause, self.abort_at))
        if self._outdated:
            return Read()
        if self.state is State.RELEASING and self._lease is not None:
            return Replace(self._released(self._lease, wall))
        if self._lease is None or self._free(now):
            return self._hold(wall)
        # Somebody else's, and valid: look again after a while.
        self._outdated = True
        self._not_before = now + self._timing.retry_period * (1 + self._rng.uniform(0, self._timing.jitter))
        return Wait(self._not_before)

    def observed(self, lease: Lease | None, now: float) -> None:
        """The answer to a Read; None when there is no such Lease. `now`: when the answer was there."""
        if self._lease is None or lease is None or lease.spec != self._lease.spec:
            self._changed = now
        gone = lease is None and self.state is State.LEADING
        # A leader whose Lease was deleted creates it as it was: acquire time and transitions stay.
        self._lease = self._without_version() if gone else lease
        self._outdated = False
        if self.state is State.LEADING and not self._ours:
            self.lose(
                f"the Lease is held by {self.leader!r}" if self.leader else "somebody else emptied the Lease"
            )

    def written(self, lease: Lease, started: float) -> None:
        """The server's answer to a Create or Replace. `started`: when the request was begun."""
        self._lease = lease
        self._outdated = False
        self._refusals = 0
        if self.state is State.RELEASING:
            self.state = State.ENDED
            return
        self.state = State.LEADING
        self.deadline = started + self._timing.renew_deadline
        self._not_before = started + self._timing.retry_period

    def refused(self, now: float) -> None:
        """A Create or Replace met a change by somebody else: nothing was written."""
        self._outdated = True
        self._refusals += 1
        if self.state is State.SEEKING:
            self._pause(now, self._timing.failure_pause)
        if self.state is State.LEADING and self._refusals >= self._timing.max_refusals:
            self.lose(f"{self._refusals} renewals in a row were refused")

    def failed(self, now: float) -> None:
        """A request got no answer, or an error that says nothing about the Lease. A write may have taken
        effect.
        """
        if self.state is State.SEEKING:
            self._outdated = True
            self._pause(now, self._timing.retry_period)
        else:
            self._pause(now, self._timing.failure_pause)

    def release(self) -> None:
        """All work has stopped: gives the Lease back, if it is still ours."""
        self.state = State.RELEASING if self.state is State.LEADING else State.ENDED
        self._not_before = 0.0

    def lose(self, reason: str) -> None:
        """The right to lead is over, and will not be given back."""
        self.state = State.LOST
        self.reason = reason

    @property
    def _ours(self) -> bool:
        return self.leader == self._identity

    def _check_right(self, now: float) -> None:
        if now >= self.abort_at:
            self.lose(f"the Lease was not renewed within {self._timing.renew_deadline:g}s")

    def _pause(self, now: float, seconds: float) -> None:
        self._not_before = now + seconds * (1 + self._rng.uniform(0, 1))

    def _free(self, now: float) -> bool:
        assert self._lease is not None
        duration = self._lease.spec.lease_duration_seconds or 0
        if duration < 1:
            duration = int(self._timing.lease_duration)
        return not self.leader or self._ours or now >= self._changed + duration

    def _hold(self, wall: float) -> Create | Replace:
        """The Lease with us as its holder."""
        now = micro_time(wall)
        found = self._lease.spec if self._lease else LeaseSpec()
        kept = self._ours
        spec = msgspec.structs.replace(
            found,
            holder_identity=self._identity,
            lease_duration_seconds=int(self._timing.lease_duration),
            renew_time=now,
            acquire_time=found.acquire_time if kept and found.acquire_time else now,
            lease_transitions=(found.lease_transitions or 0) + (0 if kept or self._lease is None else 1),
        )
        if self._lease is None or not self._lease.metadata.resource_version:
            return Create(Lease(metadata=self._metadata, spec=spec))
        return Replace(msgspec.structs.replace(self._lease, spec=spec))

    def _released(self, lease: Lease, wall: float) -> Lease:
        """The Lease with nobody as its holder, free for anybody at once."""
        now = micro_time(wall)
        return msgspec.structs.replace(
            lease,
            spec=msgspec.structs.replace(
                lease.spec, holder_identity="", lease_duration_seconds=1, renew_time=now, acquire_time=now
            ),
        )

    def _without_version(self) -> Lease | None:
        return msgspec.structs.replace(self._lease, metadata=self._metadata) if self._lease else None
