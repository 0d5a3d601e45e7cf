"""One request in, one reply out.

Guaranteed: whatever a request says, the reply is what an API server gives: an object, a Status with the right
code and reason, or a stream. Everybody may do everything: there is no authentication and no authorization
yet.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kubeshard.apiserver.front.documents import VERSION, discovery, list_document, partial
from kubeshard.apiserver.front.negotiation import JSON, Format, negotiate
from kubeshard.apiserver.front.paths import ResourcePath, resource_path
from kubeshard.apiserver.front.requests import Request
from kubeshard.apiserver.front.streaming import event_stream
from kubeshard.apiserver.model import Answer, Target
from kubeshard.apiserver.patching import patch_of
from kubeshard.apiserver.server import ApiServer
from kubeshard.apiserver.status import as_status, bad_request, method_not_allowed, no_such_path
from kubeshard.core.errors import ApiError
from kubeshard.runtime.transport import HttpRequest

_PROBES = ("/readyz", "/livez", "/healthz")
_TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True)
class Reply:
    """`stream` stands in for `body` where the reply arrives piece by piece."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""
    stream: AsyncGenerator[bytes, None] | None = None
    warnings: tuple[str, ...] = field(default=())


class Front:
    """Belongs to the event loop that its server's writes happen on."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server

    def reply(self, request: HttpRequest) -> Reply:
        """Never raises for what a client may send."""
        try:
            return self._reply(Request(request))
        except ApiError as error:
            return _refusal(error)
        except RecursionError:
            return _refusal(bad_request("the document is nested too deeply"))

    def _reply(self, request: Request) -> Reply:
        path = resource_path(request.path)
        if path is None:
            return self._document(request)
        resource = self.server.registry.find(path.group, path.version, path.plural)
        if resource is None:
            if self.server.registry.is_builtin(path.group):
                raise no_such_path()
            return _page_not_found()
        format_ = negotiate(request.headers.get("accept", ""))
        target = Target(resource, path.namespace, path.name, path.subresource)
        if bool(path.namespace) and not resource.kind.namespaced:
            raise no_such_path()
        if path.watch or (request.watches and request.method == "GET" and not path.subresource):
            return self._watch(target, request, format_)
        handle = self._of_object if path.name else self._of_collection
        return handle(target, request, format_, path)

    def _of_object(self, target: Target, request: Request, format_: Format, path: ResourcePath) -> Reply:
        if target.resource.kind.namespaced and not target.namespace:
            raise no_such_path()
        self._check_subresource(target)
        match request.method:
            case "GET":
                obj = self.server.get(target, request.query.get("resourceVersion", ""))
                return _object(Answer(200, obj), format_)
            case "PUT":
                options = request.write_options("UpdateOptions")
                body = request.decode(target.resource.kind.kind)
                return _object(self.server.replace(target, body, options), format_)
            case "PATCH":
                document = request.decode_patch()
                options = request.write_options("PatchOptions")
                patch = patch_of(request.content_type, document)
                return _object(self.server.patch(target, patch, options), format_)
            case "DELETE" if not path.subresource:
                return _object(self.server.delete(target, request.delete_options()), format_)
        raise method_not_allowed()

    def _check_subresource(self, target: Target) -> None:
        """Of custom resources the server knows the names of all subresources, whether they are declared or
        not.
        """
        known = ("status", "scale") if target.resource.strategy.is_custom else target.resource.subresources
        if target.subresource and target.subresource not in known:
            raise no_such_path()

    def _of_collection(self, target: Target, request: Request, format_: Format, path: ResourcePath) -> Reply:
        match request.method:
            case "GET":
                page = self.server.list(target, request.list_options())
                return _document(
                    200, list_document(target.resource, page, metadata_only=format_.metadata_only), format_
                )
            case "POST" if target.namespace or not target.resource.kind.namespaced:
                options = request.write_options("CreateOptions")
                body = request.decode(target.resource.kind.kind)
                return _object(self.server.create(target, body, options), format_)
            case "DELETE" if "deletecollection" in target.resource.verbs and (
                target.namespace or not target.resource.kind.namespaced
            ):
                page = self.server.delete_collection(target, request.list_options(), request.delete_options())
                return _document(
                    200, list_document(target.resource, page, metadata_only=format_.metadata_only), format_
                )
        raise method_not_allowed()

    def _watch(self, target: Target, request: Request, format_: Format) -> Reply:
        options = request.list_options()
        watch = self.server.watch(target, options)
        stream = event_stream(watch, format_, seconds=request.timeout, bookmarks=options.allow_bookmarks)
        return Reply(200, {"content-type": JSON}, stream=stream)

    def _document(self, request: Request) -> Reply:
        path = request.path.rstrip("/")
        if request.method == "GET":
            if path in _PROBES:
                return Reply(200, {"content-type": _TEXT}, b"ok")
            document = VERSION if path == "/version" else discovery(self.server.registry, path)
            if document is not None:
                return _document(200, document, negotiate(_plain(request.headers.get("accept", ""))))
        return _page_not_found()


def _plain(accept: str) -> str:
    """Discovery documents come in their plain form whatever newer one is preferred."""
    return accept if "application/json" not in accept else JSON


def _object(answer: Answer, format_: Format) -> Reply:
    is_status = answer.object.get("kind") == "Status"
    document = partial(answer.object) if format_.metadata_only and not is_status else answer.object
    return _document(answer.code, document, format_, answer.warnings)


def _document(status: int, document: Any, format_: Format, warnings: tuple[str, ...] = ()) -> Reply:
    headers = {"content-type": format_.media_type}
    if warnings:
        headers["warning"] = ", ".join(f"299 - {_quoted(text)}" for text in warnings)
    return Reply(status, headers, format_.encode(document), warnings=warnings)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _refusal(error: ApiError) -> Reply:
    headers = {"content-type": JSON}
    if seconds := error.details.get("retryAfterSeconds"):
        headers["retry-after"] = str(seconds)
    return Reply(error.code, headers, msgspec.json.encode(as_status(error)))


def _page_not_found() -> Reply:
    return Reply(404, {"content-type": _TEXT}, b"404 page not found\n")
