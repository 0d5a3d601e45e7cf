"""A description (`template`) of the sharder's objects.

Names, labels, ports and the default namespace are those of the Go project, so either sharder can replace the other. A
switch includes or omits all objects of a `Part` together.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from kubeshard.core.errors import ConfigurationError
from kubeshard.core.patches import apply_merge_patch
from kubeshard.manager.config_file import parse_config
from kubeshard.manager.roles import metrics_grants, roles
from kubeshard.manifests.flow_schema import flow_schema
from kubeshard.manifests.image import image_of
from kubeshard.manifests.network import metrics_reader, network_policy, service_monitor, verified
from kubeshard.manifests.pods import container, pod_spec, system_namespace
from kubeshard.manifests.policies import sharder_policies
from kubeshard.manifests.rights import certificate_grants, pod_grants, sharder_grants
from kubeshard.manifests.template import (
    Chosen,
    Each,
    File,
    Made,
    Part,
    Values,
    When,
    resolved,
    symbol,
    symbolic,
)
from kubeshard.manifests.values import LABELS, SharderValues, plain
from kubeshard.monitoring.alerting import rules
from kubeshard.monitoring.grafana import dashboards
from kubeshard.sharder.config import API_VERSION, KIND, SharderConfig, validated
from kubeshard.sharder.webhook_config import SECRET_NAME
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.crd import controller_ring_crd
from kubeshard.sharding.names import APP_LABEL, APP_NAME
from kubeshard.version import __version__

Manifest = dict[str, Any]

NAME = "sharder"
NAMESPACE = Chosen("namespace")

CONFIG_PATH = "/config.yaml"
CERTIFICATE = "webhook-server"
CERTIFICATE_PATH = "/certificate"
METRICS_PORT = 8080

COMMON_ANNOTATIONS = "commonAnnotations"
CERT_MANAGER = "certManager.enabled"

NAMES = tuple(
    Chosen("namespace", each)
    for each in (f"{NAME}.{{}}.svc", f"{NAME}.{{}}", f"{NAME}.{{}}.svc.cluster.local")
)
"""The DNS names of the Service, which are also in its certificate."""


def parts() -> tuple[Part, ...]:
    """All objects of the sharder, in the order in which they can be created."""
    return tuple(replace(part, objects=tuple(with_common(obj) for obj in part.objects)) for part in _parts())


def _parts() -> tuple[Part, ...]:
    return (
        Part(
            "namespace",
            (system_namespace(NAMESPACE, {APP_LABEL: APP_NAME}, Made(_level, "sharder.level")),),
            "createNamespace",
        ),
        Part("crd", (_crd(),), "crds.enabled"),
        Part("account", (_account(),), "serviceAccount.create"),
        Part("rights", tuple(_rights())),
        Part("aggregated-roles", tuple(_aggregated()), "aggregatedRoles.enabled"),
        Part(
            "certificate-rights", tuple(_roles("certificate", certificate_grants(_HERE))), CERT_MANAGER, False
        ),
        Part("pod-reports", tuple(_roles("sharding:sharder-pods", pod_grants())), "podReports.enabled"),
        Part("sharder", (_config_map(), _service(), _deployment(), _budget())),
        Part("policies", tuple(sharder_policies("policies.pods")), "policies.enabled"),
        Part("issuer", (_issuer(),), CERT_MANAGER, also="certManager.issuer.create"),
        Part("cert-manager", (_certificate(),), CERT_MANAGER),
        Part(
            "network-policy",
            (network_policy(NAME, NAMESPACE, LABELS, ("webhook", "metrics")),),
            "networkPolicy.enabled",
        ),
        Part(
            "service-monitor",
            (
                metrics_reader("sharding:metrics-reader", LABELS),
                _monitor(),
            ),
            "serviceMonitor.enabled",
        ),
        Part("prometheus-rule", (_prometheus_rule(),), "prometheusRule.enabled"),
        Part("dashboards", tuple(_dashboards()), "dashboards.enabled"),
        Part(
            "flow-schema",
            (flow_schema("sharding-sharder-leases", NAMESPACE, ACCOUNT, LABELS),),
            "flowSchema.enabled",
        ),
    )


def with_common(obj: Manifest) -> Manifest:
    """The description with the labels and annotations that all objects have. An annotation of its own wins."""
    common = Each(COMMON_ANNOTATIONS)
    annotations: Any
    match obj["metadata"].get("annotations"):
        case When(path, Chosen(chosen)):
            annotations = When(path, {"common": common, "own": Each(chosen)}, either=COMMON_ANNOTATIONS)
        case When(path, Mapping() as own):
            own = {key: When(path, each) for key, each in own.items()}
            annotations = When(path, {"common": common, **own}, either=COMMON_ANNOTATIONS)
        case Mapping() as own if own:
            annotations = {"common": common, **own}
        case _:
            annotations = When(COMMON_ANNOTATIONS, Chosen(COMMON_ANNOTATIONS))
    return _with_common_labels({**obj, "metadata": {**obj["metadata"], "annotations": annotations}})


def _with_common_labels(obj: Manifest) -> Manifest:
    """The description with the labels that all objects and pods have."""
    found = {**obj, "metadata": {**obj["metadata"], "labels": _common(obj["metadata"].get("labels") or {})}}
    if obj["kind"] == "Deployment":
        template = obj["spec"]["template"]
        metadata = {**template["metadata"], "labels": _common(template["metadata"]["labels"])}
        found["spec"] = {**obj["spec"], "template": {**template, "metadata": metadata}}
    return found


def _common(labels: Mapping[str, Any]) -> Manifest:
    return {**labels, "common": Each("commonLabels")}


def sharder_objects(values: SharderValues, only: Collection[str] = ()) -> list[Manifest]:
    """Of these parts, or all. Raises ConfigurationError for a `config` or part that cannot be."""
    chosen, known = plain(values), [part.name for part in parts()]
    if unknown := set(only).difference(known):
        raise ConfigurationError(f"--part {min(unknown)}: choose one of {', '.join(known)}")
    _check(chosen)
    found = [obj for part in parts() if not only or part.name in only for obj in part.resolved(chosen)]
    return [*found, *([] if only else chosen["extraObjects"])]


def base_config() -> Manifest:
    """Fields that follow from the other values, but for the namespace, which the sharder learns from its pod."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "health": {"bindAddress": Chosen("ports.health", ":{}")},
        "metrics": {"bindAddress": Chosen("ports.metrics", ":{}")},
        "webhook": {
            "config": When(
                CERT_MANAGER,
                {"annotations": {"cert-manager.io/inject-ca-from": f"$(POD_NAMESPACE)/{CERTIFICATE}"}},
            ),
            "server": {
                "bindAddress": Chosen("ports.webhook", ":{}"),
                "certDir": When(CERT_MANAGER, CERTIFICATE_PATH),
            },
        },
        "sharders": When(
            "serviceAccount.name",
            [Chosen("serviceAccount.name", "system:serviceaccount:$(POD_NAMESPACE):{}")],
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
    for name in ("commonLabels", "podLabels"):
        if taken := set(values[name]) & LABELS.keys():
            raise ConfigurationError(f"value {name}: {min(taken)} is the sharder's own; pods are found by it")
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


ACCOUNT = Chosen("serviceAccount.name", otherwise=NAME)
_HERE, _WHO = symbol("namespace"), symbol("account")


def _roles(name: str, grants: Any) -> Iterator[Manifest]:
    for manifest in roles(grants, name, account=(_HERE, _WHO)):
        yield _labelled(symbolic(manifest, {_HERE: NAMESPACE, _WHO: ACCOUNT}))


def _account() -> Manifest:
    annotations = When("serviceAccount.annotations", Chosen("serviceAccount.annotations"))
    metadata = {"name": ACCOUNT, "namespace": NAMESPACE, "labels": LABELS, "annotations": annotations}
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata,
        "automountServiceAccountToken": False,
    }


