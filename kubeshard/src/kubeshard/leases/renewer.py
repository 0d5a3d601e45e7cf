"""Drives the state machine: sends requests to the API server, arms the watchdog, notifies the workers.

Guaranteed: the renewer does not depend on the workers. With its own loop and connection, it stores results before the
workers' loop is notified, so a blocked loop can neither keep the Lease (it does not say that it is healthy, which it is
asked before each renewal) nor write after the deadline
(`HeldLease.check`, the watchdog). A renewer that fails ends the right to act. Not guaranteed: anything if its own
thread does not get to run; the watchdog covers that.

RBAC: `get`, `create`, `update` on `leases` in the Lease's namespace. If it watches, `watch` lets it see another holder
at once instead of at the next renewal; it works without that permission.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, suppress
from typing import Literal, Protocol, assert_never, get_args

from kubeshard.client.client import Client
from kubeshard.client.watching import Changed
from kubeshard.core.builtin import Lease
from kubeshard.core.errors import (
    AlreadyExists,
    ConfigurationError,
    Conflict,
    Forbidden,
    KubeshardError,
    NotFound,
    Throttled,
    Timeout,
    Unavailable,
)
from kubeshard.core.selectors import FieldSelector
from kubeshard.leases.held_lease import HeldLease, Renewal
from kubeshard.leases.state_machine import (
    LAST_STATES,
    Ask,
    Create,
    Done,
    Get,
    LeaseStateMachine,
    Replace,
    State,
    Wait,
)
from kubeshard.runtime.alarm import SHORTEST_SLEEP, Alarm
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import error_line, get_logger
from kubeshard.runtime.loop import set_within
from kubeshard.runtime.loop_thread import LoopRunner
from kubeshard.runtime.notices import Notices
from kubeshard.runtime.watchdog import EXIT_CODE, Watchdog

_log = get_logger("kubeshard.leases")

_FORBIDDEN_WATCH_PAUSE = 60.0

_UNDECIDED = 1.0
"""Seconds that the question may take which right is missing. The Lease has to be renewed meanwhile, or lost in time."""


RenewalFailure = Literal["conflict", "forbidden", "throttled", "timeout", "unavailable", "unfit", "other"]
"""Why a Lease was not acquired or renewed: somebody else wrote it, the API server's answer, or this process itself."""
RENEWAL_FAILURES: tuple[RenewalFailure, ...] = get_args(RenewalFailure)


class LeaseMetrics(Protocol):
    """Observations of a renewer, for the Lease of that name. Called where the renewer runs: must not block or
    raise.
    """

    def holding(self, name: str, holds: bool) -> None: ...

    def slow_path(self, name: str) -> None:
        """A renewal needed a read first."""
        ...

    def renewed(self, name: str) -> None:
        """The Lease was acquired, or renewed."""
        ...

    def not_renewed(self, name: str, why: RenewalFailure) -> None:
        """A request for it failed, or none was made because the process is unfit (once until it is fit again)."""
        ...


class NoLeaseMetrics:
    def holding(self, name: str, holds: bool) -> None: ...

    def slow_path(self, name: str) -> None: ...

    def renewed(self, name: str) -> None: ...

    def not_renewed(self, name: str, why: RenewalFailure) -> None: ...


