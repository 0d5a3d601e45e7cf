"""A shard against a real API server; the test acts as the sharder and sets labels by hand."""

from __future__ import annotations

import asyncio
import dataclasses
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from shard_process import Widget

from kubeshard.client import Client
from kubeshard.controller import Context, Controller, Reconciler, Result
from kubeshard.core import ConfigMap, Key, Lease, NotFound, NotOurs, ObjectMeta, controller_reference
from kubeshard.core.patches import JsonPatch, MergePatch, add
from kubeshard.core.versions import compare
from kubeshard.manager import Manager, RightLost
from kubeshard.runtime.watchdog import NoWatchdog
from kubeshard.runtime.world import REAL_WORLD
from kubeshard.shard import DeclaredRing, ShardFence, ShardIdentity, Sharding
from kubeshard.shard.identity import Incarnation
from kubeshard.sharding.api import ControllerRing, ControllerRingSpec, RingGroupResource, RingResource
from kubeshard.sharding.crd import controller_ring_crd
from kubeshard.sharding.names import (
    INCARNATION_ANNOTATION,
    RING_LABEL,
    SHARDER_IDENTITY,
    STATE_LABEL,
    drain_label,
    shard_label,
)
from kubeshard.sharding.ring_resources import RingResources

CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.shardtest.example.com"},
    "spec": {
        "group": "shardtest.example.com",
        "names": {"kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "singular": "widget"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                },
            }
        ],
    },
}
RESOURCES = (
    RingResource(
        group="shardtest.example.com",
        resource="widgets",
        controlled_resources=(RingGroupResource(group="", resource="configmaps"),),
    ),
)


@pytest.fixture(autouse=True, scope="module")
def crds(install_crd: Callable[[Any], None]) -> None:
    install_crd(CRD)
    install_crd(controller_ring_crd())


class Script(Reconciler[Widget]):
    """A reconciler that records its runs; `body` is what a run does."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.gone_keys: list[Key] = []
        self.free = asyncio.Event()
        self.free.set()
        self.body: Callable[[Context, Widget], Any] | None = None

    async def reconcile(self, ctx: Context, obj: Widget, /) -> Result | None:
        self.runs.append(obj.metadata.name)
        await self.free.wait()
        if self.body is not None:
            await self.body(ctx, obj)
        return None

    async def gone(self, ctx: Context, key: Key, /) -> Result | None:
        self.gone_keys.append(key)
        return None


WITHOUT_WATCHDOG = dataclasses.replace(REAL_WORLD, watchdog=NoWatchdog)


class Ring:
    """One ring in one namespace, and the sharder's role in it."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self.name = f"ring-{namespace}"
        self.label, self.drain = shard_label(self.name), drain_label(self.name)
        self.first, self.second = Script(), Script()

    def sharding(self, name: str, **options: Any) -> Sharding:
        ring = DeclaredRing(self.name, options.pop("resources", RESOURCES))
        return Sharding(ring, name, self.namespace, **options)

    def manager(self, name: str = "shard-a", **options: Any) -> Manager:
        return Manager(
            [
                Controller(name="first", reconciler=self.first, primary=Widget, owns=[ConfigMap]),
                Controller(name="second", reconciler=self.second, primary=Widget),
            ],
            client=self.client.config,
            sharding=self.sharding(name, **options),
            world=WITHOUT_WATCHDOG,
            status_pages=None,
        )

    @asynccontextmanager
    async def shard(self, name: str = "shard-a", **options: Any) -> AsyncIterator[asyncio.Task[None]]:
        manager = self.manager(name, **options)
        task = asyncio.create_task(manager.run())
        try:
            await self.until(lambda: self.held_by(name), "the lease is held")
            yield task
        finally:
            if not task.done():
                manager.stop()
            await asyncio.wait([task], timeout=20)

    async def create(self, name: str, shard: str | None) -> Widget:
        labels = {self.label: shard} if shard else None
        return await self.client.create(
            Widget(metadata=ObjectMeta(name=name, namespace=self.namespace, labels=labels))
        )

    async def labels(self, name: str, **labels: str | None) -> Widget:
        """Sets `shard` and `drain`; None removes the label."""
        keys = {"shard": self.label, "drain": self.drain}
        patch = MergePatch({"metadata": {"labels": {keys[name]: value for name, value in labels.items()}}})
        return await self.client.patch(Widget, name, self.namespace, patch)

    async def widget(self, name: str) -> Widget:
        return await self.client.get(Widget, name, self.namespace)

    async def lease(self, name: str = "shard-a") -> Lease:
        return await self.client.get(Lease, name, self.namespace)

    async def held_by(self, name: str) -> bool:
        try:
            return (await self.lease(name)).spec.holder_identity == name
        except NotFound:
            return False

    async def until(self, condition: Callable[[], Any], what: str) -> None:
        """Polls the condition (plain or async) for ten seconds."""
        async with asyncio.timeout(10):
            try:
                while True:
                    met = condition()
                    if await met if asyncio.iscoroutine(met) else met:
                        return
                    await asyncio.sleep(0.02)
            except asyncio.CancelledError:
                raise AssertionError(f"not within 10 s: {what}") from None


