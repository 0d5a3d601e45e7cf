"""Who decides what a user may do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from kubeshard_apiserver.access.attributes import Attributes
from kubeshard_apiserver.access.user import User

Rule = Mapping[str, Any]
"""A PolicyRule, as it stands in roles."""


class Decision(NamedTuple):
    """`reason` says by which binding it is allowed, or what was missing when it was looked for."""

    allowed: bool
    reason: str = ""


class Held(NamedTuple):
    """The rules that a user has; `problem` names bindings whose role is missing."""

    rules: Sequence[Rule]
    problem: str = ""


class Authorizer(Protocol):
    def decide(self, user: User, attributes: Attributes) -> Decision: ...

    def held(self, user: User, namespace: str) -> Held:
        """In this namespace; in an empty one, everywhere."""
        ...


class AllowAll:
    """As `--authorization-mode=AlwaysAllow`."""

    def decide(self, user: User, attributes: Attributes) -> Decision:
        return Decision(True)

    def held(self, user: User, namespace: str) -> Held:
        every = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        return Held([every, {"verbs": ["*"], "nonResourceURLs": ["*"]}])


ALLOW_ALL: Authorizer = AllowAll()
