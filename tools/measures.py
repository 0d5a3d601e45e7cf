"""The measures that keep two processes from working on one object, and how each is switched off: a measure whose
absence no oracle notices is not known to work.

    python tools/measures.py [NAME ...]

For each there is a mix of faults under which a named oracle notices that it is missing, in a few seeds. Prints a table:
each measure, what is inflicted, and the oracle that noticed its absence; exits with 1 if that of one was not noticed.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple

from kubeshard.cache.deltas import Deleted, Delta, current
from kubeshard.client import listing, watching
from kubeshard.client.version_fence import VersionProof
from kubeshard.controller import in_flight
from kubeshard.controller.context import Context
from kubeshard.core.builtin import ConfigMap, Lease
from kubeshard.core.errors import NotFound
from kubeshard.core.kinds import GroupKind, TypeMeta
from kubeshard.core.objects import ObjectMeta
from kubeshard.core.patches import JsonPatch, MergePatch
from kubeshard.core.times import parse_time
from kubeshard.leases import renewer
from kubeshard.listwatch import reflector, state_machine
from kubeshard.shard import label_restorer, range_driver, reclaiming, shard_lease, stale_guard
from kubeshard.shard.cluster_delivery import ClusterShare
from kubeshard.shard.label_delivery import LabelledShare
from kubeshard.shard.range_driver import RangeDriver
from kubeshard.shard.range_ownership import Command, RangeOwnership, State, Tell
from kubeshard.shard.range_runs import BucketRuns
from kubeshard.shard.ring_leases import RingLeases
from kubeshard.sharder import (
    admission,
    lease_controller,
    lease_observer,
    range_coordinator,
    unassigned,
)
from kubeshard.sharder.lease_observer import LeaseObserver
from kubeshard.sharding import (
    coordinator,
    object_job,
    planner,
    ring_machine,
    shard_states,
    take_overs,
    waiting,
)
from kubeshard.sharding.assignment import Assignment
from kubeshard.sharding.members import RingMember, claimed
from kubeshard.sharding.object_job import Job
from kubeshard.sharding.planner import RingView
from kubeshard.sharding.ring_resources import RingEntry
from kubeshard_lab.simulation import processes
from kubeshard_lab.simulation.oracles import SimulationResult
from kubeshard_lab.simulation.running import drawn, play
from kubeshard_lab.simulation.script import Delivery, Script, Sharder

Off = tuple[tuple[Any, str, Any], ...]


class Measure(NamedTuple):
    """`oracle` notices its absence under `faults`. `off`: what is replaced. `covered_by`: hide it, so off as well."""

    name: str
    summary: str
    oracle: str
    faults: tuple[str, ...]
    off: Off
    covered_by: tuple[str, ...] = ()
    sharder: Sharder = "service"
    minutes: float = 10.0
    delivery: Delivery = "labels"


def by_ranges(name: str, summary: str, oracle: str, *faults: str, off: Off, **more: Any) -> Measure:
    """A measure of a ring that is sharded by ranges, whose elected shard is the sharder."""
    return Measure(name, summary, oracle, faults, off, sharder="in-manager", **{"delivery": "uid", **more})


async def _at_once(*_: object, **__: object) -> bool:
    return True


async def _none(*_: object) -> None: ...


async def _false(*_: object) -> bool:
    return False


def _heard_now(states: shard_states.ShardStates, now: float) -> None:
    states._heard = now


class _Stands:
    """A proof of which nobody asks what it is based on."""

    def stands(self) -> bool:
        return True


async def _proven(*_: object) -> _Stands:
    return _Stands()


def _forgotten(
    states: shard_states.ShardStates, key: Any, now: float, version: str = "", asked: float | None = None
) -> Any:
    record = states._records.get(key)
    return states._put(key, record, None, now) if record else None


def _without_version(job: Job) -> MergePatch:
    view = job.view
    assert view is not None
    labels = {view.shard_label: job.decision.target, view.drain_label: None}
    return MergePatch({"metadata": {"labels": labels}})


def _by_its_own_clock(observer: LeaseObserver, lease: Lease, asked: float | None = None) -> None:
    renewed, clock = parse_time(lease.spec.renew_time), observer._clock
    age = 0.0 if renewed is None else max(0.0, clock.wall() - renewed)
    observer._tell(observer.states.observe(lease, clock.monotonic() - age, asked))


def _heard(observer: LeaseObserver, delta: Delta[Lease]) -> None:
    observer.states.heard(observer._clock.monotonic())
    if isinstance(delta, Deleted):
        observer.forget(delta.object.key, delta.object.metadata.resource_version if delta.final else "")
    else:
        _by_its_own_clock(observer, current(delta))


async def _collected(
    controller: lease_controller.ShardLeases, ctx: Context, shard: shard_states.Shard
) -> None:
    with suppress(NotFound):
        await ctx.client.delete(Lease, shard.key.name, shard.key.namespace)


def _believed(watch: state_machine.ListWatch, resource_version: str, now: float) -> None:
    """Goes on from the last version, whatever the server's is."""
    watch.state = state_machine.Opening(watch.state.version, now, cleared=True)


