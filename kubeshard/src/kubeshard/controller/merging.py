"""What an object lacks of the desired state: the common basis of `ensure` and desired sets.

Guaranteed: fields that the desired object does not set are kept (rules: `kubeshard.core.overlay`), so an object that
lacks nothing needs no request, whatever the server and others added to it. Pure, except for what `Rewrites` remembers.

The API server stores some values differently from how they were sent: a time in another zone, a field that the schema
does not know, a default for an empty string, a list with what admission adds. A comparison of desired and stored values
would find that difference forever. What admission adds can be told from a difference by looking at the object
(`completions`); other values are sent once more. `Rewrites` remembers the result, by object: what it would immediately
send again is what the server does not store, and it is neither looked at nor sent again while the stored value stays
the same.

Guaranteed: only values of the same request are learned, so that changes by another writer are not mistaken for
rewrites by the server. Not guaranteed: that nothing is learned twice. The memory is bounded, ends with the process, and
is void after a restore of etcd, which also undoes what others stated and how a kind was defined; what was forgotten
costs a request that changes nothing, and no more.
"""

from __future__ import annotations

from base64 import b64encode
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from kubeshard.core.builtin import Secret
from kubeshard.core.documents import at
from kubeshard.core.encoding import to_dict
from kubeshard.core.kinds import Kind
from kubeshard.core.objects import UNSET, KubeObject, ObjectMeta
from kubeshard.core.overlay import overlaid
from kubeshard.core.owners import check_stays, is_controlled_by, with_owner
from kubeshard.core.patches import merge_patch, pointer
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.notices import Notices

T = TypeVar("T", bound=KubeObject)


def merged(live: T, desired: T, owner: KubeObject | None = None) -> T:
    """The live object with the fields of `desired`: metadata merged, status ignored. Returns `live` itself if nothing
    differs. Raises AlreadyControlled, IllegalOwner, LeavingOwner.
    """
    metadata = _merged_metadata(live.metadata, desired.metadata)
    if owner is not None and not is_controlled_by(metadata, owner):
        owned = with_owner(metadata, owner, controller=True)
        check_stays(owner, metadata)
        metadata = owned
    if isinstance(desired, Secret) and desired.string_data:
        desired = _as_stored(desired, live)
    target = overlaid(live, desired, without=("metadata", "status"))
    return target if metadata is live.metadata else msgspec.structs.replace(target, metadata=metadata)


def lacking(live: T, target: T, rewrites: Rewrites) -> dict[str, Any]:
    """The merge patch from `live` to the target, without what the server is known not to store."""
    if target is live:
        return {}
    had = to_dict(live)
    return rewrites.without_known(live.metadata.uid, merge_patch(had, to_dict(target)), had)


def learn(answer: T, target: T, rewrites: Rewrites, sent: Mapping[str, Any] | None = None) -> None:
    """Remembers where the response to a write differs from what was intended. `sent`: the merge patch; None: the
    whole object.
    """
    if target is not answer:
        has = to_dict(answer)
        again = merge_patch(has, to_dict(target))
        rewrites.learn(answer.KIND, answer.metadata.uid, sent, again, has)


def keep(live: T, target: T, rewrites: Rewrites) -> None:
    """Remembers that the object differs from what is intended only in what the server completed."""
    had = to_dict(live)
    rewrites.learn(live.KIND, live.metadata.uid, None, merge_patch(had, to_dict(target)), had)


def without_status(obj: T) -> T:
    """The object as it is written: a status is never part of the desired state."""
    if "status" not in obj.__struct_fields__:
        return obj
    changes: dict[str, Any] = {"status": UNSET}
    return msgspec.structs.replace(obj, **changes)


def _as_stored(desired: Any, live: Any) -> Any:
    """A Secret with what the server makes of plain values, which it never returns."""
    values = {name: b64encode(text.encode()).decode() for name, text in desired.string_data.items()}
    data = live.data if desired.data is None else desired.data
    return msgspec.structs.replace(desired, data={**(data or {}), **values}, string_data=None)


def _merged_metadata(live: ObjectMeta, desired: ObjectMeta) -> ObjectMeta:
    labels = _with(live.labels, desired.labels)
    annotations = _with(live.annotations, desired.annotations)
    if labels is live.labels and annotations is live.annotations:
        return live
    return msgspec.structs.replace(live, labels=labels, annotations=annotations)


def _with(live: Mapping[str, str] | None, desired: Mapping[str, str] | None) -> Mapping[str, str] | None:
    if not desired or (live is not None and desired.items() <= live.items()):
        return live
    return {**(live or {}), **desired}


REMEMBERED = 16_384
"""The number of values, of 200 bytes each."""

_log = get_logger("kubeshard.controller")

_Path = tuple[str, ...]

K = TypeVar("K", bound=Hashable)


