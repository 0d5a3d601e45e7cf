"""Read your own writes: what a reconcile waits for, and what it does not wait for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast
from unittest.mock import Mock

import msgspec
import pytest
from scripted_client import ScriptedClient, Widget

from kubeshard.cache import Cache, CacheBehind, Scope
from kubeshard.cache.own_writes import LOST, OwnWrites, WriteBook, record_own_write
from kubeshard.client import Client
from kubeshard.client.write_records import WriteRecord
from kubeshard.core.builtin import Namespace
from kubeshard.core.errors import NotFound
from kubeshard.core.objects import Key
from kubeshard.core.selectors import Selector
from kubeshard_lab.virtual_time import VirtualClock, settle, virtual_time

MINE = Scope(labels=Selector.equals("shard", "me"))


class SlowCache:
    """A synced cache whose watch is interrupted during writes: it sees nothing until `catch_up`."""

    def __init__(self, scope: Scope | None = None) -> None:
        self.api = ScriptedClient()
        self.cache = Cache(self.api.client)
        self.writes = OwnWrites(VirtualClock())
        self.informer = self.cache.declare(Widget, scope)
        self._late: list[asyncio.Queue[object]] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[SlowCache]:
        async with self.cache.running():
            await self.cache.synced()
            self._hold()
            yield self

    def write(self, key: str, color: str = "", **metadata: object) -> Widget:
        """Writes an object and records the write."""
        obj = self.api.put(key, color, **metadata)
        self.record(obj)
        return obj

    def record(self, obj: Widget, *, deleted: bool = False) -> None:
        version = "" if deleted else obj.metadata.resource_version
        labels = None if deleted else obj.metadata.labels
        self.writes.record(
            WriteRecord(Widget.KIND, obj.key, obj.metadata.uid, version, labels, deleted=deleted)
        )

    def delete(self, key: str) -> None:
        self.record(self.api.delete(key), deleted=True)

    async def catch_up(self, *, count: int | None = None) -> None:
        """Delivers the delayed events, all or some of them."""
        for stream, held in zip(self.api.streams, self._late, strict=True):
            for _ in range(held.qsize() if count is None else count):
                stream.live.put_nowait(held.get_nowait())
        await settle()

    async def read(self, timeout: float = 5.0) -> Widget | None:
        await self.writes.settled(self.cache, self.informer, timeout)
        return self.cache.get(Widget, "a", "x")

    def _hold(self) -> None:
        self._late = [stream.hold() for stream in self.api.streams]


async def waits(slow: SlowCache) -> asyncio.Task[Widget | None]:
    task = asyncio.create_task(slow.read())
    await settle()
    assert not task.done()
    return task


@virtual_time
async def test_a_read_waits_for_the_event_of_the_write() -> None:
    async with SlowCache().running() as slow:
        written = slow.write("x/a")
        task = await waits(slow)
        await slow.catch_up()
        assert await task is written
        assert not slow.writes


@virtual_time
async def test_without_pending_writes_nothing_is_awaited() -> None:
    async with SlowCache().running() as slow:
        slow.api.put("x/a")  # somebody else's write
        step = slow.writes.settled(slow.cache, slow.informer)
        with pytest.raises(StopIteration):
            step.send(None)


@virtual_time
async def test_a_write_of_another_kind_is_not_waited_for() -> None:
    async with SlowCache().running() as slow:
        slow.writes.record(WriteRecord(Namespace.KIND, Key("", "x"), "uid", "101", {}, deleted=False))
        step = slow.writes.settled(slow.cache, slow.informer)
        with pytest.raises(StopIteration):
            step.send(None)


@pytest.mark.regression
@virtual_time
async def test_a_reader_does_not_wait_for_what_another_controller_reads_of_the_kind() -> None:
    slow = SlowCache()
    other = slow.cache.declare(Widget, MINE)
    async with slow.cache.running():
        await slow.cache.synced()
        _, stream = sorted(slow.api.streams, key=lambda stream: stream.scope == MINE)
        held = stream.hold()
        written = slow.write("x/a", labels={"shard": "me"})
        await settle()
        assert await slow.read(timeout=0.0) is written
        with pytest.raises(CacheBehind):
            await slow.writes.settled(slow.cache, other, 0.0)
        stream.live.put_nowait(held.get_nowait())
        await settle()
        await slow.writes.settled(slow.cache, other, 0.0)
        assert not slow.writes


@pytest.mark.regression
@virtual_time
async def test_a_reader_waits_for_the_cache_that_it_reads_however_long_that_is_behind() -> None:
    slow = SlowCache()
    other = slow.cache.declare(Widget, MINE)
    async with slow.cache.running():
        await slow.cache.synced()
        _, stream = sorted(slow.api.streams, key=lambda stream: stream.scope == MINE)
        stream.hold()
        slow.writes = OwnWrites(clock := Mock())
        clock.monotonic.return_value = 10_000
        written = slow.write("x/a", labels={"shard": "me"})
        await settle()
        clock.monotonic.return_value += LOST + 1
        assert await slow.read(timeout=0.0) is written
        slow.writes.prune(slow.cache)
        with pytest.raises(CacheBehind):
            await slow.writes.settled(slow.cache, other, 0.0)


@virtual_time
async def test_a_write_that_changed_nothing_is_not_waited_for() -> None:
    async with SlowCache().running() as slow:
        written = slow.write("x/a")
        await slow.catch_up()
        slow.record(written)
        assert await slow.read(timeout=0.0) is written


@virtual_time
async def test_a_later_state_satisfies_too() -> None:
    async with SlowCache().running() as slow:
        slow.write("x/a")
        later = slow.api.put("x/a", "blue")
        task = await waits(slow)
        await slow.catch_up()
        assert await task is later


@virtual_time
async def test_a_cache_that_stays_behind_is_an_error_after_five_seconds_and_the_write_stays_pending() -> None:
    async with SlowCache().running() as slow:
        slow.write("x/a")
        started = asyncio.get_running_loop().time()
        with pytest.raises(CacheBehind, match="x/a at version 101"):
            await slow.read()
        assert asyncio.get_running_loop().time() - started == 5.0
        assert slow.writes


@virtual_time
async def test_a_watch_that_is_silent_about_a_write_is_opened_anew_once_before_it_could_send_a_bookmark() -> (
    None
):
    async with SlowCache().running() as slow:
        written = slow.write("x/a")
        with pytest.raises(CacheBehind):
            await slow.read()
        assert await slow.read() is written
        assert [request.what for request in slow.api.requests[1:]] == ["probe", "watch"]
        slow._hold()
        slow.write("x/a", "blue")
        with pytest.raises(CacheBehind):
            await slow.read()
        await asyncio.sleep(5.0)
        assert len(slow.api.requests) == 3


@pytest.mark.regression
@virtual_time
async def test_a_write_that_no_watch_ever_shows_delays_no_event_of_other_objects() -> None:
    async with SlowCache().running() as slow:
        unseen = slow.write("x/a")
        slow.record(
            msgspec.structs.replace(
                unseen, metadata=msgspec.structs.replace(unseen.metadata, resource_version="9" * 9)
            )
        )
        for step in range(20):
            with pytest.raises(CacheBehind):
                await slow.read()
            other = slow.api.put("x/b", str(step))
            await asyncio.sleep(0.1)
            assert slow.cache.get(Widget, "b", "x") is other
            await asyncio.sleep(40.0)
        assert len(slow.api.requests) > 15, "the watch was opened anew each time that it may be"


@virtual_time
async def test_a_watch_that_is_slow_but_not_silent_is_left_as_it_is() -> None:
    async with SlowCache().running() as slow:
        slow.api.put("x/b")
        slow.write("x/a")
        task = await waits(slow)
        await asyncio.sleep(4.0)
        await slow.catch_up(count=1)
        with pytest.raises(CacheBehind):
            await task
        await settle()
        assert len(slow.api.requests) == 1


@virtual_time
async def test_a_write_that_moves_the_object_out_of_the_selector_is_seen_by_its_deleted_event() -> None:
    async with SlowCache(MINE).running() as slow:
        slow.api.put("x/a", labels={"shard": "me"})
        await slow.catch_up()
        slow.write("x/a", labels={"shard": "other"})
        task = await waits(slow)
        await slow.catch_up()
        assert await task is None


@virtual_time
async def test_a_bookmark_past_the_write_satisfies() -> None:
    async with SlowCache(MINE).running() as slow:
        slow.api.put("x/a", labels={"shard": "me"})
        await slow.catch_up()
        slow.write("x/a", labels={"shard": "other"})
        await slow.catch_up(count=0)
        task = await waits(slow)
        slow.api.bookmark()
        await slow.catch_up()
        assert await task is None


@virtual_time
async def test_a_write_outside_the_selector_to_an_object_the_cache_never_had_is_not_waited_for() -> None:
    async with SlowCache(MINE).running() as slow:
        slow.write("x/a", labels={"shard": "other"})
        assert await slow.read(timeout=0.0) is None


@virtual_time
async def test_a_write_into_the_selector_is_waited_for() -> None:
    async with SlowCache(MINE).running() as slow:
        slow.api.put("x/a", labels={"shard": "other"})
        written = slow.write("x/a", labels={"shard": "me"})
        task = await waits(slow)
        await slow.catch_up()
        assert await task is written


@virtual_time
async def test_an_object_created_and_moved_away_before_the_cache_saw_it_does_not_show_up_later() -> None:
    async with SlowCache(MINE).running() as slow:
        slow.write("x/a", labels={"shard": "me"})
        slow.write("x/a", labels={"shard": "other"})
        task = await waits(slow)
        await slow.catch_up(count=1)
        assert not task.done()
        await slow.catch_up()
        assert await task is None


@virtual_time
async def test_a_deletion_is_waited_for_by_uid() -> None:
    async with SlowCache().running() as slow:
        slow.api.put("x/a")
        await slow.catch_up()
        slow.delete("x/a")
        again = slow.api.put("x/a")
        task = await waits(slow)
        await slow.catch_up()
        assert await task is again


@virtual_time
async def test_a_deletion_is_seen_when_the_object_is_being_deleted() -> None:
    async with SlowCache().running() as slow:
        first = slow.api.put("x/a")
        await slow.catch_up()
        slow.record(first, deleted=True)
        slow.api.put("x/a", deletion_timestamp="2026-01-01T00:00:00Z", finalizers=("wait",))
        task = await waits(slow)
        await slow.catch_up()
        found = await task
        assert found is not None
        assert found.metadata.deleting


@virtual_time
async def test_an_object_created_and_deleted_before_the_cache_saw_it_does_not_show_up_later() -> None:
    async with SlowCache().running() as slow:
        slow.write("x/a")
        slow.delete("x/a")
        task = await waits(slow)
        await slow.catch_up(count=1)
        assert not task.done()
        await slow.catch_up()
        assert await task is None


@virtual_time
async def test_a_write_in_a_namespace_outside_the_scope_is_not_waited_for() -> None:
    async with SlowCache(Scope(namespaces=frozenset({"y"}))).running() as slow:
        slow.write("x/a")
        await slow.writes.settled(slow.cache, slow.informer, 0.0)


@virtual_time
async def test_writes_are_recorded_for_the_key_that_this_task_reconciles() -> None:
    async with SlowCache().running() as slow:
        book: WriteBook[Key] = WriteBook(slow.cache, VirtualClock())
        mine, other = Key("x", "mine"), Key("x", "other")

        async def reconcile(key: Key, child: str) -> None:
            with book.recording(key):
                await asyncio.sleep(1)
                obj = slow.api.put(child)
                record_own_write(
                    WriteRecord(
                        Widget.KIND, obj.key, obj.metadata.uid, obj.metadata.resource_version, None, False
                    )
                )

        async def read_only(key: Key) -> None:
            with book.recording(key) as writes:
                await writes.settled(slow.cache, slow.informer, 0.0)

        await asyncio.gather(reconcile(mine, "x/a"), read_only(other))
        assert len(book) == 1
        with pytest.raises(CacheBehind), book.recording(mine) as writes:  # the next reconcile of the key
            await writes.settled(slow.cache, slow.informer, 0.0)
        await read_only(other)


@pytest.mark.regression
@virtual_time
async def test_a_write_that_is_forgotten_while_it_is_looked_up_is_no_error() -> None:
    clock = VirtualClock()

    class Slow:
        async def list(self, *_: object, **__: object) -> AsyncIterator[object]:
            await asyncio.sleep(LOST)
            writes.prune(slow.cache)  # by another key's run
            for gone in ():
                yield gone

    async with SlowCache().running() as slow:
        writes = OwnWrites(clock)
        writes.record(WriteRecord(Widget.KIND, Key("x", "a"), "", "", None, deleted=False, lost=True))
        await writes.find_out(slow.cache, cast(Client, Slow()))
        assert not writes


@pytest.mark.regression
@virtual_time
async def test_a_write_to_a_kind_that_is_not_served_any_more_is_known_to_be_gone() -> None:
    class Unserved:
        async def list(self, *_: object, **__: object) -> AsyncIterator[object]:
            raise NotFound("the server does not serve this path", code=404, reason="NotFound")
            yield

    async with SlowCache().running() as slow:
        writes = OwnWrites(VirtualClock())
        writes.record(WriteRecord(Widget.KIND, Key("x", "a"), "", "", None, deleted=False, lost=True))
        await writes.find_out(slow.cache, cast(Client, Unserved()))
        assert not writes


@virtual_time
async def test_keys_that_are_never_reconciled_again_take_no_memory_for_ever() -> None:
    async with SlowCache().running() as slow:
        book: WriteBook[int] = WriteBook(slow.cache, VirtualClock())
        for number in range(10):
            with book.recording(number):
                obj = slow.api.put(f"x/{number}")
                record_own_write(
                    WriteRecord(
                        Widget.KIND, obj.key, obj.metadata.uid, obj.metadata.resource_version, None, False
                    )
                )
        assert len(book) == 10
        await slow.catch_up()
        for _ in range(5):
            with book.recording(99):
                pass
        assert len(book) == 0


@virtual_time
async def test_a_key_that_writes_ever_other_objects_remembers_only_those_that_were_not_seen() -> None:
    async with SlowCache().running() as slow:
        book: WriteBook[str] = WriteBook(slow.cache, VirtualClock())
        for number in range(5):
            with book.recording("key") as writes:
                assert not writes
                obj = slow.api.put(f"x/{number}")
                record_own_write(
                    WriteRecord(
                        Widget.KIND, obj.key, obj.metadata.uid, obj.metadata.resource_version, None, False
                    )
                )
            await slow.catch_up()


def test_a_write_outside_any_reconcile_is_nobodys() -> None:
    record_own_write(WriteRecord(Widget.KIND, Key("x", "a"), "uid", "1", None, deleted=False))


@pytest.mark.regression
@virtual_time
async def test_a_write_that_a_restore_undid_is_waited_for_only_until_everything_was_read_anew() -> None:
    async with SlowCache().running() as slow:
        before = slow.api.put("x/a", "old")
        backup = slow.api.version, dict(slow.api.objects)
        for number in range(10):
            slow.api.put(f"x/{number}")
        await slow.catch_up()
        slow.write("x/a", "lost")
        slow.write("x/b", "lost")
        slow.delete("x/0")
        reading = asyncio.create_task(slow.read(timeout=300.0))
        await asyncio.sleep(1)
        assert not reading.done()
        slow.api.version, slow.api.objects = backup
        slow.api.end_streams()
        for stream in slow.api.streams:
            stream.live.put_nowait(None)
        assert await reading == before
        assert slow.cache.informer(Widget).rewinds == 1
        assert not slow.writes


@pytest.mark.regression
@virtual_time
async def test_a_version_that_a_restore_has_given_to_another_write_is_not_taken_for_ones_own() -> None:
    async with SlowCache().running() as slow:
        slow.api.put("x/b")
        backup = slow.api.version, dict(slow.api.objects)
        slow.api.put("x/a")
        await slow.catch_up()
        written, informer = slow.write("x/b", "mine"), slow.cache.informer(Widget)
        assert slow.writes.shows(informer, written.metadata)
        await asyncio.sleep(1)
        slow.api.version, slow.api.objects = backup
        slow.api.end_streams()
        for stream in slow.api.streams:
            stream.live.put_nowait(None)
        await asyncio.sleep(1)
        slow.api.put("x/a")
        again = slow.api.put("x/b", "another's")
        assert again.metadata.resource_version == written.metadata.resource_version
        assert not slow.writes.shows(informer, again.metadata)
