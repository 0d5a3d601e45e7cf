"""When a manager may run as several processes, as how many, and what a process makes of being one of them."""

from __future__ import annotations

import socket
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from manager_bench import Act, Item
from prometheus_client import CollectorRegistry

from kubeshard import Manager, Settings, Sharding, StatusPages
from kubeshard.client import Client, ClusterConfig
from kubeshard.controller import Controller
from kubeshard.core import ConfigurationError
from kubeshard.manager import declaration
from kubeshard.manager.metrics_access import self_signed
from kubeshard.runtime.pod import Pod
from kubeshard.runtime.processors import processor_limit
from kubeshard.runtime.supervised import Supervised
from kubeshard.runtime.tls import Tls
from kubeshard.runtime.transport import HttpRequest
from kubeshard.runtime.world import REAL_WORLD
from kubeshard.shard import LeaseTerms
from kubeshard.webhook import Webhooks
from kubeshard_lab.virtual_world import VirtualHost

IN_POD = replace(REAL_WORLD, host=VirtualHost("node", Pod("op-7", "uid-7"), "op-system"))


def manager(sharding: Sharding | None = None, pages: StatusPages | None = None, **given: Any) -> Manager:
    controller = Controller(name="items", reconciler=Act(), primary=Item)
    registry = CollectorRegistry()
    return Manager([controller], sharding=sharding, status_pages=pages, registry=registry, **given)


def ring(**given: Any) -> Sharding:
    return Sharding("items", delivery="ranges", **{"mode": "both", **given})


REFUSED = [
    (
        None,
        None,
        r'^processes=4: each would reconcile .* sharding=Sharding\("NAME", mode="both", delivery="ran',
    ),
    (ring(mode="sharder"), None, r"^a process in the mode sharder has no share: take the mode both$"),
    (
        ring(lease=LeaseTerms(pod_name_required=True)),
        None,
        r"leave out pod_name_required, and render the ring",
    ),
    (ring(name="a" * 62), None, r"^invalid shard name 'a+-3'"),
    (ring(), StatusPages(metrics_ssl=self_signed(REAL_WORLD)), r"leave out metrics_ssl, or processes$"),
]


@pytest.mark.parametrize(("sharding", "pages", "message"), REFUSED)
def test_processes_that_could_not_share_the_work_are_refused_with_what_to_write_instead(
    sharding: Sharding | None, pages: StatusPages | None, message: str
) -> None:
    for_one = manager(sharding, pages)
    assert for_one.processes == 1
    for_one.configure(Settings(processes=4))
    with pytest.raises(ConfigurationError, match=message):
        for_one.processes  # noqa: B018


def test_a_manager_says_how_many_processes_unless_the_start_does() -> None:
    declared = manager(ring(), processes=3)
    assert declared.processes == 3
    declared.configure(Settings(processes=1))
    assert declared.processes == 1
    wrong: Any
    for wrong in (0, "two"):
        with pytest.raises(ConfigurationError, match=f"processes '{wrong}': a number from 1, or auto"):
            manager(ring(), processes=wrong)


@pytest.mark.parametrize(("limit", "count"), [(None, 8), (0.5, 1), (2.0, 2), (2.5, 3), (64.0, 8)])
def test_auto_is_the_limit_rounded_up_and_no_more_than_the_machine_has(
    monkeypatch: pytest.MonkeyPatch, limit: float | None, count: int
) -> None:
    monkeypatch.setattr(declaration, "processors", lambda: 8)
    monkeypatch.setattr(declaration, "processor_limit", lambda: limit)
    assert manager(ring(), processes="auto").processes == count


def test_auto_in_a_pod_without_a_limit_is_refused_as_it_would_be_all_of_the_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(declaration, "processor_limit", lambda: None)
    with pytest.raises(ConfigurationError, match="give it a limit, or processes a number"):
        manager(ring(), processes="auto", world=IN_POD).processes  # noqa: B018


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu/cpu.cfs_quota_us": "200000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 2.0),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({}, None),
    ],
)
def test_the_limit_of_a_container_is_that_of_its_control_group(
    tmp_path: Path, files: dict[str, str], limit: float | None
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert processor_limit(tmp_path) == limit


def test_webhooks_with_a_certificate_that_each_would_make_for_itself_are_served_by_the_first_only() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for number, served in ((0, True), (1, False)):
            local, shared = Webhooks("local", [], url="https://127.0.0.1"), Webhooks("shared", [])
            manager(ring(), servers=[local, shared]).supervise(Supervised(number, listener))
            assert (local.served, shared.served) == (served, True)


async def test_one_of_several_serves_its_pages_where_its_supervisor_asks() -> None:
    pages = StatusPages(metrics_address="not.here.invalid:1", health_address="not.here.invalid:1")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = manager(ring(), pages)
        one.supervise(Supervised(1, listener))
        client = Client(ClusterConfig("http://x"), world=REAL_WORLD)
        async with AsyncExitStack() as stack:
            await one._process.pages.open(stack, client)
            transport = REAL_WORLD.connect(f"http://127.0.0.1:{listener.getsockname()[1]}", Tls())
            stack.push_async_callback(transport.close)
            answers = {
                page: (await transport.request(HttpRequest("GET", page, {}))).status
                for page in ("/healthz", "/readyz", "/metrics", "/debug", "/other")
            }
    assert answers == {"/healthz": 200, "/readyz": 500, "/metrics": 200, "/debug": 200, "/other": 404}
