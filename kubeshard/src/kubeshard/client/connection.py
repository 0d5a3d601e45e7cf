"""The connection to one server: authenticated, retried, rate-limited, observed requests.

Shared by all views of a client. Guaranteed: every request carries valid credentials (renewed once after a
401); 429 and 503 with `Retry-After` are waited out; a read whose connection broke is retried once, a write never;
the deadline of the request applies to each attempt, not to waiting in between; failures are errors by cause.
Belongs to one event loop.

For writes that depend on a fact that may change, `impatient` returns the same connection without any waiting
inside: the server's response is returned at once.
"""

from __future__ import annotations

import asyncio
import base64
import copy
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar
from urllib.parse import urlsplit

from kubeshard.client.config import BasicAuth, BearerToken, ClusterConfig, ExecPlugin, TokenFile
from kubeshard.client.credentials import (
    ANONYMOUS,
    Credential,
    Credentials,
    ExecCredentials,
    FixedCredentials,
    FollowedCredentials,
    TokenFileCredentials,
)
from kubeshard.client.limiter import Limiter
from kubeshard.client.retry import RetryPolicy
from kubeshard.client.status import error_of, failure_of, is_json, unexpected
from kubeshard.core.errors import ApiError, ConfigurationError, Timeout, Unauthorized, Unavailable
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.tls import Tls
from kubeshard.runtime.transport import (
    HttpRequest,
    HttpResponse,
    HttpStream,
    RepeatedHeaders,
    Transport,
    TransportClosed,
    TransportError,
    TransportTimeout,
    TransportUnverified,
)
from kubeshard.runtime.world import Connect, World

log = get_logger("kubeshard.client")

R = TypeVar("R")

Observer = Callable[[str, str, int, float], None]
"""Called after each attempt with method, host, status code (0: no response) and seconds."""

Guard = Callable[[], None]
"""Raises if the request must no longer be sent."""

_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
_WARNINGS_REMEMBERED = 256


