"""What witnesses of a run saw, as data. Every `at` is this machine's CLOCK_MONOTONIC, which all its processes share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

Object: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class Change:
    """A change in etcd. `kind` is that of the key: `main`, `child` or `lease`. None: the object did not exist, or does
    not any more. An object that existed when the records begin is the same before and after.
    """

    at: float
    revision: int
    kind: str
    name: str
    before: Object | None
    after: Object | None


@dataclass(frozen=True)
class Audited:
    """A write that an API server answered, or gave up. `revision` is that of the object in the answer, or 0."""

    at: float
    user: str
    verb: str
    kind: str
    name: str
    code: int
    revision: int


@dataclass(frozen=True)
class Worked:
    """A reconcile began or ended, by the journal of the process."""

    at: float
    shard: str
    pid: int
    name: str
    run: int
    what: str


@dataclass(frozen=True)
class Lived:
    """A process was started, has died, was stopped or continued."""

    at: float
    process: str
    pid: int
    what: str


@dataclass(frozen=True)
class Asked:
    """A request of a user, or (`probe`) one about an object that no ring selects. `problem`: why it failed."""

    at: float
    until: float
    probe: bool
    what: str
    problem: str


@dataclass(frozen=True)
class Marked:
    """A repeat began, something was inflicted or ended, the ring has settled."""

    at: float
    what: str


Record: TypeAlias = Change | Audited | Worked | Lived | Asked | Marked
KINDS = {kind.__name__: kind for kind in (Change, Audited, Worked, Lived, Asked, Marked)}


def to_document(record: Record) -> dict[str, Any]:
    return {"record": type(record).__name__, **asdict(record)}


def from_document(document: Mapping[str, Any]) -> Record:
    fields = dict(document)
    return KINDS[fields.pop("record")](**fields)
