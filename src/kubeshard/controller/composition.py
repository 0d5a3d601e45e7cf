"""One run of a controller, put together: guards around wrappers around the reconciler."""

from __future__ import annotations

from collections.abc import Callable
from inspect import isawaitable
from typing import Any

from kubeshard.controller.context import Context
from kubeshard.controller.controller import Controller
from kubeshard.controller.reconciler import BlockingReconciler, ReconcileFn
from kubeshard.controller.request import Result
from kubeshard.core.objects import KubeObject


def composed(controller: Controller[Any], check: Callable[[], None]) -> ReconcileFn:
    """The reconciler inside its wrappers and guards, behind the check."""
    reconciler = controller.reconciler

    async def reconcile(ctx: Context, obj: KubeObject | None) -> Result | None:
        check()
        if isinstance(reconciler, BlockingReconciler):
            if obj is None:
                return await ctx.run_blocking(reconciler.gone, ctx, ctx.key)
            return await ctx.run_blocking(reconciler.reconcile, ctx, obj)
        run = reconciler.gone(ctx, ctx.key) if obj is None else reconciler.reconcile(ctx, obj)
        if not isawaitable(run):
            raise TypeError(
                f"{type(reconciler).__name__}: declare reconcile and gone with `async def`, "
                "or derive from BlockingReconciler"
            )
        return await run

    whole: ReconcileFn = reconcile
    for wrapper in reversed(controller.wrappers):
        whole = wrapper(whole)
    whole = _decoded(whole)
    for guard in reversed(controller.guards):
        whole = guard.wrapper(whole)
    return whole


def _decoded(inner: ReconcileFn) -> ReconcileFn:
    """Lets nothing pass but objects of the controller's class."""

    async def reconcile(ctx: Context, obj: KubeObject | None) -> Result | None:
        if ctx.undecodable is not None:
            raise ctx.undecodable
        return await inner(ctx, obj)

    return reconcile
