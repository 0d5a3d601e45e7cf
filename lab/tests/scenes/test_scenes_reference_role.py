"""With only the rights that the Go project's manifests grant, the sharder works, and reports which rights it lacks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kubeshard.core import MergePatch
from kubeshard.core.objects import Key
from kubeshard.core.partial_kinds import MutatingWebhookConfiguration
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard.sharder.webhook_registration import APPLY_AGAIN
from kubeshard_apiserver import User
from kubeshard_lab.simulation.cluster import SimulatedCluster, Touch
from kubeshard_lab.virtual_time import virtual_time

pytestmark = pytest.mark.regression

ACCOUNT = "system:serviceaccount:sharding-system:sharder"
SHARDER = User(ACCOUNT, groups=("system:serviceaccounts", "system:serviceaccounts:sharding-system"))

Rule = tuple[str, str, str]
"""API group, resources, verbs."""

SHARDER_ROLE: Sequence[Rule] = (
    ("", "events", "create patch"),
    ("", "namespaces", "get list watch"),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "create patch"),
    ("coordination.k8s.io", "leases", "delete get list patch update watch"),
    ("sharding.timebertt.dev", "controllerrings", "get list watch"),
    ("sharding.timebertt.dev", "controllerrings/status", "patch update"),
)
LEADER_ELECTION: Sequence[Rule] = (
    ("coordination.k8s.io", "leases", "get create update"),
    ("", "events", "create patch"),
)
RING: Sequence[Rule] = (("", "configmaps", "list patch"), ("sim.example", "things", "list patch"))
"""As for the reference's checksum controller: an administrator grants this for the resources of a ring."""

WEBHOOK = "controllerring-r"


async def grant(world: SimulatedCluster, name: str, rules: Sequence[Rule], namespace: str = "") -> None:
    """Grants the sharder these rights, everywhere or in one namespace."""
    api, cluster = "rbac.authorization.k8s.io/v1", "" if namespace else "Cluster"
    metadata: Mapping[str, Any] = {"name": name, **({"namespace": namespace} if namespace else {})}
    role = {
        "apiVersion": api,
        "kind": f"{cluster}Role",
        "metadata": metadata,
        "rules": [
            {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split()}
            for group, resources, verbs in rules
        ],
    }
    binding = {
        "apiVersion": api,
        "kind": f"{cluster}RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": f"{cluster}Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": "sharder", "namespace": "sharding-system"}],
    }
    async with world.admin() as client:
        for manifest in (role, binding):
            await client.apply(manifest)


async def started(*shards: str) -> SimulatedCluster:
    """A ring whose sharder has the reference's rights."""
    world = SimulatedCluster(users={"x0": SHARDER})
    await world.__aenter__()
    await world.install()
    await grant(world, "sharder", SHARDER_ROLE)
    await grant(world, "sharding:sharder:leader-election", LEADER_ELECTION, "sharding-system")
    await grant(world, "sharding:controllerring:r", RING)
    await world.make_ring()
    world.sharder("x0")
    for name in shards:
        world.shard(name, Touch())
    await world.make_things(10 if shards else 0)
    await asyncio.sleep(10)
    return world


def in_place(world: SimulatedCluster) -> bool:
    """Whether the ring's webhook is configured."""
    configurations = world.objects("admissionregistration.k8s.io", "mutatingwebhookconfigurations")
    return bool(configurations[Key("", WEBHOOK)].get("webhooks"))


@virtual_time
async def test_with_the_references_role_the_sharder_becomes_ready_and_shards_fail_over() -> None:
    world = await started("s0", "s1")
    await world.until(lambda: world.all_owned("s0", "s1"), within=30)
    sharder = world.processes["x0"].manager
    assert sharder is not None
    assert all(informer.has_synced for informer in sharder.cache.informers)
    await world.until(lambda: len(world.owners("", "configmaps")) == 10, within=10)
    world.processes["s0"].kill()
    await world.until(lambda: world.all_owned("s1"), within=40)
    await world.until(lambda: set(world.owners("", "configmaps").values()) == {"s1"}, within=40)
    world.shard("s2", Touch())
    await world.until(lambda: world.all_owned("s1", "s2") and "s2" in world.owners().values(), within=60)
    assert not world.processes["x0"].dead
    await world.__aexit__(None, None, None)


@pytest.mark.nightly
@virtual_time
async def test_webhook_configurations_that_may_not_be_watched_are_applied_and_the_missing_rule_is_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    world = await started()
    applied: list[float] = []

    def look(_: object, request: HttpRequest, answer: HttpResponse | None) -> None:
        if (
            answer is None
            and WEBHOOK in request.target
            and "apply-patch" in request.headers.get("Content-Type", "")
        ):
            applied.append(world.loop.time())  # a merge patch of nothing reads it

    world.observers.append(look)
    assert in_place(world)
    async with world.admin() as client:
        await client.patch(MutatingWebhookConfiguration, WEBHOOK, "", MergePatch({"webhooks": []}))
    await asyncio.sleep(APPLY_AGAIN + 30)
    assert in_place(world)
    await asyncio.sleep(APPLY_AGAIN)
    assert len(applied) == 1
    told = [
        record for record in caplog.records if "Not allowed to watch webhook configurations" in record.message
    ]
    assert len(told) == 1
    await world.__aexit__(None, None, None)


@pytest.mark.nightly
@virtual_time
async def test_the_right_to_watch_webhook_configurations_is_used_once_it_is_granted() -> None:
    world = await started()
    rules = [("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "list watch")]
    await grant(world, "more", rules)
    await asyncio.sleep(APPLY_AGAIN + 30)
    async with world.admin() as client:
        await client.patch(MutatingWebhookConfiguration, WEBHOOK, "", MergePatch({"webhooks": []}))
    await world.until(lambda: in_place(world), within=2)
    await world.__aexit__(None, None, None)


@pytest.mark.quick
@virtual_time
async def test_events_are_told_through_the_core_group_where_the_newer_one_is_forbidden() -> None:
    world = await started()

    def told() -> list[str]:
        events = [*world.objects("", "events").values(), *world.objects("events.k8s.io", "events").values()]
        about = [(event.get("involvedObject") or event["regarding"], event["reason"]) for event in events]
        return [reason for regarding, reason in about if regarding["kind"] == "ControllerRing"]

    await world.until(told, within=60)
    assert "OptionalPermissionMissing" in told()
    await world.__aexit__(None, None, None)
