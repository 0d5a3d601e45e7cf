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
from kubeshard.manifests.image import image_of
from kubeshard.manifests.policies import sharder_policies
from kubeshard.manifests.rights import certificate_grants, pod_grants, sharder_grants
from kubeshard.manifests.template import Chosen, Each, Made, Part, Values, When, resolved
from kubeshard.manifests.values import LABELS, SharderValues, plain
from kubeshard.manifests.workload import POD_NAMESPACE, Manifest, Workload, pod_spec, system_namespace
from kubeshard.monitoring.grafana import dashboards
from kubeshard.sharder.config import API_VERSION, KIND, SharderConfig, validated
from kubeshard.sharder.webhook_config import SECRET_NAME
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.crd import controller_ring_crd
from kubeshard.sharding.names import APP_LABEL, APP_NAME
from kubeshard.version import __version__

NAME = "sharder"
NAMESPACE = str(Chosen("namespace"))
ACCOUNT = str(Chosen("serviceAccount.name", otherwise=NAME))
_SHARDER = Workload(NAME, NAMESPACE, ACCOUNT, LABELS)

CONFIG_PATH = "/config.yaml"
CERTIFICATE = "webhook-server"
CERTIFICATE_PATH = "/certificate"
METRICS_PORT = 8080

COMMON_ANNOTATIONS = "commonAnnotations"
CERT_MANAGER = "certManager.enabled"

NAMES = (f"{NAME}.{NAMESPACE}.svc", f"{NAME}.{NAMESPACE}", f"{NAME}.{NAMESPACE}.svc.cluster.local")
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
        Part("account", (_SHARDER.service_account(),), "serviceAccount.create"),
        Part("rights", tuple(_rights())),
        Part("aggregated-roles", tuple(_aggregated()), "aggregatedRoles.enabled"),
        Part(
            "certificate-rights",
            tuple(_roles("certificate", certificate_grants(NAMESPACE))),
            CERT_MANAGER,
            False,
        ),
        Part("pod-reports", tuple(_roles("sharding:sharder-pods", pod_grants())), "podReports.enabled"),
        Part("sharder", (_config_map(), _service(), _deployment(), _SHARDER.budget())),
        Part("policies", tuple(sharder_policies("policies.pods")), "policies.enabled"),
        Part("issuer", (_issuer(),), CERT_MANAGER, also="certManager.issuer.create"),
        Part("cert-manager", (_certificate(),), CERT_MANAGER),
        Part("network-policy", (_SHARDER.network_policy(("webhook", "metrics")),), "networkPolicy.enabled"),
        Part(
            "service-monitor",
            (_SHARDER.metrics_reader("sharding:metrics-reader"), _monitor()),
            "serviceMonitor.enabled",
        ),
        Part("prometheus-rule", (_SHARDER.alerts(),), "prometheusRule.enabled"),
        Part("dashboards", tuple(_dashboards()), "dashboards.enabled"),
        Part("flow-schema", (_SHARDER.flow_schema("sharding-sharder-leases"),), "flowSchema.enabled"),
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
        "health": {"bindAddress": f":{Chosen('ports.health')}"},
        "metrics": {"bindAddress": f":{Chosen('ports.metrics')}"},
        "webhook": {
            "config": When(
                CERT_MANAGER,
                {"annotations": {"cert-manager.io/inject-ca-from": f"$(POD_NAMESPACE)/{CERTIFICATE}"}},
            ),
            "server": {
                "bindAddress": f":{Chosen('ports.webhook')}",
                "certDir": When(CERT_MANAGER, CERTIFICATE_PATH),
            },
        },
        "sharders": When(
            "serviceAccount.name",
            [f"system:serviceaccount:$(POD_NAMESPACE):{Chosen('serviceAccount.name')}"],
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


def _roles(name: str, grants: Any) -> Iterator[Manifest]:
    for manifest in roles(grants, name, account=(NAMESPACE, ACCOUNT)):
        yield {**manifest, "metadata": {**manifest["metadata"], "labels": LABELS}}


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
    data = {"config": Made(config_text, "sharder.config")}
    return _SHARDER.object("v1", "ConfigMap", "sharder-config", data=data)


def _checksum(values: Values) -> str:
    return hashlib.sha256(config_text(values).encode()).hexdigest()


def _service() -> Manifest:
    return _SHARDER.service(NAME, ("webhook", 443, "webhook"), ("metrics", METRICS_PORT, "metrics"))


def _deployment() -> Manifest:
    annotations = {
        "checksum/config": Made(_checksum, "sharder.config", "sha256sum | toJson"),
        "pods": Each("podAnnotations"),
    }
    return _SHARDER.deployment(_pod(), annotations, strategy=When("strategy", Chosen("strategy")))


def _pod() -> Manifest:
    mounts = [
        {"name": "config", "mountPath": CONFIG_PATH, "subPath": "config", "readOnly": True},
        When(CERT_MANAGER, {"name": "certificate", "mountPath": CERTIFICATE_PATH, "readOnly": True}),
    ]
    volumes = [
        {"name": "config", "configMap": {"name": "sharder-config"}},
        When(CERT_MANAGER, {"name": "certificate", "secret": {"secretName": CERTIFICATE}}),
    ]
    found = pod_spec(
        ACCOUNT,
        NAME,
        Made(_image, "sharder.image"),
        ["sharder", f"--config={CONFIG_PATH}"],
        ports={name: Chosen(f"ports.{name}") for name in ("webhook", "metrics", "health")},
        environment=[POD_NAMESPACE],
        mounts=mounts,
        volumes=volumes,
    )
    return {
        **found,
        "hostNetwork": When("hostNetwork", True),
        "dnsPolicy": When("hostNetwork", "ClusterFirstWithHostNet"),
        "topologySpreadConstraints": When("topologySpreadConstraints", Chosen("topologySpreadConstraints")),
    }


def _image(values: Values) -> str:
    return image_of(values["image"], __version__)


def _level(values: Values) -> str:
    """The Pod Security level of the namespace: only the lowest admits pods on the network of their node."""
    return "privileged" if values["hostNetwork"] else "restricted"


def _authority(values: Values) -> str:
    """The Secret with the certificate of whom to trust."""
    return CERTIFICATE if When(CERT_MANAGER, None).holds(values) else SECRET_NAME


def _monitor() -> Manifest:
    """Its certificate is verified by the authority in a Secret beside it."""
    authority = {"ca": {"secret": {"name": Made(_authority, "sharder.ca"), "key": "ca.crt"}}}
    return _SHARDER.service_monitor({**authority, "serverName": NAMES[0]})


def _dashboards() -> Iterator[Manifest]:
    for name, made in dashboards().items():
        yield _SHARDER.dashboard(f"kubeshard-dashboard-{name}", f"{name}.json", made)


def _issuer() -> Manifest:
    name = str(Chosen("certManager.issuer.name"))
    return _SHARDER.object("cert-manager.io/v1", "Issuer", name, spec={"selfSigned": {}})


def _certificate() -> Manifest:
    spec = {
        "issuerRef": {each: Chosen(f"certManager.issuer.{each}") for each in ("name", "kind", "group")},
        "duration": Chosen("certManager.duration"),
        "renewBefore": Chosen("certManager.renewBefore"),
        "commonName": "sharding:sharder:webhook",
        "dnsNames": list(NAMES),
        "secretName": CERTIFICATE,
    }
    return _SHARDER.object("cert-manager.io/v1", "Certificate", CERTIFICATE, spec=spec)
