"""Objects read as metadata only, or of kinds known only by name, keep their own kind."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from typing import Any

import pytest

from kubeshard.client.watching import EventDecoder
from kubeshard.controller.events import reference_to
from kubeshard.core import (
    Form,
    IllegalOwner,
    Kind,
    KubeObject,
    ObjectMeta,
    PartialObject,
    UndecodableObject,
    controller_reference,
    decode,
    encode,
    metadata_only,
    owner_reference,
    to_dict,
)
from kubeshard.core.objects import form_of

WIDGET = Kind("example.com", "v1", "Widget", "widgets")
GIZMO = Kind("example.com", "v1", "Gizmo", "gizmos")


class Anything(KubeObject):
    spec: Mapping[str, Any] | None = None


META = ObjectMeta(name="a", namespace="n", uid="u", resource_version="1")
AS_METADATA = (
    b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",'
    b'"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"1"}}'
)
FORMS: list[Form[Any]] = [metadata_only(WIDGET), Form(WIDGET, Anything)]


@pytest.mark.regression
@pytest.mark.parametrize("form", FORMS)
def test_objects_of_every_form_know_their_kind(form: Form[Any]) -> None:
    obj = decode(form, AS_METADATA)
    assert obj.KIND == WIDGET
    for reference in (owner_reference(obj), controller_reference(obj), reference_to(obj)):
        assert (reference.api_version, reference.kind, reference.name, reference.uid) == (
            "example.com/v1",
            "Widget",
            "a",
            "u",
        )
    assert to_dict(obj)["kind"] == "Widget"
    assert b'"kind":"Widget"' in encode(obj)


@pytest.mark.regression
def test_objects_of_a_metadata_watch_know_their_kind() -> None:
    line = b'{"type":"ADDED","object":' + AS_METADATA + b"}\n"
    (event,) = EventDecoder(metadata_only(WIDGET)).feed(line)
    assert isinstance(event.object, PartialObject)
    assert event.object.KIND == WIDGET


@pytest.mark.regression
def test_what_does_not_fit_its_class_still_knows_its_kind() -> None:
    with pytest.raises(UndecodableObject) as caught:
        decode(Form(WIDGET, Anything), b'{"metadata":{"name":"a"},"spec":1}')
    assert caught.value.partial is not None
    assert caught.value.partial.KIND == WIDGET


@pytest.mark.parametrize("form", FORMS)
def test_they_compare_and_copy_like_other_objects(form: Form[Any]) -> None:
    obj = form.type(metadata=META)
    assert obj == decode(form, AS_METADATA)
    assert obj != Form(GIZMO, form.type, form.metadata_only).type(metadata=META)
    assert obj != form.type(metadata=ObjectMeta(name="b"))
    for twin in (pickle.loads(pickle.dumps(obj)), copy.copy(obj), copy.deepcopy(obj)):
        assert twin == obj
        assert type(twin) is form.type


@pytest.mark.parametrize("form", FORMS)
def test_equal_forms_are_one(form: Form[Any]) -> None:
    again = form_of(form.type)
    assert again == form
    assert hash(again) == hash(form)
    assert again.type is form.type
    assert form_of(form) is form


def test_knowing_its_kind_costs_an_object_nothing() -> None:
    assert metadata_only(WIDGET).type.__struct_fields__ == ("metadata",)
    assert metadata_only(WIDGET).type.__basicsize__ == PartialObject.__basicsize__


def test_a_class_of_the_forms_own_kind_is_used_as_it_is() -> None:
    class Widget(KubeObject, group="example.com", version="v1"):
        pass

    assert Form(WIDGET, Widget).type is Widget
    assert form_of(Widget).type is Widget


def test_a_new_object_of_a_form_is_of_its_kind() -> None:
    obj = Form(WIDGET, Anything).type(metadata=ObjectMeta(name="a"), spec={"size": 1})
    assert to_dict(obj) == {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "a"},
        "spec": {"size": 1},
    }


def test_an_object_of_no_kind_says_what_to_do() -> None:
    with pytest.raises(TypeError, match=r"use Form\(kind, Anything\)"):
        form_of(Anything)
    with pytest.raises(IllegalOwner, match="read it through a Form"):
        owner_reference(Anything(metadata=META))
