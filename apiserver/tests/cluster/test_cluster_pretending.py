"""What the simulated controllers do that real ones do not, or that depends on the clock: on virtual time."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from cluster_api import condition, config_map, owned_by, template, workload
from test_cluster_gc import GADGET, GADGETS

from kubeshard.core.errors import NotFound
from kubeshard.core.patches import MergePatch
from kubeshard.runtime.transport import HttpRequest
from kubeshard_apiserver import ApiServer, InMemoryTransport
from kubeshard_apiserver.controllers import Controllers
from kubeshard_apiserver.controllers.controller import Agenda
from kubeshard_apiserver.model import Target
from kubeshard_apiserver.steps import WebhookCall, WebhookReply
from kubeshard_lab.virtual_time import SleepsForever, run_virtual, settle, virtual_time
from kubeshard_lab.virtual_world import virtual_world


class CountingRng:
    """Generates the same names in every run."""

    def __init__(self) -> None:
        self._number = 0

    def uniform(self, low: float, high: float) -> float:
        return low

    def token(self) -> str:
        self._number += 1
        return str(UUID(int=self._number * 7_919_000_000_007, version=4))


class Cluster:
    def __init__(self) -> None:
        self.server = ApiServer(world=replace(virtual_world(), rng=CountingRng()))

    def at(self, path: str) -> Target:
        """Parses `v1/pods/a` (in the namespace `default`) or `v1/nodes//a` (cluster-scoped)."""
        group_version, _, rest = path.rpartition("/") if path.count("/") == 1 else _split(path)
        group, _, version = group_version.rpartition("/")
        plural, _, name = rest.partition("/")
        resource = self.server.registry.find(group, version, plural)
        assert resource is not None, path
        return Target(resource, "default" if resource.kind.namespaced else "", name.lstrip("/"))

    def create(self, path: str, body: Any) -> Any:
        return self.server.create(self.at(path), body).object

    def get(self, path: str) -> Any:
        try:
            return self.server.get(self.at(path))
        except NotFound:
            return None

    def items(self, path: str) -> list[Any]:
        return list(self.server.list(self.at(path)).items)

    def annotate(self, path: str, **annotations: str | None) -> None:
        named = {f"kubeshard.dev/{name}": value for name, value in annotations.items()}
        self.server.patch(self.at(path), MergePatch({"metadata": {"annotations": named}}))


def _split(path: str) -> tuple[str, str, str]:
    parts = path.split("/")
    of = 1 if parts[0] == "v1" else 2
    return "/".join(parts[:of]), "/", "/".join(parts[of:])


def pod(pretend: str = "", **spec: Any) -> dict[str, Any]:
    annotations = {"kubeshard.dev/pretend": pretend} if pretend else {}
    return {"metadata": {"name": "a", "annotations": annotations}, "spec": {**template()["spec"], **spec}}


def ready(found: Any) -> str:
    return str(condition(found, "Ready")["status"])


@virtual_time
async def test_a_pod_is_ready_after_the_delay_and_not_before() -> None:
    cluster = Cluster()
    async with Controllers(cluster.server, ready_after=5):
        cluster.create("v1/pods", pod())
        await asyncio.sleep(4.9)
        found = cluster.get("v1/pods/a")
        assert (found["status"]["phase"], ready(found)) == ("Running", "False")
        assert condition(found, "Ready")["reason"] == "ContainersNotReady"
        await asyncio.sleep(0.2)
        assert ready(cluster.get("v1/pods/a")) == "True"


@virtual_time
async def test_a_pod_that_runs_has_an_empty_log_as_text_and_nobody_who_executes_anything() -> None:
    cluster = Cluster()
    async with Controllers(cluster.server):
        cluster.create("v1/pods", pod())
        await asyncio.sleep(5)
        transport, path = InMemoryTransport(cluster.server), "/api/v1/namespaces/default/pods/a"
        log = await transport.request(HttpRequest("GET", f"{path}/log", {}))
        assert (log.status, log.headers["content-type"], log.body) == (200, "text/plain", b"")
        refused = await transport.request(HttpRequest("GET", f"{path}/exec?command=ls", {}))
        assert refused.status == 500
        assert b"error dialing backend: this server's nodes are simulated" in refused.body


@pytest.mark.regression
@virtual_time
async def test_a_stopped_pod_of_a_stateful_set_counts_until_it_is_gone() -> None:
    cluster = Cluster()
    async with Controllers(cluster.server):
        cluster.create("apps/v1/statefulsets", workload("db", replicas=1, serviceName="db"))
        await settle()
        held = MergePatch({"metadata": {"finalizers": ["a.b/held"]}})
        cluster.server.patch(cluster.at("v1/pods/db-0"), held)
        cluster.server.patch(cluster.at("apps/v1/statefulsets/db"), MergePatch({"spec": {"replicas": 0}}))
        await settle()
        assert cluster.get("v1/pods/db-0")["status"]["phase"] == "Succeeded"
        assert cluster.get("apps/v1/statefulsets/db")["status"]["replicas"] == 1
        released = MergePatch({"metadata": {"finalizers": None}})
        cluster.server.patch(cluster.at("v1/pods/db-0"), released)
        await settle()
        assert cluster.get("apps/v1/statefulsets/db")["status"]["replicas"] == 0


@virtual_time
async def test_a_pod_that_was_ready_stays_so_when_controllers_begin_again() -> None:
    cluster = Cluster()
    async with Controllers(cluster.server):
        cluster.create("v1/pods", pod())
        await settle()
    before = cluster.get("v1/pods/a")
    async with Controllers(cluster.server, ready_after=5):
        await settle()
        assert cluster.get("v1/pods/a") == before
        cluster.create("v1/pods", {**pod(), "metadata": {"name": "b"}})
        await asyncio.sleep(6)
        assert cluster.get("v1/pods/b")["status"]["podIP"] != before["status"]["podIP"]


@pytest.mark.parametrize(
    ("pretend", "phase", "state"),
    [
        ("never-ready", "Running", "running"),
        ("crash", "Running", "CrashLoopBackOff"),
        ("no-image", "Pending", "ImagePullBackOff"),
        ("fail", "Failed", "Error"),
        ("succeed", "Succeeded", "Completed"),
    ],
)
def test_an_annotation_says_what_becomes_of_a_pod(pretend: str, phase: str, state: str) -> None:
    async def run() -> Any:
        cluster = Cluster()
        async with Controllers(cluster.server):
            cluster.create("v1/pods", pod(pretend))
            await asyncio.sleep(60)
            return cluster.get("v1/pods/a")

    found = run_virtual(run())
    assert (found["status"]["phase"], ready(found)) == (phase, "False")
    ((name, detail),) = found["status"]["containerStatuses"][0]["state"].items()
    assert detail.get("reason", name) == state


@pytest.mark.parametrize(
    ("pretend", "phase"), [("", "Succeeded"), ("never-ready", "Succeeded"), ("no-image", "Failed")]
)
def test_a_deleted_pod_has_ended_before_it_is_gone(pretend: str, phase: str) -> None:
    async def run() -> Any:
        cluster = Cluster()
        async with Controllers(cluster.server):
            created = pod(pretend)
            created["metadata"]["finalizers"] = ["example.com/looks-at-it"]
            cluster.create("v1/pods", created)
            await settle()
            cluster.server.delete(cluster.at("v1/pods/a"))
            await settle()
            return cluster.get("v1/pods/a")

    found = run_virtual(run())
    assert (found["status"]["phase"], ready(found)) == (phase, "False")
    assert "terminated" in found["status"]["containerStatuses"][0]["state"]


@virtual_time
async def test_a_pod_recovers_when_the_annotation_goes_and_breaks_when_it_comes() -> None:
    cluster = Cluster()
    async with Controllers(cluster.server):
        cluster.create("v1/pods", pod("crash"))
        await settle()
        assert ready(cluster.get("v1/pods/a")) == "False"
        cluster.annotate("v1/pods/a", pretend=None)
        await settle()
        found = cluster.get("v1/pods/a")
        assert ready(found) == "True"
        assert found["status"]["containerStatuses"][0]["restartCount"] == 1
        cluster.annotate("v1/pods/a", pretend="never-ready")
        await settle()
        assert ready(cluster.get("v1/pods/a")) == "False"


@virtual_time
async def test_a_rollout_that_stands_still_says_so_after_its_deadline() -> None:
    cluster = Cluster()
    async with Controllers(cluster.server):
        body = workload("web", replicas=2, progressDeadlineSeconds=30)
        cluster.create("apps/v1/deployments", body)
        await settle()
        broken = {"annotations": {"kubeshard.dev/pretend": "never-ready"}}
        patch = MergePatch({"spec": {"template": {"metadata": broken}}})
        cluster.server.patch(cluster.at("apps/v1/deployments/web"), patch)
        await asyncio.sleep(29)
        assert (
            condition(cluster.get("apps/v1/deployments/web"), "Progressing")["reason"] == "ReplicaSetUpdated"
        )
        await asyncio.sleep(4)
        found = cluster.get("apps/v1/deployments/web")
        progressing = condition(found, "Progressing")
        assert (progressing["status"], progressing["reason"]) == ("False", "ProgressDeadlineExceeded")
        # The old pods still serve: with two replicas, none may be unavailable.
        assert found["status"]["availableReplicas"] == 2
        assert condition(found, "Available")["status"] == "True"


@virtual_time
async def test_pods_count_as_available_after_min_ready_seconds() -> None:
    cluster = Cluster()
    async with Controllers(cluster.server):
        cluster.create("apps/v1/deployments", workload("web", replicas=1, minReadySeconds=10))
        await asyncio.sleep(9)
        status = cluster.get("apps/v1/deployments/web")["status"]
        assert (status["readyReplicas"], status.get("availableReplicas")) == (1, None)
        await asyncio.sleep(2)
        assert cluster.get("apps/v1/deployments/web")["status"]["availableReplicas"] == 1


@virtual_time
async def test_a_job_tries_again_later_and_later_and_then_gives_up() -> None:
    cluster = Cluster()
    async with Controllers(cluster.server):
        body = {
            "metadata": {"name": "a"},
            "spec": {"backoffLimit": 2, "template": pod("fail", restartPolicy="Never")},
        }
        body["spec"]["template"]["metadata"].pop("name")
        cluster.create("batch/v1/jobs", body)
        attempts = []
        for _ in range(60):
            await asyncio.sleep(1)
            attempts.append(len(cluster.items("v1/pods")))
        assert (attempts[0], attempts[5], attempts[11], attempts[28], attempts[59]) == (1, 1, 2, 2, 3)
        status = cluster.get("batch/v1/jobs/a")["status"]
        assert (status["failed"], status.get("succeeded"), status.get("active")) == (3, None, None)
        said = condition(cluster.get("batch/v1/jobs/a"), "Failed")
        assert (said["reason"], said["message"]) == (
            "BackoffLimitExceeded",
            "Job has reached the specified backoff limit",
        )


@virtual_time
async def test_a_job_fails_when_its_time_is_over() -> None:
    cluster = Cluster()
    async with Controllers(cluster.server):
        template = pod("run", restartPolicy="Never")
        template["metadata"].pop("name")
        body = {"metadata": {"name": "a"}, "spec": {"activeDeadlineSeconds": 30, "template": template}}
        cluster.create("batch/v1/jobs", body)
        await asyncio.sleep(29)
        assert cluster.get("batch/v1/jobs/a")["status"]["active"] == 1
        await asyncio.sleep(2)
        assert condition(cluster.get("batch/v1/jobs/a"), "Failed")["reason"] == "DeadlineExceeded"
        assert cluster.items("v1/pods") == []


@virtual_time
async def test_claims_are_bound_and_their_volumes_go_with_them() -> None:
    cluster = Cluster()
    async with Controllers(cluster.server):
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        claims = [{"metadata": {"name": "data"}, "spec": spec}]
        body = workload("db", replicas=2, serviceName="db", volumeClaimTemplates=claims)
        cluster.create("apps/v1/statefulsets", body)
        await asyncio.sleep(1)
        assert cluster.get("apps/v1/statefulsets/db")["status"]["readyReplicas"] == 2
        for claim in cluster.items("v1/persistentvolumeclaims"):
            assert claim["status"] == {
                "phase": "Bound",
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "1Gi"},
            }
        assert len(cluster.items("v1/persistentvolumes")) == 2
        cluster.server.delete(cluster.at("v1/persistentvolumeclaims/data-db-1"))
        await settle()
        assert cluster.get("v1/persistentvolumeclaims/data-db-1"), "a pod uses it"
        patch = MergePatch({"spec": {"replicas": 1}})
        cluster.server.patch(cluster.at("apps/v1/statefulsets/db"), patch)
        await asyncio.sleep(1)
        assert [claim["metadata"]["name"] for claim in cluster.items("v1/persistentvolumeclaims")] == [
            "data-db-0"
        ]
        assert len(cluster.items("v1/persistentvolumes")) == 1


@virtual_time
async def test_a_cluster_without_a_node_gets_a_pretended_one() -> None:
    cluster = Cluster()
    async with Controllers(cluster.server):
        await settle()
        (node,) = cluster.items("v1/nodes")
        assert node["metadata"]["name"] == "pretended"
        assert condition(node, "Ready")["status"] == "True"
        assert node["status"]["nodeInfo"]["kubeletVersion"] == "v1.37.2"


@virtual_time
async def test_daemon_sets_follow_nodes_and_pods_spread_over_them() -> None:
    cluster = Cluster()
    for name in ("one", "two"):
        cluster.create("v1/nodes", {"metadata": {"name": name}})
    async with Controllers(cluster.server):
        cluster.create("apps/v1/daemonsets", workload("ds"))
        await settle()
        assert sorted(each["spec"]["nodeName"] for each in cluster.items("v1/pods")) == ["one", "two"]
        cluster.create("v1/nodes", {"metadata": {"name": "three"}})
        await settle()
        assert cluster.get("apps/v1/daemonsets/ds")["status"]["numberAvailable"] == 3
        assert condition(cluster.get("v1/nodes/three"), "Ready")["status"] == "True"
        cluster.create("apps/v1/replicasets", workload("rs", replicas=6))
        await settle()
        pods = [each for each in cluster.items("v1/pods") if each["metadata"]["name"].startswith("rs-")]
        assert sorted(each["spec"]["nodeName"] for each in pods) == ["one"] * 2 + ["three"] * 2 + ["two"] * 2


class Webhook:
    """Rejects pods until `allows` is set, and records the users that sent them."""

    def __init__(self) -> None:
        self.allows = False
        self.users: list[str] = []

    async def call(self, call: WebhookCall) -> WebhookReply:
        request = call.review["request"]
        self.users.append(request["userInfo"]["username"])
        response = {"uid": request["uid"], "allowed": self.allows, "status": {"message": "not now"}}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
        return WebhookReply(review)


def webhook_configuration(cluster: Cluster, resource: str) -> None:
    rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": [resource]}
    one = {
        "name": "pods.kubeshard.test",
        "clientConfig": {"url": "https://webhook.kubeshard.test/pods"},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    path = "admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    target = cluster.server.registry.find(*path.split("/"))
    assert target is not None
    cluster.server.create(Target(target), {"metadata": {"name": "pods"}, "webhooks": [one]})


@virtual_time
async def test_admission_sees_the_pods_of_workloads_and_a_refusal_is_tried_again() -> None:
    cluster, webhook = Cluster(), Webhook()
    webhook_configuration(cluster, "pods")
    async with Controllers(cluster.server, caller=webhook):
        cluster.create("apps/v1/replicasets", workload("rs", replicas=1))
        await asyncio.sleep(1)
        failure = condition(cluster.get("apps/v1/replicasets/rs"), "ReplicaFailure")
        assert (failure["status"], failure["reason"]) == ("True", "FailedCreate")
        assert failure["message"].endswith("denied the request: not now")
        webhook.allows = True
        await asyncio.sleep(30)
        status = cluster.get("apps/v1/replicasets/rs")["status"]
        assert status["readyReplicas"] == 1
        assert "conditions" not in status
    assert set(webhook.users) == {"system:serviceaccount:kube-system:replicaset-controller"}


@virtual_time
async def test_admission_sees_the_bindings_of_the_scheduler_and_a_refusal_is_tried_again() -> None:
    cluster, webhook = Cluster(), Webhook()
    webhook_configuration(cluster, "pods/binding")
    async with Controllers(cluster.server, caller=webhook):
        cluster.create("v1/pods", pod())
        await asyncio.sleep(1)
        assert "nodeName" not in cluster.get("v1/pods/a")["spec"]
        webhook.allows = True
        await asyncio.sleep(30)
        assert cluster.get("v1/pods/a")["spec"]["nodeName"] == "pretended"
    assert set(webhook.users) == {"system:kube-scheduler"}


@virtual_time
async def test_events_expire_an_hour_after_they_were_written_last() -> None:
    cluster = Cluster()
    event = {
        "metadata": {"name": "a"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "a"},
        "reason": "Test",
        "type": "Normal",
    }
    async with Controllers(cluster.server):
        cluster.create("v1/events", event)
        cluster.create("v1/events", {**event, "metadata": {"name": "b"}})
        await asyncio.sleep(1800)
        cluster.server.patch(cluster.at("v1/events/b"), MergePatch({"count": 2}))
        await asyncio.sleep(1799)
        assert cluster.get("v1/events/a")
        await asyncio.sleep(2)
        assert cluster.get("v1/events/a") is None
        assert cluster.get("v1/events/b")
        await asyncio.sleep(1800)
        assert cluster.get("v1/events/b") is None


def test_controllers_with_nothing_to_do_set_no_timer() -> None:
    async def idle() -> None:
        cluster = Cluster()
        async with Controllers(cluster.server, ready_after=5):
            cluster.create("apps/v1/deployments", workload("web", replicas=2))
            await asyncio.sleep(10)
            await asyncio.Event().wait()

    with pytest.raises(SleepsForever):
        run_virtual(idle())


def test_the_same_calls_have_the_same_history() -> None:
    async def run() -> Any:
        cluster = Cluster()
        async with Controllers(cluster.server, ready_after=1):
            cluster.create("apps/v1/deployments", workload("web", replicas=5))
            cluster.create("apps/v1/statefulsets", workload("db", replicas=3, serviceName="db"))
            await asyncio.sleep(2)
            patch = MergePatch({"spec": {"template": {"metadata": {"labels": {"new": "one"}}}}})
            cluster.server.patch(cluster.at("apps/v1/deployments/web"), patch)
            await asyncio.sleep(20)
            cluster.server.delete(cluster.at("apps/v1/statefulsets/db"))
            await settle()
        store = cluster.server.store
        return store.revision, [dict(store.objects(each.group_resource)) for each in cluster.server.registry]

    assert run_virtual(run()) == run_virtual(run())


@virtual_time
async def test_each_part_can_be_left_out() -> None:
    cluster = Cluster()
    async with Controllers(cluster.server, garbage_collection=False, namespaces=False, pods=False):
        cluster.create("v1/pods", pod())
        await asyncio.sleep(10)
        assert cluster.get("v1/pods/a")["status"]["phase"] == "Pending"
        assert cluster.items("v1/nodes") == []
        assert cluster.items("v1/serviceaccounts") == []


def hook_on_replica_sets() -> dict[str, Any]:
    return {
        "name": "slow.test.dev",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [
            {
                "operations": ["CREATE"],
                "apiGroups": ["apps"],
                "apiVersions": ["v1"],
                "resources": ["replicasets"],
            }
        ],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Ignore",
    }


class Slow:
    """Webhooks that do not answer, after a second."""

    async def call(self, call: WebhookCall) -> WebhookReply:
        await asyncio.sleep(1)
        return WebhookReply(problem="late")


@virtual_time
async def test_a_change_made_while_a_controller_waits_for_a_webhook_is_not_taken_for_its_own() -> None:
    cluster = Cluster()
    cluster.create(
        "admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
        {"metadata": {"name": "slow"}, "webhooks": [hook_on_replica_sets()]},
    )
    async with Controllers(cluster.server, caller=Slow()):
        cluster.create("apps/v1/deployments", workload("web", replicas=1))
        await asyncio.sleep(0.5)
        assert cluster.items("apps/v1/replicasets") == []
        cluster.server.patch(cluster.at("apps/v1/deployments/web"), MergePatch({"spec": {"replicas": 2}}))
        await asyncio.sleep(5)
        assert cluster.get("apps/v1/deployments/web")["status"]["readyReplicas"] == 2


class Stripping:
    """A webhook that takes the owners away from what is created."""

    async def call(self, call: WebhookCall) -> WebhookReply:
        ops = [{"op": "remove", "path": "/metadata/ownerReferences"}]
        patch = b64encode(json.dumps(ops).encode()).decode()
        response = {
            "uid": call.review["request"]["uid"],
            "allowed": True,
            "patchType": "JSONPatch",
            "patch": patch,
        }
        return WebhookReply(
            {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
        )


@virtual_time
async def test_a_replica_set_without_pods_that_a_webhook_made_an_orphan_is_adopted_at_once() -> None:
    cluster = Cluster()
    cluster.create(
        "admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
        {"metadata": {"name": "stripping"}, "webhooks": [hook_on_replica_sets()]},
    )
    async with Controllers(cluster.server, caller=Stripping()):
        cluster.create("apps/v1/deployments", workload("web", replicas=0))
        await asyncio.sleep(1)
        (found,) = cluster.items("apps/v1/replicasets")
        assert [owner["name"] for owner in found["metadata"]["ownerReferences"]] == ["web"]


@virtual_time
async def test_a_removed_owner_of_an_unknown_kind_is_told_by_its_name_too() -> None:
    cluster = Cluster()
    cluster.create("apiextensions.k8s.io/v1/customresourcedefinitions", GADGETS)
    definition = f"apiextensions.k8s.io/v1/customresourcedefinitions/{GADGETS['metadata']['name']}"
    async with Controllers(cluster.server):
        await asyncio.sleep(1)
        owner = {**GADGET, "metadata": {"name": "owner"}}
        reference = owned_by(cluster.create("cluster.kubeshard.test/v1/gadgets", owner))
        cluster.create("v1/configmaps", config_map("dependent", reference))
        await asyncio.sleep(1)
        cluster.server.delete(cluster.at(definition))
        cluster.create("v1/configmaps", config_map("misnamed", {**reference, "name": "another"}))
        await asyncio.sleep(10)
        assert cluster.get("v1/configmaps/dependent") is None
        assert cluster.get("v1/configmaps/misnamed")


def test_an_agenda_gives_keys_once_and_deadlines_in_order() -> None:
    agenda: Agenda[str] = Agenda()
    for key in ("a", "b", "a"):
        agenda.add(key)
    agenda.set_deadline("late", 9)
    agenda.set_deadline("soon", 5)
    agenda.set_deadline("never", 1)
    agenda.set_deadline("never", None)
    assert [agenda.take(0) for _ in range(3)] == ["a", "b", None]
    assert agenda.next_deadline() == 5
    assert [agenda.take(7), agenda.take(7), agenda.next_deadline()] == ["soon", None, 9]


def test_an_agenda_keeps_the_earlier_deadline() -> None:
    agenda: Agenda[str] = Agenda()
    agenda.set_deadline("a", 5)
    agenda.set_deadline("a", 9)
    assert agenda.take(5) == "a"
    assert agenda.next_deadline() is None
