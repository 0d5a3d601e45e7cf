"""Calls to webhooks: over HTTPS, or to applications in this process.

Guaranteed: connections to a webhook are reused; a call ends after its timeout; a failed call returns a reply with the
reason; paths are cleaned and redirects followed as by Go's HTTP client, so `//path` reaches the handler of `/path`.
There is no cluster DNS: the creator of the caller defines what `clientConfig.service` resolves to.
"""

from __future__ import annotations

import asyncio
import base64
import json
import posixpath
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, unquote, urljoin, urlsplit

from kubeshard.runtime.asgi import AsgiApp, Message
from kubeshard.runtime.tls import Tls
from kubeshard.runtime.transport import HttpRequest, Transport, TransportError
from kubeshard.runtime.world import Connect
from kubeshard_apiserver.steps import WebhookCall, WebhookReply

Resolver = Callable[[str, str, int], str]
"""Resolves a service (namespace, name, port) to `host:port`. Raises LookupError."""

_HEADERS = {"content-type": "application/json", "accept": "application/json"}
_REPEATED = (307, 308)
_REDIRECTS = (301, 302, 303, *_REPEATED)
_MAX_REQUESTS = 10


def no_services(namespace: str, name: str, port: int) -> str:
    raise LookupError(
        f"this server has no cluster network to reach service {name}.{namespace}.svc:{port} (use clientConfig.url)"
    )


class HttpCaller:
    """Calls webhooks over HTTPS. `connect` opens connections (see `World.connect`). The caller is bound to the event
    loop of its first call and must be closed.
    """

    def __init__(self, connect: Connect, resolve: Resolver = no_services) -> None:
        self._connect = connect
        self._resolve = resolve
        self._transports: dict[tuple[str, str, str], Transport] = {}

    async def call(self, call: WebhookCall) -> WebhookReply:
        ca_bundle = call.client.get("caBundle") or ""
        try:
            host, name, path = _where(call.client, self._resolve)
            transport = self._transport(f"https://{host}", name if name != host else "", ca_bundle)
        except (LookupError, ValueError) as error:
            return WebhookReply(problem=str(error))
        body = json.dumps(call.review, separators=(",", ":")).encode()
        request = HttpRequest("POST", f"{path}?timeout={call.timeout:g}s", _HEADERS, body)
        try:
            async with asyncio.timeout(call.timeout):
                return await self._answer(transport, f"https://{name}", request, ca_bundle)
        except TimeoutError:
            return WebhookReply(problem=f'Post "https://{name}{request.target}": context deadline exceeded')
        except ValueError as error:  # of an address that a redirect names
            return WebhookReply(problem=f'Post "https://{name}{request.target}": {error}')

    async def _answer(
        self, transport: Transport, base: str, request: HttpRequest, ca_bundle: str
    ) -> WebhookReply:
        """Follows redirects: 307 and 308 repeat the request, all others make it a GET."""
        url = base + request.target
        for _ in range(_MAX_REQUESTS):
            asked = f'{request.method.capitalize()} "{url}"'
            try:
                answer = await transport.request(request)
            except TransportError as error:
                return WebhookReply(problem=f"{asked}: {error}")
            url = answer.headers.get("location", "")
            if answer.status not in _REDIRECTS or not url:
                return read_answer(answer.status, answer.body)
            to = urlsplit(urljoin(base + request.target, url))
            if f"{to.scheme}://{to.netloc}" != base:
                base = f"{to.scheme}://{to.netloc}"
                transport = self._transport(base, "", ca_bundle)
            target = f"{to.path or '/'}{'?' * bool(to.query)}{to.query}"
            is_repeated = answer.status in _REPEATED
            request = request._replace(target=target) if is_repeated else HttpRequest("GET", target, _HEADERS)
        return WebhookReply(problem=f'{asked.split()[0]} "{url}": stopped after {_MAX_REQUESTS} redirects')

    async def close(self) -> None:
        for transport in self._transports.values():
            await transport.close()
        self._transports.clear()

    def _transport(self, base: str, service: str, ca_bundle: str) -> Transport:
        """Returns connections to `base`; `service` is the name with which a service's certificate is verified."""
        key = (base, service, ca_bundle)
        if key not in self._transports:
            try:
                ca = base64.b64decode(ca_bundle, validate=True).decode() or None
                tls = Tls(ca=ca, server_name=service.rpartition(":")[0] or None)
                self._transports[key] = self._connect(base, tls)
            except ValueError as error:  # not base64, not text, not certificates
                raise ValueError(f"unable to load root certificates: {error}") from None
        return self._transports[key]


