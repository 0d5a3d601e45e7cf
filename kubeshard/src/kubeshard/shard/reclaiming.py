"""Reclaims the objects of a shard that returns under a name that had been given up.

While a shard did not hold its Lease, a sharder may have read an object with the shard's label, verified that nobody
holds the Lease, and sent a patch that assigns the object to another shard. That patch is guarded by the object's
resourceVersion, but it may be delayed for any length of time: the sharder's process may have been paused between
its last check and the request. If the returned shard works on the object without changing it, the patch succeeds.

So the shard changes the object. After the Lease is ours again, which every later check shows, every object with our
name gets a new resourceVersion: the drain label is added as a mark, and removed. The API server then refuses any patch
that is based on an older read, however late it arrives. Only then does work on objects of that kind start.

The mark is written to the version that was read: after any answer but an outage the object has another version, and
whether it has the mark is not asked, because an answer may have been lost. It is removed wherever it is found, in any
version. A process that ends between the two leaves it to its successor, if this comes before a sharder gives the
object to another shard, which takes the mark away too. Nobody else would take it from a controlled object, which is
never drained: so the Lease says that the shard is returning until no mark is left.

Guaranteed, when `reclaim` returns True: no patch of a sharder (kubeshard's or the Go one) that is based on a read
before the Lease was acquired will take an object from us. A sharder that was about to take an object by a test of its
labels, not of its version, has left a mark for that (`TAKEN`): it is removed too, so that the test fails. Objects with
another drain label are left as they are: they are released without being reconciled. Not guaranteed: the same for a
sharder that reads the object afterwards and still considers us dead, as the Go one does during a pass that started
before; nor for kinds that the ring lists only since this process has read it.

If the objects of a kind cannot be listed, or one cannot be written, waiting replaces the proof: returns False after
`PATIENCE`, which is longer than a patch of kubeshard's sharder takes unless that process is paused. Other kinds do not
wait for it (`Reclaiming`). An unexpected exception, a bug, costs the same. Marks that are left then go with `clear`.

RBAC: list and patch on the ring's kinds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from itertools import groupby

from kubeshard.client.client import Client
from kubeshard.core.errors import ApiError, Conflict, NotFound, NotOurs, PatchTestFailed
from kubeshard.core.kinds import GroupKind, Kind
from kubeshard.core.namespaces import AllNamespaces
from kubeshard.core.objects import Form, PartialObject, metadata_only
from kubeshard.core.patches import JsonPatch, MergePatch, pointer, remove, test
from kubeshard.core.selectors import Selector
from kubeshard.leases.held_lease import Gate
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.loop import apart
from kubeshard.runtime.notices import Notices
from kubeshard.shard.identity import ShardIdentity
from kubeshard.sharding.names import RETURNING, TAKEN

PATIENCE = 30.0
"""Seconds. A proof of death is valid for 5, the request takes 5 at most, the kernel may deliver it for 4 more, and the
server may process it for another 5.
"""

IN_FLIGHT = 15.0
"""Seconds after which a write that was given up does not take effect any more: those of `PATIENCE`, without the 5 for
the proof.
"""

_MARKS = (RETURNING, TAKEN)

AT_A_TIME = 20
RETRY = 1.0
RARELY = 30.0

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
                    _reclaim_all(client, shard, kind, namespace, room), name=f"reclaiming {kind}"
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


async def clear(
    client: Client, shard: ShardIdentity, places: Iterable[tuple[Kind, str | AllNamespaces]]
) -> None:
    """Removes the marks that `reclaim` has left in these places, where it returned False. Returns when lists show that
    all are gone, however long that takes. What is refused holds up nothing else.
    """
    places = tuple(places)
    if places:
        await asyncio.sleep(IN_FLIGHT)
    marked = _assigned_to(shard) & Selector.any_of(shard.drain, _MARKS)
    room = asyncio.Semaphore(AT_A_TIME)

    async def one(kind: Kind, namespace: str | AllNamespaces) -> None:
        form, notices = metadata_only(kind), Notices()
        while True:
            if not await _all_of(client, shard, form, namespace, marked, room, notices, RARELY, insist=False):
                return
            await asyncio.sleep(RARELY)

    async with asyncio.TaskGroup() as tasks:
        for kind, namespace in places:
            tasks.create_task(one(kind, namespace), name=f"clearing {kind}")


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
    ) -> list[tuple[Kind, str | AllNamespaces]]:
        """Like `reclaim`, and opens the gates: each kind is reclaimed, or waited for, by itself. Returns the places
        that were waited for, to `clear`.
        """
        waited_for: list[tuple[Kind, str | AllNamespaces]] = []

        async def one(kind: GroupKind, its: tuple[tuple[Kind, str | AllNamespaces], ...]) -> None:
            if not await reclaim(client, shard, its):
                waited_for.extend(its)
            self.reclaimed({kind})

        async with asyncio.TaskGroup() as tasks:
            for kind, some in groupby(sorted(places, key=_kind_of), key=_kind_of):
                tasks.create_task(one(kind, tuple(some)), name="reclaiming a kind")
        return waited_for


def _kind_of(place: tuple[Kind, str | AllNamespaces]) -> GroupKind:
    return place[0].group_kind


def _assigned_to(shard: ShardIdentity) -> Selector:
    return Selector.equals(shard.label, shard.name)


async def _reclaim_all(
    client: Client, shard: ShardIdentity, kind: Kind, namespace: str | AllNamespaces, room: asyncio.Semaphore
) -> None:
    form = metadata_only(kind)
    if count := await _all_of(client, shard, form, namespace, _assigned_to(shard), room, Notices(), RETRY):
        _log.info(
            "Reclaimed the objects that are still assigned to this shard", kind=str(kind), objects=count
        )


async def _all_of(
    client: Client,
    shard: ShardIdentity,
    form: Form[PartialObject],
    namespace: str | AllNamespaces,
    selector: Selector,
    room: asyncio.Semaphore,
    notices: Notices,
    pause: float,
    *,
    insist: bool = True,
) -> int:
    """Renews the selected objects. A list that fails is repeated after each `pause` and, with `insist`, each write.
    Returns how many objects there were.
    """
    count, done = 0, False

    async def once() -> None:
        nonlocal count
        async with asyncio.TaskGroup() as tasks:
            async for obj in client.list(form, namespace, label_selector=selector, on_restart=lambda: None):
                if not obj.metadata.has_label(shard.drain) or obj.metadata.label(shard.drain) in _MARKS:
                    count += 1
                    await room.acquire()
                    renewing = tasks.create_task(
                        _renewed(client, shard, form, obj, notices, pause if insist else None),
                        name="reclaiming an object",
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
            await asyncio.sleep(pause)
    return count


async def _renewed(
    client: Client,
    shard: ShardIdentity,
    form: Form[PartialObject],
    obj: PartialObject,
    notices: Notices,
    pause: float | None,
) -> None:
    """A Conflict is fine: an object that somebody else changed has a new version already. It may also be our own
    change, whose answer was lost. `notices` are those of all objects: an outage is told of the first one. A write that
    fails is repeated after each `pause`; None: it is not.
    """
    meta, drain = obj.metadata, pointer("metadata", "labels", shard.drain)
    mark = MergePatch({"metadata": {"labels": {shard.drain: RETURNING}}})
    unmark = JsonPatch([test(drain, meta.label(shard.drain) or RETURNING), remove(drain)])

    async def write(patch: MergePatch | JsonPatch, base: PartialObject | None, *done: type[ApiError]) -> None:
        while True:
            try:
                await client.patch(form, meta.name, meta.namespace, patch, base=base)
                return
            except done:
                return
            except ApiError as error:
                if notices.due(type(error).__name__):
                    _log.warning("Cannot write an object of this shard", object=str(obj.key), error=error)
                if pause is None:
                    return
                await asyncio.sleep(pause)

    if not meta.has_label(shard.drain):
        await write(mark, obj, Conflict, NotFound)
    await write(unmark, None, NotFound, NotOurs, PatchTestFailed)
