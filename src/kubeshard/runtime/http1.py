"""HTTP/1.1 as a client reads and writes it, without I/O: requests to bytes, bytes to answers (RFC 9112).

| stage | bytes | next |
|---|---|---|
| HEAD | a status of 1xx (but 101) | HEAD |
| HEAD | no body: HEAD requests, successful CONNECT, 204, 304, length 0 | ENDED |
| HEAD | `Transfer-Encoding: chunked` | SIZE |
| HEAD | `Content-Length` | BODY |
| HEAD | neither | CLOSE |
| SIZE | a chunk's size; 0 | CHUNK; TRAILER |
| CHUNK | the rest of a chunk and its line end | SIZE |
| TRAILER | an empty line | ENDED |
| BODY | the last byte | ENDED |
| CLOSE | end of the connection | ENDED |

Guaranteed: bytes are handed on as they come, in pieces of any size; an answer that does not say where it ends,
contradicts itself, or ends early raises Malformed; heads are bounded. Not offered: pipelining, upgrades,
compression, trailers' contents.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

MAX_HEAD = 1 << 16
"""Bytes of a status line with its headers; of a chunk's size or a trailer line too."""
_BODILESS = frozenset({204, 304})


class Malformed(Exception):
    """What came is no HTTP/1.1 answer, or only a part of one."""


def encode_request(
    method: str, target: str, host: str, headers: Mapping[str, str], body: bytes | None
) -> bytes:
    """Raises ValueError for a header or target that would end its line."""
    lines = [f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n"]
    lines += [f"{name}: {value}\r\n" for name, value in headers.items()]
    if body is not None or method in ("POST", "PUT", "PATCH"):
        lines.append(f"Content-Length: {len(body or b'')}\r\n")
    head = "".join(lines)
    if head.count("\n") != len(lines) + 1 or head.count("\r") != len(lines) + 1:
        raise ValueError(f"{method} {target}: a line break within the target or a header")
    return head.encode() + b"\r\n" + (body or b"")


class Stage(Enum):
    HEAD = auto()
    SIZE = auto()
    CHUNK = auto()
    TRAILER = auto()
    BODY = auto()
    CLOSE = auto()
    ENDED = auto()


class Answer:
    """One answer as it arrives. `pieces` of the body are for the user to take away."""

    def __init__(self, method: str) -> None:
        self.status = 0
        """0 until the head has come."""
        self.headers: dict[str, str] = {}
        """Names in lower case; repeated ones joined by commas."""
        self.pieces: list[bytes] = []
        self.stage = Stage.HEAD
        self.reusable = False
        """Whether the connection can carry another exchange, known at the end."""
        self._method = method
        self._pending = b""
        self._left = 0

    @property
    def ended(self) -> bool:
        return self.stage is Stage.ENDED

    def feed(self, data: bytes) -> None:
        """Raises Malformed."""
        if self._pending:
            data = self._pending + data
            self._pending = b""
        position = 0
        while position < len(data):
            match self.stage:
                case Stage.HEAD:
                    position = self._head(data, position)
                case Stage.BODY:
                    position = self._body(data, position)
                case Stage.SIZE | Stage.TRAILER:
                    position = self._line(data, position)
                case Stage.CHUNK:
                    position = self._chunk(data, position)
                case Stage.CLOSE:
                    self.pieces.append(data[position:])
                    return
                case Stage.ENDED:
                    raise Malformed("bytes after the end of the answer")

    def finish(self) -> None:
        """The connection has ended. Raises Malformed where the answer had not."""
        if self.stage is Stage.CLOSE:
            self.stage = Stage.ENDED
        elif self.stage is not Stage.ENDED:
            raise Malformed("the connection was closed within the answer" if self.status else "no answer")

    def _head(self, data: bytes, position: int) -> int:
        end = data.find(b"\r\n\r\n", position)
        if end < 0:
            return self._keep(data, position)
        first, *lines = data[position:end].decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        code = rest[:3]
        if version not in ("HTTP/1.1", "HTTP/1.0") or not (code.isascii() and code.isdecimal()):
            raise Malformed(f"no HTTP/1.1 answer: {first[:40]!r}")
        status, headers = int(code), _headers(lines)
        if status == 101:
            raise Malformed("the server switched protocols unasked")
        if status >= 200:
            self.status, self.headers = status, headers
            tokens = headers.get("connection", "").lower()
            self.reusable = version == "HTTP/1.1" and "close" not in tokens
            self._frame()
        return end + 4

    def _frame(self) -> None:
        """How the body is delimited (RFC 9112 6.3)."""
        length, encoding = self.headers.get("content-length"), self.headers.get("transfer-encoding")
        if (
            self._method == "HEAD"
            or self.status in _BODILESS
            or (self._method == "CONNECT" and self.status < 300)
        ):
            self.stage = Stage.ENDED
        elif encoding is not None:
            if encoding.lower() != "chunked" or length is not None:
                raise Malformed(f"transfer encoding {encoding!r} with content length {length!r}")
            self.stage = Stage.SIZE
        elif length is not None:
            if not (length.isascii() and length.isdecimal()):
                raise Malformed(f"content length {length!r}")
            self._left = int(length)
            self.stage = Stage.BODY if self._left else Stage.ENDED
        else:
            self.reusable = False
            self.stage = Stage.CLOSE

    def _body(self, data: bytes, position: int) -> int:
        piece = data[position : position + self._left]
        self.pieces.append(piece)
        self._left -= len(piece)
        if not self._left:
            self.stage = Stage.ENDED
        return position + len(piece)

    def _line(self, data: bytes, position: int) -> int:
        end = data.find(b"\r\n", position)
        if end < 0:
            return self._keep(data, position)
        line = data[position:end]
        if self.stage is Stage.TRAILER:
            self.stage = Stage.TRAILER if line else Stage.ENDED
            return end + 2
        size = line.partition(b";")[0].rstrip(b" \t")
        try:
            # int() would also take signs, spaces, underscores and a prefix.
            self._left = int(size, 16) if size.isalnum() and size[1:2] not in (b"x", b"X") else -1
        except ValueError:
            self._left = -1
        if self._left < 0:
            raise Malformed(f"chunk size {line[:40]!r}")
        self.stage = Stage.CHUNK if self._left else Stage.TRAILER
        return end + 2

    def _chunk(self, data: bytes, position: int) -> int:
        if self._left:
            piece = data[position : position + self._left]
            self.pieces.append(piece)
            self._left -= len(piece)
            position += len(piece)
        if self._left or position == len(data):
            return position
        if len(data) - position < 2:
            return self._keep(data, position)
        if data[position : position + 2] != b"\r\n":
            raise Malformed("a chunk is longer than its size")
        self.stage = Stage.SIZE
        return position + 2

    def _keep(self, data: bytes, position: int) -> int:
        self._pending = data[position:]
        if len(self._pending) > MAX_HEAD:
            raise Malformed("a line or head without end")
        return len(data)


def _headers(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name[-1] in " \t" or name[0] in " \t":
            raise Malformed(f"no header: {line[:40]!r}")
        name, value = name.lower(), value.strip(" \t")
        if name in headers:
            if name == "content-length" and headers[name] != value:
                raise Malformed("two content lengths")
            if name != "content-length":
                headers[name] += ", " + value
        else:
            headers[name] = value
    return headers
