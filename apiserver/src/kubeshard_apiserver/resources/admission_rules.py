"""What the kinds of admissionregistration share: rules, match conditions, expressions, and the names in them.

Source: k8s.io/kubernetes `pkg/apis/admissionregistration/validation`; k8s.io/apiserver `admission/plugin/cel`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from kubeshard.core.errors import ConfigurationError
from kubeshard_apiserver.cel import CelError, compile_expression
from kubeshard_apiserver.objects import JsonObject, own_items
from kubeshard_apiserver.resources.field_rules import field_rule_errors
from kubeshard_apiserver.schema.name_formats import qualified_name, wrong
from kubeshard_apiserver.status import FieldError, duplicate, internal, invalid_value, required, too_many

_KIND = ("group", "version", "kind")
_RESOURCE = ("group", "version", "resource")
_STRINGS = (
    *(f"{name}.{field}" for name in ("kind", "requestKind") for field in _KIND),
    *(f"{name}.{field}" for name in ("resource", "requestResource") for field in _RESOURCE),
    *(
        "subResource",
        "requestSubResource",
        "name",
        "namespace",
        "operation",
        "userInfo.username",
        "userInfo.uid",
    ),
)
REQUEST = (
    "request",
    *(f"request.{field}: string" for field in _STRINGS),
    "request.userInfo.groups: list(string)",
    "request.dryRun: bool",
)
_METADATA = ("name", "generateName", "namespace", "uid", "resourceVersion")
NAMESPACE = (
    "namespaceObject",
    *(f"namespaceObject.metadata.{field}: string" for field in _METADATA),
    *(f"namespaceObject.metadata.{field}: map(string, string)" for field in ("labels", "annotations")),
    "namespaceObject.status.phase: string",
)
NAMES = ("object", "oldObject", "authorizer", *REQUEST, *NAMESPACE)

_MEMBERS = {
    "request": {*(name.partition(".")[0] for name in _STRINGS), "dryRun", "options", "object", "oldObject"},
    "request.kind": {*_KIND},
    "request.resource": {*_RESOURCE},
    "request.userInfo": {"username", "uid", "groups", "extra"},
    "namespaceObject": {"apiVersion", "kind", "metadata", "spec", "status"},
    "namespaceObject.spec": {"finalizers"},
    "namespaceObject.status": {"phase", "conditions"},
}
_PATH = re.compile(r"(?<![\w.'\"])(request|namespaceObject|variables)((?:\.[A-Za-z_]\w*)+)(?!\w*\s*\()")

_PRESENCE = re.compile(
    r"\bhas\(\s*(request|namespaceObject|variables)\b|\b(request|namespaceObject|variables)\b[\w.]*(\.|\[)\?"
)


def _asks_for_presence(expression: str) -> bool:
    """Report whether the expression tests the presence of a member of a variable with declared members."""
    return _PRESENCE.search(expression) is not None


def _undefined_field(expression: str, names: Iterable[str]) -> str:
    """Return the compiler's message for the first undefined member, or an empty string if all are defined."""
    composed = {
        name.partition(": ")[0].removeprefix("variables.") for name in names if name.startswith("variables.")
    }
    members = {**_MEMBERS, "variables": composed}
    for mention in _PATH.finditer(expression):
        parent, at = mention[1], mention.start(2)
        for field in mention[2][1:].split("."):
            if field not in members.get(parent, {field}):
                return _undefined(expression, at, field)
            parent, at = f"{parent}.{field}", at + len(field) + 1
    return ""


def _undefined(expression: str, at: int, name: str) -> str:
    before = expression[:at]
    row, column = before.count("\n") + 1, at - before.rfind("\n")
    line = expression.split("\n")[row - 1]
    return f"ERROR: <input>:{row}:{column}: undefined field '{name}'\n | {line}\n | {'.' * (column - 1)}^"


_MOST_CONDITIONS = 64


def default_matching(match: dict[str, Any]) -> None:
    match.setdefault("matchPolicy", "Equivalent")
    match.setdefault("namespaceSelector", {})
    match.setdefault("objectSelector", {})
    default_scopes(match, "resourceRules")
    default_scopes(match, "excludeResourceRules")


def default_scopes(match: dict[str, Any], rules: str) -> None:
    for rule in own_items(match, rules):
        rule.setdefault("scope", "*")


