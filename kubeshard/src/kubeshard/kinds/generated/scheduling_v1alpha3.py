"""Classes of scheduling.v1alpha3 in Kubernetes 1.37, written by `make types`. The descriptions are those of
the Kubernetes authors (Apache License 2.0).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeshard.core.objects import Struct


class TopologyConstraint(Struct):
    """TopologyConstraint defines a topology constraint for a PodGroup."""

    key: str
    """key specifies the key of the node label representing the topology domain."""


class WorkloadPodGroupDisruptionMode(Struct):
    """WorkloadPodGroupDisruptionMode defines how individual pods within a group can be disrupted."""

    all: Mapping[str, Any] | None = None
    """all specifies that all pods in the group must be disrupted together."""
    single: Mapping[str, Any] | None = None
    """single specifies that pods can be disrupted independently from each other."""


class WorkloadPodGroupGangSchedulingPolicy(Struct):
    """WorkloadPodGroupGangSchedulingPolicy defines the parameters for gang (all-or-nothing) scheduling."""

    min_count: int | None = None
    """minCount is the minimum number of pods that must be scheduled at the same time for the scheduler to
    admit the entire group.
    """


class WorkloadPodGroupResourceClaim(Struct):
    """WorkloadPodGroupResourceClaim references a dynamic resource claim that is shared across pods in the
    group.
    """

    name: str
    """name uniquely identifies this resource claim inside the group."""
    resource_claim_name: str | None = None
    """resourceClaimName is the name of a ResourceClaim object in the same namespace."""
    resource_claim_template_name: str | None = None
    """resourceClaimTemplateName is the name of a ResourceClaimTemplate object in the same namespace."""


class WorkloadPodGroupSchedulingConstraints(Struct):
    """WorkloadPodGroupSchedulingConstraints defines leaf-level scheduling constraints, such as topology."""

    topology: tuple[TopologyConstraint, ...] | None = None
    """topology specifies desired topological placements for all pods within the pod group."""


class WorkloadPodGroupSchedulingPolicy(Struct):
    """WorkloadPodGroupSchedulingPolicy defines the scheduling policy for a group of pods managed by a
    workload controller.
    """

    basic: Mapping[str, Any] | None = None
    """basic specifies that standard, pod-by-pod Kubernetes scheduling behavior should be used."""
    gang: WorkloadPodGroupGangSchedulingPolicy | None = None
    """gang specifies all-or-nothing scheduling semantics."""
