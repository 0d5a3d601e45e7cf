"""The planner's table, classification of resources, and the ControllerRing type."""

from types import SimpleNamespace

import msgspec
import pytest

from kubeshard.core.encoding import encode
from kubeshard.core.kinds import GroupKind, GroupResource, TypeMeta
from kubeshard.core.objects import ObjectMeta, OwnerReference
from kubeshard.sharding.api import ControllerRing, RingGroupResource, RingResource
from kubeshard.sharding.crd import controller_ring_crd
from kubeshard.sharding.hash_ring import HashRing
from kubeshard.sharding.names import ring_of_webhook_path, webhook_path
from kubeshard.sharding.planner import Action, Decision, RingView, plan
from kubeshard.sharding.ring_resources import OwnerKind, ResourceNotInRing, RingEntry, RingResources

SHARD, DRAIN = "shard.alpha.sharding.timebertt.dev/ring", "drain.alpha.sharding.timebertt.dev/ring"
SECRET, CONFIG_MAP = TypeMeta("v1", "Secret"), TypeMeta("v1", "ConfigMap")
MAIN = RingEntry(GroupResource("", "secrets"))
CHILD = RingEntry(GroupResource("", "configmaps"), frozenset({MAIN.resource}))
KEY = "/Secret/default/foo"


def view(*shards: str, **more: object) -> RingView:
    return RingView("ring", RingResources(()), HashRing(shards or ("shard-0", "shard-1", "shard-2")), **more)


def secret(**labels: str) -> ObjectMeta:
    """Returns a Secret whose target is shard-1."""
    return ObjectMeta(name="foo", namespace="default", labels=labels or None)


def config_map(kind: str = "Secret", **labels: str) -> ObjectMeta:
    owner = OwnerReference(api_version="v1", kind=kind, name="foo", uid="u", controller=True)
    return ObjectMeta(name="sum", namespace="default", labels=labels, owner_references=(owner,))


@pytest.mark.parametrize(
    ("what", "labels", "expected"),
    [
        ("unassigned", {}, Action.ASSIGN),
        ("an empty label is unassigned", {SHARD: ""}, Action.ASSIGN),
        ("at its target", {SHARD: "shard-1"}, Action.NOTHING),
        ("at its target with a leftover drain label", {SHARD: "shard-1", DRAIN: "true"}, Action.NOTHING),
        ("on another live shard", {SHARD: "shard-0"}, Action.DRAIN),
        ("already asked to drain", {SHARD: "shard-0", DRAIN: ""}, Action.WAIT),
        ("on a dead shard", {SHARD: "gone"}, Action.MOVE),
        ("on a shard that died while draining", {SHARD: "gone", DRAIN: "true"}, Action.MOVE),
    ],
)
def test_main_objects_are_drained_from_live_shards_and_moved_from_dead_ones(
    what: str, labels: dict[str, str], expected: Action
) -> None:
    decision = plan(view(), MAIN, SECRET, secret(**labels))
    assert decision.action is expected
    assert decision.target == "shard-1"
    assert decision.key == KEY


@pytest.mark.parametrize(
    ("labels", "draining", "expected"),
    [
        ({}, (), Action.ASSIGN),
        ({SHARD: "shard-1"}, (), Action.NOTHING),
        ({SHARD: "shard-0"}, (), Action.MOVE),
        ({SHARD: "shard-0"}, {KEY}, Action.WAIT),
        ({SHARD: "gone"}, {KEY}, Action.MOVE),
    ],
)
def test_controlled_objects_follow_their_owner_and_are_never_drained(
    labels: dict[str, str], draining: set[str], expected: Action
) -> None:
    """A8 in docs/defects.md."""
    decision = plan(view(), CHILD, CONFIG_MAP, config_map(**labels), draining=draining)
    assert decision.action is expected
    assert decision.target == "shard-1"


def test_owner_and_controlled_object_share_a_shard() -> None:
    assert plan(view(), MAIN, SECRET, secret()).target == plan(view(), CHILD, CONFIG_MAP, config_map()).target


def test_a_controlled_object_without_controller_is_left_alone() -> None:
    meta = ObjectMeta(name="plain", namespace="default")
    assert plan(view(), CHILD, CONFIG_MAP, meta) == Decision(
        Action.NOTHING, reason="object should not be assigned"
    )


def test_a_foreign_controllers_objects_are_left_alone_where_the_owners_kind_is_known() -> None:
    known = view(
        owner_kinds={CHILD.resource: {GroupKind("", "Secret"): OwnerKind(MAIN.resource, True, True)}}
    )
    assert plan(known, CHILD, CONFIG_MAP, config_map("Job")).action is Action.NOTHING
    assert plan(known, CHILD, CONFIG_MAP, config_map("Secret")).action is Action.ASSIGN
    assert plan(view(), CHILD, CONFIG_MAP, config_map("Job")).action is Action.ASSIGN


