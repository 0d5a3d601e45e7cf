"""Numbers as Go reads and writes them, and their bounds. Integers and floats are each compared in their own type.

Source: encoding/json; sigs.k8s.io/json; k8s.io/kube-openapi `pkg/validation/validate/values.go`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
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
        if isinstance(value, float):
            value = in_digits(value)
        return isinstance(value, int) and -limit <= value < limit
    return format_ != "float" or abs(value) <= _LARGEST_FLOAT32


def _out_of_range(text: str, named: str, format_: str, path: str) -> FieldError:
    kind = f"with format {format_}" if format_ else "(default format)"
    return invalid_value("", "", f"{text} value must be of type {named} {kind} in {path}")


def _bound(
    limit: float, relation: str, exclusive: Any, *, upper: bool
) -> Callable[[float, str], FieldError | None]:
    words = relation if exclusive else f"{relation} or equal to"

    def check(value: float, path: str) -> FieldError | None:
        mark = _int64(limit) if isinstance(value, int) else limit
        beyond = value > mark if upper else value < mark
        if beyond or (exclusive and value == mark):
            return invalid_value(path, value, f"{path} in body should be {words} {go_number(mark)}")
        return None

    return check


def _int64(number: float) -> int:
    """Converts a number as the server does, for which one that does not fit is the smallest integer."""
    whole = int(number)
    return whole if -_WIDE <= whole < _WIDE else -_WIDE


def _multiple(value: float, factor: float, path: str) -> FieldError | None:
    factor = _int64(factor) if isinstance(value, int) else factor
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


def go_value(value: Any) -> Any:
    """Returns the value as Go has it: it reads a number as an integer only if that fits 64 bits."""
    return float(value) if type(value) is int and not -_WIDE <= value < _WIDE else value


def go_values(value: Any) -> Any:
    """A deep copy in which all numbers are as Go has them."""
    if isinstance(value, dict):
        return {name: go_values(member) for name, member in value.items()}
    return [*map(go_values, value)] if isinstance(value, list) else go_value(value)


def in_digits(value: float) -> float:
    """Returns a float as it is read from the text that Go writes, in which a whole number below 1e21 has only digits.
    What Go reads as a float all the same is an integer here, so that it is written in the same digits.
    """
    return int(Decimal(repr(value))) if value.is_integer() and abs(value) < _LONG else value


def whole_numbers(value: Members) -> None:
    """Replaces numbers in place by those that are read when the value has been written and read again."""
    _replace(value, 0)


def wide_numbers(value: Members) -> None:
    """Replaces numbers in place of which Go would read others: those that do not fit 64 bits are floats to it."""
    _replace(value, _WIDE)


_WIDE = 1 << 63
_LONG = 1e21


def _replace(value: Members, smallest: int) -> None:
    """`smallest` is the absolute value from which floats are replaced."""
    members: Any = value.items() if isinstance(value, dict) else enumerate(value)
    for key, member in members:
        kind = type(member)
        if kind is dict or kind is list:
            _replace(member, smallest)
        elif kind is int:
            if not -_WIDE <= member < _WIDE:
                value[key] = in_digits(float(member))
        elif kind is float and abs(member) >= smallest:
            value[key] = in_digits(member)


def go_number(value: float) -> str:
    """Formats a number as Go's `%v` does."""
    if isinstance(value, int):
        return str(value)
    if value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    text = repr(value)
    mantissa, e, exponent = text.partition("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent):+03d}" if e else text
