"""The deltas that a slow handler eventually gets, whatever happened meanwhile."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_client import Widget

from kubeshard.cache import Added, Deleted, Delta, Store, Updated
from kubeshard.cache.handlers import Backlog
from kubeshard.core.objects import Key, ObjectMeta


def widget(name: str, version: int, uid: str = "u") -> Widget:
    return Widget(metadata=ObjectMeta(namespace="x", name=name, uid=uid, resource_version=str(version)))


A1, A2, A3 = (widget("a", version) for version in (1, 2, 3))
OTHER = widget("a", 9, "another")


@pytest.mark.parametrize(
    ("happened", "told"),
    [
        ([Added(A1, initial=True), Updated(A1, A2)], [Added(A2, initial=True)]),
        ([Added(A1), Deleted(A2)], []),
        ([Updated(A1, A2), Updated(A2, A3)], [Updated(A1, A3)]),
        ([Updated(A1, A2, relisted=True), Updated(A2, A3)], [Updated(A1, A3, relisted=True)]),
        ([Updated(A1, A2), Updated(A2, A3, relisted=True)], [Updated(A1, A3, relisted=True)]),
        ([Updated(A1, A2), Deleted(A3)], [Deleted(A3)]),
        ([Deleted(A2, final=False), Added(OTHER)], [Deleted(A2, final=False), Added(OTHER)]),
        ([Deleted(A2), Added(A2), Updated(A2, A3)], [Deleted(A2), Added(A3)]),
        ([Deleted(A2), Added(OTHER), Deleted(OTHER)], [Deleted(A2)]),
        ([Deleted(A2), Added(OTHER), Deleted(OTHER), Added(A3)], [Deleted(A2), Added(A3)]),
    ],
)
def test_of_each_object_the_least_waits_that_brings_the_handler_up_to_date(
    happened: list[Delta[Widget]], told: list[Delta[Widget]]
) -> None:
    backlog: Backlog[Widget] = Backlog()
    for delta in happened:
        backlog.add(delta)
    assert len(backlog) == bool(told)
    assert list(backlog.take()) == told
    assert backlog.take() == ()


def test_objects_are_taken_in_the_order_in_which_they_began_to_wait() -> None:
    backlog: Backlog[Widget] = Backlog()
    for delta in (Added(widget("a", 1)), Added(widget("b", 2)), Updated(widget("a", 1), widget("a", 3))):
        backlog.add(delta)
    taken = [delta for _ in range(2) for delta in backlog.take()]
    assert taken == [Added(widget("a", 3)), Added(widget("b", 2))]


def test_a_mark_is_passed_when_all_that_waited_then_has_been_taken() -> None:
    backlog: Backlog[Widget] = Backlog()
    assert backlog.passed(backlog.mark)
    backlog.add(Added(widget("a", 1)))
    backlog.add(Added(widget("b", 2)))
    mark = backlog.mark
    backlog.add(Added(widget("c", 3)))
    assert not backlog.passed(mark)
    backlog.take()
    assert not backlog.passed(mark)
    backlog.add(Deleted(widget("b", 4)))  # so nothing is left to report about it
    assert backlog.passed(mark)
    assert len(backlog) == 1


@given(st.lists(st.one_of(st.tuples(st.sampled_from("abc"), st.booleans()), st.none()), max_size=80))
def test_a_handler_ends_with_the_stores_content_whenever_it_took_what_was_waiting(
    actions: list[tuple[str, bool] | None],
) -> None:
    """An action writes or deletes an object, or lets the handler take a delta."""
    store: Store[Widget] = Store()
    backlog: Backlog[Widget] = Backlog()
    known: dict[Key, Widget] = {}
    version = births = 0

    def take() -> None:
        for delta in backlog.take():
            match delta:
                case Added(obj):
                    assert obj.key not in known
                    known[obj.key] = obj
                case Updated(old, new):
                    assert known[old.key] is old
                    assert old.metadata.uid == new.metadata.uid
                    known[new.key] = new
                case Deleted(last):
                    assert known.pop(last.key).metadata.uid == last.metadata.uid

    for action in actions:
        version += 1
        if action is None:
            take()
            continue
        name, stays = action
        there = store.get(Key("x", name))
        births += there is None
        obj = widget(name, version, there.metadata.uid if there else str(births))
        for delta in store.apply(obj) if stays else store.remove(obj):
            backlog.add(delta)
        assert len(backlog) <= 3
    while len(backlog):
        take()
    assert known == {obj.key: obj for obj in store.list()}
