"""A ring whose elected instance is the sharder, without a service, a webhook or a ControllerRing; and the same ring
while a sharder service also works on it.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
import yaml
from prometheus_client import CollectorRegistry
from tiers import further

from kubeshard.controller import Context, Controller, Reconciler, Result
from kubeshard.controller.dependents import ensure
from kubeshard.core import ConfigMap, ObjectMeta
from kubeshard.core.builtin import Lease
from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard.core.patches import MergePatch
from kubeshard.core.selectors import LabelSelector
from kubeshard.leases.held_lease import HeldLease
from kubeshard.manager.config_file import Duration
from kubeshard.manager.leader_election import LeaderElector
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard.shard.settings import SharderSettings
from kubeshard.sharder.assignments import Assignments
from kubeshard.sharder.config import ControllersConfig, SharderConfig, SharderControllerConfig
from kubeshard.sharder.in_manager import AFTER_FAILURE
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.crd import controller_ring_crd
from kubeshard.sharding.hash_ring import HashRing
from kubeshard.sharding.names import shard_label
from kubeshard.sharding.schedule import FOLLOW_MAIN, SETTLE
from kubeshard_apiserver import User
from kubeshard_lab.simulation.cluster import SimulatedCluster, Thing, Touch, simulate
from kubeshard_lab.simulation.processes import Network, Process

pytestmark = pytest.mark.regression

SHARDS = ("s0", "s1", "s2")
CRD = "controllerrings.sharding.timebertt.dev"
LEASES = GroupResource("coordination.k8s.io", "leases")
WEBHOOKS = GroupResource("admissionregistration.k8s.io", "mutatingwebhookconfigurations")


class Team:
    """Shards that take some time over each object, and a record of shards that worked on an object together."""

    def __init__(self, world: SimulatedCluster) -> None:
        self.world = world
        self.working: dict[str, set[str]] = {}
        self.together: list[tuple[float, str, str]] = []
        self.assigned: list[str] = []
        """The process of each sharder's write to an object that took effect."""
        self.watched: set[str] = set()
        """The watches of sharders on sharded kinds."""
        world.observers.append(self._see)

    def shard(self, name: str, process: str = "", *, mode: str = "both", **more: Any) -> Process:
        process = process or name
        work = Slow(self, process)
        return self.world.shard(name, work, process=process, workers=20, sharding={"mode": mode}, **more)

    @property
    def leader(self) -> str:
        """The holder of the Lease of the ring's sharder; "" if there is none."""
        lease = self.world.objects("coordination.k8s.io", "leases").get(Key("ops", "sharder-r"))
        return str(lease["spec"]["holderIdentity"]).rpartition("_")[0] if lease else ""

    def settled(self, *shards: str) -> bool:
        """Whether every Thing and its child are on the shard that the ring of these shards chooses."""
        ring, children = HashRing(sorted(shards)), self.world.owners("", "configmaps")
        owners = self.world.owners()
        return not self.world.draining() and all(
            owner == ring.owner(f"sim.example/Thing/team/{name}") and children.get(f"c-{name}") == owner
            for name, owner in owners.items()
        )

    async def until_settled(self, *shards: str, within: float = 60) -> float:
        took = await self.world.until(lambda: self.settled(*shards), within)
        assert self.together == []
        return took

    def _see(self, process: Process, request: HttpRequest, answer: HttpResponse | None) -> None:
        inside = request.headers.get("User-Agent", "").endswith("/sharder")
        if (
            inside
            and "watch=" in request.target
            and ("/things?" in request.target or "/configmaps?" in request.target)
        ):
            self.watched.add(request.target)
        if (
            inside
            and answer is not None
            and answer.status < 300
            and request.method == "PATCH"
            and ("/things/" in request.target or "/configmaps/" in request.target)
        ):
            self.assigned.append(process.name)


