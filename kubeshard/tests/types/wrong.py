"""Mistakes of authors that every type checker must find: one in each line that says so. Read by `test_types`.

One statement is one line, however long: in which line of several a checker finds a mistake is its own business.
"""

# fmt: off
# ruff: noqa: B018, E501, F401, I001

from __future__ import annotations

from collections.abc import Iterable

from right import App, AppStatus, by_theme, labelled, manager, told, unmake, desired
from right import Anything, OldSite, Site, Sites, Theme, reconcile, sites_of, theme_changed, theme_of, upgraded, with_theme

from kubeshard import BlockingReconciler, ConfigMap, Context, Controller, Index, Key, Reconciler, Result, Watch
from kubeshard import ALL, ensure, run, when
from kubeshard import Client, Condition, Daemon, EveryKind, Finalizer, Generator, KubeObject, Manager, Sharding
from kubeshard import ObjectMeta, Ordered, is_ready, kinds, related, safe_name, until, wait_for
from kubeshard.cache import Added, Cache, Delta, Updated
from kubeshard.client import Bookmark, Changed, WatchEvent
from kubeshard.crd import Column, CustomResource, Rule
from kubeshard.runtime.world import REAL_WORLD
from kubeshard.shard import scaled
from kubeshard.webhook import converts, defaults, validates
from kubeshard.workqueue import Debounce, ItemExponential, RoundRobin, WorkQueue

from kubeshard import Contoller  # mistake: misspelt

# -- predicates

Watch(Theme, when=theme_changed)  # mistake: of another class
Watch(Theme, when=when.generation_changed | theme_changed)  # mistake: of another class, combined
Watch(Theme, when=when.changed(theme_of) & when.generation_changed)  # mistake: the same, the other way round
Watch(Site, when=when.changed(lambda site: site.spec.thema))  # mistake: a field that is not there
Watch(Site, when=when.matching(lambda site: site.color))  # mistake: a field of another class
Watch(Site, when=when.matching(theme_of))  # mistake: a test gives a bool
Watch(Site, when=when.on(updated=lambda old: True))  # mistake: an update has two objects
Watch(Site, when=theme_of)  # mistake: a function is not a predicate
when.generation_changed & 1  # mistake: a number is not a predicate
when.generation_changed | theme_of  # mistake: nor is a function

# -- map functions

Watch(Theme, to=lambda reader, theme: [theme.color])  # mistake: keys, not names
Watch(Theme, to=lambda reader, theme: [Key("", theme.colour)])  # mistake: a field that is not there
Watch(Theme, to=lambda theme: [])  # mistake: the reader comes first
Watch(ConfigMap, to=sites_of)  # mistake: of another class
Watch(Theme, to=lambda reader, theme: [s.key for s in reader.list(Site, ALL, index="theme")])  # mistake: an index has a value
Controller(name="a", reconciler=Sites(), primary=Site, watches=[Watch(Theme, to=lambda reader, theme: [theme.color])])  # mistake: inside a list
Controller(name="a", reconciler=Sites(), primary=Site, watches=[Watch(ConfigMap, to=sites_of)])  # mistake: inside a list
Controller(name="a", reconciler=Sites(), primary=Site, watches=[ConfigMap])  # mistake: a class maps to nothing
Controller(name="a", reconciler=Sites(), primary=Site, owns=[Watch(ConfigMap, when=when.changed(lambda it: it.dta))])  # mistake: a field that is not there
Controller(name="a", reconciler=Sites(), primary=Site, owns=[Watch(ConfigMap, when=theme_changed)])  # mistake: of another class
Controller(name="a", reconciler=Sites(), primary=Site, owns=ConfigMap)  # mistake: a list
Controller(name="a", reconciler=Sites(), primary=Site, owns=["ConfigMap"])  # mistake: a name is not a kind
Controller(name="a", reconciler=Sites(), primary=Site, indexes=[Index(Site, "theme", lambda site: [site.thema])])  # mistake: a field that is not there
Controller(name="a", reconciler=Sites(), primary=Site, indexes=[Index(Site, "theme", lambda site: [1])])  # mistake: an index is text

# -- reconcilers


class Synchronous(Reconciler[Site]):
    def reconcile(self, ctx: Context, obj: Site) -> Result | None:  # mistake: not async
        return None


class WithoutContext(Reconciler[Site]):
    async def reconcile(self, obj: Site) -> None: ...  # mistake: the context comes first


class OfAnother(Reconciler[Site]):
    async def reconcile(self, ctx: Context, obj: Theme) -> None: ...  # mistake: of another class


class Asynchronous(BlockingReconciler[Site]):
    async def reconcile(self, ctx: Context, obj: Site) -> None: ...  # mistake: it blocks, so it is not async


def plain(ctx: Context, site: Site) -> None: ...


async def without_context(site: Site) -> None: ...


async def answers(ctx: Context, site: Site) -> int: ...  # type: ignore[empty-body]


