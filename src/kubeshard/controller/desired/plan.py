"""What is to be done for a desired set, as a value that can be looked at, compared, printed and carried out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from kubeshard.controller.desired.applyset import Address, address_of
from kubeshard.core.encoding import to_dict
from kubeshard.core.kinds import GroupKind
from kubeshard.core.objects import KubeObject

T = TypeVar("T", bound=KubeObject)

_SECRET = GroupKind("", "Secret")


@dataclass(frozen=True, slots=True)
class Update:
    """`live` is not as wished. `changes` is the merge patch of what it lacks; empty where the wish says less than
    before, so that fields are to be given up. `adopts`: it is not in the set yet.
    """

    live: KubeObject
    wish: KubeObject
    changes: Mapping[str, Any] = field(default_factory=dict)
    adopts: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What `ctx.apply` does, and `ctx.plan` would do. True if that is anything.

    `creates`: as they will be sent. `deletes`: members that are not wished any more, in the order of their deletion.
    They are deleted only when everything wished is there. `waiting`: wished, but being deleted at the moment;
    created anew when they are gone. `refused`: why others cannot be applied. `unseen`: where members that an earlier
    version of the program applied may be, and why they could not be looked for. `unchanged`: as wished already.

    `str(plan)` is a diff for people. The values of Secrets are not in it.
    """

    creates: tuple[KubeObject, ...] = ()
    updates: tuple[Update, ...] = ()
    deletes: tuple[KubeObject, ...] = ()
    waiting: tuple[KubeObject, ...] = ()
    refused: dict[Address, Exception] = field(default_factory=dict)
    unseen: dict[Address, Exception] = field(default_factory=dict)
    unchanged: tuple[KubeObject, ...] = ()

    def __bool__(self) -> bool:
        return bool(
            self.creates or self.updates or self.deletes or self.waiting or self.refused or self.unseen
        )

    def __str__(self) -> str:
        return "\n".join(self._lines()) or "nothing to do"

    def _lines(self) -> Iterator[str]:
        for obj in self.creates:
            yield f"+ {address_of(obj)}"
            yield from _values(obj, to_dict(obj))
        for update in self.updates:
            yield f"~ {address_of(update.live)}{' (adopted)' if update.adopts else ''}"
            yield from _changes(update)
        for obj in self.deletes:
            yield f"- {address_of(obj)}"
        for obj in self.waiting:
            yield f"> {address_of(obj)} is being deleted; it is created anew when it is gone"
        for address, error in (self.refused | self.unseen).items():
            yield f"! {address}: {error}"


@dataclass(frozen=True, slots=True)
class Applied:
    """What `ctx.apply` did. `applied[wish]` is the object as it is now, and so is `applied.get(wish)`, or None."""

    plan: Plan
    objects: tuple[KubeObject, ...] = ()
    """As they are now, in no order."""
    waiting: tuple[KubeObject, ...] = ()
    """Objects in the place of wished ones, that have to be gone first. Nothing is pruned meanwhile."""

    def __getitem__(self, wish: T) -> T:
        """Raises KeyError for what was not wished, or is not there yet because its predecessor is being deleted."""
        found = self.get(wish)
        if found is None:
            raise KeyError(str(address_of(wish)))
        return found

    def get(self, wish: T) -> T | None:
        """None where it is not there yet, because its predecessor is being deleted."""
        address = address_of(wish)
        found: Any = (obj for obj in self.objects if address_of(obj) == address)
        return next(found, None)  # of the class of the wish


def _values(obj: KubeObject, body: Mapping[str, Any]) -> Iterator[str]:
    said = {name: value for name, value in body.items() if name not in ("apiVersion", "kind", "metadata")}
    for path, value in _leaves(said):
        yield f"    {path}: {_shown(obj, path, value)}"


def _changes(update: Update) -> Iterator[str]:
    if not update.changes:
        yield "    (fields that are not wished any more are given up)"
    had = to_dict(update.live)
    for path, value in _leaves(update.changes):
        before = _shown(update.live, path, _at(had, path))
        after = "none, unless somebody else set it" if value is None else _shown(update.live, path, value)
        yield f"    {path}: {before} -> {after}"


def _leaves(document: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[_Path, Any]]:
    for name, value in document.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*path, name))
        else:
            yield _Path((*path, name)), value


class _Path(tuple[str, ...]):
    __slots__ = ()

    def __str__(self) -> str:
        return ".".join(name if name.isidentifier() else f"[{name}]" for name in self)


def _at(document: Any, path: _Path) -> Any:
    for name in path:
        document = document.get(name) if isinstance(document, Mapping) else None
    return document


def _shown(obj: KubeObject, path: _Path, value: Any) -> str:
    if value is None:
        return "none"
    if obj.KIND.group_kind == _SECRET and path[0] in ("data", "stringData"):
        return "(hidden)"
    return msgspec.json.encode(value).decode()
