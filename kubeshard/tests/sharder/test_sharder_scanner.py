"""Full scans of a ring's objects on a small API."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs

import pytest
from prometheus_client import generate_latest
from small_api import SmallApi, ok, status
from small_ring import SmallRing, a_proof

from kubeshard.core.kinds import GroupKind, GroupResource
from kubeshard.core.selectors import LabelSelector
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard.sharder.kinds_and_rights import Permissions, ResourceKinds
from kubeshard.sharder.moves import Mover
from kubeshard.sharder.scanner import STALLED, Scanner
from kubeshard.sharder.tasks import carried_out
from kubeshard.sharding.api import RingGroupResource, RingResource
from kubeshard.sharding.hash_ring import HashRing
from kubeshard.sharding.names import CLEAN_UP_FINALIZER
from kubeshard.sharding.object_job import Job
from kubeshard.sharding.planner import NOT_SHARDED
from kubeshard.sharding.proofs import DeathProof
from kubeshard.sharding.ring import OnDeletion, Ring
from kubeshard.sharding.ring_resources import OwnerKind
from kubeshard.sharding.scans import MANY_NAMESPACES
from kubeshard.sharding.schedule import ScanPriority, ScanResult, ScanScope
from kubeshard.sharding.waiting import ASSIGNMENT_DELAY, Objects
from kubeshard_lab.virtual_time import VirtualClock, virtual_time
from kubeshard_lab.virtual_world import SeededRng

SHARD, DRAIN = "shard.alpha.sharding.timebertt.dev/ring", "drain.alpha.sharding.timebertt.dev/ring"
SECRETS, CONFIG_MAPS = "/api/v1/namespaces/default/secrets", "/api/v1/namespaces/default/configmaps"
CLUSTERS = "/apis/things.example/v1/clusters"
FOO = "/Secret/default/foo"
"""The key of secret foo, and of its children."""


def ring_resource(group: str, resource: str, *controlled: str) -> RingResource:
    controlled_resources = tuple(RingGroupResource(group="", resource=name) for name in controlled)
    return RingResource(group=group, resource=resource, controlled_resources=controlled_resources)


RESOURCES = (ring_resource("", "secrets", "configmaps"), ring_resource("things.example", "clusters"))


class World:
    """A ring of Secrets with their ConfigMaps, and of cluster-scoped Clusters."""

    def __init__(
        self,
        *shards: str,
        resources: tuple[RingResource, ...] = RESOURCES,
        selector: LabelSelector | None = None,
        on_deletion: OnDeletion = "nothing",
        system_namespaces: tuple[str, ...] = (),
    ) -> None:
        self.api, clock = SmallApi(), VirtualClock()
        client = self.api.client(clock)
        kinds = ResourceKinds(client)
        self.small = SmallRing(
            *shards,
            resources=resources,
            selector=selector,
            on_deletion=on_deletion,
            system_namespaces=system_namespaces,
            clock=clock,
        )
        self.ring, self.registry = self.small.ring, self.small.registry
        self.report = self.ring.report
        proofs: Any = SimpleNamespace(proven=self._is_dead)
        self.mover = mover = Mover(client, kinds, proofs, clock=clock, rng=SeededRng(1))
        self.resync = Scanner(
            client,
            kinds,
            mover,
            Permissions(client, clock),
            concurrent_moves=10,
            clock=clock,
        )

    async def run(self, scope: ScanScope = ScanScope.ALL) -> ScanResult:
        """Scans each of the ring's resources once, in order."""
        waiting, self.failed = 0, set[GroupResource]()
        for entry in self.ring.resources.entries:
            outcome = await self.scan(*entry.resource[::-1], scope=scope)
            waiting += outcome.waiting
            if outcome.failed:
                self.failed.add(entry.resource)
        return ScanResult(waiting, bool(self.failed))

    async def scan(self, resource: str, group: str = "", scope: ScanScope = ScanScope.ALL) -> ScanResult:
        return await self.resync.scan(self.small.sync(resource, group), scope)

    def not_sharded(self, resource: str) -> dict[str, float]:
        """The numbers of objects that are not, by reason."""
        of = {"resource": resource, "group": ""}
        found = {why: self.number("objects_not_sharded", reason=why, **of) for why in NOT_SHARDED}
        return {why: number for why, number in found.items() if number}

    async def _is_dead(self, ring: Ring, shard: str, since: float) -> DeathProof:
        return a_proof()

    def number(self, name: str, **labels: str) -> float | None:
        """The value of one of the ring's metrics."""
        labels = {"controllerring": "ring", **labels}
        return self.registry.get_sample_value(f"controller_sharding_{name}", labels)

    def secret(self, name: str, **labels: str) -> str:
        self.api.put(SECRETS, name, labels=labels)
        return f"{SECRETS}/{name}"

    def config_map(self, name: str, owner: str, **labels: str) -> str:
        reference = {
            "apiVersion": "v1",
            "kind": "Secret",
            "name": owner,
            "uid": f"uid-{owner}",
            "controller": True,
        }
        self.api.put(CONFIG_MAPS, name, labels=labels, ownerReferences=[reference])
        return f"{CONFIG_MAPS}/{name}"


