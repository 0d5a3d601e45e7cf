"""matchConditions: all must hold for somebody to be asked.

One that is false ends the matter whatever others are; else one that cannot be evaluated is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubeshard.apiserver.cel import CelError, compile_expression
from kubeshard.apiserver.status import internal
from kubeshard.core.errors import ConfigurationError

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
