"""The admission policies of `kubeshard manifests`: what they allow and what they deny."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from kubeshard.client import Client
from kubeshard.core import ConfigMap, Lease, MergePatch, ObjectMeta, OwnerReference
from kubeshard.core.builtin import LeaseSpec
from kubeshard.core.errors import AlreadyExists, ApiError, Forbidden
from kubeshard.core.grants import Grant
from kubeshard.core.selectors import LabelSelector
from kubeshard.core.times import micro_time
from kubeshard.manager.roles import roles
from kubeshard.manifests.operator import operator_objects
from kubeshard.manifests.ring import ring_objects
from kubeshard.manifests.sharder import sharder_objects
from kubeshard.manifests.values import OperatorValues, SharderValues, chosen
from kubeshard.sharder.config import SharderConfig, WebhookConfig
from kubeshard.sharder.webhook_config import webhook_configuration
from kubeshard.sharding.api import ControllerRing, ControllerRingSpec, RingResource
from kubeshard.sharding.crd import controller_ring_crd
from kubeshard.sharding.names import (
    CLEAN_UP_FINALIZER,
    DELIVERY_ANNOTATION,
    RING_LABEL,
    SYSTEM_NAMESPACES_ANNOTATION,
    drain_label,
    shard_label,
)
from kubeshard_lab.examples.checksum import operator as checksum

RING, RANGED = "policed", "policed-ranges"
SHARD, DRAIN = shard_label(RING), drain_label(RING)
FOREIGN = "example.com/foreign"
SYSTEM = "sharding-system"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
ENFORCED_WITHIN = 60.0
"""A policy is in force a moment after it was created, but up to 30 s later if the kind of its parameters is as new: an
API server looks only that often for new kinds (its `discoveryRESTMapper`).
"""

Write = Callable[[Client], Awaitable[object]]


def ring_of(name: str, *resources: str, **spec: Any) -> dict[str, Any]:
    listed = [
        {"group": group, "resource": each} for group, _, each in (one.rpartition("/") for one in resources)
    ]
    return {
        "apiVersion": "sharding.timebertt.dev/v1alpha1",
        "kind": "ControllerRing",
        "metadata": {"name": name, "finalizers": [CLEAN_UP_FINALIZER, FOREIGN]},
        "spec": {"resources": listed, **spec},
    }


TEAM = {"matchLabels": {"team": "a"}, "matchExpressions": [{"key": "b", "operator": "Exists"}]}
RINGS = (
    ring_of("r", "example.com/things", "example.com/pods"),
    ring_of("narrow", "example.com/things", namespaceSelector=TEAM),
)


def manifests(namespace: str) -> Iterable[dict[str, Any]]:
    ring = {**ring_of(RING, "configmaps"), "metadata": {"name": RING}}
    yield from RINGS
    yield from ring_objects(ring, (SYSTEM, "sharder"), shards=[(namespace, "shard")], labels_only=True)
    ring = {**ring, "metadata": {"name": RANGED, "annotations": {DELIVERY_ANNOTATION: "Ranges"}}}
    yield from ring_objects(ring, (SYSTEM, "sharder"), shards=[(namespace, "ranger")])
    made = sharder_objects(SharderValues(), ["rights", "policies"])
    yield from (obj for obj in made if "namespace" not in obj["metadata"])
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
    without = json.dumps({"metadata": {"finalizers": None}}).encode()
    for ring in RINGS:
        await kube_client.raw("PATCH", path_of(ring), without, content_type="application/merge-patch+json")
    for manifest in reversed(made):
        with suppress(ApiError):
            await kube_client.raw("DELETE", path_of(manifest))


def path_of(manifest: Mapping[str, Any]) -> str:
    plural, meta = manifest["kind"].lower(), manifest["metadata"]
    plural = plural[:-1] + "ies" if plural.endswith("y") else plural + "s"
    place = f"/namespaces/{meta['namespace']}" if "namespace" in meta else ""
    group = "/api" if manifest["apiVersion"] == "v1" else "/apis"
    return f"{group}/{manifest['apiVersion']}{place}/{plural}/{meta['name']}"


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


def create(name: str) -> Write:
    """Creates a ConfigMap."""

    def write(client: Client) -> Awaitable[object]:
        meta = ObjectMeta(name=name, namespace=client.namespace)
        return client.create(ConfigMap(metadata=meta), dry_run=True)

    return write


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
"""What the sharder registers for a ring, but for the ring's UID."""

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
    body = {**OURS, "metadata": meta, "webhooks": [{**each, **changes}]}

    async def write(client: Client) -> object:
        uid = (await client.get(ControllerRing, "r")).metadata.uid
        text = json.dumps(body).replace('"uid": "u"', f'"uid": "{uid}"')
        return await client.raw("POST", f"{WEBHOOKS}?dryRun=All", body=text.encode())

    return write