@pytest.fixture
async def ring(kube_client: Client, namespace: str) -> Ring:
    return Ring(kube_client, namespace)


async def test_a_shard_works_on_its_own_objects_only_and_stops_when_the_label_goes(ring: Ring) -> None:
    await ring.create("mine", "shard-a")
    await ring.create("other", "shard-b")
    await ring.create("nobodys", None)
    async with ring.shard():
        await ring.until(lambda: ring.first.runs, "the own object is reconciled")
        await ring.labels("other", shard="shard-a")
        await ring.until(lambda: "other" in ring.first.runs, "the new object is reconciled")
        await ring.labels("mine", shard="shard-b")
        await ring.until(lambda: ring.first.gone_keys, "the moved object has left")
        before = len(ring.first.runs)
        changed = MergePatch({"metadata": {"annotations": {"changed": "by the new owner"}}})
        await ring.client.patch(Widget, "mine", ring.namespace, changed)
        await ring.client.patch(Widget, "other", ring.namespace, changed)
        await ring.until(lambda: len(ring.first.runs) > before, "the own change is reconciled")
        assert set(ring.first.runs[before:]) == {"other"}
    assert set(ring.first.runs) == {"mine", "other"}


async def test_the_drain_is_acknowledged_only_when_no_controller_works_on_the_object(ring: Ring) -> None:
    await ring.create("w", "shard-a")
    async with ring.shard():
        await ring.until(lambda: ring.first.runs and ring.second.runs, "both have worked")
        ring.second.free.clear()
        first, second = len(ring.first.runs), len(ring.second.runs)
        await ring.client.patch(
            Widget, "w", ring.namespace, MergePatch({"metadata": {"annotations": {"a": "b"}}})
        )
        await ring.until(lambda: len(ring.second.runs) > second, "the second works on it")
        await ring.until(lambda: len(ring.first.runs) > first, "the first has seen the change")
        drained = await ring.labels("w", drain="true")
        await asyncio.sleep(0.5)
        assert (await ring.widget("w")).metadata.resource_version == drained.metadata.resource_version
        runs = len(ring.first.runs)
        ring.second.free.set()
        await ring.until(lambda: acknowledged(ring), "the drain is acknowledged")
        after = (await ring.widget("w")).metadata
        assert not after.has_label(ring.label)
        assert not after.has_label(ring.drain)
        assert len(ring.first.runs) == runs


async def acknowledged(ring: Ring) -> bool:
    return not (await ring.widget("w")).metadata.has_label(ring.drain)


