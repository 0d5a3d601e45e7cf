"""Classes of scheduling.k8s.io/v1 in Kubernetes 1.37, written by `make types`. The descriptions are those of
the Kubernetes authors (Apache License 2.0).
"""

from __future__ import annotations

from kubeshard.core.objects import KubeObject


class PriorityClass(KubeObject, group="scheduling.k8s.io", version="v1", namespaced=False):
    """PriorityClass defines mapping from a priority class name to the priority integer value."""

    description: str | None = None
    """description is an arbitrary string that usually provides guidelines on when this priority class should
    be used.
    """
    global_default: bool | None = None
    """globalDefault specifies whether this PriorityClass should be considered as the default priority for
    pods that do not have any priority class.
    """
    preemption_policy: str | None = None
    """preemptionPolicy is the Policy for preempting pods with lower priority. One of Never,
    PreemptLowerPriority.
    """
    value: int | None = None
    """value represents the integer value of this priority class."""
