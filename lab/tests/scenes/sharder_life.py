"""All that a sharder does in its life, in three minutes of virtual time, under the rights of its rendered manifests.

What it asks for is recorded at the API server's gate, and what it is refused. `real_life` has the same on a real
kube-apiserver.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, Counter

from kubeshard.client import Client
from kubeshard.core import Key, Lease, MergePatch, ObjectMeta, Secret
from kubeshard.core.builtin import LeaseSpec
from kubeshard.core.errors import NotFound, Unprepared
from kubeshard.core.partial_kinds import MutatingWebhookConfiguration
from kubeshard.core.times import micro_time
from kubeshard.manager.config_file import parse_config
from kubeshard.manager.metrics_access import MetricsAuth
from kubeshard.manifests.ring import ring_objects
from kubeshard.manifests.sharder import sharder_objects
from kubeshard.manifests.values import SharderValues
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard.sharder.config import API_VERSION, KIND, SharderConfig
from kubeshard.sharder.webhook_config import SECRET_NAME
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.conditions import PERMITTED
from kubeshard.sharding.names import CLEAN_UP_FINALIZER, RING_LABEL, webhook_config_name
from kubeshard.webhook.shared_certificate import SharedCertificate
from kubeshard_apiserver import User
from kubeshard_apiserver.access import Attributes, Authorizer, Decision, HeldRules
from kubeshard_lab.simulation.cluster import SimulatedCluster, Touch
from kubeshard_lab.simulation.processes import Before, Network, Process, refusal

NAMESPACE, NAME = "sharding-system", "sharder"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{NAME}"
SHARDER = User(ACCOUNT, groups=("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}"))

RING: Mapping[str, Any] = {
    "apiVersion": "sharding.timebertt.dev/v1alpha1",
    "kind": "ControllerRing",
    "metadata": {"name": "r"},
    "spec": {
        "resources": [
            {
                "group": "sim.example",
                "resource": "things",
                "controlledResources": [{"group": "", "resource": "configmaps"}],
            }
        ]
    },
}


MERGE = "application/merge-patch+json"
LEAVING = "leaving"


class Right(NamedTuple):
    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}{self.group and '.' + self.group}"


OWN_REVIEW = Right("authorization.k8s.io", "selfsubjectaccessreviews", "create")
"""Every authenticated user may ask what it may do."""

FINALIZERS = Right("sharding.timebertt.dev", "controllerrings/finalizers", "update")
"""Asked for by no request, but by the admission plugin OwnerReferencesPermissionEnforcement."""

OLD_EVENTS = {Right("", "events", verb) for verb in ("create", "patch")}
"""Tried where those of events.k8s.io are refused."""


def manifests(values: SharderValues | None = None) -> list[dict[str, Any]]:
    """Returns the manifests of the sharder and of a ring, and the role for another ring of the same resources."""
    leaving = ring_objects({**RING, "metadata": {"name": LEAVING}}, (NAMESPACE, NAME))
    roles = [each for each in leaving if each["kind"] != RING["kind"]]
    return [*sharder_objects(values or SharderValues()), *ring_objects(RING, (NAMESPACE, NAME)), *roles]


def granted(objects: Iterable[Mapping[str, Any]]) -> set[Right]:
    """Returns the rights that the roles among these objects grant, but for those for users, which are aggregated."""
    return {
        Right(group, resource, verb)
        for obj in objects
        if obj["kind"] in ("ClusterRole", "Role")
        and not any("aggregate-to" in label for label in obj["metadata"].get("labels", {}))
        for rule in obj["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def without(objects: Iterable[Mapping[str, Any]], right: Right) -> list[Any]:
    """Returns the objects with this right removed from their roles."""
    found = copy.deepcopy(list(objects))
    for obj in found:
        rules = obj.pop("rules", None)
        if rules is None:
            continue
        obj["rules"] = []
        for rule in rules:
            for resource in rule["resources"]:
                left = [
                    verb
                    for verb in rule["verbs"]
                    if right not in {Right(group, resource, verb) for group in rule["apiGroups"]}
                ]
                if left:
                    obj["rules"].append({**rule, "resources": [resource], "verbs": left})
    return found


def refusals(records: Iterable[logging.LogRecord]) -> list[str]:
    """Warnings of the log that are about rights."""
    lines = [f"{each.getMessage()} {each.__dict__}" for each in records if each.levelno >= logging.WARNING]
    return [line for line in lines if "cannot" in line.lower() or "not allowed" in line.lower()]


class Recorder:
    """An authorizer that records its decisions about the sharder."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer
        self.allowed: set[Right] = set()
        self.refused: set[Right] = set()

    def decide(self, user: User, attributes: Attributes) -> Decision:
        decision = self._authorizer.decide(user, attributes)
        if user.name == ACCOUNT and attributes.resource:
            right = Right(attributes.group, attributes.combined, attributes.verb)
            (self.allowed if decision.allowed else self.refused).add(right)
        return decision

    def held(self, user: User, namespace: str) -> HeldRules:
        return self._authorizer.held(user, namespace)


class Life(NamedTuple):
    allowed: set[Right]
    refused: set[Right]
    said: list[str]
    """Messages to people in addition to the log: the reason for which the sharder would have ended, and the ring's
    condition about rights.
    """


async def live(objects: Iterable[Mapping[str, Any]]) -> Life:
    """Runs a sharder with the roles among these objects; returns what it was allowed and denied."""
    async with SimulatedCluster(users={"x0": SHARDER}) as world:
        gate: Any = world.front.gate
        recorder = gate.authorizer = Recorder(gate.authorizer)
        await world.install()
        async with world.admin() as admin:
            for manifest in objects:
                await admin.apply(manifest)
            said = await _live(world, admin)
        return Life(recorder.allowed, recorder.refused, said)