async def test_children_carry_the_label_of_the_shard_that_creates_them(ring: Ring) -> None:
    async def body(ctx: Context, obj: Widget) -> None:
        if await ctx.get(ConfigMap, "child") is None:
            meta = ObjectMeta(
                name="child", namespace=ring.namespace, owner_references=(controller_reference(obj),)
            )
            await ctx.client.create(ConfigMap(metadata=meta))

    ring.first.body = body
    await ring.create("w", "shard-a")
    async with ring.shard():

        async def child() -> bool:
            try:
                found = await ring.client.get(ConfigMap, "child", ring.namespace)
            except NotFound:
                return False
            return found.metadata.label(ring.label) == "shard-a"

        await ring.until(child, "the child has the label")


async def test_a_write_after_the_object_has_moved_is_refused_by_the_server(ring: Ring) -> None:
    refused: list[BaseException] = []

    async def body(ctx: Context, obj: Widget) -> None:
        if refused:
            return
        await ring.labels("w", shard="shard-b")
        late = JsonPatch([add("/metadata/annotations", {"late": "write"})])
        try:
            await ctx.client.patch(Widget, "w", ring.namespace, late)
        except NotOurs as error:
            refused.append(error)
            raise

    ring.first.body = body
    await ring.create("w", "shard-a")
    async with ring.shard():
        await ring.until(lambda: refused, "the write is refused")
        assert not (await ring.widget("w")).metadata.annotation("late")


async def test_the_lease_names_ring_and_process_and_keeps_the_sharders_state(ring: Ring) -> None:
    async with ring.shard():
        lease = await ring.lease()
        assert lease.metadata.label(RING_LABEL) == ring.name
        assert lease.metadata.annotation(INCARNATION_ANNOTATION)
        assert (lease.spec.holder_identity, lease.spec.lease_duration_seconds) == ("shard-a", 15)
        patch = MergePatch({"metadata": {"labels": {STATE_LABEL: "ready"}}})
        labelled = await ring.client.patch(Lease, "shard-a", ring.namespace, patch)

        async def renewed() -> bool:
            now = await ring.lease()
            assert now.metadata.label(STATE_LABEL) == "ready"
            return now.spec.renew_time != labelled.spec.renew_time

        await ring.until(renewed, "it is renewed")
    released = await ring.lease()
    assert (released.spec.holder_identity, released.spec.lease_duration_seconds) == ("", 1)
    assert released.spec.lease_transitions == 0


async def test_a_deleted_lease_is_created_again_by_the_same_process(ring: Ring) -> None:
    async with ring.shard() as task:
        before = await ring.lease()
        await ring.client.delete(Lease, "shard-a", ring.namespace)

        async def recreated() -> bool:
            try:
                return (await ring.lease()).metadata.uid != before.metadata.uid
            except NotFound:
                return False

        await ring.until(recreated, "the lease is back")
        after = await ring.lease()
        assert after.metadata.annotation(INCARNATION_ANNOTATION) == before.metadata.annotation(
            INCARNATION_ANNOTATION
        )
        assert not task.done()


@pytest.mark.parametrize("foreign", ["holder", "incarnation"])
async def test_a_foreign_holder_ends_all_work_at_once(ring: Ring, foreign: str) -> None:
    cancelled: list[bool] = []

    async def body(ctx: Context, obj: Widget) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    ring.first.body = body
    await ring.create("w", "shard-a")
    async with ring.shard() as task:
        await ring.until(lambda: ring.first.runs, "it works")
        change: dict[str, Any] = (
            {"spec": {"holderIdentity": SHARDER_IDENTITY}}
            if foreign == "holder"
            else {"metadata": {"annotations": {INCARNATION_ANNOTATION: "pod-x/boot/y"}}}
        )
        await ring.client.patch(Lease, "shard-a", ring.namespace, MergePatch(change))
        with pytest.raises(RightLost):
            await asyncio.wait_for(task, 5)
    assert cancelled == [True]
    lease = await ring.lease()
    if foreign == "holder":
        assert lease.spec.holder_identity == SHARDER_IDENTITY