class Slow(Reconciler[Thing]):
    def __init__(self, team: Team, process: str) -> None:
        self._team = team
        self._process = process

    async def reconcile(self, ctx: Context, obj: Thing) -> Result | None:
        world, name = self._team.world, obj.metadata.name
        at_work = self._team.working.setdefault(name, set())
        if others := {other for other in at_work if not world.processes[other].dead}:
            self._team.together.append((world.loop.time(), name, f"{self._process} and {others}"))
        at_work.add(self._process)
        try:
            await asyncio.sleep(world.rng.uniform(0.1, 3.0))
            metadata = ObjectMeta(name=f"c-{name}", namespace=obj.metadata.namespace)
            await ensure(ctx, ConfigMap(metadata=metadata, data={"by": self._process}), owner=obj)
        finally:
            at_work.discard(self._process)
        return None


@asynccontextmanager
async def working(seed: int = 1, count: int = 24, *, apart: bool = False) -> AsyncIterator[Team]:
    """Three shards, one of which is the sharder, and this many Things on the right shards."""
    async with SimulatedCluster(seed=seed, apart=apart) as world:
        team = Team(world)
        await world.install()
        for name in SHARDS:
            team.shard(name)
        await world.make_things(count)
        await team.until_settled(*SHARDS)
        await world.until(lambda: team.leader, within=1)
        yield team


@pytest.mark.quick
def test_objects_are_assigned_without_service_webhook_and_controllerring() -> None:
    async def scene() -> None:
        async with working() as team:
            world = team.world
            assert set(world.owners().values()) == set(SHARDS)
            assert not world.objects(WEBHOOKS.group, WEBHOOKS.resource)
            assert set(team.assigned) == {team.leader}
            assert team.watched
            label = re.escape(quote(shard_label("r"), safe=""))
            unassigned = re.compile(f"labelSelector=(%21{label}|{label}(%21%3D|%20notin%20)[^&]+)&")
            assert all(unassigned.search(each) for each in team.watched)
            await world.make_things(10, prefix="later")
            assert await world.until(lambda: world.all_owned(*SHARDS), within=2) < 1

    simulate(scene)


@pytest.mark.parametrize(
    ("sharder", "at_least", "at_most"), [({"sync_period": 10.0}, 10, 14), *further(({}, 0, 2))]
)
def test_all_objects_are_looked_at_as_often_as_the_operator_says(
    sharder: dict[str, Any], at_least: int, at_most: int
) -> None:
    async def scene() -> None:
        async with SimulatedCluster(seed=1) as world:
            team, looks = Team(world), []

            def see(process: Process, request: HttpRequest, answer: HttpResponse | None) -> None:
                inside = request.headers.get("User-Agent", "").endswith("/sharder")
                if inside and "/things?limit=" in request.target:
                    looks.append(request.target)

            await world.install()
            for name in SHARDS:
                options = {"mode": "both", "sharder": SharderSettings(**sharder)}
                world.shard(name, Slow(team, name), process=name, workers=20, sharding=options)
            await world.make_things(12)
            await team.until_settled(*SHARDS)
            await asyncio.sleep(60)
            world.observers.append(see)
            await asyncio.sleep(60)
            # Each time the Things are read for their own sake, and as the owners of ConfigMaps.
            assert at_least <= len(looks) <= at_most

    simulate(scene)


