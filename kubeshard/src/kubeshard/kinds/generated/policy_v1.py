"""Classes of policy/v1 in Kubernetes 1.37, written by `make types`. The descriptions are those of the
Kubernetes authors (Apache License 2.0).
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeshard.core.conditions import Condition
from kubeshard.core.objects import KubeObject, Struct, field
from kubeshard.core.selectors import LabelSelector


class PodDisruptionBudgetSpec(Struct):
    """PodDisruptionBudgetSpec is a description of a PodDisruptionBudget."""

    max_unavailable: int | str | None = None
    """maxUnavailable indicates that an eviction is allowed if at most "maxUnavailable" pods selected by
    "selector" are unavailable after the eviction, i.e. even in absence of the evicted pod.
    """
    min_available: int | str | None = None
    """minAvailable indicates that an eviction is allowed if at least "minAvailable" pods selected by
    "selector" will still be available after the eviction, i.e. even in the absence of the evicted pod.
    """
    selector: LabelSelector | None = None
    """selector is a label query over pods whose evictions are managed by the disruption budget."""
    unhealthy_pod_eviction_policy: str | None = None
    """unhealthyPodEvictionPolicy defines the criteria for when unhealthy pods should be considered for
    eviction. One of AlwaysAllow, IfHealthyBudget.
    """


class PodDisruptionBudgetStatus(Struct):
    """PodDisruptionBudgetStatus represents information about the status of a PodDisruptionBudget."""

    conditions: tuple[Condition, ...] | None = None
    """Conditions contain conditions for PDB."""
    current_healthy: int | None = None
    """current number of healthy pods"""
    desired_healthy: int | None = None
    """minimum desired number of healthy pods"""
    disrupted_pods: Mapping[str, str] | None = None
    """DisruptedPods contains information about pods whose eviction was processed by the API server eviction
    subresource handler but has not yet been observed by the PodDisruptionBudget controller.
    """
    disruptions_allowed: int | None = None
    """Number of pod disruptions that are currently allowed."""
    expected_pods: int | None = None
    """total number of pods counted by this disruption budget"""
    observed_generation: int | None = None
    """Most recent generation observed when updating this PDB status."""


class PodDisruptionBudget(KubeObject, group="policy", version="v1"):
    """PodDisruptionBudget is an object to define the max disruption that can be caused to a collection of
    pods
    """

    spec: PodDisruptionBudgetSpec = field(default_factory=PodDisruptionBudgetSpec)
    """spec is the specification of the desired behavior of the PodDisruptionBudget."""
    status: PodDisruptionBudgetStatus = field(default_factory=PodDisruptionBudgetStatus)
    """status is the most recently observed status of the PodDisruptionBudget."""
