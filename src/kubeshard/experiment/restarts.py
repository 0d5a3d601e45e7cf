"""When a container that ended is started again, as a kubelet decides; sans I/O.

At once the first time, then after 10 s, and after twice as long each time, at most five minutes; from the beginning
again once it has run for ten minutes.
"""

from __future__ import annotations

FIRST = 10.0
LONGEST = 300.0
FORGIVEN_AFTER = 600.0


class BackOff:
    """Of one container."""

    def __init__(self) -> None:
        self._next = 0.0

    def pause(self, ran: float) -> float:
        """Seconds to wait before the next start; it `ran` this long."""
        if ran >= FORGIVEN_AFTER:
            self._next = 0.0
        pause = self._next
        self._next = min(max(FIRST, 2 * pause), LONGEST)
        return pause