def _at_once_released(
    view: RingView, entry: RingEntry, type_: TypeMeta, meta: ObjectMeta, *_: object
) -> planner.Decision:
    action = planner.Action.MOVE if meta.has_label(view.shard_label) else planner.Action.NOTHING
    return planner.Decision(action, "", meta.label(view.shard_label))


async def _labels_say_it(share: LabelledShare) -> str:
    return ""


async def _nothing(*_: object) -> None:
    pass


async def _never(*_: object) -> None:
    await asyncio.get_running_loop().create_future()


_see, _term = RangeOwnership.seen, RangeOwnership.term
_patch_of = Assignment._patch


def _believing(ownership: RangeOwnership, assignment: Assignment) -> list[Command]:
    """Takes whatever the assignment says for news."""
    ownership._epochs = [-1] * ownership.buckets.count
    for held in ownership._held.values():
        held.epoch = -1
    return _see(ownership, assignment)


_confirm, _read = RangeDriver._confirm, RangeDriver._read
_members = range_coordinator.RangeCoordination.members


def _undoubted(ownership: RangeOwnership, assignment: Assignment) -> list[Command]:
    commands = _see(ownership, assignment)
    return [each._replace(doubtful=False) if isinstance(each, Tell) else each for each in commands]


async def _unasked(driver: RangeDriver) -> None:
    """Whatever the other shards say."""

    async def read() -> tuple[Sequence[Lease], ConfigMap]:
        leases, found = await _read(driver)
        return [lease for lease in leases if lease.metadata.name == driver._shard], found

    driver._read = read  # type: ignore[method-assign]
    await _confirm(driver)


def _as_if_by_ranges(membership: Any, buckets: Any) -> list[RingMember]:
    return [member._replace(by_labels=False) for member in _members(membership, buckets)]


async def _taken_at_once(driver: RangeDriver) -> None:
    for held in driver._ownership._held.values():
        held.confirmed = True


def _term_in(*states: State) -> Callable[..., int | None]:
    """Runs start in these states, too. What a shard does not own has no term of its own."""

    def term(ownership: RangeOwnership, bucket: int, reads: frozenset[GroupKind] | None = None) -> int | None:
        held = ownership._held.get(bucket)
        if held is None:
            return 0 if State.FOREIGN in states else None
        return held.term if held.state in states else _term(ownership, bucket, reads)

    return term


async def _unreclaimed(driver: RangeDriver) -> Any:
    with suppress(NotFound):
        return await driver._client.get(ConfigMap, *driver._place)


def _unreadable(machine: coordinator.Coordinator, _: object) -> str:
    return machine._unreadable if machine.assignment is None else ""


def _unremembered(machine: coordinator.Coordinator, members: Any) -> Assignment:
    return claimed(machine.buckets, members)


def _untested(assignment: Assignment, groups: Any) -> JsonPatch | None:
    patch = _patch_of(assignment, groups)
    return None if patch is None else JsonPatch([op for op in patch.ops if op["op"] != "test"])


def _without_proof(_: VersionProof, patch: Any, *__: object, **___: object) -> Any:
    return patch


