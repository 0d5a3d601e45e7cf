"""Turns a request into a reply.

Guaranteed: whatever a request contains and whatever fails, the reply is one that an API server would send: an object,
a Status with the right code and reason, or a stream. No reply reveals a write that a crash could still undo (see
`Store.settled`).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

from kubeshard.core.errors import ApiError, Invalid
from kubeshard.core.kinds import GroupResource
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.transport import HttpRequest
from kubeshard_apiserver.front.discovery import aggregated_discovery, discovery
from kubeshard_apiserver.front.documents import VERSION, Tables
from kubeshard_apiserver.front.gate import UNKNOWN, Gate, Identity, Open, Peer
from kubeshard_apiserver.front.handler import Handler, HandlerContext
from kubeshard_apiserver.front.monitoring import Metrics, Probes
from kubeshard_apiserver.front.openapi import OpenApi
from kubeshard_apiserver.front.pods import attached, binding, eviction, logs, proxied
from kubeshard_apiserver.front.replies import (
    JSON,
    LISTED,
    PRODUCED,
    PROTOBUF,
    WATCH,
    YAML,
    Format,
    Reply,
    document_reply,
    list_reply,
    negotiate,
    negotiate_discovery,
    negotiate_error,
    object_reply,
    page_not_found,
    refusal,
    version_reply,
    warned,
)
from kubeshard_apiserver.front.requests import Request
from kubeshard_apiserver.front.reviews import REVIEWS
from kubeshard_apiserver.front.routes import (
    attributes_of,
    check_custom,
    check_route,
    is_possible,
    resource_path,
)
from kubeshard_apiserver.front.scaling import scale
from kubeshard_apiserver.front.streaming import EventLines, EventSource, error_line, event_stream
from kubeshard_apiserver.front.tokens import CONFIGURATION, KEYS, openid_reply, token_request
from kubeshard_apiserver.model import Answer, Target
from kubeshard_apiserver.patching import APPLY, Patch, patch_of
from kubeshard_apiserver.printing import printer_of
from kubeshard_apiserver.resources.conversion_webhooks import Unconvertible
from kubeshard_apiserver.resources.registry import Resource
from kubeshard_apiserver.server import ApiServer
from kubeshard_apiserver.status import bad_request, broken, method_not_allowed, no_such_path, only_accepted
from kubeshard_apiserver.steps import NoCalls, Offload, Steps, Wait, WebhookCaller, Work, at_once, perform
from kubeshard_apiserver.verbs.watching import WatchCursor

T = TypeVar("T")

log = get_logger("kubeshard_apiserver")

_LISTING = ("list", "watch")
_LONGEST_AUDIT_ID = 64
_KINDS: Mapping[GroupResource, Handler] = {**REVIEWS, GroupResource("", "bindings"): binding}
"""Kinds without storage: a create is answered, but nothing is stored."""

_SUBRESOURCES: Mapping[str, Handler] = {
    "attach": attached,
    "binding": binding,
    "eviction": eviction,
    "exec": attached,
    "log": logs,
    "portforward": attached,
    "proxy": proxied,
    "scale": scale,
    "token": token_request,
}
"""The subresources of every resource that declares them. `status` and `finalize` are plain storage."""


class Replier(Protocol):
    """Whatever answers requests as a front does."""

    async def reply(self, request: HttpRequest, peer: Peer = UNKNOWN) -> Reply: ...


class Front:
    """The request handler of a server, bound to the event loop on which the server writes. `offload` runs the
    processing of large bodies, so that other requests can be answered meanwhile (by default it runs in place).
    """

    def __init__(
        self,
        server: ApiServer,
        *,
        gate: Gate | None = None,
        caller: WebhookCaller | None = None,
        offload: Offload = at_once,
    ) -> None:
        self.server = server
        self.gate = gate or Open()
        self._caller = caller or NoCalls()
        self._offload = offload
        self._settled = server.store.settled if server.durable else None
        self._openapi = OpenApi(server.registry)
        self._lines = EventLines()
        self._probes = Probes(server.store)
        self.metrics = Metrics(server)

    async def reply(self, request: HttpRequest, peer: Peer = UNKNOWN) -> Reply:
        """Replies to a request. Never raises: an internal error results in a 500 with a Status, and a traceback in the
        log. The stream of the reply does not raise either; an internal error ends it with an ERROR.
        """
        return await perform(self._answering(request, peer), self._caller, self._offload)

    def begin(self, request: HttpRequest, peer: Peer = UNKNOWN) -> Reply | Coroutine[Any, Any, Reply]:
        """As `reply`, but returns at once: the reply itself, if it needs nothing that has to be waited for."""
        steps = self._answering(request, peer)
        try:
            reached = next(steps)
        except StopIteration as end:
            reply: Reply = end.value
            return reply
        return perform(steps, self._caller, self._offload, reached)

    def _answering(self, request: HttpRequest, peer: Peer) -> Steps[Reply]:
        try:
            return (yield from self._counted(request, peer))
        except Exception as error:
            return refusal(_foreseen(error, request))

    def _counted(self, request: HttpRequest, peer: Peer) -> Steps[Reply]:
        begin = self.server.clock.monotonic()
        read = Request(request)
        try:
            reply = yield from self._reply(read, peer)
            if self._settled is not None:
                yield Wait(self._settled)
        except Exception as error:
            format_ = negotiate_error(read.headers.get("accept", ""))
            reply = refusal(_foreseen(error, request), replace(format_, pretty=format_.pretty or read.pretty))
        if read.method == "HEAD":
            reply = replace(reply, body=b"")
        if reply.stream is None:
            self.metrics.answered(read, reply.status, self.server.clock.monotonic() - begin)
        audit = read.headers.get("audit-id", "")[:_LONGEST_AUDIT_ID] or self.server.rng.token()
        headers = {"audit-id": audit, "cache-control": "no-cache, private", **reply.headers}
        body, stream, source = reply.body, reply.stream, reply.source
        return warned(Reply(reply.status, headers, body, stream, source, reply.warnings), read.warnings)

    def _reply(self, request: Request, peer: Peer) -> Steps[Reply]:
        path = resource_path(request.path)
        attributes = attributes_of(request, path)
        user = self.gate.enter(request, attributes, peer)
        if path is None:
            return self._document(request)
        resource = self.server.registry.find(path.group, path.version, path.plural)
        if resource is None or not is_possible(path, resource, attributes.verb):
            if self.server.registry.is_builtin(path.group):
                raise no_such_path()
            return page_not_found()
        check_route(path, resource, request.method)
        if resource.deprecation:
            request.warnings.append(resource.deprecation)
        check_custom(path, resource, attributes.verb)
        if request.is_large:
            yield Work(request.read)
        target = Target(resource, path.namespace, path.name, path.subresource)
        format_ = self._format(target, request, attributes.verb)
        context = HandlerContext(self.server, self.gate, target, request, user)
        try:
            if special := _handler_of(target):
                return object_reply((yield from special(context)), format_)
            if attributes.verb == "watch":
                return (yield from self._watch(target, request, format_))
            handle = self._of_object if path.name and attributes.verb != "create" else self._of_collection
            return (yield from handle(context, format_))
        except Unconvertible as error:
            raise self.server.reads.unreadable(target, error) from None
        except KeyError:
            if self.server.registry.find(path.group, path.version, path.plural) is not None:
                raise
            return page_not_found()  # its definition was deleted while the request waited for a webhook

    def _format(self, target: Target, request: Request, verb: str) -> Format:
        routed = () if target.resource.strategy.is_custom else LISTED if verb in _LISTING else PRODUCED
        format_ = self._preferred(request, routed)
        if format_.media_type == PROTOBUF and not format_.form and target.resource.strategy.is_custom:
            raise only_accepted((JSON, YAML, PROTOBUF))
        if format_.form != "Table":
            return format_
        printer = printer_of(target.group_resource, target.subresource, target.resource.own_printer)
        include = request.query.get("includeObject", "")
        return replace(format_, tables=Tables(printer, self.server.clock.wall, format_.version, include))

    def _preferred(self, request: Request, routed: Sequence[str], *, transforms: bool = True) -> Format:
        format_ = negotiate(request.headers.get("accept", ""), routed, transforms=transforms)
        return replace(format_, pretty=True) if request.pretty else format_

    def _converting(self, resource: Resource, do: Callable[[], T]) -> Steps[T]:
        """Returns the result of `do`, for which the conversion webhook of the resource may have to be called."""
        if not resource.strategy.needs_webhook:
            return do()
        return (yield from self.server.model.converting(do))

    async def _converted(self, resource: Resource, do: Callable[[], T]) -> T:
        return await perform(self._converting(resource, do), self._caller, self._offload)

    def _of_object(self, asked: HandlerContext, format_: Format) -> Steps[Reply]:
        target, request, server = asked.target, asked.request, self.server
        resource = target.resource
        match request.method:
            case "GET" | "HEAD":
                version = request.query.get("resourceVersion", "")
                obj = yield from self._converting(resource, lambda: server.reads.get(target, version))
                answer = Answer(200, obj)
            case "PUT":
                options, body = asked.write_options("UpdateOptions"), _body(request, resource)
                answer = yield from server.writes.replacing(target, body, options)
            case "PATCH":
                request.check_patch_type(typed=not resource.strategy.is_custom)
                options = asked.write_options("PatchOptions")
                document = self._read_patch(request, target)
                patch = self._patch(request, document, target)
                answer = yield from server.writes.patching(target, patch, options)
            case "DELETE":
                answer = yield from server.deletions.deleting(target, asked.delete_options())
            case _:
                raise method_not_allowed()
        return object_reply(answer, format_, server.reads.text(target, answer.object))

    def _read_patch(self, request: Request, target: Target) -> Any:
        """Decodes a patch. An apply that begins as JSON does is read after a missing object is noticed."""
        try:
            return request.decode_patch(typed=not target.resource.strategy.is_custom)
        except Invalid:
            if request.applies_json and target.subresource:
                self.server.reads.get(target)
            raise

    def _patch(self, request: Request, document: Any, target: Target) -> Patch:
        """A document that is no patch is noticed after a missing object."""
        try:
            return patch_of(request.content_type, document, request.body)
        except Invalid:
            if request.content_type != APPLY or target.subresource:
                self.server.reads.get(target)
            raise

    def _of_collection(self, asked: HandlerContext, format_: Format) -> Steps[Reply]:
        target, request, server = asked.target, asked.request, self.server
        resource = target.resource
        match request.method:
            case "GET" | "HEAD":
                selected = request.list_options()
                page = yield from self._converting(resource, lambda: server.reads.list(target, selected))
                return list_reply(resource, page, format_)
            case "POST":
                options, body = asked.write_options("CreateOptions"), _body(request, resource)
                steps = server.writes.creating(replace(target, name=""), body, options)
                answer = yield from steps
                return object_reply(answer, format_, server.reads.text(target, answer.object))
            case "DELETE":
                selected = request.list_options()
                deleting = server.deletions.deleting_collection(target, selected, asked.delete_options())
                return list_reply(resource, (yield from deleting), format_)
            case _:
                # A replace or patch of custom resources; other verbs are not routed here.
                if request.method == "PATCH":
                    request.decode_patch(typed=False)
                raise bad_request("name must be provided")

    def _watch(self, target: Target, request: Request, format_: Format) -> Steps[Reply]:
        if format_.media_type == YAML:
            raise only_accepted((JSON + WATCH, PROTOBUF + WATCH))
        options = request.list_options()
        watch = yield from self._converting(target.resource, lambda: self.server.watch(target, options))
        source = EventSource(
            watch,
            format_,
            self._lines,
            seconds=request.timeout,
            bookmarks=options.allow_bookmarks,
            failed=lambda error: error_line(_foreseen(error, request)),
            counted=self.metrics.watching(request),
        )
        media_type = format_.media_type
        headers = {"content-type": media_type + WATCH if media_type == PROTOBUF else media_type}
        stream = event_stream(source, partial(self._taken, target.resource, watch, source))
        waits = watch.needs_webhook or self._settled is not None
        return Reply(200, headers, stream=stream, source=None if waits else source)

    async def _taken(self, resource: Resource, watch: WatchCursor, source: EventSource) -> bytes | None:
        """What the source has. Events that a webhook has to convert may not be had: then the watch ends, and the client
        lists again.
        """
        try:
            try:
                events = await self._converted(resource, watch.take)
            except ApiError:
                return None
            lines = source.lines_of(events)
            if lines and self._settled is not None:
                await self._settled()
            return lines
        except Exception as error:
            return source.broken(error)

    def _document(self, request: Request) -> Reply:
        if probe := self._probes.reply(request):
            return probe
        if request.path == "/metrics":
            return self.metrics.page()
        path, registry = request.path.rstrip("/"), self.server.registry
        if path in (CONFIGURATION, KEYS) and isinstance(self.gate, Identity):
            return openid_reply(request, path, self.gate)
        accept = request.headers.get("accept", "")
        if path.startswith("/openapi/"):
            return self._openapi.reply(request)
        if path == "/version" and request.method == "GET":
            return version_reply(accept)
        document = VERSION if path == "/version" else discovery(registry, path)
        if document is None:
            if registry.is_builtin(_group(path)):
                raise no_such_path()
            return page_not_found()
        if request.method != "GET" and not _takes_any_method(path):
            raise method_not_allowed()
        if aggregated := aggregated_discovery(registry, path):
            format_, wanted = negotiate_discovery(accept)
            format_ = replace(format_, pretty=format_.pretty or request.pretty)
            return document_reply(200, aggregated if wanted else document, format_)
        routed = () if _takes_any_method(path) else PRODUCED
        return document_reply(200, document, self._preferred(request, routed, transforms=False))


def _handler_of(target: Target) -> Handler | None:
    if not target.subresource:
        return _KINDS.get(target.group_resource)
    if target.subresource not in target.resource.subresources:
        return None
    return _SUBRESOURCES.get(target.subresource)


def _foreseen(error: Exception, request: HttpRequest | Request) -> ApiError:
    """Returns the error to send for an exception."""
    match error:
        case ApiError():
            return error
        case RecursionError():
            return bad_request("the document is nested too deeply")
    log.crash("Failed to answer a request", error, method=request.method, target=request.target)
    return broken(error)


def _body(request: Request, resource: Resource) -> dict[str, Any]:
    kind = resource.kind
    return request.decode(kind.kind, kind.api_version, typed=not resource.strategy.is_custom)


def _takes_any_method(path: str) -> bool:
    """Whether the path is the list of groups, or a single group."""
    return path.startswith("/apis") and path.count("/") < 3


def _group(path: str) -> str:
    """Returns the group in an API path. For any other path it returns the path, which is not the name of a group."""
    parts = path.split("/")
    return (
        ""
        if parts[:3] == ["", "api", "v1"]
        else parts[2]
        if parts[:2] == ["", "apis"] and parts[2:]
        else path
    )
