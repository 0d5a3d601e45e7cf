"""Assembles one run of a controller: guards around wrappers around the reconciler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from types import CoroutineType
from typing import Any

from kubeshard.controller.context import Context, Services
from kubeshard.controller.controller import Controller
from kubeshard.controller.daemons import Daemons
from kubeshard.controller.error_condition import Reporting
from kubeshard.controller.finalizers import finalized
from kubeshard.controller.reconciler import (
    BlockingReconciler,
    ReconcileFn,
    ReconcileFunction,
    Reconciler,
    Result,
    RunFn,
)
from kubeshard.controller.run import Run
from kubeshard.core.objects import KubeObject


def composed(
    controller: Controller[Any], check: Callable[[], None], daemons: Daemons, services: Services
) -> RunFn:
    """The reconciler behind its finalizers, inside its wrappers and guards, behind the check. Ending daemons does not
    wait for the check.
    """
    run = daemons.beginning(_run_of(controller.reconciler))
    if controller.finalizers:
        run = finalized(controller.finalizers, run)
    if controller.error_condition:
        run = Reporting(controller.error_condition, controller.reconcile_timeout).around(run)

    def checked(ctx: Context, obj: KubeObject | None) -> Awaitable[Result | None]:
        check()
        return run(ctx, obj)

    whole = daemons.ending(checked)
    for wrapper in reversed(controller.wrappers):
        whole = wrapper(whole)
    guarded = _decoded(whole, services)
    for guard in reversed(controller.guards):
        guarded = guard.wrapper(guarded)
    return guarded


def _run_of(
    reconciler: Reconciler[Any] | BlockingReconciler[Any] | ReconcileFunction[Any],
) -> ReconcileFn:
    if isinstance(reconciler, BlockingReconciler):
        return _in_a_thread(reconciler)
    if not hasattr(reconciler, "reconcile"):
        return _while_there(reconciler)
    methods: Any = reconciler

    def run(ctx: Context, obj: KubeObject | None) -> Awaitable[Result | None]:
        running: Any = methods.gone(ctx, ctx.key) if obj is None else methods.reconcile(ctx, obj)
        if type(running) is not CoroutineType and not isawaitable(running):
            raise TypeError(
                f"{type(methods).__name__}: declare reconcile and gone with `async def`, "
                "or derive from BlockingReconciler"
            )
        return running

    return run


def _in_a_thread(reconciler: BlockingReconciler[Any]) -> ReconcileFn:
    async def run(ctx: Context, obj: KubeObject | None) -> Result | None:
        if obj is None:
            return await ctx.run_blocking(reconciler.gone, ctx, ctx.key)
        return await ctx.run_blocking(reconciler.reconcile, ctx, obj)

    return run


def _while_there(function: ReconcileFunction[Any]) -> ReconcileFn:
    """A function keeps no state about an object, so it is not called when the object is gone."""

    async def run(ctx: Context, obj: KubeObject | None) -> Result | None:
        return None if obj is None else await function(ctx, obj)

    return run


def _decoded(inner: ReconcileFn, services: Services) -> RunFn:
    """Lets only objects of the controller's class pass."""

    def reconcile(run: Run, obj: KubeObject | None) -> Awaitable[Result | None]:
        if run.undecodable is not None:
            raise run.undecodable
        return inner(Context(run, services), obj)

    return reconcile