class Connection:
    """The transport, which the world creates, and what is common to every request."""

    def __init__(
        self,
        config: ClusterConfig,
        *,
        world: World,
        limiter: Limiter | None,
        retry: RetryPolicy,
    ) -> None:
        self.config = config
        self.world = world
        self.clock = world.clock
        self.rng = world.rng
        self.observers: list[Observer] = []
        self._host = urlsplit(config.server).netloc
        self._limiter = limiter
        self._retry = retry
        self._credentials = _credentials(config, self.clock)
        self.impersonate = tuple(
            (name, one) for name, one in config.impersonate.items() if isinstance(one, str)
        )
        """Headers of one line each, with which requests are made; `_repeated` are added when they are sent."""
        self._repeated = tuple(
            (name, value)
            for name, values in config.impersonate.items()
            if not isinstance(values, str)
            for value in values
        )
        self._patient = True
        self._heeds_warnings = True
        self._seen = _Seen(tls=config.tls)
        self.transport = _connected(config, world.connect)

    @property
    def unverified(self) -> str:
        """Why the server cannot be verified; empty if it can, or has not been asked yet."""
        return self._seen.unverified

    def impatient(self) -> Connection:
        """The same, but each call is one attempt, sent at once: 429, 503 and 401 are raised. First await `turn`."""
        other = copy.copy(self)
        other._patient = False
        return other

    def with_retry(self, policy: RetryPolicy) -> Connection:
        other = copy.copy(self)
        other._retry = policy
        return other

    def without_warnings(self) -> Connection:
        """The same, but the API server's warnings are not logged."""
        other = copy.copy(self)
        other._heeds_warnings = False
        return other

    async def turn(self) -> None:
        """Waits for the rate limit and for credentials. Raises Unauthorized, ConfigurationError."""
        if self._limiter is not None:
            await self._limiter.acquire()
        if self._credentials.at_hand is None:
            await self._credential(self._credentials.current())

    async def send(self, request: HttpRequest, guards: Sequence[Guard] = ()) -> bytes:
        """The body of a JSON response with status 2xx. Raises ApiError by cause, ConfigurationError for
        unusable credentials, and what `guards` raise, which are called just before each attempt.
        """
        answer = await self.exchange(request, guards)
        if 200 <= answer.status < 300 and answer.body and is_json(answer.headers):
            return answer.body
        raise failure_of(where(request), answer.status, answer.headers, answer.body)

    async def exchange(self, request: HttpRequest, guards: Sequence[Guard] = ()) -> HttpResponse:
        """The server's final response, whatever it is. Raises Timeout or Unavailable if there was none."""
        attempts = _Attempts()
        while True:
            authorized = await self._prepare(request, attempts)
            for guard in guards:
                guard()
            started = self.clock.monotonic()
            try:
                answer = await self.transport.request(authorized)
            except TransportError as error:
                if self._met_stale_connection(request, error, attempts) or self._learned(error, attempts):
                    continue
                raise self._failed(request, error, started) from error
            self._observe(request, answer.status, started, answer.headers.get("warning"))
            if answer.status < 400 or not await self._again(attempts, answer.status, answer.headers):
                return answer

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[HttpStream]:
        """A 2xx JSON response as a stream of bytes. Iteration raises TransportError: see `broken`."""
        attempts = _Attempts()
        while True:
            authorized = await self._prepare(request, attempts)
            started = self.clock.monotonic()
            opened = self.transport.stream(authorized)
            try:
                stream = await opened.__aenter__()
            except TransportError as error:
                if self._met_stale_connection(request, error, attempts) or self._learned(error, attempts):
                    continue
                raise self._failed(request, error, started) from error
            self._observe(request, stream.status, started, stream.headers.get("warning"))
            if 200 <= stream.status < 300 and is_json(stream.headers):
                break
            try:
                body = await stream.read()
            except TransportError as error:
                raise broken(request, error) from error
            finally:
                await opened.__aexit__(None, None, None)
            if await self._again(attempts, stream.status, stream.headers):
                continue
            if 200 <= stream.status < 300:
                raise unexpected(where(request), stream.status, stream.headers, body)
            raise error_of(where(request), stream.status, stream.headers, body)
        try:
            yield stream
        finally:
            await opened.__aexit__(None, None, None)

    async def close(self) -> None:
        await self.transport.close()

    async def _prepare(self, request: HttpRequest, attempts: _Attempts) -> HttpRequest:
        if self._patient and self._limiter is not None:
            await self._limiter.acquire()
        attempts.made += 1
        used = self._credentials.at_hand
        if used is None:
            used = await self._credential(self._credentials.current())
        attempts.used = used
        self._seen.authenticated = True
        if used is not self._seen.presented:
            self._present(used)
        if used.authorization is None and not self._repeated:
            return request
        method, target, headers, body, timeout, idle = request  # `_replace` takes ten times as long
        if used.authorization is not None:
            headers = {**headers, "Authorization": used.authorization}
        if self._repeated:
            headers = RepeatedHeaders(headers, self._repeated)
        return HttpRequest(method, target, headers, body, timeout, idle)

    async def _credential(self, asked: Awaitable[R]) -> R:
        """Credentials that never worked are a user error; those that did may work again."""
        try:
            return await asked
        except ConfigurationError as error:
            if not self._seen.authenticated:
                raise
            raise Unauthorized(str(error), code=401, reason="Unauthorized") from error

    def _present(self, credential: Credential) -> None:
        """Uses a client certificate or an authority that changed, on new connections."""
        seen = self._seen
        tls = credential.tls or self.config.tls
        if credential.certificate is not None:
            certificate, key = credential.certificate
            tls = replace(tls, certificate=certificate, key=key)
        if tls != seen.tls:
            try:
                self.transport.renew(tls)
            except ValueError as error:
                raise ConfigurationError(str(error)) from error
        seen.presented, seen.tls = credential, tls

    async def _again(self, attempts: _Attempts, status: int, headers: Mapping[str, str]) -> bool:
        """Waits as long as the server requested, and returns whether to try once more."""
        if status == 401 and not attempts.renewed:
            attempts.renewed = True
            return await self._credential(self._credentials.renew(attempts.used)) and self._patient
        if not self._patient:
            return False
        delay = self._retry.delay(attempts.made, status, headers, self.rng)
        if delay is None:
            return False
        log.debug("Waiting as the API server requested", status=status, seconds=delay)
        await asyncio.sleep(delay)
        return True

    def _met_stale_connection(self, request: HttpRequest, error: TransportError, attempts: _Attempts) -> bool:
        """Whether to read once more: the server may have closed a kept connection just when it was used."""
        return (
            request.method == "GET"
            and attempts.made == 1
            and error.sent
            and not isinstance(error, TransportTimeout)
        )

    def _learned(self, error: TransportError, attempts: _Attempts) -> bool:
        """Whether to try once more, because a file of the configuration has changed and nothing was sent."""
        if isinstance(error, TransportClosed) or not self._credentials.reread():
            return False
        again = self._patient and not error.sent and not attempts.reread
        attempts.reread = True
        return again

    def _failed(self, request: HttpRequest, error: TransportError, started: float) -> ApiError:
        self._observe(request, 0, started, None)
        if isinstance(error, TransportUnverified):
            self._seen.unverified = str(error)
        return broken(request, error)

    def _observe(self, request: HttpRequest, code: int, started: float, warning: str | None) -> None:
        if code and self._seen.unverified:
            self._seen.unverified = ""
        for observer in self.observers:
            observer(request.method, self._host, code, self.clock.monotonic() - started)
        if not warning or not self._heeds_warnings:
            return
        for quoted in _WARNING.findall(warning):
            text = _ESCAPED.sub(r"\1", quoted)
            if text not in self._seen.warnings and len(self._seen.warnings) < _WARNINGS_REMEMBERED:
                self._seen.warnings.add(text)
                log.warning("The API server warns", warning=text)


