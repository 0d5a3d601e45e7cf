"""Which requests `ensure` sends in a run that reads from the API server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from controller_bench import NOT_FOUND, Bench, Site, child, json_answer, site

from kubeshard.controller import Context
from kubeshard.controller.context import run_of, with_run
from kubeshard.controller.dependents import EnsureResult, ensure
from kubeshard.core import ConfigMap, KubeObject, MergePatch, ObjectMeta
from kubeshard.core.owners import with_owner
from kubeshard.core.times import micro_time
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard_lab.virtual_time import VirtualClock, virtual_time

TAKEN = HttpResponse(
    409, {"content-type": "application/json"}, b'{"kind":"Status","reason":"AlreadyExists","code":409}'
)

OWNED = ConfigMap(metadata=with_owner(child("c").metadata, site("a"), controller=True))


class Server:
    """Has one ConfigMap of the Site's, or none."""

    def __init__(self, *, has_child: bool) -> None:
        self.has_child = has_child
        self.asked: list[str] = []

    def __call__(self, request: HttpRequest) -> HttpResponse:
        self.asked.append(request.method)
        if request.method == "POST":
            if self.has_child:
                return TAKEN
            self.has_child = True
        return json_answer(OWNED) if self.has_child else NOT_FOUND


async def asked_for(
    server: Server, age: float, act: Callable[[Context, Site], Awaitable[None]], *, live: bool = True
) -> list[str]:
    async def reconcile(ctx: Context, obj: Site) -> None:
        reading = with_run(ctx, run_of(ctx).reading_live()) if live else ctx
        await act(reading, obj)

    born = micro_time(VirtualClock().wall() - age)
    async with Bench(reconcile, owns=[ConfigMap], answer=server).running(
        site("a", creation_timestamp=born)
    ) as bench:
        await asyncio.sleep(5)
        assert bench.recorded.labels == ["success"]
    return server.asked


async def once(ctx: Context, obj: Site, expected: EnsureResult | None = None) -> None:
    desired = ConfigMap(metadata=ObjectMeta(name="c", namespace="ns", labels={"wanted": "yes"}))
    _, outcome = await ensure(ctx, desired, owner=obj)
    assert expected in (None, outcome)


@virtual_time
async def test_the_dependents_of_a_new_object_are_created_without_being_read_before() -> None:
    assert await asked_for(Server(has_child=False), 5, once) == ["POST"]


@virtual_time
async def test_what_a_former_shard_created_for_a_young_object_is_read_and_patched_and_not_created_twice() -> (
    None
):
    assert await asked_for(Server(has_child=True), 5, once) == ["POST", "GET", "PATCH"]


@virtual_time
async def test_the_dependents_of_an_old_object_are_read_first() -> None:
    assert await asked_for(Server(has_child=True), 3600, once) == ["GET", "PATCH"]


@virtual_time
async def test_an_object_without_a_readable_age_counts_as_old() -> None:
    async def ageless(ctx: Context, obj: Site) -> None:
        await once(ctx, site("a"))

    assert await asked_for(Server(has_child=True), 5, ageless) == ["GET", "PATCH"]


@virtual_time
async def test_a_run_that_reads_from_the_cache_creates_what_the_cache_does_not_have() -> None:
    assert await asked_for(Server(has_child=False), 3600, once, live=False) == ["POST"]


@virtual_time
async def test_what_the_run_has_just_read_is_not_read_again() -> None:
    async def twice(ctx: Context, obj: Site) -> None:
        await ctx.get(ConfigMap, "c")
        await once(ctx, obj)

    assert await asked_for(Server(has_child=True), 3600, twice) == ["GET", "PATCH"]
    assert await asked_for(Server(has_child=False), 3600, twice) == ["GET", "POST"]


@virtual_time
@pytest.mark.parametrize("between", ["a write", "a second"])
async def test_what_the_run_read_before_a_write_or_a_second_ago_is_read_again(between: str) -> None:
    async def later(ctx: Context, obj: Site) -> None:
        await ctx.get(ConfigMap, "c")
        if between == "a write":
            await ctx.client.patch(ConfigMap, "c", "ns", MergePatch({}))
        else:
            await asyncio.sleep(1.5)
        await once(ctx, obj)

    asked = await asked_for(Server(has_child=True), 3600, later)
    assert [each for each in asked if each != "PATCH"] == ["GET", "GET"]


@virtual_time
async def test_a_get_is_always_a_read() -> None:
    async def twice(ctx: Context, obj: Site) -> None:
        found: list[KubeObject | None] = [await ctx.get(ConfigMap, "c") for _ in range(2)]
        assert None not in found

    assert await asked_for(Server(has_child=True), 3600, twice) == ["GET", "GET"]
