"""Field sets: trees in the form of FieldsV1, whose operations are those of sets of paths."""

from __future__ import annotations

from copy import deepcopy

from hypothesis import given
from hypothesis import strategies as st

from kubeshard_apiserver.apply.field_manager import merge, remove
from kubeshard_apiserver.apply.fieldset import (
    _every_key,
    compare,
    contains,
    difference,
    fields_of,
    from_fields_v1,
    intersection,
    paths_of,
    union,
)
from kubeshard_apiserver.apply.shape import STRING, Path, Shape

elements = st.sampled_from(["f:a", "f:b", 'k:{"uid":"1"}', 'v:"x"'])
paths = st.lists(elements, min_size=1, max_size=3).map(tuple)
sets_of_paths = st.frozensets(paths, max_size=8)
Paths = frozenset[Path]


def tree(fields: Paths) -> dict:
    """The paths as a client may send them: in any order, and with dots where none are needed."""
    root: dict = {}
    for path in sorted(fields, reverse=True):
        node = root
        for element in path:
            node = node.setdefault(element, {})
        node["."] = {}
    return root


def read(fields: Paths) -> dict:
    return from_fields_v1(tree(fields))


def as_written(fields: dict) -> Paths:
    """The paths of a set, which is in the form in which the server writes it."""
    for element, node in fields.items():
        assert element != "." or node == {}
        assert node != {".": {}}
        as_written(node)
    assert list(fields) == sorted(fields)
    return frozenset(paths_of(fields))


@given(sets_of_paths)
def test_what_was_sent_is_read_into_the_form_in_which_it_is_written(fields):
    assert as_written(read(fields)) == fields
    assert from_fields_v1(read(fields)) == read(fields)


@given(sets_of_paths, paths)
def test_a_set_contains_its_paths_and_no_others(fields, path):
    assert contains(read(fields), path) == (path in fields)


@given(sets_of_paths, sets_of_paths)
def test_operations_on_trees_are_those_on_their_sets_of_paths_and_change_neither(fields, others):
    one, two = read(fields), read(others)
    before = deepcopy((one, two))
    assert as_written(union(one, two)) == fields | others
    assert as_written(difference(one, two)) == fields - others
    assert as_written(intersection(one, two)) == fields & others
    assert (one, two) == before


@given(sets_of_paths, sets_of_paths)
def test_what_changes_nothing_returns_the_same_set(fields, others):
    one = read(fields)
    assert not one or union(one, read(fields & others)) is one
    assert difference(one, read(others - fields)) is one


ITEM = Shape("map", {"name": STRING, "value": STRING})
ENV = Shape("list", items=ITEM, list_type="map", keys={"name": None})
X, Y = 'k:{"name":"X"}', 'k:{"name":"Y"}'
OF_Y = {".": {}, "f:name": {}, "f:value": {}}


def env(*items):
    return [{"name": name, "value": value} for name, value in items]


def test_items_with_one_key_are_owned_changed_and_removed_as_a_whole_and_others_leave_them_alone():
    twice = env(("X", "1"), ("Y", "3"), ("X", "2"))
    assert fields_of(ENV, twice) == {X: {}, Y: OF_Y}
    assert compare(ENV, twice, env(("X", "1"), ("Y", "3"))).modified == {X: {}}
    assert compare(ENV, env(("Y", "3")), twice).added == {X: {}}
    changed = compare(ENV, twice, env(("X", "1"), ("Y", "4"), ("X", "2")))
    assert changed == ({}, {Y: {"f:value": {}}}, {})
    assert sorted(merge(ENV, twice, env(("Y", "4"))), key=str) == sorted(
        env(("X", "1"), ("Y", "4"), ("X", "2")), key=str
    )
    assert merge(ENV, twice, env(("X", "9"))) == env(("X", "9"), ("Y", "3"))
    assert remove(ENV, twice, {Y: OF_Y}, {}) == env(("X", "1"), ("X", "2"))
    assert remove(ENV, twice, {X: {}}, {}) == env(("Y", "3"))


def test_what_is_remembered_of_comparisons_is_small():
    wide = Shape("map", {f"a{number}": STRING for number in range(50)})
    named = Shape("map", items=STRING)

    def remembered(size: int) -> int:
        compare(wide, {}, {"a0": "x" * size})
        compare(named, {}, {f"{size}-{number}": "" for number in range(size)})
        compare(Shape("map", {"map": named}), {}, {"map": {f"{size}-{number}": "" for number in range(size)}})
        return len(wide.compared[0]) + len(wide.compared[1]) + _every_key.cache_info().currsize

    few = remembered(10)
    assert remembered(20) > few
    few = remembered(30)
    assert remembered(100_000) == few
