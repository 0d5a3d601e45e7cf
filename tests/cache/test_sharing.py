from __future__ import annotations

import msgspec
import pytest
from scripted_client import Widget

from kubeshard.cache.transforms import arriving
from kubeshard.core.encoding import decode, encode
from kubeshard.core.objects import ObjectMeta, OwnerReference, form_of

WIDGET = form_of(Widget)


def widget(name: str, app: str = "web") -> Widget:
    """As it comes from the server: nothing of it is anybody else's."""
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
