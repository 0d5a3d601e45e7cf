"""Remembers which sets were as desired until something about them changes, so that most runs compare nothing.

Each cached change or removal of a member passes through the index of the stores, which drops the set from memory. A
full list that changed anything drops all sets. Only the desired objects, by a fingerprint, and the owner's record of
the set remain to be compared. Guaranteed: any other result leads to a full comparison. Kept for each reconciled key
until it is forgotten; refers only to objects that the caches hold anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from kubeshard.cache.informer import Informer
from kubeshard.cache.own_writes import OwnWrites
from kubeshard.cache.store import Store
from kubeshard.controller.desired.applyset import ID, PART_OF, SET, SETS, ApplySet
from kubeshard.controller.desired.plan import Applied
from kubeshard.controller.reader import ControllerReader
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.kinds import GroupKind, Kind
from kubeshard.core.objects import Form, Key, KubeObject

Whose = tuple[GroupKind, Key, str] | str
"""Owner and name of a set; the name alone of a set of the reconciled object."""


class _Known:
    __slots__ = ("applied", "fingerprint", "id", "index_value", "note", "note_key", "uid")

    def __init__(self, fingerprint: int, set_: ApplySet, applied: Applied) -> None:
        meta = set_.owner.metadata
        self.fingerprint = fingerprint
        self.applied: Applied | None = applied
        """None once something has changed."""
        self.index_value = set_.index_value
        self.uid = meta.uid
        self.id = meta.label(ID)
        self.note_key = SETS + set_.name
        self.note = meta.annotation(self.note_key)

    def is_said_by(self, owner: KubeObject) -> bool:
        meta = owner.metadata
        return (
            meta.uid == self.uid
            and (meta.labels or {}).get(ID, "") == self.id
            and (meta.annotations or {}).get(self.note_key, "") == self.note
        )


class KnownSets:
    """The known sets of one controller."""

    def __init__(self) -> None:
        self._index = f"kubeshard.dev/set {id(self):x}"
        self._known: dict[Key, dict[Whose, _Known]] = {}
        self._by_value: dict[str, _Known] = {}

    async def follow(self, informer: Informer[Any]) -> None:
        """Returns when the marked objects of its store are known. From then on, changes are noticed."""
        if not informer.store.has_index(self._index):
            with suppress(ValueError):  # another run of the controller has begun it
                informer.add_index(self._index, _index_values, self._changed)
            await informer.indexed()

    def follows(self, store: Store[Any]) -> bool:
        return store.has_index(self._index)

    def filed(self, store: Store[Any], set_: ApplySet) -> Mapping[Key, Any]:
        """The current marked objects of a tracked store."""
        return store.filed(self._index, set_.index_value)

    def leave(self, store: Store[Any]) -> None:
        """Stops tracking changes in the store."""
        store.remove_index(self._index)

    def _changed(self, index_value: str | None) -> None:
        if index_value is None:
            self._known, self._by_value = {}, {}
        elif (known := self._by_value.pop(index_value, None)) is not None:
            known.applied = None

    def note(self, key: Key, whose: Whose, fingerprint: int, set_: ApplySet, applied: Applied) -> None:
        """Records that the set is as desired, and that the caches show it so."""
        known = _Known(fingerprint, set_, applied)
        self._changed(known.index_value)
        self._by_value[known.index_value] = known
        self._known.setdefault(key, {})[whose] = known

    def forget(self, key: Key) -> None:
        for known in self._known.pop(key, {}).values():
            self._changed(known.index_value)

    def applied(
        self,
        key: Key,
        whose: Whose,
        fingerprint: int,
        owner: KubeObject | None,
        form: Form[Any],
        reads: ControllerReader,
        writes: OwnWrites,
        fresh: Callable[[Kind], bool],
    ) -> Applied | None:
        """The result of the last apply if another one would have the same result; None if that is unknown."""
        sets = self._known.get(key)
        known = sets.get(whose) if sets is not None else None
        if known is None or known.fingerprint != fingerprint or writes:
            return None
        for declared in reads.declared:
            if fresh(declared.kind):
                return None
        if owner is None:
            try:
                owner = reads.informer(form).store.get(key)
            except UndecodableObject:
                return None
        return known.applied if owner is not None and known.is_said_by(owner) else None


def _index_values(obj: KubeObject) -> tuple[str, ...]:
    labels = obj.metadata.labels
    if labels is None or PART_OF not in labels:
        return ()
    return (f"{labels[PART_OF]}/{labels.get(SET, '')}",)
