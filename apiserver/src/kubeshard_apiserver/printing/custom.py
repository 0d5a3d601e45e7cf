"""Columns of custom resources: those of their definition, or else their age.

Source: the table convertor of apiextensions-apiserver.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from kubeshard.core.times import parse_time
from kubeshard_apiserver.objects import Object
from kubeshard_apiserver.printing.columns import AGE, NAME, Cell, Column, Printer, human_duration
from kubeshard_apiserver.printing.jsonpath import NotFound, parse
from kubeshard_apiserver.schema.numbers import go_value
from kubeshard_apiserver.status import escaped

_LARGE_EXPONENT = 6
_AGE: Mapping[str, Any] = {
    "name": "Age",
    "type": "date",
    "description": AGE.description,
    "jsonPath": ".metadata.creationTimestamp",
}


def custom_printer(columns: Sequence[Mapping[str, Any]] | None) -> Printer:
    """Return a printer for `additionalPrinterColumns`. As on the real server, a column with an unreadable path is left
    out together with all columns after it.
    """
    printed = [NAME]
    for column in columns or (_AGE,):
        path = column.get("jsonPath", "")
        try:
            find = parse(path)
        except ValueError:
            break
        printed.append(
            Column(
                column.get("name", ""),
                _cell(find, _SHOWN.get(column.get("type", ""), _nothing)),
                column.get("description") or f"Value of the custom resource at {path}",
                column.get("type", ""),
                column.get("format", ""),
                priority=column.get("priority", 0),
            )
        )
    return Printer(tuple(printed))


def _cell(find: Callable[[Any], list[Any]], shown: Shown) -> Cell:
    def cell(obj: Object, now: float) -> Any:
        try:
            found = find(obj)
        except NotFound:
            return None
        return shown(found[0], now) if found else None

    return cell


Shown = Callable[[Any, float], Any]


def _string(value: Any, _: float) -> str | None:
    value = go_value(value)
    match value:
        case str():
            return value
        case bool():
            return str(value).lower()
        case dict() | list():
            return escaped(msgspec.json.encode(value, order="sorted").decode())
        case float():
            return _go_float(value)
        case None:
            return "<no value>"
    return str(value)


def _go_float(value: float) -> str:
    """Format like Go's `%v`, given that a whole number was read back from storage as an integer."""
    if value.is_integer() and abs(value) < 1 << 63:
        return str(int(value))
    _, digits, _ = (exact := Decimal(repr(value)).normalize()).as_tuple()
    exponent = exact.adjusted()
    if -5 < exponent < _LARGE_EXPONENT:
        return f"{exact:f}"
    first, *rest = (str(digit) for digit in digits)
    mantissa = f"{first}.{''.join(rest)}" if rest else first
    return f"{'-' if value < 0 else ''}{mantissa}e{exponent:+03d}"


def _integer(value: Any, _: float) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _number(value: Any, _: float) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _boolean(value: Any, _: float) -> bool | None:
    return value if isinstance(value, bool) else None


def _date(value: Any, now: float) -> str | None:
    if not isinstance(value, str):
        return None
    if value in ("", "null"):
        return "<unknown>"
    then = parse_time(value)
    return "<invalid>" if then is None else human_duration(now - then)


def _nothing(value: Any, now: float) -> None:
    return None


_SHOWN: Mapping[str, Shown] = {
    "string": _string,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "date": _date,
}
