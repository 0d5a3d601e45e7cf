"""Controllers for kinds that are only known at run time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from kubeshard.controller.controller import Controller
from kubeshard.core.grants import READ, Grant
from kubeshard.core.kinds import Kind
from kubeshard.core.objects import metadata_only
from kubeshard.core.partial_kinds import CustomResourceDefinition

DEFINITIONS = metadata_only(CustomResourceDefinition)


@dataclass(frozen=True, slots=True)
class EveryKind:
    """A controller for each kind that the server serves, as kinds come and go.

        def labels(kind: Kind) -> Controller[Any] | None:
            if not kind.group.endswith("example.com"):
                return None
            name = safe_name("labels", kind.plural, kind.group)
            return Controller(name=name, reconciler=reconcile, primary=metadata_only(kind))

        Manager([EveryKind(labels)])

    `make` returns the controller for a kind, or None to ignore the kind. It is called once for each kind that can be
    listed and watched, in its group's preferred version, and again when a removed kind returns. With
    `metadata_only(kind)` as its primary kind a controller caches little; `Form(kind, SomeClass)` reads more.

    Guaranteed: a new CustomResourceDefinition is picked up within seconds, its controller is removed when the kind is
    no longer served, and no controller is removed because a server does not respond. If `make` raises, that kind, and
    only that kind, has no controller until it is served anew. Kinds of an extension API server may take a minute to
    be noticed.

    RBAC: `list` and `watch` on `customresourcedefinitions`, without which new kinds are seen within a minute; and
    whatever the controllers need.
    """

    make: Callable[[Kind], Controller[Any] | None]

    def grants(self, controllers: Iterable[Controller[Any]], scope_of: object = None) -> Iterable[Grant]:
        """The RBAC rules needed here; those of the controllers are not known before they are created."""
        return (Grant.on(DEFINITIONS, *READ),)
