"""The errors that a cache raises instead of returning a wrong result."""

from __future__ import annotations

from kubeshard.core.errors import KubeshardError


class UndeclaredKind(KubeshardError):
    """A read of an undeclared kind, form or scope: declare it (a controller's `Watch` does), or read it live."""


class OutsideScope(KubeshardError):
    """A read of a namespace outside the informer's scope, which could never find anything."""


class CacheBehind(KubeshardError):
    """The cache did not show own writes in time, or is not filled yet. Requeue: acting now would use stale state."""
