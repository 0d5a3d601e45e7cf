"""What controls the objects that control others: an App controls a Release, which controls a Job. The Job belongs to
the App, which its own metadata do not say.

`known` is the `controllers` of all views of a process. What is missing is read on demand: one object, or all of a
namespace once `FEW` of them were missed; scans of their resource keep it up to date. In a ring of two levels nothing is
read or kept. At most `MOST` objects are known, the latest ones.

Not guaranteed: that a Job follows at once if its Release is given to another App. The next full scans of both see to
that.

RBAC: get or list on every controlled resource of the ring.
"""

from __future__ import annotations

from collections import Counter

from kubeshard.client.client import Client
from kubeshard.core.errors import NotFound
from kubeshard.core.kinds import Kind
from kubeshard.core.objects import Key, ObjectMeta, OwnerReference, metadata_only
from kubeshard.core.owners import controller_of
from kubeshard.sharder.live_reads import read_metadata
from kubeshard.sharder.resource_kinds import ResourceKinds
from kubeshard.sharding.ownership import ControllerUnknown, main_owner
from kubeshard.sharding.planner import RingView
from kubeshard.sharding.ring_resources import RingEntry

FEW = 20
MOST = 50_000


class OwnerChains:
    """For all rings of a process."""

    def __init__(self, client: Client, kinds: ResourceKinds) -> None:
        self._client = client
        self._kinds = kinds
        self.known: dict[str, OwnerReference | None] = {}
        self._missed = Counter[tuple[Kind, str]]()
        """How many of a kind and namespace were read one by one."""

    async def look_up(self, view: RingView, entry: RingEntry, meta: ObjectMeta) -> None:
        """Reads what is missing for a decision about the object. Raises ApiError."""
        for _ in view.resources.entries:
            try:
                if (controller := controller_of(meta)) is not None:
                    main_owner(view.owner_kinds, view.owner_kinds[entry.resource], controller, self.known)
                return
            except ControllerUnknown as unknown:
                await self._read(unknown, meta.namespace)

    def note(self, meta: ObjectMeta) -> None:
        """This is the current state of an object."""
        self._remember(meta.uid, controller_of(meta))

    def _remember(self, uid: str, controller: OwnerReference | None) -> None:
        self.known.pop(uid, None)
        self.known[uid] = controller
        if len(self.known) > MOST:
            del self.known[next(iter(self.known))]

    async def _read(self, unknown: ControllerUnknown, namespace: str) -> None:
        kind = await self._kinds.kind(unknown.owner.resource)
        place = Key(namespace if kind.namespaced else "", unknown.reference.name)
        uid, where = unknown.reference.uid, (kind, place.namespace)
        if len(self._missed) >= MOST:
            self._missed.clear()
        self._missed[where] += 1
        if self._missed[where] > FEW:
            del self._missed[where]
            async for obj in self._client.list(metadata_only(kind), place.namespace, on_restart=lambda: None):
                self.note(obj.metadata)
        if uid in self.known:
            return
        try:
            meta = await read_metadata(self._client, kind, place)
        except NotFound:
            self._remember(uid, None)
        else:
            self._remember(uid, None)
            self.note(meta)
