"""Conditions in statuses. Source: k8s.io/apimachinery `apis/meta/v1/validation`; KEP-1623."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from kubeshard_apiserver.resources.facts import fact_errors
from kubeshard_apiserver.status import FieldError, duplicate, invalid_value, required, too_long

Given = Mapping[str, Any]
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_LONGEST_REASON, _LONGEST_MESSAGE = 1024, 32 * 1024


def condition_errors(path: str, conditions: Sequence[Given]) -> list[FieldError]:
    errors: list[FieldError] = []
    kinds = [condition.get("type", "") for condition in conditions]
    for index, condition in enumerate(conditions):
        at, reason = f"{path}[{index}]", condition.get("reason", "")
        if kinds[index] in kinds[:index]:
            errors.append(duplicate(f"{at}.type", kinds[index]))
        errors += fact_errors("meta.v1.Condition", at, condition)
        if not reason:
            errors.append(required(f"{at}.reason"))
        elif len(reason) > _LONGEST_REASON:
            errors.append(too_long(f"{at}.reason", _LONGEST_REASON))
        elif not _REASON.fullmatch(reason):
            problem = (
                "a condition reason must start with alphabetic character, optionally followed by a string of "
                "alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. "
                "'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for "
                "validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')"
            )
            errors.append(invalid_value(f"{at}.reason", reason, problem))
        if len(condition.get("message", "")) > _LONGEST_MESSAGE:
            errors.append(too_long(f"{at}.message", _LONGEST_MESSAGE))
    return errors
