"""The order of a desired set: which members may be written, and which may be deleted.

| a member | may be |
|---|---|
| that comes after others | created or changed once each of these is as desired and ready |
| that is no longer desired | deleted once all that came after it are gone |
| in a Namespace of the set, or of a kind that the set defines | created after that, and deleted before it |

The order of deletion cannot be taken from the desired objects, which no longer contain the member, nor from memory,
which may be another process's. So a member that comes after others names them in an annotation:

| where | key | value |
|---|---|---|
| member, annotation | `kubeshard.dev/after` | the members that it comes after, as a JSON list |

Guaranteed: nothing here waits, or remembers anything. A member of which the annotation is lost is deleted without
regard to what it came after. Members that name each other in a circle, which different versions of a program may
leave, do not wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from inspect import iscoroutinefunction
from typing import Any, Generic, TypeVar, final

import msgspec

from kubeshard.controller.desired.applyset import AFTER, Address, address_of
from kubeshard.core.kinds import GroupKind
from kubeshard.core.objects import Key, KubeObject, ObjectMeta
from kubeshard.core.readiness import Readiness
from kubeshard.core.until import WaitCondition
from kubeshard.core.usable import is_usable, usability_can_be_judged

T = TypeVar("T", bound=KubeObject)

NAMESPACE = GroupKind("", "Namespace")
FIRST = (NAMESPACE, GroupKind("apiextensions.k8s.io", "CustomResourceDefinition"))
"""Kinds that other kinds depend on: applied first, deleted last."""

Ready = bool | WaitCondition | Callable[[Any], object]


@final
@dataclass(frozen=True, slots=True)
class Ordered(Generic[T]):
    """An object of a desired set with its place in the order of the set.

        Ordered(web, after=[database])
        Ordered(database, ready=lambda database: database.status.primary != "")

    `after`: objects of the same set. This one is created, and changed, only when each of them is as desired and ready,
    and it is gone before any of them is deleted. `ready`: when those that come after this one may be written. True:
    when it is usable by the rules of its kind (`kubeshard.core.usable`). False: when it is as desired. Or a condition
    of `kubeshard.until`; or a function of the object as it is, which returns a bool, or a `Readiness` that says
    why not. An object that is not `Ordered` has the defaults.

    Raises TypeError.
    """

    obj: T
    after: Sequence[KubeObject | Ordered[Any]] = ()
    ready: bool | WaitCondition | Callable[[T], object] = True

    def __post_init__(self) -> None:
        if isinstance(self.after, KubeObject | Ordered) or not isinstance(self.after, Iterable):
            raise TypeError(f"after={self.after!r}: give a list of objects, as in after=[database]")
        if iscoroutinefunction(self.ready) or not (
            isinstance(self.ready, bool | WaitCondition) or callable(self.ready)
        ):
            raise TypeError(
                f"ready={self.ready!r}: a bool, a condition of `until`, or a plain function of the object"
            )


Placed = KubeObject | Ordered[Any]
"""What may be given: an object without an `Ordered` has no place of its own, but others may come after it."""


class Order:
    """The order of the objects of one call. False if there is none."""

    __slots__ = ("_ready", "after", "recorded", "said")

    def __init__(
        self,
        recorded: Mapping[Address, tuple[Address, ...]],
        ready: Mapping[Address, Ready],
        present: Iterable[Address],
    ) -> None:
        self.recorded = recorded
        """What each member comes after, as it is written to it."""
        self.after = _with_places(present, recorded)
        """The same, with what follows from namespaces and kinds."""
        self.said = tuple(recorded.items())
        """Equal for the same order."""
        self._ready = ready

    def __bool__(self) -> bool:
        return bool(self.after)

    def sorted(self, addresses: Iterable[Address]) -> list[Address]:
        """In an order in which they may be written, and otherwise as they are."""
        sorter: TopologicalSorter[Address] = TopologicalSorter()
        for address in addresses:
            sorter.add(address)
        for address, others in self.after.items():
            sorter.add(address, *others)
        try:
            return [*sorter.static_order()]
        except CycleError as error:
            circle = " after ".join(map(str, reversed(error.args[1])))
            raise ValueError(f"the order of the set goes round in a circle: {circle}") from None

    def why_not(self, address: Address, done: Mapping[Address, KubeObject]) -> str:
        """What a member waits for before it may be written; empty if it may be. `done`: the members that are as
        desired, in their present state. Raises what the author's functions raise.
        """
        recorded = self.recorded.get(address, ())
        why = []
        for other in self.after.get(address, ()):
            obj = done.get(other)
            if obj is None:
                why.append(f"{other} (it is not as desired yet)")
            elif other in recorded and (unready := _unready(obj, self._ready.get(other, True))):
                why.append(f"{other} ({unready})")
        return ", ".join(why)


def order_of(
    given: tuple[Placed, ...], create_once: Sequence[Placed]
) -> tuple[tuple[KubeObject, ...], tuple[KubeObject, ...], Order]:
    """The objects, those that are only created, and the order of all. Raises ValueError for an order that refers to
    something else, and TypeError for a class by which nothing can be told about an object that others come after.
    """
    for each in (*given, *create_once) if create_once else given:
        if type(each) is Ordered:
            break
    else:  # a set without an order pays for no more than this
        return given, tuple(create_once), NO_ORDER  # type: ignore[return-value, arg-type]
    places = [each for each in (*given, *create_once) if isinstance(each, Ordered)]
    objects, once = tuple(map(_object, given)), tuple(map(_object, create_once))
    types = {address_of(obj): type(obj) for obj in (*objects, *once)}
    recorded = {
        address_of(each.obj): tuple(dict.fromkeys(address_of(_object(other)) for other in each.after))
        for each in places
        if each.after
    }
    ready: dict[Address, Ready] = {address_of(each.obj): each.ready for each in places}
    for address, others in recorded.items():
        for other in others:
            if other not in types:
                raise ValueError(
                    f"{address} comes after {other}, which is not in the set: give both in one call of apply"
                )
            _check_judgeable(address, other, types[other], ready.get(other, True))
    return objects, once, Order(recorded, ready, types)


def _object(given: Placed) -> KubeObject:
    return given.obj if isinstance(given, Ordered) else given


def _check_judgeable(address: Address, other: Address, type_: type[KubeObject], ready: Ready) -> None:
    try:
        if ready is True:
            usability_can_be_judged(type_)
        elif isinstance(ready, WaitCondition):
            ready.check(type_)
    except TypeError as error:
        raise TypeError(
            f"{address} comes after {other}: {error}; or say when that is ready: ready=False is as soon as it exists"
        ) from None


def _unready(obj: KubeObject, ready: Ready) -> str:
    """Why the object is not ready; empty if it is."""
    if ready is False:
        return ""
    if isinstance(ready, WaitCondition):
        return "" if ready.met(obj) else ready.seen(obj)
    found = is_usable(obj) if ready is True else ready(obj)
    if found:
        return ""
    return (isinstance(found, Readiness) and found.message) or "it is not ready"


def _with_places(
    present: Iterable[Address], explicit: Mapping[Address, tuple[Address, ...]]
) -> dict[Address, tuple[Address, ...]]:
    """What the present members come after, with the Namespaces that they are in, and the definitions of their kinds."""
    every = [*present]
    places = [address for address in every if address.kind in FIRST]
    after = {
        address: (*explicit.get(address, ()), *(place for place in places if _is_in(address, place)))
        for address in every
    }
    return {address: others for address, others in after.items() if others}


def _is_in(address: Address, place: Address) -> bool:
    if place.kind == NAMESPACE:
        return address.key.namespace == place.key.name
    return address.kind.group == place.key.name.partition(".")[2]


# What is recorded on members


def recording(meta: ObjectMeta, after: Sequence[Address]) -> ObjectMeta:
    """The metadata with the annotation, if there is anything to record."""
    if not after:
        return meta
    said = msgspec.json.encode([f"{kind} {key}" for kind, key in after]).decode()
    return msgspec.structs.replace(meta, annotations={**(meta.annotations or {}), AFTER: said})


def recorded(meta: ObjectMeta) -> tuple[Address, ...]:
    """What a member comes after; nothing if the annotation cannot be read."""
    if not (text := meta.annotation(AFTER)):
        return ()
    try:
        said = msgspec.json.decode(text, type=list[str])
    except msgspec.DecodeError:
        return ()
    return tuple(map(_address, said))


def _address(text: str) -> Address:
    group_kind, _, place = text.partition(" ")
    kind, _, group = group_kind.partition(".")
    namespace, _, name = place.rpartition("/")
    return Address(GroupKind(group, kind), Key(namespace, name))


class Leaving:
    """The members that are no longer desired and still exist, whether or not their deletion has been requested."""

    def __init__(self, objects: Iterable[KubeObject]) -> None:
        """`objects`: in the order in which they are deleted if nothing is recorded."""
        self.objects = {address_of(obj): obj for obj in objects}
        explicit = {
            address: after for address, obj in self.objects.items() if (after := recorded(obj.metadata))
        }
        self._after = _with_places(self.objects, explicit) if explicit else {}
        self._followers: dict[Address, list[Address]] = {}
        for address, others in self._after.items():
            for other in others:
                if other != address:
                    self._followers.setdefault(other, []).append(address)

    def gone(self, address: Address) -> None:
        del self.objects[address]

    def waits_for(self, address: Address) -> list[Address]:
        """What must be gone before this is deleted."""
        return [
            follower
            for follower in self._followers.get(address, ())
            if follower in self.objects and not self._follows(address, follower)
        ]

    def is_waited_for(self, address: Address) -> bool:
        return any(other in self.objects for other in self._after.get(address, ()))

    def due(self) -> list[KubeObject]:
        """Those that may be deleted now, and are not being deleted."""
        return [
            obj
            for address, obj in self.objects.items()
            if not obj.metadata.deleting and not self.waits_for(address)
        ]

    def _follows(self, address: Address, other: Address) -> bool:
        """Whether the first comes after the second, directly or not."""
        seen, left = {address}, [address]
        while left:
            for each in self._after.get(left.pop(), ()):
                if each == other:
                    return True
                if each not in seen:
                    seen.add(each)
                    left.append(each)
        return False


def why_held(leaving: Leaving) -> dict[Address, str]:
    """Which deletions may not be requested yet, and what they wait for."""
    return {
        address: ", ".join(f"{other} (it still exists)" for other in others)
        for address, obj in leaving.objects.items()
        if not obj.metadata.deleting and (others := leaving.waits_for(address))
    }


def in_order(objects: Iterable[KubeObject]) -> tuple[KubeObject, ...]:
    """Members in the order of their deletion."""
    leaving, found = Leaving(objects), []
    while due := leaving.due():
        for obj in due:
            found.append(obj)
            leaving.gone(address_of(obj))
    return tuple(found)


NO_ORDER = Order({}, {}, ())
