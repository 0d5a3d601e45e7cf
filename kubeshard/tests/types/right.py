"""What authors write, and every type checker must understand. Read by `test_types`, never run."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterable
from datetime import timedelta
from typing import Annotated, Any, Literal, assert_type

from kubeshard import (
    ALL,
    EVERY_CLUSTER,
    HOME_CLUSTER,
    OTHER_CLUSTERS,
    Applied,
    BlockingReconciler,
    CacheSettings,
    Client,
    Condition,
    ConfigMap,
    Context,
    Controller,
    Daemon,
    EnsureResult,
    EveryKind,
    Finalizer,
    Generator,
    Index,
    Key,
    KubeObject,
    LeaderElection,
    Manager,
    ObjectMeta,
    Ordered,
    Plan,
    Reconciler,
    Result,
    Scope,
    Settings,
    Sharding,
    StatusPages,
    Struct,
    Watch,
    ensure,
    errors,
    field,
    is_ready,
    kinds,
    metadata_only,
    related,
    run,
    safe_name,
    until,
    wait_for,
    watcher,
    when,
)
from kubeshard.cache import Added, Cache, Deleted, Delta, Informer, Updated, WatcherEvent
from kubeshard.client import Bookmark, Changed, Failed, WatchEvent
from kubeshard.controller import FencingToken, poll, timer
from kubeshard.controller.mapping import Reader
from kubeshard.core import Grant, Kind, PartialObject
from kubeshard.crd import Column, CustomResource, ListMap, Rule, Scale, definition
from kubeshard.manager import Runnable
from kubeshard.shard import DeclaredRing, LeaseTerms, SharderSettings, scaled
from kubeshard.webhook import AdmissionRequest, Denied, Webhooks, converts, defaults, validates
from kubeshard.workqueue import LOW, Debounce, ItemExponential, RoundRobin, WorkQueue


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

assert_type(when.generation_changed | when.changed(theme_of), when.Predicate[Site])
assert_type(when.changed(theme_of) | when.generation_changed, when.Predicate[Site])
assert_type(~when.changed(theme_of) & when.label_selector("app=web"), when.Predicate[Site])
assert_type(
    when.generation_changed | when.annotations_changed & ~when.label_selector("x"), when.Predicate[KubeObject]
)
theme_changed: when.Predicate[Site] = when.changed(lambda site: site.spec.theme)

# So do watches.

assert_type(Watch(Site), Watch[Site])
assert_type(Watch(Site, when=when.generation_changed), Watch[Site])
assert_type(Watch(Site, when=when.changed(lambda site: site.spec.theme)), Watch[Site])
assert_type(Watch(Site, when=when.matching(lambda site: site.spec.theme == "dark")), Watch[Site])
assert_type(Watch(Theme, to=lambda reader, theme: [Key("", theme.color)]), Watch[Theme])

controller = Controller(
    name="site",
    reconciler=Sites(),
    primary=Watch(Site, when=when.generation_changed | theme_changed),
    owns=[
        ConfigMap,
        metadata_only(Theme),
        Watch(ConfigMap, when=when.changed(lambda config_map: config_map.data)),
    ],
    reads=[Theme, metadata_only(ConfigMap), Watch(Theme, scope=Scope(namespaces=frozenset({"a"})))],
    watches=[Watch(Theme, to=sites_of), Watch(Theme, to=lambda reader, theme: [Key("", theme.color)])],
    indexes=[Index(Site, "theme", lambda site: [site.spec.theme])],
)
assert_type(controller, Controller[Site])
Controller(name="blocking", reconciler=BlockingSites(), primary=Site)
Controller(name="anything", reconciler=Anything(), primary=Site)
assert_type(Controller(name="function", reconciler=reconcile, primary=Site), Controller[Site])
Controller(name="function", reconciler=looks_again, primary=Watch(Site, when=when.generation_changed))


# Failures, timers, and what systems outside the cluster need.


async def persistent(ctx: Context, site: Site) -> None:
    assert_type(ctx.fencing_token(site), FencingToken)
    if not site.spec.theme:
        raise errors.Retry("no theme yet", after=30)
    applied = await ctx.apply(create_once=[ConfigMap(metadata=site.metadata)])
    assert_type(applied, Applied)


async def ordered(ctx: Context, site: Site, theme: Theme) -> None:
    page = Ordered(ConfigMap(metadata=site.metadata), after=[theme, Ordered(site)])
    assert_type(page, Ordered[ConfigMap])
    again = Ordered(theme, after=[page], ready=lambda theme: theme.color == "dark")
    assert_type(again, Ordered[Theme])
    await ctx.apply(site, page, again, Ordered(site, ready=until.condition("Ready")), create_once=[page])
    assert_type((await ctx.apply(page)).held_because, str)
    assert_type((await ctx.apply(page)).failed_because, str)


async def asked(ctx: Context, site: Site) -> str:
    return site.spec.theme


assert_type(timer(persistent, every=60.0, initial_delay=5.0, idle=30.0), Daemon[Site])
assert_type(poll(asked, every=60.0), Daemon[Site])
Controller(
    name="persistent",
    reconciler=persistent,
    primary=Site,
    applies=[ConfigMap],
    daemons=[timer(persistent, every=60.0), poll(asked, every=30.0)],
    give_up_after=10,
)
Controller(name="patient", reconciler=persistent, primary=Site, give_up_after=timedelta(hours=1))


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
    grants=[Grant.on(ConfigMap, "get"), Grant.on(Site, "patch", subresource="scale")],
)


# Desired sets, and what is left to say of them.


async def desired(ctx: Context, site: Site) -> Iterable[KubeObject]:
    return [ConfigMap(data={"theme": site.spec.theme})]


async def streamed(ctx: Context, site: Site) -> AsyncIterator[KubeObject]:
    yield ConfigMap(data={"theme": site.spec.theme})


async def then(ctx: Context, site: Site, applied: Applied) -> Result | None:
    assert_type(applied[ConfigMap()], ConfigMap)
    for update in applied.plan.updates:
        ctx.log.info("updated", live=update.live.metadata.name)
    return Result(requeue_after=60.0) if applied.waiting else None


async def desires(ctx: Context, site: Site) -> None:
    plan = await ctx.plan(ConfigMap(), Theme(), unowned="adopt")
    assert_type(plan, Plan)
    assert_type(plan.deletes, tuple[KubeObject, ...])
    applied = await ctx.apply(ConfigMap(), owner=site, set="pages", immutable="recreate")
    assert_type(applied, Applied)
    assert_type(applied[Theme()].color, str)


generator = Generator(desired, then=then)
assert_type(generator, Generator[Site])
assert_type(generator.cleanup("example.com/pages"), Finalizer[Site])
assert_type(Generator(streamed), Generator[Site])


# Statuses, finalizers, related kinds.


class AppStatus(Struct):
    url: str = ""
    conditions: tuple[Condition, ...] = ()


class App(KubeObject, group="example.com", version="v1"):
    status: AppStatus = field(default_factory=AppStatus)


async def states(ctx: Context, app: App) -> None:
    ready = Condition(type="Ready", status="True", reason="Up", message="")
    written = await ctx.status(app, AppStatus(url="https://example.com", conditions=(ready,)))
    assert_type(written, App)
    assert_type(ctx.why[0].since, float)


async def unmake(ctx: Context, site: Site) -> Result | None:
    return None


async def unmake_anything(ctx: Context, obj: KubeObject) -> None: ...


assert_type(Finalizer("example.com/pages", unmake), Finalizer[Site])
assert_type(Daemon(reconcile), Daemon[Site])
by_theme = Index(Site, "theme", lambda site: [site.spec.theme])
assert_type(related(Theme, Site, by_theme), Watch[Theme])
assert_type(
    related(metadata_only(Theme), Site, Index(Site, "theme", lambda site: [site.spec.theme])),
    Watch[PartialObject],
)
assert_type(related(Site, Theme, by_theme), Watch[Site])
Controller(
    name="sharded",
    reconciler=generator,
    primary=Watch(Site, sharded=True, resync=0),
    applies=[Watch(ConfigMap, sharded=True)],
    watches=[related(Theme, Site, by_theme, when=when.changed(lambda theme: theme.color))],
    finalizers=[
        generator.cleanup("example.com/pages"),
        Finalizer("example.com/bucket", unmake),
        Finalizer("example.com/log", unmake_anything),
    ],
    daemons=[Daemon(reconcile, restart_on=theme_of), Daemon(unmake_anything)],
)
app_controller = Controller(name="app", reconciler=states, primary=App, error_condition="Ready")


# The queue, for a controller and by itself.

Controller(
    name="patient",
    reconciler=reconcile,
    primary=Site,
    order=deque,
    debounce=Debounce(quiet=1.0, longest=10.0),
    limiter=lambda world: ItemExponential(1.0, 30.0, rng=world.rng),
)
Controller(name="tenants", reconciler=reconcile, primary=Site, order=lambda: RoundRobin(lambda key: key.name))


async def worker(queue: WorkQueue[tuple[str, int]]) -> None:
    queue.add(("a", 1), "because", priority=LOW)
    async with queue.get() as key:
        assert_type(key, tuple[str, int])


# Kinds that are known at run time.


def labelled(kind: Kind) -> Controller[Any] | None:
    if kind.group != "example.com":
        return None
    return Controller(
        name=safe_name("label", kind.plural), reconciler=Anything(), primary=metadata_only(kind)
    )


# Managers.


def bare(site: Site) -> Site:
    return Site(metadata=site.metadata)


async def works() -> None: ...


manager = Manager(
    [app_controller, EveryKind(labelled)],
    cache=CacheSettings(transforms={Site.KIND.group_kind: bare}),
    status_pages=StatusPages(metrics_auth=True, readiness={"site": lambda: None}),
    leader_election=LeaderElection(name="operator"),
    runnables=[Runnable("work", works, needs_leadership=True)],
)
manager.add(controller)
Manager([controller], sharding=Sharding("ring", mode="both"))
Sharding(
    DeclaredRing("ring", strict_handover=90.0),
    lease=LeaseTerms(scaled(5)),
    sharder=SharderSettings(sync_period=60),
)

# Several clusters.


async def spreads(ctx: Context, site: Site) -> None:
    assert_type(ctx.cluster, str)
    elsewhere = ctx.at("eu")
    assert_type(elsewhere.cache.get(Site, site.metadata.name), Site | None)
    assert_type(await elsewhere.client.get(Site, site.metadata.name), Site)
    assert_type(ctx.key.at("eu"), Key)


everywhere = Controller(
    name="everywhere",
    reconciler=spreads,
    primary=Site,
    watches=[Watch(Theme, to=sites_of, clusters=OTHER_CLUSTERS)],
    clusters=EVERY_CLUSTER,
)
several = Manager([everywhere], clusters={"eu": "prod-eu"}, sharding=Sharding("ring", objects_in="eu"))
several.add_cluster("us", "prod-us")
Controller(name="some", reconciler=spreads, primary=Site, clusters=[HOME_CLUSTER, "eu"])
assert_type(run(manager), None)
assert_type(run(manager, settings=Settings.parse()), None)


# Informers and waiting.


async def told(delta: Delta[Site]) -> None:
    match delta:
        case Added(site):
            assert_type(site, Site)
        case Updated(old, new):
            assert_type((old, new), tuple[Site, Site])
        case Deleted(site, final):
            assert_type((site, final), tuple[Site, bool])


async def informs(cache: Cache, client: Client) -> None:
    async with cache.using(Site) as informer:
        assert_type(informer, Informer[Site])
        registration = informer.add_handler(told, only=lambda site: site.spec.theme == "dark")
        informer.add_handler(lambda delta: None)
        await registration.synced()
    assert_type(cache.get(Site, "a", "x"), Site | None)
    assert_type(await wait_for(client, Site(), until.ready, timeout=60), Site | None)
    gone = until.deleted("uid") | ~until.condition("Ready")
    assert_type(await wait_for(client, Theme, gone, name="dark", timeout=60), Theme | None)
    readiness = is_ready(App())
    assert_type(readiness.state, Literal["Current", "InProgress", "Failed", "Terminating", "NotFound"])


# Built-in kinds.


async def runs_a_job(ctx: Context, site: Site, client: Client) -> None:
    container = kinds.Container(name="main", image="app:1", args=("--once",))
    pod = kinds.PodTemplateSpec(spec=kinds.PodSpec(containers=(container,), restart_policy="Never"))
    meta = ObjectMeta(name="once", namespace="a")
    job, outcome = await ensure(ctx, kinds.Job(metadata=meta, spec=kinds.JobSpec(template=pod)), owner=site)
    assert_type((job, outcome), tuple[kinds.Job, EnsureResult])
    assert_type(job.spec.template.spec, kinds.PodSpec | None)
    assert_type(job.status.succeeded, int | None)
    assert_type(await ctx.get(kinds.Secret, "keys"), kinds.Secret | None)
    async for pod_object in client.list(kinds.Pod, ALL):
        assert_type(pod_object.status.phase, str | None)
    assert_type(kinds.Deployment.KIND.plural, str)


Controller(name="jobs", reconciler=spreads, primary=Site, owns=[kinds.Job, kinds.Secret])
