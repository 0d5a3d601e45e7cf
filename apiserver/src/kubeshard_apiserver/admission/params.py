"""The parameter objects that a binding passes to its policy.

Source: KEP-3488, k8s.io/apiserver `admission/plugin/policy/generic`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubeshard.core.objects import Key
from kubeshard_apiserver.admission.matching import selector_of
from kubeshard_apiserver.model import in_version
from kubeshard_apiserver.objects import Object, labels_of
from kubeshard_apiserver.resources.registry import Registry, Resource
from kubeshard_apiserver.store import Store


class BadParams(Exception):
    """Raised if the parameters of a binding cannot be found; the message is the server's."""


class Params:
    def __init__(self, registry: Registry, store: Store) -> None:
        self._registry = registry
        self._store = store

    def of(
        self, kind: Mapping[str, Any] | None, ref: Mapping[str, Any] | None, namespace: str
    ) -> Sequence[Object | None]:
        """Returns the parameter objects, or a single None if the policy or the binding names none. Raises BadParams."""
        if not kind or not ref:
            return [None]
        resource = self._resource(kind["apiVersion"], kind["kind"])
        if resource is None:
            raise BadParams(
                f"failed to find resource referenced by paramKind: '{_shown(kind['apiVersion'], kind['kind'])}'"
            )
        namespace = self._place(resource, ref, namespace)
        objects = self._store.objects(resource.group_resource)
        if name := ref.get("name"):
            found = [obj for obj in (objects.get(Key(namespace, name)),) if obj is not None]
        else:
            selector = selector_of(ref.get("selector"))
            found = [
                obj
                for key, obj in objects.items()
                if key.namespace == namespace and selector.matches(labels_of(obj))
            ]
        if not found and ref.get("parameterNotFoundAction") == "Deny":
            raise BadParams("no params found for policy binding with `Deny` parameterNotFoundAction")
        return [in_version(resource, obj) for obj in found]

    def _place(self, resource: Resource, ref: Mapping[str, Any], namespace: str) -> str:
        given: str = ref.get("namespace") or ""
        if not resource.kind.namespaced:
            if given:
                raise BadParams("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
            return ""
        if not given and not namespace:
            raise BadParams(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
            )
        return given or namespace

    def _resource(self, api_version: str, kind: str) -> Resource | None:
        group, _, version = api_version.rpartition("/")
        of_version = self._registry.of(group, version)
        return next((resource for resource in of_version if resource.kind.kind == kind), None)


def _shown(api_version: str, kind: str) -> str:
    group, _, version = api_version.rpartition("/")
    return f"{group}/{version}, Kind={kind}"
