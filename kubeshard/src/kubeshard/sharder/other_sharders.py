"""Whether the sharder of another installation lives: its leader renews the Lease of its election.

A Lease counts from its first observation here, and by the changes that this process sees; the other one's clock does
not matter. Who may not read it is told that the sharder lives: to step back is the safe side.

RBAC: get on leases.
"""

from __future__ import annotations

from typing import NamedTuple

from kubeshard.client.client import Client
from kubeshard.core.builtin import Lease, LeaseSpec
from kubeshard.core.errors import ApiError, NotFound
from kubeshard.core.objects import Key
from kubeshard.runtime.clock import Clock
from kubeshard.sharding.shard_states import DEFAULT_DURATION

ASKED_AGAIN = 15.0
"""Seconds for which an answer counts."""
PATIENCE = 4
"""Lease durations without renewal after which it does not live any more."""
LONGEST = 300.0
MOST = 100


class _Seen(NamedTuple):
    asked: float
    spec: LeaseSpec
    changed: float
    lives: bool


class OtherSharders:
    """What this process has seen of them, by their elections."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[Key, _Seen] = {}

    async def lives(self, client: Client, election: Key) -> bool:
        """Raises nothing."""
        now, known = self._clock.monotonic(), self._seen.get(election)
        if known is not None and now - known.asked < ASKED_AGAIN:
            return known.lives
        try:
            spec = (await client.get(Lease, election.name, election.namespace)).spec
        except NotFound:
            spec = LeaseSpec()
        except ApiError:
            return True
        changed = now if known is None or known.spec != spec else known.changed
        patience = min(PATIENCE * (spec.lease_duration_seconds or DEFAULT_DURATION), LONGEST)
        lives = bool(spec.holder_identity) and now - changed < patience
        if len(self._seen) >= MOST:
            self._seen.clear()
        self._seen[election] = _Seen(now, spec, changed, lives)
        return lives
