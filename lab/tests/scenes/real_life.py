"""The sharder's life on a real kube-apiserver, whose audit log says what it asked for and what it was refused.

The sharder runs in this process, under a token of its rendered account. Leases that nobody renews stand for shards that
die, and last as short as Leases can.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from sharder_life import (
    ACCOUNT,
    FINALIZERS,
    NAME,
    NAMESPACE,
    RING,
    Life,
    Right,
    certificate,
    conditions,
    config_in,
    hindering,
    lease,
    leaving_ring,
    metrics,
)

from kubeshard.client import Client, load_config
from kubeshard.client.config import BearerToken
from kubeshard.core import ConfigMap, Lease, MergePatch, ObjectMeta, Secret
from kubeshard.core.errors import KubeshardError, NotFound
from kubeshard.core.objects import OwnerReference
from kubeshard.core.partial_kinds import MutatingWebhookConfiguration
from kubeshard.core.times import parse_time
from kubeshard.core.yaml_output import documents
from kubeshard.runtime.http import HttpTransport
from kubeshard.runtime.transport import HttpRequest, HttpResponse, HttpStream
from kubeshard.runtime.watchdog import NoWatchdog
from kubeshard.runtime.world import REAL_WORLD
from kubeshard.sharder.app import build_sharder
from kubeshard.sharder.webhook_config import SECRET_NAME, serving_names
from kubeshard.sharding.api import ControllerRing
from kubeshard_apiserver.testing import ControlPlane
from kubeshard_lab.simulation.cluster import Thing, definition
from kubeshard_lab.simulation.processes import Answered, Before

AUDITED = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "users": [ACCOUNT]}],
}
PLUGIN = "OwnerReferencesPermissionEnforcement"
WEBHOOK = "controllerring-r"
PATIENCE = 30.0
DECISION = "authorization.k8s.io/decision"


class AuditedCluster:
    """A control plane with the kinds, the namespaces and the account."""

    def __init__(self, folder: Path, objects: Iterable[Mapping[str, Any]]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        policy, self._log = folder / "policy.json", folder / "audit.log"
        policy.write_text(json.dumps(AUDITED))
        self._log.touch()
        audit = (f"--audit-policy-file={policy}", f"--audit-log-path={self._log}")
        self._kube = ControlPlane(folder=folder, arguments=[*audit, f"--enable-admission-plugins={PLUGIN}"])
        self._objects = list(objects)
        self.config = config_in(obj for obj in self._objects if obj["kind"] == "ConfigMap")
        self._without: Right | None = None
        self._read = 0

    def __enter__(self) -> AuditedCluster:
        self._kube.__enter__()
        self._apply(each for each in self._objects if each["kind"] != "ControllerRing")
        namespaces = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in ("ops", "team")
        ]
        self._apply([definition(), *namespaces])
        self._kube.kubectl("wait", "--for=condition=Established", "crd", "--all")
        self.token = self._kube.kubectl("-n", NAMESPACE, "create", "token", NAME).strip()
        return self

    def __exit__(self, *_: object) -> None:
        self._kube.stop()

    def _apply(self, objects: Iterable[Mapping[str, Any]]) -> None:
        self._kube.kubectl("apply", "--server-side", "-f", "-", input=documents(objects))

    @asynccontextmanager
    async def clients(self) -> AsyncIterator[tuple[Client, Client]]:
        """An administrator's, and the sharder's."""
        async with await Client.connect(self._kube.kubeconfig) as admin:
            found = await load_config(self._kube.kubeconfig)
            config = dataclasses.replace(found, auth=BearerToken(self.token))
            way = _Way(HttpTransport(config.server, config.tls), hindering(admin))
            # A sharder that may not renew its Lease would be ended by its watchdog, and the tests with it.
            world = dataclasses.replace(REAL_WORLD, watchdog=NoWatchdog)
            async with Client(config, transport=way, world=world) as client:
                yield admin, client

    async def grant(self, admin: Client, objects: Iterable[Mapping[str, Any]], but: Right | None) -> None:
        """The roles among the objects; returns once the API server heeds them."""
        for manifest in objects:
            if manifest["kind"] in ("ClusterRole", "Role"):
                await admin.apply(manifest, force=True)
        back, self._without = self._without, but
        for right in {back, but} - {None}:

            async def heeded(right: Right = right) -> bool:
                return await _may(admin, right) is (right != but)

            assert await _within(PATIENCE, heeded), f"{right}: the API server does not heed the roles"

    def asked(self, since: float) -> tuple[set[Right], set[Right]]:
        """What the sharder was allowed and refused."""
        allowed, refused = set[Right](), set[Right]()
        with self._log.open("rb") as log:
            log.seek(self._read)
            for line in log:
                event = json.loads(line) if line.endswith(b"\n") else {}
                if event and (parse_time(event["requestReceivedTimestamp"]) or 0.0) >= since:
                    _judge(event, allowed, refused)
        return allowed, refused

    def forget(self) -> None:
        """What is in the log so far is another life's."""
        self._read = self._log.stat().st_size


