"""What whoever starts a program decides: flags, environment variables, and ports that are taken."""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest
from manager_bench import Act, Item, Leases, ManagerBench, item
from prometheus_client import CollectorRegistry

from kubeshard import CacheSettings, Manager, Scope, Settings, Sharding, StatusPages
from kubeshard.cache import Cache
from kubeshard.client import Client, ClusterConfig
from kubeshard.controller import Controller
from kubeshard.core import ConfigurationError
from kubeshard.manager import LeaderElection
from kubeshard.manager.http import Listener, pages_app
from kubeshard.runtime.world import REAL_WORLD
from kubeshard.webhook import Webhooks
from kubeshard_lab.virtual_time import settle, virtual_time
from kubeshard_lab.virtual_world import virtual_world

ENVIRONMENT = {
    "METRICS_ADDRESS": "127.0.0.1:9000",
    "HEALTH_ADDRESS": "0",
    "LEADER_ELECT": "False",
    "WATCH_NAMESPACE": "a, b,",
    "SHARD_NAME": "second",
    "PROCESSES": "2",
    "WEBHOOKS": "false",
    "WEBHOOK_PORT": "0",
    "LOG_LEVEL": "debug",
    "LOG_FORMAT": "json",
}
EVERY = Settings(
    metrics_address="127.0.0.1:9000",
    health_address="0",
    leader_elect=False,
    namespaces=frozenset({"a", "b"}),
    shard_name="second",
    processes=2,
    webhooks=False,
    webhook_port=0,
    log_level="debug",
    log_format="json",
)
ELECTION = LeaderElection(name="x", namespace="ns", identity="me")


def test_every_setting_is_read_from_the_environment() -> None:
    assert Settings.from_environment(ENVIRONMENT) == EVERY
    assert Settings.from_environment(dict.fromkeys(ENVIRONMENT, "")) == Settings()


def test_a_flag_has_priority_over_the_variable() -> None:
    flags = ["--leader-elect", "--metrics-address", ":1", "--namespaces=c", "--log-format", "text"]
    found = Settings.parse([*flags, "--processes=auto"], ENVIRONMENT)
    assert found == replace(
        EVERY,
        leader_elect=True,
        metrics_address=":1",
        namespaces=frozenset({"c"}),
        log_format="text",
        processes="auto",
    )
    assert Settings.parse([], ENVIRONMENT) == EVERY
    assert Settings.parse(["--no-leader-elect"], {}) == Settings(leader_elect=False)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"LEADER_ELECT": "maybe"}, "LEADER_ELECT='maybe': true or false"),
        ({"WATCH_NAMESPACE": "A"}, "namespaces: 'A' is not the name of a namespace"),
        ({"LOG_LEVEL": "loud"}, "log level: unknown log level 'loud'"),
        ({"PROCESSES": "0"}, "processes '0': a number from 1, or auto"),
        ({"PROCESSES": "many"}, "processes 'many': a number from 1, or auto"),
        ({"WEBHOOKS": "some"}, "WEBHOOKS='some': true or false"),
        ({"WEBHOOK_PORT": "https"}, "webhook port 'https': a number"),
        ({"WEBHOOK_PORT": "70000"}, "webhook port 70000: 0 to 65535"),
        ({"LOG_FORMAT": "xml"}, "log format 'xml': text or json"),
    ],
)
def test_a_wrong_value_is_named(
    environment: dict[str, str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Settings.from_environment(environment)
    with pytest.raises(SystemExit) as ended:
        Settings.parse([], environment)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def controller(name: str = "items") -> Controller[Any]:
    return Controller(name=name, reconciler=Act(), primary=Item)


@virtual_time
async def test_a_manager_confined_to_namespaces_caches_no_others() -> None:
    asked: list[str] = []

    class Noting:
        async def request(self, request: Any) -> Any:
            asked.append(request.target.partition("?")[0])
            raise ConnectionError

        def stream(self, request: Any) -> Any:
            asked.append(request.target.partition("?")[0])
            raise ConnectionError

        def abort(self) -> None: ...

        async def close(self) -> None: ...

    client = Client(ClusterConfig("http://x"), transport=Noting(), world=virtual_world())  # type: ignore[arg-type]
    settings = CacheSettings(scopes={Item.KIND: Scope(frozenset({"a", "elsewhere"}))})
    for cache, places in ((None, {"a", "b"}), (settings, {"a"})):
        asked.clear()
        manager = Manager(
            [controller()], client=client, cache=cache, status_pages=None, registry=CollectorRegistry()
        )
        manager.configure(Settings(namespaces=frozenset({"a", "b"})))
        running = asyncio.create_task(manager.run())
        await settle()
        running.cancel()
        await asyncio.wait([running])
        seen = {path for path in asked if path.endswith("/items")}
        assert seen == {f"/apis/example.com/v1/namespaces/{place}/items" for place in places}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (Settings(shard_name="second"), r"the manager is not sharded: add sharding=Sharding"),
        (Settings(webhook_port=0), r"the manager has 0 servers of webhooks, not one"),
        (Settings(leader_elect=True), r"the manager declares no Lease"),
    ],
)
def test_a_setting_of_what_a_manager_does_not_have_is_refused(settings: Settings, message: str) -> None:
    manager = Manager([controller()], status_pages=None, registry=CollectorRegistry())
    with pytest.raises(ConfigurationError, match=message):
        manager.configure(settings)


