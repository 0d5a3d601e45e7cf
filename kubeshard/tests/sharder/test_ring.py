"""A ring as the webhook, scans and watches see it, and its removal."""

from __future__ import annotations

import asyncio
import gc
import math
import random
import weakref
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from prometheus_client import generate_latest
from small_api import SmallApi
from small_ring import SmallRing, job_for

from kubeshard.cache import Added, Deleted, Updated
from kubeshard.core.builtin import Lease, LeaseSpec, Namespace
from kubeshard.core.conditions import Condition
from kubeshard.core.errors import Forbidden
from kubeshard.core.kinds import GroupKind, GroupResource, Kind
from kubeshard.core.objects import Key, ObjectMeta
from kubeshard.core.partial_kinds import MutatingWebhookConfiguration
from kubeshard.core.selectors import LabelSelector, LabelSelectorRequirement
from kubeshard.sharder.config import WebhookConfig
from kubeshard.sharder.lease_observer import LeaseObserver
from kubeshard.sharder.rings import Inbox
from kubeshard.sharder.webhook_config import in_sync, webhook_configuration
from kubeshard.sharding import waiting
from kubeshard.sharding.api import ControllerRing, ControllerRingStatus, RingGroupResource, RingResource
from kubeshard.sharding.conditions import ASSIGNMENT_STUCK, CLEANED_UP, LEASES_WRITTEN, findings
from kubeshard.sharding.names import (
    CLEAN_UP_FINALIZER,
    DELIVERY_ANNOTATION,
    EVICTED_ANNOTATION,
    OWNED_RANGES_ANNOTATION,
    RING_LABEL,
    SHARDER_IDENTITY,
    STRICT_HANDOVER_ANNOTATION,
)
from kubeshard.sharding.planner import Action, Decision
from kubeshard.sharding.ring_resources import OwnerKind
from kubeshard.sharding.schedule import ScanScope
from kubeshard.sharding.shard_states import Availability, ShardChange, ShardStates
from kubeshard.sharding.waiting import REMEMBERED, Objects, PendingDrains, SkippedNamespaces, WaitingObjects
from kubeshard_lab.virtual_time import VirtualClock, virtual_time

SECRETS = RingResource(resource="secrets", controlled_resources=(RingGroupResource(resource="configmaps"),))
SECRET = Kind("", "v1", "Secret", "secrets")
CONFIG_MAPS = GroupResource("", "configmaps")


def test_a_ring_whose_name_fits_into_no_label_key_is_left_alone() -> None:
    assert SmallRing("a", name="a" * 63).ring.view is not None
    assert SmallRing("a", name="b" * 64).ring.view is None


def test_a_ring_that_is_being_deleted_is_cleaned_up_by_a_service_and_left_alone_inside_an_operator() -> None:
    """One without the finalizer is sharded until it is gone."""
    service, inside = SmallRing("a", on_deletion="clean up"), SmallRing("a", on_deletion="pause")
    for ring in (service, inside):
        ring.begin_deletion("example.com/other")
        assert not ring.view.releasing
        ring.begin_deletion(CLEAN_UP_FINALIZER)
    assert service.view.releasing
    assert service.ring.clean_up is not None
    assert inside.ring.view is None


def test_a_ring_that_was_cleaned_up_stays_so_while_others_keep_it() -> None:
    small = SmallRing("a", on_deletion="clean up")
    small.begin_deletion(CLEAN_UP_FINALIZER, "example.com/other")
    done = Condition(type=CLEANED_UP, status="True", reason="LabelsRemoved")
    small.resource = msgspec.structs.replace(small.resource, status=ControllerRingStatus(conditions=(done,)))
    small.begin_deletion("example.com/other")
    assert small.view.releasing


