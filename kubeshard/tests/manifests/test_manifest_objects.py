"""Requirements that the objects meet with any values."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from kubeshard.core.errors import ConfigurationError
from kubeshard.manifests.sharder import sharder_objects
from kubeshard.manifests.values import SharderValues, chosen

SETS = {
    "default": [],
    "cert-manager": ["certManager.enabled=true"],
    "everything": [
        "certManager.enabled=true",
        "networkPolicy.enabled=true",
        "serviceMonitor.enabled=true",
        "namespace=elsewhere",
    ],
}

Object = dict[str, Any]


@pytest.fixture(params=SETS.values(), ids=SETS)
def objects(request: pytest.FixtureRequest) -> list[Object]:
    return sharder_objects(chosen(SharderValues, None, request.param))


def of(objects: list[Object], kind: str) -> Iterator[Object]:
    return (obj for obj in objects if obj["kind"] == kind)


def test_pods_fit_into_a_restricted_namespace(objects: list[Object]) -> None:
    """Checks the fields that this level of the Pod Security Standards requires."""
    (deployment,) = of(objects, "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 65532
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    for container in pod["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    assert {kind for volume in pod["volumes"] for kind in volume} <= {"name", "configMap", "secret"}
    assert not any(mount["mountPath"].startswith("/tmp") for mount in pod["containers"][0]["volumeMounts"])


def test_nothing_is_granted_by_wildcard_or_beyond_what_it_says(objects: list[Object]) -> None:
    roles = [*of(objects, "ClusterRole"), *of(objects, "Role")]
    verbs = {verb for role in roles for rule in role["rules"] for verb in rule["verbs"]}
    assert not verbs & {"*", "escalate", "bind", "impersonate", "deletecollection"}
    resources = [
        resource for role in roles for rule in role["rules"] for resource in rule.get("resources", ())
    ]
    assert "*" not in resources
    assert not [role for role in roles if "aggregationRule" in role or "labels" not in role["metadata"]]


def test_everything_selects_the_sharders_pods(objects: list[Object]) -> None:
    labels = {"app.kubernetes.io/name": "controller-sharding", "app.kubernetes.io/component": "sharder"}
    (deployment,), (service,), (budget,) = (
        of(objects, kind) for kind in ("Deployment", "Service", "PodDisruptionBudget")
    )
    assert deployment["spec"]["template"]["metadata"]["labels"] == labels
    assert deployment["spec"]["selector"] == budget["spec"]["selector"] == {"matchLabels": labels}
    assert service["spec"]["selector"] == labels
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    ports = {port["name"] for port in container["ports"]}
    assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    assert container["readinessProbe"]["httpGet"]["port"] in ports


def test_a_network_policy_opens_what_the_sharder_serves_to_others_than_the_kubelet() -> None:
    found = sharder_objects(chosen(SharderValues, None, ["networkPolicy.enabled=true"]))
    (policy,), (deployment,), (service,) = (
        of(found, kind) for kind in ("NetworkPolicy", "Deployment", "Service")
    )
    template = deployment["spec"]["template"]
    assert policy["spec"]["podSelector"]["matchLabels"] == template["metadata"]["labels"]
    ingress = policy["spec"]["ingress"]
    assert not [inward for inward in ingress if inward.keys() != {"ports"}]
    ports = {port["port"] for inward in ingress for port in inward["ports"]}
    assert ports == {port["targetPort"] for port in service["spec"]["ports"]}
    assert ports == {port["name"] for port in template["spec"]["containers"][0]["ports"]} - {"health"}


def test_only_the_control_plane_may_call_the_webhook_where_its_addresses_are_known() -> None:
    addresses, pods = (
        {"ipBlock": {"cidr": "10.0.0.0/28"}},
        {"podSelector": {"matchLabels": {"app": "tunnel"}}},
    )
    settings = [
        "networkPolicy.enabled=true",
        f"networkPolicy.controlPlane={json.dumps([addresses, pods])}",
    ]
    (policy,) = of(sharder_objects(chosen(SharderValues, None, settings)), "NetworkPolicy")
    assert policy["spec"]["ingress"] == [
        {"ports": [{"protocol": "TCP", "port": "webhook"}], "from": [addresses, pods]},
        {"ports": [{"protocol": "TCP", "port": "metrics"}]},
    ]


def test_a_control_plane_is_given_as_addresses() -> None:
    with pytest.raises(ConfigurationError, match=r"expected addresses, as in 10\.0\.0\.0/28"):
        chosen(SharderValues, None, ["networkPolicy.controlPlane=[{ipBlock: {cidr: api.example.com}}]"])


def test_a_scraper_verifies_the_sharder_by_the_secret_with_its_certificate() -> None:
    for settings, secret in (
        (["certManager.enabled=true"], "webhook-server"),
        ([], "sharder-webhook-cert"),
    ):
        settings = [*settings, "serviceMonitor.enabled=true", "namespace=elsewhere"]
        (monitor,) = of(sharder_objects(chosen(SharderValues, None, settings)), "ServiceMonitor")
        assert monitor["spec"]["endpoints"][0]["tlsConfig"] == {
            "ca": {"secret": {"name": secret, "key": "ca.crt"}},
            "serverName": "sharder.elsewhere.svc",
        }


def test_a_changed_configuration_restarts_the_pods() -> None:
    def checksum(*settings: str) -> str:
        (deployment,) = of(sharder_objects(chosen(SharderValues, None, settings)), "Deployment")
        found: str = deployment["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
        return found

    assert checksum() == checksum("replicas=5")
    assert checksum() != checksum("config.controller.sharder.syncPeriod=10m")


def test_with_cert_manager_the_sharder_may_read_no_secret() -> None:
    found = sharder_objects(chosen(SharderValues, None, ["certManager.enabled=true"]))
    roles = [*of(found, "ClusterRole"), *of(found, "Role")]
    assert not [role for role in roles for rule in role["rules"] if "secrets" in rule.get("resources", ())]
