"""The fields that an object declares, and therefore sends: all except those left at a default of None or UNSET."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeshard.client.write_records import apply_body
from kubeshard.core import UNSET, KubeObject, ObjectMeta, Struct, UnsetType, decode, encode, field, to_dict
from kubeshard.core.objects import form_of


class Part(Struct):
    LIMIT: ClassVar[int] = 3

    replicas: int = 1
    large: int = 100_000
    title: str = ""
    on: bool = True
    tags: tuple[str, ...] = ()
    names: list[str] = []  # noqa: RUF012 - msgspec copies it
    options: Mapping[str, str] = field(default_factory=dict)
    named: int = field(default=0, name="otherName")
    maybe: int | None = None
    three: int | UnsetType | None = UNSET
    seven: int | None = 7


class Status(Struct):
    ready: int = 0


class Thing(KubeObject, group="example.com", version="v1"):
    spec: Part = field(default_factory=Part)
    status: Status = field(default_factory=Status)


ALL = {
    "replicas": 1,
    "large": 100_000,
    "title": "",
    "on": True,
    "tags": [],
    "names": [],
    "options": {},
    "otherName": 0,
    "seven": 7,
}


def sent(part: Part) -> Any:
    return msgspec.json.decode(encode(Thing(spec=part)))["spec"]


@pytest.mark.regression
def test_values_equal_to_their_class_defaults_are_encoded() -> None:
    assert sent(Part()) == ALL
    assert sent(Part(replicas=1, title="", on=True, tags=(), options={}, named=0)) == ALL
    # to_builtins leaves tuples unchanged.
    assert msgspec.json.decode(msgspec.json.encode(to_dict(Thing())["spec"])) == ALL


def test_none_is_encoded_where_it_is_not_the_default() -> None:
    assert sent(Part(maybe=None, three=None, seven=None)) == {**ALL, "three": None, "seven": None}
    assert sent(Part(maybe=0, three=0)) == {**ALL, "maybe": 0, "three": 0}


def test_absent_null_and_set_are_three_things_for_a_field_declared_with_unset() -> None:
    form = form_of(Thing)
    read = [
        decode(form, b'{"metadata":{},"spec":%b}' % body).spec.three
        for body in (b"{}", b'{"three":null}', b'{"three":1}')
    ]
    assert read == [UNSET, None, 1]


def test_a_class_may_omit_its_defaults() -> None:
    class Sparse(Struct, omit_defaults=True):
        title: str = ""
        count: int = 0

    class More(Sparse):
        flag: bool = False

    class Holder(Struct):
        more: More = field(default_factory=More)
        count: int = 0

    assert msgspec.to_builtins(More()) == {}
    assert msgspec.to_builtins(More(count=1)) == {"count": 1}
    assert msgspec.to_builtins(Holder()) == {"more": {}, "count": 0}


def test_metadata_omits_what_nobody_set() -> None:
    assert to_dict(Thing(metadata=ObjectMeta(name="a")))["metadata"] == {"name": "a"}


def test_fields_are_given_by_keyword_only() -> None:
    with pytest.raises(TypeError):
        Part(1)  # type: ignore[misc]

    class Late(Struct):
        optional: int = 0
        required: int

    assert Late(required=1).optional == 0


def test_defaults_that_could_be_changed_are_still_refused_or_copied() -> None:
    with pytest.raises(TypeError, match="mutable"):

        class Bad(Struct):
            items: list[int] = [1]  # noqa: RUF012 - that is the point

    assert Part().names is not Part().names
    assert Part.LIMIT == 3


def test_defaults_are_still_values_of_the_class() -> None:
    part = Part()
    assert (part.replicas, part.large, part.title, part.on, part.tags, part.options) == (
        1,
        100_000,
        "",
        True,
        (),
        {},
    )
    assert msgspec.json.decode(b"{}", type=Part) == part


@given(st.builds(Part, replicas=st.integers(0, 3), title=st.sampled_from(["", "a"]), on=st.booleans()))
def test_what_is_encoded_decodes_to_the_same(part: Part) -> None:
    assert msgspec.json.decode(msgspec.json.encode(part), type=Part) == part


def test_a_status_that_nobody_set_is_applied_in_its_subresource_only() -> None:
    assert "status" not in apply_body(Thing())
    assert apply_body(Thing(), "status")["status"] == {"ready": 0}
    assert apply_body(Thing(status=Status(ready=1)))["status"] == {"ready": 1}
