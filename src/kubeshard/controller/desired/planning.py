"""Makes a plan from the desired and the existing objects. Pure.

| what exists | what happens |
|---|---|
| nothing | create |
| an object that is being deleted | wait: it is created when the old one is gone |
| a member that was applied from an equal desired object, and lacks nothing | nothing |
| another member; an object that the owner controls | update |
| an object without a controller that is in no set | depends on `unowned`: update (adopt), or refuse |
| an object of another controller, another ApplySet or another set | refuse |
| a member that is not desired | delete, unless somebody else controls it or it is already being deleted |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from kubeshard.controller.desired.applyset import (
    APPLIED,
    Address,
    ApplySet,
    Standing,
    address_of,
    read_mark,
)
from kubeshard.controller.desired.members import Member, rank
from kubeshard.controller.desired.plan import Plan, Update
from kubeshard.controller.desired.problems import NotAdopted
from kubeshard.controller.merging import lacking
from kubeshard.controller.rewrites import Rewrites
from kubeshard.core.objects import KubeObject

Unowned = Literal["refuse", "adopt"]
"""What to do with an object that exists already, is in no set, and has no controller."""


class Observed(NamedTuple):
    """What exists: objects with the names of desired ones, other marked objects, and what could not be read."""

    live: Mapping[Address, KubeObject]
    strays: Iterable[KubeObject] = ()
    unreadable: Mapping[Address, Exception] = {}
    unseen: Mapping[Address, Exception] = {}


def plan_of(
    set_: ApplySet,
    members: Mapping[Address, Member[Any]],
    observed: Observed,
    rewrites: Rewrites,
    unowned: Unowned,
) -> Plan:
    creates: list[KubeObject] = []
    updates: list[Update] = []
    waiting: list[KubeObject] = []
    unchanged: list[KubeObject] = []
    refused = dict(observed.unreadable)
    for address, member in members.items():
        if address in refused:
            continue
        live = observed.live.get(address)
        if live is None:
            creates.append(member.to_create())
        elif (problem := _problem(set_, live, unowned)) is not None:
            refused[address] = problem
        elif live.metadata.deleting:
            waiting.append(live)
        elif (update := _update(set_, live, member, rewrites)) is not None:
            updates.append(update)
        else:
            unchanged.append(live)
    return Plan(
        creates=tuple(creates),
        updates=tuple(updates),
        deletes=_deletes(set_, members, observed.strays),
        waiting=tuple(waiting),
        refused=refused,
        unseen=dict(observed.unseen),
        unchanged=tuple(unchanged),
    )


def _problem(set_: ApplySet, live: KubeObject, unowned: Unowned) -> NotAdopted | None:
    match set_.standing(live):
        case Standing.FOREIGN:
            return NotAdopted(f"it exists already, and {set_.whose(live)}: choose another name")
        case Standing.UNOWNED if unowned == "refuse":
            return NotAdopted(
                "it exists already and has no owner: choose another name, or adopt it with unowned='adopt'"
            )
    return None


def _update(set_: ApplySet, live: KubeObject, member: Member[Any], rewrites: Rewrites) -> Update | None:
    is_member = set_.standing(live) is Standing.MEMBER
    changes = lacking(live, member.merged_into(live), rewrites)
    _, digest = read_mark(live.metadata.annotation(APPLIED))
    if is_member and digest == member.digest and not changes:
        return None
    return Update(live, member.obj, changes, adopts=not is_member)


def _deletes(
    set_: ApplySet, members: Mapping[Address, Member[Any]], strays: Iterable[KubeObject]
) -> tuple[KubeObject, ...]:
    unwanted = [
        obj
        for obj in strays
        if address_of(obj) not in members
        and not obj.metadata.deleting
        and set_.standing(obj) is Standing.MEMBER
    ]
    return tuple(sorted(unwanted, key=lambda obj: -rank(obj.KIND.group_kind)))
