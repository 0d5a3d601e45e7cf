"""Executing decisions against an API whose objects change, and that refuses and fails."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from small_api import SmallApi, ok, status
from small_ring import SmallRing, a_proof, held, job_for, ring_machine

from kubeshard.client import Client, ClusterConfig, TokenBucketLimiter
from kubeshard.core.errors import Throttled, Unauthorized
from kubeshard.core.kinds import GroupResource, Kind, TypeMeta
from kubeshard.core.objects import ObjectMeta, metadata_only
from kubeshard.core.selectors import LabelSelector
from kubeshard.manager.leader_election import LeaderFence
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard.sharder.kinds_and_rights import ResourceKinds
from kubeshard.sharder.moves import THROTTLING, Mover
from kubeshard.sharder.tasks import carried_out
from kubeshard.sharding.api import RingGroupResource, RingResource
from kubeshard.sharding.names import CLEAN_UP_FINALIZER, TAKEN
from kubeshard.sharding.object_job import TRIES, Job, Known, MoveResult
from kubeshard.sharding.planner import Action, plan
from kubeshard.sharding.proofs import DeathProof
from kubeshard.sharding.ring import OnDeletion, Ring
from kubeshard.sharding.ring_machine import ResourceMachine
from kubeshard.sharding.ring_resources import RingEntry
from kubeshard_lab.virtual_time import VirtualClock, virtual_time
from kubeshard_lab.virtual_world import SeededRng, virtual_world

SHARD, DRAIN = "shard.alpha.sharding.timebertt.dev/ring", "drain.alpha.sharding.timebertt.dev/ring"
SECRETS = "/api/v1/namespaces/default/secrets"
FOO = f"{SECRETS}/foo"
"""An object whose shard is shard-1 of shard-0, shard-1, shard-2."""
ENTRY = RingEntry(GroupResource("", "secrets"))
SECRET = Kind("", "v1", "Secret", "secrets")
PLACE = ENTRY.resource, "default", "foo"
SECRETS_ONLY = RingResource(resource="secrets")


class World:
    """A small API, a ring of three shards, and a mover."""

    def __init__(self, *, on_deletion: OnDeletion = "nothing") -> None:
        self.api = SmallApi()
        self.small = SmallRing("shard-0", "shard-1", "shard-2", on_deletion=on_deletion, clock=VirtualClock())
        self.ring, self.registry = self.small.ring, self.small.registry
        self.dead = True
        self.asked: list[str] = []
        self.since: list[float] = []
        self.failures: list[tuple[str, type[Exception]]] = []
        self.client = self.api.client(VirtualClock())
        self.proofs: Any = SimpleNamespace(proven=self._is_dead)
        self.mover = Mover(
            self.client, ResourceKinds(self.client), self.proofs, clock=VirtualClock(), rng=SeededRng(1)
        )
        self.secrets = self.small.sync("secrets")
        self._failed = self.secrets.failed
        self.secrets.failed = self.failed  # type: ignore[method-assign]

    def failed(self, job: Job, error: Exception) -> None:
        self.failures.append((job.meta.name, type(error)))
        self._failed(job, error)

    async def _is_dead(self, ring: Ring, shard: str, since: float) -> DeathProof | None:
        self.asked.append(shard)
        self.since.append(since)
        return a_proof(lambda: self.dead) if self.dead else None

    async def job(self, name: str = "foo") -> Job:
        """Returns the decision about an object in its current state."""
        obj = await self.client.get(metadata_only(SECRET), name, "default")
        return self.decide(obj.metadata)

    def decide(self, meta: ObjectMeta) -> Job:
        decision = plan(self.small.view, ENTRY, TypeMeta("v1", "Secret"), meta)
        return job_for(self.small.ring, ENTRY, SECRET, meta, decision)

    async def carry_out(self, job: Job, mover: Mover | None = None) -> MoveResult:
        machine = (
            ResourceMachine(ring_machine(job.ring), job.entry, 300.0)
            if job.ring is not self.ring
            else self.secrets
        )
        return await carried_out(machine.carry_out(job), (mover or self.mover).do)

    def count(self, name: str) -> float:
        labels = {"controllerring": "ring", "group": "", "resource": "secrets"}
        return self.registry.get_sample_value(f"controller_sharding_{name}_total", labels) or 0.0

    def conflict_by(self, times: int, **labels: str | None) -> None:
        """Another client writes foo just before each of the next patches."""
        left = iter(range(times))

        def meddle(request: HttpRequest) -> HttpResponse | None:
            if request.method == "PATCH" and next(left, None) is not None:
                self.api.relabel(FOO, **{"touched": str(self.api.version), **labels})
            return None

        self.api.faults.append(meddle)

    def before_patch(self, number: int, do: Callable[[], object]) -> None:
        """Something happens when that patch arrives, counted from 1."""
        patches = itertools.count(1)

        def meddle(request: HttpRequest) -> HttpResponse | None:
            if request.method == "PATCH" and next(patches) == number:
                do()
            return None

        self.api.faults.append(meddle)


@virtual_time
async def test_a_move_is_one_patch_guarded_by_uid_and_version() -> None:
    world = World()
    before = world.api.put(SECRETS, "foo", labels={SHARD: "gone", DRAIN: "true", "app": "x"})
    assert await world.carry_out(await world.job()) is MoveResult.MOVED
    assert world.api.labels(FOO) == {SHARD: "shard-1", "app": "x"}
    (patch,) = world.api.writes()
    assert patch[2] == {
        "metadata": {
            "uid": "uid-foo",
            "resourceVersion": before["metadata"]["resourceVersion"],
            "labels": {SHARD: "shard-1", DRAIN: None},
        }
    }
    assert world.count("movements") == 1


@virtual_time
async def test_a_drain_is_the_references_patch() -> None:
    world = World()
    before = world.api.put(SECRETS, "foo", labels={SHARD: "shard-0"})
    assert await world.carry_out(await world.job()) is MoveResult.DRAINED
    (patch,) = world.api.writes()
    version = before["metadata"]["resourceVersion"]
    assert patch[2] == {"metadata": {"resourceVersion": version, "labels": {DRAIN: "true"}}}
    assert (world.count("drains"), world.count("movements")) == (1, 0)


@virtual_time
async def test_an_unassigned_object_needs_no_death_certificate() -> None:
    world = World()
    world.api.put(SECRETS, "foo")
    assert await world.carry_out(await world.job()) is MoveResult.MOVED
    assert world.asked == []


@virtual_time
async def test_nothing_is_taken_from_a_shard_that_may_live() -> None:
    world = World()
    world.dead = False
    world.api.put(SECRETS, "foo", labels={SHARD: "gone"})
    assert await world.carry_out(await world.job()) is MoveResult.WAITING
    assert world.asked == ["gone"]
    assert world.api.writes() == []


@virtual_time
async def test_a_shard_that_came_back_while_the_job_waited_keeps_its_object() -> None:
    """The object has not changed, so its version alone would allow the move."""
    world = World()
    world.api.put(SECRETS, "foo", labels={SHARD: "shard-9"})
    job = await world.job()
    assert job.decision.action is Action.MOVE
    world.small.shards = ("shard-0", "shard-1", "shard-2", "shard-9")
    assert await world.carry_out(job) is not MoveResult.MOVED
    assert world.api.labels(FOO)[SHARD] == "shard-9"


@virtual_time
async def test_nothing_is_moved_to_a_shard_that_left_while_the_job_waited() -> None:
    world = World()
    world.api.put(SECRETS, "foo")
    job = await world.job()
    world.small.shards = ("shard-0", "shard-2")
    assert await world.carry_out(job) is MoveResult.MOVED
    assert world.api.labels(FOO)[SHARD] in ("shard-0", "shard-2")


@virtual_time
async def test_a_sharder_that_leads_no_longer_leaves_the_job_to_others() -> None:
    world = World()
    world.api.put(SECRETS, "foo")
    job = await world.job()
    client = world.client.fenced(LeaderFence())
    mover = Mover(client, ResourceKinds(client), world.proofs, clock=VirtualClock(), rng=SeededRng(1))
    before = len(world.api.requests)
    assert await world.carry_out(job, mover) is MoveResult.WAITING
    assert (len(world.api.requests), world.failures) == (before, [])


@virtual_time
async def test_a_deleted_object_is_done() -> None:
    """A19 in docs/defects.md."""
    world = World()
    world.api.put(SECRETS, "foo")
    job = await world.job()
    del world.api.objects[FOO]
    assert await world.carry_out(job) is MoveResult.NOTHING
    assert world.failures == []


@virtual_time
async def test_a_conflict_leads_to_a_new_decision_on_the_object_as_it_is() -> None:
    world = World()
    world.api.put(SECRETS, "foo")
    job = await world.job()
    world.api.relabel(FOO, **{SHARD: "shard-0"})
    assert await world.carry_out(job) is MoveResult.DRAINED
    assert world.api.labels(FOO) == {SHARD: "shard-0", DRAIN: "true"}


@virtual_time
async def test_a_conflict_with_the_webhooks_assignment_ends_quietly() -> None:
    world = World()
    world.api.put(SECRETS, "foo")
    job = await world.job()
    world.api.relabel(FOO, **{SHARD: "shard-1"})
    assert await world.carry_out(job) is MoveResult.NOTHING
    assert world.count("movements") == 0


@pytest.mark.parametrize("labels", [None, {"app": "x"}, {SHARD: "gone", DRAIN: "true"}], ids=str)
@virtual_time
async def test_an_object_written_all_the_time_is_moved_by_a_test_of_its_label(
    labels: dict[str, str] | None,
) -> None:
    """The 4th attempt no longer depends on the version."""
    world = World()
    world.api.put(SECRETS, "foo", labels=labels)
    world.conflict_by(4)
    assert await world.carry_out(await world.job()) is MoveResult.MOVED
    assert world.api.labels(FOO)[SHARD] == "shard-1"
    assert DRAIN not in world.api.labels(FOO)
    assert len(world.api.writes()) == (5 if labels and SHARD in labels else 4)


@virtual_time
async def test_an_object_without_labels_written_all_the_time_is_not_overwritten() -> None:
    world = World()
    world.api.put(SECRETS, "foo", labels={"app": "x"})
    world.conflict_by(4, **{SHARD: "shard-2"})
    await world.carry_out(await world.job())
    assert world.api.labels(FOO)[SHARD] == "shard-2"


@pytest.mark.parametrize("labels", [None, {"app": "x"}], ids=str)
@virtual_time
async def test_what_another_sharder_has_assigned_meanwhile_is_not_overwritten_however_often_the_object_is_written(
    labels: dict[str, str] | None,
) -> None:
    """The patch that no longer depends on the version is the first one after the assignment."""
    world = World()
    world.api.put(SECRETS, "foo", labels=labels)
    job = await world.job()
    for number in (1, 2, 3):
        world.before_patch(
            number, lambda: world.api.put(SECRETS, "foo", labels=labels, touched=world.api.version)
        )
    world.before_patch(4, lambda: world.api.relabel(FOO, **{SHARD: "shard-2"}))
    await world.carry_out(job)
    assert world.api.labels(FOO)[SHARD] == "shard-2"


@virtual_time
async def test_an_object_that_was_created_again_under_its_name_is_another_one() -> None:
    """It looks as the former one did, but nobody has decided about it; and now the ring is gone."""
    world = World()
    world.api.put(SECRETS, "foo", labels={"app": "x"})
    job = await world.job()

    def create_again() -> None:
        world.api.put(SECRETS, "foo", labels={"app": "x"}, uid="another")
        world.api.faults.append(lambda request: world.small.delete() if request.method == "GET" else None)

    world.before_patch(4, create_again)
    world.conflict_by(3)
    assert await world.carry_out(job) is MoveResult.NOTHING
    assert world.api.labels(FOO) == {"app": "x"}


@virtual_time
async def test_a_hot_object_is_drained_by_a_test_of_its_label() -> None:
    world = World()
    world.api.put(SECRETS, "foo", labels={SHARD: "shard-0"})
    world.conflict_by(4)
    assert await world.carry_out(await world.job()) is MoveResult.DRAINED
    assert world.api.labels(FOO)[DRAIN] == "true"


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (status(403, "Forbidden"), "Forbidden"),
        (status(422, "Invalid"), "Invalid"),
        (status(500, "Broken"), "Unavailable"),
    ],
    ids=["403", "422", "500"],
)
@virtual_time
async def test_a_refused_object_is_counted_and_handed_on(answer: HttpResponse, error: str) -> None:
    world = World()
    world.api.put(SECRETS, "foo")
    job = await world.job()
    world.api.faults.append(lambda request: answer if request.method == "PATCH" else None)
    assert await world.carry_out(job) is MoveResult.FAILED
    assert [(name, kind.__name__) for name, kind in world.failures] == [("foo", error)]
    assert world.count("movements") == 0


@virtual_time
async def test_an_expired_credential_costs_one_more_patch_and_not_the_wait_for_a_retry() -> None:
    world = World()
    world.api.put(SECRETS, "foo")
    job = await world.job()
    world.before_patch(2, world.api.faults.clear)
    world.api.faults.append(
        lambda request: status(401, "Unauthorized") if request.method == "PATCH" else None
    )
    assert await world.carry_out(job) is MoveResult.MOVED
    assert (world.failures, len(world.api.writes())) == ([], 2)


@virtual_time
async def test_credentials_that_are_refused_again_are_left_to_the_retries() -> None:
    world = World()
    world.api.put(SECRETS, "foo")
    job = await world.job()
    world.api.faults.append(
        lambda request: status(401, "Unauthorized") if request.method == "PATCH" else None
    )
    assert await world.carry_out(job) is MoveResult.FAILED
    assert (world.failures, len(world.api.writes())) == ([("foo", Unauthorized)], 2)


@virtual_time
async def test_nothing_is_taken_from_a_shard_whose_end_the_ring_has_not_seen() -> None:
    world = World()
    world.api.put(SECRETS, "foo", labels={SHARD: "gone"})
    job = await world.job()
    world.ring.has_ended = lambda shard: False
    assert await world.carry_out(job) is MoveResult.WAITING
    assert (world.asked, world.api.writes()) == ([], [])


@virtual_time
async def test_a_movement_is_counted_only_when_the_answer_names_the_target() -> None:
    """Another webhook may remove the label again: A17 in docs/defects.md."""
    world = World()
    world.api.put(SECRETS, "foo")
    job = await world.job()
    unchanged = world.api.objects[FOO]

    def swallow(request: HttpRequest) -> HttpResponse | None:
        return ok(unchanged) if request.method == "PATCH" else None

    world.api.faults.append(swallow)
    assert await world.carry_out(job) is MoveResult.FAILED
    assert world.count("movements") == 0


@virtual_time
async def test_without_a_ring_nothing_is_written() -> None:
    world = World()
    world.api.put(SECRETS, "foo")
    job = await world.job()
    world.small.delete()
    assert await world.carry_out(job) is MoveResult.NOTHING
    assert world.api.writes() == []


THROTTLED = HttpResponse(
    429, {"content-type": "application/json", "retry-after": "4"}, status(429, "TooManyRequests").body
)


@pytest.mark.regression
@virtual_time
async def test_a_throttled_move_is_decided_and_proven_anew_before_it_is_sent_again() -> None:
    """The shard came back during the seconds for which the server asked to wait, so it keeps its object."""
    world = World()
    world.api.put(SECRETS, "foo", labels={SHARD: "gone"})
    job = await world.job()

    def throttle(request: HttpRequest) -> HttpResponse | None:
        if request.method != "PATCH":
            return None
        world.dead = False
        return THROTTLED

    world.api.faults.append(throttle)
    assert await world.carry_out(job) is MoveResult.WAITING
    assert world.asked == ["gone", "gone"]
    assert len(world.api.writes()) == 1
    assert VirtualClock().monotonic() >= 4.0


@pytest.mark.regression
@virtual_time
async def test_a_throttled_move_succeeds_when_the_server_has_room_again() -> None:
    world = World()
    world.api.put(SECRETS, "foo", labels={SHARD: "gone"})
    job = await world.job()
    refusals = iter([THROTTLED] * 8)
    world.api.faults.append(lambda request: next(refusals, None) if request.method == "PATCH" else None)
    assert await world.carry_out(job) is MoveResult.MOVED
    assert world.failures == []


@pytest.mark.regression
@virtual_time
async def test_an_object_that_is_throttled_for_long_fails_alone_and_is_left_to_the_retries() -> None:
    world = World()
    world.api.put(SECRETS, "foo")
    job = await world.job()
    world.api.faults.append(lambda request: THROTTLED if request.method == "PATCH" else None)
    assert await world.carry_out(job) is MoveResult.FAILED
    assert world.failures == [("foo", Throttled)]


@pytest.mark.regression
@virtual_time
async def test_a_proof_that_fell_while_credentials_were_renewed_stops_the_patch() -> None:
    """The last check is made just before the bytes are sent."""
    world = World()
    world.api.put(SECRETS, "foo", labels={SHARD: "gone"})
    job = await world.job()
    stands = iter([False])

    async def dead(ring: Ring, shard: str, since: float) -> DeathProof | None:
        world.asked.append(shard)
        return a_proof(lambda: next(stands)) if len(world.asked) == 1 else None

    world.proofs.proven = dead
    assert await world.carry_out(job) is MoveResult.WAITING
    assert world.api.writes() == []
    assert world.asked == ["gone", "gone"]


@pytest.mark.regression
@virtual_time
async def test_a_proof_of_death_begins_after_the_object_was_read() -> None:
    world = World()
    world.api.put(SECRETS, "foo", labels={SHARD: "gone"})
    since: list[float] = []

    async def dead(ring: str, shard: str, read: float) -> DeathProof | None:
        since.append(read)
        return a_proof()

    world.proofs.proven = dead
    job = (await world.job())._replace(read=0.0)
    await asyncio.sleep(7.0)
    world.conflict_by(1)
    assert await world.carry_out(job) is MoveResult.MOVED
    assert since == [0.0, 7.0]


@pytest.mark.regression
@virtual_time
async def test_a_target_that_left_while_the_proof_was_awaited_gets_nothing() -> None:
    world = World()
    world.api.put(SECRETS, "foo", labels={SHARD: "gone"})
    job = await world.job()

    async def dead(ring: Ring, shard: str, since: float) -> DeathProof | None:
        world.small.shards = ("shard-0", "shard-2")
        return a_proof()

    world.proofs.proven = dead
    assert await world.carry_out(job) is MoveResult.MOVED
    assert world.api.labels(FOO)[SHARD] in ("shard-0", "shard-2")
    assert len(world.api.writes()) == 1


@pytest.mark.regression
@virtual_time
async def test_the_rate_limit_is_kept_before_the_proof_and_not_behind_it() -> None:
    world = World()
    clock = VirtualClock()
    limited = Client(
        ClusterConfig("http://small"),
        transport=world.api,
        world=virtual_world(clock=clock),
        limiter=TokenBucketLimiter(0.1, 1, clock),
    )
    events: list[tuple[str, float]] = []

    async def dead(ring: Ring, shard: str, since: float) -> DeathProof | None:
        events.append(("proof", clock.monotonic()))
        return a_proof()

    def record(request: HttpRequest) -> HttpResponse | None:
        events.append((request.method, clock.monotonic()))
        return None

    world.proofs.proven = dead
    mover = Mover(limited, ResourceKinds(limited), world.proofs, clock=clock, rng=SeededRng(1))
    for name in ("foo", "bar"):
        world.api.put(SECRETS, name, labels={SHARD: "gone"})
    jobs = [await world.job("foo"), await world.job("bar")]
    world.api.faults.append(record)
    for job in jobs:
        assert await world.carry_out(job, mover) is MoveResult.MOVED
    assert events == [("proof", 0.0), ("PATCH", 0.0), ("proof", 10.0), ("PATCH", 10.0)]


@pytest.mark.regression
@virtual_time
async def test_a_job_whose_resource_left_the_ring_writes_nothing() -> None:
    world = World()
    world.api.put(SECRETS, "foo")
    job = await world.job()
    world.small.become(RingResource(resource="configmaps"))
    assert await world.carry_out(job) is MoveResult.NOTHING
    assert world.api.writes() == []


@pytest.mark.regression
@virtual_time
async def test_a_job_whose_namespace_is_selected_no_longer_writes_nothing() -> None:
    world = World()
    world.api.put(SECRETS, "foo")
    job = await world.job()
    world.small.become(SECRETS_ONLY, selector=LabelSelector(match_labels={"space": "other"}))
    assert await world.carry_out(job) is MoveResult.NOTHING
    assert world.api.writes() == []


@pytest.mark.regression
@virtual_time
async def test_a_namespace_that_changed_before_the_ring_was_told_keeps_its_objects() -> None:
    """A store is ahead of its handlers while many namespaces are relisted; the view is still the same object then."""
    world = World()
    world.small.become(SECRETS_ONLY, selector=LabelSelector(match_labels={"space": "default"}))
    world.api.put(SECRETS, "foo", labels={SHARD: "gone"})
    job = (await world.job())._replace(view=world.small.view)
    world.small.namespaces["default"] = {"space": "other"}
    assert world.small.view is job.view
    assert await world.carry_out(job) is MoveResult.NOTHING
    assert world.api.writes() == []


@pytest.mark.regression
@virtual_time
async def test_a_namespace_that_changed_while_the_proof_was_awaited_keeps_its_objects() -> None:
    world = World()
    world.small.become(SECRETS_ONLY, selector=LabelSelector(match_labels={"space": "default"}))

    async def proof(ring: Ring, shard: str, since: float) -> DeathProof | None:
        world.small.namespaces["default"] = {"space": "other"}
        return a_proof()

    world.proofs.proven = proof
    world.api.put(SECRETS, "foo", labels={SHARD: "gone"})
    assert await world.carry_out(await world.job()) is MoveResult.NOTHING
    assert world.api.writes() == []


CONTROLLED = RingResource(resource="owners", controlled_resources=(RingGroupResource(resource="secrets"),))
OWNER = {"apiVersion": "v1", "kind": "Owner", "name": "foo", "uid": "u", "controller": True}


@virtual_time
async def test_in_a_ring_that_is_being_deleted_an_object_that_nobody_controls_is_released() -> None:
    """It has no key, so there is no owner whose shard it would have to follow."""
    world = World(on_deletion="clean up")
    world.api.put(SECRETS, "foo", labels={SHARD: "shard-0"})
    world.small.become(CONTROLLED)
    world.small.begin_deletion(CLEAN_UP_FINALIZER)
    meta = (await world.client.get(metadata_only(SECRET), "foo", "default")).metadata
    entry = world.ring.resources.entry(GroupResource("", "secrets"))
    decision = plan(world.small.view, entry, TypeMeta("v1", "Secret"), meta)
    assert (decision.action, decision.key) == (Action.MOVE, "")
    job = job_for(world.ring, entry, SECRET, meta, decision)
    assert await world.carry_out(job) is MoveResult.MOVED
    assert SHARD not in world.api.labels(FOO)


@pytest.mark.regression
@virtual_time
async def test_an_object_whose_resource_became_a_main_one_is_drained_and_not_moved() -> None:
    world = World()
    world.api.put(SECRETS, "foo", labels={SHARD: "shard-0"}, ownerReferences=[OWNER])
    world.small.become(CONTROLLED)
    meta = (await world.client.get(metadata_only(SECRET), "foo", "default")).metadata
    entry = world.ring.resources.entry(GroupResource("", "secrets"))
    job = job_for(
        world.ring,
        entry,
        SECRET,
        meta,
        plan(world.small.view, entry, TypeMeta("v1", "Secret"), meta),
    )
    assert job.decision.action is Action.MOVE
    world.small.become(SECRETS_ONLY)
    assert await world.carry_out(job) is MoveResult.DRAINED
    assert world.api.labels(FOO) == {SHARD: "shard-0", DRAIN: "true"}


@pytest.mark.regression
@virtual_time
async def test_an_object_whose_resource_became_a_controlled_one_waits_for_its_owner() -> None:
    world = World()
    world.api.put(SECRETS, "foo", labels={SHARD: "shard-0"}, ownerReferences=[OWNER])
    job = await world.job()
    assert job.decision.action is Action.DRAIN
    world.small.become(CONTROLLED)
    assert await world.carry_out(job) is MoveResult.WAITING
    assert world.api.writes() == []


@pytest.mark.regression
@pytest.mark.parametrize("instead", [None, "true"])
@virtual_time
async def test_a_hot_object_of_a_dead_shard_is_marked_before_it_is_taken(instead: str | None) -> None:
    """Where the version is no guard, the mark is: a shard that came back does not work on a marked object, and an
    object without its mark, or with that of a drain, is not moved any more.
    """
    world = World()
    world.api.put(SECRETS, "foo", labels={SHARD: "gone", DRAIN: "true"})
    world.conflict_by(3)

    def let_go_of(request: HttpRequest) -> HttpResponse | None:
        """When the second step comes, the shard is back: it released the object, and got it again."""
        if request.method == "PATCH" and world.api.labels(FOO).get(DRAIN) == TAKEN:
            world.api.relabel(FOO, **{DRAIN: instead})
            world.dead = False
        return None

    world.api.faults.append(let_go_of)
    assert await world.carry_out(await world.job()) is MoveResult.WAITING
    labels = {SHARD: "gone", "touched": world.api.labels(FOO)["touched"], DRAIN: instead}
    assert world.api.labels(FOO) == {key: value for key, value in labels.items() if value}


class OtherRing:
    """Another ring with the same resource, and jobs of it for the same objects."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.small = SmallRing("only", name="other", clock=VirtualClock())
        self.label = "shard.alpha.sharding.timebertt.dev/other"

    async def job(self) -> Job:
        obj = await self._world.client.get(metadata_only(SECRET), "foo", "default")
        decision = plan(self.small.view, ENTRY, TypeMeta("v1", "Secret"), obj.metadata)
        return job_for(self.small.ring, ENTRY, SECRET, obj.metadata, decision)


