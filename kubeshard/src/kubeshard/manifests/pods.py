"""Pods for the Pod Security level *restricted*: without privileges, with a read-only root file system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubeshard.manifests.template import Chosen

Manifest = dict[str, Any]

USER = 65532
"""The user ID that distroless images define as `nonroot`."""

PROGRAM = "kubeshard"


def system_namespace(name: Any, labels: Mapping[str, str], level: Any = "restricted") -> Manifest:
    """A namespace that only admits such pods."""
    levels = {f"pod-security.kubernetes.io/{mode}": level for mode in ("enforce", "audit", "warn")}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {**labels, **levels}},
    }


def container(
    name: str,
    arguments: Sequence[Any],
    *,
    ports: Mapping[str, Any],
    environment: Sequence[Any] = (),
    mounts: Sequence[Any] = (),
) -> Manifest:
    """A container that runs `kubeshard` with these arguments, probed at the port `health` if there is one."""
    probes = {
        "livenessProbe": _probe("/healthz", delay=15, period=20),
        "readinessProbe": _probe("/readyz", delay=1, period=5),
    }
    return {
        "name": name,
        "image": Chosen("image"),
        "command": [PROGRAM],
        "args": [*arguments, "--log-format=json", Chosen("logLevel", "--log-level={}")],
        **({"env": list(environment)} if environment else {}),
        "ports": [{"name": each, "containerPort": port, "protocol": "TCP"} for each, port in ports.items()],
        **(probes if "health" in ports else {}),
        "resources": Chosen("resources"),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        **({"volumeMounts": list(mounts)} if mounts else {}),
    }


def pod_spec(account: str, only: Manifest, volumes: Sequence[Any] = ()) -> Manifest:
    """A pod with one container, running as a service account."""
    return {
        "serviceAccountName": account,
        "automountServiceAccountToken": True,
        "terminationGracePeriodSeconds": 30,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [only],
        **({"volumes": list(volumes)} if volumes else {}),
    }


def spread(labels: Mapping[str, str]) -> list[Manifest]:
    """Constraints that spread pods over nodes and zones where possible."""
    return [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": dict(labels)},
        }
        for key in ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
    ]


def _probe(path: str, *, delay: int, period: int) -> Manifest:
    return {
        "httpGet": {"path": path, "port": "health"},
        "initialDelaySeconds": delay,
        "periodSeconds": period,
    }
