"""The choices at installation, typed: the values of `kubeshard manifests --set` and of the Helm chart.

Guaranteed: defaults, `--set`, `values.yaml` and `values.schema.json` are generated from these classes, so a value that
one of them accepts is accepted by all.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec import UNSET, Meta, UnsetType

from kubeshard.core.errors import ConfigurationError
from kubeshard.core.objects import field
from kubeshard.core.patches import apply_merge_patch
from kubeshard.core.yaml_input import Unreadable, documents_in
from kubeshard.manifests.pod_values import (
    Affinity,
    Annotations,
    ContainerSecurity,
    Dashboards,
    Definitions,
    EnvironmentVariable,
    ImageParts,
    Labels,
    LivenessProbe,
    Mount,
    NamedSecret,
    PodSecurity,
    Ports,
    PrometheusRule,
    ReadinessProbe,
    ServiceAccount,
    ServiceMonitor,
    SpreadConstraint,
    Strategy,
    Toleration,
)
from kubeshard.manifests.value_types import (
    CIDR,
    DNS_LABEL,
    IMAGE,
    QUANTITY,
    DnsLabel,
    DnsName,
    Off,
    On,
    Quantity,
    Values,
)
from kubeshard.sharding.names import APP_LABEL, APP_NAME, SYSTEM_NAMESPACE
from kubeshard.version import __version__

V = TypeVar("V", bound="Values")

HOURS = r"^[1-9][0-9]*h$"
SEMANTIC_VERSION = r"^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$"


class Amounts(Values):
    cpu: Quantity = "100m"
    memory: Quantity = "256Mi"
    ephemeral_storage: Quantity | UnsetType = msgspec.field(default=UNSET, name="ephemeral-storage")


class Limits(Values):
    memory: Quantity = "512Mi"
    cpu: Quantity | UnsetType = UNSET
    ephemeral_storage: Quantity | UnsetType = msgspec.field(default=UNSET, name="ephemeral-storage")


class Resources(Values):
    requests: Amounts = field(default_factory=Amounts)
    limits: Limits = field(default_factory=Limits)
    """Without a CPU limit: a throttled webhook keeps users waiting, and a throttled shard may lose its Lease."""


class Issuer(Values):
    """`create` makes one that signs with the certificate's own key; otherwise it has to exist."""

    create: bool = True
    name: DnsName = "selfsigned"
    kind: Literal["Issuer", "ClusterIssuer"] = "Issuer"
    group: DnsName = "cert-manager.io"


class CertManager(Off):
    issuer: Issuer = field(default_factory=Issuer)
    duration: Annotated[str, Meta(pattern=HOURS)] = "2160h"
    renew_before: Annotated[str, Meta(pattern=HOURS)] = "720h"


class Policies(On):
    pods: bool = False
    """Whether the sharder may register its webhook for pods, for rings over pods."""


class IpBlock(Values):
    cidr: Annotated[str, Meta(pattern=CIDR)]


class Peer(Values, omit_defaults=True):
    """Who may connect, as in a NetworkPolicy: addresses, or pods."""

    ip_block: IpBlock | None = None
    namespace_selector: Mapping[str, Any] | None = None
    pod_selector: Mapping[str, Any] | None = None


class NetworkPolicy(Off):
    control_plane: tuple[Peer, ...] = ()


Replicas = Annotated[int, Meta(ge=1, description="How many pods run. If there are several, one leads.")]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error"], Meta(description="The lowest level that is logged.")
]
NetworkPolicySwitch = Annotated[
    NetworkPolicy,
    Meta(
        description="A NetworkPolicy: ingress to webhook and metrics, egress to DNS and the API server "
        "(on port 443, 6443, 8443 or 16443). `controlPlane` says from where API servers call the webhook, as peers "
        "of a NetworkPolicy; nobody else can then call it."
    ),
]


