"""What the oracles know of a ring that is sharded by ranges, and of whom a user or a restore takes objects."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import cast

import msgspec
import pytest
from judged_scene import Scene, follow, hold, watched

from kubeshard.client.client import Client
from kubeshard.core.builtin import ConfigMap, Lease, LeaseSpec
from kubeshard.core.errors import AlreadyExists, PatchTestFailed
from kubeshard.core.objects import Key, ObjectMeta, OwnerReference
from kubeshard.core.patches import JsonPatch, MergePatch, add, test
from kubeshard.runtime.transport import HttpRequest
from kubeshard.shard.settings import Ranges
from kubeshard.sharding.assignment import Assignment, Place
from kubeshard.sharding.names import (
    EVICTED_ANNOTATION,
    SHARDER_IDENTITY,
    assignment_name,
    bucket_label,
    shard_label,
)
from kubeshard_lab.simulation.cluster import SimulatedCluster, Thing
from kubeshard_lab.simulation.deliveries import CHILDREN, Ranged
from kubeshard_lab.simulation.faults.injection import Rule
from kubeshard_lab.simulation.processes import Process
from kubeshard_lab.simulation.properties import (
    AMNESTY,
    MISSED_CHILD,
)
from kubeshard_lab.virtual_time import virtual_time

pytestmark = pytest.mark.regression


def assigned(to: Place) -> ConfigMap:
    """An assignment that gives everything to this place."""
    buckets = Ranges().divided
    data = Assignment.of(buckets, dict.fromkeys(buckets.all.buckets, to)).data()
    return ConfigMap(metadata=ObjectMeta(name=assignment_name("r"), namespace="ops"), data=data)


@pytest.mark.quick
@virtual_time
async def test_a_shard_may_be_evicted_because_of_a_bucket_in_which_no_object_is_left() -> None:
    """Something may go on for one that was deleted."""
    async with SimulatedCluster(ranges=Ranges()) as world:
        await world.install()
        at = Scene(world)
        async with world.admin() as client:
            held = LeaseSpec(holder_identity="s0", lease_duration_seconds=15)
            await client.create(Lease(metadata=ObjectMeta(name="s0", namespace="ops"), spec=held))
            await client.create(assigned(Place("s0", "s1", 1)))
        await asyncio.sleep(60.0)
        evicted = {"metadata": {"annotations": {EVICTED_ANNOTATION: "1"}}}
        taken = MergePatch({**evicted, "spec": {"holderIdentity": SHARDER_IDENTITY}})
        await Process(world, "x9").client().patch(Lease, "s0", "ops", taken)
        assert not at.result.broken


@pytest.mark.quick
@pytest.mark.parametrize("etcd", [False, True], ids=["a user restores it", "etcd is restored"])
@pytest.mark.parametrize(
    ("asked", "held"),
    [(True, True), (True, False), (False, False)],
    ids=["asked for it", "asked without its Lease", "was about to begin"],
)
@virtual_time
async def test_a_restored_assignment_counts_once_no_shard_or_coordinator_lives_that_has_asked_for_a_later_one(
    asked: bool, held: bool, etcd: bool
) -> None:
    async with SimulatedCluster(ranges=Ranges()) as world:
        await world.install()

        def owner() -> str:
            shown = world.delivery.shown({"metadata": {"name": "t0", "namespace": "team", "uid": "1"}})
            return str(shown["metadata"]["labels"].get(shard_label("r"), ""))

        shard = Process(world, "s0~1")
        async with world.admin() as client:
            await client.create(assigned(Place("s1", "", 3)))
            back = world.backup()
            await client.apply(assigned(Place("s0", "", 5)), force=True)
            if held:
                await hold(shard)
            if asked:
                await follow(shard.client())
            if etcd:
                back()
            else:
                await client.apply(assigned(Place("s1", "", 3)), force=True)
            assert owner() == ("s0" if held else "s1")
            shard.kill()
            await client.apply(assigned(Place("s1", "", 4)), force=True)
            assert owner() == "s1"


@pytest.mark.quick
@pytest.mark.parametrize("ended", ["before", "after", "never"])
@pytest.mark.parametrize("given_on", [False, True], ids=["taken", "given on"])
@virtual_time
async def test_what_an_edit_gives_a_shard_counts_when_it_is_taken_only_if_no_process_lives_that_had_it_before(
    ended: str, given_on: bool
) -> None:
    """By that shard, or by a coordinator that has begun since and finds it dead."""
    async with SimulatedCluster(ranges=Ranges()) as world:
        await world.install()
        at, name, edited = Scene(world), assignment_name("r"), assigned(Place("s1", "", 3))
        await world.make_things(1)
        former, coordinator, begins = (Process(world, each) for each in ("s0~1", "x0~1", "s1~1"))
        async with world.admin() as client:
            await client.create(assigned(Place("s0", "", 3)))
            await hold(former)
            for each in former, coordinator:
                await follow(each.client())
            await asyncio.sleep(AMNESTY)
            if ended == "before":
                former.kill()
            await client.apply(edited, force=True)
        assert set(world.owners().values()) == {"s1" if ended == "before" else "s0"}
        if ended == "after":
            former.kill()
        said = Assignment.parse(edited.data)
        bucket = said.buckets.all.buckets
        act = said.change(dict.fromkeys(bucket, ("s2", ""))) if given_on else said.reclaim("s1")
        assert act is not None
        await begins.client().patch(ConfigMap, name, "ops", act)
        assert set(world.owners().values()) == {"s2" if given_on else "s1"}
        assert at.result.broken == ({"stale write": 1} if ended == "never" else {})


@pytest.mark.quick
@virtual_time
async def test_a_bucket_is_remembered_by_those_who_began_when_another_one_was_edited_already() -> None:
    async with SimulatedCluster(ranges=Ranges()) as world:
        await world.install()
        await world.make_things(40)
        first, since = Process(world, "s0~1"), Process(world, "s1~1")
        half = Assignment.of(
            Ranges().divided, {each: Place("s0" if each < 512 else "s1", "", 5) for each in range(1024)}
        )

        def says(left: Place, right: Place) -> ConfigMap:
            return msgspec.structs.replace(
                assigned(left), data={**half.data(), "0000-0511": str(left), "0512-1023": str(right)}
            )

        async with world.admin() as client:
            await client.create(says(Place("s0", "", 5), Place("s1", "", 5)))
            for each in first, since:
                await hold(each)
            await follow(first.client())
            await client.apply(says(Place("s2", "", 4), Place("s1", "", 5)), force=True)
            await follow(since.client())
            first.kill()
            await client.apply(says(Place("s2", "", 4), Place("s2", "", 4)), force=True)
        assert set(world.owners().values()) == {"s1", "s2"}


@pytest.mark.quick
@pytest.mark.parametrize("ended", [True, False], ids=["ended", "lives"])
@virtual_time
async def test_a_shard_may_work_on_what_a_restore_gives_it_only_if_no_process_lives_that_had_it_before(
    ended: bool,
) -> None:
    """By ranges, there is no minute after a restore in which two may work on an object."""
    async with SimulatedCluster(ranges=Ranges()) as world:
        await world.install()
        at, name, restored = Scene(world), assignment_name("r"), assigned(Place("s1", "", 3))
        await world.make_things(1)
        former, coordinator, begins = (Process(world, each) for each in ("s0~1", "x0~1", "s1~1"))
        async with world.admin() as client:
            await client.create(restored)
            restore = world.backup()
            await client.apply(assigned(Place("s0", "", 9)), force=True)
            await hold(former)
            for each in former, coordinator:
                await follow(each.client())
            thing = await client.get(Thing, "t0", "team")
        await asyncio.sleep(AMNESTY)
        if ended:
            former.kill()
        at.oracles.restored()
        restore()
        assert set(world.owners().values()) == {"s1" if ended else "s0"}
        await asyncio.sleep(AMNESTY if ended else 0)
        reclaim = Assignment.parse(restored.data).reclaim("s1")
        assert reclaim is not None
        await begins.client().patch(ConfigMap, name, "ops", reclaim)
        at.oracles.begins("s1~1", thing.metadata)
        assert at.result.broken == ({} if ended else {"not ours": 1})


@pytest.mark.quick
@pytest.mark.parametrize(
    "seen", [True, False], ids=["which has written its Lease again", "whose Lease it shows as gone"]
)
@pytest.mark.parametrize("by", ["its own request", "a coordinator that begins then"])
@virtual_time
async def test_a_shard_that_begins_after_a_restore_may_take_over_what_one_has(seen: bool, by: str) -> None:
    """Nothing shows that the other one lives, until that writes its Lease again."""
    async with SimulatedCluster(ranges=Ranges()) as world:
        await world.install()
        at, restored = Scene(world), assigned(Place("s1", "", 3))
        await world.make_things(1)
        former, begins = Process(world, "s0~1"), Process(world, "s1~1")
        async with world.admin() as client:
            await client.create(restored)
            restore = world.backup()
            await client.apply(assigned(Place("s0", "", 9)), force=True)
            await hold(former)
            await follow(former.client())
            thing = await client.get(Thing, "t0", "team")
        restore()
        at.oracles.restored()
        at.oracles.begins("s0~1", thing.metadata)
        for each in (former, begins) if seen else (begins, former):
            await hold(each)
        reclaim = Assignment.parse(restored.data).reclaim("s1")
        assert reclaim is not None
        user_agent = "sharder" if by == "a coordinator that begins then" else ""
        writes = begins.client().with_user_agent(user_agent) if user_agent else begins.client()
        await writes.patch(ConfigMap, assignment_name("r"), "ops", reclaim)
        for process in "s1~1", "s0~1":
            at.oracles.begins(process, thing.metadata)
        assert at.result.broken == ({"not ours": 1, "overlap": 2} if seen else {})


@asynccontextmanager
async def owned(place: Place, *others: str) -> AsyncIterator[tuple[Scene, Client, ObjectMeta]]:
    """A Thing is in this place, and its owner and other processes have asked for the assignment."""
    async with SimulatedCluster(ranges=Ranges()) as world:
        await world.install()
        at = Scene(world)
        await world.make_things(1)
        async with world.admin() as client:
            await client.create(assigned(place))
            for process in (f"{place.owner}~1", *others):
                await hold(Process(world, process))
                await follow(world.processes[process].client())
            yield at, client, (await client.get(Thing, "t0", "team")).metadata


@pytest.mark.quick
@pytest.mark.parametrize("before", [True, False], ids=["began before", "begins later"])
@virtual_time
async def test_an_edit_of_the_assignment_excuses_nobody_but_the_former_owner(before: bool) -> None:
    async with owned(Place("s0", "", 3), "s1~1", "s2~1") as (at, client, thing):
        if before:
            at.oracles.begins("s2~1", thing)
        await client.apply(assigned(Place("s1", "", 5)), force=True)
        for process in "s0~1", "s1~1":
            at.oracles.begins(process, thing)
        if not before:
            assert at.result.broken == {}
            at.oracles.begins("s2~1", thing)
        assert at.result.broken == {"not ours": 1, "overlap": 1}


TOLD: dict[str, Callable[[Client], Awaitable[object]]] = {
    "its watch has delivered the edit": watched,
    "it has listed it": lambda client: client.list_all(ConfigMap, "ops"),
    "a read of it was answered with it": lambda client: client.get(ConfigMap, assignment_name("r"), "ops"),
}
UNTOLD: dict[str, Callable[[Client], Awaitable[object]]] = {
    "nothing": lambda client: asyncio.sleep(0),
    "a read of something else": lambda client: client.get(Thing, "t0", "team"),
    "it has asked for the current version only": lambda client: client.current_version(ConfigMap, "ops"),
    "its sharder was told": lambda client: watched(client.with_user_agent("sharder")),
}


@pytest.mark.quick
@pytest.mark.parametrize("heard", [*TOLD, *UNTOLD])
@virtual_time
async def test_an_edit_excuses_its_former_owner_until_that_has_been_told_however_late(heard: str) -> None:
    async with owned(Place("s0", "", 3)) as (at, client, thing):
        await client.apply(assigned(Place("s1", "", 5)), force=True)
        await asyncio.sleep(10 * AMNESTY)
        await (TOLD | UNTOLD)[heard](at.world.processes["s0~1"].client())
        await asyncio.sleep(1)
        at.oracles.begins("s0~1", thing)
        assert at.result.broken == ({"not ours": 1} if heard in TOLD else {})


@pytest.mark.quick
@virtual_time
async def test_who_was_told_of_something_older_than_the_edit_has_not_been_told_of_it() -> None:
    """Of what has been put back since."""
    async with owned(Place("s0", "", 3), "s1~1") as (at, client, thing):
        s0, s1 = (at.world.processes[each].client() for each in ("s0~1", "s1~1"))
        await client.apply(assigned(Place("s1", "", 5)), force=True)
        await follow(s1)
        await client.apply(assigned(Place("s0", "", 3)), force=True)
        assert set(at.world.owners().values()) == {"s1"}
        await s0.get(ConfigMap, assignment_name("r"), "ops")
        at.oracles.begins("s0~1", thing)
        assert at.result.broken == {}
        await client.apply(assigned(Place("s1", "", 5)), force=True)
        await s0.get(ConfigMap, assignment_name("r"), "ops")
        await asyncio.sleep(1)
        at.oracles.begins("s0~1", thing)
        assert at.result.broken == {"not ours": 1}


@pytest.mark.quick
@pytest.mark.parametrize("overtaken", [True, False])
@virtual_time
async def test_an_answer_that_the_watch_has_overtaken_takes_nothing_from_a_shard(overtaken: bool) -> None:
    """So it has the object by the next read, and need not know at once that a user takes it."""
    async with owned(Place("s0", "", 3), "s1~1") as (at, client, thing):
        s1, name = at.world.processes["s1~1"], assignment_name("r")
        before = json.dumps(at.world.stored(CHILDREN, Key("ops", name))).encode()
        late = HttpRequest("GET", f"/api/v1/namespaces/ops/configmaps/{name}", {})
        ranged = cast(Ranged, at.world.delivery)
        if overtaken:
            ranged.sent(s1, late)
        await client.apply(assigned(Place("s1", "", 5)), force=True)
        await asyncio.create_task(watched(s1.client()))
        if not overtaken:  # what it says has been put back since
            ranged.sent(s1, late)
        ranged.heard(s1, late, before)
        await s1.client().get(ConfigMap, name, "ops")
        await client.apply(assigned(Place("s2", "", 7)), force=True)
        at.oracles.begins("s1~1", thing)
        assert at.result.broken == ({} if overtaken else {"not ours": 1})


@pytest.mark.quick
@pytest.mark.parametrize("told", [True, False])
@virtual_time
async def test_an_assignment_that_is_put_back_counts_unless_its_later_owner_has_been_told(told: bool) -> None:
    """That a coordinator or a shard that had it before knows better gives nobody two owners."""
    async with owned(Place("s0", "", 3), "s1~1", "x0~1") as (at, client, _):
        await client.apply(assigned(Place("s1", "", 5)), force=True)
        for each in ("s0~1", "x0~1", *(["s1~1"] if told else ())):
            await follow(at.world.processes[each].client())
        await client.apply(assigned(Place("s2", "", 5)), force=True)
        assert set(at.world.owners().values()) == {"s1" if told else "s2"}


@pytest.mark.quick
@pytest.mark.parametrize(
    ("before", "edited"),
    [(Place("s0", "", 9), Place("s1", "", 9)), (Place("s0", "s2", 9), Place("s0", "", 9))],
    ids=str,
)
@virtual_time
async def test_an_assignment_that_was_put_back_counts_once_those_have_died_who_knew_better(
    before: Place, edited: Place
) -> None:
    """Whoever writes his Lease then has written nothing else."""
    async with owned(before, "s1~1") as (at, client, thing):
        at.oracles.begins("s0~1", thing)
        patch = MergePatch({"metadata": {"annotations": {"by": "s0~1"}}})
        written = await at.world.processes["s0~1"].client().patch(Thing, "t0", "team", patch)
        at.oracles.ends("s0~1", thing)
        await client.apply(assigned(edited), force=True)
        assert set(at.world.owners().values()) == {"s0"}
        assert bool(at.world.delivery.drained) == bool(before.target)
        at.world.processes["s0~1"].kill()
        await hold(at.world.processes["s1~1"])
        assert at.world.delivery.drained == {}
        if edited.owner == "s1":
            at.oracles.begins("s1~1", written.metadata)
            assert at.oracles.awaited == set()
        assert (set(at.world.owners().values()), at.result.broken) == ({edited.owner}, {})


@asynccontextmanager
async def late_watch(client: Client) -> AsyncIterator[asyncio.Event]:
    """It delivers nothing until the event is set."""
    late = asyncio.Event()

    async def follow() -> None:
        async with client.watch(ConfigMap, "ops") as events:
            await late.wait()
            async for _ in events:
                pass

    watching = asyncio.create_task(follow())
    await asyncio.sleep(1)
    yield late
    watching.cancel()


@pytest.mark.quick
@pytest.mark.parametrize("known", [True, False])
@virtual_time
async def test_an_edit_excuses_its_former_owner_that_hears_first_what_was_edited(known: bool) -> None:
    """At that epoch, the edit is no news to it; at a greater one it is."""
    async with owned(Place("s0", "", 3), "s1~1") as (at, client, thing):
        async with late_watch(at.world.processes["s0~1"].client()) as late:
            for place in Place("s0", "", 5), Place("s1", "", 6 if known else 5):
                await client.apply(assigned(place), force=True)
            late.set()
            await asyncio.sleep(1)
        assert set(at.world.owners().values()) == {"s1"}
        at.oracles.begins("s0~1", thing)
        assert at.result.broken == ({"not ours": 1} if known else {})


@pytest.mark.quick
@virtual_time
async def test_everything_is_where_it_should_be_whatever_the_epoch_at_which_its_owner_knows_it() -> None:
    async with owned(Place("s0", "", 3)) as (at, client, _):
        async with late_watch(at.world.processes["s0~1"].client()) as late:
            for epoch in 5, 4:
                await client.apply(assigned(Place("s0", "", epoch)), force=True)
            late.set()
            await asyncio.sleep(1)
            await client.apply(assigned(Place("s0", "", 5)), force=True)
        assert [*at.world.delivery.misplaced(at.world.owners(), {"s0"})] == []


@pytest.mark.quick
@pytest.mark.parametrize("heard", [True, False])
@virtual_time
async def test_a_shard_has_to_work_on_what_it_got_back_only_if_it_knew_that_it_was_anothers(
    heard: bool,
) -> None:
    async with owned(Place("s0", "", 3)) as (at, client, _):
        await client.apply(assigned(Place("s1", "", 5)), force=True)
        if heard:
            await watched(at.world.processes["s0~1"].client())
            await asyncio.sleep(1)
        await client.apply(assigned(Place("s0", "", 7)), force=True)
        assert list(at.oracles.awaited) == (["t0"] if heard else [])


@pytest.mark.quick
@pytest.mark.parametrize("again", [True, False])
@virtual_time
async def test_work_on_an_object_that_is_gone_is_none_on_one_that_has_its_name(again: bool) -> None:
    async with owned(Place("s0", "", 3), "x0~1") as (at, client, gone):
        await client.delete(Thing, "t0", "team")
        await at.world.make_things(1)
        thing = (await client.get(Thing, "t0", "team")).metadata
        for each in (gone, thing) if again else (gone,):
            at.oracles.begins("s0~1", each)
            at.oracles.ends("s0~1", each)
        said = Assignment.parse(assigned(Place("s0", "", 3)).data)
        taken = said.change(dict.fromkeys(said.buckets.all.buckets, ("s2", "")))
        assert taken is not None
        await at.world.processes["x0~1"].client().patch(ConfigMap, assignment_name("r"), "ops", taken)
        assert at.result.broken == ({"taken alive": 1} if again else {})


@pytest.mark.quick
@virtual_time
async def test_a_restore_that_undoes_a_restore_excuses_as_an_edit_does() -> None:
    """What the first one had erased comes back, at an epoch that is news to the owner."""
    async with owned(Place("s0", "", 3)) as (at, client, thing):
        first = at.world.backup()
        await client.apply(assigned(Place("s1", "", 5)), force=True)
        second = at.world.backup()
        for restore, owner in (first, "s0"), (second, "s1"):
            restore()
            assert set(at.world.owners().values()) == {owner}
        await asyncio.sleep(1)
        at.oracles.begins("s0~1", thing)
        assert at.result.broken == {}


@pytest.mark.quick
@pytest.mark.parametrize("told", [False, True], ids=["begun before the edit", "begun before it was told"])
@virtual_time
async def test_what_has_begun_before_is_excused_until_it_ends_and_nothing_that_begins_later(
    told: bool,
) -> None:
    async with owned(Place("s0", "", 3), "s1~1") as (at, client, thing):
        edit, former = assigned(Place("s1", "", 5)), at.world.processes["s0~1"].client()
        if told:
            await client.apply(edit, force=True)
        at.oracles.begins("s0~1", thing)
        await client.apply(edit, force=True)
        await former.get(ConfigMap, assignment_name("r"), "ops")
        await asyncio.sleep(10 * AMNESTY)
        at.oracles.begins("s1~1", thing)
        assert at.result.broken == {}
        at.oracles.ends("s0~1", thing)
        at.oracles.begins("s0~1", thing)
        assert at.result.broken == {"not ours": 1, "overlap": 1}


@pytest.mark.quick
@pytest.mark.parametrize("first", ["sent", "told"])
@virtual_time
async def test_a_write_is_excused_that_was_sent_before_its_sender_was_told_of_an_edit(first: str) -> None:
    async with owned(Place("s0", "", 3), "s1~1") as (at, client, _):
        former, present = (at.world.processes[each].client() for each in ("s0~1", "s1~1"))
        arrives, name = asyncio.Event(), assignment_name("r")
        late = Rule("withheld", lambda *of: of[1].method == "PATCH" and of[0].name == "s0~1", lands=arrives)
        at.conditions.rules.append(late)
        await client.apply(assigned(Place("s1", "", 5)), force=True)
        patch = MergePatch({"metadata": {"annotations": {"by": "s0~1"}}})
        if first == "told":
            await former.get(ConfigMap, name, "ops")
            await asyncio.sleep(0.1)
        writing = asyncio.create_task(former.patch(Thing, "t0", "team", patch))
        await asyncio.sleep(1)
        await former.get(ConfigMap, name, "ops")
        await present.patch(Thing, "t0", "team", MergePatch({"metadata": {"annotations": {"by": "s1~1"}}}))
        arrives.set()
        await asyncio.sleep(1)
        writing.cancel()
        assert at.result.broken["stale write"] == (first == "told")


async def give_away(at: Scene, present: Place) -> None:
    """A coordinator gives everything that is in this place to another shard."""
    said = Assignment.parse(assigned(present).data)
    patch = said.change(dict.fromkeys(said.buckets.all.buckets, ("s2", "")))
    assert patch is not None
    await at.world.processes["x0~1"].client().patch(ConfigMap, assignment_name("r"), "ops", patch)


@pytest.mark.quick
@pytest.mark.parametrize("told", [True, False], ids=["has been told", "has not been told"])
@virtual_time
async def test_a_shard_that_got_back_what_an_edit_took_works_on_it_once_it_has_been_told(told: bool) -> None:
    """Only then may no sharder take it from the shard."""
    async with owned(Place("s0", "", 3), "x0~1") as (at, client, thing):
        for place in Place("s1", "", 5), Place("s0", "", 7):
            await client.apply(assigned(place), force=True)
        if told:
            await watched(at.world.processes["s0~1"].client())
            await asyncio.sleep(1)
        at.oracles.begins("s0~1", thing)
        await give_away(at, Place("s0", "", 7))
        assert at.result.broken == ({"taken alive": 1} if told else {})


@pytest.mark.quick
@pytest.mark.parametrize("given_back", [True, False])
@virtual_time
async def test_a_shard_that_has_asked_to_hand_something_over_works_on_it_only_once_a_read_has_given_it_back(
    given_back: bool,
) -> None:
    """Nobody knows whether the request takes effect. Only then may no sharder take it from the shard."""
    async with owned(Place("s0", "s1", 3), "x0~1") as (at, client, thing):
        at.oracles.begins("s0~1", thing)
        s0, said = at.world.processes["s0~1"].client(), Assignment.parse(assigned(Place("s0", "s1", 3)).data)
        await client.apply(assigned(Place("s0", "", 4)), force=True)
        acknowledgement = said.acknowledge("s0", said.buckets.all.buckets)
        assert acknowledgement is not None
        anew = JsonPatch([test("/metadata/resourceVersion", "1"), add("/data", said.data())])
        for patch, sender in (anew, s0.with_user_agent("sharder")), (acknowledgement, s0):
            with suppress(PatchTestFailed):
                await sender.patch(ConfigMap, assignment_name("r"), "ops", patch)
        await asyncio.create_task(watched(s0))
        if given_back:
            await s0.get(ConfigMap, assignment_name("r"), "ops")
        await give_away(at, Place("s0", "", 4))
        assert at.result.broken == ({"taken alive": 1} if given_back else {})


@pytest.mark.quick
@pytest.mark.parametrize("by", ["s0~1", "s1~1", "x0~1"])
@virtual_time
async def test_what_its_owners_own_request_gives_away_is_given_away_at_any_epoch(by: str) -> None:
    """A user has put back what its acknowledgement tests. Of nobody else's request that counts."""
    async with owned(Place("s0", "", 9), "s1~1", "x0~1") as (at, client, thing):
        put_back = assigned(Place("s0", "s1", 3))
        await client.apply(put_back, force=True)
        said = Assignment.parse(put_back.data)
        patch = said.acknowledge("s0", said.buckets.all.buckets)
        assert patch is not None
        await at.world.processes[by].client().patch(ConfigMap, assignment_name("r"), "ops", patch)
        await asyncio.sleep(1)
        at.oracles.begins("s1~1", thing)
        assert at.result.broken["not ours"] == (by != "s0~1")


