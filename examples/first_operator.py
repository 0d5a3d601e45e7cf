"""A first operator: every Page has a ConfigMap with its HTML."""

from html import escape

from kubeshard import (
    ConfigMap,
    Context,
    Controller,
    KubeObject,
    LeaderElection,
    Manager,
    ObjectMeta,
    Reconciler,
    Struct,
    Watch,
    ensure,
    field,
    run,
    when,
)


class PageSpec(Struct):
    title: str = ""


class Page(KubeObject, group="example.kubeshard.dev", version="v1"):
    spec: PageSpec = field(default_factory=PageSpec)


class Pages(Reconciler[Page]):
    async def reconcile(self, ctx: Context, page: Page) -> None:
        name, namespace = page.metadata.name, page.metadata.namespace
        html = f"<h1>{escape(page.spec.title)}</h1>\n"
        wanted = ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace), data={"index.html": html})
        _, outcome = await ensure(ctx, wanted, owner=page)  # creates or repairs it, or sends nothing
        ctx.log.info("page is up to date", config_map=outcome.value)


pages = Controller(
    name="page",
    reconciler=Pages(),
    primary=Watch(Page, when=when.generation_changed, sharded=True),  # shared, if instances share their work
    owns=[Watch(ConfigMap, sharded=True)],
)

manager = Manager([pages], leader_election=LeaderElection(name="pages", namespace="default"))

if __name__ == "__main__":
    run(manager)
