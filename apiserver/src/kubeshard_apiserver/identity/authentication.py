"""Authentication: by client certificate, by bearer token, or as the anonymous user.

Guaranteed: every authenticated user is in `system:authenticated`. A request with a rejected token is refused rather
than treated as anonymous, unless a client certificate authenticates it. The common name of a certificate is the user,
and its organizations are the groups. Whether the certificate is trusted is decided by TLS, not by this module. Source:
k8s.io/apiserver `authentication/request`, `authentication/request/x509`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from kubeshard_apiserver.access import ANONYMOUS, AUTHENTICATED, User, unauthorized
from kubeshard_apiserver.identity.account_tokens import ISSUER, AccountTokens, NotAuthentic

AUDIENCES = (ISSUER,)
"""The audiences of this server. A token must be meant for one of them to be accepted."""
_INVALID = "invalid bearer token"
_UID = "1.3.6.1.4.1.57683.2"


class Verdict(NamedTuple):
    """The verdict on a token: its user and audiences, or why it was refused."""

    user: User | None
    audiences: Sequence[str] = ()
    problem: str = ""


class Authentication:
    """Authenticates requests. `tokens` maps tokens to users, as in `--token-auth-file`. `anonymous`: whether to accept
    requests without credentials.
    """

    def __init__(
        self, account_tokens: AccountTokens, tokens: Mapping[str, User], *, anonymous: bool = True
    ) -> None:
        self.account_tokens = account_tokens
        self._tokens = {token: user.in_group(AUTHENTICATED) for token, user in tokens.items() if token}
        self._anonymous = anonymous

    def user_of(self, authorization: str, certificate: bytes) -> User:
        """Return the user of a request with this `Authorization` header. Raises Unauthorized."""
        if certificate and (user := user_of_certificate(certificate)):
            return user.in_group(AUTHENTICATED)
        token = _bearer(authorization)
        if not token:
            if self._anonymous:
                return ANONYMOUS
            raise unauthorized()
        found = self._tokens.get(token) or self.verdict(token).user
        if found is None:
            raise unauthorized()
        return found

    def verdict(self, token: str, audiences: Sequence[str] = AUDIENCES) -> Verdict:
        user = self._tokens.get(token)
        if user is not None:
            meant = [audience for audience in AUDIENCES if audience in audiences]
            return Verdict(user, meant) if meant else Verdict(None, (), _INVALID)
        try:
            found = self.account_tokens.user_of(token, audiences)
        except NotAuthentic as problem:
            return Verdict(None, (), f"[{_INVALID}, {problem}]")
        if found is None:
            return Verdict(None, (), _INVALID)
        return Verdict(found[0].in_group(AUTHENTICATED), found[1])


def _bearer(authorization: str) -> str:
    """Return the bearer token. Like the real server, return nothing for other schemes or a second space before it."""
    scheme, _, rest = authorization.strip().partition(" ")
    return rest.partition(" ")[0] if scheme.lower() == "bearer" else ""


@lru_cache(256)
def user_of_certificate(der: bytes) -> User | None:
    """Return the certificate's user, or None if it has no common name."""
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    subject = x509.load_der_x509_certificate(der).subject
    names = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if not names or not names[-1].value:
        return None
    groups = tuple(str(part.value) for part in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME))
    uids = [str(part.value) for part in subject.get_attributes_for_oid(x509.ObjectIdentifier(_UID))]
    if len(uids) > 1 or "" in uids:
        return None
    fingerprint = f"X509SHA256={sha256(der).hexdigest()}"
    extra = {"authentication.kubernetes.io/credential-id": (fingerprint,)}
    return User(str(names[-1].value), uids[0] if uids else "", groups, extra)
