"""What becomes of the objects of a ring, told without an event loop: events and time in, commands out."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_ring import SmallRing, ring_machine

from kubeshard.core.errors import Forbidden, Unavailable
from kubeshard.core.kinds import Kind
from kubeshard.core.objects import Key, ObjectMeta
from kubeshard.sharding.api import RingGroupResource, RingResource
from kubeshard.sharding.planner import Action
from kubeshard.sharding.ring_machine import Do, Job, MoveResult, ResourceMachine, RingMachine
from kubeshard.sharding.scans import DueScan, ScanPriority, ScanResult, ScanScope
from kubeshard.sharding.waiting import ASSIGNMENT_DELAY, SOON

RESOURCES = (
    RingResource(resource="secrets", controlled_resources=(RingGroupResource(resource="configmaps"),)),
)
SECRET = Kind("", "v1", "Secret", "secrets")


class Story:
    """A ring of Secrets, which control ConfigMaps, led by a process whose time the test says."""

    def __init__(self, *shards: str, probes: bool = False) -> None:
        self.now = 1000.0
        clock: Any = SimpleNamespace(monotonic=lambda: self.now, wall=lambda: 2e9 + self.now)
        self.small = SmallRing(*shards, resources=RESOURCES, clock=clock)
        self.ring: RingMachine[ResourceMachine] = ring_machine(self.small.ring, probes=probes)
        self.secrets, self.config_maps = (
            ResourceMachine(self.ring, entry, 300.0) for entry in self.small.ring.resources.entries
        )
        self.ring.members_changed()

    def given_shards(self, *shards: str) -> None:
        self.small.shards = shards
        self.ring.members_changed()

    def passes(self, seconds: float) -> None:
        self.now += seconds

    def scanned(self, machine: ResourceMachine, priority: ScanPriority) -> DueScan:
        """Does the scan that is due."""
        work = machine.schedule.due(priority, self.now)
        assert work is not None
        machine.schedule.done(priority, work, ScanResult(), self.now, self.now)
        return work

    def seen(self, name: str, **labels: str) -> Job | None:
        """The watch shows a Secret, which is not new."""
        meta = ObjectMeta(
            name=name, namespace="default", uid=name, labels=labels, creation_timestamp="2020-01-01T00:00:00Z"
        )
        return self.secrets.unplaced(SECRET, meta)


def test_when_a_shard_is_lost_its_objects_are_looked_for_at_once_and_after_3_10_and_30_seconds() -> None:
    story = Story("a", "b")
    story.scanned(story.secrets, ScanPriority.NORMAL)
    story.given_shards("a")
    times = list[float]()
    while (wait := story.secrets.schedule.wait(ScanPriority.URGENT, story.now)) < 60:
        story.passes(wait)
        times.append(story.now - 1000.0)
        assert story.scanned(story.secrets, ScanPriority.URGENT).scope is ScanScope.MISPLACED
    assert times == [0.0, 3.0, 10.0, 30.0]


def test_an_object_that_loses_its_shard_is_given_to_another_one_after_a_second() -> None:
    story = Story("a", "b")
    job = story.seen("x")
    assert job is not None
    assert story.secrets.delayed(job)
    assert story.secrets.wake_at == story.now + ASSIGNMENT_DELAY
    story.passes(ASSIGNMENT_DELAY)
    assert story.secrets.due() == [(Do.PLACE, job)]


def test_an_object_that_its_shard_has_taken_back_is_looked_at_and_not_given_away() -> None:
    story = Story("a", "b")
    job = story.seen("x")
    assert job is not None
    story.secrets.delayed(job)
    assert story.seen("x", **{story.small.view.shard_label: "a"}) is None
    story.passes(ASSIGNMENT_DELAY)
    assert story.secrets.due() == [(Do.LOOK, job)]


def test_with_one_shard_nothing_waits_because_nobody_else_can_want_it() -> None:
    story = Story("a")
    job = story.seen("x")
    assert job is not None
    assert not story.secrets.delayed(job)
    assert story.secrets.wake_at == math.inf


def test_what_is_refused_is_tried_again_and_told_if_it_lasts_and_rights_are_asked_for() -> None:
    story = Story("a")
    job = story.seen("x")
    assert job is not None
    story.ring.failed(job, Forbidden("a policy"))
    assert story.secrets.due() == [(Do.ASK, None)]
    tries = 0
    while story.now < 1100.0:
        story.now = story.secrets.wake_at
        for what, again in story.secrets.due():
            if what is Do.TRY_AGAIN:
                assert again is job
                tries += 1
                story.ring.failed(job, Forbidden("a policy"))
                story.secrets.tried(job, MoveResult.FAILED)
    assert 10 < tries < 16
    assert [str(objects) for objects in story.small.ring.report.unassigned.values()] == ["secrets default/x"]
    story.now = max(story.now, story.secrets.wake_at)
    story.secrets.due()
    story.secrets.tried(job, MoveResult.MOVED)
    story.passes(1.0)
    assert story.secrets.due() == []
    assert story.small.ring.report.unassigned == {}
    assert story.secrets.wake_at == math.inf


def test_while_an_object_cannot_be_given_to_a_shard_what_it_controls_stays_where_it_is() -> None:
    story = Story("a", "b")
    owners, hashring = story.secrets.pending_drains, story.small.view.hashring
    owners.begin(complete=True)
    owners.end(hashring)
    job = story.seen("x")
    assert job is not None
    assert job.decision.key not in story.config_maps.draining_owners
    story.ring.failed(job, Unavailable("a brownout"))
    assert job.decision.key in story.config_maps.draining_owners
    story.ring.placed(job.entry.resource, job.decision)
    assert job.decision.key not in story.config_maps.draining_owners


def test_a_drain_is_followed_by_scans_of_what_its_object_controls() -> None:
    story = Story("a", "b")
    for machine in (story.secrets, story.config_maps):
        story.scanned(machine, ScanPriority.NORMAL)
    job = story.seen("x")
    assert job is not None
    story.ring.drained(job.entry.resource, job.decision._replace(action=Action.DRAIN))
    waits = [m.schedule.wait(ScanPriority.NORMAL, story.now) for m in (story.config_maps, story.secrets)]
    assert waits == [1.0, 8.0]
    assert story.config_maps.owner_drains == 1


def test_an_object_that_the_webhook_missed_is_the_one_of_the_dry_runs_until_its_resource_is_gone() -> None:
    story = Story("a", probes=True)
    job, other = story.seen("x"), story.seen("y")
    assert job is not None
    assert other is not None
    for each in (job, other):
        story.ring.assigned_late(each)
    for _ in range(2):
        story.passes(SOON)
        assert story.secrets.due() == [(Do.PROBE, job)]
        assert story.config_maps.due() == []
        story.secrets.probed(called=False)
    assert story.small.ring.report.webhook_unreached
    story.secrets.close()
    assert not story.small.ring.report.webhook_unreached


STEPS = ("released", "taken back", "refused", "due", "moved", "failed", "crashed")


@pytest.mark.parametrize("at_once", [1, 20])
@given(
    st.lists(
        st.tuples(
            st.integers(0, 7),
            st.sampled_from(STEPS),
        ),
        max_size=50,
    )
)
def test_whatever_happens_nothing_that_waits_is_forgotten(at_once: int, steps: list[tuple[int, str]]) -> None:
    story = Story("a", "b")
    story.ring.at_once = at_once
    under_way: dict[Key, tuple[Do, Job]] = {}
    for number, what in steps:
        story.passes(0.4)
        key, job = Key("default", f"x{number}"), story.seen(f"x{number}")
        assert job is not None
        if what == "released":
            story.secrets.delayed(job)
        elif what == "taken back":
            story.secrets.delays.left(key)
        elif what == "refused":
            story.ring.failed(job, Unavailable("a brownout"))
        elif what == "due":
            under_way |= {job.key: (do, job) for do, job in story.secrets.due() if job is not None}
        elif key in under_way:
            do, done = under_way.pop(key)
            if do is not Do.TRY_AGAIN:
                story.secrets.placed()
            elif what == "failed":
                story.ring.failed(done, Unavailable("a brownout"))
                story.secrets.tried(done, MoveResult.FAILED)
            else:
                story.secrets.tried(done, MoveResult.MOVED if what == "moved" else None)
        assert story.secrets.placing <= at_once
    story.secrets.resume()
    for _ in range(1000):
        if (at := story.secrets.wake_at) == math.inf:
            break
        story.now = max(story.now, at)
        for do, done in story.secrets.due():
            if done is not None:
                story.secrets.tried(done, MoveResult.MOVED) if do is Do.TRY_AGAIN else story.secrets.placed()
    assert (len(story.secrets.delays), len(story.secrets.retries)) == (0, 0)
