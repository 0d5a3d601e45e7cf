"""What one pass knows of main objects, for those that they control: who has to wait (protocol 14-A8, reliability
S3).

Guaranteed: a controlled object is not moved away from its owner's live shard before the owner was asked for. So
the keys of main objects are in here whose drain is pending or was refused; and, once the ring's shards have
changed under the pass, all keys: the pass looked at the main objects with another ring, and the next pass,
which the change makes due, asks for those that have to move now.

With the strict parity switch nobody waits, as in the reference.
"""

from __future__ import annotations

from collections.abc import Callable

from kubeshard.sharding import Action, Decision, RingView


class UnknownOwners:
    """For decisions outside of a pass: any owner may be about to be drained."""

    def __contains__(self, key: object) -> bool:
        return True


class Owners:
    """The `draining` of `plan`. `view` gives the ring as it is now, `began` is how the pass found it, `refused` are
    the keys of main objects whose drain an earlier pass could not ask for; it is kept up to date.
    """

    def __init__(
        self, view: Callable[[], RingView | None], began: RingView, refused: set[str], strict: bool = False
    ) -> None:
        self._view = view
        self._began = began
        self._draining = set(refused)
        self._refused = refused
        self._strict = strict

    def draining(self, decision: Decision) -> None:
        """The main object's drain is pending, or about to be asked for."""
        self._draining.add(decision.key)
        self._refused.discard(decision.key)

    def refused(self, decision: Decision) -> None:
        """What had to be done with the main object was refused."""
        if decision.action is Action.DRAIN:
            self._refused.add(decision.key)

    def __contains__(self, key: object) -> bool:
        if self._strict:
            return False
        view = self._view()
        return key in self._draining or view is None or view.hashring is not self._began.hashring
