"""Work in progress is never disturbed: drains, stops and pauses of busy shards."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator

import pytest
from e2e_kinds import CHORES, REALMS, Chore, Entry, Realm
from e2e_processes import Processes, ended
from e2e_recorder import Labels, Recorder, Seen
from e2e_ring import Ring
from e2e_user import User
from e2e_works import Works

from kubeshard.client import Client
from kubeshard.core import ObjectMeta
from kubeshard.sharding.names import INCARNATION_ANNOTATION


@pytest.fixture
async def recorder(kube_client: Client, ring: Ring, namespace: str) -> AsyncIterator[Recorder]:
    recorder = Recorder(kube_client, ring.name, [namespace], [Chore, Realm], [Entry])
    async with recorder.recording():
        yield recorder


@pytest.fixture
async def works(
    ring: Ring, recorder: Recorder, kube_client: Client, namespace: str, sharders: Processes
) -> AsyncIterator[Works]:
    """Objects of a ring that has no shards yet; a user works there too."""

    def make(number: int) -> Chore:
        return Chore(metadata=ObjectMeta(name=f"user-{number}", namespace=namespace))

    await ring.create([CHORES, REALMS], {"kubernetes.io/metadata.name": namespace})
    async with User(kube_client, make).working():
        yield Works(kube_client, recorder, namespace)


@pytest.mark.real_at_night
async def test_a_drain_waits_for_the_reconcile_and_other_objects_do_not_wait_for_it(
    works: Works, ring: Ring, recorder: Recorder, namespace: str, shards: Processes
) -> None:
    shards.start_gated("a", ring=ring.name, namespace=namespace)
    await ring.available(1)
    await works.create(6, hold=True)
    before, after = works.owners("a"), works.owners("a", "b")
    moving = sorted(name for name in before if before[name] != after[name])
    assert len(moving) >= 2
    *idle, busy = moving
    assert {type(obj) for obj in works.all if obj.metadata.name in moving} == {Chore, Realm}
    await works.let_go(*idle)
    await recorder.until(lambda: all(works.entries(name, "ended") for name in idle))
    await recorder.quiet(Entry, about=lambda event: event.object.spec.work in works.names)
    now = recorder.now
    shards.start_gated("b", ring=ring.name, namespace=namespace)
    await recorder.until(lambda: all(works.labels[name] == after[name] for name in idle), 10, "idle ones")
    await recorder.until(
        lambda: works.labels[busy] == Labels("a", draining=True), 10, "the busy one asked for"
    )
    await asyncio.sleep(2.0)  # longer than the interval of the sharder's checks
    assert works.labels[busy] == Labels("a", draining=True)
    await works.let_go()
    await recorder.until(lambda: works.labels == after and works.entries(busy, "ended", "b"))
    for name in moving:
        assert works.trace(name, now) == [Labels("a", draining=True), Labels("b")]
    [end] = works.entries(busy, "ended", "a")
    [began] = works.entries(busy, "began", "b")
    [handed_over] = [e for e in works.events(busy, now) if recorder.labels_of(e.object) == Labels("b")]
    assert end.version < handed_over.version < began.version
    works.never_in_two_hands()


@pytest.mark.real_at_night
async def test_a_stopping_shard_gives_its_lease_back_only_after_its_reconciles_ended(
    works: Works, ring: Ring, recorder: Recorder, namespace: str, shards: Processes
) -> None:
    shards.start_gated("a", "b", ring=ring.name, namespace=namespace)
    await ring.available(2)
    await works.create(4, hold=True)
    before, now = works.labels, recorder.now
    stopping = shards.request_stop("b", signal.SIGTERM)
    await asyncio.sleep(3.0)
    lease = recorder.lease("b")
    assert lease is not None
    assert lease.spec.holder_identity == "b"
    assert works.labels == before
    await works.let_go()
    after = works.owners("a")
    await recorder.until(lambda: works.labels == after)
    assert ended(stopping) == 0
    released = next(e for e in recorder.of("Lease", "b", now) if e.object.spec.holder_identity == "")
    ours = [name for name in before if before[name].shard == "b"]
    assert ours
    for name in ours:
        [end] = works.entries(name, "ended", "b")
        moved = next(e for e in works.events(name, now) if recorder.labels_of(e.object) == after[name])
        assert end.version < released.version < moved.version
        assert works.trace(name, now) == [after[name]]
    gaps = [moved_at - released.at for moved_at in (e.at for e in moves(works, recorder, ours, now))]
    assert max(gaps) < 1.0
    works.never_in_two_hands()


@pytest.mark.real_at_night
async def test_a_shard_that_had_to_cancel_a_reconcile_does_not_give_its_lease_back(
    works: Works, ring: Ring, recorder: Recorder, namespace: str, shards: Processes
) -> None:
    """A cancelled reconcile may have a write in flight."""
    shards.start_gated("a", ring=ring.name, namespace=namespace)
    shards.start_gated("b", ring=ring.name, namespace=namespace, grace=1.0)
    await ring.available(2)
    await works.create(4, hold=True)
    before, now = works.labels, recorder.now
    asked = time.monotonic()
    stopping = shards.request_stop("b", signal.SIGTERM)
    after = works.owners("a")
    await recorder.until(lambda: works.labels == after, 5 * shards.lease_seconds)
    ended(stopping)
    ours = [name for name in before if before[name].shard == "b"]
    holders = [e.object.spec.holder_identity for e in recorder.of("Lease", "b", now)]
    assert "" not in holders
    first = min(e.at for e in moves(works, recorder, ours, now))
    taken = recorder.seizure("b")
    assert taken.at - asked > 2 * shards.lease_seconds - 2.0
    assert first > taken.at
    await works.let_go()


@pytest.mark.real_at_night
async def test_a_short_pause_moves_nothing_and_a_long_one_ends_the_process_before_its_objects_move(
    works: Works, ring: Ring, recorder: Recorder, namespace: str, shards: Processes
) -> None:
    """The right to act ends after two thirds of the Lease; renewals are an eighth of it apart."""
    lease = shards.lease_seconds
    shards.start_gated("a", "b", ring=ring.name, namespace=namespace)
    await ring.available(2)
    await works.create(4, hold=True)
    before, now = works.labels, recorder.now
    shards.signal("b", signal.SIGSTOP)
    await asyncio.sleep(1.5)
    shards.signal("b", signal.SIGCONT)
    await recorder.until(lambda: len(recorder.renewals("b", now)) >= 3)
    assert works.labels == before
    paused = shards.request_stop("b", signal.SIGSTOP)
    stopped = time.monotonic()
    while paused.running:
        assert time.monotonic() - stopped < 1.5 * lease
        await asyncio.sleep(0.02)
    assert paused.exit_code == -signal.SIGKILL
    assert lease / 2 < time.monotonic() - stopped < 1.1 * lease
    after = works.owners("a")
    await recorder.until(lambda: works.labels == after, 4 * lease)
    await works.let_go()
    await recorder.until(lambda: all(works.entries(name, "ended", "a") for name in works.names))
    for name in before:
        assert works.trace(name, now) == ([after[name]] if before[name] != after[name] else [])
        assert not works.entries(name, "ended", "b")
    first = min(e.at for e in moves(works, recorder, list(before), now))
    assert 2 * lease - 0.5 < first - recorder.renewals("b")[-1].at < 3.5 * lease


async def test_a_rolling_update_never_leaves_an_object_in_two_hands(
    works: Works, ring: Ring, recorder: Recorder, namespace: str, shards: Processes
) -> None:
    shards.start_gated("a", "b", ring=ring.name, namespace=namespace)
    await ring.available(2)
    await works.create(6)
    for old, new in (("a", "c"), ("b", "d")):
        shards.start_gated(new, ring=ring.name, namespace=namespace)
        await ring.available(3)
        assert shards.stop(old) == 0
        await ring.available(2)
    await recorder.until(lambda: works.labels == works.owners("c", "d"))
    await recorder.quiet(Chore, Realm, about=lambda event: event.key.name in works.names)
    assert works.labels == works.owners("c", "d")
    works.never_in_two_hands()


@pytest.mark.real_at_night
async def test_a_killed_shard_that_is_started_again_under_its_name_gets_its_objects_back(
    works: Works, ring: Ring, recorder: Recorder, namespace: str, shards: Processes
) -> None:
    """The new process can tell that the former one has ended, as both are of this machine. It waits only until nothing
    that the former one sent can take effect.
    """
    shards.start_gated("a", "b", ring=ring.name, namespace=namespace)
    await ring.available(2)
    await works.create(4)
    placed, now = works.labels, recorder.now
    shards.kill("b")
    former = incarnation(recorder.renewals("b")[-1])
    shards.start_gated("b", ring=ring.name, namespace=namespace)
    await recorder.until(
        lambda: any(incarnation(seen) != former for seen in recorder.renewals("b", now)),
        10 * shards.lease_seconds,
    )
    await recorder.until(lambda: works.labels == placed)
    for obj in works.all:
        await works.touch(obj)
    await recorder.until(lambda: all(len(works.entries(name, "ended")) > 1 for name in works.names))
    works.never_in_two_hands()


def incarnation(seen: Seen) -> str:
    return seen.object.metadata.annotation(INCARNATION_ANNOTATION)


def moves(works: Works, recorder: Recorder, names: list[str], since: int) -> list[Seen]:
    """Returns the first event of each object that shows a shard other than b."""
    first = []
    for name in names:
        for event in works.events(name, since):
            if recorder.labels_of(event.object).shard != "b":
                first.append(event)
                break
    return first