Controller(name="a", reconciler=Sites(), primary=Theme)  # mistake: of another class
Controller(name="a", reconciler=reconcile, primary=Theme)  # mistake: of another class
Controller(name="a", reconciler=Sites, primary=Site)  # mistake: the class, not an instance
Controller(name="a", reconciler=plain, primary=Site)  # mistake: not async
Controller(name="a", reconciler=without_context, primary=Site)  # mistake: the context comes first
Controller(name="a", reconciler=answers, primary=Site)  # mistake: None or a Result
Controller(name="a", reconciler=object(), primary=Site)  # mistake: no reconciler at all
Controller("a", Anything(), Site)  # mistake: by name
run(Controller(name="a", reconciler=Anything(), primary=Site))  # mistake: a manager runs controllers


async def uses(ctx: Context, site: Site) -> None:
    await ensure(ctx, Site)  # mistake: the class, not an object
    (await ctx.get(Theme, "dark")).color  # mistake: it may not be there
    await ctx.client.get("Theme", "dark")  # mistake: a name is not a kind
    await ctx.get(Site, "a", ALL)  # mistake: one object is in one namespace


# -- events of a watch


def careless(event: WatchEvent[Site]) -> str:
    return event.object.spec.theme  # mistake: not every event has an object


def incomplete(event: WatchEvent[Site]) -> str:  # mistake: not every event is answered
    match event:
        case Changed(_, site):
            return site.spec.theme
        case Bookmark(version):
            return version


Changed("BOOKMARK", Site())  # mistake: that is a Bookmark
Changed("ADDED")  # mistake: without an object

# -- webhooks

validates(Theme)(lambda site: site.spec.theme)  # mistake: a field of another class
validates(Site)(theme_of)  # mistake: text is no answer
validates(Site, operation="DELETE")  # mistake: misspelt
validates(Site, failure_policy="Allow")  # mistake: not a policy
defaults(Theme)(with_theme)  # mistake: of another class
converts(Site, OldSite)(upgraded)  # mistake: the other way round

# -- custom resources

CustomResource(columns=["Low"])(Site)  # mistake: a column is not its name
CustomResource(shortnames=["ra"])(Site)  # mistake: misspelt
CustomResource()(int)  # mistake: not a kind
Rule("self > 0")(int)  # mistake: not a struct
Controller(name="a", reconciler=Sites(), primary=Site, reads=["configmaps"])  # mistake: a name is not a kind
Controller(name="a", reconciler=Sites(), primary=Site, grants=[ConfigMap])  # mistake: a right has verbs
Controller(name="a", reconciler=Sites(), primary=Site, maps=[])  # mistake: no such argument

# -- desired sets and generators


async def lacks(ctx: Context, site: Site) -> None:
    await ctx.apply(ConfigMap)  # mistake: the class, not an object
    await ctx.apply([ConfigMap()])  # mistake: objects one by one, not a list
    await ctx.apply(ConfigMap(), unowned="take")  # mistake: refuse or adopt
    await ctx.apply(ConfigMap(), immutable="delete")  # mistake: refuse or recreate
    await ctx.apply(ConfigMap(), owner="site")  # mistake: an owner is an object
    (await ctx.plan(ConfigMap())).objects  # mistake: a plan has done nothing
    (await ctx.apply(ConfigMap()))[ConfigMap()].spec  # mistake: of the class of the desired object
    ctx.apply(ConfigMap()).plan  # mistake: not awaited


async def strings(ctx: Context, site: Site) -> Iterable[str]: ...  # type: ignore[empty-body]


async def generates_for_theme(ctx: Context, theme: Theme) -> list[KubeObject]: ...  # type: ignore[empty-body]


def generates_at_once(ctx: Context, site: Site) -> list[KubeObject]: ...  # type: ignore[empty-body]


Generator(strings)  # mistake: objects, not names
Generator(generates_at_once)  # mistake: not async
Generator(desired, then=generates_for_theme)  # mistake: it is given what was applied, too
Generator(desired, unowned="take")  # mistake: refuse or adopt
Controller(name="a", reconciler=Generator(generates_for_theme), primary=Site)  # mistake: of another class

# -- statuses, finalizers, related kinds


async def misstates(ctx: Context, app: App) -> None:
    await ctx.status(app, {"url": ""})  # mistake: a status is a Struct
    await ctx.status(AppStatus())  # mistake: of which object
    await ctx.status(app, AppStatus(uri=""))  # mistake: misspelt
    (await ctx.status(app, AppStatus())).spec  # mistake: the object has the class that it had
    Condition(type="Ready", status=True)  # mistake: a status is a word


def unmake_at_once(ctx: Context, site: Site) -> None: ...


async def unmake_theme(ctx: Context, theme: Theme) -> None: ...