@virtual_time
async def test_unassigned_objects_owners_and_cluster_scoped_ones_get_their_shards() -> None:
    """Also cluster-scoped objects, whatever namespaces are selected: A4 in docs/defects.md."""
    w = World("shard-0", "shard-1", "shard-2", selector=LabelSelector(match_labels={"space": "default"}))
    secret, child = w.secret("foo"), w.config_map("sum", "foo")
    w.api.put(CLUSTERS, "c")
    assert await w.run() == ScanResult()
    assert w.api.labels(secret)[SHARD] == w.api.labels(child)[SHARD] == "shard-1"
    assert w.api.labels(f"{CLUSTERS}/c")[SHARD]


@virtual_time
async def test_objects_outside_the_selected_namespaces_stay_untouched() -> None:
    w = World("a", selector=LabelSelector(match_labels={"space": "other"}))
    w.secret("foo")
    await w.run()
    assert w.api.writes() == []


@virtual_time
async def test_a_second_pass_writes_nothing() -> None:
    w = World("shard-0", "shard-1")
    for i in range(20):
        w.secret(f"s{i}")
    await w.run()
    before = len(w.api.writes())
    await w.run()
    assert len(w.api.writes()) == before == 20


@virtual_time
async def test_controlled_objects_wait_for_the_drain_of_their_owner_and_then_follow() -> None:
    """A8 in docs/defects.md."""
    w = World("shard-0", "shard-1", "shard-2")
    secret = w.secret("foo", **{SHARD: "shard-0"})
    child = w.config_map("sum", "foo", **{SHARD: "shard-0"})
    assert (await w.run()).waiting == 2
    assert w.api.labels(secret) == {SHARD: "shard-0", DRAIN: "true"}
    assert w.api.labels(child) == {SHARD: "shard-0"}

    assert (await w.run(ScanScope.CONTROLLED)).waiting == 2
    assert w.api.labels(child) == {SHARD: "shard-0"}

    w.api.relabel(secret, **{SHARD: "shard-1", DRAIN: None})  # acknowledged, and assigned by the webhook
    assert (await w.run(ScanScope.CONTROLLED)).waiting == 0
    assert w.api.labels(child) == {SHARD: "shard-1"}


SECRET_OWNERS = {GroupKind("", "Secret"): OwnerKind(GroupResource("", "secrets"), main=True, namespaced=True)}
MAPS_TOO = {
    GroupKind("", "ConfigMap"): OwnerKind(GroupResource("", "configmaps"), main=False, namespaced=True)
}


