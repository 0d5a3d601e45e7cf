"""Sharding as the manager uses it: what it reads, filters, fences, wraps and rejects."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from kubeshard import when
from kubeshard.cache import Added, Cache, Deleted, Scope, Updated
from kubeshard.client import Client, ClusterConfig
from kubeshard.controller import Context, Controller, Reconciler, Watch
from kubeshard.controller.watch import as_watch
from kubeshard.core import (
    HOME_CLUSTER,
    ConfigMap,
    GroupKind,
    KubeObject,
    NotOurs,
    ObjectMeta,
    Secret,
    Selector,
)
from kubeshard.core.errors import ConfigurationError, NotFound
from kubeshard.core.grants import Grant
from kubeshard.core.selectors import LabelSelector
from kubeshard.leases.held_lease import HeldLease
from kubeshard.manager.leader_election import LeaderElection
from kubeshard.manager.membership import SharedClusters
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard.shard import (
    DeclaredRing,
    LeaseTerms,
    Ranges,
    SharderSettings,
    ShardFence,
    ShardIdentity,
    Sharding,
)
from kubeshard.shard.handover import shard_predicate
from kubeshard.shard.identity import Incarnation
from kubeshard.shard.shard_lease import HeldShardLease, ShardLease
from kubeshard.shard.sharding import MODES
from kubeshard.sharding.api import RingGroupResource, RingResource
from kubeshard.sharding.names import STRICT_HANDOVER_ANNOTATION
from kubeshard.sharding.ring_resources import RingResources
from kubeshard_lab.virtual_time import VirtualClock, virtual_time
from kubeshard_lab.virtual_world import virtual_world

SHARD, DRAIN = "shard.alpha.sharding.timebertt.dev/ring", "drain.alpha.sharding.timebertt.dev/ring"


class Site(KubeObject, group="example.com", version="v1"):
    pass


class Other(KubeObject, group="example.com", version="v1"):
    pass


class Noop(Reconciler[Any]):
    async def reconcile(self, ctx: Context, obj: Any) -> None: ...


RESOURCES = (
    RingResource(
        group="example.com",
        resource="sites",
        controlled_resources=(RingGroupResource(group="", resource="configmaps"),),
    ),
)

GIVEN = DeclaredRing("ring", RESOURCES)


class Api:
    """Returns the given responses in order; the last one is repeated."""

    def __init__(self, *answers: HttpResponse) -> None:
        self.answers = list(answers)
        self.requests: list[HttpRequest] = []

    async def request(self, request: HttpRequest) -> HttpResponse:
        self.requests.append(request)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def stream(self, request: HttpRequest) -> Any:
        raise NotImplementedError

    async def close(self) -> None: ...

    def abort(self) -> None: ...

    def client(self) -> Client:
        return Client(ClusterConfig("http://kube.test"), transport=self, world=virtual_world())


def answer(status: int, /, **body: Any) -> HttpResponse:
    return HttpResponse(status, {"content-type": "application/json"}, msgspec.json.encode(body))


MISSING = answer(404, kind="Status", reason="NotFound", code=404)
FORBIDDEN = answer(403, kind="Status", reason="Forbidden", code=403, message="no")
RING = answer(
    200,
    apiVersion="sharding.timebertt.dev/v1alpha1",
    kind="ControllerRing",
    metadata={"name": "ring"},
    spec={"resources": msgspec.to_builtins(RESOURCES)},
)


def controller(primary: Any = Site, **options: Any) -> Controller[Any]:
    name = as_watch(primary).form.kind.kind.lower()
    return Controller(name=name, reconciler=Noop(), primary=primary, **options)


def site(labels: dict[str, str] | None) -> Site:
    return Site(metadata=ObjectMeta(name="a", namespace="ns", resource_version="1", labels=labels))


@virtual_time
async def test_all_kinds_of_the_ring_are_cached_by_label_and_nothing_else_is() -> None:
    sharding = Sharding("ring", "shard-0", "ns")
    await sharding.prepare(Api(RING).client(), [controller(owns=[ConfigMap, Secret])])
    mine = Scope(labels=Selector.equals(SHARD, "shard-0"))
    assert sharding.scopes(HOME_CLUSTER) == {
        GroupKind("example.com", "Site"): mine,
        GroupKind("", "ConfigMap"): mine,
    }


@virtual_time
async def test_a_ring_that_does_not_exist_is_waited_for_and_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    api = Api(MISSING, MISSING, MISSING, RING)
    sharding = Sharding("ring", "shard-0", "ns")
    with caplog.at_level(logging.WARNING):
        await sharding.prepare(api.client(), [controller(owns=[ConfigMap])])
    assert len(api.requests) == 4
    assert [record.msg for record in caplog.records].count("Waiting for the ControllerRing") == 1


@virtual_time
async def test_given_resources_spare_the_ring_and_its_permission() -> None:
    api = Api(FORBIDDEN)
    sharding = Sharding(GIVEN, "shard-0", "ns")
    await sharding.prepare(api.client(), [controller(owns=[ConfigMap])])
    assert api.requests == []
    without = Sharding("ring", "shard-0", "ns")
    with pytest.raises(ConfigurationError, match="grant get on controllerrings; `kubeshard rbac`"):
        await without.prepare(api.client(), [controller()])


@virtual_time
async def test_a_main_resource_that_nobody_here_reconciles_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sharding = Sharding(GIVEN, "shard-0", "ns")
    await sharding.prepare(Api(MISSING).client(), [controller(Other)])
    assert "its objects will never be drained" in caplog.text


@pytest.mark.parametrize(
    ("delivery", "told"), [("labels", True), ("ranges", True), (Ranges(by="namespace"), False)], ids=str
)
@virtual_time
async def test_that_an_owner_may_be_on_another_shard_than_what_it_owns_is_told_unless_namespaces_are_together(
    caplog: pytest.LogCaptureFixture, delivery: Any, told: bool
) -> None:
    sharding = Sharding("ring", "shard-0", "ns", delivery=delivery)
    owner = controller(Watch(Site, sharded=True), owns=[Watch(Other, sharded=True)])
    await sharding.prepare(Api(MISSING).client(), [owner, controller(Watch(Other, sharded=True))])
    assert ("Objects and what owns them may be on different shards" in caplog.text) == told


@pytest.mark.parametrize(
    ("ring", "name", "message"),
    [
        ("", None, "the name of the ControllerRing is required"),
        ("R", None, "invalid ControllerRing"),
        ("r", "A_", "shard name"),
    ],
)
def test_names_that_cannot_work_are_refused_at_once(ring: str, name: str | None, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Sharding(ring, name)


@virtual_time
async def test_controllers_of_the_ring_are_guarded_and_others_stay_the_very_same() -> None:
    sharding = Sharding(GIVEN, "shard-0", "ns")
    main, controlled, other = controller(Site), controller(ConfigMap), controller(Other)
    await sharding.prepare(Api(MISSING).client(), [main, controlled, other])
    assert sharding.wrap(other, HOME_CLUSTER) is other
    assert len(sharding.wrap(main, HOME_CLUSTER).guards) == 1
    assert sharding.wrap(main, HOME_CLUSTER).primary_watch.when is not main.primary_watch.when
    assert len(sharding.wrap(controlled, HOME_CLUSTER).guards) == 1
    assert sharding.wrap(controlled, HOME_CLUSTER).primary_watch.when is controlled.primary_watch.when


@virtual_time
async def test_what_controllers_declare_is_sharded_where_there_is_no_controllerring() -> None:
    sites = controller(Watch(Site, sharded=True), owns=[Watch(ConfigMap, sharded=True), Secret])
    for mode in MODES:
        sharding = Sharding("ring", "shard-0", "ns", mode=mode)
        await sharding.prepare(Api(MISSING).client(), [sites])
        wrapped = sharding.wrap(sites, HOME_CLUSTER)
        if mode == "sharder":
            assert (sharding.scopes(HOME_CLUSTER), wrapped) == ({}, None)
        else:
            assert set(sharding.scopes(HOME_CLUSTER)) == {
                GroupKind("example.com", "Site"),
                GroupKind("", "ConfigMap"),
            }
            assert wrapped is not None
            assert len(wrapped.guards) == 1


@virtual_time
async def test_a_controllerring_counts_more_than_what_controllers_declare() -> None:
    sharding = Sharding("ring", "shard-0", "ns", mode="both")
    await sharding.prepare(Api(RING).client(), [controller(Watch(Site, sharded=True), owns=[ConfigMap])])
    assert set(sharding.scopes(HOME_CLUSTER)) == {
        GroupKind("example.com", "Site"),
        GroupKind("", "ConfigMap"),
    }
    other = Sharding("ring", "shard-0", "ns", mode="both")
    with pytest.raises(ConfigurationError, match="is declared as a main resource, which it is not"):
        await other.prepare(Api(RING).client(), [controller(Watch(Other, sharded=True))])


@virtual_time
async def test_what_is_not_sharded_gets_an_election_of_the_ring_only_where_this_process_may_lead_it() -> None:
    elections = {}
    for mode in MODES:
        sharding = Sharding(GIVEN, "shard-0", "ns", mode=mode)
        await sharding.prepare(Api(MISSING).client(), [controller()])
        elections[mode] = sharding.election
    assert elections["shard"] is None
    for mode in ("both", "sharder"):
        election = elections[mode]
        assert election is not None
        assert (election.namespace, election.name) == ("ns", "leader-ring")
        assert election.identity.startswith("shard-0_")


@virtual_time
async def test_a_process_that_is_no_shard_refuses_controllers_that_would_see_a_share() -> None:
    sharding = Sharding(GIVEN, "shard-0", "ns", mode="sharder")
    reading = controller(Other, owns=[ConfigMap])
    with pytest.raises(ConfigurationError, match="other is not sharded but watches configmaps"):
        await sharding.prepare(Api(MISSING).client(), [controller(), reading])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sync_period": 0}, "sync_period: 0: give a positive"),
        ({"sync_period": float("nan")}, "sync_period: nan: give a positive"),
        ({"concurrent_moves": 0}, "concurrent_moves: 0: must be positive"),
        ({"mass_failure_grace": -1}, "mass_failure_grace: -1: give a number of seconds"),
        ({"drain_timeout": 1}, "drain_timeout: 1: give 0, or "),
    ],
)
def test_a_sharder_that_could_do_nothing_is_refused_at_once(options: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        SharderSettings(**options)


@pytest.mark.parametrize(("asked", "stated"), [(False, ""), (True, "true"), (90, "90s")])
def test_a_ring_without_a_controllerring_says_how_strict_its_hand_over_is(
    asked: bool | float, stated: str
) -> None:
    sharding = Sharding(DeclaredRing("ring", RESOURCES, strict_handover=asked), mode="both")
    ring = sharding.declared_ring([])
    assert ring is not None
    assert ring.metadata.annotation(STRICT_HANDOVER_ANNOTATION) == stated


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("strict_handover", r'Sharding\(DeclaredRing\("NAME", strict_handover=...\)\), from kubeshard.shard'),
        ("timing", r"lease=LeaseTerms\(timing=...\)"),
        ("sync_period", r"sharder=SharderSettings\(sync_period=...\)"),
    ],
)
def test_a_setting_of_a_group_says_which_one_it_is_in(name: str, instead: str) -> None:
    given: dict[str, Any] = {name: 1}
    with pytest.raises(TypeError, match=f"Sharding has no {name}=: write {instead}"):
        Sharding("ring", **given)


def test_modes_and_selectors_that_cannot_work_are_refused_at_once() -> None:
    with pytest.raises(ConfigurationError, match="sharding mode 'leader' is not one of shard, sharder, both"):
        Sharding("ring", mode="leader")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="strict_handover: -1: give True, or a number of seconds"):
        DeclaredRing("ring", strict_handover=-1)
    wrong = LabelSelector(match_labels={"a b": "c"})
    with pytest.raises(ConfigurationError, match="namespace_selector: "):
        DeclaredRing("ring", namespace_selector=wrong)
    selected = DeclaredRing("ring", namespace_selector=LabelSelector(match_labels={"team": "a"}))
    with pytest.raises(ConfigurationError, match="a hash range has objects of all namespaces: leave it out"):
        Sharding(selected, delivery="ranges")


@virtual_time
async def test_nothing_is_written_before_the_lease_is_held() -> None:
    api = Api(MISSING)
    sharding = Sharding(GIVEN, "shard-0", "ns")
    await sharding.prepare(api.client(), [controller(owns=[ConfigMap])])
    with pytest.raises(NotOurs, match="not held yet"):
        await sharding.client(api.client(), HOME_CLUSTER).create(
            Secret(metadata=ObjectMeta(name="s", namespace="ns"))
        )
    assert api.requests == []


@virtual_time
async def test_no_write_starts_once_the_lease_of_the_replaced_election_is_over_even_before_that_was_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever blocks the loop, which renews it, blocks the notice, too. The shard's own Lease may last longer."""
    api = Api(MISSING)

    @asynccontextmanager
    async def lasts(seconds: float) -> AsyncIterator[HeldLease]:
        clock = VirtualClock()
        held = HeldLease(clock, f"over after {seconds:g} s", lambda: None)
        held.renewed(clock.boottime() + seconds, clock.boottime() + seconds)
        yield held

    @asynccontextmanager
    async def shard(self: Sharding, *_: object) -> AsyncIterator[HeldLease]:
        async with lasts(1000) as held:
            self._held = cast(HeldShardLease, held)
            yield held

    monkeypatch.setattr(Sharding, "_held_as_shard", shard)
    monkeypatch.setattr(LeaderElection, "held_by_group", lambda *_: lasts(20))
    sharding = Sharding(GIVEN, "shard-0", "ns", replaces=LeaderElection("former"))
    await sharding.prepare(api.client(), [controller(owns=[ConfigMap])])
    client, new = (
        sharding.client(api.client(), HOME_CLUSTER),
        Secret(metadata=ObjectMeta(name="s", namespace="ns")),
    )
    async with sharding.held(lambda: None, {}, lambda why: None, cast(SharedClusters, None)):
        with pytest.raises(NotFound):  # the server's answer
            await client.create(new)
        await asyncio.sleep(20)
        with pytest.raises(NotOurs, match="over after 20 s"):
            await client.create(new)


