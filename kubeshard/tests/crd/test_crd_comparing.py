"""The breaking changes of a definition, one by one; and, on random values, that no narrowing change is missed."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeshard.crd.breaking_changes import compared
from kubeshard_apiserver.schema.validation import Validator

STRING = {"type": "string"}
INTEGER = {"type": "integer"}


def a_definition(schema: Any = None, **spec: Any) -> dict[str, Any]:
    """Returns a definition with one version and this schema of `.it`, unless `spec` says otherwise."""
    properties = {"it": schema} if schema is not None else {}
    names = {"kind": "Thing", "plural": "things", "shortNames": ["th"], **spec.pop("names", {})}
    return {
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": names,
            "versions": [a_version("v1", {"type": "object", "properties": properties}, storage=True)],
            **spec,
        },
    }


def a_version(name: str, schema: Any = None, **fields: Any) -> dict[str, Any]:
    return {
        "name": name,
        "served": True,
        "storage": False,
        "schema": {"openAPIV3Schema": schema or {"type": "object"}},
        **fields,
    }


def differences(old: Any, new: Any) -> list[tuple[bool, str, str]]:
    return [(c.breaking, f"{c.version} {c.path}".strip(), c.message) for c in compared([old], [new])]


BREAKING = [
    (STRING, INTEGER, "the type was string, is integer"),
    ({"type": "number"}, INTEGER, "the type was number, is integer"),
    ({"x-kubernetes-preserve-unknown-fields": True}, STRING, "the type was anything, is string"),
    ({"x-kubernetes-int-or-string": True}, STRING, "the type was integer or string, is string"),
    ({**STRING, "nullable": True}, STRING, "null is no longer allowed"),
    ({**INTEGER, "format": "int64"}, {**INTEGER, "format": "int32"}, "the format was 'int64', is 'int32'"),
    (STRING, {**STRING, "format": "date-time"}, "the format was none, is 'date-time'"),
    ({**STRING, "enum": ["a", "b"]}, {**STRING, "enum": ["a"]}, "b may no longer be there"),
    (STRING, {**STRING, "enum": ["a"]}, "only a may be there"),
    (INTEGER, {**INTEGER, "minimum": 1}, "minimum was none, is 1"),
    ({**INTEGER, "minimum": 1}, {**INTEGER, "minimum": 2}, "minimum was 1, is 2"),
    (
        {**INTEGER, "minimum": 1},
        {**INTEGER, "minimum": 1, "exclusiveMinimum": True},
        "minimum 1 itself is no longer",
    ),
    ({**INTEGER, "maximum": 9}, {**INTEGER, "maximum": 8}, "maximum was 9, is 8"),
    (STRING, {**STRING, "maxLength": 9}, "maxLength was none, is 9"),
    ({**STRING, "minLength": 1}, {**STRING, "minLength": 2}, "minLength was 1, is 2"),
    (INTEGER, {**INTEGER, "multipleOf": 2}, "multipleOf was none, is 2"),
    (STRING, {**STRING, "pattern": "^a"}, "the pattern was none, is '^a'"),
    (STRING, {**STRING, "x-kubernetes-validations": [{"rule": "self != ''"}]}, "a rule is new: self != ''"),
    (
        {"type": "array", "items": STRING},
        {"type": "array", "items": STRING, "x-kubernetes-list-type": "set"},
        "x-kubernetes-list-type was none, is 'set'",
    ),
    (
        {"type": "object", "additionalProperties": STRING},
        {"type": "object", "properties": {"a": STRING}},
        "arbitrary keys are no longer kept",
    ),
    (
        {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        {"type": "object"},
        "unknown fields are no longer kept",
    ),
    (
        {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        {"type": "object", "additionalProperties": STRING},
        "arbitrary values now have to fit a schema",
    ),
    (STRING, {**STRING, "not": {"pattern": "^b"}}, "another not"),
]

WIDER = [
    (INTEGER, {"type": "number"}, "the type was integer, is number"),
    (STRING, {"x-kubernetes-int-or-string": True}, "the type was string, is integer or string"),
    (STRING, {"x-kubernetes-preserve-unknown-fields": True}, "the type was string, is anything"),
    ({**INTEGER, "format": "int32"}, {**INTEGER, "format": "int64"}, "the format was 'int32', is 'int64'"),
    ({**STRING, "enum": ["a"]}, {**STRING, "enum": ["a", "b"]}, "b may be there, too"),
    ({**INTEGER, "minimum": 2}, {**INTEGER, "minimum": 1}, "minimum was 2, is 1"),
    ({**INTEGER, "maximum": 2}, INTEGER, "maximum was 2, is none"),
    (STRING, {**STRING, "minLength": 0}, "minLength was none, is 0"),
    ({**INTEGER, "multipleOf": 4}, {**INTEGER, "multipleOf": 2}, "multipleOf was 4, is 2"),
    ({**STRING, "pattern": "^a"}, STRING, "the pattern was '^a', is none"),
    ({**STRING, "x-kubernetes-validations": [{"rule": "true"}]}, STRING, "a rule is gone: true"),
    ({**STRING, "default": "a"}, {**STRING, "default": "b"}, "the default was 'a', is 'b'"),
]


@pytest.mark.parametrize(("old", "new", "message"), BREAKING, ids=[case[2] for case in BREAKING])
def test_what_is_narrower_breaks(old: Any, new: Any, message: str) -> None:
    found = differences(a_definition(old), a_definition(new))
    assert any(breaks and where == "v1 .it" and message in says for breaks, where, says in found)


@pytest.mark.parametrize(("old", "new", "message"), WIDER, ids=[case[2] for case in WIDER])
def test_what_is_wider_is_told_and_does_not_break(old: Any, new: Any, message: str) -> None:
    found = differences(a_definition(old), a_definition(new))
    assert (False, "v1 .it", message) in found
    assert not any(breaking for breaking, _, _ in found)


def an_object(properties: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **fields}


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        (
            an_object({"a": STRING}),
            an_object({}),
            (True, "v1 .it.a", "the field is gone; stored values are pruned"),
        ),
        (
            an_object({"a": STRING}),
            an_object({}, **{"x-kubernetes-preserve-unknown-fields": True}),
            (False, "v1 .it.a", "the field is kept, but no longer described"),
        ),
        (an_object({}), an_object({"a": STRING}), (False, "v1 .it.a", "the field is new")),
        (
            an_object({"a": STRING}),
            an_object({"a": STRING}, required=["a"]),
            (True, "v1 .it.a", "the field is required"),
        ),
        (
            an_object({"a": {**STRING, "default": "x"}}),
            an_object({"a": {**STRING, "default": "x"}}, required=["a"]),
            (False, "v1 .it.a", "the field is required, and has a default"),
        ),
        (
            an_object({"a": {"type": "array", "items": an_object({"b": INTEGER})}}),
            an_object({"a": {"type": "array", "items": an_object({"b": STRING})}}),
            (True, "v1 .it.a[].b", "the type was integer, is string"),
        ),
        (
            an_object({"a": {"type": "object", "additionalProperties": INTEGER}}),
            an_object({"a": {"type": "object", "additionalProperties": STRING}}),
            (True, "v1 .it.a[*]", "the type was integer, is string"),
        ),
        (
            an_object({"a": INTEGER}),
            {"type": "object", "additionalProperties": STRING},
            (True, "v1 .it.a", "the type was integer, is string"),
        ),
    ],
)
def test_fields_are_compared_where_they_are(old: Any, new: Any, found: Any) -> None:
    assert found in differences(a_definition(old), a_definition(new))


def test_a_required_field_that_loses_its_default_breaks() -> None:
    old = an_object({"a": {**STRING, "default": "x"}}, required=["a"])
    new = an_object({"a": STRING}, required=["a"])
    found = differences(a_definition(old), a_definition(new))
    assert (True, "v1 .it.a", "the field is required and has no default any more") in found


def test_words_do_not_count() -> None:
    old = a_definition({**STRING, "description": "a", "title": "b"})
    assert differences(old, a_definition({**STRING, "description": "c"})) == []


V1, V2 = a_version("v1", storage=True), a_version("v2")
STATUS = {"subresources": {"status": {}}}
WEBHOOK = {"conversion": {"strategy": "Webhook"}}


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ({}, {"scope": "Cluster"}, (True, "", "another scope: Namespaced became Cluster")),
        ({}, {"names": {"plural": "thingies"}}, (True, "", "another plural: things became thingies")),
        ({}, {"names": {"shortNames": []}}, (True, "", "the short name th is gone")),
        ({"versions": [V1, V2]}, {"versions": [V1]}, (True, "v2", "the version is gone")),
        (
            {"versions": [V1, V2]},
            {"versions": [{**V2, "storage": True}]},
            (True, "v1", "the version is gone; objects are stored in it"),
        ),
        ({"versions": [V1]}, {"versions": [V1, V2]}, (False, "v2", "the version is new")),
        (
            {"versions": [V1, V2]},
            {"versions": [V1, {**V2, "served": False}]},
            (True, "v2", "the version is no longer served"),
        ),
        (
            {"versions": [V1, V2]},
            {"versions": [V1, {**V2, "deprecated": True}]},
            (False, "v2", "the version is deprecated"),
        ),
        ({"versions": [V1 | STATUS]}, {"versions": [V1]}, (True, "v1", "the subresource status is gone")),
        (
            {"versions": [V1]},
            {"versions": [V1 | STATUS]},
            (
                True,
                "v1",
                "there is a subresource status: who wrote status with the object writes it in vain",
            ),
        ),
        (
            {"versions": [V1]},
            {"versions": [{**V1, "subresources": {"scale": {}}}]},
            (False, "v1", "there is a subresource scale"),
        ),
        (
            {"versions": [{**V1, "selectableFields": [{"jsonPath": ".a"}]}]},
            {"versions": [V1]},
            (True, "v1 .a", "the field can no longer be selected by"),
        ),
        (
            {"versions": [V1, V2], **WEBHOOK},
            {"versions": [V1, V2]},
            (True, "", "no webhook converts between versions any more"),
        ),
        (
            {"versions": [V1, V2]},
            {"versions": [{**V1, "storage": False}, {**V2, "storage": True}]},
            (False, "v2", "objects are stored in this version, no longer in v1"),
        ),
    ],
)
def test_versions_names_and_subresources_are_compared(old: Any, new: Any, found: Any) -> None:
    assert found in differences(a_definition(**deepcopy(old)), a_definition(**deepcopy(new)))


def test_another_stored_version_holds_what_the_former_one_holds_or_a_webhook_converts() -> None:
    was = a_version("v1", an_object({"a": STRING}), storage=True)
    now = a_version("v2", an_object({}))
    old = a_definition(versions=[was, now])
    new = a_definition(versions=[{**was, "storage": False}, {**now, "storage": True}])
    lost = "the field is gone; stored values are pruned, compared with v1, and no webhook converts"
    assert (True, "v2 .a", lost) in differences(old, new)
    old["spec"] |= WEBHOOK
    new["spec"] |= WEBHOOK
    assert not any(breaking for breaking, _, _ in differences(old, new))


def test_definitions_are_compared_by_name() -> None:
    one, other = a_definition(), a_definition()
    other["metadata"] = {"name": "others.example.com"}
    assert [str(change) for change in compared([one], [other])] == [
        "ok       others.example.com: the definition is new",
        "breaking things.example.com: the definition is gone, and with it all objects",
    ]


bounds = st.integers(-2, 3)
integers = st.fixed_dictionaries(
    {"type": st.just("integer")},
    optional={
        "minimum": bounds,
        "maximum": bounds,
        "exclusiveMinimum": st.booleans(),
        "multipleOf": st.integers(1, 3),
        "nullable": st.booleans(),
    },
)
strings = st.fixed_dictionaries(
    {"type": st.just("string")},
    optional={
        "enum": st.lists(st.sampled_from(["", "a", "ab"]), min_size=1, max_size=2, unique=True),
        "minLength": st.integers(0, 2),
        "maxLength": st.integers(0, 2),
        "nullable": st.booleans(),
    },
)
Pair = tuple[dict[str, Any], dict[str, Any]]


def edited(old: dict[str, Any], other: dict[str, Any], words: list[str]) -> Pair:
    """Returns `old`, and a copy of it with these keywords taken from `other`."""
    new = {word: value for word, value in old.items() if word not in words}
    return old, {**new, **{word: other[word] for word in words if word in other}}


def edits(schemas: st.SearchStrategy[dict[str, Any]], *words: str) -> st.SearchStrategy[Pair]:
    chosen = st.lists(st.sampled_from(words), min_size=1, max_size=2, unique=True)
    return st.builds(edited, schemas, schemas, chosen)


def arrays(inner: Pair, lengths: Pair) -> Pair:
    old, new = ({"type": "array", "items": items, **more} for items, more in zip(inner, lengths, strict=True))
    return old, new


def objects(inner: dict[str, Pair], required: tuple[list[str], list[str]]) -> Pair:
    old, new = (
        an_object(
            {name: pair[side] for name, pair in inner.items()}, required=[n for n in names if n in inner]
        )
        for side, names in enumerate(required)
    )
    return old, new


at_most = st.fixed_dictionaries({}, optional={"maxItems": st.integers(0, 2), "minItems": st.integers(0, 1)})
names = st.lists(st.sampled_from("xy"), unique=True)
pairs: st.SearchStrategy[Pair] = st.recursive(
    edits(integers, "minimum", "maximum", "exclusiveMinimum", "multipleOf", "nullable")
    | edits(strings, "enum", "minLength", "maxLength", "nullable")
    | st.tuples(strings, integers),
    lambda inner: (
        st.builds(arrays, inner, st.tuples(at_most, at_most))
        | st.builds(
            objects, st.dictionaries(st.sampled_from("xy"), inner, max_size=2), st.tuples(names, names)
        )
    ),
    max_leaves=3,
)
values = st.recursive(
    st.sampled_from([-3, -2, -1, 0, 1, 2, 3, 4, "", "a", "ab", None]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xy"), inner, max_size=2),
    max_leaves=3,
)


@pytest.mark.long
@settings(max_examples=max(100, settings.default.max_examples))
@given(pairs, st.lists(values, min_size=20, max_size=30))
def test_what_an_api_server_would_accept_no_longer_counts_as_breaking(pair: Pair, given: list[Any]) -> None:
    accepted, accepts = (Validator(schema) for schema in pair)
    refused = [value for value in given if not accepted.errors(value) and accepts.errors(value)]
    breaking = any(breaks for breaks, _, _ in differences(*map(a_definition, pair)))
    assert breaking or not refused


@given(pairs)
def test_what_is_the_same_differs_in_nothing(pair: Pair) -> None:
    assert differences(a_definition(pair[0]), a_definition(deepcopy(pair[0]))) == []