@pytest.mark.nightly
def test_that_the_kind_controllerring_is_not_installed_is_nothing_to_warn_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene() -> None:
        async with working():
            await asyncio.sleep(60)

    simulate(scene)
    assert [record.msg for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_shard_that_joins_gets_its_objects_when_their_shards_have_let_go() -> None:
    async def scene() -> None:
        async with working() as team:
            team.shard("s3")
            await team.until_settled(*SHARDS, "s3")
            assert "s3" in team.world.owners().values()

    simulate(scene)


@pytest.mark.parametrize("leads", [True, False])
def test_a_shard_that_is_killed_is_replaced_two_lease_durations_later_even_if_it_was_the_sharder(
    leads: bool,
) -> None:
    async def scene() -> None:
        async with working() as team:
            name = team.leader if leads else next(name for name in SHARDS if name != team.leader)
            team.world.processes[name].kill()
            left = [shard for shard in SHARDS if shard != name]
            assert 25 < await team.until_settled(*left) < 38
            assert team.leader in left

    simulate(scene)


@pytest.mark.parametrize("leads", [True, False])
def test_a_shard_that_stops_hands_over_at_once_even_if_it_is_the_sharder(leads: bool) -> None:
    async def scene() -> None:
        async with working() as team:
            name = team.leader if leads else next(name for name in SHARDS if name != team.leader)
            process = team.world.processes[name]
            await process.stop()
            assert process.dead == "stopped"
            left = [shard for shard in SHARDS if shard != name]
            assert await team.until_settled(*left) < 10
            assert team.leader in left

    simulate(scene)


def test_a_sharder_that_dies_while_objects_drain_is_succeeded_and_nothing_is_left_draining() -> None:
    async def scene() -> None:
        async with working(seed=4, count=40) as team:
            team.shard("s3")
            await team.world.until(team.world.draining, within=20, step=0.01)
            leader = team.leader
            team.world.processes[leader].kill()
            left = [shard for shard in (*SHARDS, "s3") if shard != leader]
            await team.until_settled(*left)

    simulate(scene)


@pytest.mark.nightly
def test_children_follow_a_long_drain_also_when_a_shard_is_lost_meanwhile() -> None:
    """What is known about drains is based on a former set of shards; correcting it must not wait for the next periodic
    scan.
    """

    async def scene() -> None:
        async with SimulatedCluster(seed=44) as world:
            team = Team(world)
            await world.install()

            def shard(name: str) -> None:
                world.shard(name, Touch(work=100), workers=20, sharding={"mode": "both"})

            for name in SHARDS:
                shard(name)
            await world.make_things(24)
            await world.until(lambda: team.settled(*SHARDS), within=200)
            async with world.admin() as admin:
                for name in world.owners():
                    await admin.patch(Thing, name, "team", MergePatch({"spec": {"v": 1}}))
            shard("s3")
            await world.until(world.draining, within=20)
            await asyncio.sleep(SETTLE[-1])
            lost = next(name for name in SHARDS if name != team.leader)
            world.processes[lost].kill()
            left = [name for name in (*SHARDS, "s3") if name != lost]
            await world.until(lambda: world.all_owned(*left), within=200)
            await world.until(lambda: team.settled(*left), within=FOLLOW_MAIN[1] + 5)

    simulate(scene)


def test_a_sharder_that_was_stopped_for_a_while_does_no_harm_when_it_goes_on() -> None:
    """It is stopped in the middle of a hand-over. Its shard's Lease expires long before it resumes, and so does its
    process.
    """

    async def scene() -> None:
        async with working(seed=5, count=40) as team:
            team.shard("s3")
            await team.world.until(team.world.draining, within=20, step=0.01)
            leader = team.leader
            process = team.world.processes[leader]
            process.pause()
            await team.world.until(lambda: team.leader not in ("", leader), within=60)
            await asyncio.sleep(20)
            process.resume()
            await asyncio.sleep(1)
            assert process.dead
            left = [shard for shard in (*SHARDS, "s3") if shard != leader]
            await team.until_settled(*left)

    simulate(scene)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [11, 12, 13])
