"""The objects that a Website owns, as pure functions of Website, Theme and configuration.

They all have the server's name, the Website's labels and four fixed labels. The Website's labels include its shard
label, so children are created on their owner's shard. Owner references are added when the objects are written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache

from kubeshard import ObjectMeta, safe_name
from kubeshard.core.objects import UNSET, UnsetType
from kubeshard_lab.examples.webhosting import pages
from kubeshard_lab.examples.webhosting.api import OPERATOR, SKIP_WORKLOAD_LABEL, Theme, Website
from kubeshard_lab.examples.webhosting.config import IngressConfig
from kubeshard_lab.examples.webhosting.workload import (
    ConfigMapVolumeSource,
    Container,
    ContainerPort,
    Deployment,
    DeploymentSpec,
    HTTPIngressRule,
    Ingress,
    IngressBackend,
    IngressPath,
    IngressRule,
    IngressServiceBackend,
    IngressSpec,
    KeyToPath,
    MatchLabels,
    PodSpec,
    PodTemplate,
    ServerFiles,
    Service,
    ServiceBackendPort,
    ServicePort,
    ServiceSpec,
    TemplateMeta,
    Volume,
    VolumeMount,
)

PORT_NAME = "http"
FAKE_INGRESS_CLASS = "fake"
IMAGE = "nginx:1.29-alpine"
_DEFAULT_MODE = 0o644


def server_name(website: Website) -> str:
    """With a part of the UID's hash: a later Website of the same name gets its own objects."""
    return _server_name(website.metadata.name, website.metadata.uid)


@lru_cache(maxsize=64)
def _server_name(name: str, uid: str) -> str:
    # Called a dozen times per reconcile.
    return safe_name(name, hashlib.sha256(uid.encode()).hexdigest()[:6])


def config_map(website: Website, theme: Theme) -> ServerFiles:
    return ServerFiles(
        metadata=_metadata(website),
        data={
            pages.INDEX_HTML: pages.index_html(server_name(website), website, theme),
            pages.NGINX_CONF: pages.nginx_conf(website),
        },
    )


def service(website: Website) -> Service:
    return Service(
        metadata=_metadata(website),
        spec=ServiceSpec(
            type="ClusterIP",
            selector=_server_labels(website),
            ports=(ServicePort(name=PORT_NAME, port=8080, target_port=PORT_NAME, protocol="TCP"),),
        ),
    )


def ingress(website: Website, config: IngressConfig, live: Ingress | None) -> Ingress:
    """`live` shows whether the operator set the ingress class and may remove it; a class that others chose is kept."""
    http = HTTPIngressRule(
        paths=(
            IngressPath(
                path=f"/{website.metadata.namespace}/{website.metadata.name}",
                path_type="Prefix",
                backend=IngressBackend(
                    service=IngressServiceBackend(
                        name=server_name(website), port=ServiceBackendPort(name=PORT_NAME)
                    )
                ),
            ),
        )
    )
    ingress_class: str | UnsetType | None = UNSET
    if skips_workload(website):
        ingress_class = FAKE_INGRESS_CLASS
    elif live is not None and live.spec.ingress_class_name == FAKE_INGRESS_CLASS:
        ingress_class = None
    return Ingress(
        metadata=_metadata(website, annotations=config.annotations),
        spec=IngressSpec(
            ingress_class_name=ingress_class,
            rules=tuple(IngressRule(host=host, http=http) for host in config.hosts or ("",)),
            tls=config.tls,
        ),
    )


def deployment(website: Website, files: ServerFiles, live: Deployment | None) -> Deployment:
    """`live` has the template annotations to keep: `kubectl rollout restart` writes one there."""
    labels = _server_labels(website)
    annotations = {**(live.spec.template.metadata.annotations if live else {})}
    annotations["checksum/configmap"] = pages.checksum(files.data)
    return Deployment(
        metadata=_metadata(website),
        spec=DeploymentSpec(
            replicas=0 if skips_workload(website) else 1,
            revision_history_limit=2,
            selector=MatchLabels(match_labels=labels),
            template=PodTemplate(
                metadata=TemplateMeta(labels=labels, annotations=annotations),
                spec=PodSpec(
                    containers=(
                        Container(
                            name="nginx",
                            image=IMAGE,
                            image_pull_policy="IfNotPresent",
                            ports=(ContainerPort(name=PORT_NAME, container_port=80, protocol="TCP"),),
                            volume_mounts=(
                                VolumeMount(
                                    name="website-data", read_only=True, mount_path="/usr/share/nginx/html"
                                ),
                                VolumeMount(
                                    name="website-config", read_only=True, mount_path="/etc/nginx/conf.d"
                                ),
                            ),
                        ),
                    ),
                    volumes=(
                        _volume("website-data", files, pages.INDEX_HTML),
                        _volume("website-config", files, pages.NGINX_CONF),
                    ),
                ),
            ),
        ),
    )


def skips_workload(website: Website) -> bool:
    return website.metadata.has_label(SKIP_WORKLOAD_LABEL)


def _metadata(website: Website, annotations: Mapping[str, str] | None = None) -> ObjectMeta:
    return ObjectMeta(
        name=server_name(website),
        namespace=website.metadata.namespace,
        labels={**(website.metadata.labels or {}), **_server_labels(website)},
        annotations=annotations or None,
    )


def _server_labels(website: Website) -> Mapping[str, str]:
    return _labels(website.metadata.name, server_name(website))


@lru_cache(maxsize=64)
def _labels(website: str, server: str) -> Mapping[str, str]:
    return {"app": "website", "website": website, "server": server, "managed-by": OPERATOR}


def _volume(name: str, files: ServerFiles, key: str) -> Volume:
    return Volume(
        name=name,
        config_map=ConfigMapVolumeSource(
            name=files.metadata.name, items=(KeyToPath(key=key, path=key),), default_mode=_DEFAULT_MODE
        ),
    )
