"""What authors write, and every type checker must understand. Read by `test_types`, never run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, assert_type

from kubeshard import (
    ALL,
    BlockingReconciler,
    Client,
    ConfigMap,
    Context,
    Controller,
    Index,
    Key,
    KubeObject,
    Predicate,
    Reconciler,
    Result,
    Struct,
    Watch,
    annotations_changed,
    changed,
    ensure,
    errors,
    field,
    generation_changed,
    label_selector,
    matching,
    metadata_only,
    never,
    watcher,
)
from kubeshard.cache import WatcherEvent
from kubeshard.client import Bookmark, Changed, Failed, WatchEvent
from kubeshard.controller.mapping import Reader
from kubeshard.core import Grant
from kubeshard.crd import Column, CustomResource, ListMap, Rule, Scale, definition
from kubeshard.webhook import AdmissionRequest, Denied, Webhooks, converts, defaults, validates


class SiteSpec(Struct):
    theme: str = ""


class Site(KubeObject, group="example.com", version="v1"):
    spec: SiteSpec = field(default_factory=SiteSpec)


class Theme(KubeObject, group="example.com", version="v1", namespaced=False):
    color: str = ""


def theme_of(site: Site) -> str:
    return site.spec.theme


def sites_of(reader: Reader, theme: Theme) -> Iterable[Key]:
    return [site.key for site in reader.list(Site, ALL, index=("theme", theme.metadata.name))]


class Sites(Reconciler[Site]):
    async def reconcile(self, ctx: Context, obj: Site) -> Result | None:
        theme = await ctx.get(Theme, obj.spec.theme)
        if theme is None:
            raise errors.Terminal("there is no such theme")
        written, _ = await ensure(ctx, ConfigMap(data={"color": theme.color}), owner=obj)
        assert_type(written, ConfigMap)
        return Result(requeue_after=60)


class BlockingSites(BlockingReconciler[Site]):
    def reconcile(self, ctx: Context, obj: Site) -> None:
        ctx.log.info("blocking", theme=obj.spec.theme)


class Anything(Reconciler[KubeObject]):
    async def reconcile(self, ctx: Context, obj: KubeObject) -> None: ...


async def reconcile(ctx: Context, site: Site) -> None: ...


async def looks_again(ctx: Context, site: Site) -> Result: ...  # type: ignore[empty-body]


# Predicates keep the class they are of, and those of any object take the other's.

assert_type(generation_changed | changed(theme_of), Predicate[Site])
assert_type(changed(theme_of) | generation_changed, Predicate[Site])
assert_type(~changed(theme_of) & label_selector("app=web"), Predicate[Site])
assert_type(generation_changed | annotations_changed & ~label_selector("x"), Predicate[KubeObject])
theme_changed: Predicate[Site] = changed(lambda site: site.spec.theme)

# So do watches.

assert_type(Watch(Site), Watch[Site])
assert_type(Watch(Site, when=generation_changed), Watch[Site])
assert_type(Watch(Site, when=changed(lambda site: site.spec.theme)), Watch[Site])
assert_type(Watch(Site, when=matching(lambda site: site.spec.theme == "dark")), Watch[Site])
assert_type(Watch(Theme, to=lambda reader, theme: [Key("", theme.color)]), Watch[Theme])

controller = Controller(
    name="site",
    reconciler=Sites(),
    primary=Watch(Site, when=generation_changed | theme_changed),
    owns=[
        ConfigMap,
        metadata_only(Theme),
        Watch(ConfigMap, when=changed(lambda config_map: config_map.data)),
        Watch(Theme, when=never),
    ],
    maps=[Watch(Theme, to=sites_of), Watch(Theme, to=lambda reader, theme: [Key("", theme.color)])],
    indexes=[Index(Site, "theme", lambda site: [site.spec.theme])],
)
assert_type(controller, Controller[Site])
Controller(name="blocking", reconciler=BlockingSites(), primary=Site)
Controller(name="anything", reconciler=Anything(), primary=Site)
assert_type(Controller(name="function", reconciler=reconcile, primary=Site), Controller[Site])
Controller(name="function", reconciler=looks_again, primary=Watch(Site, when=generation_changed))


# Events of a watch are told apart by their class, and these are all of them.


def words(event: WatchEvent[Site]) -> str:
    match event:
        case Changed("DELETED", site):
            return f"gone: {site.metadata.name}"
        case Changed(_, site):
            return site.spec.theme
        case Bookmark(version):
            return version
        case Failed(_, error):
            return str(error)


async def listen(client: Client) -> None:
    async for event in watcher(client, Site, ALL):
        assert_type(event, WatcherEvent[Site])
        if isinstance(event, Changed):
            assert_type(event.object, Site)


class OldSite(KubeObject, group="example.com", version="v0", kind="Site"):
    theme: str = ""


@validates(Site)
def has_theme(site: Site) -> None:
    if not site.spec.theme:
        raise Denied("a site has a theme")


@validates(Site, operations=("UPDATE",), failure_policy="Ignore")
async def keeps_theme(site: Site, old: Site | None, request: AdmissionRequest) -> None:
    if old and site.spec.theme != old.spec.theme and not request.dry_run:
        raise Denied("the theme stays")


@defaults(Site)
def with_theme(site: Site) -> Site | None:
    return None if site.spec.theme else Site(metadata=site.metadata, spec=SiteSpec(theme="plain"))


@converts(OldSite, Site)
def upgraded(old: OldSite) -> Site:
    return Site(spec=SiteSpec(theme=old.theme))


@converts(Site, OldSite)
async def downgraded(site: Site) -> OldSite:
    return OldSite(theme=site.spec.theme)


assert_type(with_theme(Site()), Site | None)
assert_type(upgraded(OldSite()), Site)
Webhooks("sites", [has_theme, keeps_theme, with_theme, upgraded, downgraded])


@Rule("self.low <= self.high", "low is at most high")
class Range(Struct):
    low: Annotated[int, Rule("self == oldSelf", "low cannot be changed")]
    high: int = 0


class Shelf(Struct):
    name: str


@CustomResource(short_names=["ra"], columns=[Column("Low", ".range.low")], scale=Scale(replicas=".spec.low"))
class Ranges(KubeObject, group="example.com", version="v1"):
    range: Range
    shelves: Annotated[tuple[Shelf, ...], ListMap("name")] = ()


assert_type(Ranges(range=Range(low=1)).range.low, int)
assert_type(definition(Ranges)["kind"], Any)
Controller(
    name="ranges",
    reconciler=Sites(),
    primary=Site,
    reads=[Theme],
    writes=[ConfigMap, Grant.on(Site, "patch", subresource="scale")],
)
