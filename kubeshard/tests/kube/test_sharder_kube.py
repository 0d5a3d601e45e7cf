"""The sharder against a real API server: hand-written Leases, no webhook reachable."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest

from kubeshard.client import Changed, Client
from kubeshard.core import (
    ConfigMap,
    Lease,
    LeaseSpec,
    MergePatch,
    ObjectMeta,
    Secret,
    controller_reference,
    metadata_only,
)
from kubeshard.core.conditions import get_condition
from kubeshard.core.errors import Conflict, NotFound
from kubeshard.core.objects import KubeObject
from kubeshard.core.partial_kinds import MutatingWebhookConfiguration
from kubeshard.core.times import micro_time
from kubeshard.crd import definition
from kubeshard.manager.config_file import Endpoint
from kubeshard.sharder.app import build_sharder
from kubeshard.sharder.config import SharderConfig, WebhookServerConfig, WebhookSettings
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.crd import controller_ring_crd
from kubeshard.sharding.hash_ring import HashRing
from kubeshard.sharding.names import CLEAN_UP_FINALIZER, RING_LABEL, STATE_LABEL

_numbers = itertools.count(1)
OFF = Endpoint(bind_address="0")
NO_WEBHOOK = WebhookSettings(server=WebhookServerConfig(bind_address="0"))


class Ring:
    """A ring of Secrets and their ConfigMaps in one namespace, and shards that renew their Leases."""

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self.client = client
        self.namespace = namespace
        self.name = name
        self.shard_label = f"shard.alpha.sharding.timebertt.dev/{name}"
        self.drain_label = f"drain.alpha.sharding.timebertt.dev/{name}"
        self._renewals: dict[str, asyncio.Task[None]] = {}

    async def create(self, **spec: Any) -> None:
        body = {
            "apiVersion": "sharding.timebertt.dev/v1alpha1",
            "kind": "ControllerRing",
            "metadata": {"name": self.name},
            "spec": {
                "resources": [
                    {
                        "group": "",
                        "resource": "secrets",
                        "controlledResources": [{"group": "", "resource": "configmaps"}],
                    }
                ],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}},
                **spec,
            },
        }
        await self.client.apply(body)

    async def join(self, *shards: str, duration: int = 15) -> None:
        for shard in shards:
            now = micro_time(time.time())
            await self.client.create(
                Lease(
                    metadata=ObjectMeta(name=shard, namespace=self.namespace, labels={RING_LABEL: self.name}),
                    spec=LeaseSpec(
                        holder_identity=shard,
                        lease_duration_seconds=duration,
                        acquire_time=now,
                        renew_time=now,
                    ),
                )
            )
            self._renewals[shard] = asyncio.create_task(self._renew(shard))

    async def _renew(self, shard: str) -> None:
        while True:
            await asyncio.sleep(0.5)
            with suppress(Conflict):
                await self._write(shard, renew_time=micro_time(time.time()))

    async def _write(self, shard: str, **spec: Any) -> None:
        lease = await self.lease(shard)
        await self.client.replace(
            msgspec.structs.replace(lease, spec=msgspec.structs.replace(lease.spec, **spec))
        )

    def crash(self, shard: str) -> None:
        self._renewals.pop(shard).cancel()

    async def leave(self, shard: str) -> None:
        self.crash(shard)
        while True:
            with suppress(Conflict):
                return await self._write(shard, holder_identity="", lease_duration_seconds=1)

    async def close(self) -> None:
        for task in self._renewals.values():
            task.cancel()
        with suppress(NotFound):
            await self.client.delete(ControllerRing, self.name)
        await self.client.delete_collection(Lease, self.namespace)
        await self.client.delete_collection(Secret, self.namespace)
        await self.client.delete_collection(ConfigMap, self.namespace)

    async def lease(self, shard: str) -> Lease:
        return await self.client.get(Lease, shard, self.namespace)

    async def secret(self, name: str, **labels: str) -> None:
        meta = ObjectMeta(name=name, namespace=self.namespace, labels=labels or None)
        await self.client.create(Secret(metadata=meta))

    async def labels(self, kind: Any = Secret) -> dict[str, dict[str, str]]:
        """Returns the ring's labels of all objects, without the prefix of the label keys."""
        objects = await self.client.list_all(kind, self.namespace)
        return {obj.metadata.name: self._short(obj.metadata.labels) for obj in objects}

    async def config_map(self, owner: str) -> None:
        """Creates a ConfigMap of the same name, controlled by the Secret."""
        secret = await self.client.get(Secret, owner, self.namespace)
        meta = ObjectMeta(
            name=owner, namespace=self.namespace, owner_references=(controller_reference(secret),)
        )
        await self.client.create(ConfigMap(metadata=meta))

    async def acknowledge(self, name: str) -> None:
        """Does what the shard of a Secret does when it sees the drain label."""
        labels = {self.shard_label: None, self.drain_label: None}
        await self.client.patch(Secret, name, self.namespace, MergePatch({"metadata": {"labels": labels}}))

    async def state_is(self, shard: str, state: str) -> bool:
        return (await self.lease(shard)).metadata.label(STATE_LABEL) == state

    @asynccontextmanager
    async def history(self, kind: Any) -> AsyncIterator[dict[str, list[dict[str, str]]]]:
        """Yields the ring's labels of each object of the kind after each change while the block runs."""
        seen: dict[str, list[dict[str, str]]] = {}
        stream = self.client.list(kind, self.namespace)
        async for _ in stream:
            pass
        watch = self.client.watch(kind, self.namespace, resource_version=stream.resource_version)
        async with watch as events:

            async def note() -> None:
                async for event in events:
                    if isinstance(event, Changed) and event.type == "MODIFIED":
                        meta = event.object.metadata
                        seen.setdefault(meta.name, []).append(self._short(meta.labels))

            task = asyncio.create_task(note())
            yield seen
            await asyncio.sleep(0.2)  # all expected writes have been seen; any further one would be an error
            task.cancel()

    def _short(self, labels: Mapping[str, str] | None) -> dict[str, str]:
        short = {self.shard_label: "shard", self.drain_label: "drain"}
        return {short[key]: value for key, value in (labels or {}).items() if key in short}

    def placement(self, *shards: str, names: list[str]) -> dict[str, dict[str, str]]:
        """Returns the shards to which these Secrets belong."""
        ring = HashRing(shards)
        return {name: {"shard": ring.owner(f"/Secret/{self.namespace}/{name}")} for name in names}

    async def ready(self, shards: int, available: int) -> bool:
        status = (await self.client.get(ControllerRing, self.name)).status
        if status is None:
            return False
        condition = get_condition(status.conditions, "Ready")
        return (status.shards, status.available_shards, condition and condition.status) == (
            shards,
            available,
            "True",
        )


