"""Leader election: of several instances of a program, one acts.

`LeaderElector.held()` waits until this instance is the leader and is the right to act, a `Tenure` as the
manager knows it:

- its gate closes two seconds before the deadline (`begin nothing new`) and opens again if a renewal succeeds
  in time;
- `lost()` returns one second before the deadline, or when somebody else holds the Lease: cancel all work, end
  the process;
- leaving gives the Lease back at once if `stopped_cleanly()` was called, and keeps quiet otherwise, so that
  nobody takes over while a reconcile that would not end may still write (reliability T27).

What is and is not guaranteed, and when, is decided in `elector`; here are the requests and the waiting. The
elector shares the event loop with the work: while the loop is blocked nothing is renewed, so the deadline
passes, and `check()` refuses from that moment on even before `lost()` could run. With a `watchdog` the kernel
ends a process that is stopped or stuck then.

RBAC: `get`, `create` and `update` on `leases` in `coordination.k8s.io`, in the election's namespace.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

from kubeshard.controller.gate import Gate
from kubeshard.core.builtin import Lease
from kubeshard.core.errors import (
    AlreadyExists,
    Conflict,
    KubeshardError,
    NotFound,
    NotOurs,
    Throttled,
    Timeout,
    Unavailable,
)
from kubeshard.manager.elector import (
    Action,
    Create,
    ElectionTiming,
    Elector,
    Read,
    Replace,
    State,
    Stop,
    Wait,
)
from kubeshard.runtime.clock import SYSTEM_CLOCK, Clock
from kubeshard.runtime.environ import hostname
from kubeshard.runtime.logs import error_line, get_logger
from kubeshard.runtime.rng import SYSTEM_RNG, Rng
from kubeshard.runtime.watchdog import NoWatchdog, Watchdog

_NO_ANSWER = (Throttled, Timeout, TimeoutError, Unavailable)

_log = get_logger("kubeshard.leaderelection")

LONGEST_SLEEP = 0.5
"""A leader looks at the clock at least so often: sleeps do not count the time of a suspended machine."""

HANG_TOLERANCE = 20.0
"""Seconds beyond the lease duration after which a leader that did not renew counts as hung."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderElection:
    """Which Lease to contend for. `identity` defaults to `<hostname>_<uuid>`: unique per process, readable
    for people.
    """

    name: str
    namespace: str
    identity: str = ""
    timing: ElectionTiming = field(default_factory=ElectionTiming)


class Leases(Protocol):
    """What the election needs of a client; `kubeshard.client.Client` is one."""

    def get(self, target: type[Lease], name: str, namespace: str, /) -> Awaitable[Lease]: ...

    def create(self, lease: Lease, /) -> Awaitable[Lease]: ...

    def replace(self, lease: Lease, /) -> Awaitable[Lease]: ...


class ElectionMetrics(Protocol):
    """Becomes `leader_election_master_status` and `leader_election_slowpath_total`, label `name`."""

    def leading(self, name: str, leads: bool) -> None: ...

    def slow_path(self, name: str) -> None:
        """A leader's renewal needed a read first."""
        ...


class NoElectionMetrics:
    def leading(self, name: str, leads: bool) -> None: ...

    def slow_path(self, name: str) -> None: ...


class Leadership:
    """The right to act as the leader, while it lasts. Implements `kubeshard.manager.membership.Tenure`."""

    def __init__(self, elector: Elector, clock: Clock) -> None:
        self._elector = elector
        self._clock = clock
        self._ended = asyncio.Event()
        self.gate = Gate()
        self._gate_closing = self._close_gate_in_time()
        self.reason = ""
        self.clean = False

    def holds(self) -> bool:
        """Whether this instance may act now, by the clock: also right after the event loop was blocked."""
        return self._elector.state is State.LEADING and self._clock.boottime() < self._elector.abort_at

    def check(self) -> None:
        """Raises NotOurs when this instance may not act any more."""
        if not self.holds():
            raise NotOurs("this instance is not the leader any more")

    async def lost(self) -> str:
        """Returns the reason when the right to act ends; else waits for ever."""
        await self._ended.wait()
        return self.reason

    def stopped_cleanly(self) -> None:
        """All work has ended by itself, nothing is in flight: leaving gives the Lease back."""
        self.clean = True

    def renewed(self) -> None:
        """From the keeper: the deadline has moved."""
        self.gate.open()
        self._gate_closing.cancel()
        self._gate_closing = self._close_gate_in_time()

    def end(self, reason: str) -> None:
        """From the keeper: the right is lost, or not needed any more."""
        self.reason = self.reason or reason
        self._gate_closing.cancel()
        self.gate.close()
        self._ended.set()

    def _close_gate_in_time(self) -> asyncio.TimerHandle:
        remaining = self._elector.stop_at - self._clock.boottime()
        return asyncio.get_running_loop().call_later(remaining, self.gate.close)


