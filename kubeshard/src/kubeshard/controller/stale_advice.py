"""What to do about a key whose reconciles keep having stale reads.

A single stale read is normal and logged at debug level. Many in a row mean that retrying does not help. Then the likely
cause is logged: the fifth time, and from then on less and less often.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from kubeshard.cache.errors import CacheBehind
from kubeshard.cache.informer import Informer
from kubeshard.client.client import Client
from kubeshard.controller.outcomes import leaves
from kubeshard.core.errors import AlreadyExists, KubeshardError
from kubeshard.core.kinds import Kind
from kubeshard.core.objects import Key, metadata_only
from kubeshard.runtime.logs import Logger

PERSISTENT = 5

PATIENCE = 5.0
"""Seconds for the one read that an explanation may need."""


def is_persistent(times: int) -> bool:
    """Whether this is the 5th, 10th, 20th, 40th ... time in a row."""
    rounds, rest = divmod(times, PERSISTENT)
    return rest == 0 and rounds.bit_count() == 1


async def warn_if_persistent(
    log: Logger,
    times: int,
    error: BaseException,
    key: Key,
    informers: Sequence[Informer[Any]],
    client: Client,
) -> None:
    """`times`: how many runs in a row, with this one."""
    if is_persistent(times):
        log.warning(
            "Reconcile keeps having stale reads",
            times=times,
            error=error,
            advice=await advice(next(leaves(error)), key, informers, client),
        )


async def advice(error: BaseException, key: Key, informers: Sequence[Informer[Any]], client: Client) -> str:
    """What the user can do about it. RBAC: `get` on the kind whose create failed; without it the advice is less
    precise.
    """
    match error:
        case AlreadyExists():
            return await _of_taken_name(error, key, informers, client)
        case CacheBehind():
            return "the cache does not follow: is its kind listed and watched without errors?"
        case _:
            return (
                "the object changes faster than it is reconciled, or is written with an old resourceVersion: "
                "patch only what must change"
            )


async def _of_taken_name(
    error: AlreadyExists, key: Key, informers: Sequence[Informer[Any]], client: Client
) -> str:
    name = str(error.details.get("name", ""))
    resource = (str(error.details.get("group", "")), str(error.details.get("kind", "")))
    informer = next((each for each in informers if each.form.kind.group_resource == resource), None)
    if informer is None:
        return (
            "the controller does not cache this kind: declare it in owns, or read it live before creating it"
        )
    kind, scope = informer.form.kind, informer.scope
    with suppress(KubeshardError, TimeoutError):
        async with asyncio.timeout(PATIENCE):
            live = await client.get(metadata_only(kind), name, key.namespace if kind.namespaced else "")
        if not scope.may_select(kind, live.metadata):
            return (
                f"{_named(kind, name)} exists, but the cache holds only what matches {scope.labels or scope.fields}: "
                "give it these labels, delete it, or choose another name"
            )
        return f"{_named(kind, name)} exists, but the cache does not show it yet"
    return (
        f"{_named(kind, name)} exists, but the cache does not show it: "
        "does it have the namespace and labels of its scope?"
    )


def _named(kind: Kind, name: str) -> str:
    return f"{kind.kind} {name}"
