"""Waiting until the holders of other Leases have stopped: for a right that replaces another one.

Guaranteed: what holds for taking a Lease over. One without a holder is free; one with a holder is free when its record
has not changed, as observed here, for its own duration; one that is gone is free as long after it was last seen.

Not guaranteed: that nobody acquires one of them later. Whoever replaces an election holds its Lease from then on
(`kubeshard.leases.claim.GroupClaim`); the Leases of a ring cannot be held for its shards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress

from kubeshard.client.client import Client
from kubeshard.core.builtin import Lease
from kubeshard.core.errors import KubeshardError, NotFound
from kubeshard.core.selectors import Selector
from kubeshard.leases.claim import Claim
from kubeshard.leases.timing import Timing
from kubeshard.runtime.logs import error_line, get_logger
from kubeshard.runtime.notices import Notices

_log = get_logger("kubeshard.leases")

_PERIOD = Timing().retry_period


class FormerLeases:
    """What was seen of them, and since when. `ended`: whether a Lease proves that nobody acts, although it has a
    holder.
    """

    def __init__(self, ended: Callable[[Lease], bool] = lambda lease: False) -> None:
        self._ended = ended
        self._seen: dict[str, Lease] = {}
        self._records: dict[str, tuple[object, float]] = {}
        """By name: the record, None of one that was deleted, and when it was first seen so."""

    def waits_for(self, leases: Iterable[Lease], now: float) -> str:
        """`leases`: all that there are now. Returns whom to wait for; "" once nobody is left."""
        current = {lease.metadata.name: lease for lease in leases}
        self._seen |= current
        waiting = []
        for name, lease in self._seen.items():
            record = (lease.metadata.uid, lease.spec) if name in current else None
            if name not in self._records or self._records[name][0] != record:
                self._records[name] = record, now
            holder, since = lease.spec.holder_identity, self._records[name][1]
            claim = Claim(lease.metadata.namespace, name, "", Timing())
            may_act = holder and not self._ended(lease)
            if may_act and now < since + claim.takeover_delay(lease).seconds:
                waiting.append(
                    f"Lease {claim} " + ("was deleted" if record is None else f"is held by {holder!r}")
                )
        return "; ".join(waiting[:3]) + (f"; and {len(waiting) - 3} more" if len(waiting) > 3 else "")


async def until_free(
    client: Client,
    namespace: str,
    *,
    name: str = "",
    labels: Selector | None = None,
    ended: Callable[[Lease], bool] = lambda lease: False,
) -> None:
    """Returns when the Lease of that name, or all with those labels, are free, or have `ended`. Logs whom it waits for.

    RBAC: `get`, or with labels `list`, on `leases` in the namespace.
    """
    former, notices, clock = FormerLeases(ended), Notices(), client.world.clock
    while True:
        try:
            found = await _leases(client, namespace, name, labels)
            reason = former.waits_for(found, clock.boottime())
        except KubeshardError as error:
            reason = error_line(error)
        if not reason:
            return
        if notices.due("waiting", reason):
            _log.info("Waiting for those whose right to act this process replaces", reason=reason)
        await asyncio.sleep(_PERIOD)


async def _leases(client: Client, namespace: str, name: str, labels: Selector | None) -> list[Lease]:
    if labels is not None:
        return await client.list_all(Lease, namespace, label_selector=labels)
    with suppress(NotFound):
        return [await client.get(Lease, name, namespace)]
    return []
