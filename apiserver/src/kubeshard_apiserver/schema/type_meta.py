"""What says which kind a body is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeshard_apiserver.schema.validation import type_name
from kubeshard_apiserver.status import bad_request


def check_type_meta(obj: Mapping[str, Any], kind: str) -> None:
    """Raises Invalid (400) for an apiVersion or kind that is not text."""
    for name in ("apiVersion", "kind"):
        value = obj.get(name)
        if value is not None and not isinstance(value, str):
            raise bad_request(
                f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse "
                f"error: json: cannot unmarshal {type_name(value)} into Go struct field .{name} of type string"
            )
