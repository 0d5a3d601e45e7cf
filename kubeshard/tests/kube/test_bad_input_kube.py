"""Bad input that depends on the API server: one bad ring, Lease or object next to good ones."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import pytest
from test_sharder_kube import Ring, eventually, sharder

from kubeshard.client import Client
from kubeshard.core import ApiError, ConfigMap, Invalid, Lease, LeaseSpec, MergePatch, ObjectMeta, Secret
from kubeshard.core.partial_kinds import MutatingWebhookConfiguration
from kubeshard.sharder.config import ControllersConfig, SharderControllerConfig
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.crd import controller_ring_crd
from kubeshard.sharding.names import RING_LABEL

SECRETS = {"group": "", "resource": "secrets"}


@pytest.fixture
async def rings(kube_client: Client, namespace: str, install_crd: Any) -> AsyncIterator[tuple[Ring, Ring]]:
    """Two rings, not created yet, in one namespace."""
    install_crd(controller_ring_crd())
    both = (
        Ring(kube_client, namespace, f"bad.{namespace}"),
        Ring(kube_client, namespace, f"good-{namespace}"),
    )
    yield both
    for ring in both:
        await ring.close()


async def conditions(ring: Ring) -> dict[str, str]:
    status = (await ring.client.get(ControllerRing, ring.name)).status
    return {c.type: c.status for c in status.conditions} if status else {}


async def shard_of(ring: Ring, name: str) -> str:
    return (await ring.client.get(Secret, name, ring.namespace)).metadata.label(ring.shard_label)


async def holds(ring: Ring, **wanted: str) -> bool:
    return dict(await conditions(ring)).items() >= wanted.items()


async def test_what_the_schema_can_know_is_refused_by_the_api_server(
    kube_client: Client, rings: tuple[Ring, Ring]
) -> None:
    bad, _ = rings
    with pytest.raises(ApiError, match="duplicate entries"):
        await bad.create(resources=[SECRETS, SECRETS])
    with pytest.raises(Invalid, match="must not be longer than 63 characters"):
        await Ring(kube_client, bad.namespace, "x" * 64).create()


async def test_a_ring_with_a_bad_selector_keeps_its_webhook_says_so_and_harms_no_other(
    kube_client: Client, rings: tuple[Ring, Ring]
) -> None:
    bad, good = rings
    for ring in rings:
        await ring.create(resources=[SECRETS])
    await bad.join("a")
    await good.join("b")
    async with sharder(kube_client):
        await eventually(lambda: holds(bad, Ready="True"))
        config = f"controllerring-{bad.name}"
        before = await kube_client.get(MutatingWebhookConfiguration, config)
        selector = {"matchExpressions": [{"key": "a", "operator": "Like", "values": ["b"]}]}
        await bad.create(resources=[SECRETS], namespaceSelector=selector)
        await eventually(lambda: holds(bad, Ready="False", SelectorValid="False"))
        assert (await kube_client.get(MutatingWebhookConfiguration, config)).webhooks == before.webhooks
        await good.secret("foo")
        await eventually(lambda: _is(shard_of(good, "foo"), "b"))
        await eventually(lambda: _is(shard_of(bad, "foo"), "a"))
        assert await holds(good, Ready="True")


async def test_two_rings_share_a_resource_and_a_status_written_by_somebody_is_overwritten(
    kube_client: Client, rings: tuple[Ring, Ring]
) -> None:
    one, two = rings
    await one.create(resources=[SECRETS])
    await two.create(resources=[SECRETS])
    await one.join("a")
    await two.join("b")
    await one.secret("foo")
    async with sharder(kube_client):
        await eventually(lambda: _is(shard_of(one, "foo"), "a"))
        await eventually(lambda: _is(shard_of(two, "foo"), "b"))
        await eventually(lambda: one.ready(1, 1))
        forged = {"shards": 77, "availableShards": 77, "conditions": []}
        await kube_client.patch(
            ControllerRing, one.name, "", MergePatch({"status": forged}), subresource="status"
        )
        await eventually(lambda: one.ready(1, 1))


async def test_a_resource_that_cannot_be_listed_is_a_condition_and_the_rest_works(
    kube_client: Client, rings: tuple[Ring, Ring]
) -> None:
    bad, _ = rings
    virtual = {"group": "authentication.k8s.io", "resource": "tokenreviews"}
    await bad.create(resources=[virtual, SECRETS])
    await bad.join("a")
    await bad.secret("foo")
    async with sharder(kube_client):
        await eventually(lambda: _is(shard_of(bad, "foo"), "a"))
        await eventually(lambda: holds(bad, Ready="True", ResourcesResolved="False"))


async def test_a_spec_that_is_edited_all_the_time_is_looked_at_less_often_than_edited(
    kube_client: Client, rings: tuple[Ring, Ring]
) -> None:
    _, good = rings
    await good.create(resources=[SECRETS])
    await good.join("a")
    async with sharder(kube_client):
        await eventually(lambda: good.ready(1, 1))
        for number in range(30):
            selector = {"matchLabels": {"kubernetes.io/metadata.name": f"{good.namespace}-{number}"}}
            await good.create(resources=[SECRETS], namespaceSelector=selector)
        await good.create(resources=[SECRETS])
        await good.secret("foo")
        await eventually(lambda: _is(shard_of(good, "foo"), "a"))

        async def observed() -> bool:
            ring = await kube_client.get(ControllerRing, good.name)
            return ring.status is not None and ring.status.observed_generation == ring.metadata.generation

        await eventually(observed)


async def test_leases_that_are_no_shards_do_not_disturb_those_that_are(
    kube_client: Client, rings: tuple[Ring, Ring]
) -> None:
    """Every Lease that the API server accepts, next to one good shard."""
    _, good = rings
    await good.create(resources=[SECRETS])
    await good.join("a")
    specs = {
        "s" * 64: LeaseSpec(holder_identity="s" * 64, lease_duration_seconds=15),
        "stranger": LeaseSpec(holder_identity="somebody-else", lease_duration_seconds=15),
        "empty": LeaseSpec(),
        "long-holder": LeaseSpec(holder_identity="h" * 10_000),
        "huge": LeaseSpec(holder_identity="", lease_duration_seconds=2**31 - 1),
        "future": LeaseSpec(holder_identity="x", renew_time="2999-01-01T00:00:00.000000Z"),
    }
    for name, spec in specs.items():
        labels = {RING_LABEL: good.name, "alpha.sharding.timebertt.dev/state": "ready"}
        meta = ObjectMeta(name=name, namespace=good.namespace, labels=labels)
        await kube_client.create(Lease(metadata=meta, spec=spec))
    async with sharder(kube_client):
        for name in ("foo", "bar", "baz"):
            await good.secret(name)
        for name in ("foo", "bar", "baz"):
            await eventually(lambda name=name: _is(shard_of(good, name), "a"))
        await eventually(lambda: good.ready(len(specs) + 1, 1))
        await eventually(lambda: holds(good, ShardsAccepted="False"))
        await eventually(lambda: good.state_is("stranger", "dead"))


async def test_objects_of_any_sort_get_their_shard(kube_client: Client, rings: tuple[Ring, Ring]) -> None:
    """Large objects, full names, foreign labels; deleted objects that finalizers keep are still drained."""
    _, good = rings
    controlled = {**SECRETS, "controlledResources": [{"group": "", "resource": "configmaps"}]}
    await good.create(resources=[controlled])
    name = "f" * 253
    other = {
        "shard.alpha.sharding.timebertt.dev/other": "v" * 63,
        "drain.alpha.sharding.timebertt.dev/other": "",
    }
    kept = ObjectMeta(name=name, namespace=good.namespace, labels=other, finalizers=("example.com/keep",))
    await kube_client.create(Secret(metadata=kept, data={"data": "QUFB" * 250_000}))
    await kube_client.delete(Secret, name, good.namespace)
    await kube_client.create(
        ConfigMap(metadata=ObjectMeta(name="orphan", namespace=good.namespace), data={"a": "b"})
    )
    await good.secret("ghost", **{good.shard_label: "nobody"})
    await good.secret("empty", **{good.shard_label: ""})
    await good.join("a")
    async with sharder(kube_client):
        for each in (name, "ghost", "empty"):
            await eventually(lambda each=each: _is(shard_of(good, each), "a"))
        names = [name, "ghost", "empty"]
        await good.join("b")
        placed = good.placement("a", "b", names=names)
        for each in [each for each in names if placed[each]["shard"] == "b"]:
            await eventually(lambda each=each: _draining(good, each))
            await good.acknowledge(each)
        for each in names:
            await eventually(lambda each=each: _is(shard_of(good, each), placed[each]["shard"]))
        assert (await good.labels(ConfigMap))["orphan"] == {}
        kept_now = await kube_client.get(Secret, name, good.namespace)
        assert (kept_now.metadata.labels or {}).items() >= other.items()
    await kube_client.patch(Secret, name, good.namespace, MergePatch({"metadata": {"finalizers": None}}))


async def test_a_sharder_without_the_right_to_watch_works_by_passes_alone_and_names_the_missing_rule(
    kube_client: Client, rings: tuple[Ring, Ring]
) -> None:
    """The sharder has all rights of the reference's role, and list, get and patch on the ring's resources."""
    _, ring = rings
    await _grant(
        kube_client,
        "sharder-without-watch",
        ("coordination.k8s.io", "leases", ["*"]),
        ("sharding.timebertt.dev", "controllerrings", ["get", "list", "watch"]),
        ("sharding.timebertt.dev", "controllerrings/status", ["update", "patch"]),
        ("sharding.timebertt.dev", "controllerrings/finalizers", ["update"]),
        (
            "admissionregistration.k8s.io",
            "mutatingwebhookconfigurations",
            ["get", "list", "watch", "create", "patch"],
        ),
        ("events.k8s.io", "events", ["create", "patch"]),
        ("", "namespaces", ["get", "list", "watch"]),
        ("", "secrets", ["get", "list", "patch"]),
    )
    await ring.create(resources=[SECRETS])
    await ring.join("a")
    await ring.secret("foo")
    config = dataclasses.replace(
        kube_client.config, impersonate={"Impersonate-User": "sharder-without-watch"}
    )
    every_second = ControllersConfig(sharder=SharderControllerConfig(sync_period=1.0))
    async with Client(config) as limited, sharder(limited, controller=every_second):
        await eventually(lambda: _is(shard_of(ring, "foo"), "a"))
        await ring.secret("later")
        await eventually(lambda: _is(shard_of(ring, "later"), "a"))
        await eventually(lambda: holds(ring, Ready="True", Permitted="True"))
        status = (await kube_client.get(ControllerRing, ring.name)).status
        assert status is not None
        (message,) = [c.message for c in status.conditions if c.type == "Permitted"]
        assert '{apiGroups: [""], resources: ["secrets"], verbs: [watch]}' in message


async def test_with_the_rights_of_the_go_projects_manifests_a_ring_gets_ready_converges_and_fails_over(
    kube_client: Client, rings: tuple[Ring, Ring]
) -> None:
    _, ring = rings
    await _grant(
        kube_client,
        "sharder-of-the-go-project",
        ("", "events", ["create", "patch"]),
        ("", "namespaces", ["get", "list", "watch"]),
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", ["create", "patch"]),
        ("coordination.k8s.io", "leases", ["delete", "get", "list", "patch", "update", "watch"]),
        ("sharding.timebertt.dev", "controllerrings", ["get", "list", "watch"]),
        ("sharding.timebertt.dev", "controllerrings/status", ["patch", "update"]),
        ("", "secrets", ["list", "patch"]),  # as its administrators grant for each ring
    )
    await ring.create(resources=[SECRETS])
    await ring.join("a", duration=3)
    await ring.secret("foo")
    config = dataclasses.replace(
        kube_client.config, impersonate={"Impersonate-User": "sharder-of-the-go-project"}
    )
    async with Client(config) as limited, sharder(limited):
        await eventually(lambda: _is(shard_of(ring, "foo"), "a"))
        await eventually(lambda: holds(ring, Ready="True", Permitted="True"))
        webhook = await kube_client.get(MutatingWebhookConfiguration, f"controllerring-{ring.name}")
        assert webhook.webhooks
        ring.crash("a")
        await ring.join("b")
        await eventually(lambda: _is(shard_of(ring, "foo"), "b"))


async def _grant(client: Client, user: str, *rules: tuple[str, str, list[str]]) -> None:
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": user}}
    await client.apply(
        {
            **role,
            "kind": "ClusterRole",
            "rules": [
                {"apiGroups": [group], "resources": [resource], "verbs": verbs}
                for group, resource, verbs in rules
            ],
        }
    )
    await client.apply(
        {
            **role,
            "kind": "ClusterRoleBinding",
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        }
    )


async def _draining(ring: Ring, name: str) -> bool:
    return (await ring.client.get(Secret, name, ring.namespace)).metadata.has_label(ring.drain_label)


async def _is(found: Any, wanted: Any) -> bool:
    return bool(await asyncio.wait_for(found, 5) == wanted)
