"""What `kubectl shard status` and `why` advise is a command: one that makes the finding go away, or one that says that
it does not.
"""

from __future__ import annotations

import base64
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from commands import typed
from installation import RING, Installation, installation, until
from ring_cluster import RingCluster, name_on

from kubeshard.client import Client
from kubeshard.core import Lease, MergePatch, Namespace, ObjectMeta
from kubeshard.inspection.cluster import read_cluster
from kubeshard.inspection.placement import Placement, placement_of, rings_of, wanted
from kubeshard.inspection.ring import see
from kubeshard.inspection.status import Trouble, status_of
from kubeshard.runtime.certificate_authority import new_authority
from kubeshard.sharding.names import SHARDER_IDENTITY, STRICT_HANDOVER_ANNOTATION
from kubeshard_apiserver.testing import EmbeddedApi

ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
LATE = name_on("b", "a", "b", prefix="late")
RING_PATH = f"/apis/sharding.timebertt.dev/v1alpha1/controllerrings/{RING}"


async def no_right_on_the_ring(here: Installation) -> None:
    await here.delete(f"{ROLES}/sharding:controllerring:{RING}")
    await here.client.patch(Lease, "b", "team", MergePatch({"spec": {"holderIdentity": ""}}))  # writes follow


async def foreign_authority(here: Installation) -> None:
    other = new_authority("other", time.time(), 3600.0).certificate
    await here.webhooks(caBundle=base64.b64encode(other).decode())


async def unconfirmed_shard(here: Installation) -> None:
    """It is dead, and in a ring with strict hand-over nobody knows whether it has ended."""
    strict = {STRICT_HANDOVER_ANNOTATION: "true"}
    await here.patch(RING_PATH, {"metadata": {"annotations": strict}})
    await here.cluster.secret(LATE)
    await here.client.patch(Lease, "b", "team", MergePatch({"spec": {"holderIdentity": SHARDER_IDENTITY}}))


async def system_namespace(here: Installation) -> None:
    await here.client.apply(Namespace(metadata=ObjectMeta(name="kube-system")))
    name = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["team", "kube-system"]}
    await here.apply_ring({"matchExpressions": [name]})
    await here.cluster.secret("left-out", namespace="kube-system")


Plant = Callable[[Installation], Awaitable[None]]

IN_STATUS: Mapping[str, tuple[Plant, str]] = {
    "a right on the ring that is missing": (no_right_on_the_ring, "condition Permitted is False"),
    "a webhook that somebody else has changed": (foreign_authority, "condition Ready is False"),
    "objects of a shard that nobody has confirmed to have ended": (
        unconfirmed_shard,
        "secrets on shards that are gone",
    ),
}
"""What is planted, and the beginning of the problem whose command fixes it."""


class Question(NamedTuple):
    plant: Plant
    object: str
    namespace: str
    reason: str


IN_WHY: Mapping[str, Question] = {
    "a system namespace that the ring does not confirm": Question(
        system_namespace, "secret/left-out", "kube-system", "NamespaceNotSelected"
    ),
    "a shard that nobody has confirmed to have ended": Question(
        unconfirmed_shard, f"secret/{LATE}", "team", "NotConfirmed"
    ),
}


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Installation]:
    async with installation(tmp_path) as made:
        await made.renew()
        yield made


async def troubles(cluster: RingCluster) -> list[Trouble]:
    return (await status_of(cluster.client, await read_cluster(cluster.client), RING)).troubles


async def placed(cluster: RingCluster, name: str, namespace: str = "team") -> Placement:
    seen = await see(cluster.client, await read_cluster(cluster.client), RING)
    word, name = wanted((name,))
    ((ring, kind),) = await rings_of(cluster.client, [seen], word)
    return await placement_of(cluster.client, ring, kind, name, namespace)


@pytest.mark.kube  # for kubectl
@pytest.mark.system
@pytest.mark.parametrize(("plant", "problem"), IN_STATUS.values(), ids=IN_STATUS)
async def test_the_command_of_a_trouble_makes_it_go_away(
    here: Installation, plant: Plant, problem: str, tmp_path: Path
) -> None:
    async def found() -> Trouble | None:
        return next((each for each in await troubles(here.cluster) if each.problem.startswith(problem)), None)

    async def is_found() -> bool:
        return await found() is not None

    await plant(here)
    try:
        await until(is_found, 30.0)
    except AssertionError:
        pytest.fail("\n".join(map(str, await troubles(here.cluster))))
    trouble = await found()
    assert trouble is not None
    assert trouble.fixes
    await typed(trouble.command, tmp_path / "kubeconfig", "y\n")

    async def is_gone() -> bool:
        await here.renew()
        return await found() is None

    await until(is_gone)


@pytest.mark.kube  # for kubectl
@pytest.mark.system
@pytest.mark.parametrize("question", IN_WHY.values(), ids=IN_WHY)
async def test_the_command_of_a_reason_puts_the_object_in_its_place(
    here: Installation, question: Question, tmp_path: Path
) -> None:
    async def found() -> Placement:
        return await placed(here.cluster, question.object, question.namespace)

    async def is_found() -> bool:
        return (await found()).reason == question.reason

    await question.plant(here)
    await until(is_found)
    placement = await found()
    assert placement.fixes
    await typed(placement.command, tmp_path / "kubeconfig", "y\n")

    async def is_placed() -> bool:
        return (await found()).reason == "Placed"

    await until(is_placed)


async def broken(cluster: RingCluster) -> AsyncIterator[str]:
    """Yields an object of the team at each of some states of a ring that nobody attends to."""
    await cluster.install()
    owner = await cluster.secret(name_on("b", "a", "b"), "b")
    yield f"secret/{owner.metadata.name}"  # no shard is available
    await cluster.shard("a")
    await cluster.shard("b")
    await cluster.secret("new")
    yield "secret/new"
    await cluster.child("moves", owner, "a")
    yield "configmap/moves"
    moving = await cluster.secret(name_on("b", "a", "b", prefix="moving"), "a")
    yield f"secret/{moving.metadata.name}"
    await cluster.child("follows", moving, "a")
    yield "configmap/follows"
    await cluster.drain(moving.metadata.name)
    yield f"secret/{moving.metadata.name}"
    await cluster.secret("stranded", "gone")
    yield "secret/stranded"
    wrong = {
        "ShardsAccepted": "False",
        "SelectorValid": "False",
        "DrainStuck": "True",
        "WebhookReached": "False",
    }
    await cluster.conditions(*((type_, status, "as it is") for type_, status in wrong.items()))
    await cluster.ring(namespaceSelector={"matchLabels": {"a": "b"}})
    yield "secret/new"  # its namespace is not selected


@pytest.mark.kube  # for kubectl
@pytest.mark.system
def test_a_command_that_mends_nothing_says_so_and_can_be_typed() -> None:
    api = EmbeddedApi(controllers=False, pods=False)
    commands, reasons = set[str](), set[str]()

    async def collect(client: Client) -> None:
        cluster = RingCluster(client)
        async for name in broken(cluster):
            found = await placed(cluster, name)
            assert not found.fixes, found
            reasons.add(found.reason)
            for each in await troubles(cluster):
                assert not each.fixes, each
                commands.add(each.command)
            commands.add(found.command)
        for command in sorted(commands):
            if " logs " not in command:  # it has no pods
                await typed(command, api.kubeconfig)

    try:
        api.call(collect)
    finally:
        api.stop()
    assert reasons == {
        *("NoShardAvailable", "Unassigned", "ToBeMoved", "ToBeDrained", "WaitsForOwner"),
        *("DrainPending", "ShardGone", "NamespaceNotSelected"),
    }
