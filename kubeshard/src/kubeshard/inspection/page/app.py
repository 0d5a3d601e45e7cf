"""The page as an ASGI application.

| path | answer |
|---|---|
| `/` | the page |
| `/page.css`, `/page.js` | its style and script |
| `/events?ring=NAME` | server-sent events of a ring (default: the first): the picture, at once and when it changes |
| `/why?object=KIND/NAME&namespace=NAME` | where the object is, and why, as JSON |
| anything else | 404 |

HEAD is answered with the headers alone.

A browser that reads slowly misses pictures but blocks nothing: the next picture that it gets is the current one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.resources import files
from typing import Protocol
from urllib.parse import parse_qs

import msgspec

from kubeshard.inspection.history import History
from kubeshard.inspection.stats import RingSnapshot, scale
from kubeshard.runtime.asgi import Receive, Scope, Send

REFRESH = 0.5
"""The minimum number of seconds between two pictures."""
HEARTBEAT = 15.0
"""Seconds after which a comment is sent if nothing changes, so that dead connections are noticed."""

_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
_FILES = {"/": "index.html", "/page.css": "page.css", "/page.js": "page.js"}
_SAFE = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
    " frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


def local_names(port: int) -> frozenset[str]:
    """The Host headers that a browser on this machine may send. Browsers omit the port if it is 80."""
    return frozenset(name if port == 80 else f"{name}:{port}" for name in ("127.0.0.1", "localhost"))


SHOWN = 50


class Shown(Protocol):
    history: History

    def snapshot(self) -> RingSnapshot: ...


class LivePage:
    """See the module. `rings` are at least one; `hosts` are the accepted Host headers; `why` looks for an object, given
    as KIND/NAME, in a namespace or "", and returns what can be written as JSON.
    """

    def __init__(
        self,
        rings: Mapping[str, Shown],
        hosts: Callable[[], frozenset[str]],
        why: Callable[[str, str], Awaitable[object]],
    ) -> None:
        self._rings = rings
        self._hosts = hosts
        self._why = why
        self._files = {path: _file(name) for path, name in _FILES.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        path: str = scope["path"]
        if headers.get("host", "") not in self._hosts():
            await _answer(send, 403, "text/plain", b"open this page by the address that was printed\n")
        elif scope["method"] not in ("GET", "HEAD"):
            await _answer(send, 405, "text/plain", b"this page is read-only\n", {"allow": "GET, HEAD"})
        elif path in self._files:
            await _answer(send, 200, *self._files[path], head=scope["method"] == "HEAD")
        elif path == "/events" and scope["method"] == "HEAD":
            await send(_start(200, "text/event-stream", {}))
            await send({"type": "http.response.body", "body": b""})
        elif path == "/events":
            name = _given(scope, "ring") or next(iter(self._rings))
            if name in self._rings:
                await self._events(name, receive, send)
            else:
                await _answer(send, 404, "text/plain", b"there is no such ring\n")
        elif path == "/why":
            found = await self._why(_given(scope, "object"), _given(scope, "namespace"))
            await _answer(send, 200, "application/json", msgspec.json.encode(found))
        else:
            await _answer(send, 404, "text/plain", b"there is no such page\n")

    async def _events(self, name: str, receive: Receive, send: Send) -> None:
        await send(_start(200, "text/event-stream", {}))
        leaving = asyncio.create_task(_disconnected(receive), name="a browser leaves")
        try:
            last, quiet = b"", 0.0
            while not leaving.done():
                data = _encoded(name, [*self._rings], self._rings[name])
                if data != last:
                    await send(
                        {
                            "type": "http.response.body",
                            "body": b"data: " + data + b"\n\n",
                            "more_body": True,
                        }
                    )
                    last, quiet = data, 0.0
                elif quiet >= HEARTBEAT:
                    await send({"type": "http.response.body", "body": b":\n\n", "more_body": True})
                    quiet = 0.0
                await asyncio.wait([leaving], timeout=REFRESH)
                quiet += REFRESH
        finally:
            leaving.cancel()


def _given(scope: Scope, name: str) -> str:
    found = parse_qs(scope.get("query_string", b"").decode("latin-1")).get(name)
    return found[0] if found else ""


def _encoded(name: str, rings: Sequence[str], ring: Shown) -> bytes:
    snapshot = ring.snapshot()
    return msgspec.json.encode(
        {
            "ring": name,
            "rings": rings,
            "history": ring.history.latest(SHOWN),
            "well": snapshot.well,
            "verdict": snapshot.verdict,
            "scale": scale(snapshot),
            "picture": snapshot,
        }
    )


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _answer(
    send: Send,
    status: int,
    type_: str,
    body: bytes,
    more: Mapping[str, str] | None = None,
    *,
    head: bool = False,
) -> None:
    """`head`: without the body."""
    await send(_start(status, type_, {"content-length": str(len(body)), **(more or {})}))
    await send({"type": "http.response.body", "body": b"" if head else body})


def _start(status: int, type_: str, more: Mapping[str, str]) -> dict[str, object]:
    headers = {"content-type": f"{type_}; charset=utf-8", **_SAFE, **more}
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http.response.start", "status": status, "headers": encoded}


def _file(name: str) -> tuple[str, bytes]:
    return _TYPES[name.rpartition(".")[2]], files(__package__).joinpath(name).read_bytes()
