"""Authorization checks in expressions: `authorizer.group('').resource('pods').check('get').allowed()`.

The request is built step by step in a map; `deciding` sets the function that decides during the evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

Decide = Callable[[Mapping[str, Any]], tuple[bool, str]]
"""Decides whether a request with these attributes is allowed, and why. The attributes are `verb`, `path`, `group`,
`resource`, `subresource`, `namespace`, `name` and `account`: the namespace and name of a service account to check
instead of the user.
"""

_DECIDE: ContextVar[Decide] = ContextVar("decide")
_MARK = "$attributes"


@contextmanager
def deciding(decide: Decide) -> Iterator[None]:
    token = _DECIDE.set(decide)
    try:
        yield
    finally:
        _DECIDE.reset(token)


def authorizer(**request: str) -> dict[str, Any]:
    """Returns the variable `authorizer`. `request` has the attributes of `authorizer.requestResource`, without the
    verb.
    """
    return {_MARK: True, "requestResource": {_MARK: True, **request}}


def step(field: str) -> Callable[[dict[str, Any], str], dict[str, Any]]:
    """Returns a function that adds an attribute."""

    def with_field(attributes: dict[str, Any], value: str) -> dict[str, Any]:
        return {**_checked(attributes), field: value}

    return with_field


def service_account(attributes: dict[str, Any], namespace: str, name: str) -> dict[str, Any]:
    return {**_checked(attributes), "account": [namespace, name]}


def check(attributes: dict[str, Any], verb: str) -> dict[str, Any]:
    allowed, reason = _DECIDE.get()({**_checked(attributes), "verb": verb})
    return {"$allowed": allowed, "$reason": reason}


def allowed(decision: dict[str, Any]) -> bool:
    return bool(_decided(decision)["$allowed"])


def reason(decision: dict[str, Any]) -> str:
    return str(_decided(decision)["$reason"])


def errored(decision: dict[str, Any]) -> bool:
    _decided(decision)
    return False


def error(decision: dict[str, Any]) -> str:
    _decided(decision)
    return ""


def _checked(attributes: dict[str, Any]) -> dict[str, Any]:
    if _MARK not in attributes:
        raise ValueError("no such overload")
    return attributes


def _decided(decision: dict[str, Any]) -> dict[str, Any]:
    if "$allowed" not in decision:
        raise ValueError("no such overload")
    return decision
