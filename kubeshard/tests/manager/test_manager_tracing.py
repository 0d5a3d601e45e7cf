"""A span per reconcile, with OpenTelemetry's own tracer."""

from __future__ import annotations

import asyncio

import pytest
from manager_bench import Item, ManagerBench, item
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kubeshard.controller import Context, Controller, Result, traced
from kubeshard.controller.reconciler import ReconcileFunction
from kubeshard.core import Terminal
from kubeshard_lab.virtual_time import settle, virtual_time


async def spans_of(reconcile: ReconcileFunction[Item]) -> tuple[ReadableSpan, ...]:
    """Returns the spans of the first run."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    controller = Controller(
        name="items",
        reconciler=reconcile,
        primary=Item,
        wrappers=(traced(provider.get_tracer("test")),),
    )
    manager = ManagerBench(item("a")).manager([controller])
    running = asyncio.create_task(manager.run())
    await settle()
    manager.stop()
    await asyncio.wait([running])
    return exporter.get_finished_spans()


@virtual_time
async def test_a_run_is_the_current_span_and_says_what_it_is_about() -> None:
    ids = []

    async def reconcile(ctx: Context, obj: Item) -> Result:
        ids.append(ctx.reconcile_id)
        assert trace.get_current_span().get_span_context().is_valid
        return Result(requeue_after=60.0)

    (span,) = await spans_of(reconcile)
    assert span.name == "reconcile Item"
    assert span.attributes is not None
    assert span.attributes["kubeshard.object"] == "ns/a"
    assert span.attributes["k8s.namespace.name"] == "ns"
    assert span.attributes["kubeshard.reconcile_id"] == ids[0]
    assert span.attributes["kubeshard.reasons"]
    assert span.attributes["kubeshard.requeue_after"] == 60.0
    assert span.status.is_ok or span.status.is_unset


@virtual_time
@pytest.mark.parametrize("error", [Terminal("no"), RuntimeError("no")])
async def test_an_exception_marks_the_span_as_failed_and_passes(error: Exception) -> None:
    async def reconcile(ctx: Context, obj: Item) -> None:
        raise error

    span = (await spans_of(reconcile))[0]
    assert not span.status.is_ok
    assert not span.status.is_unset
    assert span.events[0].name == "exception"
