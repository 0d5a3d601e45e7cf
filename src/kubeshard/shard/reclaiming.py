"""Coming back under a name that had been given up: making sure of the objects that still carry it.

While a shard's Lease was not its own, a sharder may have read an object with the shard's label, proven that
nobody holds the Lease, and sent a patch that gives the object to somebody else. That patch is guarded by the
object's resourceVersion, but it may be on its way for any length of time: the sharder's process may have been
stopped between its last look and the sending. A shard that takes its Lease back and works on the object, without
changing it, would not make the patch fail.

So it changes it. After the Lease is ours again - what is proven from then on says that we live - every object that
carries our name gets a new resourceVersion: the drain label is put on, and taken off. What was sent on the strength
of an older look is refused by the API server, however late it arrives. Only then does any work begin.

Guaranteed, when `reclaim` returns True: no patch that a sharder (kubeshard's or the Go one's) based on a look at an
object before the Lease was taken will take that object from us. Objects with a drain label are left as they are:
they are given back without being worked on. Not guaranteed: the same of a sharder that looks at the object
afterwards and still believes us dead, as the Go one does during a pass that began before.

Where an object cannot be written, time stands in for the proof: False after `PATIENCE`, which is longer than a
patch of kubeshard's sharder takes unless that process is stopped.

RBAC: list and patch on the ring's kinds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from kubeshard.client.client import Client
from kubeshard.core.errors import ApiError, Conflict, NotFound
from kubeshard.core.kinds import Kind
from kubeshard.core.namespaces import All
from kubeshard.core.objects import Form, PartialObject, metadata_only
from kubeshard.core.patches import MergePatch
from kubeshard.core.selectors import Selector
from kubeshard.runtime.logs import get_logger
from kubeshard.shard.identity import ShardIdentity

PATIENCE = 30.0
"""Seconds. A proof of death stands for 5, the request takes 5 at most, the kernel delivers for 4 more, and the server
works on it for another 5.
"""

AT_A_TIME = 20
RETRY = 1.0

MARK = "returning"
"""Value of the drain label for the moment that it is there."""

_log = get_logger("kubeshard.shard")


async def reclaim(client: Client, shard: ShardIdentity, places: Iterable[tuple[Kind, str | All]]) -> bool:
    """Gives every object of the shard a new version, once. To be called with the fenced client of a shard that holds
    its Lease and does not work yet. `places`: the ring's kinds, as far as this process works on them, each with the
    namespace in which it does, or `ALL`.

    Whether every object has a new version now. Raises no ApiErrors.
    """
    room = asyncio.Semaphore(AT_A_TIME)
    try:
        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as tasks:
            for kind, namespace in places:
                tasks.create_task(
                    _all_of(client, shard, metadata_only(kind), namespace, room), name=f"reclaiming {kind}"
                )
    except TimeoutError:
        _log.warning(
            "Not all objects of this shard could be written; waited until no former move can land any more",
            shard=str(shard),
            seconds=PATIENCE,
        )
        return False
    return True


async def _all_of(
    client: Client,
    shard: ShardIdentity,
    form: Form[PartialObject],
    namespace: str | All,
    room: asyncio.Semaphore,
) -> None:
    count, done, told = 0, False, False
    while not done:
        try:
            async with asyncio.TaskGroup() as tasks:
                selector = Selector.equals(shard.label, shard.name)
                mine = client.list(form, namespace, label_selector=selector, on_restart=lambda: None)
                async for obj in mine:
                    if not obj.metadata.has_label(shard.drain):
                        count += 1
                        await room.acquire()
                        renewing = tasks.create_task(
                            _renewed(client, shard, form, obj), name="reclaiming an object"
                        )
                        renewing.add_done_callback(lambda _: room.release())
            done = True
        except* NotFound:
            done = True  # the server does not serve the kind: there is nothing to work on
        except* ApiError as group:
            if not told:
                error = group.exceptions[0]
                _log.warning("Cannot read the objects of this shard", kind=str(form.kind), error=error)
            told = True
            await asyncio.sleep(RETRY)
    if count:
        _log.info(
            "Secured the objects that still carry this shard's name", kind=str(form.kind), objects=count
        )


async def _renewed(
    client: Client, shard: ShardIdentity, form: Form[PartialObject], obj: PartialObject
) -> None:
    """An object that somebody else changed since it was read has a new version already."""
    meta, told = obj.metadata, False
    for value in (MARK, None):
        patch = MergePatch({"metadata": {"labels": {shard.drain: value}}})
        while True:
            try:
                obj = await client.patch(form, meta.name, meta.namespace, patch, base=obj)
                break
            except (Conflict, NotFound):
                return
            except ApiError as error:
                if not told:
                    _log.warning("Cannot write an object of this shard", object=str(obj.key), error=error)
                told = True
                await asyncio.sleep(RETRY)