def test_a_sharder_without_shard_that_was_stopped_sends_what_it_had_in_hand_when_others_lead_and_nothing_breaks(
    seed: int,
) -> None:
    """No kernel watchdog ends it, because it does not hold a shard's Lease."""

    async def scene() -> None:
        async with SimulatedCluster(seed=seed) as world:
            team = Team(world)
            await world.install()
            for name in SHARDS:
                team.shard(name, mode="shard")
            for name in ("m0", "m1"):
                team.shard(name, mode="sharder")
            await world.make_things(40)
            await team.until_settled(*SHARDS)
            team.shard("s3", mode="shard")
            await world.until(world.draining, within=20, step=0.01)
            leader = team.leader
            process = world.processes[leader]
            process.pause()
            await world.until(lambda: team.leader not in ("", leader), within=60)
            world.processes["s3"].kill()
            await asyncio.sleep(world.rng.uniform(0, 60))
            process.resume()
            await team.until_settled(*SHARDS, within=100)
            assert not process.dead

    simulate(scene)


def test_who_loses_the_leadership_only_goes_on_as_a_shard_and_becomes_the_sharder_again() -> None:
    """Its leader's Lease cannot be written, but its shard's Lease can."""

    async def scene() -> None:
        async with working() as team:
            world, leader = team.world, team.leader
            process = world.processes[leader]
            refused = asyncio.Event()

            async def refuse(request: HttpRequest) -> HttpResponse | None:
                if "sharder-r" in request.target and request.method == "PUT" and not refused.is_set():
                    return HttpResponse(500, {"content-type": "application/json"}, b"{}")
                return None

            def connected(process: Process, network: Network) -> None:
                """Each candidacy has a connection of its own."""
                if process.name == leader:
                    network.before = refuse

            world.connected = connected
            for network in process.networks:
                network.before = refuse
            await world.until(lambda: team.leader not in ("", leader), within=40)
            refused.set()
            await world.make_things(10, prefix="later")
            await team.until_settled(*SHARDS)
            assert not process.dead
            for name in SHARDS:
                if name != leader:
                    world.processes[name].kill()
            await team.until_settled(leader)
            assert team.leader == leader

    simulate(scene)


def test_who_does_not_lead_any_more_tells_no_drains_and_ages() -> None:
    """They are in alerts, whichever process has them."""

    async def scene() -> None:
        async with SimulatedCluster() as world:
            team, stuck, busy = Team(world), set[str](), set[str]()
            registries = {name: CollectorRegistry() for name in SHARDS}

            class Hangs(Slow):
                async def reconcile(self, ctx: Context, obj: Thing) -> Result | None:
                    if obj.metadata.name in stuck:
                        busy.add(obj.metadata.name)
                        await asyncio.Event().wait()
                    return await super().reconcile(ctx, obj)

            def start(name: str) -> None:
                world.shard(name, Hangs(team, name), sharding={"mode": "both"}, registry=registries[name])

            def number(process: str, what: str) -> float:
                labels = {"controllerring": "r"}
                if what == "drains_pending":
                    labels |= {"group": "sim.example", "resource": "things"}
                return registries[process].get_sample_value(f"controller_sharding_{what}", labels) or 0.0

            await world.install()
            for name in SHARDS[:2]:
                start(name)
            await world.make_things(20)
            await team.until_settled(*SHARDS[:2])
            ring = HashRing(SHARDS)
            stuck.add(next(f"t{i}" for i in range(20) if ring.owner(f"sim.example/Thing/team/t{i}") == "s2"))
            async with world.admin() as client:
                await client.patch(Thing, *stuck, "team", MergePatch({"spec": {"v": 1}}))
            await world.until(lambda: busy, within=5)
            start("s2")
            leader = team.leader
            await world.until(lambda: number(leader, "oldest_drain_seconds") > 60, within=90)
            assert number(leader, "drains_pending") == 1

            async def refuse(request: HttpRequest) -> HttpResponse | None:
                if "sharder-r" in request.target and request.method == "PUT":
                    return HttpResponse(500, {"content-type": "application/json"}, b"{}")
                return None

            for network in world.processes[leader].networks:
                network.before = refuse
            world.connected = lambda process, network: setattr(
                network, "before", refuse if process.name == leader else None
            )
            await world.until(lambda: team.leader not in ("", leader), within=40)
            await asyncio.sleep(30)
            assert not world.processes[leader].dead
            assert number(team.leader, "drains_pending") == 1
            assert number(leader, "drains_pending") == number(leader, "oldest_drain_seconds") == 0

    simulate(scene)


