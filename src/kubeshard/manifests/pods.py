"""Pods that fit into a namespace of the Pod Security level *restricted*: of no rights on their node, and with a root
file system that nobody writes to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubeshard.manifests.template import Chosen

Manifest = dict[str, Any]

USER = 65532
"""As images without a shell have it for whoever is not root."""

PROGRAM = "kubeshard"


def system_namespace(name: Any, labels: Mapping[str, str]) -> Manifest:
    """One that takes no other pods."""
    levels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "audit", "warn")}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {**labels, **levels}},
    }


def container(
    name: str, arguments: Sequence[Any], *, ports: Mapping[str, int], mounts: Sequence[Any] = ()
) -> Manifest:
    """One that runs `kubeshard` with these arguments and those of logging. The kubelet asks the port `health`, where
    there is one.
    """
    probes = {
        "livenessProbe": _probe("/healthz", delay=15, period=20),
        "readinessProbe": _probe("/readyz", delay=1, period=5),
    }
    return {
        "name": name,
        "image": Chosen("image"),
        "command": [PROGRAM],
        "args": [*arguments, "--log-format=json", Chosen("logLevel", "--log-level={}")],
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
    """Of one container, under a service account."""
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
    """Over nodes and zones, as far as there are some."""
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
