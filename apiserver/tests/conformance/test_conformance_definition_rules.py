"""Validation of definitions, and what happens to their names, their versions and their deletion."""

import pytest
from conformance_api import until
from conformance_kinds import DEFINITIONS
from conformance_schemas import Things, defined, fields


@pytest.fixture
def group(name):
    """Returns a group that no other test case uses."""
    return f"{name}.example.com"


@pytest.fixture
def things(api, group, ns):
    return Things(api, group, ns)


INVALID, REQUIRED, FORBIDDEN = "FieldValueInvalid", "FieldValueRequired", "FieldValueForbidden"
STRING, INTEGER = {"type": "string"}, {"type": "integer"}
SCHEMA = "spec.validation.openAPIV3Schema"
SPEC = f"{SCHEMA}.properties[spec]"
LIST, KEYS, MAP = "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type"
PRESERVE, EMBEDDED = "x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"


@pytest.mark.parametrize(
    ("schema", "field", "reason", "message"),
    [
        ({"type": "array"}, "items", REQUIRED, "Required value: must be specified"),
        (
            {"type": "array", "items": {}},
            "items.type",
            REQUIRED,
            "Required value: must not be empty for specified array items",
        ),
        (
            {"type": "strin"},
            "type",
            "FieldValueNotSupported",
            'Unsupported value: "strin": supported values: "array", "boolean", "integer", "number", "object", "string"',
        ),
        (
            {**fields(a=STRING), "additionalProperties": STRING},
            "additionalProperties",
            FORBIDDEN,
            "Forbidden: additionalProperties and properties are mutual exclusive",
        ),
        (
            {"type": "array", "items": STRING, "uniqueItems": True},
            "uniqueItems",
            FORBIDDEN,
            "Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        ),
        (
            {"type": "string", "oneOf": [{"type": "string"}]},
            "oneOf[0].type",
            FORBIDDEN,
            "Forbidden: must be empty to be structural",
        ),
        (
            {"type": "string", "allOf": [{"description": "x"}]},
            "allOf[0].description",
            FORBIDDEN,
            "Forbidden: must be empty to be structural",
        ),
        (
            {**fields(a=STRING), "not": {"properties": {"a": {"nullable": True}}}},
            "not.properties[a].nullable",
            FORBIDDEN,
            "Forbidden: must be false to be structural",
        ),
        (
            {"type": "string", "anyOf": [{"default": "x"}]},
            "anyOf[0].default",
            FORBIDDEN,
            "Forbidden: must be undefined to be structural",
        ),
        (
            {"type": "string", "pattern": "[a"},
            "pattern",
            INVALID,
            'Invalid value: "[a": must be a valid regular expression, but isn\'t: error '
            "parsing regexp: missing closing "
            "]: `[a`",
        ),
        (
            {"type": "string", "pattern": "(?=a)"},
            "pattern",
            INVALID,
            'Invalid value: "(?=a)": must be a valid regular expression, but isn\'t: error parsing regexp: invalid or '
            "unsupported Perl syntax: `(?=`",
        ),
        (
            {"type": "string", "pattern": "a**"},
            "pattern",
            INVALID,
            'Invalid value: "a**": must be a valid regular expression, but isn\'t: error '
            "parsing regexp: invalid nested "
            "repetition operator: `**`",
        ),
        (
            {"type": "string", "pattern": "(a"},
            "pattern",
            INVALID,
            'Invalid value: "(a": must be a valid regular expression, but isn\'t: error '
            "parsing regexp: missing closing "
            "): `(a`",
        ),
        (
            {"type": "array", "items": fields(a=STRING), LIST: "map"},
            KEYS,
            REQUIRED,
            "Required value: must not be empty if x-kubernetes-list-type is map",
        ),
        (
            {"type": "array", "items": fields(a=STRING), LIST: "map", KEYS: ["a"]},
            "items.properties[a].default",
            REQUIRED,
            "Required value: this property is in x-kubernetes-list-map-keys, so it must have "
            "a default or be a required "
            "property",
        ),
        (
            {"type": "array", "items": {**fields(a=STRING), "required": ["a"]}, LIST: "map", KEYS: ["b"]},
            KEYS,
            INVALID,
            'Invalid value: ["b"]: entries must all be names of item properties',
        ),
        (
            {"type": "array", "items": STRING, LIST: "bag"},
            LIST,
            "FieldValueNotSupported",
            'Unsupported value: "bag": supported values: "atomic", "set", "map"',
        ),
        (
            {"type": "array", "items": STRING, KEYS: ["a"]},
            LIST,
            REQUIRED,
            "Required value: must be map if x-kubernetes-list-map-keys is non-empty",
        ),
        (
            {"type": "array", "items": {**STRING, "nullable": True}, LIST: "set"},
            "items.nullable",
            FORBIDDEN,
            "Forbidden: cannot be nullable when x-kubernetes-list-type is set",
        ),
        (
            {"type": "array", "items": fields(a=STRING), LIST: "set"},
            f"items.{MAP}",
            INVALID,
            "Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set",
        ),
        (
            {"type": "string", MAP: "atomic"},
            "type",
            INVALID,
            'Invalid value: "string": must be object if x-kubernetes-map-type is specified',
        ),
        (
            {"type": "object", PRESERVE: False},
            PRESERVE,
            INVALID,
            "Invalid value: false: must be true or undefined",
        ),
        (
            {"x-kubernetes-int-or-string": True, PRESERVE: True},
            PRESERVE,
            INVALID,
            "Invalid value: true: must be false if x-kubernetes-int-or-string is true",
        ),
        (
            {"type": "object", EMBEDDED: True},
            "properties",
            REQUIRED,
            "Required value: must not be empty if x-kubernetes-embedded-resource is true without "
            "x-kubernetes-preserve-unknown-fields",
        ),
        (
            {**fields(kind=INTEGER), EMBEDDED: True},
            "properties[kind].type",
            INVALID,
            'Invalid value: "integer": must be string',
        ),
        (
            fields(a={"type": "integer", "default": "x"}),
            "properties[a].default",
            "FieldValueTypeInvalid",
            'Invalid value: "string":  in body must be of type integer: "string"',
        ),
        (
            fields(a={**fields(b=STRING), "default": {"b": "x", "c": 1}}),
            "properties[a].default",
            INVALID,
            'Invalid value: {"b":"x","c":1}: must not have unknown fields',
        ),
        (
            {"type": "object", "$ref": "#/x"},
            "$ref",
            FORBIDDEN,
            "Forbidden: $ref is not supported",
        ),
    ],
    ids=lambda value: str(value)[:60],
)
async def test_what_a_schema_may_say(things, schema, field, reason, message):
    refused = await things.defining(schema)
    assert refused.refusal == (422, "Invalid")
    assert (f"{SPEC}.{field}", reason, message) in refused.causes


@pytest.mark.parametrize(
    ("schema", "field", "reason", "message"),
    [
        ({}, "type", REQUIRED, "Required value: must not be empty at the root"),
        ({"type": "string"}, "type", INVALID, 'Invalid value: "string": must be object at the root'),
        (
            {"type": "object", "additionalProperties": STRING},
            "additionalProperties",
            FORBIDDEN,
            "Forbidden: must not be used at the root",
        ),
        (
            {"type": "object", "nullable": True},
            "nullable",
            FORBIDDEN,
            "Forbidden: nullable cannot be true at the root",
        ),
        (
            fields(metadata=fields(labels={"type": "object"})),
            "properties[metadata]",
            FORBIDDEN,
            "Forbidden: must not specify anything other than name and generateName, but "
            "metadata is implicitly specified",
        ),
        (
            fields(kind={**STRING, "default": "x"}),
            "properties[kind].default",
            FORBIDDEN,
            "Forbidden: must not be set in top-level kind",
        ),
    ],
    ids=lambda value: str(value)[:60],
)
async def test_what_the_root_of_a_schema_may_say(things, schema, field, reason, message):
    refused = await things.defining({}, schema={"openAPIV3Schema": schema})
    assert (f"{SCHEMA}.{field}", reason, message) in refused.causes


async def test_metadata_may_say_what_names_look_like(things):
    schema = fields(metadata=fields(name={"type": "string", "maxLength": 3}))
    assert (await things.defining({}, schema={"openAPIV3Schema": schema})).status == 201


@pytest.mark.parametrize(
    ("version", "field", "reason", "message"),
    [
        (
            {"additionalPrinterColumns": [{"name": "", "type": "text", "jsonPath": "spec"}]},
            "spec.additionalPrinterColumns[0].name",
            REQUIRED,
            "Required value",
        ),
        (
            {"additionalPrinterColumns": [{"name": "a", "type": "text", "jsonPath": ".spec"}]},
            "spec.additionalPrinterColumns[0].type",
            INVALID,
            'Invalid value: "text": must be one of boolean,date,integer,number,string',
        ),
        (
            {"additionalPrinterColumns": [{"name": "a", "type": "string", "jsonPath": "spec"}]},
            "spec.additionalPrinterColumns[0].JSONPath",
            INVALID,
            'Invalid value: "spec": must be a simple json path starting with .',
        ),
        (
            {"additionalPrinterColumns": [{"name": "a", "type": "string", "format": "x", "jsonPath": ".a"}]},
            "spec.additionalPrinterColumns[0].format",
            INVALID,
            'Invalid value: "x": must be one of byte,date,date-time,double,float,int32,int64,password',
        ),
        (
            {"selectableFields": [{"jsonPath": ".spec.b"}]},
            "spec.selectableFields[0].jsonPath",
            INVALID,
            'Invalid value: ".spec.b": is an invalid path: does not refer to a valid field',
        ),
        (
            {"selectableFields": [{"jsonPath": ".spec"}]},
            "spec.selectableFields[0].jsonPath",
            INVALID,
            'Invalid value: ".spec": must point to a field of type string, boolean or integer. Enum string fields and '
            "strings with formats are allowed.",
        ),
        (
            {"selectableFields": [{"jsonPath": ".spec.a"}, {"jsonPath": ".spec.a"}]},
            "spec.selectableFields[1].jsonPath",
            "FieldValueDuplicate",
            'Duplicate value: ".spec.a"',
        ),
        (
            {"selectableFields": [{"jsonPath": ".spec['a']"}]},
            "spec.selectableFields[0].jsonPath",
            INVALID,
            "Invalid value: \".spec['a']\": is an invalid path: array notation is not allowed",
        ),
        (
            {"deprecationWarning": "x"},
            "spec.versions[0].deprecationWarning",
            INVALID,
            'Invalid value: "x": can only be set for deprecated versions',
        ),
        (
            {"deprecated": True, "deprecationWarning": "a\nb"},
            "spec.versions[0].deprecationWarning",
            INVALID,
            'Invalid value: "a\\nb": must only contain printable UTF-8 characters; non-printable character found at '
            "index 1",
        ),
        (
            {"name": "V1"},
            "spec.versions[0].name",
            INVALID,
            "Invalid value: \"V1\": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start "
            "with an alphabetic character, and end with an alphanumeric character (e.g. "
            "'my-name',  or 'abc-123', regex "
            "used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
        ),
    ],
    ids=lambda value: str(value)[:60],
)
async def test_what_a_version_may_say(things, version, field, reason, message):
    refused = await things.defining(fields(a=STRING), **version)
    assert (field, reason, message) in refused.causes


@pytest.mark.parametrize(
    ("change", "field", "reason", "message"),
    [
        (
            {"names": {"plural": "things", "kind": "Thing", "listKind": "Thing"}},
            "spec.names.listKind",
            INVALID,
            'Invalid value: "Thing": kind and listKind may not be the same',
        ),
        (
            {"names": {"plural": "things", "kind": "Thing", "shortNames": ["A"]}},
            "spec.names.shortNames[0]",
            INVALID,
            "Invalid value: \"A\": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start "
            "with an alphabetic character, and end with an alphanumeric character (e.g. "
            "'my-name',  or 'abc-123', regex "
            "used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
        ),
        (
            {"conversion": {"strategy": "Magic"}},
            "spec.conversion.strategy",
            "FieldValueNotSupported",
            'Unsupported value: "Magic": supported values: "None", "Webhook"',
        ),
        (
            {"conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"]}}},
            "spec.conversion.webhookClientConfig",
            REQUIRED,
            "Required value: required when strategy is set to Webhook",
        ),
        (
            {"conversion": {"strategy": "None", "webhook": {"conversionReviewVersions": ["v1"]}}},
            "spec.conversion.conversionReviewVersions",
            FORBIDDEN,
            "Forbidden: should not be set when strategy is not set to Webhook",
        ),
        (
            {"preserveUnknownFields": True},
            "spec.preserveUnknownFields",
            INVALID,
            "Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields to true in "
            "spec.versions[*].schema instead",
        ),
    ],
    ids=lambda value: str(value)[:60],
)
async def test_what_a_definition_may_say(api, group, change, field, reason, message):
    body = defined(group, fields(a=STRING))
    body["spec"] |= change
    refused = await api.create(DEFINITIONS, body)
    assert (field, reason, message) in refused.causes


