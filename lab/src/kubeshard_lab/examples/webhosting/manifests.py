"""What a cluster needs for the webhosting operator: CRDs, the ControllerRing and samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kubeshard.crd import definition
from kubeshard.manifests.ring import ring_objects
from kubeshard_lab.examples.webhosting.api import (
    GROUP,
    NAMESPACE,
    PROJECT_LABEL,
    RING,
    RING_RESOURCES,
    VERSION,
    Theme,
    Website,
)

Manifest = Mapping[str, Any]


def crds() -> Iterator[Manifest]:
    yield definition(Theme)
    yield definition(Website)


def controller_ring(name: str = RING) -> Manifest:
    """The operator's ring: Websites with everything that they own, in project namespaces."""
    return {
        "apiVersion": "sharding.timebertt.dev/v1alpha1",
        "kind": "ControllerRing",
        "metadata": {"name": name},
        "spec": {
            "resources": [
                {
                    "group": main.group,
                    "resource": main.resource,
                    "controlledResources": [{"group": c.group, "resource": c.resource} for c in controlled],
                }
                for main, controlled in RING_RESOURCES
            ],
            "namespaceSelector": {"matchLabels": {PROJECT_LABEL: "true"}},
        },
    }


def ring(sharder: tuple[str, str] = ("sharding-system", "sharder")) -> Iterator[Manifest]:
    """The ring, and the role for it of the sharder, a service account as namespace and name."""
    return ring_objects(controller_ring(), sharder)


def samples() -> Iterator[Manifest]:
    yield project("project-foo")
    yield theme("exciting", "darkcyan", "Futura")
    yield theme("lame", "darkgray", "Times")
    yield website("kubecon", "project-foo", "exciting")
    yield website("library", "project-foo", "lame")


def system_namespace() -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": NAMESPACE, "labels": {"app.kubernetes.io/name": "webhosting-operator"}},
    }


def project(name: str) -> Manifest:
    """A namespace whose Websites are sharded."""
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {PROJECT_LABEL: "true"}},
    }


def theme(name: str, color: str, font_family: str) -> Manifest:
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "Theme",
        "metadata": {"name": name},
        "spec": {"color": color, "fontFamily": font_family},
    }


def website(name: str, namespace: str, theme_name: str, labels: Mapping[str, str] | None = None) -> Manifest:
    metadata: dict[str, Any] = {"name": name, "namespace": namespace}
    if labels:
        metadata["labels"] = dict(labels)
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "Website",
        "metadata": metadata,
        "spec": {"theme": theme_name},
    }
