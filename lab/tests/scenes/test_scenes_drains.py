"""Whatever state an object is in, its shard releases it when asked to."""

import asyncio
from contextlib import suppress

import msgspec
import pytest
from tiers import further

from kubeshard.controller import Context, Result
from kubeshard.core import ApiError
from kubeshard.core.patches import MergePatch
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard.sharding.hash_ring import HashRing
from kubeshard.sharding.names import drain_label, shard_label
from kubeshard_lab.simulation.cluster import SimulatedCluster, Thing, Touch
from kubeshard_lab.simulation.faults.injection import Conditions, Rule
from kubeshard_lab.simulation.processes import Process, refusal
from kubeshard_lab.virtual_time import virtual_time

pytestmark = pytest.mark.regression

SPLIT = (0.015, 0.03)
"""Latency one way in seconds: an object that changes every 20 ms has changed before the response to a read arrives."""


def name_that_takes(*things: str, of: str = "s0") -> str:
    """Returns a shard name that owns all these Things in a ring with this shard."""
    keys = [f"sim.example/Thing/team/{thing}" for thing in things]
    names = (f"n{number}" for number in range(3000) if of != f"n{number}")
    return next(n for n in names if all(HashRing([of, n]).owner(key) == n for key in keys))


def undecodable(process: Process) -> float | None:
    assert process.manager is not None
    labels = {"kind": "Thing.v1.sim.example"}
    return process.manager.metrics.registry.get_sample_value("kubeshard_informer_undecodable_objects", labels)


async def start(world: SimulatedCluster) -> None:
    await world.install()
    await world.make_ring()
    world.sharder("x0")
    world.shard("s0", Touch())
    await asyncio.sleep(10)


@pytest.mark.quick
@virtual_time
async def test_an_object_written_every_20_ms_is_handed_over() -> None:
    async with SimulatedCluster(4, latency=SPLIT) as world:
        await start(world)
        await world.make_things(1)
        await world.until(lambda: world.all_owned("s0"), within=10)

        async def heat() -> None:
            async with world.admin() as client:
                beat = 0
                while True:
                    await asyncio.sleep(0.02)
                    beat += 1
                    with suppress(ApiError):
                        patch = MergePatch({"metadata": {"annotations": {"beat": str(beat)}}})
                        await client.patch(Thing, "t0", "team", patch)

        heating = asyncio.create_task(heat())
        other = name_that_takes("t0")
        world.shard(other, Touch())
        await world.until(lambda: world.all_owned(other), within=15)
        heating.cancel()


@pytest.mark.quick
@virtual_time
async def test_an_object_that_does_not_fit_the_controllers_class_is_handed_over() -> None:
    async with SimulatedCluster(4) as world:
        await start(world)
        odd = {
            "apiVersion": "sim.example/v1",
            "kind": "Thing",
            "metadata": {"name": "odd", "namespace": "team"},
            "spec": "of a newer version",
        }
        async with world.admin() as client:
            path = "/apis/sim.example/v1/namespaces/team/things"
            await client.raw("POST", path, msgspec.json.encode(odd))
        await world.until(lambda: world.all_owned("s0"), within=10)
        await asyncio.sleep(1)
        assert undecodable(world.processes["s0"]) == 1
        other = name_that_takes("odd")
        world.shard(other, Touch())
        await world.until(lambda: world.all_owned(other), within=15)