@pytest.mark.parametrize(("holds", "waits"), [(LeaderElection, "held_by_group"), (ShardLease, "held")])
@virtual_time
async def test_a_shard_that_waits_for_the_end_of_another_process_is_ready(
    monkeypatch: pytest.MonkeyPatch, holds: type, waits: str
) -> None:
    """What its ring replaces, or one with its name. A rolling update, which ends that, goes on only then."""

    @asynccontextmanager
    async def never(*_: object) -> AsyncIterator[HeldLease]:
        await asyncio.sleep(1000)
        yield cast(HeldLease, None)

    @asynccontextmanager
    async def at_once(*_: object) -> AsyncIterator[HeldLease]:
        yield cast(HeldLease, None)

    monkeypatch.setattr(LeaderElection, "held_by_group", at_once)
    monkeypatch.setattr(holds, waits, never)
    sharding = Sharding(
        "ring", "shard-0", "ns", delivery="ranges", replaces=LeaderElection("former"), mode="both"
    )
    await sharding.prepare(Api(MISSING).client(), [ranged()])
    assert sharding.unready
    caches = {HOME_CLUSTER: cast(Cache, SimpleNamespace(distrust=None))}
    holding = asyncio.create_task(
        sharding.held(lambda: None, caches, lambda why: None, cast(SharedClusters, None)).__aenter__()
    )
    await asyncio.sleep(1)
    assert not sharding.unready
    holding.cancel()
    await asyncio.wait([holding])


