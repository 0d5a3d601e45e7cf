"""What becomes of the objects of a ring, told without an event loop: events and time in, commands out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_ring import SmallRing, ring_machine

from kubeshard.core.errors import Conflict, Forbidden, NotFound, Throttled, Unauthorized, Unavailable
from kubeshard.core.kinds import Kind, TypeMeta
from kubeshard.core.namespaces import ALL
from kubeshard.core.objects import Key, ObjectMeta, PartialObject
from kubeshard.sharder.ring_controller import CLEAN_UP_CHECKED
from kubeshard.sharding import object_job, waiting
from kubeshard.sharding import ring_machine as ring_machine_room
from kubeshard.sharding.api import RingGroupResource, RingResource
from kubeshard.sharding.names import TAKEN
from kubeshard.sharding.object_job import (
    TRIES_BY_VERSION,
    BackOff,
    Changed,
    Job,
    Known,
    MoveResult,
    Outdated,
    ProveDead,
    Read,
    Step,
    Steps,
    Tell,
    Write,
    drain_by_version,
    mark_as_taken,
    move_by_label,
    move_by_version,
)
from kubeshard.sharding.planner import Action, plan
from kubeshard.sharding.ring_machine import (
    CONTROLLED_FIRST,
    LOOKED_AT_AGAIN,
    NAMESPACES_AT_ONCE,
    TOGETHER,
    Command,
    Do,
    ResourceMachine,
    RingMachine,
)
from kubeshard.sharding.scans import Scan
from kubeshard.sharding.schedule import FAILED, DueScan, ScanPriority, ScanResult, ScanScope
from kubeshard.sharding.waiting import ASSIGNMENT_DELAY, SOON

RESOURCES = (
    RingResource(resource="secrets", controlled_resources=(RingGroupResource(resource="configmaps"),)),
)
SECRET = Kind("", "v1", "Secret", "secrets")


class Story:
    """A ring of Secrets, which control ConfigMaps, led by a process whose time the test says."""

    def __init__(self, *shards: str, at_once: int = 100, probes: bool = False) -> None:
        self.now = 1000.0
        clock: Any = SimpleNamespace(monotonic=lambda: self.now, wall=lambda: 2e9 + self.now)
        self.small = SmallRing(*shards, resources=RESOURCES, clock=clock)
        self.ring: RingMachine[ResourceMachine] = ring_machine(
            self.small.ring, at_once=at_once, probes=probes
        )
        self.secrets, self.config_maps = (
            ResourceMachine(self.ring, entry, 300.0) for entry in self.small.ring.resources.entries
        )
        for machine in (self.secrets, self.config_maps):
            machine.scanning.update(ScanPriority)  # else what is due would be a scan of everything
        self.ring.members_changed()

    def given_shards(self, *shards: str) -> None:
        self.small.shards = shards
        self.ring.members_changed()

    def nothing_runs(self) -> None:
        """Scans that are due may begin."""
        for machine in (self.secrets, self.config_maps):
            machine.scanning.clear()

    def passes(self, seconds: float) -> None:
        self.now += seconds

    def scanned(self, machine: ResourceMachine, priority: ScanPriority) -> DueScan:
        """Does the scan that is due."""
        work = machine.schedule.due(priority, self.now)
        assert work is not None
        machine.schedule.done(priority, work, ScanResult(), self.now, self.now)
        return work

    def secret(self, name: str, version: int = 1, **labels: str) -> ObjectMeta:
        """One that is not new. `shard`, `drain`: its labels."""
        view = self.small.view
        names = {"shard": view.shard_label, "drain": view.drain_label}
        return ObjectMeta(
            name=name,
            namespace="default",
            uid=name,
            resource_version=str(version),
            labels={names[label]: value for label, value in labels.items()},
            creation_timestamp="2020-01-01T00:00:00Z",
        )

    def seen(self, name: str, **labels: str) -> Job | None:
        """What is to be done about a Secret that is not on an available shard."""
        return self.secrets._unassigned(SECRET, self.secret(name, **labels))

    def job(self, meta: ObjectMeta) -> Job:
        """What a ring decides about a Secret, whatever that is."""
        view, entry = self.small.view, self.secrets.entry
        decision = plan(view, entry, TypeMeta("v1", "Secret"), meta)
        return Job(self.small.ring, entry, SECRET, meta, decision, self.now, view)

    def released(self, name: str) -> None:
        """The watch shows that a Secret has lost its shard."""
        self.secrets.seen(SECRET, self.secret(name), changed=True)

    def listed(self, *objects: ObjectMeta, scope: ScanScope = ScanScope.ALL) -> list[Job]:
        """A scan shows these Secrets."""
        scan = Scan(self.secrets, scope)
        (reading,) = scan.begin(SECRET)
        return list(reading.decide([PartialObject(metadata=meta) for meta in objects], self.now))

    def does(self, steps: Steps, *outcomes: object) -> tuple[list[Step], MoveResult | None]:
        """Does the steps, of which this becomes. Returns them, and what they come to."""
        done = [next(steps)]
        try:
            for outcome in outcomes:
                wrong = isinstance(outcome, Exception)
                done.append(steps.throw(outcome) if wrong else steps.send(outcome))
        except StopIteration as end:
            return done, end.value
        return done, None


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


def test_a_scan_of_what_is_controlled_follows_the_end_of_that_of_its_owners_not_its_success() -> None:
    story = Story("a", "b")
    story.nothing_runs()
    assert story.config_maps.due() == [], "that of its owners is about to start"
    assert story.secrets.due() == [(Do.SCAN, ScanPriority.NORMAL)]
    work = story.secrets.begin(ScanPriority.NORMAL)
    assert (story.config_maps.due(), story.config_maps.wake_at) == ([], math.inf), "it runs"
    story.secrets.end(ScanPriority.NORMAL, work, FAILED)
    assert story.config_maps.due() == [(Do.SCAN, ScanPriority.NORMAL)]
    story.config_maps.end(ScanPriority.NORMAL)
    assert story.config_maps.due() == [(Do.SCAN, ScanPriority.NORMAL)], (
        "nobody waits for what fails again and again"
    )


def test_before_what_is_controlled_is_scanned_it_is_read_which_of_its_owners_are_being_drained() -> None:
    story = Story("a", "b")
    story.scanned(story.secrets, ScanPriority.NORMAL)
    story.nothing_runs()
    assert (story.secrets.due(), story.config_maps.due()) == ([], [])
    assert story.scanned(story.secrets, ScanPriority.NORMAL).scope is ScanScope.CONTROLLED


def test_what_a_kind_that_is_not_served_would_control_is_not_listed_each_time_that_it_is_asked_for() -> None:
    """It was, in all namespaces, every ten seconds."""
    story = Story("a", "b")
    for machine in (story.secrets, story.config_maps):
        story.scanned(machine, ScanPriority.NORMAL)
    scan, missing = Scan(story.secrets, ScanScope.ALL), NotFound("not served", code=404, reason="NotFound")
    scan.begin(SECRET)
    scan.ends(missing, gone=True)
    assert scan.result(missing, gone=True).failed
    assert story.config_maps.schedule.due(ScanPriority.NORMAL, story.now) is None


def test_of_a_dead_shard_owners_follow_what_they_control_for_three_seconds() -> None:
    story = Story("a", "b")
    for machine in (story.secrets, story.config_maps):
        story.scanned(machine, ScanPriority.NORMAL)
    story.nothing_runs()
    story.given_shards("a")
    for _ in range(2):
        assert (story.secrets.due(), story.secrets.wake_at) == ([], story.now + CONTROLLED_FIRST)
    assert story.config_maps.due() == [(Do.SCAN, ScanPriority.URGENT)]
    story.passes(CONTROLLED_FIRST)
    assert story.secrets.due() == [(Do.SCAN, ScanPriority.URGENT)]


def test_an_object_that_loses_its_shard_is_given_to_another_one_after_a_second() -> None:
    story = Story("a", "b")
    job = story.seen("x")
    assert job is not None
    story.released("x")
    assert story.secrets.wake_at == story.now + ASSIGNMENT_DELAY
    story.passes(ASSIGNMENT_DELAY)
    assert story.secrets.due() == [(Do.ASSIGN, job)]


def test_objects_that_lose_their_shards_together_leave_room_for_scans() -> None:
    """Whoever does what is due waited for room, and did not see that a shard was lost."""
    story = Story("a", "b", at_once=2)
    story.scanned(story.secrets, ScanPriority.NORMAL)
    for name in "xyz":
        story.released(name)
    story.passes(ASSIGNMENT_DELAY)
    (what, job), (also, _) = story.secrets.due()
    assert what is also is Do.ASSIGN
    assert isinstance(job, Job)
    assert (story.secrets.due(), story.secrets.wake_at > story.now) == ([], True)
    gone = NotFound("gone", code=404, reason="NotFound")
    _, result = story.does(story.secrets.steps(what, job), gone)
    assert result is MoveResult.NOTHING
    assert story.secrets.wake_at <= story.now
    assert [what for what, _ in story.secrets.due()] == [Do.ASSIGN]


def test_where_too_many_objects_wait_for_a_shard_a_scan_gives_them_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ring_machine_room, "MANY", 3)
    story = Story("a", "b")
    story.scanned(story.secrets, ScanPriority.NORMAL)
    for name in ("x", "y", "z", "x"):
        story.released(name)
    assert story.secrets.schedule.due(ScanPriority.URGENT, story.now) is None
    story.released("one more")
    assert story.secrets.schedule.due(ScanPriority.URGENT, story.now) is not None


def test_namespaces_that_appear_together_are_looked_into_together_and_others_after_these() -> None:
    story = Story("a", "b")
    for name in ("one", "two"):
        story.secrets.appeared(name)
        assert story.secrets.due() == []
    story.passes(TOGETHER)
    assert story.secrets.due() == [(Do.LOOK_INTO, ["one", "two"])]
    for number in range(NAMESPACES_AT_ONCE + 1):
        story.secrets.appeared(f"later-{number}")
    story.passes(TOGETHER)
    assert (story.secrets.due(), story.secrets.wake_at) == ([], math.inf), "those are being read"
    story.secrets.looked_into()
    story.passes(TOGETHER)
    assert story.secrets.due() == [(Do.LOOK_INTO, [ALL])], "they are many"
    story.secrets.looked_into()
    assert (story.secrets.due(), story.secrets.wake_at) == ([], math.inf)


def test_what_was_to_be_found_in_a_namespace_is_looked_for_by_a_scan_if_whoever_looked_into_it_crashed() -> (
    None
):
    story = Story("a", "b")
    story.scanned(story.secrets, ScanPriority.NORMAL)
    story.secrets.appeared("one")
    story.passes(TOGETHER)
    assert story.secrets.due() == [(Do.LOOK_INTO, ["one"])]
    story.secrets.resume()
    assert story.scanned(story.secrets, ScanPriority.URGENT).scope is ScanScope.MISPLACED
    story.secrets.appeared("two")
    story.passes(TOGETHER)
    assert (Do.LOOK_INTO, ["two"]) in story.secrets.due()


@pytest.mark.regression
def test_rights_are_asked_for_by_one_at_a_time_however_long_the_answer_takes() -> None:
    """Each refused write began one more, until there was no room for an urgent scan."""
    story = Story("a", "b")

    def refused(name: str) -> list[Command]:
        job = story.seen(name)
        assert job is not None
        story.secrets.failed(job, Forbidden("no"))
        return story.secrets.due()

    assert refused("x") == [(Do.ASK, None)]
    story.secrets.ask_again(0.0)
    assert refused("y") == []
    assert story.secrets.wake_at > story.now, "nobody turns in circles meanwhile"
    story.secrets.asked_for_rights()
    assert story.secrets.due() == [(Do.ASK, None)]


@pytest.mark.regression
def test_a_missing_right_is_asked_for_again_if_whoever_asked_crashed() -> None:
    """It was not noticed until the next scan of everything that it was there again."""
    story = Story("a", "b")
    story.small.ring.report.permitted(story.secrets.entry.resource, "patch", False)
    story.secrets.ask_again(0.0)
    assert story.secrets.due() == [(Do.ASK, None)]
    story.secrets.resume()
    assert story.secrets.due()[0] == (Do.ASK, None)


def test_an_object_that_its_shard_has_taken_back_is_not_given_away() -> None:
    story = Story("a", "b")
    job = story.seen("x")
    assert job is not None
    story.released("x")
    story.secrets.seen(SECRET, story.secret("x", shard="a"), changed=True)
    story.passes(ASSIGNMENT_DELAY)
    assert story.secrets.due() == []


def test_with_one_shard_nothing_waits_because_nobody_else_can_want_it() -> None:
    story = Story("a")
    job = story.seen("x")
    assert job is not None
    story.released("x")
    assert story.secrets.due() == [(Do.ASSIGN, job)]


def test_what_is_refused_is_tried_again_and_told_if_it_lasts_and_rights_are_asked_for() -> None:
    story = Story("a")
    job = story.seen("x")
    assert job is not None
    story.secrets.failed(job, Forbidden("a policy"))
    assert story.secrets.due() == [(Do.ASK, None)]
    tries = 0
    while story.now < 1100.0:
        story.now = story.secrets.wake_at
        for what, again in story.secrets.due():
            if what is Do.TRY_AGAIN:
                assert again is job
                tries += 1
                story.secrets.failed(job, Forbidden("a policy"))
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


def test_what_may_be_controlled_by_an_object_that_is_drained_is_not_asked_about_by_each_scan() -> None:
    story = Story("a", "b")
    assert "/Secret/default/x" in story.config_maps.draining_owners, "its owners have not been read"
    story.secrets.pending_drains.begin()
    story.secrets.pending_drains.end()
    assert "/Secret/default/x" not in story.config_maps.draining_owners
    story.ring.drain_requested(story.secrets.entry.resource, "/Secret/default/x")
    assert "/Secret/default/x" in story.config_maps.draining_owners


def test_a_drain_is_followed_by_scans_of_what_its_object_controls() -> None:
    story = Story("a", "b")
    for machine in (story.secrets, story.config_maps):
        story.scanned(machine, ScanPriority.NORMAL)
    story.ring.drain_requested(story.secrets.entry.resource, "/Secret/default/x")
    waits = [m.schedule.wait(ScanPriority.NORMAL, story.now) for m in (story.config_maps, story.secrets)]
    assert waits == [1.0, 8.0]
    assert story.config_maps.owner_drains == 1


def test_an_object_that_the_webhook_missed_is_the_one_of_the_dry_runs_until_its_resource_is_gone() -> None:
    story = Story("a", probes=True)
    job, other = story.seen("x"), story.seen("y")
    assert job is not None
    assert other is not None
    for each in (job, other):
        story.secrets._assigned_late(each)
    for _ in range(2):
        story.passes(SOON)
        assert story.secrets.due() == [(Do.PROBE, job)]
        assert story.config_maps.due() == []
        story.secrets.probed(called=False)
    assert story.small.ring.report.webhook_unreached
    story.secrets.close()
    assert not story.small.ring.report.webhook_unreached


def moved(job: Job) -> ObjectMeta:
    """The answer to a write."""
    assert job.view is not None
    return ObjectMeta(name=job.meta.name, labels={job.view.shard_label: job.decision.target})


def test_an_object_of_a_dead_shard_is_given_to_another_one_after_a_proof_by_one_patch() -> None:
    story = Story("a", "b")
    (job,) = story.listed(story.secret("x", shard="dead"), scope=ScanScope.MISPLACED)
    steps, result = story.does(story.secrets.carry_out(job), A_PROOF, moved(job))
    assert [type(step) for step in steps] == [ProveDead, Write]
    write = steps[-1]
    assert isinstance(write, Write)
    assert (write.proof, write.at_once, result) == (A_PROOF, True, MoveResult.MOVED)
    write.check()


def test_an_object_whose_shard_may_live_stays_and_is_looked_at_again_after_five_seconds() -> None:
    story = Story("a", "b")
    story.scanned(story.secrets, ScanPriority.NORMAL)
    job = story.seen("x", shard="silent")
    assert job is not None
    (question,), result = story.does(story.secrets.steps(Do.ASSIGN, job), None)
    assert (type(question), result) == (ProveDead, MoveResult.WAITING)
    story.passes(LOOKED_AT_AGAIN)
    assert story.scanned(story.secrets, ScanPriority.URGENT).scope is ScanScope.MISPLACED


def test_what_is_on_another_shard_is_drained_and_what_it_controls_waits_for_that() -> None:
    story = Story("a", "b")
    right = story.seen("x")
    assert right is not None
    wrong = "b" if right.decision.target == "a" else "a"
    (job,) = story.listed(story.secret("x", shard=wrong))
    (write,), result = story.does(
        story.secrets.carry_out(job), story.secret("x", 2, shard=wrong, drain="true")
    )
    assert isinstance(write, Write)
    assert (write.patch(job), result) == (drain_by_version(job), MoveResult.DRAINED)
    assert job.decision.key in story.config_maps.draining_owners
    assert story.listed(story.secret("x", 2, shard=wrong, drain="true")) == [], "its shard has to release it"


def test_a_write_that_is_not_right_any_more_is_not_sent_and_decided_about_again() -> None:
    story = Story("a", "b")
    job = story.seen("x")
    assert job is not None
    steps = story.secrets.carry_out(job)
    write = next(steps)
    assert isinstance(write, Write)
    story.given_shards("c")
    with pytest.raises(Outdated):
        write.check()
    again = steps.send(Changed())
    assert isinstance(again, Write)
    assert again.job.decision.target == "c"
    again.check()


def test_an_object_that_somebody_has_placed_meanwhile_is_left_alone() -> None:
    story = Story("a", "b")
    job = story.seen("x")
    assert job is not None
    known = Known(story.secret("x", 2, shard=job.decision.target), story.now)
    steps, result = story.does(story.secrets.carry_out(job), Changed(known, Conflict("somebody was faster")))
    assert (len(steps), result) == (1, MoveResult.NOTHING)


def test_an_object_that_is_written_all_the_time_is_marked_before_it_is_taken_by_its_label() -> None:
    story = Story("a", "b")
    (job,) = story.listed(story.secret("x", shard="dead"), scope=ScanScope.MISPLACED)
    steps, patches = story.secrets.carry_out(job), list[object]()
    step = next(steps)
    for version in range(2, 2 + TRIES_BY_VERSION):
        assert isinstance(step, ProveDead)
        patches.append(steps.send(A_PROOF).patch)  # type: ignore[union-attr]
        known = Known(story.secret("x", version, shard="dead"), story.now)
        step = steps.send(Changed(known, Conflict("somebody was faster")))
    marked = steps.send(A_PROOF)
    step = steps.send(story.secret("x", 9, shard="dead", drain=TAKEN))
    taken = steps.send(A_PROOF)
    assert patches == [move_by_version] * TRIES_BY_VERSION
    assert isinstance(marked, Write)
    assert isinstance(taken, Write)
    assert (marked.patch, taken.patch) == (mark_as_taken, move_by_label)


def test_what_goes_wrong_is_told_and_tried_again_and_an_object_that_is_gone_is_done() -> None:
    story = Story("a", "b")
    for error, expected in ((Unavailable("no"), MoveResult.FAILED), (NotFound("gone"), MoveResult.NOTHING)):
        job = story.seen(type(error).__name__)
        assert job is not None
        told = [None] if expected is MoveResult.FAILED else []
        steps, result = story.does(story.secrets.carry_out(job), error, *told)
        assert ([type(step) for step in steps[1:]], result) == ([Tell] * len(told), expected)
        assert job.key not in {
            key for key, ended in story.secrets.handled._ended.items() if ended == math.inf
        }
    assert len(story.secrets.retries) == 1


def test_what_a_job_deals_with_is_not_written_by_a_scan_as_well() -> None:
    story = Story("a", "b")
    job = story.seen("x", shard="dead")
    assert job is not None
    steps = story.secrets.carry_out(job)
    next(steps)
    assert story.listed(job.meta, scope=ScanScope.MISPLACED) == []
    steps.close()
    assert [each.key for each in story.listed(job.meta, scope=ScanScope.MISPLACED)] == [job.key]


@pytest.mark.regression
def test_what_has_lost_its_label_again_before_a_list_began_anew_is_written_from_that() -> None:
    """It was taken for what a job had dealt with since the scan began, and waited for the next one."""
    story = Story("a", "b")
    scan = Scan(story.secrets, ScanScope.MISPLACED)
    (reading,) = scan.begin(SECRET)
    meta = story.secret("x", shard="dead")
    page = [PartialObject(metadata=meta)]
    (job,) = reading.decide(page, story.now)
    story.passes(1.0)
    story.secrets.handled.ends(job.key, story.now, done=True)
    assert list(reading.decide(page, story.now)) == []
    story.passes(1.0)
    reading.restarted()
    assert [each.key for each in reading.decide(page, story.now)] == [job.key]


A_PROOF: Any = SimpleNamespace(stands=lambda: True)

STEPS = ("released", "taken back", "refused", "due", "moved", "failed", "crashed")


@given(
    st.lists(
        st.tuples(
            st.integers(0, 7),
            st.sampled_from(STEPS),
        ),
        max_size=50,
    )
)
def test_whatever_happens_nothing_that_waits_is_forgotten(steps: list[tuple[int, str]]) -> None:
    story = Story("a", "b")
    under_way: dict[Key, tuple[Do, Job]] = {}
    for number, what in steps:
        story.passes(0.4)
        key, job = Key("default", f"x{number}"), story.seen(f"x{number}")
        assert job is not None
        if what == "released":
            story.released(f"x{number}")
        elif what == "taken back":
            story.secrets.found.forget(key)
        elif what == "refused":
            story.secrets.failed(job, Unavailable("a brownout"))
        elif what == "due":
            under_way |= {job.key: (do, job) for do, job in story.secrets.due() if isinstance(job, Job)}
        elif key in under_way:
            do, done = under_way.pop(key)
            if do is not Do.TRY_AGAIN:
                story.secrets.found.ended(key)
            elif what == "failed":
                story.secrets.failed(done, Unavailable("a brownout"))
                story.secrets.tried(done, MoveResult.FAILED)
            else:
                story.secrets.tried(done, MoveResult.MOVED if what == "moved" else None)
    story.secrets.resume()
    story.secrets.scanning.update(ScanPriority)
    for _ in range(1000):
        if (at := story.secrets.wake_at) == math.inf:
            break
        story.now = max(story.now, at)
        for do, done in story.secrets.due():
            if isinstance(done, Job) and do is Do.TRY_AGAIN:
                story.secrets.tried(done, MoveResult.MOVED)
            elif isinstance(done, Job):
                story.secrets.found.ended(done.key)
    assert (len(story.secrets.found), len(story.secrets.retries)) == (0, 0)


OUTCOMES = ("written", "conflict", "overtaken", "throttled", "credentials", "no", "gone", "crash", "given up")


@given(
    st.sampled_from(["", "a", "b", "dead"]),
    st.booleans(),
    st.lists(st.tuples(st.sampled_from(OUTCOMES), st.sampled_from(["", "a", "b", "dead"]), st.booleans())),
    st.booleans(),
)
def test_whatever_becomes_of_its_steps_a_job_ends_and_takes_nothing_from_a_shard_without_a_proof(
    shard: str, again: bool, outcomes: list[tuple[str, str, bool]], changes: bool
) -> None:
    story, version, proven = Story("a", "b"), 1, False
    job = story.job(story.secret("x", shard=shard))
    steps, result, taken = story.secrets.carry_out(job, again=again), None, 0
    endless = itertools.chain(outcomes, itertools.repeat(("written", "a", True)))
    try:
        step = next(steps)
        for (what, where, good), _ in zip(endless, range(200), strict=False):
            taken, version = taken + 1, version + 1
            if changes and version == 4:
                story.given_shards("b", "c")
            known = Known(story.secret("x", version, shard=where), story.now)
            outcome: object = None
            match step:
                case ProveDead(asked):
                    assert asked.decision.source not in story.ring.ring.available or changes
                    proven = good
                    outcome = A_PROOF if good else None
                case Write(now, _, proof):
                    source = now.decision.source
                    if now.decision.action is Action.MOVE and source not in ("", *story.small.shards):
                        assert proven
                        assert proof is A_PROOF
                    try:
                        step.check()
                    except Outdated:
                        assert changes
                        outcome = Changed()
                    else:
                        assert now.decision.target in story.small.shards
                        meta = msgspec.structs.replace(now.meta, resource_version=str(version))
                        outcome = written(now, meta)
                        if what in ("conflict", "overtaken"):
                            outcome = Changed(known, Conflict("no") if what == "conflict" else None)
                case Read():
                    outcome = known
                case BackOff():
                    outcome = good
            error = ERRORS.get(what) if not isinstance(step, Tell | BackOff) else None
            if what == "given up":
                steps.close()
                break
            step = (
                steps.send(outcome) if error is None or isinstance(outcome, Changed) else steps.throw(error())
            )
        else:
            raise AssertionError("it goes on forever")
    except StopIteration as end:
        result = end.value
        assert isinstance(result, MoveResult)
    assert story.secrets.handled.since(job.key, story.now + 1) != math.inf
    assert (len(story.secrets.retries) == 1) == (result is MoveResult.FAILED)


ERRORS: dict[str, Callable[[], Exception]] = {
    "throttled": lambda: Throttled("later"),
    "credentials": lambda: Unauthorized("who"),
    "no": lambda: Forbidden("a policy"),
    "gone": lambda: NotFound("gone"),
    "crash": ZeroDivisionError,
}


def written(job: Job, meta: ObjectMeta) -> ObjectMeta:
    """The answer to a write that takes effect."""
    assert job.view is not None
    labels = dict(meta.labels or {})
    if job.decision.action is Action.DRAIN:
        labels[job.view.drain_label] = "true"
    else:
        labels[job.view.shard_label] = job.decision.target
    return msgspec.structs.replace(meta, labels=labels)


def _waits(
    machine: ResourceMachine, story: Story, what: Callable[[], object], number: int = 4
) -> list[float]:
    """The seconds until something is due, again and again; `what` is done then."""
    seconds = list[float]()
    for _ in range(number):
        if (at := machine.wake_at) == math.inf:
            break
        seconds.append(round(at - story.now, 1))
        story.now = at
        what()
    return seconds


def _scans(machine: ResourceMachine, story: Story, priority: ScanPriority, result: ScanResult) -> list[float]:
    """The seconds until a scan is due, again and again, which finds that."""
    machine.schedule.done(priority, DueScan(ScanScope.ALL), result, story.now, story.now)
    seconds = list[float]()
    for _ in range(4):
        wait = machine.schedule.wait(priority, story.now)
        seconds.append(round(wait, 1))
        story.passes(wait)
        work = machine.schedule.due(priority, story.now)
        assert work is not None
        machine.schedule.done(priority, work, result, story.now, story.now)
    return seconds


def _refused(story: Story) -> list[float]:
    job = story.seen("x")
    assert job is not None
    story.secrets.failed(job, Unavailable("a brownout"))

    def again() -> None:
        story.secrets.due()
        story.secrets.failed(job, Unavailable("a brownout"))
        story.secrets.tried(job, MoveResult.FAILED)

    return [at // 1 for at in _waits(story.secrets, story, again)]


def _more_refused(story: Story) -> list[float]:
    retries = story.secrets.retries
    return [at - story.now for _, at in retries.more(ScanScope.MISPLACED, story.now, cheap=True)]


def _lost(story: Story) -> list[float]:
    job = story.seen("x")
    assert job is not None
    story.released("x")
    return _waits(story.secrets, story, story.secrets.due)


def _unproven(story: Story) -> list[float]:
    story.scanned(story.secrets, ScanPriority.NORMAL)
    story.given_shards("a")
    story.scanned(story.secrets, ScanPriority.URGENT)
    seconds = list[float]()
    for _ in range(3):
        seconds.append(wait := story.secrets.schedule.wait(ScanPriority.URGENT, story.now))
        story.passes(wait)
        story.scanned(story.secrets, ScanPriority.URGENT)
    return seconds


def _unread_namespace(story: Story) -> list[float]:
    story.secrets.skipped_namespaces.add("new")
    return [0.0] if story.secrets.skipped_namespaces.take("new") else []


def _unreached(story: Story) -> list[float]:
    job = story.seen("x")
    assert job is not None
    story.secrets._assigned_late(job)

    def missed() -> None:
        story.secrets.due()
        story.secrets.probed(called=False)

    return _waits(story.secrets, story, missed)


def _deleted(story: Story) -> list[float]:
    return [CLEAN_UP_CHECKED]


NORMAL, NOTHING = ScanPriority.NORMAL, ScanResult()

WAITS: dict[str, tuple[Callable[[Story], list[float]], list[float]]] = {
    "an object whose write was refused": (_refused, [1, 2, 4, 8]),  # with a jitter of 20 %
    "more of them than are remembered": (_more_refused, [30]),
    "an object that lost its shard a moment ago": (_lost, [1]),
    "an object that is being drained": (
        lambda story: _scans(story.secrets, story, NORMAL, ScanResult(waiting=1)),
        [8, 10, 10, 10],
    ),
    "a controlled object": (
        lambda story: _scans(story.config_maps, story, NORMAL, ScanResult(waiting=1)),
        [1, 2, 4, 8],
    ),
    "an object whose shard is not known to be dead": (_unproven, [3, 7, 20]),
    "an object in a namespace that is not known": (_unread_namespace, [0]),
    "a resource that cannot be read": (
        lambda story: _scans(story.secrets, story, NORMAL, ScanResult(failed=True)),
        [5, 10, 10, 10],
    ),
    "anything that was missed": (
        lambda story: _scans(story.secrets, story, NORMAL, NOTHING),
        [300, 300, 300, 300],
    ),
    "a ring whose webhook seems not to be called": (_unreached, [10, 10, 60, 60]),
    "a ring that is being deleted": (_deleted, [5]),
}


@pytest.mark.parametrize("who", WAITS)
def test_who_waits_is_looked_at_again_when_the_table_says(who: str) -> None:
    """The tables at the beginning of `sharding.object_job` and `sharding.waiting`; `-s` prints them."""
    (row,) = (line for line in ROWS if line.startswith(f"| {who} |"))
    print(row)
    how, expected = WAITS[who]
    assert how(Story("a", "b", probes=True)) == expected


def test_each_row_of_the_table_is_tried() -> None:
    assert [row.split("|")[1].strip() for row in ROWS] == list(WAITS)


ROWS = [
    line
    for room in (object_job, waiting)
    for line in (room.__doc__ or "").splitlines()
    if line.startswith("| ") and not line.startswith(("| who |", "| an object |"))
]


def test_an_object_whose_assignment_never_began_is_assigned_after_a_crash() -> None:
    story = Story("a", "b")
    job = story.seen("x")
    assert job is not None
    story.released("x")
    story.passes(ASSIGNMENT_DELAY)
    assert story.secrets.due() == [(Do.ASSIGN, job)]
    story.secrets.resume()
    assert story.secrets.due()[0] == (Do.ASSIGN, job)
    story.does(story.secrets.steps(Do.ASSIGN, job), NotFound("gone"))
    assert not story.secrets.handled.since(job.key, story.now)


@pytest.mark.regression
def test_an_object_whose_assignment_was_interrupted_by_a_crash_is_assigned_after_it() -> None:
    """It waited for the next scan of everything."""
    story = Story("a", "b")
    job = story.seen("x")
    assert job is not None
    story.released("x")
    story.passes(ASSIGNMENT_DELAY)
    assert story.secrets.due() == [(Do.ASSIGN, job)]
    steps = story.secrets.steps(Do.ASSIGN, job)
    next(steps)
    steps.close()
    story.secrets.resume()
    assert story.secrets.due()[0] == (Do.ASSIGN, job)


@pytest.mark.parametrize(("shown", "again"), [(2, False), (4, True)])
def test_what_a_watch_shows_during_an_assignment_is_done_after_it_if_it_is_newer(
    shown: int, again: bool
) -> None:
    story = Story("a")
    story.released("x")
    ((what, job),) = story.secrets.due()
    story.secrets.seen(SECRET, story.secret("x", version=shown), changed=True)
    assert story.secrets.due() == []
    story.does(story.secrets.steps(what, job), story.secret("x", version=3, shard="a"))
    assert [job.meta.resource_version for _, job in story.secrets.due()] == (["4"] if again else [])


@pytest.mark.regression
def test_what_gets_a_shard_before_its_assignment_begins_is_scanned_after_a_crash() -> None:
    """Every scan left it to the job that had dealt with it, which nobody had."""
    story = Story("a", "b")
    story.released("x")
    story.passes(ASSIGNMENT_DELAY)
    assert [what for what, _ in story.secrets.due()] == [Do.ASSIGN]
    story.secrets.resume()
    placed = story.secret("x", version=2, shard="a")
    story.secrets.seen(SECRET, placed, changed=True)
    story.given_shards("b", "c")
    assert [each.key for each in story.listed(placed, scope=ScanScope.MISPLACED)] == [Key("default", "x")]


def test_a_dry_run_that_nobody_answers_is_done_again_after_a_crash() -> None:
    story = Story("a", "b", probes=True)
    job = story.seen("x")
    assert job is not None
    webhook = story.ring.webhook
    assert webhook is not None
    webhook.late(job, story.now)
    story.passes(SOON)
    assert webhook.take(story.now) == job
    assert webhook.wake_at == math.inf
    webhook.resume(story.now)
    assert webhook.wake_at == story.now + SOON


def test_what_turns_out_to_wait_when_it_is_tried_again_is_looked_at_by_a_scan() -> None:
    story = Story("a", "b")
    story.scanned(story.secrets, ScanPriority.NORMAL)
    job = story.seen("x")
    assert job is not None
    story.secrets.failed(job, Unavailable("no"))
    story.passes(2.0)
    assert story.secrets.due() == [(Do.TRY_AGAIN, job)]
    story.secrets.tried(job, MoveResult.WAITING)
    story.passes(5.0)
    assert story.secrets.schedule.due(ScanPriority.URGENT, story.now) is not None
