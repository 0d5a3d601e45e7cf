"""Webhooks of the embedded server in one process, and how its calls are routed."""

from __future__ import annotations

import base64
import json
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from kubeshard.cache import Added
from kubeshard.client import Client, ClusterConfig
from kubeshard.core import ConfigMap, ObjectMeta
from kubeshard.core.errors import ApiError, Invalid, NotFound
from kubeshard.core.patches import JsonPatch
from kubeshard.core.selectors import LabelSelector
from kubeshard.runtime.clock import SystemClock
from kubeshard.runtime.http import HttpTransport
from kubeshard.sharder.admission import ShardAdmission
from kubeshard.sharder.config import WebhookConfig
from kubeshard.sharder.metrics import SharderMetrics
from kubeshard.sharder.rings import Rings
from kubeshard.sharder.webhook_config import webhook_configuration
from kubeshard.sharding.api import ControllerRing, ControllerRingSpec, RingResource
from kubeshard.sharding.hash_ring import HashRing, main_key
from kubeshard.sharding.ring import RingInputs
from kubeshard.sharding.shard_states import Availability
from kubeshard.webhook import AdmissionApp
from kubeshard_apiserver import ApiServer, Front, InMemoryTransport
from kubeshard_apiserver.admission.caller import AppCaller, HttpCaller
from kubeshard_apiserver.steps import WebhookCall, WebhookReply

LABEL = "shard.alpha.sharding.timebertt.dev/maps"
RING = ControllerRing(
    metadata=ObjectMeta(name="maps", uid="1"),
    spec=ControllerRingSpec(resources=(RingResource(group="", resource="configmaps"),)),
)


def rings() -> Rings:
    """Returns a ring with the shards a, b and c."""
    available = Availability(("a", "b", "c"), ("a", "b", "c"))
    shards: Any = SimpleNamespace(availability=lambda *_: available, fresh=lambda _: True)
    kinds: Any = SimpleNamespace(learned=0, owner_kinds=lambda _: {})
    found = Rings(
        RingInputs(
            shards=shards,
            kinds=kinds,
            metrics=SharderMetrics(CollectorRegistry()),
            clock=SystemClock(),
            default_selector=LabelSelector(),
        )
    )
    found.apply(Added(RING))
    return found


def client_of(server: ApiServer, caller: Any) -> Client:
    return Client(ClusterConfig("http://memory"), transport=InMemoryTransport(Front(server, caller=caller)))


async def register(client: Client, **fields: Any) -> None:
    body = webhook_configuration(RING, WebhookConfig())
    body["webhooks"] = [{**body["webhooks"][0], **fields}]
    await client.apply(body)


async def test_the_sharder_assigns_objects_through_the_embedded_server():
    app = AdmissionApp({"/webhooks/sharder": ShardAdmission(rings(), SystemClock())}, clock=SystemClock())
    async with client_of(ApiServer(), AppCaller({"/webhooks/sharder": app})) as client:
        await register(client)
        ring = HashRing(("a", "b", "c"))
        for name in ("one", "two", "three"):
            made = await client.create(ConfigMap(metadata=ObjectMeta(name=name, namespace="default")))
            assert made.metadata.labels == {LABEL: ring.owner(main_key("v1", "ConfigMap", made.metadata))}
        system = await client.create(ConfigMap(metadata=ObjectMeta(name="one", namespace="kube-system")))
        assert not system.metadata.labels


async def test_a_service_is_nowhere_unless_the_caller_is_told():
    async with client_of(ApiServer(), HttpCaller(HttpTransport)) as client:
        await register(client, failurePolicy="Fail")
        with pytest.raises(ApiError, match=r"no cluster network.*sharder\.sharding-system\.svc:443"):
            await client.create(ConfigMap(metadata=ObjectMeta(name="a", namespace="default")))


async def test_a_service_is_called_where_the_resolver_says():
    asked = []

    def resolve(namespace: str, name: str, port: int) -> str:
        asked.append((namespace, name, port))
        return "127.0.0.1:1"

    caller = HttpCaller(HttpTransport, resolve)
    service = {"namespace": "n", "name": "s", "path": "/p", "port": 8443}
    reply = await caller.call(WebhookCall("w", {"service": service}, {}, 1.0))
    await caller.close()
    assert asked == [("n", "s", 8443)]
    assert reply.problem.startswith('Post "https://s.n.svc:8443/p?timeout=1s": ')


async def test_a_bundle_without_certificates_is_said():
    caller = HttpCaller(HttpTransport)
    client = {"url": "https://127.0.0.1:1/", "caBundle": base64.b64encode(b"nothing").decode()}
    reply = await caller.call(WebhookCall("w", client, {}, 1.0))
    assert "root certificates" in reply.problem