@pytest.mark.quick
def test_a_process_that_ends_in_the_moment_in_which_it_loses_the_leadership_does_end() -> None:
    """Both Leases are lost at once if the network is down; it must not remain a candidate forever."""

    async def scene() -> None:
        async with SimulatedCluster(seed=21) as world:
            team = Team(world)
            await world.install()
            process = team.shard("s0")
            await world.until(lambda: team.leader, within=20)
            tasks = {task.get_name(): task for task in asyncio.all_tasks()}
            watcher, manager = tasks["leadership of the ring watcher"], tasks["manager"]
            watcher.add_done_callback(lambda _: manager.cancel())
            async with world.admin() as admin:
                lease = await admin.get(Lease, "sharder-r", "ops")
                spec = msgspec.structs.replace(lease.spec, holder_identity="another")
                await admin.replace(msgspec.structs.replace(lease, spec=spec))
            await world.until(lambda: process.dead or manager.done(), within=60)

    simulate(scene)


@pytest.mark.quick
def test_an_instance_whose_candidacy_fails_in_a_task_group_is_a_candidate_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before Python 3.13 such a group leaves a request to cancel its task behind."""
    held, failed = LeaderElector.held, []

    async def fail() -> None:
        failed.append(True)
        raise RuntimeError("it cannot stand")

    @asynccontextmanager
    async def fails_once(self: LeaderElector, *given: Any) -> AsyncIterator[HeldLease]:
        async with asyncio.TaskGroup() as tasks:
            if not failed:
                tasks.create_task(fail())
        async with held(self, *given) as leadership:
            yield leadership

    monkeypatch.setattr(LeaderElector, "held", fails_once)

    async def scene() -> None:
        async with SimulatedCluster(seed=21) as world:
            team = Team(world)
            await world.install()
            team.shard("s0")
            await world.until(lambda: team.leader, within=AFTER_FAILURE + 20)
            assert failed

    simulate(scene)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [6, 7])
def test_two_leaders_at_once_move_nothing_twice_and_no_object_is_in_two_hands(seed: int) -> None:
    """A user deletes the leader's Lease, and another instance acquires it before the leader has noticed."""

    async def scene() -> None:
        async with working(seed=seed) as team:
            world = team.world
            async with world.admin() as admin:
                await admin.raw("DELETE", "/apis/coordination.k8s.io/v1/namespaces/ops/leases/sharder-r")
            team.shard("s3")
            await team.until_settled(*SHARDS, "s3")
            async with world.admin() as admin:
                await admin.raw("DELETE", "/apis/coordination.k8s.io/v1/namespaces/ops/leases/sharder-r")
            world.processes["s3"].kill()
            await team.until_settled(*SHARDS)
            assert all(not world.processes[name].dead for name in SHARDS)

    simulate(scene)


def test_a_bug_in_the_sharder_ends_the_leadership_and_neither_the_shard_nor_the_next_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, failed = Assignments.run, 0

    async def fail_twice(self: Assignments) -> None:
        nonlocal failed
        if failed < 2:
            failed += 1
            await asyncio.sleep(1)
            raise RuntimeError("a bug")
        await run(self)

    monkeypatch.setattr(Assignments, "run", fail_twice)

    async def scene() -> None:
        async with SimulatedCluster(seed=9) as world:
            team = Team(world)
            await world.install()
            for name in SHARDS:
                team.shard(name)
            await world.make_things(10)
            await team.until_settled(*SHARDS, within=60)
            assert failed == 2
            assert not any(world.processes[name].dead for name in SHARDS)
            for name in SHARDS:
                await world.processes[name].stop()
                assert world.processes[name].dead == "stopped"

    simulate(scene)


