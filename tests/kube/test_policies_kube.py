"""The admission policies of `kubeshard manifests`: what they allow and what they deny."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from kubeshard.client import Client
from kubeshard.core import ConfigMap, Lease, MergePatch, ObjectMeta
from kubeshard.core.builtin import LeaseSpec
from kubeshard.core.errors import AlreadyExists, ApiError
from kubeshard.core.grants import Grant
from kubeshard.core.selectors import LabelSelector
from kubeshard.core.times import micro_time
from kubeshard.manager.roles import roles
from kubeshard.manifests.ring import ring_objects
from kubeshard.manifests.sharder import sharder_objects
from kubeshard.manifests.values import SharderValues
from kubeshard.sharder.config import SharderConfig, WebhookConfig
from kubeshard.sharder.webhook_config import webhook_configuration
from kubeshard.sharding.api import ControllerRing, ControllerRingSpec, RingResource
from kubeshard.sharding.crd import controller_ring_crd
from kubeshard.sharding.names import RING_LABEL, drain_label, shard_label

RING = "policed"
SHARD, DRAIN = shard_label(RING), drain_label(RING)
SYSTEM = "sharding-system"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
ENFORCED_WITHIN = 30.0
"""A policy is in force a moment after it was created."""

Write = Callable[[Client], Awaitable[object]]


def manifests(namespace: str) -> Iterable[dict[str, Any]]:
    ring = {
        "apiVersion": "sharding.timebertt.dev/v1alpha1",
        "kind": "ControllerRing",
        "metadata": {"name": RING},
        "spec": {"resources": [{"group": "", "resource": "configmaps"}]},
    }
    made = ring_objects(ring, (SYSTEM, "sharder"), shards=[(namespace, "shard")], labels_only=True)
    yield from (obj for obj in made if obj["kind"] != "ClusterRoleBinding")
    yield from (obj for obj in sharder_objects(SharderValues()) if "AdmissionPolicy" in obj["kind"])
    yield from roles([Grant.on(Lease, "create")], "namesake", account=("elsewhere", "sharder"))


@pytest.fixture
async def policed(
    kube_client: Client, namespace: str, install_crd: Callable[[Mapping[str, Any]], None]
) -> AsyncIterator[str]:
    """The namespace of objects and shards."""
    install_crd(controller_ring_crd())
    made = list(manifests(namespace))
    for manifest in made:
        await kube_client.apply_manifest(manifest)
    yield namespace
    for manifest in reversed(made):
        with suppress(ApiError):
            await kube_client.raw("DELETE", path_of(manifest))


def path_of(manifest: Mapping[str, Any]) -> str:
    plural = manifest["kind"].lower()
    plural = plural[:-1] + "ies" if plural.endswith("y") else plural + "s"
    return f"/apis/{manifest['apiVersion']}/{plural}/{manifest['metadata']['name']}"


def as_user(client: Client, name: str, pod: str = "") -> Client:
    """Returns a client of this user, whom RBAC allows everything; or of an account whose token is bound to a pod. The
    namesake of the sharder may write Leases only.
    """
    extra = {"Impersonate-Extra-Authentication.kubernetes.io%2Fpod-name": pod} if pod else {}
    groups = {} if name == NAMESAKE else {"Impersonate-Group": "system:masters"}
    who = {"Impersonate-User": name, **groups, **extra}
    return Client(dataclasses.replace(client.config, impersonate=who))


def lease(name: str, holder: str = "", ring: str = RING, seconds: int = 15) -> Write:
    """Creates the Lease."""
    now = micro_time(time.time())
    spec = LeaseSpec(holder_identity=holder, lease_duration_seconds=seconds, renew_time=now, acquire_time=now)
    labels = {RING_LABEL: ring} if ring else {}

    def write(client: Client) -> Awaitable[object]:
        meta = ObjectMeta(name=name, namespace=client.namespace, labels=labels)
        return client.create(Lease(metadata=meta, spec=spec), dry_run=True)

    return write


def delete_lease(name: str) -> Write:
    return lambda client: client.delete(Lease, name, client.namespace, dry_run=True)


def patch(name: str, body: Mapping[str, Any]) -> Write:
    """Patches a ConfigMap."""
    return lambda client: client.patch(ConfigMap, name, client.namespace, MergePatch(body), dry_run=True)


def delete(name: str) -> Write:
    return lambda client: client.delete(ConfigMap, name, client.namespace, dry_run=True)


def labels(**values: str | None) -> Mapping[str, Any]:
    keys = {"shard": SHARD, "drain": DRAIN, "other": "other"}
    return {"metadata": {"labels": {keys[key]: value for key, value in values.items()}}}


OURS = webhook_configuration(
    ControllerRing(
        metadata=ObjectMeta(name="r", uid="u"),
        spec=ControllerRingSpec(resources=(RingResource(group="example.com", resource="things"),)),
    ),
    WebhookConfig(),
)
"""What the sharder registers for a ring."""

(EVERYWHERE,) = webhook_configuration(
    ControllerRing(
        metadata=ObjectMeta(name="r", uid="u"), spec=ControllerRingSpec(namespace_selector=LabelSelector())
    ),
    WebhookConfig(),
    without=SharderConfig().system_namespaces,
)["webhooks"]


def webhook(**changes: Any) -> Write:
    """Creates the configuration of a ring, with other fields in its only webhook or, for `metadata`, in itself."""
    (each,) = OURS["webhooks"]
    meta = {**OURS["metadata"], **changes.pop("metadata", {})}
    body = json.dumps({**OURS, "metadata": meta, "webhooks": [{**each, **changes}]}).encode()
    return lambda client: client.raw("POST", f"{WEBHOOKS}?dryRun=All", body=body)


def called(**client_config: Any) -> Mapping[str, Any]:
    return {"clientConfig": client_config}


def owned(**changes: Any) -> Mapping[str, Any]:
    (owner,) = OURS["metadata"]["ownerReferences"]
    return {"ownerReferences": [{**owner, **changes}]}


def rules(**changes: Any) -> Mapping[str, Any]:
    (each,) = OURS["webhooks"][0]["rules"]
    return {"rules": [{**each, **changes}]}


def namespaces(operator: str, *values: str, key: str = "kubernetes.io/metadata.name") -> Mapping[str, Any]:
    expression = {"key": key, "operator": operator, **({"values": values} if values else {})}
    return {"namespaceSelector": {"matchExpressions": [expression]}}


async def refused(write: Awaitable[object]) -> bool:
    """Whether a policy denies the request. Raises any other error, but for that of the second Lease of a name, which
    comes after the policies.
    """
    try:
        await write
    except AlreadyExists:
        return False
    except ApiError as error:
        if "ValidatingAdmissionPolicy" in str(error):
            return True
        raise
    return False


SHARDER = f"system:serviceaccount:{SYSTEM}:sharder"
NAMESAKE = "system:serviceaccount:elsewhere:sharder"
"""An account that has no rights on rings."""
COLLECTOR = "system:serviceaccount:kube-system:generic-garbage-collector"
DATA = {"data": {"a": "b"}}

REFUSED: Mapping[str, tuple[str, str, Write]] = {
    "a shard changes an object of another": ("shard", "a", patch("of-b", DATA)),
    "a shard deletes an object of another": ("shard", "a", delete("of-b")),
    "a shard changes an object of nobody": ("shard", "a", patch("of-nobody", DATA)),
    "a shard takes an object": ("shard", "a", patch("of-b", labels(shard="a"))),
    "a shard without a pod": ("shard", "", patch("of-a", DATA)),
    "a shard takes another's Lease": ("shard", "a", lease("b", "b")),
    "a shard holds its Lease for another": ("shard", "a", lease("a", "b")),
    "a shard holds its Lease for hours": ("shard", "a", lease("a", "a", seconds=9999)),
    "a shard deletes its Lease": ("shard", "b", delete_lease("b")),
    "a stranger joins": ("stranger", "", lease("ghost", "ghost")),
    "a stranger deletes a Lease": ("stranger", "", delete_lease("b")),
    "the collector joins": (COLLECTOR, "", lease("ghost", "ghost")),
    "the sharder changes data": (SHARDER, "", patch("of-a", DATA)),
    "the sharder takes data away": (SHARDER, "", patch("of-a", {"data": None})),
    "the sharder sets another label": (SHARDER, "", patch("of-a", labels(other="x"))),
    "the sharder takes another label away": (SHARDER, "", patch("of-b", labels(other=None))),
    "the sharder sets an annotation": (SHARDER, "", patch("of-a", {"metadata": {"annotations": {"a": "b"}}})),
    "the sharder makes a Lease of no ring": (SHARDER, "", lease("any", "any", ring="")),
    "the sharder deletes a Lease of no ring": (SHARDER, "", delete_lease("of-a-leader")),
    "another name": (SHARDER, "", webhook(metadata={"name": "another"})),
    "another Service": (SHARDER, "", webhook(**called(service={"namespace": SYSTEM, "name": "another"}))),
    "another namespace": (SHARDER, "", webhook(**called(service={"namespace": "x", "name": "sharder"}))),
    "a URL": (SHARDER, "", webhook(**called(url="https://127.0.0.1:1"))),
    "a webhook that fails requests": (SHARDER, "", webhook(failurePolicy="Fail")),
    "a webhook that delays requests": (SHARDER, "", webhook(timeoutSeconds=30)),
    "nobody's webhook": (SHARDER, "", webhook(metadata={"ownerReferences": []})),
    "another ring's webhook": (SHARDER, "", webhook(metadata=owned(name="another"))),
    "another kind's webhook": (SHARDER, "", webhook(metadata=owned(kind="Thing"))),
    "any object": (SHARDER, "", webhook(objectSelector={})),
    "objects without another label": (
        SHARDER,
        "",
        webhook(objectSelector={"matchExpressions": [{"key": SHARD, "operator": "DoesNotExist"}]}),
    ),
    "pods": (SHARDER, "", webhook(**rules(apiGroups=[""], resources=["pods"]))),
    "any resource": (SHARDER, "", webhook(**rules(resources=["*"]))),
    "any group": (SHARDER, "", webhook(**rules(apiGroups=["*"]))),
    "subresources": (SHARDER, "", webhook(**rules(resources=["things/status"]))),
    "deletions": (SHARDER, "", webhook(**rules(operations=["DELETE"]))),
    "every namespace": (SHARDER, "", webhook(namespaceSelector={})),
    "every namespace but the sharder's": (SHARDER, "", webhook(**namespaces("NotIn", SYSTEM))),
    "kube-system by name": (SHARDER, "", webhook(**namespaces("In", "kube-system"))),
    "the sharder's namespace by label": (
        SHARDER,
        "",
        webhook(namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": SYSTEM}}),
    ),
    "every namespace without a label": (SHARDER, "", webhook(**namespaces("DoesNotExist", key="a"))),
}

ALLOWED: Mapping[str, tuple[str, str, Write]] = {
    "a shard changes its own object": ("shard", "a", patch("of-a", DATA)),
    "a shard deletes its own object": ("shard", "a", delete("of-a")),
    "a shard lets its object go": ("shard", "a", patch("of-a", labels(shard=None, drain=None))),
    "a shard makes its Lease": ("shard", "a", lease("a", "a")),
    "somebody else changes an object": ("somebody", "", patch("of-b", DATA)),
    "the sharder assigns": (SHARDER, "", patch("of-nobody", labels(shard="b"))),
    "the sharder drains": (SHARDER, "", patch("of-a", labels(drain="true"))),
    "the sharder moves": (SHARDER, "", patch("of-a", labels(shard="b", drain=None))),
    "the sharder takes a Lease": (SHARDER, "", lease("c", "shardlease-controller", seconds=600)),
    "the sharder deletes a Lease": (SHARDER, "", delete_lease("b")),
    "the collector deletes a Lease": (COLLECTOR, "", delete_lease("b")),
    "somebody makes another Lease": ("somebody", "", lease("another", "x", ring="")),
    "its webhook": (SHARDER, "", webhook()),
    "a webhook without rules": (SHARDER, "", webhook(rules=[])),
    "the webhook of a ring that selects everything": (SHARDER, "", webhook(**EVERYWHERE)),
    "its webhook for a namespace": (SHARDER, "", webhook(**namespaces("In", "default"))),
    "its webhook for some namespaces": (SHARDER, "", webhook(**namespaces("Exists", key="a"))),
    "pods of another group": (SHARDER, "", webhook(**rules(resources=["pods"]))),
    "another account of that name makes a Lease": (NAMESAKE, "", lease("any", "any", ring="")),
}


async def test_policies_refuse_what_is_another_shards_or_not_the_sharders_and_nothing_else(
    kube_client: Client, policed: str
) -> None:
    await fill(kube_client, policed)
    deadline = time.monotonic() + ENFORCED_WITHIN
    allowed = dict(REFUSED)
    while allowed and time.monotonic() < deadline:
        for what, (user, pod, write) in tuple(allowed.items()):
            async with client_of(kube_client, policed, user, pod) as client:
                if await refused(write(client)):
                    del allowed[what]
        await asyncio.sleep(0.2)
    assert list(allowed) == []
    for what, (user, pod, write) in ALLOWED.items():
        async with client_of(kube_client, policed, user, pod) as client:
            assert not await refused(write(client)), f"refused: {what}"


def client_of(client: Client, namespace: str, user: str, pod: str) -> Client:
    name = f"system:serviceaccount:{namespace}:shard" if user == "shard" else user
    found = as_user(client, name, pod)
    return Client(dataclasses.replace(found.config, namespace=namespace))


async def fill(client: Client, namespace: str) -> None:
    """Creates objects of two shards and of none, a shard's Lease, and a Lease that is not a shard's."""
    owners: Mapping[str, Mapping[str, str]] = {
        "of-a": {SHARD: "a"},
        "of-b": {SHARD: "b", "other": "y"},
        "of-nobody": {},
    }
    for name, found in owners.items():
        meta = ObjectMeta(name=name, namespace=namespace, labels=found)
        await client.create(ConfigMap(metadata=meta, data={"k": "v"}))
    spec = LeaseSpec(holder_identity="x", lease_duration_seconds=15)
    for name, found in (("b", {RING_LABEL: RING}), ("of-a-leader", {})):
        meta = ObjectMeta(name=name, namespace=namespace, labels=found)
        if found:
            shard = client_of(client, namespace, "shard", name)
            async with shard:
                await shard.create(
                    Lease(metadata=meta, spec=msgspec.structs.replace(spec, holder_identity=name))
                )
        else:
            await client.create(Lease(metadata=meta, spec=spec))
