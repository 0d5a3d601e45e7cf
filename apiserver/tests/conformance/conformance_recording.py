"""The answers of the real server, recorded by `make record`, beside which every case of the suite runs.

A case asserts what matters to it. Its recording has all that the real server answered to it: so the embedded server is
compared in everything else, too, without the real one. A case sends its requests itself, so nothing has to be
translated: names are the same in every run (`case_id`), and what a server makes up (uids, times, versions, addresses)
is replaced in the same way on both sides.
"""

from __future__ import annotations

import json
import lzma
import re
import tomllib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from kubeshard.runtime.tls import Tls
from kubeshard.runtime.transport import HttpRequest, HttpResponse, HttpStream, Transport

FOLDER = Path(__file__).parent / "recorded"
TARGETS = ("model", "http", "real")

HEADERS = ("content-type", "warning", "retry-after", "www-authenticate", "location", "allow")
"""The others are of the connection, or differ from one request to the next."""

MADE_UP = frozenset({"clusterIP", "clusterIPs", "nodePort", "healthCheckNodePort", "continue", "token"})
DOCUMENTS = ("/metrics", "/version", "/apis")
"""Left out beside those of OpenAPI: large, or about the whole server, and other in detail (docs/apiserver.md)."""

_UNORDERED = frozenset({"managedFields", "resourceRules", "nonResourceRules"})
"""Lists in the order of times that are full seconds, or in that of a cache."""

_UID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
_PORT = re.compile(r"\b(\d{1,3}(?:\.\d{1,3}){3}):\d+")
_NUMBER = re.compile(r"(?<![\d.])(?:\d{1,3}(?:\.\d{1,3}){3}|3\d{4})(?!\d)")
"""Addresses and ports of nodes."""
_RECORD = re.compile(
    r"(in record \(|, current: |too old resource version: \d+ \(|not decodable revision=)\d+"
)
"""A version that a message tells."""
_QUERY = re.compile(r"([?&](?:resourceVersion|continue|hash)=)([^&]*)")
_LONG = re.compile(r"[A-Za-z0-9+/_.=-]{200,}")
"""Tokens and certificates."""
_AGE = re.compile(r"(\d+[smhdy])+")
_DIGEST = re.compile(r"SHA256=[0-9a-f]{64}")

_aside: ContextVar[bool] = ContextVar("aside", default=False)


@contextmanager
def aside() -> Iterator[None]:
    """What is asked meanwhile is not recorded: it prepares a case, or waits for something."""
    token = _aside.set(True)
    try:
        yield
    finally:
        _aside.reset(token)


class Exchange(NamedTuple):
    """A request and its answer. `body` is what was read of a stream."""

    method: str
    target: str
    status: int
    headers: Mapping[str, str]
    body: bytes


