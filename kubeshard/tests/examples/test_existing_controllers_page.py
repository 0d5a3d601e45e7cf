"""docs/existing-controllers.md: the ring is the one in the example, and the programs are shards."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubeshard import (
    Client,
    ConfigMap,
    Context,
    Controller,
    KubeObject,
    Manager,
    ObjectMeta,
    Reconciler,
    Sharding,
    Struct,
    Watch,
    errors,
    field,
    until,
    wait_for,
    when,
)
from kubeshard.core import Lease, LeaseSpec, MergePatch
from kubeshard.core.partial_kinds import ValidatingWebhookConfiguration
from kubeshard.crd import definition
from kubeshard.runtime.watchdog import NoWatchdog
from kubeshard.runtime.world import REAL_WORLD
from kubeshard.sharding.assignment import Assignment
from kubeshard.sharding.buckets import Buckets
from kubeshard.sharding.names import (
    LEAVING_ANNOTATION,
    OWNED_RANGES_ANNOTATION,
    RING_LABEL,
    SHARDER_IDENTITY,
    drain_label,
    shard_label,
)
from kubeshard_apiserver.testing.child import Child
from kubeshard_apiserver.testing.control_plane import ControlPlane
from kubeshard_apiserver.testing.kube_api import EmbeddedApi, KubeApi, RealApi
from kubeshard_apiserver.verbs.shard_selectors import SHARDED_LIST_AND_WATCH

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "existing-controllers.md").read_text()
SHARD, DRAIN = shard_label("pages"), drain_label("pages")


class PageStatus(Struct):
    shown_by: str | None = None


class Page(KubeObject, group="example.kubeshard.dev", version="v1"):
    status: PageStatus = field(default_factory=PageStatus)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)


def test_the_ring_is_that_of_the_example() -> None:
    (ring,) = blocks("yaml")
    assert yaml.safe_load(ring) == yaml.safe_load(
        (ROOT / "examples" / "first_operator_ring.yaml").read_text()
    )


def test_the_argument_of_a_kubeshard_operator_is_that_of_the_readme() -> None:
    assert blocks("python")[0] in (ROOT / "README.md").read_text()


@contextmanager
def embedded(gates: Collection[str] = ()) -> Iterator[KubeApi]:
    api = EmbeddedApi(feature_gates=gates)
    try:
        yield api
    finally:
        api.stop()


@contextmanager
def real() -> Iterator[KubeApi]:
    with ControlPlane(feature_gates=[f"{SHARDED_LIST_AND_WATCH}=true"]) as kube:
        api = RealApi(kube)
        try:
            yield api
        finally:
            api.stop()


Server = Callable[[], AbstractContextManager[KubeApi]]


@asynccontextmanager
async def served(server: Server) -> AsyncIterator[tuple[KubeApi, Client]]:
    with server() as api:
        async with api.client() as client:
            yield api, client


@pytest.mark.system
async def test_the_kopf_operator_works_on_its_own_objects_and_lets_go_of_them(tmp_path: Path) -> None:
    """The test acts as the sharder."""
    program = tmp_path / "sharded_pages.py"
    program.write_text(blocks("python")[2])
    async with served(embedded) as (api, client):
        await client.apply_manifest(definition(Page))
        await wait_for_pages(client)
        for name, shard in (("mine", "kopf-0"), ("other", "kopf-1")):
            labels = {SHARD: shard}
            await client.create(Page(metadata=ObjectMeta(name=name, namespace="default", labels=labels)))
        environment = {**os.environ, "KUBECONFIG": str(api.kubeconfig), "POD_NAME": "kopf-0"}
        child = Child(
            "kopf",
            [sys.executable, str(program)],
            tmp_path / "log",
            {**environment, "NAMESPACE": "default"},
        )
        try:
            shown = until.holds("shown", lambda page: page.status.shown_by == "kopf-0")
            await wait_for(client, Page, shown, name="mine", namespace="default", timeout=15)
            lease = await client.get(Lease, "kopf-0", "default")
            assert lease.spec.holder_identity == "kopf-0"
            # Another object that the shard gets from a neighbor.
            await client.patch(
                Page, "other", "default", MergePatch({"metadata": {"labels": {SHARD: "kopf-0"}}})
            )
            await wait_for(client, Page, shown, name="other", namespace="default", timeout=15)
            await client.patch(Page, "mine", "default", MergePatch({"metadata": {"labels": {DRAIN: "true"}}}))
            free = until.holds("free", lambda page: not {SHARD, DRAIN} & set(page.metadata.labels or {}))
            await wait_for(client, Page, free, name="mine", namespace="default", timeout=15)
            assert child.running, child.tail(20)
        except TimeoutError as error:
            raise AssertionError(child.tail(30)) from error
        finally:
            child.stop(grace=20)
        released = await client.get(Lease, "kopf-0", "default")
        assert not released.spec.holder_identity, child.tail(30)


async def wait_for_pages(client: Client) -> None:
    async with asyncio.timeout(20):
        while True:
            with suppress(errors.KindNotServed):
                await client.discovery.kind(Page.KIND.group, resource=Page.KIND.plural)
                return
            await asyncio.sleep(0.05)


class Shows(Reconciler[Page]):
    def __init__(self, name: str) -> None:
        self._name = name

    async def reconcile(self, ctx: Context, page: Page) -> None:
        if page.status.shown_by != self._name:
            await ctx.status(page, PageStatus(shown_by=self._name))


@asynccontextmanager
async def ours(api: KubeApi, name: str, **more: Any) -> AsyncIterator[None]:
    """An instance of a kubeshard operator that does what the kopf operator does."""
    primary = Watch(Page, when=when.generation_changed, sharded=True)
    manager = Manager(
        [Controller(name="page", reconciler=Shows(name), primary=primary)],
        client=api.config,
        sharding=Sharding("pages", name, "default", delivery="ranges", **more),
        world=dataclasses.replace(REAL_WORLD, watchdog=NoWatchdog),
        status_pages=None,
    )
    task = asyncio.create_task(manager.run())
    try:
        yield
    finally:
        manager.stop()
        await asyncio.wait([task])
        assert task.exception() is None


async def settled(client: Client, *shards: str) -> None:
    """Waits until these shards have all buckets, and each page has been shown by the shard that owns it."""
    async with asyncio.timeout(30):
        while True:
            with suppress(errors.NotFound):
                data = (await client.get(ConfigMap, "ranges-pages", "default")).data
                places, pages = Assignment.parse(data).places, await client.list_all(Page, "default")
                of = Buckets().of
                shown = all(page.status.shown_by == places[of(page.metadata)].owner for page in pages)
                if {(each.owner, each.target) for each in places} == {
                    (each, "") for each in shards
                } and shown:
                    return
            await asyncio.sleep(0.1)


SERVERS = pytest.mark.parametrize(
    "server",
    [partial(embedded, [SHARDED_LIST_AND_WATCH]), embedded, pytest.param(real, marks=pytest.mark.kube)],
    ids=["selects", "ignores", "real"],
)


@asynccontextmanager
async def pages(server: Server) -> AsyncIterator[tuple[KubeApi, Client]]:
    async with served(server) as (api, client):
        await client.apply_manifest(definition(Page))
        await wait_for_pages(client)
        await create(client, "page", 16)
        yield api, client


async def create(client: Client, name: str, count: int) -> None:
    for number in range(count):
        await client.create(Page(metadata=ObjectMeta(name=f"{name}-{number}", namespace="default")))


def foreign(api: KubeApi, name: str, log: Path, *command: str) -> Child:
    environment = {"KUBECONFIG": str(api.kubeconfig), "POD_NAME": name, "NAMESPACE": "default"}
    return Child(name, command, log, {**os.environ, **environment})


async def come_and_go(api: KubeApi, client: Client, start: Callable[[], Child]) -> str:
    """Two of our instances and one foreign one join and leave. Returns what that logged."""
    async with ours(api, "ours-0", mode="both"):
        await settled(client, "ours-0")
        child = start()
        try:
            await settled(client, "ours-0", child.name)
            await create(client, "more", 20)
            async with ours(api, "ours-1"):
                await settled(client, "ours-0", "ours-1", child.name)
            await create(client, "last", 4)
            await settled(client, "ours-0", child.name)
            assert child.running, child.tail(20)
        except TimeoutError as error:
            raise AssertionError(child.tail(30)) from error
        finally:
            code = child.stop(grace=20)
        assert code == 0, child.tail(30)
        released = await client.get(Lease, child.name, "default")
        assert not released.spec.holder_identity, child.tail(30)
        await settled(client, "ours-0")
    return child.log.read_text()


@pytest.mark.system
@SERVERS
async def test_the_kopf_operator_shares_ranges_with_a_kubeshard_operator(
    tmp_path: Path, server: Server
) -> None:
    program = tmp_path / "kopf_by_ranges.py"
    program.write_text(blocks("python")[1])
    async with pages(server) as (api, client):
        log = tmp_path / "log"
        await come_and_go(api, client, lambda: foreign(api, "kopf-0", log, sys.executable, str(program)))


@pytest.mark.go
@SERVERS
async def test_the_go_controller_shares_ranges_and_hands_over_when_it_is_idle(
    tmp_path: Path, server: Server, built_go: Callable[[Path], Path]
) -> None:
    program = str(await asyncio.to_thread(built_go, ROOT / "examples" / "go_by_ranges"))
    async with pages(server) as (api, client):
        log = tmp_path / "log"
        said = await come_and_go(api, client, lambda: foreign(api, "go-0", log, program, "--takes", "1s"))
    running, busy = set[str](), False
    for line in said.splitlines():
        match line.split()[2:]:
            case ["begin", page]:
                running.add(page)
            case ["end", page]:
                running.remove(page)
            case ["asked", *_]:
                busy = busy or bool(running)
            case ["handing", "over"]:
                assert not running
    assert busy, "no run was under way when it was asked"


def refuses(operation: str, group: str, resource: str) -> dict[str, Any]:
    """Nobody is there to admit it."""
    rule = {
        "apiGroups": [group],
        "apiVersions": ["v1"],
        "resources": [resource],
        "operations": [operation],
    }
    webhook = {
        "name": "refuses.kubeshard.dev",
        "clientConfig": {"url": "https://127.0.0.1:1"},
        "rules": [rule],
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "refuses"},
        "webhooks": [webhook],
    }


class Ring:
    """What the programs see of a ring whose coordinator and other shards are this test."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def says(self, place: str) -> None:
        """Writes this of all buckets, into an object of its own."""
        with suppress(errors.NotFound):
            await self._client.delete(ConfigMap, "ranges-pages", "default")
        meta = ObjectMeta(name="ranges-pages", namespace="default")
        data = {"by": "uid", "buckets": "1024", "0000-1023": place}
        await self._client.create(ConfigMap(metadata=meta, data=data))

    async def place(self) -> str:
        return (await self._client.get(ConfigMap, "ranges-pages", "default")).data["0000-1023"]

    async def holds(self, name: str, seconds: int = 15, by: str = "", **annotations: str) -> None:
        spec = LeaseSpec(holder_identity=by or name, lease_duration_seconds=seconds, renew_time=now())
        its = {OWNED_RANGES_ANNOTATION: "uid/1024:", **annotations}
        meta = ObjectMeta(name=name, namespace="default", labels={RING_LABEL: "pages"}, annotations=its)
        await self._client.create(Lease(metadata=meta, spec=spec))

    async def renews(self, name: str) -> None:
        await self._client.patch(Lease, name, "default", MergePatch({"spec": {"renewTime": now()}}))

    async def lease(self, name: str) -> Lease | None:
        with suppress(errors.NotFound):
            return await self._client.get(Lease, name, "default")
        return None

    async def report(self, name: str) -> str:
        found = await self.lease(name)
        return found.metadata.annotation(OWNED_RANGES_ANNOTATION) if found else ""

    async def reports(self, what: str) -> bool:
        """Whether the Go shard says this."""
        return await self.report("go-0") == what


