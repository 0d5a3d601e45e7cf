"""Why a key is in the queue, since when, and its priority.

Collapsing loses what triggered a key; this remembers a few of the triggers for log lines, metrics and debug pages. No
decision may depend on them: a key is processed by its current state, whatever triggered it.

Bounded: for a key's next run the first MAX_REASONS distinct reasons are kept, each with the time at which it was
first given.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kubeshard.core.objects import Key

MAX_REASONS = 8
"""Distinct reasons kept per key; later ones are dropped."""

MAX_CLASSES = 64
"""Pairs of reason and kind that are counted separately; the rest is counted as `other`."""


class Reason(NamedTuple):
    """Why a key was queued. `str` of it is a phrase: `Deployment shop/web changed`."""

    what: str
    """What happened, one of a few values, because it labels a metric."""
    kind: str = ""
    """The kind of the object that it happened to; "" for none."""
    about: Key | None = None
    """That object, if it is not the key's own."""
    text: str = ""
    """The phrase, if a custom one was given."""

    def __str__(self) -> str:
        if self.text:
            return self.text
        return " ".join(str(part) for part in (self.kind, self.about, self.what) if part)


class Cause(NamedTuple):
    """A reason of one run, and when it was first given (monotonic seconds)."""

    reason: Reason
    since: float

    def __str__(self) -> str:
        return str(self.reason)


class Wanted:
    """What is known about a queued key, and then about its run."""

    __slots__ = ("given", "priority", "since", "started")

    def __init__(self, priority: int, since: float, reason: Reason | str) -> None:
        self.priority = priority
        """Can rise until the key is handed out, and never falls."""
        self.since = since
        """When it was queued."""
        self.started: float
        """When it was handed out; not set before."""
        self.given: tuple[tuple[Reason | str, float], ...] = ((reason, since),) if reason else ()

    def lacks(self, reason: Reason | str) -> bool:
        """Whether the reason is a new one, and there is room for it."""
        for known, _ in self.given:
            if known == reason:
                return False
        return len(self.given) < MAX_REASONS

    def note(self, reason: Reason | str, at: float) -> None:
        self.given = (*self.given, (reason, at))

    def take_over(self, other: Wanted) -> None:
        """Adds the reasons of a key that has waited elsewhere, with their times."""
        for reason, at in other.given:
            if self.lacks(reason):
                self.note(reason, at)

    @property
    def causes(self) -> tuple[Cause, ...]:
        return tuple(Cause(as_reason(reason), since) for reason, since in self.given)


def as_reason(given: Reason | str) -> Reason:
    """A plain phrase becomes a reason of type `source`: it may contain anything, so it labels no metric."""
    return given if isinstance(given, Reason) else Reason("source", text=given)


class Causes:
    """Counts runs by reason: a run with several reasons counts for each of them."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}

    def count(self, run: Wanted) -> None:
        counts = self._counts
        for given, _ in run.given:
            reason = given if isinstance(given, Reason) else as_reason(given)
            cause = (reason.what, reason.kind)
            known = counts.get(cause)
            if known is None and len(counts) >= MAX_CLASSES:
                cause = ("other", "")
                known = counts.get(cause)
            counts[cause] = (known or 0) + 1

    @property
    def counts(self) -> Mapping[tuple[str, str], int]:
        """Runs by (what happened, to which kind). Never shrinks."""
        return self._counts