class Tape:
    """What one case asked, and what it was answered. `own` is in the names of what is the case's own."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._noted: list[tuple[HttpRequest, HttpResponse | _Read]] = []

    def note(self, request: HttpRequest, answer: HttpResponse | _Read) -> None:
        if not _aside.get():
            self._noted.append((request, answer))

    @property
    def exchanges(self) -> list[Exchange]:
        """In the order of the requests. The answer to a watch is what was read of it."""
        return [
            Exchange(request.method, request.target, answer.status, dict(answer.headers), answer.body)
            for request, answer in self._noted
        ]

    def told(self) -> list[Any]:
        """What of it is recorded and compared."""
        names = _Names(self._own)
        return [names.replaced(one) for one in self.exchanges]


class Taped:
    """A transport that notes on a tape what passes."""

    def __init__(self, inner: Transport, tape: Tape) -> None:
        self._inner = inner
        self._tape = tape

    async def request(self, request: HttpRequest) -> HttpResponse:
        answer = await self._inner.request(request)
        self._tape.note(request, answer)
        return answer

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[HttpStream]:
        async with self._inner.stream(request) as stream:
            read = _Read(stream)
            self._tape.note(request, read)
            yield read

    def renew(self, tls: Tls) -> None:
        self._inner.renew(tls)

    def abort(self) -> None:
        self._inner.abort()

    async def close(self) -> None:
        await self._inner.close()


class _Read:
    """A stream that gives events one by one, so that what the case took of it does not depend on how they arrived."""

    def __init__(self, inner: HttpStream) -> None:
        self._inner = inner
        self.body = b""

    @property
    def status(self) -> int:
        return self._inner.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._inner.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        rest = b""
        async for chunk in self._inner.chunks():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self.body += line + b"\n"
                yield line + b"\n"
        if rest:
            self.body += rest
            yield rest

    async def read(self) -> bytes:
        body = await self._inner.read()
        self.body += body
        return body


class _Names:
    """Replaces what a server makes up. Uids and versions of objects are numbered as they occur in a case, so that one
    which stays, and one which changes, are told apart.
    """

    def __init__(self, own: str) -> None:
        self._own = own
        self._uids: dict[str, str] = {}
        self._versions: dict[str, str] = {}
        self._made_up: dict[str, str] = {}
        self._generated: dict[str, str] = {}
        self._of_all = False

    def replaced(self, one: Exchange) -> list[Any]:
        headers = {name: self._text(one.headers[name]) for name in HEADERS if name in one.headers}
        path, _, query = one.target.partition("?")
        self._of_all = self._own not in path
        target = self._text(path) + self._text(_QUERY.sub(self._given, f"?{query}" if query else ""))
        is_document = path.rstrip("/") in DOCUMENTS or path.startswith("/openapi/")
        body = None if is_document and one.status < 300 else self._body(headers, one.body)
        return [one.method, target, one.status, headers, body]

    def _given(self, found: re.Match[str]) -> str:
        """A version or a token in a query, by the name that it has in the answers before."""
        if found[1].endswith("hash="):
            return f"{found[1]}<hash>"
        value = unquote(found[2])
        return found[1] + (self._versions.get(value) or self._made_up.get(value) or found[2])

    def _body(self, headers: Mapping[str, str], body: bytes) -> Any:
        kind = headers.get("content-type", "")
        if not body:
            return None
        if kind.startswith("application/json"):
            try:
                return self._value(json.loads(body))
            except ValueError:
                return [self._value(json.loads(line)) for line in body.splitlines()]
        return self._text(body.decode()) if kind.startswith("text/") else "<bytes>"

    def _value(self, value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return self._map(value)
        if isinstance(value, list):
            if key in _UNORDERED:
                value = sorted(value, key=lambda entry: json.dumps(entry, sort_keys=True))
            return [self._value(inner, key) for inner in value]
        if key in MADE_UP and isinstance(value, str | int) and value not in ("", "None"):
            return self._made_up.setdefault(str(value), f"<{key}>")
        if not isinstance(value, str):
            return value
        if key == "cells" and _AGE.fullmatch(value):
            return "<age>"
        if key == "resourceVersion" and value.isdecimal():
            return self._versions.setdefault(value, f"<version {len(self._versions)}>")
        return self._text(value)

    def _map(self, value: dict[str, Any]) -> dict[str, Any]:
        prefix, name = value.get("generateName"), value.get("name")
        if (
            prefix
            and isinstance(prefix, str)
            and isinstance(name, str)
            and len(name) > len(prefix[:57])
            and name.startswith(prefix[:57])
        ):
            self._generated[name] = f"{prefix}<suffix>"
        if value.get("kind") == "Status" and isinstance(value.get("details"), dict):
            value = _in_order(value)
        if value.get("kind") == "CustomResourceDefinition" and "metadata" in value:
            value = _as_asked_for(value)
        for key in ("items", "rows"):  # those of other cases come and go
            if isinstance(value.get(key), list) and self._of_all:
                value = {**value, key: [one for one in value[key] if self._own in json.dumps(one)]}
        told = {
            key: self._value(inner, key)
            for key, inner in sorted(value.items())
            if key not in ("metadata", "columnDefinitions")
        }
        if value.get("columnDefinitions"):  # whose descriptions are prose (docs/apiserver.md)
            columns = [{**one, "description": ""} for one in value["columnDefinitions"]]
            told["columnDefinitions"] = self._value(columns)
        if "metadata" in value:
            told["metadata"] = self._metadata(value["metadata"], of_list="items" in value or "rows" in value)
        return told

    def _metadata(self, value: Any, *, of_list: bool) -> Any:
        if not of_list or not isinstance(value, dict):
            return self._value(value)
        version = value.get("resourceVersion")
        if version:
            self._versions.setdefault(version, "<version of a list>")
        if not value.get("continue"):
            value = {key: inner for key, inner in value.items() if key != "continue"}
        return {**self._map(value), **({"resourceVersion": "<version>"} if version else {})}

    def _text(self, text: str) -> str:
        for name, told in self._generated.items():
            text = text.replace(name, told)
        text = _UID.sub(lambda found: self._uids.setdefault(found[0], f"<uid {len(self._uids)}>"), text)
        text = _PORT.sub(r"\1:<port>", _TIME.sub("<time>", text))
        text = _NUMBER.sub(lambda found: self._made_up.get(found[0], found[0]), text)
        text = _DIGEST.sub("SHA256=<digest>", text)
        return _LONG.sub("<long>", _RECORD.sub(r"\1<version>", text))


def _in_order(status: dict[str, Any]) -> dict[str, Any]:
    """A Status with its causes in one order: the real server's varies, and so does the message that is made of them."""
    causes = status["details"].get("causes") or ()
    if len(causes) < 2:
        return status
    unlike = {json.dumps(one, sort_keys=True): one for one in causes}
    details = {**status["details"], "causes": [unlike[text] for text in sorted(unlike)]}
    return {**status, "details": details, "message": str(status.get("message")).partition(": [")[0]}


