"""The API `webhosting.timebertt.dev/v1alpha1`: Themes (cluster-scoped) and Websites."""

from __future__ import annotations

from kubeshard import KubeObject, Struct, field
from kubeshard.core.kinds import GroupResource
from kubeshard.crd import Column, CustomResource

GROUP = "webhosting.timebertt.dev"
VERSION = "v1alpha1"
OPERATOR = "webhosting-operator"
RING = OPERATOR
NAMESPACE = "webhosting-system"
"""Where the operator and its Leases are."""

PROJECT_LABEL = f"{GROUP}/project"
"""Namespaces with this label set to "true" are projects: only their Websites are sharded."""
SKIP_WORKLOAD_LABEL = "skip-workload"
"""On a Website, with any value: no replicas, and an ingress class that no controller serves, for load tests."""

PENDING, READY, ERROR, TERMINATING = "Pending", "Ready", "Error", "Terminating"
PHASES = (PENDING, READY, ERROR, TERMINATING)

RING_RESOURCES: tuple[tuple[GroupResource, tuple[GroupResource, ...]], ...] = (
    (
        GroupResource(GROUP, "websites"),
        (
            GroupResource("apps", "deployments"),
            GroupResource("", "configmaps"),
            GroupResource("", "services"),
            GroupResource("networking.k8s.io", "ingresses"),
        ),
    ),
)
"""What the operator's ControllerRing shards: (main resource, controlled resources)."""


_AGE = Column("Age", ".metadata.creationTimestamp")


class ThemeSpec(Struct):
    color: str
    font_family: str


@CustomResource(columns=[Column("Color", ".spec.color"), Column("Font Family", ".spec.fontFamily"), _AGE])
class Theme(KubeObject, group=GROUP, version=VERSION, namespaced=False):
    """The look of Websites: a CSS color and a font family."""

    spec: ThemeSpec = field(default_factory=lambda: ThemeSpec(color="", font_family=""))


class WebsiteSpec(Struct):
    theme: str
    """Name of the Theme that the website uses."""


class WebsiteStatus(Struct):
    observed_generation: int = 0
    phase: str = ""
    """Pending, Ready, Error or Terminating."""
    last_transition_time: str | None = None
    """The MicroTime of the last change to any status field."""


@CustomResource(
    columns=[
        Column("Theme", ".spec.theme"),
        Column("Phase", ".status.phase"),
        Column("Since", ".status.lastTransitionTime", "date"),
        _AGE,
    ]
)
class Website(KubeObject, group=GROUP, version=VERSION):
    """A website of a project: a ConfigMap, a Service, an Ingress and a Deployment."""

    spec: WebsiteSpec = field(default_factory=lambda: WebsiteSpec(theme=""))
    status: WebsiteStatus = field(default_factory=WebsiteStatus)