@virtual_time
async def test_jobs_of_several_rings_for_one_object_do_not_conflict() -> None:
    world = World()
    other = OtherRing(world)
    world.api.put(SECRETS, "foo")
    jobs = [await world.job(), await other.job()]
    async with held(world.mover._locks, PLACE, Known(jobs[0].meta, 0.0)):
        moving = asyncio.gather(*map(world.carry_out, jobs))
        await asyncio.sleep(1.0)
    assert await moving == [MoveResult.MOVED, MoveResult.MOVED]
    assert world.api.labels(FOO) == {SHARD: "shard-1", other.label: "only"}
    assert [method for method, *_ in world.api.writes()] == ["PATCH", "PATCH"]


@virtual_time
async def test_a_ring_that_is_throttled_does_not_hold_up_another_one_at_the_same_object() -> None:
    world = World()
    other = OtherRing(world)
    world.api.put(SECRETS, "foo")
    jobs = [await world.job(), await other.job()]
    world.api.faults.append(lambda request: THROTTLED if SHARD.encode() in (request.body or b"") else None)
    throttled = asyncio.create_task(world.carry_out(jobs[0]))
    await asyncio.sleep(0.1)
    assert await world.carry_out(jobs[1]) is MoveResult.MOVED
    assert not throttled.done()
    throttled.cancel()


