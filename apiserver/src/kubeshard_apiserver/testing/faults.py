"""Faults of an API server in memory: requests that are slow, refused, or whose responses are lost.

    async def test_a_conflict_is_retried(kube_memory):
        fault = kube_memory.inject("patch", "configmaps", status=409, times=2)
        ...
        assert fault.hits == 2

Guaranteed: a fault hits the requests that match it in the order in which they are sent, at most `times` of them. A
refused request changes nothing; one whose response is lost has taken effect. Delays are those of the event loop, so on
virtual time they cost none.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import msgspec

from kubeshard.runtime.transport import HttpRequest, HttpResponse, HttpStream, TransportError
from kubeshard_apiserver.front.memory import InMemoryTransport
from kubeshard_apiserver.server import ApiServer

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
VERBS = frozenset({"*", "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"})


class Fault:
    """What happens to requests. `hits` is how many it has met. `stop` ends it."""

    def __init__(
        self,
        verb: str,
        resource: str,
        name: str,
        *,
        status: int,
        latency: float,
        lost: bool,
        times: int | None,
    ) -> None:
        if verb not in VERBS:
            raise ValueError(f"verb {verb!r}: one of {', '.join(sorted(VERBS))}")
        if status and status not in _REASONS:
            raise ValueError(f"status {status}: one of {', '.join(map(str, _REASONS))}")
        if not status and not latency and not lost:
            raise ValueError("a fault without status=, latency= or lost=True does nothing")
        if status and lost:
            raise ValueError("a request that is refused cannot take effect: status= or lost=True")
        if lost and verb == "watch":
            raise ValueError("a watch has no response to lose: kube_memory.cut() breaks watches")
        self._wanted = (verb, resource, name)
        self.status = status
        self.latency = latency
        self.lost = lost
        self.hits = 0
        self._left = times

    def stop(self) -> None:
        """The fault meets no further request."""
        self._left = 0

    def meets(self, asked: Asked) -> bool:
        """Whether the request is one of its, which then counts."""
        if self._left == 0 or not all(
            wanted in ("*", found) for wanted, found in zip(self._wanted, asked, strict=True)
        ):
            return False
        self.hits += 1
        if self._left is not None:
            self._left -= 1
        return True

    def refusal(self, asked: Asked) -> HttpResponse:
        """The response of the API server."""
        status = {
            "apiVersion": "v1",
            "kind": "Status",
            "status": "Failure",
            "reason": _REASONS[self.status],
            "code": self.status,
            "message": f"{asked.verb} {asked.resource} {asked.name}: injected by the test".replace("  ", " "),
        }
        return HttpResponse(self.status, {"content-type": "application/json"}, msgspec.json.encode(status))


class Asked(NamedTuple):
    """What a request is about. The resource of a subresource is as in RBAC: `pods/status`."""

    verb: str
    resource: str
    name: str


def asked(request: HttpRequest) -> Asked:
    url = urlsplit(request.target)
    parts = [part for part in url.path.split("/") if part]
    rest = parts[2:] if parts[:1] == ["api"] else parts[3:]
    if rest[:1] == ["namespaces"] and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        rest = rest[2:]
    resource, name, sub = (*rest, "", "", "")[:3]
    verb = _VERBS.get(request.method, "get" if name else "list")
    if verb == "list" and parse_qs(url.query).get("watch", ["0"])[0] in ("1", "true"):
        verb = "watch"
    if verb == "delete" and not name:
        verb = "deletecollection"
    return Asked(verb, f"{resource}/{sub}" if sub else resource, name)


class FaultyTransport(InMemoryTransport):
    """Meets each request with the first fault that is about it."""

    def __init__(self, server: ApiServer, faults: list[Fault]) -> None:
        super().__init__(server)
        self._faults = faults

    async def request(self, request: HttpRequest) -> HttpResponse:
        about, fault = await self._met(request)
        if fault is not None and fault.status:
            return fault.refusal(about)
        response = await super().request(request)
        if fault is not None and fault.lost:
            raise TransportError("the response was lost: injected by the test")
        return response

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[HttpStream]:
        about, fault = await self._met(request)
        if fault is not None and fault.status:
            yield _Refused(fault.refusal(about))
            return
        async with super().stream(request) as stream:
            if fault is not None and fault.lost:
                raise TransportError("the response was lost: injected by the test")
            yield stream

    async def _met(self, request: HttpRequest) -> tuple[Asked, Fault | None]:
        about = asked(request)
        fault = next((fault for fault in self._faults if fault.meets(about)), None)
        if fault is not None and fault.latency:
            await asyncio.sleep(fault.latency)
        return about, fault


class _Refused:
    """A stream with a single body."""

    def __init__(self, response: HttpResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self._body = response.body

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self._body

    async def read(self) -> Any:
        return self._body
