"""Status conditions, updated the way the workload controllers do it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Condition = dict[str, Any]


def condition_of(conditions: Sequence[Condition], type_: str) -> Condition | None:
    return next((condition for condition in conditions if condition["type"] == type_), None)


def with_condition(
    conditions: Sequence[Condition],
    type_: str,
    status: str,
    reason: str,
    message: str,
    now: str,
    *,
    times: Sequence[str] = (),
) -> list[Condition]:
    """Return the conditions with this one replacing the one of the same type, or appended.

    `lastTransitionTime` changes only with the status. `times` names further timestamps, which change with any field.
    """
    former = condition_of(conditions, type_)
    said = {"type": type_, "status": status}
    if reason:
        said["reason"] = reason
    if message:
        said["message"] = message
    new = {**said, "lastTransitionTime": now}
    if former is not None and former["status"] == status:
        new["lastTransitionTime"] = former["lastTransitionTime"]
    same = former is not None and said == {
        name: value for name, value in former.items() if name not in ("lastTransitionTime", *times)
    }
    new |= {field: former[field] if same and former and field in former else now for field in times}
    if former is None:
        return [*conditions, new]
    return [new if condition is former else condition for condition in conditions]


def without_condition(conditions: Sequence[Condition], type_: str) -> list[Condition]:
    return [condition for condition in conditions if condition["type"] != type_]
