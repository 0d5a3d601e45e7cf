"""Reads of single objects, for decisions about those that others control: where an owner is, if what a list or a watch
has shown may be too old; and what controls the objects that control others. An App controls a Release, which controls a
Job. The Job belongs to the App, which its own metadata do not say; nor the uid of an owner that an annotation names.

`OwnerChains.known` is the `controllers` of all views of a process. What is missing is read on demand: one object, or
all of a namespace once `FEW` of them were missed; scans of their resource keep it up to date. In a ring of two levels
nothing is read or kept. At most `MOST` objects are known, the latest ones.

Not guaranteed: that an owner is still where it was read when the controlled object moves. A write to one object cannot
depend on another one, and may take effect seconds after it was sent. Nor that a Job follows at once if its Release is
given to another App. Scans repair both.

RBAC: get or list on every main and controlled resource of the ring: the reference's sharder may list objects, but not
get them.
"""

from __future__ import annotations

from collections import Counter

from kubeshard.client.client import Client
from kubeshard.core.errors import ApiError, Forbidden, NotFound
from kubeshard.core.kinds import GroupKind, GroupResource, Kind
from kubeshard.core.objects import Key, ObjectMeta, OwnerReference, metadata_only
from kubeshard.core.owners import controller_of, group_kind_of
from kubeshard.core.selectors import FieldSelector
from kubeshard.sharder.kinds_and_rights import ResourceKinds
from kubeshard.sharding.hash_ring import kind_of_key, object_of_key
from kubeshard.sharding.planner import RingView
from kubeshard.sharding.ring_resources import ControllerUnknown, RingEntry, main_owner, noted_main


async def read_metadata(client: Client, kind: Kind, key: Key) -> ObjectMeta:
    """The current object. Raises ApiError (NotFound)."""
    form = metadata_only(kind)
    try:
        return (await client.get(form, key.name, key.namespace)).metadata
    except Forbidden:
        selector = FieldSelector.equals("metadata.name", key.name)
        async for obj in client.list(form, key.namespace, field_selector=selector):
            return obj.metadata
    raise NotFound(f"{kind.group_resource} {key} is gone", code=404, reason="NotFound")


class OwnerReads:
    """Where the owners of controlled objects are."""

    def __init__(self, client: Client, kinds: ResourceKinds) -> None:
        self._client = client
        self._kinds = kinds

    async def shard(
        self, owners: frozenset[GroupResource], meta: ObjectMeta, hash_key: str, label: str
    ) -> str | None:
        """The shard of the object's owner, which is of one of these resources and has this hash key, according to the
        label; "" if it has none. None if the owner is gone, or is of another resource. Raises ApiError.
        """
        if (kind := await self._kind(owners, kind_of_key(hash_key))) is None:
            return None
        try:
            owner = await read_metadata(self._client, kind, object_of_key(hash_key))
        except NotFound:
            return None
        reference = controller_of(meta)
        if (
            reference is not None
            and group_kind_of(reference) == kind.group_kind
            and owner.uid != reference.uid
        ):
            return None
        return owner.label(label)

    async def _kind(self, owners: frozenset[GroupResource], wanted: GroupKind) -> Kind | None:
        """Raises ApiError if it may be a kind that cannot be found at the moment."""
        perhaps = sorted(owner for owner in owners if owner.group == wanted.group)
        for resource in perhaps:  # else a kind that is not installed would be looked for once for each object
            known = self._kinds.known(resource)
            if known is not None and known.group_kind == wanted:
                return known
        unknown: ApiError | None = None
        for resource in perhaps:
            try:
                kind = await self._kinds.kind(resource)
            except ApiError as error:
                unknown = error
                continue
            if kind.group_kind == wanted:
                return kind
        if unknown is not None:
            raise unknown
        return None


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
        self._noted: dict[tuple[GroupKind, Key], str] = {}
        """The uids of owners that annotations name; "" of those that are gone."""

    def main_uid(self, view: RingView, entry: RingEntry, meta: ObjectMeta) -> str:
        """The uid of the main object to which a controlled object belongs, as `look_up` has read it last: what controls
        it, perhaps through others, or what its annotation names. "" if there is none. Raises ControllerUnknown.
        """
        own = view.owner_kinds.get(entry.resource, {})
        if (reference := controller_of(meta)) is not None:
            found = main_owner(view.owner_kinds, own, reference, self.known)
            return found[1].uid if found else ""
        if (named := noted_main(own, meta)) is None:
            return ""
        if named not in self._noted:
            unread = OwnerReference(kind=named[0].kind, name=named[1].name)
            raise ControllerUnknown(own[named[0]], unread)
        return self._noted[named]

    async def look_up(self, view: RingView, entry: RingEntry, meta: ObjectMeta) -> None:
        """Reads what is missing for a decision about the object. Raises ApiError."""
        for _ in view.resources.entries:
            try:
                if (controller := controller_of(meta)) is not None:
                    main_owner(view.owner_kinds, view.owner_kinds[entry.resource], controller, self.known)
                elif named := noted_main(own := view.owner_kinds.get(entry.resource, {}), meta):
                    await self._read_noted(own[named[0]].resource, named)
                return
            except ControllerUnknown as unknown:
                await self._read(unknown, meta.namespace)

    async def _read_noted(self, resource: GroupResource, named: tuple[GroupKind, Key]) -> None:
        try:
            uid = (await read_metadata(self._client, await self._kinds.kind(resource), named[1])).uid
        except NotFound:
            uid = ""
        self._noted.pop(named, None)
        self._noted[named] = uid
        if len(self._noted) > MOST:
            del self._noted[next(iter(self._noted))]

    def note(self, meta: ObjectMeta) -> None:
        """This is the current state of an object."""
        self._remember(meta.uid, controller_of(meta))

    def note_main(self, kind: GroupKind, meta: ObjectMeta) -> None:
        """The same of a main object, which annotations may name."""
        if (named := (kind, Key(meta.namespace, meta.name))) in self._noted:
            self._noted[named] = meta.uid

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
