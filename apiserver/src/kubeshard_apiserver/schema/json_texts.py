"""JSON whose scalars are the texts that Go writes for them, or that a client has sent.

Maps and lists are those of Python, a null is None, and every other scalar is its text as bytes. Source: encoding/json.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec

from kubeshard_apiserver.status import escaped


def texts_of(value: Any) -> Any:
    """Returns the value with the texts that Go writes."""
    if isinstance(value, dict):
        return {name: texts_of(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [*map(texts_of, value)]
    if isinstance(value, float):
        return _float(value).encode()
    return None if value is None else escaped(msgspec.json.encode(value).decode()).encode()


def texts_in(sent: bytes) -> Any:
    """Reads JSON that is known to be valid."""
    text = sent.strip()
    if text.startswith(b"{"):
        members = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        return {name: texts_in(bytes(inner)) for name, inner in members.items()}
    if text.startswith(b"["):
        return [texts_in(bytes(inner)) for inner in msgspec.json.decode(text, type=list[msgspec.Raw])]
    return None if text == b"null" else text


def read_texts(value: Any) -> Any:
    """Returns the value that the texts stand for."""
    if isinstance(value, dict):
        return {name: read_texts(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [*map(read_texts, value)]
    return msgspec.json.decode(value) if isinstance(value, bytes) else value


def _float(value: float) -> str:
    mantissa, e, exponent = repr(value).partition("e")
    if value and not 1e-6 <= abs(value) < 1e21:
        return f"{mantissa.removesuffix('.0')}e{int(exponent or 0):+d}"
    if value.is_integer():
        return str(int(value))
    return format(Decimal(repr(value)), "f") if e else mantissa
