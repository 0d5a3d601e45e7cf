"""The built-in kinds that a Website owns, with only the fields that the operator sets or reads.

Because decoding drops what is not declared, a live object equals the desired one exactly when all fields that the
operator manages have the desired values: server defaults and foreign fields never look like a difference. The operator
always sets fields with a default other than None, if only to the default.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeshard import KubeObject, Struct, field
from kubeshard.core.objects import UNSET, UnsetType


class ServerFiles(KubeObject, group="", version="v1", kind="ConfigMap"):
    """The ConfigMap of a website's server: page and configuration."""

    data: Mapping[str, str] = field(default_factory=dict)


class ServicePort(Struct):
    name: str = ""
    port: int = 0
    target_port: int | str = 0
    protocol: str = ""


class ServiceSpec(Struct):
    type: str = ""
    selector: Mapping[str, str] = field(default_factory=dict)
    ports: tuple[ServicePort, ...] = ()


class Service(KubeObject, group="", version="v1"):
    spec: ServiceSpec = field(default_factory=ServiceSpec)


class ServiceBackendPort(Struct):
    name: str = ""


class IngressServiceBackend(Struct):
    name: str = ""
    port: ServiceBackendPort = field(default_factory=ServiceBackendPort)


class IngressBackend(Struct):
    service: IngressServiceBackend = field(default_factory=IngressServiceBackend)


class IngressPath(Struct):
    path: str = ""
    path_type: str = ""
    backend: IngressBackend = field(default_factory=IngressBackend)


class HTTPIngressRule(Struct):
    paths: tuple[IngressPath, ...] = ()


class IngressRule(Struct):
    host: str = ""
    http: HTTPIngressRule = field(default_factory=HTTPIngressRule)


class IngressTLS(Struct):
    hosts: tuple[str, ...] = ()
    secret_name: str = ""


class IngressSpec(Struct):
    ingress_class_name: str | UnsetType | None = UNSET
    """UNSET keeps the class that others chose; None removes it."""
    rules: tuple[IngressRule, ...] = ()
    tls: tuple[IngressTLS, ...] = ()


class Ingress(KubeObject, group="networking.k8s.io", version="v1"):
    spec: IngressSpec = field(default_factory=IngressSpec)


class ContainerPort(Struct):
    name: str = ""
    container_port: int = 0
    protocol: str = ""


class VolumeMount(Struct):
    name: str = ""
    read_only: bool = False
    mount_path: str = ""


class Container(Struct):
    name: str = ""
    image: str = ""
    image_pull_policy: str = ""
    ports: tuple[ContainerPort, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()


class KeyToPath(Struct):
    key: str = ""
    path: str = ""


class ConfigMapVolumeSource(Struct):
    name: str = ""
    items: tuple[KeyToPath, ...] = ()
    default_mode: int | None = None


class Volume(Struct):
    name: str = ""
    config_map: ConfigMapVolumeSource | None = None


class PodSpec(Struct):
    containers: tuple[Container, ...] = ()
    volumes: tuple[Volume, ...] = ()


class TemplateMeta(Struct):
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


class PodTemplate(Struct):
    metadata: TemplateMeta = field(default_factory=TemplateMeta)
    spec: PodSpec = field(default_factory=PodSpec)


class MatchLabels(Struct):
    match_labels: Mapping[str, str] = field(default_factory=dict)


class DeploymentSpec(Struct):
    replicas: int | None = None
    revision_history_limit: int | None = None
    selector: MatchLabels = field(default_factory=MatchLabels)
    template: PodTemplate = field(default_factory=PodTemplate)


class DeploymentCondition(Struct):
    type: str = ""
    status: str = ""
    reason: str = ""


class DeploymentStatus(Struct):
    observed_generation: int = 0
    conditions: tuple[DeploymentCondition, ...] = ()


class Deployment(KubeObject, group="apps", version="v1"):
    spec: DeploymentSpec = field(default_factory=DeploymentSpec)
    status: DeploymentStatus = field(default_factory=DeploymentStatus)


def is_ready(deployment: Deployment) -> bool:
    """Observed, available and rolled out; for zero replicas, too, once a controller has observed that."""
    if deployment.status.observed_generation < deployment.metadata.generation:
        return False
    conditions = {c.type: c for c in deployment.status.conditions}
    available, progressing = conditions.get("Available"), conditions.get("Progressing")
    return (
        available is not None
        and available.status == "True"
        and progressing is not None
        and progressing.status == "True"
        and progressing.reason == "NewReplicaSetAvailable"
    )
