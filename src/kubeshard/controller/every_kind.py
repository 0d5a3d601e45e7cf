"""Controllers for kinds that are known at run time only."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from kubeshard.controller.controller import Controller
from kubeshard.core.grants import READ, Grant
from kubeshard.core.kinds import Kind
from kubeshard.core.objects import metadata_only

DEFINITIONS = metadata_only(
    Kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", False)
)


@dataclass(frozen=True, slots=True)
class EveryKind:
    """A controller for each kind that the server serves, as kinds come and go.

        def labels(kind: Kind) -> Controller[Any] | None:
            if not kind.group.endswith("example.com"):
                return None
            name = safe_name("labels", kind.plural, kind.group)
            return Controller(name=name, reconciler=reconcile, primary=metadata_only(kind))

        Manager([EveryKind(labels)])

    `make` gives the controller for a kind, or None for one that is none of its business. It is called once for each
    kind that can be listed and watched, in the version that its group prefers, and again after the kind was gone. With
    `metadata_only(kind)` as its primary kind a controller holds little; `Form(kind, SomeClass)` reads more.

    Guaranteed: a definition that is created is picked up within seconds, its controller is removed when the kind is not
    served any more, and nothing is removed because a server does not answer. A `make` that raises costs that kind its
    controller until it is served anew, and nothing else. Not guaranteed: that a kind of an extension server is seen
    sooner than within a minute.

    RBAC: `list` and `watch` on `customresourcedefinitions`, without which new kinds are seen within a minute; and
    whatever the controllers need.
    """

    make: Callable[[Kind], Controller[Any] | None]

    def grants(self, controllers: Iterable[Controller[Any]]) -> Iterable[Grant]:
        """What RBAC has to allow, beside what the controllers need, which is not known before they are made."""
        return (Grant.on(DEFINITIONS, *READ),)
