"""What a cache raises instead of an answer that would be wrong."""

from __future__ import annotations

from kubeshard.core.errors import KubeshardError


class UndeclaredKind(KubeshardError):
    """A read of a kind, form or scope that was not declared: declare it (a controller's `Watch` does) or read
    it live.
    """


class OutsideScope(KubeshardError):
    """A read of a namespace that the informer's scope does not hold, so that the answer would always be "not there"."""


class CacheBehind(KubeshardError):
    """The cache did not show own writes in time, or is not filled yet. Requeue: acting now would be acting on the
    past.
    """
