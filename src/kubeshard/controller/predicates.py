"""Filters of triggers: which changes of an object are worth a reconcile.

    Watch(Website, when=generation_changed | annotations_changed)
    Watch(Deployment, when=changed(is_ready))
    Watch(Secret, when=label_selector("app=web") & ~changed(lambda secret: secret.metadata.annotations))

A predicate judges deltas (`kubeshard.cache.deltas`). Those that compare let additions and deletions pass:
there is nothing to compare with. A predicate that is too strict loses work until the next resync; in doubt,
let it pass. Of a predicate that raises the change passes. Source: framework 2.14.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from kubeshard.cache.deltas import Added, Deleted, Delta, Updated
from kubeshard.core.objects import KubeObject
from kubeshard.core.selectors import Selector

T = TypeVar("T", bound=KubeObject)


class Predicate(Generic[T]):
    """A test of deltas; combine with `&`, `|` and `~`. `test` must be pure."""

    __slots__ = ("_test",)

    def __init__(self, test: Callable[[Delta[T]], bool]) -> None:
        self._test = test

    def __call__(self, delta: Delta[T]) -> bool:
        return self._test(delta)

    def __and__(self, other: Predicate[T]) -> Predicate[T]:
        return Predicate(lambda delta: self(delta) and other(delta))

    def __or__(self, other: Predicate[T]) -> Predicate[T]:
        return Predicate(lambda delta: self(delta) or other(delta))

    def __invert__(self) -> Predicate[T]:
        """The opposite for all deltas: `~generation_changed` passes no addition and no deletion."""
        return Predicate(lambda delta: not self(delta))


def current(delta: Delta[T]) -> T:
    """The object as the delta leaves it; of a deletion its last known state."""
    return delta.new if isinstance(delta, Updated) else delta.object


def changed(part: Callable[[T], Any]) -> Predicate[T]:
    """Updates in which `part` of the object is another value; all additions and deletions."""
    return Predicate(lambda delta: not isinstance(delta, Updated) or part(delta.old) != part(delta.new))


def matching(test: Callable[[T], bool]) -> Predicate[T]:
    """Objects that pass the test; an update passes when the old or the new object does, so that leaving is
    noticed.
    """
    return Predicate(
        lambda delta: test(delta.old) or test(delta.new) if isinstance(delta, Updated) else test(delta.object)
    )


def label_selector(selector: Selector | str) -> Predicate[Any]:
    """Objects whose labels match, before or after an update. Raises InvalidSelector."""
    compiled = Selector.parse(selector) if isinstance(selector, str) else selector
    return matching(lambda obj: compiled.matches(obj.metadata.labels))


def on(
    *,
    added: Callable[[T], bool] = lambda _: True,
    updated: Callable[[T, T], bool] = lambda _old, _new: True,
    deleted: Callable[[T], bool] = lambda _: True,
) -> Predicate[T]:
    """A test per class of delta; those that are not given pass."""

    def test(delta: Delta[T]) -> bool:
        match delta:
            case Added():
                return added(delta.object)
            case Updated():
                return updated(delta.old, delta.new)
            case Deleted():
                return deleted(delta.object)

    return Predicate(test)


def _new_generation(old: KubeObject, new: KubeObject) -> bool:
    # Kinds without a generation (ConfigMap, Secret, Lease, ...) always have 0: there, every update counts.
    return new.metadata.generation == 0 or old.metadata.generation != new.metadata.generation


always: Predicate[Any] = Predicate(lambda _: True)

never: Predicate[Any] = Predicate(lambda _: False)

generation_changed: Predicate[Any] = on(updated=_new_generation)
"""The spec changed, or the deletion began. Not: metadata, or a status that is a subresource. Kinds that have
no generation always pass.
"""

labels_changed: Predicate[Any] = changed(lambda obj: obj.metadata.labels or {})

annotations_changed: Predicate[Any] = changed(lambda obj: obj.metadata.annotations or {})

resource_version_changed: Predicate[Any] = changed(lambda obj: obj.metadata.resource_version)
"""Anything changed. An informer tells of nothing else; for deltas from other sources."""