def test_a_view_is_the_same_object_until_what_it_is_made_of_changes() -> None:
    """Comparing a view with the current one shows whether decisions based on it are still valid."""
    small = SmallRing("a", resources=(SECRETS,), selector=LabelSelector(match_labels={"space": "default"}))
    handlers: dict[Any, Any] = {}
    cache: Any = SimpleNamespace(
        declare=lambda kind: SimpleNamespace(add_handler=lambda handler: handlers.update({kind: handler}))
    )
    small.rings.declare(cache)
    first = small.view
    assert first.selects("default")
    assert small.view is first

    old = Namespace(metadata=ObjectMeta(name="default", labels={"space": "default"}))
    renewed = msgspec.structs.replace(
        old, metadata=msgspec.structs.replace(old.metadata, resource_version="2")
    )
    handlers[Namespace](Updated(old, renewed))
    assert small.view is first

    left = Namespace(metadata=ObjectMeta(name="default"))
    small.namespaces["default"] = {}
    handlers[Namespace](Updated(renewed, left))
    second = small.view
    assert second is not first
    assert not second.selects("default")

    small.shards = ("a", "b")
    third = small.view
    assert third is not second
    assert third.available == {"a", "b"}

    small.kinds, small.learned = (
        {CONFIG_MAPS: {GroupKind("", "Secret"): OwnerKind(GroupResource("", "secrets"), True, True)}},
        1,
    )
    assert small.view.owner_kinds == small.kinds

    fourth = small.view
    small.become(SECRETS)
    assert small.view is not fourth
    assert small.view.hashring is fourth.hashring


def test_a_namespace_is_the_business_of_the_rings_that_may_select_it_only() -> None:
    """With a thousand rings that have a namespace each, its change must not cost a thousand views."""
    small = SmallRing("a", resources=(SECRETS,), selector=LabelSelector(match_labels={"space": "0"}))
    for number in range(1, 100):
        small.add(f"ring-{number}", SECRETS, selector=LabelSelector(match_labels={"space": str(number)}))
    either = LabelSelectorRequirement(key="space", operator="In", values=("7", "8"))
    small.add("either", SECRETS, selector=LabelSelector(match_expressions=(either,)))
    small.add("another", SECRETS, selector=LabelSelector(match_labels={"zone": "7", "space": "200"}))
    small.add("all", SECRETS)
    handlers: dict[Any, Any] = {}
    cache: Any = SimpleNamespace(
        declare=lambda kind: SimpleNamespace(add_handler=lambda handler: handlers.update({kind: handler}))
    )
    small.rings.declare(cache)
    seven = Namespace(metadata=ObjectMeta(name="seven", labels={"space": "7"}))
    nine = Namespace(metadata=ObjectMeta(name="seven", labels={"space": "9"}))

    def affected(delta: Any) -> set[str]:
        before = {ring.name: ring.view for ring in small.rings}
        handlers[Namespace](delta)
        return {ring.name for ring in small.rings if ring.view is not before[ring.name]}

    assert affected(Added(seven)) == {"ring-7", "either", "all"}
    assert affected(Updated(seven, nine)) == {"ring-7", "ring-9", "either", "all"}
    ring_9 = small.rings.get("ring-9")
    assert ring_9 is not None
    spec = msgspec.structs.replace(ring_9.resource.spec, namespace_selector=LabelSelector())
    small.rings.apply(Updated(ring_9.resource, msgspec.structs.replace(ring_9.resource, spec=spec)))
    small.rings.apply(Deleted(small.rings.get("either").resource))  # type: ignore[union-attr]
    assert affected(Deleted(nine)) == {"ring-9", "all"}
    assert affected(Added(seven)) == {"ring-7", "ring-9", "all"}


class Followed:
    """The rings `one` and `two`, which are told of what happens to Leases."""

    def __init__(self) -> None:
        self.now, self.version, self.looks = 0.0, 0, 0
        clock: Any = SimpleNamespace(monotonic=lambda: self.now)
        self.small = SmallRing(name="one", clock=clock)
        self.small.add("two", SECRETS)
        self.states = ShardStates(max_shards=3)
        self.small.availability = self._look  # type: ignore[method-assign]
        self.small.shards = ()

    def _look(self, ring: str, now: float) -> Availability:
        self.looks += 1
        return self.states.availability(ring, now)

    def hold(self, name: str, ring: str = "one", *, namespace: str = "ops", **annotations: str) -> None:
        """The Lease is held by its shard, or, for the name of another holder, by that."""
        self.version += 1
        name, _, holder = name.partition("/")
        meta = ObjectMeta(
            name=name,
            namespace=namespace,
            resource_version=str(self.version),
            labels={RING_LABEL: ring},
            annotations=annotations,
        )
        spec = LeaseSpec(
            holder_identity=holder or name,
            lease_duration_seconds=15,
            acquire_time="a",
            renew_time=str(self.version),
            lease_transitions=1,
        )
        self.told(self.states.observe(Lease(metadata=meta, spec=spec), self.now))

    def delete(self, name: str) -> None:
        self.version += 1
        self.told(self.states.forget(Key("ops", name), self.now, str(self.version)))

    def told(self, change: ShardChange | None) -> None:
        if change is not None:
            self.small.rings.shard_changed(change)


