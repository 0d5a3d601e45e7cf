"""Controllers are added and removed while a manager runs, with the embedded server's rules on virtual time."""

from __future__ import annotations

import asyncio
import gc
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from manager_bench import FakeMembership, Item, ManagerBench

from kubeshard.cache import UndeclaredKind
from kubeshard.client import Client, ClusterConfig
from kubeshard.controller import Context, Controller, EveryKind, Index, TimerSource
from kubeshard.core import ConfigMap, Kind, ObjectMeta, PartialObject, Secret, Unavailable, metadata_only
from kubeshard.manager import LeaderElection, Manager
from kubeshard.manager.every_kind import is_unknown
from kubeshard_apiserver import ApiServer, InMemoryTransport
from kubeshard_apiserver.front.handlers import Front
from kubeshard_lab.virtual_time import settle, virtual_time
from kubeshard_lab.virtual_world import virtual_world

DEFAULT = "default"
ELECTION = LeaderElection(name="leader", namespace=DEFAULT, identity="me")


class Seen:
    """A reconciler that records its keys, and takes `seconds`."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.began: list[str] = []
        self.ended: list[str] = []

    async def __call__(self, ctx: Context, obj: Any) -> None:
        self.began.append(obj.metadata.name)
        await asyncio.sleep(self.seconds)
        self.ended.append(obj.metadata.name)


def controller(name: str, act: Seen, primary: Any = ConfigMap, **options: Any) -> Controller[Any]:
    return Controller(name=name, reconciler=act, primary=primary, **options)


@asynccontextmanager
async def cluster() -> AsyncIterator[Client]:
    world = virtual_world()
    transport = InMemoryTransport(Front(ApiServer(world=world)))
    async with Client(ClusterConfig("http://sim"), transport=transport, world=world) as client:
        await client.create(ConfigMap(metadata=ObjectMeta(name="one", namespace=DEFAULT)))
        yield client


@asynccontextmanager
async def running(client: Client, *controllers: Any, **options: Any) -> AsyncIterator[Manager]:
    manager = Manager(controllers, client=client, status_pages=None, **options)
    run = asyncio.create_task(manager.run())
    await asyncio.sleep(5)
    yield manager
    manager.stop()
    await run


@virtual_time
async def test_a_controller_added_before_the_start_begins_with_the_others() -> None:
    async with cluster() as client:
        seen = Seen()
        manager = Manager(client=client, status_pages=None)
        manager.add(controller("maps", seen))
        run = asyncio.create_task(manager.run())
        await asyncio.sleep(5)
        assert seen.ended == ["one"]
        manager.stop()
        await run


@virtual_time
async def test_a_controller_added_to_a_running_manager_begins_at_once_with_its_informers() -> None:
    async with cluster() as client, running(client) as manager:
        seen = Seen()
        manager.add(controller("maps", seen))
        await asyncio.sleep(5)
        assert seen.ended == ["one"]
        await client.create(ConfigMap(metadata=ObjectMeta(name="two", namespace=DEFAULT)))
        await asyncio.sleep(1)
        assert seen.ended == ["one", "two"]


@virtual_time
async def test_a_name_that_is_taken_is_refused_and_nothing_changes() -> None:
    async with cluster() as client, running(client, controller("maps", Seen())) as manager:
        with pytest.raises(ValueError, match="several controllers are named maps"):
            manager.add(controller("maps", Seen(), Secret))
        with pytest.raises(UndeclaredKind):
            manager.cache.informer(Secret)


@virtual_time
async def test_an_index_that_another_controller_has_otherwise_is_refused_and_nothing_changes() -> None:
    one, other = (Index(ConfigMap, "name", lambda obj: [obj.metadata.name]) for _ in range(2))
    async with cluster() as client, running(client, controller("maps", Seen(), indexes=[one])) as manager:
        with pytest.raises(ValueError, match="maps and second have different indexes 'name' of ConfigMap"):
            manager.add(controller("second", Seen(), Secret, owns=[ConfigMap], indexes=[other]))
        with pytest.raises(UndeclaredKind):
            manager.cache.informer(Secret)
        await manager.remove("maps")
        with pytest.raises(UndeclaredKind):
            manager.cache.informer(ConfigMap)


@virtual_time
async def test_a_run_that_removes_its_own_controller_is_told_that_it_cannot_wait_for_itself() -> None:
    told: list[str] = []
    managers: list[Manager] = []

    async def removes(ctx: Context, obj: ConfigMap) -> None:
        try:
            await managers[0].remove("maps")
        except RuntimeError as error:
            told.append(str(error))

    itself = Controller(name="maps", reconciler=removes, primary=ConfigMap)
    async with cluster() as client, running(client, itself) as manager:
        managers.append(manager)
        await client.create(ConfigMap(metadata=ObjectMeta(name="again", namespace="default")))
        await asyncio.sleep(5)
        assert told[0].startswith("a run of controller maps cannot remove the controller or its cluster")
        async with asyncio.timeout(1):
            await manager.remove("maps")


@virtual_time
async def test_every_task_of_a_running_manager_has_a_name_of_its_own() -> None:
    def each(kind: Kind) -> Controller[Any] | None:
        return None

    for_election = controller("maps", Seen(10.0), Secret, owns=[ConfigMap], sources=[TimerSource(1.0, list)])
    async with (
        cluster() as client,
        running(client, for_election, EveryKind(each), leader_election=ELECTION) as manager,
    ):
        manager.add(controller("second", Seen(1000.0), needs_leadership=False))
        await asyncio.sleep(30)
        names = {task.get_name() for task in asyncio.all_tasks() - {asyncio.current_task()}}
        assert len(names) > 10
        assert {name for name in names if re.fullmatch(r"Task-\d+", name)} <= {managers_own_task(manager)}


@pytest.mark.parametrize(
    ("served", "silent", "unknown"),
    [
        (None, ["other.example/v1"], False),
        (None, ["example.com/v2"], True),
        ("v2", ["example.com/v1"], True),
        ("v2", ["example.com/v1alpha1"], False),
        ("v2", [], False),
    ],
)
def test_a_silent_version_holds_back_only_what_it_may_have(
    served: str, silent: list[str], unknown: bool
) -> None:
    def widget(version: str) -> Kind:
        return Kind("example.com", version, "Widget", "widgets", True)

    assert is_unknown(widget("v1"), widget(served) if served else None, silent) is unknown


def managers_own_task(manager: Manager) -> str:
    """The task in which the test runs `manager.run()`."""
    return next(
        task.get_name()
        for task in asyncio.all_tasks()
        if getattr(task.get_coro(), "__qualname__", "") == "Manager.run"
    )


def test_two_servers_of_one_name_are_refused() -> None:
    class Named:
        name = "apps"

        async def run_with(self, client: Client) -> None: ...

        def unready(self) -> str | None:
            return None

    with pytest.raises(ValueError, match="two servers are named apps"):
        Manager(servers=[Named(), Named()])


@virtual_time
async def test_a_controller_that_needs_leadership_makes_its_manager_a_candidate_when_it_comes() -> None:
    async with cluster() as client, running(client, leader_election=ELECTION) as manager:
        seen = Seen()
        manager.add(controller("maps", seen))
        await asyncio.sleep(30)
        assert seen.ended == ["one"]


@virtual_time
async def test_while_somebody_else_leads_a_controller_that_needs_leadership_waits() -> None:
    async with cluster() as client, running(client, controller("a", Seen()), leader_election=ELECTION):
        other = LeaderElection(name="leader", namespace=DEFAULT, identity="other")
        async with running(client, leader_election=other) as second:
            seen = Seen()
            second.add(controller("maps", seen))
            await asyncio.sleep(120)
            assert not seen.began


@virtual_time
async def test_a_removed_controller_ends_its_runs_begins_no_more_and_its_informers_stop() -> None:
    async with cluster() as client:
        seen = Seen(10.0)
        async with running(client, controller("maps", seen)) as manager:
            await manager.remove("maps")
            assert (seen.began, seen.ended) == (["one"], ["one"])
            with pytest.raises(UndeclaredKind):
                manager.cache.informer(ConfigMap)
            await client.create(ConfigMap(metadata=ObjectMeta(name="two", namespace=DEFAULT)))
            await asyncio.sleep(60)
            assert seen.began == ["one"]
            assert not manager.snapshot().controllers


@virtual_time
async def test_informers_that_others_use_stay() -> None:
    async with cluster() as client:
        seen = Seen()
        async with running(client, controller("a", Seen()), controller("b", seen)) as manager:
            await manager.remove("a")
            await client.create(ConfigMap(metadata=ObjectMeta(name="two", namespace=DEFAULT)))
            await asyncio.sleep(1)
            assert seen.ended == ["one", "two"]


@virtual_time
async def test_a_removed_controller_may_come_back_under_its_name() -> None:
    async with cluster() as client, running(client, controller("maps", Seen())) as manager:
        for _ in range(3):
            seen = Seen()
            await manager.remove("maps")
            manager.add(controller("maps", seen))
            await asyncio.sleep(5)
            assert seen.ended == ["one"]


@virtual_time
async def test_a_controller_that_comes_back_has_its_indexes() -> None:
    """Its new informer may have the memory address of the former one."""
    found: list[int] = []

    async def count(ctx: Context, obj: ConfigMap) -> None:
        found.append(len(await ctx.list(ConfigMap, index=("name", "one"))))

    by_name = Index(ConfigMap, "name", lambda obj: [obj.metadata.name])
    counting = Controller(name="maps", reconciler=count, primary=ConfigMap, indexes=[by_name])
    async with cluster() as client, running(client, counting) as manager:
        for times in range(2, 12):
            await manager.remove("maps")
            gc.collect(1)  # all that it is made of is young; the other tests' objects are many
            manager.add(counting)
            await asyncio.sleep(5)
            assert found == [1] * times


@virtual_time
async def test_the_indexes_of_a_removed_controller_go_and_those_that_others_share_stay() -> None:
    """Including those by which desired sets are found."""
    shared = Index(ConfigMap, "shared", lambda obj: [obj.metadata.name])
    found: list[int] = []

    def made(name: str, *own: Index[ConfigMap]) -> Controller[Any]:
        async def act(ctx: Context, obj: Any) -> None:
            found.append(len(await ctx.list(ConfigMap, index=("shared", "one"))))
            await ctx.apply(owner=obj)

        return Controller(name=name, reconciler=act, primary=ConfigMap, indexes=[shared, *own])

    async with cluster() as client, running(client, made("stays")) as manager:
        store = manager.cache.informer(ConfigMap).store
        before = set(store._indexes)
        for times in range(2, 6):
            manager.add(made("goes", Index(ConfigMap, "own", lambda obj: [obj.metadata.name])))
            await asyncio.sleep(5)
            assert (len(found), set(found)) == (times, {1})
            await manager.remove("goes")
            assert set(store._indexes) == before


@virtual_time
async def test_a_removal_that_is_cancelled_cancels_the_runs_and_the_controller_is_gone() -> None:
    async with cluster() as client:
        seen = Seen(1000.0)
        async with running(client, controller("maps", seen)) as manager:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(10):
                    await manager.remove("maps")
            assert (seen.began, seen.ended) == (["one"], [])
            assert not manager.snapshot().controllers
            with pytest.raises(UndeclaredKind):
                manager.cache.informer(ConfigMap)
            manager.add(controller("maps", again := Seen()))
            await asyncio.sleep(5)
            assert again.ended == ["one"]


@virtual_time
async def test_two_removals_of_one_controller_wait_for_the_same_end() -> None:
    async with cluster() as client:
        seen, other = Seen(10.0), Seen()
        async with running(client, controller("maps", seen), controller("other", other)) as manager:
            await asyncio.gather(manager.remove("maps"), manager.remove("maps"))
            assert seen.ended == ["one"]
            await client.create(ConfigMap(metadata=ObjectMeta(name="two", namespace=DEFAULT)))
            await asyncio.sleep(5)
            assert other.ended == ["one", "two"]


@virtual_time
async def test_a_stop_during_a_removal_ends_within_the_grace_period() -> None:
    async with cluster() as client:
        seen = Seen(1000.0)
        async with running(client, controller("maps", seen), graceful_timeout=30) as manager:
            removal = asyncio.create_task(manager.remove("maps"))
            await settle()
            began = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - began == pytest.approx(30, abs=1)
        removal.cancel()
        await asyncio.wait([removal])


@virtual_time
async def test_what_is_not_there_and_what_a_ring_shards_cannot_be_removed() -> None:
    bench = ManagerBench()
    sharded = controller("sharded", Seen(), Item)
    manager = bench.manager([sharded], sharding=FakeMembership(bench.order))
    run = asyncio.create_task(manager.run())
    await settle()
    with pytest.raises(KeyError):
        await manager.remove("absent")
    with pytest.raises(ValueError, match="belongs to a ring"):
        await manager.remove("sharded")
    manager.stop()
    await run


# -- every kind


def definition(plural: str, kind: str, group: str = "example.com") -> dict[str, Any]:
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [version],
        },
    }


WIDGET = Kind("example.com", "v1", "Widget", "widgets")
CRD = Kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", False)


def of_examples(act: Callable[[Context, PartialObject], Awaitable[None]]) -> EveryKind:
    def make(kind: Kind) -> Controller[Any] | None:
        if kind.group != "example.com":
            return None
        return Controller(name=f"every-{kind.plural}", reconciler=act, primary=metadata_only(kind))

    return EveryKind(make)


def widget(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": name, "namespace": DEFAULT},
    }


@virtual_time
async def test_a_kind_that_comes_gets_its_controller_within_seconds_and_loses_it_when_it_goes() -> None:
    async with cluster() as client:
        seen = Seen()
        async with running(client, of_examples(seen)) as manager:
            assert not manager.snapshot().controllers
            await client.apply(definition("widgets", "Widget"))
            await asyncio.sleep(10)
            await client.apply(widget("first"))
            await asyncio.sleep(1)
            assert seen.ended == ["first"]
            await client.delete(metadata_only(CRD), "widgets.example.com")
            await asyncio.sleep(15)
            assert not manager.snapshot().controllers
            assert "Widget" not in str(manager.cache.informers)
            await client.apply(definition("widgets", "Widget"))
            await asyncio.sleep(15)
            await client.apply(widget("second"))
            await asyncio.sleep(5)
            assert seen.ended[-1] == "second"


@virtual_time
async def test_kinds_that_are_there_at_the_start_get_theirs_and_objects_know_their_kind() -> None:
    kinds = []

    async def act(ctx: Context, obj: PartialObject) -> None:
        kinds.append(obj.KIND)

    async with cluster() as client:
        await client.apply(definition("widgets", "Widget"))
        await asyncio.sleep(5)
        await client.apply(widget("first"))
        async with running(client, of_examples(act)):
            await asyncio.sleep(5)
            assert kinds == [WIDGET]


@virtual_time
async def test_a_maker_that_raises_costs_one_kind_its_controller_and_nothing_else() -> None:
    def make(kind: Kind) -> Controller[Any] | None:
        if kind.kind == "Secret":
            raise RuntimeError("no")
        return controller("maps", seen) if kind.kind == "ConfigMap" else None

    seen = Seen()
    async with cluster() as client, running(client, EveryKind(make)):
        await asyncio.sleep(5)
        assert seen.ended == ["one"]


@virtual_time
async def test_a_run_that_hangs_keeps_no_other_kind_from_coming_or_going() -> None:
    async with cluster() as client:
        seen = Seen(100_000.0)
        async with running(client, of_examples(seen), graceful_timeout=0) as manager:
            await client.apply(definition("widgets", "Widget"))
            await asyncio.sleep(10)
            await client.apply(widget("first"))
            await asyncio.sleep(1)
            await client.delete(metadata_only(CRD), "widgets.example.com")
            await asyncio.sleep(15)
            await client.apply(definition("gadgets", "Gadget"))
            await asyncio.sleep(15)
            assert "every-gadgets" in [each.name for each in manager.snapshot().controllers]


@virtual_time
async def test_a_server_that_does_not_answer_removes_nothing() -> None:
    async with cluster() as client:
        await client.apply(definition("widgets", "Widget"))
        await asyncio.sleep(5)
        async with running(client, of_examples(Seen())) as manager:
            await asyncio.sleep(5)
            real = client._connection.exchange

            async def out(*_: Any, **__: Any) -> Any:
                raise Unavailable("an outage")

            client._connection.exchange = out  # type: ignore[method-assign]
            await asyncio.sleep(600)
            assert [each.name for each in manager.snapshot().controllers] == ["every-widgets"]
            client._connection.exchange = real  # type: ignore[method-assign]


@virtual_time
async def test_a_version_that_the_server_does_not_tell_about_for_a_while_changes_no_controller() -> None:
    kinds: list[Kind] = []

    def make(kind: Kind) -> Controller[Any] | None:
        if kind.group != "example.com":
            return None
        kinds.append(kind)
        return Controller(name="widgets", reconciler=Seen(), primary=metadata_only(kind))

    two_versions = definition("widgets", "Widget")
    (version,) = two_versions["spec"]["versions"]
    two_versions["spec"]["versions"] = [version, {**version, "name": "v1beta1", "storage": False}]
    async with cluster() as client:
        await client.apply(two_versions)
        await asyncio.sleep(5)
        async with running(client, EveryKind(make)) as manager:
            real = client._connection.exchange

            async def without_v1(request: Any, *rest: Any, **options: Any) -> Any:
                if request.target.partition("?")[0] == "/apis/example.com/v1":
                    raise Unavailable("for a while")
                return await real(request, *rest, **options)

            client._connection.exchange = without_v1  # type: ignore[method-assign]
            await asyncio.sleep(300)
            assert kinds == [WIDGET]
            assert [each.name for each in manager.snapshot().controllers] == ["widgets"]
            client._connection.exchange = real  # type: ignore[method-assign]
