"""Readiness of objects, kind by kind: the rules of kstatus as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kubeshard.core import ConfigMap, KubeObject, ObjectMeta, Struct, metadata_only
from kubeshard.core.conditions import Condition
from kubeshard.core.readiness import is_ready

NOW = "2026-01-01T00:00:00Z"


def cond(type: str, status: str = "True", reason: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": type, "status": status, "reason": reason, "message": "", **more}


DEPLOYED = {
    "replicas": 2,
    "updatedReplicas": 2,
    "readyReplicas": 2,
    "availableReplicas": 2,
    "observedGeneration": 3,
    "conditions": [cond("Available"), cond("Progressing", reason="NewReplicaSetAvailable")],
}
SET = {
    "replicas": 2,
    "readyReplicas": 2,
    "currentReplicas": 2,
    "updatedReplicas": 2,
    "currentRevision": "a",
    "updateRevision": "a",
}
DAEMONS = {
    "observedGeneration": 3,
    "desiredNumberScheduled": 2,
    "currentNumberScheduled": 2,
    "updatedNumberScheduled": 2,
    "numberAvailable": 2,
    "numberReady": 2,
}
REPLICAS = {"replicas": 2, "fullyLabeledReplicas": 2, "availableReplicas": 2, "readyReplicas": 2}
TWO = {"replicas": 2}
LIMITED = {"replicas": 2, "progressDeadlineSeconds": 600}
CRASHING = {"name": "main", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
DEFINITION = "apiextensions.k8s.io/v1 CustomResourceDefinition"

TABLE: list[tuple[str, dict[str, Any], dict[str, Any], str, str]] = [
    ("apps/v1 Deployment", TWO, DEPLOYED, "Current", "2 replicas"),
    ("apps/v1 Deployment", {"replicas": 0}, {}, "InProgress", "not available"),
    ("apps/v1 Deployment", {}, {}, "InProgress", "replicas: 0 of 1"),
    ("apps/v1 Deployment", TWO, DEPLOYED | {"observedGeneration": 2}, "InProgress", "generation 3"),
    ("apps/v1 Deployment", TWO, DEPLOYED | {"updatedReplicas": 1}, "InProgress", "updated: 1 of 2"),
    ("apps/v1 Deployment", TWO, DEPLOYED | {"replicas": 3}, "InProgress", "1 pods have not terminated yet"),
    ("apps/v1 Deployment", TWO, DEPLOYED | {"availableReplicas": 1}, "InProgress", "available: 1 of 2"),
    ("apps/v1 Deployment", TWO, DEPLOYED | {"readyReplicas": 1}, "InProgress", "ready: 1 of 2"),
    ("apps/v1 Deployment", LIMITED, DEPLOYED, "Current", ""),
    ("apps/v1 Deployment", LIMITED, DEPLOYED | {"conditions": [cond("Available")]}, "InProgress", "ReplicaSet"),
    ("apps/v1 Deployment", TWO, DEPLOYED | {"conditions": []}, "InProgress", "not available"),
    (
        "apps/v1 Deployment",
        LIMITED,
        DEPLOYED | {"conditions": [cond("Progressing", "False", "ProgressDeadlineExceeded")]},
        "Failed",
        "deadline",
    ),
    ("apps/v1 StatefulSet", TWO, SET, "Current", "2 replicas"),
    ("apps/v1 StatefulSet", TWO, SET | {"replicas": 1}, "InProgress", "replicas: 1 of 2"),
    ("apps/v1 StatefulSet", TWO, SET | {"readyReplicas": 1}, "InProgress", "ready: 1 of 2"),
    ("apps/v1 StatefulSet", TWO, SET | {"replicas": 3}, "InProgress", "have not terminated yet"),
    ("apps/v1 StatefulSet", TWO, SET | {"currentReplicas": 1}, "InProgress", "current: 1 of 2"),
    ("apps/v1 StatefulSet", TWO, SET | {"updateRevision": "b"}, "InProgress", "revision"),
    ("apps/v1 StatefulSet", TWO | {"updateStrategy": {"type": "OnDelete"}}, {}, "Current", "OnDelete"),
    (
        "apps/v1 StatefulSet",
        TWO | {"updateStrategy": {"rollingUpdate": {"partition": 1}}},
        SET | {"updatedReplicas": 1, "updateRevision": "b"},
        "Current",
        "partition",
    ),
    (
        "apps/v1 StatefulSet",
        TWO | {"updateStrategy": {"rollingUpdate": {"partition": 1}}},
        SET | {"updatedReplicas": 0},
        "InProgress",
        "updated: 0 of 1",
    ),
    ("apps/v1 ReplicaSet", TWO, REPLICAS, "Current", "2 replicas"),
    ("apps/v1 ReplicaSet", TWO, REPLICAS | {"fullyLabeledReplicas": 1}, "InProgress", "labelled: 1 of 2"),
    ("apps/v1 ReplicaSet", TWO, REPLICAS | {"conditions": [cond("ReplicaFailure")]}, "InProgress", "pods"),
    ("apps/v1 DaemonSet", {}, DAEMONS, "Current", "2 pods"),
    ("apps/v1 DaemonSet", {}, {}, "InProgress", "no controller"),
    ("apps/v1 DaemonSet", {}, {"observedGeneration": 3}, "InProgress", "number of nodes"),
    ("apps/v1 DaemonSet", {}, DAEMONS | {"desiredNumberScheduled": 0}, "Current", "0 pods"),
    ("apps/v1 DaemonSet", {}, DAEMONS | {"currentNumberScheduled": 1}, "InProgress", "current: 1 of 2"),
    ("apps/v1 DaemonSet", {}, DAEMONS | {"updatedNumberScheduled": 1}, "InProgress", "updated: 1 of 2"),
    ("apps/v1 DaemonSet", {}, DAEMONS | {"numberAvailable": 1}, "InProgress", "available: 1 of 2"),
    ("apps/v1 DaemonSet", {}, DAEMONS | {"numberReady": 1}, "InProgress", "ready: 1 of 2"),
    ("batch/v1 Job", {}, {}, "InProgress", "not started"),
    ("batch/v1 Job", {}, {"startTime": NOW, "active": 1}, "Current", "1 active"),
    ("batch/v1 Job", {}, {"startTime": NOW, "conditions": [cond("Complete")]}, "Current", "complete"),
    ("batch/v1 Job", {}, {"failed": 4, "conditions": [cond("Failed")]}, "Failed", "4 failed pods"),
    ("batch/v1 Job", {"suspend": True}, {"conditions": [cond("Suspended")]}, "Current", "suspended"),
    ("batch/v1 Job", {"suspend": False}, {"conditions": [cond("Suspended")]}, "InProgress", "not started"),
    ("v1 Pod", {}, {}, "InProgress", "no kubelet"),
    ("v1 Pod", {}, {"phase": "Pending"}, "InProgress", "pending"),
    (
        "v1 Pod",
        {},
        {"phase": "Pending", "conditions": [cond("PodScheduled", "False", message="0/3 nodes")]},
        "InProgress",
        "0/3 nodes",
    ),
    ("v1 Pod", {}, {"phase": "Running", "conditions": [cond("Ready")]}, "Current", "ready"),
    ("v1 Pod", {}, {"phase": "Running", "conditions": [cond("Ready", "False")]}, "InProgress", "not ready"),
    ("v1 Pod", {}, {"phase": "Running", "containerStatuses": [CRASHING]}, "Failed", "main"),
    ("v1 Pod", {}, {"phase": "Succeeded"}, "Current", "succeeded"),
    ("v1 Pod", {}, {"phase": "Failed", "message": "evicted"}, "Failed", "evicted"),
    ("v1 PersistentVolumeClaim", {}, {"phase": "Bound"}, "Current", "bound"),
    ("v1 PersistentVolumeClaim", {}, {"phase": "Pending"}, "InProgress", "Pending"),
    ("v1 Service", {}, {}, "Current", ""),
    ("v1 Service", {"type": "LoadBalancer"}, {}, "InProgress", "cluster IP"),
    ("v1 Service", {"type": "LoadBalancer", "clusterIP": "10.0.0.1"}, {}, "Current", ""),
    (DEFINITION, {}, {}, "InProgress", "being established"),
    (DEFINITION, {}, {"conditions": [cond("Established")]}, "Current", "established"),
    (DEFINITION, {}, {"conditions": [cond("Established", "False", "Installing")]}, "InProgress", ""),
    (DEFINITION, {}, {"conditions": [cond("Established", "False", "NotAccepted")]}, "Failed", ""),
    (DEFINITION, {}, {"conditions": [cond("NamesAccepted", "False", message="taken")]}, "Failed", "taken"),
    ("v1 ConfigMap", {}, {}, "Current", ""),
    ("example.com/v1 App", {}, {}, "Current", "nothing says"),
    ("example.com/v1 App", {}, {"conditions": [cond("Ready")]}, "Current", "R"),
    ("example.com/v1 App", {}, {"conditions": [cond("Ready", "False", "Down", message="a")]}, "InProgress", "Down: a"),
    ("example.com/v1 App", {}, {"conditions": [cond("Ready", "Unknown")]}, "InProgress", ""),
    ("example.com/v1 App", {}, {"conditions": [cond("Ready", observedGeneration=2)]}, "InProgress", "generation 2"),
    ("example.com/v1 App", {}, {"conditions": [cond("Ready"), cond("Reconciling")]}, "InProgress", "R"),
    ("example.com/v1 App", {}, {"conditions": [cond("Ready"), cond("Stalled")]}, "Failed", "R"),
    ("example.com/v1 App", {}, {"conditions": [cond("Stalled", "False")]}, "Current", ""),
    ("example.com/v1 App", {}, {"observedGeneration": 2, "conditions": [cond("Ready")]}, "InProgress", "3"),
    ("example.com/v1 App", {}, {"observedGeneration": 3, "conditions": [cond("Ready")]}, "Current", ""),
    ("example.com/v1 App", {}, {"observedGeneration": "2", "conditions": [cond("Ready")]}, "InProgress", "3"),
    ("example.com/v1 App", {}, {"observedGeneration": "3", "conditions": [cond("Ready")]}, "Current", ""),
    ("example.com/v1 App", {}, {"observedGeneration": "f00", "conditions": [cond("Ready")]}, "Current", ""),
]  # fmt: skip


def manifest(what: str, spec: Mapping[str, Any], status: Mapping[str, Any], **meta: Any) -> dict[str, Any]:
    version, kind = what.split()
    metadata = {"name": "a", "generation": 3, **meta}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec, "status": status}


@pytest.mark.parametrize(("what", "spec", "status", "state", "message"), TABLE)
def test_the_state_follows_the_rules_of_the_kind(
    what: str, spec: dict[str, Any], status: dict[str, Any], state: str, message: str
) -> None:
    found = is_ready(manifest(what, spec, status))
    assert found.state == state
    assert message in found.message
    assert bool(found) == (state == "Current")


@pytest.mark.parametrize("what", sorted({row[0] for row in TABLE}))
def test_what_is_being_deleted_is_terminating_whatever_else_it_says(what: str) -> None:
    done = {"conditions": [cond("Ready"), cond("Available")], "phase": "Bound"}
    assert is_ready(manifest(what, {}, done, deletionTimestamp=NOW)).state == "Terminating"


def test_no_object_is_not_found() -> None:
    assert is_ready(None).state == "NotFound"
    assert not is_ready(None)


class Loose(KubeObject, group="apps", version="v1", kind="Deployment"):
    spec: Mapping[str, Any] | None = None
    status: Mapping[str, Any] | None = None


class Counted(Struct):
    replicas: int = 0
    ready_replicas: int = 0


class Partial(KubeObject, group="apps", version="v1", kind="Deployment"):
    status: Counted | None = None


class AppStatus(Struct):
    conditions: tuple[Condition, ...] = ()


class App(KubeObject, group="example.com", version="v1"):
    status: AppStatus | None = None


def test_a_class_that_has_the_fields_is_judged_as_its_manifest_is() -> None:
    meta = ObjectMeta(name="a", generation=3)
    assert is_ready(Loose(metadata=meta, spec=TWO, status=DEPLOYED)).state == "Current"
    assert is_ready(Loose(metadata=meta)).state == "InProgress"
    ready = Condition(type="Ready", status="True", observed_generation=3)
    assert is_ready(App(metadata=meta, status=AppStatus(conditions=(ready,))))
    assert is_ready(ConfigMap(metadata=meta))


def test_a_class_that_lacks_fields_is_refused_with_their_names() -> None:
    with pytest.raises(
        TypeError, match=r"Partial does not declare spec.replicas, .*status.availableReplicas"
    ):
        is_ready(Partial(status=Counted(replicas=1)))
    with pytest.raises(TypeError, match=r"does not declare status.conditions.type"):
        is_ready(metadata_only(App).type(metadata=ObjectMeta(name="a")))
