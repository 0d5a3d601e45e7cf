"""The resources that URL paths of the Kubernetes API refer to, the methods served there, and the attributes under
which a request is authorized. Pure.

Paths of built-in kinds are routed: a path without methods results in NotFound, and an unsupported method in
MethodNotAllowed. All custom resources share one handler, which checks the verb. Source: k8s.io/apiserver
`endpoints/installer.go`, `endpoints/request`, k8s.io/apiextensions-apiserver `pkg/apiserver/customresource_handler.go`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

from kubeshard.core.selectors import FieldSelector, InvalidSelector
from kubeshard_apiserver.access import Attributes
from kubeshard_apiserver.front.requests import Request
from kubeshard_apiserver.resources.registry import Resource
from kubeshard_apiserver.status import method_not_allowed, no_such_path, not_found, verb_not_allowed

_OF_NAMESPACES = ("status", "finalize")
_ACROSS_NAMESPACES = {"GET": "list"}
_OF_COLLECTION = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
_OF_OBJECT = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_OF_WATCH = {"GET": "watch"}
_OF_PART = {**_OF_OBJECT, "POST": "create"}
_OF_PROXY = {**_OF_PART, "HEAD": "get", "OPTIONS": "get"}
_PROXY = "proxy"
_ACROSS = ("list", "watch")
_DECLARED = ("get", "update", "patch")


class ResourcePath(NamedTuple):
    """A parsed path. `namespace` and `name` are empty if the path has none. `watch` marks the old form
    `/api/v1/watch/...`. `below` says whether the path continues after the subresource.
    """

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    watch: bool = False
    below: bool = False


def resource_path(path: str) -> ResourcePath | None:
    """Parses a path. Returns None for other paths (discovery documents, health, nonsense)."""
    return (_read if len(path) <= _LONGEST_KEPT else _read.__wrapped__)(path)


_LONGEST_KEPT = 1024


@lru_cache(2048)
def _read(path: str) -> ResourcePath | None:
    parts = path.strip("/").split("/")
    if "%" in path:
        parts = [unquote(part) for part in parts]
    match parts:
        case ["api", version, *rest] if rest:
            return _resource("", version, rest)
        case ["apis", group, version, *rest] if rest:
            return _resource(group, version, rest)
    return None


def _resource(group: str, version: str, rest: list[str]) -> ResourcePath | None:
    watch = rest[0] == "watch" and len(rest) > 1
    if watch:
        rest = rest[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and not (len(rest) == 3 and rest[2] in _OF_NAMESPACES):
        namespace, rest = rest[1], rest[2:]
    if not all(rest[:3]):
        return None
    plural, name, subresource = [*rest, "", ""][:3]
    return ResourcePath(group, version, plural, namespace, name, subresource, watch, len(rest) > 3)


def check_route(path: ResourcePath, resource: Resource, method: str) -> None:
    """Checks that the path of a built-in kind is served: each has its own routes. Raises NotFound, ApiError (405)."""
    if resource.strategy.is_custom:
        return
    served = _served(path, resource)
    if not served:
        raise no_such_path()
    if method not in served:
        raise method_not_allowed()


def _served(path: ResourcePath, resource: Resource) -> set[str]:
    """Returns the methods served at the path."""
    kind, entry = resource.kind, resource.parts.get(path.subresource)
    if path.subresource and (entry is None or path.watch):
        return set()
    if path.below and path.subresource != _PROXY:
        return set()
    everywhere = kind.namespaced and not path.namespace
    if (path.namespace and not kind.namespaced) or (everywhere and path.name):
        return set()
    methods: Mapping[str, str]
    if entry is not None:
        methods = _OF_PROXY if path.subresource == _PROXY else _OF_PART
    elif path.watch:
        methods = _OF_WATCH
    elif path.name:
        methods = _OF_OBJECT
    else:
        methods = _ACROSS_NAMESPACES if everywhere else _OF_COLLECTION
    verbs = resource.verbs if entry is None else entry.verbs
    return {method for method, verb in methods.items() if verb in verbs}


def check_custom(path: ResourcePath, resource: Resource, verb: str) -> None:
    """Checks that the path of a custom resource is served: all have one handler. `verb` is the authorization verb.
    Raises NotFound, ApiError (405).
    """
    if not resource.strategy.is_custom:
        return
    if path.subresource and path.subresource not in resource.subresources:
        raise not_found(resource.kind.group_resource, path.name)
    if verb not in (_DECLARED if path.subresource else resource.verbs):
        raise verb_not_allowed(resource.kind.group_resource, verb)


def is_possible(path: ResourcePath, resource: Resource, verb: str) -> bool:
    """Whether objects of a custom resource can exist at this path; built-in kinds are routed instead."""
    if not resource.strategy.is_custom:
        return True
    if resource.kind.namespaced and not path.namespace:
        return verb in _ACROSS
    return resource.kind.namespaced or not path.namespace


__all__ = ["Attributes", "attributes_of"]

_VERBS = {
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
    "GET": "get",
    "HEAD": "get",
}
_NO_SEGMENTS = (".", "..")


def attributes_of(request: Request, path: ResourcePath | None) -> Attributes:
    """Returns the attributes of a request. `path` is None if the front does not treat the path as a resource, although
    it may still name one.
    """
    path = path or _long_path(request.path)
    if path is None:
        return Attributes(request.method.lower(), unquote(request.path))
    verb, name = _VERBS.get(request.method, ""), path.name
    if path.watch:
        verb = "watch"
    elif verb == "get" and not name:
        verb = "watch" if request.watches else "list"
        name = _selected_name(request)
    elif verb == "delete" and not name:
        verb = "deletecollection"
    namespace = path.namespace
    if path.plural == "namespaces" and not namespace:
        namespace = path.name
    return Attributes(
        verb, request.path, path.group, path.version, path.plural, path.subresource, namespace, name
    )


def _selected_name(request: Request) -> str:
    """Returns the name that a list is restricted to: RBAC may allow a list of just that name."""
    text = request.query.get("fieldSelector", "")
    if "metadata.name" not in text:
        return ""
    try:
        requirements = FieldSelector.parse(text).requirements
    except InvalidSelector:
        return ""
    for requirement in requirements:
        if requirement.path == "metadata.name" and not requirement.negated:
            name = requirement.value
            return "" if name in _NO_SEGMENTS or "/" in name or "%" in name else name
    return ""


def _long_path(path: str) -> ResourcePath | None:
    """Reads a path that continues after the subresource, such as `/api/v1/nodes/a/proxy/b/c`. The rest is not
    interpreted.
    """
    match unquote(path).strip("/").split("/"):
        case ["api", version, *rest]:
            group = ""
        case ["apis", group, version, *rest]:
            pass
        case _:
            return None
    if not rest:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = [*rest, "", ""][:3]
    return ResourcePath(group, version, plural, namespace, name, subresource)
