"""Start order, stop order, and the right to act, on virtual time."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from manager_bench import Act, FakeMembership, Item, ManagerBench, item

from kubeshard import StatusPages
from kubeshard.cache import Scope
from kubeshard.controller import Context, Controller, Watch
from kubeshard.core import ConfigurationError, KubeObject, Lease, NotOurs, ObjectMeta, metadata_only
from kubeshard.manager import LeaderElection, Manager, RightLost, Runnable, run
from kubeshard.runtime.world import World
from kubeshard_lab.virtual_time import settle, virtual_time
from kubeshard_lab.virtual_world import VirtualHost

ELECTION = LeaderElection(name="leader", namespace="ns", identity="me")


def controller(name: str = "items", act: Act | None = None, **options: Any) -> Controller[Item]:
    return Controller(name=name, reconciler=act or Act(), primary=Item, **options)


def noting(order: list[str], name: str, *, fails: BaseException | None = None) -> Any:
    async def run() -> None:
        order.append(f"{name} started")
        try:
            if fails:
                raise fails
            await asyncio.sleep(10_000)
        finally:
            order.append(f"{name} stopped")

    return run


def opening(order: list[str], name: str) -> Any:
    @asynccontextmanager
    async def opened() -> AsyncIterator[None]:
        order.append(f"{name} opened")
        try:
            yield
        finally:
            order.append(f"{name} closed")

    return opened


class NotingServer:
    def __init__(self, order: list[str], fails: BaseException | None = None) -> None:
        self._run = noting(order, "server", fails=fails)

    async def run(self, world: World) -> None:
        await self._run()


async def started(manager: Manager) -> asyncio.Task[None]:
    task = asyncio.create_task(manager.run())
    await settle()
    return task


# -- order


@virtual_time
async def test_parts_start_in_order_and_stop_in_reverse() -> None:
    bench = ManagerBench(item())
    act = Act(5, bench.order)
    manager = bench.manager(
        [controller("sharded", act)],
        sharding=FakeMembership(bench.order),
        servers=[NotingServer(bench.order)],
        opens=[opening(bench.order, "pool"), opening(bench.order, "session")],
        runnables=[Runnable("runnable", noting(bench.order, "runnable"))],
    )
    run = await started(manager)
    manager.stop()
    await run
    assert bench.order == [
        "pool opened",
        "session opened",
        "server started",
        "prepared",
        "cache started",
        "held",
        "runnable started",
        "leaving",  # the run takes five seconds
        "reconcile done",
        "runnable stopped",
        "stopped cleanly",
        "left",
        "cache stopped",
        "server stopped",
        "session closed",
        "pool closed",
    ]


@virtual_time
async def test_what_is_opened_beside_the_controllers_can_use_the_managers_client() -> None:
    @asynccontextmanager
    async def looked() -> AsyncIterator[None]:
        found.append(manager.client.world)
        yield

    found: list[World] = []
    bench = ManagerBench()
    manager = bench.manager(opens=[looked])
    with pytest.raises(RuntimeError, match="has no client before it runs"):
        manager.client  # noqa: B018
    run = await started(manager)
    assert found == [manager.client.world]
    manager.stop()
    await run


@virtual_time
async def test_what_cannot_be_opened_ends_the_process_before_anything_works_and_the_rest_is_closed() -> None:
    @asynccontextmanager
    async def refused() -> AsyncIterator[None]:
        raise OSError("no database")
        yield

    bench, act = ManagerBench(item()), Act(5)
    opens = [opening(bench.order, "session"), refused, opening(bench.order, "never")]
    manager = bench.manager([controller("sharded", act)], opens=opens)
    with pytest.raises(OSError, match="no database"):
        await manager.run()
    assert bench.order == ["session opened", "session closed"]
    assert not act.began


@virtual_time
async def test_what_is_open_stays_open_until_all_runs_have_ended() -> None:
    bench, act = ManagerBench(item()), Act(20)
    manager = bench.manager([controller("sharded", act)], opens=[opening(bench.order, "pool")])
    run = await started(manager)
    manager.stop()
    await asyncio.sleep(10)
    assert "pool closed" not in bench.order
    await run
    assert bench.order[-1] == "pool closed"


@virtual_time
async def test_what_is_open_is_closed_when_the_process_fails() -> None:
    bench = ManagerBench()
    broken = Runnable("broken", noting(bench.order, "broken", fails=OSError("it broke")))
    manager = bench.manager(opens=[opening(bench.order, "pool")], runnables=[broken])
    with pytest.raises(OSError, match="it broke"):
        await manager.run()
    assert bench.order[-1] == "pool closed"


# -- graceful stop


@virtual_time
async def test_a_graceful_stop_lets_reconciles_end_and_gives_the_right_back() -> None:
    bench, act = ManagerBench(item("a"), item("b")), Act(20)
    manager = bench.manager([controller("sharded", act)], sharding=FakeMembership(bench.order))
    run = await started(manager)
    manager.stop()
    await run
    assert act.ended == ["done"]  # the second key was never started
    assert asyncio.get_running_loop().time() == 20
    assert bench.order[-3:] == ["stopped cleanly", "left", "cache stopped"]


@virtual_time
async def test_a_stop_that_waits_says_after_three_seconds_for_what(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    def told() -> list[str]:
        return [
            record.__dict__["fields"]["waits_for"]
            for record in caplog.records
            if record.msg == "Still stopping"
        ]

    bench = ManagerBench(item("a"))
    manager = bench.manager([controller("slow", Act(20)), controller("quick", Act())])
    run = await started(manager)
    await asyncio.sleep(1)
    manager.stop()
    await asyncio.sleep(2.9)
    assert told() == []
    await asyncio.sleep(0.2)
    assert told() == ["slow: ns/a for 4 s"]
    await asyncio.sleep(10)
    assert told() == ["slow: ns/a for 4 s", "slow: ns/a for 14 s"]
    await run
    assert len(told()) == 2


@virtual_time
async def test_a_stop_names_what_goes_on_though_it_was_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def stubborn() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(5)

    bench = ManagerBench()
    manager = bench.manager([], runnables=[Runnable("stubborn", stubborn)])
    run = await started(manager)
    manager.stop()
    await run
    (record,) = [record for record in caplog.records if record.msg == "Still stopping"]
    assert record.__dict__["fields"]["waits_for"] == "stubborn: cancelled, but still running"


@virtual_time
async def test_work_that_outlives_the_grace_period_is_cancelled_and_the_right_is_not_given_back() -> None:
    bench, act = ManagerBench(item()), Act(100)
    manager = bench.manager(
        [controller("sharded", act)], sharding=FakeMembership(bench.order), graceful_timeout=30
    )
    run = await started(manager)
    manager.stop()
    await run
    assert act.ended == ["cancelled"]
    assert asyncio.get_running_loop().time() == 30
    assert "stopped cleanly" not in bench.order
    assert bench.order[-2:] == ["left", "cache stopped"]


@virtual_time
async def test_without_grace_work_is_cancelled_at_once() -> None:
    bench, act = ManagerBench(item()), Act(100)
    manager = bench.manager([controller(act=act)], graceful_timeout=0)
    run = await started(manager)
    manager.stop()
    await run
    assert act.ended == ["cancelled"]
    assert asyncio.get_running_loop().time() == 0


@virtual_time
async def test_a_negative_grace_waits_as_long_as_it_takes() -> None:
    bench, act = ManagerBench(item()), Act(500)
    manager = bench.manager([controller(act=act)], graceful_timeout=-1)
    run = await started(manager)
    manager.stop()
    await run
    assert act.ended == ["done"]


@virtual_time
async def test_cancelling_run_stops_gracefully_and_again_at_once() -> None:
    bench, act = ManagerBench(item()), Act(20)
    run = await started(bench.manager([controller(act=act)]))
    run.cancel()
    await asyncio.sleep(5)
    assert not run.done()
    run.cancel()
    await asyncio.wait([run])
    assert run.cancelled()
    assert act.ended == ["cancelled"]
    assert asyncio.get_running_loop().time() == 5


@virtual_time
async def test_a_stop_while_waiting_for_the_right_to_work_ends_at_once() -> None:
    bench, act = ManagerBench(item()), Act()
    manager = bench.manager([controller("sharded", act)], sharding=FakeMembership(bench.order, wait=1000))
    run = await started(manager)
    manager.stop()
    await run
    assert asyncio.get_running_loop().time() == 0
    assert act.began == []


# -- failures


@virtual_time
async def test_a_failing_runnable_stops_everything_in_order_and_is_raised() -> None:
    bench, act = ManagerBench(item()), Act(10)
    boom = Runnable("boom", noting(bench.order, "boom", fails=RuntimeError("boom")))
    manager = bench.manager([controller("items", act)], runnables=[boom])
    run = asyncio.create_task(manager.run())
    with pytest.raises(RuntimeError, match="boom"):
        await run
    assert bench.order[-1] == "cache stopped"


@virtual_time
async def test_after_a_failure_the_right_to_work_is_not_given_back() -> None:
    bench = ManagerBench(item())

    class Broken:
        async def run(self, enqueue: Any) -> None:
            await asyncio.sleep(1)
            raise RuntimeError("source broke")

    broken = controller("sharded", Act(100), sources=[Broken()])
    manager = bench.manager([broken], sharding=FakeMembership(bench.order))
    with pytest.raises(RuntimeError, match="source broke"):
        await manager.run()
    assert "stopped cleanly" not in bench.order


@virtual_time
async def test_a_server_that_cannot_listen_ends_the_manager() -> None:
    bench = ManagerBench()
    manager = bench.manager(
        servers=[NotingServer(bench.order, ConfigurationError("port taken"))],
        sharding=FakeMembership(bench.order, wait=1000),
    )
    with pytest.raises(ConfigurationError, match="port taken"):
        await manager.run()


@virtual_time
@pytest.mark.parametrize(
    ("in_a_pod", "work", "grace", "seconds"),
    [
        (True, 0, 15, 5),
        (True, 7, 15, 7),
        (True, 0, 2, 2),
        (True, 0, 0, 0),
        (True, 0, -1, 5),
        (False, 0, 15, 0),
    ],
)
async def test_in_a_pod_servers_go_on_until_those_who_call_them_know_that_it_ends(
    in_a_pod: bool, work: float, grace: float, seconds: float
) -> None:
    """As openchoreo/openchoreo#3723: every rolling update failed requests of users."""
    bench = ManagerBench(item("a"))
    manager = bench.manager(
        [controller("web", Act(work))], servers=[NotingServer(bench.order)], graceful_timeout=grace
    )
    host = VirtualHost(in_namespace="ns" if in_a_pod else None)
    manager._declared.world = dataclasses.replace(bench.client.world, host=host)
    run = await started(manager)
    manager.stop()
    await run
    assert asyncio.get_running_loop().time() == seconds
    assert bench.order[-2:] == ["cache stopped", "server stopped"]


