"""Declarations, mapping, and the counts of running reconciles."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from controller_bench import Calling, Site, Theme, child, site

from kubeshard import OTHER_CLUSTERS, when
from kubeshard.cache import Added, Deleted, Scope, Updated
from kubeshard.controller import BlockingReconciler, Context, Controller, Generator, Reconciler, Result, Watch
from kubeshard.controller.in_flight import Activity, InFlight
from kubeshard.controller.mapping import KeysOf, mapped_by, states, to_itself, to_owner
from kubeshard.controller.watch import narrowed
from kubeshard.core import ConfigMap, GroupKind, Key, ObjectMeta, OwnerReference, Selector, metadata_only
from kubeshard_lab.virtual_time import settle, virtual_time

A, B = Key("ns", "a"), Key("ns", "b")
SITE, THEME = Site.KIND, Theme.KIND


async def nothing(ctx: Any, obj: Any) -> None: ...


def controller(**options: Any) -> Controller[Any]:
    return Controller(**{"name": "site", "reconciler": Calling(nothing, None), "primary": Site, **options})


# -- declarations


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"name": "Site"}, "controller name 'Site'"),
        ({"name": ""}, "controller name ''"),
        ({"workers": 0}, "must be positive"),
        ({"reconcile_timeout": 0}, "must be positive"),
        ({"watches": [Watch(ConfigMap)]}, "needs a map function"),
        ({"owns": [Watch(ConfigMap, to=lambda cache, obj: [])]}, "belongs in watches"),
        ({"applies": [Watch(ConfigMap, to=lambda cache, obj: [])]}, "belongs in watches"),
        ({"primary": Watch(Site, to=lambda cache, obj: [])}, "belongs in watches"),
        ({"reads": [Watch(Theme, to=lambda cache, obj: [])]}, "in reads trigger nothing, so leave `when`"),
        ({"reads": [Watch(Theme, when=when.never)]}, "in reads trigger nothing, so leave `when`"),
        ({"reads": [Watch(Theme, clusters=OTHER_CLUSTERS)]}, "is read in the cluster of the primary objects"),
        ({"owns": [ConfigMap, Theme], "applies": [Theme]}, "Theme.* is in owns and in applies"),
        ({"reconciler": Generator(nothing)}, r"which kinds the Generator makes, .*applies=\["),
    ],
)
def test_a_controller_that_cannot_work_is_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        controller(**wrong)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"reconciler": Calling}, "is not a reconciler: give an instance"),
        pytest.param({"reconciler": object()}, "is not a reconciler: give an instance", id="an object"),
        ({"primary": "Site"}, "'Site' is not a kind"),
        ({"primary": ObjectMeta}, "ObjectMeta is not a kind"),
        ({"owns": ["ConfigMap"]}, "'ConfigMap' is not a kind"),
        ({"workers": "5"}, "controller site: workers='5' is not an int"),
        (
            {"reconcile_timeout": timedelta(minutes=1)},
            r"controller site: reconcile_timeout=datetime\.timedelta\(seconds=60\) is not a number of seconds",
        ),
        ({"owns": ConfigMap}, "owns takes a list"),
        ({"owns": metadata_only(ConfigMap)}, "owns takes a list"),
        ({"applies": ConfigMap}, "applies takes a list"),
        ({"applies": [metadata_only(ConfigMap)]}, "is compared whole, so give its class"),
        ({"watches": Watch(ConfigMap, to=lambda reader, obj: [])}, "watches takes a list"),
        ({"reads": ConfigMap}, "reads takes a list"),
        (
            {"grants": [ConfigMap]},
            r"is not of the type Grant: grants takes a list, as in grants=\[Grant.on\(",
        ),
        ({"maps": []}, r"Controller has no maps=: write watches=\["),
        ({"writes": [ConfigMap]}, r"Controller has no writes=: write grants=\[Grant.on\("),
        ({"indexes": ["theme"]}, "'theme' in indexes is not of the type Index: indexes takes a list"),
    ],
)
def test_what_is_no_reconciler_or_no_kind_is_refused_where_it_is_declared(
    wrong: dict[str, Any], says: str
) -> None:
    with pytest.raises(TypeError, match=says):
        controller(**wrong)


class Misspelt(Reconciler[Site]):
    async def reconsile(self, ctx: Context, site: Site) -> None: ...


class ObjectOnly(Reconciler[Site]):
    async def reconcile(self, site: Site) -> None: ...  # type: ignore[override] # the mistake


class KeyOnly(Reconciler[Site]):
    async def reconcile(self, ctx: Context, site: Site) -> None: ...
    async def gone(self, key: Key) -> None: ...  # type: ignore[override] # the mistake


class AwaitedByNobody(BlockingReconciler[Site]):
    async def reconcile(self, ctx: Context, site: Site) -> None: ...  # type: ignore[override] # the mistake


class Plain(Reconciler[Site]):
    def reconcile(self, ctx: Context, site: Site) -> None: ...  # type: ignore[override] # the mistake


def not_async(ctx: Context, site: Site) -> None: ...


async def object_only(site: Site) -> None: ...


class CalledWithTheObject:
    async def __call__(self, site: Site) -> None: ...


@pytest.mark.regression
@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"reconciler": not_async}, "not_async is not an `async def`"),
        ({"reconciler": lambda ctx, obj: None}, "<lambda> is not an `async def`"),
        ({"reconciler": Plain()}, "Plain.reconcile is not an `async def`"),
        ({"reconciler": object_only}, r"object_only takes other arguments than \(ctx, obj\)"),
        ({"reconciler": CalledWithTheObject()}, r"takes other arguments than \(ctx, obj\)"),
        ({"reconciler": Misspelt()}, "Misspelt has no method `reconcile`"),  # type: ignore[abstract] # the mistake
        ({"reconciler": BlockingReconciler()}, "BlockingReconciler has no method `reconcile`"),
        ({"reconciler": ObjectOnly()}, r"ObjectOnly.reconcile takes other arguments than \(ctx, obj\)"),
        ({"reconciler": KeyOnly()}, r"KeyOnly.gone takes other arguments than \(ctx, key\)"),
        (
            {"reconciler": AwaitedByNobody()},
            "AwaitedByNobody.reconcile is `async def`: derive from Reconciler",
        ),
    ],
)
def test_methods_that_would_fail_in_every_run_or_do_nothing_are_refused_where_they_are_declared(
    wrong: dict[str, Any], says: str
) -> None:
    with pytest.raises(TypeError, match=says):
        controller(**wrong)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "label_selector",
            r'write scope=Scope\(labels=Selector\.parse\("app=web"\)\) .*, or when=when\.label_selector',
        ),
        ("field_selector", "write scope=.*FieldSelector"),
        ("namespaces", "write scope=.*frozenset"),
        ("predicates", "write when="),
        ("mapping", "write to="),
    ],
)
def test_an_argument_of_another_function_says_what_to_write(name: str, says: str) -> None:
    given: dict[str, Any] = {name: "app=web"}
    with pytest.raises(TypeError, match=f"Watch has no {name}=: {says}"):
        Watch(ConfigMap, **given)


def test_what_cannot_be_watched_or_mapped_is_refused_where_the_watch_is_made() -> None:
    with pytest.raises(TypeError, match="'ConfigMap' is not a kind"):
        Watch("ConfigMap")  # type: ignore[arg-type] # the mistake
    with pytest.raises(
        TypeError, match=r"watch of ConfigMap.v1: the map function .* takes two arguments: a reader"
    ):
        Watch(ConfigMap, to=lambda obj: [])  # type: ignore[arg-type, misc] # the mistake


def test_a_class_in_maps_is_told_what_it_lacks() -> None:
    with pytest.raises(ValueError, match=r"ConfigMap.v1 in watches needs a map function"):
        controller(watches=[ConfigMap])


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_requeue_after_is_positive(seconds: float) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        Result(requeue_after=seconds)


@pytest.mark.parametrize("given", ["5", timedelta(seconds=5)])
def test_requeue_after_is_a_number_of_seconds(given: Any) -> None:
    with pytest.raises(TypeError, match=r"requeue_after=.* is not a number of seconds"):
        Result(requeue_after=given)


def test_a_wrapped_or_filtered_controller_is_a_copy() -> None:
    original = controller(primary=Watch(Site, when=when.generation_changed))
    assert original.filtered(when.never).primary_watch == Watch(Site, when=when.never)
    assert len(original.wrapped(lambda inner: inner).wrappers) == 1
    assert original.primary_watch.when is when.generation_changed
    assert original.wrappers == ()


def test_a_scope_is_narrowed_by_another() -> None:
    shard = Scope(labels=Selector.parse("shard=a"))
    mine = Scope(frozenset({"x", "y"}), Selector.parse("app=web"))
    both = narrowed(shard, mine)
    assert both == Scope(frozenset({"x", "y"}), Selector.parse("shard=a,app=web"))
    assert narrowed(both, Scope(frozenset({"y", "z"}))).namespaces == frozenset({"y"})


# -- mapping

FOREIGN = ConfigMap(
    metadata=ObjectMeta(
        name="c",
        namespace="ns",
        owner_references=(
            OwnerReference(api_version="other.com/v1", kind="Site", name="a", controller=True),
        ),
    )
)
OF_THEME = ConfigMap(
    metadata=ObjectMeta(
        name="c",
        namespace="ns",
        owner_references=(
            OwnerReference(api_version="example.com/v1", kind="Theme", name="t", controller=True),
        ),
    )
)

MAPPINGS = [
    ("itself", to_itself, Added(site("a")), [A]),
    ("itself: updated", to_itself, Updated(site("a"), site("a", 2)), [A]),
    ("owner, whatever its version", to_owner(SITE), Added(child("c", "a")), [A]),
    ("owner: deleted", to_owner(SITE), Deleted(child("c", "a")), [A]),
    ("owner: none", to_owner(SITE), Added(child("c")), []),
    ("owner: another group", to_owner(SITE), Added(FOREIGN), []),
    ("owner: not the controller", to_owner(SITE), Added(child("c", "a", controller=False)), []),
    (
        "any owner",
        to_owner(SITE, controller_only=False),
        Added(child("c", "a", "b", controller=False)),
        [A, B],
    ),
    ("old and new owner", to_owner(SITE), Updated(child("c", "a"), child("c", "b")), [A, B]),
    ("same owner once", to_owner(SITE), Updated(child("c", "a"), child("c", "a")), [A]),
    ("orphaned", to_owner(SITE), Updated(child("c", "a"), child("c")), [A]),
    ("cluster-scoped owner has no namespace", to_owner(THEME), Added(OF_THEME), [Key("", "t")]),
    (
        "map function: old and new, each key once",
        mapped_by(lambda _, obj: [A, Key("ns", obj.spec.theme)], None),  # type: ignore[arg-type]
        Updated(site("x", theme="b"), site("x", theme="d")),
        [A, B, Key("ns", "d")],
    ),
]


@pytest.mark.parametrize(
    ("keys_of", "delta", "keys"), [row[1:] for row in MAPPINGS], ids=[r[0] for r in MAPPINGS]
)
def test_mappings_give_the_keys_of_the_table(keys_of: KeysOf, delta: Any, keys: list[Key]) -> None:
    assert list(dict.fromkeys(key for state in states(delta) for key in keys_of(state))) == keys


# -- in flight

KIND = GroupKind("example.com", "Site")


@virtual_time
async def test_who_waits_no_longer_is_not_remembered() -> None:
    in_flight = InFlight()
    with Activity(in_flight, "", (KIND, A)):
        for _ in range(10):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(5):
                    await in_flight.idle(KIND, A)
        assert not any(in_flight._waiters.values())


@pytest.mark.regression
@virtual_time
async def test_what_ends_while_a_controller_is_waited_for_is_not_compared_with_all_that_still_acts() -> None:
    """With thousands of writes without an answer, the end of a process stood still for seconds."""
    compared = 0

    class Owner(str):
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str(self) == other

        __hash__ = str.__hash__

    in_flight = InFlight()
    acting = [Activity(in_flight, Owner("app"), (KIND, A.at(f"{number}"))) for number in range(100)]
    waits = asyncio.create_task(in_flight.ended("app"))
    await asyncio.sleep(0)
    compared = 0
    for each in acting:
        each.end()
    await waits
    assert compared <= 10 * len(acting)


@virtual_time
async def test_idle_waits_for_all_runs_of_the_object_and_no_others() -> None:
    in_flight = InFlight()
    ended = []

    async def run(key: Key, seconds: float) -> None:
        with Activity(in_flight, "", (KIND, key)):
            await asyncio.sleep(seconds)

    async def wait() -> None:
        await in_flight.idle(KIND, A)
        ended.append(asyncio.get_running_loop().time())

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(run(A, 3))
        tasks.create_task(run(A, 5))
        tasks.create_task(run(B, 100))
        await settle()
        assert in_flight.count(KIND, A) == 2
        tasks.create_task(wait())
    assert ended == [5]
    assert in_flight.count(KIND, A) == 0


@virtual_time
async def test_idle_returns_only_in_a_moment_without_runs() -> None:
    in_flight = InFlight()
    seen = []

    async def wait() -> None:
        await in_flight.idle(KIND, A)
        seen.append(in_flight.count(KIND, A))

    with Activity(in_flight, "", (KIND, A)):
        waiter = asyncio.create_task(wait())
        await settle()
    with Activity(in_flight, "", (KIND, A)):  # starts before the waiter gets its turn
        await asyncio.sleep(1)
        assert not waiter.done()
    await waiter
    assert seen == [0]


@virtual_time
async def test_a_run_that_fails_counts_no_longer() -> None:
    in_flight = InFlight()
    with pytest.raises(RuntimeError), Activity(in_flight, "", (KIND, A)):
        raise RuntimeError
    await in_flight.idle(KIND, A)
