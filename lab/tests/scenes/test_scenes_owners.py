"""Selector, key and owner mean the same to webhook, scans, shards, `why` and `status`: whatever the scopes of owner and
child, through how many levels, and for Namespaces themselves. With and without the webhook.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from kubeshard import ensure
from kubeshard.controller import Context, Controller, Watch
from kubeshard.core import ConfigMap, KubeObject, MergePatch, Namespace, ObjectMeta, controller_reference
from kubeshard.core.objects import field
from kubeshard.core.selectors import LabelSelector
from kubeshard.inspection.cluster import read_cluster
from kubeshard.inspection.placement import Placement, placement_of
from kubeshard.inspection.ring import see
from kubeshard.inspection.status import RingStatus, status_of
from kubeshard.manager import Manager
from kubeshard.shard.sharding import Sharding
from kubeshard.sharding.api import ControllerRing, RingGroupResource, RingResource
from kubeshard.sharding.names import shard_label
from kubeshard_lab.simulation.cluster import SimulatedCluster, definition, simulate
from kubeshard_lab.simulation.processes import Process

pytestmark = pytest.mark.regression

SHARDS = ("s0", "s1", "s2")
GROUP = "sim.example"


class App(KubeObject, group=GROUP, version="v1"):
    spec: dict[str, Any] = field(default_factory=dict)


class Release(KubeObject, group=GROUP, version="v1"):
    spec: dict[str, Any] = field(default_factory=dict)


class Job(KubeObject, group=GROUP, version="v1"):
    spec: dict[str, Any] = field(default_factory=dict)


class Tenant(KubeObject, group=GROUP, version="v1", namespaced=False):
    spec: dict[str, Any] = field(default_factory=dict)


def cluster_scoped(plural: str, kind: str) -> dict[str, Any]:
    made = definition(plural, kind)
    return {**made, "spec": {**made["spec"], "scope": "Cluster"}}


class Scene:
    """A ring of `main`, and what it controls, with shards that run `reconcile`."""

    def __init__(
        self, world: SimulatedCluster, main: type[KubeObject], reconcile: Any, *owns: type[KubeObject]
    ) -> None:
        self.world = world
        self.main = main
        self.reconcile = reconcile
        self.owns = owns

    async def begin(
        self, *definitions: Any, selector: LabelSelector | None = None, webhook: bool = True
    ) -> None:
        await self.world.install(*definitions)
        controlled = tuple(
            RingGroupResource(group=kind.KIND.group, resource=kind.KIND.plural) for kind in self.owns
        )
        kind = self.main.KIND
        ring = RingResource(group=kind.group, resource=kind.plural, controlled_resources=controlled)
        await self.world.make_ring(resources=[ring], selector=selector)
        self.world.sharder("x0", webhook=webhook)
        for name in SHARDS:
            process = Process(self.world, name)
            controller = Controller(
                name="main", reconciler=self.reconcile, primary=Watch(self.main), owns=list(self.owns)
            )
            member = Sharding(self.world.ring, name, "ops")
            process.start(Manager([controller], client=process.client(), sharding=member, status_pages=None))

    def shards(self, kind: type[KubeObject], namespace: str | None = None) -> dict[str, str]:
        label = shard_label(self.world.ring)
        return {
            key.name: (obj["metadata"].get("labels") or {}).get(label, "")
            for key, obj in self.world.objects(kind.KIND.group, kind.KIND.plural).items()
            if namespace is None or key.namespace == namespace
        }

    async def why(self, kind: type[KubeObject], name: str, namespace: str = "") -> Placement:
        async with self.world.admin() as client:
            ring = await see(client, await read_cluster(client), self.world.ring)
            return await placement_of(client, ring, kind.KIND, name, namespace)

    async def status(self) -> RingStatus:
        async with self.world.admin() as client:
            return await status_of(client, await read_cluster(client), self.world.ring)

    async def conditions(self) -> dict[str, str]:
        async with self.world.admin() as client:
            ring = await client.get(ControllerRing, self.world.ring)
        assert ring.status is not None
        return {each.type: each.message for each in ring.status.conditions}

    async def nothing_is_wrong(self) -> None:
        status = await self.status()
        wrong = [trouble.problem for trouble in status.troubles if "without a shard" in trouble.problem]
        assert not wrong
        assert not any(each.misplaced or each.unassigned or each.refused for each in status.resources)


NAMES = [f"o{number}" for number in range(8)]


@pytest.mark.parametrize("webhook", [True, False])
def test_what_a_cluster_scoped_object_controls_in_namespaces_is_where_it_is(webhook: bool) -> None:
    async def reconcile(ctx: Context, tenant: Tenant) -> None:
        data = {"v": str(tenant.spec["v"])}
        for namespace in ("team", "ops"):
            meta = ObjectMeta(name=tenant.metadata.name, namespace=namespace)
            await ensure(ctx, ConfigMap(metadata=meta, data=data), owner=tenant)

    def written(world: SimulatedCluster, value: int) -> bool:
        found = [
            obj["data"]["v"] for key, obj in world.objects("", "configmaps").items() if key.name in NAMES
        ]
        return len(found) == 2 * len(NAMES) and set(found) == {str(value)}

    async def scene() -> None:
        async with SimulatedCluster() as world:
            at = Scene(world, Tenant, reconcile, ConfigMap)
            # What is controlled in `ops` is in a namespace that the ring does not select.
            only_team = LabelSelector(match_labels={"kubernetes.io/metadata.name": "team"})
            await at.begin(cluster_scoped("tenants", "Tenant"), selector=only_team, webhook=webhook)
            async with world.admin() as client:
                for name in NAMES:
                    await client.create(Tenant(metadata=ObjectMeta(name=name), spec={"v": 1}))
            await world.until(lambda: written(world, 1), within=60)
            await world.processes["s1"].stop()
            await world.until(lambda: set(at.shards(Tenant).values()) == {"s0", "s2"}, within=60)
            async with world.admin() as client:
                for name in NAMES:
                    await client.patch(Tenant, name, None, MergePatch({"spec": {"v": 2}}))
            await world.until(lambda: written(world, 2), within=60)
            await world.until(lambda: at.shards(ConfigMap, "team") == at.shards(Tenant), within=30)
            for name in NAMES:
                child = await at.why(ConfigMap, name, "team")
                assert (child.reason, child.key) == ("Placed", f"{GROUP}/Tenant//{name}")
                assert child.owner is not None
                assert child.owner.shard == child.shard
                assert (await at.why(ConfigMap, name, "ops")).reason == "NamespaceNotSelected"
            await at.nothing_is_wrong()
            assert "what cluster-scoped objects control" in (await at.conditions())["KeysDiffer"]

    simulate(scene)


@pytest.mark.parametrize("webhook", [True, False])
def test_what_a_controlled_object_controls_is_where_the_main_object_is(webhook: bool) -> None:
    async def nothing(ctx: Context, app: App) -> None: ...

    async def controlled(
        client: Any, kind: type[KubeObject], name: str, owner: KubeObject | None
    ) -> KubeObject:
        references = (controller_reference(owner),) if owner is not None else ()
        meta = ObjectMeta(name=name, namespace="team", owner_references=references)
        return await client.create(kind(metadata=meta))  # by somebody else than the shard

    async def scene() -> None:
        async with SimulatedCluster() as world:
            at = Scene(world, App, nothing, Release, Job)
            definitions = [
                definition("apps", "App"),
                definition("releases", "Release"),
                definition("jobs", "Job"),
            ]
            await at.begin(*definitions, webhook=webhook)
            async with world.admin() as client:
                for name in NAMES:
                    app = await client.create(App(metadata=ObjectMeta(name=name, namespace="team")))
                    await controlled(client, Job, name, await controlled(client, Release, name, app))
                lone = await controlled(client, Release, "lone", None)
                await controlled(client, Job, "lone", lone)

            def together() -> bool:
                apps, releases, jobs = (at.shards(kind) for kind in (App, Release, Job))
                assert not releases.pop("lone")
                assert not jobs.pop("lone")
                return all(apps.values()) and apps == releases == jobs

            await world.until(together, within=60)
            await world.processes["s1"].stop()
            await world.until(lambda: "s1" not in at.shards(App).values() and together(), within=60)
            for name in NAMES:
                job = await at.why(Job, name, "team")
                assert (job.reason, job.key) == ("Placed", f"{GROUP}/App/team/{name}")
            assert (await at.why(Job, "lone", "team")).reason == "ForeignController"
            await at.nothing_is_wrong()
            assert "what controlled objects control" in (await at.conditions())["KeysDiffer"]
            async with world.admin() as client:  # adopted, the Job follows with the next full scan
                app = await client.get(App, NAMES[0], "team")
                reference = {"metadata": {"ownerReferences": [owner_as_json(app)]}}
                await client.patch(Release, "lone", "team", MergePatch(reference))
            await world.until(lambda: at.shards(Job)["lone"] == at.shards(App)[NAMES[0]], within=700)

    simulate(scene)


def owner_as_json(app: App) -> dict[str, Any]:
    owner = {"apiVersion": f"{GROUP}/v1", "kind": "App", "name": app.metadata.name, "uid": app.metadata.uid}
    return {**owner, "controller": True}


@pytest.mark.parametrize("webhook", [True, False])
def test_a_ring_of_namespaces_has_those_that_its_selector_selects_by_their_own_labels(webhook: bool) -> None:
    async def nothing(ctx: Context, namespace: Namespace) -> None: ...

    def selected(at: Scene) -> Sequence[str]:
        return sorted(name for name, shard in at.shards(Namespace).items() if shard)

    async def scene() -> None:
        async with SimulatedCluster() as world:
            at = Scene(world, Namespace, nothing)
            tenants = LabelSelector(match_labels={"tenant": "yes"})
            await at.begin(selector=tenants, webhook=webhook)
            async with world.admin() as client:

                async def make(name: str, **labels: str) -> None:
                    await client.create(Namespace(metadata=ObjectMeta(name=name, labels=labels)))

                await make("blue", tenant="yes")
                await make("monitoring", tenant="no")
                await world.until(lambda: selected(at) == ["blue"], within=30)
                for name in ("monitoring", "sharding-system"):
                    label = MergePatch({"metadata": {"labels": {"tenant": "yes"}}})
                    await client.patch(Namespace, name, None, label)
                await world.until(lambda: selected(at) == ["blue", "monitoring"], within=30)
                await asyncio.sleep(400)  # a full scan
                assert selected(at) == ["blue", "monitoring"], (
                    "a system namespace stays out unless it is confirmed"
                )
            assert (await at.why(Namespace, "blue")).reason == "Placed"
            for name, why in (("team", "does not select"), ("sharding-system", "a system namespace")):
                placement = await at.why(Namespace, name)
                assert placement.reason == "NamespaceNotSelected"
                assert why in placement.message
            assert "sharding-system" in (await at.conditions())["NamespacesAccepted"]
            await at.nothing_is_wrong()

    simulate(scene)
