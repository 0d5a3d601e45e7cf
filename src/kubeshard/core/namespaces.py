"""The one rule for namespaces, in every verb of the client, the cache and a reconcile's context.

| kind | a verb about one object (`get`, `patch`, `delete`, ...) | a verb about many (`list`, `watch`, ...) |
|---|---|---|
| with namespaces | its namespace | a namespace, or `ALL` |
| without | none | none; `ALL` is all there are |

Where a namespace is left out, it is the own one of the object at hand: an object that is written has its own, and in a
`Context` it is that of the reconciled object. Where there is no such object, or where that has no namespace, it is
missing, and that is an error: never all namespaces, never `default`, never the one of a kubeconfig. A namespace for a
kind that has none is an error too.

None means that it was left out. `""` is what an object without a namespace has: right for kinds without namespaces, and
missing for all others.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from kubeshard.core.errors import Terminal
from kubeshard.core.kinds import Kind


class All(Enum):
    """The type of `ALL`."""

    ALL = "all namespaces"

    def __repr__(self) -> str:
        return "ALL"


ALL: Final = All.ALL
"""All namespaces, said on purpose."""


class WrongNamespace(Terminal, ValueError):
    """A namespace that is missing, or one for a kind that has none."""


def namespace_of(kind: Kind, name: str, namespace: str | None, own: str = "") -> str:
    """Where one object is; `""` for kinds without namespaces. `own`: that of the object at hand.

    Raises WrongNamespace.
    """
    if not kind.namespaced:
        if namespace:
            raise _refused(kind, namespace)
        return ""
    if namespace is None:
        namespace = own
    if not namespace:
        raise WrongNamespace(f"{kind} has namespaces: say in which one{f' {name!r} is' if name else ''}")
    return namespace


def namespaces_of(kind: Kind, namespace: str | All | None, own: str = "") -> str | All:
    """Where many objects are: in one namespace, or in all; `ALL` for kinds without namespaces.

    Raises WrongNamespace.
    """
    if not kind.namespaced:
        if namespace and namespace is not ALL:
            raise _refused(kind, namespace)
        return ALL
    if namespace is None:
        namespace = own
    if not namespace:
        raise WrongNamespace(f"{kind} has namespaces: say which one, or ALL")
    return namespace


def _refused(kind: Kind, namespace: str | All) -> WrongNamespace:
    return WrongNamespace(f"{kind} has no namespaces: leave {namespace!r} out")