class _Memory(OrderedDict[K, int]):
    """At most REMEMBERED values. Objects are visited in turn, so if there are more, the oldest value is needed next.
    Therefore a new value replaces the newest one three times out of four, and the oldest one the fourth time: most
    values stay useful, and those of deleted objects disappear in the end.
    """

    evicted = 0

    def remember(self, key: K, value: int) -> None:
        self.pop(key, None)
        if len(self) >= REMEMBERED:
            self.evicted += 1
            self.popitem(last=self.evicted % 4 > 0)
        self[key] = value


class Statements:
    """What one controller last stated in the status of objects that also have other controllers' status fields."""

    def __init__(self) -> None:
        self._digests: _Memory[str] = _Memory()
        """The statements by UID of the object. Without an entry, a request is sent that changes nothing."""

    def __contains__(self, statement: tuple[str, Any]) -> bool:
        uid, said = statement
        return uid in self._digests and self._digests[uid] == digest(said)

    def note(self, uid: str, said: Any, *, there_is_more: bool) -> None:
        self._digests.pop(uid, None)
        if there_is_more:
            self._digests.remember(uid, digest(said))


class Rewrites:
    """The memory of one controller. `restores` returns how often the server was restored from a backup."""

    def __init__(self, restores: Callable[[], int] = int) -> None:
        self._restores = restores
        self._begin()

    def _begin(self) -> None:
        self._since = self._restores()
        """The restores before anything here was learned."""
        self._stored: _Memory[tuple[str, _Path]] = _Memory()
        """By UID of the object, and path: a digest of the value that was sent and of the one that was stored."""
        self._notices = Notices()
        self._statements = Statements()

    @property
    def statements(self) -> Statements:
        self._check()
        return self._statements

    def says_once(self, topic: Hashable) -> bool:
        """Whether to log something of this controller that is said once."""
        return len(self._notices) < REMEMBERED and self._notices.due(topic)

    def _check(self) -> None:
        """Forgets everything after a restore."""
        if self._since != self._restores():
            self._begin()

    def without_known(self, uid: str, patch: Mapping[str, Any], live: Mapping[str, Any]) -> dict[str, Any]:
        """The merge patch without values that are known to be stored as what the object, `live`, already has."""
        if self._stored:
            self._check()
        return self._left(uid, patch, live, ()) if self._stored else dict(patch)

    def learn(
        self,
        kind: Kind,
        uid: str,
        sent: Mapping[str, Any] | None,
        again: Mapping[str, Any],
        answer: Mapping[str, Any],
    ) -> None:
        """`again` is the merge patch that the answer to `sent` (None: a create) would lead to."""
        self._check()
        for path, value in _leaves(again):
            if sent is not None and not _sets(sent, path):
                continue
            entry, stored = (uid, path), at(answer, *path)
            self._stored.remember(entry, digest([value, stored]))
            if _is_extension(value, stored):
                continue
            if self.says_once((kind, path)):
                _log.warning(
                    "The API server does not store a field as it was sent; "
                    "send what it stores, or leave the field unset",
                    kind=kind,
                    field=pointer(*path),
                )

    def _left(
        self, uid: str, patch: Mapping[str, Any], live: Mapping[str, Any], path: _Path
    ) -> dict[str, Any]:
        left = {}
        for name, value in patch.items():
            place, have = (*path, name), live.get(name)
            known = self._stored.get((uid, place))
            if known is not None and known == digest([value, have]):
                continue
            if isinstance(value, Mapping) and value and isinstance(have, Mapping | None):
                value = self._left(uid, value, have or {}, place)
                if not value:
                    continue
            left[name] = value
        return left


def _leaves(patch: Mapping[str, Any], path: _Path = ()) -> Iterator[tuple[_Path, Any]]:
    for name, value in patch.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*path, name))
        else:
            yield (*path, name), value


def _sets(patch: Any, path: _Path) -> bool:
    """Whether a merge patch sets the value at a path."""
    for name in path:
        if not isinstance(patch, Mapping):
            return True
        if name not in patch:
            return False
        patch = patch[name]
    return True


def _is_extension(value: Any, stored: Any) -> bool:
    """Whether the server only added to a value, which is none of its author's business."""
    if isinstance(value, list | tuple) and isinstance(stored, list | tuple):
        return all(any(item == each or _is_extension(item, each) for each in stored) for item in value)
    if isinstance(value, Mapping) and isinstance(stored, Mapping):
        return all(
            name in stored and (stored[name] == each or _is_extension(each, stored[name]))
            for name, each in value.items()
        )
    return value is None


def digest(said: Any) -> int:
    """Equal for equal values, and almost certainly different for others; in this process only."""
    try:
        said = msgspec.json.encode(said, order="deterministic")
    except (TypeError, ValueError, OverflowError):  # refused when it is sent
        said = repr(said).encode("utf-8", "replace")
    return hash(said)