def in_a_pod(bench: ManagerBench, **options: Any) -> Manager:
    manager = bench.manager([controller("sharded")], servers=[NotingServer(bench.order)], **options)
    manager._declared.world = dataclasses.replace(bench.client.world, host=VirtualHost(in_namespace="ns"))
    return manager


@virtual_time
async def test_in_a_pod_that_waits_for_its_lease_servers_go_on_as_well() -> None:
    """It is ready, so nodes lead requests to it."""
    bench = ManagerBench()
    manager = in_a_pod(bench, sharding=FakeMembership(bench.order, wait=1000))
    run = await started(manager)
    manager.stop()
    await run
    assert asyncio.get_running_loop().time() == 5
    assert bench.order[-2:] == ["cache stopped", "server stopped"]


@virtual_time
async def test_who_is_cancelled_twice_does_not_wait_for_those_who_call_its_servers() -> None:
    for membership in None, FakeMembership([], wait=1000):
        run = await started(in_a_pod(ManagerBench(), sharding=membership))
        began = asyncio.get_running_loop().time()
        for _ in range(2):
            run.cancel()
            await settle()
        assert run.done()
        assert asyncio.get_running_loop().time() == began


@virtual_time
async def test_what_every_stop_waits_for_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    manager = in_a_pod(ManagerBench())
    run = await started(manager)
    manager.stop()
    await run
    assert asyncio.get_running_loop().time() == 5
    assert "Still stopping" not in [record.msg for record in caplog.records]


