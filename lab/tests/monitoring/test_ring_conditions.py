"""What a ring's conditions say: the truth, soon after it has changed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from test_scenes_reference_role import grant

from kubeshard.core import MergePatch, ObjectMeta
from kubeshard.core.conditions import Condition
from kubeshard.core.namespaces import NAMESPACE_NAME_LABEL
from kubeshard.core.selectors import LabelSelector
from kubeshard.sharding.api import READY, ControllerRing, RingResource
from kubeshard.sharding.conditions import OWN_CONDITIONS, needed
from kubeshard.sharding.names import SYSTEM_NAMESPACES_ANNOTATION
from kubeshard_lab.simulation.cluster import MAIN, SimulatedCluster, Thing, Touch
from kubeshard_lab.virtual_time import virtual_time
from scenes import CHILDREN, PATCH_THINGS, READ_THINGS, SHARDERS, Keeping, begin, create_things, grant_rights


async def conditions(world: SimulatedCluster, ring: str = "r") -> Mapping[str, Condition]:
    async with world.admin() as client:
        status = (await client.get(ControllerRing, ring)).status
    return {each.type: each for each in status.conditions} if status else {}


@pytest.mark.quick
def test_the_page_has_every_condition_and_marks_those_without_which_something_is_not_sharded() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs/alerts.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (True|False), `\w+`( \*)?(?:; True, `\w+`)? \|", page, re.M)
    assert {type_ for type_, _, _ in rows} == {*OWN_CONDITIONS, READY}
    for type_, status, star in rows:
        assert bool(needed([Condition(type=type_, status=status)])) == bool(star), type_


@virtual_time
async def test_a_ring_of_which_something_is_not_sharded_is_not_ready_and_says_why() -> None:
    async with SimulatedCluster(1, users=SHARDERS) as world:
        await begin(world)
        assert (await conditions(world))["Ready"].status == "True"
        await world.make_ring("refused", resources=(MAIN, RingResource(group="", resource="events")))
        await world.make_ring("unserved", resources=(MAIN, RingResource(group="a.example", resource="bs")))
        await world.make_ring("forbidden", resources=(MAIN, RingResource(group="", resource="secrets")))
        await asyncio.sleep(60)
        for ring, why in (
            ("refused", "ResourcesAccepted"),
            ("forbidden", "Permitted"),
        ):
            found = await conditions(world, ring)
            ready = found["Ready"]
            assert (ready.status, ready.reason) == ("False", "PartlySharded")
            assert why in ready.message
            assert found[why].status == "False"
        assert (await conditions(world))["Ready"].status == "True"
        found = await conditions(world, "unserved")
        assert (found["Ready"].status, found["ResourcesResolved"].status) == ("True", "False")


@pytest.mark.nightly
@virtual_time
async def test_a_right_that_the_sharder_can_do_without_is_mentioned_but_not_missed() -> None:
    """The Go project's role has neither `watch` nor `get`."""
    async with SimulatedCluster(1, users=SHARDERS) as world:
        await begin(world)
        await grant_rights(world, ("sim.example", "things", "list patch"), CHILDREN)
        await asyncio.sleep(400)  # one full scan
        found = await conditions(world)
        assert found["Ready"].status == "True"
        assert (found["Permitted"].status, found["Permitted"].reason) == ("True", "OptionalPermissionMissing")
        assert "verbs: [get, watch]" in found["Permitted"].message


@pytest.mark.nightly
@pytest.mark.parametrize("verb", ["patch", "list"])
def test_a_right_that_came_is_seen_within_fifteen_seconds(verb: str) -> None:
    @virtual_time
    async def scene() -> None:
        async with SimulatedCluster(1, users=SHARDERS) as world:
            await begin(world)
            less = {"patch": "get list watch", "list": "get watch patch"}[verb]
            await grant_rights(world, ("sim.example", "things", less), CHILDREN)
            world.processes["s0"].kill()
            await asyncio.sleep(400)
            assert f"[{verb}]" in (await conditions(world))["Permitted"].message
            await grant_rights(world, READ_THINGS, PATCH_THINGS, CHILDREN)
            await asyncio.sleep(15)
            found = await conditions(world)
            assert "Permitted" not in found
            assert found["Ready"].status == "True"
            await world.until(lambda: world.all_owned("s1"), within=5)

    scene()


@pytest.mark.nightly
@virtual_time
async def test_a_right_to_move_objects_that_is_gone_is_told_as_soon_as_a_move_is_refused() -> None:
    async with SimulatedCluster(1, users=SHARDERS) as world:
        await begin(world)
        await asyncio.sleep(400)
        world.caller.reachable = False
        await grant_rights(world, ("sim.example", "things", "get list watch"), CHILDREN)
        await world.make_things(1, prefix="new")
        await asyncio.sleep(3)
        assert "[patch]" in (await conditions(world))["Permitted"].message
        await grant_rights(world, READ_THINGS, PATCH_THINGS, CHILDREN)
        await asyncio.sleep(15)
        assert "Permitted" not in await conditions(world)
        assert world.all_owned("s0", "s1")


