"""The status of a ring follows from Leases and labels, and every problem comes with a remedy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from ring_cluster import RING, SECRETS, RingCluster, name_on

from kubeshard.cli.kubectl.questions import _print_status, facts_of
from kubeshard.core import ConfigMap, Lease, LeaseSpec, MergePatch, ObjectMeta, Secret
from kubeshard.core.times import micro_time
from kubeshard.inspection import counts
from kubeshard.inspection.cluster import ELECTION, Sharder, read_cluster
from kubeshard.inspection.counts import count
from kubeshard.inspection.doctor import examine
from kubeshard.inspection.errors import Unanswerable
from kubeshard.inspection.placement import placement_of
from kubeshard.inspection.ring import see
from kubeshard.inspection.status import RingStatus, ShardStatus, status_of, troubles
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.names import RETURNING, SHARDER_LABEL, drain_label
from kubeshard_apiserver.testing import MemoryApi


@pytest.fixture
async def cluster(kube_memory: MemoryApi) -> AsyncIterator[RingCluster]:
    async with kube_memory.client() as client:
        cluster = RingCluster(client)
        await cluster.install()
        yield cluster


async def status(cluster: RingCluster) -> RingStatus:
    return await status_of(cluster.client, await read_cluster(cluster.client), RING)


async def problems(cluster: RingCluster) -> list[str]:
    return [trouble.problem for trouble in (await status(cluster)).troubles]


async def test_objects_are_counted_by_shard_and_resource(cluster: RingCluster) -> None:
    await cluster.shard("a", told="ready")
    await cluster.shard("b")
    on_a, on_b = name_on("a", "a", "b"), name_on("b", "a", "b")
    owner = await cluster.secret(on_a, "a")
    await cluster.secret(on_b, "b")
    await cluster.child("child", owner, "a")
    await cluster.child("plain", None)
    await cluster.secret("elsewhere", namespace="other")
    found = await status(cluster)
    assert [
        (each.name, each.state, each.sharder_says, each.available, each.objects) for each in found.shards
    ] == [
        ("a", "ready", "ready", True, {"secrets": 1, "configmaps": 1}),
        ("b", "ready", "", True, {"secrets": 1, "configmaps": 0}),
    ]
    assert [(each.resource, each.main, each.objects, each.not_sharded) for each in found.resources] == [
        ("secrets", True, 2, 1),
        ("configmaps", False, 1, 1),
    ]
    assert (found.draining, found.oldest_drain_seconds) == (0, None)


@pytest.mark.parametrize(
    ("age", "holder", "state", "available"),
    [
        (0, None, "ready", True),
        (20, None, "expired", True),
        (40, None, "uncertain", True),
        (0, "shardlease-controller", "dead", False),
        (0, "", "dead", False),
        (80, "shardlease-controller", "orphaned", False),
    ],
)
async def test_a_shard_has_the_state_that_the_protocol_gives_its_lease(
    cluster: RingCluster, age: float, holder: str | None, state: str, available: bool
) -> None:
    await cluster.shard("a", age=age, holder=holder)
    (shard,) = (await status(cluster)).shards
    assert (shard.state, shard.available) == (state, available)
    assert shard.renewed_seconds_ago == pytest.approx(age, abs=5)


async def test_a_shard_that_only_labels_name_is_gone(cluster: RingCluster) -> None:
    await cluster.shard("a")
    await cluster.secret("left", "ghost")
    found = await status(cluster)
    assert found.shards[1] == ShardStatus(
        name="ghost",
        namespace="",
        state="gone",
        sharder_says="",
        available=False,
        renewed_seconds_ago=None,
        objects={"secrets": 1, "configmaps": 0},
        draining=0,
    )
    assert "secrets on shards that are gone: 1 (team/left)" in await problems(cluster)


async def test_the_age_of_a_drain_is_that_of_the_write_that_asked_for_it(cluster: RingCluster) -> None:
    await cluster.shard("a")
    await cluster.shard("b")
    name = name_on("b", "a", "b")
    await cluster.secret(name, "a")
    await cluster.drain(name)
    found = await status(cluster)
    assert (found.draining, found.shards[0].draining, found.shards[1].draining) == (1, 1, 0)
    assert found.oldest_drain_seconds == pytest.approx(0, abs=10)


async def test_without_a_shard_that_is_the_trouble_and_not_the_objects_that_have_none(
    cluster: RingCluster,
) -> None:
    await cluster.secret("s")
    found = await problems(cluster)
    assert "no shard is available, so objects stay where they are, and new ones get no shard" in found
    assert not [problem for problem in found if "without a shard" in problem]


async def test_objects_out_of_place_are_told_apart(cluster: RingCluster) -> None:
    await cluster.shard("a")
    await cluster.shard("b")
    owner = await cluster.secret(name_on("a", "a", "b"), "a")
    await cluster.secret(wrong := name_on("a", "a", "b", prefix="w"), "b")
    await cluster.secret("none")
    await cluster.child("stray", owner, "b")
    leaving = await cluster.secret(name_on("a", "a", "b", prefix="l"), "b")
    await cluster.drain(leaving.metadata.name)
    await cluster.child("waits", leaving, "b")
    found = await problems(cluster)
    assert f"secrets that are not where the hash ring puts them: 1 (team/{wrong})" in found
    assert "secrets without a shard: 1 (team/none)" in found
    assert "configmaps that are not on their owner's shard: 1 (team/stray)" in found


async def test_a_drain_that_lasts_is_blamed_on_shards_that_run_only(cluster: RingCluster) -> None:
    await cluster.shard("a")
    for name, shard in (("s", "a"), ("t", "gone")):
        await cluster.secret(name, shard)
        await cluster.drain(name)
    ring = await see(cluster.client, await read_cluster(cluster.client), RING)
    counted = [counts async for counts in count(cluster.client, ring)]
    found = [trouble.problem for trouble in troubles(ring, counted, Sharder(ELECTION), 100.0)]
    assert "a drain has been pending for 100 s on a" in found
    assert "secrets on shards that are gone: 1 (team/t)" in found


async def test_a_mark_of_a_shard_that_is_back_is_no_drain_and_goes_with_a_restart(
    cluster: RingCluster,
) -> None:
    await cluster.shard("a")
    owner = await cluster.secret("s", "a")
    await cluster.child("c", owner, "a")
    patch = MergePatch({"metadata": {"labels": {drain_label(RING): RETURNING}}})
    await cluster.client.patch(ConfigMap, "c", "team", patch)
    ring = await see(cluster.client, await read_cluster(cluster.client), RING)
    counted = [counts async for counts in count(cluster.client, ring)]
    found = [each for each in troubles(ring, counted, Sharder(ELECTION), 100.0) if " 100 s" in each.problem]
    restart = "kubectl --namespace team delete pod a"
    assert [(each.command, each.fixes) for each in found] == [(restart, True)]


async def test_a_shard_that_is_just_back_is_to_be_restarted_only_when_its_mark_has_lasted_for_a_minute(
    cluster: RingCluster,
) -> None:
    await cluster.shard("a")
    await cluster.secret("s", "a")
    patch = MergePatch({"metadata": {"labels": {drain_label(RING): RETURNING}}})
    await cluster.client.patch(Secret, "s", "team", patch)
    read = await read_cluster(cluster.client)
    found = []
    for later in (0.0, 58.0, 62.0):
        ring = replace(await see(cluster.client, read, RING), cluster=replace(read, now=read.now + later))
        found.append(await placement_of(cluster.client, ring, Secret.KIND, "s", "team"))
    assert [each.reason for each in found] == ["Marked"] * 3
    restart = "kubectl --namespace team delete pod a"
    assert [(each.command, each.fixes) for each in found] == [("", False), ("", False), (restart, True)]
    assert ["restart" in each.remedy for each in found] == [False, False, True]


async def test_a_ring_that_no_sharder_has_seen(cluster: RingCluster) -> None:
    (first, *_) = await problems(cluster)
    assert first == (
        "no sharder has seen the ring: there is no Lease sharding-system/sharder: no sharder leads"
    )
    await cluster.conditions(("Ready", "True", ""), generation=1)
    await cluster.ring(resources=[*SECRETS, {"group": "", "resource": "pods"}])
    assert (await problems(cluster))[0].startswith(
        "the sharder has seen generation 1 of the ring, but the current one is 2"
    )


async def test_conditions_that_are_not_as_they_should_be(cluster: RingCluster) -> None:
    await cluster.conditions(
        ("Ready", "True", ""),
        ("Permitted", "False", "the sharder needs a rule"),
        ("DrainStuck", "True", "3 objects"),
        ("Unknown", "False", "of somebody else"),
    )
    found = [problem for problem in await problems(cluster) if problem.startswith("condition")]
    assert found == [
        "condition Permitted is False: the sharder needs a rule",
        "condition DrainStuck is True: 3 objects",
    ]


async def test_what_a_condition_says_is_said_once_and_with_what_to_do_about_it(cluster: RingCluster) -> None:
    """The Lease asks for a day, and the ring lists a resource that does not exist."""
    await cluster.ring(resources=[*SECRETS, {"group": "", "resource": "configmap"}])
    await cluster.shard("a")
    a_day = MergePatch({"spec": {"leaseDurationSeconds": 86400}})
    await cluster.client.patch(Lease, "a", "team", a_day)
    unserved = "the server does not serve configmap: it is not in the core group (`kubectl api-resources`)"
    excess = "team/a asks for 86400 s without renewal; it is given 60 s"
    before = await problems(cluster)
    assert unserved in before
    assert excess in before
    await cluster.conditions(
        ("Ready", "False", "Not all that the ring lists is sharded"),
        ("ResourcesResolved", "False", unserved),
        ("ShardsAccepted", "False", excess),
        generation=2,
    )
    found = {each.problem: each.remedy for each in (await status(cluster)).troubles}
    assert [problem for problem in found if unserved in problem or excess in problem] == [
        f"condition ResourcesResolved is False: {unserved}",
        f"condition ShardsAccepted is False: {excess}",
    ]
    assert "remove the resource from the ring" in found[f"condition ResourcesResolved is False: {unserved}"]
    assert found[f"condition ShardsAccepted is False: {excess}"].startswith(
        "delete Leases that are not of sh"
    )
    ready = found["condition Ready is False: Not all that the ring lists is sharded"]
    assert ready.startswith("see the other conditions first")


async def test_a_webhook_that_is_missing_or_cannot_be_called(cluster: RingCluster) -> None:
    await cluster.conditions(("Ready", "True", ""))
    assert "the ring's MutatingWebhookConfiguration is missing" in await problems(cluster)
    await cluster.client.apply(
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": f"controllerring-{RING}"},
            "webhooks": [
                {
                    "name": "sharder.sharding.timebertt.dev",
                    "clientConfig": {"service": {"namespace": "sharding-system", "name": "sharder"}},
                    "failurePolicy": "Ignore",
                    "sideEffects": "None",
                    "admissionReviewVersions": ["v1"],
                }
            ],
        }
    )
    assert "the ring's webhook has no caBundle: the API server cannot call it" in await problems(cluster)


async def test_mistakes_of_the_ring_itself(cluster: RingCluster) -> None:
    await cluster.ring(
        resources=[
            *SECRETS,
            {"group": "", "resource": "configmaps"},
            {"group": "none.example", "resource": "things"},
            {"group": "", "resource": "events"},
        ],
        namespaceSelector={"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]},
    )
    found = await problems(cluster)
    assert '"configmaps" is a main resource and controlled by "secrets": it is treated as main' in found
    assert '"events" cannot be sharded: the sharder itself depends on it' in found
    assert any(problem.startswith("the server does not serve things.none.example") for problem in found)
    assert any(problem.startswith("namespaceSelector: ") for problem in found)


async def test_a_shard_that_does_not_renew_its_lease(cluster: RingCluster) -> None:
    await cluster.shard("a", age=20)
    assert any(
        problem.startswith("shard a has not renewed its Lease for 2") for problem in await problems(cluster)
    )


async def test_an_object_beyond_the_ring_that_a_finalizer_holds_is_told_with_who_holds_it(
    cluster: RingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counts, "HELD_AFTER", -1.0)
    for namespace, keys in (
        ("other", ("example.com/bucket",)),
        ("team", ("example.com/bucket",)),
        ("other", ("orphan",)),
    ):
        meta = ObjectMeta(name=f"held-{keys[0][:3]}", namespace=namespace, finalizers=keys)
        await cluster.client.create(Secret(metadata=meta))
        await cluster.client.delete(Secret, meta.name, namespace)
    found = await read_cluster(cluster.client)
    (trouble,) = (
        each for each in (await status_of(cluster.client, found, "r")).troubles if "finalizer" in each.problem
    )
    assert "the ring does not shard: 1 (other/held-exa)" in trouble.problem
    assert trouble.command == "kubeshard release-finalizers --finalizer example.com/bucket --kind secrets"
    # With --release, it would also take the finalizer from objects of which a shard takes care.
    assert "--release" not in f"{trouble.command} {trouble.remedy}"
    seen = await see(cluster.client, found, "r")
    placed = await placement_of(cluster.client, seen, Secret.KIND, "held-exa", "other")
    assert ("held by", "example.com/bucket") in facts_of(placed)


async def test_a_ring_that_was_deleted_is_not_taken_for_one_with_a_sharder_of_its_own(
    cluster: RingCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    await cluster.shard("a")
    await cluster.client.delete(ControllerRing, "r")
    found = await read_cluster(cluster.client)
    assert (found.without_ring(), found.orphans()) == (["r"], ["r"])
    _print_status([], ["r"], ["r"], {})
    said = capsys.readouterr().out
    assert "nobody assigns its objects" in said
    now = micro_time(found.now)
    spec = LeaseSpec(holder_identity="a", lease_duration_seconds=15, renew_time=now, acquire_time=now)
    meta = ObjectMeta(name="sharder-r", namespace="team", labels={SHARDER_LABEL: "r"})
    await cluster.client.create(Lease(metadata=meta, spec=spec))
    found = await read_cluster(cluster.client)
    assert (found.without_ring(), found.orphans()) == (["r"], [])
    _print_status([], ["r"], [], {})
    assert "its sharder is inside the operator, and does not say what" in capsys.readouterr().out


async def test_an_operator_whose_shards_run_is_not_said_to_be_stopped_because_its_sharder_does_not_lead(
    cluster: RingCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    await cluster.shard("a")
    await cluster.client.delete(ControllerRing, "r")
    ago = micro_time((await read_cluster(cluster.client)).now - 120)
    spec = LeaseSpec(holder_identity="a_0", lease_duration_seconds=15, renew_time=ago, acquire_time=ago)
    meta = ObjectMeta(name="sharder-r", namespace="team", labels={SHARDER_LABEL: "r"})
    await cluster.client.create(Lease(metadata=meta, spec=spec))
    found = await read_cluster(cluster.client)
    findings = (await examine(cluster.client)).findings
    (finding,) = [each for each in findings if each.part == "deleted rings"]
    _print_status([], ["r"], found.orphans(), found.unled())
    for said in (finding.problem, capsys.readouterr().out):
        assert "no instance of its operator leads as sharder" in said
        assert "a_0 has not renewed the Lease team/sharder-r for 12" in said
        assert "stopped" not in said


async def test_a_ring_that_does_not_exist_is_answered_with_similar_names(cluster: RingCluster) -> None:
    await cluster.ring("webhosting-operator")
    found = await read_cluster(cluster.client)
    with pytest.raises(Unanswerable, match="ring webhosting; did you mean webhosting-operator"):
        found.ring("webhosting")
    with pytest.raises(Unanswerable, match="there are: r, webhosting-operator"):
        found.ring("quite-another")
