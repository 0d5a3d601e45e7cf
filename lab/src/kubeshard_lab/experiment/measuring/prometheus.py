"""The HTTP API of a Prometheus, as far as it is needed to ask queries."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Self
from urllib.parse import unquote, urlencode, urlsplit

import msgspec

from kubeshard.core.errors import ConfigurationError, KubeshardError
from kubeshard.runtime.logs import one_line
from kubeshard.runtime.tls import Tls
from kubeshard.runtime.transport import HttpRequest, Transport, TransportError, TransportTimeout
from kubeshard.runtime.world import Connect
from kubeshard_lab.experiment.measuring.answers import Answer, Point, Series, number
from kubeshard_lab.experiment.measuring.queries import RANGE, Query, Window

TIMEOUT = 10
"""Seconds that the server may take for a query."""
_WAIT = TIMEOUT + 2.0
"""Seconds until a request is given up: the server itself says more about a query that takes too long."""
_NO_TLS = Tls()


class Unanswered(KubeshardError):
    """The query has no answer; others may have."""


class Unusable(KubeshardError):
    """This server answers no query: it is not reached, refuses the credentials, or is no Prometheus."""


class Prometheus:
    """A server, by the URL below which it has `/api/v1`. Raises ConfigurationError for a URL or settings of TLS that
    cannot work. A user and password in the URL are sent, unless there is a token.
    """

    def __init__(self, url: str, connect: Connect, tls: Tls = _NO_TLS, token: str | None = None) -> None:
        self._url, self._headers = _taken_apart(url)
        if token is not None:
            self._headers = {"authorization": f"Bearer {token}"}
        try:
            self._transport: Transport = connect(self._url, tls)
        except ValueError as error:
            raise ConfigurationError(f"{self._url}: {error}") from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._transport.close()

    async def ask(self, query: Query, window: Window) -> Answer:
        """Raises Unanswered, Unusable."""
        parameters = {"query": query.query, "timeout": f"{TIMEOUT}s"}
        if query.type == "range":
            expected, path = "matrix", "query_range"
            parameters |= {name: number(value) for name, value in window._asdict().items()}
        else:
            expected, path = "vector", "query"
            parameters |= {"query": query.query.replace(RANGE, window.range), "time": number(window.end)}
        data, warnings = await self._get(f"/api/v1/{path}?{urlencode(parameters)}")
        if data.result_type != expected:
            raise Unanswered(
                f"the answer is a {data.result_type}, a query of type {query.type} needs a {expected}"
            )
        try:
            found = msgspec.convert(data.result, list[_Series], strict=False)
        except msgspec.ValidationError as error:
            raise Unusable(f"{self._url}: {error}") from error
        if any(each.histogram or each.histograms for each in found):
            raise Unanswered(
                "the answer consists of native histograms: ask for a quantile, sum or count of them"
            )
        return Answer([each.series for each in found], warnings)

    async def _get(self, target: str) -> tuple[_Data, list[str]]:
        try:
            got = await self._transport.request(HttpRequest("GET", target, self._headers, timeout=_WAIT))
        except TransportTimeout:
            raise Unanswered(f"no answer within {_WAIT:g} s") from None
        except TransportError as error:
            raise Unusable(
                f"cannot reach {self._url} ({one_line(str(error))}): check --prometheus-url"
            ) from error
        if got.status in (401, 403):
            raise Unusable(f"{self._url} refuses the request ({got.status}): check --bearer-token-file")
        try:
            body = msgspec.json.decode(got.body, type=_Body)
        except msgspec.DecodeError:
            raise Unusable(
                f"{self._url} answered {got.status} and not as a Prometheus does: check --prometheus-url"
            ) from None
        if body.status != "success" or body.data is None:
            raise Unanswered(one_line(f"{body.error_type}: {body.error}"))
        return body.data, body.warnings


class _Data(msgspec.Struct, rename="camel"):
    result_type: str
    result: Any


class _Body(msgspec.Struct, rename="camel"):
    status: str
    data: _Data | None = None
    error_type: str = ""
    error: str = ""
    warnings: list[str] = []


class _Series(msgspec.Struct):
    """A series of a matrix, or a sample of a vector."""

    metric: dict[str, str]
    values: list[tuple[float, str]] = []
    value: tuple[float, str] | None = None
    histograms: list[Any] = []
    histogram: Any = None

    @property
    def series(self) -> Series:
        values = self.values if self.value is None else [self.value]
        return Series(self.metric, [Point(time, float(value)) for time, value in values])


def _taken_apart(url: str) -> tuple[str, Mapping[str, str]]:
    """The URL without credentials, and headers with them."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises if it is none
    except ValueError as error:
        raise ConfigurationError(f"{url!r} is not a URL: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigurationError(
            f"{url!r} is not the URL of a Prometheus: expected http://HOST[:PORT][/PATH]"
        )
    credentials, _, host = parts.netloc.rpartition("@")
    headers = {}
    if credentials:
        headers["authorization"] = f"Basic {b64encode(unquote(credentials).encode()).decode()}"
    return parts._replace(netloc=host).geturl().rstrip("/"), headers
