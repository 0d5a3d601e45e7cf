"""The reason why an object is on its shard, for each state in the protocol."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace
from ring_cluster import RING, SECRETS, RingCluster, name_on, owner_of

from kubeshard.cli.kubectl.questions import facts_of, placements
from kubeshard.client import Client
from kubeshard.core import ConfigMap, MergePatch, Namespace, ObjectMeta, OwnerReference
from kubeshard.core.errors import ConfigurationError, Forbidden, Unavailable
from kubeshard.core.namespaces import ALL
from kubeshard.core.owners import NOTED_OWNER
from kubeshard.inspection.cluster import read_cluster
from kubeshard.inspection.errors import Unanswerable
from kubeshard.inspection.placement import Child, Owner, Placement, placement_of, rings_of, wanted
from kubeshard.inspection.ring import SeenRing, see
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.hash_ring import HashRing
from kubeshard.sharding.names import SYSTEM_NAMESPACES_ANNOTATION, shard_label
from kubeshard.sharding.planner import Decision
from kubeshard.sharding.ring_resources import RingEntry
from kubeshard_apiserver.testing import MemoryApi


@pytest.fixture
async def cluster(kube_memory: MemoryApi) -> AsyncIterator[RingCluster]:
    async with kube_memory.client() as client:
        cluster = RingCluster(client)
        await cluster.install()
        yield cluster


async def placed(cluster: RingCluster, *words: str, namespace: str = "team") -> Placement:
    word, name = wanted(words)
    seen = await see(cluster.client, await read_cluster(cluster.client), RING)
    ((ring, kind),) = await rings_of(cluster.client, [seen], word)
    return await placement_of(cluster.client, ring, kind, name, namespace)


async def test_an_object_that_is_where_it_belongs(cluster: RingCluster) -> None:
    for shard in ("a", "b", "c"):
        await cluster.shard(shard)
    name = name_on("b", "a", "b", "c")
    owner = await cluster.secret(name, "b")
    await cluster.child("one", owner, "b")
    await cluster.child("two", owner, "b")
    await cluster.child("stray", owner, "a")
    found = await placed(cluster, f"secret/{name}")
    assert (found.reason, found.shard, found.shard_state, found.desired) == ("Placed", "b", "ready", "b")
    assert (found.key, len(found.point)) == (f"/Secret/team/{name}", 16)
    assert found.children == [Child("configmaps", {"a": 1, "b": 2})]
    first, second = found.successors
    assert owner_of(name, "a", "c") == first
    assert owner_of(name, second) == second


async def test_who_may_list_one_namespace_only_is_told_what_an_object_controls_there(
    cluster: RingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.shard("a")
    await cluster.child("c", await cluster.secret("s", "a"), "a")
    listed = Client.list

    def within_a_namespace(self: Client, form: Any, namespace: Any = None, **options: Any) -> Any:
        if getattr(form, "kind", None) == ConfigMap.KIND and namespace is ALL:
            raise Forbidden("configmaps is forbidden", code=403, reason="Forbidden")
        return listed(self, form, namespace, **options)

    monkeypatch.setattr(Client, "list", within_a_namespace)
    found = await placed(cluster, "secret/s")
    (said,) = [value for name, value in facts_of(found) if name == "controls"]
    assert said == "configmaps: 1 on a; only those in team: you may not list them in all namespaces"


async def test_an_object_whose_owner_cannot_be_looked_up_leaves_the_others_counted(
    cluster: RingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.shard("a")
    owner = await cluster.secret("s", "a")
    for name in ("c", "unclear"):
        await cluster.child(name, owner, "a")
    decide = SeenRing.decide

    async def decided(self: SeenRing, entry: RingEntry, meta: ObjectMeta) -> Decision:
        if meta.name == "unclear":
            raise Unavailable("etcd is slow", code=503, reason="")
        return await decide(self, entry, meta)

    monkeypatch.setattr(SeenRing, "decide", decided)
    (child,) = (await placed(cluster, "secret/s")).children
    assert child.shards == {"a": 1}
    assert child.error.startswith("the owner of unclear cannot be looked up")


async def test_what_an_object_controls_is_found_where_it_is(cluster: RingCluster) -> None:
    """A kind's scope decides how it is read, and what names its owner may be in any namespace."""
    main, namespaces = SECRETS[0], {"group": "", "resource": "namespaces"}
    controlled = [*main["controlledResources"], namespaces]
    await cluster.ring(resources=[{**main, "controlledResources": controlled}], namespaceSelector={})
    await cluster.shard("a")
    await cluster.secret("s", "a")
    noted = {NOTED_OWNER: "Secret team/s"}
    labels = {shard_label(RING): "a"}
    for member in (
        Namespace(metadata=ObjectMeta(name="ns-s")),
        ConfigMap(metadata=ObjectMeta(name="c", namespace="other")),
    ):
        metadata = replace(member.metadata, annotations=noted, labels=labels)
        await cluster.client.create(replace(member, metadata=metadata))
    found = await placed(cluster, "secret/s")
    assert found.children == [Child("configmaps", {"a": 1}), Child("namespaces", {"a": 1})]
    assert (await placed(cluster, "namespace/ns-s")).reason == "Placed"


