"""Who may read metrics, and HTTPS for them.

The API server decides who may, as it does for its own endpoints. A bearer token is authenticated by a TokenReview; a
SubjectAccessReview checks that its user has `get` on the nonResourceURL (`/metrics`).

| request | response |
|---|---|
| no bearer token, or one that the API server does not accept | 401 |
| a user without the right | 403 |
| the API server cannot be reached, or returns an error | 503: never open |
| too many unknown tokens from one address | 429 |

Results are cached, for 60 s if positive and 10 s if not, for the 1024 most recent tokens; the tokens themselves are not
stored. Guaranteed: whatever clients send, the API server gets at most a few reviews per second and client address. Not
guaranteed: that revoking a permission takes effect in less than 60 s.

HTTPS uses a certificate that the process already serves, or a self-signed one, which encrypts, but does not
authenticate: scrapers cannot verify it (the usual ServiceMonitor sets `insecureSkipVerify`). That one is created when
the first client connects: importing cryptography takes 12 MiB and 30 ms, and the webhook package 8 ms, which a process
that is never scraped does not need.

RBAC: `create` on `tokenreviews` (authentication.k8s.io) and `subjectaccessreviews` (authorization.k8s.io).
"""

from __future__ import annotations

import hashlib
import ssl
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from kubeshard.client.client import Client
from kubeshard.core.errors import KubeshardError
from kubeshard.manager.http import Page, respond
from kubeshard.runtime.asgi import AsgiApp, Receive, Scope, Send
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.tls import server_context
from kubeshard.runtime.token_bucket import TokenBucket
from kubeshard.runtime.world import World

if TYPE_CHECKING:
    from kubeshard.webhook.certificates import ServingCertificate

ALLOWED_FOR = 60.0
REFUSED_FOR = 10.0
REMEMBERED = 1024

REVIEWS_PER_SECOND = 5.0
REVIEW_BURST = 20

_log = get_logger("kubeshard.manager.metrics")

_UNAUTHORIZED = Page(401, "Unauthorized\n")
_FORBIDDEN = Page(403, "Forbidden\n")
_THROTTLED = Page(429, "Too Many Requests\n")
_UNAVAILABLE = Page(503, "Service Unavailable\n")


class _Remembered(NamedTuple):
    refusal: Page | None
    until: float


class MetricsAuth:
    """Checks requests. `auth.guard(app)` is the application behind authentication and authorization."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._clock = client.world.clock
        self._remembered: OrderedDict[tuple[bytes, str, str], _Remembered] = OrderedDict()
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def guard(self, app: AsgiApp) -> AsgiApp:
        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            refusal = await self._refusal(scope)
            if refusal is None:
                await app(scope, receive, send)
                return
            challenge = [(b"www-authenticate", b"Bearer")] if refusal.status == 401 else []
            await respond(send, refusal, headers=challenge)

        return guarded

    async def _refusal(self, scope: Scope) -> Page | None:
        """The response to a refused request, or None."""
        token = _bearer_token(scope)
        if not token:
            return _UNAUTHORIZED
        path, verb = scope["path"], scope["method"].lower()
        place = (hashlib.sha256(token.encode()).digest(), path, verb)
        known = self._remembered.get(place)
        if known is not None and self._clock.monotonic() < known.until:
            return known.refusal
        if not self._bucket(scope).try_take():
            return _THROTTLED
        try:
            refusal = await self._review(token, path, verb)
        except KubeshardError as error:
            _log.error("Cannot check who may read the metrics", error=error)
            return _UNAVAILABLE
        lifetime = ALLOWED_FOR if refusal is None else REFUSED_FOR
        self._remembered[place] = _Remembered(refusal, self._clock.monotonic() + lifetime)
        self._remembered.move_to_end(place)
        if len(self._remembered) > REMEMBERED:
            self._remembered.popitem(last=False)
        return refusal

    async def _review(self, token: str, path: str, verb: str) -> Page | None:
        from kubeshard.kinds import authentication_v1, authorization_v1  # for those who ask for reviews

        asked = authentication_v1.TokenReview(spec=authentication_v1.TokenReviewSpec(token=token))
        found = (await self._client.create(asked)).status
        if not found.authenticated or found.user is None:
            return _UNAUTHORIZED
        spec = authorization_v1.SubjectAccessReviewSpec(
            user=found.user.username,
            uid=found.user.uid,
            groups=found.user.groups,
            extra=found.user.extra,
            non_resource_attributes=authorization_v1.NonResourceAttributes(path=path, verb=verb),
        )
        review = await self._client.create(authorization_v1.SubjectAccessReview(spec=spec))
        return None if review.status.allowed else _FORBIDDEN

    def _bucket(self, scope: Scope) -> TokenBucket:
        """The rate limit of the client's address."""
        address = (scope.get("client") or ("",))[0]
        bucket = self._buckets.get(address)
        if bucket is None:
            bucket = self._buckets[address] = TokenBucket(REVIEWS_PER_SECOND, REVIEW_BURST, clock=self._clock)
            if len(self._buckets) > REMEMBERED:
                self._buckets.popitem(last=False)
        return bucket


def _bearer_token(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"authorization":
            scheme, _, token = value.decode("latin-1").partition(" ")
            return token.strip() if scheme.lower() == "bearer" else ""
    return ""


def self_signed(
    world: World, certified: Callable[[], ssl.SSLContext | None] = lambda: None
) -> ssl.SSLContext:
    """An SSL context for a server, with a certificate for this host. Connections get the one of `certified` instead,
    whenever there is one.
    """
    serving: ServingCertificate | None = None

    def greeted(connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _: ssl.SSLContext) -> None:
        # Called for every connection, whether or not the client sends a server name.
        nonlocal serving
        if (given := certified()) is not None:
            connection.context = given
            return
        if serving is None:
            from kubeshard.webhook.certificates import ServingCertificate

            serving = ServingCertificate(clock=world.clock)
        if not serving.ready():
            from kubeshard.webhook.selfsigned import renewed  # loads cryptography

            serving.install(renewed(None, (world.host.name(),), world.clock.wall()).serving)
        connection.context = serving.context

    context = server_context(ssl.TLSVersion.TLSv1_3)
    context.sni_callback = greeted
    return context
