"""`ensure` on the API server's built-in kinds: fields that the server adds or rewrites are not sent over and over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from kubeshard.client import Client
from kubeshard.controller.contested import Contests
from kubeshard.controller.dependents import EnsureResult, ensure
from kubeshard.controller.merging import Rewrites
from kubeshard.controller.run import from_cache
from kubeshard.core import ConfigMap, Form, Key, KubeObject, MergePatch, NotFound, ObjectMeta, Struct, field
from kubeshard_lab.examples.webhosting import children
from kubeshard_lab.examples.webhosting.api import Theme, ThemeSpec, Website, WebsiteSpec
from kubeshard_lab.examples.webhosting.config import IngressConfig
from kubeshard_lab.examples.webhosting.workload import Deployment, Ingress, ServerFiles, Service

pytestmark = pytest.mark.regression


class Process:
    """The part of a controller's process that `ensure` needs. It reads from the server and counts its writes."""

    fresh = staticmethod(from_cache)
    key = Key("default", "owner")

    def __init__(self, client: Client) -> None:
        self.writes: list[str] = []
        self.client = client.on_write(lambda record: self.writes.append(record.key.name))
        self._run = self  # the state of its only run
        self.rewrites = Rewrites()
        self.contests = Contests(client.world.clock)

    async def get(self, target: Any, name: str, namespace: str = "") -> Any:
        try:
            return await self.client.get(target, name, namespace)
        except NotFound:
            return None

    def just_read(self, *_: object) -> None:
        """It has no reads to remember."""

    async def ensure(self, desired: KubeObject) -> EnsureResult:
        _, outcome = await ensure(self, desired)  # type: ignore[arg-type]
        return outcome


async def settles(client: Client, desired: KubeObject) -> None:
    """Creates the object once; nothing is sent again, neither by the same process nor by the next one."""
    process = Process(client)
    assert await process.ensure(desired) is EnsureResult.CREATED
    assert await process.ensure(desired) is EnsureResult.UNCHANGED
    assert await Process(client).ensure(desired) is EnsureResult.UNCHANGED


WEBSITE = Website(metadata=ObjectMeta(name="site", uid="u"), spec=WebsiteSpec(theme="t"))
THEME = Theme(metadata=ObjectMeta(name="t"), spec=ThemeSpec(color="red", font_family="Arial"))


def owned(namespace: str) -> Iterator[KubeObject]:
    meta = ObjectMeta(name="site", namespace=namespace, uid="u")
    website = Website(metadata=meta, spec=WebsiteSpec(theme="t"))
    files = children.config_map(website, THEME)
    yield files
    yield children.service(website)
    yield children.ingress(website, IngressConfig(), None)
    yield children.deployment(website, files, None)


async def test_what_a_website_owns_is_sent_once(kube_client: Client, namespace: str) -> None:
    kinds = []
    for desired in owned(namespace):
        await settles(kube_client, desired)
        kinds.append(type(desired))
    assert kinds == [ServerFiles, Service, Ingress, Deployment]


class Resources(Struct):
    limits: Mapping[str, str] | None = None
    requests: Mapping[str, str] | None = None


class Container(Struct):
    name: str
    image: str
    image_pull_policy: str | None = None
    command: tuple[str, ...] = ()
    resources: Resources = field(default_factory=Resources)


class PodSpec(Struct):
    containers: tuple[Container, ...]
    restart_policy: str | None = None
    node_selector: Mapping[str, str] = field(default_factory=dict)
    termination_grace_period_seconds: int | None = None


class Template(Struct):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: PodSpec


class LabelSelector(Struct):
    match_labels: Mapping[str, str]


class WorkloadSpec(Struct):
    replicas: int | None = None
    selector: LabelSelector
    template: Template
    paused: bool = False
    min_ready_seconds: int = 0


class Workload(KubeObject, group="apps", version="v1", kind="Deployment"):
    spec: WorkloadSpec


LABELS = {"app": "a"}


def workload(namespace: str, *, replicas: int | None = None, **container: Any) -> Workload:
    one = Container(name="main", image="nginx:1.29", **container)
    template = Template(metadata=ObjectMeta(labels=LABELS), spec=PodSpec(containers=(one,)))
    spec = WorkloadSpec(replicas=replicas, selector=LabelSelector(match_labels=LABELS), template=template)
    return Workload(metadata=ObjectMeta(name="a", namespace=namespace), spec=spec)


@pytest.mark.parametrize("amount", ["1000m", "1", "0.5", "500m", "1Gi", "1024Mi", "1e3", "0", "1.0"])
async def test_a_quantity_is_sent_once_in_whatever_form(
    kube_client: Client, namespace: str, amount: str
) -> None:
    resources = Resources(limits={"cpu": "4096M"}, requests={"memory": amount})
    await settles(kube_client, workload(namespace, resources=resources))


