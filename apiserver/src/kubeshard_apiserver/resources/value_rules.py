"""Validation of single values that takes more than a comparison: functions from `(path, value)` to field errors.

They do not depend on the rest of the object. `field_rules` assigns them to fields of built-in kinds.

Source: k8s.io/apimachinery `apis/meta/v1/validation`, `util/validation`; k8s.io/kubernetes `pkg/apis/core/validation`,
`pkg/apis/apps/validation`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from kubeshard_apiserver.objects import JsonObject
from kubeshard_apiserver.schema.name_formats import (
    dns_subdomain,
    label_value,
    labels,
    not_negative,
    percent,
    qualified_name,
    wrong,
)
from kubeshard_apiserver.status import FieldError, forbidden_field, invalid_value, required, unsupported

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_HTTP_PATH = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")


def label_selector_errors(path: str, selector: JsonObject | None) -> list[FieldError]:
    if selector is None:
        return []
    errors = labels(f"{path}.matchLabels", selector.get("matchLabels"))
    for index, expression in enumerate(selector.get("matchExpressions") or ()):
        at, operator = f"{path}.matchExpressions[{index}]", expression.get("operator", "")
        values = expression.get("values") or ()
        errors += operand_errors(at, operator, values)
        errors += wrong(f"{at}.key", expression.get("key", ""), qualified_name)
        for position, value in enumerate(values):
            errors += wrong(f"{at}.values[{position}]", value, label_value)
    return errors


def selects(selector: JsonObject | None, given: Mapping[str, str] | None) -> bool:
    """Report whether a workload's valid selector selects these labels. A missing selector selects nothing."""
    if selector is None:
        return False
    has = given or {}
    for key, value in (selector.get("matchLabels") or {}).items():
        if has.get(key) != value:
            return False
    for expression in selector.get("matchExpressions") or ():
        key, values = expression.get("key", ""), expression.get("values") or ()
        holds = {
            "In": has.get(key) in values,
            "NotIn": has.get(key) not in values,
            "Exists": key in has,
            "DoesNotExist": key not in has,
        }
        if not holds.get(expression.get("operator", ""), False):
            return False
    return True


def operand_errors(path: str, operator: str, values: Sequence[str]) -> list[FieldError]:
    """Validate the operator and values of an expression in a selector."""
    if operator in ("In", "NotIn"):
        problem = "must be specified when `operator` is 'In' or 'NotIn'"
        return [] if values else [required(f"{path}.values", problem)]
    if operator in ("Exists", "DoesNotExist"):
        problem = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        return [forbidden_field(f"{path}.values", problem)] if values else []
    return [invalid_value(f"{path}.operator", operator, "not a valid selector operator")]


def toleration_errors(path: str, toleration: JsonObject) -> list[FieldError]:
    errors: list[FieldError] = []
    operator, value = toleration.get("operator", ""), toleration.get("value", "")
    key, effect = toleration.get("key", ""), toleration.get("effect", "")
    if key:
        errors += wrong(f"{path}.key", key, qualified_name)
    elif operator != "Exists":
        problem = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        errors.append(invalid_value(f"{path}.operator", operator, problem))
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        problem = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        errors.append(invalid_value(f"{path}.effect", effect, problem))
    if operator in ("Equal", ""):
        if problems := label_value(value):
            errors.append(invalid_value(f"{path}.operator", value, ";".join(problems)))
    elif operator == "Exists":
        if value:
            problem = "value must be empty when `operator` is 'Exists'"
            errors.append(invalid_value(f"{path}.operator", value, problem))
    else:
        known = ("Equal", "Exists", "Lt", "Gt") if operator in ("Lt", "Gt") else ("Equal", "Exists")
        errors.append(unsupported(f"{path}.operator", operator, known))
    if effect and effect not in _EFFECTS:
        errors.append(unsupported(f"{path}.effect", effect, _EFFECTS))
    return errors


def domain_path_errors(path: str, text: str) -> list[FieldError]:
    """Validate a path prefixed with a domain: `acme.io/foo`."""
    if not text:
        return [required(path)]
    domain, slash, rest = text.partition("/")
    if not slash or not domain or not rest:
        problem = 'must be a domain-prefixed path (such as "acme.io/foo")'
        return [invalid_value(path, text, problem)]
    errors = wrong(path, domain, dns_subdomain)
    if not _HTTP_PATH.fullmatch(rest):
        problem = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')"
        errors.append(invalid_value(path, rest, problem))
    return errors


def provisioner_errors(path: str, name: str) -> list[FieldError]:
    return wrong(path, name.lower(), qualified_name)


def share_errors(path: str, share: int | str) -> list[FieldError]:
    """Validate a number of pods or a percentage."""
    return wrong(path, share, percent) if isinstance(share, str) else not_negative(path, share)


def share_of(share: int | str) -> int:
    if isinstance(share, int):
        return share
    return int(share[:-1]) if not percent(share) else 0


def at_most_all(path: str, share: int | str) -> list[FieldError]:
    if isinstance(share, str) and share_of(share) > 100:
        return [invalid_value(path, share, "must not be greater than 100%")]
    return []


def bounded_share_errors(path: str, share: int | str) -> list[FieldError]:
    return share_errors(path, share) + at_most_all(path, share)
