"""Others who write what the sharder writes, in a simulated cluster: nobody is fought, and it is said who writes."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from kubeshard.client import Client
from kubeshard.core import MergePatch
from kubeshard.core.errors import ApiError
from kubeshard.core.objects import Key
from kubeshard.core.partial_kinds import MutatingWebhookConfiguration
from kubeshard.runtime.repairs import EVERY, FREE, QUIET
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard.sharder.config import load_sharder_config
from kubeshard.sharding.api import ControllerRing, RingResource
from kubeshard.sharding.names import SHARDER_ANNOTATION
from kubeshard_lab.simulation.cluster import MAIN, SimulatedCluster, Touch
from kubeshard_lab.virtual_time import virtual_time

pytestmark = pytest.mark.regression

NAME = "controllerring-r"
PATH = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{NAME}"
ADDED = {"key": "control-plane", "operator": "NotIn", "values": ["true"]}
MINUTE = 60.0

Webhook = dict[str, Any]


def config(world: SimulatedCluster) -> dict[str, Any]:
    found = world.objects("admissionregistration.k8s.io", "mutatingwebhookconfigurations")
    return copy.deepcopy(found[Key("", NAME)])


def status(world: SimulatedCluster) -> dict[str, Any]:
    ring: dict[str, Any] = world.objects("sharding.timebertt.dev", "controllerrings")[Key("", "r")]
    return ring.get("status") or {}


def conditions(world: SimulatedCluster) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["message"]) for each in status(world).get("conditions", ())}


def told(world: SimulatedCluster) -> set[str]:
    events = world.objects("events.k8s.io", "events").values()
    return {event["reason"] for event in events if event["regarding"]["kind"] == "ControllerRing"}


def called(world: SimulatedCluster) -> set[str]:
    rules = [rule for webhook in config(world)["webhooks"] for rule in webhook["rules"]]
    return {resource for rule in rules for resource in rule["resources"]}


class Writes:
    """The sharders' successful writes, by process."""

    def __init__(self, world: SimulatedCluster, part: str) -> None:
        self.by: dict[str, int] = {}
        self._part = part
        world.observers.append(self._look)

    def _look(self, process: Any, request: HttpRequest, answer: HttpResponse | None) -> None:
        wrote = request.method in ("PATCH", "PUT", "POST") and self._part in request.target
        if wrote and request.body != b"{}" and answer is not None and answer.status < 300:
            name = str(getattr(process, "name", process))
            self.by[name] = self.by.get(name, 0) + 1

    @property
    def all(self) -> int:
        return sum(self.by.values())


async def begin(world: SimulatedCluster, *, shards: int = 1) -> None:
    await world.install()
    await world.make_ring()
    world.sharder("x0")
    for number in range(shards):
        world.shard(f"s{number}", Touch())
    await world.until(lambda: conditions(world).get("Ready", ("",))[0] == "True", within=60)
    await asyncio.sleep(10)


def add_to_namespaces(webhook: Webhook) -> None:
    expressions = webhook["namespaceSelector"].setdefault("matchExpressions", [])
    if ADDED not in expressions:
        expressions.append(ADDED)


def label_of_namespaces(webhook: Webhook) -> None:
    webhook["namespaceSelector"].setdefault("matchLabels", {})["team"] = "a"


def add_to_objects(webhook: Webhook) -> None:
    expressions = webhook["objectSelector"].setdefault("matchExpressions", [])
    if ADDED not in expressions:
        expressions.append(ADDED)


def exclude_another_namespace(webhook: Webhook) -> None:
    for each in webhook["namespaceSelector"]["matchExpressions"]:
        if each["operator"] == "NotIn" and "aks" not in each["values"]:
            each["values"].append("aks")


def add_condition(webhook: Webhook) -> None:
    if all(each["name"] != "theirs" for each in webhook["matchConditions"]):
        webhook["matchConditions"].append({"name": "theirs", "expression": "true"})


NARROWING: list[Callable[[Webhook], None]] = [
    add_to_namespaces,
    label_of_namespaces,
    add_to_objects,
    exclude_another_namespace,
    add_condition,
]


async def enforce(world: SimulatedCluster, change: Callable[[Webhook], None]) -> None:
    """What a platform's enforcer does whenever it sees the configuration."""
    found, before = config(world), config(world)
    for webhook in found["webhooks"]:
        change(webhook)
    if found != before:
        async with world.admin() as client:
            with suppress(ApiError):
                await client.raw("PUT", f"{PATH}?fieldManager=enforcer", json.dumps(found).encode())