class LeaderElector:
    """One candidate for one Lease. Enter `held` once."""

    def __init__(
        self,
        client: Leases,
        election: LeaderElection,
        *,
        clock: Clock = SYSTEM_CLOCK,
        rng: Rng = SYSTEM_RNG,
        metrics: ElectionMetrics | None = None,
        watchdog: Watchdog | None = None,
    ) -> None:
        self.identity = election.identity or f"{hostname()}_{rng.token()}"
        self._client = client
        self._election = election
        self._clock = clock
        self._metrics: ElectionMetrics = metrics or NoElectionMetrics()
        self._watchdog: Watchdog = watchdog or NoWatchdog()
        self._elector = Elector(election.name, election.namespace, self.identity, election.timing, rng)
        self._log = _log.bind(lease=f"{election.namespace}/{election.name}", identity=self.identity)
        self._leader = ""
        self._trouble = ""
        """The last request's failure, so that one that lasts is logged once."""

    @property
    def leader(self) -> str:
        """The identity of the present leader as last seen here; `""` for none."""
        return self._elector.leader

    def hung(self) -> bool:
        """Whether this instance leads by its own account, but has not renewed for far too long: restart
        it.
        """
        timing = self._election.timing
        overdue = self._elector.deadline - timing.renew_deadline + timing.lease_duration + HANG_TOLERANCE
        return self._elector.state is State.LEADING and self._clock.boottime() > overdue

    @asynccontextmanager
    async def held(self, health: Callable[[], str | None] = lambda: None) -> AsyncIterator[Leadership]:
        """Enters when this instance has become the leader, however long that takes; renews until the block
        ends.

        `health` says why this process is unfit to lead, or None: while it is unfit the Lease is not renewed.
        """
        name = self._election.name
        self._metrics.leading(name, False)
        self._log.info("Waiting to become the leader")
        while self._elector.state is State.SEEKING:
            await self._step()
        self._log.info("Became the leader")
        self._metrics.leading(name, True)
        leadership = Leadership(self._elector, self._clock)
        keeper = asyncio.create_task(self._keep(leadership, health), name=f"leader-election-{name}")
        try:
            yield leadership
        finally:
            keeper.cancel()
            await asyncio.wait([keeper])
            leadership.end("left")
            self._metrics.leading(name, False)
            if leadership.clean and self._elector.state is State.LEADING:
                await self._release()

    async def _keep(self, leadership: Leadership, health: Callable[[], str | None]) -> None:
        """Renews until the right is lost, or the task is cancelled."""
        try:
            while self._elector.state is State.LEADING:
                deadline = self._elector.deadline
                if unfit := health():
                    self._report("unfit to lead", unfit)
                await self._step(fit=not unfit)
                if self._elector.deadline > deadline:
                    leadership.renewed()
        except Exception as error:  # a bug here must not leave a leader behind whose Lease runs out
            self._log.crash("Leader election crashed", error)
            self._elector.lose(f"leader election crashed: {error_line(error)}")
        self._log.error("Lost leadership", reason=self._elector.reason)
        leadership.end(self._elector.reason)

    async def _release(self) -> None:
        """Gives the Lease back, as long as it is ours."""
        self._elector.release()
        while self._elector.state is State.RELEASING:
            await self._step()
        self._watchdog.disarm()
        self._log.info("Gave up leadership", released=not self._elector.leader)

    async def _step(self, *, fit: bool = True) -> None:
        """Does what the elector wants next: one request, or a sleep."""
        started = self._clock.boottime()
        action = self._elector.next(started, self._clock.wall(), fit=fit)
        leading = self._elector.state is State.LEADING
        match action:
            case Stop():
                return
            case Wait(until):
                pause = max(0.0, until - started)
                await asyncio.sleep(min(pause, LONGEST_SLEEP) if leading else pause)
                return
            case Read() if self._elector.slow:
                self._metrics.slow_path(self._election.name)
        attempt = self._election.timing.attempt_timeout
        try:
            async with asyncio.timeout(
                min(attempt, self._elector.abort_at - started) if leading else attempt
            ):
                await self._request(action, started)
        except (TimeoutError, KubeshardError) as error:
            self._elector.failed(self._clock.boottime())
            self._report(
                "no answer" if isinstance(error, _NO_ANSWER) else error_line(error), error_line(error)
            )
        else:
            self._trouble = ""
        self._notice_leader()

    async def _request(self, action: Action, started: float) -> None:
        """One request, and its result to the elector. Raises KubeshardError for what says nothing about the
        Lease.
        """
        try:
            match action:
                case Read():
                    lease = await self._client.get(Lease, self._election.name, self._election.namespace)
                    self._elector.observed(lease, self._clock.boottime())
                case Create(lease):
                    self._written(await self._client.create(lease), started)
                case Replace(lease):
                    self._written(await self._client.replace(lease), started)
        except NotFound:
            match action:
                case Read():
                    self._elector.observed(None, self._clock.boottime())
                case Replace():
                    self._elector.refused(self._clock.boottime())
                case _:
                    raise  # the namespace does not exist
        except (Conflict, AlreadyExists):
            self._elector.refused(self._clock.boottime())

    def _written(self, lease: Lease, started: float) -> None:
        self._elector.written(lease, started)
        if self._elector.state is State.LEADING:
            self._watchdog.arm(self._elector.deadline)

    def _notice_leader(self) -> None:
        if self._elector.leader != self._leader:
            self._leader = self._elector.leader
            self._log.info("New leader", leader=self._leader or "nobody")

    def _report(self, trouble: str, detail: str) -> None:
        """Once, until it is another trouble or none."""
        if trouble != self._trouble:
            self._trouble = trouble
            what = {} if trouble == detail else {"trouble": trouble}
            self._log.warning("Leader election has a problem", **what, error=detail)
