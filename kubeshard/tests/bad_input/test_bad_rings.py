"""ControllerRings that are wrong, hostile or odd, row by row of docs/guarantees.md.

Tests that need the API server are in `kube/test_bad_input_kube.py`. Elsewhere: two roles of one resource
(`sharding/test_sharding_planner.py`), unknown resources and missing rights (`sharder/test_sharder_scanner.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from kubeshard.cache import Added, Updated
from kubeshard.core.builtin import Lease, LeaseSpec, Namespace
from kubeshard.core.objects import ObjectMeta
from kubeshard.core.selectors import LabelSelector, LabelSelectorRequirement, Selector
from kubeshard.runtime.clock import SystemClock
from kubeshard.sharder.admission import ShardAdmission
from kubeshard.sharder.config import SharderConfig, WebhookConfig
from kubeshard.sharder.metrics import SharderMetrics
from kubeshard.sharder.rings import Rings
from kubeshard.sharder.webhook_config import webhook_configuration
from kubeshard.sharding.api import ControllerRing, ControllerRingSpec, RingGroupResource, RingResource
from kubeshard.sharding.conditions import MAX_MESSAGE, RingReport, findings
from kubeshard.sharding.names import RING_LABEL, SYSTEM_NAMESPACES_ANNOTATION, webhook_path
from kubeshard.sharding.ring import Namespaces, RingInputs
from kubeshard.sharding.ring_resources import RingResources
from kubeshard.sharding.shard_states import Availability, ShardStates
from kubeshard.webhook.review import decode_review
from kubeshard_apiserver.json_patch import apply_json_patch

GOOD = RingResource(group="apps", resource="deployments")

REFUSED = {
    "every resource": ("", "*"),
    "every group": ("*", "pods"),
    "a subresource": ("", "pods/status"),
    "every subresource": ("", "pods/*"),
    "upper case": ("", "Pods"),
    "a group in upper case": ("Apps", "deployments"),
    "no resource": ("", ""),
    "unicode": ("", "pöds"),
    "a group in unicode": ("bücher.example", "books"),
    "a label that is too long": ("", "p" * 64),
    "a group of more than 253": (".".join(["a" * 50] * 6), "pods"),
    "a group that is a URL": ("https://example.com", "pods"),
    "white space": ("", "pods "),
    "a line break": ("", "pods\nfoo"),
    "leases": ("coordination.k8s.io", "leases"),
    "rings": ("sharding.timebertt.dev", "controllerrings"),
    "webhook configurations": ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
    "events": ("", "events"),
    "new events": ("events.k8s.io", "events"),
}


def ring(
    *resources: RingResource, name: str = "ring", selector: LabelSelector | None = None, confirmed: str = ""
) -> ControllerRing:
    spec = ControllerRingSpec(resources=resources, namespace_selector=selector)
    annotations = {SYSTEM_NAMESPACES_ANNOTATION: confirmed} if confirmed else None
    meta = ObjectMeta(name=name, uid="uid", resource_version="1", annotations=annotations)
    return ControllerRing(metadata=meta, spec=spec)


@pytest.mark.parametrize(("group", "resource"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("role", ["main", "controlled"])
def test_an_entry_that_cannot_be_sharded_is_named_and_left_out_and_the_rest_of_the_ring_works(
    group: str, resource: str, role: str
) -> None:
    bad = RingGroupResource(group=group, resource=resource)
    if role == "main":
        entries = (RingResource(group=group, resource=resource), GOOD)
    else:
        entries = (RingResource(group="apps", resource="deployments", controlled_resources=(bad,)),)
    resources = RingResources(entries)
    assert [entry.resource for entry in resources.entries] == [GOOD.group_resource]
    assert [problem.resource for problem in resources.problems] == [bad.group_resource]
    (webhook,) = webhook_configuration(ring(*entries), WebhookConfig())["webhooks"]
    assert [rule["resources"] for rule in webhook["rules"]] == [["deployments"]]
    (condition,) = findings(RingReport(), resources, [])
    assert str(bad.group_resource)[:50] in condition.message


NAMESPACES = ("default", "kube-system", "sharding-system")


def rings_in(
    available: Callable[[str], tuple[str, ...]] = lambda _: (), *, registry: CollectorRegistry | None = None
) -> Rings:
    """Returns rings in a cluster of three namespaces."""
    namespaces = {
        name: Namespace(metadata=ObjectMeta(name=name, labels={"kubernetes.io/metadata.name": name}))
        for name in NAMESPACES
    }
    shards: Any = SimpleNamespace(
        availability=lambda ring, now: Availability(available(ring), available(ring), now),
        fresh=lambda now: True,
    )
    kinds: Any = SimpleNamespace(learned=0, owner_kinds=lambda _: {})
    return Rings(
        RingInputs(
            shards=shards,
            kinds=kinds,
            namespaces=Namespaces(namespaces),
            metrics=SharderMetrics(registry or CollectorRegistry()),
            clock=SystemClock(),
            default_selector=WebhookConfig().namespace_selector,
            system_namespaces=SharderConfig().system_namespaces,
        )
    )


def test_a_name_with_dots_and_its_label_keys_are_escaped_everywhere() -> None:
    name = "a.b-c.example"
    registry = CollectorRegistry()
    rings = rings_in(lambda _: ("shard",), registry=registry)
    rings.apply(Added(ring(GOOD, name=name)))
    review = decode_review(
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"CREATE",'
        b'"resource":{"group":"apps","version":"v1","resource":"deployments"},"namespace":"default",'
        b'"object":{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"foo"}}}}',
        webhook_path(name),
    )
    answer = ShardAdmission(rings, SystemClock())(review.request)
    patched = apply_json_patch({"metadata": {"name": "foo"}}, answer.patch)
    assert patched["metadata"]["labels"] == {f"shard.alpha.sharding.timebertt.dev/{name}": "shard"}
    rings.inputs.metrics.of('a"b\\c').add("ring_calculations")
    assert f'controllerring="{name}"' in generate_latest(registry).decode()
    assert 'controllerring="a\\"b\\\\c"' in generate_latest(registry).decode()


def test_a_message_of_any_length_fits_into_a_condition() -> None:
    """The API server rejects a whole status if one message is longer than 32 KiB."""
    resources = RingResources([RingResource(group="", resource="X" * 10_000) for _ in range(10)])
    states = ShardStates()
    for number in range(2_000):
        meta = ObjectMeta(name="a", namespace=f"{number:063}", labels={RING_LABEL: "ring"})
        states.observe(Lease(metadata=meta, spec=LeaseSpec(holder_identity="a")), 0.0)
    found = findings(RingReport(), resources, states.shards("ring", 0.0))
    assert len(found) == 2
    assert all(len(condition.message) <= MAX_MESSAGE for condition in found)


def selected(rings: Rings, name: str = "ring") -> list[str]:
    found = rings.get(name)
    assert found is not None
    view = found.view
    assert view is not None
    return [space for space in NAMESPACES if view.selects(space)]


def report_of(rings: Rings, name: str = "ring") -> RingReport:
    found = rings.get(name)
    assert found is not None
    return found.report


BAD_OPERATOR = LabelSelector(match_expressions=(LabelSelectorRequirement(key="a", operator="Like"),))


def test_a_ring_keeps_its_last_good_selector_and_says_what_is_wrong_with_the_new_one() -> None:
    rings = rings_in()
    good = ring(GOOD, selector=LabelSelector(match_labels={"kubernetes.io/metadata.name": "default"}))
    rings.apply(Added(good))
    rings.apply(Added(ring(GOOD, name="beside")))
    assert selected(rings) == ["default"]
    rings.apply(Updated(good, ring(GOOD, selector=BAD_OPERATOR)))
    assert selected(rings) == ["default"]
    assert selected(rings, "beside") == ["default"]
    assert "Like" in report_of(rings).selector_problem
    assert not report_of(rings, "beside").selector_problem


def test_a_ring_that_never_had_a_good_selector_selects_nothing() -> None:
    """It does not fall back to the default, which would label objects that nobody selected."""
    rings = rings_in()
    rings.apply(Added(ring(GOOD, selector=BAD_OPERATOR)))
    assert selected(rings) == []


BY_NAME = LabelSelectorRequirement(
    key="kubernetes.io/metadata.name", operator="In", values=("default", "kube-system")
)


def test_a_ring_that_selects_system_namespaces_does_not_get_them_unless_an_annotation_confirms_each() -> None:
    """It was only warned about before. The rest of the ring works."""
    rings = rings_in()
    everything = ring(GOOD, selector=LabelSelector())
    rings.apply(Added(everything))
    assert selected(rings) == ["default"]
    (condition,) = findings(report_of(rings), RingResources([GOOD]), [])
    assert condition.type == "NamespacesAccepted"
    assert (
        'alpha.sharding.timebertt.dev/system-namespaces: "kube-system, sharding-system"' in condition.message
    )
    rings.apply(Updated(everything, one := ring(GOOD, selector=LabelSelector(), confirmed="kube-system")))
    assert selected(rings) == ["default", "kube-system"]
    (condition,) = findings(report_of(rings), RingResources([GOOD]), [])
    assert condition.message.startswith("the ring's namespaceSelector selects sharding-system,")
    both = ring(GOOD, selector=LabelSelector(), confirmed="kube-system, sharding-system")
    rings.apply(Updated(one, both))
    assert selected(rings) == ["default", "kube-system", "sharding-system"]
    assert not findings(report_of(rings), RingResources([GOOD]), [])


def test_a_ring_that_names_a_system_namespace_gets_it_if_it_is_confirmed() -> None:
    rings, selector = rings_in(), LabelSelector(match_expressions=(BY_NAME,))
    unconfirmed = ring(GOOD, selector=selector)
    rings.apply(Added(unconfirmed))
    assert selected(rings) == ["default"]
    rings.apply(Updated(unconfirmed, ring(GOOD, selector=selector, confirmed="kube-system")))
    assert selected(rings) == ["default", "kube-system"]


def test_an_annotation_alone_selects_nothing() -> None:
    rings = rings_in()
    rings.apply(Added(ring(GOOD, confirmed="kube-system, sharding-system")))
    assert selected(rings) == ["default"]
    assert not findings(report_of(rings), RingResources([GOOD]), [])


@pytest.mark.parametrize("confirmed", ["", "kube-system"])
@pytest.mark.parametrize(
    ("selector", "excludes"),
    [
        (LabelSelector(), True),
        (LabelSelector(match_expressions=(BY_NAME,)), True),
        (LabelSelector(match_labels={"team": "a"}), False),
        (None, False),
    ],
    ids=("everything", "by name", "by label", "default"),
)
def test_no_webhook_is_called_for_system_namespaces(
    selector: LabelSelector | None, excludes: bool, confirmed: str
) -> None:
    one, config = ring(GOOD, selector=selector, confirmed=confirmed), SharderConfig()
    (webhook,) = webhook_configuration(one, config.webhook.config, without=config.system_namespaces)[
        "webhooks"
    ]
    made = msgspec.convert(webhook["namespaceSelector"], LabelSelector)
    given = config.webhook.config.namespace_selector if selector is None else selector
    assert (made != given) is excludes
    for name in NAMESPACES:
        selected_now, selected_before = (
            Selector.from_label_selector(each).matches({"kubernetes.io/metadata.name": name})
            for each in (made, given)
        )
        assert selected_now is (selected_before and name not in config.system_namespaces)


def test_a_webhook_that_is_called_for_a_system_namespace_nevertheless_assigns_nothing_there() -> None:
    """The configuration of another sharder, say."""
    rings = rings_in(lambda _: ("shard",))
    rings.apply(Added(ring(GOOD, selector=LabelSelector())))
    review = decode_review(
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"CREATE",'
        b'"resource":{"group":"apps","version":"v1","resource":"deployments"},"namespace":"kube-system",'
        b'"object":{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"foo"}}}}',
        webhook_path("ring"),
    )
    answer = ShardAdmission(rings, SystemClock())(review.request)
    assert answer.allowed
    assert not answer.patch


def test_hundreds_of_rings_with_a_thousand_shards_are_remembered_once_each() -> None:
    states = ShardStates()
    rings = rings_in(lambda name: states.available(name, 0.0))
    for number in range(150):
        rings.apply(Added(ring(GOOD, name=f"ring-{number}")))
    for number in range(1_000):
        meta = ObjectMeta(name=f"s{number}", namespace="ns", uid="u", labels={RING_LABEL: "ring-0"})
        spec = LeaseSpec(holder_identity=f"s{number}", lease_duration_seconds=15)
        states.observe(Lease(metadata=meta, spec=spec), 0.0)
    views = {each.name: each.view for each in rings}
    assert all(each.view is views[each.name] for each in rings)
    first = views["ring-0"]
    assert first is not None
    assert len(first.available) == 500
