"""The metrics, by name, type and labels."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from small_ring import SmallRing

from kubeshard.cache import Cache
from kubeshard.client import Client, ClusterConfig
from kubeshard.core.builtin import Lease
from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import ObjectMeta
from kubeshard.manager.fast_metrics import SAMPLES, render
from kubeshard.sharder.admission import ShardAdmission
from kubeshard.sharder.lease_observer import shard_leases
from kubeshard.sharder.metrics import StateCollector
from kubeshard.sharder.tasks import Crashes
from kubeshard.sharding.api import ControllerRing, ControllerRingSpec, ControllerRingStatus, RingResource
from kubeshard.sharding.buckets import BUCKETS
from kubeshard.sharding.names import RING_LABEL, STATE_LABEL
from kubeshard.sharding.ring import NO_RESOURCE, Ring
from kubeshard.sharding.shard_states import ShardState
from kubeshard.webhook.review import decode_review

RINGS: Any = SimpleNamespace(get=lambda name: name)
"""Every ring exists."""
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
    """Returns, by metric name without prefix, the type, labels and value of each sample, in a process that did
    everything once.
    """
    registry = CollectorRegistry()
    secrets = GroupResource("", "secrets")
    small = SmallRing("a", registry=registry)
    small.ring.metrics.add("movements", secrets)
    small.ring.metrics.add("drains", secrets)
    ring = ControllerRing(
        metadata=ObjectMeta(name="ring", uid="ring-uid", generation=3),
        spec=ControllerRingSpec(resources=(RingResource(group="", resource="secrets"),)),
        status=ControllerRingStatus(observed_generation=2, shards=5, available_shards=4),
    )
    leases = [_lease("a", "ready"), _lease("b", "nonsense"), _lease("c", None)]
    cache: Any = SimpleNamespace(list=lambda kind, *_, **__: [ring] if kind is ControllerRing else leases)
    registry.register(StateCollector(cache, RINGS))
    request = decode_review(REVIEW, "/webhooks/sharder/controllerring/ring").request
    ShardAdmission(small.rings, small.clock)(request)
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


@pytest.mark.regression
async def test_what_is_known_of_requests_can_be_scraped_before_the_caches_are_filled() -> None:
    cache = Cache(Client(ClusterConfig("http://nowhere.invalid")))
    cache.declare(ControllerRing)
    cache.declare(Lease, shard_leases())
    registry = CollectorRegistry()
    registry.register(StateCollector(cache, RINGS))
    assert b"controller_sharding_controllerring_status_shards" in generate_latest(registry)


def series(registry: CollectorRegistry) -> list[str]:
    return [
        line for line in generate_latest(registry).decode().splitlines() if 'controllerring="ring"' in line
    ]


def counted(ring: Ring, resource: GroupResource) -> None:
    """Performs everything that can be counted in a ring."""
    metrics = ring.metrics
    for name in ("movements", "drains", "assignments"):
        metrics.add(name, resource)
    metrics.add("move_failures", resource, "Forbidden")
    metrics.set("drains_pending", 1, resource)
    metrics.set("objects_unassigned", 1, resource)
    metrics.add("ring_calculations")
    metrics.add("webhook_restored")
    metrics.add("webhook_unassigned", None, "key")
    metrics.scanned("all", 1.0)
    metrics.set("oldest_drain_seconds", 1.0)
    metrics.set("oldest_unassigned_seconds", 1.0)


def test_what_is_counted_late_for_a_ring_or_a_resource_that_is_gone_makes_no_series() -> None:
    small = SmallRing("a")
    secrets = GroupResource("", "secrets")
    counted(small.ring, secrets)
    assert any('resource="secrets"' in line for line in series(small.registry))
    small.become(RingResource(resource="configmaps"))
    counted(small.ring, secrets)
    assert series(small.registry)
    assert not any('resource="secrets"' in line for line in series(small.registry))
    small.delete()
    counted(small.ring, GroupResource("", "configmaps"))
    small.ring.end()
    assert series(small.registry) == []


@pytest.mark.parametrize("counted_as", [NO_RESOURCE, BUCKETS])
def test_a_crash_of_what_works_for_no_resource_is_counted_and_the_page_is_there(
    counted_as: GroupResource,
) -> None:
    registry = CollectorRegistry()
    small = SmallRing("a", registry=registry)
    for metrics in small.ring.metrics, small.rings.inputs.metrics.of(""):
        Crashes(metrics, small.clock, counted_as).tell("work", RuntimeError("a bug"))
    page = generate_latest(registry).decode()
    counted = [line for line in page.splitlines() if line.startswith("controller_sharding_crashes_total{")]
    assert len(counted) == 2
    assert all('part="work"' in line and line.endswith(" 1.0") for line in counted)


def test_the_series_of_a_ring_are_few_until_something_happens_to_it_and_never_of_a_histogram() -> None:
    small = SmallRing("a")
    secrets = GroupResource("", "secrets")
    metrics = small.ring.metrics
    metrics.add("ring_calculations")
    metrics.scanned("all", 1.0)
    metrics.set("oldest_drain_seconds", 0.0)
    metrics.set("oldest_unassigned_seconds", 0.0)
    metrics.set("drains_pending", 0, secrets)
    metrics.set("objects_unassigned", 0, secrets)
    assert len([line for line in series(small.registry) if "_created" not in line]) == 2
    counted(small.ring, secrets)
    assert not [line for line in series(small.registry) if "_bucket" in line]
    metrics.set("drains_pending", 0, secrets)
    assert (
        'controller_sharding_drains_pending{controllerring="ring",group="",resource="secrets"} 0.0'
        in series(small.registry)
    )


async def test_the_samples_of_many_shards_are_made_a_few_at_a_time() -> None:
    made, most = 0, 0
    leases = [_lease(f"shard-{number}", "ready") for number in range(1000)]

    class Counted(list[Lease]):
        def __iter__(self) -> Iterator[Lease]:
            nonlocal made
            for lease in super().__iter__():
                made += 1
                yield lease

    async def others() -> None:
        nonlocal made, most
        while True:
            made, most = 0, max(most, made)
            await asyncio.sleep(0)

    cache: Any = SimpleNamespace(
        list=lambda kind, *_, **__: [] if kind is ControllerRing else Counted(leases)
    )
    task = asyncio.create_task(others())
    page = await render(StateCollector(cache, RINGS).collect())
    task.cancel()
    assert page.count(b"shard_state{") == 1000 * len(ShardState)
    assert 0 < most <= SAMPLES