Finalizer("example.com/a", unmake_at_once)  # mistake: not async
Finalizer("example.com/a")  # mistake: without a cleanup
Controller(name="a", reconciler=Sites(), primary=Site, finalizers=[Finalizer("example.com/a", unmake_theme)])  # mistake: of another class
Controller(name="a", reconciler=Sites(), primary=Site, finalizers=Finalizer("example.com/a", unmake))  # mistake: a list
Controller(name="a", reconciler=Sites(), primary=Site, finalizers=["example.com/a"])  # mistake: a key has no cleanup
Daemon(unmake_at_once)  # mistake: not async
Daemon(reconcile, restart_on=lambda site: site.spec.thema)  # mistake: a field that is not there
Controller(name="a", reconciler=Sites(), primary=Site, daemons=[Daemon(unmake_theme)])  # mistake: of another class
Controller(name="a", reconciler=Sites(), primary=Site, daemons=Daemon(reconcile))  # mistake: a list
Controller(name="a", reconciler=Sites(), primary=Site, error_condition=True)  # mistake: the type of the condition
related(Theme, Site, "theme")  # mistake: an index, not its name
related(Theme, Site, Index(Site, "theme", lambda site: [site.thema]))  # mistake: a field that is not there
related(Theme, Site, by_theme, when=theme_changed)  # mistake: of another class
Controller(name="a", reconciler=Sites(), primary=Site, watches=[related(Theme, Site, Index(Site, "t", lambda site: [site.thema]))])  # mistake: inside a list
Watch(Site, shard=True)  # mistake: misspelt
Watch(Site, sharded="yes")  # mistake: true or false
Watch(Site, resync=None)  # mistake: 0 is never

# -- the queue

Controller(name="a", reconciler=Sites(), primary=Site, debounce=1.0)  # mistake: a rule, not seconds
Controller(name="a", reconciler=Sites(), primary=Site, order=RoundRobin())  # mistake: a function that creates an order, not an order
Controller(name="a", reconciler=Sites(), primary=Site, order=set)  # mistake: a set has no order
Controller(name="a", reconciler=Sites(), primary=Site, limiter=ItemExponential(1.0, 30.0, rng=REAL_WORLD.rng))  # mistake: what makes a limiter
Debounce(1.0)  # mistake: how long at most


async def mistakes_its_keys(queue: WorkQueue[str]) -> None:
    queue.add(1)  # mistake: keys are text
    with queue.get():  # mistake: async with
        pass


# -- managers

EveryKind(lambda kind: kind.plural)  # mistake: a controller, or None
Manager([Sites()])  # mistake: a reconciler is not a controller
Manager(Controller(name="a", reconciler=Sites(), primary=Site))  # mistake: a list
Manager([], sharding="ring")  # mistake: Sharding("ring")
Manager([], clusters=["eu"])  # mistake: clusters have names
Controller(name="a", reconciler=Sites(), primary=Site, clusters=5)  # mistake: a list of names
Manager([], leader_election="operator")  # mistake: LeaderElection(name="operator")
Sharding("ring", mode="all")  # mistake: no such mode
Sharding("ring", lease=scaled(5))  # mistake: LeaseTerms(scaled(5))
manager.add(EveryKind(labelled))  # mistake: a controller
run([manager])  # mistake: one manager

# -- informers and waiting


async def hears_of_themes(delta: Delta[Theme]) -> None: ...


def misreads(delta: Delta[Theme]) -> str:  # mistake: not every delta is answered
    match delta:
        case Added(theme):
            return theme.colour  # mistake: a field that is not there
        case Updated(theme):  # the old one
            return theme.color


async def waits(cache: Cache, client: Client) -> None:
    cache.declare(Site).add_handler(hears_of_themes)  # mistake: of another class
    cache.declare(Site).add_handler(lambda: None)  # mistake: it is given what happened
    cache.declare(Site).add_handler(told, only=lambda site: site.color == "dark")  # mistake: a field of another class
    with cache.using(Site):  # mistake: async with
        pass
    await wait_for(client, Site, until.ready, timeout=60)  # mistake: which one
    await wait_for(client, Site(), until.ready)  # mistake: how long
    await wait_for(client, Site(), until.redy, timeout=60)  # mistake: misspelt
    await wait_for(client, Site(), until.deleted, timeout=60)  # mistake: a function of a uid
    (await wait_for(client, Site(), until.ready, timeout=60)).spec  # mistake: it may not be there
    until.ready & True  # mistake: a condition, not a value
    is_ready(Site)  # mistake: the class, not an object
    safe_name(["web", "config"])  # mistake: parts one by one


# An order.

Ordered(Site(), after=Theme(color="dark"))  # mistake: a list
Ordered(Site(), after=["theme"])  # mistake: objects, not names
Ordered(Site(), ready="Ready")  # mistake: a condition is until.condition("Ready")
Ordered(Site(), ready=lambda site: site.color == "dark")  # mistake: a field of another class
Ordered(Site(), ready=until.condition)  # mistake: it needs a type

# Built-in kinds.

kinds.Deployment(metadata=ObjectMeta(name="a"))  # mistake: a Deployment has a spec
kinds.Container(name="a", imagePullPolicy="Always")  # mistake: image_pull_policy
kinds.ContainerPort(container_port="http")  # mistake: a number
kinds.Deploymnet  # mistake: no such kind