@pytest.mark.parametrize("change", NARROWING)
@virtual_time
async def test_what_others_add_to_narrow_the_webhook_is_kept_and_the_rest_stays_current(
    change: Callable[[Webhook], None],
) -> None:
    async with SimulatedCluster() as world:
        await begin(world)
        writes = Writes(world, "mutatingwebhookconfigurations")

        async def seconds(count: int) -> None:
            for _ in range(count):
                await enforce(world, change)
                await asyncio.sleep(1)

        await seconds(15)
        assert writes.all <= 20
        world.shard("s1", Touch())
        async with world.admin() as client:
            more = {"spec": {"resources": [*_resources(MAIN), *_resources(RingResource(resource="secrets"))]}}
            await client.patch(ControllerRing, "r", "", MergePatch(more))
        await seconds(20)
        assert "secrets" in called(world)
        assert status(world)["availableShards"] == 2
        assert conditions(world)["Ready"][0] == "True"
        assert "WebhookContested" not in conditions(world)
        now = config(world)
        for webhook in now["webhooks"]:
            before = copy.deepcopy(webhook)
            change(webhook)
            assert webhook == before


def _resources(*resources: RingResource) -> Any:
    return msgspec.to_builtins(resources)


@virtual_time
async def test_a_new_selector_of_the_ring_is_applied_with_what_others_had_added_to_the_former_one() -> None:
    async with SimulatedCluster() as world:
        await begin(world)
        await enforce(world, add_to_namespaces)
        await asyncio.sleep(2)
        async with world.admin() as client:
            selector = {"matchExpressions": [{"key": "team", "operator": "Exists"}]}
            await client.patch(ControllerRing, "r", "", MergePatch({"spec": {"namespaceSelector": selector}}))
        await asyncio.sleep(5)
        for webhook in config(world)["webhooks"]:
            expressions = webhook["namespaceSelector"]["matchExpressions"]
            assert ADDED in expressions
            assert {"key": "team", "operator": "Exists"} in expressions
            assert not any(each.get("values") == ["kube-system", "sharding-system"] for each in expressions)
        assert conditions(world)["Ready"][0] == "True"


@virtual_time
async def test_a_field_that_somebody_else_keeps_is_left_to_him_said_and_holds_up_nothing_else() -> None:
    async with SimulatedCluster() as world:
        await begin(world)

        def fail(webhook: Webhook) -> None:
            webhook["timeoutSeconds"] = 7

        await enforce(world, fail)
        world.shard("s1", Touch())
        async with world.admin() as client:
            more = {"spec": {"resources": [*_resources(MAIN), *_resources(RingResource(resource="secrets"))]}}
            await client.patch(ControllerRing, "r", "", MergePatch(more))
        await asyncio.sleep(2 * MINUTE)
        assert {webhook["timeoutSeconds"] for webhook in config(world)["webhooks"]} == {7}
        assert "secrets" in called(world)
        assert status(world)["availableShards"] == 2
        ready, message = conditions(world)["Ready"]
        assert ready == "False"
        assert "timeoutSeconds" in message
        assert "enforcer" in message
        async with world.admin() as client:
            await client.delete(MutatingWebhookConfiguration, NAME, "")
        await asyncio.sleep(MINUTE)
        assert {webhook["timeoutSeconds"] for webhook in config(world)["webhooks"]} == {2}
        assert conditions(world)["Ready"][0] == "True"


async def take_rules(client: Client, world: SimulatedCluster) -> None:
    await client.patch(
        MutatingWebhookConfiguration, NAME, "", MergePatch({"webhooks": []}), field_manager="git"
    )


async def remove(client: Client, world: SimulatedCluster) -> None:
    await client.delete(MutatingWebhookConfiguration, NAME, "")


@pytest.mark.parametrize("undo", [take_rules, remove])
@virtual_time
async def test_a_webhook_configuration_that_somebody_keeps_undoing_is_put_right_once_a_minute_and_that_is_said(
    undo: Callable[[Client, SimulatedCluster], Awaitable[None]],
) -> None:
    async with SimulatedCluster() as world:
        await begin(world)
        writes = Writes(world, "mutatingwebhookconfigurations")
        async with world.admin() as client:
            for _ in range(130):
                found = world.objects("admissionregistration.k8s.io", "mutatingwebhookconfigurations")
                if found.get(Key("", NAME), {}).get("webhooks"):
                    await undo(client, world)
                await asyncio.sleep(1)
        assert writes.by.get("x0", 0) <= FREE + 130 / EVERY + 1
        _, message = conditions(world)["WebhookContested"]
        assert ("removes" if undo is take_rules else "deletes") in message
        assert "WrittenByOthers" in told(world)
        world.shard("s1", Touch())
        await asyncio.sleep(EVERY + 5)
        assert status(world)["availableShards"] == 2
        assert called(world)
        if undo is remove:
            await asyncio.sleep(QUIET)
            assert "WebhookContested" not in conditions(world)


