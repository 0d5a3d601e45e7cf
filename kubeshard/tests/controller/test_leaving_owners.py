"""An owner under the hands of the garbage collector gets no dependents: what `kubectl delete --cascade=orphan` lets go
of would be deleted (operator-framework/operator-controller#2022).
"""

from __future__ import annotations

import asyncio
import logging

import pytest
from controller_bench import Bench, Site, child, site

from kubeshard.controller import Context
from kubeshard.controller.dependents import ensure
from kubeshard.core import ConfigMap, ObjectMeta
from kubeshard_lab.virtual_time import virtual_time

CHILD = ConfigMap(metadata=ObjectMeta(name="child", namespace="ns"), data={"a": "b"})


@pytest.mark.regression
@pytest.mark.parametrize("how", ["ensure", "apply"])
@pytest.mark.parametrize("finalizer", ["orphan", "foregroundDeletion"])
@pytest.mark.parametrize("exists", [False, True])
def test_what_the_garbage_collector_let_go_of_is_not_taken_back(
    how: str, finalizer: str, exists: bool, caplog: pytest.LogCaptureFixture
) -> None:
    runs: list[str] = []

    async def reconcile(ctx: Context, obj: Site) -> None:
        runs.append(obj.metadata.name)
        if how == "ensure":
            await ensure(ctx, CHILD, owner=obj)
        else:
            await ctx.apply(CHILD, owner=obj)

    @virtual_time
    async def check() -> None:
        bench = Bench(reconcile, owns=[ConfigMap])
        leaving = site("a", deletion_timestamp="2026-01-01T00:00:00Z", finalizers=(finalizer,))
        async with bench.running(leaving, *([child("child")] if exists else [])):
            await asyncio.sleep(1)
        assert runs
        assert not [r for r in bench.server.requests if r.method != "GET"]

    with caplog.at_level(logging.WARNING):
        check()
    assert not caplog.records
