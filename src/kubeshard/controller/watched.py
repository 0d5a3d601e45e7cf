"""The watches of a controller, each with what it triggers.

Guaranteed: a controller with finalizers is triggered when the deletion of an object with one of them begins; one with
daemons also when `restart_on` changes or the object is gone, whatever the `when` of its primary watch lets pass.
Otherwise every deletion would wait forever.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from kubeshard.cache.deltas import Added, Deleted, Delta, Updated
from kubeshard.controller.controller import Controller
from kubeshard.controller.mapping import KeysOf, Reader, mapped_by, to_itself, to_owner
from kubeshard.controller.watch import Watch
from kubeshard.controller.when import Predicate


def mapped_watches(controller: Controller[Any], reader: Reader) -> Iterator[tuple[Watch[Any], KeysOf]]:
    """The watches in the cluster of the primary objects, in the order of `Controller.all_watches`."""
    primary = controller.primary_watch
    if controller.finalizers or controller.daemons:
        yield replace(primary, when=primary.when | _lives(controller)), to_itself
    else:
        yield primary, to_itself
    for watch in controller.owned_watches:
        yield watch, to_owner(primary.form.kind, controller_only=not watch.any_owner)
    for watch in controller.mapping_watches:
        yield watch, mapped(watch, reader)
    for watch in controller.read_watches:
        yield watch, to_itself


def mapped(watch: Watch[Any], reader: Reader) -> KeysOf:
    """The keys that a watch in `Controller.watches` triggers."""
    assert watch.to is not None, "checked where the controller is declared"
    return mapped_by(watch.to, reader)


def _lives(controller: Controller[Any]) -> Predicate[Any]:
    """Passes what finalizers and daemons must not miss. Other changes of an object that is being deleted are left to
    the watch: a cleanup may write to its object, and would trigger itself.
    """
    keys = {finalizer.key for finalizer in controller.finalizers}
    daemons = controller.daemons

    def concerns(obj: Any) -> bool:
        return bool(daemons) or not keys.isdisjoint(obj.metadata.finalizers)

    def test(delta: Delta[Any]) -> bool:
        match delta:
            case Added(obj):
                return obj.metadata.deleting and concerns(obj)
            case Updated(old, new):
                if old.metadata.deletion_timestamp != new.metadata.deletion_timestamp:
                    return concerns(new)
                return any(daemon.restart_on(old) != daemon.restart_on(new) for daemon in daemons)
            case Deleted():
                return bool(daemons)

    return Predicate(test, "lives")