MEASURES = (
    Measure(
        "fence",
        "a write of a shard lands only while the object is the shard's",
        "stale write",
        ("late", "scale", "replace"),
        ((shard_lease.ShardFence, "covers", lambda *_: False),),
    ),
    Measure(
        "watchdog",
        "the kernel ends a process that has not renewed its Lease in time",
        "overlap",
        ("pause",),
        (
            (processes.VirtualWatchdog, "arm", lambda *_: None),
            (processes.VirtualWatchdog, "bite", lambda *_: None),
        ),
    ),
    Measure(
        "tombstone",
        "a shard whose Lease was deleted counts as alive for as long as it may still work",
        "taken alive",
        ("lease_of_paused",),
        ((shard_states.ShardStates, "forget", _forgotten),),
    ),
    Measure(
        "proof of death",
        "the sharder reads the Lease again before it takes objects from a shard",
        "taken alive",
        ("failover_blind",),
        ((lease_observer.DeadShardProofs, "proven", _proven),),
    ),
    Measure(
        "incarnation",
        "a process does not take over the Lease of another one that lives under its name",
        "overlap",
        ("twin", "restart"),
        ((shard_lease, "_incarnation", lambda *_: ""),),
    ),
    Measure(
        "reclaiming",
        "a shard that is restarted seals its objects against late writes of its former process",
        "taken alive",
        ("failover_late",),
        ((reclaiming, "reclaim", _at_once),),
    ),
    Measure(
        "stale guard",
        "events that are older than an object's assignment do not count",
        "not ours",
        ("second_silent", "scale"),
        ((stale_guard.StaleGuard, "admits", lambda *_: True),),
    ),
    Measure(
        "first run",
        "the first reconcile after an assignment reads from the API server",
        "missed child",
        ("children_late", "scale"),
        ((stale_guard.FirstRuns, "pending", lambda *_: None),),
    ),
    Measure(
        "idle before acknowledgement",
        "an object is handed over when nobody in the process works on it",
        "overlap",
        ("scale", "drain", "kill"),
        ((in_flight.InFlight, "idle", _at_once),),
    ),
    Measure(
        "children wait",
        "controlled objects move after their owner",
        "parted",
        ("scale",),
        (
            (waiting.PendingDrains, "__contains__", lambda *_: False),
            (object_job, "follows", lambda *_: True),
        ),
    ),
    Measure(
        "release before removal",
        "the labels of a deleted ring are removed after the shard has released the object",
        "taken alive",
        ("ring_cleaned",),
        ((planner, "_released", _at_once_released),),
    ),
    Measure(
        "webhook restores",
        "a shard label that a user drops is put back",
        "not restored",
        ("put_without_labels", "scale"),
        ((admission.ShardAdmission, "_must_keep", lambda *_: False),),
    ),
    Measure(
        "restore noticed",
        "history that went back is noticed, by each watch and by others, and everything is read anew",
        "not settled",
        ("restore",),
        (
            (state_machine.SharedKnowledge, "rewritten", lambda *_: None),
            (state_machine.ListWatch, "probed", _believed),
        ),
    ),
    Measure(
        "deadline",
        "no write starts after the right to act has ended",
        "expired",
        ("pause", "block"),
        ((shard_lease.ShardFence, "check", lambda *_: None),),
        covered_by=("watchdog",),
    ),
    Measure(
        "time to notice an eviction",
        "an evicted shard keeps its objects until it cannot act any more",
        "taken alive",
        ("hang", "late", "cut"),
        ((shard_states, "is_evicted", lambda lease: False),),
        minutes=20.0,
    ),
    Measure(
        "healthy renewal",
        "a process whose main loop is blocked does not renew its Lease",
        "hung",
        ("block",),
        ((renewer.LeaseRenewer, "_unfit", _none),),
    ),
    Measure(
        "expiry as observed",
        "a Lease expires by the clock of the sharder since it was last seen to change, not by the times in it",
        "live Lease",
        ("skew",),
        (
            (lease_observer.LeaseObserver, "observe", _by_its_own_clock),
            (lease_observer.LeaseObserver, "_heard", _heard),
        ),
    ),
    Measure(
        "time counted while seen",
        "what was seen of a Lease before a silence or a restore does not count as time without renewals",
        "live Lease",
        ("renewals_erased",),
        (
            (shard_states.ShardStates, "count_anew", lambda *_: None),
            (shard_states.ShardStates, "sees", lambda *_: True),
        ),
    ),
    Measure(
        "deletion by version",
        "a sharder deletes a Lease only as it has seen it",
        "live Lease",
        ("lease_deleted_late",),
        ((lease_controller.ShardLeases, "_collect", _collected),),
    ),
    Measure(
        "moves by version",
        "a sharder moves an object only as it has seen it",
        "taken alive",
        ("failover_late",),
        ((object_job, "move_by_version", _without_version),),
    ),
    Measure(
        "taking back",
        "a shard takes back an object whose label a user changed",
        "not settled",
        ("label", "webhook"),
        ((label_restorer.LabelRestorer, "_consider", _nothing),),
        minutes=3.0,
    ),
    Measure(
        "watch on unassigned objects",
        "a sharder assigns what no webhook has assigned",
        "not owned",
        ("webhook", "recreate"),
        ((unassigned.UnassignedWatches, "keep_watching", _never),),
        minutes=3.0,
    ),
    Measure(
        "news after a silence",
        "after a silence only a list of all Leases says which shards are there",
        "dead target",
        ("leases_unreadable", "flapping"),
        ((shard_states.ShardStates, "heard", _heard_now),),
    ),
    Measure(
        "stale view distrusted",
        "nothing is given to a shard while the view of the Leases may be out of date",
        "dead target",
        ("leases_unreadable", "flapping"),
        ((shard_states.ShardStates, "fresh", lambda *_: True),),
    ),
    Measure(
        "pause before another shard",
        "an object that lost its shard gets another one after a pause, in which its shard can take it back",
        "hasty",
        ("put_without_labels", "scale"),
        ((ring_machine, "may_be_wanted", lambda *_: False),),
        sharder="in-manager",
    ),
    Measure(
        "owner read before a child",
        "a child leaves a live shard only if a read shows its owner where it goes",
        "parted",
        ("watches_silent", "replace"),
        ((object_job, "follows", lambda *_: True),),
        sharder="both",
    ),
    Measure(
        "circuit breaker",
        "a sharder waits for the return of the shards when most of them seem to die at once",
        "moved",
        ("renewals_refused",),
        ((take_overs.CircuitBreaker, "may_take", lambda *_: True),),
    ),
    Measure(
        "strict hand-over",
        "nobody works on the objects of a dead shard before it is confirmed that it has ended",
        "overlap",
        ("frozen",),
        ((shard_states.Confirmations, "has_ended", lambda *_: True),),
    ),
    Measure(
        "pod reports",
        "a sharder takes a Lease at once when the kubelet says that the shard has ended",
        "late take-over",
        ("container_ended",),
        ((lease_controller.PodReports, "certify", _false),),
        minutes=3.0,
    ),
    by_ranges(
        "epochs compared",
        "a shard believes of a bucket only what is newer than what it has seen",
        "not ours",
        "assignment_restored",
        "scale",
        off=((RangeOwnership, "seen", _believing),),
        covered_by=("take-over confirmed",),
    ),
    by_ranges(
        "hash of the object",
        "a shard looks at the hash of each object, whatever its cache has",
        "not ours",
        "selectors_ignored",
        off=((RangeOwnership, "term", _term_in(State.FOREIGN)),),
        covered_by=("filter without selector",),
    ),
    by_ranges(
        "filter without selector",
        "what an API server sends that does not know hash ranges does not get into caches",
        "not ours",
        "selectors_ignored",
        off=(
            (listing.ListStream, "_selected", lambda *_: True),
            (watching.WatchStream, "_selected", lambda _, event, hashes: event),
            (reflector.Reflector, "_is_selected", lambda *_: True),
        ),
        covered_by=("hash of the object",),
    ),
    by_ranges(
        "lists before a run",
        "a run begins when all kinds that it reads have been listed since its bucket came",
        "missed child",
        "children_unlisted",
        "scale",
        off=((RangeOwnership, "term", _term_in(State.ACQUIRING)),),
    ),
    by_ranges(
        "renewals before a shard begins",
        "a shard that begins believes what the others say once they have renewed their Leases",
        "not ours",
        "restore",
        "restart",
        "scale",
        off=((RingLeases, "unrenewed", lambda *_: []),),
        minutes=2.0,
    ),
    by_ranges(
        "no run while an acknowledgement is under way",
        "a bucket that may have been given away is not run",
        "overlap",
        "lost",
        "scale",
        off=((RangeOwnership, "term", _term_in(State.LEAVING)),),
    ),
    by_ranges(
        "buckets idle before acknowledgement",
        "a bucket is handed over when nothing acts for it",
        "overlap",
        "scale",
        off=((BucketRuns, "busy", lambda *_: False),),
    ),
    by_ranges(
        "reclaiming of buckets",
        "what was decided about a shard before it began again does not take effect",
        "taken alive",
        "failover_late",
        off=((RangeDriver, "_reclaimed", _unreclaimed),),
    ),
    by_ranges(
        "take-over confirmed",
        "a shard does not begin with what an edit gave it, and has been undone since",
        "not ours",
        "assignment_edited",
        "assignment_restored",
        "assignment_late",
        "scale",
        off=((RangeDriver, "_confirm", _taken_at_once),),
    ),
    by_ranges(
        "what is not by the rules read again",
        "a shard whose watch says what is not by the rules asks what is true",
        "not ours",
        "assignment_edited",
        "assignment_late",
        "assignment_restored",
        off=((RangeOwnership, "seen", _undoubted),),
    ),
    by_ranges(
        "assignment doubted",
        "a shard that begins compares the assignment with what others say",
        "not ours",
        "assignment_restored",
        "restart",
        "scale",
        off=((range_driver, "doubts", lambda *_: ""),),
    ),
    by_ranges(
        "fence by versions",
        "a late write lands only if nobody has written since",
        "stale write",
        "late",
        "container_ended",
        off=((VersionProof, "patched", _without_proof),),
    ),
    by_ranges(
        "tests of the assignment",
        "a change of the assignment takes effect only where it is as it was read",
        "not ours",
        "failover_late",
        off=((Assignment, "_patch", _untested),),
        covered_by=("epochs compared",),
    ),
    by_ranges(
        "proof of a bucket's death",
        "the coordinator reads the Lease again before it takes buckets from a shard",
        "taken alive",
        "failover_blind",
        off=((lease_observer.DeadShardProofs, "proven", _proven),),
        covered_by=("stale view distrusted",),
    ),
    by_ranges(
        "renewals before it is written anew",
        "a lost assignment is written anew when all shards have said what they own",
        "taken alive",
        "assignment_deleted",
        "rolling_update",
        off=((coordinator, "RENEWALS", 0),),
    ),
    by_ranges(
        "memory of the coordinator",
        "what no shard says that it owns stays with the shard at which it was seen last",
        "taken alive",
        "assignment_deleted",
        "rolling_update",
        off=((coordinator.Coordinator, "_from_claims", _unremembered),),
        covered_by=("renewals before it is written anew",),
    ),
    by_ranges(
        "assignment mended",
        "an assignment that was edited or restored is written anew",
        "not settled",
        "assignment_restored",
        "scale",
        off=((coordinator.Coordinator, "_wrong", _unreadable),),
    ),
    by_ranges(
        "label written at creation",
        "what an object controls is created with the label of its bucket",
        "unneeded write",
        "recreate",
        off=((VersionProof, "created", lambda _, obj: obj),),
        minutes=3.0,
    ),
    by_ranges(
        "labels first",
        "nothing is shared out by ranges while a shard takes objects by labels",
        "overlap",
        "other_delivery",
        off=((range_coordinator.RangeCoordination, "members", _as_if_by_ranges),),
        covered_by=("take-over doubted",),
    ),
    by_ranges(
        "take-over doubted",
        "a shard that is given something compares the assignment with what others say",
        "overlap",
        "other_delivery",
        off=((RangeDriver, "_confirm", _unasked),),
        covered_by=("labels first",),
    ),
    by_ranges(
        "ranges first",
        "nothing is taken by labels while a shard works by ranges",
        "overlap",
        "other_delivery",
        off=((LabelledShare, "_after_ranges", _nothing), (LabelledShare, "report", _labels_say_it)),
    ),
    by_ranges(
        "runs by clusters",
        "a cluster is handed over when what runs there has ended",
        "overlap",
        "scale",
        "rolling_update",
        off=((ClusterShare, "wrap", lambda _, controller, cluster: controller.guarded(lambda inner: inner)),),
        delivery="cluster",
    ),
)