@virtual_time
async def test_the_ring_is_not_told_that_a_shard_leaves_which_has_left() -> None:
    bench = ManagerBench()
    manager = in_a_pod(bench, sharding=FakeMembership(bench.order))
    run = await started(manager)
    manager.stop()
    await run
    assert asyncio.get_running_loop().time() == 5
    assert "leaving" not in bench.order


# -- losing the right


@virtual_time
async def test_losing_the_right_cancels_work_at_once_without_grace() -> None:
    bench, act = ManagerBench(item()), Act(100)
    membership = FakeMembership(bench.order)
    run = await started(bench.manager([controller("sharded", act)], sharding=membership))
    await asyncio.sleep(3)
    assert membership.held_lease is not None
    membership.held_lease.loss.set_result("the Lease was seized")
    with pytest.raises(RightLost, match="lost membership: the Lease was seized"):
        await run
    assert asyncio.get_running_loop().time() == 3
    assert act.ended == ["cancelled"]
    assert "stopped cleanly" not in bench.order


@virtual_time
async def test_nothing_begins_while_the_right_is_about_to_end() -> None:
    bench, act = ManagerBench(item()), Act()
    membership = FakeMembership(bench.order)
    run = await started(bench.manager([controller("sharded", act)], sharding=membership))
    assert membership.held_lease is not None
    membership.held_lease.gate.close()
    await bench.cache.tell(item("b", 2))
    await asyncio.sleep(5)
    assert len(act.began) == 1
    membership.held_lease.gate.open()
    await settle()
    assert len(act.began) == 2
    run.cancel()