async def _live(world: SimulatedCluster, admin: Client) -> list[str]:
    def connected(process: Process, network: Network) -> None:
        if process.name == "x0":
            network.before = hindering(admin)

    world.connected = connected
    process = world.sharder("x0", config_in(world.objects("", "configmaps").values()))
    for name in ("s0", "s1", "s2"):
        world.shard(name, Touch())
    await world.make_things(4)
    await _within(lambda: world.all_owned("s0", "s1", "s2"), 20)
    said = await certificate(process.client(), admin, ("sharder.sharding-system.svc",))
    await metrics(process.client(), "x0")
    with suppress(NotFound):  # if it could not be created, there is nothing to change
        await admin.patch(MutatingWebhookConfiguration, "controllerring-r", "", MergePatch({"webhooks": []}))
    await admin.create(lease("x" * 64, world.clock.wall(), 5))
    await leaving_ring(admin)
    world.processes["s0"].kill()
    world.processes["s1"].kill()
    await admin.delete(Lease, "s1", "ops")
    await asyncio.sleep(150)  # by now the Leases of the dead shards are orphaned
    return [*said, *conditions(world.objects("sharding.timebertt.dev", "controllerrings")[Key("", "r")])]


async def leaving_ring(admin: Client) -> None:
    """A ring that is cleaned up, which shards nothing."""
    with suppress(NotFound):  # of another life, with a sharder that may not let it go
        await admin.patch(ControllerRing, LEAVING, "", MergePatch({"metadata": {"finalizers": None}}))
    with suppress(NotFound):  # one whose life ended before it was deleted
        await admin.delete(ControllerRing, LEAVING)
    with suppress(NotFound):  # which no garbage collector has deleted
        await admin.delete(MutatingWebhookConfiguration, webhook_config_name(LEAVING), "")
    meta = ObjectMeta(name=LEAVING, finalizers=(CLEAN_UP_FINALIZER,))
    await admin.create(ControllerRing(metadata=meta))
    await admin.delete(ControllerRing, LEAVING)


def conditions(ring: Mapping[str, Any]) -> list[str]:
    """What the ring says about rights."""
    found = (ring.get("status") or {}).get("conditions") or ()
    return [each["message"] for each in found if each["type"] == PERMITTED]


def hindering(admin: Client) -> Before:
    """The API server is an old one that sends no lists by watches; and what the sharder is the first to write has just
    been changed by somebody else.
    """
    seen: set[str] = set()

    async def before(request: HttpRequest) -> HttpResponse | None:
        if "sendInitialEvents=true" in request.target:
            return refusal(422, "Invalid")
        path = request.target.partition("?")[0]
        folder, _, _name = path.rpartition("/")
        if request.method == "PATCH" and "/namespaces/team/" in path and folder not in seen:
            seen.add(folder)
            await admin.raw("PATCH", path, body=b'{"metadata":{"annotations":{"a":"b"}}}', content_type=MERGE)
        return None

    return before


def config_in(config_maps: Iterable[Mapping[str, Any]]) -> SharderConfig:
    """The one of the sharder."""
    (text,) = (obj["data"]["config"] for obj in config_maps if obj["metadata"]["name"] == "sharder-config")
    config, _ = parse_config(text, SharderConfig, api_version=API_VERSION, kind=KIND)
    return config


async def _within(condition: Any, seconds: float) -> None:
    """Waits for the step, but not forever: a missing right may prevent it."""
    for _ in range(int(seconds * 10)):
        if condition():
            return
        await asyncio.sleep(0.1)


def lease(name: str, wall: float, seconds: int) -> Lease:
    """Of a shard. About one whose name is too long for a label there is an Event whenever its state changes."""
    now = micro_time(wall)
    spec = LeaseSpec(holder_identity=name, lease_duration_seconds=seconds, acquire_time=now, renew_time=now)
    return Lease(metadata=ObjectMeta(name=name, namespace="ops", labels={RING_LABEL: "r"}), spec=spec)


async def certificate(client: Client, admin: Client, names: Sequence[str]) -> list[str]:
    """Makes its own, and again once somebody has broken it. Says what would have ended the sharder."""

    def shared() -> SharedCertificate:
        return SharedCertificate(
            client,
            tuple(names),
            namespace=NAMESPACE,
            secret=SECRET_NAME,
            app="controller-sharding",
            clock=client.world.clock,
            rng=client.world.rng,
        )

    try:
        await shared().load(_Installed())  # type: ignore[arg-type]
        await admin.patch(Secret, SECRET_NAME, NAMESPACE, MergePatch({"data": {"tls.crt": "bm8="}}))
        await shared().load(_Installed())  # type: ignore[arg-type]
    except Unprepared as error:
        return [str(error)]
    return []


class _Installed:
    """Accepts any certificate: on virtual time OpenSSL considers all of them expired."""

    def __init__(self) -> None:
        self.reads = self.errors = Counter("certificates", "", registry=CollectorRegistry())

    def install(self, pair: object) -> bool:
        return True


async def metrics(client: Client, token: str) -> None:
    """Somebody with a token asks for the metrics."""

    async def page(scope: Any, receive: Any, send: Any) -> None: ...

    async def send(message: Any) -> None: ...

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/metrics",
        "client": ("10.0.0.1", 1),
        "headers": [(b"authorization", b"Bearer " + token.encode())],
    }
    await MetricsAuth(client).guard(page)(scope, None, send)  # type: ignore[arg-type]
