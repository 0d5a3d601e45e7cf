"""The guarantees of a controller's workers, on virtual time."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import traceback
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import wraps
from typing import Any

import pytest
from controller_bench import NOT_FOUND, Bench, Site, Theme, child, json_answer, site

from kubeshard import ALL, when
from kubeshard.cache import CacheBehind, Scope
from kubeshard.controller import (
    ChannelSource,
    Context,
    Controller,
    Index,
    Reconciler,
    Result,
    TimerSource,
    Watch,
    syncing,
)
from kubeshard.controller.cluster import Cluster
from kubeshard.controller.context import run_of, with_run
from kubeshard.controller.deadlines import Deadlines, Timed
from kubeshard.controller.in_flight import InFlight
from kubeshard.controller.outcomes import Ending, NoMetrics
from kubeshard.controller.reconciler import RunFn
from kubeshard.controller.runner import ControllerRunner
from kubeshard.controller.syncing import KindsMissing, SyncProblem
from kubeshard.core import (
    AlreadyExists,
    ConfigMap,
    Conflict,
    Key,
    MergePatch,
    NotFound,
    NotOurs,
    ObjectMeta,
    Selector,
    Terminal,
    Unavailable,
)
from kubeshard.leases.held_lease import Gate
from kubeshard.listwatch.reflector import Interrupted
from kubeshard.runtime.logs import JsonFormatter, TextFormatter, get_logger
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard_lab.virtual_time import VirtualClock, settle, virtual_time

A, B = Key("ns", "a"), Key("ns", "b")


class Seen:
    """A reconciler that records each run and then does what it is told; the last instruction is repeated."""

    def __init__(self, *acts: Any) -> None:
        self.acts = list(acts)
        self.runs: list[tuple[float, Key]] = []
        self.objects: list[Any] = []
        self.reasons: list[tuple[str, ...]] = []

    async def __call__(self, ctx: Context, obj: Any) -> Any:
        self.runs.append((asyncio.get_running_loop().time(), ctx.key))
        self.objects.append(obj)
        self.reasons.append(ctx.reasons)
        act = self.acts.pop(0) if len(self.acts) > 1 else self.acts[0] if self.acts else None
        if isinstance(act, BaseException):
            raise act
        return await act() if callable(act) else act

    @property
    def times(self) -> list[float]:
        return [time for time, _ in self.runs]


# -- the object


@virtual_time
async def test_a_reconcile_gets_the_newest_cached_object() -> None:
    seen = Seen()
    async with Bench(seen).running(site("a", 1)) as bench:
        await bench.put(site("a", 2))
    assert [obj.metadata.resource_version for obj in seen.objects] == ["1", "2"]


@virtual_time
async def test_no_worker_begins_before_all_informers_have_synced() -> None:
    seen = Seen()
    bench = Bench(seen, owns=[ConfigMap])
    run = asyncio.create_task(bench.runner.run())
    await settle()
    await bench.put(site("a"))
    await asyncio.sleep(60)
    assert seen.runs == []
    await bench.synced(site("a"))
    assert [key for _, key in seen.runs] == [A]
    run.cancel()


@virtual_time
async def test_a_key_whose_kinds_are_there_again_before_its_run_has_ended_runs_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen, missing = Seen(), list[SyncProblem]()
    monkeypatch.setattr(syncing, "sync_problem", lambda informer, now: missing[0] if missing else None)

    def slow(run: RunFn) -> RunFn:
        async def whole(ctx: Context, obj: Any) -> Any:
            try:
                return await run(ctx, obj)
            except KindsMissing:
                await asyncio.sleep(3)
                raise

        return whole

    async with Bench(seen, wrappers=[slow]).running(site("a", 1)) as bench:
        missing.append(SyncProblem("not served", None, ""))
        await bench.runner.primary.interrupted(Interrupted(NotFound(""), 1.0), "", quiet=True)
        await settle()
        await bench.put(site("a", 2))
        missing.clear()
        await asyncio.sleep(3.1)
    assert [obj.metadata.resource_version for obj in seen.objects] == ["1", "2"]


@virtual_time
async def test_an_object_that_left_the_cache_is_reported_as_gone() -> None:
    gone = []

    async def forget(ctx: Context, key: Key) -> None:
        gone.append(key)

    async with Bench(Seen(), gone=forget).running(site("a")) as bench:
        await bench.remove(site("a", 2))
    assert gone == [A]


@virtual_time
async def test_a_key_outside_the_cached_namespaces_triggers_nothing() -> None:
    seen, source = Seen(), ChannelSource()
    bench = Bench(
        seen,
        gone=lambda ctx, key: seen(ctx, None),
        sources=[source],
        primary=Watch(Site, scope=Scope(frozenset({"ns"}))),
    )
    async with bench.running():
        source.trigger(Key("other", "a"))
        source.trigger(B)
        await settle()
    assert [key for _, key in seen.runs] == [B]


# -- one at a time, nothing lost


@virtual_time
async def test_a_key_is_run_by_one_worker_at_a_time_and_a_change_meanwhile_is_run_afterwards() -> None:
    running: list[Key] = []
    most = 0

    async def reconcile(ctx: Context, obj: Site) -> None:
        nonlocal most
        assert ctx.key not in running
        running.append(ctx.key)
        most = max(most, len(running))
        await asyncio.sleep(1)
        running.remove(ctx.key)
        ended.append((ctx.key, obj.metadata.resource_version))

    ended: list[tuple[Key, str]] = []
    async with Bench(reconcile, workers=4).running(site("a"), site("b")) as bench:
        for version in (2, 3, 4):
            await bench.put(site("a", version))
        await asyncio.sleep(5)
    assert most == 2
    assert ended == [(A, "1"), (B, "1"), (A, "4")]


@virtual_time
async def test_runs_that_never_wait_let_others_run() -> None:
    turns = 0
    turns_until_done: list[int] = []

    async def others() -> None:
        nonlocal turns
        while not turns_until_done:
            await asyncio.sleep(0)
            turns += 1

    async def reconcile(ctx: Context, obj: Site) -> None:
        if ctx.key == A:
            started.append(asyncio.create_task(others()))
        if ctx.key == B:
            turns_until_done.append(turns)

    started: list[asyncio.Task[None]] = []
    bench = Bench(reconcile, workers=4)
    for name in ("a", *map(str, range(4000)), "b"):
        bench.runner.queue.add(Key("ns", name))
    async with bench.running(site("a"), site("b")):
        assert turns_until_done[0] > 10


class Silent:
    """A watch that is never answered."""

    async def __aenter__(self) -> Any:
        await asyncio.Event().wait()

    async def __aexit__(self, *_: object) -> None: ...


@virtual_time
async def test_what_is_there_at_the_start_is_run_once_however_many_kinds_trigger_it() -> None:
    names = [str(number) for number in range(600)]
    children = [child(f"{kind}-{name}", name) for kind in ("x", "y") for name in names]
    seen = Seen()
    bench = Bench(seen, owns=[ConfigMap], workers=4)
    bench.server.stream = lambda request: Silent()  # type: ignore[method-assign]
    async with bench.cache.running():
        await bench.synced(*map(site, names), *children)
        run = asyncio.create_task(bench.runner.run())
        await settle()
        assert sorted(key.name for _, key in seen.runs) == sorted(names)
        run.cancel()
        await asyncio.wait([run])


# -- results: label, when the key runs again, whether its backoff continues

ENDINGS = [
    pytest.param(None, "success", [], 0, id="none"),
    pytest.param(Result(), "success", [], 0, id="empty result"),
    pytest.param(Result(requeue_after=30.0), "requeue_after", [30.0], 0, id="requeue after"),
    pytest.param(Conflict("stale"), "requeue", [1.0], 1, id="conflict"),
    pytest.param(
        AlreadyExists("there"),
        "requeue",
        [1.0],
        1,
        id="already exists: a stale cache (A8 in docs/defects.md)",
    ),
    pytest.param(NotOurs("moved"), "requeue", [1.0], 1, id="not ours"),
    pytest.param(CacheBehind("behind"), "requeue", [1.0], 1, id="cache behind"),
    pytest.param(ExceptionGroup("g", [Conflict("stale")]), "requeue", [1.0], 1, id="group of stale reads"),
    pytest.param(ExceptionGroup("g", [Conflict("c"), Unavailable("u")]), "error", [1.0], 1, id="mixed group"),
    pytest.param(Terminal("no use"), "error", [], 0, id="terminal"),
    pytest.param(Unavailable("down"), "error", [1.0], 1, id="API error"),
    pytest.param(ConnectionError("down"), "error", [1.0], 1, id="network error"),
    pytest.param(KeyError("bug"), "error", [1.0], 1, id="crash"),
    pytest.param(SystemExit(3), "error", [1.0], 1, id="system exit"),
    pytest.param(BaseException("odd"), "error", [1.0], 1, id="bare BaseException"),
    pytest.param(asyncio.CancelledError(), "error", [1.0], 1, id="cancelled from within"),
    pytest.param(True, "error", [1.0], 1, id="wrong type"),
    pytest.param({"requeue_after": 1}, "error", [1.0], 1, id="dict"),
]


@pytest.mark.parametrize(("act", "label", "again", "retries"), ENDINGS)
def test_each_ending_decides_about_the_key(act: Any, label: str, again: list[float], retries: int) -> None:
    @virtual_time
    async def check() -> None:
        seen = Seen(act, None)
        async with Bench(seen).running(site("a")) as bench:
            assert bench.recorded.labels == [label]
            assert bench.runner.queue.retries(A) == retries
            await asyncio.sleep(1000)
            assert seen.times == [0.0, *again]
            assert bench.recorded.active == 0

    check()


@virtual_time
async def test_a_terminal_error_leaves_the_backoff_as_it_is() -> None:
    seen = Seen(Unavailable("1"), Unavailable("2"), Terminal("3"), Unavailable("4"), None)
    async with Bench(seen).running(site("a")) as bench:
        await asyncio.sleep(100)
        assert seen.times == [0, 1, 3]
        await bench.put(site("a", 2, generation=1))
        await asyncio.sleep(100)
    assert seen.times == [0, 1, 3, 100, 104]


@virtual_time
async def test_backoff_doubles_and_starts_anew_after_a_success() -> None:
    down = Unavailable("down")
    seen = Seen(down, down, down, None, down, None)
    async with Bench(seen).running(site("a")) as bench:
        await asyncio.sleep(100)
        assert seen.times == [0, 1, 3, 7]
        await bench.put(site("a", 2))
        await asyncio.sleep(100)
    assert seen.times == [0, 1, 3, 7, 100, 101]


@virtual_time
async def test_an_event_between_does_not_cancel_a_requeue_after() -> None:
    seen = Seen(Result(requeue_after=30), None)
    async with Bench(seen).running(site("a")) as bench:
        await asyncio.sleep(10)
        await bench.put(site("a", 2))
        await asyncio.sleep(100)
    assert seen.times == [0, 10, 30]


@virtual_time
async def test_a_run_ends_at_its_deadline_and_frees_the_worker() -> None:
    seen = Seen(lambda: asyncio.sleep(10_000), None)
    async with Bench(seen, reconcile_timeout=20.0).running(site("a"), site("b")) as bench:
        await asyncio.sleep(30)
        assert seen.runs == [(0, A), (20, B), (21, A)]
        assert bench.recorded.outcomes[0] is not None
        assert bench.recorded.outcomes[0].ending is Ending.TIMED_OUT
        assert bench.recorded.labels == ["error", "success", "success"]


@virtual_time
async def test_each_of_several_runs_has_its_own_deadline() -> None:
    ended: dict[str, float] = {}

    async def reconcile(ctx: Context, obj: Site) -> None:
        try:
            await asyncio.sleep(float(obj.spec.theme))
        finally:
            ended.setdefault(obj.metadata.name, asyncio.get_running_loop().time())

    bench = Bench(reconcile, workers=3, reconcile_timeout=10.0)
    async with bench.running(site("a", theme="1000"), site("b", theme="9")):
        await asyncio.sleep(4)
        await bench.put(site("c", theme="1000"))
        await asyncio.sleep(10.5)
    assert ended == {"b": 9, "a": 10, "c": 14}
    assert [outcome and outcome.ending for outcome in bench.recorded.outcomes[:3]] == [
        Ending.SUCCESS,
        Ending.TIMED_OUT,
        Ending.TIMED_OUT,
    ]


@virtual_time
async def test_a_run_after_a_long_rest_has_its_whole_time() -> None:
    seen = Seen(None, lambda: asyncio.sleep(9), lambda: asyncio.sleep(9))
    async with Bench(seen, reconcile_timeout=10.0).running(site("a")) as bench:
        for start in (8.0, 19.0):
            await asyncio.sleep(start - asyncio.get_running_loop().time())
            await bench.put(site("a", int(start)))
        await asyncio.sleep(10)
        assert bench.recorded.labels == ["success"] * 3


@virtual_time
async def test_a_cancellation_from_outside_is_not_taken_for_the_deadline() -> None:
    async def slow_to_leave() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(0)

    bench = Bench(Seen(slow_to_leave), reconcile_timeout=5.0)
    task = asyncio.create_task(bench.runner.run())
    await settle()
    await bench.synced(site("a"))
    asyncio.get_running_loop().call_at(5.0, task.cancel)
    await asyncio.wait([task])
    assert task.cancelled()
    assert bench.recorded.outcomes == [None]


@virtual_time
async def test_the_end_of_a_run_that_was_overdue_is_told_with_the_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def deaf() -> None:
        for _ in range(2):
            try:
                await asyncio.sleep(50)
            except asyncio.CancelledError:
                continue

    caplog.set_level(logging.INFO)
    async with Bench(Seen(deaf, None), reconcile_timeout=5).running(site("a")):
        await asyncio.sleep(100)
    lines = [record.__dict__["fields"] for record in caplog.records if "verdue" in record.message]
    assert [(line["object"], round(line["seconds"])) for line in lines] == [(A, 6), (A, 55)]
    assert lines[0]["reconcile_id"] == lines[1]["reconcile_id"]


@virtual_time
async def test_a_run_that_turns_its_cancellation_into_something_else_still_timed_out() -> None:
    async def stubborn() -> None:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            return

    async with Bench(Seen(stubborn, None), reconcile_timeout=5).running(site("a")) as bench:
        await asyncio.sleep(5)
        assert [outcome.ending for outcome in bench.recorded.outcomes if outcome] == [Ending.TIMED_OUT]


@virtual_time
async def test_a_run_that_never_ends_is_reported_as_overdue(caplog: pytest.LogCaptureFixture) -> None:
    async def deaf() -> None:
        while True:
            try:
                await asyncio.sleep(50)
                return
            except asyncio.CancelledError:
                continue

    bench = Bench(Seen(deaf, None), reconcile_timeout=5)
    async with bench.running(site("a")):
        await asyncio.sleep(20)
        assert bench.runner.hanging() is None
        assert bench.recorded.overdue_runs == [1]
        await asyncio.sleep(100)
        assert bench.recorded.overdue_runs == [1, -1]
    (line,) = (record for record in caplog.records if "is overdue and still running" in record.message)
    assert line.fields["seconds"] == 6


@virtual_time
async def test_an_unexpected_exception_is_logged_with_its_stack_and_a_conflict_not_above_debug(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    seen = Seen(KeyError("bug"), Conflict("stale"), Unavailable("down"), None)
    async with Bench(seen).running(site("a")):
        await asyncio.sleep(100)
    lines = [record for record in caplog.records if record.levelno > logging.INFO]
    assert [line.msg for line in lines] == ["Reconcile failed", "Reconcile failed"]
    assert lines[0].exc_info is not None
    assert [frame.name for frame in traceback.extract_tb(lines[0].exc_info[2])] == [
        "reconcile",
        "__call__",
    ], "it begins in the author's code"
    assert not lines[1].exc_info
    fields: dict[str, Any] = lines[1].__dict__["fields"]
    assert fields["controller"] == "site"
    assert fields["object"] == A
    assert fields["reconcile_id"]


@pytest.mark.regression
@virtual_time
async def test_lines_of_a_reconcile_have_the_keys_of_controller_runtime(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Bench(Seen(Unavailable("down"), None)).running(site("a")):
        await asyncio.sleep(100)
    (record,) = [record for record in caplog.records if record.levelno > logging.INFO]
    line = json.loads(JsonFormatter().format(record))
    assert {
        "level": "error",
        "logger": "kubeshard.controller.site",
        "msg": "Reconcile failed",
        "error": "Unavailable: down",
        "controller": "site",
        "controllerGroup": "example.com",
        "controllerKind": "Site",
        "Site": {"namespace": A.namespace, "name": A.name},
        "namespace": A.namespace,
        "name": A.name,
    }.items() <= line.items()
    assert {"ts", "reconcileID"} <= line.keys()
    assert "controller_kind" not in TextFormatter().format(record)


@virtual_time
async def test_a_reconciler_that_is_no_coroutine_is_told_what_to_write() -> None:
    def forgetful(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def call(*_: Any) -> None:
            """A function that looks like `async def` but is not."""

        return call

    class Plain(Reconciler[Site]):
        @forgetful
        async def reconcile(self, ctx: Context, obj: Site) -> None: ...

    async def unused(ctx: Context, obj: Site) -> None: ...

    bench = Bench(unused)
    bench.runner = ControllerRunner(
        Controller(name="site", reconciler=Plain(), primary=Site),
        Cluster(bench.client, bench.cache, bench.recorded),
        metrics=bench.recorded,
    )
    async with bench.running(site("a")):
        (outcome,) = bench.recorded.outcomes
    assert outcome
    assert str(outcome.error) == (
        "Plain: declare reconcile and gone with `async def`, or derive from BlockingReconciler"
    )


@virtual_time
async def test_a_function_is_called_for_objects_that_are_there_and_not_for_those_that_are_gone() -> None:
    runs: list[Key] = []

    async def reconcile(ctx: Context, obj: Site) -> Result:
        runs.append(obj.key)
        return Result(requeue_after=60)

    bench = Bench(reconcile)
    bench.runner = ControllerRunner(
        Controller(name="site", reconciler=reconcile, primary=Site),
        Cluster(bench.client, bench.cache, bench.recorded),
        metrics=bench.recorded,
    )
    async with bench.running(site("a")):
        assert runs == [A]
        await bench.remove(site("a", 2))
        assert runs == [A]
        assert [outcome and outcome.ending for outcome in bench.recorded.outcomes] == [
            Ending.REQUEUE_AFTER,
            Ending.SUCCESS,
        ]


@virtual_time
async def test_each_run_has_its_own_reconcile_id() -> None:
    ids = []

    async def reconcile(ctx: Context, obj: Site) -> None:
        ids.append(ctx.reconcile_id)

    async with Bench(reconcile).running(site("a")) as bench:
        await bench.put(site("a", 2))
    assert len(set(ids)) == 2


# -- triggers


@virtual_time
async def test_predicates_filter_triggers() -> None:
    seen = Seen()
    async with Bench(seen, primary=Watch(Site, when=when.generation_changed)).running(site("a")) as bench:
        await bench.put(site("a", 2, generation=1))
        await bench.put(site("a", 3, generation=2))
    assert [obj.metadata.resource_version for obj in seen.objects] == ["1", "3"]


@virtual_time
async def test_an_owned_object_triggers_its_old_and_its_new_owner() -> None:
    seen = Seen()
    async with Bench(seen, owns=[ConfigMap]).running(site("a"), site("b"), child("c", "a")) as bench:
        seen.runs.clear()
        await bench.put(child("c", "b", version=2))
    assert {key for _, key in seen.runs} == {A, B}


@virtual_time
async def test_a_mapped_object_triggers_what_its_function_finds_in_the_cache() -> None:
    seen = Seen()
    by_theme = Index(Site, "theme", lambda obj: [obj.spec.theme])
    watch = Watch(
        Theme,
        to=lambda cache, theme: [s.key for s in cache.list(Site, ALL, index=("theme", theme.metadata.name))],
    )
    bench = Bench(seen, watches=[watch], indexes=[by_theme])
    async with bench.running(site("a", theme="dark"), site("b", theme="light")):
        seen.runs.clear()
        await bench.put(Theme(metadata=ObjectMeta(name="light", uid="t", resource_version="5")))
    assert [key for _, key in seen.runs] == [B]
    assert seen.reasons[-1] == ("Theme light added",)


@virtual_time
async def test_a_kind_that_is_only_read_is_cached_and_triggers_nothing() -> None:
    found: list[Any] = []

    async def reconcile(ctx: Context, obj: Any) -> None:
        found.append(await ctx.get(Theme, "light"))

    bench = Bench(reconcile, reads=[Watch(Theme, resync=3600)])
    async with bench.running(site("a")):
        await bench.put(Theme(metadata=ObjectMeta(name="light", uid="t", resource_version="5")))
        await asyncio.sleep(3 * 3600)
        assert found == [None]
        await bench.put(site("a", version=2))
    assert [theme and theme.metadata.uid for theme in found] == [None, "t"]


@virtual_time
async def test_channel_and_timer_sources_trigger() -> None:
    seen, channel = Seen(), ChannelSource()
    timer = TimerSource(60, lambda: [B])
    channel.trigger(A, "before the start")
    async with Bench(seen, sources=[channel, timer]).running(site("a"), site("b")):
        seen.runs.clear()
        await asyncio.sleep(61)
        channel.trigger(A, "lease expired")
        await settle()
    assert seen.runs == [(60, B), (61, A)]
    assert "before the start" in seen.reasons[0]
    assert seen.reasons[-1] == ("lease expired",)


@virtual_time
async def test_a_failing_source_ends_the_controller() -> None:
    class Broken:
        async def run(self, enqueue: Any) -> None:
            raise RuntimeError("boom")

    bench = Bench(Seen(), sources=[Broken()])
    with pytest.raises(ExceptionGroup) as caught:
        await bench.runner.run()
    assert caught.group_contains(RuntimeError, match="boom")


# -- wrappers


@virtual_time
async def test_wrappers_see_every_run_the_first_one_outermost() -> None:
    order: list[str] = []

    def note(name: str) -> Any:
        def wrapper(inner: Any) -> Any:
            async def run(ctx: Context, obj: Any) -> Any:
                order.append(f"{name} {'gone' if obj is None else obj.metadata.name}")
                return await inner(ctx, obj)

            return run

        return wrapper

    seen = Seen(Result(requeue_after=5), None)
    async with Bench(seen, wrappers=(note("outer"), note("inner"))).running(site("a")) as bench:
        await bench.remove(site("a", 2))
    assert order == ["outer a", "inner a", "outer gone", "inner gone"]


# -- own writes, live reads


@virtual_time
async def test_a_run_sees_what_the_previous_run_of_its_key_wrote() -> None:
    seen = []

    def answer(request: HttpRequest) -> HttpResponse:
        return json_answer(site("a", 7, labels={"phase": "ready"}))

    async def reconcile(ctx: Context, obj: Site) -> None:
        seen.append((asyncio.get_running_loop().time(), obj.metadata.resource_version))
        if len(seen) == 1:
            await ctx.client.patch(Site, "a", "ns", MergePatch({}))

    async with Bench(reconcile, answer=answer).running(site("a", 1)) as bench:
        await bench.put(site("a", 2))  # an older event triggers the next run
        await asyncio.sleep(3)
        assert seen == [(0, "1")]
        await bench.put(site("a", 7))
        await settle()
    assert seen == [(0, "1"), (3, "7"), (3, "7")]


@virtual_time
async def test_a_run_does_not_wait_for_what_other_keys_wrote() -> None:
    seen = []

    async def reconcile(ctx: Context, obj: Site) -> None:
        seen.append((asyncio.get_running_loop().time(), ctx.key))
        await ctx.client.patch(Site, obj.metadata.name, "ns", MergePatch({}))

    def answer(request: HttpRequest) -> HttpResponse:
        return json_answer(site(request.target.split("?")[0].rpartition("/")[2], 7))

    async with Bench(reconcile, answer=answer).running(site("a"), site("b")):
        pass
    assert seen == [(0, A), (0, B)]


@virtual_time
async def test_a_cache_that_stays_behind_is_a_quiet_retry() -> None:
    async def reconcile(ctx: Context, obj: Site) -> None:
        await ctx.client.patch(Site, "a", "ns", MergePatch({}))
        await ctx.get(Site, "a")

    async with Bench(reconcile, answer=lambda _: json_answer(site("a", 9))).running(site("a")) as bench:
        await asyncio.sleep(5.5)
        assert bench.recorded.labels == ["requeue"]


@virtual_time
async def test_a_fresh_context_reads_from_the_server_what_the_cache_does_not_show() -> None:
    found = []

    async def reconcile(ctx: Context, obj: Site) -> None:
        assert await ctx.get(ConfigMap, "c") is None
        live = with_run(ctx, run_of(ctx).reading_live())
        found.append(await live.get(ConfigMap, "c"))
        found.append(await live.get(ConfigMap, "absent"))

    def answer(request: HttpRequest) -> HttpResponse:
        return json_answer(child("c", "a")) if "/configmaps/c" in request.target else NOT_FOUND

    async with Bench(reconcile, owns=[ConfigMap], answer=answer).running(site("a")) as bench:
        assert bench.recorded.labels == ["success"]
    assert [obj and obj.metadata.name for obj in found] == ["c", None]


# -- gates, drain, cancellation


@virtual_time
async def test_nothing_begins_while_a_gate_is_closed() -> None:
    seen, first, second = Seen(), Gate(), Gate()
    first.close()
    async with Bench(seen, gates=[first, second]).running(site("a")) as bench:
        await asyncio.sleep(10)
        second.close()
        first.open()
        await asyncio.sleep(10)
        assert seen.runs == []
        second.open()
        await settle()
        assert seen.times == [20]
        assert bench.recorded.labels == ["success"]


@virtual_time
async def test_a_key_waits_for_a_closed_gate_in_the_queue_and_not_in_a_worker() -> None:
    seen, gate = Seen(), Gate()
    async with Bench(seen, gates=[gate], workers=2).running() as bench:
        gate.close()  # the workers wait for keys
        queue = bench.runner.queue
        await bench.put(site("a"))
        await asyncio.sleep(40)
        await bench.put(site("b"))
        await settle()
        assert (queue.longest_running(), queue.unfinished_work(), len(queue)) == (0, 0, 2)
        gate.open()
        await settle()
        assert seen.runs == [(40, A), (40, B)]


@virtual_time
async def test_drain_lets_runs_end_begins_no_other_and_ignores_triggers() -> None:
    seen = Seen(lambda: asyncio.sleep(10))
    async with Bench(seen).running(site("a"), site("b")) as bench:
        drain = asyncio.create_task(bench.runner.drain())
        await asyncio.sleep(5)
        await bench.put(site("b", 2))
        assert not drain.done()
        await asyncio.sleep(5)
        await settle()
        assert drain.done()
        await asyncio.sleep(100)
        assert seen.runs == [(0, A)]
        assert bench.recorded.labels == ["success"]


@virtual_time
async def test_drain_before_the_workers_began_returns_at_once_and_none_begins() -> None:
    seen = Seen()
    bench = Bench(seen)
    run = asyncio.create_task(bench.runner.run())
    await settle()
    await bench.runner.drain()
    await bench.synced(site("a"))
    await run
    assert seen.runs == []


@virtual_time
async def test_cancelling_the_controller_cancels_the_run_at_once_and_reports_no_outcome() -> None:
    ended = []

    async def hang() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            ended.append(asyncio.get_running_loop().time())

    bench = Bench(Seen(hang))
    async with bench.running(site("a")):
        await asyncio.sleep(3)
    assert ended == [3]
    assert bench.recorded.outcomes == [None]


@virtual_time
async def test_a_stopped_controller_leaves_no_handler_behind() -> None:
    seen = Seen()
    bench = Bench(seen)
    async with bench.running(site("a")):
        pass
    await bench.put(site("a", 2))
    assert len(seen.runs) == 1


# -- events


@virtual_time
async def test_context_hands_events_on() -> None:
    async def reconcile(ctx: Context, obj: Site) -> None:
        ctx.event(obj, "Warning", "ThemeUnspecified", "no theme")

    bench = Bench(reconcile)
    async with bench.running(site("a")):
        pass
    assert bench.recorded.events == [("Warning", "ThemeUnspecified")]
    assert bench.recorded.voices == ["site-controller"]


# -- scopes


@virtual_time
async def test_a_fresh_list_asks_for_the_declared_scope_and_applies_the_index() -> None:
    found: list[str] = []
    index = Index(ConfigMap, "colour", lambda obj: [(obj.data or {}).get("colour", "")])
    scope = Scope(frozenset({"ns"}), Selector.parse("app=web"))

    async def reconcile(ctx: Context, obj: Site) -> None:
        live = await with_run(ctx, run_of(ctx).reading_live()).list(ConfigMap, ALL, index=("colour", "red"))
        found.extend(child.metadata.name for child in live)

    def answer(request: HttpRequest) -> HttpResponse:
        items = b'{"metadata":{"name":"r"},"data":{"colour":"red"}},{"metadata":{"name":"b"}}'
        body = (
            b'{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[%s]}'
            % items
        )
        return HttpResponse(200, {"content-type": "application/json"}, body)

    bench = Bench(reconcile, owns=[Watch(ConfigMap, scope=scope)], indexes=[index], answer=answer)
    async with bench.running(site("a")):
        assert bench.recorded.labels == ["success"]
    assert found == ["r"]
    target = bench.server.requests[-1].target
    assert target.startswith("/api/v1/namespaces/ns/configmaps?")
    assert "labelSelector=app%3Dweb" in target


@virtual_time
async def test_a_watch_narrows_the_scope_that_the_manager_gives_the_kind() -> None:
    shard = Scope(labels=Selector.parse("shard=a"))
    bench = Bench(
        Seen(),
        primary=Watch(Site, scope=Scope(labels=Selector.parse("app=web"))),
        cache_options={"scopes": {Site.KIND.group_kind: shard}},
    )
    assert [informer.scope.labels for informer in bench.cache.informers] == [
        Selector.parse("app=web,shard=a")
    ]


@virtual_time
async def test_a_run_with_little_time_ends_in_time_beside_one_that_does_not_end() -> None:
    clock, ended = VirtualClock(), dict[str, float]()
    deadlines = Deadlines(0.2, clock, NoMetrics(), get_logger("test"))

    async def stubborn() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        await asyncio.sleep(60)

    async def run(name: str, work: Callable[[], Awaitable[None]]) -> None:
        worker = asyncio.current_task()
        assert worker is not None
        timed = Timed(InFlight(), "site", Site.KIND.group_kind, A, {}, worker)
        deadlines.begin(timed)
        try:
            await work()
        finally:
            deadlines.end(timed)
            ended[name] = clock.monotonic()

    first = asyncio.create_task(run("first", stubborn))
    await asyncio.sleep(0.3)
    began = clock.monotonic()
    second = asyncio.create_task(run("second", lambda: asyncio.sleep(60)))
    await asyncio.wait([first, second])
    assert ended["second"] - began == pytest.approx(0.2, abs=0.01)


@virtual_time
async def test_each_informer_gets_its_index_also_where_a_former_one_stood_in_memory() -> None:
    async def unused(ctx: Context, obj: Site) -> None: ...

    bench = Bench(unused)
    cluster = Cluster(bench.client, bench.cache, bench.recorded)
    index = Index(Theme, "name", lambda obj: [obj.metadata.name])
    for _ in range(20):
        informer = bench.cache._hold(Theme)
        cluster.add_index(informer, index)
        assert informer.store.has_index("name")
        await bench.cache._release(informer)
        del informer
        gc.collect()