MonitorOfPods = Annotated[
    ServiceMonitor,
    Meta(
        description="A ServiceMonitor for the Prometheus operator, and the role for reading metrics. `labels` are "
        "those by which a Prometheus selects it."
    ),
]
CreateNamespace = Annotated[bool, Meta(description="Whether to create the namespace.")]
PullPolicy = Annotated[
    Literal["Always", "IfNotPresent", "Never"], Meta(description="When nodes pull the image.")
]
PullSecrets = Annotated[
    tuple[NamedSecret, ...], Meta(description="Secrets with the credentials of its registry.")
]
PodLabels = Annotated[Labels, Meta(description="More labels of the pods.")]
PodAnnotations = Annotated[Annotations, Meta(description="More annotations of the pods.")]
PriorityClassName = Annotated[str, Meta(description="The pods' PriorityClass.")]
NodeSelector = Annotated[Labels, Meta(description="Labels of the nodes on which pods run.")]
Tolerations = Annotated[tuple[Toleration, ...], Meta(description="Taints that pods tolerate.")]
AffinityOfPods = Annotated[Affinity, Meta(description="Affinity and anti-affinity of the pods.")]
ExtraEnv = Annotated[tuple[EnvironmentVariable, ...], Meta(description="More environment variables.")]
ExtraVolumes = Annotated[tuple[Mapping[str, Any], ...], Meta(description="More volumes of the pods.")]
ExtraVolumeMounts = Annotated[tuple[Mount, ...], Meta(description="Where they are mounted.")]
PodSecurityContext = Annotated[
    PodSecurity,
    Meta(description="The pod's security context. Null, in a file, leaves a field to the platform."),
]
SecurityContext = Annotated[ContainerSecurity, Meta(description="The container's security context.")]
CommonLabels = Annotated[Labels, Meta(description="Labels of all objects, and of the pods.")]
CommonAnnotations = Annotated[
    Annotations, Meta(description="Annotations of all objects; those of pods are `podAnnotations`.")
]
FlowSchema = Annotated[
    Off,
    Meta(
        description="A FlowSchema (Kubernetes 1.29 or newer): on a loaded API server, Leases are renewed with the "
        "priority of the control plane's own elections, and do not queue behind other requests."
    ),
]
OptionalLabel = Annotated[str, Meta(pattern=f"^$|{DNS_LABEL}")]
ResourcesOfPods = Annotated[Resources, Meta(description="Of each pod.")]


COMPONENT_LABEL = "app.kubernetes.io/component"
LABELS = {APP_LABEL: APP_NAME, COMPONENT_LABEL: "sharder"}


def _spread() -> tuple[SpreadConstraint, ...]:
    selector = {"matchLabels": LABELS}
    return tuple(
        SpreadConstraint(
            max_skew=1, topology_key=key, when_unsatisfiable="ScheduleAnyway", label_selector=selector
        )
        for key in ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
    )


