"""The built-in kinds that kubeshard itself reads and writes, with all their fields. `partial_kinds` has those of
which it reads a part, `kubeshard.kinds` the rest.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeshard.core.objects import KubeObject, Struct, field


class LeaseSpec(Struct):
    """Times are MicroTime text. The empty holder of a released Lease is encoded: None and "" are different."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None
    strategy: str | None = None
    preferred_holder: str | None = None


class Lease(KubeObject, group="coordination.k8s.io", version="v1", complete=True):
    spec: LeaseSpec = field(default_factory=LeaseSpec)


class NamespaceCondition(Struct):
    type: str
    status: str
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class NamespaceSpec(Struct):
    finalizers: tuple[str, ...] | None = None


class NamespaceStatus(Struct, omit_defaults=True):
    phase: str = ""
    conditions: tuple[NamespaceCondition, ...] | None = None


class Namespace(KubeObject, version="v1", namespaced=False):
    spec: NamespaceSpec = field(default_factory=NamespaceSpec)
    status: NamespaceStatus = field(default_factory=NamespaceStatus)


class Secret(KubeObject, version="v1", complete=True, omit_defaults=True):
    """Values of `data` are base64. Those of `string_data` are plain; the server never returns them."""

    data: Mapping[str, str] | None = None
    string_data: Mapping[str, str] | None = None
    type: str = ""
    immutable: bool | None = None


class ConfigMap(KubeObject, version="v1", complete=True):
    """Values of `binary_data` are base64."""

    data: Mapping[str, str] | None = None
    binary_data: Mapping[str, str] | None = None
    immutable: bool | None = None
