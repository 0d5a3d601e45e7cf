"""Conditions of a status (metav1.Condition)."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from kubeshard.core.objects import Struct


class Condition(Struct):
    """One observation. `status` is `True`, `False` or `Unknown`; `reason` is one CamelCase word for programs,
    `message` is text for people. All fields are always encoded: the usual schema requires even an empty
    message.
    """

    type: str = ""
    status: str = "Unknown"
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""
    observed_generation: int = 0


def get_condition(conditions: Iterable[Condition], type: str) -> Condition | None:
    return next((condition for condition in conditions if condition.type == type), None)


def set_condition(conditions: Iterable[Condition], condition: Condition, now: str) -> tuple[Condition, ...]:
    """The conditions with this one in place of the one of its type (or at the end).

    `last_transition_time` becomes `now` (metav1.Time text) only when the status differs from the previous one;
    so setting the same condition twice returns an equal tuple, and comparing tuples shows whether a write is
    needed.
    """
    kept = tuple(conditions)
    former = get_condition(kept, condition.type)
    if former is None:
        return (*kept, _at(condition, now))
    new = _at(condition, former.last_transition_time if former.status == condition.status else now)
    return tuple(new if other.type == condition.type else other for other in kept)


def _at(condition: Condition, time: str) -> Condition:
    return msgspec.structs.replace(condition, last_transition_time=time)


LONGEST_MESSAGE = 32_768

_TYPE = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])")
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")


def checked(condition: Condition) -> Condition:
    """The condition, with a message that can be sent. Raises ValueError for what metav1.Condition does not allow."""
    if len(condition.type) > 316 or not _TYPE.fullmatch(condition.type):
        raise ValueError(f"condition type {condition.type!r}: one CamelCase word, as in Ready")
    if condition.status not in ("True", "False", "Unknown"):
        raise ValueError(
            f"condition {condition.type}: status {condition.status!r} is not True, False or Unknown"
        )
    if len(condition.reason) > 1024 or not _REASON.fullmatch(condition.reason):
        raise ValueError(
            f"condition {condition.type}: reason {condition.reason!r} is not one CamelCase word for programs"
        )
    message = for_people(condition.message, LONGEST_MESSAGE)
    return condition if message is condition.message else msgspec.structs.replace(condition, message=message)


def for_people(text: str, limit: int) -> str:
    """Cut to so many characters, which is marked, and with `?` for what is not Unicode."""
    if len(text) > limit:
        text = text[: limit - 3] + "..."
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
