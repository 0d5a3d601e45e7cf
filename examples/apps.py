"""Apps, in sixty lines: a kind from its class, a finalizer, three owned kinds, conditions, and a watch by an index.

Each App has a Deployment, a Service, and a ConfigMap with its settings; a change to the settings rolls the pods. It
uses the Secret that it names and follows its changes. Its DNS name is released before the App is deleted.

    kubeshard crd examples/apps.py | kubectl apply -f -
    kubeshard run examples/apps.py
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Annotated

from msgspec import Meta

from kubeshard import (
    Condition,
    Context,
    Controller,
    Finalizer,
    Index,
    KubeObject,
    LeaderElection,
    Manager,
    ObjectMeta,
    Struct,
    field,
    is_ready,
    metadata_only,
    related,
)
from kubeshard.crd import Column, CustomResource
from kubeshard.kinds import (
    ConfigMap,
    ConfigMapEnvSource,
    Container,
    Deployment,
    DeploymentSpec,
    EnvFromSource,
    LabelSelector,
    PodSpec,
    PodTemplateSpec,
    Secret,
    SecretEnvSource,
    Service,
    ServicePort,
    ServiceSpec,
)

DNS: dict[str, str] = {}  # stands in for a service outside the cluster: host names by App


class AppSpec(Struct):
    image: str
    host: str
    replicas: Annotated[int, Meta(ge=0)] = 1
    settings: Mapping[str, str] | None = None
    secret: str | None = None


class AppStatus(Struct):
    observed_generation: int | None = None
    conditions: tuple[Condition, ...] = ()


@CustomResource(columns=[Column("Image", ".spec.image"), Column("Host", ".spec.host")])
class App(KubeObject, group="examples.kubeshard.dev", version="v1"):
    spec: AppSpec
    status: AppStatus = field(default_factory=AppStatus)


async def reconcile(ctx: Context, app: App) -> None:
    DNS[str(app.key)] = app.spec.host
    secret = await ctx.get(SECRET, app.spec.secret) if app.spec.secret else None
    if app.spec.secret and not secret:
        missing = Condition(type="Ready", status="False", reason="NoSecret", message=app.spec.secret)
        await ctx.status(app, AppStatus(conditions=(missing,)))
        return
    meta = ObjectMeta(name=app.metadata.name, namespace=app.metadata.namespace)
    labels = {"app.kubernetes.io/instance": app.metadata.name}
    settings = ConfigMap(metadata=meta, data=app.spec.settings or {})
    version = secret.metadata.resource_version if secret else ""
    digest = sha256(repr((sorted((settings.data or {}).items()), version)).encode()).hexdigest()[:16]
    sources = [EnvFromSource(config_map_ref=ConfigMapEnvSource(name=meta.name))]
    if secret:
        sources.append(EnvFromSource(secret_ref=SecretEnvSource(name=secret.metadata.name)))
    container = Container(name="app", image=app.spec.image, env_from=tuple(sources))
    pod_meta = ObjectMeta(labels=labels, annotations={"examples.kubeshard.dev/settings": digest})
    pod = PodTemplateSpec(metadata=pod_meta, spec=PodSpec(containers=(container,)))
    selector = LabelSelector(match_labels=labels)
    spec = DeploymentSpec(replicas=app.spec.replicas, selector=selector, template=pod)
    deployment = Deployment(metadata=meta, spec=spec)
    ports = ServiceSpec(selector=labels, ports=(ServicePort(port=80),))
    service = Service(metadata=meta, spec=ports)
    applied = await ctx.apply(settings, deployment, service)
    state = is_ready(applied.get(deployment))
    ready = Condition(type="Ready", status=str(bool(state)), reason=state.state, message=state.message)
    await ctx.status(app, AppStatus(conditions=(ready,)))


async def leave_dns(ctx: Context, app: App) -> None:
    DNS.pop(str(app.key), None)


SECRET = metadata_only(Secret)
controller = Controller(
    name="app",
    reconciler=reconcile,
    primary=App,
    applies=[ConfigMap, Deployment, Service],
    watches=[related(SECRET, App, Index(App, "secret", lambda app: [app.spec.secret or ""]))],
    finalizers=[Finalizer("examples.kubeshard.dev/dns", leave_dns)],
    error_condition="Ready",
)
manager = Manager([controller], leader_election=LeaderElection(name="apps"))