def _rights() -> Iterator[Manifest]:
    yield from _roles("sharding:sharder", sharder_grants())
    yield from _roles("sharding:metrics-auth", metrics_grants())


def _aggregated() -> Iterator[Manifest]:
    """Who views the cluster sees rings; only its administrators change them, as the sharder may more than others."""
    resources = {"apiGroups": [ControllerRing.KIND.group], "resources": [ControllerRing.KIND.plural]}
    for name, to, verbs in (
        ("view", "view", ["get", "list", "watch"]),
        ("edit", "admin", ["create", "update", "patch", "delete"]),
    ):
        labels = {**LABELS, f"rbac.authorization.k8s.io/aggregate-to-{to}": "true"}
        yield {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": f"sharding:controllerrings-{name}", "labels": labels},
            "rules": [{**resources, "verbs": verbs}],
        }


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
        "annotations": When("crds.keep", {"helm.sh/resource-policy": "keep"}),
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
    return {
        **_object("apps/v1", "Deployment", NAME),
        "spec": {
            "replicas": Chosen("replicas"),
            "strategy": When("strategy", Chosen("strategy")),
            "selector": {"matchLabels": LABELS},
            "template": {
                "metadata": {
                    "labels": {**LABELS, "pods": Each("podLabels")},
                    "annotations": {
                        "checksum/config": Made(_checksum, "sharder.config", "sha256sum | toJson"),
                        "pods": Each("podAnnotations"),
                    },
                },
                "spec": _pod(),
            },
        },
    }


