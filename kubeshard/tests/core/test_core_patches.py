import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeshard.core.errors import Invalid, PatchTestFailed
from kubeshard.core.patches import (
    add,
    apply_merge_patch,
    json_patch,
    merge_patch,
    pointer,
    remove,
    replace,
    test,
)
from kubeshard_apiserver.json_patch import apply_json_patch

scalars = st.integers(-3, 3) | st.booleans() | st.text("ab", max_size=2)
documents = st.dictionaries(
    st.sampled_from("abc"),
    st.recursive(
        scalars | st.lists(scalars, max_size=2),
        lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        max_leaves=8,
    ),
    max_size=3,
)


@given(documents, documents)
def test_a_computed_merge_patch_turns_the_base_into_the_desired(base, desired):
    assert apply_merge_patch(base, merge_patch(base, desired)) == desired


@given(documents)
def test_nothing_to_do_is_an_empty_patch(document):
    assert merge_patch(document, document) == {}


def test_true_and_one_are_different_values():
    assert merge_patch({"a": 1, "b": [0]}, {"a": True, "b": [False]}) == {"a": True, "b": [False]}


def test_pointers_escape_slashes_and_tildes():
    assert (
        pointer("metadata", "labels", "shard.example.com/a~b") == "/metadata/labels/shard.example.com~1a~0b"
    )


def test_operations_apply_in_order_and_leave_the_document_alone():
    document = {"a": [1, 2], "x/y": {"b": 1}}
    ops = [
        test(pointer("x/y", "b"), 1),
        add("/a/-", 3),
        add("/a/0", 0),
        replace("/a/1", 10),
        remove(pointer("x/y", "b")),
        {"op": "copy", "from": "/a", "path": "/c"},
        {"op": "move", "from": "/c/0", "path": "/d"},
    ]
    assert apply_json_patch(document, ops) == {"a": [0, 10, 2, 3], "x/y": {}, "c": [10, 2, 3], "d": 0}
    assert document == {"a": [1, 2], "x/y": {"b": 1}}


@pytest.mark.parametrize("op", [test("/a", 2), test("/a", True), test("/b", None)])
def test_a_test_that_does_not_hold_refuses_the_patch(op):
    with pytest.raises(PatchTestFailed):
        apply_json_patch({"a": 1, "b": 0}, [op])


@pytest.mark.parametrize(
    "op",
    [
        remove("/x"),
        replace("/x", 1),
        add("/x/y", 1),
        add("/l/5", 1),
        remove("/l/-"),
        test("/x", 1),
        {"op": "?", "path": ""},
        remove("a"),
    ],
)
def test_what_the_server_would_refuse_is_invalid(op):
    with pytest.raises(Invalid):
        apply_json_patch({"l": []}, [op])


@given(documents, documents)
def test_a_computed_json_patch_turns_the_base_into_the_desired(base, desired):
    assert apply_json_patch(base, list(json_patch(base, desired))) == desired