def rule_errors(path: str, rules: Sequence[JsonObject] | None) -> list[FieldError]:
    return [
        error for index, rule in enumerate(rules or ()) for error in _rule_errors(f"{path}[{index}]", rule)
    ]


def condition_errors(
    path: str, conditions: Sequence[JsonObject] | None, names: tuple[str, ...]
) -> list[FieldError]:
    conditions = conditions or ()
    if len(conditions) > _MOST_CONDITIONS:
        return [too_many(path, len(conditions), _MOST_CONDITIONS)]
    errors, seen = [], set()
    for index, condition in enumerate(conditions):
        at, name = f"{path}[{index}]", condition.get("name") or ""
        expression = condition.get("expression") or ""
        if expression.strip():
            errors += expression_errors(f"{at}.expression", expression, names, ("bool",))
        else:
            errors.append(required(f"{at}.expression"))
        if not name:
            errors.append(required(f"{at}.name"))
        elif name in seen:
            errors.append(duplicate(f"{at}.name", name))
        else:
            errors += wrong(f"{at}.name", name, qualified_name)
        seen.add(name)
    return errors


def expression_errors(
    path: str,
    expression: str,
    names: tuple[str, ...],
    returns: tuple[str, ...] = (),
) -> list[FieldError]:
    """Validate an expression. It may use `names` and must return one of the types in `returns`, if there are any."""
    declared = names
    if _asks_for_presence(expression):
        # The library considers a member that is declared under its dotted name always present, so presence is tested on
        # the undeclared object.
        names = tuple(name for name in names if "." not in name)
        returns = (*returns, "dyn") if returns else ()
    try:
        program = compile_expression(expression, names)
    except CelError as error:
        return [invalid_value(path, expression, str(error))]
    except ConfigurationError as error:
        raise internal(str(error)) from None
    if problem := _undefined_field(expression, declared):
        return [invalid_value(path, expression, f"compilation failed: {problem}")]
    if returns and program.returns not in returns:
        wanted = returns[0] if len(returns) == 1 else f"one of [{' '.join(returns)}]"
        return [invalid_value(path, expression, f"must evaluate to {wanted} but got {program.returns}")]
    return []


def _rule_errors(path: str, rule: JsonObject) -> list[FieldError]:
    operations, groups = rule.get("operations") or (), rule.get("apiGroups") or ()
    versions, resources = rule.get("apiVersions") or (), rule.get("resources") or ()
    errors = _listed(f"{path}.operations", operations, "operations")
    errors += field_rule_errors("admissionregistration.v1.RuleWithOperations", path, rule)
    errors += _listed(f"{path}.apiGroups", groups, "API groups")
    errors += _listed(f"{path}.apiVersions", versions, "API versions")
    errors += [required(f"{path}.apiVersions[{index}]") for index, given in enumerate(versions) if not given]
    errors += _resource_errors(f"{path}.resources", resources)
    return errors + field_rule_errors("admissionregistration.v1.NamedRuleWithOperations", path, rule)


def _listed(path: str, values: Sequence[str], what: str) -> list[FieldError]:
    if not values:
        return [required(path)]
    if "*" in values and len(values) > 1:
        return [invalid_value(path, list(values), f"if '*' is present, must not specify other {what}")]
    return []


def _resource_errors(path: str, resources: Sequence[str]) -> list[FieldError]:
    if not resources:
        return [required(path)]
    errors: list[FieldError] = []
    all_of: set[str] = set()
    on_all: set[str] = set()
    for index, given in enumerate(resources):
        at, (resource, slash, subresource) = f"{path}[{index}]", given.partition("/")
        if not given:
            errors.append(required(at))
        if not slash:
            continue
        if resource in all_of:
            errors.append(invalid_value(at, given, f"if '{resource}/*' is present, must not specify {given}"))
        if subresource in on_all:
            errors.append(
                invalid_value(at, given, f"if '*/{subresource}' is present, must not specify {given}")
            )
        if subresource == "*":
            all_of.add(resource)
        if resource == "*":
            on_all.add(subresource)
    if "*/*" in resources and len(resources) > 1:
        problem = "if '*/*' is present, must not specify other resources"
        errors.append(invalid_value(path, list(resources), problem))
    if "*" in resources and any(given and given != "*" and "/" not in given for given in resources):
        problem = "if '*' is present, must not specify other resources without subresources"
        errors.append(invalid_value(path, list(resources), problem))
    return errors
