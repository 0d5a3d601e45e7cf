"""An owner that cannot own the object is a mistake that no retry fixes: it is reported once per change."""

from __future__ import annotations

import asyncio
import logging

import pytest
from controller_bench import Bench, Site, site

from kubeshard.controller import Context
from kubeshard.controller.dependents import ensure
from kubeshard.core import ConfigMap, KubeObject, Namespace, ObjectMeta
from kubeshard_lab.virtual_time import virtual_time

ILLEGAL: list[tuple[KubeObject, str]] = [
    (Namespace(metadata=ObjectMeta(name="child")), "which has no namespace"),
    (ConfigMap(metadata=ObjectMeta(name="child", namespace="elsewhere")), "is in namespace 'elsewhere'"),
]


@pytest.mark.regression
@pytest.mark.parametrize(("child", "problem"), ILLEGAL)
def test_an_illegal_owner_is_reported_once_and_not_retried(
    child: KubeObject, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    runs: list[float] = []

    async def reconcile(ctx: Context, obj: Site) -> None:
        runs.append(ctx.clock.monotonic())
        await ensure(ctx, child, owner=obj)

    @virtual_time
    async def check() -> None:
        bench = Bench(reconcile, owns=[type(child)])
        async with bench.running(site("a")):
            await asyncio.sleep(1000)
            assert len(runs) == 1
            await bench.put(site("a", 2))
            assert len(runs) == 2

    with caplog.at_level(logging.WARNING):
        check()
    assert len(caplog.records) == 2
    assert not any(record.exc_info for record in caplog.records)
    assert all(problem in str(vars(record)) for record in caplog.records)
    assert all("An owner is cluster-scoped or in the namespace" in str(vars(r)) for r in caplog.records)