@pytest.mark.nightly
@virtual_time
async def test_in_namespaces_that_a_ring_names_rights_in_these_are_enough() -> None:
    async with SimulatedCluster(1, users=SHARDERS) as world:
        await world.install()
        await grant_rights(world, ("sim.example", "things", "list watch"), ("", "configmaps", "list watch"))
        here = (("sim.example", "things", "get patch"), ("", "configmaps", "get patch"))
        await grant(world, "ring-here", here, "team")
        await world.make_ring(selector=LabelSelector(match_labels={NAMESPACE_NAME_LABEL: "team"}))
        world.sharder("x0")
        world.shard("s0", Touch())
        await world.make_things(3)
        await world.until(lambda: world.all_owned("s0"), within=60)
        world.shard("s1", Touch())
        await asyncio.sleep(400)
        assert "s1" in world.owners().values()
        assert set(await conditions(world)) == {"Ready"}


@pytest.mark.nightly
@pytest.mark.parametrize("quiet", [120.0, 600.0])
@virtual_time
async def test_a_webhook_that_is_not_called_is_a_condition_within_a_minute_until_it_is_called_again(
    quiet: float,
) -> None:
    async with SimulatedCluster(1, users=SHARDERS) as world:
        await begin(world)
        assert "WebhookReached" not in await conditions(world)
        world.caller.reachable = False
        await create_things(world, 4, 15.0)
        found = (await conditions(world))["WebhookReached"]
        assert found.status == "False"
        assert "Service" in found.message
        await asyncio.sleep(quiet)
        assert "WebhookReached" in await conditions(world)
        world.caller.reachable = True
        await asyncio.sleep(65)
        assert "WebhookReached" not in await conditions(world)


@virtual_time
async def test_objects_that_the_webhook_could_not_assign_are_no_sign_that_it_is_not_called() -> None:
    """They are older than the ring, or than its first shard."""
    async with SimulatedCluster(1, users=SHARDERS) as world:
        await world.install()
        await grant_rights(world, READ_THINGS, PATCH_THINGS, CHILDREN)
        world.sharder("x0")
        await world.make_things(5, prefix="old")
        await world.make_ring()
        await asyncio.sleep(20)
        await world.make_things(5, prefix="early")
        world.shard("s0", Touch())
        await world.until(lambda: world.all_owned("s0"), within=30)
        for _ in range(30):
            await asyncio.sleep(5)
            assert "WebhookReached" not in await conditions(world)


@virtual_time
async def test_a_confirmed_system_namespace_is_sharded_without_a_webhook_in_it() -> None:
    async with SimulatedCluster(1) as world:
        await world.install()
        await world.make_ring(selector=LabelSelector())
        world.sharder("x0")
        world.shard("s0", Touch())
        await asyncio.sleep(20)

        async def shard_of(name: str) -> str:
            async with world.admin() as client:
                await client.create(Thing(metadata=ObjectMeta(name=name, namespace="kube-system")))
            at_once = world.owners(namespace="kube-system")[name]
            assert not at_once
            await asyncio.sleep(3)
            return world.owners(namespace="kube-system")[name]

        assert not await shard_of("before")
        assert (await conditions(world))["Ready"].reason == "PartlySharded"
        async with world.admin() as client:
            confirmed = {
                "metadata": {"annotations": {SYSTEM_NAMESPACES_ANNOTATION: "kube-system,sharding-system"}}
            }
            await client.patch(ControllerRing, "r", "", MergePatch(confirmed))
        await asyncio.sleep(3)
        assert world.owners(namespace="kube-system") == {"before": "s0"}
        assert await shard_of("after") == "s0"
        await asyncio.sleep(90)
        assert set(await conditions(world)) == {"Ready"}


@virtual_time
async def test_a_drain_that_is_stuck_is_blamed_on_shards_that_hold_their_leases_only() -> None:
    async with SimulatedCluster(1, users=SHARDERS) as world:
        await begin(world)
        await world.processes["s0"].stop()
        await world.processes["s1"].stop()
        world.shard("s2", Keeping(), workers=20)
        await world.until(lambda: world.all_owned("s2"), within=60)
        await asyncio.sleep(20)
        world.shard("s3", Touch())
        await asyncio.sleep(120)
        found = (await conditions(world))["DrainStuck"]
        assert ": s2 (things team/" in found.message
        world.processes["s2"].kill()
        while "DrainStuck" in (found_now := await conditions(world)):
            states = {
                key.name: obj["metadata"]["labels"].get("alpha.sharding.timebertt.dev/state")
                for key, obj in world.objects("coordination.k8s.io", "leases").items()
                if key.namespace == "ops"
            }
            assert states["s2"] != "dead", found_now["DrainStuck"].message
            await asyncio.sleep(0.5)
