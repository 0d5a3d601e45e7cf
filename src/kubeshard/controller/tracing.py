"""A span per reconcile, for programs that trace with OpenTelemetry.

    from opentelemetry import trace

    controller = Controller(..., wrappers=(traced(trace.get_tracer("my-operator")),))

Nothing here imports OpenTelemetry: any tracer with its method `start_as_current_span` will do. The client's requests
have no spans of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from kubeshard.controller.context import Context
from kubeshard.controller.reconciler import ReconcileFn, ReconcilerWrapper, Result


class Span(Protocol):
    def set_attribute(self, key: str, value: Any, /) -> Any: ...


class Tracer(Protocol):
    """`opentelemetry.trace.Tracer` is one."""

    def start_as_current_span(
        self, name: str, *, attributes: Mapping[str, Any]
    ) -> AbstractContextManager[Any]: ...


def traced(tracer: Tracer) -> ReconcilerWrapper:
    """Each run is the current span from its first line to its last, named `reconcile KIND`, with the attributes
    `k8s.namespace.name`, `kubeshard.object`, `kubeshard.reconcile_id`, which the log lines of the run carry, too, and
    `kubeshard.reasons`. An exception marks it as failed, as the tracer does it; `kubeshard.requeue_after` is in
    seconds.

    Not guaranteed: spans for runs that the shard's lease or a missing kind kept from beginning.
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
