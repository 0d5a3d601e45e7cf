"""The authorization attributes of a request. Source: k8s.io/apiserver `endpoints/request`."""

from __future__ import annotations

from urllib.parse import unquote

from kubeshard.core.selectors import FieldSelector, InvalidSelector
from kubeshard_apiserver.access.authorizer import Attributes
from kubeshard_apiserver.front.requests import Request
from kubeshard_apiserver.front.routes import ResourcePath

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