@virtual_time
async def test_the_health_gate_is_given_and_says_fit() -> None:
    bench = ManagerBench(item())
    membership = FakeMembership(bench.order)
    run = await started(bench.manager([controller("sharded")], sharding=membership))
    await asyncio.sleep(100)
    assert membership.health() is None
    run.cancel()


# -- leadership


@virtual_time
async def test_only_what_needs_leadership_waits_for_it() -> None:
    bench = ManagerBench(item())
    free, gated = Act(), Act()
    holder = {"holderIdentity": "other", "leaseDurationSeconds": 15}
    bench.server.leases["/apis/coordination.k8s.io/v1/namespaces/ns/leases/leader"] = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "leader", "namespace": "ns", "resourceVersion": "1"},
        "spec": holder,
    }
    manager = bench.manager(
        [controller("free", free, needs_leadership=False), controller("gated", gated)],
        leader_election=ELECTION,
    )
    run = await started(manager)
    await asyncio.sleep(10)
    assert len(free.began) == 1
    assert gated.began == []
    await asyncio.sleep(15)
    assert len(gated.began) == 1
    manager.stop()
    await run
    assert bench.server.holders == [""]


@virtual_time
async def test_a_candidate_has_its_caches_filled_before_it_leads() -> None:
    bench, act = ManagerBench(item()), Act()
    bench.server.leases["/apis/coordination.k8s.io/v1/namespaces/ns/leases/leader"] = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "leader", "namespace": "ns", "resourceVersion": "1"},
        "spec": {"holderIdentity": "other", "leaseDurationSeconds": 1000},
    }
    manager = bench.manager([controller(act=act)], leader_election=ELECTION)
    run = await started(manager)
    await asyncio.sleep(10)
    assert manager.cache.get(Item, item().metadata.name, item().metadata.namespace) is not None
    assert act.began == []
    manager.stop()
    await run


