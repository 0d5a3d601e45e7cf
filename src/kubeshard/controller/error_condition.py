"""Reports the outcome of an object's runs in a condition of its status (`Controller.error_condition`).

| the run | the condition |
|---|---|
| succeeded, and stated the condition itself (`ctx.status`) | as stated |
| succeeded | `True`, reason `Reconciled` |
| failed, crashed, or timed out | `False`, reason: the class of the error, message: its text |
| the same, and the object is given up | `False`, reason `GaveUp`, message: the class of the error and its text |
| has a cleanup in progress (`Finalizer`) | `False`, reason `Finalizing`; the error if the cleanup raised |
| had stale reads, or a kind is not served | unchanged: that is normal and transient |

The next success removes an error from the status. It is opt-in, because it needs a status with conditions and
permission to write it.

Guaranteed: the condition is written with the same field manager as `ctx.status`, together with what that stated last; a
failing report does not change how the error itself is handled; a repeated error sends nothing, and one whose text
differs each time is written at most once a minute, since every write of the status may trigger the controller. Not
guaranteed: that the report of an error is written. It has one second, is not retried by itself, and a run that was
cancelled from outside may no longer write.

RBAC: `get` on the resource, `patch` on `<resource>/status`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from kubeshard.controller.context import Context, run_of
from kubeshard.controller.outcomes import leaves, of_error
from kubeshard.controller.reconciler import ReconcileFn, Result
from kubeshard.controller.run import Report, Run
from kubeshard.controller.status import apply_status
from kubeshard.core.conditions import Condition, get_condition, set_condition, shortened
from kubeshard.core.desired_status import conditions_of
from kubeshard.core.encoding import decode
from kubeshard.core.errors import NotFound
from kubeshard.core.managed_fields import owned_fields
from kubeshard.core.objects import Key, KubeObject
from kubeshard.core.times import second_time
from kubeshard.runtime.loop import apart

LONGEST = 1024
"""The maximum length of an error's text in the condition."""

AGAIN = 60.0
"""Seconds before a condition in which only the message has changed is written again."""

GAVE_UP = "GaveUp"
"""The reason of the condition, and of the event, of an object that is given up."""

LAST_WORDS = 1.0
"""Seconds in which a run that timed out may report it."""


class ErrorCondition:
    """The condition of one controller."""

    def __init__(self, type: str, timeout: float) -> None:
        self._type = type
        self._timeout = timeout
        self._reported: dict[Key, float] = {}
        """When the current failure of an object was reported (monotonic seconds)."""

    def around(self, inner: ReconcileFn) -> ReconcileFn:
        """The reconciler, with the condition written after each run."""

        async def reconcile(ctx: Context, obj: KubeObject | None) -> Result | None:
            if obj is None:
                self._reported.pop(ctx.key, None)
                return await inner(ctx, None)
            run = run_of(ctx)
            report = run.report = Report(self._type)
            try:
                result = await inner(ctx, obj)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                out_of_time = run.activities.out_of_time
                if out_of_time and task is not None and task.cancelling() == out_of_time:
                    timed_out = TimeoutError(f"not done within {self._timeout:g} s")
                    await self._report_failure(ctx, obj, timed_out)
                raise
            except Exception as error:
                if of_error(error).failed:
                    await self._report_failure(ctx, obj, error)
                raise
            if run.unfinished:
                await self._write(run, obj, self._condition("False", "Finalizing", run.unfinished))
            elif not obj.metadata.deleting:
                self._reported.pop(ctx.key, None)
                if not report.stated:
                    await self._write(run, obj, self._condition("True", "Reconciled"))
            return result

        return reconcile

    def _condition(self, status: str, reason: str, message: str = "") -> Condition:
        return Condition(type=self._type, status=status, reason=reason, message=message)

    async def _report_failure(self, ctx: Context, obj: KubeObject, error: BaseException) -> None:
        run = run_of(ctx)
        worst = max(leaves(error), key=lambda leaf: of_error(leaf).severity)
        reason = "".join(filter(str.isalnum, type(worst).__name__.lstrip("_"))) or "Error"
        text = ": ".join(filter(None, (run.unfinished, str(worst))))
        if run.last_try and of_error(error).retried:
            reason, text = GAVE_UP, f"{reason}: {text}"
        condition = self._condition("False", reason, shortened(text, LONGEST))
        try:
            await apart(self._write_soon, run, obj, condition)
        except Exception as second:
            ctx.log.warning("Could not report the failure in the object's status", error=second)

    async def _write_soon(self, run: Run, obj: KubeObject, condition: Condition) -> None:
        async with asyncio.timeout(LAST_WORDS):
            await self._write(run, obj, condition)

    async def _write(self, run: Run, obj: KubeObject, condition: Condition) -> None:
        live: Any = await run.get(run.form, obj.metadata.name, obj.metadata.namespace or None)
        if live is None or live.metadata.uid != obj.metadata.uid:
            return
        condition = msgspec.structs.replace(condition, observed_generation=obj.metadata.generation)
        if self._is_reported(run, get_condition(conditions_of(live.status), self._type), condition):
            return
        said, live = await self._stated(run, live)
        if live is None:
            return
        now = second_time(run.clock.wall())
        former = get_condition(conditions_of(live.status), self._type)
        (condition,) = set_condition((former,) if former else (), condition, now)
        others = [item for item in said.get("conditions") or () if item.get("type") != self._type]
        said = {**said, "conditions": [*others, msgspec.to_builtins(condition)]}
        await apply_status(run, run.form, live, said)
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

    async def _stated(self, run: Run, live: Any) -> tuple[dict[str, Any], Any]:
        """Everything that the controller currently states in the status, and the object; None if that is gone."""
        if run.report is not None and run.report.said is not None:
            return msgspec.to_builtins(run.report.said), live
        path = run.form.kind.path(live.metadata.namespace, live.metadata.name)
        try:
            body = (await run.client.raw("GET", path)).body
        except NotFound:
            return {}, None
        found = owned_fields(msgspec.json.decode(body), run.client.field_manager, "status")
        return found.get("status") or {}, decode(run.form, body)
