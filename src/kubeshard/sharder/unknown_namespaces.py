"""Namespaces in which objects were seen before the namespace itself was.

Objects and namespaces come through watches of their own, in no common order: an object that is created right after
its namespace may be seen first. Whether its ring selects the namespace cannot be told then, and the object is passed
over. It is remembered here in which namespaces, and looked for there once they appear.

Guaranteed: a namespace that appears after an object in it was passed over is named by `appeared`. Bounded: at most
`REMEMBERED` names; where there are more, any namespace that appears may be meant.
"""

from __future__ import annotations

from kubeshard.sharding.classification import RingEntry

REMEMBERED = 1000

Place = tuple[str, RingEntry]
"""One resource of one ring, by the ring's name."""


class UnknownNamespaces:
    def __init__(self) -> None:
        self._places: dict[str, set[Place]] = {}
        self._many: set[Place] = set()
        """Places of which not every name is remembered."""

    def passed_over(self, place: Place, namespace: str) -> None:
        """An object of this resource was passed over, since nothing is known of its namespace."""
        if namespace not in self._places and len(self._places) >= REMEMBERED:
            self._many.add(place)
        else:
            self._places.setdefault(namespace, set()).add(place)

    def appeared(self, namespace: str) -> set[Place]:
        """Where objects of this namespace may have been passed over."""
        return self._places.pop(namespace, set()) | self._many

    def forget(self, place: Place) -> None:
        """The ring does not have the resource any more."""
        self._many.discard(place)
        for namespace in [name for name, places in self._places.items() if place in places]:
            self._places[namespace].discard(place)
            if not self._places[namespace]:
                del self._places[namespace]
