"""A span per reconcile, for programs that trace with OpenTelemetry.

    from opentelemetry import trace

    controller = Controller(..., wrappers=(traced(trace.get_tracer("my-operator")),))

OpenTelemetry is not imported here: any tracer with a method `start_as_current_span` works. The client's requests
have no spans of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from kubeshard.controller.context import Context
from kubeshard.controller.reconciler import ReconcileFn, ReconcilerWrapper, Result


class Tracer(Protocol):
    """`opentelemetry.trace.Tracer` is one."""

    def start_as_current_span(
        self, name: str, *, attributes: Mapping[str, Any]
    ) -> AbstractContextManager[Any]: ...


def traced(tracer: Tracer) -> ReconcilerWrapper:
    """Makes a span named `reconcile KIND` current for each whole run, with the attributes `k8s.namespace.name`,
    `kubeshard.object`, `kubeshard.reconcile_id`, which is also in the log lines of the run, and
    `kubeshard.reasons`. The tracer marks the span as failed on an exception; `kubeshard.requeue_after` is in
    seconds.

    Not guaranteed: spans for runs that did not start because of the shard's Lease or a missing kind.
    """

    def wrapper(inner: ReconcileFn) -> ReconcileFn:
        async def reconcile(ctx: Context, obj: Any) -> Result | None:
            attributes = {
                "k8s.namespace.name": ctx.key.namespace,
                "kubeshard.object": str(ctx.key),
                "kubeshard.reconcile_id": ctx.reconcile_id,
                "kubeshard.reasons": ctx.reasons,
            }
            with tracer.start_as_current_span(
                f"reconcile {ctx.form.kind.kind}", attributes=attributes
            ) as span:
                result = await inner(ctx, obj)
                if result is not None and result.requeue_after:
                    span.set_attribute("kubeshard.requeue_after", result.requeue_after)
                return result

        return reconcile

    return wrapper
