"""Reports the outcome of an object's runs in a condition of its status (`Controller.error_condition`).

| the run | the condition |
|---|---|
| succeeded, and stated the condition itself (`ctx.status`) | as stated |
| succeeded | `True`, reason `Reconciled` |
| failed, crashed, or timed out | `False`, reason: the class of the error, message: its text |
| the same, and the object is given up | `False`, reason `GaveUp`, message: the class of the error and its text |
| has a cleanup in progress (`Finalizer`) | `False`, reason `Finalizing`; the error if the cleanup raised |
| did not get to the reconciler, because a wrapper kept the object back | unchanged |
| had stale reads, or a kind is not served | unchanged: that is normal and transient |
| had stale reads, STUBBORN times in a row | `False`, like a failure |

Failed means all that `outcomes` calls so, also what is only noticed when the reconciler has returned: a forgotten
`await`, a wrong result, a deadline whose cancellation it swallowed. The next success removes an error from the status.
It is opt-in, because it needs a status with conditions and permission to write it.

Guaranteed: the condition is written with the same field manager as `ctx.status`, together with what that stated last
and the API server accepted; the report of a failure needs nothing of what may have failed: neither the values that the
run stated, nor a cache that is up to date, nor an object that fits its class; a failing report does not change how the
error itself is handled, and leads to an event instead; a repeated error sends nothing, and one whose text differs each
time is written at most once a minute, since every write of the status may trigger the controller; two processes of
which only one fails do not fight over it (`kubeshard.controller.contested`). Not guaranteed: that
the report of an error is written. It has one second, is not retried by itself, and a run that was cancelled from
outside may no longer write.

RBAC: `get` on the resource, `patch` on `<resource>/status`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from kubeshard.controller.event_series import reference
from kubeshard.controller.events import EventRecorder
from kubeshard.controller.outcomes import Ending, leaves, of_error, out_of_time, slip_of
from kubeshard.controller.reconciler import Result, RunFn
from kubeshard.controller.run import Report, Run
from kubeshard.controller.status import apply_status
from kubeshard.core.conditions import Condition, for_people, get_condition, set_condition
from kubeshard.core.desired_status import conditions_of
from kubeshard.core.encoding import UNREADABLE, decode, read
from kubeshard.core.errors import NotFound, NotOurs
from kubeshard.core.managed_fields import owned_fields
from kubeshard.core.objects import Form, Key, KubeObject, metadata_only
from kubeshard.core.times import second_time
from kubeshard.runtime.logs import Logger, text_of
from kubeshard.runtime.loop import apart

LONGEST = 1024
"""The maximum length of an error's text in the condition."""

AGAIN = 60.0
"""Seconds before a condition in which only the message has changed is written again."""

GAVE_UP = "GaveUp"
"""The reason of the condition, and of the event, of an object that is given up."""

LAST_WORDS = 1.0
"""Seconds in which the report of a failure must be written."""

STUBBORN = 8
"""Stale runs in a row, about half a minute of them, that are no longer transient."""


