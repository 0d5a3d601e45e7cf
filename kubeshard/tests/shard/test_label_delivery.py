"""Whom a shard by labels waits for before it begins, and what it says of it."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kubeshard.core.builtin import Lease, LeaseSpec
from kubeshard.core.errors import ApiError, Forbidden, Unavailable
from kubeshard.core.objects import ObjectMeta
from kubeshard.runtime.clock import SystemClock
from kubeshard.shard.label_delivery import LabelledShare
from kubeshard.sharding.assignment import BY_LABELS
from kubeshard.sharding.names import OWNED_RANGES_ANNOTATION
from kubeshard_lab.virtual_time import virtual_time


def held(**said: str) -> list[Lease]:
    """By shards of these names, which say this."""
    metas = [
        ObjectMeta(name=name, annotations={OWNED_RANGES_ANNOTATION: text}) for name, text in said.items()
    ]
    return [Lease(metadata=meta, spec=LeaseSpec(holder_identity=meta.name)) for meta in metas]


def share_of(list_all: Callable[..., Awaitable[list[Lease]]]) -> LabelledShare:
    """That of the shard a."""
    home: Any = SimpleNamespace(
        list_all=list_all, with_timeout=lambda _: home, world=SimpleNamespace(clock=SystemClock())
    )
    shard = SimpleNamespace(name="a", ring="r", namespace="ops", label="l", drain="d")
    metrics, resources = SimpleNamespace(acknowledged=None), SimpleNamespace(entries=())
    member: Any = SimpleNamespace(
        shard=shard, home=home, resources=resources, metrics=metrics, request_bound=5.0
    )
    return LabelledShare(member)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (held(b="uid/2:/1"), BY_LABELS),
        (held(b="", c=BY_LABELS), ""),
        (held(a="uid/2:0-1@1/1"), ""),
        (Unavailable("no"), ""),
        (Forbidden("no"), ""),
    ],
    ids=[
        "beside one by ranges",
        "beside its like",
        "after one of its name",
        "unanswered",
        "without the right",
    ],
)
@virtual_time
async def test_a_shard_says_first_that_it_waits_if_it_has_to_and_otherwise_keeps_what_it_had(
    answer: list[Lease] | ApiError, says: str
) -> None:
    """A sharder gives it nothing while it says so, and moves what it had."""

    async def list_all(*_: object, **__: object) -> list[Lease]:
        if isinstance(answer, ApiError):
            raise answer
        return answer

    assert await share_of(list_all).report() == says


@pytest.mark.parametrize(
    ("listed", "begins", "says"),
    [
        (held(a="", b=""), True, None),
        (held(a="", b="uid/2:/1"), False, BY_LABELS),
        (held(a=BY_LABELS, b=BY_LABELS), False, ""),
        (held(b=""), False, ""),
        (held(a="uid/2:0-1@1/1", b=""), False, ""),
    ],
    ids=[
        "beside its like",
        "beside one by ranges",
        "its Lease says that it waits",
        "its Lease was deleted",
        "its Lease is as its former process wrote it",
    ],
)
@virtual_time
async def test_a_shard_begins_when_a_list_shows_that_all_by_ranges_have_ended_and_see_that_it_does_not_wait(
    listed: list[Lease], begins: bool, says: str | None
) -> None:
    """One by ranges that begins later lists the Leases, too."""
    lists, said, again = [listed], list[str](), asyncio.Event()

    async def list_all(*_: object, **__: object) -> list[Lease]:
        if not lists:
            again.set()
            await asyncio.Event().wait()
        return lists.pop()

    lease: Any = SimpleNamespace(works_on=said.append)
    waits = asyncio.create_task(share_of(list_all)._after_ranges(lease))
    asking = asyncio.create_task(again.wait())
    await asyncio.wait([waits, asking], return_when=asyncio.FIRST_COMPLETED)
    assert waits.done() == begins
    assert said == ([] if says is None else [says])
    for task in (waits, asking):
        task.cancel()