class SharderValues(Values):
    """The values of the sharder."""

    image: Annotated[
        Annotated[str, Meta(pattern=IMAGE)] | ImageParts,
        Meta(
            description="The container image: a reference, or `repository` with `tag` and `digest`. The default tag is "
            "this version."
        ),
    ] = f"kubeshard:{__version__}"
    image_pull_policy: PullPolicy = "IfNotPresent"
    image_pull_secrets: PullSecrets = ()
    replicas: Replicas = 2
    namespace: Annotated[DnsLabel, Meta(description="Where the sharder runs.")] = SYSTEM_NAMESPACE
    create_namespace: CreateNamespace = True
    strategy: Annotated[
        Strategy,
        Meta(
            description="How an update replaces pods, as in a Deployment. `rollingUpdate: {maxSurge: 0}` where there "
            "is no room for one more, as with `hostNetwork` on few nodes."
        ),
    ] = field(default_factory=Strategy)
    resources: ResourcesOfPods = field(default_factory=Resources)
    log_level: LogLevel = "info"
    config: Annotated[
        Mapping[str, Any],
        Meta(description="Fields of SharderConfig. They are merged over those that the manifests need."),
    ] = field(default_factory=dict)
    cert_manager: Annotated[
        CertManager,
        Meta(
            description="Get the webhook's certificate from cert-manager. Otherwise the sharder makes its own. An "
            "issuer of yours: `issuer.create=false`, `issuer.name`, `issuer.kind`."
        ),
    ] = field(default_factory=CertManager)
    policies: Annotated[
        Policies,
        Meta(
            description="Admission policies that confine the sharder's account (Kubernetes 1.30 or newer). `pods` "
            "allows rings over pods."
        ),
    ] = field(default_factory=Policies)
    pod_reports: Annotated[
        Off,
        Meta(
            description="The right to get pods: a shard whose containers have ended is given up at once, instead of "
            "after 30 s."
        ),
    ] = field(default_factory=Off)
    network_policy: NetworkPolicySwitch = field(default_factory=NetworkPolicy)
    service_monitor: MonitorOfPods = field(default_factory=ServiceMonitor)
    prometheus_rule: Annotated[
        PrometheusRule, Meta(description="The alerts and recording rules, for the Prometheus operator.")
    ] = field(default_factory=PrometheusRule)
    dashboards: Annotated[
        Dashboards,
        Meta(
            description="The dashboards in ConfigMaps with the label `grafana_dashboard`, which the sidecar of "
            "Grafana's chart looks for, and these. An annotation may name a folder."
        ),
    ] = field(default_factory=Dashboards)
    crds: Annotated[
        Definitions,
        Meta(
            description="Whether to install the CustomResourceDefinition, and whether Helm keeps it, and so all rings, "
            "when it uninstalls."
        ),
    ] = field(default_factory=Definitions)
    aggregated_roles: Annotated[
        On,
        Meta(
            description="ClusterRoles that let the cluster's viewers, by `view`, see rings, and its administrators, by "
            "`admin`, change them. Rings belong to no namespace, so this needs a ClusterRoleBinding of these."
        ),
    ] = field(default_factory=On)
    service_account: Annotated[
        ServiceAccount,
        Meta(
            description="The pods' ServiceAccount, by default `sharder`. With `create=false`, it has to exist."
        ),
    ] = field(default_factory=ServiceAccount)
    common_labels: CommonLabels = field(default_factory=dict)
    common_annotations: CommonAnnotations = field(default_factory=dict)
    flow_schema: FlowSchema = field(default_factory=Off)
    pod_labels: PodLabels = field(default_factory=dict)
    pod_annotations: PodAnnotations = field(default_factory=dict)
    priority_class_name: PriorityClassName = ""
    node_selector: NodeSelector = field(default_factory=dict)
    tolerations: Tolerations = ()
    affinity: AffinityOfPods = field(default_factory=Affinity)
    topology_spread_constraints: Annotated[
        tuple[SpreadConstraint, ...],
        Meta(description="How pods are spread; by default over nodes and zones, where possible."),
    ] = field(default_factory=_spread)
    pod_security_context: PodSecurityContext = field(default_factory=PodSecurity)
    security_context: SecurityContext = field(default_factory=ContainerSecurity)
    liveness_probe: Annotated[LivenessProbe, Meta(description="When the kubelet restarts a pod.")] = field(
        default_factory=LivenessProbe
    )
    readiness_probe: Annotated[
        ReadinessProbe, Meta(description="When the API server may call a pod's webhook.")
    ] = field(default_factory=ReadinessProbe)
    host_network: Annotated[
        bool,
        Meta(
            description="Whether pods use their node's network, as webhooks must where the control plane cannot reach "
            "pods. The namespace then admits it, and each port has to be free on the nodes."
        ),
    ] = False
    ports: Annotated[Ports, Meta(description="The ports on which a pod listens.")] = field(
        default_factory=Ports
    )
    extra_args: Annotated[tuple[str, ...], Meta(description="More arguments of `kubeshard sharder`.")] = ()
    extra_env: ExtraEnv = ()
    extra_volumes: ExtraVolumes = ()
    extra_volume_mounts: ExtraVolumeMounts = ()
    extra_objects: Annotated[
        tuple[Mapping[str, Any], ...], Meta(description="More objects, installed with the others.")
    ] = ()


class OperatorRing(Off):
    """The sharder's service account. `policies`: restrict each pod to its own objects and Lease."""

    sharder_namespace: DnsLabel = SYSTEM_NAMESPACE
    sharder_name: DnsLabel = "sharder"
    policies: bool = False


class Maintainer(Values):
    name: str
    email: str


