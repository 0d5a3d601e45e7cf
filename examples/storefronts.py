"""Storefronts, as somebody coming from wrangler would write them: a generator, a desired set, related resources.

Each Storefront has a ConfigMap per page, a Deployment that serves them and a Service. It also has an entry in a
directory of all Storefronts, in a namespace of its choice. What it no longer asks for is deleted. All Storefronts
follow a Theme.

    kubeshard crd examples/storefronts.py | kubectl apply -f -
    kubeshard run examples/storefronts.py
"""

from collections.abc import AsyncIterator

from kubeshard import (
    Context,
    Controller,
    Generator,
    Index,
    KubeObject,
    LeaderElection,
    Manager,
    ObjectMeta,
    Struct,
    field,
    is_ready,
    related,
    safe_name,
)
from kubeshard.controller import Applied
from kubeshard.kinds import (
    ConfigMap,
    ConfigMapVolumeSource,
    Container,
    Deployment,
    DeploymentSpec,
    LabelSelector,
    PodSpec,
    PodTemplateSpec,
    Service,
    ServicePort,
    ServiceSpec,
    Volume,
    VolumeMount,
)


class ThemeSpec(Struct):
    color: str = "black"


class Theme(KubeObject, group="examples.kubeshard.dev", version="v1", namespaced=False):
    spec: ThemeSpec = field(default_factory=ThemeSpec)


class StorefrontSpec(Struct):
    theme: str = ""
    pages: tuple[str, ...] = ()
    directory: str | None = None
    """The namespace of the directory."""


class StorefrontStatus(Struct):
    observed_generation: int | None = None
    pages: int | None = None
    ready: bool | None = None


class Storefront(KubeObject, group="examples.kubeshard.dev", version="v1"):
    spec: StorefrontSpec = field(default_factory=StorefrontSpec)
    status: StorefrontStatus = field(default_factory=StorefrontStatus)


async def generate(ctx: Context, shop: Storefront) -> AsyncIterator[KubeObject]:
    name, namespace = shop.metadata.name, shop.metadata.namespace
    theme = await ctx.get(Theme, shop.spec.theme) if shop.spec.theme else None
    color = theme.spec.color if theme else "black"
    for page in shop.spec.pages:
        meta = ObjectMeta(name=safe_name(name, page), namespace=namespace)
        yield ConfigMap(metadata=meta, data={"index.html": f'<h1 style="color: {color}">{page}</h1>\n'})
    meta = ObjectMeta(name=name, namespace=namespace)
    yield Service(
        metadata=meta, spec=ServiceSpec(selector=labels(shop), ports=(ServicePort(port=80, name="http"),))
    )
    yield deployment(shop, meta)
    if shop.spec.directory is not None:
        there = ObjectMeta(name=safe_name("storefront", namespace, name), namespace=shop.spec.directory)
        yield ConfigMap(metadata=there, data={"pages": ", ".join(shop.spec.pages)})


def labels(shop: Storefront) -> dict[str, str]:
    return {"app.kubernetes.io/instance": safe_name("storefront", shop.metadata.name)}


def deployment(shop: Storefront, meta: ObjectMeta) -> Deployment:
    volumes = tuple(
        Volume(
            name=f"page-{number}", config_map=ConfigMapVolumeSource(name=safe_name(shop.metadata.name, page))
        )
        for number, page in enumerate(shop.spec.pages)
    )
    mounts = tuple(VolumeMount(name=each.name, mount_path=f"/pages/{each.name}") for each in volumes)
    container = Container(name="web", image="nginx:1.27", volume_mounts=mounts)
    pod = PodSpec(containers=(container,), volumes=volumes)
    template = PodTemplateSpec(metadata=ObjectMeta(labels=labels(shop)), spec=pod)
    selector = LabelSelector(match_labels=labels(shop))
    return Deployment(metadata=meta, spec=DeploymentSpec(selector=selector, template=template))


async def then(ctx: Context, shop: Storefront, applied: Applied) -> None:
    serving = [each for each in applied.objects if isinstance(each, Deployment)]
    ready = all(is_ready(each) for each in serving) and not applied.waiting
    await ctx.status(shop, StorefrontStatus(pages=len(shop.spec.pages), ready=ready))


generator = Generator(generate, then=then)

storefronts = Controller(
    name="storefront",
    reconciler=generator,
    primary=Storefront,
    applies=[ConfigMap, Deployment, Service],
    watches=[related(Theme, Storefront, Index(Storefront, "theme", lambda shop: [shop.spec.theme]))],
    finalizers=[generator.cleanup("examples.kubeshard.dev/storefront")],
)


def manager() -> Manager:
    return Manager([storefronts], leader_election=LeaderElection(name="storefronts"))