class Wide(KubeObject, group="example.com", version="v1", namespaced=False):
    pass


def ranged(primary: Any = Site, **options: Any) -> Controller[Any]:
    return controller(Watch(primary, sharded=True), **options)


@virtual_time
async def test_with_ranges_a_shard_caches_nothing_before_it_knows_what_it_owns_and_proves_versions() -> None:
    sharding = Sharding("ring", "shard-0", "ns", delivery="ranges")
    main, other = ranged(), controller(Other)
    api = Api(MISSING)
    await sharding.prepare(api.client(), [main, other])
    (scope,) = sharding.scopes(HOME_CLUSTER).values()
    assert not scope.may_select(Site.KIND, ObjectMeta(name="a", namespace="ns", uid="u"))
    assert sharding.wrap(other, HOME_CLUSTER) is other
    assert len(sharding.wrap(main, HOME_CLUSTER).guards) == 1
    client = sharding.client(api.client(), HOME_CLUSTER)
    held = sharding.client(api.client(), "elsewhere")
    sharding._held = cast(HeldShardLease, HeldLease(VirtualClock(), "over", lambda: None))
    sharding._held.renewed(VirtualClock().boottime() + 10, VirtualClock().boottime() + 10)
    read = Site(metadata=ObjectMeta(name="a", namespace="ns", uid="u", resource_version="1"))
    with pytest.raises(NotOurs, match="belongs to another shard"):
        await client.delete_object(read)
    with pytest.raises(NotFound):  # the server's answer: objects elsewhere belong to no shard
        await held.delete_object(read)


