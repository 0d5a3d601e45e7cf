"""What the API server sends for review when a subresource is written: often an object of another kind.

| the subresource | of | operation | what is reviewed |
|---|---|---|---|
| `status` | any kind | UPDATE | the object |
| `scale` | custom kinds, Deployment, ReplicaSet, StatefulSet, ReplicationController | UPDATE | `Scale` |
| `eviction`, `binding` | Pod | CREATE | `Eviction`, `Binding` |
| `exec`, `attach`, `portforward`, `proxy` | Pod | CONNECT | `PodExecOptions` and so on |
| `ephemeralcontainers`, `resize` | Pod | UPDATE | the Pod |
| `proxy` | Service, Node | CONNECT | `ServiceProxyOptions`, `NodeProxyOptions` |
| `token` | ServiceAccount | CREATE | `TokenRequest` |
| `finalize` | Namespace | UPDATE | the Namespace |
| `approval` | CertificateSigningRequest | UPDATE | the request |

Name and namespace of the object whose subresource it is are in the `AdmissionRequest`; options have no metadata.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kubeshard.core.kinds import GroupKind, Kind
from kubeshard.core.objects import KubeObject, Struct, field


class ScaleSpec(Struct):
    replicas: int = 0


class ScaleStatus(Struct):
    replicas: int = 0
    selector: str | None = None


class Scale(KubeObject, group="autoscaling", version="v1"):
    """How many replicas are wanted, as autoscalers and `kubectl scale` write it."""

    spec: ScaleSpec = field(default_factory=ScaleSpec)
    status: ScaleStatus = field(default_factory=ScaleStatus)


class Eviction(KubeObject, group="policy", version="v1"):
    """A request to delete a Pod, as `kubectl drain` and autoscalers of nodes send it. Its metadata names the Pod."""

    delete_options: dict[str, Any] | None = None


class BindingTarget(Struct):
    kind: str = ""
    name: str = ""


class Binding(KubeObject, version="v1"):
    """The assignment of a Pod to a Node, by a scheduler. Its metadata names the Pod."""

    target: BindingTarget = field(default_factory=BindingTarget)


class PodExecOptions(KubeObject, version="v1"):
    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False
    container: str = ""
    command: tuple[str, ...] = ()


class PodAttachOptions(KubeObject, version="v1"):
    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False
    container: str = ""


class PodPortForwardOptions(KubeObject, version="v1"):
    ports: tuple[int, ...] = ()


class PodProxyOptions(KubeObject, version="v1"):
    path: str = ""


class ServiceProxyOptions(KubeObject, version="v1"):
    path: str = ""


class NodeProxyOptions(KubeObject, version="v1"):
    path: str = ""


class TokenRequestSpec(Struct):
    audiences: tuple[str, ...] = ()
    expiration_seconds: int | None = None


class TokenRequest(KubeObject, group="authentication.k8s.io", version="v1"):
    spec: TokenRequestSpec = field(default_factory=TokenRequestSpec)


class Subresource(NamedTuple):
    reviews: type[KubeObject] | None
    """The class of what is reviewed; None: that of the object."""
    operation: str


_STATUS, _SCALE = Subresource(None, "UPDATE"), Subresource(Scale, "UPDATE")
_BUILTIN: dict[GroupKind, dict[str, Subresource]] = {
    GroupKind("", "Pod"): {
        "eviction": Subresource(Eviction, "CREATE"),
        "binding": Subresource(Binding, "CREATE"),
        "exec": Subresource(PodExecOptions, "CONNECT"),
        "attach": Subresource(PodAttachOptions, "CONNECT"),
        "portforward": Subresource(PodPortForwardOptions, "CONNECT"),
        "proxy": Subresource(PodProxyOptions, "CONNECT"),
        "ephemeralcontainers": Subresource(None, "UPDATE"),
        "resize": Subresource(None, "UPDATE"),
    },
    GroupKind("", "Service"): {"proxy": Subresource(ServiceProxyOptions, "CONNECT")},
    GroupKind("", "Node"): {"proxy": Subresource(NodeProxyOptions, "CONNECT")},
    GroupKind("", "ServiceAccount"): {"token": Subresource(TokenRequest, "CREATE")},
    GroupKind("", "Namespace"): {"finalize": Subresource(None, "UPDATE")},
    GroupKind("", "ReplicationController"): {"scale": _SCALE},
    GroupKind("apps", "Deployment"): {"scale": _SCALE},
    GroupKind("apps", "ReplicaSet"): {"scale": _SCALE},
    GroupKind("apps", "StatefulSet"): {"scale": _SCALE},
    GroupKind("certificates.k8s.io", "CertificateSigningRequest"): {"approval": Subresource(None, "UPDATE")},
}


def subresources_of(kind: Kind) -> dict[str, Subresource]:
    """Those whose writes are reviewed, by name."""
    builtin = kind.group.endswith(".k8s.io") or "." not in kind.group
    return {"status": _STATUS} | (_BUILTIN.get(kind.group_kind, {}) if builtin else {"scale": _SCALE})