def test_after_an_outage_of_the_api_server_everything_goes_on() -> None:
    async def scene() -> None:
        async with working(seed=7) as team:
            world = team.world
            for name in SHARDS:
                world.processes[name].cut_off()
            await asyncio.sleep(5)
            for name in SHARDS:
                world.processes[name].cut_off(down=False)
            await world.make_things(10, prefix="later")
            await team.until_settled(*SHARDS)
            assert not any(world.processes[name].dead for name in SHARDS)

    simulate(scene)


@pytest.mark.nightly
def test_a_service_that_comes_and_goes_moves_nothing_of_a_settled_ring() -> None:
    """In-manager, both at once, and in-manager again. The ring's objects are not written at all."""

    async def scene() -> None:
        async with working() as team:
            world = team.world
            await asyncio.sleep(60)
            versions = {key: obj["metadata"]["resourceVersion"] for key, obj in things(world)}
            await world.make_ring()
            often = SharderControllerConfig(sync_period=Duration(60.0))
            service = world.sharder("x0", SharderConfig(controller=ControllersConfig(sharder=often)))
            await asyncio.sleep(70)  # one more full scan
            await service.stop()
            async with world.admin() as admin:
                await admin.delete(ControllerRing, "r")
            await asyncio.sleep(60)
            assert {key: obj["metadata"]["resourceVersion"] for key, obj in things(world)} == versions
            await world.make_things(5, prefix="later")
            await team.until_settled(*SHARDS)

    simulate(scene)