def test_without_available_shards_nothing_is_touched() -> None:
    empty = RingView("ring", RingResources(()), HashRing())
    for labels in ({}, {SHARD: "gone"}, {SHARD: "gone", DRAIN: "true"}):
        decision = plan(empty, MAIN, SECRET, secret(**labels))
        assert (decision.action, decision.reason) == (Action.NOTHING, "there is no available shard")


@pytest.mark.parametrize(
    ("entry", "meta", "draining", "expected"),
    [
        (MAIN, secret(), (), Action.NOTHING),
        (MAIN, secret(**{SHARD: ""}), (), Action.MOVE),
        (MAIN, secret(**{SHARD: "gone"}), (), Action.MOVE),
        (MAIN, secret(**{SHARD: "gone", DRAIN: "true"}), (), Action.MOVE),
        (MAIN, secret(**{SHARD: "shard-1"}), (), Action.DRAIN),
        (MAIN, secret(**{SHARD: "shard-0", DRAIN: "true"}), (), Action.WAIT),
        (CHILD, config_map(), (), Action.NOTHING),
        (CHILD, config_map(**{SHARD: "shard-1"}), {KEY}, Action.WAIT),
        (CHILD, config_map(**{SHARD: "shard-1"}), (), Action.MOVE),
        (CHILD, config_map(**{SHARD: "gone"}), {KEY}, Action.MOVE),
        (CHILD, ObjectMeta(name="plain", labels={SHARD: "shard-1"}), {KEY}, Action.MOVE),
    ],
)
@pytest.mark.parametrize("shards", [("shard-0", "shard-1", "shard-2"), ()])
def test_a_ring_that_is_cleaned_up_releases_objects_wherever_they_are(
    entry: RingEntry,
    meta: ObjectMeta,
    draining: tuple[str, ...],
    expected: Action,
    shards: tuple[str, ...],
) -> None:
    """Without live shards, all that have a label are released by force."""
    there = RingView(
        "ring", RingResources(()), HashRing(shards), namespaces=frozenset({"other"}), releasing=True
    )
    decision = plan(there, entry, SECRET if entry.main else CONFIG_MAP, meta, draining=draining)
    assert decision.action is (expected if shards or expected is Action.NOTHING else Action.MOVE)
    assert decision.target == ""


def test_the_namespace_selector_does_not_apply_to_cluster_scoped_objects() -> None:
    """A4 in docs/defects.md."""
    narrow = view(namespaces=frozenset({"other"}))
    assert plan(narrow, MAIN, SECRET, secret()).action is Action.NOTHING
    assert plan(narrow, MAIN, TypeMeta("x/v1", "Cluster"), ObjectMeta(name="c")).action is Action.ASSIGN


def test_an_object_that_cannot_be_keyed_is_refused_without_raising() -> None:
    decision = plan(view(), MAIN, SECRET, ObjectMeta(generate_name="x-", namespace="default"))
    assert decision.action is Action.REFUSED
    assert decision.reason.startswith("generateName is not supported")


def test_a_ring_that_is_cleaned_up_releases_what_cannot_be_keyed() -> None:
    meta = ObjectMeta(generate_name="x-", namespace="default", labels={SHARD: "gone"})
    decision = plan(view(releasing=True), MAIN, SECRET, meta)
    assert (decision.action, decision.target, decision.key) == (Action.MOVE, "", "")


@pytest.mark.parametrize("releasing", [False, True])
def test_what_controls_an_objects_controller_is_looked_up_where_it_is_not_known(releasing: bool) -> None:
    middle = OwnerKind(GroupResource("", "middles"), main=False, namespaced=True)
    kinds = {CHILD.resource: {GroupKind("", "Middle"): middle}}
    there = view(owner_kinds=kinds, releasing=releasing)
    decision = plan(there, CHILD, CONFIG_MAP, config_map("Middle", **{SHARD: "shard-0"}))
    assert (decision.action, decision.source) == (Action.LOOK_UP, "shard-0")


def test_a_namespace_is_selected_by_its_own_labels() -> None:
    entry, type_ = RingEntry(GroupResource("", "namespaces")), TypeMeta("v1", "Namespace")
    by_labels = SimpleNamespace(selects=lambda meta: meta.has_label("team"))
    narrow = view(namespaces=frozenset({"a"}), by_labels=by_labels)
    assert plan(narrow, entry, type_, ObjectMeta(name="b", labels={"team": "x"})).action is Action.ASSIGN
    assert plan(narrow, entry, type_, ObjectMeta(name="a")).action is Action.NOTHING