_OF_CONTROLLERS = ("managedFields", "resourceVersion", "generation")


def _as_asked_for(definition: dict[str, Any]) -> dict[str, Any]:
    """A definition without what the real server's controllers write, at any time."""
    metadata = {key: inner for key, inner in definition["metadata"].items() if key not in _OF_CONTROLLERS}
    return {**{key: inner for key, inner in definition.items() if key != "status"}, "metadata": metadata}


class Difference(NamedTuple):
    place: str
    """As in `body.metadata.labels`."""
    text: str


def differences(ours: list[Any], recorded: list[Any]) -> Iterator[Difference]:
    """Where the answers differ from the recorded ones, and how."""
    if [one[:2] for one in ours] != [one[:2] for one in recorded]:
        yield Difference("requests", "the case asks something else than when it was recorded: `make record`")
        return
    for one, other in zip(ours, recorded, strict=True):
        for place, text in _differences(_named(one), _named(other), ""):
            yield Difference(place[1:], f"{one[0]} {one[1]}: {place[1:]}: {text}")


def _named(one: list[Any]) -> dict[str, Any]:
    return dict(zip(("status", "headers", "body"), one[2:], strict=True))


_ABSENT = object()
"""Beside null, which is a value."""


def _differences(ours: Any, recorded: Any, place: str) -> Iterator[tuple[str, str]]:
    if isinstance(ours, dict) and isinstance(recorded, dict):
        for key in sorted({*ours, *recorded}):
            yield from _differences(ours.get(key, _ABSENT), recorded.get(key, _ABSENT), f"{place}.{key}")
    elif isinstance(ours, list) and isinstance(recorded, list) and len(ours) == len(recorded):
        for number, (one, other) in enumerate(zip(ours, recorded, strict=True)):
            yield from _differences(one, other, f"{place}[{number}]")
    elif ours != recorded or type(ours) is not type(recorded):
        yield place, f"{_shown(ours)} is recorded as {_shown(recorded)}"


def _shown(value: Any) -> str:
    return "nothing" if value is _ABSENT else json.dumps(value)


class Known(NamedTuple):
    """An entry of `differences.toml`: why the embedded server answers otherwise in these cases, and where."""

    reason: str
    place: re.Pattern[str]
    cases: frozenset[str]


def known_differences() -> list[Known]:
    return [known(one) for one in tomllib.loads((FOLDER / "differences.toml").read_text())["difference"]]


def known(entry: Mapping[str, Any]) -> Known:
    """Raises ValueError for a place that hides more than it names: anything, other requests, or the status, which an
    entry has to give a `status = true` for.
    """
    place = re.compile(entry["place"])
    for hidden in ("", "requests", *(() if entry.get("status") else ("status",))):
        if place.search(hidden):
            raise ValueError(f"the place {entry['place']!r} hides {hidden or 'anything'}: {entry['reason']}")
    return Known(entry["reason"], place, frozenset(entry["cases"]))


def complaints(case: str, found: Sequence[Difference], known: Iterable[Known]) -> list[str]:
    """What is not as `differences.toml` says: differences that it does not list, and those that are gone."""
    listed = [one for one in known if case in one.cases]
    new = [one.text for one in found if not any(each.place.search(one.place) for each in listed)]
    gone = [
        f"no longer different, so take the case from differences.toml: {one.reason}"
        for one in listed
        if not any(one.place.search(each.place) for each in found)
    ]
    return [*new, *gone]


def case_id(name: str) -> str:
    """The name of a test without its target: that of the case, which is the same on all."""
    function, _, parameters = name.partition("[")
    parts = parameters.removesuffix("]").split("-")
    parts.remove(next(part for part in parts if part in TARGETS))
    return f"{function}[{'-'.join(parts)}]" if parts else function


class Recordings:
    """The recorded cases of one file of tests."""

    def __init__(self, area: str) -> None:
        self._path = FOLDER / f"{area}.json.xz"
        self.cases: dict[str, list[Any]] = (
            json.loads(lzma.decompress(self._path.read_bytes())) if self._path.exists() else {}
        )

    def write(self) -> None:
        FOLDER.mkdir(exist_ok=True)
        text = json.dumps(self.cases, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        self._path.write_bytes(lzma.compress(text.encode(), preset=9))
