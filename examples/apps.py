"""Apps, in sixty lines: a kind from its class, a finalizer, three owned kinds, conditions, and a watch by an index.

Each App has a Deployment, a Service, and a ConfigMap with its settings; a change to the settings rolls the pods. It
uses the Secret that it names and follows its changes. Its DNS name is released before the App is deleted.

    kubeshard crd examples/apps.py | kubectl apply -f -
    kubeshard run examples/apps.py
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Annotated, Any

from msgspec import Meta

from kubeshard import (
    Condition,
    ConfigMap,
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
from kubeshard.core import Secret
from kubeshard.crd import Column, CustomResource

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


class Deployment(KubeObject, group="apps", version="v1"):
    spec: Mapping[str, Any] | None = None
    status: Mapping[str, Any] | None = None


class Service(KubeObject, version="v1"):
    spec: Mapping[str, Any] | None = None


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
    sources = [{"configMapRef": {"name": meta.name}}]
    sources += [{"secretRef": {"name": secret.metadata.name}}] if secret else []
    pod = {
        "metadata": {"labels": labels, "annotations": {"examples.kubeshard.dev/settings": digest}},
        "spec": {"containers": [{"name": "app", "image": app.spec.image, "envFrom": sources}]},
    }
    spec = {"replicas": app.spec.replicas, "selector": {"matchLabels": labels}, "template": pod}
    deployment = Deployment(metadata=meta, spec=spec)
    service = Service(metadata=meta, spec={"selector": labels, "ports": [{"port": 80}]})
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
