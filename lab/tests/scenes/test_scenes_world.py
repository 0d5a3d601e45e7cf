"""The simulated cluster that the other tests in this folder rely on behaves as they assume."""

import pytest

from kubeshard_lab.simulation.cluster import SimulatedCluster, Touch
from kubeshard_lab.virtual_time import virtual_time

pytestmark = pytest.mark.quick


@virtual_time
async def test_a_ring_of_three_shards_owns_every_object_and_its_children_follow() -> None:
    async with SimulatedCluster() as world:
        await world.install()
        await world.make_ring()
        world.sharder("x0")
        shards = [world.shard(f"s{number}", Touch()) for number in range(3)]
        await world.make_things(12)
        await world.until(lambda: world.all_owned("s0", "s1", "s2"), within=30)
        await world.until(lambda: len(world.owners("", "configmaps")) == 12, within=10)

        def followed() -> bool:
            children, things = world.owners("", "configmaps"), world.owners()
            return children == {f"c-{name}": owner for name, owner in things.items()}

        await world.until(followed, within=10)
        assert not any(process.dead for process in shards)


@virtual_time
async def test_what_a_killed_shard_owned_moves_to_the_others_and_a_dead_process_writes_nothing() -> None:
    async with SimulatedCluster() as world:
        await world.install()
        await world.make_ring()
        world.sharder("x0")
        dead, _ = world.shard("s0", Touch()), world.shard("s1", Touch())
        await world.make_things(12)
        await world.until(lambda: world.all_owned("s0", "s1") and "s0" in world.owners().values(), within=30)
        dead.kill()
        sent: list[str] = []
        world.observers.append(
            lambda process, request, _: sent.append(request.target) if process is dead else None
        )
        await world.until(lambda: world.all_owned("s1"), within=40)
        assert sent == []
