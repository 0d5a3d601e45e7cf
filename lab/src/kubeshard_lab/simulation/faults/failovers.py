"""A shard dies, or seems to, and several things go wrong before others have its objects."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack, suppress

from kubeshard.core import partial_kinds
from kubeshard.core.builtin import Lease
from kubeshard.core.errors import ApiError
from kubeshard.core.patches import MergePatch
from kubeshard.core.times import second_time
from kubeshard.runtime.pod import Pod
from kubeshard.runtime.transport import HttpRequest
from kubeshard.sharding.names import STRICT_HANDOVER_ANNOTATION
from kubeshard_lab.simulation.faults.injection import (
    RANGES,
    Applies,
    Injection,
    Rule,
    aimed,
    fault,
    fault_by,
    one_at_a_time,
)
from kubeshard_lab.simulation.faults.server import restored
from kubeshard_lab.simulation.faults.users import created_again, recreated
from kubeshard_lab.simulation.processes import Process, is_sharders, name_of
from kubeshard_lab.simulation.properties import LATE_TAKE_OVER, MOVED, NEGLECTED
from kubeshard_lab.simulation.workload import Things


def _moves(process: Process, request: HttpRequest) -> bool:
    """Whether a sharder writes an object, or the assignment."""
    path = request.target.partition("?")[0]
    written = "/things/" in path or "/configmaps/" in path
    return written and request.method == "PATCH" and is_sharders(process, request)


def _renews(process: Process, request: HttpRequest) -> bool:
    path = request.target.partition("?")[0]
    own = path.endswith((f"/leases/{name_of(process.name)}", "/namespaces/ops/leases"))
    return own and request.method != "GET" and not is_sharders(process, request)


def _writes_lease_of(name: str) -> Applies:
    """Whether a process of this shard writes, or reads, its Lease."""

    def applies(process: Process, request: HttpRequest) -> bool:
        return name_of(process.name) == name and request.target.partition("?")[0].endswith(f"/leases/{name}")

    return applies


async def _failover(on: Injection, *, hidden: bool, lands: bool) -> None:
    """A shard dies, and is not back before a sharder has taken its Lease and tried to move its objects; these moves
    fail until the shard is back. `hidden`: from then on the sharder no longer learns of Leases. `lands`: the first move
    of each object takes effect once the shard is back.

    One at a time: if more shards died, the sharder would suspect something else than their death, and wait.
    """
    if any(rule.what == "move refused" for rule in on.conditions.rules):
        return
    process = on.one("s")
    if process is None:
        return
    name, back, tried = name_of(process.name), asyncio.Event(), set[str]()

    def first(process: Process, request: HttpRequest) -> bool:
        if not lands or not _moves(process, request) or on.holder(name) == name:
            return False
        path, before = request.target.partition("?")[0], len(tried)
        tried.add(path)
        return len(tried) > before

    def refused(process: Process, request: HttpRequest) -> bool:
        if back.is_set() or not _moves(process, request):
            return False
        tried.add(request.target.partition("?")[0])
        return True

    async with on.ruled(Rule("withheld", first, lands=back)), on.ruled(Rule("move refused", refused)):
        async with on.ruled(Rule("Lease refused", _writes_lease_of(name))):
            process.kill()
            if not await on.until(lambda: on.holder(name) not in (name, None), 60):
                return
            tried.clear()
            decides = "/things/" if on.world.ranges is None else "/configmaps/ranges-"
            await on.until(lambda: any(decides in path for path in tried), 20)
        async with AsyncExitStack() as stack:
            if hidden:
                await stack.enter_async_context(on.hidden("Leases hidden"))
            if await on.until(lambda: on.holder(name) == name, 90):
                await on.lasts(1, 8)  # it works
            back.set()
            await on.lasts(10, 15)


@fault
async def failover_blind(on: Injection) -> None:
    """A shard is back, but the sharder that considered it dead does not learn that before it can move its objects."""
    await _failover(on, hidden=True, lands=False)


@fault
async def failover_late(on: Injection) -> None:
    """A shard is back, and then the moves that a sharder sent while it was dead take effect."""
    await _failover(on, hidden=False, lands=True)


@fault
@one_at_a_time
async def lease_deleted_late(on: Injection) -> None:
    """A removed shard's Lease becomes garbage, and the sharder deletes it when the shard is back."""
    name, back = "s8", asyncio.Event()

    def deletes(process: Process, request: HttpRequest) -> bool:
        gone = request.method == "DELETE" and request.target.partition("?")[0].endswith(f"/leases/{name}")
        return gone and is_sharders(process, request)

    async with on.happening("deletion withheld"), on.ruled(Rule("deletion withheld", deletes, lands=back)):
        on.workload.names.append(name)
        await on.until(lambda: on.holder(name) == name, 60)
        on.retire(name)
        before = on.conditions.counts["happened: deletion withheld"]
        if await on.until(lambda: on.conditions.counts["happened: deletion withheld"] > before, 120):
            on.workload.names.append(name)
            await on.until(lambda: on.holder(name) == name, 60)
            back.set()
            await on.lasts(5, 10)
            on.retire(name)
        back.set()


@aimed
async def lease_of_paused(on: Injection) -> None:
    """A user deletes the Lease of a shard that is paused for a while, and may work on after it."""
    if process := on.one("s"):
        process.pause()
        with suppress(ApiError):
            await on.admin.delete(Lease, name_of(process.name), "ops")
        await on.lasts(8, 14)
        process.resume()


