"""PodDisruptionBudgets. Source: k8s.io/kubernetes `pkg/apis/policy/validation`,
`pkg/registry/policy/poddisruptionbudget`.
"""

from __future__ import annotations

from kubeshard_apiserver.objects import Object
from kubeshard_apiserver.resources.facts import fact_errors
from kubeshard_apiserver.resources.typed import Typed
from kubeshard_apiserver.status import FieldError, invalid_value

_SHARES = ("minAvailable", "maxUnavailable")


class Budgets(Typed):
    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj["spec"]
        errors: list[FieldError] = []
        given = [field for field in _SHARES if spec.get(field) is not None]
        if len(given) == 2:
            problem = "minAvailable and maxUnavailable cannot be both set"
            errors.append(invalid_value("spec", _shown(spec), problem))
        return errors + fact_errors("policy.v1.PodDisruptionBudgetSpec", "spec", spec)

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        if subresource != "status":
            return self.validate(new)
        return fact_errors("policy.v1.PodDisruptionBudgetStatus", "status", new["status"])


def _shown(spec: Object) -> Object:
    """As messages show it: by the names of Go's fields."""
    fields = ("minAvailable", "selector", "maxUnavailable", "unhealthyPodEvictionPolicy")
    return {f"{field[0].upper()}{field[1:]}": spec.get(field) for field in fields}
