"""ValidatingAdmissionPolicy and its binding: defaults and validation, including the compilation of expressions.

Source: k8s.io/kubernetes `pkg/apis/admissionregistration/validation`.
"""

from __future__ import annotations

import re

from kubeshard_apiserver.cel import CelError, compile_expression
from kubeshard_apiserver.objects import JsonObject, Object, own
from kubeshard_apiserver.resources.admission_rules import (
    NAMES,
    condition_errors,
    default_matching,
    expression_errors,
    rule_errors,
)
from kubeshard_apiserver.resources.field_rules import field_rule_errors
from kubeshard_apiserver.resources.typed import Typed
from kubeshard_apiserver.resources.value_rules import label_selector_errors
from kubeshard_apiserver.schema.name_formats import dns_1035_label, dns_subdomain, qualified_name, wrong
from kubeshard_apiserver.status import (
    FieldError,
    forbidden_field,
    invalid_value,
    required,
)

_BINDING = "admissionregistration.v1.ValidatingAdmissionPolicyBindingSpec"
_IDENTIFIER = re.compile("[_a-zA-Z][_a-zA-Z0-9]*")
_RESERVED = frozenset(
    ["as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop",
     "namespace", "null", "package", "return", "true", "var", "void", "while"]
)  # fmt: skip


class AdmissionPolicies(Typed):
    def set_defaults(self, obj: Object) -> None:
        spec = obj["spec"]
        spec.setdefault("failurePolicy", "Fail")
        if (match := own(spec, "matchConstraints")) is not None:
            default_matching(match)

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj["spec"]
        names = (*NAMES, "params") if spec.get("paramKind") is not None else NAMES
        errors = field_rule_errors("admissionregistration.v1.ValidatingAdmissionPolicySpec", "spec", spec)
        errors += _param_kind_errors("spec.paramKind", spec.get("paramKind"))
        errors += _constraint_errors("spec.matchConstraints", spec.get("matchConstraints"))
        errors += condition_errors("spec.matchConditions", spec.get("matchConditions"), names)
        for index, variable in enumerate(spec.get("variables") or ()):
            in_scope = names if "variables" in names else (*names, "variables")
            errors += _variable_errors(f"spec.variables[{index}]", variable, in_scope)
            names = (*in_scope, _composed(variable, in_scope))
        validations, annotations = spec.get("validations") or (), spec.get("auditAnnotations") or ()
        if not validations and not annotations:
            problem = "validations or auditAnnotations must contain at least one item"
            errors += [required(f"spec.{field}", problem) for field in ("validations", "auditAnnotations")]
        for index, validation in enumerate(validations):
            errors += _validation_errors(f"spec.validations[{index}]", validation, names)
        for index, annotation in enumerate(annotations):
            key = f"{obj['metadata'].get('name', '')}/{annotation.get('key') or ''}"
            errors += _annotation_errors(f"spec.auditAnnotations[{index}]", key, annotation, names)
        return errors


class PolicyBindings(Typed):
    def set_defaults(self, obj: Object) -> None:
        if (match := own(obj["spec"], "matchResources")) is not None:
            default_matching(match)

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj["spec"]
        errors = field_rule_errors(_BINDING, "spec", spec)
        errors += _param_ref_errors("spec.paramRef", spec.get("paramRef"))
        if (match := spec.get("matchResources")) is not None:
            errors += _match_errors("spec.matchResources", match)
        actions = spec.get("validationActions") or []
        errors += field_rule_errors(f"{_BINDING}#actions", "spec", spec)
        if {"Deny", "Warn"} <= set(actions):
            problem = "must not contain both Deny and Warn (repeating the same validation failure information in the "
            problem += "API response and headers serves no purpose)"
            errors.append(invalid_value("spec.validationActions", actions, problem))
        return errors


def _constraint_errors(path: str, match: JsonObject | None) -> list[FieldError]:
    if match is None:
        return [required(path)]
    errors = _match_errors(path, match)
    if not match.get("resourceRules"):
        errors.append(required(f"{path}.resourceRules"))
    return errors


def _match_errors(path: str, match: JsonObject) -> list[FieldError]:
    errors = field_rule_errors("admissionregistration.v1.MatchResources", path, match)
    for field in ("resourceRules", "excludeResourceRules"):
        errors += rule_errors(f"{path}.{field}", match.get(field))
    return errors