def controlled_by(kind: str, name: str = "foo", api_version: str = "v1") -> dict[str, Any]:
    owner = {"apiVersion": api_version, "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}
    return {"ownerReferences": [owner]}


PLACES: Mapping[str, tuple[str, str, dict[str, Any]]] = {
    "assigned": (SECRETS, "", {"labels": {SHARD: "a"}}),
    "unassigned": (SECRETS, "", {}),
    "of a dead shard": (SECRETS, "", {"labels": {SHARD: "gone"}}),
    "draining": (SECRETS, "", {"labels": {SHARD: "b", DRAIN: "true"}}),
    "to be drained": (SECRETS, "", {"labels": {SHARD: "b"}}),
    "child": (CONFIG_MAPS, "", controlled_by("Secret")),
    "no controller": (CONFIG_MAPS, "no_controller", {"labels": {SHARD: "a"}}),
    "another controller": (CONFIG_MAPS, "foreign_controller", controlled_by("Deployment")),
    "a chain": (CONFIG_MAPS, "owner_unknown", controlled_by("ConfigMap", "above")),
    "an owner without a name": (CONFIG_MAPS, "key", controlled_by("Secret", "")),
    "an owner of no version": (CONFIG_MAPS, "key", controlled_by("Secret", api_version="")),
    "an owner of a bad version": (
        CONFIG_MAPS,
        "key",
        controlled_by("Secret", api_version="a/b/c"),
    ),
}


@virtual_time
async def test_each_object_of_the_ring_s_namespaces_is_counted_once_as_assigned_waiting_or_not_sharded() -> (
    None
):
    """Those elsewhere are not: they are not even read if the ring selects few namespaces."""
    selector = LabelSelector(match_labels={"space": "default"})
    w = World("a", resources=RESOURCES[:1], selector=selector, system_namespaces=("system",))
    w.small.namespaces |= {"other": {"space": "other"}, "system": {"space": "default"}}
    for namespace in ("other", "system", "unknown"):
        w.api.put(SECRETS.replace("default", namespace), "elsewhere")
    w.small.kinds = {GroupResource("", "configmaps"): SECRET_OWNERS | MAPS_TOO}
    w.small.learned += 1
    expected: dict[str, Counter[str]] = {"secrets": Counter(), "configmaps": Counter()}
    for name, (place, why, fields) in PLACES.items():
        w.api.put(place, name.replace(" ", "-"), **fields)
        if why:
            expected[place.rsplit("/", 1)[1]][why] += 1
    w.api.faults.append(lambda request: status(403, "Forbidden") if request.method == "PATCH" else None)
    await w.run()
    for resource, reasons in expected.items():
        assert w.not_sharded(resource) == reasons
        kind = [name for name, (place, _, _) in PLACES.items() if place.endswith(resource)]
        ours = w.small.sync(resource)
        waiting = ours.unassigned.count + ours.drains.count
        at_home = sum(name == "assigned" for name in kind)
        assert len(kind) == at_home + waiting + sum(reasons.values()), resource


@virtual_time
async def test_what_is_not_sharded_is_told_as_of_the_last_list_of_all_that_was_complete() -> None:
    w = World("a")
    w.config_map("x", "foo")
    w.api.put(CONFIG_MAPS, "plain")
    await w.run()
    assert w.not_sharded("configmaps") == {"no_controller": 1}
    w.api.put(CONFIG_MAPS, "more")
    await w.run(ScanScope.MISPLACED)
    w.api.faults.append(lambda request: status(500, "InternalError") if request.method == "GET" else None)
    await w.run()
    assert w.not_sharded("configmaps") == {"no_controller": 1}
    w.api.faults.clear()
    await w.run()
    assert w.not_sharded("configmaps") == {"no_controller": 2}
    del w.api.objects[f"{CONFIG_MAPS}/plain"], w.api.objects[f"{CONFIG_MAPS}/more"]
    await w.run()
    assert w.not_sharded("configmaps") == {}


@virtual_time
async def test_what_is_not_sharded_does_not_vanish_with_the_last_shard() -> None:
    w = World("a")
    w.api.put(CONFIG_MAPS, "plain")
    await w.run()
    w.small.shards = ()
    await w.run()
    assert w.not_sharded("configmaps") == {"no_controller": 1}


@virtual_time
async def test_a_namespace_that_cannot_be_read_keeps_its_part_of_what_is_not_sharded_and_no_other() -> None:
    w = World("a", selector=LabelSelector(match_labels={"space": "mine"}))
    w.small.knows_all = True
    w.small.namespaces = {f"other-{number}": {"space": "other"} for number in range(MANY_NAMESPACES)}
    w.small.namespaces |= {"default": {"space": "mine"}, "locked": {"space": "mine"}}
    locked = CONFIG_MAPS.replace("default", "locked")
    w.api.put(CONFIG_MAPS, "plain")
    w.api.put(locked, "plain")
    await w.run()
    assert w.not_sharded("configmaps") == {"no_controller": 2}
    w.api.faults.append(
        lambda request: status(403, "Forbidden") if request.target.startswith(locked) else None
    )
    w.api.put(CONFIG_MAPS, "more")
    assert (await w.run()).failed
    assert w.not_sharded("configmaps") == {"no_controller": 3}


@pytest.mark.parametrize("name", ["foo/bar", "/", "..", "x" * 300, "a b?c#d%2F"])
@virtual_time
async def test_an_owner_with_a_name_that_none_can_have_is_gone(name: str) -> None:
    """The API server does not check the names in owner references."""
    w = World("shard-0", "shard-1", "shard-2")
    path = w.config_map("sum", name)
    await w.run()
    target = w.api.labels(path)[SHARD]
    w.api.relabel(path, **{SHARD: "shard-0" if target != "shard-0" else "shard-1"})
    await w.run()
    assert w.api.labels(path)[SHARD] == target
    assert not list(w.small.sync("configmaps").refusals.lasting())


@virtual_time
async def test_a_shard_that_joins_during_a_pass_takes_no_controlled_object_from_its_owner() -> None:
    """The scan saw the owners before the shard had joined: A8 in docs/defects.md."""
    w = World("shard-0", "shard-2")
    child = w.config_map("sum", "foo", **{SHARD: (owner := HashRing(["shard-0", "shard-2"]).owner(FOO))})
    w.secret("foo", **{SHARD: owner})

    def join(request: HttpRequest) -> HttpResponse | None:
        if "/configmaps" in request.target and request.method == "GET":
            w.small.shards = ("shard-0", "shard-1", "shard-2")
        return None

    w.api.faults.append(join)
    assert HashRing(["shard-0", "shard-1", "shard-2"]).owner(FOO) == "shard-1"
    outcome = await w.run()
    assert (w.api.labels(child)[SHARD], outcome.waiting) == (owner, 1)


@virtual_time
async def test_a_controlled_object_stays_with_its_owner_that_another_sharder_has_moved() -> None:
    """The other one knew that the owner's shard had died. This one has not heard of it."""
    w = World("shard-0", "shard-1", "shard-2")
    secret = w.secret("foo", **{SHARD: "shard-1"})
    child = w.config_map("sum", "foo", **{SHARD: "shard-1"})
    await w.run()
    w.api.relabel(secret, **{SHARD: "shard-2"})
    w.api.relabel(child, **{SHARD: "shard-2"})
    assert await w.scan("configmaps") == ScanResult(waiting=1)
    assert w.api.labels(child) == {SHARD: "shard-2"}

    w.api.relabel(secret, **{SHARD: None})  # released, and nobody's yet
    assert await w.scan("configmaps") == ScanResult(waiting=1)
    assert w.api.labels(child) == {SHARD: "shard-2"}

    w.api.relabel(secret, **{SHARD: "shard-1"})
    assert await w.scan("configmaps") == ScanResult(moved=1)
    assert w.api.labels(child) == {SHARD: "shard-1"}


@virtual_time
async def test_a_controlled_object_whose_owner_is_gone_or_another_one_follows_the_ring() -> None:
    w = World("shard-0", "shard-1", "shard-2")
    of_none = w.config_map("sum", "foo", **{SHARD: "shard-2"})
    await w.run()
    assert w.api.labels(of_none) == {SHARD: "shard-1"}

    w.api.relabel(of_none, **{SHARD: "shard-2"})
    w.api.put(SECRETS, "foo", uid="recreated", labels={SHARD: "shard-2"})
    assert await w.scan("configmaps") == ScanResult(moved=1)
    assert w.api.labels(of_none) == {SHARD: "shard-1"}


@virtual_time
async def test_an_object_that_a_scan_finds_without_a_shard_waits_as_long_as_one_that_the_watch_shows() -> (
    None
):
    """A user may have taken it from its shard a moment ago, which takes it back."""
    w = World("shard-0", "shard-1", "shard-2")
    sync, secret = w.small.sync("secrets"), w.secret("foo")
    sync.scanning.update(ScanPriority)
    w.api.objects[secret]["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
    await w.scan("secrets")
    await asyncio.sleep(ASSIGNMENT_DELAY - 0.1)
    assert (sync.due(), w.api.labels(secret)) == ([], {})
    await asyncio.sleep(0.2)
    ((what, job),) = sync.due()
    assert isinstance(job, Job)
    await carried_out(sync.steps(what, job), w.mover.do)
    assert w.api.labels(secret) == {SHARD: "shard-1"}


@virtual_time
async def test_where_one_shard_is_available_nothing_waits_because_no_other_one_can_want_the_object() -> None:
    w = World("shard-0")
    async with asyncio.TaskGroup() as tasks:
        w.small.sync("secrets", tasks=tasks)
        secret = w.secret("foo")
        w.api.objects[secret]["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
        await w.scan("secrets")
        assert w.api.labels(secret) == {SHARD: "shard-0"}
        w.small.sync("secrets").close()


@virtual_time
async def test_what_was_written_since_a_scan_began_is_not_written_again_from_its_list() -> None:
    """Requests per object are one, however slow the server is, and however many scans are under way."""
    w = World("shard-0")
    secrets = [w.secret(f"foo-{number}") for number in range(40)]
    answer = w.api.request

    async def slowly(request: HttpRequest) -> HttpResponse:
        found = await answer(request)
        await asyncio.sleep(1.0 if request.method == "GET" else 0.5)
        return found

    w.api.request = slowly  # type: ignore[method-assign]
    async with asyncio.TaskGroup() as scans:
        for _ in range(4):
            scans.create_task(w.scan("secrets", scope=ScanScope.MISPLACED))
            await asyncio.sleep(0.4)
    assert all(w.api.labels(secret) == {SHARD: "shard-0"} for secret in secrets)
    assert Counter(path for _, path, _ in w.api.writes()) == Counter(secrets)


@virtual_time
async def test_controlled_objects_stay_while_their_owners_drain_is_refused() -> None:
    w = World("shard-0", "shard-1", "shard-2")
    secret, child = w.secret("foo", **{SHARD: "shard-0"}), w.config_map("sum", "foo", **{SHARD: "shard-0"})

    def refuse(request: HttpRequest) -> HttpResponse | None:
        return status(403, "Forbidden") if request.method == "PATCH" and "secrets" in request.target else None

    w.api.faults.append(refuse)
    for scope in (ScanScope.ALL, ScanScope.CONTROLLED, ScanScope.CONTROLLED):
        assert (await w.run(scope)).waiting > 0
        assert w.api.labels(child)[SHARD] == "shard-0"
    w.api.faults.clear()
    await w.run()
    assert DRAIN in w.api.labels(secret)
    await w.run(ScanScope.CONTROLLED)
    w.api.relabel(secret, **{SHARD: "shard-1", DRAIN: None})
    await w.run(ScanScope.CONTROLLED)
    assert w.api.labels(child)[SHARD] == "shard-1"


@pytest.mark.regression
@virtual_time
async def test_controlled_objects_stay_while_a_drain_is_refused_that_became_due_only_on_the_way() -> None:
    w = World("shard-0", "shard-1", "shard-2")
    secret, child = w.secret("foo"), w.config_map("sum", "foo", **{SHARD: "shard-0"})

    def meddle(request: HttpRequest) -> HttpResponse | None:
        if request.method != "PATCH" or "secrets" not in request.target:
            return None
        if DRAIN in str(request.body) and SHARD not in str(request.body):
            return status(403, "Forbidden")
        w.api.relabel(secret, **{SHARD: "shard-0"})  # by another replica's webhook, with an older view
        return None

    w.api.faults.append(meddle)
    assert (await w.run()).waiting > 0
    assert w.api.labels(secret) == w.api.labels(child) == {SHARD: "shard-0"}


@pytest.mark.parametrize("unreadable", ["secrets", "configmaps"])
@virtual_time
async def test_controlled_objects_wait_for_their_owner_whichever_resource_could_not_be_read(
    unreadable: str,
) -> None:
    """A8, A19 in docs/defects.md."""
    w = World("shard-0", "shard-1", "shard-2")
    secret, child = w.secret("foo", **{SHARD: "shard-0"}), w.config_map("sum", "foo", **{SHARD: "shard-0"})

    def unavailable(request: HttpRequest) -> HttpResponse | None:
        lists = request.method == "GET" and request.target.startswith(f"/api/v1/{unreadable}?")
        return status(500, "InternalError") if lists else None

    w.api.faults.append(unavailable)
    await w.run()
    assert w.failed == {GroupResource("", unreadable)}
    assert w.api.labels(child)[SHARD] == "shard-0"
    await w.run(ScanScope.CONTROLLED)
    w.api.faults.clear()
    await w.scan(unreadable)
    assert DRAIN in w.api.labels(secret)
    assert w.api.labels(child)[SHARD] == "shard-0"
    w.api.relabel(secret, **{SHARD: "shard-1", DRAIN: None})
    await w.run(ScanScope.CONTROLLED)
    assert w.api.labels(child)[SHARD] == "shard-1"


@pytest.mark.parametrize(
    ("kind", "code", "reason"),
    [("gadgets", 404, "NotFound"), ("clusters", 404, "NotFound"), ("clusters", 500, "InternalError")],
)
@virtual_time
async def test_controlled_objects_do_not_wait_for_a_kind_that_cannot_be_read_and_is_not_their_owners(
    kind: str, code: int, reason: str
) -> None:
    """It was never installed, was uninstalled, or is unavailable."""
    both = (
        ring_resource("", "secrets", "configmaps"),
        ring_resource("things.example", kind, "configmaps"),
    )
    w = World("shard-0", "shard-2", resources=both)
    await w.run()
    w.small.shards = ("shard-0", "shard-1", "shard-2")
    w.api.faults.append(lambda r: status(code, reason) if "things.example" in r.target else None)
    w.secret("foo", **{SHARD: "shard-1"})
    child = w.config_map("sum", "foo", **{SHARD: "shard-0"})
    await w.run()
    assert {each.resource for each in w.failed} == {kind}
    assert w.api.labels(child)[SHARD] == "shard-1"


@virtual_time
async def test_no_controlled_object_that_moves_costs_a_look_for_a_kind_that_is_not_its_owners() -> None:
    """It would hold up all of them, one after the other, if discovery does not respond."""
    both = (ring_resource("", "gadgets", "configmaps"), ring_resource("", "secrets", "configmaps"))
    w = World("shard-0", "shard-1", "shard-2", resources=both)
    w.secret("foo", **{SHARD: "shard-1"})
    children = [w.config_map(f"sum-{number}", "foo", **{SHARD: "shard-0"}) for number in range(10)]
    await w.run()  # the Secrets after the ConfigMaps
    w.api.requests.clear()
    await w.scan("configmaps")
    assert {w.api.labels(child)[SHARD] for child in children} == {"shard-1"}
    assert not [path for _, path, _ in w.api.requests if path == "/api/v1"]


@virtual_time
async def test_nothing_is_scanned_again_and_again_because_of_drains_of_a_kind_that_was_uninstalled() -> None:
    w = World("shard-0", "shard-1", resources=(ring_resource("things.example", "clusters", "configmaps"),))
    w.api.put(CLUSTERS, "c", labels={SHARD: "shard-0", DRAIN: "true"})
    w.api.put(CLUSTERS, "d", labels={SHARD: "shard-1", DRAIN: "true"})
    assert (await w.run()).waiting
    assert (await w.scan("configmaps")).waiting
    w.api.faults.append(lambda r: status(404, "NotFound") if "things.example" in r.target else None)
    for _ in range(2):  # the first one finds out
        await w.scan("clusters", "things.example")
    assert not (await w.scan("configmaps")).waiting


@virtual_time
async def test_a_pending_drain_is_neither_repeated_nor_counted_again() -> None:
    """A9 in docs/defects.md."""
    w = World("shard-0", "shard-1", "shard-2")
    w.secret("foo", **{SHARD: "shard-0"})
    for _ in range(3):
        await w.run()
    assert len(w.api.writes()) == 1
    labels = {"controllerring": "ring", "group": "", "resource": "secrets"}
    assert w.registry.get_sample_value("controller_sharding_drains_total", labels) == 1
    assert w.registry.get_sample_value("controller_sharding_drains_pending", labels) == 1


@virtual_time
async def test_a_drain_that_nobody_acknowledges_is_reported_after_a_minute() -> None:
    """A9 in docs/defects.md."""
    w = World("shard-0", "shard-1", "shard-2")
    w.secret("foo", **{SHARD: "shard-0"})
    await w.run()
    assert w.report.stuck_drains == {}
    await asyncio.sleep(61.0)
    await w.run()
    assert w.report.stuck_drains == {"shard-0": Objects(1, ("secrets default/foo",))}
    age = w.registry.get_sample_value("controller_sharding_oldest_drain_seconds", {"controllerring": "ring"})
    assert age == pytest.approx(61.0, abs=0.1)


@virtual_time
async def test_objects_that_nobody_works_on_are_counted_with_their_age() -> None:
    w = World("shard-0", "shard-1", "shard-2")
    w.secret("foo", **{SHARD: "gone"})
    w.secret("bar")

    def refuse(request: HttpRequest) -> HttpResponse | None:
        return status(403, "Forbidden") if request.method == "PATCH" else None

    def number(name: str, **labels: str) -> float | None:
        return w.registry.get_sample_value(
            f"controller_sharding_{name}", {"controllerring": "ring", **labels}
        )

    w.api.faults.append(refuse)
    await w.run()
    await asyncio.sleep(40.0)
    await w.run(ScanScope.MISPLACED)
    assert number("objects_unassigned", group="", resource="secrets") == 2.0
    assert number("oldest_unassigned_seconds") == 40.0
    w.api.faults.clear()
    await w.run(ScanScope.MISPLACED)
    assert number("objects_unassigned", group="", resource="secrets") == 0.0
    assert number("oldest_unassigned_seconds") == 0.0


@virtual_time
async def test_a_drain_ages_no_further_while_its_resource_cannot_be_read() -> None:
    """It may have ended, and the object may be gone."""
    w = World("shard-0", "shard-1", "shard-2")
    w.secret("foo", **{SHARD: "shard-0"})
    await w.run()
    w.api.faults.append(lambda r: status(403, "Forbidden") if "/secrets" in r.target else None)
    await asyncio.sleep(61.0)
    await w.run()
    assert w.failed == {GroupResource("", "secrets")}
    assert w.report.stuck_drains == {}
    assert not w.number("oldest_drain_seconds")


@virtual_time
async def test_an_object_that_was_assigned_since_it_was_seen_unassigned_is_not_told_as_stuck() -> None:
    """Scans that follow drains do not look for objects without a shard."""
    w = World("shard-0", "shard-1", "shard-2")
    bar = w.secret("bar")
    w.api.faults.append(lambda r: status(403, "Forbidden") if r.method == "PATCH" else None)
    await w.run()
    w.api.faults.clear()
    w.api.relabel(bar, **{SHARD: "shard-0"})
    await asyncio.sleep(61.0)
    await w.run(ScanScope.CONTROLLED)
    assert not w.report.unassigned
    assert not w.number("oldest_unassigned_seconds")


@virtual_time
async def test_an_object_does_not_wait_as_long_as_another_one_that_had_its_name() -> None:
    w = World("shard-0", "shard-1", "shard-2")
    w.secret("foo", **{SHARD: "shard-0", DRAIN: "true"})
    w.secret("bar")
    w.api.faults.append(lambda r: status(403, "Forbidden") if r.method == "PATCH" else None)
    await w.run()
    w.api.put(SECRETS, "foo", uid="another", labels={SHARD: "shard-0", DRAIN: "true"})
    w.api.put(SECRETS, "bar", uid="another")
    await asyncio.sleep(61.0)
    await w.run()
    assert w.report.stuck_drains == {}
    assert not w.report.unassigned
    await asyncio.sleep(61.0)
    await w.run()
    assert w.report.stuck_drains == {"shard-0": Objects(1, ("secrets default/foo",))}
    assert w.report.unassigned == {"refused": Objects(1, ("secrets default/bar",))}


@virtual_time
async def test_what_waited_in_the_last_resource_of_a_ring_is_not_told_any_longer_when_that_leaves_it() -> (
    None
):
    w = World("shard-0", "shard-1", "shard-2")
    w.secret("foo", **{SHARD: "shard-0", DRAIN: "true"})
    await w.run()
    await asyncio.sleep(61.0)
    await w.run()
    assert w.report.stuck_drains
    w.small.become()
    assert w.report.stuck_drains == {}
    assert w.number("oldest_drain_seconds") == 0.0


@virtual_time
async def test_no_drain_is_pending_of_a_main_resource_that_became_a_controlled_one() -> None:
    w = World("shard-0", "shard-1", "shard-2")
    w.secret("foo", **{SHARD: "shard-0", DRAIN: "true"})
    await w.run()
    assert w.number("drains_pending", group="", resource="secrets") == 1.0
    w.small.become(ring_resource("things.example", "clusters", "secrets"))
    assert w.number("drains_pending", group="", resource="secrets") == 0.0
    w.api.faults.append(lambda r: status(403, "Forbidden") if "/secrets" in r.target else None)
    await w.run()
    assert w.number("drains_pending", group="", resource="secrets") == 0.0


@virtual_time
async def test_a_ring_whose_deletion_was_undone_by_a_restore_is_not_told_to_be_cleaned_up() -> None:
    w = World("shard-0", "shard-1", on_deletion="clean up")
    w.secret("foo", **{SHARD: "shard-0"})
    w.small.begin_deletion(CLEAN_UP_FINALIZER)
    await w.run()
    assert w.report.labels_left
    w.small.become(*RESOURCES)
    assert w.report.labels_left is None
    w.small.begin_deletion(CLEAN_UP_FINALIZER)

    def restore(request: HttpRequest) -> None:
        if w.ring.clean_up is not None:
            w.small.become(*RESOURCES)

    w.api.faults.append(restore)  # while a scan is under way
    await w.scan("secrets")
    assert w.report.labels_left is None


@virtual_time
async def test_a_ring_that_is_gone_leaves_no_alarm_behind() -> None:
    w = World("shard-0", "shard-1", "shard-2")
    w.secret("foo", **{SHARD: "shard-0", DRAIN: "true"})
    await w.run()
    await asyncio.sleep(61.0)
    await w.run()
    assert b"drains_pending{" in generate_latest(w.registry)
    w.small.delete()
    text = generate_latest(w.registry)
    assert b"drains_pending{" not in text
    assert b"oldest_drain_seconds{" not in text


@virtual_time
async def test_after_the_loss_of_a_shard_only_its_objects_and_unassigned_ones_are_read() -> None:
    """One selector finds unassigned objects, those of lost shards, and ghosts: B3 in docs/defects.md."""
    w = World("shard-0", "shard-1")
    selectors: list[str] = []

    def note(request: HttpRequest) -> HttpResponse | None:
        if "labelSelector" in request.target:
            selectors.append(request.target)
        return None

    w.api.faults.append(note)
    moved = [w.secret("foo", **{SHARD: "shard-2"}), w.secret("bar", **{SHARD: "ghost"}), w.secret("baz")]
    kept = w.secret("foo1", **{SHARD: "shard-0"})
    await w.run(ScanScope.MISPLACED)
    assert all(w.api.labels(path)[SHARD] in ("shard-0", "shard-1") for path in moved)
    assert w.api.labels(kept) == {SHARD: "shard-0"}
    assert all("notin%20%28shard-0%2Cshard-1%29" in target for target in selectors)
    assert len(selectors) == 3


@virtual_time
async def test_a_scan_of_all_leaves_to_an_urgent_one_what_that_one_places() -> None:
    w = World("a", "b")
    for number in range(8):
        w.secret(f"lost-{number}", **{SHARD: "dead"})
        w.secret(f"settled-{number}", **{SHARD: "a"})
    sync = w.small.sync("secrets")
    sync.began[ScanPriority.URGENT] = VirtualClock().monotonic()
    await w.scan("secrets")
    assert {w.api.labels(f"{SECRETS}/lost-{number}")[SHARD] for number in range(8)} == {"dead"}
    drains = len(w.api.writes())
    assert 0 < drains < 8
    await w.scan("secrets", scope=ScanScope.MISPLACED)
    assert len(w.api.writes()) == drains + 8
    sync.end(ScanPriority.URGENT)
    w.secret("late", **{SHARD: "dead"})
    await w.scan("secrets")
    assert w.api.labels(f"{SECRETS}/late")[SHARD] in {"a", "b"}


@virtual_time
async def test_a_scan_places_what_an_urgent_one_under_way_may_have_read_too_early_to_see() -> None:
    w = World("a", "b")
    sync = w.small.sync("secrets")
    sync.began[ScanPriority.URGENT] = VirtualClock().monotonic()
    await asyncio.sleep(1)
    secret = w.secret("new")
    await w.scan("secrets")
    assert w.api.labels(secret)[SHARD] in {"a", "b"}


@virtual_time
async def test_what_a_scan_leaves_to_an_urgent_one_is_not_told_as_unassigned_after_that_has_placed_it() -> (
    None
):
    w = World("a", "b")
    secret = w.secret("lost", **{SHARD: "dead"})
    sync = w.small.sync("secrets")
    sync.began[ScanPriority.URGENT] = VirtualClock().monotonic()
    scanning = w.resync._list

    async def overtaken(*args: Any) -> None:
        await scanning(*args)
        if sync.began:
            sync.end(ScanPriority.URGENT)
            await w.scan("secrets", scope=ScanScope.MISPLACED)

    w.resync._list = overtaken  # type: ignore[method-assign]
    await w.scan("secrets")
    assert w.api.labels(secret)[SHARD] in {"a", "b"}
    assert sync.unassigned.count == 0


@virtual_time
async def test_an_empty_label_is_unassigned() -> None:
    """A18 in docs/defects.md."""
    w = World("a")
    secret = w.secret("foo", **{SHARD: ""})
    await w.run(ScanScope.MISPLACED)
    assert w.api.labels(secret) == {SHARD: "a"}


@virtual_time
async def test_one_resource_that_cannot_be_read_harms_no_other() -> None:
    """A19 in docs/defects.md."""
    w = World("a")
    secret = w.secret("foo")
    w.api.faults.append(lambda r: status(500, "Broken") if "/configmaps" in r.target else None)
    await w.run()
    assert w.failed == {GroupResource("", "configmaps")}
    assert w.api.labels(secret) == {SHARD: "a"}
    assert GroupResource("", "configmaps") in w.report.unresolved


@virtual_time
async def test_an_unknown_resource_is_reported_until_it_appears() -> None:
    w = World("a", resources=(ring_resource("", "nothing"), ring_resource("", "secrets")))
    secret = w.secret("foo")
    await w.run()
    assert w.failed == {GroupResource("", "nothing")}
    assert w.api.labels(secret) == {SHARD: "a"}
    assert list(w.report.unresolved) == [GroupResource("", "nothing")]


@virtual_time
async def test_one_refused_object_stops_no_other() -> None:
    w = World("a")
    paths = [w.secret(f"s{i}") for i in range(50)]
    bad = {f"{SECRETS}/s{i}": code for i, code in ((7, 403), (8, 404), (9, 422), (10, 409))}

    def refuse(request: HttpRequest) -> HttpResponse | None:
        code = bad.get(request.target.split("?")[0]) if request.method == "PATCH" else None
        return (
            status(code, {403: "Forbidden", 404: "NotFound", 409: "Conflict"}.get(code, "Invalid"))
            if code
            else None
        )

    w.api.faults.append(refuse)
    assert await w.run() == ScanResult()
    assert all(w.api.labels(path) == {SHARD: "a"} for path in paths if path not in bad)


@virtual_time
async def test_without_available_shards_nothing_is_even_read() -> None:
    w = World()
    w.secret("foo", **{SHARD: "gone"})
    await w.run()
    assert not any("secrets" in path for _, path, _ in w.api.requests)


@virtual_time
async def test_an_unknown_resource_is_reported_also_while_there_is_no_shard() -> None:
    w = World(resources=(ring_resource("", "nothing"),))
    await w.run()
    assert list(w.report.unresolved) == [GroupResource("", "nothing")]


@virtual_time
async def test_missing_verbs_are_found_before_they_are_needed() -> None:
    w = World("a")

    def review(request: HttpRequest) -> HttpResponse | None:
        if "selfsubjectaccessreviews" not in request.target:
            return None
        asked = json.loads(request.body or b"")["spec"]["resourceAttributes"]
        allowed = (asked["verb"], asked["resource"]) != ("watch", "configmaps")
        kind = {"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1"}
        return ok({**kind, "status": {"allowed": allowed}}, 201)

    w.api.faults.append(review)
    await w.run()
    assert w.report.missing_verbs == {GroupResource("", "configmaps"): {"watch": ()}}


@virtual_time
async def test_lists_never_name_version_0() -> None:
    w = World("a")
    targets: list[str] = []
    w.api.faults.append(lambda request: targets.append(request.target))
    await w.run()
    assert targets
    assert not any("resourceVersion=" in target for target in targets)


@virtual_time
async def test_a_scan_in_which_nothing_goes_on_is_given_up_and_reported() -> None:
    w = World("a")
    w.secret("foo")
    hanging = asyncio.get_running_loop().create_future()
    w.resync._mover = SimpleNamespace(do=lambda _: asyncio.wait([hanging]))  # type: ignore[assignment]
    async with asyncio.timeout(STALLED + 1.0):
        assert (await w.scan("secrets")).failed
    assert "no progress" in w.report.unresolved[GroupResource("", "secrets")]


@virtual_time
async def test_what_was_decided_before_a_list_failed_is_carried_out() -> None:
    w = World("a")
    for number in range(600):  # more than a page
        w.secret(f"s{number}")
    api_get, pages = w.api._get, 0

    def paged(path: str, query: Mapping[str, str]) -> HttpResponse:
        nonlocal pages
        if not path.endswith("/secrets"):
            return api_get(path, query)
        pages += 1
        if pages > 1:
            return status(500, "Broken")
        body = json.loads(api_get(path, query).body)
        body["metadata"]["continue"] = "more"
        return ok({**body, "items": body["items"][:300]})

    w.api._get = paged  # type: ignore[method-assign]
    assert (await w.scan("secrets")).failed
    labelled = [path for path in w.api.objects if "/secrets/" in path and w.api.labels(path)]
    assert len(labelled) == 300


@virtual_time
async def test_what_left_the_ring_leaves_nothing_behind() -> None:
    w = World("shard-0", "shard-1", "shard-2")
    w.secret("foo", **{SHARD: "shard-0"})
    w.config_map("sum", "foo")
    await w.run()
    assert b'resource="secrets"' in generate_latest(w.registry)
    w.small.become(ring_resource("", "configmaps"))
    text = generate_latest(w.registry)
    assert b'resource="secrets"' not in text
    assert b'resource="configmaps"' in text
    w.small.delete()
    assert b'controllerring="ring"' not in generate_latest(w.registry)


def lists(w: World) -> list[tuple[str, str]]:
    """Returns paths and label selectors of the list requests from now on."""
    seen: list[tuple[str, str]] = []

    def note(request: HttpRequest) -> None:
        path, _, query = request.target.partition("?")
        if request.method == "GET" and "limit" in query:
            seen.append((path, parse_qs(query).get("labelSelector", [""])[0]))

    w.api.faults.append(note)
    return seen


@virtual_time
async def test_a_ring_that_selects_one_of_many_namespaces_reads_no_objects_of_the_others() -> None:
    w = World("a", selector=LabelSelector(match_labels={"space": "mine"}))
    w.small.knows_all = True
    w.small.namespaces = {f"other-{number}": {"space": "other"} for number in range(MANY_NAMESPACES)}
    w.small.namespaces |= {"default": {"space": "mine"}}
    secret, seen = w.secret("foo"), lists(w)
    await w.scan("secrets")
    assert w.api.labels(secret)[SHARD] == "a"
    assert seen == [(SECRETS, "")]
    assert w.small.sync("secrets").narrow, "namespaces that appear are read then"


@virtual_time
async def test_a_ring_that_selects_none_of_many_namespaces_reads_nothing_but_sees_whether_it_may() -> None:
    w = World("a", selector=LabelSelector(match_labels={"space": "mine"}))
    w.small.knows_all = True
    w.small.namespaces = {f"other-{number}": {"space": "other"} for number in range(MANY_NAMESPACES)}
    w.secret("foo")
    seen = lists(w)
    await w.scan("secrets")
    assert seen == [("/api/v1/secrets", f"!{SHARD},{SHARD}")]
    assert w.api.writes() == []
    w.api.faults.append(lambda request: HttpResponse(403, {}, b"{}") if "limit=" in request.target else None)
    assert (await w.scan("secrets")).failed


@pytest.mark.parametrize(("all_known", "others"), [(False, MANY_NAMESPACES), (True, 1)])
@virtual_time
async def test_a_ring_reads_all_objects_if_there_may_be_other_namespaces_or_if_there_are_few(
    all_known: bool, others: int
) -> None:
    w = World("a", selector=LabelSelector(match_labels={"space": "mine"}))
    w.small.knows_all = all_known
    w.small.namespaces = {f"other-{number}": {"space": "other"} for number in range(others)}
    w.small.namespaces |= {"default": {"space": "mine"}}
    seen = lists(w)
    await w.scan("secrets")
    assert seen == [("/api/v1/secrets", "")]
    assert not w.small.sync("secrets").narrow


@virtual_time
async def test_a_scan_that_reads_nothing_does_not_show_that_it_may() -> None:
    secrets = GroupResource("", "secrets")
    for shards, missing in ((), {"list": ()}), (("a",), {}):
        w = World(*shards)
        w.report.permitted(secrets, "list", False, ())
        await w.scan("secrets", scope=ScanScope.MISPLACED)
        assert w.report.missing_verbs.get(secrets, {}) == missing


@virtual_time
async def test_a_scan_waits_for_what_it_may_do_no_longer_than_for_progress() -> None:
    world = World("a")
    answer = world.api.request

    async def silent(request: HttpRequest) -> HttpResponse:
        if "authorization" in request.target:
            await asyncio.Event().wait()
        return await answer(request)

    world.api.request = silent  # type: ignore[method-assign]
    async with asyncio.timeout(STALLED + 1):
        await world.scan("secrets")