async def test_the_successors_are_who_owns_the_key_as_shards_leave() -> None:
    shards = [f"shard-{number}" for number in range(6)]
    key, left = "/Secret/team/x", list(shards)
    for shard in HashRing(shards).successors(key):
        assert HashRing(left).owner(key) == shard
        left.remove(shard)
    assert not left


async def test_an_object_in_a_namespace_that_the_ring_does_not_select(cluster: RingCluster) -> None:
    await cluster.shard("a")
    await cluster.secret("s", namespace="other")
    found = await placed(cluster, "secret/s", namespace="other")
    assert (found.reason, found.shard, found.desired, found.key) == ("NamespaceNotSelected", "", "", "")


async def test_what_somebody_has_written_into_an_annotation_is_no_command(cluster: RingCluster) -> None:
    await cluster.client.apply(Namespace(metadata=ObjectMeta(name="kube-system")))
    await cluster.ring(namespaceSelector={})
    written = MergePatch({"metadata": {"annotations": {SYSTEM_NAMESPACES_ANNOTATION: "a;$(reboot) #"}}})
    await cluster.client.patch(ControllerRing, RING, "", written)
    await cluster.secret("s", namespace="kube-system")
    found = await placed(cluster, "secret/s", namespace="kube-system")
    annotation = f"{SYSTEM_NAMESPACES_ANNOTATION}=a;$(reboot) #,kube-system"
    assert shlex.split(found.command)[-1] == annotation
    assert found.command.endswith(f"'{annotation}'")


async def test_an_object_while_no_shard_is_available(cluster: RingCluster) -> None:
    await cluster.shard("a", holder="shardlease-controller")
    await cluster.secret("s")
    found = await placed(cluster, "secret/s")
    assert (found.reason, found.desired) == ("NoShardAvailable", "")


async def test_an_object_that_the_sharder_missed_or_may_not_patch(cluster: RingCluster) -> None:
    await cluster.shard("a")
    await cluster.secret("s")
    found = await placed(cluster, "secret/s")
    assert (found.reason, found.desired) == ("Unassigned", "a")
    rule = 'the sharder needs the rule {apiGroups: [""], resources: ["secrets"], verbs: [patch]}'
    await cluster.conditions(("Permitted", "False", rule))
    assert (await placed(cluster, "secret/s")).remedy == rule


async def test_an_object_on_a_shard_that_is_gone(cluster: RingCluster) -> None:
    await cluster.shard("a")
    await cluster.shard("b", holder="")
    await cluster.secret("s", "b")
    await cluster.secret("t", "ghost")
    assert [
        (each.reason, each.shard_state, each.desired) for each in [await placed(cluster, "secret/s")]
    ] == [("ShardGone", "dead", "a")]
    assert (await placed(cluster, "secret/t")).shard_state == "gone"
    assert "after twice the Lease's duration, at most 120 s" in (await placed(cluster, "secret/t")).remedy


