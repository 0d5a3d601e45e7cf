"""What the API server has answered to the last attempt to assign, move, drain or release each object that it refuses.

A sharder knows objects that wait from scans, which are minutes apart; of these here it knows from its retries, every
ten seconds, for how long the API server has refused them, and why. A shard knows it of the objects that it cannot
release, and says so on its Lease (`UNRELEASED_ANNOTATION`): only the sharder writes conditions. Bounded: `REMEMBERED`
objects of a resource, those that were refused first, as many as are retried on their own.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kubeshard.core.conditions import for_people
from kubeshard.core.objects import Key, ObjectMeta

REMEMBERED = 1000
TOLD_AFTER = 40.0
"""Seconds for which an object has to be refused before people are told, within a minute: a brownout is over by then."""
KEPT = 60.0
LONGEST = 300
"""Characters of a reason."""
MENTIONED = 3
"""Objects of which a text says the names; the others are counted."""


@dataclass(frozen=True, slots=True)
class Objects:
    """Some objects: how many, and the first names."""

    count: int
    names: tuple[str, ...]

    @classmethod
    def of(cls, names: Iterable[str]) -> Objects:
        all_of_them = sorted(names)
        return cls(len(all_of_them), tuple(all_of_them[:MENTIONED]))

    def __str__(self) -> str:
        more = self.count - len(self.names)
        return ", ".join(self.names) + (f" and {more} more" if more else "")


def grouped(found: Iterable[tuple[str, str]]) -> dict[str, Objects]:
    """Groups names of objects by their shards, or by why they wait."""
    names = defaultdict[str, list[str]](list)
    for group, name in found:
        names[group].append(name)
    return {group: Objects.of(each) for group, each in names.items()}


def by_answer(found: Mapping[str, Objects]) -> str:
    """The most frequent answers of the API server, each with objects."""
    most = sorted(found.items(), key=lambda each: (-each[1].count, each[0]))
    parts = [f"{why} ({objects})" if why else str(objects) for why, objects in most[:MENTIONED]]
    return "; ".join(parts) + (
        f"; and {len(most) - MENTIONED} other reasons" if len(most) > MENTIONED else ""
    )


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


class Refusals:
    """Of the objects of one resource of a ring. `told_after`: how long people are not told, at least."""

    def __init__(self, told_after: float = TOLD_AFTER) -> None:
        self._told_after = told_after
        self._known: dict[Key, Refusal] = {}

    def refused(self, meta: ObjectMeta, error: BaseException, now: float, *, drain: bool = False) -> bool:
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
        return self._lasts(new) and (not self._lasts(before) or new.reason != before.reason)

    def ended(self, key: Key) -> bool:
        """The object is where it should be, or is gone. Returns whether it was refused."""
        return self._known.pop(key, None) is not None

    def why(self, key: Key) -> str:
        """Why it was refused last; "" if it was not."""
        known = self._known.get(key)
        return known.reason if known is not None else ""

    def lasting(self) -> Iterator[tuple[Key, Refusal]]:
        """Those that people should be told."""
        return ((key, each) for key, each in self._known.items() if self._lasts(each))

    def _lasts(self, refusal: Refusal) -> bool:
        """Whether people should be told."""
        return refusal.last - refusal.since >= self._told_after


_REQUEST = re.compile(r"^[A-Z]+ /\S+: ")


def _reason(key: Key, error: BaseException) -> str:
    text = _REQUEST.sub("", str(error) or type(error).__name__).replace(f'"{key.name}"', "it")
    if key.namespace:  # a name alone may be a word, or a part of one
        text = re.sub(rf"(?<![\w./-]){re.escape(str(key))}(?![\w./-])", "it", text)
    return for_people(text, LONGEST)
