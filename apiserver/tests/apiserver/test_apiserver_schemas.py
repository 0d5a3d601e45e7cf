"""Whatever a definition says and an object contains, the response is an object or a rejection."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeshard.core.errors import ApiError
from kubeshard_apiserver import ApiServer
from kubeshard_apiserver.model import Target, WriteOptions
from kubeshard_apiserver.patching import MergePatch
from kubeshard_apiserver.schema import Validator, fill, prune
from kubeshard_apiserver.schema.formats import string_format

TYPES = ("string", "integer", "number", "boolean", "object", "array")
FORMATS = (
    "date",
    "date-time",
    "duration",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "byte",
)
RULES = (
    "self == self",
    "self.a == oldSelf.a",
    "has(self.a) && self.a > 1",
    "self.all(x, x > 1)",
    "size(self) < 3",
    "self + self == self",
    "oldSelf.hasValue()",
    "self[0] == 1",
    "self",
    "(",
)

names = st.sampled_from(("a", "b", "c-d", "namespace", "metadata", "kind", ""))
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6)
    | st.sampled_from(("2024-01-01", "1h", "10.0.0.1", "a@b", "/x", "%zz", "1.5e400s")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
numbers = st.integers(-3, 3) | st.floats(-3, 3) | st.none()
rules = st.lists(
    st.fixed_dictionaries(
        {"rule": st.sampled_from(RULES)},
        optional={
            "message": st.text(max_size=5),
            "messageExpression": st.sampled_from(("'a' + self", "string(self)", "''", ")")),
            "fieldPath": st.sampled_from((".a", "['a']", ".", "a", ".a[0]")),
            "optionalOldSelf": st.booleans(),
            "reason": st.sampled_from(("FieldValueInvalid", "FieldValueDuplicate", "Other")),
        },
    ),
    max_size=2,
)


def words(inner):
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from((*TYPES, "", "null")),
            "format": st.sampled_from((*FORMATS, "int32", "float", "odd")),
            "nullable": st.booleans(),
            "default": values,
            "enum": st.lists(values, max_size=3),
            "pattern": st.sampled_from(("^a", "[", "(?=a)", "\\p{L}", "a**")),
            "minimum": numbers,
            "maximum": numbers,
            "multipleOf": numbers,
            "exclusiveMinimum": st.booleans(),
            "minLength": st.integers(-1, 3),
            "maxLength": st.integers(-1, 3),
            "maxItems": st.integers(-1, 3),
            "minProperties": st.integers(-1, 3),
            "required": st.lists(names, max_size=2),
            "properties": st.dictionaries(names, inner, max_size=3),
            "items": inner,
            "additionalProperties": inner | st.booleans(),
            "allOf": st.lists(inner, max_size=2),
            "anyOf": st.lists(inner, max_size=2),
            "oneOf": st.lists(inner, max_size=2),
            "not": inner,
            "x-kubernetes-int-or-string": st.booleans(),
            "x-kubernetes-preserve-unknown-fields": st.booleans(),
            "x-kubernetes-embedded-resource": st.booleans(),
            "x-kubernetes-list-type": st.sampled_from(("set", "map", "atomic", "bag")),
            "x-kubernetes-list-map-keys": st.lists(names, max_size=2),
            "x-kubernetes-map-type": st.sampled_from(("granular", "atomic")),
            "x-kubernetes-validations": rules,
        },
    )


schemas = st.recursive(words(st.just({"type": "string"})), words, max_leaves=4)
checks = st.fixed_dictionaries(
    {},
    optional={
        "enum": st.lists(values, min_size=1, max_size=3),
        "pattern": st.sampled_from(("^a", "\\p{L}", "[0-9]+$")),
        "minimum": numbers,
        "maximum": numbers,
        "exclusiveMaximum": st.booleans(),
        "multipleOf": numbers,
        "maxLength": st.integers(0, 3),
        "maxItems": st.integers(0, 3),
        "maxProperties": st.integers(0, 2),
        "required": st.lists(names, max_size=2),
    },
)
said = st.fixed_dictionaries(
    {},
    optional={
        "format": st.sampled_from((*FORMATS, "int32", "float", "odd")),
        "nullable": st.booleans(),
        "allOf": st.lists(checks, min_size=1, max_size=2),
        "anyOf": st.lists(checks, min_size=1, max_size=2),
        "oneOf": st.lists(checks, min_size=1, max_size=2),
        "not": checks,
    },
)
kept = st.sampled_from(
    ({"rule": "self == self"}, {"rule": "self == oldSelf"}, {"rule": "type(self) == type(self)"})
)


def structured(inner):
    objects = st.dictionaries(
        names.filter(lambda name: name not in ("metadata", "kind", "")), inner, max_size=3
    )
    extras = st.sampled_from(({}, {"x-kubernetes-preserve-unknown-fields": True}))
    return st.one_of(
        st.builds(lambda fields, extra: {"type": "object", "properties": fields, **extra}, objects, extras),
        st.builds(lambda of: {"type": "object", "additionalProperties": of}, inner),
        st.builds(lambda of: {"type": "array", "items": of}, inner),
        st.builds(lambda of, ruled: {**of, "x-kubernetes-validations": [ruled]}, inner, kept),
    )


plain = st.sampled_from([{"type": type_} for type_ in TYPES[:4]] + [{"x-kubernetes-int-or-string": True}])
structural = st.recursive(
    st.builds(lambda *parts: {**parts[2], **parts[1], **parts[0]}, plain, said, checks),
    structured,
    max_leaves=5,
)


def definition(schema):
    root = {"type": "object", "properties": {"spec": schema}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": root}}
    return {
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Cluster",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [version],
        },
    }


def write(verb, *arguments):
    """Returns the error, or None. Anything but a rejection in the server's words fails the test."""
    try:
        verb(*arguments)
    except ApiError as error:
        return error
    return None