@virtual_time
async def test_a_candidate_stops_at_once() -> None:
    bench, act = ManagerBench(item()), Act()
    bench.server.leases["/apis/coordination.k8s.io/v1/namespaces/ns/leases/leader"] = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "leader", "namespace": "ns", "resourceVersion": "1"},
        "spec": {"holderIdentity": "other", "leaseDurationSeconds": 1000},
    }
    manager = bench.manager([controller(act=act)], leader_election=ELECTION)
    run = await started(manager)
    manager.stop()
    await run
    assert asyncio.get_running_loop().time() == 0
    assert bench.server.holders == ["other"]


@virtual_time
async def test_a_leader_whose_work_hangs_does_not_give_the_lease_back() -> None:
    bench = ManagerBench(item())
    manager = bench.manager([controller(act=Act(1000))], leader_election=ELECTION, graceful_timeout=10)
    run = await started(manager)
    manager.stop()
    await run
    assert bench.server.holders == ["me"]


@virtual_time
async def test_losing_leadership_ends_the_process_at_once() -> None:
    bench, act = ManagerBench(item()), Act(1000)
    run = await started(bench.manager([controller(act=act)], leader_election=ELECTION))
    await asyncio.sleep(5)
    for lease in bench.server.leases.values():
        lease["spec"]["holderIdentity"] = "thief"
        lease["metadata"]["resourceVersion"] = "99"

    async def refuse(request: Any) -> Any:
        from manager_bench import _status

        return await original(request) if request.method == "GET" else _status(409, "Conflict")

    original = bench.server.request
    bench.server.request = refuse  # type: ignore[method-assign]
    with pytest.raises(RightLost, match="lost leadership"):
        await run
    assert act.ended == ["cancelled"]
    assert asyncio.get_running_loop().time() < 10


@virtual_time
async def test_a_leader_stops_with_the_shard_lease_given_back_only_if_elected_work_ended_too() -> None:
    bench = ManagerBench(item())
    manager = bench.manager(
        [controller("sharded"), controller("elected", Act(1000))],
        sharding=FakeMembership(bench.order),
        leader_election=ELECTION,
        graceful_timeout=5,
    )
    run = await started(manager)
    manager.stop()
    await run
    assert "stopped cleanly" not in bench.order


# -- mistakes