class Hesitant(Touch):
    """Keeps each object busy until it may continue, and then creates its child."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go_on = asyncio.Event()

    async def reconcile(self, ctx: Context, obj: Thing) -> Result | None:
        await self.may_go_on.wait()
        return await super().reconcile(ctx, obj)


def children_apart(world: SimulatedCluster) -> set[str]:
    """Returns the Things whose ConfigMap is on another shard."""
    children = world.owners("", "configmaps")
    return {name for name, owner in world.owners().items() if children.get(f"c-{name}", owner) != owner}


@pytest.mark.parametrize("webhook", [False, *further(True)], ids=["no webhook", "webhook"])
@virtual_time
async def test_a_child_that_the_former_shard_makes_in_its_last_run_follows_its_owner_within_ten_seconds(
    webhook: bool,
) -> None:
    async with SimulatedCluster(4) as world:
        await world.install()
        await world.make_ring()
        world.sharder("x0", webhook=webhook)
        former = Hesitant()
        world.shard("s0", former, workers=20)
        await asyncio.sleep(10)
        await world.make_things(10)
        await world.until(lambda: world.all_owned("s0"), within=10)
        other = name_that_takes("t0", "t1")
        world.shard(other, Touch())
        await asyncio.sleep(100)  # the effects of a new shard are over
        asked = world.draining()
        assert {"t0", "t1"} <= asked
        former.may_go_on.set()
        await world.until(lambda: world.all_owned("s0", other), within=10)
        assert children_apart(world) == asked
        await world.until(lambda: not children_apart(world), within=11)


@virtual_time
async def test_a_child_follows_its_owner_also_when_the_drain_was_refused_at_first() -> None:
    async with SimulatedCluster(4) as world:
        await world.install()
        await world.make_ring()
        sharder = world.sharder("x0")
        former = Hesitant()
        world.shard("s0", former, workers=20)
        await asyncio.sleep(10)
        await world.make_things(3)
        await world.until(lambda: world.all_owned("s0"), within=10)

        async def refuse(request: HttpRequest) -> HttpResponse | None:
            return (
                refusal(403, "Forbidden")
                if request.method == "PATCH" and "/things/" in request.target
                else None
            )

        for network in sharder.networks:
            network.before = refuse
        other = name_that_takes("t0", "t1", "t2")
        world.shard(other, Touch())
        await asyncio.sleep(100)
        assert not world.draining()
        for network in sharder.networks:
            network.before = None
        former.may_go_on.set()
        await world.until(lambda: world.all_owned(other), within=15)
        await world.until(lambda: not children_apart(world), within=11)


@virtual_time
async def test_a_drain_that_takes_effect_although_it_timed_out_holds_up_no_children() -> None:
    async with SimulatedCluster() as world:
        await world.install()
        await world.make_ring()
        sharder = world.sharder("x0")
        for number in range(2):
            world.shard(f"s{number}", Touch())
        await world.make_things(10)
        await world.until(lambda: world.all_owned("s0", "s1"), within=60)
        await asyncio.sleep(60)
        late: set[str] = set()

        async def after(request: HttpRequest, answer: HttpResponse) -> None:
            drains = request.method == "PATCH" and drain_label(world.ring).encode() in (request.body or b"")
            if drains and b'"true"' in (request.body or b"") and request.target not in late:
                late.add(request.target)
                await asyncio.sleep(60)

        sharder.kill()
        world.shard("s2", Touch())
        await asyncio.sleep(30)
        world.connected = lambda process, network: setattr(network, "after", after)
        world.sharder("x1")  # its first look requests drains, and no shard comes or goes later

        def together() -> bool:
            label = shard_label(world.ring)
            maps = world.objects("", "configmaps").values()
            of = {
                each["metadata"]["name"].removeprefix("c-"): each["metadata"]["labels"][label]
                for each in maps
            }
            owners = world.owners()
            return "s2" in owners.values() and all(
                of.get(name, owner) == owner for name, owner in owners.items()
            )

        await world.until(
            lambda: bool(late) and not world.draining() and "s2" in world.owners().values(), within=90
        )
        await world.until(together, within=40)


@virtual_time
async def test_a_child_stays_with_its_owner_that_a_late_move_has_given_to_another_shard() -> None:
    """The move was sent when that shard was the right one; since then all moves of the owner are refused."""
    async with SimulatedCluster() as world:
        conditions, lands, accepted, sent = Conditions(world, 1), asyncio.Event(), False, set[str]()
        first = name_that_takes("t0")
        last = name_that_takes("t0", of=first)

        def first_move(process: Process, request: HttpRequest) -> bool:
            move = f'"{shard_label(world.ring)}":"{first}"'.encode() in (request.body or b"")
            if request.method != "PATCH" or not move or request.target in sent:
                return False
            sent.add(request.target)
            return True

        def refused(process: Process, request: HttpRequest) -> bool:
            by_sharder = process is sharder and request.method == "PATCH"
            child = "/configmaps/" in request.target and not lands.is_set()
            return by_sharder and not accepted and (child or "/things/" in request.target)

        await world.install()
        await world.make_ring()
        sharder = world.sharder("x0")
        world.shard("s0", Touch())
        await asyncio.sleep(10)
        await world.make_things(1)
        await world.until(lambda: world.all_owned("s0") and bool(world.owners("", "configmaps")), within=20)
        conditions.rules += [Rule("late", first_move, lands=lands), Rule("refused", refused)]
        world.shard(first, Touch())
        world.processes["s0"].kill()
        await world.until(lambda: len(sent) == 2, within=60)
        world.shard(last, Touch())
        await asyncio.sleep(60)  # the effects of a new shard are over
        assert world.owners() == {"t0": "s0"}
        lands.set()
        await asyncio.sleep(30)
        assert world.owners() == {"t0": first}
        assert not children_apart(world)
        accepted = True
        await world.until(lambda: world.all_owned(last) and not children_apart(world), within=30)