@dataclass(slots=True)
class _Seen:
    """The history of a connection, patient or not."""

    authenticated: bool = False
    """Whether there were credentials at least once."""
    presented: Credential | None = None
    tls: Tls | None = None
    """The settings in use."""
    unverified: str = ""
    """Why the server could not be verified, if nothing has been heard of it since."""
    warnings: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Attempts:
    made: int = 0
    renewed: bool = False
    reread: bool = False
    used: Credential = ANONYMOUS


def where(request: HttpRequest) -> str:
    """A request in messages: method and path."""
    return f"{request.method} {request.target.partition('?')[0]}"


def broken(request: HttpRequest, error: TransportError) -> ApiError:
    """The error by cause of a connection that broke or stayed silent."""
    if isinstance(error, TransportTimeout):
        return Timeout(str(error), reason="Timeout")
    return Unavailable(str(error))


def _connected(config: ClusterConfig, connect: Connect) -> Transport:
    """Raises ConfigurationError for unusable certificates."""
    try:
        return connect(config.server, config.tls, proxy=config.proxy)
    except ValueError as error:
        raise ConfigurationError(f"{config.server}: {error}") from error


def _credentials(config: ClusterConfig, clock: Clock) -> Credentials:
    if config.files is not None:
        return FollowedCredentials(config, config.files, lambda found: _own_credentials(found, clock), clock)
    return _own_credentials(config, clock)


def _own_credentials(config: ClusterConfig, clock: Clock) -> Credentials:
    match config.auth:
        case BearerToken(token):
            return FixedCredentials(f"Bearer {token}")
        case TokenFile():
            return TokenFileCredentials(config.auth, clock)
        case BasicAuth(username, password):
            return FixedCredentials("Basic " + base64.b64encode(f"{username}:{password}".encode()).decode())
        case ExecPlugin():
            return ExecCredentials(config, config.auth, clock)
        case None:
            return FixedCredentials()
