"""Operators that are their own coordinator: who joins gets its share in a few writes, who dies leaves it to the others,
and an assignment that somebody has broken is mended without two shards on one object.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from test_scenes_ranges import SHARDS, Fleet, Work

from kubeshard.core import ConfigMap, ObjectMeta
from kubeshard.core.builtin import Lease
from kubeshard.core.namespaces import ALL
from kubeshard.core.objects import Key
from kubeshard.core.patches import MergePatch
from kubeshard.shard.settings import LeaseTerms, Ranges
from kubeshard.sharding.assignment import Assignment
from kubeshard.sharding.names import (
    KINDS_ANNOTATION,
    OWNED_RANGES_ANNOTATION,
    PINNED_ANNOTATION,
    WEIGHT_ANNOTATION,
    assignment_name,
)
from kubeshard_lab.simulation.cluster import SimulatedCluster, Thing, simulate
from kubeshard_lab.simulation.processes import Process

NAME = assignment_name("r")


class Operators(Fleet):
    """Each may be the coordinator."""

    children = False

    def start(self, name: str, work: float = 0.05, **more: Any) -> Process:
        return super().start(name, work, mode="both", **more)

    @property
    def shares(self) -> dict[str, int]:
        assert self.assignment is not None
        return dict(Counter(place.owner for place in self.assignment.places))

    async def write(self, data: Mapping[str, str | None]) -> None:
        async with self.world.admin("home") as client:
            await client.patch(ConfigMap, NAME, "ops", MergePatch({"data": data}))


@asynccontextmanager
async def working(*shards: str) -> AsyncIterator[Operators]:
    async with SimulatedCluster(seed=1) as world:
        fleet = Operators(world, Ranges(buckets=64))
        await world.install()
        await world.make_things(200)
        for name in shards:
            fleet.start(name)
        await fleet.until_settled(*shards)
        yield fleet
        assert fleet.together == []
        assert fleet.writes["things"] == 0


def leader(fleet: Operators) -> str:
    leases = fleet.world.objects("coordination.k8s.io", "leases")
    return str(leases[Key("ops", "sharder-r")]["spec"]["holderIdentity"]).partition("_")[0]


@pytest.mark.quick
def test_the_first_instances_share_out_all_objects_in_two_writes() -> None:
    """One of them creates the assignment before."""

    async def scene() -> None:
        async with working(*SHARDS) as fleet:
            assert sorted(fleet.shares.values()) == [21, 21, 22]
            assert fleet.writes[NAME] == 1

    simulate(scene)


def test_shards_that_join_within_a_second_are_one_change() -> None:
    async def scene() -> None:
        async with working("s0") as fleet:
            before = fleet.writes[NAME]
            for number in range(1, 6):
                fleet.start(f"s{number}")
                await asyncio.sleep(0.2)
            await fleet.until_settled(*(f"s{number}" for number in range(6)))
            assert fleet.writes[NAME] - before == 2  # it asks s0 for everything, which acknowledges all of it

    simulate(scene)


def test_a_second_shard_works_on_its_half_soon() -> None:
    async def scene() -> None:
        async with working("s0") as fleet:
            before = fleet.writes[NAME]
            fleet.start("s1")
            assert await fleet.until_settled("s0", "s1") < 1.5
            assert fleet.writes[NAME] - before == 2

    simulate(scene)


def test_what_the_coordinator_itself_had_is_shared_out_when_it_dies() -> None:
    async def scene() -> None:
        async with working(*SHARDS) as fleet:
            dead = leader(fleet)
            fleet.world.processes[dead].kill()
            others = set(SHARDS) - {dead}
            assert await fleet.until_settled(*others) < 60
            assert sorted(fleet.shares.values()) == [32, 32]

    simulate(scene)


def test_what_the_coordinator_itself_had_is_shared_out_as_soon_as_it_has_stopped() -> None:
    async def scene() -> None:
        async with working(*SHARDS) as fleet:
            for _ in range(3):
                stopped = leader(fleet)
                await fleet.world.processes[stopped].stop()
                others = set(SHARDS) - {stopped}
                assert await fleet.until_settled(*others) < 1
                fleet.start(stopped)
                await fleet.until_settled(*SHARDS)

    simulate(scene)


def test_a_shard_that_is_back_within_its_lease_keeps_its_buckets() -> None:
    """As soon as nothing that its former process, of the same pod or machine, sent can take effect any more."""

    async def scene() -> None:
        async with SimulatedCluster(seed=1) as world:
            fleet = Operators(world, Ranges(buckets=64))
            await world.install()
            await world.make_things(200)
            for name in SHARDS:
                fleet.start(name, machine=name)
            await fleet.until_settled(*SHARDS)
            before = fleet.shares
            dead = next(name for name in SHARDS if name != leader(fleet))
            world.processes[dead].kill()
            await asyncio.sleep(10)
            fleet.ran.clear()
            fleet.start(dead, machine=dead, process="again")
            await world.until(lambda: dead in fleet.ran.values(), 12)
            assert fleet.shares == before

    simulate(scene)


def test_a_deleted_assignment_is_written_anew_and_nothing_moves() -> None:
    async def scene() -> None:
        async with working(*SHARDS) as fleet:
            shares, runs = fleet.shares, fleet.runs.copy()
            async with fleet.world.admin("home") as client:
                await client.delete(ConfigMap, NAME, "ops")
            await fleet.until_settled(*SHARDS)
            assert fleet.shares == shares
            assert fleet.runs == runs

    simulate(scene)


def test_a_deleted_assignment_is_not_missed_while_most_shards_are_left_to_return() -> None:
    async def scene() -> None:
        async with working("s0", "s1", "s2", "s3", "s4") as fleet:
            shares, leads = fleet.shares, leader(fleet)
            for shard in sorted(shares.keys() - {leads})[:3]:
                fleet.world.processes[shard].kill()
            async with fleet.world.admin("home") as client:
                await client.delete(ConfigMap, NAME, "ops")
            await asyncio.sleep(45)
            assert fleet.shares == shares

    simulate(scene)


@pytest.mark.parametrize(
    "broken",
    [{"00-20": None}, {"by": "name"}, {"00-63": "x@9"}, {"note": "do not edit"}],
    ids=["missing", "by", "twice", "note"],
)
def test_an_unreadable_assignment_is_mended_and_nothing_moves(
    broken: dict[str, str | None], caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        async with working(*SHARDS) as fleet:
            shares, runs = fleet.shares, fleet.runs.copy()
            await fleet.write(broken)
            await asyncio.sleep(20)
            assert fleet.shares == shares
            assert fleet.runs == runs

    simulate(scene)
    told = [r.getMessage() for r in caplog.records if r.name == "kubeshard.sharder"]
    assert sum("RangesAssigned" in each or "has a problem" in each for each in told) == 1


def test_an_assignment_that_is_restored_to_an_older_one_is_mended_and_nothing_moves() -> None:
    async def scene() -> None:
        async with working("s0", "s1") as fleet:
            assert fleet.assignment is not None
            older = fleet.assignment.data()
            fleet.start("s2")
            await fleet.until_settled(*SHARDS)
            await asyncio.sleep(5)
            shares, runs = fleet.shares, fleet.runs.copy()
            await fleet.write({**dict.fromkeys(fleet.assignment.data()), **older})
            await asyncio.sleep(20)
            assert fleet.shares == shares
            assert fleet.runs == runs

    simulate(scene)


def test_a_shard_gets_in_proportion_to_its_weight_and_nothing_with_0() -> None:
    async def scene() -> None:
        async with working(*SHARDS) as fleet:
            async with fleet.world.admin("home") as client:
                for shard, weight in ("s1", "0"), ("s2", "3"):
                    weighs = {"metadata": {"annotations": {WEIGHT_ANNOTATION: weight}}}
                    await client.patch(Lease, shard, "ops", MergePatch(weighs))
            await asyncio.sleep(20)
            assert fleet.shares == {"s0": 16, "s2": 48}

    simulate(scene)


def test_a_canary_gets_nothing_but_what_is_pinned_to_it_and_nothing_else_moves_for_it() -> None:
    async def scene() -> None:
        async with working("s0", "s2") as fleet:
            async with fleet.world.admin("home") as client:
                (thing, *_) = await client.list_all(Thing, ALL)
                pinned = fleet.ranges.divided.of(thing.metadata)
                pins = f"{thing.metadata.uid}, 00000000-0000-4000-8000-000000000001, team-a"
                says = {WEIGHT_ANNOTATION: "0", PINNED_ANNOTATION: pins}
                fleet.start("s1")
                await fleet.until_settled(*SHARDS)
                await client.patch(Lease, "s1", "ops", MergePatch({"metadata": {"annotations": says}}))
            await asyncio.sleep(20)
            assert fleet.assignment is not None
            assert fleet.assignment.places[pinned].owner == "s1"
            assert (fleet.shares["s1"], sum(fleet.shares.values())) == (2, 64)
            assert abs(fleet.shares["s0"] - fleet.shares["s2"]) <= 2
            before = fleet.writes[NAME]
            await asyncio.sleep(60)
            assert fleet.writes[NAME] == before

    simulate(scene)


def test_a_canary_that_says_so_itself_never_gets_anything_else() -> None:
    async def scene() -> None:
        async with working("s0", "s2") as fleet:
            (thing, *_) = await fleet.world.admin().list_all(Thing, ALL)
            shares, before = fleet.shares, fleet.writes[NAME]
            terms = LeaseTerms(weight=0, pinned=[thing.metadata.uid])
            work, sharding = (
                Work(fleet, "s1", 0.05),
                {"mode": "both", "delivery": fleet.ranges, "lease": terms},
            )
            fleet.world.shard("s1", work, owns=(), sharding=sharding)
            await fleet.until_settled(*SHARDS)
            assert (fleet.shares["s1"], fleet.writes[NAME] - before) == (1, 2)
            assert sum(abs(fleet.shares[name] - shares[name]) for name in shares) == 1

    simulate(scene)


def test_a_weight_that_is_no_number_is_told_and_counts_as_1(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        async with working(*SHARDS) as fleet:
            async with fleet.world.admin("home") as client:
                weighs = {"metadata": {"annotations": {WEIGHT_ANNOTATION: "much"}}}
                await client.patch(Lease, "s1", "ops", MergePatch(weighs))
            await asyncio.sleep(20)
            assert sorted(fleet.shares.values()) == [21, 21, 22]

    simulate(scene)
    assert "the weight 'much' is not a number from 0 up" in caplog.text


@pytest.mark.parametrize(
    "edit",
    [
        {KINDS_ANNOTATION: "foos"},
        {OWNED_RANGES_ANNOTATION: "uid/64:0-63@99/99"},
        {OWNED_RANGES_ANNOTATION: ""},
    ],
    ids=["other kinds", "all buckets", "none"],
)
def test_what_somebody_else_writes_on_the_lease_of_a_shard_moves_nothing_unless_it_stays_there(
    edit: dict[str, str],
) -> None:
    async def scene() -> None:
        async with working(*SHARDS) as fleet:
            shares, runs, before = fleet.shares, fleet.runs.copy(), fleet.writes[NAME]
            shard = min(set(SHARDS) - {leader(fleet)})
            async with fleet.world.admin("home") as client:
                for _ in range(10):
                    await client.patch(Lease, shard, "ops", MergePatch({"metadata": {"annotations": edit}}))
                    await asyncio.sleep(1.1)
            assert (fleet.shares, fleet.runs, fleet.writes[NAME]) == (shares, runs, before)

    simulate(scene)


@pytest.mark.parametrize("edit", [{"immutable": True}, {"binaryData": {"00-63": "AAAA"}}], ids=str)
def test_an_assignment_that_cannot_be_written_is_told_with_what_to_do_and_who_leads_goes_on(
    edit: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        async with working("s0", "s1") as fleet:
            leads, other = (leader(fleet),), {"s0", "s1"} - {leader(fleet)}
            async with fleet.world.admin("home") as client:
                await client.patch(ConfigMap, NAME, "ops", MergePatch(edit))
                await fleet.world.processes[other.pop()].stop()
                await asyncio.sleep(120)
                assert leader(fleet) in leads
                await client.delete(ConfigMap, NAME, "ops")
            await fleet.until_settled(*leads)

    simulate(scene)
    assert "Delete it, and it is written anew from what the shards say" in caplog.text


def test_an_assignment_by_other_buckets_is_told_and_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        async with SimulatedCluster(seed=1) as world:
            fleet = Operators(world, Ranges(buckets=64))
            await world.install()
            async with world.admin("home") as client:
                other = Assignment.of(Ranges(buckets=32).divided).data()
                await client.create(ConfigMap(metadata=ObjectMeta(name=NAME, namespace="ops"), data=other))
            fleet.start("s0")
            await asyncio.sleep(30)
            assert fleet.assignment is not None
            assert fleet.assignment.data() == other

    simulate(scene)
    assert "into 32 buckets" in caplog.text
