"""The user behind a request: established by authentication, used by authorization and admission."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
_ACCOUNT = "system:serviceaccount:"


@dataclass(frozen=True)
class User:
    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def in_group(self, group: str) -> User:
        return self if group in self.groups else replace(self, groups=(*self.groups, group))


ADMINISTRATOR = User("kubernetes-admin", groups=(MASTERS, AUTHENTICATED))
ANONYMOUS = User("system:anonymous", groups=(UNAUTHENTICATED,))


def account_name(namespace: str, name: str) -> str:
    """Return the user name of a ServiceAccount."""
    return f"{_ACCOUNT}{namespace}:{name}"


def account_groups(namespace: str) -> tuple[str, ...]:
    return "system:serviceaccounts", f"system:serviceaccounts:{namespace}"


def account_of(user_name: str) -> tuple[str, str] | None:
    """Return the namespace and name of the ServiceAccount that a user name stands for, or None."""
    if not user_name.startswith(_ACCOUNT):
        return None
    namespace, colon, name = user_name.removeprefix(_ACCOUNT).partition(":")
    return (namespace, name) if namespace and name and colon and ":" not in name else None


def user_info(user: User) -> dict[str, Any]:
    """Return the `UserInfo` that reviews and admission requests contain."""
    info: dict[str, Any] = {"username": user.name}
    if user.uid:
        info["uid"] = user.uid
    if user.groups:
        info["groups"] = list(user.groups)
    if user.extra:
        info["extra"] = {key: list(values) for key, values in user.extra.items()}
    return info