def test_names_of_controllers_are_unique() -> None:
    with pytest.raises(ValueError, match="several controllers are named items"):
        Manager([controller(), controller()])


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"controllers": controller()}, r"takes a list of controllers: Manager\(\[items\]\)"),
        ({"controllers": [Act()]}, "is not a Controller"),
        ({"leader_election": True}, r"takes a LeaderElection\(name=..., namespace=...\)"),
        ({"servers": NotingServer([])}, r"servers takes a list: servers=\[NotingServer\(...\)\]"),
        (
            {"opens": [opening([], "pool")()]},
            r"opens takes functions .*: opens=\[pool\], not opens=\[pool\(\)\]",
        ),
        ({"sharding": "items"}, r"takes a Sharding: Sharding\('items'\)"),
    ],
)
def test_what_a_manager_cannot_take_is_refused_with_what_to_write(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(TypeError, match=says):
        Manager(**wrong)


@pytest.mark.parametrize("name", ["", "My Operator", "my_operator"])
def test_a_name_that_no_lease_can_have_is_refused_where_it_is_declared(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"leader election: '{name}' is not a valid Lease name"):
        LeaderElection(name=name)


class Unreadable(KubeObject, group="example.com", version="v1"):
    spec: NoSuchClass | None = None  # type: ignore[name-defined] # noqa: F821 # the mistake


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (
            {"controllers": [controller(owns=[Unreadable])]},
            "class Unreadable: name 'NoSuchClass' is not defined",
        ),
        (
            {"status_pages": StatusPages(metrics_address=8080)},
            "metrics_address: 8080 is not text such as ':8080'",
        ),
    ],
)
def test_a_configuration_that_cannot_work_ends_in_one_line(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        Manager(**wrong)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (
            {"metrics_address": None},
            r"no metrics_address=: write status_pages=StatusPages\(metrics_address=",
        ),
        ({"scopes": {}}, r"Manager has no scopes=: write cache=CacheSettings\(scopes="),
        ({"status_pages": ":8080"}, r"status_pages takes StatusPages\(metrics_address=..., ...\), or None"),
        ({"cache": Scope()}, r"cache takes CacheSettings\(scopes=..., ...\) or a Cache"),
    ],
)
def test_a_wrong_argument_says_what_to_write(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(TypeError, match=says):
        Manager(**wrong)


def test_only_a_manager_can_be_run() -> None:
    with pytest.raises(TypeError, match="run takes a Manager, not Controller"):
        run(controller())  # type: ignore[arg-type] # the mistake


async def test_run_in_an_event_loop_says_what_to_write_there() -> None:
    with pytest.raises(RuntimeError, match=r"use `await manager.run\(\)`"):
        run(Manager([controller()]))


class OtherItem(KubeObject, group="example.com", version="v1", kind="Item"):
    pass


@pytest.mark.regression
def test_controllers_that_read_one_kind_as_two_classes_are_refused_before_anything_runs() -> None:
    def reads(target: Any) -> Controller[Any]:
        return dataclasses.replace(controller("other"), primary=target)

    with pytest.raises(ConfigurationError, match=r"bench\.Item.*lifecycle\.OtherItem.*use one class"):
        Manager([controller(), reads(OtherItem)])
    for allowed in (Item, metadata_only(OtherItem), Watch(OtherItem, scope=Scope(frozenset({"x"})))):
        Manager([controller(), reads(allowed)])


@pytest.mark.regression
@pytest.mark.parametrize("field", ["metrics_address", "health_address"])
def test_a_wrong_address_is_refused_at_once_with_the_name_of_its_field(field: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{field}: bind address 'localhost' is not of the form"):
        Manager(status_pages=StatusPages(**{field: "localhost"}))  # type: ignore[arg-type]


@virtual_time
async def test_a_shard_refuses_to_run_in_each_process_what_needs_leadership() -> None:
    bench = ManagerBench()
    manager = bench.manager([controller("other")], sharding=FakeMembership(bench.order))
    with pytest.raises(ConfigurationError, match="other needs leadership and is not sharded"):
        await manager.run()


@virtual_time
async def test_elected_controllers_write_only_while_this_process_leads() -> None:
    bench, wrote = ManagerBench(item()), []

    class Writing(Act):
        async def reconcile(self, ctx: Context, obj: Item, /) -> None:
            await ctx.client.create(Lease(metadata=ObjectMeta(name="written", namespace="ns")))
            wrote.append(ctx.client)

    run = await started(bench.manager([controller(act=Writing())], leader_election=ELECTION))
    assert len(wrote) == 1
    run.cancel()
    await asyncio.wait([run])
    with pytest.raises(NotOurs, match="no longer the leader"):
        await wrote[0].create(Lease(metadata=ObjectMeta(name="late", namespace="ns")))


@virtual_time
async def test_the_end_is_bounded_for_whoever_enforces_it() -> None:
    bench = ManagerBench(item())
    bounds: list[float | None] = []
    membership = FakeMembership(bench.order)
    manager = bench.manager([controller("sharded")], sharding=membership, graceful_timeout=30)
    manager.on_ending(bounds.append)
    run = await started(manager)
    assert membership.held_lease is not None
    manager.stop()
    await run
    assert bounds == [40]


@virtual_time
async def test_after_a_loss_the_end_is_bounded_by_seconds() -> None:
    bench = ManagerBench(item())
    bounds: list[float | None] = []
    membership = FakeMembership(bench.order)
    manager = bench.manager([controller("sharded")], sharding=membership)
    manager.on_ending(bounds.append)
    run = await started(manager)
    assert membership.held_lease is not None
    membership.held_lease.loss.set_result("seized")
    with pytest.raises(RightLost):
        await run
    assert bounds == [3]
