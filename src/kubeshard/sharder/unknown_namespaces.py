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
        self._places: dict[str, dict[Place, None]] = {}
        self._many: dict[Place, None] = {}
        """Places of which not every name is remembered."""

    def passed_over(self, place: Place, namespace: str) -> None:
        """An object of this resource was passed over, since nothing is known of its namespace."""
        if namespace not in self._places and len(self._places) >= REMEMBERED:
            self._many[place] = None
        else:
            self._places.setdefault(namespace, {})[place] = None

    def appeared(self, namespace: str) -> tuple[Place, ...]:
        """Where objects of this namespace may have been passed over."""
        return tuple(self._places.pop(namespace, {}) | self._many)

    def forget(self, place: Place) -> None:
        """The ring does not have the resource any more."""
        self._many.pop(place, None)
        for namespace in [name for name, places in self._places.items() if place in places]:
            self._places[namespace].pop(place)
            if not self._places[namespace]:
                del self._places[namespace]