def now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"


async def eventually(
    holds: Callable[[], Awaitable[bool]], child: Child, what: str, seconds: float = 20
) -> None:
    try:
        async with asyncio.timeout(seconds):
            while True:
                if await holds():
                    return
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"not within {seconds} s: {what}\n{child.tail(30)}") from None


@pytest.mark.parametrize(
    "program", [pytest.param("go", marks=pytest.mark.go), pytest.param("kopf", marks=pytest.mark.system)]
)
async def test_a_shard_that_is_named_begins_once_each_other_lease_was_renewed_or_has_expired(
    tmp_path: Path, program: str, built_go: Callable[[Path], Path]
) -> None:
    """Just after a restore of etcd, the Leases are as old as the assignment."""
    if program == "go":
        command = [str(await asyncio.to_thread(built_go, ROOT / "examples" / "go_by_ranges"))]
    else:
        (tmp_path / "kopf_by_ranges.py").write_text(blocks("python")[1])
        command = [sys.executable, str(tmp_path / "kopf_by_ranges.py")]
    async with pages(embedded) as (api, client):
        ring, renewals = Ring(client), set[str | None]()
        await ring.says("it@1")
        await ring.holds("alive", 60)
        await ring.holds("dead", 8)
        child = foreign(api, "it", tmp_path / "log", *command)

        async def renewed_twice() -> bool:
            if (found := await ring.lease("it")) is not None:
                renewals.add(found.spec.renew_time)
            return len(renewals) > 2

        async def reclaimed() -> bool:
            return await ring.place() == "it@2"

        try:
            await eventually(renewed_twice, child, "it renews its own Lease")
            assert await ring.place() == "it@1"
            await ring.renews("alive")
            await eventually(reclaimed, child, "it reclaims")
        finally:
            child.kill()