async def test_who_makes_no_calls_is_refused_by_a_webhook_that_must_be_asked():
    server = ApiServer()
    async with Client(ClusterConfig("http://memory"), transport=InMemoryTransport(server)) as client:
        await register(client, failurePolicy="Fail")
        with pytest.raises(ApiError, match="this server makes no calls"):
            await client.create(ConfigMap(metadata=ObjectMeta(name="a", namespace="default")))
        await register(client, failurePolicy="Ignore")
        await client.create(ConfigMap(metadata=ObjectMeta(name="a", namespace="default")))


@pytest.mark.regression
async def test_what_a_webhook_refuses_without_details_is_no_failed_test_of_a_patch() -> None:
    """The server added empty details, as those of a failed test are, to whatever has the code 422."""

    class Denying:
        async def call(self, call: WebhookCall) -> WebhookReply:
            uid = call.review["request"]["uid"]
            status = {"code": 422, "reason": "Invalid", "message": "no"}
            return WebhookReply({**call.review, "response": {"uid": uid, "allowed": False, "status": status}})

    async with client_of(ApiServer(), Denying()) as client:
        await client.create(ConfigMap(metadata=ObjectMeta(name="a", namespace="default")))
        rule = {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "resources": ["configmaps"],
            "operations": ["UPDATE"],
        }
        await register(client, rules=[rule], objectSelector={})
        patch = JsonPatch([{"op": "test", "path": "/metadata/name", "value": "a"}])
        with pytest.raises(Invalid, match="denied the request: no") as caught:
            await client.patch(ConfigMap, "a", "default", patch)
        assert type(caught.value) is Invalid


class Twice:
    """A webhook that names an owner twice."""

    async def call(self, call: WebhookCall) -> WebhookReply:
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"}
        ops = [{"op": "add", "path": "/metadata/ownerReferences", "value": [owner, owner]}]
        answer = {"uid": call.review["request"]["uid"], "allowed": True, "patchType": "JSONPatch"}
        answer["patch"] = base64.b64encode(json.dumps(ops).encode()).decode()
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}
        return WebhookReply(review=review)


@pytest.mark.parametrize("verb", ["POST", "PUT", "PATCH"])
async def test_an_owner_that_a_webhook_names_twice_is_stored_once(verb: str) -> None:
    maps = "/api/v1/namespaces/default/configmaps"
    body = json.dumps({"metadata": {"name": "a", "labels": {"x": "y"}}}).encode()
    rule = {"apiGroups": [""], "apiVersions": ["*"], "resources": ["configmaps"], "operations": ["*"]}
    async with client_of(ApiServer(), Twice()) as client:
        if verb != "POST":
            await client.raw("POST", maps, b'{"metadata": {"name": "a"}}')
        await register(client, rules=[rule], objectSelector={})
        kind = "application/merge-patch+json" if verb == "PATCH" else "application/json"
        path = maps if verb == "POST" else f"{maps}/a"
        left = json.loads((await client.raw(verb, path, body, content_type=kind)).body)
    assert [each["uid"] for each in left["metadata"]["ownerReferences"]] == ["u"]


@pytest.mark.parametrize("verb", ["POST", "PUT", "PATCH", "DELETE"])
async def test_a_request_that_waits_for_a_webhook_while_its_kind_is_deleted_is_answered_as_one_that_comes_later(
    verb: str,
) -> None:
    things = "/apis/sim.example/v1/namespaces/default/things"
    definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.sim.example"
    waiting = False

    class Meanwhile:
        async def call(self, call: WebhookCall) -> WebhookReply:
            if waiting:
                await client.raw("DELETE", definition)
            return WebhookReply(problem="nobody is there")

    async with client_of(ApiServer(), Meanwhile()) as client:
        await client.apply(
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": "things.sim.example"},
                "spec": {
                    "group": "sim.example",
                    "scope": "Namespaced",
                    "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
                    "versions": [
                        {
                            "name": "v1",
                            "served": True,
                            "storage": True,
                            "schema": {"openAPIV3Schema": {"type": "object"}},
                        }
                    ],
                },
            }
        )
        body: Any = {"apiVersion": "sim.example/v1", "kind": "Thing", "metadata": {"name": "a"}}
        if verb != "POST":
            body = json.loads((await client.raw("POST", things, json.dumps(body).encode())).body)
        rule = {"apiGroups": ["sim.example"], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"]}
        await register(client, rules=[rule], objectSelector={}, failurePolicy="Ignore")
        waiting = True
        with pytest.raises(NotFound, match="the server does not serve this path"):
            await client.raw(
                verb,
                things if verb == "POST" else f"{things}/a",
                b"" if verb == "DELETE" else json.dumps(body).encode(),
                content_type="application/merge-patch+json" if verb == "PATCH" else "application/json",
            )
