"""matchConditions: all must hold for somebody to be asked.

One that is false ends the matter whatever others are; else one that cannot be evaluated is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubeshard.core.errors import ConfigurationError
from kubeshard_apiserver.access.attributes import Attributes
from kubeshard_apiserver.access.authorizer import Authorizer
from kubeshard_apiserver.access.user import User, account_groups, account_name
from kubeshard_apiserver.cel import CelError, compile_expression
from kubeshard_apiserver.status import internal

Condition = Mapping[str, Any]

WEBHOOK_NAMES = ("object", "oldObject", "request", "authorizer", "namespaceObject")


def conditions_hold(
    conditions: Sequence[Condition], names: tuple[str, ...], variables: Mapping[str, Any]
) -> bool:
    """Raises CelError with the words of all that failed."""
    errors = []
    for condition in conditions:
        try:
            if not evaluated(condition["expression"], names, variables):
                return False
        except CelError as error:
            errors.append(str(error))
    if errors:
        raise CelError(errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]")
    return True


def evaluated(expression: str, names: tuple[str, ...], variables: Mapping[str, Any]) -> Any:
    try:
        return compile_expression(expression, names).evaluate(variables)
    except ConfigurationError as error:
        raise internal(str(error)) from None
    except CelError as error:
        raise CelError(f"expression '{expression}' resulted in error: {error}") from None


def decided(authorizer: Authorizer, user: User, wish: Mapping[str, Any]) -> tuple[bool, str]:
    """What the authorizer says of a wish that an expression has put together."""
    if account := wish.get("account"):
        namespace, name = account
        user = User(account_name(namespace, name), groups=account_groups(namespace))
    fields = ("path", "group", "resource", "subresource", "namespace", "name")
    wanted = Attributes(wish["verb"], **{field: wish.get(field, "") for field in fields})
    decision = authorizer.decide(user, wanted)
    return decision.allowed, decision.reason
