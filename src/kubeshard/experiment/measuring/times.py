"""Times as the Go project's tool takes them: RFC 3339, a duration relative to now, or Unix seconds."""

from __future__ import annotations

import re
from datetime import datetime

from kubeshard.manager.config_file import Duration

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_SECONDS = re.compile(r"[-+]?\d+")


def parse_time(text: str, now: float) -> float:
    """The Unix time. Raises ValueError."""
    try:
        if _RFC3339.fullmatch(text):
            return datetime.fromisoformat(text).timestamp()
        if _SECONDS.fullmatch(text) and text != "0":
            return float(text)
        return now + Duration.parse(text)
    except ValueError:
        raise ValueError(
            f'{text!r} is not a time: write it like "2006-01-02T15:04:05Z", "-5m" or "1665825136"'
        ) from None
