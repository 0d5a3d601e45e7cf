"""The effects of a CustomResourceDefinition: its names are accepted, its kind is served, and its deletion deletes its
objects.

On the real server, controllers do this a moment later; here it is done when the write returns.
"""

from __future__ import annotations

from typing import Any

from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard_apiserver.model import Model, Target, WriteOptions
from kubeshard_apiserver.objects import Object, is_deleting, with_metadata
from kubeshard_apiserver.resources.definitions import (
    CLEANUP_FINALIZER,
    DEFINITIONS,
    established,
    is_established,
    kinds_of,
    resource_of,
    waiting_for_objects,
    with_approval,
)
from kubeshard_apiserver.status import not_found
from kubeshard_apiserver.steps import finish
from kubeshard_apiserver.verbs.updating import MutateFn, Updates, is_same

_OPTIONS = WriteOptions(manager="kube-apiserver", asks=False)


class Definitions:
    def __init__(self, model: Model, updates: Updates) -> None:
        self._model = model
        self._store = model.store
        self._registry = model.registry
        self._updates = updates
        self._served: dict[GroupResource, tuple[Any, Any]] = {}
        """The parts of the definitions that determine how their resources are served."""

    def defined(self, definition: Object) -> None:
        """Puts a definition into effect after it has been written."""
        self._settle(definition)
        self._settle_others(definition)

    def _settle(self, definition: Object) -> None:
        if with_approval(definition, self._model.now()) != definition:
            definition = self._report(definition, lambda live: with_approval(live, self._model.now()))
        if definition["spec"]["names"] != definition["status"].get("acceptedNames"):
            others = self._group(definition)
            definition = self._report(definition, lambda live: established(live, others, self._model.now()))
        self.serve(definition)

    def _settle_others(self, definition: Object) -> None:
        """Settles the other definitions of the group, because names may have become available."""
        for other in self._group(definition):
            if other["spec"]["names"] != other["status"].get("acceptedNames") and not is_deleting(other):
                self._settle(other)

    def _group(self, definition: Object) -> list[Object]:
        """The other definitions of the group."""
        name, group = definition["metadata"]["name"], definition["spec"]["group"]
        found = self._store.objects(DEFINITIONS).values()
        return [
            other for other in found if other["spec"]["group"] == group and other["metadata"]["name"] != name
        ]

    def _report(self, definition: Object, mutate: MutateFn) -> Object:
        name = definition["metadata"]["name"]
        resource = self._registry.find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        if resource is None:
            raise not_found(DEFINITIONS, name)
        target = Target(resource, "", name, "status")
        live, new, _ = finish(self._updates.updating(target, mutate, _OPTIONS))
        return live if is_same(new, live) else self._store.put(DEFINITIONS, target.key, new)

    def _is_served(self, definition: Object) -> bool:
        """An established definition in one of the server's own groups changes nothing about what is served there."""
        return is_established(definition) and not self._registry.is_builtin(definition["spec"]["group"])

    def serve(self, definition: Object) -> None:
        """Serves the kind of the definition from now on, unless nothing of it is to be served."""
        if not self._is_served(definition):
            return
        resource = resource_of(definition)
        self._registry.remove(resource)
        self._store.open(resource)
        decides = definition["spec"], definition["status"].get("acceptedNames")
        if self._served.setdefault(resource, decides) != decides:
            # The real server recreates the storage of the kind, including the watch cache.
            self._store.interrupt(resource)
            self._served[resource] = decides
        for served in kinds_of(definition):
            self._registry.add(served)

    def doom_objects(self, definition: Object) -> None:
        """Deletes the objects of a definition that is being deleted. Objects with finalizers delay its removal."""
        resource = resource_of(definition)
        if self._is_served(definition):
            now = self._model.now()
            for key, obj in list(self._store.objects(resource).items()):
                if not obj["metadata"].get("finalizers"):
                    self._store.remove(resource, key)
                elif not is_deleting(obj):
                    doomed = with_metadata(obj, deletionTimestamp=now, deletionGracePeriodSeconds=0)
                    self._store.put(resource, key, doomed)
            if self._store.objects(resource):
                self.serve(
                    self._report(definition, lambda live: waiting_for_objects(live, self._model.now()))
                )
                return
        self._vanish(definition)

    def gone(self, target: Target) -> None:
        """Called after an object has been removed: it may be the last one that a definition being deleted is waiting
        for.
        """
        resource = target.group_resource
        if not target.resource.strategy.is_custom or self._store.objects(resource):
            return
        definition = self._store.get(DEFINITIONS, Key("", f"{resource.resource}.{resource.group}"))
        if definition is not None and is_deleting(definition):
            self._vanish(definition)

    def _vanish(self, definition: Object) -> None:
        resource, key = resource_of(definition), Key("", definition["metadata"]["name"])
        if self._is_served(definition):
            self._registry.remove(resource)
            self._store.close(resource)
            self._served.pop(resource, None)
        finalizers = definition["metadata"].get("finalizers") or ()
        left = [name for name in finalizers if name != CLEANUP_FINALIZER]
        if left:
            self._store.put(DEFINITIONS, key, with_metadata(definition, finalizers=left))
        else:
            self._store.remove(DEFINITIONS, key)
            self._settle_others(definition)
