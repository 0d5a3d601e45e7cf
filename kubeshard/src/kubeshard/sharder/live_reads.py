"""Reads of single objects, where what a list or a watch has shown may be too old.

Not guaranteed: that an owner is still where it was read when the controlled object moves. A write to one object cannot
depend on another one, and may take effect seconds after it was sent. Scans repair that.

RBAC: get or list on every main and controlled resource of the ring: the reference's sharder may list objects, but not
get them.
"""

from __future__ import annotations

from kubeshard.client.client import Client
from kubeshard.core.errors import ApiError, Forbidden, NotFound
from kubeshard.core.kinds import GroupKind, GroupResource, Kind
from kubeshard.core.objects import Key, ObjectMeta, metadata_only
from kubeshard.core.owners import controller_of, group_kind_of
from kubeshard.core.selectors import FieldSelector
from kubeshard.sharder.resource_kinds import ResourceKinds
from kubeshard.sharding.keys import kind_of_key, object_of_key


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
