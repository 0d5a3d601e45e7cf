"""What a cluster needs for the webhosting operator: CRDs, the ControllerRing, RBAC and samples."""

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

SERVICE_ACCOUNT = "webhosting-operator"
_SYSTEM_LABELS = {"app.kubernetes.io/name": "webhosting-operator"}


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


def rbac(ring: str = RING, sharder: tuple[str, str] = ("sharding-system", "sharder")) -> Iterator[Manifest]:
    """Of the operator, whose Leases are in its namespace, and of the sharder (namespace, name) on the ring."""
    read, write = ["get", "list", "watch"], ["create", "patch"]
    yield _role(
        "ClusterRole",
        "webhosting-operator",
        [
            _rule(GROUP, ["websites"], [*read, "patch"]),
            _rule(GROUP, ["websites/status"], ["patch", "update"]),
            _rule(GROUP, ["websites/finalizers"], ["update"]),
            _rule(GROUP, ["themes"], read),
            _rule("", ["configmaps", "services"], read + write),
            _rule("networking.k8s.io", ["ingresses"], read + write),
            _rule("apps", ["deployments"], read + write),
            _rule("events.k8s.io", ["events"], write),
            _rule("sharding.timebertt.dev", ["controllerrings"], read),
        ],
    )
    yield _binding("ClusterRole", "webhosting-operator", (NAMESPACE, SERVICE_ACCOUNT))
    yield _role(
        "ClusterRole",
        "webhosting-operator-metrics-auth",
        [
            _rule("authentication.k8s.io", ["tokenreviews"], ["create"]),
            _rule("authorization.k8s.io", ["subjectaccessreviews"], ["create"]),
        ],
    )
    yield _binding("ClusterRole", "webhosting-operator-metrics-auth", (NAMESPACE, SERVICE_ACCOUNT))
    yield _role(
        "Role",
        "webhosting-operator-leases",
        [_rule("coordination.k8s.io", ["leases"], ["get", "create", "update", "watch", "list"])],
    )
    yield _binding("Role", "webhosting-operator-leases", (NAMESPACE, SERVICE_ACCOUNT))
    sharded = [resource for main, controlled in RING_RESOURCES for resource in (main, *controlled)]
    yield _role(
        "ClusterRole",
        f"sharding:controllerring:{ring}",
        [_rule(r.group, [r.resource], ["list", "watch", "patch"]) for r in sharded],
    )
    yield _binding("ClusterRole", f"sharding:controllerring:{ring}", sharder)


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
        "metadata": {"name": NAMESPACE, "labels": _SYSTEM_LABELS},
    }


def service_account() -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": SERVICE_ACCOUNT, "namespace": NAMESPACE, "labels": _SYSTEM_LABELS},
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


def _rule(group: str, resources: list[str], verbs: list[str]) -> Manifest:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}


def _role(kind: str, name: str, rules: list[Manifest]) -> Manifest:
    metadata = {"name": name, "labels": _SYSTEM_LABELS} | ({"namespace": NAMESPACE} if kind == "Role" else {})
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata, "rules": rules}


def _binding(role_kind: str, name: str, account: tuple[str, str]) -> Manifest:
    metadata = {"name": name, "labels": _SYSTEM_LABELS} | (
        {"namespace": NAMESPACE} if role_kind == "Role" else {}
    )
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": f"{role_kind}Binding",
        "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "namespace": account[0], "name": account[1]}],
    }
