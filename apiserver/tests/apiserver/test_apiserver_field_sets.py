"""Field sets, and the questions that are answered from FieldsV1 without reading it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kubeshard_apiserver.apply.fieldset import contains, from_fields_v1, to_fields_v1
from kubeshard_apiserver.apply.managed_fields import ManagedFieldsEntry

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
