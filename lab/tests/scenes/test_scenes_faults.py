"""Each kind of fault of a simulation can be asked for by itself, happens then, and violates nothing."""

import asyncio

import pytest

from kubeshard.core.errors import NotFound
from kubeshard.sharding.names import SYNC_PERIOD
from kubeshard.sharding.schedule import SETTLE
from kubeshard_lab.simulation.cluster import SimulatedCluster, Thing, simulate
from kubeshard_lab.simulation.faults.injection import AIMED, KINDS, ONLY_BY, Conditions, Injection
from kubeshard_lab.simulation.faults.users import created_again, mended_again
from kubeshard_lab.simulation.oracles import SimulationResult
from kubeshard_lab.simulation.properties import NOT_SETTLED
from kubeshard_lab.simulation.ring_oracles import THINGS
from kubeshard_lab.simulation.running import things
from kubeshard_lab.simulation.script import Script, stream
from simulation_digest import explore

pytestmark = pytest.mark.regression

NEED_OTHERS = {"webhook": "recreate", "children_unlisted": "watches_cut"}
"""What has to happen for a fault to matter: webhooks are asked when objects are created, and watches that go on list
nothing.
"""


@pytest.mark.nightly
@pytest.mark.parametrize("kind", sorted(KINDS.keys() - AIMED))
def test_a_fault_that_was_asked_for_happens_and_violates_nothing(kind: str) -> None:
    kinds, effects = [kind, *([NEED_OTHERS[kind]] if kind in NEED_OTHERS else ())], 0
    delivery, *_ = ONLY_BY.get(kind, ("labels",))
    sharder = "in-manager" if delivery == "cluster" else "service"
    for seed in (1, 2, 3):
        result = explore(seed, 3, kinds, objects=10, delivery=delivery, sharder=sharder)
        assert result.breaks == []
        if effects := result.counts[f"effects: {kind}"]:
            break
    assert effects


@pytest.mark.parametrize("known", [True, False], ids=["of the fault", "unexplained"])
def test_without_a_webhook_a_child_that_was_moved_while_it_had_another_owner_has_time_until_the_next_full_scan(
    known: bool,
) -> None:
    async def scene() -> None:
        async with SimulatedCluster(seed=1) as world:
            conditions, result = Conditions(world, seed=1), SimulationResult()
            script = Script(seed=1, minutes=1, objects=12, sharder="in-manager")
            workload = things(world, result, script, "")
            await workload.begin()
            on = Injection(workload, conditions, stream("3"), stretch=100)
            fault = asyncio.create_task(KINDS["reparented"](on))
            assert await on.until(lambda: on.effects == 1, 5)
            workload.start("s3")  # after which all objects are scanned several times
            await asyncio.sleep(sum(SETTLE))
            conditions.over.set()
            await fault
            if not known:
                workload.next_scan.clear()
            began = world.loop.time()
            await workload.end()
            assert NOT_SETTLED.bound < world.loop.time() - began < SYNC_PERIOD
            assert result.broken == ({} if known else {"not settled": 1})

    simulate(scene)


@pytest.mark.parametrize("cut", [True, False])
def test_a_child_whose_owner_changed_has_time_until_the_next_full_scan_if_the_sharder_was_cut_off(
    cut: bool,
) -> None:
    async def scene() -> None:
        async with SimulatedCluster(seed=1) as world:
            conditions, result = Conditions(world, seed=1), SimulationResult()
            workload = things(world, result, Script(seed=1, minutes=1, objects=12), "")
            await workload.begin()
            on = Injection(workload, conditions, stream("3"), stretch=100)
            fault = asyncio.create_task(KINDS["reparented"](on))
            assert await on.until(lambda: on.effects == 1, 5)
            (child,) = [
                key.name
                for key, found in world.objects("", "configmaps").items()
                if key.name.startswith("c-")
                and found["metadata"]["ownerReferences"][0]["name"] != key.name.removeprefix("c-")
            ]
            owner = child.removeprefix("c-")
            there = world.owners("", "configmaps")[child]
            assert there != world.owners()[owner], "it has followed its other owner"
            for process in workload.live("x"):
                process.cut_off(cut)
            await asyncio.sleep(10)
            conditions.over.set()
            await fault
            assert set(workload.next_scan) == ({owner} if cut else set())
            assert world.owners("", "configmaps")[child] == (there if cut else world.owners()[owner])

    simulate(scene)


def test_what_users_mended_is_mended_again_if_etcd_was_restored_to_a_state_before_that() -> None:
    async def scene() -> None:
        async with SimulatedCluster(seed=1) as world:
            workload = things(world, SimulationResult(), Script(seed=1, minutes=1, objects=12), "")
            await workload.begin()
            conditions = Conditions(world, seed=1)
            child_moves, unreadable = (
                Injection(workload, conditions, stream("3"), stretch=100) for _ in "12"
            )
            faults = [
                asyncio.create_task(KINDS["reparented"](child_moves)),
                asyncio.create_task(KINDS["undecodable"](unreadable)),
            ]
            assert await child_moves.until(lambda: child_moves.effects == unreadable.effects == 1, 5)
            back = world.backup()
            conditions.over.set()
            await asyncio.gather(*faults)
            back()
            workload.oracles.restored()

            def broken() -> set[str]:
                owners = {
                    f"{key.name} is {found['metadata']['ownerReferences'][0]['name']}'s"
                    for key, found in world.objects("", "configmaps").items()
                }
                things = world.objects("sim.example", "things")
                texts = {key.name for key, found in things.items() if found["spec"] == "a text"}
                return texts | (owners - {f"c-t{number} is t{number}'s" for number in range(12)})

            assert len(broken()) == 2
            await mended_again(workload)
            assert not broken()
            await workload.end()
            assert workload.unsettled() == []

    simulate(scene)


@pytest.mark.parametrize("there", [True, False], ids=["with the kind", "without the kind"])
def test_a_restore_brings_back_whether_a_kind_is_served_and_users_create_what_is_missing(there: bool) -> None:
    async def scene() -> None:
        async with SimulatedCluster(seed=1) as world:
            workload = things(world, SimulationResult(), Script(seed=1, minutes=1, objects=12), "")
            await workload.begin()
            conditions = Conditions(world, seed=1)
            removal, restore = (Injection(workload, conditions, stream("3"), stretch=10) for _ in "12")
            back = world.backup()
            deleted = asyncio.create_task(KINDS["kind_deleted"](removal))
            assert await removal.until(lambda: not world.server.store.has(THINGS), 60)
            if not there:
                back = world.backup()
                await deleted
                assert len(world.owners()) == 12
            back()
            workload.oracles.restored()
            assert len(world.owners()) == 12 * there
            assert world.server.store.has(THINGS) == there
            async with world.admin() as client:
                if there:
                    await client.get(Thing, "t0", "team")
                else:
                    with pytest.raises(NotFound):
                        await client.get(Thing, "t0", "team")
            deleted.cancel()
            await created_again(restore)
            assert len(world.owners()) == 12
            conditions.over.set()
            await workload.end()
            assert workload.unsettled() == []

    simulate(scene)
