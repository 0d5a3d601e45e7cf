"""What the API server has answered to the last attempt to assign, move or drain each object that it refuses.

Objects that wait are known from scans (`waiting_objects`), which are minutes apart; of these here it is known from the
retries, every ten seconds, for how long the API server has refused them, and why. Bounded: `REMEMBERED` objects of a
resource, those that were refused first, as many as are retried on their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from kubeshard.core.conditions import for_people
from kubeshard.core.objects import Key, ObjectMeta

REMEMBERED = 1000
TOLD_AFTER = 40.0
"""Seconds for which an object has to be refused before people are told, within a minute: a brownout is over by then."""
KEPT = 60.0
LONGEST = 300
"""Characters of a reason."""


class Refusal(NamedTuple):
    uid: str
    drain: bool
    """Whether it cannot be drained; else it cannot be given to a shard."""
    since: float
    last: float
    """When it was refused last. What has become of it since is not known."""
    reason: str
    """The same for all objects that are refused for the same reason."""
    answered: float
    """When that was the answer. It is kept for `KEPT` seconds: answers may have a number, another one each time."""

    @property
    def lasts(self) -> bool:
        """Whether people should be told."""
        return self.last - self.since >= TOLD_AFTER


class Refusals:
    """Of the objects of one resource of a ring."""

    def __init__(self) -> None:
        self._known: dict[Key, Refusal] = {}

    def refused(self, meta: ObjectMeta, error: Exception, now: float, *, drain: bool = False) -> bool:
        """An attempt failed. Returns whether there is something new to tell people."""
        key = Key(meta.namespace, meta.name)
        before = self._known.get(key)
        if before is None and len(self._known) >= REMEMBERED:
            return False
        if before is None or (before.uid, before.drain) != (meta.uid, drain):
            self._known[key] = Refusal(meta.uid, drain, now, now, _reason(key, error), now)
            return False
        new = before._replace(last=now)
        if now - before.answered >= KEPT:
            new = new._replace(reason=_reason(key, error), answered=now)
        self._known[key] = new
        return new.lasts and (not before.lasts or new.reason != before.reason)

    def ended(self, key: Key) -> bool:
        """The object is where it should be, or is gone. Returns whether it was refused."""
        return self._known.pop(key, None) is not None

    def why(self, key: Key) -> str:
        """Why it was refused last; "" if it was not."""
        known = self._known.get(key)
        return known.reason if known is not None else ""

    def lasting(self) -> Iterator[tuple[Key, Refusal]]:
        """Those that people should be told."""
        return ((key, each) for key, each in self._known.items() if each.lasts)


_REQUEST = re.compile(r"^[A-Z]+ /\S+: ")


def _reason(key: Key, error: Exception) -> str:
    text = _REQUEST.sub("", str(error) or type(error).__name__).replace(f'"{key.name}"', "it")
    if key.namespace:  # a name alone may be a word, or a part of one
        text = re.sub(rf"(?<![\w./-]){re.escape(str(key))}(?![\w./-])", "it", text)
    return for_people(text, LONGEST)