class ErrorCondition:
    """The condition of one controller. `retries`: how many runs in a row a key was retried with backoff."""

    def __init__(self, type: str, events: EventRecorder, log: Logger, retries: Callable[[Key], int]) -> None:
        self._type = type
        self._retries = retries
        self._events = events
        self._log = log
        self._reported: dict[Key, float] = {}
        """When the current failure of an object was reported (monotonic seconds)."""

    def around(self, inner: RunFn) -> RunFn:
        """The run, with the condition written after it."""

        async def reconcile(run: Run, obj: KubeObject | None) -> Result | None:
            if obj is None:
                self._reported.pop(run.key, None)
                return await inner(run, None)
            run.report = Report(self._type)
            failure: BaseException | None
            told = True
            try:
                result = await inner(run, obj)
                fine = result is None or type(result) is Result
                if fine and not run.activities.forgotten and not run.activities.out_of_time:
                    told = False
                    await self._report_success(run, obj)
                    return result
                failure = slip_of(run, result)
            except (KeyboardInterrupt, GeneratorExit):
                raise
            except BaseException as error:
                if (failure := self._failure(run, error)) is not None:
                    await self._report_failure(run, obj, failure, by_event=not told and failure is error)
                raise
            if failure is not None:
                await self._report_failure(run, obj, failure)
            return result

        return reconcile

    def _failure(self, run: Run, error: BaseException) -> BaseException | None:
        """What is to be reported of a run that raised; None for nothing."""
        task, due = asyncio.current_task(), run.activities.out_of_time
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > due:
            return None  # it has lost the right to act
        if due:
            return out_of_time(run.activities.timeout)
        outcome = of_error(error)
        if outcome.failed:
            return error
        stale = outcome.ending is Ending.STALE and not any(
            isinstance(leaf, NotOurs) for leaf in leaves(error)
        )
        return error if stale and self._retries(run.key) + 1 >= STUBBORN else None

    def _condition(self, run: Run, obj: KubeObject, status: str, reason: str, message: str = "") -> Condition:
        generation = obj.metadata.generation
        return Condition(
            type=self._type, status=status, reason=reason, message=message, observed_generation=generation
        )

    async def _report_success(self, run: Run, obj: KubeObject) -> None:
        report = run.report
        if run.unfinished:
            condition = self._condition(run, obj, "False", "Finalizing", run.unfinished)
        elif obj.metadata.deleting or not run.reached:
            return
        else:
            self._reported.pop(run.key, None)
            if report is not None and report.stated:
                return
            condition = self._condition(run, obj, "True", "Reconciled")
        live: Any = await run.get(run.form, obj.metadata.name, obj.metadata.namespace or None)
        if live is None:  # gone, or it has left the scope of the cache
            await self._write_live(run, obj, condition)
            return
        if live.metadata.uid != obj.metadata.uid:
            return
        former = get_condition(conditions_of(live.status), self._type)
        if self._is_reported(run, former, condition):
            return
        if report is not None and report.said is not None:
            await self._write(run, run.form, live, msgspec.to_builtins(report.said), former, condition)
        else:
            await self._write_live(run, obj, condition)

    async def _report_failure(
        self, run: Run, obj: KubeObject, error: BaseException, *, by_event: bool = False
    ) -> None:
        worst = max(leaves(error), key=lambda leaf: of_error(leaf).severity)
        reason = _word(type(worst).__name__)
        text = ": ".join(filter(None, (run.unfinished, text_of(worst))))
        if run.last_try and of_error(error).retried:
            reason, text = GAVE_UP, f"{reason}: {text}"
        condition = self._condition(run, obj, "False", reason, for_people(text, LONGEST))
        if not by_event:
            try:
                await apart(self._write_soon, run, obj, condition)
            except NotOurs:
                return
            except Exception as second:
                self._log.warning("Could not report the failure in the object's status", error=second)
            else:
                return
        self._events.event(reference(run.form.kind, obj.metadata), "Warning", reason, text)

    async def _write_soon(self, run: Run, obj: KubeObject, condition: Condition) -> None:
        async with asyncio.timeout(LAST_WORDS):
            if run.undecodable is None and not run.writes:
                live: Any = run.reader.informer(run.form).store.get(obj.key)
                have = () if live is None else conditions_of(live.status)
                if self._is_reported(run, get_condition(have, self._type), condition):
                    return
            await self._write_live(run, obj, condition)

    async def _write_live(self, run: Run, obj: KubeObject, condition: Condition) -> None:
        """Writes the condition beside what the controller states according to the API server, however odd the rest of
        the object is.
        """
        form: Form[Any] = run.form if run.undecodable is None else metadata_only(run.form.kind)
        meta = obj.metadata
        try:
            body = (await run.client.raw("GET", form.kind.path(meta.namespace, meta.name))).body
        except NotFound:
            return
        live, document = decode(form, body), msgspec.json.decode(body)
        if live.metadata.uid != meta.uid:
            return
        former = _condition_in(document, self._type)
        if self._is_reported(run, former, condition):
            return
        if run.report is not None and run.report.said is not None:
            said = msgspec.to_builtins(run.report.said)
        else:
            said = owned_fields(document, run.client.field_manager, "status").get("status") or {}
        await self._write(run, form, live, said, former, condition)

    async def _write(
        self,
        run: Run,
        form: Form[Any],
        live: KubeObject,
        said: Mapping[str, Any],
        former: Condition | None,
        condition: Condition,
    ) -> None:
        now = second_time(run.clock.wall())
        (condition,) = set_condition((former,) if former else (), condition, now)
        others = [item for item in said.get("conditions") or () if item.get("type") != self._type]
        said = {**said, "conditions": [*others, msgspec.to_builtins(condition)]}
        repair = await run.contests.check(
            run.client,
            live,
            {"status": {"conditions": self._type}},
            by=(run.key, self._type),
            wish=(condition.status, condition.reason, condition.observed_generation),
        )
        await apply_status(run, form, live, said)
        run.contests.wrote(repair)
        if condition.status == "False":
            self._reported[run.key] = run.clock.monotonic()

    def _is_reported(self, run: Run, have: Condition | None, condition: Condition) -> bool:
        """Whether there is nothing to write."""
        if have is None:
            return False
        now = msgspec.structs.replace(condition, last_transition_time=have.last_transition_time)
        if have == now:
            return True
        if condition.status == "True" or have != msgspec.structs.replace(now, message=have.message):
            return False
        reported = self._reported.get(run.key)
        return reported is not None and run.clock.monotonic() - reported < AGAIN


def _condition_in(document: Any, type: str) -> Condition | None:
    """The condition in an object as it is on the wire, whatever else that has there."""
    status = document.get("status")
    found = status.get("conditions") if isinstance(status, dict) else None
    for item in found if isinstance(found, list) else ():
        if isinstance(item, dict) and item.get("type") == type:
            try:
                condition: Condition = read(Condition, msgspec.json.encode(item))
            except UNREADABLE:
                return None
            return condition
    return None


def _word(name: str) -> str:
    """The name of a class as the reason of a condition."""
    return "".join(each for each in name if each.isascii() and each.isalnum()).lstrip("0123456789") or "Error"
