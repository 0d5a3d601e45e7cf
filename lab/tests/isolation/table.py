"""What the others are guaranteed while one of them misbehaves: a cell for every unit and every misbehaviour.

A cell is either a scene that shows the guarantee (`test_isolation.py` walks them all) or a sentence that says why there
is none. `isolation_page.py` makes docs/guarantees.md of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import Enum

from neighbourhood import Neighbourhood


class Unit(Enum):
    KIND = "a kind"
    CLUSTER = "a cluster"
    NAMESPACE = "a namespace"
    OBJECT = "an object"
    RING = "a ring"
    RESOURCE = "a resource of a ring"
    SHARD = "a shard"
    TENANT = "a tenant"
    CALLER = "a caller of the webhook"
    PREDICATE = "a predicate"
    MAPPER = "a map function"
    HANDLER = "an admission handler"
    DAEMON = "a daemon"
    COROUTINE = "an author's coroutine"
    WATCH = "a watch"


class Misbehaviour(Enum):
    ERRORS = "answers errors"
    NOTHING = "answers nothing"
    SLOW = "answers slowly"
    FLOODS = "floods"
    MANY = "is many"
    LIES = "lies"
    RAISES = "raises an unexpected exception"
    IGNORES = "ignores cancellation"
    RETURNS = "comes back"


Scene = Callable[[Neighbourhood], AbstractAsyncContextManager[None]]


@dataclass(frozen=True, slots=True)
class Cell:
    """While `scene` runs, the neighbours `others` reconcile every change within `within` seconds, and no process ends
    that is not meant to. `said`: where it is said, and what (`Neighbourhood.says`). `back`: the neighbour that
    misbehaved, and within how many seconds after the end it is well again. `lasts`: seconds.
    """

    scene: Scene
    what: str
    """What happens, in words."""
    others: tuple[str, ...]
    within: float
    lasts: float
    said: tuple[tuple[str, str], ...]
    back: tuple[str, float] | None


@dataclass(frozen=True, slots=True)
class Shown:
    """A cell whose guarantee another test shows: where it needs sockets, threads or processes of its own."""

    what: str
    test: str
    """As `path::test`, below kubeshard/tests/."""


@dataclass(frozen=True, slots=True)
class Nothing:
    """A cell that cannot be had, or that says nothing."""

    why: str


TABLE: dict[tuple[Unit, Misbehaviour], Cell | Shown | Nothing] = {}


def cell(
    unit: Unit,
    misbehaviour: Misbehaviour,
    what: str,
    others: tuple[str, ...],
    *,
    within: float = 5.0,
    lasts: float = 60.0,
    said: tuple[tuple[str, str], ...] = (),
    back: tuple[str, float] | None = None,
) -> Callable[[Scene], Scene]:
    """Enters a scene in the table."""

    def enter(scene: Scene) -> Scene:
        _enter(unit, misbehaviour, Cell(scene, what, others, within, lasts, said, back))
        return scene

    return enter


def shown(unit: Unit, misbehaviour: Misbehaviour, what: str, test: str) -> None:
    _enter(unit, misbehaviour, Shown(what, test))


def nothing(unit: Unit, why: str, *misbehaviours: Misbehaviour) -> None:
    for misbehaviour in misbehaviours:
        _enter(unit, misbehaviour, Nothing(why))


def _enter(unit: Unit, misbehaviour: Misbehaviour, entry: Cell | Shown | Nothing) -> None:
    assert (unit, misbehaviour) not in TABLE, f"{unit.value} {misbehaviour.value}: two entries"
    TABLE[unit, misbehaviour] = entry


def cells() -> Iterator[tuple[Unit, Misbehaviour, Cell]]:
    for (unit, misbehaviour), entry in sorted(TABLE.items(), key=_order):
        if isinstance(entry, Cell):
            yield unit, misbehaviour, entry


def _order(item: tuple[tuple[Unit, Misbehaviour], object]) -> tuple[int, int]:
    (unit, misbehaviour), _ = item
    return list(Unit).index(unit), list(Misbehaviour).index(misbehaviour)