async def test_a_drain_that_is_pending(cluster: RingCluster) -> None:
    await cluster.shard("a")
    await cluster.shard("b")
    name = name_on("b", "a", "b")
    owner = await cluster.secret(name, "a")
    await cluster.child("child", owner, "a")
    assert (await placed(cluster, f"secret/{name}")).reason == "ToBeDrained"
    await cluster.drain(name)
    found = await placed(cluster, f"secret/{name}")
    assert (found.reason, found.draining, found.shard, found.desired) == ("DrainPending", True, "a", "b")
    assert found.draining_seconds == pytest.approx(0, abs=10)
    child = await placed(cluster, "configmap/child")
    assert (child.reason, child.owner) == ("WaitsForOwner", Owner("Secret", name, "a", True, True))


async def test_a_drain_label_on_an_object_that_is_in_its_place_gives_it_back(cluster: RingCluster) -> None:
    await cluster.shard("a")
    await cluster.secret("s", "a")
    await cluster.drain("s")
    found = await placed(cluster, "secret/s")
    assert (found.reason, found.message) == (
        "DrainPending",
        "a was asked to release it, and the hash ring assigns it to a again",
    )


async def test_a_child_whose_owner_has_moved(cluster: RingCluster) -> None:
    await cluster.shard("a")
    await cluster.shard("b")
    owner = await cluster.secret(name := name_on("b", "a", "b"), "b")
    await cluster.child("child", owner, "a")
    found = await placed(cluster, "configmap/child")
    assert (found.reason, found.shard, found.desired) == ("ToBeMoved", "a", "b")
    assert found.key == f"/Secret/team/{name}"


async def test_children_that_no_ring_shards(cluster: RingCluster) -> None:
    await cluster.shard("a")
    await cluster.child("plain", None)
    reference = OwnerReference(api_version="apps/v1", kind="Deployment", name="d", uid="u", controller=True)
    meta = ObjectMeta(name="foreign", namespace="team", owner_references=(reference,))
    await cluster.client.create(ConfigMap(metadata=meta))
    assert (await placed(cluster, "configmap/plain")).reason == "NoController"
    found = await placed(cluster, "configmap/foreign")
    assert (found.reason, found.desired) == ("ForeignController", "")
    assert found.message == "its controller is a Deployment.apps, but the ring r shards what secrets control"


async def test_an_object_that_does_not_exist_is_answered_with_where_it_would_go(cluster: RingCluster) -> None:
    await cluster.shard("a")
    found = await placed(cluster, "secret/none")
    assert (found.exists, found.reason, found.desired, found.shard) == (False, "NotFound", "a", "")


@pytest.mark.parametrize("word", ["secret", "secrets", "Secret", "SECRETS", "secrets.v1."])
async def test_a_kind_is_known_by_its_names(cluster: RingCluster, word: str) -> None:
    await cluster.secret("s")
    assert (await placed(cluster, word, "s")).resource == "secrets"


async def test_a_kind_is_known_by_its_short_name(cluster: RingCluster) -> None:
    await cluster.child("c", None)
    assert (await placed(cluster, "cm/c")).resource == "configmaps"


async def test_a_kind_that_no_ring_shards(cluster: RingCluster) -> None:
    with pytest.raises(Unanswerable, match="no ring shards pod; the rings shard configmaps, secrets"):
        await placed(cluster, "pod/p")


async def test_without_any_ring_that_is_what_is_said(cluster: RingCluster) -> None:
    await cluster.client.delete(ControllerRing, RING)
    with pytest.raises(Unanswerable, match="there is no ring: neither a ControllerRing, nor an operator"):
        await placements(("secret/x",), None, family=False)(cluster.client)


async def test_a_kind_that_a_ring_shards_but_the_server_does_not_serve(cluster: RingCluster) -> None:
    await cluster.ring(
        resources=[{"group": "", "resource": "secrets"}, {"group": "none.example", "resource": "things"}]
    )
    with pytest.raises(Unanswerable, match=r"the rings shard secrets, things\.none\.example \(not served\)"):
        await placed(cluster, "thing/t")


@pytest.mark.parametrize("words", [("secret",), ("secret/",), ("/s",), ("secret", "a", "b")])
def test_a_name_that_is_none(words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigurationError, match="write KIND/NAME or KIND NAME"):
        wanted(words)