def refused_well(error):
    return error is None or 400 <= error.code < 500


@given(schema=schemas)
def test_any_schema_is_taken_or_refused(schema):
    server = ApiServer()
    definitions = server.registry.find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    assert refused_well(write(server.create, Target(definitions), definition(schema)))


@given(schema=structural, specs=st.lists(values, min_size=2, max_size=3))
def test_any_object_is_taken_or_refused(schema, specs):
    server = ApiServer()
    definitions = server.registry.find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    refused = write(server.create, Target(definitions), definition(schema))
    assert refused_well(refused)
    if refused is not None:
        # Old values cannot be found in every place, and what a rule may cost depends on where it is.
        assert re.search("uncorrelatable|exceeds budget", refused.message), refused.message
        return
    things = server.registry.find("example.com", "v1", "things")
    for spec in specs:
        body = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": spec}
        for live in server.store.objects(things.group_resource).values():
            body["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"]
            assert refused_well(write(server.replace, Target(things, "", "a"), body))
            break
        else:
            assert refused_well(write(server.create, Target(things), body))


@given(schema=schemas, value=values)
def test_a_stored_schema_can_be_used_whatever_it_says(schema, value):
    """Another release may have accepted a schema that this one would reject."""
    prune(schema, value)
    fill(schema, value)
    Validator(schema).errors(value)


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"$schema": "http://json-schema.org/schema#"}, ["OpenAPIV3Schema 'schema' is not supported"]),
        ({"$ref": "#/a"}, ["$ref is not supported"]),
        (
            {"type": "array", "items": [{"type": "string"}]},
            ["items must be a schema object and not an array"],
        ),
    ],
)
def test_of_a_schema_without_structure_only_that_is_said(schema, told):
    server = ApiServer()
    definitions = server.registry.find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    refused = write(server.create, Target(definitions), definition(schema))
    assert [cause["message"].split(": ")[-1] for cause in refused.causes] == told


@pytest.mark.parametrize("type_", ["array", "object", "string"])
def test_a_set_of_what_is_no_scalar_is_warned_of_once_and_not_again(type_):
    server, warnings = ApiServer(), []
    target = Target(server.registry.find("apiextensions.k8s.io", "v1", "customresourcedefinitions"))
    items = {"type": type_, "x-kubernetes-map-type": "atomic"} if type_ == "object" else {"type": type_}
    if type_ == "array":
        items |= {"items": {"type": "string"}, "x-kubernetes-list-type": "atomic"}
    one = {"type": "array", "x-kubernetes-list-type": "set", "items": items}
    options = WriteOptions(warnings=warnings)
    body = definition({"type": "object", "properties": {"a": one, "b": one}})
    server.create(target, body, options)
    told = f'x-kubernetes-list-type: set for items of type "{type_}" is not supported by '
    assert [each[: len(told)] for each in warnings] == ([] if type_ == "string" else [told])
    warnings.clear()
    categories = MergePatch({"spec": {"names": {"categories": ["all"]}}})
    server.patch(replace(target, name=body["metadata"]["name"]), categories, options)
    assert warnings == []


@given(name=st.sampled_from(FORMATS), text=st.text())
def test_a_format_holds_or_does_not(name, text):
    assert string_format(name)(text) in (True, False)


@pytest.mark.system
def test_without_the_extra_a_definition_with_rules_is_refused_by_its_name():
    script = """
import sys
sys.modules["cel_expr_python"] = None
import test_apiserver_schemas as own
from kubeshard_apiserver import ApiServer
from kubeshard_apiserver.model import Target, WriteOptions
server = ApiServer()
definitions = Target(server.registry.find("apiextensions.k8s.io", "v1", "customresourcedefinitions"))
ruled = {"type": "object", "x-kubernetes-validations": [{"rule": "true"}]}
try:
    server.create(definitions, own.definition(ruled))
except own.ApiError as error:
    print(error.message)
server.create(definitions, own.definition({"type": "object"}))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=Path(__file__).parent
    )
    assert "pip install './kubeshard[apiserver]'" in done.stdout


@pytest.mark.parametrize(("depth", "most"), [(2, 1000), (3, 100), (4, 30)])
def test_a_rule_that_takes_too_long_is_stopped_though_it_could_be_defined(depth, most):
    text = "true"
    for level in range(depth):
        text = f"self.all(x{level}, {text})"
    items = {"type": "array", "items": {"type": "integer"}, "maxItems": most}
    items |= {"x-kubernetes-validations": [{"rule": text}]}
    server = ApiServer()
    definitions = server.registry.find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    server.create(Target(definitions), definition(items))
    things = server.registry.find("example.com", "v1", "things")
    body = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": [1] * most}
    with pytest.raises(ApiError, match="actual cost limit exceeded"):
        server.create(Target(things), body)