def test_which_shards_a_ring_has_is_looked_at_once_until_it_is_told_of_news_or_loses_one_by_itself() -> None:
    """All Leases of the ring are looked at, and the view is asked for with each object."""
    world = Followed()
    ring, looks = world.small.ring, list[int]()
    for what in ("a", "a", "b", "a", "b/nobody"):  # appears, is renewed ...
        world.looks = 0
        world.hold(what)
        assert len({id(ring.view) for _ in range(100)}) == 1
        looks.append(world.looks)
    assert looks == [1, 0, 1, 0, 1]
    world.delete("a")
    assert ring.available == ("a",)
    world.now += 30.0
    assert (ring.available, ring.shards.until) == ((), math.inf)


def test_that_the_shards_of_a_ring_are_others_is_told_to_who_writes_its_status_and_a_renewal_is_not() -> None:
    world, heard = Followed(), list[str]()
    world.small.rings.news.tell = heard.append  # type: ignore[method-assign]
    for what in ("a", "b"):
        world.hold(what)
    assert heard == ["one", "one"]
    world.hold("a")
    assert heard == ["one", "one"]
    world.hold("a", "two")
    assert heard == ["one", "one", "one", "two"]


@pytest.mark.parametrize("seed", range(20))
def test_what_a_ring_is_told_of_its_shards_equals_what_the_leases_say_now(seed: int) -> None:
    draw, world = random.Random(seed), Followed()
    names = ("a", "b", "c", "d")
    for _ in range(300):
        world.now += draw.choice([0.0, 0.5, 2.0, 5.0, 16.0])
        name, ring = draw.choice(names), draw.choice(["one", "one", "two"])
        match draw.choice(["hold", "hold", "hold", "take", "evict", "delete", "confine", "ranges"]):
            case "hold":
                world.hold(name, ring, namespace=draw.choice(["ops", "ops", "dev"]))
            case "take":
                world.hold(f"{name}/{SHARDER_IDENTITY}", ring)
            case "evict":
                world.hold(f"{name}/{SHARDER_IDENTITY}", ring, **{EVICTED_ANNOTATION: "1"})
            case "delete":
                world.delete(name)
            case "confine":
                for change in world.states.confine(ring, draw.choice([None, frozenset({"ops"})]), world.now):
                    world.told(change)
            case "ranges":
                world.hold(name, ring, **{OWNED_RANGES_ANNOTATION: "uid/1024:0-3@2/7"})
        if draw.random() < 0.5:
            continue  # nobody asks for a while
        for each in world.small.rings:
            assert each.shards == world.states.availability(each.name, world.now)
            assert each.view is not None
            assert each.view.hashring.shards == each.shards.labelled


@pytest.mark.parametrize("few", [1, 5])
def test_the_few_namespaces_of_a_ring_are_found_anew_when_one_of_them_changed(few: int) -> None:
    small = SmallRing("a", resources=(SECRETS,), selector=LabelSelector(match_labels={"space": "mine"}))
    small.knows_all = True
    small.namespaces = {f"ns-{number}": {"space": "mine"} for number in range(few)}
    assert small.ring.selected(5, 10) is None, "there are too few others"
    small.namespaces |= {f"other-{number}": {} for number in range(20)}
    assert small.ring.selected(5, 10) == tuple(sorted(f"ns-{number}" for number in range(few)))
    small.namespaces["more"] = {"space": "mine"}
    handlers: dict[Any, Any] = {}
    cache: Any = SimpleNamespace(
        declare=lambda kind: SimpleNamespace(add_handler=lambda handler: handlers.update({kind: handler}))
    )
    small.rings.declare(cache)
    handlers[Namespace](Added(Namespace(metadata=ObjectMeta(name="more", labels={"space": "mine"}))))
    assert small.ring.selected(5, 10) == (None if few == 5 else ("more", "ns-0"))
    small.become(SECRETS, selector=LabelSelector(match_labels={"space": "of-nobody"}))
    assert small.ring.selected(5, 10) == ()


