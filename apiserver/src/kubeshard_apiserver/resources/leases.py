"""Leases, without coordinated leader election: its feature gate is off by default.

Source: k8s.io/kubernetes `pkg/registry/coordination/lease`.
"""

from __future__ import annotations

from kubeshard_apiserver.objects import Object
from kubeshard_apiserver.resources.typed import Typed

_COORDINATED = ("strategy", "preferredHolder")


class Leases(Typed):
    """Leases. The fields of coordinated leader election are kept only where they were stored before."""

    def prepare_create(self, obj: Object) -> None:
        super().prepare_create(obj)
        _drop(obj["spec"], {})

    def prepare_update(self, new: Object, old: Object, subresource: str) -> None:
        super().prepare_update(new, old, subresource)
        _drop(new["spec"], old["spec"])


def _drop(spec: Object, before: Object) -> None:
    for name in _COORDINATED:
        if name in spec and name not in before:
            del spec[name]
