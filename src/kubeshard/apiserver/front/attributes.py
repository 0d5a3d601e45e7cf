"""What a request wants to do, in the words of authorization: verb, resource, or path."""

from __future__ import annotations

from dataclasses import dataclass

from kubeshard.apiserver.front.paths import ResourcePath
from kubeshard.apiserver.front.requests import Request

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


@dataclass(frozen=True)
class Attributes:
    """`resource` is empty for paths that name none; then `verb` is the HTTP method in lower case."""

    verb: str
    path: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


def attributes_of(request: Request, path: ResourcePath | None) -> Attributes:
    if path is None:
        return Attributes(request.method.lower(), request.path)
    verb = _verb(request, path)
    return Attributes(
        verb, request.path, path.group, path.version, path.plural, path.subresource, path.namespace, path.name
    )


def _verb(request: Request, path: ResourcePath) -> str:
    match request.method:
        case "GET" | "HEAD" if path.watch or (request.watches and not path.subresource):
            return "watch"
        case "GET" | "HEAD":
            return "get" if path.name else "list"
        case "DELETE":
            return "delete" if path.name else "deletecollection"
    return _VERBS.get(request.method, request.method.lower())
