"""A complete small controller against a real API server: every ConfigMap with the label `role=parent` has a child with
the parent's text in upper case.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import msgspec

from kubeshard import CacheSettings, StatusPages, when
from kubeshard.cache import Scope
from kubeshard.client import Client
from kubeshard.controller import Context, Controller, Reconciler, Watch
from kubeshard.core import (
    ConfigMap,
    JsonPatch,
    Lease,
    MergePatch,
    NotFound,
    ObjectMeta,
    controller_reference,
)
from kubeshard.core.patches import replace
from kubeshard.manager import LeaderElection, Manager
from kubeshard_apiserver.testing.control_plane import ControlPlane


class Shouting(Reconciler[ConfigMap]):
    def __init__(self) -> None:
        self.working = 0
        self.hold: asyncio.Event | None = None

    async def reconcile(self, ctx: Context, parent: ConfigMap, /) -> None:
        self.working += 1
        try:
            if self.hold:
                await self.hold.wait()
            await self._shout(ctx, parent)
        finally:
            self.working -= 1

    async def _shout(self, ctx: Context, parent: ConfigMap) -> None:
        words = {word: text.upper() for word, text in (parent.data or {}).items()}
        name = f"{parent.metadata.name}-shouted"
        child = await ctx.get(ConfigMap, name)
        if child is None:
            metadata = ObjectMeta(
                name=name,
                namespace=parent.metadata.namespace,
                owner_references=(controller_reference(parent),),
            )
            await ctx.client.create(ConfigMap(metadata=metadata, data=words))
            ctx.event(parent, "Normal", "Shouted", f"created {name}")
        elif child.data != words:
            await ctx.client.replace(msgspec.structs.replace(child, data=words))


def manager_of(
    client: Client,
    namespace: str,
    reconciler: Shouting,
    identity: str,
    *,
    graceful_timeout: float = 30.0,
    **pages: Any,
) -> Manager:
    controller = Controller(
        name="shouting",
        reconciler=reconciler,
        primary=Watch(ConfigMap, when=when.label_selector("role=parent")),
        owns=[ConfigMap],
        workers=2,
    )
    return Manager(
        [controller],
        client=client.config,
        cache=CacheSettings(default_scope=Scope(frozenset({namespace}))),
        # A reconcile that hangs would end the process of the tests.
        leader_election=LeaderElection(
            name="shouting", namespace=namespace, identity=identity, watchdog=False
        ),
        status_pages=StatusPages(metrics_address="127.0.0.1:0", health_address="127.0.0.1:0", **pages),
        graceful_timeout=graceful_timeout,
    )


@asynccontextmanager
async def running(manager: Manager) -> AsyncIterator[asyncio.Task[None]]:
    run = asyncio.create_task(manager.run())
    try:
        yield run
    finally:
        for _ in range(2):
            run.cancel()
            await asyncio.wait([run], timeout=5)
        with suppress(asyncio.CancelledError):
            run.result()


async def eventually(what: Callable[[], Awaitable[bool]], seconds: float = 15) -> None:
    async with asyncio.timeout(seconds):
        while not await what():  # noqa: ASYNC110 - the server is asked
            await asyncio.sleep(0.02)


async def page(port: int, path: str) -> str:
    def fetch() -> str:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return str(answer.read().decode())

    return await asyncio.to_thread(fetch)


async def test_a_complete_controller_reconciles_and_hands_over(kube_client: Client, namespace: str) -> None:
    async def child_says(text: str) -> bool:
        try:
            child = await kube_client.get(ConfigMap, "a-shouted", namespace)
        except NotFound:
            return False
        return child.data == {"word": text}

    async def holder() -> str | None:
        try:
            return (await kube_client.get(Lease, "shouting", namespace)).spec.holder_identity
        except NotFound:
            return None

    async def is_holder(name: str) -> bool:
        return await holder() == name

    def parent(word: str) -> MergePatch:
        return MergePatch({"data": {"word": word}})

    metadata = ObjectMeta(name="a", namespace=namespace, labels={"role": "parent"})
    await kube_client.create(ConfigMap(metadata=metadata, data={"word": "hello"}))

    first, second = Shouting(), Shouting()
    one = manager_of(kube_client, namespace, first, "one")
    two = manager_of(kube_client, namespace, second, "two")
    async with running(one) as run_one:
        await eventually(lambda: child_says("HELLO"))
        async with running(two):
            # an update of the parent, a change and a deletion of the child
            await kube_client.patch(ConfigMap, "a", namespace, parent("more"))
            await eventually(lambda: child_says("MORE"))
            await kube_client.patch(
                ConfigMap, "a-shouted", namespace, JsonPatch([replace("/data/word", "changed")])
            )
            await eventually(lambda: child_says("MORE"))
            await kube_client.delete(ConfigMap, "a-shouted", namespace)
            await eventually(lambda: child_says("MORE"))

            # pages
            assert await page(one.health_port, "/healthz?verbose") == (
                "[+]ping ok\n[+]workers ok\n[+]leader-election ok\nhealthz check passed\n"
            )
            assert await page(one.health_port, "/readyz") == "ok"
            metrics = await page(one.metrics_port, "/metrics")
            assert 'leader_election_master_status{name="shouting"} 1.0' in metrics
            assert 'result="success"' in metrics
            assert 'rest_client_requests_total{code="201"' in metrics

            # graceful stop: the running reconcile finishes, then the Lease is released, then the other one leads
            assert await holder() == "one"
            first.hold = asyncio.Event()
            await kube_client.patch(ConfigMap, "a", namespace, parent("last"))

            async def busy() -> bool:
                return first.working > 0

            await eventually(busy)
            one.stop()
            await asyncio.sleep(0.3)
            assert await holder() == "one"
            first.hold.set()
            await run_one
            assert await child_says("LAST")
            await eventually(lambda: is_holder("two"))
            await kube_client.patch(ConfigMap, "a", namespace, parent("new"))
            await eventually(lambda: child_says("NEW"))
        assert await holder() == ""


async def test_events_of_a_reconcile_arrive(
    control_plane: ControlPlane, kube_client: Client, namespace: str
) -> None:
    metadata = ObjectMeta(name="a", namespace=namespace, labels={"role": "parent"})
    await kube_client.create(ConfigMap(metadata=metadata, data={"word": "hello"}))
    async with running(manager_of(kube_client, namespace, Shouting(), "one")):

        async def told() -> bool:
            listed = await kube_client.raw("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
            events = json.loads(listed.body)["items"]
            return any(
                event["reason"] == "Shouted"
                and event["reportingController"] == "shouting-controller"
                and event["regarding"]["name"] == "a"
                for event in events
            )

        await eventually(told)


async def test_a_hanging_reconcile_is_cancelled_after_the_grace_and_the_lease_is_kept(
    kube_client: Client, namespace: str
) -> None:
    metadata = ObjectMeta(name="a", namespace=namespace, labels={"role": "parent"})
    await kube_client.create(ConfigMap(metadata=metadata, data={"word": "hello"}))
    hanging = Shouting()
    hanging.hold = asyncio.Event()
    manager = manager_of(kube_client, namespace, hanging, "one", graceful_timeout=0.5)
    async with running(manager) as run:

        async def busy() -> bool:
            return hanging.working > 0

        await eventually(busy)
        manager.stop()
        async with asyncio.timeout(5):
            await run
    assert hanging.working == 0
    assert (await kube_client.get(Lease, "shouting", namespace)).spec.holder_identity == "one"


async def test_the_api_server_decides_who_reads_metrics(
    control_plane: ControlPlane, kube_client: Client, namespace: str
) -> None:
    reader = f"metrics-reader-{namespace}"
    account = f"system:serviceaccount:{namespace}:reader"
    for name in ("reader", "other"):
        control_plane.kubectl("create", "serviceaccount", name, "-n", namespace)
    control_plane.kubectl("create", "clusterrole", reader, "--verb=get", "--non-resource-url=/metrics")
    control_plane.kubectl(
        "create", "clusterrolebinding", reader, f"--clusterrole={reader}", f"--user={account}"
    )

    def token(name: str) -> str:
        return control_plane.kubectl("create", "token", name, "-n", namespace).strip()

    async def status(port: int, authorization: str) -> int:
        def fetch() -> int:
            request = Request(f"http://127.0.0.1:{port}/metrics", headers={"Authorization": authorization})
            try:
                with urlopen(request, timeout=5) as answer:
                    return int(answer.status)
            except HTTPError as error:
                return error.code

        return await asyncio.to_thread(fetch)

    manager = manager_of(kube_client, namespace, Shouting(), "one", metrics_auth=True)
    async with running(manager):

        async def open_page() -> bool:
            return manager.metrics_port > 0

        await eventually(open_page)
        assert await status(manager.metrics_port, "") == 401
        assert await status(manager.metrics_port, "Bearer nonsense") == 401
        assert await status(manager.metrics_port, f"Bearer {token('other')}") == 403
        assert await status(manager.metrics_port, f"Bearer {token('reader')}") == 200