@pytest.mark.quick
@pytest.mark.parametrize(("undone", "noticed"), [(True, False), (False, True)], ids=["undone", "kept"])
@virtual_time
async def test_what_a_restore_undid_was_not_written_by_the_shard_that_has_the_object(
    undone: bool, noticed: bool
) -> None:
    """So a late write of the former one does not overwrite it."""
    async with owned(Place("s0", "s1", 3), "s1~1") as (at, _, _):
        former, present = (at.world.processes[each].client() for each in ("s0~1", "s1~1"))
        said = Assignment.parse(assigned(Place("s0", "s1", 3)).data)
        given = said.acknowledge("s0", said.buckets.all.buckets)
        assert given is not None
        await former.patch(ConfigMap, assignment_name("r"), "ops", given)
        back = at.world.backup()
        await present.patch(Thing, "t0", "team", MergePatch({"metadata": {"annotations": {"by": "s1~1"}}}))
        if not undone:
            back = at.world.backup()
        await present.patch(Thing, "t0", "team", MergePatch({"metadata": {"annotations": {"by": "again"}}}))
        back()
        at.oracles.restored()
        await former.patch(Thing, "t0", "team", MergePatch({"metadata": {"annotations": {"by": "s0~1"}}}))
        assert at.result.broken["stale write"] == noticed