async def test_a_group_is_a_domain(api):
    refused = await api.create(DEFINITIONS, defined("nodot", fields()))
    assert (
        "spec.group",
        INVALID,
        'Invalid value: "nodot": should be a domain with at least one dot',
    ) in refused.causes


async def test_groups_of_the_community_need_an_approval(api):
    body = defined("conformance.k8s.io", fields())
    path = "metadata.annotations[api-approved.kubernetes.io]"
    refused = await api.create(DEFINITIONS, body)
    assert refused.causes == {
        (
            path,
            REQUIRED,
            'Required value: protected groups must have approval annotation "api-approved.kubernetes.io", see '
            "https://github.com/kubernetes/enhancements/pull/1111",
        )
    }
    body["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, a test"}
    assert (await api.create(DEFINITIONS, body, dryRun="All")).status == 201


@pytest.mark.parametrize(("type_", "format_"), [("string", "odd"), ("integer", "int8"), ("boolean", "date")])
async def test_unknown_formats_are_warned_of(things, type_, format_):
    made = await things.defining(fields(a={"type": type_, "format": format_}))
    assert made.status == 201
    assert made.warnings == [f'unrecognized format "{format_}"']


async def test_what_versions_say_differently_is_named_by_version(api, group):
    body = defined(group, {"type": "array"})
    first = body["spec"]["versions"][0]
    second = {**first, "name": "v2", "storage": False, "schema": {"openAPIV3Schema": fields(spec={})}}
    body["spec"]["versions"].append(second)
    refused = await api.create(DEFINITIONS, body)
    assert refused.fields == {
        "spec.versions[0].schema.openAPIV3Schema.properties[spec].items",
        "spec.versions[1].schema.openAPIV3Schema.properties[spec].type",
    }