@pytest.mark.parametrize(
    ("delivery", "controllers", "message"),
    [
        (Ranges(by="namespace"), [ranged(Wide)], r'write delivery=Ranges\(by="uid"\)'),
    ],
)
@virtual_time
async def test_a_ring_that_ranges_cannot_share_out_is_refused_with_what_to_write_instead(
    delivery: Ranges, controllers: list[Controller[Any]], message: str
) -> None:
    sharding = Sharding("ring", "shard-0", "ns", delivery=delivery)
    with pytest.raises(ConfigurationError, match=message):
        await sharding.prepare(Api(MISSING).client(), controllers)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"buckets": 1000}, "ranges: 1000 buckets: not a power of two"),
        ({"by": "name"}, "ranges: by 'name': not one of uid, namespace"),
        ({"drain_timeout": -1}, "drain_timeout: -1: give a number of seconds"),
    ],
)
def test_ranges_that_cannot_work_are_refused_at_once(given: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Ranges(**given)
    for wrong in "hashes", Ranges:
        with pytest.raises(ConfigurationError, match=r'write "labels", "ranges" or Ranges\(\)'):
            Sharding("ring", delivery=wrong)  # type: ignore[arg-type]


def test_with_ranges_a_shard_needs_the_assignment_and_no_right_to_write_objects() -> None:
    def grants(sharding: Sharding) -> list[Grant]:
        return list(sharding.grants([ranged()], lambda _: Scope()))

    plain = {grant.resource.resource: grant for grant in grants(Sharding("ring", delivery="ranges"))}
    assert plain["configmaps"] == Grant.on(
        ConfigMap, "get", "list", "watch", "patch", namespace=None, name="ranges-ring"
    )
    assert "sites" not in plain
    assert "sites" in {grant.resource.resource for grant in grants(Sharding("ring"))}


def test_who_labels_what_objects_control_may_list_and_patch_it() -> None:
    def grants(delivery: Ranges) -> list[Grant]:
        owner = ranged(owns=[Watch(Other, sharded=True)])
        return list(Sharding("ring", mode="both", delivery=delivery).grants([owner], lambda _: Scope()))

    label, read = Grant.on(Other, "get", "list", "patch"), Grant.on(Site, "get")
    assert {label, read} <= set(grants(Ranges()))
    assert not {label, read} & set(grants(Ranges(by="namespace")))


PREDICATE = [
    # labels, those of the other object, whether it passes
    ({SHARD: "me"}, True, True),
    ({SHARD: "me"}, False, False),
    ({SHARD: "other"}, True, False),
    ({SHARD: ""}, True, False),
    (None, True, False),
    ({DRAIN: "true"}, False, True),
    ({DRAIN: ""}, False, True),
    ({SHARD: "other", DRAIN: "x"}, False, True),
    ({SHARD: "me", DRAIN: "true"}, False, True),
]


@pytest.mark.parametrize(("labels", "others", "passes"), PREDICATE)
def test_the_predicate_passes_drains_and_what_is_ours(
    labels: dict[str, str] | None, others: bool, passes: bool
) -> None:
    predicate = shard_predicate("ring", "me", when.always if others else when.never)
    obj, before = site(labels), site({SHARD: "me"})
    for delta in (Added(obj), Deleted(obj), Updated(before, obj)):
        assert predicate(delta) is passes


@pytest.mark.regression
@pytest.mark.parametrize(
    "before", [{SHARD: "me", DRAIN: "true"}, {SHARD: "other"}, {SHARD: "other", DRAIN: "x"}, None]
)
def test_the_predicate_passes_what_becomes_ours_whatever_the_others_say(
    before: dict[str, str] | None,
) -> None:
    predicate = shard_predicate("ring", "me", when.never)
    assert predicate(Updated(site(before), site({SHARD: "me"})))
    assert not predicate(Updated(site(before), site({SHARD: "other"})))


def test_the_fence_covers_the_rings_resources_in_every_version() -> None:
    class SiteV2(KubeObject, group="example.com", version="v2", kind="Site", plural="sites"):
        pass

    identity = ShardIdentity("ring", "me", "ns", Incarnation("", "", "x"))
    fence = ShardFence(
        identity, RingResources([RingResource(group="example.com", resource="sites")]), (), lambda: None
    )
    assert fence.covers(Site.KIND)
    assert fence.covers(SiteV2.KIND)
    assert not fence.covers(ConfigMap.KIND)
    assert (fence.label_key, fence.shard) == (SHARD, "me")


@pytest.mark.parametrize(
    ("delivery", "terms", "says"),
    [
        ("labels", {"weight": 0}, 'weight and pinned: shares are those of rings by delivery="ranges"'),
        ("ranges", {"weight": 0, "pinned": ["team-a"]}, "team-a is pinned, which is no uid"),
        (Ranges(by="namespace"), {"pinned": "team-a"}, "pinned: 'team-a': give a list"),
    ],
)
def test_what_a_shard_cannot_be_given_is_refused(delivery: Any, terms: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        Sharding("ring", delivery=delivery, lease=LeaseTerms(**terms))


def test_a_namespace_is_pinned_in_a_ring_by_namespaces() -> None:
    Sharding("ring", delivery=Ranges(by="namespace"), lease=LeaseTerms(weight=0, pinned=["team-a"]))
