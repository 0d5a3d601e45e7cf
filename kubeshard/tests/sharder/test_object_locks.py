"""Jobs of several rings for one object."""

from __future__ import annotations

import asyncio

from small_ring import held

from kubeshard.core.objects import ObjectMeta
from kubeshard.sharder.moves import ObjectLocks
from kubeshard.sharding.object_job import Known
from kubeshard_lab.virtual_time import virtual_time


def at(version: int) -> Known:
    return Known(ObjectMeta(name="foo", resource_version=str(version)), float(version))


class Writers:
    """Rings that write objects for a second each; every write makes a new version."""

    def __init__(self) -> None:
        self.locks = ObjectLocks()
        self.log: list[tuple[str, str, str]] = []
        self.version = 10

    async def write(self, ring: str, known: Known, place: str = "foo") -> None:
        async with held(self.locks, place, known):
            self.log.append((ring, place, self.locks.known[place].meta.resource_version))
            await asyncio.sleep(1.0)
            self.version += 1
            self.locks.known[place] = at(self.version)


@virtual_time
async def test_one_object_is_written_by_one_ring_at_a_time_in_order_each_from_what_the_one_before_wrote() -> (
    None
):
    w, loop = Writers(), asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.TaskGroup() as group:
        for ring in "abc":
            group.create_task(w.write(ring, at(10)))
    assert w.log == [("a", "foo", "10"), ("b", "foo", "11"), ("c", "foo", "12")]
    assert loop.time() - began == 3.0


@virtual_time
async def test_other_objects_do_not_wait() -> None:
    w, loop = Writers(), asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.TaskGroup() as group:
        for number in range(100):
            group.create_task(w.write("a", at(10), f"foo{number}"))
    assert loop.time() - began == 1.0


@virtual_time
async def test_a_job_that_waits_takes_the_newest_state_into_account_that_any_job_has_read() -> None:
    w = Writers()
    async with asyncio.TaskGroup() as group:
        group.create_task(w.write("a", at(10)))
        await asyncio.sleep(0.5)
        assert not w.locks.awaited("foo")
        for version in (15, 14):
            group.create_task(w.write("b", at(version)))
        await asyncio.sleep(0)
        assert w.locks.awaited("foo")
        assert w.locks.known["foo"] == at(15)
        w.version = 20
    assert w.log == [("a", "foo", "10"), ("b", "foo", "21"), ("b", "foo", "22")]


@virtual_time
async def test_a_job_that_is_cancelled_or_fails_gives_the_lock_to_the_next_and_nothing_is_remembered() -> (
    None
):
    w = Writers()
    tasks = [asyncio.create_task(w.write(ring, at(10))) for ring in "abcd"]
    await asyncio.sleep(0.5)
    tasks[0].cancel()
    tasks[2].cancel()
    await asyncio.sleep(3.0)
    assert [ring for ring, *_ in w.log] == ["a", "b", "d"]
    assert not w.locks.known


@virtual_time
async def test_a_job_that_is_cancelled_just_as_it_gets_the_lock_passes_it_on() -> None:
    w = Writers()
    tasks = [asyncio.create_task(w.write(ring, at(10))) for ring in "abc"]
    await asyncio.sleep(0.5)
    tasks[0].cancel()
    await asyncio.sleep(0)  # it leaves
    tasks[1].cancel()
    await asyncio.sleep(3.0)
    assert [ring for ring, *_ in w.log] == ["a", "c"]
    assert not w.locks.known
