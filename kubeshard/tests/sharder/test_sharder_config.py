"""SharderConfig, the webhook configuration and conditions."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from kubeshard.core.builtin import Lease, LeaseSpec
from kubeshard.core.conditions import Condition
from kubeshard.core.errors import ConfigurationError
from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import ObjectMeta
from kubeshard.core.partial_kinds import MutatingWebhookConfiguration
from kubeshard.core.selectors import LabelSelector
from kubeshard.manager.http import Request
from kubeshard.sharder.app import build_sharder
from kubeshard.sharder.config import (
    ServiceReference,
    SharderConfig,
    WebhookClientConfig,
    WebhookConfig,
    load_sharder_config,
)
from kubeshard.sharder.webhook_config import in_sync, serving_names, webhook_configuration
from kubeshard.sharding.api import ControllerRing, ControllerRingSpec, RingGroupResource, RingResource
from kubeshard.sharding.conditions import RingReport, findings, with_findings
from kubeshard.sharding.names import RING_LABEL
from kubeshard.sharding.ring_resources import RingResources
from kubeshard.sharding.shard_states import ShardStates
from kubeshard.sharding.waiting import Objects
from kubeshard_apiserver.admission.expressions import conditions_hold
from kubeshard_apiserver.testing.memory import MemoryApi

HEAD = "apiVersion: config.sharding.timebertt.dev/v1alpha1\nkind: SharderConfig\n"


def load(tmp_path: Path, text: str, **environ: str) -> tuple[SharderConfig, tuple[str, ...]]:
    path = tmp_path / "config.yaml"
    path.write_text(HEAD + text)
    return load_sharder_config(path, environ)


def test_without_a_file_everything_has_the_protocols_defaults() -> None:
    config, _ = load_sharder_config(None, {})
    assert config.leader_election.leader_elect
    assert (config.election_namespace, config.election_name) == ("sharding-system", "sharder")
    assert (config.health_address, config.metrics_address) == (":8081", ":8080")
    assert config.graceful_shut_down == 15.0
    assert (config.controller.sharder.sync_period, config.controller.sharder.concurrent_moves) == (300.0, 100)
    assert config.client_connection.qps <= 0
    server = config.webhook.server
    assert server.directory.parts[-2:] == ("k8s-webhook-server", "serving-certs")
    assert (server.cert_name, server.key_name) == ("tls.crt", "tls.key")
    (expression,) = config.webhook.config.namespace_selector.match_expressions
    assert (expression.key, expression.operator) == ("kubernetes.io/metadata.name", "NotIn")
    assert expression.values == ("kube-system", "sharding-system")


def test_what_a_file_says_of_namespaces_wins_over_the_pods_namespace(tmp_path: Path) -> None:
    """Also if it says the default: during a migration the other sharder may run there."""
    config, unknown = load(
        tmp_path,
        """
leaderElection: {resourceNamespace: election}
sharders: ["system:serviceaccount:sharding-system:sharder"]
webhook:
  config:
    clientConfig: {service: {namespace: services, name: s}}
    namespaceSelector:
      matchExpressions:
      - {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, sharding-system]}
""",
        POD_NAMESPACE="here",
    )
    assert unknown == ()
    assert config.election_namespace == "election"
    assert config.sharders == ("system:serviceaccount:sharding-system:sharder",)
    service = config.webhook.config.client_config.service
    assert service is not None
    assert (service.namespace, service.name) == ("services", "s")
    (expression,) = config.webhook.config.namespace_selector.match_expressions
    assert expression.values == ("kube-system", "sharding-system")


def test_the_references_shipped_file_is_read(tmp_path: Path) -> None:
    config, unknown = load(
        tmp_path,
        """
webhook:
  config:
    annotations:
      cert-manager.io/inject-ca-from: sharding-system/webhook-server