async def condition(api, name, type_):
    found = await api.get(f"{DEFINITIONS}/{name}")
    if found.status == 404:
        return None
    return next((c for c in found["status"].get("conditions") or () if c["type"] == type_), None)


async def settled(api, name, type_, status):
    async def holds():
        found = await condition(api, name, type_)
        return found is not None and found["status"] == status

    await until(holds)
    return await condition(api, name, type_)


@pytest.mark.parametrize(
    ("names", "reason", "message"),
    [
        ({"kind": "Thing"}, "KindConflict", '"Thing" is already in use'),
        ({"kind": "Other", "shortNames": ["th"]}, "ShortNamesConflict", '"th" is already in use'),
        ({"kind": "Other", "singular": "thing"}, "SingularConflict", '"thing" is already in use'),
        ({"kind": "Other", "listKind": "ThingList"}, "ListKindConflict", '"ThingList" is already in use'),
    ],
    ids=lambda value: str(value),
)
async def test_names_in_use_are_not_accepted(api, group, names, reason, message):
    first = defined(group, fields())
    first["spec"]["names"]["shortNames"] = ["th"]
    await api.create(DEFINITIONS, first)
    await settled(api, f"things.{group}", "Established", "True")
    second = defined(group, fields())
    second["metadata"]["name"] = f"others.{group}"
    second["spec"]["names"] = {"plural": "others", **names}
    await api.create(DEFINITIONS, second)
    found = await settled(api, f"others.{group}", "NamesAccepted", "False")
    assert found["reason"] == reason or reason == "KindConflict"
    assert found["message"] == message or reason == "KindConflict"
    established = await condition(api, f"others.{group}", "Established")
    assert (established["status"], established["reason"], established["message"]) == (
        "False",
        "NotAccepted",
        "not all names are accepted",
    )
    assert (await api.get(f"/apis/{group}/v1/others")).status == 404


