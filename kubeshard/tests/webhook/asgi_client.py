"""Calls an ASGI application in memory, as a server would."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kubeshard.runtime.asgi import AsgiApp, Message

PATH = "/hook/ring"


@dataclass
class Answer:
    status: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""
    read: int = 0
    """How often the application has called `receive`."""


async def call(
    app: AsgiApp,
    body: bytes | Sequence[bytes],
    *,
    path: str = PATH,
    query: bytes = b"",
    method: str = "POST",
    headers: Sequence[tuple[bytes, bytes]] = ((b"content-type", b"application/json"),),
    leaves: bool = False,
) -> Answer:
    """Calls the application. `body` may be given in chunks; with `leaves` the client disconnects after the last one."""
    pieces = [body] if isinstance(body, bytes) else list(body)
    answer = Answer()

    async def receive() -> Message:
        answer.read += 1
        if not pieces:
            return {"type": "http.disconnect"}
        piece = pieces.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(pieces) or leaves}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = dict(message["headers"])
        else:
            answer.body += message["body"]

    scope = {"type": "http", "method": method, "path": path, "query_string": query, "headers": list(headers)}
    await app(scope, receive, send)
    return answer
