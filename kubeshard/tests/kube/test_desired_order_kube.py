"""The order of a desired set of built-in kinds, in two namespaces and in none. The test does what other controllers do:
it reports what is ready, and collects garbage.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kubeshard import Context, Controller, Finalizer, Manager, Ordered, Scope, Watch, until, wait_for, when
from kubeshard.client import Client
from kubeshard.core import ConfigMap, KubeObject, MergePatch, Namespace, NotFound, ObjectMeta, Struct, field
from kubeshard.crd import definition

pytestmark = pytest.mark.regression


class ShopStatus(Struct):
    held: str = ""


class Shop(KubeObject, group="order.example.com", version="v1"):
    status: ShopStatus = field(default_factory=ShopStatus)


class StatefulSet(KubeObject, group="apps", version="v1"):
    spec: Mapping[str, Any] | None = None
    status: Mapping[str, Any] | None = None


class Deployment(KubeObject, group="apps", version="v1"):
    spec: Mapping[str, Any] | None = None
    status: Mapping[str, Any] | None = None


class ClusterRole(KubeObject, group="rbac.authorization.k8s.io", version="v1", namespaced=False):
    pass


@pytest.fixture(autouse=True, scope="module")
def crd(install_crd: Callable[[Any], None]) -> None:
    install_crd(definition(Shop))


def pods(app: str) -> dict[str, Any]:
    labels = {"app": app}
    containers = [{"name": app, "image": "example.com/image:1"}]
    return {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
    }


class Members:
    """A role without a namespace, then a database, then a web server, then a record in another namespace."""

    def __init__(self, namespace: str, far: str) -> None:
        def named(name: str, place: str = "") -> ObjectMeta:
            return ObjectMeta(name=name, namespace=place)

        self.role = ClusterRole(metadata=named(f"shop-{namespace}"))
        self.database = StatefulSet(metadata=named("db", namespace), spec={"serviceName": "db", **pods("db")})
        self.web = Deployment(metadata=named("web", namespace), spec=pods("web"))
        self.record = ConfigMap(metadata=named("record", far), data={"target": "web"})

    def ordered(self) -> list[KubeObject | Ordered[Any]]:
        return [
            Ordered(self.record, after=[self.web]),
            Ordered(self.web, after=[self.database]),
            Ordered(self.database, after=[self.role]),
            self.role,
        ]

    @property
    def every(self) -> list[KubeObject]:
        return [self.role, self.database, self.web, self.record]


@asynccontextmanager
async def operator(client: Client, members: Members, *namespaces: str) -> AsyncIterator[None]:
    async def reconcile(ctx: Context, shop: Shop) -> None:
        applied = await ctx.apply(*members.ordered())
        await ctx.status(shop, ShopStatus(held=applied.held_because))

    scope = Scope(frozenset(namespaces))
    controller = Controller(
        name="ordered-shops",
        reconciler=reconcile,
        primary=Watch(Shop, when=when.generation_changed, scope=scope),
        applies=[*(Watch(kind, scope=scope) for kind in (StatefulSet, Deployment, ConfigMap)), ClusterRole],
        finalizers=[Finalizer.deleting_members("order.example.com/members")],
    )
    manager = Manager([controller], client=client, status_pages=None)
    task = asyncio.create_task(manager.run())
    try:
        yield
    finally:
        manager.stop()
        await task


async def there(client: Client, members: Members) -> list[str]:
    """Returns the kinds of the members that exist; those with a deletionTimestamp have a dash."""
    found = []
    for member in members.every:
        try:
            live = await client.get(type(member), member.metadata.name, member.metadata.namespace)
        except NotFound:
            continue
        found.append(live.KIND.kind + ("-" if live.metadata.deleting else ""))
    return found


async def rolled_out(client: Client, obj: KubeObject) -> None:
    counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "currentReplicas")
    revisions = {"currentRevision": "1", "updateRevision": "1"} if isinstance(obj, StatefulSet) else {}
    conditions = [
        {"type": "Available", "status": "True", "reason": "Said"},
        {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"},
    ]
    more = {"conditions": conditions} if isinstance(obj, Deployment) else revisions
    known = counts if isinstance(obj, StatefulSet) else counts[:-1]
    status = {"observedGeneration": 1, **dict.fromkeys(known, 1), **more}
    patch = MergePatch({"status": status})
    await client.patch(type(obj), obj.metadata.name, obj.metadata.namespace, patch, subresource="status")


async def collected(client: Client, obj: KubeObject) -> None:
    """Waits until the deletion of the object is requested, and ends it as the garbage collector does."""
    live = await wait_for(client, obj, ~until.exists | DELETED, timeout=30)
    if live is not None:
        assert live.metadata.finalizers == ("foregroundDeletion",)
        patch = MergePatch({"metadata": {"finalizers": None, "uid": live.metadata.uid}})
        await client.patch(type(obj), obj.metadata.name, obj.metadata.namespace, patch)


def says(waits: str) -> until.WaitCondition:
    return until.holds("says what waits", lambda shop: shop.status.held.startswith(waits))


DELETED = until.holds("is being deleted", lambda obj: obj.metadata.deleting)


async def test_members_anywhere_come_in_order_and_go_in_reverse_with_their_owner(
    kube_client: Client, namespace: str
) -> None:
    far = f"{namespace}-far"
    await kube_client.create(Namespace(metadata=ObjectMeta(name=far)))
    members = Members(namespace, far)
    shop = await kube_client.create(Shop(metadata=ObjectMeta(name="shop", namespace=namespace)))
    async with operator(kube_client, members, namespace, far):
        for existing, waits in (
            (
                [members.role, members.database],
                f"Deployment {namespace}/web waits for StatefulSet {namespace}/db (",
            ),
            ([members.role, members.database, members.web], f"ConfigMap {far}/record waits for Deployment"),
        ):
            await wait_for(kube_client, shop, says(waits), timeout=30)
            assert await there(kube_client, members) == [obj.KIND.kind for obj in existing]
            await rolled_out(kube_client, existing[-1])
        await wait_for(kube_client, members.record, until.exists, timeout=30)
        database = await kube_client.get(StatefulSet, "db", namespace)
        role = f'["ClusterRole.rbac.authorization.k8s.io shop-{namespace}"]'
        assert database.metadata.annotation("kubeshard.dev/after") == role

        await kube_client.delete(Shop, "shop", namespace)
        for left in (members.record, members.web, members.database):
            await wait_for(kube_client, left, DELETED, timeout=30)
            kinds = [obj.KIND.kind for obj in members.every]
            assert await there(kube_client, members) == [
                *kinds[: kinds.index(left.KIND.kind)],
                f"{left.KIND.kind}-",
            ]
            assert (await kube_client.get(Shop, "shop", namespace)).metadata.deleting
            await collected(kube_client, left)
        await wait_for(kube_client, shop, until.deleted(shop.metadata.uid), timeout=30)
        assert await there(kube_client, members) == []
    await kube_client.delete(Namespace, far)
