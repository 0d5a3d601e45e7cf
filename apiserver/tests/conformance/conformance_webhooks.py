"""A webhook of the test: an HTTPS server on loopback that responds as the test case wants and records its requests."""

from __future__ import annotations

import asyncio
import base64
import functools
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from kubeshard.runtime.asgi import Limits, Receive, Scope, Send
from kubeshard.runtime.certificate_authority import new_authority, new_server_leaf
from kubeshard.runtime.http_server import AsgiServer
from kubeshard.runtime.tls import CertificatePair, load_pair, server_context

Review = dict[str, Any]
Convert = Callable[[Review], Any]
"""Returns the response to a ConversionReview (bytes, or a whole review) from its request."""
Respond = Callable[[Review], Any]
"""Returns the `response` to a request, or another response body (bytes, or a whole review)."""

READY_LABEL = "conformance.example.com/ready"


def allow(request: Review, **fields: Any) -> Review:
    return {"uid": request["uid"], "allowed": True, **fields}


def deny(request: Review, **status: Any) -> Review:
    return {"uid": request["uid"], "allowed": False, **({"status": status} if status else {})}


def patch(request: Review, *ops: Mapping[str, Any], **fields: Any) -> Review:
    encoded = base64.b64encode(json.dumps(ops).encode()).decode()
    return allow(request, patchType="JSONPatch", patch=encoded, **fields)


def labelled(request: Review, name: str, value: str = "yes") -> Review:
    """Adds a label to the object."""
    labels = {**(request["object"]["metadata"].get("labels") or {}), name: value}
    return patch(request, {"op": "add", "path": "/metadata/labels", "value": labels})


class Hooks:
    """`asked` contains the requests in reviews by path, in the order of their arrival."""

    def __init__(self, ca_bundle: str, own_certificate: str) -> None:
        self.port = 0
        self.ca_bundle = ca_bundle
        self.own_certificate = own_certificate
        """The server's own certificate as a bundle, without that of its authority."""
        self.responders: dict[str, Respond] = {}
        self.conversions: dict[str, Convert] = {}
        self.asked: dict[str, list[Review]] = {}
        self.statuses: dict[str, int] = {}
        self.redirects: dict[str, tuple[int, str]] = {}
        self.delays: dict[str, float] = {}
        self.order: list[str] = []
        self.meanwhile: dict[str, Callable[[], Any]] = {}

    def client(self, path: str) -> dict[str, Any]:
        return {"url": f"https://127.0.0.1:{self.port}{path}", "caBundle": self.ca_bundle}

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        headers, status = [(b"content-type", b"application/json")], self.statuses.get(scope["path"], 200)
        if scope["path"] in self.redirects:
            status, location = self.redirects[scope["path"]]
            headers, answer = [(b"location", location.encode())], b""
            self.order.append(scope["path"])
        elif body:
            answer = await self._answer(scope["path"], json.loads(body))
        else:
            answer = b"{}"
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    async def _answer(self, path: str, review: Review) -> bytes:
        request = review["request"]
        if path in self.conversions:
            self.asked.setdefault(path, []).append(request)
            converted = self.conversions[path](request)
            return converted if isinstance(converted, bytes) else json.dumps(converted).encode()
        if (request.get("object") or {}).get("metadata", {}).get("labels", {}).get(READY_LABEL):
            # This request only tests whether the configuration is in force.
            return _encoded(deny(request, message="in force"))
        self.asked.setdefault(path, []).append(request)
        self.order.append(path)
        if path in self.delays:
            await asyncio.sleep(self.delays[path])
        if path in self.meanwhile:
            await self.meanwhile.pop(path)()
        answer = self.responders.get(path, allow)(request)
        return answer if isinstance(answer, bytes) else _encoded(answer)


def _encoded(answer: Any) -> bytes:
    if "apiVersion" not in answer and answer != {}:
        answer = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}
    return json.dumps(answer).encode()


@functools.cache
def _certificates() -> tuple[CertificatePair, CertificatePair]:
    now = time.time()
    authority = new_authority("conformance", now, 86400.0)
    return authority, new_server_leaf(authority, ["127.0.0.1"], now, 86400.0)


@asynccontextmanager
async def running_hooks() -> AsyncIterator[Hooks]:
    authority, leaf = _certificates()
    context = server_context(ssl.TLSVersion.TLSv1_2)
    load_pair(context, leaf)
    bundles = (base64.b64encode(pair.certificate).decode() for pair in (authority, leaf))
    hooks = Hooks(*bundles)
    # The API server keeps its connections open, and nobody waits for them to close.
    async with AsgiServer(hooks.app, "127.0.0.1", 0, context, Limits(stop_grace=0)) as server:
        hooks.port = server.port
        yield hooks
