"""Notices an object that triggers itself: a run writes something whose change triggers the next run, and so on without
end. Such a loop keeps a worker and the API server busy for nothing, and usually nobody sees it.

| the run | the loop |
|---|---|
| is caused by a change, soon afterwards, of an object that the key's previous run wrote, and writes again | continues |
| is not caused by such a change, or writes nothing | has ended |

After `TOLERATED` runs in a row the key is hot: its triggers wait, for a second at first, doubling to half a minute,
until a run ends the loop. An update in several steps does not get that far. Runs that the reconciler asked for
(`requeue_after`) and retries are no such loops: they have a pace already.

Guaranteed: no trigger is lost, only late. A key without a loop costs a lookup. Not guaranteed: that a loop over several
objects of the primary kind, which trigger each other, is noticed.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import NamedTuple

from kubeshard.core.objects import Key
from kubeshard.runtime.clock import Clock
from kubeshard.workqueue.reasons import Cause

TOLERATED = 20
"""Runs in a row."""

PROMPTLY = 5.0
"""Seconds after a run within which the changes that it caused trigger the next one."""

SHORTEST, LONGEST = 1.0, 30.0
"""Seconds that triggers of a hot key wait."""

Written = Set[tuple[str, str, str]]
"""Kind, namespace and name of what a run wrote."""


class _Chain(NamedTuple):
    runs: int
    written: Written
    ended: float
    """When its last run ended (monotonic seconds)."""


class HotLoops:
    """The loops of one controller's keys."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._chains: dict[Key, _Chain] = {}

    def ran(self, key: Key, causes: Iterable[Cause], written: Written) -> str:
        """Called after each run, with its causes and what it wrote. If the key is hot, returns what triggers it, as a
        phrase; otherwise an empty text.
        """
        chain = self._chains.get(key)
        if not written:
            if chain is not None:
                del self._chains[key]
            return ""
        because = _of_own_making(key, causes, chain, self.pause(key)) if chain is not None else ""
        runs = chain.runs + 1 if chain is not None and because else 1
        self._chains[key] = _Chain(runs, frozenset(written), self._clock.monotonic())
        return because if runs > TOLERATED else ""

    def pause(self, key: Key) -> float:
        """The seconds that a trigger of the key waits."""
        chain = self._chains.get(key)
        if chain is None or chain.runs <= TOLERATED:
            return 0.0
        return min(SHORTEST * 2.0 ** min(chain.runs - TOLERATED - 1, 16), LONGEST)

    def forget(self, key: Key) -> None:
        """Called when the object is gone."""
        self._chains.pop(key, None)


def _of_own_making(key: Key, causes: Iterable[Cause], chain: _Chain, pause: float) -> str:
    latest = chain.ended + PROMPTLY + pause
    for reason, since in causes:
        about = reason.about or key
        if (reason.kind, about.namespace, about.name) in chain.written and since <= latest:
            return str(reason)
    return ""