def test_that_keys_differ_from_the_go_sharders_is_told_only_while_one_may_work_on_the_ring() -> None:
    small = SmallRing("a", resources=(SECRETS,))
    owner = OwnerKind(GroupResource("", "secrets"), main=True, namespaced=False)
    owned = OwnerKind(CONFIG_MAPS, main=False, namespaced=True)
    owners = {GroupKind("", "Secret"): owner, GroupKind("", "ConfigMap"): owned}
    small.kinds, small.learned = {CONFIG_MAPS: owners}, 1
    report, by_labels = small.ring.report, small.resource
    assert small.view is not None
    assert CONFIG_MAPS in report.keys_differing
    meta = msgspec.structs.replace(by_labels.metadata, annotations={DELIVERY_ANNOTATION: "Ranges"})
    by_ranges = msgspec.structs.replace(by_labels, metadata=meta)
    small.rings.apply(Updated(by_labels, by_ranges))
    assert small.view is not None
    assert not report.keys_differing
    small.rings.apply(Updated(by_ranges, by_labels))
    assert small.view is not None
    assert CONFIG_MAPS in report.keys_differing


def test_a_changed_spec_is_scanned_in_full_and_a_changed_status_is_not() -> None:
    small = SmallRing("a", clock=SimpleNamespace(monotonic=lambda: 7.0))  # type: ignore[arg-type]
    asked: list[ScanScope] = []
    small.sync("secrets").request = lambda scope, now: asked.append(scope)  # type: ignore[method-assign]
    small.rings.apply(Updated(small.resource, small.resource))
    assert asked == []
    small.become(RingResource(resource="secrets"), selector=LabelSelector(match_labels={"a": "a"}))
    assert asked == [ScanScope.ALL]
    # After a restore of etcd, a generation comes again with another spec.
    selector = LabelSelector(match_labels={"a": "b"})
    again = ControllerRing(
        metadata=small.resource.metadata,
        spec=msgspec.structs.replace(small.resource.spec, namespace_selector=selector),
    )
    small.rings.apply(Updated(small.resource, again, relisted=True))
    assert asked == [ScanScope.ALL, ScanScope.ALL]


