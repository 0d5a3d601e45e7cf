"""What a shard does around every reconcile: two real controllers on one cache; the API server is a dictionary."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from kubeshard import when
from kubeshard.cache import Cache
from kubeshard.cache.scope import ALL_NAMESPACES
from kubeshard.client import Client, ClusterConfig
from kubeshard.controller import Context, Controller, Daemon, Reconciler, Result
from kubeshard.controller.cluster import Cluster
from kubeshard.controller.outcomes import Outcome
from kubeshard.controller.runner import ControllerRunner
from kubeshard.core import (
    ConfigMap,
    GroupKind,
    Key,
    KubeObject,
    MergePatch,
    NotFound,
    NotOurs,
    ObjectMeta,
    PatchTestFailed,
    UndecodableObject,
    metadata_only,
)
from kubeshard.core.objects import form_of
from kubeshard.core.patches import apply_merge_patch
from kubeshard.listwatch.state_machine import Listed
from kubeshard.runtime.transport import UNDELIVERED, HttpRequest, HttpResponse
from kubeshard.shard.handover import Handovers, shard_predicate
from kubeshard.shard.stale_guard import KEPT, StaleGuard
from kubeshard.workqueue import ItemExponential
from kubeshard_apiserver.json_patch import apply_json_patch
from kubeshard_lab.virtual_time import VirtualClock, settle, virtual_time
from kubeshard_lab.virtual_world import virtual_world

SHARD, DRAIN = "shard.alpha.sharding.timebertt.dev/ring", "drain.alpha.sharding.timebertt.dev/ring"
JSON = {"content-type": "application/json"}


class Site(KubeObject, group="example.com", version="v1"):
    pass


class Theme(KubeObject, group="example.com", version="v1"):
    pass


OURS = {SHARD: "me"}
DRAINING = {SHARD: "me", DRAIN: "true"}


def site(version: int | str, labels: dict[str, str] | None = None) -> Site:
    labels = OURS if labels is None else labels
    return Site(
        metadata=ObjectMeta(
            name="a", namespace="ns", uid="u", resource_version=str(version), labels=labels, generation=1
        )
    )


def named(kind: type[KubeObject], labels: dict[str, str]) -> KubeObject:
    return kind(
        metadata=ObjectMeta(name="c", namespace="ns", uid="u-c", resource_version="1", labels=labels or None)
    )


def odd(version: int, labels: dict[str, str]) -> Any:
    """A Site as a cache shows it if its class does not fit."""
    meta = site(version, labels).metadata
    return UndecodableObject(form_of(Site), "spec is text", metadata_only(Site).type(metadata=meta))


class Server:
    """Objects by path. Merge patches need the stored resourceVersion. While it is `hot` another client writes the
    object before each patch; `then`: before which patch that client sets labels, and which ones.
    """

    def __init__(self) -> None:
        self.stored: dict[str, KubeObject] = {}
        self.requests: list[tuple[str, str]] = []
        self.patches: list[Any] = []
        self.version = 100
        self.hot = False
        self.then: tuple[int, dict[str, str]] = (0, {})
        self.refusal: HttpResponse | None = None
        self.puts_back = False
        self.answers = asyncio.Event()
        self.answers.set()

    def labels(self) -> dict[str, str]:
        (stored,) = (obj for obj in self.stored.values() if isinstance(obj, Site))
        return dict(stored.metadata.labels or {})

    def _written_by_others(self, obj: KubeObject) -> KubeObject:
        self.version += 1
        count, labels = self.then
        changes: dict[str, Any] = {"resource_version": str(self.version)}
        if len(self.patches) == count:
            changes["labels"] = labels
        metadata = msgspec.structs.replace(obj.metadata, **changes)
        return msgspec.structs.replace(obj, metadata=metadata)

    def store(self, obj: KubeObject) -> None:
        self.stored[obj.KIND.path(obj.metadata.namespace, obj.metadata.name)] = obj

    async def request(self, request: HttpRequest) -> HttpResponse:
        path = request.target.partition("?")[0]
        self.requests.append((request.method, path))
        obj = self.stored.get(path)
        if obj is None:
            return status(404, "NotFound")
        if request.method == "PATCH":
            await self.answers.wait()
            obj = self.stored[path]
            patch = msgspec.json.decode(request.body or b"{}")
            self.patches.append(patch)
            if self.refusal:
                return self.refusal
            if self.puts_back:
                patch = {"metadata": {"resourceVersion": obj.metadata.resource_version}}
            if self.hot:
                obj = self.stored[path] = self._written_by_others(obj)
            if isinstance(patch, list):
                try:
                    merged = apply_json_patch(msgspec.to_builtins(obj), patch)
                except PatchTestFailed:
                    return status(422, "Invalid", details={})
            elif patch["metadata"].get("resourceVersion") != obj.metadata.resource_version:
                return status(409, "Conflict")
            else:
                merged = apply_merge_patch(msgspec.to_builtins(obj), patch)
            self.version += not self.puts_back  # a change without effect creates no version
            merged["metadata"]["resourceVersion"] = (
                obj.metadata.resource_version if self.puts_back else str(self.version)
            )
            obj = msgspec.convert(merged, type(obj))
            self.stored[path] = obj
        body = {"apiVersion": obj.KIND.api_version, "kind": obj.KIND.kind, **msgspec.to_builtins(obj)}
        if "PartialObjectMetadata" in request.headers["Accept"]:
            body["kind"] = "PartialObjectMetadata"
        return HttpResponse(200, JSON, msgspec.json.encode(body))

    def stream(self, request: HttpRequest) -> Any:
        raise NotImplementedError

    async def close(self) -> None: ...

    def abort(self) -> None: ...


def status(code: int, reason: str, **fields: Any) -> HttpResponse:
    body = {"kind": "Status", "reason": reason, "code": code, "message": f"it is {reason}", **fields}
    return HttpResponse(code, JSON, msgspec.json.encode(body))


class Script(Reconciler[Any]):
    """Counts its runs; waits for `may_end`; does what the test says."""

    def __init__(self) -> None:
        self.runs: list[Any] = []
        self.gone_keys: list[Key] = []
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.body: Callable[[Context, Any], Awaitable[None]] | None = None

    async def reconcile(self, ctx: Context, obj: Any, /) -> Result | None:
        self.runs.append(obj)
        await self.may_end.wait()
        if self.body is not None:
            await self.body(ctx, obj)
        return None

    async def gone(self, ctx: Context, key: Key, /) -> Result | None:
        self.gone_keys.append(key)
        return None


class Quiet:
    def __init__(self) -> None:
        self.outcomes: list[Outcome | None] = []

    def reporting_as(self, *_: Any) -> Quiet:
        return self

    def event(self, *_: Any, **__: Any) -> None: ...

    def started(self) -> None: ...

    def finished(self, outcome: Outcome | None, seconds: float) -> None:
        self.outcomes.append(outcome)

    def overdue(self, change: int) -> None: ...


class Process:
    """The process of one shard: `first` reads complete Sites, `second` only their metadata, with another informer.
    `when`: the changes that trigger both. `daemons` belong to the first.
    """

    def __init__(self, when: when.Predicate[Any] = when.always, *daemons: Daemon[Any]) -> None:
        self.server = Server()
        self.clock = VirtualClock()
        client = Client(
            ClusterConfig("http://kube.test"), transport=self.server, world=virtual_world(clock=self.clock)
        )
        self.cache = Cache(client)
        sharded = {Site.KIND, ConfigMap.KIND}
        self.handovers = Handovers(SHARD, DRAIN, "me", sharded.__contains__, self.clock)
        self.first, self.second = Script(), Script()
        self.seen = Quiet()
        cluster = Cluster(client, self.cache, self.seen)
        self.runners = [
            ControllerRunner(
                Controller(
                    name=name,
                    reconciler=reconciler,
                    primary=primary,
                    owns=[ConfigMap, Theme],
                    daemons=daemons if name == "first" else (),
                    limiter=lambda world: ItemExponential(1.0, 60.0, jitter=0, rng=world.rng),
                )
                .filtered(when)
                .guarded(self.handovers.sharded, undecodable=self.handovers.draining),
                cluster,
                metrics=metrics,
            )
            for name, reconciler, primary, metrics in (
                ("first", self.first, Site, self.seen),
                ("second", self.second, metadata_only(Site), Quiet()),
            )
        ]

    async def show(self, obj: KubeObject, *, first: bool = True, second: bool = True) -> None:
        """The watches deliver the object."""
        if first:
            self.cache.informer(Site).put(obj, ALL_NAMESPACES)
        if second:
            self.cache.informer(metadata_only(Site)).put(as_metadata(obj), ALL_NAMESPACES)
        await settle()

    async def remove(self, obj: KubeObject) -> None:
        self.cache.informer(Site).drop(obj, ALL_NAMESPACES)
        self.cache.informer(metadata_only(Site)).drop(as_metadata(obj), ALL_NAMESPACES)
        await settle()

    @asynccontextmanager
    async def running(self, *objects: KubeObject) -> AsyncIterator[Process]:
        for obj in objects:
            self.server.store(obj)
        tasks = [asyncio.create_task(runner.run()) for runner in self.runners]
        await settle()
        for informer in self.cache.informers:
            found = {o.key: o for o in objects if informer.form.kind == o.KIND}
            if informer.form.metadata_only:
                found = {key: as_metadata(o) for key, o in found.items()}
            await informer.listed(Listed("10"), found, ALL_NAMESPACES)
        await settle()
        try:
            yield self
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


def as_metadata(obj: KubeObject) -> Any:
    return metadata_only(Site).type(metadata=obj.metadata)


def gets(server: Server, plural: str) -> int:
    return sum(method == "GET" and f"/{plural}/" in path for method, path in server.requests)


@virtual_time
async def test_the_drain_is_acknowledged_when_no_controller_of_the_process_works_on_the_object() -> None:
    async with Process().running(site(5)) as process:
        assert (len(process.first.runs), len(process.second.runs)) == (1, 1)
        process.second.may_end.clear()
        await process.show(site(6))
        process.server.store(site(7, DRAINING))
        await process.show(site(7, DRAINING))
        assert process.server.patches == []
        assert len(process.first.runs) == 2
        process.second.may_end.set()
        await settle()
        labels = {SHARD: None, DRAIN: None}
        assert process.server.patches[0] == {"metadata": {"resourceVersion": "7", "labels": labels}}
        assert process.server.version == 101
        assert (len(process.first.runs), len(process.second.runs)) == (2, 2)


@virtual_time
async def test_the_drain_is_acknowledged_when_daemons_have_ended_and_they_begin_again_with_the_next_assignment() -> (
    None
):
    begun, ended, refused = [], [], []

    async def daemon(ctx: Context, obj: Any) -> None:
        begun.append(obj.metadata.resource_version)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(3)  # slow to release
            ended.append(len(process.server.patches))
            try:
                await ctx.client.patch(Theme, "c", "ns", MergePatch({"metadata": {"labels": {"a": "b"}}}))
            except NotFound:
                refused.append(len(process.server.patches))

    process = Process(when.always, Daemon(daemon))
    async with process.running(site(5)):
        assert begun == ["5"]
        process.server.store(site(7, DRAINING))
        await process.show(site(7, DRAINING))
        assert process.server.patches == []
        await asyncio.sleep(4)
        assert (ended, refused) == ([0], [0])  # it could still write: there was no hand-over yet
        assert process.server.version == 101
        await process.remove(site(101, {}))
        again = site(200)
        process.server.store(again)
        await process.show(again)
        assert begun == ["5", "200"]
    assert len(ended) == 2  # with the controller


@virtual_time
async def test_a_run_that_takes_long_does_not_keep_the_worker_that_wants_to_acknowledge() -> None:
    async with Process().running(site(5)) as process:
        process.second.may_end.clear()
        await process.show(site(6))
        process.server.store(site(7, DRAINING))
        await process.show(site(7, DRAINING))
        await asyncio.sleep(30)
        assert process.server.patches == []
        assert len(process.second.runs) == 2
        labels = [outcome.label for outcome in process.seen.outcomes if outcome]
        assert labels[-1] == "requeue_after"
        process.second.may_end.set()
        await asyncio.sleep(7)
        assert process.server.version == 101


@virtual_time
async def test_no_controller_begins_on_a_copy_from_before_the_drain_however_far_its_cache_lags() -> None:
    async with Process().running(site(5)) as process:
        process.server.store(site(7, DRAINING))
        await process.show(site(7, DRAINING), second=False)  # the second's watch lags behind
        assert len(process.server.patches) == 1
        await process.show(site(6), first=False)
        assert len(process.second.runs) == 1
        await process.show(site(7, DRAINING), first=False)  # drained already: the patch meets a newer version
        assert len(process.second.runs) == 1


@virtual_time
async def test_a_new_assignment_is_worked_on_again() -> None:
    async with Process().running(site(5)) as process:
        process.server.store(site(7, DRAINING))
        await process.show(site(7, DRAINING))
        await process.remove(site(101, {}))
        again = site(200)
        process.server.store(again)
        await process.show(again)
        assert [run.metadata.resource_version for run in process.first.runs] == ["5", "200"]
        assert len(process.second.runs) == 2


@pytest.mark.regression
@virtual_time
async def test_what_is_assigned_again_is_worked_on_and_handed_over_though_its_versions_are_no_numbers() -> (
    None
):
    async with Process().running(site("5/u")) as process:
        process.server.store(site("7/u", DRAINING))
        await process.show(site("7/u", DRAINING), second=False)  # the second's watch lags behind
        assert len(process.server.patches) == 1
        await process.show(site("6/u"), first=False)
        await process.show(site("7/u", DRAINING), first=False)
        assert len(process.second.runs) == 1
        await process.remove(site("8/u", {}))
        again = site("9/u")
        process.server.store(again)
        await process.show(again)
        assert [run.metadata.resource_version for run in process.first.runs] == ["5/u", "9/u"]
        assert len(process.second.runs) == 2
        process.server.store(site("3/u", DRAINING))
        await process.show(site("3/u", DRAINING))
        assert process.server.labels() == {}


@virtual_time
async def test_an_object_assigned_to_the_same_shard_by_its_own_acknowledgement_is_worked_on() -> None:
    async with Process().running(site(5)) as process:
        process.server.store(site(7, DRAINING))
        await process.show(site(7, DRAINING))
        assert process.server.version == 101
        back = site(101)  # the webhook put the label back within the acknowledgement's own request
        process.server.store(back)
        await process.show(back)
        assert process.first.runs[-1].metadata.resource_version == "101"


@pytest.mark.parametrize("labels", [{}, {SHARD: "other"}, {SHARD: ""}])
def test_objects_that_are_not_ours_are_left_alone(labels: dict[str, str]) -> None:
    @virtual_time
    async def run() -> None:
        async with Process().running(site(5, labels)) as process:
            assert process.first.runs == []
            assert process.server.requests == []

    run()


@virtual_time
async def test_an_object_that_left_the_cache_is_gone() -> None:
    async with Process().running(site(5)) as process:
        await process.remove(site(6, {SHARD: "other"}))
        assert process.first.gone_keys == [Key("ns", "a")]


@virtual_time
async def test_the_first_run_after_an_arrival_reads_live_what_is_sharded_and_later_ones_from_the_cache() -> (
    None
):
    process = Process()
    process.server.store(named(ConfigMap, {SHARD: "former-owner"}))
    process.server.store(named(Theme, {}))
    found: list[tuple[bool, bool]] = []

    async def body(ctx: Context, obj: Any) -> None:
        child = await ctx.get(ConfigMap, "c") is not None
        found.append((child, await ctx.get(Theme, "c") is not None))

    process.first.body = body
    async with process.running(site(5)):
        assert gets(process.server, "sites") == 2  # one for each controller
        await process.show(site(6))
        assert gets(process.server, "sites") == 2
    assert found == [(True, False), (False, False)]


@virtual_time
async def test_live_reads_go_on_until_a_run_has_succeeded() -> None:
    process = Process()
    failures = iter([NotFound("child"), None])

    async def body(ctx: Context, obj: Any) -> None:
        if error := next(failures, None):
            raise error

    process.first.body = body
    async with process.running(site(5)):
        assert gets(process.server, "sites") == 2
        await asyncio.sleep(2)
        assert gets(process.server, "sites") == 3
        await process.show(site(6))
        assert gets(process.server, "sites") == 3


@pytest.mark.parametrize("live", [None, site(6, {SHARD: "other"}), site(6, DRAINING), site(6, {})])
def test_the_live_copy_decides_whether_the_first_run_takes_place(live: Site | None) -> None:
    @virtual_time
    async def run() -> None:
        process = Process()
        async with process.running():
            if live is not None:
                process.server.store(live)
            await process.show(site(5))
            assert process.first.runs == []
            assert process.server.patches == []

    run()


@virtual_time
async def test_an_object_that_left_and_came_back_unseen_counts_as_arrived() -> None:
    async with Process().running(site(5)) as process:
        informer = process.cache.informer(Site)
        before = gets(process.server, "sites")
        informer._stats.full_reads += 1  # the reflector's part of a full read
        process.server.store(site(50))
        await informer.listed(Listed("60"), {site(50).key: site(50)}, ALL_NAMESPACES)
        await settle()
        assert gets(process.server, "sites") == before + 1
        await process.show(site(61), second=False)
        assert gets(process.server, "sites") == before + 1


@virtual_time
async def test_an_acknowledgement_that_met_a_newer_object_is_tried_again_on_the_new_one() -> None:
    async with Process().running(site(5)) as process:
        process.server.store(site(8, DRAINING))
        await process.show(site(7, DRAINING), second=False)
        assert process.server.version == 101


@virtual_time
async def test_an_object_that_is_no_longer_asked_for_is_not_given_away() -> None:
    async with Process().running(site(5)) as process:
        process.server.store(site(8))
        await process.show(site(7, DRAINING), second=False)
        assert process.server.version == 100
        await process.show(site(8), second=False)
        assert process.first.runs[-1].metadata.resource_version == "8"


@pytest.mark.regression
@virtual_time
async def test_an_object_that_is_written_all_the_time_is_handed_over() -> None:
    async with Process().running(site(5)) as process:
        process.server.store(site(7, DRAINING))
        process.server.hot = True
        await process.show(site(7, DRAINING))
        assert process.server.labels() == {}
        tests = [op for op in process.server.patches[-1] if op["op"] == "test"]
        assert {op["path"].rpartition("/")[2]: op["value"] for op in tests} == {
            "uid": "u",
            "shard.alpha.sharding.timebertt.dev~1ring": "me",
            "drain.alpha.sharding.timebertt.dev~1ring": "true",
        }


@virtual_time
async def test_a_hot_object_that_is_taken_away_or_no_longer_asked_for_is_not_given_away() -> None:
    for labels in (OURS, {SHARD: "other", DRAIN: "true"}):
        async with Process().running(site(5)) as process:
            process.server.store(site(7, DRAINING))
            process.server.hot, process.server.then = True, (4, labels)
            await process.show(site(7, DRAINING), second=False)
            assert process.server.labels() == labels


@virtual_time
async def test_no_run_begins_while_an_acknowledgement_is_under_way() -> None:
    async with Process().running(site(5)) as process:
        process.server.store(site(7, DRAINING))
        process.server.answers.clear()
        await process.show(site(7, DRAINING), second=False)
        process.server.store(site(8))  # a user has cancelled the drain
        await process.show(site(8), first=False)
        assert len(process.second.runs) == 1
        process.server.answers.set()
        await asyncio.sleep(2)
        assert len(process.second.runs) == 2


@pytest.mark.regression
@virtual_time
async def test_an_object_that_is_asked_for_no_more_is_reconciled_though_nothing_else_changed() -> None:
    process = Process(shard_predicate("ring", "me", when.generation_changed))
    process.server.hot, process.server.then = True, (1, OURS)  # a user cancels the drain
    async with process.running(site(5, DRAINING)):
        await asyncio.sleep(30)
        assert (len(process.first.runs), len(process.second.runs)) == (0, 0)
        await process.show(site(101))  # the watch lagged
        assert (len(process.first.runs), len(process.second.runs)) == (1, 1)


@virtual_time
async def test_no_run_begins_while_an_acknowledgement_without_an_answer_may_land() -> None:
    async with Process().running(site(5)) as process:
        process.server.store(site(7, DRAINING))
        process.server.answers.clear()
        await process.show(site(7, DRAINING), second=False)
        process.server.store(site(8))
        process.server.refusal = status(504, "Timeout")
        process.server.answers.set()
        await process.show(site(8), first=False)  # a user has cancelled the drain
        process.server.refusal = None
        await asyncio.sleep(UNDELIVERED + 9)
        assert len(process.second.runs) == 1
        await asyncio.sleep(3)
        assert len(process.second.runs) == 2


@pytest.mark.regression
@virtual_time
async def test_what_a_run_left_behind_writes_nothing_more_once_the_object_was_asked_for() -> None:
    process = Process()
    asked, told = asyncio.Event(), []

    async def write_later(ctx: Context) -> None:
        await asked.wait()
        with pytest.raises(NotOurs, match="drained since"):
            await ctx.client.create(ConfigMap(metadata=ObjectMeta(name="late", namespace="ns")))
        told.append("refused")

    async def body(ctx: Context, obj: Any) -> None:
        left.append(asyncio.create_task(write_later(ctx)))

    left: list[asyncio.Task[None]] = []
    process.first.body = body
    async with process.running(site(5)):
        process.server.store(site(7, DRAINING))
        await process.show(site(7, DRAINING))
        assert process.server.labels() == {}
        asked.set()
        await asyncio.wait(left)
        assert told == ["refused"]
        assert not any(method == "POST" for method, _ in process.server.requests)


@pytest.mark.regression
@virtual_time
async def test_an_object_that_does_not_fit_its_class_is_handed_over_and_never_reconciled() -> None:
    async with Process().running() as process:
        for labels in (OURS, DRAINING):
            process.server.store(site(7, labels))
            await process.show(odd(7, labels), second=False)
            await settle()
        assert process.server.labels() == {}
        assert process.first.runs == []


@pytest.mark.regression
@virtual_time
async def test_what_did_not_fit_its_class_when_the_cache_was_filled_is_handed_over_too() -> None:
    async with Process().running() as process:
        process.server.store(site(7, DRAINING))
        unread = odd(7, DRAINING)
        await process.cache.informer(Site).listed(Listed("60"), {site(7).key: unread}, ALL_NAMESPACES)
        await settle()
        assert process.server.labels() == {}
        assert process.first.runs == []


@virtual_time
async def test_errors_are_told_in_the_words_of_the_protocol_and_keep_their_cause() -> None:
    async with Process().running(site(5)) as process:
        process.server.store(site(7, DRAINING))
        process.server.refusal = status(403, "Forbidden")
        await process.show(site(7, DRAINING), second=False)
        errors = [outcome.error for outcome in process.seen.outcomes if outcome and outcome.error]
        assert str(errors[0]).startswith("error draining object: ")
        assert type(errors[0]).__name__ == "Forbidden"


@virtual_time
async def test_labels_that_were_put_back_are_a_failure_that_is_tried_again() -> None:
    async with Process().running(site(5)) as process:
        process.server.store(site(7, DRAINING))
        process.server.puts_back = True
        await process.show(site(7, DRAINING), second=False)
        errors = [outcome.error for outcome in process.seen.outcomes if outcome and outcome.error]
        assert "put back" in str(errors[0])
        process.server.puts_back = False
        await asyncio.sleep(5)
        assert process.server.labels() == {}


@virtual_time
async def test_a_deleted_object_needs_no_acknowledgement() -> None:
    async with Process().running(site(5)) as process:
        process.server.stored.clear()
        await process.show(site(7, DRAINING), second=False)
        assert [outcome.label for outcome in process.seen.outcomes if outcome] == ["success", "success"]


@virtual_time
async def test_floors_are_forgotten_when_no_cache_can_lag_so_far() -> None:
    clock = VirtualClock()
    stale_guard = StaleGuard(clock)
    kind = GroupKind("example.com", "Site")
    for number in range(1000):
        stale_guard.require(kind, Key("ns", str(number)), "9")
    stale_guard.require(kind, Key("ns", "1"), "10")
    assert not stale_guard.admits(kind, Key("ns", "1"), "9")
    assert stale_guard.admits(kind, Key("ns", "1"), "10")
    assert stale_guard.admits(kind, Key("ns", "never-drained"), "1")
    await asyncio.sleep(KEPT + 1)
    stale_guard.require(kind, Key("ns", "last"), "1")
    assert len(stale_guard) == 1
