"""PriorityClasses and PodDisruptionBudgets.

Source: k8s.io/kubernetes `pkg/apis/scheduling`, `pkg/apis/policy/validation`,
`pkg/registry/policy/poddisruptionbudget`; the admission plugin Priority.
"""

from __future__ import annotations

from kubeshard.core.kinds import GroupResource
from kubeshard_apiserver.objects import Object, with_status_condition
from kubeshard_apiserver.resources.field_rules import changed_errors, field_rule_errors
from kubeshard_apiserver.resources.metadata import segment_name
from kubeshard_apiserver.resources.pod_defaults import SYSTEM_PRIORITIES
from kubeshard_apiserver.resources.typed import Typed
from kubeshard_apiserver.schema.internal import internal
from kubeshard_apiserver.status import FieldError, forbidden, forbidden_field, invalid_value

PRIORITY_CLASSES = GroupResource("scheduling.k8s.io", "priorityclasses")
_HIGHEST = 1_000_000_000
_PREFIX = "system-"
_SHARES = ("minAvailable", "maxUnavailable")


class PriorityClasses(Typed):
    """PriorityClasses. Only one may be the default for pods that name no class."""

    def set_defaults(self, obj: Object) -> None:
        obj.setdefault("preemptionPolicy", "PreemptLowerPriority")

    def prepare_update(self, new: Object, old: Object, subresource: str) -> None:
        generation = old["metadata"].get("generation")
        super().prepare_update(new, old, subresource)
        if generation is not None:
            new["metadata"]["generation"] = generation

    def validate(self, obj: Object) -> list[FieldError]:
        name, value = obj["metadata"].get("name", ""), obj.get("value", 0)
        errors: list[FieldError] = []
        if name.startswith(_PREFIX):
            if problem := _reserved(obj, name, value):
                told = (
                    f"priority class names with '{_PREFIX}' prefix are reserved for system use only. error: "
                )
                errors.append(forbidden_field("metadata.name", told + problem))
        elif value > _HIGHEST:
            problem = f"maximum allowed value of a user defined priority is {_HIGHEST}"
            errors.append(forbidden_field("value", problem))
        errors += field_rule_errors("scheduling.v1.PriorityClass", "", obj)
        return errors or self._alone(obj)

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        errors: list[FieldError] = []
        if new.get("value", 0) != old.get("value", 0):
            errors.append(forbidden_field("value", "may not be changed in an update."))
        errors += changed_errors("", ("preemptionPolicy",), new, old)
        return errors or self._alone(new)

    def _alone(self, obj: Object) -> list[FieldError]:
        """Raises Forbidden if there is another default class."""
        name = obj["metadata"].get("name", "")
        for other in self.stored(PRIORITY_CLASSES).values() if obj.get("globalDefault") else ():
            if other.get("globalDefault") and other["metadata"]["name"] != name:
                problem = (
                    f"PriorityClass {other['metadata']['name']} is already marked as default. "
                    "Only one default can exist"
                )
                raise forbidden(PRIORITY_CLASSES, name, problem)
        return []


def _reserved(obj: Object, name: str, value: int) -> str:
    if name not in SYSTEM_PRIORITIES:
        return f"{name} is not a known system priority class"
    if value != SYSTEM_PRIORITIES[name]:
        return f"value of {name} PriorityClass must be {SYSTEM_PRIORITIES[name]}"
    return f"globalDefault of {name} PriorityClass must be false" if obj.get("globalDefault") else ""


class Budgets(Typed):
    name_rule = staticmethod(segment_name)

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj["spec"]
        errors: list[FieldError] = []
        given = [field for field in _SHARES if spec.get(field) is not None]
        if len(given) == 2:
            problem = "minAvailable and maxUnavailable cannot be both set"
            errors.append(invalid_value("spec", internal("policy.v1.PodDisruptionBudgetSpec", spec), problem))
        return errors + field_rule_errors("policy.v1.PodDisruptionBudgetSpec", "spec", spec)

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        if subresource != "status":
            return self.validate(new)
        return field_rule_errors("policy.v1.PodDisruptionBudgetStatus", "status", new["status"])


def with_disruption_allowed(status: Object, holds: str, reason: str, message: str, now: str) -> Object:
    """Returns the status of a budget with its condition."""
    condition = {"type": "DisruptionAllowed", "status": holds, "reason": reason, "message": message}
    if generation := status.get("observedGeneration"):
        condition["observedGeneration"] = generation
    return with_status_condition(status, condition, now)
