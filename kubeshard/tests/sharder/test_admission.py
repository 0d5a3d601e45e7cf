"""The webhook's decision table, row by row, and the restoration of labels."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Collection, Mapping
from copy import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from kubeshard.cache import Added, Deleted
from kubeshard.core.builtin import Lease
from kubeshard.core.kinds import GroupKind, GroupResource
from kubeshard.core.objects import ObjectMeta
from kubeshard.core.selectors import LabelSelector
from kubeshard.runtime.clock import SystemClock
from kubeshard.sharder import admission
from kubeshard.sharder.admission import POD_NAME_CLAIM, ShardAdmission
from kubeshard.sharder.metrics import SharderMetrics
from kubeshard.sharder.rings import Rings
from kubeshard.sharding.api import ControllerRing, ControllerRingSpec, RingGroupResource, RingResource
from kubeshard.sharding.hash_ring import HashRing
from kubeshard.sharding.ring import Ring, RingInputs
from kubeshard.sharding.ring_resources import OwnerKind, PossibleOwners, RingResources
from kubeshard.sharding.shard_states import Availability
from kubeshard.webhook.review import UserInfo, decode_review, encode_review
from kubeshard_apiserver.json_patch import apply_json_patch

SHARD_LABEL = "shard.alpha.sharding.timebertt.dev/operator"
DRAIN_LABEL = "drain.alpha.sharding.timebertt.dev/operator"
SHARDER = "system:serviceaccount:sharding-system:sharder"

WEBSITES = GroupResource("webhosting.timebertt.dev", "websites")
CONFIG_MAPS = GroupResource("", "configmaps")


class View:
    """The view of a sharder replica."""

    learned = 0

    def __init__(self, *shards: str, fresh: bool = True) -> None:
        resource = RingResource(
            group=WEBSITES.group,
            resource=WEBSITES.resource,
            controlled_resources=(RingGroupResource(group="", resource="configmaps"),),
        )
        self.ring_object: ControllerRing | None = ControllerRing(
            metadata=ObjectMeta(name="operator"), spec=ControllerRingSpec(resources=(resource,))
        )
        self.shards: tuple[str, ...] = shards or ("a", "b", "c")
        self.is_fresh = fresh
        self.leases: dict[str, list[Lease]] = {}
        self.signing: Collection[str] = ()
        self.kinds: Mapping[GroupResource, PossibleOwners] = {
            CONFIG_MAPS: {GroupKind("webhosting.timebertt.dev", "Website"): OwnerKind(WEBSITES, True, True)}
        }

    def owner_kinds(self, resources: RingResources) -> Mapping[GroupResource, PossibleOwners]:
        return self.kinds

    def availability(self, ring: str, now: float) -> Availability:
        return Availability(self.shards, self.shards, now)

    def fresh(self, now: float) -> bool:
        return self.is_fresh

    def named(self, ring: str, shard: str) -> list[Lease]:
        return self.leases.get(shard, [])

    def signs(self, ring: str, shard: str) -> bool:
        return ring == "operator" and shard in self.signing

    def rings(self, registry: CollectorRegistry | None = None) -> Rings:
        rings = Rings(
            RingInputs(  # no namespace: the API server knew it, and has applied the ring's selector
                shards=self,
                kinds=self,
                metrics=SharderMetrics(registry or CollectorRegistry()),
                clock=SystemClock(),
                default_selector=LabelSelector(match_labels={"nobody": "has"}),
            )
        )
        if self.ring_object is not None:
            rings.apply(Added(self.ring_object))
        return rings


def website(**metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "webhosting.timebertt.dev/v1alpha1",
        "kind": "Website",
        "metadata": {"name": "foo", "namespace": "bar", **metadata},
    }


def config_map(*owners: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    meta = {"name": "cm", "namespace": "bar", "ownerReferences": list(owners), **metadata}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}


def owner(**changes: Any) -> dict[str, Any]:
    reference = {"apiVersion": "webhosting.timebertt.dev/v1alpha1", "kind": "Website", "name": "foo"}
    return {**reference, "controller": True, **changes}


def ask(
    view: View | None = None,
    object: Any = None,
    *,
    resource: GroupResource = WEBSITES,
    path: str = "/webhooks/sharder/controllerring/operator",
    shard_users: Collection[str] = (),
    signing: Collection[str] = (),
    registry: CollectorRegistry | None = None,
    handler: ShardAdmission | None = None,
    **request: Any,
) -> dict[str, Any]:
    """Returns the `response` as the API server gets it."""
    view = view or View()
    view.signing = signing
    handler = handler or ShardAdmission(
        view.rings(registry),
        SystemClock(),
        sharders=frozenset({SHARDER}),
        shard_users={"operator": shard_users},
    )
    body = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "1234",
            "operation": "CREATE",
            "resource": {"group": resource.group, "version": "v1", "resource": resource.resource},
            "object": object,
            "oldObject": None,
            **request,
        },
    }
    review = decode_review(json.dumps(body).encode(), path)
    response: dict[str, Any] = json.loads(encode_review(review, handler(review.request)))["response"]
    assert response.pop("uid") == "1234"
    return response


def operations(response: dict[str, Any]) -> list[dict[str, Any]]:
    if "patch" not in response:
        assert "patchType" not in response
        return []
    assert response["patchType"] == "JSONPatch"
    raw = base64.b64decode(response["patch"])
    assert len(raw) < 1024
    decoded: list[dict[str, Any]] = json.loads(raw)
    assert len(decoded) <= 2
    return decoded


def target(key: str, *shards: str) -> str:
    return HashRing(shards or ("a", "b", "c")).owner(key)


FOO = target("webhosting.timebertt.dev/Website/bar/foo")


def let_through(message: str, *, warned: bool) -> dict[str, Any]:
    response: dict[str, Any] = {"allowed": True, "status": {"code": 200, "message": message}}
    return {**response, "warnings": [message]} if warned else response


def test_an_unassigned_object_gets_its_label_by_the_wires_two_operations() -> None:
    response = ask(object=website())
    assert operations(response) == [
        {"op": "add", "path": "/metadata/labels", "value": {}},
        {
            "op": "add",
            "path": "/metadata/labels/shard.alpha.sharding.timebertt.dev~1operator",
            "value": FOO,
        },
    ]
    assert response["status"] == {"code": 200, "message": "assigning object"}
    assert response["allowed"] is True
    assert "warnings" not in response


@pytest.mark.parametrize("labels", [{}, {"a": "b"}, {SHARD_LABEL: ""}, {DRAIN_LABEL: "true"}])
def test_existing_labels_are_added_to_by_one_operation(labels: dict[str, str]) -> None:
    (operation,) = operations(ask(object=website(labels=labels)))
    assert operation["path"] == "/metadata/labels/shard.alpha.sharding.timebertt.dev~1operator"
    assert operation["value"] == FOO


def test_labels_null_are_no_labels() -> None:
    assert len(operations(ask(object=website(labels=None)))) == 2


def test_a_controlled_object_goes_where_its_controller_goes_whatever_its_own_name() -> None:
    for metadata in ({}, {"name": "", "generateName": "x-"}):
        response = ask(object=config_map(owner(), **metadata), resource=CONFIG_MAPS)
        assert operations(response)[-1]["value"] == FOO


def test_the_requests_namespace_stands_in_for_a_missing_one() -> None:
    response = ask(object=website(namespace=""), namespace="bar")
    assert operations(response)[-1]["value"] == FOO
    response = ask(object=config_map(owner(), namespace=""), namespace="bar", resource=CONFIG_MAPS)
    assert operations(response)[-1]["value"] == FOO


def no_shards(view: View) -> None:
    view.shards = ()


def stale(view: View) -> None:
    view.is_fresh = False


def unknown_ring(view: View) -> None:
    view.ring_object = None


def as_it_is(view: View) -> None:
    pass


GROUP = "webhosting.timebertt.dev"
KEY = "error calculating hash key for object: "
NAME_NOT_FOUND = 'error getting ControllerRing: ControllerRing.sharding.timebertt.dev "operator" not found'
MANY = [owner(name=f"o-{i}", controller=False) for i in range(1000)]

UNASSIGNED: dict[str, tuple[Callable[[View], None], Any, dict[str, Any], str, str]] = {
    "ring not found": (
        unknown_ring,
        website(),
        {},
        f"error determining ControllerRing for request: {NAME_NOT_FOUND}",
        "ring",
    ),
    "no ring in the path": (
        as_it_is,
        website(),
        {"path": "/webhooks/sharder/controllerring/"},
        "error determining ControllerRing for request: "
        "unexpected request path: /webhooks/sharder/controllerring/",
        "ring",
    ),
    "other path": (
        as_it_is,
        website(),
        {"path": "/x"},
        "error determining ControllerRing for request: unexpected request path: /x",
        "ring",
    ),
    "labels not a map": (
        as_it_is,
        website(labels=["a"]),
        {},
        "error decoding object: Expected `object | null`, got `array` - at `$.metadata.labels`",
        "object",
    ),
    "label value no string": (
        as_it_is,
        website(labels={"a": 1}),
        {},
        "error decoding object: Expected `str`, got `int` - at `$.metadata.labels[...]`",
        "object",
    ),
    "resource not in ring": (
        as_it_is,
        website(),
        {"resource": GroupResource("apps", "deployments")},
        "error determining hash key func for object: "
        'object\'s resource "deployments.apps" was not found in ControllerRing',
        "resource",
    ),
    "resource of the core group not in ring": (
        as_it_is,
        website(),
        {"resource": GroupResource("", "pods")},
        'error determining hash key func for object: object\'s resource "pods" was not found in ControllerRing',
        "resource",
    ),
    "no name": (as_it_is, website(name=""), {}, KEY + "name must not be empty", "key"),
    "generateName on a main resource": (
        as_it_is,
        website(name="", generateName="foo-"),
        {},
        KEY + "generateName is not supported on ring resources that are not controlled by another resource",
        "generate_name",
    ),
    "no kind": (
        as_it_is,
        {"metadata": {"name": "foo"}},
        {},
        KEY + "apiVersion and kind must not be empty",
        "key",
    ),
    "controller without apiVersion": (
        as_it_is,
        config_map(owner(apiVersion="")),
        {"resource": CONFIG_MAPS},
        KEY + "apiVersion of controller reference must not be empty",
        "key",
    ),
    "controller without kind": (
        as_it_is,
        config_map(owner(kind="")),
        {"resource": CONFIG_MAPS},
        KEY + "kind of controller reference must not be empty",
        "key",
    ),
    "controller without name": (
        as_it_is,
        config_map(owner(name="")),
        {"resource": CONFIG_MAPS},
        KEY + "name of controller reference must not be empty",
        "key",
    ),
    "controller with a strange apiVersion": (
        as_it_is,
        config_map(*MANY, owner(apiVersion="a/b/c"), owner()),
        {"resource": CONFIG_MAPS},
        KEY + "invalid apiVersion of controller reference: unexpected GroupVersion string: a/b/c",
        "key",
    ),
    "view stale": (stale, website(), {}, "the sharder's view of the shards is out of date", "stale"),
}


@pytest.mark.parametrize(
    ("situation", "object", "options", "message", "reason"), UNASSIGNED.values(), ids=UNASSIGNED
)
def test_what_the_reference_denies_is_let_through_unassigned_with_its_message_a_warning_and_a_count(
    situation: Callable[[View], None], object: Any, options: dict[str, Any], message: str, reason: str
) -> None:
    view, registry = View(), CollectorRegistry()
    situation(view)
    assert ask(view, object, registry=registry, **options) == let_through(message, warned=True)
    ring = "" if reason == "ring" else "operator"
    labels = {"controllerring": ring, "reason": reason}
    name = "controller_sharding_webhook_unassigned_total"
    assert registry.get_sample_value(name, labels) == 1
    ask(view, object, registry=(again := CollectorRegistry()), dryRun=True, **options)
    assert again.get_sample_value(name, labels) is None


QUIET: dict[str, tuple[Callable[[View], None], Any, dict[str, Any], str]] = {
    "assigned already": (
        as_it_is,
        website(labels={SHARD_LABEL: "gone"}),
        {},
        "object is already assigned",
    ),
    "assigned already, resource not in ring": (
        as_it_is,
        website(labels={SHARD_LABEL: "gone"}),
        {"resource": GroupResource("", "pods")},
        "object is already assigned",
    ),
    "no controller": (
        as_it_is,
        config_map(owner(controller=False)),
        {"resource": CONFIG_MAPS},
        "object should not be assigned",
    ),
    "foreign controller": (
        as_it_is,
        config_map(owner(kind="Other")),
        {"resource": CONFIG_MAPS},
        "object should not be assigned",
    ),
    "no shard": (no_shards, website(), {}, "there is no available shard"),
}


@pytest.mark.parametrize(("situation", "object", "options", "message"), QUIET.values(), ids=QUIET)
def test_what_needs_no_label_is_let_through_with_the_protocols_message(
    situation: Callable[[View], None], object: Any, options: dict[str, Any], message: str
) -> None:
    view = View()
    situation(view)
    assert ask(view, object, **options) == let_through(message, warned=False)


@pytest.mark.parametrize("operation", ["DELETE", "CONNECT", "", "OTHER"])
def test_other_operations_are_let_through_unseen(operation: str) -> None:
    assert ask(object=website(), operation=operation) == {"allowed": True, "status": {"code": 200}}


def test_a_missing_object_is_let_through() -> None:
    assert ask(object=None) == {"allowed": True, "status": {"code": 200}}


def assignments(registry: CollectorRegistry) -> float | None:
    return registry.get_sample_value(
        "controller_sharding_assignments_total",
        {"controllerring": "operator", "group": GROUP, "resource": "websites"},
    )


def test_assignments_are_counted_but_not_those_of_a_dry_run() -> None:
    registry = CollectorRegistry()
    handler = ShardAdmission(View().rings(registry), SystemClock())
    assert operations(ask(object=website(), handler=handler, dryRun=True))
    assert assignments(registry) is None
    ask(object=website(), handler=handler)
    ask(object=website(), handler=handler, dryRun=False)
    assert assignments(registry) == 2


def test_the_answer_follows_the_view_at_once() -> None:
    view = View("a")
    rings = view.rings()
    handler = ShardAdmission(rings, SystemClock())

    def assigned() -> Any:
        return operations(ask(object=website(), handler=handler))[-1]["value"]

    assert assigned() == "a"
    view.shards = ("b",)
    assert assigned() == "b"
    view.shards = ()
    assert ask(object=website(), handler=handler)["status"]["message"] == "there is no available shard"
    view.shards = ("a", "b")
    assert assigned() == target("webhosting.timebertt.dev/Website/bar/foo", "a", "b")
    assert view.ring_object is not None
    rings.apply(Deleted(view.ring_object))
    assert "not found" in ask(object=website(), handler=handler)["status"]["message"]
    rings.apply(Added(ControllerRing(metadata=view.ring_object.metadata)))
    assert "was not found in ControllerRing" in ask(object=website(), handler=handler)["status"]["message"]


def test_a_name_that_is_hostile_does_not_make_a_long_answer() -> None:
    response = ask(object=config_map(owner(apiVersion="a/b/" + "c" * 100_000)), resource=CONFIG_MAPS)
    assert len(json.dumps(response)) < 1024


# Label restoration: the old object is on shard "z" unless said otherwise.


def update(
    view: View,
    *,
    old: dict[str, str] | None = None,
    new: dict[str, str] | None = None,
    user: str = "jane",
    pod: str = "",
    manager: str = "",
    **options: Any,
) -> dict[str, Any]:
    extra = {POD_NAME_CLAIM: [pod]} if pod else {}
    stated = {"fieldManager": manager} if manager else {}
    return ask(
        view,
        website(labels=new),
        operation="UPDATE",
        oldObject=website(labels={SHARD_LABEL: "z", **(old or {})}),
        userInfo={"username": user, "extra": extra},
        options={"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1", **stated},
        **options,
    )


def alive() -> View:
    return View("a", "b", "z")


def patched(response: dict[str, Any], labels: dict[str, str] | None) -> dict[str, str]:
    document = website(labels=labels) if labels is not None else website()
    return apply_json_patch(document, operations(response))["metadata"]["labels"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("new", [None, {}, {"x": "y"}, {SHARD_LABEL: ""}])
def test_a_removed_shard_label_is_put_back_with_a_warning_and_a_count(new: dict[str, str] | None) -> None:
    registry = CollectorRegistry()
    response = update(alive(), new=new, registry=registry)
    assert response["allowed"] is True
    assert response["status"] == {"code": 200, "message": "restoring shard label"}
    assert patched(response, new) == {**(new or {}), SHARD_LABEL: "z"}
    (warning,) = response["warnings"]
    assert SHARD_LABEL in warning
    restored = "controller_sharding_webhook_restored_total"
    assert registry.get_sample_value(restored, {"controllerring": "operator"}) == 1
    update(alive(), new=new, registry=(again := CollectorRegistry()), dryRun=True)
    assert again.get_sample_value(restored, {"controllerring": "operator"}) is None


def test_who_tries_out_whether_the_webhook_is_called_is_not_warned_that_it_restores_the_label() -> None:
    response = update(alive(), new={}, manager="sharder", dryRun=True)
    assert patched(response, {}) == {SHARD_LABEL: "z"}
    assert "warnings" not in response
    assert update(alive(), new={}, manager="sharder")["warnings"]
    assert update(alive(), new={}, dryRun=True)["warnings"]


@pytest.mark.parametrize("new", [None, {"x": "y"}, {DRAIN_LABEL: "true"}])
def test_the_drain_label_is_put_back_with_it(new: dict[str, str] | None) -> None:
    response = update(alive(), old={DRAIN_LABEL: "true"}, new=new, user="jane", shard_users={"op"})
    assert patched(response, new) == {**(new or {}), SHARD_LABEL: "z", DRAIN_LABEL: "true"}


ACKNOWLEDGED = {
    "by the shard's own pod": {"pod": "z"},
    "by a listed account without pod claim": {"user": "op", "shard_users": {"op"}},
    "by a listed account whose pods are not named after shards": {
        "user": "op",
        "shard_users": {"op"},
        "pod": "operator-5d9f",
    },
    "by a shard that signs": {"signing": "z", "manager": "z"},
    "by a shard that signs, in a pod with another name": {
        "signing": "z",
        "manager": "z",
        "pod": "operator-5d9f",
    },
    "by a client that says as little about itself as a Go shard": {},
    "by a pod with another name that says as little": {"pod": "operator-5d9f"},
}


@pytest.mark.parametrize("options", ACKNOWLEDGED.values(), ids=ACKNOWLEDGED)
def test_an_acknowledged_drain_is_hashed_as_usual(options: dict[str, Any]) -> None:
    response = update(alive(), old={DRAIN_LABEL: "true"}, new={}, **options)
    assert response["status"]["message"] == "assigning object"
    expected = target("webhosting.timebertt.dev/Website/bar/foo", "a", "b", "z")
    assert patched(response, {}) == {SHARD_LABEL: expected}


@pytest.mark.regression
def test_an_object_is_not_given_back_to_the_shard_that_released_it() -> None:
    owner = target("webhosting.timebertt.dev/Website/bar/foo", "a", "b", "z")
    old = {SHARD_LABEL: owner, DRAIN_LABEL: "true"}
    response = update(alive(), old=old, new={}, pod=owner)
    assert response["allowed"]
    assert "patch" not in response


@pytest.mark.regression
@pytest.mark.parametrize(
    "new", [None, {}, {"mine": "yes", "other": "no"}, {"mine": "yes", DRAIN_LABEL: "true"}]
)
def test_an_update_that_drops_more_than_the_two_labels_of_a_drained_object_gets_both_back(
    new: dict[str, str] | None,
) -> None:
    response = update(alive(), old={DRAIN_LABEL: "true", "mine": "yes"}, new=new, pod="z")
    assert response["status"]["message"] == "restoring shard label"
    assert patched(response, new) == {**(new or {}), SHARD_LABEL: "z", DRAIN_LABEL: "true"}


@pytest.mark.regression
def test_an_object_whose_numbers_are_out_of_range_is_not_given_up_by_mistake() -> None:
    old = website(labels={SHARD_LABEL: "z", DRAIN_LABEL: "true"})
    raw = json.dumps(
        {
            "apiVersion": "admission.k8s.io/v1",
            "request": {
                "uid": "1234",
                "operation": "UPDATE",
                "resource": {"group": WEBSITES.group, "version": "v1", "resource": WEBSITES.resource},
                "object": {**website(), "spec": {"number": 7}},
                "oldObject": {**old, "spec": {"number": 7}},
            },
        }
    )
    review = decode_review(raw.replace("7", "9" * 5000).encode(), "/webhooks/sharder/controllerring/operator")
    assert ShardAdmission(alive().rings(), SystemClock())(review.request).patch[-1]["value"] in (
        "z",
        {SHARD_LABEL: "z", DRAIN_LABEL: "true"},
    )


REFUSED = {
    "without drain label, by the shard itself": {"pod": "z"},
    "without drain label, by a listed account": {"user": "op", "shard_users": {"op"}},
    "with drain label, by another shard's pod": {"pod": "a", "old": {DRAIN_LABEL: "true"}},
    "with drain label, by another shard's pod with a listed account": {
        "old": {DRAIN_LABEL: "true"},
        "shard_users": {"op"},
        "user": "op",
        "pod": "a",
    },
    "with drain label, by an account that is not listed": {
        "old": {DRAIN_LABEL: "true"},
        "shard_users": {"op"},
    },
    "with drain label, by an unlisted account's pod": {
        "old": {DRAIN_LABEL: "true"},
        "shard_users": {"op"},
        "pod": "other",
    },
    "with drain label, by a tool that names itself": {
        "old": {DRAIN_LABEL: "true"},
        "manager": "kubectl-replace",
    },
    "with drain label, by anyone but a shard that signs": {"old": {DRAIN_LABEL: "true"}, "signing": "z"},
    "with drain label, by another shard that signs": {
        "old": {DRAIN_LABEL: "true"},
        "signing": "az",
        "manager": "a",
    },
    "with drain label, under the shard's name by an account that is not listed": {
        "old": {DRAIN_LABEL: "true"},
        "signing": "z",
        "manager": "z",
        "shard_users": {"op"},
    },
}


@pytest.mark.parametrize("options", REFUSED.values(), ids=REFUSED)
def test_what_is_no_acknowledgement_is_put_back(options: dict[str, Any]) -> None:
    assert update(alive(), new={}, **options)["status"]["message"] == "restoring shard label"


@pytest.mark.regression
@pytest.mark.parametrize("manager", ["", "z"])
def test_where_a_shard_has_been_seen_as_the_pod_of_its_name_only_the_shards_pod_acknowledges(
    manager: str,
) -> None:
    view = alive()
    view.signing = {manager}
    handler = ShardAdmission(view.rings(), SystemClock())

    def acknowledged(**options: str) -> bool:
        response = update(
            alive(), old={DRAIN_LABEL: "true"}, new={}, manager=manager, handler=handler, **options
        )
        return response["status"]["message"] == "assigning object"

    assert acknowledged()
    child = config_map(owner())
    ask(object=child, resource=CONFIG_MAPS, handler=handler, userInfo={"extra": {POD_NAME_CLAIM: ["a"]}})
    assert not acknowledged()
    assert not acknowledged(pod="other")
    assert acknowledged(pod="z")


def test_where_shards_are_pods_a_process_of_a_pod_acknowledges_as_the_shard_with_its_number() -> None:
    view = View("a", "pod-1")
    handler = ShardAdmission(view.rings(), SystemClock())
    seen = {"extra": {POD_NAME_CLAIM: ["a"]}}
    ask(object=config_map(owner()), resource=CONFIG_MAPS, handler=handler, userInfo=seen)

    def acknowledged(pod: str) -> bool:
        old = {SHARD_LABEL: "pod-1", DRAIN_LABEL: "true"}
        response = update(view, old=old, new={}, pod=pod, manager="pod-1", handler=handler)
        return response["status"]["message"] != "restoring shard label"

    assert acknowledged("pod")
    assert not acknowledged("po")
    assert not acknowledged("a")


def test_a_shard_outside_a_pod_acknowledges_when_no_shard_is_there_any_more_that_was_seen_as_a_pod() -> None:
    view = View("a", "z")
    handler = ShardAdmission(view.rings(), SystemClock())
    pod = {"extra": {POD_NAME_CLAIM: ["a"]}}
    ask(object=config_map(owner()), resource=CONFIG_MAPS, handler=handler, userInfo=pod)

    def acknowledged() -> bool:
        response = update(view, old={DRAIN_LABEL: "true"}, new={}, manager="z", handler=handler)
        return response["status"]["message"] != "restoring shard label"

    assert not acknowledged()
    view.shards = ("y", "z")
    assert acknowledged()


def test_a_shard_that_is_back_under_its_name_need_not_be_in_a_pod_any_more() -> None:
    view = View("a", "z")
    handler = ShardAdmission(view.rings(), SystemClock())
    pod = {"extra": {POD_NAME_CLAIM: ["a"]}}
    ask(object=config_map(owner()), resource=CONFIG_MAPS, handler=handler, userInfo=pod)
    view.shards = ("z",)
    ask(object=config_map(owner()), resource=CONFIG_MAPS, handler=handler)
    view.shards = ("a", "z")
    response = update(view, old={DRAIN_LABEL: "true"}, new={}, manager="z", handler=handler)
    assert response["status"]["message"] != "restoring shard label"


OWN_NAME = {
    "by its pod": {"pod": "z", "manager": "z"},
    "by a listed account": {"user": "op", "shard_users": {"op"}, "manager": "z"},
    "by a shard that signs": {"signing": "z", "manager": "z"},
    "outside a pod, by a shard whose Lease says nothing": {"manager": "z"},
}
NOT_BY_THE_SHARD = {
    "by another shard's pod under its name": {"pod": "a", "manager": "z"},
    "by an account that is not listed, under its name": {"shard_users": {"op"}, "manager": "z"},
    "by a tool that names itself": {"manager": "kubectl-edit"},
    "by who says nothing": {},
    "by the shard that has it": {"pod": "a", "manager": "a"},
}


@pytest.mark.parametrize("drained", [False, True])
@pytest.mark.parametrize("options", OWN_NAME.values(), ids=OWN_NAME)
def test_a_shard_may_put_its_own_name_back(options: dict[str, Any], drained: bool) -> None:
    drain = {DRAIN_LABEL: "true"} if drained else {}
    new = {SHARD_LABEL: "z", **drain}
    response = update(alive(), old={SHARD_LABEL: "a"}, new=new, **options)
    assert response["status"]["message"] == "object is already assigned"
    assert "patch" not in response
    assert "warnings" not in response


@pytest.mark.parametrize("options", NOT_BY_THE_SHARD.values(), ids=NOT_BY_THE_SHARD)
def test_nobody_else_may_put_a_shards_name_there(options: dict[str, Any]) -> None:
    new = {SHARD_LABEL: "z", "app": "x"}
    response = update(alive(), old={SHARD_LABEL: "a"}, new=new, **options)
    assert response["status"]["message"] == "restoring shard label"
    assert patched(response, new) == {SHARD_LABEL: "a", "app": "x"}


def test_where_shards_are_pods_a_name_is_put_back_by_the_pod_of_that_name_only() -> None:
    handler = ShardAdmission(alive().rings(), SystemClock())
    ask(
        object=config_map(owner()),
        resource=CONFIG_MAPS,
        handler=handler,
        userInfo={"extra": {POD_NAME_CLAIM: ["a"]}},
    )

    def message(pod: str) -> str:
        response = update(
            alive(),
            old={SHARD_LABEL: "a"},
            new={SHARD_LABEL: "z"},
            pod=pod,
            manager="z",
            handler=handler,
        )
        return str(response["status"]["message"])

    assert message("z") == "object is already assigned"
    assert message("") == message("other") == "restoring shard label"


def test_a_sharder_may_move() -> None:
    assert update(alive(), new={}, user=SHARDER)["status"]["message"] == "assigning object"


def test_the_label_of_a_shard_that_is_not_available_may_go() -> None:
    assert update(View("a", "b"), new={})["status"]["message"] == "assigning object"
    assert update(View("a"), new={}, old={DRAIN_LABEL: ""})["status"]["message"] == "assigning object"


def test_a_view_that_may_be_wrong_does_not_let_the_label_go() -> None:
    view = View("a", "b")
    stale(view)
    assert update(view, new={})["status"]["message"] == "restoring shard label"


OWNERS = {target(f"webhosting.timebertt.dev/Website/bar/{name}"): str(name) for name in range(20)}
"""The name of an owner on each shard."""


def reown(before: dict[str, Any], after: dict[str, Any], **request: Any) -> dict[str, Any]:
    """A user gives a ConfigMap of shard a to another owner."""
    labels = {SHARD_LABEL: "a"}
    old, new = config_map(before, labels=labels), config_map(after, labels=labels)
    request = {"resource": CONFIG_MAPS, **request}
    return ask(object=new, oldObject=old, operation="UPDATE", **request)


@pytest.mark.parametrize("shard", ["b", "c"])
def test_an_object_that_is_given_to_another_owner_follows_it(shard: str) -> None:
    answer = reown(owner(name=OWNERS["a"]), owner(name=OWNERS[shard]))
    (operation,) = operations(answer)
    assert operation["path"] == "/metadata/labels/shard.alpha.sharding.timebertt.dev~1operator"
    assert operation["value"] == shard


@pytest.mark.parametrize(
    ("after", "request_"),
    [
        ({"name": OWNERS["a"], "blockOwnerDeletion": True}, {}),
        ({"name": OWNERS["b"], "controller": False}, {}),
        ({"name": OWNERS["b"], "kind": "Foreign"}, {}),
        ({"name": OWNERS["b"]}, {"view": View(fresh=False)}),
        ({"name": OWNERS["b"]}, {"resource": WEBSITES}),
    ],
    ids=[
        "the same owner",
        "no controller",
        "a foreign owner",
        "a stale view",
        "a main object",
    ],
)
def test_an_object_that_need_not_follow_another_owner_stays(
    after: dict[str, Any], request_: dict[str, Any]
) -> None:
    assert not operations(reown(owner(name=OWNERS["a"]), owner(**after), **request_))


def test_an_update_of_an_object_that_had_no_shard_is_assigned() -> None:
    response = update(alive(), old={SHARD_LABEL: ""}, new={})
    assert response["status"]["message"] == "assigning object"


IS_FROM, MAY_EXCHANGE = ShardAdmission._is_from, ShardAdmission._may_exchange


def _seeing(**fields: Any) -> Callable[..., bool]:
    """`_is_from` of a request with these fields."""
    return lambda self, shard, ring, view, request: IS_FROM(
        self, shard, ring, view, msgspec.structs.replace(request, **fields)
    )


def _knowing(**attributes: Any) -> Callable[..., bool]:
    """`_is_from` of a handler with these attributes."""

    def is_from(self: ShardAdmission, *args: Any) -> bool:
        known = copy(self)
        known.__dict__.update(attributes)
        return IS_FROM(known, *args)

    return is_from


def _of_no_pods(self: ShardAdmission, shard: str, ring: Ring, *args: Any) -> bool:
    self._of(ring).pods = frozenset()
    return IS_FROM(self, shard, ring, *args)


def _as_if_drained(self: ShardAdmission, request: Any, ring: Ring, view: Any, old: ObjectMeta) -> bool:
    labels = {**(old.labels or {}), DRAIN_LABEL: "true"}
    return MAY_EXCHANGE(self, request, ring, view, msgspec.structs.replace(old, labels=labels))


def _as_if_signed(self: ShardAdmission, request: Any, *args: Any) -> bool:
    manager = request.object.metadata.label(SHARD_LABEL)
    return MAY_EXCHANGE(self, msgspec.structs.replace(request, field_manager=manager), *args)


def _refusing(case: str) -> Callable[[], None]:
    return lambda: test_what_is_no_acknowledgement_is_put_back(REFUSED[case])


def _keeping(new: dict[str, str] | None) -> Callable[[], None]:
    return lambda: test_an_update_that_drops_more_than_the_two_labels_of_a_drained_object_gets_both_back(new)


def _nobody_else(case: str) -> Callable[[], None]:
    return lambda: test_nobody_else_may_put_a_shards_name_there(NOT_BY_THE_SHARD[case])


GUARDS: dict[str, tuple[object, str, object, Callable[[], None]]] = {
    "the drain was asked for": (
        ShardAdmission,
        "_may_exchange",
        _as_if_drained,
        _nobody_else("by the shard that has it"),
    ),
    "the caller is not the pod of another shard": (
        ShardAdmission,
        "_is_from",
        _seeing(user=UserInfo(username="op")),
        _refusing("with drain label, by another shard's pod with a listed account"),
    ),
    "the account is listed": (
        ShardAdmission,
        "_is_from",
        _knowing(_shard_users={}),
        _refusing("with drain label, by an account that is not listed"),
    ),
    "the shards are pods": (
        ShardAdmission,
        "_is_from",
        _of_no_pods,
        lambda: test_where_a_shard_has_been_seen_as_the_pod_of_its_name_only_the_shards_pod_acknowledges(""),
    ),
    "the client is no tool that names itself": (
        ShardAdmission,
        "_is_from",
        _seeing(field_manager=""),
        _refusing("with drain label, by a tool that names itself"),
    ),
    "the shard signs": (
        View,
        "signs",
        lambda self, ring, shard: False,
        _refusing("with drain label, by anyone but a shard that signs"),
    ),
    "nothing else is changed": (
        admission,
        "_is_acknowledgement",
        lambda request, view: True,
        _keeping({"mine": "yes", "other": "no"}),
    ),
    "the shard is available": (
        ShardAdmission,
        "_must_keep",
        lambda *_: False,
        lambda: test_a_removed_shard_label_is_put_back_with_a_warning_and_a_count(None),
    ),
    "the view is fresh": (
        View,
        "fresh",
        lambda self, now: True,
        test_a_view_that_may_be_wrong_does_not_let_the_label_go,
    ),
    "only the shard puts its name back": (
        ShardAdmission,
        "_may_exchange",
        lambda *_: True,
        _nobody_else("by the shard that has it"),
    ),
    "it does so under its name": (
        ShardAdmission,
        "_may_exchange",
        _as_if_signed,
        _nobody_else("by who says nothing"),
    ),
    "who puts it back is the shard": (
        ShardAdmission,
        "_is_from",
        lambda *_: True,
        _nobody_else("by another shard's pod under its name"),
    ),
}


@pytest.mark.parametrize(("where", "name", "off", "test"), GUARDS.values(), ids=GUARDS)
def test_without_one_of_the_guards_its_test_fails(
    where: object, name: str, off: object, test: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    test()
    monkeypatch.setattr(where, name, off)
    with pytest.raises(AssertionError):
        test()


LABELS = st.none() | st.dictionaries(
    st.sampled_from([SHARD_LABEL, DRAIN_LABEL, "x"]), st.sampled_from(["", "a", "z", "true"])
)


@given(
    labels=LABELS,
    old=LABELS,
    name=st.sampled_from(["", "foo"]),
    generate=st.sampled_from(["", "foo-"]),
    operation=st.sampled_from(["CREATE", "UPDATE", "DELETE"]),
    user=st.sampled_from(["jane", SHARDER]),
    resource=st.sampled_from([WEBSITES, CONFIG_MAPS, GroupResource("", "pods")]),
    shards=st.sets(st.sampled_from(["a", "b", "z"])),
    fresh=st.booleans(),
    ring=st.booleans(),
)
def test_no_request_is_denied_and_every_patch_only_sets_the_two_labels(
    labels: dict[str, str] | None,
    old: dict[str, str] | None,
    name: str,
    generate: str,
    operation: str,
    user: str,
    resource: GroupResource,
    shards: set[str],
    fresh: bool,
    ring: bool,
) -> None:
    view = View(fresh=fresh)
    view.shards = tuple(sorted(shards))
    if not ring:
        view.ring_object = None
    object = website(labels=labels, name=name, generateName=generate, ownerReferences=[owner()])
    response = ask(
        view,
        object,
        resource=resource,
        operation=operation,
        oldObject=website(labels=old, ownerReferences=[owner()]),
        userInfo={"username": user},
    )
    assert response["allowed"] is True
    document = json.loads(json.dumps(object))
    if labels is None:
        del document["metadata"]["labels"]
    after = apply_json_patch(document, operations(response))["metadata"].get("labels") or {}
    changed = {key for key in {*after, *(labels or {})} if after.get(key) != (labels or {}).get(key)}
    assert changed <= {SHARD_LABEL, DRAIN_LABEL}
    if (labels or {}).get(SHARD_LABEL):  # it stays, or is what it was before the update
        assert all(after[key] == (old or {}).get(key) for key in changed)
        assert not changed or user != SHARDER