def test_the_name_of_a_shard_may_be_given_at_the_start() -> None:
    sharding = Sharding("items", "first")
    manager = Manager([controller()], sharding=sharding, status_pages=None, registry=CollectorRegistry())
    manager.configure(Settings(shard_name="second"))
    assert sharding.named == "second"
    with pytest.raises(ConfigurationError, match="Not_A_Name"):
        manager.configure(Settings(shard_name="Not_A_Name"))


@virtual_time
async def test_webhooks_that_are_not_served_are_neither_served_nor_registered_and_hold_nothing_up() -> None:
    webhooks = Webhooks("items", [], url="https://127.0.0.1")
    manager = Manager([], servers=[webhooks], status_pages=None, registry=CollectorRegistry())
    manager.configure(Settings(webhooks=False))
    manager.configure(Settings())  # says nothing about it
    assert not manager.has_webhooks
    await manager.webhooks_registered()
    client = Client(ClusterConfig("http://x"), transport=Leases(), world=virtual_world())
    serving = asyncio.create_task(webhooks.run_with(client))
    await settle()
    assert (webhooks.port, webhooks.unready()) == (0, None)
    serving.cancel()


@virtual_time
async def test_namespaces_do_not_overrule_a_cache_of_the_program() -> None:
    client = Client(ClusterConfig("http://x"), transport=Leases(), world=virtual_world())
    manager = Manager(client=client, cache=Cache(client), registry=CollectorRegistry(), status_pages=None)
    with pytest.raises(ConfigurationError, match="the program has created the cache itself"):
        manager.configure(Settings(namespaces=frozenset({"a"})))


@virtual_time
async def test_without_leader_election_a_manager_works_at_once_and_takes_no_lease() -> None:
    bench, act = ManagerBench(item()), Act()
    manager = bench.manager(
        [Controller(name="items", reconciler=act, primary=Item)], leader_election=ELECTION
    )
    manager.configure(Settings(leader_elect=False))
    running = asyncio.create_task(manager.run())
    await settle()
    assert act.ended == ["done"]
    assert bench.server.leases == {}
    manager.stop()
    await running


def test_leader_election_that_is_asked_for_must_be_declared() -> None:
    manager = Manager([controller()], registry=CollectorRegistry(), status_pages=None)
    with pytest.raises(ConfigurationError, match="add leader_election=LeaderElection"):
        manager.configure(Settings(leader_elect=True))
    elected = Manager([controller()], leader_election=ELECTION, registry=CollectorRegistry())
    elected.configure(Settings(leader_elect=True))


async def test_a_default_port_that_is_taken_is_replaced_by_a_free_one_outside_of_a_pod(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        address = f"127.0.0.1:{port}"
        async with AsyncExitStack() as stack:
            page = Listener("health_address", address, movable=True)
            await page.open(stack, pages_app(), in_pod=False)
            assert page.port not in (0, port)
            (record,) = caplog.records
            assert record.getMessage() == (
                f'The default port is taken; serving at another one page="health page" port={page.port}'
            )
        for movable, in_pod in ((False, False), (True, True)):
            async with AsyncExitStack() as stack:
                page = Listener("health_address", address, movable=movable)
                with pytest.raises(ConfigurationError, match="in use by another process; choose another"):
                    await page.open(stack, pages_app(), in_pod=in_pod)


def test_only_addresses_that_nobody_chose_are_movable() -> None:
    def movable(manager: Manager) -> tuple[bool, bool]:
        pages = manager._process.pages
        return pages.metrics._movable, pages.health._movable

    assert REAL_WORLD.host.pod_namespace() is None
    manager = Manager(registry=CollectorRegistry())
    assert movable(manager) == (True, True)
    manager.configure(Settings(metrics_address=":8080"))
    assert movable(manager) == (False, True)
    chosen = Manager(registry=CollectorRegistry(), status_pages=StatusPages(health_address=":9"))
    assert movable(chosen) == (True, False)