controller: {sharder: {syncPeriod: 30s, concurrentMoves: 5}}
gracefulShutDown: 1m
""",
    )
    assert unknown == ()
    assert config.webhook.config.annotations == {
        "cert-manager.io/inject-ca-from": "sharding-system/webhook-server"
    }
    assert (config.controller.sharder.sync_period, config.controller.sharder.concurrent_moves) == (30.0, 5)
    assert config.graceful_shut_down == 60.0


@pytest.mark.parametrize(("text", "served"), [("", True), ("debugging: {enableProfiling: false}", False)])
async def test_the_debug_page_can_be_switched_off(tmp_path: Path, text: str, served: bool) -> None:
    config, unknown = load(tmp_path, f"{text}\nwebhook: {{server: {{bindAddress: '0'}}}}\n")
    assert not unknown
    async with MemoryApi().client() as client:
        page = build_sharder(config, client)._process.pages._debug(Request("/debug", "", "127.0.0.1"))
    assert (page is not None) is served


def test_unknown_fields_are_told_and_never_fatal(tmp_path: Path) -> None:
    _, unknown = load(tmp_path, "controller: {sharder: {syncperiod: 30s}}\nfuture: {}\n")
    assert [sentence.split(" (")[0] for sentence in unknown] == [
        "unknown field controller.sharder.syncperiod",
        "unknown field future",
    ]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("controller: {sharder: {concurrentMoves: none}}", "controller.sharder.concurrentMoves"),
        ("controller: {sharder: {concurrentMoves: 0}}", "controller.sharder.concurrentMoves"),
        ("controller: {sharder: {massFailureGrace: -1s}}", "controller.sharder.massFailureGrace"),
        ("controller: {sharder: {syncPeriod: 5x}}", "controller.sharder.syncPeriod"),
        ("leaderElection: {resourceLock: endpoints}", "leaderElection.resourceLock"),
        ("metrics: {bindAddress: localhost}", "metrics.bindAddress"),
        ("health: {bindAddress: '::1:8081'}", "health.bindAddress"),
        ("webhook: {server: {bindAddress: ':99999'}}", "webhook.server.bindAddress"),
        ("webhook: {config: {clientConfig: {url: x, service: {name: y}}}}", "webhook.config.clientConfig"),
        (
            "webhook: {config: {namespaceSelector: {matchExpressions: [{key: a, operator: Bad}]}}}",
            "webhook.config.namespaceSelector",
        ),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_field(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(ConfigurationError, match=named.replace(".", r"\.")):
        load(tmp_path, text)


@pytest.mark.parametrize(("value", "elected"), [("false", False), ("1", True), ("True", True), ("F", False)])
def test_the_environment_overrides_leader_election(value: str, elected: bool) -> None:
    config, _ = load_sharder_config(None, {"LEADER_ELECT": value})
    assert config.leader_election.leader_elect is elected


def test_an_unreadable_environment_variable_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="LEADER_ELECT"):
        load_sharder_config(None, {"LEADER_ELECT": "maybe"})


def ring(*resources: RingResource, selector: LabelSelector | None = None) -> ControllerRing:
    return ControllerRing(
        metadata=ObjectMeta(name="my.ring", uid="uid"),
        spec=ControllerRingSpec(resources=resources, namespace_selector=selector),
    )


WEBSITES = RingResource(
    group="webhosting.timebertt.dev",
    resource="websites",
    controlled_resources=(RingGroupResource(group="", resource="configmaps"),),
)


def test_the_webhook_configuration_is_the_references_field_by_field() -> None:
    """Except for the timeout, which is 5 s there: a webhook that does not respond delayed every creation by that."""
    config = WebhookConfig(annotations={"a": "b"})
    body = webhook_configuration(ring(WEBSITES), config, match_condition=False)
    rule = {"operations": ["CREATE", "UPDATE"], "apiVersions": ["*"], "scope": "*"}
    assert body == {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {
            "name": "controllerring-my.ring",
            "labels": {
                "app.kubernetes.io/name": "controller-sharding",
                "alpha.sharding.timebertt.dev/controllerring": "my.ring",
            },
            "annotations": {"a": "b"},
            "ownerReferences": [
                {
                    "apiVersion": "sharding.timebertt.dev/v1alpha1",
                    "kind": "ControllerRing",
                    "name": "my.ring",
                    "uid": "uid",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "webhooks": [
            {
                "name": "sharder.sharding.timebertt.dev",
                "clientConfig": {
                    "service": {
                        "namespace": "sharding-system",
                        "name": "sharder",
                        "path": "/webhooks/sharder/controllerring/my.ring",
                    }
                },
                "namespaceSelector": {
                    "matchExpressions": [
                        {
                            "key": "kubernetes.io/metadata.name",
                            "operator": "NotIn",
                            "values": ["kube-system", "sharding-system"],
                        }
                    ]
                },
                "objectSelector": {
                    "matchExpressions": [
                        {"key": "shard.alpha.sharding.timebertt.dev/my.ring", "operator": "DoesNotExist"}
                    ]
                },
                "rules": [
                    {**rule, "apiGroups": ["webhosting.timebertt.dev"], "resources": ["websites"]},
                    {**rule, "apiGroups": [""], "resources": ["configmaps"]},
                ],
                "failurePolicy": "Ignore",
                "timeoutSeconds": 2,
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
        ],
    }


def shown(obj: object) -> bool:
    """Whether an API server calls the ring's webhook for an object, as far as the match condition is concerned."""
    (webhook,) = webhook_configuration(ring(WEBSITES), WebhookConfig())["webhooks"]
    variables = {"object": obj, "oldObject": None, "request": {}}
    return conditions_hold(webhook["matchConditions"], ("object", "oldObject", "request"), variables)


