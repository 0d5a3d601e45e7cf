"""The status that a controller sets on an object, and the fields to send for it.

Pure: `kubeshard.controller.status` reads, sends and caches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar, get_args

import msgspec

from kubeshard.core.conditions import Condition, checked, get_condition, set_condition
from kubeshard.core.documents import type_hints_of
from kubeshard.core.objects import KubeObject
from kubeshard.core.overlay import overlaid

S = TypeVar("S", bound=msgspec.Struct)


def completed(status: S, live: S | None, *, generation: int, now: str, carried: Condition | None = None) -> S:
    """With `observed_generation`, transition times and `carried` conditions. Raises ValueError for bad conditions."""
    changes: dict[str, Any] = {}
    if getattr(status, "observed_generation", True) in (0, None):
        changes["observed_generation"] = generation
    stated = conditions_of(status)
    if carried is not None and get_condition(stated, carried.type) is None:
        stated = (*stated, carried)
    if stated:
        conditions: tuple[Condition, ...] = ()
        for condition in stated:
            if get_condition(conditions, condition.type) is not None:
                raise ValueError(f"two conditions of type {condition.type} are stated")
            if not condition.observed_generation:
                condition = msgspec.structs.replace(condition, observed_generation=generation)
            former = get_condition(conditions_of(live), condition.type)
            if former is None or former != msgspec.structs.replace(
                condition, last_transition_time=former.last_transition_time
            ):
                condition = checked(condition)
            new = set_condition((former,) if former else (), condition, now)
            conditions += new
        changes["conditions"] = conditions
    return msgspec.structs.replace(status, **changes) if changes else status


def stating(status: S, live: S | None) -> S:
    """The live status with the desired one applied; unchanged if it matches already. Conditions of other types stay."""
    if live is None:
        return status
    target = overlaid(live, status, without=("conditions",) if _only_conditions(status, live) else ())
    have = conditions_of(live)
    conditions = have
    for condition in conditions_of(status):
        former = get_condition(conditions, condition.type)
        if former is None:
            conditions = (*conditions, condition)
        elif former != condition:
            conditions = tuple(condition if each is former else each for each in conditions)
    return target if conditions is have else msgspec.structs.replace(target, conditions=conditions)


def leaves_out(said: Any, have: Any) -> bool:
    """Whether there are more fields than the desired ones: from others, or set before by the same manager."""
    if isinstance(have, str):
        return False  # most are text, of which an abstract class need not be asked
    if isinstance(have, Mapping):
        if not isinstance(said, Mapping):
            return bool(have)
        return any(name not in said or leaves_out(said[name], value) for name, value in have.items())
    if isinstance(have, Sequence) and isinstance(said, Sequence):
        return not {_type(item) for item in have} <= {_type(item) for item in said} | {None}
    return False


def conditions_of(status: Any) -> tuple[Condition, ...]:
    """The conditions of a status, if they are metav1.Conditions."""
    found = getattr(status, "conditions", None)
    if not found or not all(isinstance(item, Condition) for item in found):
        return ()
    return tuple(found)


def _only_conditions(*statuses: Any) -> bool:
    return all(
        isinstance(item, Condition)
        for status in statuses
        for item in getattr(status, "conditions", None) or ()
    )


def has_conditions(type_: type[KubeObject]) -> bool:
    """Whether the class declares `status.conditions` as metav1.Conditions."""
    return any(
        any(_is_condition(part) for part in _parts(type_hints_of(status).get("conditions")))
        for status in _parts(type_hints_of(type_).get("status"))
        if isinstance(status, type) and issubclass(status, msgspec.Struct)
    )


def _is_condition(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Condition)


def _parts(hint: Any) -> Iterable[Any]:
    yield hint
    for part in get_args(hint):
        yield from _parts(part)


def _type(item: Any) -> Any:
    """A condition's type; the same value for all other list items."""
    found = item.get("type") if isinstance(item, Mapping) else None
    return found if isinstance(found, str) else None
