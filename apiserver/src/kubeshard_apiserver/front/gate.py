"""The gate: authentication, impersonation and authorization of a request.

The front calls it once for every request, before anything else. `Open` lets everything pass; `Identity` does what
`--authorization-mode=RBAC` does:

    gate = Identity(server, tokens={"secret": ADMINISTRATOR})
    transport = InMemoryTransport(Front(server, gate=gate))

Guaranteed: requests are checked in the order of the real server: authentication, impersonation, authorization, and
only then the existence of the resource. With `rbac` the server starts with the default roles and bindings of a new
cluster, aggregated roles are kept up to date, and writes of roles and bindings are checked for escalation. Without it
every authenticated user may do everything, and anonymous requests are rejected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol
from urllib.parse import unquote

from kubeshard_apiserver.access import ADMINISTRATOR, ALLOW_ALL, Attributes, Authorizer, User, not_allowed
from kubeshard_apiserver.front.requests import Request
from kubeshard_apiserver.identity.account_tokens import AccountTokens
from kubeshard_apiserver.identity.authentication import Authentication
from kubeshard_apiserver.identity.cluster_roles import install, keep_aggregated
from kubeshard_apiserver.identity.impersonation import Impersonation, Wanted
from kubeshard_apiserver.identity.rbac import Rbac, check_no_escalation, check_signer
from kubeshard_apiserver.model import EVERY_RIGHT, Rights, Target
from kubeshard_apiserver.objects import Object
from kubeshard_apiserver.server import ApiServer


@dataclass(frozen=True)
class Peer:
    """What the connection reveals about the client. `certificate` is its verified certificate, in DER."""

    certificate: bytes = b""


UNKNOWN = Peer()


class Gate(Protocol):
    @property
    def rights(self) -> Rights:
        """The authorization checks that are made while a request is being processed."""
        ...

    def enter(self, request: Request, attributes: Attributes, peer: Peer) -> User:
        """Authenticates and authorizes a request, and returns its user. Raises ApiError: 401 if the user is unknown,
        403 if the request is not allowed.
        """
        ...


class Open:
    """A gate that treats every client as the administrator; for tests in one process."""

    rights = EVERY_RIGHT

    def enter(self, request: Request, attributes: Attributes, peer: Peer) -> User:
        return ADMINISTRATOR


_EXTRA = "impersonate-extra-"
_EXTRA_SPACE = (
    "the provided Authorization header contains extra space before the bearer token, and is ignored"
)


class Identity:
    """Implements `Gate`. `tokens` maps static tokens to users. `anonymous` says whether requests without credentials
    are admitted as `system:anonymous`; this requires `rbac`. `signing_key` (PEM) is the key of an earlier start, whose
    ServiceAccount tokens then remain valid. Create only one `Identity` per server.
    """

    def __init__(
        self,
        server: ApiServer,
        *,
        tokens: Mapping[str, User],
        rbac: bool = True,
        anonymous: bool = True,
        signing_key: bytes | None = None,
    ) -> None:
        account_tokens = AccountTokens(server.model, signing_key=signing_key)
        self.authentication = Authentication(account_tokens, tokens, anonymous=anonymous and rbac)
        self.authorizer: Authorizer = ALLOW_ALL
        self.rights = EVERY_RIGHT
        if rbac:
            self.authorizer = self._rbac = Rbac(server.store)
            self.rights = Rights(self.authorizer, self._check_write)
            keep_aggregated(server, settled=install(server.model))
        self._impersonation = Impersonation(self.authorizer)

    def enter(self, request: Request, attributes: Attributes, peer: Peer) -> User:
        authorization = request.headers.get("authorization", "").strip()
        if authorization[:8].lower() == "bearer  ":
            request.warnings.append(_EXTRA_SPACE)
        user = self.authentication.user_of(authorization, peer.certificate)
        wanted = _wanted(request)
        if wanted is not None and wanted.check():
            user = self._impersonation.become(user, wanted, attributes)
        decision = self.authorizer.decide(user, attributes)
        if not decision.allowed:
            raise not_allowed(user, attributes, decision.reason)
        return user

    def _check_write(self, user: User, target: Target, new: Object, old: Object | None) -> None:
        """Checks the rights for a write. An apply or replace that creates an object also needs the right to create."""
        check_no_escalation(self._rbac, user, target, new, old)
        check_signer(self.authorizer, user, target, new, old)
        if old is None and target.name:
            resource = target.group_resource
            create = Attributes(
                "create",
                group=resource.group,
                version=target.resource.kind.version,
                resource=resource.resource,
                namespace=target.namespace,
                name=target.name,
            )
            decision = self.authorizer.decide(user, create)
            if not decision.allowed:
                raise not_allowed(user, create, decision.reason)


def _wanted(request: Request) -> Wanted | None:
    if not request.sent.impersonates:
        return None
    wanted = Wanted(
        request.headers.get("impersonate-user", ""),
        request.headers.get("impersonate-uid", ""),
        tuple(request.header_values("impersonate-group")),
    )
    extra = {
        unquote(name.removeprefix(_EXTRA)): tuple(request.header_values(name))
        for name in sorted(request.headers)
        if name.startswith(_EXTRA)
    }
    return replace(wanted, extra=extra) if extra else wanted
