"""Shards come and go as their number and their program change."""

from __future__ import annotations

from functools import partial

from kubeshard.sharding.names import DELIVERY_ANNOTATION
from kubeshard_lab.simulation.faults.injection import Injection, fault_by, fault_of, one_at_a_time
from kubeshard_lab.simulation.workload import Things


@fault_of("several")
async def scale(on: Injection) -> None:
    """The number of shards is increased by one, and decreased the next time."""
    if "s9" in on.workload.names:
        on.retire("s9")
    else:
        on.workload.names.append("s9")
    on.effects += 1


@fault_of("several")
async def rolling_update(on: Injection) -> None:
    """Each shard is replaced by one with another name, which is there before the former one is stopped."""
    for name in tuple(on.workload.names):
        successor = f"s{int(name[1:]) + 100}"
        on.workload.names.append(successor)
        await on.until(lambda named=successor: on.holder(named) == named, 30)  # type: ignore[misc]
        on.retire(name)
        on.effects += 1


@fault_of("several")
async def scale_to_zero(on: Injection) -> None:
    """All shards are stopped, and started again after a while."""
    names = tuple(on.workload.names)
    for name in names:
        on.retire(name)
        on.effects += 1
    await on.lasts(2, 60)
    on.workload.names.extend(name for name in names if name not in on.workload.names)


@fault_of("several")
async def flapping(on: Injection) -> None:
    """A shard comes and goes every few seconds."""
    name = f"s{on.rng.randint(50, 59)}"
    for _ in range(on.rng.randint(3, 10)):
        if name in on.workload.names:
            on.retire(name)
        else:
            on.workload.names.append(name)
            on.effects += 1
        await on.lasts(1, 8)
    on.retire(name)


@fault_by("uid")
@one_at_a_time
async def other_delivery(on: Injection) -> None:
    """A rolling update of all shards to labels, and later back; what a service's ring says changes meanwhile."""
    await _rolled(on)
    await on.lasts(20, 200)
    if not on.conditions.over.is_set():
        await _rolled(on)


async def _rolled(on: Injection) -> None:
    """All shards get the program with the other delivery. One that dies before its turn comes back as it was."""
    workload = on.workload
    assert isinstance(workload, Things)
    workload.by_labels, workload.former = not workload.by_labels, set(workload.names)
    delivery = None if workload.by_labels or on.world.ranges is None else f"Ranges {on.world.ranges.divided}"
    # From now on a service may write labels, whichever of its processes is the sharder then.
    on.world.delivery.by_labels.update(f"{name}~{n}" for name in workload.sharders for n in range(1000))
    gone = sorted(workload.living("s") - set(workload.names))  # the second process of one that was replaced
    steps, annotate = [*workload.names, *gone], "annotate"
    if workload.sharders:
        steps.insert(on.rng.randint(0, len(steps)), annotate)
    for name in steps:
        if name == annotate:
            await on.annotate({DELIVERY_ANNOTATION: delivery})
            continue
        workload.former.discard(name)
        of_name = partial(workload.live, f"{name}~")
        for process in of_name():
            process.terminate()
        await on.until(lambda of=of_name: not of(), 40, outlasting=True)  # type: ignore[misc]
        for process in of_name():
            process.kill()
        on.effects += 1
        if name in workload.names:
            await on.until(lambda of=of_name: any(each.armed for each in of()), 60, outlasting=True)  # type: ignore[misc]
            await on.lasts(0, 10)
