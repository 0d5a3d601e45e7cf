"""Sends the requests of a plan when they are due, whether or not earlier ones have been answered (open loop).

Guaranteed: a request's time counts from when it was due, however late it was sent; up to `parallel` requests are
unanswered at a time, and how often that bound delayed one is counted; the requests of one object are sent one after
the other, in the order of the plan. Nothing is sent twice, except by the client when the server asked for it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable

from kubeshard.core.errors import ApiError, NotFound, Timeout, Unavailable
from kubeshard.core.objects import ObjectMeta
from kubeshard.runtime.clock import Clock
from kubeshard_lab.experiment.plan import Due, LoadPlan
from kubeshard_lab.experiment.recording import Request
from kubeshard_lab.experiment.tracker import Tracker, Written
from kubeshard_lab.experiment.validity import LATE


class Load:
    """`send` is a subject's, with its client."""

    def __init__(
        self,
        send: Callable[[Due], Awaitable[ObjectMeta | None]],
        tracker: Tracker,
        record: Callable[[Request], None],
        clock: Clock,
        parallel: int,
    ) -> None:
        self._send = send
        self._tracker = tracker
        self._record = record
        self._clock = clock
        self._parallel = parallel
        self._free = asyncio.Semaphore(parallel)
        self._began = self._began_wall = 0.0
        self._last_of: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._uids: dict[tuple[str, str], str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.due = 0
        """Requests that were due so far."""
        self.reached = 0
        """... and were answered with success."""
        self.late = 0
        """... and were sent late."""
        self.bound = 0
        """... and had to wait because of the bound."""
        self.lateness = 0.0
        """Seconds by which the last one was sent late."""

    @property
    def in_flight(self) -> int:
        return len(self._tasks)

    async def create_existing(self, plan: LoadPlan) -> None:
        """Creates the existing objects as fast as possible; nothing is recorded. Raises ApiError."""
        waiting = iter(plan.existing)

        async def create() -> None:
            for due in waiting:
                meta = await self._send(due)
                if meta is not None:
                    self._uids[due.namespace, due.name] = meta.uid

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(16, self._parallel)):
                    group.create_task(create(), name="creates existing objects")
        except ExceptionGroup as error:
            raise error.exceptions[0] from None

    def uid_of(self, due: Due) -> str | None:
        return self._uids.get((due.namespace, due.name))

    async def run(self, plan: LoadPlan) -> None:
        """Until all are answered. When it is cancelled, requests without an answer are recorded as such."""
        self._began, self._began_wall = self._clock.monotonic(), self._clock.wall()
        try:
            for due in plan:
                ahead = due.after - self._elapsed()
                await asyncio.sleep(max(0.0, ahead))
                self.due += 1
                if self._free.locked():
                    self.bound += 1
                await self._free.acquire()
                self._begin(due)
            while self._tasks:
                await asyncio.wait(self._tasks)
        finally:
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)

    def _begin(self, due: Due) -> None:
        of = (due.namespace, due.name)
        task = asyncio.create_task(self._do(due, self._last_of.get(of)), name=f"request {due.number}")
        self._last_of[of] = task
        self._tasks.add(task)
        task.add_done_callback(lambda task: self._ended(of, task))

    def _ended(self, of: tuple[str, str], task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._free.release()
        if self._last_of.get(of) is task:
            del self._last_of[of]

    async def _do(self, due: Due, before: asyncio.Task[None] | None) -> None:
        sent, answered, outcome = math.nan, math.nan, "unsent"
        try:
            if before is not None:
                await asyncio.wait([before])
            sent = self._elapsed()
            self.lateness = sent - due.after
            outcome = "unanswered"
            outcome, meta = await self._answer(due)
            if outcome != "unreachable":
                answered = self._elapsed()
            if outcome == "ok":
                self.reached += 1
                self._answered(due, meta, sent, answered)
        finally:
            if not sent - due.after <= LATE:
                self.late += 1
            at = self._began_wall
            self._record(
                Request(due.verb, due.namespace, due.name, at + due.after, at + sent, at + answered, outcome)
            )

    async def _answer(self, due: Due) -> tuple[str, ObjectMeta | None]:
        try:
            return "ok", await self._send(due)
        except NotFound as error:
            self._forget(due)
            return str(error.code), None
        except (Timeout, Unavailable) as error:
            return str(error.code or "unreachable"), None
        except ApiError as error:
            return str(error.code or error.reason or "unreachable"), None

    def _answered(self, due: Due, meta: ObjectMeta | None, sent: float, answered: float) -> None:
        if due.verb == "delete":
            self._forget(due)
        elif meta is not None:
            self._uids[due.namespace, due.name] = meta.uid
            at = self._began_wall
            self._tracker.wrote(
                Written(
                    due.namespace, due.name, meta.uid, meta.generation,
                    at + due.after, at + sent, at + answered,
                )
            )  # fmt: skip

    def _forget(self, due: Due) -> None:
        uid = self._uids.pop((due.namespace, due.name), None)
        if uid is not None:
            self._tracker.removed(uid)

    def _elapsed(self) -> float:
        return self._clock.monotonic() - self._began
