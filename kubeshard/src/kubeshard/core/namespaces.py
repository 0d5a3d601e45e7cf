"""The rule for namespaces, the same for all verbs of the client, the cache and a reconcile's context.

| kind | a verb for one object (`get`, `patch`, `delete`, ...) | a verb for many (`list`, `watch`, ...) |
|---|---|---|
| namespaced | its namespace | a namespace, or `ALL` |
| cluster-scoped | none | none; `ALL` is the same |

If the namespace is omitted, it defaults to that of the object at hand: the object that is written, or in a
`Context` the reconciled object. If there is no such object, or it has no namespace, the namespace is
missing, which is an error: it is never all namespaces, `default`, or that of a kubeconfig. A namespace for a
cluster-scoped kind is an error too.

None means omitted. `""` is the namespace of cluster-scoped objects: valid for cluster-scoped kinds, and
missing for all others.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from kubeshard.core.errors import Terminal
from kubeshard.core.kinds import Kind


class AllNamespaces(Enum):
    ALL = "all namespaces"

    def __repr__(self) -> str:
        return "ALL"


ALL: Final = AllNamespaces.ALL
"""All namespaces, requested explicitly."""

KUBE_SYSTEM = "kube-system"
"""The namespace of Kubernetes itself."""

NAMESPACE_NAME_LABEL = "kubernetes.io/metadata.name"
"""The label of every Namespace with its own name."""


class WrongNamespace(Terminal, ValueError):
    """A missing namespace, or one for a cluster-scoped kind."""


def namespace_of(kind: Kind, name: str, namespace: str | None, own: str = "") -> str:
    """That of one object, "" if cluster-scoped. `own`: of the object at hand. Raises WrongNamespace."""
    if not kind.namespaced:
        if namespace:
            raise _refused(kind, namespace)
        return ""
    if namespace is None:
        namespace = own
    if not namespace:
        remedy = _if_the_class_is_wrong(kind, "have none", "write namespaced=False in")
        raise WrongNamespace(
            f"{kind} has namespaces: say in which one{f' {name!r} is' if name else ''}{remedy}"
        )
    return namespace


def namespaces_of(kind: Kind, namespace: str | AllNamespaces | None, own: str = "") -> str | AllNamespaces:
    """One namespace, or all; `ALL` for cluster-scoped kinds. Raises WrongNamespace."""
    if not kind.namespaced:
        if namespace and namespace is not ALL:
            raise _refused(kind, namespace)
        return ALL
    if namespace is None:
        namespace = own
    if not namespace:
        raise WrongNamespace(f"{kind} has namespaces: say which one, or ALL")
    return namespace


def _refused(kind: Kind, namespace: str | AllNamespaces) -> WrongNamespace:
    remedy = _if_the_class_is_wrong(kind, "have one", "remove namespaced=False from")
    return WrongNamespace(f"{kind} has no namespaces: leave {namespace!r} out{remedy}")


def _if_the_class_is_wrong(kind: Kind, sign: str, remedy: str) -> str:
    """What to do if not the call is the mistake, but the class: those of custom resources are written by hand."""
    if "." not in kind.group or kind.group.endswith(".k8s.io"):
        return ""
    return f"; if its objects at the API server {sign}, {remedy} the class of {kind.kind}"