@pytest.mark.quick
@pytest.mark.parametrize(("after", "noticed"), [(AMNESTY - 1, False), (AMNESTY, True)])
@virtual_time
async def test_by_ranges_a_shard_need_not_know_at_once_of_a_child_that_a_restore_brought_back(
    after: float, noticed: bool
) -> None:
    async with owned(Place("s0", "", 3)) as (at, client, thing):
        label = {bucket_label("r"): str(Ranges().divided.of_key(thing.uid))}
        reference = OwnerReference(api_version="sim.example/v1", kind="Thing", name="t0", uid=thing.uid)
        metadata = ObjectMeta(name="c-t0", namespace="team", labels=label, owner_references=(reference,))
        await client.create(ConfigMap(metadata=metadata, data={"by": "s1"}))
        back = at.world.backup()
        await client.delete(ConfigMap, "c-t0", "team")
        await asyncio.sleep(MISSED_CHILD.bound + 1)
        back()
        at.oracles.restored()
        await asyncio.sleep(after)
        with suppress(AlreadyExists):
            await at.world.processes["s0~1"].client().create(ConfigMap(metadata=metadata))
        assert at.result.broken["missed child"] == noticed


@pytest.mark.quick
@pytest.mark.parametrize("labelled", ["before", "after"])
@virtual_time
async def test_a_shard_need_not_know_of_a_child_that_was_labelled_after_its_owner_had_come(
    labelled: str,
) -> None:
    """By shards that took it by labels, say, it was made without."""
    async with owned(Place("s1", "", 3), "s0~1") as (at, client, thing):
        reference = OwnerReference(api_version="sim.example/v1", kind="Thing", name="t0", uid=thing.uid)
        metadata = ObjectMeta(name="c-t0", namespace="team", owner_references=(reference,))
        await client.create(ConfigMap(metadata=metadata, data={"by": "s1"}))
        label = {bucket_label("r"): str(Ranges().divided.of_key(thing.uid))}
        for step in ("label", "give") if labelled == "before" else ("give", "label"):
            if step == "give":
                await client.apply(assigned(Place("s0", "", 5)), force=True)
            else:
                await client.patch(ConfigMap, "c-t0", "team", MergePatch({"metadata": {"labels": label}}))
            await asyncio.sleep(MISSED_CHILD.bound)
        with suppress(AlreadyExists):
            await at.world.processes["s0~1"].client().create(ConfigMap(metadata=metadata))
        assert at.result.broken["missed child"] == (labelled == "before")