@pytest.mark.regression
@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (None, True),
        ({"metadata": {}}, True),
        ({"metadata": {"labels": {}}}, True),
        ({"metadata": {"labels": {"x": "y", "shard.alpha.sharding.timebertt.dev/other": "a"}}}, True),
        ({"metadata": {"labels": {"shard.alpha.sharding.timebertt.dev/my.ring": ""}}}, True),
        ({"metadata": {"labels": {"shard.alpha.sharding.timebertt.dev/my.ring": "a"}}}, False),
    ],
)
def test_the_webhook_is_shown_what_has_no_shard_and_nothing_else(obj: object, expected: bool) -> None:
    assert shown(obj) is expected


@pytest.mark.regression
@pytest.mark.parametrize(
    ("old", "new", "user", "expected"),
    [
        ("a", "b", "jane", True),
        ("a", "b", "system:serviceaccount:sharding-system:sharder", False),
        ("a", "a", "jane", False),
        ("a", "", "jane", True),
        ("a", None, "jane", False),
        ("", "a", "jane", False),
        (None, "a", "jane", False),
        (None, None, "jane", False),
    ],
)
def test_another_webhook_is_shown_updates_that_change_the_shard_unless_a_sharder_does_it(
    old: str | None, new: str | None, user: str, expected: bool
) -> None:
    sharders = ("system:serviceaccount:sharding-system:sharder", "x")
    webhook, _ = webhook_configuration(ring(WEBSITES), WebhookConfig(), sharders=sharders)["webhooks"]
    label = "shard.alpha.sharding.timebertt.dev/my.ring"

    def labelled(shard: str | None) -> dict[str, object]:
        return {"metadata": {} if shard is None else {"labels": {"x": "y", label: shard}}}

    variables = {
        "object": labelled(new),
        "oldObject": labelled(old),
        "request": {"userInfo": {"username": user}},
    }
    assert conditions_hold(webhook["matchConditions"], tuple(variables), variables) is expected
    assert {rule["operations"][0] for rule in webhook["rules"]} == {"UPDATE"}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            WebhookClientConfig(url="https://host:9443/"),
            {"url": "https://host:9443/webhooks/sharder/controllerring/my.ring"},
        ),
        (
            WebhookClientConfig(service=ServiceReference(name="other", port=8443), ca_bundle="Q0E="),
            {
                "caBundle": "Q0E=",
                "service": {
                    "namespace": "sharding-system",
                    "name": "other",
                    "path": "/webhooks/sharder/controllerring/my.ring",
                    "port": 8443,
                },
            },
        ),
    ],
)
def test_url_and_service_get_the_rings_path(config: WebhookClientConfig, expected: dict[str, object]) -> None:
    (webhook,) = webhook_configuration(ring(), WebhookConfig(client_config=config))["webhooks"]
    assert webhook["clientConfig"] == expected


def test_the_rings_selector_replaces_the_default_even_when_it_is_empty() -> None:
    (webhook,) = webhook_configuration(ring(selector=LabelSelector()), WebhookConfig())["webhooks"]
    assert webhook["namespaceSelector"] == {}


def test_a_ring_without_usable_resources_matches_nothing_rather_than_everything() -> None:
    for resources in ((), (RingResource(group="", resource="*"),)):
        (webhook,) = webhook_configuration(ring(*resources), WebhookConfig())["webhooks"]
        assert webhook["rules"] == []


def test_defaults_and_an_injected_ca_bundle_are_no_drift_but_edits_are() -> None:
    """A16 in docs/defects.md."""
    desired = webhook_configuration(ring(WEBSITES), WebhookConfig())

    def actual(**webhook: object) -> MutatingWebhookConfiguration:
        body = msgspec.json.decode(msgspec.json.encode(desired))
        body["webhooks"][0] |= webhook
        body["webhooks"][0]["clientConfig"]["caBundle"] = "Q0E="
        return msgspec.convert(body, MutatingWebhookConfiguration)

    assert in_sync(actual(matchPolicy="Equivalent", reinvocationPolicy="Never"), desired)
    assert not in_sync(actual(failurePolicy="Fail"), desired)
    assert not in_sync(actual(rules=[]), desired)
    assert not in_sync(actual(matchConditions=[]), desired)
    assert not in_sync(None, desired)
    ours = desired["webhooks"][0]["matchConditions"]
    assert in_sync(actual(matchConditions=[{"name": "others", "expression": "true"}, *ours]), desired)


def conditions_of(
    report: RingReport, resources: RingResources, states: ShardStates | None = None
) -> dict[str, str]:
    shards = states.shards("ring", 0.0) if states else []
    found = findings(report, resources, shards)
    return {condition.type: condition.message for condition in found}


def test_without_mistakes_there_is_nothing_beside_ready() -> None:
    assert conditions_of(RingReport(), RingResources([WEBSITES])) == {}


