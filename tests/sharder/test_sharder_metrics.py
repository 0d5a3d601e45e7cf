"""The metrics of protocol 7, by name, type and labels."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kubeshard.core.builtin import Lease
from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import ObjectMeta
from kubeshard.sharder.admission import ShardAdmission
from kubeshard.sharder.metrics import SharderMetrics, StateCollector
from kubeshard.sharding import RING_LABEL, STATE_LABEL, ControllerRing
from kubeshard.sharding.api import ControllerRingSpec, ControllerRingStatus, RingResource
from kubeshard.webhook.review import decode_review

OBJECTS = ["controllerring", "group", "resource"]
WANTED = {
    "assignments_total": ("counter", OBJECTS),
    "movements_total": ("counter", OBJECTS),
    "drains_total": ("counter", OBJECTS),
    "ring_calculations_total": ("counter", ["controllerring"]),
    "controllerring_metadata_generation": ("gauge", ["controllerring", "uid"]),
    "controllerring_observed_generation": ("gauge", ["controllerring", "uid"]),
    "controllerring_status_shards": ("gauge", ["controllerring", "uid"]),
    "controllerring_status_available_shards": ("gauge", ["controllerring", "uid"]),
    "shard_info": ("gauge", ["controllerring", "namespace", "shard", "uid"]),
    "shard_state": ("gauge", ["controllerring", "namespace", "shard", "state"]),
}

REVIEW = (
    b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"CREATE",'
    b'"resource":{"group":"","version":"v1","resource":"secrets"},"namespace":"default",'
    b'"object":{"apiVersion":"v1","kind":"Secret","metadata":{"name":"foo"}}}}'
)


@pytest.fixture
def samples() -> dict[str, list[tuple[str, dict[str, str], float]]]:
    """By metric name without prefix: type, labels and value of each sample, of a process that did everything
    once.
    """
    registry = CollectorRegistry()
    secrets = GroupResource("", "secrets")
    metrics = SharderMetrics(registry)
    metrics.moved("ring", secrets)
    metrics.drained("ring", secrets)
    metrics.calculated("ring")
    ring = ControllerRing(
        metadata=ObjectMeta(name="ring", uid="ring-uid", generation=3),
        spec=ControllerRingSpec(resources=(RingResource(group="", resource="secrets"),)),
        status=ControllerRingStatus(observed_generation=2, shards=5, available_shards=4),
    )
    leases = [_lease("a", "ready"), _lease("b", "nonsense"), _lease("c", None)]
    cache: Any = SimpleNamespace(list=lambda kind, **_: [ring] if kind is ControllerRing else leases)
    registry.register(StateCollector(cache))
    view: Any = SimpleNamespace(
        ring=lambda _: ring, owner_kinds=lambda _: {}, available=lambda _: ("a",), fresh=lambda: True
    )
    ShardAdmission(view, registry=registry)(
        decode_review(REVIEW, "/webhooks/sharder/controllerring/ring").request
    )
    found: dict[str, list[tuple[str, dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            name = sample.name.removeprefix("controller_sharding_")
            found.setdefault(name, []).append((family.type, sample.labels, sample.value))
    return found


def _lease(name: str, state: str | None) -> Lease:
    labels = {RING_LABEL: "ring"} | ({STATE_LABEL: state} if state else {})
    return Lease(metadata=ObjectMeta(name=name, namespace="ns", uid=f"uid-{name}", labels=labels))


@pytest.mark.parametrize("name", WANTED)
def test_a_metric_has_the_references_name_type_and_labels(name: str, samples: Any) -> None:
    kind, labels = WANTED[name]
    assert {(type_, *sorted(given)) for type_, given, _ in samples[name]} == {(kind, *labels)}


def test_state_metrics_show_what_ring_and_state_label_say(samples: Any) -> None:
    ring = {"controllerring": "ring", "uid": "ring-uid"}
    values = {name: value for name in samples for _, labels, value in samples[name] if labels == ring}
    assert values == {
        "controllerring_metadata_generation": 3,
        "controllerring_observed_generation": 2,
        "controllerring_status_shards": 5,
        "controllerring_status_available_shards": 4,
    }
    states = {(labels["shard"], labels["state"]): value for _, labels, value in samples["shard_state"]}
    assert {state for _, state in states} == {"orphaned", "dead", "uncertain", "expired", "ready", "unknown"}
    assert {place for place, value in states.items() if value} == {
        ("a", "ready"),
        ("b", "unknown"),
        ("c", "unknown"),
    }
    assert all(value == 1 for _, _, value in samples["shard_info"])
