"""The simplest door: one token, one administrator, probes for everybody."""

from __future__ import annotations

import hmac

from kubeshard.apiserver.front.attributes import Attributes
from kubeshard.apiserver.front.gate import Peer
from kubeshard.apiserver.front.requests import Request
from kubeshard.apiserver.identity.user import ADMINISTRATOR, User
from kubeshard.core.errors import Unauthorized

_PUBLIC = ("/healthz", "/livez", "/readyz", "/version")


class TokenGate:
    """Who brings the token, or a client certificate that TLS has verified, is the administrator."""

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode()

    def enter(self, request: Request, attributes: Attributes, peer: Peer) -> User:
        given = request.headers.get("authorization", "").encode("latin-1", "replace")
        if hmac.compare_digest(given, self._expected) or peer.certificate:
            return ADMINISTRATOR
        if not given and request.path.rstrip("/") in _PUBLIC:
            return User("system:anonymous", groups=("system:unauthenticated",))
        raise Unauthorized("Unauthorized", code=401, reason="Unauthorized")