class AppCaller:
    """Calls ASGI applications directly, selected by the path in `clientConfig`; for tests in one process and for
    simulation. Timeouts do not apply.
    """

    def __init__(self, apps: Mapping[str, AsgiApp]) -> None:
        """`apps` maps path prefixes to applications; the longest match is called."""
        self._apps = dict(sorted(apps.items(), key=lambda item: -len(item[0])))

    async def call(self, call: WebhookCall) -> WebhookReply:
        try:
            _, _, path = _where(call.client, lambda namespace, name, port: f"{name}.{namespace}.svc:{port}")
        except ValueError as error:
            return WebhookReply(problem=str(error))
        app = next((app for prefix, app in self._apps.items() if path.startswith(prefix)), None)
        if app is None:
            return WebhookReply(problem=f"no application for {path}")
        status, body = await _ask(app, path, json.dumps(call.review, separators=(",", ":")).encode())
        return read_answer(status, body)


def read_answer(status: int, body: bytes) -> WebhookReply:
    try:
        review = json.loads(body)
    except ValueError:
        review = body.decode(errors="replace")
    if not 200 <= status < 300:
        return WebhookReply(problem=_refused(status, review))
    if not body:
        what = f"status code: {status} and content type: application/json"
        return WebhookReply(problem=f"0-length response with {what}")
    return WebhookReply(review)


def _refused(status: int, answer: Any) -> str:
    if isinstance(answer, dict) and answer.get("kind") == "Status" and answer.get("message"):
        return str(answer["message"])
    if status in _REFUSALS:
        return _REFUSALS[status]
    return f"the server responded with the status code {status} but did not return more information"


_REFUSALS = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    403: "unknown",
    404: "the server could not find the requested resource",
    429: "the server has received too many requests and has asked us to try again later",
    500: 'an error on the server ("unknown") has prevented the request from succeeding',
    503: "the server is currently unable to handle the request",
}
"""The messages of the real server's client for responses without a Status."""


async def _ask(app: AsgiApp, path: str, body: bytes) -> tuple[int, bytes]:
    headers = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "https",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": headers,
        "client": ("in-memory", 0),
        "server": ("in-memory", 443),
    }
    waiting = [body]
    status, pieces = 0, []

    async def receive() -> Message:
        return {"type": "http.request", "body": waiting.pop()} if waiting else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        elif message["type"] == "http.response.body":
            pieces.append(message.get("body", b""))

    await app(scope, receive, send)
    return status, b"".join(pieces)


def _where(client: Mapping[str, Any], resolve: Resolver) -> tuple[str, str, str]:
    """Returns the host to connect to, the name to verify and the path."""
    if url := client.get("url"):
        parts = urlsplit(url)
        return parts.netloc, parts.netloc, _cleaned(parts.path)
    service = client["service"]
    port = service.get("port") or 443
    host = resolve(service["namespace"], service["name"], port)
    return host, f"{service['name']}.{service['namespace']}.svc:{port}", _cleaned(service.get("path") or "")


def _cleaned(path: str) -> str:
    """Returns the path as Go's `path.Join` cleans it: envtest writes `//path`."""
    return quote(posixpath.normpath("/" + unquote(path).lstrip("/")), safe="/$&+,:;=@~")