async def test_names_are_accepted_when_they_become_free(api, group):
    await api.create(DEFINITIONS, defined(group, fields()))
    await settled(api, f"things.{group}", "Established", "True")
    second = defined(group, fields())
    second["metadata"]["name"] = f"others.{group}"
    second["spec"]["names"] = {"plural": "others", "kind": "Thing"}
    await api.create(DEFINITIONS, second)
    await settled(api, f"others.{group}", "NamesAccepted", "False")
    await api.delete(f"{DEFINITIONS}/things.{group}")
    await settled(api, f"others.{group}", "Established", "True")
    await until(lambda: serves(api, f"/apis/{group}/v1/others"))


async def serves(api, path):
    return (await api.get(path)).status == 200


async def test_a_stored_version_cannot_go(api, group):
    body = defined(group, fields())
    body["spec"]["versions"].append({**body["spec"]["versions"][0], "name": "v2", "storage": False})
    await api.create(DEFINITIONS, body)
    await settled(api, f"things.{group}", "Established", "True")
    versions = body["spec"]["versions"]
    versions[0]["storage"], versions[1]["storage"] = False, True
    path = f"{DEFINITIONS}/things.{group}"
    changed = await api.merge(path, {"spec": {"versions": versions}})
    assert changed["status"]["storedVersions"] == ["v1", "v2"]
    refused = await api.merge(path, {"spec": {"versions": versions[1:]}})
    assert refused.causes == {
        (
            "status.storedVersions[0]",
            INVALID,
            'Invalid value: "v1": missing from spec.versions; v1 was previously a storage version, and must remain in '
            "spec.versions until a storage migration ensures no data remains persisted in v1 and removes v1 from "
            "status.storedVersions",
        )
    }


