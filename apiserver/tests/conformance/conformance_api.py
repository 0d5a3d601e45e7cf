"""Raw requests to an API server, the same for every target: only what the test case specifies, and nothing that a
client library would add. Also waits for their effects.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

from conformance_kinds import DEFINITIONS
from conformance_recording import aside
from multidict import CIMultiDict

from kubeshard.runtime.transport import HttpRequest, Transport

JSON = "application/json"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
WITHIN = 30.0
_WARNING = re.compile(r'299 - "((?:[^"\\]|\\.)*)"')


class Answer:
    """`body` is the decoded JSON, or None."""

    def __init__(self, status: int, headers: Mapping[str, str], raw: bytes) -> None:
        self.status = status
        self.headers = headers
        self.raw = raw
        self.text = raw.decode(errors="replace")
        is_json = raw and headers.get("content-type", "").startswith(JSON)
        self.body: Any = json.loads(raw) if is_json else None

    def __getitem__(self, name: str) -> Any:
        return self.body[name]

    @property
    def meta(self) -> Any:
        return self.body["metadata"]

    @property
    def version(self) -> str:
        return str(self.meta["resourceVersion"])

    @property
    def refusal(self) -> tuple[int, str | None]:
        """Returns the code and reason of the Status. The code must be the HTTP status as well."""
        assert self.body["kind"] == "Status", self.text
        assert self.body["code"] == self.status
        return self.status, self.body.get("reason")

    @property
    def message(self) -> str:
        return str(self.body["message"])

    @property
    def details(self) -> dict[str, Any]:
        return dict(self.body.get("details", {}))

    @property
    def causes(self) -> set[tuple[str, str, str]]:
        """Returns (field, reason, message) of each cause. Their order and repetitions do not matter, because the
        server's vary.
        """
        return {(c.get("field", ""), c["reason"], c["message"]) for c in self.details.get("causes", ())}

    @property
    def fields(self) -> set[str]:
        return {field for field, _, _ in self.causes}

    @property
    def warnings(self) -> list[str]:
        """The texts of Warning headers."""
        found = _WARNING.findall(self.headers.get("warning", ""))
        return [text.replace('\\"', '"') for text in found]


class Api:
    """Sends requests. An empty `token` makes them anonymous; `headers` are added to every request."""

    def __init__(
        self,
        transport: Transport,
        token: str,
        user_agent: str = "conformance/1",
        headers: Iterable[tuple[str, str]] = (),
    ) -> None:
        self.transport = transport
        self.token = token
        self._headers = CIMultiDict([("User-Agent", user_agent), *headers])
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    def bearing(self, token: str) -> Api:
        """Returns a client with another token, or without one."""
        return Api(self.transport, token)

    def acting_as(self, user: str, *groups: str, **headers: str) -> Api:
        """Returns a client that impersonates a user; `headers` are further ones, with `_` for `-`."""
        impersonated = [("Impersonate-User", user)] if user else []
        impersonated += [("Impersonate-Group", group) for group in groups]
        impersonated += [(f"Impersonate-{name.replace('_', '-')}", value) for name, value in headers.items()]
        return Api(self.transport, self.token, headers=impersonated)

    def with_headers(self, **headers: str) -> Api:
        """Returns a client without a token and with these headers instead."""
        return Api(self.transport, "", headers=headers.items())

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = JSON,
        accept: str = JSON,
        **query: Any,
    ) -> Answer:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        headers = self._headers.copy()
        headers["Accept"] = accept
        if data is not None:
            headers["Content-Type"] = content_type
        answer = await self.transport.request(
            HttpRequest(method, _target(path, query), headers, data, WITHIN)
        )
        return Answer(answer.status, answer.headers, answer.body)

    async def get(self, path: str, **query: Any) -> Answer:
        return await self.call("GET", path, **query)

    async def create(self, path: str, body: Any, **query: Any) -> Answer:
        return await self.call("POST", path, body, **query)

    async def replace(self, path: str, body: Any, **query: Any) -> Answer:
        return await self.call("PUT", path, body, **query)

    async def merge(self, path: str, body: Any, **query: Any) -> Answer:
        return await self.call("PATCH", path, body, content_type=MERGE, **query)

    async def strategic(self, path: str, body: Any, **query: Any) -> Answer:
        return await self.call("PATCH", path, body, content_type=STRATEGIC, **query)

    async def json_patch(self, path: str, *ops: Mapping[str, Any], **query: Any) -> Answer:
        return await self.call("PATCH", path, list(ops), content_type=JSON_PATCH, **query)

    async def apply(self, path: str, body: Any, manager: str = "one", **query: Any) -> Answer:
        return await self.call("PATCH", path, body, content_type=APPLY, fieldManager=manager, **query)

    async def delete(self, path: str, options: Any = None, **query: Any) -> Answer:
        return await self.call("DELETE", path, options, **query)

    @asynccontextmanager
    async def watch(self, path: str, *, accept: str = JSON, **query: Any) -> AsyncIterator[Events]:
        target = _target(path, {"watch": "true", "timeoutSeconds": 30, **query})
        headers = self._headers.copy()
        headers["Accept"] = accept
        request = HttpRequest("GET", target, headers, None, WITHIN, WITHIN)
        async with self.transport.stream(request) as stream:
            assert stream.status == 200, await stream.read()
            yield Events(stream.chunks())


class Events:
    """The events of a watch, one by one."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""

    async def next(self) -> dict[str, Any] | None:
        """Returns None at the end of the stream."""
        async with asyncio.timeout(WITHIN):
            while b"\n" not in self._rest:
                chunk = await anext(self._chunks, None)
                if chunk is None:
                    return None
                self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        event: dict[str, Any] = json.loads(line)
        return event

    async def take(self, count: int) -> list[tuple[str, str]]:
        """Returns (type, name) of the next events."""
        taken = []
        for _ in range(count):
            event = await self.next()
            assert event is not None
            taken.append((event["type"], event["object"]["metadata"].get("name", "")))
        return taken

    async def all(self) -> list[dict[str, Any]]:
        """Reads to the end of the stream."""
        events = []
        while (event := await self.next()) is not None:
            events.append(event)
        return events


def _target(path: str, query: Mapping[str, Any]) -> str:
    given = {name: str(value).lower() if isinstance(value, bool) else value for name, value in query.items()}
    return f"{path}?{urlencode(given)}" if given else path


def owned(answer: Answer) -> dict[tuple[str, str, str], Any]:
    """Returns managedFields by (manager, operation, subresource)."""
    return {
        (entry["manager"], entry["operation"], entry.get("subresource", "")): entry["fieldsV1"]
        for entry in answer.meta.get("managedFields", ())
    }


async def install(api: Api, definition: dict[str, Any], within: float = WITHIN) -> None:
    """Creates a definition and waits until its kind is served."""
    with aside():
        answer = await api.create(DEFINITIONS, definition)
    assert answer.status in (201, 409), answer.text
    spec = definition["spec"]
    version = next(version["name"] for version in spec["versions"] if version["served"])
    path = f"/apis/{spec['group']}/{version}/{spec['names']['plural']}"
    await until(lambda: _serves(api, path), within)


async def until(holds: Callable[[], Awaitable[bool]], within: float = WITHIN) -> None:
    async with asyncio.timeout(within):
        with aside():
            while not await holds():  # noqa: ASYNC110 - what changes is in another process
                await asyncio.sleep(0.05)


async def _serves(api: Api, path: str) -> bool:
    return (await api.get(path)).status == 200
