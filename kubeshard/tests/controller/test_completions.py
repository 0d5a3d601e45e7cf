"""What admission adds to an object is no difference: for `ensure` and for `ctx.apply`, in any process, on any list."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from app_cluster import App, Recording, app, definition
from ensuring import Ensuring

import kubeshard.kinds as k
from kubeshard import Context, Controller, EnsureResult, KubeObject, Manager, ObjectMeta
from kubeshard.client import Client, ClusterConfig
from kubeshard.core import JsonPatch, MergePatch
from kubeshard.core.patches import add, replace
from kubeshard.webhook import AdmissionAnswer, AdmissionApp, AdmissionRequest
from kubeshard_apiserver import ApiServer, AppCaller, Front, InMemoryTransport
from kubeshard_apiserver.testing.memory import MemoryApi
from kubeshard_lab.virtual_time import VirtualClock, virtual_time
from kubeshard_lab.virtual_world import virtual_world

Added = Callable[[int], Sequence[dict[str, Any]]]


def pod(*, image: str = "busybox:1", env: Sequence[str] = ("A",), **spec: Any) -> k.Pod:
    mount = k.VolumeMount(name="settings", mount_path="/settings")
    main = k.Container(
        name="main",
        image=image,
        image_pull_policy="IfNotPresent",
        volume_mounts=(mount,),
        env=tuple(k.EnvVar(name=name, value="x") for name in env),
        ports=(k.ContainerPort(container_port=80),),
        resources=k.ResourceRequirements(requests={"cpu": "100m"}),
    )
    settings = k.Volume(name="settings", config_map=k.ConfigMapVolumeSource(name="settings"))
    toleration = k.Toleration(key="gpu", operator="Exists")
    given = {
        "restart_policy": "Never",
        "containers": (main,),
        "volumes": (settings,),
        "tolerations": (toleration,),
        "image_pull_secrets": (k.LocalObjectReference(name="mine"),),
        "node_selector": {"disk": "ssd"},
    }
    metadata = ObjectMeta(name="p", namespace="default", labels={"app": "p"})
    return k.Pod(metadata=metadata, spec=k.PodSpec(**{**given, **spec}))


def deployment() -> k.Deployment:
    labels = {"app": "p"}
    template = k.PodTemplateSpec(metadata=ObjectMeta(labels=labels), spec=pod(restart_policy="Always").spec)
    spec = k.DeploymentSpec(selector=k.LabelSelector(match_labels=labels), template=template)
    return k.Deployment(metadata=ObjectMeta(name="p", namespace="default"), spec=spec)


def config() -> k.ConfigMap:
    return k.ConfigMap(metadata=ObjectMeta(name="p", namespace="default"), data={"a": "1"})


def within(path: str, added: Added) -> Added:
    return lambda number: [{**op, "path": path + op["path"]} for op in added(number)]


IN_POD: dict[str, Added] = {
    "a token volume with a name of its own": lambda number: [
        add("/spec/volumes/-", {"name": f"kube-api-access-{number}", "emptyDir": {}}),
        add("/spec/containers/0/volumeMounts/-", {"name": f"kube-api-access-{number}", "mountPath": "/token"}),
    ],
    "a volume before ours": lambda _: [add("/spec/volumes/0", {"name": "first", "emptyDir": {}})],
    "a sidecar": lambda _: [add("/spec/containers/-", {"name": "proxy", "image": "proxy:1"})],
    "a sidecar before ours": lambda _: [add("/spec/containers/0", {"name": "proxy", "image": "proxy:1"})],
    "an init container": lambda _: [add("/spec/initContainers", [{"name": "init", "image": "init:1"}])],
    "a variable": lambda _: [add("/spec/containers/0/env/-", {"name": "HOST", "value": "h"})],
    "a port": lambda _: [add("/spec/containers/0/ports/-", {"containerPort": 9090})],
    "limits": lambda _: [add("/spec/containers/0/resources/limits", {"memory": "1Gi"})],
    "another request": lambda _: [add("/spec/containers/0/resources/requests/memory", "1Gi")],
    "tolerations": lambda _: [
        add("/spec/tolerations/-", {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"})
    ],
    "a secret to pull with": lambda _: [add("/spec/imagePullSecrets/-", {"name": "theirs"})],
    "a part of the node selector": lambda _: [add("/spec/nodeSelector/zone", "a")],
    "a security context": lambda _: [add("/spec/securityContext", {"fsGroup": 5})],
    "labels and annotations": lambda _: [
        add("/metadata/labels/injected", "yes"),
        add("/metadata/annotations", {"injected": "yes"}),
    ],
    "a policy that is always the same": lambda _: [replace("/spec/containers/0/imagePullPolicy", "Always")],
}  # fmt: skip
CASES: list[Any] = [pytest.param(pod, added, id=f"pod: {name}") for name, added in IN_POD.items()]
CASES += [
    pytest.param(deployment, within("/spec/template", added), id=f"template: {name}")
    for name, added in IN_POD.items()
    if "labels" not in name and "policy" not in name  # which can be changed
]
CASES += [
    pytest.param(config, lambda _: [add("/data/ca", "x")], id="a key of a map"),
    pytest.param(config, lambda _: [add("/metadata/labels", {"a": "b"})], id="labels of a map"),
]

CONFIGURATION = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "MutatingWebhookConfiguration",
    "metadata": {"name": "inject"},
    "webhooks": [
        {
            "name": "inject.example.com",
            "clientConfig": {"service": {"name": "inject", "namespace": "default", "path": "/inject"}},
            "rules": [
                {
                    "operations": ["CREATE"],
                    "apiGroups": ["", "apps"],
                    "apiVersions": ["v1"],
                    "resources": ["pods", "deployments", "configmaps"],
                }
            ],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
    ],
}


class Cluster:
    def __init__(self, recording: Recording, client: Client, user: Client) -> None:
        self.recording = recording
        self.client = client
        self.user = user

    @property
    def sent(self) -> list[str]:
        requests, self.recording.requests = self.recording.requests, []
        return [request.method for request in requests]

    async def whole(self, obj: KubeObject) -> dict[str, Any]:
        path = obj.KIND.path(obj.metadata.namespace, obj.metadata.name)
        found: dict[str, Any] = msgspec.json.decode((await self.user.raw("GET", path)).body)
        return found


@asynccontextmanager
async def completing(added: Added) -> AsyncIterator[Cluster]:
    numbers = itertools.count(1)

    def inject(request: AdmissionRequest) -> AdmissionAnswer:
        return AdmissionAnswer(patch=tuple(added(next(numbers))))

    world = virtual_world(clock=VirtualClock())
    server = ApiServer(world=world)
    await MemoryApi(server).install(definition())
    app = AdmissionApp({"/inject": inject}, clock=world.clock)
    front = Front(server, caller=AppCaller({"/inject": app}))
    recording = Recording(InMemoryTransport(front))
    config = ClusterConfig("http://in-memory")
    client = Client(config, transport=recording, world=world)
    user = Client(config, transport=InMemoryTransport(front), world=world)
    async with client, user:
        await user.apply(CONFIGURATION)
        yield Cluster(recording, client, user.with_field_manager("kubectl-edit"))


@pytest.mark.parametrize(("desired", "added"), CASES)
def test_what_admission_adds_is_no_difference_in_any_process(
    desired: Callable[[], KubeObject], added: Added
) -> None:
    @virtual_time
    async def check() -> None:
        async with completing(added) as cluster:
            first = Ensuring(cluster.client)
            assert await first(desired()) is EnsureResult.CREATED
            cluster.sent  # noqa: B018 - forgets what was sent
            assert await first(desired()) is EnsureResult.UNCHANGED
            assert cluster.sent == ["GET"]  # the read of `ctx.get`
            before = await cluster.whole(desired())
            second = Ensuring(cluster.client)
            assert await second(desired()) is EnsureResult.UNCHANGED
            assert await cluster.whole(desired()) == before
            cluster.sent  # noqa: B018 - forgets what was sent
            assert await second(desired()) is EnsureResult.UNCHANGED
            assert cluster.sent == ["GET"]

    check()


@pytest.mark.parametrize(("desired", "added"), CASES)
def test_what_admission_adds_is_no_difference_in_a_set(
    desired: Callable[[], KubeObject], added: Added
) -> None:
    async def reconcile(ctx: Context, obj: App) -> None:
        await ctx.apply(desired())

    @virtual_time
    async def check() -> None:
        async with completing(added) as cluster:
            await cluster.user.create(app("a"))
            wholes = []
            for process in range(3):
                cluster.sent  # noqa: B018 - forgets what was sent
                controller = Controller(
                    name="app", reconciler=reconcile, primary=App, applies=[type(desired())]
                )
                manager = Manager([controller], client=cluster.client, status_pages=None)
                running = asyncio.create_task(manager.run())
                await asyncio.sleep(30)
                running.cancel()
                await asyncio.wait([running])
                wholes.append(await cluster.whole(desired()))
                if process:
                    assert "PATCH" not in cluster.sent
            assert wholes[0] == wholes[1] == wholes[2]

    check()


@virtual_time
async def test_what_an_earlier_version_wanted_goes_and_what_admission_added_stays() -> None:
    async with completing(within("/spec/template", IN_POD["a sidecar before ours"])) as cluster:
        old, new = deployment(), deployment()
        two = k.Container(name="second", image="busybox:2")
        spec = msgspec.structs.replace(
            old.spec.template.spec, containers=(*old.spec.template.spec.containers, two)
        )
        template = msgspec.structs.replace(old.spec.template, spec=spec)
        old = msgspec.structs.replace(old, spec=msgspec.structs.replace(old.spec, template=template))
        await Ensuring(cluster.client)(old)
        assert await Ensuring(cluster.client)(new) is EnsureResult.PATCHED
        whole = await cluster.whole(new)
        assert [each["name"] for each in whole["spec"]["template"]["spec"]["containers"]] == ["proxy", "main"]
        assert await Ensuring(cluster.client)(old) is EnsureResult.PATCHED
        assert await Ensuring(cluster.client)(old) is EnsureResult.UNCHANGED


@virtual_time
async def test_what_somebody_else_adds_is_a_difference() -> None:
    async with completing(lambda _: []) as cluster:
        await Ensuring(cluster.client)(deployment())
        item = {"name": "DEBUG", "value": "1"}
        patch = JsonPatch([add("/spec/template/spec/containers/0/env/-", item)])
        await cluster.user.patch(k.Deployment, "p", "default", patch)
        assert await Ensuring(cluster.client)(deployment()) is EnsureResult.PATCHED
        whole = await cluster.whole(deployment())
        assert [each["name"] for each in whole["spec"]["template"]["spec"]["containers"][0]["env"]] == ["A"]
        await Ensuring(cluster.client)(config())
        await cluster.user.patch(k.ConfigMap, "p", "default", MergePatch({"data": {"b": "2"}}))
        assert await Ensuring(cluster.client)(config()) is EnsureResult.PATCHED
        assert (await cluster.whole(config()))["data"] == {"a": "1"}
