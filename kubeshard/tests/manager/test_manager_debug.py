"""The current activity of a process, as a page and as text."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from manager_bench import Act, Item, ManagerBench, item
from test_manager_pages import get

from kubeshard.controller import Controller
from kubeshard.core import Key
from kubeshard.manager import Manager
from kubeshard.manager.debug import SHOWN, DebugSnapshot
from kubeshard.manager.debug_page import as_text, debug_page
from kubeshard.manager.http import pages_app
from kubeshard_lab.virtual_time import settle, virtual_time


def controller(act: Act, **options: Any) -> Controller[Item]:
    return Controller(name="items", reconciler=act, primary=Item, reconcile_timeout=100.0, **options)


async def picture_of(manager: Manager, seconds: float = 0.0) -> DebugSnapshot:
    running = asyncio.create_task(manager.run())
    await settle()
    await asyncio.sleep(seconds)
    snapshot = manager.snapshot()
    manager.stop()
    await asyncio.wait([running])
    return snapshot


@virtual_time
async def test_what_runs_and_what_waits_is_shown_with_its_age_and_cause() -> None:
    bench = ManagerBench(item("a"), item("b"))
    snapshot = await picture_of(bench.manager([controller(Act(50.0))], graceful_timeout=0), 7.0)
    (shown,) = snapshot.controllers
    assert (shown.name, shown.kind, shown.workers, shown.waits_for) == ("items", "Item.v1.example.com", 1, {})
    (run,), (wait,) = shown.queue.running, shown.queue.waiting
    assert {run.object, wait.object} == {"ns/a", "ns/b"}
    assert (run.seconds, wait.seconds) == (7.0, 7.0)
    assert run.why
    assert wait.why
    text = as_text(snapshot)
    assert f"    {run.object}  for 7.0 s  because " in text
    assert "  ready: 1\n" in text
    assert "OVERDUE" not in text


@virtual_time
async def test_lists_are_cut_and_say_so() -> None:
    bench = ManagerBench(*(item(f"a{number:03}") for number in range(200)))
    snapshot = await picture_of(bench.manager([controller(Act(50.0))], graceful_timeout=0))
    (shown,) = snapshot.controllers
    assert (shown.queue.ready, len(shown.queue.waiting)) == (199, SHOWN)
    assert f"    and {199 - SHOWN} more\n" in as_text(snapshot)


@virtual_time
async def test_informers_tell_how_much_they_hold_and_tasks_where_they_wait() -> None:
    bench = ManagerBench(item("a"), item("b"))
    snapshot = await picture_of(bench.manager([controller(Act(50.0))], graceful_timeout=0))
    (informer,) = snapshot.informers
    assert (informer.kind, informer.objects, informer.synced) == ("Item.v1.example.com", 2, True)
    assert 100 < informer.json_bytes < 1000
    where = {task.name: task.where for task in snapshot.tasks}
    assert where["items worker"].startswith("Act.reconcile:")


@virtual_time
async def test_before_there_is_anything_the_picture_is_empty() -> None:
    manager = ManagerBench().manager([controller(Act())])
    snapshot = manager.snapshot()
    assert (snapshot.controllers, snapshot.informers) == ([], [])
    assert as_text(snapshot)


def empty() -> DebugSnapshot:
    return DebugSnapshot(
        loop_late=0.0,
        loop_latest=0.25,
        controllers=[],
        clusters=[],
        informers=[],
        shard="",
        unfenced_writes={},
        tasks=[],
    )


LOOPBACK = ["127.0.0.1", "127.8.0.1", "::1", "::ffff:127.0.0.1"]
ELSEWHERE = ["10.0.0.1", "::ffff:10.0.0.1", "fe80::1", "", "localhost", "127.0.0.1.example.com"]


@pytest.mark.parametrize("host", LOOPBACK)
async def test_callers_on_the_loopback_interface_get_the_page(host: str) -> None:
    app = pages_app(debug_page(empty, "loopback"))
    assert (await get(app, "/debug", host=host)).status == 200
    assert (await get(app, "/debug/", host=host)).status == 200


@pytest.mark.parametrize("host", ELSEWHERE)
async def test_callers_from_elsewhere_do_not(host: str) -> None:
    app = pages_app(debug_page(empty, "loopback"))
    assert (await get(app, "/debug", host=host)).status == 403
    assert (await get(pages_app(debug_page(empty, "everywhere")), "/debug", host=host)).status == 200


@pytest.mark.parametrize(
    ("target", "status", "content"),
    [
        ("/debug", 200, "text/plain; charset=utf-8"),
        ("/debug?format=text", 200, "text/plain; charset=utf-8"),
        ("/debug?format=json", 200, "application/json"),
        ("/debug?format=xml", 400, "text/plain; charset=utf-8"),
        ("/debugger", 404, "text/plain; charset=utf-8"),
    ],
)
async def test_the_page_is_text_or_json(target: str, status: int, content: str) -> None:
    got = await get(pages_app(debug_page(empty, "everywhere")), target)
    assert (got.status, got.headers["content-type"]) == (status, content)
    if content == "application/json":
        assert msgspec.json.decode(got.body, type=DebugSnapshot) == empty()


async def test_it_can_be_switched_off() -> None:
    assert (await get(pages_app(debug_page(empty, "off")), "/debug", host="::1")).status == 404


@virtual_time
async def test_a_picture_of_a_large_queue_costs_no_more_than_what_it_shows_of_each_list() -> None:
    bench = ManagerBench(item("a"))
    manager = bench.manager([controller(Act(50.0))], graceful_timeout=0)
    running = asyncio.create_task(manager.run())
    await settle()
    (runner,) = manager._process.controllers.runners
    for number in range(1000):
        runner.queue.add_after(Key("ns", f"b{number}"), 100.0 + number)
    view = manager.snapshot().controllers[0].queue
    assert (view.delayed, len(view.delays)) == (1000, SHOWN)
    assert [each.object for each in view.delays[:2]] == ["ns/b0", "ns/b1"]
    manager.stop()
    await asyncio.wait([running])