async def test_names_of_versions_are_unique(api, group):
    body = defined(group, fields())
    body["spec"]["versions"].append({**body["spec"]["versions"][0], "storage": False})
    refused = await api.create(DEFINITIONS, body)
    assert "must contain unique version names" in refused.message


async def test_deprecated_versions_warn(api, group, ns):
    body = defined(group, fields(), deprecated=True)
    first = body["spec"]["versions"][0]
    own = {**first, "name": "v1beta1", "storage": False, "deprecationWarning": "use something else"}
    body["spec"]["versions"] += [own, {**first, "name": "v2", "storage": False, "deprecated": False}]
    await api.create(DEFINITIONS, body)
    for version in ("v1", "v1beta1", "v2"):
        await until(lambda version=version: serves(api, f"/apis/{group}/{version}/things"))
    path = f"/apis/{group}/{{}}/namespaces/{ns}/things"
    told = f"{group}/v1 Thing is deprecated; use {group}/v2 Thing"
    assert (await api.get(path.format("v1"))).warnings == [told]
    assert (await api.get(path.format("v1") + "/a")).warnings == [told]
    assert (await api.get(path.format("v1beta1"))).warnings == ["use something else"]
    assert (await api.get(path.format("v2"))).warnings == []


async def test_a_version_that_is_no_longer_served_is_not_found(api, group):
    body = defined(group, fields())
    await api.create(DEFINITIONS, body)
    await until(lambda: serves(api, f"/apis/{group}/v1/things"))
    body["spec"]["versions"][0]["served"] = False
    await api.merge(f"{DEFINITIONS}/things.{group}", {"spec": body["spec"]})

    async def gone():
        return (await api.get(f"/apis/{group}/v1/things")).status == 404

    await until(gone)


async def test_objects_with_finalizers_hold_their_definition(api, things):
    await things.define(fields())
    body = {**things.body({}), "metadata": {"name": "a", "finalizers": ["example.com/hold"]}}
    assert (await api.create(things.path, body)).status == 201
    await api.delete(things.definition)
    await settled(api, f"things.{things.group}", "Terminating", "True")

    async def begun():  # pending for a moment on the real server
        found = await condition(api, f"things.{things.group}", "Terminating")
        return found["reason"] != "InstanceDeletionPending"

    await until(begun)
    found = await condition(api, f"things.{things.group}", "Terminating")
    assert (found["reason"], found["message"]) == (
        "InstanceDeletionInProgress",
        "CustomResource deletion is in progress",
    )

    async def deleting():
        return "deletionTimestamp" in (await api.get(f"{things.path}/a")).meta

    await until(deleting)

    async def lists_only_what_it_may_lose():
        (listed,) = (await api.get(f"/apis/{things.group}/v1"))["resources"]
        return sorted(listed["verbs"]) == ["delete", "deletecollection", "get", "list", "watch"]

    await until(lists_only_what_it_may_lose)
    assert (await api.merge(f"{things.path}/a", {"spec": {}})).status == 200
    refused = await things.create({}, "b")
    assert refused.refusal == (403, "Forbidden")
    assert refused.message == (
        f'things.{things.group} "b" is forbidden: create not allowed while custom resource definition is terminating'
    )
    await api.merge(f"{things.path}/a", {"metadata": {"finalizers": None}})

    async def gone():
        return (await api.get(things.definition)).status == 404

    await until(gone)


@pytest.mark.parametrize(("finalizer", "including"), [("hold", ""), ("a.b", " including a path (/)")])
async def test_finalizers_without_a_domain_are_warned_of(api, things, finalizer, including):
    await things.define(fields())
    body = {**things.body({}), "metadata": {"name": "a", "finalizers": [finalizer, "example.com/x"]}}
    made = await api.create(things.path, body, dryRun="All")
    tail = "to avoid accidental conflicts with other finalizer writers"
    assert made.warnings == [
        f'metadata.finalizers: "{finalizer}": prefer a domain-qualified finalizer name{including} {tail}'
    ]
