"""Regular expressions of schemas: RE2, as on the real server.

With the extra `apiserver` they are evaluated by RE2 itself, in time linear in the length of the text. Without it,
Python's `re` is used: it accepts look-around and back-references, which the server rejects, and its `$` also matches
before a trailing newline.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

Search = Callable[[str], Any]

_GO_WORDS = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "unexpected )": "unexpected )",
    "bad repetition operator": "invalid nested repetition operator",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "trailing \\": "trailing backslash at end of expression",
}


@lru_cache(maxsize=4096)
def searching(pattern: str) -> Search:
    """Returns a function that searches for the pattern anywhere in a text. Raises ValueError with the server's
    message.
    """
    try:
        import re2  # type: ignore[import-not-found,import-untyped,unused-ignore] # untyped, or not installed
    except ImportError:
        try:
            return re.compile(pattern).search
        except re.error as error:
            raise ValueError(f"error parsing regexp: {error}: `{pattern}`") from None
    options = re2.Options()
    options.log_errors = False
    try:
        search: Search = re2.compile(pattern, options).search
    except re2.error as error:
        raise ValueError(_in_go(error, pattern)) from None
    return search


def _in_go(error: Exception, pattern: str) -> str:
    given = error.args[0] if error.args else ""
    text = given.decode(errors="replace") if isinstance(given, bytes) else str(given)
    kind, _, where = text.partition(": ")
    words = _GO_WORDS.get(kind, kind)
    if words.startswith("trailing"):
        return f"error parsing regexp: {words}: ``"
    return f"error parsing regexp: {words}: `{where or pattern}`"
