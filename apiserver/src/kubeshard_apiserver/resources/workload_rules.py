"""Validation that workloads share: selectors and templates, rolling update parameters, statuses.

Source: k8s.io/kubernetes `pkg/apis/apps/validation`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kubeshard_apiserver.resources.pod_rules import template_errors
from kubeshard_apiserver.resources.value_rules import label_selector_errors, selects
from kubeshard_apiserver.status import (
    FieldError,
    forbidden_field,
    immutable,
    invalid_value,
    required,
    unsupported,
)

Given = Mapping[str, Any]
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_MISMATCH = "`selector` does not match template `labels`"


def selector_and_template_errors(
    spec: Given, kind: str, unsound: str, *, owner: str = ""
) -> list[FieldError]:
    """Validate the selector and template. `kind` and `unsound` are used in the messages for an empty selector and for
    an invalid one. `owner` is the kind named in the message that deadlines are not supported.
    """
    errors = selector_errors(spec.get("selector"), kind)
    selector, template = spec.get("selector"), spec.get("template") or {}
    if not _usable(selector):
        return [*errors, invalid_value("spec.selector", shown_selector(selector), unsound)]
    errors += match_errors("spec.template", selector, template)
    return (
        errors + template_errors("spec.template", template) + always_running("spec.template", template, owner)
    )


def selector_errors(selector: Given | None, kind: str) -> list[FieldError]:
    if selector is None:
        return [required("spec.selector")]
    return label_selector_errors("spec.selector", selector) + empty_selector_errors(selector, kind)


def empty_selector_errors(selector: Given, kind: str) -> list[FieldError]:
    if selector.get("matchLabels") or selector.get("matchExpressions"):
        return []
    return [invalid_value("spec.selector", {}, f"empty selector is invalid for {kind}")]


def match_errors(path: str, selector: Given | None, template: Given) -> list[FieldError]:
    given = (template.get("metadata") or {}).get("labels")
    if selects(selector, given):
        return []
    return [invalid_value(f"{path}.metadata.labels", shown_labels(given), _MISMATCH)]


def always_running(path: str, template: Given, owner: str) -> list[FieldError]:
    """Check the rules for pods of workloads that never complete."""
    spec, errors = template.get("spec") or {}, []
    if (policy := spec.get("restartPolicy")) != "Always":
        errors.append(unsupported(f"{path}.spec.restartPolicy", policy, ("Always",)))
    if spec.get("activeDeadlineSeconds") is not None:
        problem = f"activeDeadlineSeconds in {owner} is not Supported"
        errors.append(forbidden_field(f"{path}.spec.activeDeadlineSeconds", problem))
    return errors


def unchanged_selector(new: Given, old: Given) -> list[FieldError]:
    if new.get("selector") == old.get("selector"):
        return []
    return [immutable("spec.selector", shown_selector(new.get("selector")))]


def replicas_errors(status: Given, fields: Iterable[str], ready: str) -> list[FieldError]:
    """Validate the replica counts in a status: none exceeds the total, and available pods are ready. `ready` is what
    messages call `readyReplicas`.
    """
    errors = [
        invalid_value(f"status.{field}", status.get(field, 0), "cannot be greater than status.replicas")
        for field in fields
        if status.get(field, 0) > status.get("replicas", 0)
    ]
    available = status.get("availableReplicas", 0)
    if available > status.get("readyReplicas", 0):
        errors.append(invalid_value("status.availableReplicas", available, f"cannot be greater than {ready}"))
    return errors


def collision_errors(new: Given, old: Given) -> list[FieldError]:
    before, after = old["status"].get("collisionCount"), new["status"].get("collisionCount")
    if before is None or (after is not None and after >= before):
        return []
    return [invalid_value("status.collisionCount", after or 0, "cannot be decremented")]


def shown_labels(labels: Mapping[str, str] | None) -> dict[str, str] | None:
    """Format labels as messages show them."""
    return dict(sorted(labels.items())) if labels else None


def shown_selector(selector: Given | None) -> Any:
    if selector is None:
        return None
    shown: dict[str, Any] = {}
    if labels := selector.get("matchLabels"):
        shown["matchLabels"] = shown_labels(labels)
    if expressions := selector.get("matchExpressions"):
        shown["matchExpressions"] = [
            {name: given[name] for name in ("key", "operator", "values") if name in given}
            for given in expressions
        ]
    return shown


def shown_strategy(strategy: Given, fields: Iterable[str]) -> dict[str, Any]:
    """Return the update strategy as messages show it, with the names of Go's fields."""
    rolling = strategy.get("rollingUpdate")
    return {
        "Type": strategy.get("type", ""),
        "RollingUpdate": None if rolling is None else shown_rolling(rolling, fields),
    }


def shown_rolling(rolling: Given, fields: Iterable[str]) -> dict[str, Any]:
    return {f"{field[0].upper()}{field[1:]}": rolling.get(field) for field in fields}


def _usable(selector: Given | None) -> bool:
    expressions = (selector or {}).get("matchExpressions") or ()
    return all(one.get("operator") in _OPERATORS for one in expressions) and not label_selector_errors(
        "", selector
    )