BY_NAME = {measure.name: measure for measure in MEASURES}

SEEDS = range(601, 613)


@contextmanager
def switched_off(names: Collection[str]) -> Iterator[None]:
    """The measures are missing in the block."""
    with ExitStack() as stack:
        for name in names:
            for owner, attribute, replacement in BY_NAME[name].off:
                stack.callback(setattr, owner, attribute, vars(owner)[attribute])
                setattr(owner, attribute, replacement)
        yield


def ablated(measure: Measure, seed: int) -> SimulationResult:
    """Some minutes without the measure, or until its oracle notices that, under the faults that it is there for."""
    script = drawn(
        Script(
            seed=seed,
            minutes=measure.minutes,
            calm=0.7,
            sharder=measure.sharder,
            delivery=measure.delivery,
        ),
        measure.faults,
    )
    with switched_off((measure.name, *measure.covered_by)):
        return play(script, until=measure.oracle)


def main(names: Sequence[str]) -> int:
    if unknown := [name for name in names if name not in BY_NAME]:
        print(f"there is no measure {', '.join(unknown)}; there are: {', '.join(BY_NAME)}", file=sys.stderr)
        return 2
    logging.disable()  # what faults make programs say
    missed = 0
    for name in names or BY_NAME:
        measure, began, noticed = BY_NAME[name], time.process_time(), "NOT NOTICED"
        for seed in SEEDS:
            result = ablated(measure, seed)
            if result.broken[measure.oracle]:
                noticed = f"{measure.oracle}, with seed {seed} after {result.violations[0].at:.0f} s"
                break
        else:
            missed += 1
        took = time.process_time() - began
        print(f"{name:30} {'+'.join(measure.faults):40} {noticed} ({took:.0f} s)", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
