"""Roles and bindings: validation of their rules and subjects.

Source: k8s.io/kubernetes `pkg/apis/rbac/validation`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubeshard_apiserver.objects import Object, own_items
from kubeshard_apiserver.resources.field_rules import field_rule_errors
from kubeshard_apiserver.resources.metadata import segment_name, subdomain_name
from kubeshard_apiserver.resources.typed import Typed
from kubeshard_apiserver.resources.value_rules import label_selector_errors
from kubeshard_apiserver.status import FieldError, invalid_value, required, unsupported

_GROUP = "rbac.authorization.k8s.io"


class Roles(Typed):
    """Role and ClusterRole."""

    name_rule = staticmethod(segment_name)
    create_on_update = True

    def validate(self, obj: Object) -> list[FieldError]:
        rules = enumerate(obj.get("rules") or ())
        errors = [error for index, rule in rules for error in self._rule_errors(rule, f"rules[{index}]")]
        aggregation = obj.get("aggregationRule")
        if aggregation is not None:
            errors += _aggregation_errors(aggregation.get("clusterRoleSelectors") or ())
        return errors

    def _rule_errors(self, rule: Mapping[str, Any], path: str) -> list[FieldError]:
        errors: list[FieldError] = []
        declared = field_rule_errors("rbac.v1.PolicyRule", path, rule)
        if urls := rule.get("nonResourceURLs"):
            where = f"{path}.nonResourceURLs"
            if self.kind.namespaced:
                errors.append(
                    invalid_value(where, urls, "namespaced rules cannot apply to non-resource URLs")
                )
            if any(rule.get(field) for field in ("apiGroups", "resources", "resourceNames")):
                problem = "rules cannot apply to both regular resources and non-resource URLs"
                errors.append(invalid_value(where, urls, problem))
            return errors + declared
        return field_rule_errors("rbac.v1.PolicyRule#resources", path, rule) + declared


def _aggregation_errors(selectors: Sequence[Mapping[str, Any]]) -> list[FieldError]:
    path = "aggregationRule.clusterRoleSelectors"
    if not selectors:
        return [required(path, "at least one clusterRoleSelector required if aggregationRule is non-nil")]
    errors = []
    for index, selector in enumerate(selectors):
        if wrong := label_selector_errors(f"{path}[{index}]", selector):
            errors += [*wrong, invalid_value(f"{path}[{index}]", None, "invalid label selector.")]
    return errors


class Bindings(Typed):
    """RoleBinding and ClusterRoleBinding."""

    name_rule = staticmethod(segment_name)
    create_on_update = True

    def set_defaults(self, obj: Object) -> None:
        role = obj.setdefault("roleRef", {})
        if not role.get("apiGroup"):
            role["apiGroup"] = _GROUP
        for subject in own_items(obj, "subjects"):
            if not subject.get("apiGroup") and subject.get("kind") in ("User", "Group"):
                subject["apiGroup"] = _GROUP

    def validate(self, obj: Object) -> list[FieldError]:
        role = obj["roleRef"]
        errors = field_rule_errors("rbac.v1.RoleRef", "roleRef", role)
        kinds = ("Role", "ClusterRole") if self.kind.namespaced else ("ClusterRole",)
        if (kind := role.get("kind", "")) not in kinds:
            errors.append(unsupported("roleRef.kind", kind, kinds))
        name = role.get("name", "")
        if not name:
            errors.append(required("roleRef.name"))
        elif problem := segment_name(name):
            errors.append(invalid_value("roleRef.name", name, problem))
        for index, subject in enumerate(obj.get("subjects") or ()):
            errors += self._subject_errors(subject, f"subjects[{index}]")
        return errors

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        errors = self.validate(new)
        if new["roleRef"] != old["roleRef"]:
            role = {title: new["roleRef"].get(title[0].lower() + title[1:], "") for title in ("Kind", "Name")}
            given = {"APIGroup": new["roleRef"]["apiGroup"], **role}
            errors.append(invalid_value("roleRef", given, "field is immutable"))
        return errors

    def _subject_errors(self, subject: Mapping[str, Any], path: str) -> list[FieldError]:
        kind, name, group = (subject.get(field, "") for field in ("kind", "name", "apiGroup"))
        errors: list[FieldError] = []
        match kind:
            case "ServiceAccount":
                if name and (problem := subdomain_name(name)):
                    errors.append(invalid_value(f"{path}.name", name, problem))
                if group:
                    errors.append(unsupported(f"{path}.apiGroup", group, ("",)))
                if not self.kind.namespaced and not subject.get("namespace"):
                    errors.append(required(f"{path}.namespace"))
            case "User" | "Group":
                if group != _GROUP:
                    errors.append(unsupported(f"{path}.apiGroup", group, (_GROUP,)))
            case _:
                errors.append(unsupported(f"{path}.kind", kind, ("ServiceAccount", "User", "Group")))
        return errors if name else [*errors, required(f"{path}.name")]
