"""Impersonation: `Impersonate-User`, `-Group`, `-Uid` and `-Extra-*`.

There are several modes, tried in this order: the constrained ones (KEP-5284: a user may impersonate certain users *for
certain requests*), then the legacy one, which needs only the verb `impersonate`. The mode that last worked for a
requestor is tried first. If none works, the first refusal is returned.
Source: k8s.io/apiserver `endpoints/filters/impersonation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kubeshard.core.errors import Forbidden
from kubeshard.core.names import is_dns_subdomain
from kubeshard_apiserver.access import (
    ANONYMOUS,
    AUTHENTICATED,
    MASTERS,
    UNAUTHENTICATED,
    Attributes,
    Authorizer,
    User,
    account_groups,
    account_of,
    not_allowed,
)
from kubeshard_apiserver.status import bad_request, shown

_NODE = "system:node:"
_NODES = "system:nodes"
_NODE_NAME = "authentication.kubernetes.io/node-name"
_AUTHENTICATION = "authentication.k8s.io"
_LEGACY = "impersonate"
_MANY = 4
"""From this many groups or extra values on, the right to impersonate all of them is checked first."""
_MOST_KEPT = 10_000


@dataclass(frozen=True)
class Wanted:
    """The user that a request wants to impersonate, taken from its headers."""

    name: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] | None = None

    @property
    def by_name_only(self) -> bool:
        return not (self.uid or self.groups or self.extra)

    def check(self) -> bool:
        """Return whether impersonation is requested. Raises Invalid (400) if the user name is missing."""
        if not self.name and not self.by_name_only:
            problem = f"requested {self._in_go()} without impersonating a user name"
            raise bad_request(problem)
        return bool(self.name)

    def _in_go(self) -> str:
        groups = "{" + ", ".join(map(shown, self.groups)) + "}" if self.groups else "(nil)"
        extra = ", ".join(
            f"{shown(key)}:[]string{{{', '.join(map(shown, values))}}}"
            for key, values in sorted((self.extra or {}).items())
        )
        extra = f"{{{extra}}}" if extra else "(nil)"
        return (
            f"&user.DefaultInfo{{Name:{shown(self.name)}, UID:{shown(self.uid)}, Groups:[]string{groups}, "
            f"Extra:map[string][]string{extra}}}"
        )


class Impersonation:
    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer
        self._worked: dict[str, str] = {}

    def become(self, requestor: User, wanted: Wanted, attributes: Attributes) -> User:
        """Return the impersonated user. Raises Forbidden."""
        modes = _modes(requestor, wanted)
        last = self._worked.get(requestor.name)
        if last in modes:
            modes = [last, *(mode for mode in modes if mode != last)]
        refusal: Forbidden | None = None
        for mode in modes:
            try:
                user = self._checked(mode, requestor, wanted, attributes)
            except Forbidden as error:
                refusal = refusal or error
            else:
                if len(self._worked) >= _MOST_KEPT:
                    self._worked.clear()
                self._worked[requestor.name] = mode
                return user
        if refusal is None:
            raise AssertionError("the legacy mode is always tried")
        raise refusal

    def _checked(self, mode: str, requestor: User, wanted: Wanted, attributes: Attributes) -> User:
        if mode == _LEGACY:
            return self._allowed(requestor, wanted, _LEGACY, "")
        self._check(requestor, replace(attributes, verb=f"impersonate-on:{mode}:{attributes.verb}"))
        return self._allowed(requestor, wanted, f"impersonate:{mode}", _AUTHENTICATION)

    def _allowed(self, requestor: User, wanted: Wanted, verb: str, group: str) -> User:
        constrained = verb != _LEGACY
        user = User(wanted.name, wanted.uid, wanted.groups, wanted.extra or {})
        name = Attributes(verb, group=group, resource="users", name=wanted.name)
        if constrained and (node := _node_of(wanted.name)):
            name = replace(name, resource="nodes", name="*" if verb.endswith(":associated-node") else node)
            user = replace(user, groups=(_NODES,))
        elif account := account_of(wanted.name):
            name = replace(name, resource="serviceaccounts", namespace=account[0], name=account[1])
            if not wanted.groups:
                user = replace(user, groups=account_groups(account[0]))
        self._check(requestor, name)
        if wanted.uid:
            self._check(requestor, Attributes(verb, group=_AUTHENTICATION, resource="uids", name=wanted.uid))
        self._check_groups(requestor, wanted.groups, Attributes(verb, group=group, resource="groups"))
        extras = Attributes(verb, group=_AUTHENTICATION, resource="userextras")
        self._check_extra(requestor, wanted.extra or {}, extras)
        if user.name == ANONYMOUS.name:
            return user.in_group(UNAUTHENTICATED)
        return user if UNAUTHENTICATED in user.groups else user.in_group(AUTHENTICATED)

    def _check_groups(self, requestor: User, groups: tuple[str, ...], attributes: Attributes) -> None:
        if attributes.verb != _LEGACY:
            if "" in groups:
                raise not_allowed(
                    requestor, attributes, "impersonating the empty string group is not allowed"
                )
            if MASTERS in groups:
                problem = f"impersonating the {MASTERS} group is not allowed"
                raise not_allowed(requestor, replace(attributes, name=MASTERS), problem)
            if len(groups) >= _MANY and self._may(requestor, replace(attributes, name="*")):
                return
        for group in groups:
            self._check(requestor, replace(attributes, name=group))

    def _check_extra(
        self, requestor: User, extra: Mapping[str, tuple[str, ...]], attributes: Attributes
    ) -> None:
        if attributes.verb != _LEGACY:
            for values in extra.values():
                if "" in values:
                    problem = "impersonating the empty string value in extra is not allowed"
                    raise not_allowed(requestor, attributes, problem)
            many = len(extra) >= _MANY or sum(map(len, extra.values())) >= _MANY
            if many and self._may(requestor, replace(attributes, subresource="*", name="*")):
                return
        for key, values in extra.items():
            for value in values:
                self._check(requestor, replace(attributes, subresource=key, name=value))

    def _may(self, requestor: User, attributes: Attributes) -> bool:
        return self._authorizer.decide(requestor, attributes).allowed

    def _check(self, requestor: User, attributes: Attributes) -> None:
        decision = self._authorizer.decide(requestor, attributes)
        if not decision.allowed:
            raise not_allowed(requestor, attributes, decision.reason)


def _modes(requestor: User, wanted: Wanted) -> list[str]:
    """Return the modes that apply to the wanted user."""
    node, account = _node_of(wanted.name), account_of(wanted.name)
    modes = []
    if wanted.by_name_only and node:
        if account_of(requestor.name) and requestor.extra.get(_NODE_NAME) == (node,):
            modes.append("associated-node")
        modes.append("arbitrary-node")
    if wanted.by_name_only and account:
        modes.append("serviceaccount")
    if not node and not account:
        modes.append("user-info")
    return [*modes, _LEGACY]


def _node_of(user_name: str) -> str:
    name = user_name.removeprefix(_NODE)
    return name if name != user_name and is_dns_subdomain(name) else ""