def _judge(event: Mapping[str, Any], allowed: set[Right], refused: set[Right]) -> None:
    """One request, as the audit log has it. An apply that creates, and a reference that blocks an owner's deletion,
    need rights beside the request's own; of those the log has but the outcome.
    """
    about = event.get("objectRef")
    if about is None:
        return
    resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
    right = Right(about.get("apiGroup", ""), resource, event["verb"])
    status = event.get("responseStatus", {})
    if event["annotations"][DECISION] == "forbid":
        refused.add(right)
    elif status.get("code") == 403:
        blocked = "blockOwnerDeletion" in status.get("message", "")
        refused.add(FINALIZERS if blocked else right._replace(verb="create"))
    else:
        allowed.add(right)
        if status.get("code") == 201:
            allowed.add(right._replace(verb="create"))


async def live_really(
    cluster: AuditedCluster,
    objects: Iterable[Mapping[str, Any]],
    but: Right | None,
    enough: Callable[[Life], object],
) -> Life:
    """What a sharder is allowed and refused under the roles of these objects, until that is enough."""
    async with cluster.clients() as (admin, client):
        await cluster.grant(admin, objects, but)
        await _prepare(admin)
        cluster.forget()
        since, said = time.time(), list[str]()

        async def life() -> Life:
            ring = json.loads((await admin.raw("GET", "/apis/" + _RING_PATH)).body)
            return Life(*cluster.asked(since), [*said, *conditions(ring)])

        async def is_enough() -> bool:
            return bool(enough(await life()))

        async def sharder() -> None:
            try:
                await build_sharder(cluster.config, client).run()
            except KubeshardError as error:
                said.append(str(error))

        tasks = [asyncio.create_task(sharder()), asyncio.create_task(_disturb(cluster, admin, client, said))]
        try:
            await _within(PATIENCE, is_enough)
            return await life()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            for task in tasks:
                if not task.cancelled():
                    task.result()  # a life that nobody disturbed shows nothing


_RING_PATH = "sharding.timebertt.dev/v1alpha1/controllerrings/r"


async def _prepare(admin: Client) -> None:
    """Nothing of another life; Things, a ConfigMap of one of them, and shards."""
    for name in ("ops", NAMESPACE):
        await admin.delete_collection(Lease, name)
    for kind in (Thing, ConfigMap):
        await admin.delete_collection(kind, "team")
    for kind, name, namespace in (
        (Secret, SECRET_NAME, NAMESPACE),
        (MutatingWebhookConfiguration, WEBHOOK, None),
        (ControllerRing, "r", None),
    ):
        with suppress(NotFound):
            await admin.delete(kind, name, namespace)
    for number in range(4):
        thing = await admin.create(Thing(metadata=ObjectMeta(name=f"t{number}", namespace="team")))
    owner = OwnerReference(
        api_version="sim.example/v1", kind="Thing", name="t3", uid=thing.metadata.uid, controller=True
    )
    child = ObjectMeta(name="c-t3", namespace="team", owner_references=(owner,))
    await admin.create(ConfigMap(metadata=child))
    for name in ("s0", "s1", "s2", "x" * 64):
        await admin.create(lease(name, time.time(), 1))
    await admin.apply(RING)


async def _disturb(cluster: AuditedCluster, admin: Client, client: Client, said: list[str]) -> None:
    """What happens to a sharder."""
    names = serving_names(cluster.config.webhook.config.client_config)
    said += await certificate(client, admin, names)
    await metrics(client, cluster.token)

    async def emptied() -> bool:
        with suppress(NotFound):
            await admin.patch(MutatingWebhookConfiguration, WEBHOOK, "", MergePatch({"webhooks": []}))
            return True
        return False

    await leaving_ring(admin)
    await _within(5, emptied)  # where it may not be made, there is nothing to change
    with suppress(NotFound):
        await admin.delete(Lease, "s1", "ops")


async def _within(seconds: float, condition: Callable[[], Awaitable[bool]]) -> bool:
    deadline = time.monotonic() + seconds
    while not (holds := await condition()) and time.monotonic() < deadline:  # noqa: ASYNC110 - a server's state
        await asyncio.sleep(0.05)
    return holds


async def _may(admin: Client, right: Right) -> bool:
    """Whether the sharder has it."""
    resource, _, subresource = right.resource.partition("/")
    secret = {"namespace": NAMESPACE, "name": "" if right.verb == "create" else SECRET_NAME}
    attributes = {
        "group": right.group,
        "resource": resource,
        "subresource": subresource,
        "verb": right.verb,
        **(secret if resource == "secrets" else {}),
        **({"name": WEBHOOK} if resource == MutatingWebhookConfiguration.KIND.plural else {}),
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": ACCOUNT, "resourceAttributes": attributes},
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    answer = await admin.raw("POST", path, json.dumps(body).encode())
    return bool(json.loads(answer.body)["status"]["allowed"])


class _Way:
    """To the server, past somebody who may answer instead."""

    def __init__(self, inner: HttpTransport, before: Before) -> None:
        self._inner, self._before = inner, before
        self.renew, self.abort, self.close = inner.renew, inner.abort, inner.close

    async def request(self, request: HttpRequest) -> HttpResponse:
        return await self._before(request) or await self._inner.request(request)

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpStream]:
        return self._stream(request)

    @asynccontextmanager
    async def _stream(self, request: HttpRequest) -> AsyncIterator[HttpStream]:
        if (answer := await self._before(request)) is not None:
            yield Answered(answer)
            return
        async with self._inner.stream(request) as stream:
            yield stream