@aimed
@one_at_a_time
async def renewals_erased(on: Injection) -> None:
    """A shard dies when etcd is restored, which undoes renewals that no sharder has seen. One at a time."""
    if (process := on.one("s")) is None:
        return
    name = name_of(process.name)
    async with AsyncExitStack() as dead:
        async with on.hidden("renewals hidden"):
            back = on.world.backup()
            await on.lasts(8, 20)
            await dead.enter_async_context(on.ruled(Rule("Lease refused", _writes_lease_of(name))))
            process.kill()
            on.cut_streams(on.workload.live(""))  # nor do they see what was on its way
            restored(on, back)
        await on.until(lambda: on.holder(name) != name, 90)
    await created_again(on)


@aimed
@one_at_a_time
async def renewals_refused(on: Injection) -> None:
    """No shard renews for longer than others wait, but less than if all seem dead: nothing may move."""
    counts, names = on.workload.result.counts, on.workload.living("s")

    def held() -> bool:
        return all(on.holder(name) == name for name in names)

    await on.until(held, 60)
    moves = counts["changes of owners"]
    async with on.happening("renewal refused"), on.ruled(Rule("renewal refused", _renews)):
        await on.lasts(40, 55)
    await on.until(held, 60)
    if on.alone and (moved := counts["changes of owners"] - moves):
        on.workload.oracles.broken(MOVED, f"{moved} objects, because shards could not renew their Leases")
    await on.lasts(60, 60)


@fault_by("labels")
@aimed
@one_at_a_time
async def frozen(on: Injection) -> None:
    """Its machine, and all its clocks, stand still for long, in a ring with strict hand-over. One at a time."""
    name, asked = "s6", {STRICT_HANDOVER_ANNOTATION: "true"}
    await on.annotate(asked)
    uid = await _pod(on, name)
    on.workload.start(name, Pod(name, uid))
    if await on.until(lambda: on.holder(name) == name, 60):
        await on.lasts(15, 30)
        for process in on.workload.live(f"{name}~"):
            await on.until(lambda process=process: on.workload.oracles.is_at_work(process.name), 60)  # type: ignore[misc]
            await process.frozen(on.lasts(50, 80))
            on.effects += 1
            await on.until(lambda process=process: bool(process.dead), 30)  # type: ignore[misc]
            process.kill()
        await _report_end(on, name)
        await on.until(lambda: name not in on.world.owners().values(), 60)
    await on.admin.delete(partial_kinds.Pod, name, "ops")
    await on.annotate(dict.fromkeys(asked))


async def _pod(on: Injection, name: str) -> str:
    """Creates a pod for a shard of this name, and returns its uid."""
    manifest = {"metadata": {"name": name}, "spec": {"containers": [{"name": "op", "image": "op"}]}}
    created = await on.admin.raw("POST", "/api/v1/namespaces/ops/pods", json.dumps(manifest).encode())
    return str(json.loads(created.body)["metadata"]["uid"])


async def _report_end(on: Injection, name: str) -> None:
    """The kubelet reports that the container has ended just now."""
    state = {"terminated": {"exitCode": 137, "finishedAt": second_time(on.world.clock.wall())}}
    status = {"containerStatuses": [{"name": "op", "image": "op", "state": state}]}
    await on.admin.patch(partial_kinds.Pod, name, "ops", MergePatch({"status": status}), subresource="status")


@aimed
@one_at_a_time
async def container_ended(on: Injection) -> None:
    """A shard that runs in a pod dies, and the kubelet reports it. Its Lease has to be taken soon. One at a time."""
    name = "s7"
    on.workload.start(name, Pod(name, await _pod(on, name)))
    if await on.until(lambda: on.holder(name) == name, 60):
        await on.lasts(15, 30)
        for process in on.workload.live(f"{name}~"):
            process.kill()
            on.effects += 1
        died = on.world.loop.time()
        await asyncio.sleep(1)
        await _report_end(on, name)
        await on.until(lambda: on.holder(name) != name, 60)
        took = on.world.loop.time() - died
        if on.alone and took > LATE_TAKE_OVER.bound:
            what = f"{name} was given up {took:.0f} s after its container had ended"
            on.workload.oracles.broken(LATE_TAKE_OVER, what)
    await on.admin.delete(partial_kinds.Pod, name, "ops")


@fault_by(*RANGES)
@aimed
async def no_coordinator(on: Injection) -> None:
    """No sharder reaches the API server. Users create, change and delete objects, all of which have to be worked on."""
    away, workload, behind = "coordinator away", on.workload, {*on.world.owners()}
    assert isinstance(workload, Things)

    def done() -> bool:
        behind.intersection_update(each.split()[0].removeprefix("c-") for each in workload.unsettled())
        return not behind

    async with on.quiet(away, is_sharders), on.ruled(Rule(away, is_sharders, refuses_connections=True)):
        on.cut_streams(on.workload.live("x"))
        await on.lasts(30, 60)
        for _ in range(3):
            on.effects += await recreated(on)
            await on.patch(on.object(), {"spec": on.other_value()})
            behind.update(on.world.owners())
            if not await on.until(done, NEGLECTED.bound) and not on.conditions.over.is_set() and on.alone:
                workload.oracles.broken(
                    NEGLECTED, f"{', '.join(sorted(behind))} while there is no coordinator"
                )
    await created_again(on)