def _pod() -> Manifest:
    volumes = [
        {"name": "config", "configMap": {"name": "sharder-config"}},
        When(CERT_MANAGER, {"name": "certificate", "secret": {"secretName": CERTIFICATE}}),
        Each("extraVolumes"),
    ]
    optional = ("nodeSelector", "tolerations", "affinity", "topologySpreadConstraints", "imagePullSecrets")
    return {
        **pod_spec(NAME, _container(), volumes),
        "serviceAccountName": ACCOUNT,
        "securityContext": Chosen("podSecurityContext"),
        "hostNetwork": When("hostNetwork", True),
        "dnsPolicy": When("hostNetwork", "ClusterFirstWithHostNet"),
        "priorityClassName": When("priorityClassName", Chosen("priorityClassName")),
        **{name: When(name, Chosen(name)) for name in optional},
    }


def _container() -> Manifest:
    found = container(
        NAME,
        ["sharder", f"--config={CONFIG_PATH}"],
        environment=[
            {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            Each("extraEnv"),
        ],
        ports={name: Chosen(f"ports.{name}") for name in ("webhook", "metrics", "health")},
        mounts=[
            {"name": "config", "mountPath": CONFIG_PATH, "subPath": "config", "readOnly": True},
            When(CERT_MANAGER, {"name": "certificate", "mountPath": CERTIFICATE_PATH, "readOnly": True}),
            Each("extraVolumeMounts"),
        ],
    )
    probes = {
        f"{kind}Probe": {
            "httpGet": found[f"{kind}Probe"]["httpGet"],
            "tuned": Each(f"{kind}Probe"),
        }
        for kind in ("liveness", "readiness")
    }
    return {
        **found,
        "image": Made(_image, "sharder.image"),
        "imagePullPolicy": Chosen("imagePullPolicy"),
        "args": [*found["args"], Each("extraArgs")],
        **probes,
        "securityContext": Chosen("securityContext"),
    }


def _image(values: Values) -> str:
    return image_of(values["image"], __version__)


def _level(values: Values) -> str:
    """The Pod Security level of the namespace: only the lowest admits pods on the network of their node."""
    return "privileged" if values["hostNetwork"] else "restricted"


def _budget() -> Manifest:
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": LABELS}}
    return {**_object("policy/v1", "PodDisruptionBudget", NAME), "spec": spec}


def _authority(values: Values) -> str:
    """The Secret with the certificate of whom to trust."""
    return CERTIFICATE if When(CERT_MANAGER, None).holds(values) else SECRET_NAME


def _monitor() -> Manifest:
    return service_monitor(NAME, NAMESPACE, LABELS, verified(Made(_authority, "sharder.ca"), NAMES[0]))


def _prometheus_rule() -> Manifest:
    found = _object("monitoring.coreos.com/v1", "PrometheusRule", NAME)
    metadata = {**found["metadata"], "labels": {**LABELS, "chosen": Each("prometheusRule.labels")}}
    return {**found, "metadata": metadata, "spec": rules()}


def dashboard_files() -> Mapping[str, str]:
    return {
        f"dashboards/{name}.json": json.dumps(made, indent=1, ensure_ascii=False) + "\n"
        for name, made in dashboards().items()
    }


def _dashboards() -> Iterator[Manifest]:
    """ConfigMaps in the form that the sidecar of Grafana's chart looks for."""
    for path, text in dashboard_files().items():
        file = path.rpartition("/")[2]
        found = _object("v1", "ConfigMap", f"kubeshard-dashboard-{file.removesuffix('.json')}")
        labels = {**LABELS, "grafana_dashboard": "1", "chosen": Each("dashboards.labels")}
        annotations = When("dashboards.annotations", Chosen("dashboards.annotations"))
        metadata = {**found["metadata"], "labels": labels, "annotations": annotations}
        yield {**found, "metadata": metadata, "data": {file: File(path, text)}}


def _issuer() -> Manifest:
    found = _object("cert-manager.io/v1", "Issuer", NAME)
    return {
        **found,
        "metadata": {**found["metadata"], "name": Chosen("certManager.issuer.name")},
        "spec": {"selfSigned": {}},
    }


def _certificate() -> Manifest:
    spec = {
        "issuerRef": {each: Chosen(f"certManager.issuer.{each}") for each in ("name", "kind", "group")},
        "duration": Chosen("certManager.duration"),
        "renewBefore": Chosen("certManager.renewBefore"),
        "commonName": "sharding:sharder:webhook",
        "dnsNames": list(NAMES),
        "secretName": CERTIFICATE,
    }
    return {**_object("cert-manager.io/v1", "Certificate", CERTIFICATE), "spec": spec}
