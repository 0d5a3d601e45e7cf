"""Holding a Lease, as a pure state machine: without I/O, clock or randomness.

Guaranteed: the right to act (`deadline`) is counted from the start of the last successful renewal, never from its
response; it ends permanently `cancel_margin` before the deadline, or when another holder is seen; another holder's
Lease is taken only after the claim's take-over delay, counted from the last change of its record as observed here;
so is one that was deleted since it was seen, even if our own late request created it again, because a deletion does
not end a holder's right; an empty holder is written only after `release`, which a driver calls when all work has
stopped. The delay is counted anew after a response that was waited for longer than the right lasts, or has an earlier
version than one before: a restore of etcd may have erased renewals since, and it may leave the record as it was seen
before that (`kubeshard.sharding.shard_states` has the argument).

How long an attempt may take follows from the deadline. The first one is short, because its connection may be dead, and
the next one uses another. Each may take somewhat more than twice as long as the last write did, answered or not, and
all that is left if that leaves no time for another one. So of three attempts without an answer, the last one still has
its chance, and a holder keeps its Lease while each write takes four seconds: nearly half of the time for which work may
go on without a renewal, as the next one is sent when the last one is answered, and counts from then.

Not guaranteed: anything about writes that a former holder still has in flight. A Lease is not a fence: to exclude a
late write, use a precondition. Nor that it waits for a Lease that was deleted before it was seen here: a process that
finds none when it starts creates it at once, although a holder may be alive and about to do the same. The same is true
for one that was created and deleted between two reads.

| state | input | next | does |
|---|---|---|---|
| SEEKING | absent, and never seen | SEEKING | create |
| SEEKING, WAITING | absent, or another Lease of this name, but one existed when last seen | WAITING, restarted | |
| WAITING | for the take-over delay with its last record, or the lease duration | SEEKING | create, replace |
| SEEKING | free, ours, or unchanged for the claim's take-over delay | SEEKING | replace |
| SEEKING | the same, and the claim defers | WAITING, for so much longer | |
| SEEKING | another holder's | WAITING; REFUSED if there is nothing to wait for | |
| WAITING | the take-over delay is over, another holder was seen, or it is time | WAITING; SEEKING if it is over | get |
| WAITING | the record changed | WAITING, restarted | |
| WAITING | a watch shows that it was renewed | WAITING, restarted | nothing: what it shows need not be read |
| SEEKING | write succeeded | HELD; SEEKING if the response took longer than the right lasts | |
| HELD, CHECKING | a request is due | the same | ask this process whether it is fit |
| HELD | renewal due, and fit | HELD | replace |
| HELD | `renew_soon`, and fit | HELD | replace: at once, but within `SOONEST` once for that |
| HELD, CHECKING | unfit, or no answer within `BLOCKED_AFTER` | the same | ask again after `UNFIT_POLL` |
| HELD | conflict | CHECKING | get: at once, from the second in a row on after a pause |
| HELD, CHECKING | absent | HELD | create, as it was |
| CHECKING | still ours | HELD | replace, at once |
| HELD, CHECKING | shared, and renewed by another member since the last response | HELD | nothing: that counts |
| HELD, CHECKING | another holder; time is up | LOST | |
| any | `release` | RELEASING if it may be ours, else ENDED | |
| RELEASING | ours | RELEASING | replace, holder empty |
| RELEASING | written, absent, not ours any more, or the deadline passed | ENDED | |

A process that is unfit may acquire. It cannot work, so that harms nobody for longer than the right lasts; and only with
the Lease is the watchdog armed, which ends a process that stays unfit.

Leases are renewed whenever the boot clock is at a whole number of periods (`retry_period`), so a process with two
Leases wakes up once for both. So do all processes of a node. Nodes boot at different times, so a ring of hundreds of
shards does not send all its renewals in one moment. Those who hold a Lease together take turns, at random moments.

Times are seconds of one clock that also counts while the machine is suspended (`Clock.boottime`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum, auto
from typing import TypeAlias

import msgspec

from kubeshard.core.builtin import Lease, LeaseSpec
from kubeshard.core.versions import compare, newest
from kubeshard.leases.claim import Claim, TakeoverDelay
from kubeshard.leases.timing import RENEW_JITTER


class State(Enum):
    SEEKING = auto()
    """Not ours yet: reading, creating or taking it."""
    WAITING = auto()
    """Another holder's, who may still act: reading until that is impossible."""
    HELD = auto()
    """Ours; work may go on until the deadline."""
    CHECKING = auto()
    """Ours as far as we know, but a write conflicted: read the holder."""
    RELEASING = auto()
    """All work has stopped; releasing the Lease."""
    LOST = auto()
    """The right to act is over. Final: the process must end."""
    REFUSED = auto()
    """The holder will not give the Lease up: a configuration error."""
    ENDED = auto()
    """Over, and nothing was lost."""


