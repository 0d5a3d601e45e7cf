"""Waiting for caches to fill, but not for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from kubeshard.cache import Informer
from kubeshard.core import KubeshardError

SYNC_TIMEOUT = 120.0
"""Seconds, for all informers together."""


class NotSynced(KubeshardError):
    """Caches did not fill in time: a kind is not installed, RBAC is missing, the server does not answer."""


async def all_synced(informers: Iterable[Informer[Any]], who: str) -> None:
    """Returns when all have synced. Raises NotSynced, naming the first that has not, and why."""
    try:
        async with asyncio.timeout(SYNC_TIMEOUT):
            for informer in informers:
                await informer.synced()
    except TimeoutError:
        why = informer.last_error or "no answer from the server"
        raise NotSynced(f"{who}: {informer} did not sync within {SYNC_TIMEOUT:g} s: {why}") from None
