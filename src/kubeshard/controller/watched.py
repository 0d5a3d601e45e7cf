"""The watches of a controller, each with what it triggers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubeshard.controller.controller import Controller
from kubeshard.controller.mapping import KeysOf, Reader, mapped_by, to_itself, to_owner
from kubeshard.controller.watch import Watch


def mapped_watches(controller: Controller[Any], reader: Reader) -> Iterator[tuple[Watch[Any], KeysOf]]:
    """The watches in the cluster of the primary objects, in the order of `Controller.watches`."""
    primary = controller.primary_watch
    yield primary, to_itself
    for watch in controller.owned_watches:
        yield watch, to_owner(primary.form.kind, controller_only=not watch.any_owner)
    for watch in controller.mapping_watches:
        yield watch, mapped(watch, reader)


def mapped(watch: Watch[Any], reader: Reader) -> KeysOf:
    """The keys that a watch in `Controller.maps` triggers."""
    assert watch.to is not None, "checked where the controller is declared"
    return mapped_by(watch.to, reader)
