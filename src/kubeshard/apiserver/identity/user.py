"""Who asks, as authentication found out and authorization and admission are told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class User:
    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


ADMINISTRATOR = User("kubernetes-admin", groups=("system:masters", "system:authenticated"))
