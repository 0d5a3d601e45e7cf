"""Calls to webhooks: over HTTPS, or to applications in this process.

Guaranteed: connections to a webhook are reused; a call ends after its timeout; a failed call returns a reply with the
reason. There is no cluster DNS: the creator of the caller defines what `clientConfig.service` resolves to.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from kubeshard.runtime.asgi import AsgiApp, Message
from kubeshard.runtime.tls import Tls
from kubeshard.runtime.transport import HttpRequest, Transport, TransportError, TransportTimeout
from kubeshard.runtime.world import Connect
from kubeshard_apiserver.steps import WebhookCall, WebhookReply

Resolver = Callable[[str, str, int], str]
"""Resolves a service (namespace, name, port) to `host:port`. Raises LookupError."""

_HEADERS = {"content-type": "application/json", "accept": "application/json"}


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
        try:
            host, name, path = _where(call.client, self._resolve)
            transport = self._transport(host, name, call.client.get("caBundle") or "")
        except (LookupError, ValueError) as error:
            return WebhookReply(problem=str(error))
        target = f"{path}?timeout={call.timeout:g}s"
        where = f'Post "https://{name}{target}"'
        body = json.dumps(call.review, separators=(",", ":")).encode()
        try:
            answer = await transport.request(HttpRequest("POST", target, _HEADERS, body, call.timeout))
        except TransportTimeout:
            return WebhookReply(problem=f"{where}: context deadline exceeded")
        except TransportError as error:
            return WebhookReply(problem=f"{where}: {error}")
        return read_answer(answer.status, answer.body)

    async def close(self) -> None:
        for transport in self._transports.values():
            await transport.close()
        self._transports.clear()

    def _transport(self, host: str, name: str, ca_bundle: str) -> Transport:
        key = (host, name, ca_bundle)
        if key not in self._transports:
            server_name = name.rpartition(":")[0] if name != host else None
            try:
                ca = base64.b64decode(ca_bundle, validate=True).decode() or None
                self._transports[key] = self._connect(f"https://{host}", Tls(ca=ca, server_name=server_name))
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
        return parts.netloc, parts.netloc, parts.path or "/"
    service = client["service"]
    port = service.get("port") or 443
    host = resolve(service["namespace"], service["name"], port)
    return host, f"{service['name']}.{service['namespace']}.svc:{port}", service.get("path") or "/"
