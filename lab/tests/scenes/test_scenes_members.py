"""What a shard writes besides its main objects is written by the next shard, too, whatever way it came to be. All
shards are replaced, each object is edited and deleted, and no member is closed to the shard that has its Thing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import pytest

from kubeshard import ensure
from kubeshard.controller import Context, Controller, Finalizer, Generator, Watch, when
from kubeshard.core import ConfigMap, MergePatch, Namespace, ObjectMeta
from kubeshard.core.errors import AlreadyExists
from kubeshard.core.selectors import LabelSelector
from kubeshard.manager import Manager
from kubeshard.shard.sharding import Sharding
from kubeshard.sharding.names import shard_label
from kubeshard_lab.simulation.cluster import SimulatedCluster, Thing, simulate
from kubeshard_lab.simulation.processes import Process

pytestmark = pytest.mark.regression

FINALIZER = "example.com/members"
OLD, NEW = ("old-1", "old-2"), ("new-1", "new-2")
THINGS = [f"t{number}" for number in range(4)]

Write = Callable[[Context, Thing], Awaitable[object]]


def member(thing: Thing, namespace: str, labels: Mapping[str, str] | None = None) -> ConfigMap:
    meta = ObjectMeta(name=thing.metadata.name, namespace=namespace, labels=labels)
    return ConfigMap(metadata=meta, data={"v": str(thing.spec["v"])})


async def ensured_elsewhere(ctx: Context, thing: Thing) -> None:
    await ensure(ctx, member(thing, "public"))


async def ensured_without_owner(ctx: Context, thing: Thing) -> None:
    await ensure(ctx, member(thing, "team"))


async def ensured_with_owner(ctx: Context, thing: Thing) -> None:
    await ensure(ctx, member(thing, "team"), owner=thing)


async def ensured_with_copied_labels(ctx: Context, thing: Thing) -> None:
    await ensure(ctx, member(thing, "public", thing.metadata.labels))


async def created_or_patched(ctx: Context, thing: Thing) -> None:
    """With the labels of the Thing, as many do."""
    wanted = member(thing, "public", thing.metadata.labels)
    try:
        await ctx.client.create(wanted)
    except AlreadyExists:
        live = await ctx.client.get(ConfigMap, wanted.metadata.name, "public")
        if live.data != wanted.data:
            patch = MergePatch({"data": wanted.data})
            await ctx.client.patch(ConfigMap, wanted.metadata.name, "public", patch, base=live)


async def applied_by_the_client(ctx: Context, thing: Thing) -> None:
    await ctx.client.apply(member(thing, "public"))


async def applied(ctx: Context, thing: Thing) -> None:
    await ctx.apply(member(thing, "public"), member(thing, "team"), owner=thing)


async def generated(ctx: Context, thing: Thing) -> AsyncIterator[ConfigMap]:
    yield member(thing, "public")
    yield member(thing, "team", thing.metadata.labels)


async def delete_it(ctx: Context, thing: Thing) -> None:
    for namespace in ("public", "team"):
        name = thing.metadata.name
        for found in await ctx.client.list_all(ConfigMap, namespace):
            if found.metadata.name == name:
                await ctx.client.delete_object(found)


WAYS: Mapping[str, Write] = {
    each.__name__: each
    for each in (
        ensured_elsewhere,
        ensured_without_owner,
        ensured_with_owner,
        ensured_with_copied_labels,
        created_or_patched,
        applied_by_the_client,
        applied,
    )
}


def controller(way: str) -> Controller[Thing]:
    if way == "generated":
        generator = Generator(generated)
        reconciler, finalizer = generator, generator.cleanup(FINALIZER)
    else:
        write = WAYS[way]

        async def reconcile(ctx: Context, thing: Thing) -> None:
            await write(ctx, thing)

        reconciler = reconcile
        deleting = Finalizer.deleting_members(FINALIZER)
        finalizer = deleting if way == "applied" else Finalizer(FINALIZER, delete_it)
    return Controller(
        name="thing",
        reconciler=reconciler,
        primary=Watch(Thing, when=when.generation_changed),
        applies=[ConfigMap],
        finalizers=[finalizer],
    )


class Members:
    def __init__(self, world: SimulatedCluster, way: str) -> None:
        self.world = world
        self.way = way

    def shard(self, name: str) -> Process:
        process = Process(self.world, name)
        member = Sharding(self.world.ring, name, "ops")
        return process.start(
            Manager([controller(self.way)], client=process.client(), sharding=member, status_pages=None)
        )

    def values(self) -> set[str]:
        found = self.world.objects("", "configmaps").items()
        return {obj["data"]["v"] for key, obj in found if key.name in THINGS}

    def labels(self) -> dict[str, set[str]]:
        """The shards that members name, by Thing."""
        named: dict[str, set[str]] = {}
        for key, obj in self.world.objects("", "configmaps").items():
            label = (obj["metadata"].get("labels") or {}).get(shard_label(self.world.ring), "")
            named.setdefault(key.name, set()).add(label)
        return named

    async def edit(self, value: int) -> None:
        async with self.world.admin() as client:
            for name in THINGS:
                await client.patch(Thing, name, "team", MergePatch({"spec": {"v": value}}))

    async def until_written(self, value: int) -> None:
        await self.world.until(lambda: self.values() == {str(value)}, within=90)

    async def roll_out(self) -> None:
        shards = [self.shard(name) for name in NEW]
        await self.world.until(lambda: set(self.world.owners().values()) & set(NEW), within=60)
        assert len(shards) == len(NEW)
        for name in OLD:
            await self.world.processes[name].stop()
        await self.world.until(lambda: self.world.all_owned(*NEW), within=90)


SOME = LabelSelector(match_labels={"some": "yes"})


@pytest.mark.parametrize(
    ("way", "selector"),
    [*((way, SOME) for way in (*WAYS, "generated")), ("ensured_elsewhere", None), ("generated", None)],
)
def test_after_a_roll_out_every_member_is_edited_and_deleted(
    way: str, selector: LabelSelector | None
) -> None:
    async def scene() -> None:
        async with SimulatedCluster() as world:
            members = Members(world, way)
            await world.install()
            async with world.admin() as client:
                await client.create(Namespace(metadata=ObjectMeta(name="public")))
                label = MergePatch({"metadata": {"labels": {"some": "yes"}}})
                await client.patch(Namespace, "team", None, label)
            await world.make_ring(selector=selector)
            world.sharder("x0")
            for name in OLD:
                members.shard(name)
            async with world.admin() as client:
                for name in THINGS:
                    await client.create(
                        Thing(metadata=ObjectMeta(name=name, namespace="team"), spec={"v": 1})
                    )
            await members.until_written(1)
            await members.roll_out()
            await members.edit(2)
            await members.until_written(2)
            await asyncio.sleep(20)
            owners = world.owners()
            if way != "applied_by_the_client":
                for name, shards in members.labels().items():
                    assert name not in owners or shards <= {owners[name], ""}
            async with world.admin() as client:
                for name in THINGS:
                    await client.delete(Thing, name, "team")
            gone = lambda: not world.objects("sim.example", "things")  # noqa: E731
            await world.until(gone, within=60)
            if way != "ensured_with_owner":  # there is no garbage collector here
                assert not members.values()

    simulate(scene)


@pytest.mark.parametrize("way", ["ensured_elsewhere", "ensured_without_owner", "created_or_patched"])
def test_a_label_on_an_object_that_belongs_to_nobody_holds_no_shard_up(way: str) -> None:
    """Earlier versions of kubeshard stamped whatever a shard created."""

    async def scene() -> None:
        async with SimulatedCluster() as world:
            members = Members(world, way)
            await world.install()
            async with world.admin() as client:
                await client.create(Namespace(metadata=ObjectMeta(name="public")))
                for name in THINGS:
                    for namespace in ("public", "team"):
                        meta = ObjectMeta(
                            name=name, namespace=namespace, labels={shard_label(world.ring): "gone"}
                        )
                        await client.create(ConfigMap(metadata=meta, data={"v": "0"}))
                    await client.create(
                        Thing(metadata=ObjectMeta(name=name, namespace="team"), spec={"v": 1})
                    )
            await world.make_ring()
            world.sharder("x0")
            for name in OLD:
                members.shard(name)
            await world.until(lambda: "1" in members.values(), within=60)
            await members.edit(2)
            place = "team" if way == "ensured_without_owner" else "public"
            await world.until(
                lambda: (
                    {
                        obj["data"]["v"]
                        for key, obj in world.objects("", "configmaps").items()
                        if key.namespace == place and key.name in THINGS
                    }
                    == {"2"}
                ),
                within=60,
            )

    simulate(scene)