class Busy:
    """A ring that the process leads, with an entry in each of its memories."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self.small = SmallRing("a", "b", resources=(SECRETS,), clock=VirtualClock())
        self.ring = self.small.ring
        self.sync = self.small.sync("secrets", tasks=group)
        self.sync.start(self._never, "work")
        decision = Decision(Action.DRAIN, "b", "a", key="/Secret/default/foo")
        meta = ObjectMeta(name="foo", namespace="default")
        entry = self.sync.entry
        self.job = job_for(self.ring, entry, SECRET, meta, decision)

    async def _never(self, *_: object, **__: object) -> None:
        await asyncio.sleep(1e9)

    def happens(self) -> None:
        """Calls everything that may still happen late."""
        of = self.sync.of
        self.sync.failed(self.job, Forbidden("policy"))
        self.sync._assigned_late(self.job)
        of.drain_requested(self.job.entry.resource, self.job.decision.key)
        of.request(ScanScope.ALL)
        of.members_changed()
        self.ring.metrics.add("movements", self.sync.entry.resource)
        self.ring.metrics.add("webhook_unassigned", None, "key")
        self.ring.report.resolved(self.sync.entry.resource, "not served")
        self.ring.report.waiting({"a": Objects.of(["x"])}, {}, {}, {})


@pytest.mark.regression
@pytest.mark.parametrize("how", ["deleted", "made anew"])
@virtual_time
async def test_after_a_ring_ended_nothing_remembers_it_whatever_comes_late(how: str) -> None:
    heard: list[str] = []
    async with asyncio.TaskGroup() as group:
        world = Busy(group)
        world.small.rings.news.tell = heard.append  # type: ignore[method-assign]
        await asyncio.sleep(0)
        world.happens()
        assert heard
        assert 'controllerring="ring"' in generate_latest(world.small.registry).decode()
        if how == "deleted":
            world.small.delete()
        else:
            world.small.become(SECRETS, uid="another")
        heard.clear()
        world.small.delete()
        world.happens()
        world.ring.end()
        assert heard == []
        assert world.ring.view is None
        assert world.sync.of.resources == {}
        assert list(world.small.rings) == []
    # All of its tasks have ended; otherwise the group would still be waiting for them.
    assert 'controllerring="ring"' not in generate_latest(world.small.registry).decode()
    reference = weakref.ref(world.ring)
    del world
    gc.collect()
    assert reference() is None


@pytest.mark.regression
def test_a_ring_that_is_made_anew_under_the_name_is_another_one() -> None:
    small = SmallRing("a")
    former = small.ring
    assert former.view is not None
    former.metrics.add("movements", GroupResource("", "secrets"))
    small.become(RingResource(resource="secrets"), uid="another")
    ring = small.rings.get("ring")
    assert ring is not None
    assert ring is not former
    assert former.ended
    assert "movements_total{" not in generate_latest(small.registry).decode()
    assert ring.view is not None
    ring.metrics.add("movements", GroupResource("", "secrets"))
    former.end()
    former.metrics.add("movements", GroupResource("", "secrets"))
    labels = {"controllerring": "ring", "group": "", "resource": "secrets"}
    assert small.registry.get_sample_value("controller_sharding_movements_total", labels) == 1


@pytest.mark.regression
def test_a_ring_that_is_made_anew_gets_a_webhook_configuration_of_its_own() -> None:
    small = SmallRing("a")
    former = webhook_configuration(small.resource, WebhookConfig())
    small.become(RingResource(resource="secrets"), uid="another")
    desired = webhook_configuration(small.resource, WebhookConfig())
    assert in_sync(msgspec.convert(desired, MutatingWebhookConfiguration), desired)
    assert not in_sync(msgspec.convert(former, MutatingWebhookConfiguration), desired)


@pytest.mark.regression
def test_who_leads_no_more_does_not_tell_later_what_it_had_seen_as_the_leader() -> None:
    ring = SmallRing("a").ring
    ring.report.lease("ns/a", "no")
    ring.report.waiting({}, {"no": Objects.of(["secrets default/a"])}, {}, {})
    assert {each.type for each in findings(ring.report, ring.resources, [])} == {
        LEASES_WRITTEN,
        ASSIGNMENT_STUCK,
    }
    ring.leads_no_more()
    assert not findings(ring.report, ring.resources, [])


def test_a_late_deletion_of_a_former_ring_ends_no_other() -> None:
    small = SmallRing("a")
    former = small.resource
    small.become(RingResource(resource="secrets"), uid="another")
    ring = small.rings.get("ring")
    small.rings.apply(Deleted(former))
    assert ring is not None
    assert small.rings.get("ring") is ring
    assert not ring.ended


def pending_drains(*keys: str) -> PendingDrains:
    """A scan has read everything, and seen these."""
    pending = PendingDrains()
    pending.begin()
    for key in keys:
        pending.add(key)
    pending.end()
    return pending


def test_as_long_as_nothing_could_be_read_any_object_may_be_drained() -> None:
    pending = PendingDrains()
    assert "key" in pending
    pending.begin()
    pending.end()
    assert "key" not in pending
    pending.failed()
    assert "key" in pending


def test_of_many_drains_that_are_pending_some_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "MOST_DRAINS", 3)
    assert len(pending_drains("1", "2", "3", "4", "5")) == 3


@pytest.mark.regression
def test_drains_that_scans_saw_before_they_failed_do_not_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "MOST_DRAINS", 3)
    pending = PendingDrains()
    for number in range(10):
        pending.begin()
        pending.add(f"{number}")
        pending.failed()
    assert len(pending) <= 2 * 3


@pytest.mark.regression
@pytest.mark.parametrize("how", ["asked for outside of a scan", "seen by a scan that failed"])
def test_a_drain_is_pending_until_a_later_scan_does_not_see_it(how: str) -> None:
    pending = pending_drains()
    if how == "seen by a scan that failed":
        pending.begin()
    pending.add("key")
    pending.begin()
    assert ("key" in pending, len(pending)) == (True, 1)
    assert pending.end(), "it has ended"
    assert ("key" in pending, len(pending)) == (False, 0)


@pytest.mark.regression
def test_a_drain_that_is_asked_for_again_during_a_scan_outlives_the_scan() -> None:
    """The object was released and came back after the last scan, and this scan did not see it."""
    pending = pending_drains("key")
    pending.begin()
    pending.add("key")
    assert not pending.end()
    assert "key" in pending
    pending.begin()
    assert pending.end()
    assert "key" not in pending


def test_a_drain_in_a_namespace_that_could_not_be_read_is_still_pending() -> None:
    keys = ("/Secret/one/x", "/Secret/two/y")
    pending = pending_drains(*keys)
    pending.begin()
    pending.end({"one"})
    assert [key in pending for key in (*keys, "/Secret/one/z")] == [True, False, True]
    assert len(pending) == 1


@virtual_time
async def test_the_wait_for_a_shard_without_a_lease_begins_anew_whenever_it_was_there_meanwhile() -> None:
    small = SmallRing("a", clock=VirtualClock())
    meta = msgspec.structs.replace(small.resource.metadata, annotations={STRICT_HANDOVER_ANNOTATION: "60s"})
    small.rings.apply(Updated(small.resource, msgspec.structs.replace(small.resource, metadata=meta)))
    observer = LeaseObserver(SmallApi().client(small.clock), small.clock)
    observer.follow("ring")
    lease = Lease(metadata=ObjectMeta(name="b", namespace="ops", labels={RING_LABEL: "ring"}))
    assert not small.ring.has_ended("b")
    observer.rings = small.rings
    # Nobody asks for a view, as in a replica that does not lead.
    small.leases["b"] = [lease]
    observer.observe(lease)
    await asyncio.sleep(60.0)
    del small.leases["b"]
    observer.forget(lease.key)
    assert not small.ring.has_ended("b")
    await asyncio.sleep(60.0)
    assert small.ring.has_ended("b")


@virtual_time
async def test_an_annotation_that_is_no_duration_is_told_and_objects_wait_without_a_limit() -> None:
    small = SmallRing("a", clock=VirtualClock())
    meta = msgspec.structs.replace(small.resource.metadata, annotations={STRICT_HANDOVER_ANNOTATION: "soon"})
    small.rings.apply(Updated(small.resource, msgspec.structs.replace(small.resource, metadata=meta)))
    assert "'soon' is neither true nor a duration" in small.ring.report.strict_handover_problem
    assert not small.ring.has_ended("b")
    await asyncio.sleep(80_000.0)
    assert not small.ring.has_ended("b")


def test_of_what_waits_the_count_is_exact_and_the_ages_of_the_first_are_known() -> None:
    waiting = WaitingObjects()
    assert waiting.oldest == 0.0
    for now in (10.0, 30.0):
        snapshot = waiting.snapshot(now)
        for number in range(REMEMBERED + 5):
            snapshot.add(ObjectMeta(name=str(number)), now)
        snapshot.commit()
    assert waiting.count == REMEMBERED + 5
    assert waiting.oldest == 20.0
    assert len(list(waiting)) == len(list(waiting.older_than(15.0))) == REMEMBERED
    waiting.snapshot(40.0).commit()
    assert (waiting.count, waiting.oldest) == (0, 0.0)


def test_a_scan_that_began_before_the_last_one_tells_nothing_of_what_waits() -> None:
    """A scan of all may take longer than urgent ones that begin meanwhile, and find that the objects were assigned."""
    waiting = WaitingObjects()
    earlier = waiting.snapshot(10.0)
    earlier.add(ObjectMeta(name="a", uid="a"), 11.0)
    waiting.snapshot(20.0).commit()
    earlier.commit()
    assert (waiting.count, list(waiting), waiting.read_at) == (0, [], 20.0)


def test_what_it_costs_to_tell_which_objects_wait_does_not_grow_with_their_number() -> None:
    """To ask whether a shard has ended is to look at all Leases of the ring."""
    small, asked = SmallRing("a"), list[str]()
    small.ring.has_ended = lambda shard: bool(asked.append(shard))  # type: ignore[method-assign, func-returns-value]
    snapshot = small.sync("secrets").unassigned.snapshot(0.0)
    for number in range(100):
        snapshot.add(ObjectMeta(name=str(number)), 0.0, "b" if number % 2 else "")
    snapshot.commit()
    small.ring_sync.tell_waiting()
    assert asked == ["b"]
    assert small.ring.report.unconfirmed["b"].count == 50


def test_of_too_many_namespaces_any_may_be_meant() -> None:
    names = SkippedNamespaces()
    for number in range(REMEMBERED):
        names.add(str(number))
    assert names.take("7")
    assert not names.take("7")
    names.add("7")
    names.add("one more")
    assert names.take("never added")


@pytest.mark.regression
@virtual_time
async def test_a_wait_for_another_clock_that_rounds_to_nothing_on_the_loops_takes_time() -> None:
    """Otherwise, on virtual time, whoever waits for that clock asks it again forever."""
    await asyncio.sleep(1000)
    before = asyncio.get_running_loop().time()
    assert not await Inbox[str]().take(1e-14)
    assert asyncio.get_running_loop().time() > before
