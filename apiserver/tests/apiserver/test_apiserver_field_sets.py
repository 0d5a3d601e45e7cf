"""Field sets, and the questions that are answered from FieldsV1 without reading it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kubeshard_apiserver.apply.field_manager import merge, remove
from kubeshard_apiserver.apply.fieldset import compare, contains, fields_of, from_fields_v1, to_fields_v1
from kubeshard_apiserver.apply.managed_fields import ManagedFieldsEntry
from kubeshard_apiserver.apply.shape import STRING, Shape

paths = st.lists(st.sampled_from(["f:a", "f:b", 'k:{"uid":"1"}', 'v:"x"']), min_size=1, max_size=3).map(tuple)
field_sets = st.frozensets(paths, max_size=8)


@given(field_sets)
def test_a_field_set_is_read_as_it_was_written(fields):
    assert from_fields_v1(to_fields_v1(fields)) == fields


@given(field_sets, paths)
def test_fields_v1_contains_the_paths_of_the_set_and_no_others(fields, path):
    assert contains(to_fields_v1(fields), path) == (path in fields)


@given(field_sets, field_sets)
def test_an_entry_answers_the_same_whether_it_knows_the_set_or_its_wire_form(fields, others):
    known = ManagedFieldsEntry(fields, "v1")
    sent = ManagedFieldsEntry(None, "v1", wire=to_fields_v1(fields))
    for entry in (known, sent):
        assert entry.fields == fields
        assert entry.has_any(others) == bool(fields & others)
        assert entry.has_all(others) == (others <= fields)
        assert entry.is_empty == (not fields)


ITEM = Shape("map", {"name": STRING, "value": STRING})
ENV = Shape("list", items=ITEM, list_type="map", keys={"name": None})
X, Y = ('k:{"name":"X"}',), ('k:{"name":"Y"}',)


def env(*items):
    return [{"name": name, "value": value} for name, value in items]


def test_items_with_one_key_are_owned_changed_and_removed_as_a_whole_and_others_leave_them_alone():
    twice = env(("X", "1"), ("Y", "3"), ("X", "2"))
    of_y = {Y, (*Y, "f:name"), (*Y, "f:value")}
    assert fields_of(ENV, twice) == {X, *of_y}
    assert compare(ENV, twice, env(("X", "1"), ("Y", "3"))).modified == {X}
    assert compare(ENV, env(("Y", "3")), twice).added == {X}
    assert compare(ENV, twice, env(("X", "1"), ("Y", "4"), ("X", "2"))) == (set(), {(*Y, "f:value")}, set())
    assert sorted(merge(ENV, twice, env(("Y", "4"))), key=str) == sorted(
        env(("X", "1"), ("Y", "4"), ("X", "2")), key=str
    )
    assert merge(ENV, twice, env(("X", "9"))) == env(("X", "9"), ("Y", "3"))
    assert remove(ENV, twice, frozenset(of_y), frozenset()) == env(("X", "1"), ("X", "2"))
    assert remove(ENV, twice, frozenset({X}), frozenset()) == env(("Y", "3"))
