"""Who asks: a client certificate, a bearer token, or nobody who says so.

Guaranteed: everybody who is somebody is in `system:authenticated`; a token that is not taken is refused, it
does not make its bearer anonymous - as long as no certificate tells who that is. Source: k8s.io/apiserver
`authentication/request`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kubeshard_apiserver.access.user import ANONYMOUS, AUTHENTICATED, User
from kubeshard_apiserver.identity.account_tokens import ISSUER, AccountTokens, NotAuthentic
from kubeshard_apiserver.identity.certificates import user_of_certificate
from kubeshard_apiserver.identity.refusals import unauthorized

AUDIENCES = (ISSUER,)
"""Of this server: what tokens must be for to be taken."""
_INVALID = "invalid bearer token"


class Verdict(NamedTuple):
    """About a token: who its bearer is and for which audiences, or why that cannot be told."""

    user: User | None
    audiences: Sequence[str] = ()
    problem: str = ""


class Authentication:
    """`tokens`: users by their tokens, as in `--token-auth-file`. `anonymous`: whether to let those in who
    show nothing.
    """

    def __init__(
        self, account_tokens: AccountTokens, tokens: Mapping[str, User], *, anonymous: bool = True
    ) -> None:
        self.account_tokens = account_tokens
        self._tokens = {token: user.in_group(AUTHENTICATED) for token, user in tokens.items() if token}
        self._anonymous = anonymous

    def user_of(self, authorization: str, certificate: bytes) -> User:
        """Of a request with this `Authorization` header. Raises Unauthorized."""
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
    """Empty for every other scheme, and for a second space before the token, as the server has it."""
    scheme, _, rest = authorization.strip().partition(" ")
    return rest.partition(" ")[0] if scheme.lower() == "bearer" else ""