async def test_a_shard_waits_for_its_ring_and_then_works(ring: Ring) -> None:
    await ring.create("w", "shard-a")
    manager = ring.manager(resources=None)
    task = asyncio.create_task(manager.run())
    await asyncio.sleep(0.5)
    assert not task.done()
    created = await ring.client.create(
        ControllerRing(metadata=ObjectMeta(name=ring.name), spec=ControllerRingSpec(resources=RESOURCES))
    )
    try:
        await ring.until(lambda: ring.first.runs, "the object is reconciled")
    finally:
        manager.stop()
        await asyncio.wait([task])
        await ring.client.delete(ControllerRing, created.metadata.name)


async def test_every_kind_of_write_is_fenced_on_the_live_object(ring: Ring) -> None:
    identity = ShardIdentity(ring.name, "shard-a", ring.namespace, Incarnation("", "", "x"))
    fenced = ring.client.fenced(
        ShardFence(
            identity,
            RingResources([RingResource(group=Widget.KIND.group, resource=Widget.KIND.plural)]),
            (),
            lambda: None,
        )
    )
    mine = await ring.create("w", "shard-a")
    moved = await ring.labels("w", shard="shard-b")
    stale = replace(moved, metadata=replace(moved.metadata, labels=mine.metadata.labels))
    patch = MergePatch({"metadata": {"annotations": {"x": "y"}}})
    with pytest.raises(NotOurs):
        await fenced.patch(Widget, "w", ring.namespace, patch, base=moved)
    with pytest.raises(Exception, match="the object has been modified"):
        await fenced.patch(Widget, "w", ring.namespace, patch, base=mine)
    with pytest.raises(NotOurs):
        await fenced.delete_object(moved)
    with pytest.raises(ValueError, match="base="):
        await fenced.patch(Widget, "w", ring.namespace, patch)
    # Only a forged base gets through, which the ring's admission policy prevents.
    await fenced.patch(Widget, "w", ring.namespace, patch, base=stale)


@asynccontextmanager
async def process(
    ring: Ring, kubeconfig: Path, *, lease: float = 15
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Starts a shard in its own process, in the middle of a reconcile that takes a second."""
    await ring.create("w", "shard-p")
    script = str(Path(__file__).with_name("shard_process.py"))
    arguments = [str(kubeconfig), ring.name, "shard-p", ring.namespace, str(lease)]
    child = await asyncio.create_subprocess_exec(sys.executable, script, *arguments, stdout=subprocess.PIPE)
    assert child.stdout is not None
    try:
        assert await asyncio.wait_for(child.stdout.readline(), 20) == b"begun\n"
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


async def test_sigterm_gives_the_lease_back_after_the_reconcile_has_ended(
    ring: Ring, kubeconfig: Path
) -> None:
    async with process(ring, kubeconfig) as child:
        child.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(child.wait(), 20) == 0
    lease, widget = await ring.lease("shard-p"), await ring.widget("w")
    assert lease.spec.holder_identity == ""
    assert widget.metadata.annotation("done") == "true"
    assert compare(lease.metadata.resource_version, widget.metadata.resource_version) > 0


async def test_a_stopped_shard_is_dead_before_a_sharder_may_take_over_and_writes_nothing(
    ring: Ring, kubeconfig: Path
) -> None:
    async with process(ring, kubeconfig, lease=4) as child:
        child.send_signal(signal.SIGSTOP)
        stopped = asyncio.get_running_loop().time()
        assert await asyncio.wait_for(child.wait(), 5) == -signal.SIGKILL
        assert asyncio.get_running_loop().time() - stopped < 2 * 4
    assert (await ring.lease("shard-p")).spec.holder_identity == "shard-p"
    assert not (await ring.widget("w")).metadata.annotation("done")