@virtual_time
async def test_a_status_that_somebody_keeps_changing_is_put_right_once_a_minute_and_that_is_said() -> None:
    async with SimulatedCluster() as world:
        await begin(world)
        writes = Writes(world, "controllerrings/r/status")
        async with world.admin() as client:
            for _ in range(130):
                if status(world).get("availableShards"):
                    await client.patch(
                        ControllerRing,
                        "r",
                        "",
                        MergePatch({"status": {"availableShards": 0}}),
                        subresource="status",
                    )
                await asyncio.sleep(1)
        assert writes.by.get("x0", 0) <= FREE + 130 / EVERY + 1
        assert "StatusContested" in told(world)
        await asyncio.sleep(EVERY + 5)
        assert status(world)["availableShards"] == 1


@virtual_time
async def test_a_condition_that_somebody_keeps_flipping_is_put_right_once_a_minute_and_that_is_said() -> None:
    async with SimulatedCluster() as world:
        await begin(world)
        writes = Writes(world, "controllerrings/r/status")
        async with world.admin() as client:
            for _ in range(130):
                flipped = copy.deepcopy(status(world).get("conditions", []))
                if any(each["type"] == "Ready" and each["status"] == "True" for each in flipped):
                    for each in flipped:
                        each["status"] = "False"
                    change = MergePatch({"status": {"conditions": flipped}})
                    await client.patch(ControllerRing, "r", "", change, subresource="status")
                await asyncio.sleep(1)
        assert writes.by.get("x0", 0) <= FREE + 130 / EVERY + 1
        assert "StatusContested" in told(world)
        await asyncio.sleep(EVERY + 5)
        assert conditions(world)["Ready"][0] == "True"


@virtual_time
async def test_a_ring_whose_selector_becomes_invalid_says_so() -> None:
    async with SimulatedCluster() as world:
        await begin(world)
        async with world.admin() as client:
            invalid = {"matchExpressions": [{"key": "a", "operator": "In", "values": []}]}
            await client.patch(ControllerRing, "r", "", MergePatch({"spec": {"namespaceSelector": invalid}}))
        await world.until(lambda: conditions(world).get("SelectorValid", ("",))[0] == "False", within=30)
        assert conditions(world)["Ready"][0] == "False"


SECOND, _ = load_sharder_config(None, {"POD_NAMESPACE": "team-b"})


@virtual_time
async def test_two_installations_find_each_other_one_steps_back_and_takes_over_when_the_other_is_gone() -> (
    None
):
    async with SimulatedCluster() as world:
        await begin(world)
        async with world.admin() as client:
            await client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-b"}})
        writes = Writes(world, "mutatingwebhookconfigurations")
        statuses = Writes(world, "controllerrings/r/status")
        world.sharder("y0", SECOND)
        await asyncio.sleep(2 * MINUTE)
        assert writes.all == 0
        assert statuses.all <= 2
        assert config(world)["metadata"]["annotations"][SHARDER_ANNOTATION] == "sharding-system/sharder"
        several, message = conditions(world)["SeveralSharders"]
        assert several == "True"
        assert "sharding-system/sharder keeps" in message
        assert "team-b/sharder" in message
        assert "SeveralSharders" in told(world)
        assert conditions(world)["Ready"][0] == "True"

        world.processes["x0"].kill()
        await asyncio.sleep(3 * MINUTE)
        assert config(world)["metadata"]["annotations"][SHARDER_ANNOTATION] == "team-b/sharder"
        await asyncio.sleep(11 * MINUTE)
        assert "SeveralSharders" not in conditions(world)
        assert conditions(world)["Ready"][0] == "True"
        assert writes.all <= 2


@virtual_time
async def test_two_installations_that_start_at_once_agree_on_one() -> None:
    async with SimulatedCluster() as world:
        await world.install()
        async with world.admin() as client:
            await client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-b"}})
        await world.make_ring()
        writes = Writes(world, "mutatingwebhookconfigurations")
        world.sharder("x0")
        world.sharder("y0", SECOND)
        await asyncio.sleep(2 * MINUTE)
        assert writes.all <= 4
        kept = config(world)["metadata"]["annotations"][SHARDER_ANNOTATION]
        assert f"{kept} keeps" in conditions(world)["SeveralSharders"][1]
