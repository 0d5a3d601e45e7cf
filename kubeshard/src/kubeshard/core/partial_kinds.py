"""Built-in kinds of which kubeshard reads a part, each declared once for all its readers.

They are small on purpose: only the declared fields are decoded, so a cache of them keeps nothing else, and a process
that reads one does not load the classes of everything in it. What is compared or put back as it was found is a plain
mapping, which keeps fields that a later release adds. `core.builtin` has the kinds that are written whole,
`kubeshard.kinds` all of them with all fields, for operators.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeshard.core.managed_fields import ManagedMeta
from kubeshard.core.objects import KubeObject, Struct, field


class CustomResourceDefinition(KubeObject, group="apiextensions.k8s.io", version="v1", namespaced=False):
    metadata: ManagedMeta = field(default_factory=ManagedMeta)
    spec: Mapping[str, Any] = field(default_factory=dict)
    status: Mapping[str, Any] = field(default_factory=dict)


class WebhookConfiguration(KubeObject):
    """What both kinds of webhook configurations have. Its metadata says who wrote it."""

    metadata: ManagedMeta = field(default_factory=ManagedMeta)
    webhooks: tuple[Mapping[str, Any], ...] = ()


class ValidatingWebhookConfiguration(
    WebhookConfiguration, group="admissionregistration.k8s.io", version="v1", namespaced=False
): ...


class MutatingWebhookConfiguration(
    WebhookConfiguration, group="admissionregistration.k8s.io", version="v1", namespaced=False
): ...


class Container(Struct):
    name: str = ""


class PodSpec(Struct):
    containers: tuple[Container, ...] = ()
    service_account_name: str = ""
    termination_grace_period_seconds: int = 30


class ContainerEnd(Struct):
    finished_at: str | None = None
    reason: str = ""


class ContainerState(Struct):
    running: Mapping[str, Any] | None = None
    terminated: ContainerEnd | None = None


class ContainerStatus(Struct):
    state: ContainerState = field(default_factory=ContainerState)
    last_state: ContainerState = field(default_factory=ContainerState)


class PodStatus(Struct):
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(KubeObject, version="v1"):
    spec: PodSpec = field(default_factory=PodSpec)
    status: PodStatus = field(default_factory=PodStatus)
