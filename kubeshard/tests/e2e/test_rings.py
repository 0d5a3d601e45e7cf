"""Rings that are edited, deleted, or wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from e2e_kinds import CHORES, GROUP, REALMS, Chore, Realm
from e2e_processes import Processes
from e2e_recorder import Labels, Recorder
from e2e_ring import Ring, eventually, owners
from e2e_user import User

from kubeshard.client import Client
from kubeshard.core import ConfigMap, Lease, LeaseSpec, Namespace, ObjectMeta, OwnerReference
from kubeshard.core.conditions import get_condition
from kubeshard.core.patches import MergePatch
from kubeshard.core.selectors import LabelSelector, LabelSelectorRequirement
from kubeshard.sharding.api import ControllerRing, ControllerRingSpec, RingResource
from kubeshard.sharding.names import RING_LABEL

pytestmark = pytest.mark.real_at_night

TEAM = "e2e.kubeshard.test/team"


def chores(namespace: str, count: int, prefix: str = "chore") -> list[Chore]:
    return [Chore(metadata=ObjectMeta(name=f"{prefix}-{i}", namespace=namespace)) for i in range(count)]


@pytest.fixture
async def other(kube_client: Client, namespace: str) -> AsyncIterator[str]:
    """A second namespace."""
    name = f"{namespace}-other"
    await kube_client.create(Namespace(metadata=ObjectMeta(name=name)))
    yield name
    await kube_client.delete(Namespace, name)


@pytest.fixture
async def user(kube_client: Client, namespace: str) -> AsyncIterator[User]:
    def make(number: int) -> Chore:
        return Chore(metadata=ObjectMeta(name=f"user-{number}", namespace=namespace))

    async with User(kube_client, make).working() as user:
        yield user


@pytest.fixture
async def recorder(kube_client: Client, ring: Ring, namespace: str, other: str) -> AsyncIterator[Recorder]:
    async with Recorder(kube_client, ring.name, [namespace, other], [Chore, Realm]).recording() as recorder:
        yield recorder


@pytest.fixture
async def ready_ring(
    ring: Ring, kube_client: Client, namespace: str, shards: Processes, sharders: Processes, user: User
) -> Ring:
    """A ring with two shards, of the chores in the namespaces of a team."""
    await team(kube_client, namespace, "blue")
    await ring.create([CHORES], {TEAM: "blue"})
    shards.start_gated("a", "b", ring=ring.name, namespace=namespace, kinds=["chores"])
    await ring.available(2)
    return ring


async def team(client: Client, namespace: str, name: str | None) -> None:
    await client.patch(Namespace, namespace, "", MergePatch({"metadata": {"labels": {TEAM: name}}}))


async def test_a_resource_that_is_added_to_a_ring_is_assigned_and_one_that_is_removed_stays_as_it_is(
    ready_ring: Ring, kube_client: Client, recorder: Recorder, namespace: str
) -> None:
    realms = [Realm(metadata=ObjectMeta(name=f"realm-{i}")) for i in range(4)]
    for obj in [*realms, *chores(namespace, 4)]:
        await kube_client.create(obj)
    await ready_ring.edit(resources=(CHORES, REALMS))
    assert await recorder.until(lambda: recorder.labels(Realm) == owners(realms, "a", "b")) < 5
    now = recorder.now
    await ready_ring.edit(resources=(REALMS,))
    await recorder.quiet(Realm)
    await kube_client.create(Chore(metadata=ObjectMeta(name="late", namespace=namespace)))
    await recorder.until(lambda: "late" in recorder.labels(Chore))
    await recorder.quiet(Chore, about=lambda event: not event.key.name.startswith("user-"), seconds=1.5)
    assert not {name for name in recorder.touched(Chore, now) if name.startswith("chore-")}
    assert recorder.labels(Chore)["late"] == Labels("")
    kept = owners(chores(namespace, 4), "a", "b")
    assert kept.items() <= recorder.labels(Chore).items()


async def test_namespaces_join_a_ring_by_their_labels_and_their_objects_keep_their_shard_when_they_leave(
    ready_ring: Ring, kube_client: Client, recorder: Recorder, other: str
) -> None:
    for chore in chores(other, 5):
        assert not (await kube_client.create(chore)).metadata.label(ready_ring.label)
    placed = owners(chores(other, 5), "a", "b")
    await team(kube_client, other, "blue")
    assert await recorder.until(lambda: placed.items() <= recorder.labels(Chore).items()) < 5
    await eventually(lambda: ready_ring.webhook_assigns(other), 5)
    await team(kube_client, other, None)
    await eventually(lambda: ready_ring.webhook_assigns(other), 5, holds=False)
    assert placed.items() <= recorder.labels(Chore).items()
    await ready_ring.edit(
        namespace_selector=LabelSelector(
            match_expressions=(
                LabelSelectorRequirement(key="kubernetes.io/metadata.name", operator="In", values=(other,)),
            )
        )
    )
    await eventually(lambda: ready_ring.webhook_assigns(other), 5)


async def test_when_a_ring_is_deleted_its_webhook_goes_objects_keep_their_shards_and_it_may_come_back(
    ready_ring: Ring, kube_client: Client, recorder: Recorder, namespace: str
) -> None:
    for chore in chores(namespace, 5):
        await kube_client.create(chore)
    placed = owners(chores(namespace, 5), "a", "b")
    await recorder.until(lambda: placed.items() <= recorder.labels(Chore).items())
    await ready_ring.delete()

    # The garbage collector takes up to half a minute to discover a new kind.
    await eventually(ready_ring.webhook, 45, holds=False)
    await eventually(ready_ring.webhook_assigns, holds=False)
    await kube_client.create(Chore(metadata=ObjectMeta(name="late", namespace=namespace)))
    await recorder.until(lambda: "late" in recorder.labels(Chore))
    await recorder.quiet(Chore, about=lambda event: event.key.name in {"late", *placed}, seconds=1.5)
    assert (placed | {"late": Labels("")}).items() <= recorder.labels(Chore).items()
    now = recorder.now
    await ready_ring.create([CHORES], {TEAM: "blue"})
    await recorder.until(lambda: recorder.labels(Chore)["late"].shard, what="the new ring's first assignment")
    assert not recorder.touched(Chore, now) & placed.keys()


async def test_bad_rings_leases_and_objects_harm_none_of_the_good_ones(
    ready_ring: Ring,
    kube_client: Client,
    recorder: Recorder,
    namespace: str,
    other: str,
    shards: Processes,
    sharders: Processes,
) -> None:
    bad = [
        ControllerRing(
            metadata=ObjectMeta(name=f"unknown-resource-{namespace}"),
            spec=ControllerRingSpec(resources=(RingResource(group="no.such.group", resource="things"),)),
        ),
        ControllerRing(
            metadata=ObjectMeta(name=f"bad-selector-{namespace}"),
            spec=ControllerRingSpec(
                resources=(CHORES,),
                namespace_selector=LabelSelector(
                    match_expressions=(
                        LabelSelectorRequirement(key="x", operator="Resembles", values=("y",)),
                    )
                ),
            ),
        ),
        ControllerRing(
            metadata=ObjectMeta(name=f"main-and-controlled-{namespace}"),
            spec=ControllerRingSpec(
                resources=(
                    CHORES,
                    RingResource(group="", resource="configmaps"),
                    RingResource(group=GROUP, resource="*"),
                )
            ),
        ),
        ControllerRing(metadata=ObjectMeta(name=f"empty-{namespace}")),
    ]
    mine = {RING_LABEL: ready_ring.name}
    leases = [
        Lease(
            metadata=ObjectMeta(name="x" * 70, namespace=namespace, labels=mine),
            spec=LeaseSpec(holder_identity="x" * 70, lease_duration_seconds=60),
        ),
        Lease(metadata=ObjectMeta(name="nobody", namespace=namespace, labels=mine)),
        Lease(
            metadata=ObjectMeta(name="b", namespace=other, labels=mine),
            spec=LeaseSpec(holder_identity="somebody"),
        ),
        Lease(metadata=ObjectMeta(name="no-ring", namespace=other, labels={RING_LABEL: "no-such-ring"})),
    ]
    strange = OwnerReference(api_version="no.such.group/v1", kind="Chore", name="n", uid="u", controller=True)
    try:
        for obj in (*bad, *leases):
            await kube_client.create(obj)
        await kube_client.create(
            ConfigMap(metadata=ObjectMeta(name="strange", namespace=namespace, owner_references=(strange,)))
        )
        await kube_client.apply(
            {
                "apiVersion": f"{GROUP}/v1",
                "kind": "Chore",
                "metadata": {"name": "poison", "namespace": namespace},
                "spec": {"hold": {"not": "a flag"}},
            }
        )
        good = chores(
            namespace, 30
        )  # enough objects that some certainly change their shard, whatever the namespace's name
        created = await asyncio.gather(*map(kube_client.create, good))
        placed = owners(good, "a", "b")
        assert {c.metadata.name: recorder.labels_of(c) for c in created} == placed
        shards.start_gated("c", ring=ready_ring.name, namespace=namespace, kinds=["chores"])
        grown = owners(good, "a", "b", "c")
        assert grown != placed
        await recorder.until(lambda: grown.items() <= recorder.labels(Chore).items(), 15, "scaling up")
        assert shards.stop("c") == 0
        await recorder.until(lambda: placed.items() <= recorder.labels(Chore).items(), 5, "scaling down")
        sharders.check()
        # A ring of which something is refused is not ready; one whose kinds are not installed yet may be.
        for ring, ready in zip(bad, ("True", "False", "False", "True"), strict=True):
            await eventually(lambda ring=ring, ready=ready: is_ready(kube_client, ring.name, ready))
    finally:
        for ring in bad:
            await kube_client.delete(ControllerRing, ring.metadata.name)


async def is_ready(client: Client, ring: str, ready: str) -> bool:
    status = (await client.get(ControllerRing, ring)).status
    condition = get_condition(status.conditions, "Ready") if status else None
    return condition is not None and condition.status == ready