def test_every_mistake_has_its_condition() -> None:
    report = RingReport()
    secrets = GroupResource("", "secrets")
    report.resolved(secrets, "the server does not serve secrets")
    report.permitted(secrets, "watch", False)
    report.permitted(secrets, "patch", False)
    report.selector_problem = "bad operator"
    things = Objects.of(f"secrets n/{number}" for number in range(5))
    report.waiting({"a": things, "gone": things}, {"": things}, {"b": Objects.of(["secrets n/x"])}, {})
    report.strict_handover_problem = "'soon' is not a duration"
    report.webhook_unreached = True
    states = ShardStates()
    for namespace, name in (("n1", "a"), ("n2", "a"), ("n1", "x" * 64)):
        meta = ObjectMeta(name=name, namespace=namespace, labels={RING_LABEL: "ring"})
        states.observe(Lease(metadata=meta, spec=LeaseSpec(holder_identity=name)), 0.0)
    resources = RingResources(
        [
            RingResource(group="", resource="leases*"),
            WEBSITES,
            RingResource(group="", resource="configmaps"),
            RingResource(group="", resource="secrets"),
        ]
    )
    found = conditions_of(report, resources, states)
    assert set(found) == {
        "Conflict",
        "ResourcesAccepted",
        "ResourcesResolved",
        "Permitted",
        "SelectorValid",
        "ShardsAccepted",
        "WebhookReached",
        "DrainStuck",
        "ConfirmationAwaited",
        "StrictHandoverAccepted",
    }
    assert found["DrainStuck"].startswith("5 objects")
    assert "a (secrets n/0, secrets n/1, secrets n/2 and 2 more)" in found["DrainStuck"]
    assert "gone" not in found["DrainStuck"]
    assert "b (secrets n/x)" in found["ConfirmationAwaited"]
    assert 'resources: ["secrets"], verbs: [patch, watch]' in found["Permitted"]


def test_objects_that_cannot_be_given_to_a_shard_are_named_unless_a_missing_right_explains_it() -> None:
    report, resources = RingReport(), RingResources([WEBSITES])
    stuck = Objects.of(f"websites n/{number}" for number in (4, 3, 2, 1))
    report.waiting({}, {"": stuck}, {}, {})
    text = conditions_of(report, resources)["AssignmentStuck"]
    assert text.startswith("4 objects")
    assert text.endswith(": websites n/1, websites n/2, websites n/3 and 1 more")
    report.permitted(WEBSITES.group_resource, "patch", False)
    assert set(conditions_of(report, resources)) == {"Permitted"}
    report.permitted(WEBSITES.group_resource, "patch", True)
    report.waiting({}, {}, {}, {})
    assert conditions_of(report, resources) == {}


def test_findings_about_a_resource_end_when_the_ring_no_longer_has_it() -> None:
    report = RingReport()
    gone = GroupResource("", "nopes")
    report.resolved(gone, "the server does not serve nopes")
    report.permitted(gone, "watch", False)
    with_it = RingResources([WEBSITES, RingResource(group="", resource="nopes")])
    assert set(conditions_of(report, with_it)) == {"ResourcesResolved", "Permitted"}
    assert conditions_of(report, RingResources([WEBSITES])) == {}


def test_a_mended_mistake_takes_its_condition_away_and_leaves_others() -> None:
    kept = (Condition(type="Ready", status="True"), Condition(type="Foreign", status="True"))
    assert with_findings((*kept, Condition(type="Conflict", status="True")), []) == kept


def test_listeners_hear_of_news_only() -> None:
    class News:
        def tell(self, ring: str) -> None:
            heard.append(ring)

    heard: list[str] = []
    report = RingReport("ring", News())
    for _ in range(3):
        report.permitted(GroupResource("", "secrets"), "watch", False)
        report.waiting({"a": Objects.of(["x"])}, {}, {}, {})
    assert heard == ["ring", "ring"]
    report.permitted(GroupResource("", "secrets"), "watch", True)
    assert len(heard) == 3


@pytest.mark.parametrize(
    ("config", "names"),
    [
        (
            WebhookClientConfig(),
            (
                "sharder.sharding-system.svc",
                "sharder.sharding-system",
                "sharder.sharding-system.svc.cluster.local",
            ),
        ),
        (
            WebhookClientConfig(service=ServiceReference(name="x", namespace="y")),
            ("x.y.svc", "x.y", "x.y.svc.cluster.local"),
        ),
        (WebhookClientConfig(url="https://host.docker.internal:9443/"), ("host.docker.internal",)),
        (WebhookClientConfig(url="https://127.0.0.1:9443"), ("127.0.0.1",)),
    ],
)
def test_the_certificate_is_for_the_names_by_which_api_servers_call(
    config: WebhookClientConfig, names: tuple[str, ...]
) -> None:
    assert serving_names(config) == names
