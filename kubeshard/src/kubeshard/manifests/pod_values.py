"""The choices about pods and what is beside them, as platform teams know them from other charts.

What Kubernetes defines is declared only as far as it is fixed, and otherwise passed on as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from kubeshard.core.objects import field
from kubeshard.manifests.value_types import DNS_LABEL, DnsLabel, DnsName, Off, On, Values

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
