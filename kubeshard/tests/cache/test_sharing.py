from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from scripted_client import Widget

from kubeshard.cache.transforms import arriving
from kubeshard.core.encoding import decode, encode
from kubeshard.core.objects import ObjectMeta, OwnerReference, form_of

WIDGET = form_of(Widget)


def widget(name: str, app: str = "web") -> Widget:
    """Returns a widget as decoded from a response: it shares nothing with any other object."""
    owner = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="web-1", uid="u-1", controller=True)
    metadata = ObjectMeta(
        name=name,
        namespace="some-namespace",
        creation_timestamp="2026-01-01T00:00:00Z",
        labels={"app": app, "team": "a team"},
        owner_references=(owner,),
        finalizers=("example.com/finalizer",),
    )
    return decode(WIDGET, encode(Widget(metadata=metadata)))


@pytest.mark.parametrize(
    "part", ["namespace", "creation_timestamp", "labels", "owner_references", "finalizers"]
)
def test_what_objects_have_in_common_is_kept_once(part: str) -> None:
    one, other = (arriving(WIDGET, None)(widget(name)) for name in ("a", "b"))
    assert isinstance(one, Widget)
    assert isinstance(other, Widget)
    assert getattr(one.metadata, part) is getattr(other.metadata, part)
    assert (one, other) == (widget("a"), widget("b")), "nothing of it changed"


def test_an_object_keeps_what_it_has_alone() -> None:
    arrive = arriving(WIDGET, None)
    assert (arrive(widget("a")), arrive(widget("b", "other"))) == (widget("a"), widget("b", "other"))


def test_an_object_without_such_parts_stays_as_it_came() -> None:
    bare = Widget(metadata=ObjectMeta(name="a"))
    arrived = arriving(WIDGET, None)(decode(WIDGET, encode(bare)))
    assert arrived == bare
    assert msgspec.json.encode(arrived) == msgspec.json.encode(bare)


def change(labels: Any) -> None:
    labels |= {"app": "db"}


CHANGES: dict[str, Callable[[Any], object]] = {
    "set": lambda labels: labels.__setitem__("app", "db"),
    "delete": lambda labels: labels.__delitem__("app"),
    "pop": lambda labels: labels.pop("app"),
    "popitem": lambda labels: labels.popitem(),
    "clear": lambda labels: labels.clear(),
    "update": lambda labels: labels.update(app="db"),
    "setdefault": lambda labels: labels.setdefault("new", "1"),
    "or": change,
}


@pytest.mark.parametrize("how", list(CHANGES))
def test_who_changes_the_labels_of_a_cached_object_changes_those_of_no_other(how: str) -> None:
    arrive = arriving(WIDGET, None)
    one, other = arrive(widget("a")), arrive(widget("b"))
    with pytest.raises(TypeError, match="change a copy"):
        CHANGES[how](one.metadata.labels)
    assert (one, other, arrive(widget("c"))) == (widget("a"), widget("b"), widget("c"))


def test_copies_of_shared_labels_can_be_changed() -> None:
    labels: Any = arriving(WIDGET, None)(widget("a")).metadata.labels
    shared = dict(labels)
    for each in (
        labels.copy(),
        copy.copy(labels),
        copy.deepcopy(labels),
        pickle.loads(pickle.dumps(labels)),
        labels | {},
        msgspec.to_builtins(labels),
    ):
        each["app"] = "db"
    assert labels == shared
    assert msgspec.json.encode(labels) == msgspec.json.encode(shared)


def test_a_transform_may_change_what_is_the_objects_own_and_no_other_object_gets_it() -> None:
    def drop(obj: Widget) -> Widget:
        labels: Any = obj.metadata.labels
        if obj.metadata.name == "a":
            labels["app"] = "dropped"
        return obj

    arrive = arriving(WIDGET, drop)
    first, one, other = (arrive(widget(name)) for name in ("0", "a", "b"))
    assert (first, one, other) == (widget("0"), widget("a", "dropped"), widget("b"))
