"""CEL expressions of webhooks and policies: match conditions, and the variables available to expressions.

All match conditions must hold. If one is false, the result is false, even if others cannot be evaluated; otherwise a
condition that cannot be evaluated is an error. A policy's expressions can use the write, its parameters and the
variables of the policy. A variable is evaluated once, when an expression first mentions it, and can use the variables
before it. A variable that cannot be evaluated makes an expression fail only if the expression gets to use it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from kubeshard.core.errors import ConfigurationError
from kubeshard_apiserver.admission.attributes import Attributes
from kubeshard_apiserver.cel import CelError, compile_expression
from kubeshard_apiserver.objects import Object
from kubeshard_apiserver.status import internal

Condition = Mapping[str, Any]

WEBHOOK_NAMES = ("object", "oldObject", "request", "authorizer", "namespaceObject")
NAMES = ("object", "oldObject", "request", "params", "namespaceObject", "variables", "authorizer")

_MENTIONED = re.compile(r"\bvariables\s*\.\s*\??\s*([A-Za-z_]\w*)")
_SEEN_OF_NAMESPACE = (
    "name", "generateName", "labels", "annotations", "uid", "creationTimestamp", "deletionTimestamp", "generation",
    "resourceVersion", "finalizers",
)  # fmt: skip


def conditions_hold(
    conditions: Sequence[Condition], names: tuple[str, ...], variables: Mapping[str, Any]
) -> bool:
    """Whether all conditions hold. Raises CelError with the errors of all conditions that failed."""
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


class Activation:
    """The variables of one policy, for one write and one parameter."""

    def __init__(
        self,
        asked: Attributes,
        params: Object | None,
        namespace: Object | None,
        variables: Sequence[Mapping[str, Any]],
    ) -> None:
        self._base = {
            "object": asked.object,
            "oldObject": asked.old,
            "request": asked.request(),
            "params": params,
            "namespaceObject": namespace and _as_seen(namespace),
            "authorizer": asked.authorizer(),
        }
        self._definitions = {variable["name"]: variable["expression"] for variable in variables}
        self._values: dict[str, Any] = {}
        self._errors: dict[str, str] = {}

    def values(self, expression: str) -> dict[str, Any]:
        """Returns the variables for this expression."""
        for name in _MENTIONED.findall(expression):
            self._compose(name)
        return {**self._base, "variables": self._values}

    def blamed(self, error: str) -> str:
        """Returns the error, with the cause added if a variable caused it."""
        for name, problem in self._errors.items():
            if error.endswith(f"no such key: {name}"):
                return error.replace(
                    f"no such key: {name}", f'composited variable "{name}" fails to evaluate: {problem}'
                )
        return error

    def _compose(self, name: str) -> None:
        expression = self._definitions.get(name)
        if expression is None or name in self._values or name in self._errors:
            return
        try:
            self._values[name] = evaluated(expression, NAMES, self.values(expression))
        except CelError as error:
            self._errors[name] = str(error).partition("resulted in error: ")[2]


def _as_seen(namespace: Object) -> Object:
    """Returns the Namespace with only the metadata that Kubernetes exposes to policies."""
    meta = namespace["metadata"]
    return {**namespace, "metadata": {name: meta[name] for name in _SEEN_OF_NAMESPACE if name in meta}}