async def eventually(condition: Callable[[], Awaitable[Any]], seconds: float = 10.0) -> float:
    """Waits until the condition holds; returns how long that took."""
    begin = time.monotonic()
    while not await condition():
        assert time.monotonic() - begin < seconds, "it did not happen in time"
        await asyncio.sleep(0.05)
    return time.monotonic() - begin


@asynccontextmanager
async def sharder(client: Client, **config: Any) -> AsyncIterator[None]:
    """A leading sharder in this process; its webhook cannot be reached."""
    settings = msgspec.structs.replace(SharderConfig(), health=OFF, metrics=OFF, webhook=NO_WEBHOOK, **config)
    election = msgspec.structs.replace(settings.leader_election, leader_elect=False)
    settings = msgspec.structs.replace(settings, leader_election=election)
    task = asyncio.create_task(build_sharder(settings, client).run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.fixture
async def ring(kube_client: Client, namespace: str, install_crd: Any) -> AsyncIterator[Ring]:
    install_crd(controller_ring_crd())
    made = Ring(kube_client, namespace, f"ring-{next(_numbers)}")
    try:
        yield made
    finally:
        await made.close()


SECRETS = ["foo", *(f"foo{i}" for i in range(1, 20))]


async def test_objects_old_and_new_are_assigned_without_the_webhook(kube_client: Client, ring: Ring) -> None:
    """Within 2 s."""
    for name in SECRETS:
        await ring.secret(name)
    await ring.create()
    await ring.join("a", "b", "c")
    async with sharder(kube_client):
        wanted = ring.placement("a", "b", "c", names=SECRETS)
        await eventually(lambda: _equal(ring.labels(), wanted))
        await eventually(lambda: ring.ready(3, 3))
        await ring.secret("later")
        wanted |= ring.placement("a", "b", "c", names=["later"])
        assert await eventually(lambda: _equal(ring.labels(), wanted)) < 2.0
        assert (await ring.lease("a")).metadata.label(STATE_LABEL) == "ready"


async def test_scale_up_drains_and_moves_only_what_changes_its_owner(kube_client: Client, ring: Ring) -> None:
    """Children follow their owner: A8 in docs/defects.md."""
    for name in SECRETS:
        await ring.secret(name)
        await ring.config_map(name)
    await ring.create()
    await ring.join("a", "b")
    async with sharder(kube_client):
        before = ring.placement("a", "b", names=SECRETS)
        await eventually(lambda: _equal(ring.labels(), before))
        await eventually(lambda: _equal(ring.labels(ConfigMap), before))
        async with ring.history(Secret) as events, ring.history(ConfigMap) as children:
            await ring.join("c")
            after = ring.placement("a", "b", "c", names=SECRETS)
            moving = {name for name in SECRETS if after[name] != before[name]}
            assert moving
            draining = {**before, **{name: {**before[name], "drain": "true"} for name in moving}}
            await eventually(lambda: _equal(ring.labels(), draining))
            assert await ring.labels(ConfigMap) == before
            for name in moving:
                await ring.acknowledge(name)
            await eventually(lambda: _equal(ring.labels(), after))
            await eventually(lambda: _equal(ring.labels(ConfigMap), after))
        assert set(events) == set(children) == moving
        for name in moving:
            # Without a webhook the acknowledgement leaves the object unassigned in between.
            assert events[name] == [draining[name], {}, after[name]]
            assert children[name] == [after[name]]


async def test_scale_down_is_one_event_per_object_of_the_leaving_shard(
    kube_client: Client, ring: Ring
) -> None:
    for name in SECRETS:
        await ring.secret(name)
    await ring.create()
    await ring.join("a", "b", "c")
    async with sharder(kube_client):
        before = ring.placement("a", "b", "c", names=SECRETS)
        await eventually(lambda: _equal(ring.labels(), before))
        async with ring.history(Secret) as events:
            await ring.leave("c")
            after = ring.placement("a", "b", names=SECRETS)
            await eventually(lambda: _equal(ring.labels(), after))
        assert events == {name: [after[name]] for name in SECRETS if after[name] != before[name]}
        await eventually(lambda: ring.ready(3, 2))
        assert (await ring.lease("c")).metadata.label(STATE_LABEL) == "dead"


async def test_a_crashed_shard_is_expired_then_seized_and_only_then_loses_its_objects(
    kube_client: Client, ring: Ring
) -> None:
    for name in SECRETS:
        await ring.secret(name)
    await ring.create()
    await ring.join("a", "b", duration=3)
    async with sharder(kube_client):
        before = ring.placement("a", "b", names=SECRETS)
        await eventually(lambda: _equal(ring.labels(), before))
        crashed = time.monotonic()
        ring.crash("b")
        await eventually(lambda: ring.state_is("b", "expired"))
        assert 2.0 < time.monotonic() - crashed < 5.0
        assert await ring.labels() == before
        await eventually(lambda: _equal(ring.labels(), ring.placement("a", names=SECRETS)))
        assert 5.0 < time.monotonic() - crashed < 9.0
        lease = await ring.lease("b")
        assert lease.spec.holder_identity == "shardlease-controller"
        assert lease.spec.lease_duration_seconds == 6
        assert lease.spec.lease_transitions == 1
        await eventually(lambda: ring.state_is("b", "dead"))


async def test_the_objects_of_a_deleted_lease_stay_while_its_shard_may_live(
    kube_client: Client, ring: Ring
) -> None:
    """A23 in docs/defects.md."""
    for name in SECRETS:
        await ring.secret(name)
    await ring.create()
    await ring.join("a", "b", duration=2)
    async with sharder(kube_client):
        before = ring.placement("a", "b", names=SECRETS)
        await eventually(lambda: _equal(ring.labels(), before))
        ring.crash("b")
        await kube_client.delete(Lease, "b", ring.namespace)
        deleted = time.monotonic()
        while time.monotonic() - deleted < 2.5:
            assert await ring.labels() == before
            await asyncio.sleep(0.2)
        await eventually(lambda: _equal(ring.labels(), ring.placement("a", names=SECRETS)))
        assert (await ring.lease("b")).spec.holder_identity == "shardlease-controller"


async def test_cluster_scoped_objects_are_assigned_and_drained(
    kube_client: Client, ring: Ring, install_crd: Any
) -> None:
    """A4 in docs/defects.md."""
    install_crd(definition(Machine))
    kind = await kube_client.discovery.kind("sharder.test", resource="machines")
    form = metadata_only(kind)
    await kube_client.apply(
        {"apiVersion": "sharder.test/v1", "kind": "Machine", "metadata": {"name": f"m-{ring.name}"}}
    )
    await ring.create(resources=[{"group": "sharder.test", "resource": "machines"}])
    await ring.join("a")

    async def labels() -> dict[str, str]:
        machine = await kube_client.get(form, f"m-{ring.name}")
        return dict(machine.metadata.labels or {})

    async with sharder(kube_client):
        await eventually(lambda: _equal(labels(), {ring.shard_label: "a"}))
        await ring.leave("a")
        await ring.join("b")
        await eventually(lambda: _equal(labels(), {ring.shard_label: "b"}))


async def test_the_webhook_configuration_is_restored_and_goes_with_an_edit_of_the_ring(
    kube_client: Client, ring: Ring
) -> None:
    """A16 in docs/defects.md."""
    await ring.create()
    name = f"controllerring-{ring.name}"

    async def rules() -> list[list[str]]:
        try:
            found = await kube_client.get(MutatingWebhookConfiguration, name)
        except NotFound:
            return []
        return [rule["resources"] for rule in found.webhooks[0]["rules"]] if found.webhooks else []

    async with sharder(kube_client):
        await eventually(lambda: _equal(rules(), [["secrets"], ["configmaps"]]))
        await kube_client.delete(MutatingWebhookConfiguration, name)
        await eventually(lambda: _equal(rules(), [["secrets"], ["configmaps"]]), seconds=3.0)
        await kube_client.patch(MutatingWebhookConfiguration, name, "", MergePatch({"webhooks": None}))
        await eventually(lambda: _equal(rules(), [["secrets"], ["configmaps"]]), seconds=3.0)
        await ring.create(resources=[{"group": "", "resource": "configmaps"}])
        await eventually(lambda: _equal(rules(), [["configmaps"]]), seconds=3.0)


async def test_a_mistake_in_a_ring_is_a_condition_and_the_rest_works(kube_client: Client, ring: Ring) -> None:
    await ring.secret("foo")
    await ring.create(
        resources=[
            {"group": "", "resource": "secrets"},
            {"group": "sharder.test", "resource": "missing"},
            {"group": "coordination.k8s.io", "resource": "leases"},
        ]
    )
    await ring.join("a")
    async with sharder(kube_client):
        await eventually(lambda: _equal(ring.labels(), {"foo": {"shard": "a"}}))

        async def conditions() -> dict[str, str]:
            status = (await kube_client.get(ControllerRing, ring.name)).status
            return {c.type: c.status for c in status.conditions} if status else {}

        wanted = {"Ready": "False", "ResourcesAccepted": "False", "ResourcesResolved": "False"}
        await eventually(lambda: _equal(conditions(), wanted))


async def test_deleting_the_ring_leaves_objects_as_they_are(kube_client: Client, ring: Ring) -> None:
    """The default behaviour is the reference's: A14 in docs/defects.md."""
    await ring.secret("foo")
    await ring.create()
    await ring.join("a")
    async with sharder(kube_client):
        await eventually(lambda: _equal(ring.labels(), {"foo": {"shard": "a"}}))
        await kube_client.delete(ControllerRing, ring.name)
        await ring.secret("later")
        await ring.leave("a")
        await asyncio.sleep(1.0)
        assert await ring.labels() == {"foo": {"shard": "a"}, "later": {}}


async def test_a_ring_with_the_finalizer_is_gone_when_no_object_carries_its_labels(
    kube_client: Client, ring: Ring
) -> None:
    """A14 in docs/defects.md."""
    for name in ("foo", "bar"):
        await ring.secret(name)
    await ring.create()
    await kube_client.patch(
        ControllerRing, ring.name, "", MergePatch({"metadata": {"finalizers": [CLEAN_UP_FINALIZER]}})
    )
    await ring.join("a")
    async with sharder(kube_client):
        await eventually(lambda: _equal(ring.labels(), {"foo": {"shard": "a"}, "bar": {"shard": "a"}}))
        await kube_client.delete(ControllerRing, ring.name)
        asked = {name: {"shard": "a", "drain": "true"} for name in ("foo", "bar")}
        await eventually(lambda: _equal(ring.labels(), asked))
        await ring.leave("a")
        await eventually(lambda: _equal(ring.labels(), {"foo": {}, "bar": {}}))

        async def gone() -> bool:
            try:
                await kube_client.get(ControllerRing, ring.name)
            except NotFound:
                return True
            return False

        await eventually(gone, 20)


class Machine(KubeObject, group="sharder.test", version="v1", namespaced=False): ...


async def _equal(found: Awaitable[Any], wanted: Any) -> bool:
    return bool(await found == wanted)