@pytest.mark.quick
@virtual_time
async def test_a_dry_run_decides_nothing() -> None:
    """Not even a name."""
    async with owned(Place("s0", "", 3)) as (at, _, _):
        example = ConfigMap(metadata=ObjectMeta(generate_name="c-", namespace="team"))
        await at.world.processes["s0~1"].client().create(example, dry_run=True)
        assert at.result.broken == {}


@pytest.mark.quick
@virtual_time
async def test_the_objects_of_a_cluster_have_its_shard_and_come_to_another_one_together() -> None:
    by_cluster = Ranges(by="cluster", buckets=64)
    of = by_cluster.divided.of_key
    async with SimulatedCluster(ranges=by_cluster) as world:
        await world.install()
        at = Scene(world)
        await world.make_things(8)
        places = dict.fromkeys(range(64), Place("s0", "", 1))
        async with world.admin() as client:
            meta = ObjectMeta(name=assignment_name("r"), namespace="ops")
            data = Assignment.of(by_cluster.divided, places).data()
            await client.create(ConfigMap(metadata=meta, data=data))
            assert set(world.owners().values()) == {"s0"}
            moved = Assignment.of(by_cluster.divided, places | {of("c1"): Place("s1", "", 2)})
            await client.patch(
                ConfigMap, meta.name, "ops", MergePatch({"data": {**dict.fromkeys(data), **moved.data()}})
            )
        theirs = {name for name, owner in world.owners().items() if owner == "s1"}
        assert theirs == {name for name in world.owners() if world.cluster_of(name) == "c1"}
        assert 0 < len(theirs) < 8
        assert at.result.counts["changes of owners"] == 8 + len(theirs)
