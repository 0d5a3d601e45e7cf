"""Which repetitions of a notice are passed on: once, on change, or every so many seconds.

| the topic | its state | passed on |
|---|---|---|
| not known | any | at once, or `after` seconds later if it comes again then |
| known | another than last time | the same |
| known | as last time, passed on less than `every` seconds ago | no: counted |
| known | as last time, passed on `every` seconds ago or longer | yes, with the count |
| resolved | | not known any more |

Guaranteed: at most `most` topics are remembered; the least recently mentioned one is forgotten first, and passed on
when it comes again. No I/O: whoever asks writes the log line or the event. Not thread-safe.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable
from dataclasses import dataclass
from typing import Any

from kubeshard.runtime.clock import Clock

MOST = 1024


@dataclass(slots=True)
class _Topic:
    state: object
    due: float
    """When it is passed on the next time (monotonic seconds)."""
    held_back: int = 0
    """How often it was not, since it last was."""
    passed_on: bool = False


class Notices:
    """`every` seconds a topic is passed on; without it (and the clock) once, and when its state changes."""

    def __init__(self, clock: Clock | None = None, *, every: float = math.inf, most: int = MOST) -> None:
        self._clock = clock
        self._every = every
        self._most = most
        self._topics: dict[Hashable, _Topic] = {}
        """The least recently mentioned first."""

    def __len__(self) -> int:
        return len(self._topics)

    def due(self, topic: Hashable, state: object = None, *, after: float = 0.0) -> bool:
        """Whether to pass on what happened now."""
        return self.held_back(topic, state, after=after) is not None

    def held_back(self, topic: Hashable, state: object = None, *, after: float = 0.0) -> int | None:
        """Like `due`, with how often the topic was held back since it was last passed on; None to hold it back."""
        now = self._clock.monotonic() if self._clock is not None else 0.0
        known = self._topics.pop(topic, None)
        if known is None or known.state != state:
            held_back = known.held_back if known is not None else 0
            known = _Topic(state, now + after, held_back)
        self._topics[topic] = known
        if len(self._topics) > self._most:
            del self._topics[next(iter(self._topics))]
        if now < known.due:
            known.held_back += 1
            return None
        held_back, known.held_back = known.held_back, 0
        known.due, known.passed_on = now + self._every, True
        return held_back

    def resolved(self, topic: Hashable) -> bool:
        """Forgets the topic. Returns whether it was passed on, so that its end is news, too."""
        known = self._topics.pop(topic, None)
        return known is not None and known.passed_on

    def keep(self, topics: Collection[Hashable]) -> list[Any]:
        """All other topics are resolved. Returns those of them that were passed on."""
        return [topic for topic in tuple(self._topics) if topic not in topics and self.resolved(topic)]

    def clear(self) -> None:
        self._topics.clear()
