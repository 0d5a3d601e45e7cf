"""The small pages of a process: metrics and health. ASGI, without a framework: there are three."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kubeshard.runtime.asgi import AsgiApp, Receive, Scope, Send

PLAIN = "text/plain; charset=utf-8"


class Request(NamedTuple):
    path: str
    query: str
    """Still encoded, without `?`."""


class Page(NamedTuple):
    status: int
    body: str | bytes
    content_type: str = PLAIN


Pages = Callable[[Request], Page | None]
"""Answers what it knows; None for other paths."""


def pages_app(*pages: Pages) -> AsgiApp:
    """Serves GET and HEAD requests from the first of `pages` that knows the path; 404 and 405 otherwise."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, _answer(scope, pages), head=scope["method"] == "HEAD")

    return app


async def respond(
    send: Send, page: Page, *, head: bool = False, headers: Sequence[tuple[bytes, bytes]] = ()
) -> None:
    body = page.body.encode() if isinstance(page.body, str) else page.body
    fields = [
        (b"content-type", page.content_type.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"x-content-type-options", b"nosniff"),
        *headers,
    ]
    await send({"type": "http.response.start", "status": page.status, "headers": fields})
    await send({"type": "http.response.body", "body": b"" if head else body})


def _answer(scope: Scope, pages: Sequence[Pages]) -> Page:
    if scope["method"] not in ("GET", "HEAD"):
        return Page(405, "method not allowed\n")
    request = Request(scope["path"], scope.get("query_string", b"").decode("latin-1"))
    for page in pages:
        if (answer := page(request)) is not None:
            return answer
    return Page(404, "not found\n")
