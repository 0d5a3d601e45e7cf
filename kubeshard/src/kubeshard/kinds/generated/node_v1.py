"""Classes of node.k8s.io/v1 in Kubernetes 1.37, written by `make types`. The descriptions are those of the
Kubernetes authors (Apache License 2.0).
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeshard.core.objects import KubeObject, Struct
from kubeshard.kinds.generated.core_v1_references import Toleration


class Overhead(Struct):
    """Overhead structure represents the resource overhead associated with running a pod."""

    pod_fixed: Mapping[str, str] | None = None
    """podFixed represents the fixed resource overhead associated with running a pod."""


class Scheduling(Struct):
    """Scheduling specifies the scheduling constraints for nodes supporting a RuntimeClass."""

    node_selector: Mapping[str, str] | None = None
    """nodeSelector lists labels that must be present on nodes that support this RuntimeClass."""
    tolerations: tuple[Toleration, ...] | None = None
    """tolerations are appended (excluding duplicates) to pods running with this RuntimeClass during
    admission, effectively unioning the set of nodes tolerated by the pod and the RuntimeClass.
    """


class RuntimeClass(KubeObject, group="node.k8s.io", version="v1", namespaced=False):
    """RuntimeClass defines a class of container runtime supported in the cluster."""

    handler: str
    """handler specifies the underlying runtime and configuration that the CRI implementation will use to
    handle pods of this class.
    """
    overhead: Overhead | None = None
    """overhead represents the resource overhead associated with running a pod for a given RuntimeClass."""
    scheduling: Scheduling | None = None
    """scheduling holds the scheduling constraints to ensure that pods running with this RuntimeClass are
    scheduled to nodes that support it.
    """
