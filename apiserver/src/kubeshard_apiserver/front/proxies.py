"""The subresource `proxy` of pods, services and nodes: the errors that occur before a connection is made.

There is no network behind this server, so no connection is ever made. Source: k8s.io/kubernetes
`pkg/registry/core/*/rest`.
"""

from __future__ import annotations

from dataclasses import replace

from kubeshard.core.errors import ApiError
from kubeshard.core.kinds import GroupResource
from kubeshard_apiserver.front.special import Question
from kubeshard_apiserver.model import Answer
from kubeshard_apiserver.objects import Object
from kubeshard_apiserver.status import bad_request, internal, not_found
from kubeshard_apiserver.steps import Steps

_SERVICES = GroupResource("", "services")
_SCHEMES = ("", "http", "https")


def proxied(question: Question) -> Steps[Answer]:
    """Always fails. Raises NotFound, Invalid (400) or ApiError (500, 503)."""
    target = question.target
    named = _named(target.name)
    if named is None:
        raise bad_request(f'invalid {target.resource.singular} request "{target.name}"')
    name, port = named
    live = question.server.live(replace(target, name=name))
    yield from ()
    match target.resource.kind.kind:
        case "Service":
            raise _of_service(live, name, port)
        case "Node" if not live["status"].get("addresses"):
            raise internal("no preferred addresses found; known addresses: []")
        case "Pod" if not live["status"].get("podIP"):
            raise bad_request("address not allowed")
    raise _unavailable("there is no network behind this server")


def _named(text: str) -> tuple[str, str] | None:
    """Parses `name`, `name:port` or `scheme:name:port` into name and port."""
    match text.split(":"):
        case [name]:
            return name, ""
        case [name, port]:
            return name, port
        case [scheme, name, port] if scheme in _SCHEMES:
            return name, port
    return None


def _of_service(service: Object, name: str, port: str) -> ApiError:
    ports = service["spec"].get("ports") or ()
    if port.isdecimal() and int(port) not in (one["port"] for one in ports):
        return _unavailable(f'no service port {port} found for service "{name}"')
    return not_found(_SERVICES, name)


def _unavailable(message: str) -> ApiError:
    return ApiError(message, code=503, reason="ServiceUnavailable")