def registered(ring: Mapping[str, Any], **changes: Any) -> Write:
    """Applies the configuration of the ring as the sharder does, with other fields in its webhook."""

    async def write(client: Client) -> object:
        name = ring["metadata"]["name"]
        (found,) = [each for each in await client.list_all(ControllerRing) if each.name == name]
        body = webhook_configuration(found, WebhookConfig())
        (each,) = body["webhooks"]
        body["webhooks"] = [{**each, **changes}]
        path = f"{WEBHOOKS}/{body['metadata']['name']}?dryRun=All&fieldManager=sharder&force=true"
        kind = "application/apply-patch+yaml"
        return await client.raw("PATCH", path, json.dumps(body).encode(), content_type=kind)

    return write


def ring_patch(body: Mapping[str, Any], subresource: str = "") -> Write:
    """Patches the ring `r`."""
    path = f"{path_of(RINGS[0])}{subresource}?dryRun=All"
    return lambda client: client.raw(
        "PATCH", path, json.dumps(body).encode(), content_type="application/merge-patch+json"
    )


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


async def until_refused(client: Client, write: Write, denied: bool) -> None:
    """Returns when the write is refused, or is not."""
    async with asyncio.timeout(ENFORCED_WITHIN):
        while True:
            if await refused(write(client)) is denied:
                return
            await asyncio.sleep(0.2)


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
    "by ranges, a shard whose Lease was taken changes an object": ("ranger", "ended", patch("of-a", DATA)),
    "by ranges, a shard whose Lease was taken creates an object": ("ranger", "ended", create("late")),
    "by ranges, a shard whose Lease was taken deletes an object": ("ranger", "ended", delete("of-a")),
    "by ranges, a shard without a pod": ("ranger", "", patch("of-a", DATA)),
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
    "a resource of another ring": (SHARDER, "", webhook(**rules(apiGroups=[""], resources=["configmaps"]))),
    "a resource of another group": (SHARDER, "", webhook(**rules(apiGroups=["apps"], resources=["things"]))),
    "a resource of its ring and another": (SHARDER, "", webhook(**rules(resources=["things", "secrets"]))),
    "other namespaces than its ring's": (SHARDER, "", registered(RINGS[1], **namespaces("Exists", key="b"))),
    "some more namespaces than its ring's": (
        SHARDER,
        "",
        registered(RINGS[1], namespaceSelector={"matchLabels": {"team": "a"}}),
    ),
    "the webhook of a ring of earlier": (SHARDER, "", webhook(metadata=owned(uid="v"))),
    "the sharder adds a resource to a ring": (SHARDER, "", ring_patch({"spec": {"resources": []}})),
    "the sharder lets a ring into kube-system": (
        SHARDER,
        "",
        ring_patch({"metadata": {"annotations": {SYSTEM_NAMESPACES_ANNOTATION: "kube-system"}}}),
    ),
    "the sharder labels a ring": (SHARDER, "", ring_patch({"metadata": {"labels": {"a": "b"}}})),
    "the sharder removes another's finalizer": (
        SHARDER,
        "",
        ring_patch({"metadata": {"finalizers": [CLEAN_UP_FINALIZER]}}),
    ),
    "the sharder adds a finalizer": (
        SHARDER,
        "",
        ring_patch({"metadata": {"finalizers": [CLEAN_UP_FINALIZER, FOREIGN, "example.com/more"]}}),
    ),
    "every namespace without a label": (SHARDER, "", webhook(**namespaces("DoesNotExist", key="a"))),
}

