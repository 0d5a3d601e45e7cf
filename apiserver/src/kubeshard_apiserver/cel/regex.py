"""Finding by regular expression. The patterns are Python's here, RE2's on the real server: what is in both
means the same.
"""

from __future__ import annotations

import re


def find(text: str, pattern: str) -> str:
    found = _compiled(pattern).search(text)
    return found.group(0) if found else ""


def find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    found = [match.group(0) for match in _compiled(pattern).finditer(text)]
    return found if limit < 0 else found[:limit]


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"Illegal regex: {error}") from None