def _param_kind_errors(path: str, given: JsonObject | None) -> list[FieldError]:
    if given is None:
        return []
    api_version, kind = given.get("apiVersion") or "", given.get("kind") or ""
    errors = []
    if not api_version:
        errors.append(required(f"{path}.apiVersion"))
    elif api_version.count("/") > 1:
        problem = f"unexpected GroupVersion string: {api_version}"
        errors.append(invalid_value(f"{path}.apiVersion", api_version, problem))
    else:
        group, _, version = api_version.rpartition("/")
        errors += wrong(f"{path}.apiVersion", group, dns_subdomain) if group else []
        errors += wrong(f"{path}.apiVersion", version, dns_1035_label)
    if not kind:
        errors.append(required(f"{path}.kind"))
    else:
        errors += [
            invalid_value(f"{path}.kind", kind, f"may have mixed case, but should otherwise match: {problem}")
            for problem in dns_1035_label(kind.lower())
        ]
    return errors


def _param_ref_errors(path: str, ref: JsonObject | None) -> list[FieldError]:
    if ref is None:
        return []
    name, selector = ref.get("name"), ref.get("selector")
    errors = field_rule_errors("admissionregistration.v1.ParamRef", path, ref)
    if name:
        if selector is not None:
            problem = "name and selector are mutually exclusive"
            errors += [forbidden_field(f"{path}.{field}", problem) for field in ("name", "selector")]
    elif selector is not None:
        errors += label_selector_errors(f"{path}.selector", selector)
    else:
        errors.append(required(path, "one of name or selector must be specified"))
    return errors + field_rule_errors("admissionregistration.v1.ParamRef#missing", path, ref)


def _variable_errors(path: str, variable: JsonObject, names: tuple[str, ...]) -> list[FieldError]:
    name, expression = variable.get("name") or "", variable.get("expression") or ""
    errors = []
    if not name.strip():
        errors.append(required(f"{path}.name", "name is not specified"))
    elif not _IDENTIFIER.fullmatch(name) or name in _RESERVED:
        errors.append(invalid_value(f"{path}.name", name, "must be a valid CEL identifier"))
    if not expression.strip():
        return [*errors, required(f"{path}.expression", "expression is not specified")]
    return errors + expression_errors(f"{path}.expression", expression, names)


def _composed(variable: JsonObject, names: tuple[str, ...]) -> str:
    """Declare the variable the way later expressions refer to it."""
    name = f"variables.{variable.get('name') or ''}"
    try:
        return f"{name}: {compile_expression(variable.get('expression') or '', names).returns}"
    except CelError:
        return name


def _validation_errors(path: str, validation: JsonObject, names: tuple[str, ...]) -> list[FieldError]:
    expression, message = validation.get("expression") or "", validation.get("message") or ""
    errors: list[FieldError] = []
    if expression.strip():
        errors += expression_errors(f"{path}.expression", expression, names, ("bool",))
    else:
        errors.append(required(f"{path}.expression", "expression is not specified"))
    if made := validation.get("messageExpression"):
        at = f"{path}.messageExpression"
        if made.strip():
            seen = tuple(name for name in names if name != "authorizer")
            errors += expression_errors(at, made, seen, ("string",))
        else:
            errors.append(invalid_value(at, made, "must be non-empty if specified"))
    if message and not message.strip():
        errors.append(invalid_value(f"{path}.message", message, "must be non-empty if specified"))
    elif "\n" in message.strip():
        errors.append(invalid_value(f"{path}.message", message, "must not contain line breaks"))
    return errors + field_rule_errors("admissionregistration.v1.Validation", path, validation)


def _annotation_errors(
    path: str, key: str, annotation: JsonObject, names: tuple[str, ...]
) -> list[FieldError]:
    errors = wrong(f"{path}.key", key, qualified_name)
    expression = annotation.get("valueExpression") or ""
    if not expression.strip():
        return [*errors, required(f"{path}.valueExpression", "valueExpression is not specified")]
    returns = ("string", "null_type")
    return errors + expression_errors(f"{path}.valueExpression", expression, names, returns)
