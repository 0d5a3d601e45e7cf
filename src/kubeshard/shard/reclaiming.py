"""Reclaims the objects of a shard that returns under a name that had been given up.

While a shard did not hold its Lease, a sharder may have read an object with the shard's label, verified that nobody
holds the Lease, and sent a patch that assigns the object to another shard. That patch is guarded by the object's
resourceVersion, but it may be delayed for any length of time: the sharder's process may have been paused between
its last check and the request. If the returned shard works on the object without changing it, the patch succeeds.

So the shard changes the object. After the Lease is ours again, which every later check shows, every object with our
name gets a new resourceVersion: the drain label is added, and removed. The API server then refuses any patch that
is based on an older read, however late it arrives. Only then does work on objects of that kind start.

Guaranteed, when `reclaim` returns True: no patch of a sharder (kubeshard's or the Go one) that is based on a read
before the Lease was acquired will take an object from us. Objects with a drain label are left as they are: they are
released without being reconciled. Not guaranteed: the same for a sharder that reads the object afterwards and still
considers us dead, as the Go one does during a pass that started before; nor for kinds that the ring lists only since
this process has read it.

If the objects of a kind cannot be listed, or one cannot be written, waiting replaces the proof: returns False after
`PATIENCE`, which is longer than a patch of kubeshard's sharder takes unless that process is paused. Other kinds do not
wait for it (`Reclaiming`). An unexpected exception, a bug, costs the same.

RBAC: list and patch on the ring's kinds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from itertools import groupby

from kubeshard.client.client import Client
from kubeshard.core.errors import ApiError, Conflict, NotFound
from kubeshard.core.kinds import GroupKind, Kind
from kubeshard.core.namespaces import AllNamespaces
from kubeshard.core.objects import Form, PartialObject, metadata_only
from kubeshard.core.patches import MergePatch
from kubeshard.core.selectors import Selector
from kubeshard.leases.held_lease import Gate
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.loop import apart
from kubeshard.runtime.notices import Notices
from kubeshard.shard.identity import ShardIdentity
from kubeshard.sharding.names import RETURNING

PATIENCE = 30.0
"""Seconds. A proof of death is valid for 5, the request takes 5 at most, the kernel may deliver it for 4 more, and the
server may process it for another 5.
"""

AT_A_TIME = 20
RETRY = 1.0

_log = get_logger("kubeshard.shard")


async def reclaim(
    client: Client, shard: ShardIdentity, places: Iterable[tuple[Kind, str | AllNamespaces]]
) -> bool:
    """Gives every object of the shard a new version, once. Call it with the fenced client of a shard that holds its
    Lease and has not started work. `places`: the ring's kinds that this process works on, each with the namespace in
    which it does, or `ALL`.

    Returns whether every object has a new version now. Raises nothing.
    """
    places = tuple(places)
    room = asyncio.Semaphore(AT_A_TIME)
    try:
        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as tasks:
            for kind, namespace in places:
                tasks.create_task(
                    _all_of(client, shard, metadata_only(kind), namespace, room), name=f"reclaiming {kind}"
                )
    except TimeoutError:
        _log.warning(
            "Not all objects of this shard could be written; waited until no earlier move can take effect any more",
            shard=str(shard),
            kinds=", ".join(sorted({str(kind) for kind, _ in places})),
            seconds=PATIENCE,
        )
        return False
    return True


class Reclaiming:
    """The gates of a shard's controllers: each is closed until the objects of all kinds that its controller reads have
    been reclaimed. So a kind that cannot be read or written holds up its own controllers only.
    """

    def __init__(self) -> None:
        self._waiting: dict[Gate, set[GroupKind]] = {}
        """The closed gates, and the kinds that they wait for."""
        self._done: set[GroupKind] = set()

    def gate(self, kinds: Iterable[GroupKind]) -> Gate:
        """A gate for one controller, closed until `reclaimed` was called for each of the kinds."""
        gate, missing = Gate(), set(kinds) - self._done
        if missing:
            gate.close()
            self._waiting[gate] = missing
        return gate

    def reclaimed(self, kinds: Collection[GroupKind]) -> None:
        """Called when nobody can take an object of these kinds any more who considered the shard dead."""
        self._done.update(kinds)
        for gate, missing in list(self._waiting.items()):
            missing.difference_update(kinds)
            if not missing:
                gate.open()
                del self._waiting[gate]

    async def reclaim(
        self, client: Client, shard: ShardIdentity, places: Iterable[tuple[Kind, str | AllNamespaces]]
    ) -> None:
        """Like `reclaim`, and opens the gates: each kind is reclaimed, or waited for, by itself."""
        async with asyncio.TaskGroup() as tasks:
            for kind, some in groupby(sorted(places, key=_kind_of), key=_kind_of):
                tasks.create_task(self._reclaim(client, shard, kind, tuple(some)), name="reclaiming a kind")

    async def _reclaim(
        self,
        client: Client,
        shard: ShardIdentity,
        kind: GroupKind,
        places: Iterable[tuple[Kind, str | AllNamespaces]],
    ) -> None:
        await reclaim(client, shard, places)
        self.reclaimed({kind})


def _kind_of(place: tuple[Kind, str | AllNamespaces]) -> GroupKind:
    return place[0].group_kind


async def _all_of(
    client: Client,
    shard: ShardIdentity,
    form: Form[PartialObject],
    namespace: str | AllNamespaces,
    room: asyncio.Semaphore,
) -> None:
    count, done, notices = 0, False, Notices()

    async def once() -> None:
        nonlocal count
        async with asyncio.TaskGroup() as tasks:
            selector = Selector.equals(shard.label, shard.name)
            async for obj in client.list(form, namespace, label_selector=selector, on_restart=lambda: None):
                if not obj.metadata.has_label(shard.drain):
                    count += 1
                    await room.acquire()
                    renewing = tasks.create_task(
                        _renewed(client, shard, form, obj, notices), name="reclaiming an object"
                    )
                    renewing.add_done_callback(lambda _: room.release())

    while not done:
        try:
            await apart(once)  # PATIENCE may end while a write fails
            done = True
        except* NotFound:
            done = True  # the server does not serve the kind: there are no objects
        except* Exception as group:
            if notices.due("reading"):
                error = group.exceptions[0]
                log = _log.warning if isinstance(error, ApiError) else _log.crash
                log("Cannot read the objects of this shard", error=error, kind=str(form.kind))
        if not done:
            await asyncio.sleep(RETRY)
    if count:
        _log.info(
            "Reclaimed the objects that are still assigned to this shard", kind=str(form.kind), objects=count
        )


async def _renewed(
    client: Client, shard: ShardIdentity, form: Form[PartialObject], obj: PartialObject, notices: Notices
) -> None:
    """A Conflict is fine: an object that somebody else changed has a new version already. `notices` are those of all
    objects: an outage is told of the first one.
    """
    meta = obj.metadata
    for value in (RETURNING, None):
        patch = MergePatch({"metadata": {"labels": {shard.drain: value}}})
        while True:
            try:
                obj = await client.patch(form, meta.name, meta.namespace, patch, base=obj)
                break
            except (Conflict, NotFound):
                return
            except ApiError as error:
                if notices.due(type(error).__name__):
                    _log.warning("Cannot write an object of this shard", object=str(obj.key), error=error)
                await asyncio.sleep(RETRY)
