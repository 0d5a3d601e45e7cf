"""Mistakes of authors that every type checker must find: one in each line that says so. Read by `test_types`.

One statement is one line, however long: in which line of several a checker finds a mistake is its own business.
"""

# fmt: off
# ruff: noqa: B018, E501, F401, I001

from __future__ import annotations

from right import Anything, OldSite, Site, Sites, Theme, reconcile, sites_of, theme_changed, theme_of, upgraded, with_theme

from kubeshard import BlockingReconciler, ConfigMap, Context, Controller, Index, Key, Reconciler, Result, Watch
from kubeshard import ALL, changed, ensure, generation_changed, matching, run
from kubeshard.client import Bookmark, Changed, WatchEvent
from kubeshard.controller import on
from kubeshard.crd import Column, CustomResource, Rule
from kubeshard.webhook import converts, defaults, validates

from kubeshard import Contoller  # mistake: misspelt

# -- predicates

Watch(Theme, when=theme_changed)  # mistake: of another class
Watch(Theme, when=generation_changed | theme_changed)  # mistake: of another class, combined
Watch(Theme, when=changed(theme_of) & generation_changed)  # mistake: the same, the other way round
Watch(Site, when=changed(lambda site: site.spec.thema))  # mistake: a field that is not there
Watch(Site, when=matching(lambda site: site.color))  # mistake: a field of another class
Watch(Site, when=matching(theme_of))  # mistake: a test gives a bool
Watch(Site, when=on(updated=lambda old: True))  # mistake: an update has two objects
Watch(Site, when=theme_of)  # mistake: a function is not a predicate
generation_changed & 1  # mistake: a number is not a predicate
generation_changed | theme_of  # mistake: nor is a function

# -- map functions

Watch(Theme, to=lambda reader, theme: [theme.color])  # mistake: keys, not names
Watch(Theme, to=lambda reader, theme: [Key("", theme.colour)])  # mistake: a field that is not there
Watch(Theme, to=lambda theme: [])  # mistake: the reader comes first
Watch(ConfigMap, to=sites_of)  # mistake: of another class
Watch(Theme, to=lambda reader, theme: [s.key for s in reader.list(Site, ALL, index="theme")])  # mistake: an index has a value
Controller(name="a", reconciler=Sites(), primary=Site, maps=[Watch(Theme, to=lambda reader, theme: [theme.color])])  # mistake: inside a list
Controller(name="a", reconciler=Sites(), primary=Site, maps=[Watch(ConfigMap, to=sites_of)])  # mistake: inside a list
Controller(name="a", reconciler=Sites(), primary=Site, maps=[ConfigMap])  # mistake: a class maps to nothing
Controller(name="a", reconciler=Sites(), primary=Site, owns=[Watch(ConfigMap, when=changed(lambda it: it.dta))])  # mistake: a field that is not there
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
Controller(name="a", reconciler=Sites(), primary=Site, writes=["configmaps"])  # mistake: a name is not a kind
