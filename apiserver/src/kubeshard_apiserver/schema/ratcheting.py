"""What an update leaves as it was."""

from __future__ import annotations

from typing import Any, Final

import msgspec


class _Nothing:
    def __repr__(self) -> str:
        return "NOTHING"


NOTHING: Final = _Nothing()
"""There was no value, or none that belongs to this place."""

_encode = msgspec.json.Encoder(order="sorted").encode


def same(one: Any, other: Any) -> bool:
    """As JSON documents: `true` is not `1`."""
    return bool(one == other) and _encode(one) == _encode(other)
