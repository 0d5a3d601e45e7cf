"""ServiceAccount tokens: issued for a limited time, bound to the account and optionally to a Pod, Secret or Node.

Guaranteed: a token is valid until it expires (by the server's clock), or until its account or the object it is bound to
is deleted. Recreating an account or object with the same name does not make it valid again. Source: k8s.io/kubernetes
`pkg/serviceaccount`, KEP-1205, KEP-4193.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard.core.times import parse_time
from kubeshard_apiserver.access import User, account_groups, account_name
from kubeshard_apiserver.identity.rbac import quoted
from kubeshard_apiserver.model import Model
from kubeshard_apiserver.objects import Object
from kubeshard_apiserver.status import shown

if TYPE_CHECKING:
    from kubeshard_apiserver.identity.jwt import SigningKey

ISSUER = "https://kubernetes.default.svc"
ACCOUNTS = GroupResource("", "serviceaccounts")
BINDABLE = {
    "Pod": GroupResource("", "pods"),
    "Node": GroupResource("", "nodes"),
    "Secret": GroupResource("", "secrets"),
}
_LEEWAY = 60.0
_PRIVATE = "kubernetes.io"
_EXTRA = "authentication.kubernetes.io"
_MOST_KEPT = 10_000


class NotAuthentic(Exception):
    """Raised for a token that this server signed but does not accept. The message says why."""


class AccountTokens:
    """Issues and verifies tokens. `signing_key` is the key of an earlier run in PEM, which keeps its tokens valid."""

    def __init__(self, model: Model, *, signing_key: bytes | None = None) -> None:
        self._model = model
        self._pem = signing_key
        self._made: SigningKey | None = None
        self._verified: dict[str, dict[str, Any]] = {}

    @property
    def signing_key(self) -> bytes:
        """Return the private key in PEM; keep it secret. Raises ConfigurationError without the extra `certificates`."""
        return self._key().pem

    @property
    def public_key(self) -> dict[str, str]:
        """Return the public key as a JSON Web Key. Raises ConfigurationError without the extra `certificates`."""
        return self._key().public

    def issued(
        self, account: Object, audiences: Sequence[str], seconds: int, bound: Mapping[str, Object]
    ) -> str:
        """Return a signed token. `bound` are the objects, by kind, that the token does not outlive. Raises
        ConfigurationError without the extra `certificates`.
        """
        now, meta = int(self._model.clock.wall()), account["metadata"]
        references = {kind.lower(): _reference(obj) for kind, obj in bound.items()}
        return self._key().signed(
            {
                "aud": list(audiences),
                "exp": now + seconds,
                "iat": now,
                "iss": ISSUER,
                "jti": self._model.rng.token(),
                _PRIVATE: {
                    "namespace": meta["namespace"],
                    "serviceaccount": _reference(account),
                    **references,
                },
                "nbf": now,
                "sub": account_name(meta["namespace"], meta["name"]),
            }
        )

    def user_of(self, token: str, audiences: Sequence[str]) -> tuple[User, list[str]] | None:
        """Return the token's user, and those of the given audiences that it is meant for. Return None if someone else
        signed the token. Raises NotAuthentic.
        """
        claims = self._claims(token)
        if claims is None:
            return None
        given = claims["aud"]
        meant = [audience for audience in given if audience in audiences]
        if not meant:
            raise NotAuthentic(
                f"token audiences {quoted(given)} is invalid for the target audiences {quoted(audiences)}"
            )
        self._check_time(claims)
        return self._user(claims), meant

    def _claims(self, token: str) -> dict[str, Any] | None:
        known = self._verified.get(token)
        if known is None and token.count(".") == 2 and (self._made or self._pem):
            known = self._key().claims(token)
            if known is not None:
                if len(self._verified) >= _MOST_KEPT:
                    self._verified.clear()
                self._verified[token] = known
        return known

    def _check_time(self, claims: Mapping[str, Any]) -> None:
        now = self._model.clock.wall()
        if now > claims["exp"] + _LEEWAY:
            raise NotAuthentic("service account token has expired")
        if now < claims["nbf"] - _LEEWAY:
            raise NotAuthentic("service account token is not valid yet")

    def _user(self, claims: Mapping[str, Any]) -> User:
        private = claims[_PRIVATE]
        namespace, account = private["namespace"], private["serviceaccount"]
        found = self._model.store.get(ACCOUNTS, Key(namespace, account["name"]))
        if found is None:
            raise NotAuthentic(f"serviceaccounts {shown(account['name'])} not found")
        uid = found["metadata"]["uid"]
        if uid != account["uid"]:
            raise NotAuthentic(f"service account UID ({uid}) does not match claim ({account['uid']})")
        if self._is_over(found):
            raise NotAuthentic(f"service account {namespace}/{account['name']} has been deleted")
        for kind in BINDABLE:
            reference = private.get(kind.lower())
            if reference and not (kind == "Node" and "pod" in private):
                self._check_bound(kind, namespace, reference)
        extra = {"credential-id": (f"JTI={claims['jti']}",)}
        for kind in ("pod", "node"):
            if reference := private.get(kind):
                extra[f"{kind}-name"] = (reference["name"],)
                if reference["uid"]:
                    extra[f"{kind}-uid"] = (reference["uid"],)
        named = {f"{_EXTRA}/{name}": values for name, values in extra.items()}
        return User(account_name(namespace, account["name"]), uid, account_groups(namespace), named)

    def _check_bound(self, kind: str, namespace: str, reference: Mapping[str, str]) -> None:
        place = "" if kind == "Node" else namespace
        found = self._model.store.get(BINDABLE[kind], Key(place, reference["name"]))
        if found is None or self._is_over(found):
            raise NotAuthentic("service account token has been invalidated")
        uid = found["metadata"]["uid"]
        if uid != reference["uid"]:
            claimed = f"{kind.lower()} ref claim ({reference['uid']})"
            raise NotAuthentic(f"{kind} UID ({uid}) does not match service account {claimed}")

    def _is_over(self, obj: Object) -> bool:
        """Report whether the object was deleted some time ago. An account may still clean up while being deleted."""
        deleted = parse_time(obj["metadata"].get("deletionTimestamp"))
        return deleted is not None and deleted < self._model.clock.wall() - _LEEWAY

    def _key(self) -> SigningKey:
        if self._made is None:
            from kubeshard_apiserver.identity.jwt import SigningKey

            self._made = SigningKey(self._pem)
        return self._made


def _reference(obj: Object) -> dict[str, str]:
    meta = obj["metadata"]
    return {"name": meta["name"], "uid": meta.get("uid", "")}