def test_a_controllerring_that_appears_counts_and_the_declaration_does_when_it_goes() -> None:
    """Even if the kind ControllerRing is installed only later."""

    async def scene() -> None:
        async with SimulatedCluster() as world, world.admin() as admin:
            team = Team(world)
            await world.install()
            await admin.raw("DELETE", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{CRD}")
            for name in SHARDS:
                team.shard(name)
            await world.make_things(10)
            await team.until_settled(*SHARDS)

            await admin.apply(controller_ring_crd())
            await asyncio.sleep(1)
            await world.make_ring(selector=LabelSelector(match_labels={"nobody": "has"}))
            await asyncio.sleep(15)
            await world.make_things(5, prefix="later")
            await asyncio.sleep(30)
            later = {name: owner for name, owner in world.owners().items() if name.startswith("later")}
            assert set(later.values()) == {""}

            await admin.delete(ControllerRing, "r")
            await team.until_settled(*SHARDS)

    simulate(scene)


@pytest.mark.nightly
@pytest.mark.parametrize("who", ["s", "x"])
def test_a_service_and_an_elected_shard_at_once_hand_over_as_one_of_them_would(who: str) -> None:
    async def scene() -> None:
        async with working(seed=8) as team:
            world = team.world
            await world.make_ring()
            service = world.sharder("x0")
            await asyncio.sleep(30)
            team.shard("s3")
            await team.until_settled(*SHARDS, "s3")
            if who == "x":
                service.kill()
            world.processes["s3"].kill()
            await world.make_things(10, prefix="later")
            await team.until_settled(*SHARDS)

    simulate(scene)


def test_instances_that_are_no_candidates_never_lead_and_those_that_are_no_shards_own_nothing() -> None:
    async def scene() -> None:
        async with SimulatedCluster() as world:
            team = Team(world)
            await world.install()
            for name in ("s0", "s1"):
                team.shard(name, mode="shard")
            await world.make_things(10)
            await asyncio.sleep(60)
            assert team.leader == ""
            assert set(world.owners().values()) == {""}
            team.shard("x-ray", mode="sharder")
            await team.until_settled("s0", "s1")
            assert team.leader == "x-ray"
            assert Key("ops", "x-ray") not in world.objects(LEASES.group, LEASES.resource)
            await world.processes["x-ray"].stop()
            assert team.leader == ""

    simulate(scene)


def test_what_is_not_sharded_runs_in_one_instance_and_sees_nobody_elses_leadership() -> None:
    runs: list[str] = []

    async def scene() -> None:
        async with SimulatedCluster() as world:
            team = Team(world)
            await world.install()

            def unsharded(name: str) -> Controller[Any]:
                async def reconcile(ctx: Context, obj: ControllerRing) -> None:
                    runs.append(name)

                return Controller(name="rings", reconciler=reconcile, primary=ControllerRing)

            for name in SHARDS:
                team.shard(name, controllers=[unsharded(name)])
            await world.until(lambda: team.leader, within=20)
            await world.make_ring("other")
            await world.until(lambda: runs, within=20)
            await asyncio.sleep(60)
            assert len(set(runs)) == 1

    simulate(scene)


OPERATOR = User(
    "system:serviceaccount:ops:operator", groups=("system:serviceaccounts", "system:serviceaccounts:ops")
)
GUIDE = Path(__file__).resolve().parents[3] / "docs" / "in-manager-sharding.md"
RBAC = "rbac.authorization.k8s.io"


def role_of_the_guide() -> dict[str, Any]:
    """Returns the guide's role for the kinds of the world's ring."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", GUIDE.read_text(), re.M | re.S)
    (text,) = (each for each in blocks if "kind: ClusterRole\n" in each)
    role: dict[str, Any] = yaml.safe_load(text.replace("example.kubeshard.dev", "sim.example"))
    for rule in role["rules"]:
        rule["resources"] = ["things" if resource == "pages" else resource for resource in rule["resources"]]
    return role


def role(name: str, group: str, resource: str, verbs: str, namespace: str = "") -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    rules = [{"apiGroups": [group], "resources": [resource], "verbs": verbs.split()}]
    kind = "Role" if namespace else "ClusterRole"
    return {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": metadata, "rules": rules}


def bound(role: dict[str, Any]) -> dict[str, Any]:
    """Binds the role to the operator."""
    return {
        "apiVersion": role["apiVersion"],
        "kind": f"{role['kind']}Binding",
        "metadata": role["metadata"],
        "roleRef": {"apiGroup": RBAC, "kind": role["kind"], "name": role["metadata"]["name"]},
        "subjects": [{"kind": "ServiceAccount", "name": "operator", "namespace": "ops"}],
    }


@pytest.mark.nightly
def test_the_rights_of_the_guide_are_enough_and_nothing_is_refused() -> None:
    refused: list[str] = []

    def see(process: Process, request: HttpRequest, answer: HttpResponse | None) -> None:
        if answer is not None and answer.status in (401, 403):
            refused.append(f"{process.name} {request.method} {request.target}")

    async def scene() -> None:
        async with SimulatedCluster(users=dict.fromkeys((*SHARDS, "s3"), OPERATOR)) as world:
            world.observers.append(see)
            team = Team(world)
            await world.install()
            async with world.admin() as admin:
                for each in (
                    role_of_the_guide(),
                    role("shards", "coordination.k8s.io", "leases", "get create update watch", "ops"),
                    role("own", "", "configmaps", "create"),
                ):
                    await admin.apply(each)
                    await admin.apply(bound(each))
            for name in SHARDS:
                team.shard(name)
            await world.make_things(24)
            await team.until_settled(*SHARDS)
            team.shard("s3")
            await team.until_settled(*SHARDS, "s3")
            world.processes["s3"].kill()
            async with world.admin() as admin:
                await admin.raw("DELETE", "/apis/coordination.k8s.io/v1/namespaces/ops/leases/s3")
            await team.until_settled(*SHARDS, within=100)
            await asyncio.sleep(100)
            assert Key("ops", "s3") not in world.objects(LEASES.group, LEASES.resource)
            assert refused == []

    simulate(scene)


def things(world: SimulatedCluster) -> list[tuple[Key, dict[str, Any]]]:
    return [*world.objects("sim.example", "things").items(), *world.objects("", "configmaps").items()]