def resource(name: str, *controlled: str, group: str = "") -> RingResource:
    return RingResource(
        group=group,
        resource=name,
        controlled_resources=tuple(RingGroupResource(group="", resource=name) for name in controlled),
    )


def test_resources_come_once_main_before_controlled() -> None:
    resources = RingResources([resource("secrets", "configmaps"), resource("pods", "services")])
    assert [str(entry.resource) for entry in resources.entries] == [
        "secrets",
        "configmaps",
        "pods",
        "services",
    ]
    assert [entry.main for entry in resources.entries] == [True, False, True, False]
    assert resources.problems == ()


def test_a_resource_that_is_both_main_and_controlled_is_main_and_comes_once() -> None:
    """A3 in docs/defects.md."""
    resources = RingResources([resource("deployments", "replicasets"), resource("replicasets", "pods")])
    assert [str(entry.resource) for entry in resources.entries] == ["deployments", "replicasets", "pods"]
    assert resources.entry(GroupResource("", "replicasets")).main
    assert [problem.conflict for problem in resources.problems] == [True]


def test_a_resource_that_several_main_resources_control_comes_once_and_is_no_mistake() -> None:
    resources = RingResources([resource("a", "c"), resource("b", "c")])
    entry = resources.entry(GroupResource("", "c"))
    assert entry.owners == {GroupResource("", "a"), GroupResource("", "b")}
    assert len(resources.entries) == 3
    assert resources.problems == ()


@pytest.mark.parametrize(
    "bad",
    [
        resource("leases", group="coordination.k8s.io"),
        resource("controllerrings", group="sharding.timebertt.dev"),
        resource("mutatingwebhookconfigurations", group="admissionregistration.k8s.io"),
        resource("events"),
        resource("*"),
        resource("pods/status"),
        resource("Pods"),
        resource("pods", group="*"),
        resource("p" * 300),
        resource("pöds"),
        resource(""),
    ],
    ids=lambda bad: str(bad.group_resource)[:30],
)
def test_an_entry_that_nobody_may_shard_is_left_out_and_the_rest_works(bad: RingResource) -> None:
    resources = RingResources([bad, resource("secrets")])
    assert [str(entry.resource) for entry in resources.entries] == ["secrets"]
    assert not resources.problems[0].conflict


def test_a_resource_outside_the_ring_is_refused_in_the_protocols_words() -> None:
    with pytest.raises(ResourceNotInRing) as missing:
        RingResources([]).entry(GroupResource("apps", "deployments"))
    assert str(missing.value) == 'object\'s resource "deployments.apps" was not found in ControllerRing'


def test_webhook_paths_are_read_back_and_others_refused() -> None:
    assert webhook_path("my.ring") == "/webhooks/sharder/controllerring/my.ring"
    assert ring_of_webhook_path("/webhooks/sharder/controllerring/my.ring") == "my.ring"
    for path in ("/", "/webhooks/sharder/controllerring/", "/other/ring"):
        with pytest.raises(ValueError, match=f"^unexpected request path: {path}$"):
            ring_of_webhook_path(path)


def test_a_ring_survives_the_wire_with_what_the_schema_requires() -> None:
    text = b"""{"apiVersion":"sharding.timebertt.dev/v1alpha1","kind":"ControllerRing","metadata":{"name":"r"},
      "spec":{"resources":[{"group":"","resource":"secrets",
                "controlledResources":[{"group":"","resource":"configmaps"}]}],
              "namespaceSelector":{}},
      "status":{"shards":0,"availableShards":0}}"""
    ring = msgspec.json.decode(text, type=ControllerRing)
    again = msgspec.json.decode(encode(ring))
    assert again["status"]["shards"] == again["status"]["availableShards"] == 0
    assert again["spec"]["resources"][0]["group"] == ""
    assert again["spec"]["namespaceSelector"] == {}


def test_the_crd_has_the_columns_rule_and_keys_of_the_protocol() -> None:
    version = controller_ring_crd()["spec"]["versions"][0]
    assert [column["name"] for column in version["additionalPrinterColumns"]] == [
        "Ready",
        "Available",
        "Shards",
        "Age",
    ]
    schema = version["schema"]["openAPIV3Schema"]
    assert schema["x-kubernetes-validations"] == [
        {
            "rule": "size(self.metadata.name) <= 63",
            "message": "ControllerRing name must not be longer than 63 characters",
        }
    ]
    resources = schema["properties"]["spec"]["properties"]["resources"]
    assert resources["x-kubernetes-list-map-keys"] == ["group", "resource"]
    assert schema["properties"]["status"]["required"] == ["availableShards", "shards"]
