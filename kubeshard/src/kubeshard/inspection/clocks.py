"""Whether the clocks of this machine and of the holders of Leases agree with that of the API server.

A Lease's renewTime is its holder's clock; the time of the field manager that wrote it is the API server's, of the same
moment and in whole seconds. So the clock of a holder is known from one read.

RBAC: list on leases, and get on the sharder's.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from kubeshard.client.client import Client
from kubeshard.client.requests import collection_path, query
from kubeshard.core.builtin import Lease
from kubeshard.core.errors import NotFound
from kubeshard.core.namespaces import ALL
from kubeshard.core.objects import Key
from kubeshard.core.times import parse_time
from kubeshard.inspection.errors import needing
from kubeshard.sharding.names import RING_LABEL

TOLERATED = 10.0
"""Seconds. A request that takes long makes the holder's clock look slow by as much."""
PAGE = 500


class Clock(NamedTuple):
    namespace: str
    name: str
    ahead: float
    """Seconds; negative if it is behind."""


async def wrong_clocks(client: Client, elections: Iterable[Key]) -> AsyncIterator[Clock]:
    """The shards, and the leading sharders, whose clocks are wrong. Raises MissingRight, ApiError."""
    token = ""
    while True:
        target = collection_path(Lease.KIND, ALL) + query(
            {"labelSelector": RING_LABEL, "limit": PAGE, "continue": token}
        )
        with needing("list", Lease.KIND.group_resource):
            page = json.loads((await client.raw("GET", target)).body)
        for item in page.get("items") or ():
            if wrong := _wrong(item):
                yield wrong
        token = (page.get("metadata") or {}).get("continue") or ""
        if not token:
            break
    for election in elections:
        with needing("get", Lease.KIND.group_resource), suppress(NotFound):
            leader = await client.raw("GET", Lease.KIND.path(election.namespace, election.name))
            if wrong := _wrong(json.loads(leader.body)):
                yield wrong


def _wrong(lease: Mapping[str, Any]) -> Clock | None:
    ahead, meta = skew(lease), lease["metadata"]
    return None if ahead is None or abs(ahead) <= TOLERATED else Clock(meta["namespace"], meta["name"], ahead)


def skew(lease: Mapping[str, Any]) -> float | None:
    """How many seconds the clock of a Lease's holder was ahead when it last renewed it; None if nobody knows."""
    renewed = parse_time((lease.get("spec") or {}).get("renewTime"))
    written = [
        parse_time(entry.get("time"))
        for entry in lease["metadata"].get("managedFields") or ()
        if "f:renewTime" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})
    ]
    times = [time for time in written if time is not None]
    if renewed is None or not times:
        return None
    seconds = renewed - max(times)
    return max(0.0, seconds - 1.0) if seconds > 0 else seconds
