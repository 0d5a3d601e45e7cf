"""An owner under the hands of the garbage collector gets no dependents: what `kubectl delete --cascade=orphan` lets go
of would be deleted (operator-framework/operator-controller#2022).
"""

from __future__ import annotations

import asyncio
import logging

import msgspec
import pytest
from controller_bench import NOT_FOUND, Bench, Reconcile, Site, child, json_answer, site

from kubeshard.controller import Context
from kubeshard.controller.dependents import ensure
from kubeshard.core import ConfigMap, ObjectMeta
from kubeshard.core.owners import with_owner
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard_lab.virtual_time import virtual_time

CHILD = ConfigMap(metadata=ObjectMeta(name="child", namespace="ns"), data={"a": "b"})


def leaving(finalizer: str) -> Site:
    return site("a", deletion_timestamp="2026-01-01T00:00:00Z", finalizers=(finalizer,))


def reconciling(how: str, runs: list[str] | None = None) -> Reconcile:
    async def reconcile(ctx: Context, obj: Site) -> None:
        if runs is not None:
            runs.append(obj.metadata.name)
        if how == "ensure":
            await ensure(ctx, CHILD, owner=obj)
        else:
            await ctx.apply(CHILD, owner=obj, unowned="adopt")

    return reconcile


@pytest.mark.regression
@pytest.mark.parametrize("how", ["ensure", "apply"])
@pytest.mark.parametrize("finalizer", ["orphan", "foregroundDeletion"])
@pytest.mark.parametrize("exists", [False, True])
def test_what_the_garbage_collector_let_go_of_is_not_taken_back(
    how: str, finalizer: str, exists: bool, caplog: pytest.LogCaptureFixture
) -> None:
    runs: list[str] = []

    @virtual_time
    async def check() -> None:
        bench = Bench(reconciling(how, runs), applies=[ConfigMap])
        async with bench.running(leaving(finalizer), *([child("child")] if exists else [])):
            await asyncio.sleep(1)
        assert runs
        assert not [r for r in bench.server.requests if r.method != "GET"]

    with caplog.at_level(logging.WARNING):
        check()
    assert not caplog.records


OTHER = msgspec.structs.replace(site("a"), metadata=ObjectMeta(name="a", namespace="ns", uid="other"))


@pytest.mark.regression
@pytest.mark.parametrize("how", ["ensure", "apply"])
@pytest.mark.parametrize(
    "now", [leaving("orphan"), leaving("foregroundDeletion"), leaving("its-own"), OTHER, None, site("a")]
)
def test_an_owner_is_read_before_it_adopts_what_exists(
    how: str, now: Site | None, caplog: pytest.LogCaptureFixture
) -> None:
    """The child's event came before the owner's, so the cache still shows an owner that is not being deleted."""

    def answer(request: HttpRequest) -> HttpResponse:
        if "/sites/" in request.target and request.method == "GET":
            return NOT_FOUND if now is None else json_answer(now)
        return json_answer(site("a") if "/sites/" in request.target else child("child"))

    @virtual_time
    async def check() -> None:
        bench = Bench(reconciling(how), answer=answer, applies=[ConfigMap])
        async with bench.running(site("a"), child("child")):
            await asyncio.sleep(1)
        written = [
            r.target for r in bench.server.requests if r.method != "GET" and "/configmaps/" in r.target
        ]
        assert bool(written) is (now == site("a"))

    with caplog.at_level(logging.WARNING):
        check()
    assert now == site("a") or not caplog.records


@pytest.mark.regression
@pytest.mark.parametrize("how", ["ensure", "apply"])
def test_what_an_owner_controls_is_updated_without_reading_it_even_while_it_is_deleted_in_the_foreground(
    how: str,
) -> None:
    """As a finalizer may have to, which scales its children down."""
    owner = leaving("foregroundDeletion")
    owned = ConfigMap(metadata=with_owner(child("child").metadata, owner, controller=True))

    def answer(request: HttpRequest) -> HttpResponse:
        return json_answer(owner if "/sites/" in request.target else owned)

    @virtual_time
    async def check() -> None:
        bench = Bench(reconciling(how), answer=answer, applies=[ConfigMap])
        async with bench.running(owner, owned):
            await asyncio.sleep(1)
        requests = bench.server.requests
        assert [r for r in requests if r.method == "PATCH" and "/configmaps/" in r.target]
        assert not [r for r in requests if r.method == "GET" and "/sites/" in r.target]

    check()