class LeaseRenewer:
    """`connect` is called where `renew` runs, like everything here except `held` and `health`.

    `health`: why this process is not fit to hold the Lease, None if it is. It is called in the loop that holds the
    Lease, before each renewal. Without one, a process whose loop is blocked is fit, too. `watches`: whether the Lease
    is watched, while it is held and while somebody else holds it. `rewound` is called when the Lease shows that etcd
    was restored from a backup, and `refused` with the API server's answer to a request for it, once for each that is
    another one.
    """

    def __init__(
        self,
        machine: LeaseStateMachine,
        held_lease: HeldLease,
        health: Callable[[], str | None] | None,
        *,
        connect: Callable[[], AbstractAsyncContextManager[Client]],
        watches: bool,
        watchdog: Watchdog,
        clock: Clock,
        alarm: Callable[[Clock, asyncio.Event], Alarm],
        metrics: LeaseMetrics,
        rewound: Callable[[], None],
        refused: Callable[[str], None] = lambda why: None,
    ) -> None:
        self._machine = machine
        self._claim = machine.claim
        self._held_lease = held_lease
        self._health = health
        self._connect = connect
        self._watches = watches
        self._watchdog = watchdog
        self._clock = clock
        self._alarm = alarm
        self._metrics = metrics
        self._rewound = rewound
        self._refused = refused
        whose = {} if self._claim.holder == self._claim.name else {"identity": self._claim.holder}
        self._log = _log.bind(lease=str(self._claim), **whose)
        self._news = asyncio.Event()
        self._granted = False
        """Whether the workers were notified that work may start."""
        self._leaving = False
        """Written by `held`, in the workers' thread."""
        self._workers_left = asyncio.Event()
        self._attempt: asyncio.Timeout | None = None
        """The timeout of the request or question in flight."""
        self._notices = Notices()
        self._end: float | None = None
        """For a lost Lease: when the process must have ended."""

    @asynccontextmanager
    async def held(self, runner: LoopRunner) -> AsyncIterator[None]:
        """Enters when the Lease is ours, however long that takes, and keeps it until the block ends. Leaving releases
        it, as the claim says how, if `stopped_cleanly` was called. Otherwise the Lease expires, so that nobody takes
        over while work that did not end may still write.

        Raises ConfigurationError for a Lease that will never be ours, and unexpected errors.
        """
        held_lease, self._loop = self._held_lease, asyncio.get_running_loop()
        renewing = asyncio.create_task(runner.run(self.renew), name="lease renewer")
        renewing.add_done_callback(self._ended)
        held_lease.driven_by(lambda: runner.post(self._renew_soon))
        acquiring = asyncio.create_task(held_lease.acquired(), name="acquiring")
        try:
            try:
                await asyncio.wait((acquiring, renewing), return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                held_lease.stopped_cleanly()  # nothing has started
                raise
            if renewing.done():
                await renewing
            yield
        finally:
            acquiring.cancel()
            self._leaving = True
            held_lease.leave()
            runner.post(self._leave)
            await renewing

    def _ended(self, _: asyncio.Task[None]) -> None:
        if not self._leaving:
            self._held_lease.lose("the renewal of the Lease has ended")

    async def renew(self) -> None:
        """Acquires and renews until the Lease is lost or released."""
        if self._leaving:  # before anything can be posted to this loop
            self._leave()
        async with self._connect() as client:
            watching = asyncio.create_task(self._watch(client), name="own lease") if self._watches else None
            try:
                with closing(self._alarm(self._clock, self._news)) as alarm:
                    await self._drive(client, alarm)
            except Exception as error:
                if not self._granted:
                    raise
                self._log.crash("The renewal of a Lease crashed", error)
                self._machine.break_down(f"the renewal of the Lease crashed: {error_line(error)}")
            finally:
                if watching:
                    watching.cancel()
                    await asyncio.wait([watching])
            await self._conclude()

    # Driving the state machine

    async def _drive(self, client: Client, alarm: Alarm) -> None:
        machine = self._machine
        self._metrics.holding(self._claim.name, False)
        while True:
            action = machine.next(self._clock.boottime(), self._clock.wall())
            match action:
                case Done():
                    return
                case Ask(timeout):
                    try:
                        unfit = await self._unfit(timeout)
                    except TimeoutError:
                        machine.unanswered(self._clock.boottime())
                    else:
                        machine.told(unfit, self._clock.boottime())
                case Wait(until):
                    await self._pause(alarm, until)
                case Get() | Create() | Replace():
                    if machine.holds and isinstance(action, Get):
                        self._metrics.slow_path(self._claim.name)
                    deadline, rewinds = machine.deadline, machine.rewinds
                    await self._perform(client, action)
                    if machine.rewinds != rewinds:
                        self._rewound()
                    if machine.deadline != deadline:
                        self._renewed()
                case _:
                    assert_never(action)

    async def _perform(self, client: Client, action: Get | Create | Replace) -> None:
        machine, clock = self._machine, self._clock
        client = client.with_timeout(action.timeout)
        failure, kind, forbidden = "", "no answer", False
        why: RenewalFailure | None = None
        written = None if isinstance(action, Get) else action.lease
        if written is not None:
            claim, time = self._claim, written.spec.renew_time or ""
            self._held_lease.renewal = Renewal(
                claim.namespace, claim.name, time, clock.boottime(), machine.rewinds
            )
            self._held_lease.sent += 1
        try:
            async with asyncio.timeout(action.timeout) as self._attempt:
                match action:
                    case Get():
                        found = await client.get(Lease, self._claim.name, self._claim.namespace)
                        machine.found(found, clock.boottime())
                    case Create(lease):
                        machine.written(await client.create(lease), clock.boottime())
                    case Replace(lease):
                        machine.written(await client.replace(lease), clock.boottime())
        except NotFound as error:
            if isinstance(action, Create):
                failure = kind = error_line(error)  # the namespace does not exist
                why = "other"
            else:
                machine.found(None, clock.boottime())
        except (Conflict, AlreadyExists):
            machine.rejected(clock.boottime())
            why = "conflict"
        except (Throttled, Timeout, Unavailable) as error:
            failure, why = error_line(error), _why(error)
        except KubeshardError as error:
            failure = kind = error_line(error)
            why, forbidden = _why(error), isinstance(error, Forbidden)
        except TimeoutError:
            failure, why = f"no response within {action.timeout:.1f}s", "timeout"
        finally:
            self._attempt = None
        if why is not None:
            self._metrics.not_renewed(self._claim.name, why)
        writing = written is not None
        if failure:
            machine.failed(failure, clock.boottime())
            if machine.state not in LAST_STATES and self._notices.due("write" if writing else "read", kind):
                missing = forbidden and await self._lacks(client, _VERBS[type(action)])
                advice = (
                    f"grant get, create, update and watch on leases in the namespace {self._claim.namespace}"
                )
                fields = {"advice": advice} if missing else {}
                self._log.warning("A request for the Lease failed", error=failure, **fields)
                if kind == failure:
                    self._refused(f"{failure}; {advice}" if missing else failure)
        else:
            self._notices.resolved("read")
            if writing:  # a successful read does not clear a failing write
                self._notices.resolved("write")

    async def _lacks(self, client: Client, verb: str) -> bool:
        """Whether a request was forbidden because the right is missing: a quota, a policy or the end of the namespace
        forbid one, too.
        """
        kind, claim, machine = Lease.KIND, self._claim, self._machine
        left = machine.work_until - self._clock.boottime() if machine.holds else _UNDECIDED
        name = "" if verb == "create" else claim.name  # a request to create has none
        try:
            async with asyncio.timeout(min(left, _UNDECIDED)):
                return not await client.can_i(verb, kind.group, kind.plural, claim.namespace, name=name)
        except (KubeshardError, TimeoutError):
            return False

    async def _pause(self, alarm: Alarm, until: float) -> None:
        machine = self._machine
        waiting = machine.reason if machine.state is State.WAITING else ""
        if not waiting:
            self._notices.resolved("waiting")
        elif self._notices.due("waiting", waiting):
            self._log.info("Waiting for the Lease", reason=waiting)
        if not machine.unfit:
            self._notices.resolved("unfit")
        elif self._notices.due("unfit"):
            self._log.warning("Not renewing the Lease until this process works again", reason=machine.unfit)
            self._metrics.not_renewed(self._claim.name, "unfit")
        if machine.holds:
            alarm.set(until)
            await self._news.wait()
        else:  # there is no deadline yet
            await set_within(self._news, max(until - self._clock.boottime(), SHORTEST_SLEEP))
        self._news.clear()

    async def _watch(self, client: Client) -> None:
        """Watches the Lease, so that another holder or a deletion is seen at once.

        Not by `kubeshard.listwatch`, which keeps a copy complete, and lists or probes the kind for that, with a right
        that holders of a Lease do not have. Nothing here depends on a complete copy: each watch begins with the Lease
        as it is, without a version that could be too old, and what one misses, the next renewal finds out by its
        compare-and-swap. That also tells a restored server, and a watch that stays silent.
        """
        name = FieldSelector.equals("metadata.name", self._claim.name)
        while True:
            pause = self._machine.timing.retry_period
            try:
                async with client.watch(Lease, self._claim.namespace, field_selector=name) as events:
                    async for event in events:
                        if isinstance(event, Changed):
                            deleted = event.type == "DELETED"
                            if self._machine.observed(event.object, self._clock.boottime(), deleted=deleted):
                                self._tell_if_lost()  # now, although a renewal may be in flight
                                self._news.set()
            except Forbidden:
                pause = _FORBIDDEN_WATCH_PAUSE
            except KubeshardError:
                pass  # reopened; until then the renewals notice changes
            except Exception as error:
                self._log.crash("The Lease cannot be watched", error)
                return
            await asyncio.sleep(pause)

    async def _unfit(self, timeout: float) -> str | None:
        """What the loop that holds the Lease says. One that is blocked says nothing, so it needs not say all the time
        that it turns. Raises TimeoutError.
        """
        health, here = self._health, asyncio.get_running_loop()
        if health is None:
            return None
        told: asyncio.Future[str | None] = here.create_future()

        def tell(unfit: str | None) -> None:
            if not told.done():
                told.set_result(unfit)

        def ask() -> None:
            self._held_lease.while_it_may()
            try:
                unfit = health()
            except Exception as error:
                unfit = f"its health check failed: {error_line(error)}"
            with suppress(RuntimeError):  # nobody waits for the answer any more
                here.call_soon_threadsafe(tell, unfit)

        self._loop.call_soon_threadsafe(ask)
        try:
            async with asyncio.timeout(timeout) as self._attempt:
                return await told
        finally:
            self._attempt = None

    # Notifications

    def _renew_soon(self) -> None:
        self._machine.renew_soon()
        self._news.set()

    def _renewed(self) -> None:
        machine = self._machine
        if machine.state in LAST_STATES or not (machine.holds or self._granted):
            return
        assert machine.deadline is not None
        self._watchdog.arm(machine.deadline)
        self._metrics.renewed(self._claim.name)
        if not self._granted:
            self._granted = True
            self._log.info("Acquired the Lease", watchdog=self._armed())
            if former := self._claim.left_behind:
                self._log.warning(
                    "The former holder of the Lease did not release it",
                    holder=former.spec.holder_identity,
                    renewed=former.spec.renew_time,
                    fate=self._claim.fate(former),
                )
            self._metrics.holding(self._claim.name, True)
        self._held_lease.renewed(machine.begin_until, machine.work_until)

    def _armed(self) -> str:
        if not self._watchdog.kind:
            return "none"
        seconds = self._machine.timing.renew_deadline
        return f"{self._watchdog.kind}: exit code {EXIT_CODE} after {seconds:.3g} s without renewal"

    def _tell_if_lost(self) -> None:
        """Work must end by the deadline, or `stop_margin` after another holder was seen. Notifies once.

        Whatever fails here, the process ends: by the watchdog, which is armed first, and by `_see_the_end`.
        """
        machine = self._machine
        if machine.state is not State.LOST or self._end is not None:
            return
        assert machine.deadline is not None
        self._end = min(machine.deadline, self._clock.boottime() + machine.timing.stop_margin)
        try:
            self._watchdog.arm(self._end)
        except OSError as error:  # it is still armed from the last renewal
            self._log.crash("The watchdog could not be armed anew", error)
        left = self._end - self._clock.boottime()
        fate = f"ends with exit code {EXIT_CODE} in {left:.1f} s unless its work has ended"
        self._log.error(
            "Lost the Lease", reason=machine.reason, **{"process": fate} if self._watchdog.kind else {}
        )
        self._metrics.holding(self._claim.name, False)
        self._held_lease.lose(machine.reason)
        self._cut_short()

    # The end

    def _leave(self) -> None:
        """The process stops. Only if all work has verifiably ended may the Lease be released and the watchdog
        disarmed.
        """
        if self._workers_left.is_set():
            return
        self._workers_left.set()
        if not self._held_lease.stopped:
            self._machine.abandon("work may not have stopped, so the Lease is left to expire")
        else:
            self._machine.release(self._clock.boottime())
        self._cut_short()
        self._news.set()

    def _cut_short(self) -> None:
        """Cancels the request in flight, whose response no longer matters."""
        attempt = self._attempt
        if attempt is not None and not attempt.expired() and self._machine.state in LAST_STATES:
            attempt.reschedule(asyncio.get_running_loop().time())

    async def _conclude(self) -> None:
        machine = self._machine
        if machine.state is State.REFUSED:
            raise ConfigurationError(machine.reason)
        if machine.state is State.LOST:
            self._tell_if_lost()
            await self._see_the_end()
        else:
            self._log.info("Stopped keeping the Lease", reason=machine.reason)
            self._metrics.holding(self._claim.name, False)
        if self._held_lease.stopped:
            self._watchdog.disarm()

    async def _see_the_end(self) -> None:
        """Ends a process that does not leave its work in time. The watchdog still covers work that has not verifiably
        stopped.
        """
        assert self._end is not None
        if not await set_within(self._workers_left, self._end - self._clock.boottime()):
            self._watchdog.bite()


_VERBS = {Get: "get", Create: "create", Replace: "update"}


def _why(error: KubeshardError) -> RenewalFailure:
    match error:
        case Forbidden():
            return "forbidden"
        case Throttled():
            return "throttled"
        case Timeout():
            return "timeout"
        case Unavailable():
            return "unavailable"
    return "other"
