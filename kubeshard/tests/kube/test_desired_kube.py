"""Desired sets of the API server's built-in kinds, and how kubectl handles them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kubeshard.cache import Scope
from kubeshard.client import Client
from kubeshard.controller import Applied, ApplyFailed, Context, Controller, ImmutableFields, Watch
from kubeshard.core import ConfigMap, KubeObject, MergePatch, ObjectMeta, Struct, field
from kubeshard.core.errors import ApiError, ConfigurationError
from kubeshard.crd import definition
from kubeshard.manager import Manager
from kubeshard_apiserver.testing.assets import find_assets
from kubeshard_lab.examples.webhosting import children
from kubeshard_lab.examples.webhosting.api import Theme, ThemeSpec, Website, WebsiteSpec
from kubeshard_lab.examples.webhosting.config import IngressConfig
from kubeshard_lab.examples.webhosting.workload import (
    Deployment,
    Ingress,
    ServerFiles,
    Service,
    ServicePort,
    ServiceSpec,
)

pytestmark = pytest.mark.regression

PART_OF = "applyset.kubernetes.io/part-of"


class Shop(KubeObject, group="desired.example.com", version="v1"):
    pass


CRD = definition(Shop)
CRD["metadata"]["labels"] = {"applyset.kubernetes.io/is-parent-type": "true"}


@pytest.fixture(autouse=True, scope="module")
def crd(install_crd: Callable[[Any], None]) -> None:
    install_crd(CRD)


class Container(Struct):
    name: str = "main"
    image: str = "example.com/image:1"


class PodSpec(Struct):
    containers: tuple[Container, ...] = (Container(),)
    restart_policy: str = "Never"


class Template(Struct):
    spec: PodSpec = field(default_factory=PodSpec)


class JobSpec(Struct):
    template: Template = field(default_factory=Template)
    suspend: bool = True


class Job(KubeObject, group="batch", version="v1"):
    spec: JobSpec = field(default_factory=JobSpec)


def job(namespace: str, image: str) -> Job:
    template = Template(spec=PodSpec(containers=(Container(image=image),)))
    return Job(metadata=ObjectMeta(name="work", namespace=namespace), spec=JobSpec(template=template))


def website(namespace: str) -> list[KubeObject]:
    owner = Website(
        metadata=ObjectMeta(name="site", namespace=namespace, uid="u"), spec=WebsiteSpec(theme="t")
    )
    theme = Theme(metadata=ObjectMeta(name="t"), spec=ThemeSpec(color="red", font_family="Arial"))
    files = children.config_map(owner, theme)
    return [
        files,
        children.service(owner),
        children.ingress(owner, IngressConfig(), None),
        children.deployment(owner, files, None),
    ]


Act = Callable[[Context], Awaitable[Applied]]


class Desk:
    """A controller in a manager that does what the test says, once each time."""

    def __init__(self, client: Client, namespace: str, *applies: type[KubeObject]) -> None:
        self.client = client
        self.namespace = namespace
        self._acts: asyncio.Queue[tuple[Act, asyncio.Future[Applied]]] = asyncio.Queue()
        self._asked = 0
        scope = Scope(frozenset({namespace}))
        self._controller = Controller(
            name="shops",
            reconciler=self._reconcile,
            primary=Watch(Shop, scope=scope),
            applies=[Watch(kind, scope=scope) for kind in applies],
        )

    @asynccontextmanager
    async def working(self) -> AsyncIterator[Desk]:
        await self.client.create(Shop(metadata=ObjectMeta(name="shop", namespace=self.namespace)))
        manager = Manager([self._controller], client=self.client, status_pages=None)
        task = asyncio.create_task(manager.run())
        try:
            async with asyncio.timeout(60):
                yield self
        finally:
            manager.stop()
            await task

    async def _reconcile(self, ctx: Context, shop: Shop) -> None:
        while not self._acts.empty() and shop.metadata.annotation("asked") == str(self._asked):
            act, done = self._acts.get_nowait()
            try:
                done.set_result(await act(ctx))
            except Exception as error:
                done.set_exception(error)

    async def apply(self, *objects: KubeObject, **options: Any) -> Applied:
        done: asyncio.Future[Applied] = asyncio.get_running_loop().create_future()
        self._acts.put_nowait((lambda ctx: ctx.apply(*objects, **options), done))
        self._asked += 1
        asked = {"metadata": {"annotations": {"asked": str(self._asked)}}}
        await self.client.patch(Shop, "shop", self.namespace, MergePatch(asked))
        return await done


async def test_what_a_website_owns_is_applied_once(kube_client: Client, namespace: str) -> None:
    """Despite everything that the API server adds and rewrites, and that other controllers write."""
    async with Desk(kube_client, namespace, ServerFiles, Service, Ingress, Deployment).working() as desk:
        desired = website(namespace)
        assert len((await desk.apply(*desired)).plan.creates) == 4
        assert not (await desk.apply(*desired)).plan
        status = MergePatch({"status": {"observedGeneration": 1, "replicas": 1}})
        name = desired[3].metadata.name
        await kube_client.patch(Deployment, name, namespace, status, subresource="status")
        await kube_client.patch(Deployment, name, namespace, MergePatch({"spec": {"minReadySeconds": 3}}))
        assert not (await desk.apply(*desired)).plan
        assert [obj.KIND.kind for obj in (await desk.apply(*desired[:3])).plan.deletes] == ["Deployment"]
        assert not (await desk.apply(*desired[:3])).plan


async def test_fields_that_are_no_longer_desired_are_given_up(kube_client: Client, namespace: str) -> None:
    def config(**labels: str) -> ConfigMap:
        return ConfigMap(metadata=ObjectMeta(name="a", namespace=namespace, labels=labels), data={"x": "1"})

    async with Desk(kube_client, namespace, ConfigMap).working() as desk:
        await desk.apply(config(kept="1", created="1"))
        theirs = {"metadata": {"labels": {"theirs": "1"}}}
        await kube_client.with_field_manager("somebody").patch(ConfigMap, "a", namespace, MergePatch(theirs))
        await desk.apply(config(kept="1", applied="1"))
        applied = await desk.apply(config(kept="1"))
        labels = applied[config()].metadata.labels or {}
        assert {key for key in labels if "/" not in key} == {"kept", "theirs"}
        assert not (await desk.apply(config(kept="1"))).plan


async def test_fields_that_the_server_does_not_change_are_refused_or_the_object_is_made_anew(
    kube_client: Client, namespace: str
) -> None:
    async with Desk(kube_client, namespace, Job).working() as desk:
        await desk.apply(job(namespace, "example.com/image:1"))
        with pytest.raises(ApplyFailed) as failed:
            await desk.apply(job(namespace, "example.com/image:2"))
        assert [type(error) for error in failed.value.exceptions] == [ImmutableFields]
        applied = await desk.apply(job(namespace, "example.com/image:2"), immutable="recreate")
        there = await kube_client.get(Job, "work", namespace)
        assert there.spec.template.spec.containers[0].image == "example.com/image:2"
        assert applied[job(namespace, "")].metadata.uid == there.metadata.uid
        assert not (await desk.apply(job(namespace, "example.com/image:2"))).plan


async def test_a_port_whose_number_somebody_else_changed_has_its_own_again(
    kube_client: Client, namespace: str
) -> None:
    """The server merges ports by number and protocol, so an apply alone would add a second port of the same name."""

    def service(**ports: int) -> Service:
        spec = ServiceSpec(
            type="ClusterIP",
            selector={"app": "shop"},
            ports=tuple(
                ServicePort(name=name, port=port, target_port=port, protocol="TCP")
                for name, port in ports.items()
            ),
        )
        return Service(metadata=ObjectMeta(name="shop", namespace=namespace), spec=spec)

    async def ports() -> dict[str, int]:
        there = await kube_client.get(Service, "shop", namespace)
        return {port.name: port.port for port in there.spec.ports}

    async with Desk(kube_client, namespace, Service).working() as desk:
        await desk.apply(service(http=80, admin=90))
        uid = (await kube_client.get(Service, "shop", namespace)).metadata.uid
        rival = kube_client.with_field_manager("rival")
        entries = [
            {"name": "http", "port": 81},
            {"name": "admin", "port": 90},
            {"name": "theirs", "port": 99},
        ]
        await rival.patch(Service, "shop", namespace, MergePatch({"spec": {"ports": entries}}))
        await desk.apply(service(http=80, admin=90))
        assert await ports() == {"http": 80, "admin": 90, "theirs": 99}
        assert not (await desk.apply(service(http=80, admin=90))).plan
        await desk.apply(service(admin=90))
        assert await ports() == {"admin": 90, "theirs": 99}, (
            "what is no longer desired is not held by a second entry"
        )
        assert (await kube_client.get(Service, "shop", namespace)).metadata.uid == uid


class Kubectl:
    """kubectl from the control plane's programs. Its ApplySets are an alpha feature."""

    def __init__(self, kubeconfig: Path, namespace: str, folder: Path) -> None:
        try:
            program = find_assets(["kubectl"]) / "kubectl"
        except ConfigurationError as error:
            pytest.fail(str(error), pytrace=False)
        self._command = [
            str(program),
            f"--kubeconfig={kubeconfig}",
            f"--cache-dir={folder}",
            f"-n={namespace}",
        ]

    async def __call__(self, *arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(
            subprocess.run,
            [*self._command, *arguments],
            input=given,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "KUBECTL_APPLYSET": "true"},
        )


