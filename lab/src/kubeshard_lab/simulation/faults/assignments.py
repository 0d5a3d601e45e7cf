"""Faults of rings that are sharded by ranges: of the assignment, and of API servers that do not know hash ranges."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from kubeshard.core.builtin import ConfigMap
from kubeshard.core.errors import ApiError
from kubeshard.core.patches import MergePatch
from kubeshard.runtime.transport import HttpRequest
from kubeshard.sharding.assignment import Assignment, Place
from kubeshard.sharding.names import assignment_name
from kubeshard_lab.simulation.deliveries import Ranged
from kubeshard_lab.simulation.faults.injection import RANGES, Injection, fault_by
from kubeshard_lab.simulation.processes import Process


def _stored(on: Injection) -> Assignment | None:
    assert isinstance(on.world.delivery, Ranged)
    return on.world.delivery.stored


async def _edit(on: Injection, data: Mapping[str, str | None]) -> None:
    with suppress(ApiError):
        await on.admin.patch(ConfigMap, assignment_name(on.world.ring), "ops", MergePatch({"data": data}))
        on.effects += 1


@fault_by(*RANGES)
async def assignment_deleted(on: Injection) -> None:
    """A user deletes the assignment."""
    with suppress(ApiError):
        await on.admin.delete(ConfigMap, assignment_name(on.world.ring), "ops")
        on.effects += 1


@fault_by(*RANGES)
async def assignment_restored(on: Injection) -> None:
    """A user puts the assignment back to what it was some time ago."""
    before = _stored(on)
    await on.lasts(5, 60)
    if before is not None and (now := _stored(on)) is not None:
        await _edit(on, {**dict.fromkeys(now.data()), **before.data()})


@fault_by(*RANGES)
async def assignment_truncated(on: Injection) -> None:
    """A user removes a line of the assignment, or adds one."""
    if (now := _stored(on)) is not None:
        key = now.buckets.key(on.rng.choice(now.groups).run)
        await _edit(
            on, on.rng.choice(({key: None}, {"note": "do not edit"}, {"by": "name"}, {"00-63": "x@9"}))
        )


@fault_by(*RANGES)
async def assignment_edited(on: Injection) -> None:
    """A user gives buckets to another shard, live or not, with or without a greater epoch."""
    if (now := _stored(on)) is not None:
        run, place = on.rng.choice(now.groups)
        shard = on.rng.choice([*sorted(on.workload.living("s")), "nobody"])
        epoch = place.epoch + on.rng.choice((0, 1, 100))
        await _edit(on, {now.buckets.key(run): str(Place(shard, "", epoch))})


def _follows(process: Process, request: HttpRequest) -> bool:
    """Whether a shard follows the assignment."""
    return request.method == "GET" and "/namespaces/ops/configmaps?" in request.target


@fault_by(*RANGES)
async def assignment_late(on: Injection) -> None:
    """The watches of the assignment deliver nothing for a while."""
    async with on.happening("assignment late"), on.quiet("assignment late", _follows):
        await on.lasts(3, 60)


@fault_by("uid", "namespace")
async def selectors_ignored(on: Injection) -> None:
    """API servers do not know hash ranges: all of them, or in turn with some that do."""
    reads, in_turn = on.world.server.reads, on.rng.random() < 0.5
    for _ in range(on.rng.randint(3, 20) if in_turn else 1):
        reads._shards = not reads._shards
        on.cut_streams(on.workload.live(""))
        on.effects += 1
        await on.lasts(0.2, 5 if in_turn else 60)
    reads._shards = True
