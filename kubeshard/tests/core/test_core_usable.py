"""Whether others can use an object: what is stricter than readiness, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kubeshard import kinds
from kubeshard.core import Condition, ConfigMap, KubeObject, Namespace, ObjectMeta, Struct
from kubeshard.core.documents import require_declared
from kubeshard.core.readiness import is_ready
from kubeshard.core.usable import _ADDRESSES, _BUILT_IN, is_usable, usability_can_be_judged


class Loose(KubeObject, group="batch", version="v1", kind="Job"):
    spec: Mapping[str, Any] | None = None
    status: Mapping[str, Any] | None = None


class Service(KubeObject, group="", version="v1"):
    spec: Mapping[str, Any] | None = None
    status: Mapping[str, Any] | None = None


class Deployment(KubeObject, group="apps", version="v1"):
    spec: Mapping[str, Any] | None = None
    status: Mapping[str, Any] | None = None


class StatefulSet(KubeObject, group="apps", version="v1"):
    spec: Mapping[str, Any] | None = None
    status: Mapping[str, Any] | None = None


class Claim(KubeObject, group="", version="v1", kind="PersistentVolumeClaim"):
    status: Mapping[str, Any] | None = None


class Definition(
    KubeObject, group="apiextensions.k8s.io", version="v1", kind="CustomResourceDefinition", namespaced=False
):
    status: Mapping[str, Any] | None = None


class Pod(KubeObject, group="", version="v1"):
    status: Mapping[str, Any] | None = None


class App(KubeObject, group="example.com", version="v1"):
    status: Mapping[str, Any] | None = None


def conditions(*types: str) -> dict[str, Any]:
    return {"conditions": [{"type": type, "status": "True"} for type in types]}


BALANCED = {"type": "LoadBalancer", "clusterIP": "10.0.0.1"}
STARTED = {"startTime": "2026-01-01T00:00:00Z", "active": 1}
ROLLED = {
    "replicas": 1,
    "updatedReplicas": 1,
    "readyReplicas": 1,
    "availableReplicas": 1,
    "observedGeneration": 3,
}
STABLE = {"replicas": 1, "readyReplicas": 1, "currentReplicas": 1, "updatedReplicas": 1}
PROGRESSED = {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}
AVAILABLE = {**ROLLED, "conditions": [{"type": "Available", "status": "True"}, PROGRESSED]}


@pytest.mark.parametrize(
    ("kind", "spec", "status", "why_not"),
    [
        (Loose, {}, {}, "it has not started"),
        (Loose, {}, STARTED, "it is not complete"),
        (Loose, {"suspend": True}, conditions("Suspended"), "it is not complete"),
        (Loose, {}, {**STARTED, **conditions("Failed"), "failed": 1}, "1 failed pod"),
        (Loose, {}, {**STARTED, **conditions("Complete")}, ""),
        (Service, {}, {}, ""),
        (Service, BALANCED, {}, "its load balancer has no address yet"),
        (Service, BALANCED, {"loadBalancer": {"ingress": []}}, "its load balancer has no address yet"),
        (Service, BALANCED, {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}, ""),
        (Deployment, {"replicas": 1}, {}, "replicas: 0 of 1"),
        (Deployment, {"replicas": 1}, {**AVAILABLE, "observedGeneration": 2}, "generation 3"),
        (Deployment, {"replicas": 1}, AVAILABLE, ""),
        (StatefulSet, {"replicas": 1}, {"replicas": 1}, "ready: 0 of 1"),
        (StatefulSet, {"replicas": 1}, STABLE, ""),
        (Claim, None, {"phase": "Pending"}, "it is not bound: Pending"),
        (Claim, None, {"phase": "Bound"}, ""),
        (Definition, None, {}, "it is being established"),
        (Definition, None, conditions("NamesAccepted", "Established"), ""),
        (Pod, None, {"phase": "Running"}, "running, but not ready"),
        (Pod, None, {"phase": "Running", **conditions("Ready")}, ""),
        (App, None, {}, "it has no condition Ready"),
        (App, None, conditions("Synced"), "it has no condition Ready"),
        (App, None, {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NotSeen"}]}, "NotSeen"),
        (App, None, {"observedGeneration": 2, **conditions("Ready")}, "generation 3"),
        (App, None, conditions("Ready"), ""),
    ],
)
def test_others_can_use_what_the_table_says(
    kind: Any, spec: Any, status: dict[str, Any], why_not: str
) -> None:
    fields = {"status": status} if spec is None else {"spec": spec, "status": status}
    found = is_usable(kind(metadata=ObjectMeta(name="a", generation=3), **fields))
    assert bool(found) is (why_not == "")
    assert why_not in found.message


def test_what_nobody_has_reported_on_is_ready_but_not_usable() -> None:
    """This is the difference between the two."""
    new = App(metadata=ObjectMeta(name="a", generation=1))
    assert is_ready(new)
    assert not is_usable(new)


class Policy(KubeObject, group="networking.k8s.io", version="v1", kind="NetworkPolicy"):
    """A built-in kind of which nothing says whether it is ready."""


def test_kinds_without_a_state_are_usable_at_once() -> None:
    for type_ in (ConfigMap, Namespace, Policy):
        usability_can_be_judged(type_)
        assert is_usable(type_(metadata=ObjectMeta(name="a")))


def test_every_built_in_kind_can_be_judged_by_its_class() -> None:
    every = [kind for name in kinds.__all__ if is_kind(kind := getattr(kinds, name))]
    for kind in every:
        usability_can_be_judged(kind)
    assert {kind.KIND.group for kind in every} <= _BUILT_IN
    require_declared(kinds.Service, (_ADDRESSES,))


def is_kind(thing: object) -> bool:
    return isinstance(thing, type) and issubclass(thing, KubeObject)


class Bare(KubeObject, group="batch", version="v1", kind="Job"):
    """It declares none of the fields by which it can be judged."""


class Balanced(KubeObject, group="", version="v1", kind="Service"):
    spec: Mapping[str, Any] | None = None


class NoStatus(KubeObject, group="example.com", version="v1"):
    pass


class AppStatus(Struct):
    conditions: tuple[Condition, ...] = ()


class Typed(KubeObject, group="example.com", version="v1"):
    status: AppStatus | None = None


def test_a_class_that_lacks_fields_is_refused_with_their_names() -> None:
    for type_ in (Bare, NoStatus):
        with pytest.raises(TypeError, match=r"does not declare .*status.conditions"):
            usability_can_be_judged(type_)
    for type_ in (Typed, ConfigMap, Balanced, Deployment):
        usability_can_be_judged(type_)
    # Only a Service of this type needs the field, and only an object has a type.
    assert is_usable(Balanced(metadata=ObjectMeta(name="a"), spec={"clusterIP": "10.0.0.1"}))
    with pytest.raises(TypeError, match=r"does not declare status.loadBalancer.ingress"):
        is_usable(Balanced(metadata=ObjectMeta(name="a"), spec=BALANCED))
