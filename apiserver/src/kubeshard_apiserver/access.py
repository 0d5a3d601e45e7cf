"""Users, the actions they request, the interface that decides about them, and the response to a refusal.

A user is established by authentication, and used by authorization and admission. Source of the responses:
k8s.io/apiserver `endpoints/handlers/responsewriters`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from kubeshard.core.errors import Forbidden, Unauthorized
from kubeshard.core.kinds import GroupResource
from kubeshard_apiserver.status import forbidden, shown

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


Rule = Mapping[str, Any]
"""A PolicyRule, as it appears in roles."""
_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


@dataclass(frozen=True)
class Attributes:
    """What a request wants to do. If its path names no resource, `verb` is the lower-case HTTP method and `resource` is
    empty.
    """

    verb: str
    path: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def about_resource(self) -> bool:
        """Whether the request is about a resource. A review may omit the resource's name; it has no path then."""
        return bool(self.resource) or not self.path

    @property
    def combined(self) -> str:
        """The resource as RBAC rules name it: `pods`, or `pods/status`."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


class Decision(NamedTuple):
    """`reason` names the binding that allows the request, or a problem found while looking for one."""

    allowed: bool
    reason: str = ""


class HeldRules(NamedTuple):
    """The rules that a user holds. `problem` names bindings whose role is missing."""

    rules: Sequence[Rule]
    problem: str = ""


class Authorizer(Protocol):
    def decide(self, user: User, attributes: Attributes) -> Decision: ...

    def held(self, user: User, namespace: str) -> HeldRules:
        """Return the rules that apply in this namespace, or cluster-wide if it is empty."""
        ...


class AllowAll:
    """Allows everything, like `--authorization-mode=AlwaysAllow`."""

    def decide(self, user: User, attributes: Attributes) -> Decision:
        return Decision(True)

    def held(self, user: User, namespace: str) -> HeldRules:
        every = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        return HeldRules([every, {"verbs": ["*"], "nonResourceURLs": ["*"]}])


ALLOW_ALL: Authorizer = AllowAll()


def unauthorized() -> Unauthorized:
    return Unauthorized("Unauthorized", code=401, reason="Unauthorized")


def not_allowed(user: User, attributes: Attributes, reason: str = "") -> Forbidden:
    """Return the refusal. `reason` is what the authorizer adds to it."""
    who = f"User {shown(user.name)} cannot {attributes.verb}"
    cause = f": {reason}" if reason else ""
    if not attributes.about_resource:
        what = f"{who} path {shown(attributes.path)}".translate(_HTML)
        return Forbidden(f"forbidden: {what}{cause}", code=403, reason="Forbidden")
    scope = (
        f"in the namespace {shown(attributes.namespace)}" if attributes.namespace else "at the cluster scope"
    )
    what = f"{who} resource {shown(attributes.combined)} in API group {shown(attributes.group)} {scope}"
    resource = GroupResource(attributes.group, attributes.resource)
    return forbidden(resource, attributes.name, what.translate(_HTML) + cause)
