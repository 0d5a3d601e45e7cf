"""A description (`template`) of the sharder's objects.

Names, labels, ports and the default namespace are those of the Go project, so either sharder can replace the other. A
switch includes or omits all objects of a `Part` together.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kubeshard.core.errors import ConfigurationError
from kubeshard.core.patches import apply_merge_patch
from kubeshard.manager.config_file import parse_config
from kubeshard.manager.roles import metrics_grants, roles
from kubeshard.manifests.network import metrics_reader, network_policy, service_monitor, verified
from kubeshard.manifests.pods import container, pod_spec, spread, system_namespace
from kubeshard.manifests.policies import lease_policy, webhook_policy
from kubeshard.manifests.rights import certificate_grants, sharder_grants
from kubeshard.manifests.template import Chosen, Made, Values, When, resolved
from kubeshard.manifests.values import SharderValues, plain
from kubeshard.sharder.config import API_VERSION, KIND, SharderConfig, validated
from kubeshard.sharder.webhook_config import SECRET_NAME
from kubeshard.sharding.crd import controller_ring_crd
from kubeshard.sharding.names import APP_LABEL, APP_NAME, WEBHOOK_PORT

Manifest = dict[str, Any]

NAME = "sharder"
COMPONENT_LABEL = "app.kubernetes.io/component"
LABELS = {APP_LABEL: APP_NAME, COMPONENT_LABEL: NAME}
NAMESPACE = Chosen("namespace")

CONFIG_PATH = "/config.yaml"
CERTIFICATE = "webhook-server"
CERTIFICATE_PATH = "/certificate"
METRICS_PORT = 8080
HEALTH_PORT = 8081

CERT_MANAGER = "certManager.enabled"

NAMES = tuple(
    Chosen("namespace", each)
    for each in (f"{NAME}.{{}}.svc", f"{NAME}.{{}}", f"{NAME}.{{}}.svc.cluster.local")
)
"""The DNS names of the Service, which are also in its certificate."""


@dataclass(frozen=True, slots=True)
class Part:
    """Objects that belong together. `switch` is the value that includes them."""

    name: str
    objects: tuple[Manifest, ...]
    switch: str = ""
    is_on: bool = True


def parts() -> tuple[Part, ...]:
    """All objects of the sharder, in the order in which they can be created."""
    return (
        Part("namespace", (system_namespace(NAMESPACE, {APP_LABEL: APP_NAME}),), "createNamespace"),
        Part("crd", (_crd(),)),
        Part("rights", tuple(_rights())),
        Part(
            "certificate-rights", tuple(_roles("certificate", certificate_grants(_HERE))), CERT_MANAGER, False
        ),
        Part("sharder", (_config_map(), _service(), _deployment(), _budget())),
        Part("policies", tuple(_policies()), "policies.enabled"),
        Part("cert-manager", (_issuer(), _certificate()), CERT_MANAGER),
        Part(
            "network-policy",
            (network_policy(NAME, NAMESPACE, LABELS, ("webhook", "metrics")),),
            "networkPolicy.enabled",
        ),
        Part(
            "service-monitor",
            (
                metrics_reader("sharding:metrics-reader", LABELS),
                service_monitor(NAME, NAMESPACE, LABELS, verified(Made(_authority, "sharder.ca"), NAMES[0])),
            ),
            "serviceMonitor.enabled",
        ),
    )


def sharder_objects(values: SharderValues, only: Collection[str] = ()) -> list[Manifest]:
    """The objects for these values, of these parts or of all. Raises ConfigurationError for a `config` that the sharder
    would reject, and for a part that does not exist.
    """
    chosen, known = plain(values), [part.name for part in parts()]
    if unknown := set(only).difference(known):
        raise ConfigurationError(f"--part {min(unknown)}: choose one of {', '.join(known)}")
    _check(chosen)
    found = [
        obj
        for part in parts()
        if not only or part.name in only
        if not part.switch or When(part.switch, None, part.is_on).holds(chosen)
        for obj in part.objects
    ]
    return [resolved(obj, chosen) for obj in found]


def base_config() -> Manifest:
    """Fields of SharderConfig that follow from the other values. None of them mentions the namespace, which the sharder
    learns from its pod.
    """
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "webhook": When(
            CERT_MANAGER,
            {
                "config": {
                    "annotations": {"cert-manager.io/inject-ca-from": f"$(POD_NAMESPACE)/{CERTIFICATE}"}
                },
                "server": {"certDir": CERTIFICATE_PATH},
            },
        ),
    }


def config_text(values: Values) -> str:
    """The configuration file. It is JSON, which is also YAML, because Helm renders exactly the same text."""
    config = apply_merge_patch(resolved(base_config(), values), values["config"])
    text = json.dumps(config, indent=2, sort_keys=True, ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _check(values: Values) -> None:
    if _has_null(values["config"]):
        raise ConfigurationError("value config: a field is null: leave it out to get its default")
    try:
        config, unknown = parse_config(config_text(values), SharderConfig, api_version=API_VERSION, kind=KIND)
        validated(config)
    except ConfigurationError as error:
        raise ConfigurationError(f"value config: {error}") from None
    if unknown:
        raise ConfigurationError(f"value config: {'; '.join(unknown)}")
    if values["policies"]["enabled"]:
        _check_policies(config, values["namespace"])


def _has_null(value: Any) -> bool:
    if isinstance(value, Mapping | list):
        return any(map(_has_null, value.values() if isinstance(value, Mapping) else value))
    return value is None


def _check_policies(config: SharderConfig, namespace: str) -> None:
    called = config.webhook.config.client_config
    service = called.service and (called.service.namespace, called.service.name)
    election = config.leader_election
    for field, as_made in {
        "webhook.config.clientConfig": not called.url and service in (None, (namespace, NAME)),
        "leaderElection": config.election_name == NAME and election.resource_namespace in ("", namespace),
    }.items():
        if not as_made:
            raise ConfigurationError(
                f"value config: field {field}: the admission policies only allow the manifests' own value; "
                "leave it out, or set policies.enabled=false"
            )


_HERE = "the-namespace"
"""A placeholder for the chosen namespace while roles are made."""


def _settled(manifest: Any) -> Any:
    if isinstance(manifest, Mapping):
        return {key: _settled(value) for key, value in manifest.items()}
    if isinstance(manifest, list):
        return [_settled(value) for value in manifest]
    return NAMESPACE if manifest == _HERE else manifest


def _roles(name: str, grants: Any) -> Iterator[Manifest]:
    for manifest in roles(grants, name, account=(_HERE, NAME)):
        yield _labelled(_settled(manifest))


def _rights() -> Iterator[Manifest]:
    yield {**_object("v1", "ServiceAccount", NAME), "automountServiceAccountToken": False}
    yield from _roles("sharding:sharder", sharder_grants())
    yield from _roles("sharding:metrics-auth", metrics_grants())


def _labelled(manifest: Manifest) -> Manifest:
    return {**manifest, "metadata": {**manifest["metadata"], "labels": LABELS}}


def _object(api_version: str, kind: str, name: str) -> Manifest:
    metadata = {"name": name, "namespace": NAMESPACE, "labels": LABELS}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def _crd() -> Manifest:
    """The CRD. Helm keeps it, and so every ring, when the sharder is uninstalled."""
    manifest = controller_ring_crd()
    metadata = {
        **manifest["metadata"],
        "labels": {APP_LABEL: APP_NAME},
        "annotations": {"helm.sh/resource-policy": "keep"},
    }
    return {**manifest, "metadata": metadata}


def _config_map() -> Manifest:
    return {
        **_object("v1", "ConfigMap", "sharder-config"),
        "data": {"config": Made(config_text, "sharder.config")},
    }


def _checksum(values: Values) -> str:
    return hashlib.sha256(config_text(values).encode()).hexdigest()


def _service() -> Manifest:
    ports = [
        {"name": "webhook", "port": 443, "protocol": "TCP", "targetPort": "webhook"},
        {"name": "metrics", "port": METRICS_PORT, "protocol": "TCP", "targetPort": "metrics"},
    ]
    return {
        **_object("v1", "Service", NAME),
        "spec": {"type": "ClusterIP", "selector": LABELS, "ports": ports},
    }


def _deployment() -> Manifest:
    sharder = container(
        NAME,
        ["sharder", f"--config={CONFIG_PATH}"],
        environment=[
            {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}
        ],
        ports={"webhook": WEBHOOK_PORT, "metrics": METRICS_PORT, "health": HEALTH_PORT},
        mounts=[
            {"name": "config", "mountPath": CONFIG_PATH, "subPath": "config", "readOnly": True},
            When(CERT_MANAGER, {"name": "certificate", "mountPath": CERTIFICATE_PATH, "readOnly": True}),
        ],
    )
    volumes = [
        {"name": "config", "configMap": {"name": "sharder-config"}},
        When(CERT_MANAGER, {"name": "certificate", "secret": {"secretName": CERTIFICATE}}),
    ]
    return {
        **_object("apps/v1", "Deployment", NAME),
        "spec": {
            "replicas": Chosen("replicas"),
            "selector": {"matchLabels": LABELS},
            "template": {
                "metadata": {
                    "labels": LABELS,
                    "annotations": {
                        "checksum/config": Made(_checksum, "sharder.config", "sha256sum | toJson")
                    },
                },
                "spec": {**pod_spec(NAME, sharder, volumes), "topologySpreadConstraints": spread(LABELS)},
            },
        },
    }


def _budget() -> Manifest:
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": LABELS}}
    return {**_object("policy/v1", "PodDisruptionBudget", NAME), "spec": spec}


def _policies() -> Iterator[Manifest]:
    yield from lease_policy()
    yield from webhook_policy("policies.pods")


def _authority(values: Values) -> str:
    """The Secret with the certificate of whom to trust."""
    return CERTIFICATE if When(CERT_MANAGER, None).holds(values) else SECRET_NAME


def _issuer() -> Manifest:
    return {**_object("cert-manager.io/v1", "Issuer", "selfsigned"), "spec": {"selfSigned": {}}}


def _certificate() -> Manifest:
    spec = {
        "issuerRef": {"name": "selfsigned"},
        "commonName": "sharding:sharder:webhook",
        "dnsNames": list(NAMES),
        "secretName": CERTIFICATE,
    }
    return {**_object("cert-manager.io/v1", "Certificate", CERTIFICATE), "spec": spec}