@asynccontextmanager
async def go_shard(
    tmp_path: Path, built_go: Callable[[Path], Path], begins: Callable[[Ring], Awaitable[None]]
) -> AsyncIterator[tuple[Client, Ring, Child]]:
    program = str(await asyncio.to_thread(built_go, ROOT / "examples" / "go_by_ranges"))
    async with pages(embedded) as (api, client):
        ring = Ring(client)
        await begins(ring)
        child = foreign(api, "go-0", tmp_path / "log", program)
        try:
            yield client, ring, child
        finally:
            child.kill()


@pytest.mark.go
async def test_the_go_shard_that_is_stopped_while_it_waits_for_its_lease_stops_cleanly(
    tmp_path: Path, built_go: Callable[[Path], Path]
) -> None:
    def begins(ring: Ring) -> Awaitable[None]:
        return ring.holds("go-0", 60, by=SHARDER_IDENTITY)

    async with go_shard(tmp_path, built_go, begins) as (_, _, child):

        async def waits() -> bool:
            return "waiting for the Lease" in child.log.read_text()

        await eventually(waits, child, "it has found the Lease")
        assert child.stop(grace=20) == 0, child.tail(30)


@pytest.mark.go
async def test_the_go_shard_takes_over_nothing_of_which_others_have_seen_something_later(
    tmp_path: Path, built_go: Callable[[Path], Path]
) -> None:
    async with go_shard(tmp_path, built_go, lambda ring: ring.says("@0")) as (_, ring, child):
        await eventually(partial(ring.reports, "uid/1024:/0"), child, "it has seen the assignment")
        await ring.holds("other", **{OWNED_RANGES_ANNOTATION: "uid/1024:/9"})
        await ring.says("go-0@5")
        await eventually(
            partial(ring.reports, "uid/1024:/5"), child, "it has seen what it was given, and not taken it"
        )
        await ring.says("go-0@10")
        await eventually(
            partial(ring.reports, "uid/1024:0-1023@10/10"), child, "it has taken what it was given"
        )