LAST_STATES = frozenset({State.LOST, State.REFUSED, State.ENDED})


class Get(msgspec.Struct, frozen=True):
    """Read the Lease from the API server's storage (resourceVersion ""). Result: `found`, or `failed`."""

    timeout: float


class Create(msgspec.Struct, frozen=True):
    """Result: `written`, `rejected` (somebody created it first) or `failed`."""

    lease: Lease
    timeout: float


class Replace(msgspec.Struct, frozen=True):
    """Result: `written`, `rejected` (conflict), `found(None)` (it is gone) or `failed`."""

    lease: Lease
    timeout: float


class Ask(msgspec.Struct, frozen=True):
    """Ask the loop in which work is done whether this process is fit. Result: `told`, or `unanswered`."""

    timeout: float


class Wait(msgspec.Struct, frozen=True):
    """Nothing to do before `until`, unless something is observed."""

    until: float


class Done(msgspec.Struct, frozen=True):
    """The machine is in a final state; see `reason` and `released`."""


Action: TypeAlias = Get | Create | Replace | Ask | Wait | Done


class _Asked(Enum):
    """The purpose of the current or last request."""

    READ = auto()
    HOLD = auto()
    RELEASE = auto()


BLOCKED_AFTER = 1.25
"""Seconds after which a loop that has not answered whether its process is fit counts as blocked."""

_ASK = Ask(BLOCKED_AFTER)

UNFIT_POLL = 0.2
"""Seconds after which an unfit process is asked again."""

SOONEST = 1.0
"""Seconds between renewals that are early because there is something to say."""

PATIENCE = 2.2
"""How many times as long as the last write the next one may take. A third one still begins before the right ends."""

SHORTEST_ATTEMPT = 0.25
"""Seconds: one that would have less is not worth ending another one for."""