class About(Values):
    """`description` is a sentence; `url` the project's home."""

    version: Annotated[str, Meta(pattern=SEMANTIC_VERSION)] = "0.1.0"
    display_name: str = ""
    description: str = ""
    url: str = ""
    maintainers: tuple[Maintainer, ...] = ()
    keywords: tuple[str, ...] = ()


class OperatorValues(Values):
    """The values of an operator."""

    image: Annotated[
        Annotated[str, Meta(pattern=IMAGE)] | ImageParts,
        Meta(
            description="The container image: a reference, or `repository` with `tag` and `digest`. The default tag is "
            "`about.version`."
        ),
    ]
    replicas: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(
            description="How many pods run; with 0, the operator pauses. Default: 2, or 1 without leader election or "
            "sharding."
        ),
    ] = None
    namespace: Annotated[DnsLabel | None, Meta(description="Where the operator runs. Default: its name.")] = (
        None
    )
    create_namespace: CreateNamespace = True
    resources: ResourcesOfPods = field(default_factory=Resources)
    log_level: LogLevel = "info"
    network_policy: NetworkPolicySwitch = field(default_factory=NetworkPolicy)
    service_monitor: MonitorOfPods = field(default_factory=ServiceMonitor)
    ring: Annotated[
        OperatorRing,
        Meta(
            description="The ControllerRing that the watches declare, and the role for it of the account "
            "`ring.sharderNamespace`, `ring.sharderName`; with ring.policies=true also admission policies that "
            "restrict each pod to its own objects and Lease."
        ),
    ] = field(default_factory=OperatorRing)
    prometheus_rule: Annotated[
        PrometheusRule, Meta(description="The alerts, for the Prometheus operator.")
    ] = field(default_factory=PrometheusRule)
    dashboards: Annotated[
        Dashboards, Meta(description="ConfigMaps with dashboards, for the sidecar of Grafana's chart.")
    ] = field(default_factory=Dashboards)
    watch_namespaces: Annotated[
        tuple[DnsLabel, ...],
        Meta(
            description="The only namespaces whose objects it reads and reconciles, and in which it has rights. "
            "Default: all."
        ),
    ] = ()
    crds: Annotated[
        Definitions,
        Meta(
            description="Whether to install the CustomResourceDefinitions, and whether Helm keeps them, and so all "
            "their objects, when it uninstalls."
        ),
    ] = field(default_factory=Definitions)
    service_account: Annotated[
        ServiceAccount,
        Meta(
            description="The pods' ServiceAccount. Default: the operator's name. With `create=false`, it has to exist."
        ),
    ] = field(default_factory=ServiceAccount)
    image_pull_policy: PullPolicy = "IfNotPresent"
    image_pull_secrets: PullSecrets = ()
    pod_labels: PodLabels = field(default_factory=dict)
    pod_annotations: PodAnnotations = field(default_factory=dict)
    priority_class_name: PriorityClassName = ""
    node_selector: NodeSelector = field(default_factory=dict)
    tolerations: Tolerations = ()
    affinity: AffinityOfPods = field(default_factory=Affinity)
    topology_spread_constraints: Annotated[
        tuple[SpreadConstraint, ...],
        Meta(description="How pods are spread. Without any, over nodes and zones, where possible."),
    ] = ()
    pod_disruption_budget: Annotated[
        On, Meta(description="A PodDisruptionBudget: nodes are drained of one pod at a time.")
    ] = field(default_factory=On)
    pod_security_context: PodSecurityContext = field(default_factory=PodSecurity)
    security_context: SecurityContext = field(default_factory=ContainerSecurity)
    common_labels: CommonLabels = field(default_factory=dict)
    common_annotations: CommonAnnotations = field(default_factory=dict)
    flow_schema: FlowSchema = field(default_factory=Off)
    extra_args: Annotated[tuple[str, ...], Meta(description="More arguments of `kubeshard run`.")] = ()
    extra_env: ExtraEnv = ()
    extra_volumes: ExtraVolumes = ()
    extra_volume_mounts: ExtraVolumeMounts = ()
    about: Annotated[About, Meta(description="What a Helm chart says about the operator.")] = field(
        default_factory=About
    )