@pytest.mark.go
async def test_the_go_shard_takes_over_nothing_while_its_own_lease_is_gone(
    tmp_path: Path, built_go: Callable[[Path], Path]
) -> None:
    """A shard by labels that begins meanwhile does not see it."""
    async with go_shard(tmp_path, built_go, lambda ring: ring.says("@0")) as (client, ring, child):

        async def doubts() -> bool:
            return "the Lease of go-0 is gone" in child.log.read_text()

        await eventually(partial(ring.reports, "uid/1024:/0"), child, "it has seen the assignment")
        await client.apply_manifest(refuses("CREATE", "coordination.k8s.io", "leases"))
        await client.delete(Lease, "go-0", "default")
        await ring.says("go-0@5")
        await eventually(doubts, child, "it waits for its Lease")
        await client.delete(ValidatingWebhookConfiguration, "refuses")
        await eventually(
            partial(ring.reports, "uid/1024:0-1023@5/5"), child, "it has taken what it was given"
        )


@pytest.mark.go
async def test_the_go_shard_waits_for_a_shard_by_labels_whose_lease_was_deleted(
    tmp_path: Path, built_go: Callable[[Path], Path]
) -> None:
    """That may be at work, and writes its Lease anew."""

    async def begins(ring: Ring) -> None:
        await ring.says("go-0@1")
        await ring.holds("other", 8, **{OWNED_RANGES_ANNOTATION: ""})

    async with go_shard(tmp_path, built_go, begins) as (client, ring, child):
        time = asyncio.get_running_loop().time

        def looks() -> int:
            return child.log.read_text().count("other takes objects by labels")

        async def waits(looked: int) -> bool:
            return looks() > looked

        async def reclaimed() -> bool:
            return await ring.place() == "go-0@2"

        await eventually(partial(waits, 0), child, "it waits")
        await client.delete(Lease, "other", "default")
        deleted = time()
        await eventually(partial(waits, looks()), child, "it waits although the Lease was deleted")
        await eventually(reclaimed, child, "it begins in the end")
        assert time() - deleted > 6, child.tail(30)