@pytest.mark.kube
async def test_kubectl_finds_the_set_respects_its_tool_and_can_take_it_over(
    kube_client: Client, namespace: str, kubeconfig: Path, tmp_path: Path
) -> None:
    kubectl = Kubectl(kubeconfig, namespace, tmp_path)
    desired = [
        ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace)) for name in ("kept", "unwanted")
    ]
    manifest = json.dumps(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}, "data": {"x": "1"}}
    )
    pruning = ("apply", "-f", "-", "--prune", "--applyset=shops.desired.example.com/shop", "--server-side")
    async with Desk(kube_client, namespace, ConfigMap).working() as desk:
        await desk.apply(*desired)
        shop = await kube_client.get(Shop, "shop", namespace)
        part_of = shop.metadata.label("applyset.kubernetes.io/id")
        listed = await kubectl("get", "configmaps", "-l", f"{PART_OF}={part_of}", "-o", "name")
        assert listed.stdout.split() == ["configmap/kept", "configmap/unwanted"], listed.stderr
        refused = await kubectl(*pruning, given=manifest)
        assert refused.returncode != 0
        assert 'is managed by tooling "kubeshard" instead of "kubectl"' in refused.stderr
        # The set is handed over: kubectl accepts its ID and kinds, and prunes objects that its manifests do not
        # contain.
        tooling = {"metadata": {"annotations": {"applyset.kubernetes.io/tooling": "kubectl/v1.36"}}}
        await kube_client.patch(Shop, "shop", namespace, MergePatch(tooling))
        accepted = await kubectl(*pruning, "--force-conflicts", given=manifest)
        assert accepted.returncode == 0, accepted.stderr
        assert "configmap/unwanted pruned" in accepted.stdout
        with pytest.raises(ApiError):
            await kube_client.get(ConfigMap, "unwanted", namespace)
        # Now it belongs to kubectl.
        with pytest.raises(Exception, match="is the parent of an ApplySet of kubectl"):
            await desk.apply(*desired)