class ChartValues(OperatorValues):
    """The values of an operator's chart, which knows the release that it is installed as."""

    image: Annotated[
        ImageParts, Meta(description="The container image. The default tag is the chart's `appVersion`.")
    ]
    name_override: Annotated[
        OptionalLabel,
        Meta(
            description="Replaces the chart's name, in the names of objects and in the label `app.kubernetes.io/name`."
        ),
    ] = ""
    fullname_override: Annotated[
        OptionalLabel,
        Meta(
            description="The name of the objects. Default: the release's name, and the chart's unless it contains that."
        ),
    ] = ""


def chosen(type_: type[V], file: Mapping[str, Any] | None = None, settings: Iterable[str] = ()) -> V:
    """The defaults, overridden by a file's values, overridden by settings `KEY=VALUE`. Raises ConfigurationError."""
    given: Any = dict(file or {})
    for setting in settings:
        given = apply_merge_patch(given, _parsed(setting))
    try:
        return msgspec.convert(given, type_)
    except msgspec.ValidationError as error:
        raise ConfigurationError(_explained(type_, str(error))) from None


def _explained(type_: type[Values], error: str) -> str:
    """A mistake in the user's terms; msgspec's messages are about types."""
    message, _, where = error.partition(" - at ")
    place = where.strip("`").removeprefix("$").removeprefix(".")
    path = place.split(".") if place else []
    if unknown := re.fullmatch("Object contains unknown field `(.*)`", message):
        known = [each.encode_name for each in msgspec.structs.fields(_type_at(type_, path))]
        name = ".".join((*path, unknown[1]))
        close = difflib.get_close_matches(unknown[1], known, n=1)
        return f"there is no value {name}: " + (
            f"did you mean {'.'.join((*path, *close))}?" if close else f"there are {', '.join(known)}"
        )
    if missing := re.fullmatch("Object missing required field `(.*)`", message):
        name = ".".join((*path, missing[1]))
        return f"value {name} is missing: set it with --set {name}=... or in a file with --values"
    if message.startswith("Invalid enum value"):
        message = f"choose one of {', '.join(get_args(_type_at(type_, path)))}"
    elif repr(QUANTITY) in message:
        message = "expected a quantity, as in 250m or 512Mi"
    elif repr(IMAGE) in message:
        message = "expected an image, as in registry.example.com/kubeshard:v1"
    elif repr(CIDR) in message:
        message = "expected addresses, as in 10.0.0.0/28"
    elif repr(DNS_LABEL) in message:
        message = "expected at most 63 lower-case letters, digits and hyphens, as in sharding-system"
    return f"value {place or '(all)'}: {message}"


def _type_at(type_: Any, path: Iterable[str]) -> Any:
    for each in path:
        name, index, _ = each.partition("[")
        found = _bare(
            next(known.type for known in msgspec.structs.fields(type_) if known.encode_name == name)
        )
        type_ = _bare(get_args(found)[0]) if index else found
    return type_


def _bare(type_: Any) -> Any:
    return _bare(get_args(type_)[0]) if get_origin(type_) is Annotated else type_


def plain(values: Values) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(values))
    return found


def described(type_: type[Values]) -> Iterator[tuple[str, str]]:
    for each in msgspec.structs.fields(type_):
        yield each.encode_name, _description(each.type)


def _description(type_: Any) -> str:
    texts = [part.description for part in get_args(type_)[1:] if isinstance(part, Meta) and part.description]
    return texts[-1] if get_origin(type_) and texts else ""


def _parsed(setting: str) -> dict[str, Any]:
    key, equals, text = setting.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise ConfigurationError(
            f"--set {setting}: write KEY=VALUE, as in replicas=3 or certManager.enabled=true"
        )
    if not text.strip():  # YAML's null, which means the default: rarely what was intended, as in image=$UNSET
        raise ConfigurationError(
            f"--set {setting}: there is no value; leave it out or write null for the default"
        )
    try:
        value: Any = next(iter(documents_in(text.encode())), None)
    except Unreadable as error:
        raise ConfigurationError(f"--set {setting}: the value is not YAML") from error
    for part in reversed(parts):
        value = {part: value}
    return dict(value)
