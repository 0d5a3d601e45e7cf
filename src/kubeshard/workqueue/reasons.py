"""Why a key is in the queue, since when, and how urgent it is.

Collapsing forgets what triggered a key; this remembers a few of the triggers, for log lines, metrics and people. No
decision may rest on them: a key is processed by its current state, whatever brought it there.

Bounded: of a key's next run the first MAX_REASONS distinct reasons are kept, each with the time at which it was
first given.
"""

from __future__ import annotations

from typing import NamedTuple

from kubeshard.core.objects import Key

MAX_REASONS = 8
"""Distinct reasons kept per key; later ones are dropped."""


class Reason(NamedTuple):
    """What made a key want processing. `str` of it is a phrase: `Deployment shop/web changed`."""

    what: str
    """What happened, of a handful of words: it labels a metric."""
    kind: str = ""
    """The kind of the object that it happened to; "" where it happened to none."""
    about: Key | None = None
    """That object, where it is not the one that the key names."""
    text: str = ""
    """The phrase, where whoever gave the reason brings his own."""

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
    """What is known of a key that wants processing, and then of its run."""

    __slots__ = ("given", "priority", "since", "started")

    def __init__(self, priority: int, since: float, reason: Reason | str) -> None:
        self.priority = priority
        """Rises until the key is handed out, and never sinks."""
        self.since = since
        """When it came to want processing."""
        self.started: float
        """When it was handed out, once it was."""
        self.given: tuple[tuple[Reason | str, float], ...] = ((reason, since),) if reason else ()

    def lacks(self, reason: Reason | str) -> bool:
        """Whether the reason is a further one, and there is room for it."""
        for known, _ in self.given:
            if known == reason:
                return False
        return len(self.given) < MAX_REASONS

    def note(self, reason: Reason | str, at: float) -> None:
        self.given = (*self.given, (reason, at))

    def take_over(self, other: Wanted) -> None:
        """The reasons of a key that has waited elsewhere, with their times."""
        for reason, at in other.given:
            if self.lacks(reason):
                self.note(reason, at)

    @property
    def causes(self) -> tuple[Cause, ...]:
        return tuple(Cause(as_reason(reason), since) for reason, since in self.given)


def as_reason(given: Reason | str) -> Reason:
    """A phrase alone is a reason of the class `source`: it may hold anything, and labels no metric."""
    return given if isinstance(given, Reason) else Reason("source", text=given)
