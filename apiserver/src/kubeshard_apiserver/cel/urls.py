"""URLs: absolute URLs and absolute paths."""

from __future__ import annotations

from typing import Any
from urllib.parse import SplitResult, parse_qs, urlsplit

_MARK = "$url"


def url(text: str) -> dict[str, Any]:
    parts = urlsplit(text)
    if not (parts.scheme or text.startswith("/")) or " " in text:
        raise ValueError(
            f'URL parse error during conversion from string: parse "{text}": invalid URI for request'
        )
    _ = parts.port  # raises if it is not a port
    return {_MARK: text}


def scheme(value: dict[str, Any]) -> str:
    return _parts(value).scheme


def host(value: dict[str, Any]) -> str:
    return _parts(value).netloc.rpartition("@")[2]


def host_name(value: dict[str, Any]) -> str:
    given = host(value)
    return given[1 : given.index("]")] if given.startswith("[") else given.partition(":")[0]


def port(value: dict[str, Any]) -> str:
    number = _parts(value).port
    return "" if number is None else str(number)


def escaped_path(value: dict[str, Any]) -> str:
    return _parts(value).path


def query(value: dict[str, Any]) -> dict[str, list[str]]:
    return parse_qs(_parts(value).query, keep_blank_values=True)


def _parts(value: dict[str, Any]) -> SplitResult:
    if _MARK not in value:
        raise ValueError("no such overload")
    text: str = value[_MARK]
    return urlsplit(text)