ALLOWED: Mapping[str, tuple[str, str, Write]] = {
    "a shard changes its own object": ("shard", "a", patch("of-a", DATA)),
    "a shard deletes its own object": ("shard", "a", delete("of-a")),
    "by ranges, a shard that holds its Lease changes an object": ("ranger", "holding", patch("of-b", DATA)),
    "by ranges, a shard that holds its Lease creates an object": ("ranger", "holding", create("new")),
    "by ranges, a shard whose Lease was deleted, of which nothing is known": (
        "ranger",
        "deleted",
        patch("of-a", DATA),
    ),
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
    "the webhook of a ring in some namespaces": (SHARDER, "", registered(RINGS[1])),
    "somebody narrows the webhook of a ring": (
        SHARDER,
        "",
        registered(
            RINGS[1],
            namespaceSelector={
                **TEAM,
                "matchExpressions": [*TEAM["matchExpressions"], {"key": "x", "operator": "DoesNotExist"}],
            },
        ),
    ),
    "the sharder removes its finalizer": (SHARDER, "", ring_patch({"metadata": {"finalizers": [FOREIGN]}})),
    "the sharder writes the status of a ring": (
        SHARDER,
        "",
        ring_patch({"status": {"shards": 1, "availableShards": 0}}, "/status"),
    ),
    "somebody else adds a resource to a ring": ("somebody", "", ring_patch({"spec": {"resources": []}})),
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
    name = f"system:serviceaccount:{namespace}:{user}" if user in ("shard", "ranger") else user
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
    for name, holder in (("holding", "holding"), ("ended", "")):
        async with client_of(client, namespace, "ranger", name) as shard:
            meta = ObjectMeta(name=name, namespace=namespace, labels={RING_LABEL: RANGED})
            await shard.create(
                Lease(metadata=meta, spec=msgspec.structs.replace(spec, holder_identity=holder))
            )
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


async def test_a_stolen_token_of_the_sharder_registers_webhooks_of_its_rings_only(
    kube_client: Client, policed: str
) -> None:
    """By RBAC: not for a ring that does not exist, and not by a creation that names nothing. As the account is, with
    the roles of the sharder and of one ring.
    """
    ghost = {**OURS, "metadata": {**OURS["metadata"], "name": "controllerring-ghost"}}
    account = with_groups(kube_client, SHARDER, "system:serviceaccounts", "system:authenticated")
    async with account as client:
        deadline = time.monotonic() + ENFORCED_WITHIN
        while True:
            try:
                await registered(RING_ITSELF)(client)
                break
            except Forbidden:  # the rights are not known yet, or there are no policies
                assert time.monotonic() < deadline
                await asyncio.sleep(0.1)
        for body in (ghost, OURS):
            with pytest.raises(Forbidden):
                await client.raw("POST", f"{WEBHOOKS}?dryRun=All", json.dumps(body).encode())
            path = f"{WEBHOOKS}/{body['metadata']['name']}?dryRun=All&fieldManager=sharder"
            with pytest.raises(Forbidden):
                await client.raw(
                    "PATCH", path, json.dumps(body).encode(), content_type="application/apply-patch+yaml"
                )


async def test_where_the_parameters_of_a_policy_are_missing_nobody_is_refused_anything(
    kube_client: Client, namespace: str, install_crd: Callable[[Mapping[str, Any]], None]
) -> None:
    """API servers look for parameters first, and only then at whom a policy concerns."""
    install_crd(controller_ring_crd())
    annotations = {DELIVERY_ANNOTATION: "Ranges"}
    ring = {**ring_of(RANGED, "configmaps"), "metadata": {"name": RANGED, "annotations": annotations}}
    of_ring = ring_objects(ring, (SYSTEM, "sharder"), shards=[(namespace, "ranger")])
    of_sharder = (
        obj for obj in sharder_objects(SharderValues(), ["policies"]) if "namespace" not in obj["metadata"]
    )
    made = [each for each in (*of_sharder, *of_ring) if each["kind"] != "ControllerRing"]
    for manifest in made:
        await kube_client.apply_manifest(manifest)
    meta = ObjectMeta(name="ended", namespace=namespace, labels={RING_LABEL: RANGED})
    owner = "system:serviceaccount:sharding-system:sharder"
    try:
        async with (
            as_user(kube_client, owner) as sharder,
            client_of(kube_client, namespace, "ranger", "ended") as shard,
        ):
            lease = await sharder.create(Lease(metadata=meta, spec=LeaseSpec(holder_identity="")))
            await until_refused(shard, create("early"), True)
            await sharder.delete_object(lease)
            await until_refused(shard, create("late"), False)
        body = json.dumps({**OURS, "metadata": {"name": "of-somebody"}, "webhooks": []}).encode()
        async with client_of(kube_client, namespace, "somebody", "") as client:
            assert not await refused(create("any")(client))
            assert not await refused(client.raw("POST", f"{WEBHOOKS}?dryRun=All", body=body))
    finally:
        for manifest in reversed(made):
            with suppress(ApiError):
                await kube_client.raw("DELETE", path_of(manifest))


RING_ITSELF = {"metadata": {"name": RING}}


def with_groups(client: Client, name: str, *groups: str) -> Client:
    """A client of this user with these groups only."""
    who = {"Impersonate-User": name, "Impersonate-Group": groups[0]}
    return Client(dataclasses.replace(client.config, impersonate=who))


async def test_a_stolen_token_of_a_shard_is_worth_what_the_page_says(
    kube_client: Client, namespace: str, install_crd: Callable[[Mapping[str, Any]], None]
) -> None:
    """Of the example that works in one namespace, with `ring.policies`."""
    install_crd(controller_ring_crd())
    values = {"image": "a/b:c", "namespace": namespace, "createNamespace": False}
    values |= {"ring": {"enabled": True, "policies": True}, "crds": {"enabled": False}}
    target = chosen(OperatorValues, values)
    made = [
        each
        for each in operator_objects(checksum.manager(), "checksum", f"{namespace}-shard", target)
        if each["kind"] not in ("Deployment", "Service", "PodDisruptionBudget")
    ]
    for manifest in made:
        await kube_client.apply_manifest(manifest)
    user = f"system:serviceaccount:{namespace}:{namespace}-shard"
    try:
        async with with_groups(kube_client, user, "system:authenticated") as client:
            deadline = time.monotonic() + ENFORCED_WITHIN
            while not await client.can_i("list", "", "secrets", namespace="default"):
                assert time.monotonic() < deadline
                await asyncio.sleep(0.1)
            for allowed, verb, group, resource, place in STOLEN:
                where = {"own": namespace}.get(place, place)
                assert await client.can_i(verb, group, resource, namespace=where) is allowed, (
                    verb,
                    resource,
                    place,
                )
    finally:
        for manifest in reversed(made):
            with suppress(ApiError):
                await kube_client.raw("DELETE", path_of(manifest))


STOLEN = (
    (True, "list", "", "secrets", "default"),
    (True, "patch", "", "secrets", "default"),
    (True, "create", "", "configmaps", "default"),
    (True, "update", "coordination.k8s.io", "leases", "own"),
    (False, "list", "", "secrets", "kube-system"),
    (False, "list", "", "secrets", ""),
    (False, "create", "", "secrets", "default"),
    (False, "delete", "", "secrets", "default"),
    (False, "create", "", "configmaps", "own"),
    (False, "update", "coordination.k8s.io", "leases", "default"),
    (False, "patch", "sharding.timebertt.dev", "controllerrings", ""),
    (False, "create", "", "pods", "own"),
)
"""Whether it may. What it may patch, and which Lease, is confined by the policies above."""


async def test_of_a_controlled_resource_a_shard_writes_what_nothing_controls_and_what_its_label_names(
    kube_client: Client, namespace: str, install_crd: Callable[[Mapping[str, Any]], None]
) -> None:
    install_crd(controller_ring_crd())
    controlled = [{"group": "", "resource": "configmaps"}]
    spec = {"resources": [{"group": "", "resource": "secrets", "controlledResources": controlled}]}
    ring = {**ring_of("followed"), "metadata": {"name": "followed"}, "spec": spec}
    made = list(ring_objects(ring, (SYSTEM, "sharder"), shards=[(namespace, "shard")]))
    for manifest in made:
        await kube_client.apply_manifest(manifest)
    try:
        reference = OwnerReference(api_version="v1", kind="Secret", name="o", uid="u", controller=True)
        plain = OwnerReference(api_version="v1", kind="Secret", name="o", uid="u")
        owners = {"nobodys": (), "owned": (plain,), "mine": (reference,), "anothers": (reference,)}
        for name, references in owners.items():
            label = {shard_label("followed"): "a" if name == "mine" else "gone"}
            meta = ObjectMeta(name=name, namespace=namespace, labels=label, owner_references=references)
            await kube_client.create(ConfigMap(metadata=meta))

        async def allowed(name: str) -> bool:
            async with client_of(kube_client, namespace, "shard", "a") as client:
                patch = MergePatch({"data": {"x": secrets.token_hex(4)}})
                return not await refused(client.patch(ConfigMap, name, namespace, patch))

        async with asyncio.timeout(ENFORCED_WITHIN):
            while True:
                if not await allowed("anothers"):
                    break
                await asyncio.sleep(0.2)
        assert {name: await allowed(name) for name in owners} == {
            "nobodys": True,
            "owned": True,
            "mine": True,
            "anothers": False,
        }
    finally:
        for manifest in reversed(made):
            with suppress(ApiError):
                await kube_client.raw("DELETE", path_of(manifest))