async def test_another_amount_is_sent(kube_client: Client, namespace: str) -> None:
    process = Process(kube_client)
    for amount, outcome in [
        ("1000m", EnsureResult.CREATED),
        ("1", EnsureResult.UNCHANGED),
        ("1001m", EnsureResult.PATCHED),
        ("1000m", EnsureResult.PATCHED),
        ("1000m", EnsureResult.UNCHANGED),
    ]:
        desired = workload(namespace, resources=Resources(limits={"cpu": amount}))
        assert await process.ensure(desired) is outcome


async def test_what_is_not_said_stays_with_the_server_and_with_others(
    kube_client: Client, namespace: str
) -> None:
    process = Process(kube_client)
    await process.ensure(workload(namespace))
    await kube_client.patch(Workload, "a", namespace, MergePatch({"spec": {"replicas": 5}}))
    assert await process.ensure(workload(namespace)) is EnsureResult.UNCHANGED
    assert await process.ensure(workload(namespace, command=("true",))) is EnsureResult.PATCHED
    there = await kube_client.get(Workload, "a", namespace)
    assert there.spec.replicas == 5
    assert there.spec.template.spec.containers[0].image_pull_policy == "IfNotPresent"
    assert there.spec.template.spec.restart_policy == "Always"


async def test_a_number_that_falls_to_zero_is_sent(kube_client: Client, namespace: str) -> None:
    process = Process(kube_client)
    assert await process.ensure(workload(namespace, replicas=2)) is EnsureResult.CREATED
    assert await process.ensure(workload(namespace, replicas=0)) is EnsureResult.PATCHED
    assert (await kube_client.get(Workload, "a", namespace)).spec.replicas == 0


@pytest.mark.parametrize("data", [{}, None, {"a": ""}])
async def test_an_empty_map_is_sent_once(
    kube_client: Client, namespace: str, data: dict[str, str] | None
) -> None:
    await settles(kube_client, ConfigMap(metadata=ObjectMeta(name="a", namespace=namespace), data=data))


async def test_a_map_that_becomes_empty_is_emptied(kube_client: Client, namespace: str) -> None:
    process, meta = Process(kube_client), ObjectMeta(name="a", namespace=namespace)
    await process.ensure(ConfigMap(metadata=meta, data={"a": "b"}))
    assert await process.ensure(ConfigMap(metadata=meta, data={})) is EnsureResult.PATCHED
    assert not (await kube_client.get(ConfigMap, "a", namespace)).data
    assert await Process(kube_client).ensure(ConfigMap(metadata=meta, data={})) is EnsureResult.UNCHANGED


class Port(Struct):
    port: int
    protocol: str = ""


class ServiceSpec(Struct):
    type: str = ""
    selector: Mapping[str, str] = field(default_factory=dict)
    ports: tuple[Port, ...] = ()
    session_affinity: str = ""


class EmptyStrings(KubeObject, version="v1", kind="Service"):
    spec: ServiceSpec = field(default_factory=ServiceSpec)


async def test_a_value_that_the_server_rewrites_is_sent_once_by_a_process(
    kube_client: Client, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The value is `""` in a field with a default: the author should have used None, and a warning says so."""
    desired = EmptyStrings(
        metadata=ObjectMeta(name="a", namespace=namespace),
        spec=ServiceSpec(selector=LABELS, ports=(Port(port=80),)),
    )
    process = Process(kube_client)
    assert await process.ensure(desired) is EnsureResult.CREATED
    assert await process.ensure(desired) is EnsureResult.UNCHANGED
    told = {vars(record)["fields"]["field"] for record in caplog.records}
    assert told == {"/spec/type", "/spec/ports", "/spec/sessionAffinity"}
    # Another process has to send it once.
    process = Process(kube_client)
    assert await process.ensure(desired) is EnsureResult.PATCHED
    assert await process.ensure(desired) is EnsureResult.UNCHANGED
    # And what was learned does not hide a real difference.
    await kube_client.patch(
        EmptyStrings, "a", namespace, MergePatch({"spec": {"sessionAffinity": "ClientIP"}})
    )
    assert await process.ensure(desired) is EnsureResult.PATCHED
    assert (await kube_client.get(EmptyStrings, "a", namespace)).spec.session_affinity == "None"


class Anything(KubeObject):
    spec: Mapping[str, Any] | None = None


async def test_an_object_without_a_class_of_its_own_says_what_it_names(
    kube_client: Client, namespace: str
) -> None:
    services = Form(Service.KIND, Anything)
    meta = ObjectMeta(name="a", namespace=namespace)
    await settles(
        kube_client, services.type(metadata=meta, spec={"selector": LABELS, "ports": [{"port": 80}]})
    )
    there = await kube_client.get(services, "a", namespace)
    assert there.spec is not None
    assert there.spec["clusterIP"]
    assert there.key == Key(namespace, "a")
    changed = services.type(metadata=meta, spec={"ports": [{"port": 81}], "selector": {"app": "b"}})
    assert await Process(kube_client).ensure(changed) is EnsureResult.PATCHED
    after = await kube_client.get(services, "a", namespace)
    assert after.spec is not None
    assert (after.spec["clusterIP"], after.spec["ports"][0]["port"]) == (there.spec["clusterIP"], 81)