@virtual_time
async def test_an_object_that_another_ring_wrote_meanwhile_needs_a_new_proof_of_death() -> None:
    """Its shard may have come back, and reclaimed it, before that write."""
    world = World()
    world.api.put(SECRETS, "foo", labels={SHARD: "gone"})
    job, clock = await world.job(), VirtualClock()
    async with held(world.mover._locks, PLACE, Known(job.meta, clock.monotonic())):
        moving = asyncio.create_task(world.carry_out(job))
        await asyncio.sleep(1.0)
        world.api.relabel(FOO, other="only")
        written = clock.monotonic()
        world.mover._locks.known[PLACE] = Known((await world.job()).meta, written)
    assert await moving is MoveResult.MOVED
    assert world.since[0] < written <= world.since[1]
    assert len(world.api.writes()) == 1
    assert world.api.labels(FOO) == {SHARD: "shard-1", "other": "only"}


@virtual_time
async def test_an_object_that_other_rings_write_all_the_time_is_moved_in_the_end() -> None:
    """What they write, under the lock, is no failed attempt of this one."""
    world = World()
    world.api.put(SECRETS, "foo", labels={SHARD: "gone"})
    job, clock = await world.job(), VirtualClock()
    meta = job.meta

    async def others() -> None:
        nonlocal meta
        for _ in range(TRIES + THROTTLING.tries + 1):
            async with held(world.mover._locks, PLACE, Known(meta, clock.monotonic())):
                await asyncio.sleep(0.1)
                world.api.relabel(FOO, other=str(world.api.version))
                meta = (await world.job()).meta
                world.mover._locks.known[PLACE] = Known(meta, clock.monotonic())

    writing = asyncio.create_task(others())
    await asyncio.sleep(0)
    assert await world.carry_out(job) is MoveResult.MOVED
    await writing
    assert world.failures == []


@virtual_time
async def test_an_object_that_its_shard_reclaimed_while_the_job_waited_for_the_lock_stays() -> None:
    world = World()
    world.api.put(SECRETS, "foo", labels={SHARD: "gone"})
    job, clock = await world.job(), VirtualClock()
    async with held(world.mover._locks, PLACE, Known(job.meta, clock.monotonic())):
        moving = asyncio.create_task(world.carry_out(job))
        await asyncio.sleep(1.0)
        world.dead = False
        world.api.relabel(FOO, other="only")
        world.mover._locks.known[PLACE] = Known((await world.job()).meta, clock.monotonic())
    assert await moving is MoveResult.WAITING
    assert world.api.writes() == []