class LeaseStateMachine:
    """Call `next` for an action, execute it, report the result, repeat. `uniform` draws a number between two others."""

    def __init__(self, claim: Claim, uniform: Callable[[float, float], float]) -> None:
        self.claim = claim
        self.timing = claim.timing
        self.state = State.SEEKING
        self.deadline: float | None = None
        """When the right to act ends at the latest; None before the Lease was held."""
        self.reason = ""
        """Why the state is LOST, REFUSED or ENDED, or what is being waited for; human-readable."""
        self.released = False
        self.unfit = ""
        """Why a due renewal is not sent."""
        self._uniform = uniform
        self._lease: Lease | None = None
        self._known = False
        """Whether `_lease` (None: absent) is the server's last response, so that a write may be based on it."""
        self.rewinds = 0
        """How often a response had an earlier version than one before it: etcd was restored from a backup."""
        self._newest = ""
        self._shown = ""
        """The newest version that a watch has shown since the last request, while somebody else held the Lease."""
        self._own_spec = LeaseSpec()
        """The Lease as last written here; used to recreate it if it is deleted while it is ours. Of a shared one: as
        last seen.
        """
        self._looked_at = 0.0
        """When the request was sent whose response was the last one: whatever is new in the next came later."""
        self._seen_spec: LeaseSpec | None = None
        self._seen_at = 0.0
        """When the record of a Lease that is not ours last changed or was deleted: the start of the take-over delay."""
        self._seen_uid = ""  # of the Lease that is not ours yet; "" if it was absent
        self._gone_until = -math.inf
        """Until when the holder of a Lease that was deleted may act, whatever is in its place now."""
        self._gone_for = 0.0
        self._takeover_delay = TakeoverDelay()
        """The take-over delay with the last record, also if the Lease is absent now."""
        self._asked = _Asked.READ
        self._asked_at = 0.0
        self._taking = False
        """Whether a takeover was sent, and may have succeeded."""
        self._due = 0.0
        self._fit = False
        """Whether this process has just said that it is fit."""
        self._questioned_at = self._question_at = -math.inf
        """When it was asked last, and when it may be asked again."""
        self._read_patience = self._write_patience = self.timing.attempt_timeout
        """Seconds for the next attempt, if they leave time for another one. How long reads take says nothing about
        writes, which pass admission.
        """
        self._conflicts = 0
        self._failure = ""
        self._news = False
        """Whether the claim has something to write that no request has had yet."""
        self._hurried_at = -math.inf

    @property
    def holds(self) -> bool:
        """Whether work may continue, at the time last passed to the machine."""
        return self.state in (State.HELD, State.CHECKING)

    @property
    def holder(self) -> str:
        """The holder of the Lease, as last seen; "" for none."""
        return (self._lease.spec.holder_identity or "") if self._lease else ""

    @property
    def version(self) -> str:
        """The resourceVersion of the Lease, as last seen; "" for none."""
        return self._lease.metadata.resource_version if self._lease else ""

    @property
    def begin_until(self) -> float:
        """When new work may no longer start, unless the Lease is renewed before."""
        return -math.inf if self.deadline is None else self.deadline - self.timing.stop_margin

    @property
    def work_until(self) -> float:
        """When work must end, unless the Lease is renewed before."""
        return -math.inf if self.deadline is None else self.deadline - self.timing.cancel_margin

    # The next action

    def next(self, now: float, wall: float) -> Action:
        fit, self._fit = self._fit, False
        self._judge(now)
        if self.state in LAST_STATES:
            return Done()
        if now < (due := self._due_at()):
            return Wait(min(due, self._horizon(now)))
        if self.holds and not fit:
            if now < self._question_at:
                return Wait(min(self._question_at, self.work_until))
            self._questioned_at = now
            left = self.work_until - now
            return Ask(left) if left < BLOCKED_AFTER else _ASK
        self._asked_at = now
        if self._shown:  # the answer cannot be older than it, but than what is shown from now on
            self._newest, self._shown = newest(self._newest, self._shown), ""
        if not self._known or self.state is State.WAITING:
            self._asked = _Asked.READ
            return Get(self._attempt_timeout(now))
        if self.state is State.RELEASING:
            assert self._lease is not None
            self._asked = _Asked.RELEASE
            return Replace(self.claim.released(self._lease, wall), self._attempt_timeout(now))
        self._asked = _Asked.HOLD
        if self._news:
            self._news, self._hurried_at = False, now
        lease, timeout = self._lease_to_write(wall), self._attempt_timeout(now)
        return Create(lease, timeout) if self._lease is None else Replace(lease, timeout)

    def _due_at(self) -> float:
        if self._news and self.state is State.HELD and not self._failure:
            return min(self._due, self._hurried_at + SOONEST)
        return self._due

    # Results

    def told(self, unfit: str | None, now: float) -> None:
        """Why this process is not fit to hold the Lease; None if it is."""
        self._fit, self.unfit = unfit is None, unfit or ""
        if unfit:
            self._question_at = now + UNFIT_POLL

    def unanswered(self, now: float) -> None:
        """This process did not say whether it is fit."""
        silent = now - self._questioned_at
        self.told(f"the event loop is blocked: it has not answered for {silent:.1f} s", now)

    def found(self, lease: Lease | None, now: float) -> None:
        """The result of a read, or (None) that the Lease does not exist."""
        self._failure = ""
        self._took(now)
        self._lease, self._known = lease, True
        if self._note_version(lease) or now - self._looked_at > self.timing.renew_deadline:
            self._count_anew(now)
        self._due = now
        ours = lease is not None and self.claim.ours(lease)
        if self._asked is _Asked.READ and not ours:
            self._taking = False
        if self.state in LAST_STATES:
            return
        if self.state is State.RELEASING:
            if not ours:
                self._end("there was no Lease of ours to release")
        elif self.holds:
            if lease is None or ours:
                self.state = State.HELD
            else:
                self._lose(self.claim.whose(lease))
            if self.claim.shared and self.state is State.HELD and lease and lease.spec != self._own_spec:
                self._held_since(self._looked_at, lease)
        elif lease is None:
            self._miss(now)
        else:
            self._consider(lease, now, self._asked_at)
        self._looked_at = self._asked_at

    def written(self, lease: Lease, now: float) -> None:
        """The server accepted the write and returned `lease`."""
        self._failure = ""
        self._took(now)
        self._lease, self._known = lease, True
        self._note_version(lease)
        self._conflicts = 0
        if self.state in LAST_STATES:
            return
        if self._asked is _Asked.RELEASE:
            self.released = True
            self._end("the Lease was released")
            return
        deadline = self._asked_at + self.timing.renew_deadline
        if self.state is State.SEEKING and now >= deadline - self.timing.cancel_margin:
            self._due = now  # ours, but its time is over: no work has started, so start again
            return
        self._looked_at = self._asked_at
        self._held_since(self._asked_at, lease)
        self._judge(now)

    def rejected(self, now: float) -> None:
        """The write met a newer version of the Lease."""
        self._took(now)
        self._known = False
        self._due = now
        self._conflicts += 1
        if self.holds:
            self.state = State.CHECKING
        if self._conflicts > 1:  # somebody writes all the time: read and write when that may be over
            self._failure = "overtaken by somebody else's write"
            self._due = self._after_failure(now)

    def failed(self, error: str, now: float) -> None:
        """No usable response: it is unknown whether a write took effect, so the next attempt finds out by its
        conflict.
        """
        self._failure = error
        self._took(now)
        if self.holds or self.state is State.RELEASING:
            self._due = self._after_failure(now)
        else:
            self._due = now + self._candidates_pause()
        self._known = self._known and self.holds

    def observed(self, lease: Lease, now: float, *, deleted: bool) -> bool:
        """A watch reported the Lease. Older versions than the known one are ignored. Returns whether that changed what
        there is to do, or when: what holders write themselves does not.
        """
        before = self.state, self._due
        if self.state is State.WAITING:
            self._overheard(lease, now, deleted=deleted)
        elif self.holds:
            self._overtaken(lease, now, deleted=deleted)
        return before != (self.state, self._due)

    def renew_soon(self) -> None:
        """What the claim writes has changed."""
        self._news = True

    def release(self, now: float) -> None:
        """All work has verifiably stopped: releases the Lease, so that others need not wait."""
        if self.claim.shared:
            self.abandon("other members may still work, so the Lease is left to expire")
        elif self.holds:
            self.state = State.RELEASING
            self._due = now
            if self._known and self._lease is None:
                self._end("there was no Lease of ours to release")
        elif self.state in (State.SEEKING, State.WAITING) and self._taking:
            # A takeover is in flight, or its outcome is unknown: find out whether it succeeded, and undo it.
            self.state = State.RELEASING
            self.deadline = now + self.timing.renew_deadline
            self._known = False
            self._due = now
        elif self.state in (State.SEEKING, State.WAITING):
            self._end("stopped before the Lease was ours")

    def abandon(self, reason: str) -> None:
        """Stops without releasing the Lease: it expires, and until then nobody takes it."""
        if self.state not in LAST_STATES:
            self._end(reason)

    def break_down(self, reason: str) -> None:
        """The driver cannot continue."""
        if self.holds:
            self._lose(reason)
        self.abandon(reason)

    # Decisions

    def _overheard(self, lease: Lease, now: float, *, deleted: bool) -> None:
        """That its holder has renewed it is as good as an answer, and puts off the next read, until the next renewal is
        missing. Whatever else may have happened is read.
        """
        version = lease.metadata.resource_version
        if deleted or (lease.spec.holder_identity or "") != self.holder:
            self._due = now
        elif compare(version, newest(self._newest, self._shown)) > 0 and lease.spec != self._seen_spec:
            self._shown, self._looked_at, self._known = version, now, False
            self._due = now
            self._consider(lease, now, now, 1 + self.timing.jitter / 2)

    def _overtaken(self, lease: Lease, now: float, *, deleted: bool) -> None:
        known = self._lease.metadata.resource_version if self._lease else ""
        if compare(lease.metadata.resource_version, known) <= 0:
            return
        if deleted:
            self._lease, self._known = None, True
            self._due = now
        elif self.claim.ours(lease):
            self._lease, self._known = lease, True
        else:
            self._lose(self.claim.whose(lease))

    def _judge(self, now: float) -> None:
        if self.holds and now >= self.work_until:
            over = self.timing.renew_deadline - self.timing.cancel_margin
            self._lose(f"not renewed for {over:g}s" + self._because())
        elif self.state is State.RELEASING and self.deadline is not None and now >= self.deadline:
            self._end("the Lease was not released before its deadline" + self._because())

    def _held_since(self, renewed_at: float, lease: Lease) -> None:
        """The Lease is ours, and was renewed at that time or later."""
        self.deadline = renewed_at + self.timing.renew_deadline
        self._own_spec = lease.spec
        if self.state is not State.RELEASING:
            self.state, self.reason = State.HELD, ""
            self._known = not self.claim.shared  # other members renew it too: look before writing
            due = self._next_renewal(self._asked_at)
            self._due = min(due, self.work_until - self._write_patience)  # or a slow write would be too late

    def _next_renewal(self, last: float) -> float:
        """The last whole number of periods that is not too late. Those who hold a Lease together take turns."""
        period = self.timing.retry_period
        if self.claim.shared:
            return last + period * self._uniform(1 - RENEW_JITTER, 1 + RENEW_JITTER)
        latest = last + period * (1 + RENEW_JITTER)
        return latest - latest % period

    def _took(self, now: float) -> None:
        """The last request has ended, with an answer or without."""
        patience = max(self.timing.attempt_timeout, PATIENCE * (now - self._asked_at))
        if self._asked is _Asked.READ:
            self._read_patience = patience
        else:
            self._write_patience = patience

    def _attempt_timeout(self, now: float) -> float:
        """Of a candidate: an answer after the end of the right that it asks for is of no use."""
        useful = self.timing.renew_deadline - self.timing.cancel_margin
        left = min(self._horizon(now) - now, useful)
        patience = self._read_patience if self._asked is _Asked.READ else self._write_patience
        return patience if left - patience >= SHORTEST_ATTEMPT else left

    def _horizon(self, now: float) -> float:
        """The latest end of an attempt or wait: that of the right."""
        if self.holds:
            return self.work_until
        if self.state is State.RELEASING and self.deadline is not None:
            return self.deadline
        return math.inf

    def _note_version(self, answer: Lease | None) -> bool:
        """Whether it went back. Reads are consistent, and there is one request at a time: each response is newer than
        earlier ones.
        """
        if answer is None:
            return False
        before, self._newest = self._newest, answer.metadata.resource_version
        went_back = compare(self._newest, before) < 0
        self.rewinds += went_back
        return went_back

    def _count_anew(self, now: float) -> None:
        """What a restore has erased since the last response was not seen."""
        self._seen_at = now
        self._gone_until = max(self._gone_until, now + self._gone_for)

    def _consider(self, lease: Lease, now: float, since: float, periods: float = 1.0) -> None:
        """Whether a Lease that is not held yet may be taken. If not, it is read `periods` after `since`, or later."""
        if self._seen_uid not in ("", lease.metadata.uid):  # a create that came late may have made it ours
            self._gone(now)
        self._seen_uid = lease.metadata.uid
        if lease.spec != self._seen_spec:
            self._seen_spec, self._seen_at = lease.spec, now
        somebody_elses = lease.spec.holder_identity and not self.claim.ours(lease)
        self._takeover_delay = self.claim.takeover_delay(lease) if somebody_elses else TakeoverDelay()
        if self._takeover_delay.confirmed:
            self._gone_until = -math.inf
        self._wait_out(now, since, periods)

    def _miss(self, now: float) -> None:
        """There is no Lease. Its holder may have renewed it until it was deleted."""
        if self._seen_spec is not None:
            self._seen_spec, self._seen_uid = None, ""
            self._gone(now)
        self._takeover_delay = TakeoverDelay()
        self._wait_out(now, self._asked_at)

    def _gone(self, now: float) -> None:
        """The Lease was deleted since it was last seen. If it was free then, it may have been taken before."""
        self._gone_for = self._takeover_delay.seconds or self.timing.lease_duration
        self._gone_until = now + self._gone_for

    def _wait_out(self, now: float, since: float, periods: float = 1.0) -> None:
        self.reason = self._takeover_delay.reason or "other candidates come first"
        until = self._seen_at + self._takeover_delay.seconds + self.claim.defers
        if until < self._gone_until:
            until, self.reason = self._gone_until, "the Lease was deleted, and its holder may still act"
        if now >= until:
            self.state = State.SEEKING
        elif math.isinf(self._takeover_delay.seconds) and self._takeover_delay.confirmed is None:
            self.state = State.REFUSED
        else:
            self.state = State.WAITING
            # From the request on: slow answers would else be further apart than `found` lets count.
            self._due = min(max(now, since + self._candidates_pause(periods)), until)

    def _lease_to_write(self, wall: float) -> Lease:
        if not self.holds:
            self.claim.taking(self._lease)
            self._taking = True
        return self.claim.renewed_lease(self._lease or Lease(spec=self._own_spec), wall)

    def _after_failure(self, now: float) -> float:
        """An attempt that was waited for has had its pause."""
        return max(now, self._asked_at + self.timing.failure_pause * self._uniform(1, 2))

    def _candidates_pause(self, periods: float = 1.0) -> float:
        return self.timing.retry_period * self._uniform(periods, 1 + self.timing.jitter)

    def _because(self) -> str:
        cause = self.unfit or self._failure
        return f": {cause}" if cause else ""

    def _lose(self, reason: str) -> None:
        self.state, self.reason = State.LOST, reason

    def _end(self, reason: str) -> None:
        self.state, self.reason = State.ENDED, reason