@pytest.mark.go
async def test_the_go_shard_tries_again_to_hand_over_what_it_is_asked_for(
    tmp_path: Path, built_go: Callable[[Path], Path]
) -> None:
    async with go_shard(tmp_path, built_go, lambda ring: ring.says("go-0@1")) as (client, ring, child):

        async def works() -> bool:
            return await ring.report("go-0") == "uid/1024:0-1023@2/2"

        async def failed() -> bool:
            return "handing over: " in child.log.read_text()

        async def handed_over() -> bool:
            return await ring.place() == "other@6"

        await eventually(works, child, "it has reclaimed")
        await client.apply_manifest(refuses("UPDATE", "", "configmaps"))
        await ring.says("go-0 to other@5")
        await eventually(failed, child, "it cannot hand over")
        await client.delete(ValidatingWebhookConfiguration, "refuses")
        await eventually(handed_over, child, "it hands over")


@pytest.mark.go
async def test_the_go_shard_does_not_go_on_leaving_and_writes_its_lease_anew(
    tmp_path: Path, built_go: Callable[[Path], Path]
) -> None:
    """The former process under its name was leaving."""

    def begins(ring: Ring) -> Awaitable[None]:
        return ring.holds("go-0", **{LEAVING_ANNOTATION: "true"})

    async with go_shard(tmp_path, built_go, begins) as (client, ring, child):

        async def stays() -> bool:
            found = await ring.lease("go-0")
            return found is not None and not found.metadata.annotation(LEAVING_ANNOTATION)

        await eventually(stays, child, "its Lease is not marked")
        await client.delete(Lease, "go-0", "default")
        await eventually(stays, child, "its Lease is there")
        assert child.running
