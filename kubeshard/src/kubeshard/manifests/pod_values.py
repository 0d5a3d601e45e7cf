"""The choices about pods and what is beside them (`workload`), as platform teams know them from other charts.

What Kubernetes defines is declared only as far as it is fixed, and otherwise passed on as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from kubeshard.core.objects import Struct, field

QUANTITY = r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi)?$"
DNS_LABEL = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
IMAGE = r"^([^\s/@]+/)?[a-z0-9]+([._/-]+[a-z0-9]+)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@[a-z0-9]+:[0-9a-f]{32,})?$"
"""An image reference as container runtimes parse it: registry, path, tag and digest."""
CIDR = r"^[0-9a-fA-F.:]+/[0-9]{1,3}$"
Quantity = Annotated[str, Meta(pattern=QUANTITY)]
DnsLabel = Annotated[str, Meta(pattern=DNS_LABEL)]
DNS_NAME = r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"
DnsName = Annotated[str, Meta(pattern=DNS_NAME)]
LABEL_KEY = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
LABEL_VALUE = r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$"
REPOSITORY = r"^([^\s/@]+/)?[a-z0-9]+([._/-]+[a-z0-9]+)*$"
TAG = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$"
DIGEST = r"^[a-z0-9]+:[0-9a-f]{32,}$"

LabelKey = Annotated[str, Meta(pattern=LABEL_KEY)]
LabelValue = Annotated[str, Meta(pattern=LABEL_VALUE)]
Labels = Mapping[LabelKey, LabelValue]
Annotations = Mapping[LabelKey, str]
Port = Annotated[int, Meta(ge=1, le=65535)]
Seconds = Annotated[int, Meta(ge=1)]
Manifest = Mapping[str, Any]


class Values(Struct, forbid_unknown_fields=True):
    """The base class of all values. Unknown names are mistakes."""


class Off(Values):
    enabled: bool = False


class On(Values):
    enabled: bool = True


class ImageParts(Values):
    """An image in parts, as mirrors replace them."""

    repository: Annotated[str, Meta(pattern=REPOSITORY)]
    tag: Annotated[str, Meta(pattern=TAG)] | UnsetType = UNSET
    digest: Annotated[str, Meta(pattern=DIGEST)] | UnsetType = UNSET


class NamedSecret(Values):
    name: DnsName


class Toleration(Values, omit_defaults=True):
    key: str = ""
    operator: Literal["", "Exists", "Equal", "Lt", "Gt"] = ""
    value: str = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""
    toleration_seconds: int | UnsetType = UNSET


class Affinity(Values, omit_defaults=True):
    node_affinity: Manifest | UnsetType = UNSET
    pod_affinity: Manifest | UnsetType = UNSET
    pod_anti_affinity: Manifest | UnsetType = UNSET


Share = Annotated[int, Meta(ge=0)] | Annotated[str, Meta(pattern=r"^[0-9]+%$")]
"""A number of pods, or a percentage of them."""


class RollingUpdate(Values, omit_defaults=True):
    max_surge: Share | UnsetType = UNSET
    max_unavailable: Share | UnsetType = UNSET


class Strategy(Values, omit_defaults=True):
    type: Literal["RollingUpdate", "Recreate"] | UnsetType = UNSET
    rolling_update: RollingUpdate | UnsetType = UNSET


class SpreadConstraint(Values, omit_defaults=True):
    max_skew: Annotated[int, Meta(ge=1)]
    topology_key: LabelKey
    when_unsatisfiable: Literal["ScheduleAnyway", "DoNotSchedule"]
    label_selector: Manifest | UnsetType = UNSET
    match_label_keys: tuple[LabelKey, ...] | UnsetType = UNSET
    min_domains: int | UnsetType = UNSET
    node_affinity_policy: Literal["Honor", "Ignore"] | UnsetType = UNSET
    node_taints_policy: Literal["Honor", "Ignore"] | UnsetType = UNSET


class SeccompProfile(Values):
    type: Literal["RuntimeDefault", "Unconfined", "Localhost"] = "RuntimeDefault"
    localhost_profile: str | UnsetType = UNSET


class PodSecurity(Values):
    """Null in a file leaves a field to the platform, as for the user on OpenShift."""

    run_as_non_root: bool | None = True
    run_as_user: int | None = 65532
    run_as_group: int | None = 65532
    fs_group: int | UnsetType = UNSET
    supplemental_groups: tuple[int, ...] | UnsetType = UNSET
    seccomp_profile: SeccompProfile | None = field(default_factory=SeccompProfile)
    se_linux_options: Manifest | UnsetType = UNSET


class Capabilities(Values):
    drop: tuple[str, ...] = ("ALL",)
    add: tuple[str, ...] | UnsetType = UNSET


class ContainerSecurity(Values):
    allow_privilege_escalation: bool = False
    read_only_root_filesystem: bool = True
    capabilities: Capabilities = field(default_factory=Capabilities)


class Probe(Values):
    timeout_seconds: Seconds = 1
    failure_threshold: Annotated[int, Meta(ge=1)] = 3


class LivenessProbe(Probe):
    initial_delay_seconds: Annotated[int, Meta(ge=0)] = 15
    period_seconds: Seconds = 20


class ReadinessProbe(Probe):
    initial_delay_seconds: Annotated[int, Meta(ge=0)] = 1
    period_seconds: Seconds = 5


class Ports(Values):
    webhook: Port = 9443
    metrics: Port = 8080
    health: Port = 8081


class EnvironmentVariable(Values, omit_defaults=True):
    name: Annotated[str, Meta(pattern="^[-._a-zA-Z][-._a-zA-Z0-9]*$")]
    value: str | UnsetType = UNSET
    value_from: Manifest | UnsetType = UNSET


class Mount(Values, omit_defaults=True):
    name: DnsLabel
    mount_path: Annotated[str, Meta(pattern="^/")]
    sub_path: str = ""
    read_only: bool = False


class ServiceAccount(Values):
    create: bool = True
    name: Annotated[str, Meta(pattern=f"^$|{DNS_LABEL}")] = ""
    annotations: Annotations = field(default_factory=dict)


class ServiceMonitor(Off):
    labels: Labels = field(default_factory=dict)
    interval: Annotated[str, Meta(pattern="^[0-9]+(ms|s|m|h)$")] = "10s"
    scrape_timeout: Annotated[str, Meta(pattern="^[0-9]+(ms|s|m|h)$")] = "10s"


class PrometheusRule(Off):
    labels: Labels = field(default_factory=dict)


class Dashboards(Off):
    labels: Labels = field(default_factory=dict)
    annotations: Annotations = field(default_factory=dict)


class Definitions(On):
    keep: bool = True


class Amounts(Values):
    cpu: Quantity = "100m"
    memory: Quantity = "256Mi"
    ephemeral_storage: Quantity | UnsetType = field(default=UNSET, name="ephemeral-storage")


class Limits(Values):
    memory: Quantity = "512Mi"
    cpu: Quantity | UnsetType = UNSET
    ephemeral_storage: Quantity | UnsetType = field(default=UNSET, name="ephemeral-storage")


class Resources(Values):
    requests: Amounts = field(default_factory=Amounts)
    limits: Limits = field(default_factory=Limits)
    """Without a CPU limit: a throttled webhook keeps users waiting, and a throttled shard may lose its Lease."""


class IpBlock(Values):
    cidr: Annotated[str, Meta(pattern=CIDR)]


class Peer(Values, omit_defaults=True):
    """Who may connect, as in a NetworkPolicy: addresses, or pods."""

    ip_block: IpBlock | None = None
    namespace_selector: Mapping[str, Any] | None = None
    pod_selector: Mapping[str, Any] | None = None


class NetworkPolicy(Off):
    control_plane: tuple[Peer, ...] = ()


class PodValues(Values):
    """The values of every program that runs in pods."""

    image_pull_policy: Annotated[
        Literal["Always", "IfNotPresent", "Never"], Meta(description="When nodes pull the image.")
    ] = "IfNotPresent"
    image_pull_secrets: Annotated[
        tuple[NamedSecret, ...], Meta(description="Secrets with the credentials of its registry.")
    ] = ()
    create_namespace: Annotated[bool, Meta(description="Whether to create the namespace.")] = True
    resources: Annotated[Resources, Meta(description="Of each pod.")] = field(default_factory=Resources)
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="The lowest level that is logged.")
    ] = "info"
    network_policy: Annotated[
        NetworkPolicy,
        Meta(
            description="A NetworkPolicy: ingress to webhook and metrics, egress to DNS and the API server "
            "(on port 443, 6443, 8443 or 16443). `controlPlane` says from where API servers call the webhook, as peers "
            "of a NetworkPolicy; nobody else can then call it."
        ),
    ] = field(default_factory=NetworkPolicy)
    service_monitor: Annotated[
        ServiceMonitor,
        Meta(
            description="A ServiceMonitor for the Prometheus operator, and the role for reading metrics. `labels` are "
            "those by which a Prometheus selects it."
        ),
    ] = field(default_factory=ServiceMonitor)
    prometheus_rule: Annotated[
        PrometheusRule, Meta(description="The alerts, for the Prometheus operator.")
    ] = field(default_factory=PrometheusRule)
    dashboards: Annotated[
        Dashboards,
        Meta(
            description="ConfigMaps with dashboards, and with the label `grafana_dashboard`, which the sidecar of "
            "Grafana's chart looks for, and these. An annotation may name a folder."
        ),
    ] = field(default_factory=Dashboards)
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
            description="The pods' ServiceAccount, by default with the name of the Deployment. With `create=false`, it "
            "has to exist."
        ),
    ] = field(default_factory=ServiceAccount)
    common_labels: Annotated[Labels, Meta(description="Labels of all objects, and of the pods.")] = field(
        default_factory=dict
    )
    common_annotations: Annotated[
        Annotations, Meta(description="Annotations of all objects; those of pods are `podAnnotations`.")
    ] = field(default_factory=dict)
    flow_schema: Annotated[
        Off,
        Meta(
            description="A FlowSchema (Kubernetes 1.29 or newer): on a loaded API server, Leases are renewed with the "
            "priority of the control plane's own elections, and do not queue behind other requests."
        ),
    ] = field(default_factory=Off)
    pod_labels: Annotated[Labels, Meta(description="More labels of the pods.")] = field(default_factory=dict)
    pod_annotations: Annotated[Annotations, Meta(description="More annotations of the pods.")] = field(
        default_factory=dict
    )
    priority_class_name: Annotated[str, Meta(description="The pods' PriorityClass.")] = ""
    node_selector: Annotated[Labels, Meta(description="Labels of the nodes on which pods run.")] = field(
        default_factory=dict
    )
    tolerations: Annotated[tuple[Toleration, ...], Meta(description="Taints that pods tolerate.")] = ()
    affinity: Annotated[Affinity, Meta(description="Affinity and anti-affinity of the pods.")] = field(
        default_factory=Affinity
    )
    topology_spread_constraints: Annotated[
        tuple[SpreadConstraint, ...],
        Meta(description="How pods are spread; by default over nodes and zones, where possible."),
    ] = ()
    pod_security_context: Annotated[
        PodSecurity,
        Meta(description="The pod's security context. Null, in a file, leaves a field to the platform."),
    ] = field(default_factory=PodSecurity)
    security_context: Annotated[ContainerSecurity, Meta(description="The container's security context.")] = (
        field(default_factory=ContainerSecurity)
    )
    liveness_probe: Annotated[LivenessProbe, Meta(description="When the kubelet restarts a pod.")] = field(
        default_factory=LivenessProbe
    )
    readiness_probe: Annotated[
        ReadinessProbe, Meta(description="When the API server may call a pod's webhook.")
    ] = field(default_factory=ReadinessProbe)
    extra_args: Annotated[
        tuple[str, ...], Meta(description="More arguments of the container's command.")
    ] = ()
    extra_env: Annotated[
        tuple[EnvironmentVariable, ...], Meta(description="More environment variables.")
    ] = ()
    extra_volumes: Annotated[
        tuple[Mapping[str, Any], ...], Meta(description="More volumes of the pods.")
    ] = ()
    extra_volume_mounts: Annotated[tuple[Mount, ...], Meta(description="Where they are mounted.")] = ()
