"""Bounds of numbers. Integers and floats are each compared in their own type.

Source: k8s.io/kube-openapi `pkg/validation/validate/values.go`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from kubeshard_apiserver.status import FieldError, invalid_value

Check = Callable[[Any, str, Any, list[FieldError]], int]
_RANGES = {"int32": 1 << 31, "int64": 1 << 63}
_LARGEST_FLOAT32 = 3.4028235677973366e38


def number_check(schema: Mapping[str, Any], types: tuple[str, ...], format_: str) -> Check:
    named = types[0] if len(types) == 1 and types[0] in ("integer", "number") else ""
    bounds = [
        _bound(schema["maximum"], "less than", schema.get("exclusiveMaximum"), upper=True)
        if schema.get("maximum") is not None
        else None,
        _bound(schema["minimum"], "greater than", schema.get("exclusiveMinimum"), upper=False)
        if schema.get("minimum") is not None
        else None,
    ]
    present = [bound for bound in bounds if bound is not None]
    factor = schema.get("multipleOf")
    unfit = [
        (text, value)
        for text, value in (
            ("MultipleOf", factor),
            ("Maximum boundary", schema.get("maximum")),
            ("Minimum boundary", schema.get("minimum")),
        )
        if value is not None and not _fits(value, named, format_)
    ]

    def check(value: float, path: str, old: Any, errors: list[FieldError]) -> int:
        if named and not _fits(value, named, format_):
            errors.append(_out_of_range("Checked", named, format_, path))
        for text, _ in unfit:
            errors.append(_out_of_range(text, named, format_, path))
        errors += [problem for bound in present if (problem := bound(value, path))]
        problem = None if factor is None else _multiple(value, factor, path)
        if problem is not None:
            errors.append(problem)
        return 1

    return check


def _fits(value: Any, named: str, format_: str) -> bool:
    if named == "integer":
        limit = _RANGES.get(format_, 1 << 63)
        if isinstance(value, float) and (not math.isfinite(value) or not value.is_integer()):
            return False
        return bool(-limit <= value < limit)
    return format_ != "float" or abs(value) <= _LARGEST_FLOAT32


def _out_of_range(text: str, named: str, format_: str, path: str) -> FieldError:
    kind = f"with format {format_}" if format_ else "(default format)"
    return invalid_value("", "", f"{text} value must be of type {named} {kind} in {path}")


def _bound(
    limit: float, relation: str, exclusive: Any, *, upper: bool
) -> Callable[[float, str], FieldError | None]:
    words = relation if exclusive else f"{relation} or equal to"

    def check(value: float, path: str) -> FieldError | None:
        mark = int(limit) if isinstance(value, int) else limit
        beyond = value > mark if upper else value < mark
        if beyond or (exclusive and value == mark):
            return invalid_value(path, value, f"{path} in body should be {words} {go_number(mark)}")
        return None

    return check


def _multiple(value: float, factor: float, path: str) -> FieldError | None:
    factor = int(factor) if isinstance(value, int) else factor
    if factor <= 0:
        message = f"factor MultipleOf declared for {path} must be positive: {go_number(factor)}"
        return invalid_value(path, factor, message)
    if isinstance(value, int):
        holds = value % factor == 0
    else:
        holds = is_whole(1 / factor * value if factor < 1 else value / factor)
    if holds:
        return None
    return invalid_value(path, value, f"{path} in body should be a multiple of {go_number(factor)}")


def is_whole(value: float) -> bool:
    """Whether the number is whole, within the server's tolerance and the range that JSON numbers represent exactly."""
    if not math.isfinite(value) or abs(value) > (1 << 53) - 1:
        return False
    whole = math.trunc(value)
    difference = abs(value - whole)
    return value == whole or (whole != 0 and difference < 1e-9 * (abs(value) + abs(whole)))


Members = dict[str, Any] | list[Any]


def whole_numbers(value: Members) -> None:
    """Replaces whole floats in place with the integers as which they are read again."""
    _replace(
        value, float, lambda number: int(number) if number.is_integer() and abs(number) < _WIDE else number
    )


def wide_numbers(value: Members) -> None:
    """Replaces integers that do not fit 64 bits in place with the floats as which the server decodes them."""
    _replace(value, int, lambda number: number if -_WIDE <= number < _WIDE else float(number))


_WIDE = 1 << 63


def _replace(value: Members, wanted: type, change: Callable[[Any], Any]) -> None:
    members: Any = value.items() if isinstance(value, dict) else enumerate(value)
    for key, member in members:
        kind = type(member)
        if kind is dict or kind is list:
            _replace(member, wanted, change)
        elif kind is wanted and (changed := change(member)) is not member:
            value[key] = changed


def go_number(value: float) -> str:
    """Formats a number as Go's `%v` does."""
    if isinstance(value, int):
        return str(value)
    if value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    text = repr(value)
    mantissa, e, exponent = text.partition("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent):+03d}" if e else text
