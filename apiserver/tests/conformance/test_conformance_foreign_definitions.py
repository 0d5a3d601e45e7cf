"""What the definitions and objects of other projects contain, found by `make corpus`: each row is the smallest that
shows it.
"""

import json

import pytest
from conformance_api import install, owned, until
from conformance_kinds import DEFINITIONS
from conformance_recording import aside
from conformance_schemas import defined, fields, shared

STRING, INTEGER, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}
FREE = {"x-kubernetes-preserve-unknown-fields": True}
OPEN = {"type": "object", **FREE}
TEXTS = {"type": "object", "additionalProperties": STRING}
HOLDS = [{"rule": "true"}]


@pytest.fixture
def group(name):
    """Returns a group that no other test case uses."""
    return f"{name}.example.com"


async def kind(api, group, ns, schema, **version):
    """Defines the kind Thing with this schema of the whole object. Returns the path of its objects and a function that
    makes one.
    """
    schema = {"type": "object", **schema}
    await install(api, defined(group, {}, schema={"openAPIV3Schema": schema}, **version))

    def thing(name="a", **more):
        return {"apiVersion": f"{group}/v1", "kind": "Thing", "metadata": {"name": name}, **more}

    return f"/apis/{group}/v1/namespaces/{ns}/things", thing


IMPLIED = ["apiVersion", "kind", "metadata"]


@pytest.mark.parametrize(
    "schema",
    [
        {"required": IMPLIED},
        {"required": IMPLIED, "properties": {"metadata": {"type": "object"}}},
        {"minProperties": 4},
        {"anyOf": [{"required": ["metadata"]}, {"required": ["other"]}]},
        {
            "properties": {
                "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 3}}}
            }
        },
        {"properties": {"kind": {"type": "string"}, "apiVersion": {"type": "string"}}},
    ],
)
async def test_what_every_object_has_is_part_of_what_the_schema_describes(api, group, ns, schema):
    properties = {"spec": OPEN, **schema.get("properties", {})}
    things, thing = await kind(api, group, ns, {**schema, "properties": properties})
    made = await api.create(things, thing(spec={"a": 1}))
    assert made.status == 201, made.text
    replaced = await api.replace(f"{things}/a", {**made.body, "spec": {"a": 2}})
    assert replaced.status == 200, replaced.text
    assert (await api.merge(f"{things}/a", {"spec": {"a": 3}})).status == 200
    assert (await api.apply(f"{things}/b", thing("b", spec={}))).status == 201


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (
            {
                "properties": {
                    "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 3}}}
                }
            },
            {("metadata.name", "FieldValueTooLong")},
        ),
        ({"maxProperties": 3}, {("<nil>", "FieldValueTooMany")}),
        ({"not": {"required": ["kind"]}}, {("<nil>", "FieldValueInvalid")}),
    ],
)
async def test_what_every_object_has_is_validated(api, group, ns, schema, told):
    properties = {"spec": OPEN, **schema.get("properties", {})}
    things, thing = await kind(api, group, ns, {**schema, "properties": properties})
    refused = await api.create(things, thing("abcd", spec={}))
    assert refused.status == 422
    assert {(field, reason) for field, reason, _ in refused.causes} == told


DEFAULTED = fields(
    spec=OPEN,
    status={**fields(seen=INTEGER, phase={**STRING, "default": "New"}), "default": {"seen": -1}},
)


async def test_defaults_of_the_status_are_returned_read_listed_and_watched(api, group, ns):
    things, thing = await kind(api, group, ns, DEFAULTED, subresources={"status": {}})
    expected = {"seen": -1, "phase": "New"}
    tried = await api.create(things, thing(spec={}), dryRun="All")
    made = await api.create(things, thing(spec={}, status={"seen": 5}))
    listed = await api.get(things)
    assert [tried["status"], made["status"], listed["items"][0]["status"]] == [expected] * 3
    assert (await api.get(f"{things}/a"))["status"] == expected
    async with api.watch(things, resourceVersion="0") as events:
        assert (await events.next())["object"]["status"] == expected
    assert not any("f:status" in owns for owns in owned(made).values())
    changed = await api.merge(f"{things}/a/status", {"status": None})
    assert (changed.status, changed["status"]) == (200, expected)
    written = await api.merge(f"{things}/a/status", {"status": {"seen": 2, "phase": None}})
    assert written["status"] == {"seen": 2, "phase": "New"}


async def test_a_default_of_the_status_is_not_validated_at_the_create(api, group, ns):
    schema = {**DEFAULTED, "x-kubernetes-validations": [{"rule": "!has(self.status)"}]}
    things, thing = await kind(api, group, ns, schema, subresources={"status": {}})
    assert (await api.create(things, thing(spec={}))).status == 201
    assert (await api.merge(f"{things}/a", {"spec": {"a": 1}})).status == 422


NULLS = fields(
    text=STRING,
    maybe={**STRING, "nullable": True},
    given={**STRING, "default": "x"},
    both={**STRING, "default": "x", "nullable": True},
    map=TEXTS,
    map_given={"type": "object", "additionalProperties": {**STRING, "default": "x"}},
    map_maybe={"type": "object", "additionalProperties": {**STRING, "nullable": True}},
    list={"type": "array", "items": STRING},
    list_given={"type": "array", "items": {**STRING, "default": "x"}},
    list_maybe={"type": "array", "items": {**STRING, "nullable": True}},
    object=fields(text=STRING, given={**STRING, "default": "x"}),
    free=FREE,
    open={**fields(text=STRING), **FREE},
    either={"x-kubernetes-int-or-string": True},
)
AFTER = {  # by what was sent: what a create and an apply store, or the codes with which they refuse it
    '{"text":null}': ({}, 422),
    '{"maybe":null}': ({"maybe": None}, {"maybe": None}),
    '{"given":null}': ({}, {}),
    '{"both":null}': ({"both": None}, {"both": None}),
    '{"map":null}': ({}, 422),
    '{"list":null}': ({}, 422),
    '{"object":null}': ({}, 422),
    '{"free":null}': ({}, {}),
    '{"open":null}': ({}, 422),
    '{"either":null}': ({}, 422),
    '{"map":{"k":null}}': ({"map": {}}, 422),
    '{"map_given":{"k":null}}': ({"map_given": {"k": "x"}}, {"map_given": {"k": "x"}}),
    '{"map_maybe":{"k":null}}': ({"map_maybe": {"k": None}}, {"map_maybe": {"k": None}}),
    '{"free":{"k":null}}': ({"free": {"k": None}}, {"free": {"k": None}}),
    '{"list":[null]}': (422, 422),
    '{"list_given":[null]}': ({"list_given": ["x"]}, {"list_given": ["x"]}),
    '{"list_maybe":[null]}': ({"list_maybe": [None]}, {"list_maybe": [None]}),
    '{"free":[null]}': ({"free": [None]}, {"free": [None]}),
    '{"object":{"text":null,"given":null}}': ({"object": {"given": "x"}}, 422),
    '{"open":{"text":null,"other":null,"deep":[{"a":null}]}}': (
        {"open": {"other": None, "deep": [{"a": None}]}},
        422,
    ),
}
ALWAYS = {"given": "x", "both": "x"}


@pytest.mark.parametrize("sent", AFTER)
async def test_nulls_in_bodies_and_in_applies(api, ns, sent):
    things = await shared(api, "nulls", ns, NULLS)
    spec = json.loads(sent)
    answers = (
        await things.create(spec, "a"),
        await api.apply(f"{things.path}/b", things.body(spec, "b")),
    )
    assert [answer["spec"] if answer.status == 201 else answer.status for answer in answers] == [
        after if isinstance(after, int) else {**ALWAYS, **after} for after in AFTER[sent]
    ]


@pytest.mark.parametrize("how", ["replace", "merge", "json patch"])
@pytest.mark.parametrize(
    "sent", ['{"text":null}', '{"map":{"k":null}}', '{"list_given":[null]}', '{"given":null}']
)
async def test_nulls_in_updates(api, ns, how, sent):
    things = await shared(api, "nulls", ns, NULLS)
    made = await things.create({"text": "a", "map": {"k": "b"}, "given": "c", "list_given": ["d"]})
    spec, at = json.loads(sent), f"{things.path}/a"
    if how == "replace":
        answer = await api.replace(at, {**made.body, "spec": spec})
        expected = {**ALWAYS, **AFTER[sent][0]}
    elif how == "merge":
        answer = await api.merge(at, {"spec": spec})
        expected = {**made["spec"], **AFTER[sent][0]}
        expected = {name: value for name, value in expected.items() if spec.get(name, 1) is not None}
        expected = {**ALWAYS, **expected}
    else:
        ((name, value),) = spec.items()
        answer = await api.json_patch(at, {"op": "add", "path": f"/spec/{name}", "value": value})
        expected = {
            **ALWAYS,
            **{key: old for key, old in made["spec"].items() if key != name},
            **AFTER[sent][0],
        }
    assert (answer.status, answer.body.get("spec")) == (200, expected), answer.text
    await api.delete(at)


async def test_a_null_that_is_applied_where_unknown_fields_are_kept_counts_as_a_change(api, ns):
    things = await shared(api, "nulls", ns, NULLS)
    first = await api.apply(f"{things.path}/a", things.body({"free": {"k": 1}}))
    second = await api.apply(f"{things.path}/a", things.body({"free": {"k": None}}))
    assert (second["spec"]["free"], second.meta["generation"]) == ({"k": None}, first.meta["generation"] + 1)


EMPTIED = fields(
    free=FREE,
    map={**TEXTS, "nullable": True},
    atomic={**TEXTS, "nullable": True, "x-kubernetes-map-type": "atomic"},
    set={"type": "array", "items": STRING, "nullable": True, "x-kubernetes-list-type": "set"},
    object={**fields(a=STRING), "nullable": True},
)
FULL = {"a": "b"}


def of(fields_of_spec):
    return fields_of_spec and {"f:spec": fields_of_spec}


@pytest.mark.parametrize(
    ("field", "before", "after", "first", "second"),
    [
        ("free", {"k": None}, {"k": FULL}, {"f:free": {"f:k": {}}}, {"f:free": {"f:k": {"f:a": {}}}}),
        ("free", {"k": FULL}, {"k": None}, {"f:free": {"f:k": {}}}, None),
        ("free", {"k": None}, {"k": {}}, None, {"f:free": {"f:k": {}}}),
        ("free", {"k": None}, {"k": ["a"]}, None, {"f:free": {"f:k": {}}}),
        ("map", None, FULL, {"f:map": {}}, {"f:map": {"f:a": {}}}),
        ("map", FULL, None, None, None),
        ("object", None, FULL, {"f:object": {}}, {"f:object": {"f:a": {}}}),
        ("object", FULL, None, None, None),
        ("atomic", None, FULL, None, {"f:atomic": {}}),
    ],
)
async def test_who_fills_a_null_owns_what_is_in_it_and_who_empties_to_null_owns_nothing(
    api, ns, field, before, after, first, second
):
    things = await shared(api, "emptied", ns, EMPTIED)
    await api.apply(f"{things.path}/a", things.body({field: before}))
    operation = {"op": "add", "path": f"/spec/{field}", "value": after}
    changed = await api.json_patch(f"{things.path}/a", operation)
    assert (changed.status, changed["spec"]) == (200, {field: after}), changed.text
    owners = owned(changed)
    assert (owners.get(("one", "Apply", "")), owners.get(("conformance", "Update", ""))) == (
        of(first),
        of(second),
    )


async def test_an_apply_fills_a_null_of_another_manager_without_a_conflict(api, ns):
    things = await shared(api, "emptied", ns, EMPTIED)
    await api.apply(f"{things.path}/a", things.body({"map": None}))
    filled = await api.apply(f"{things.path}/a", things.body({"map": FULL}), "two")
    assert (filled.status, filled["spec"]) == (200, {"map": FULL})
    assert owned(filled) == {
        ("one", "Apply", ""): {"f:spec": {"f:map": {}}},
        ("two", "Apply", ""): {"f:spec": {"f:map": {"f:a": {}}}},
    }


@pytest.mark.parametrize(
    ("before", "after", "stored"),
    [
        ({"map": FULL}, {"map": {}}, {"map": None}),
        ({"map": FULL}, {"map": None}, {"map": None}),
        ({"free": {"k": FULL}}, {"free": {"k": {}}}, {"free": {"k": None}}),
        ({"set": ["a"]}, {"set": None}, {"set": None}),
        ({"set": ["a"]}, {"set": []}, {}),
        ({"set": None}, {"set": []}, {"set": []}),
    ],
)
async def test_what_an_apply_empties_of_its_own_becomes_null(api, ns, before, after, stored):
    things = await shared(api, "emptied", ns, EMPTIED)
    await api.apply(f"{things.path}/a", things.body({**before, "object": FULL}))
    changed = await api.apply(f"{things.path}/a", things.body({**after, "object": FULL}))
    assert (changed.status, changed["spec"]) == (200, {**stored, "object": FULL})
    assert (await api.get(f"{things.path}/a"))["spec"] == changed["spec"]


ORDERED = fields(
    set={"type": "array", "items": STRING, "x-kubernetes-list-type": "set"},
    list={
        "type": "array",
        "items": {**fields(n=STRING), "required": ["n"]},
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["n"],
    },
)


@pytest.mark.parametrize(
    ("live", "given", "merged"),
    [
        ("a", "ba", "ba"),
        ("ab", "ba", "ba"),
        ("ab", "ca", "cab"),
        ("ab", "bc", "abc"),
        ("axb", "bac", "xbac"),
        ("axbyc", "czba", "xyczba"),
        ("xay", "bac", "xbayc"),
        ("xy", "ab", "xyab"),
    ],
)
async def test_items_that_are_applied_come_in_the_order_of_the_apply(api, ns, live, given, merged):
    things = await shared(api, "ordered", ns, ORDERED)

    def lists(names):
        return {"set": list(names), "list": [{"n": name} for name in names]}

    await things.create(lists(live))
    applied = await api.apply(f"{things.path}/a", things.body(lists(given)))
    assert (applied.status, applied["spec"]) == (200, lists(merged))


@pytest.mark.parametrize(
    "properties",
    [
        {"key_uri": STRING, "keyUri": STRING},
        {"x": STRING, "X": STRING},
        {"_a": STRING, "a": STRING},
        {"a_b": TEXTS, "aB": TEXTS},
        *({word: TEXTS} for word in ("namespace", "in", "package", "true", "__namespace__", "a-b", "a.b")),
    ],
)
async def test_a_rule_beside_fields_with_such_names(api, group, properties):
    spec = {**fields(**properties), "x-kubernetes-validations": HOLDS}
    made = await api.create(DEFINITIONS, defined(group, spec))
    assert made.status == 201, made.text


FORMATS = {
    "dns1123Label": ("a-b", "A_b"),
    "dns1123Subdomain": ("a.b", "a..b"),
    "dns1035Label": ("a1", "1a"),
    "qualifiedName": ("a.b/C_d", "a/b/c"),
    "dns1123LabelPrefix": ("a-", "-a"),
    "dns1123SubdomainPrefix": ("a.b-", "a.b."),
    "dns1035LabelPrefix": ("a-", "1a"),
    "labelValue": ("", "-"),
    "uri": ("http://a/b", "a b"),
    "uuid": ("123e4567-e89b-12d3-a456-426614174000", "123"),
    "byte": ("aGVsbG8=", "a"),
    "date": ("2021-01-01", "2021-13-01"),
    "datetime": ("2021-01-01T00:00:00Z", "2021-01-01"),
}


def formatted(name):
    by_name = f"format.named('{name}').value()"
    return f"format.{name}().validate(self).hasValue() == {by_name}.validate(self).hasValue()"


async def test_rules_use_named_formats(api, ns):
    rules = {
        name: {
            **STRING,
            "maxLength": 100,
            "x-kubernetes-validations": [
                {"rule": f"!format.{name}().validate(self).hasValue()"},
                {"rule": formatted(name)},
            ],
        }
        for name in FORMATS
    }
    rules["told"] = {
        **STRING,
        "maxLength": 40,
        "x-kubernetes-validations": [
            {
                "rule": "!format.uuid().validate(self).hasValue() && !format.named('x').hasValue()",
                "messageExpression": "'it (' + format.uuid().validate(self).value()[0] + ')'",
            }
        ],
    }
    things = await shared(api, "formatted", ns, fields(**rules))
    good = await things.create({name: given for name, (given, _) in FORMATS.items()}, "good")
    assert good.status == 201, good.text
    bad = await things.create({**{name: given for name, (_, given) in FORMATS.items()}, "told": "x"}, "bad")
    assert bad.fields == {*(f"spec.{name}" for name in FORMATS), "spec.told"}
    assert "it (does not match the UUID format)" in bad.message


async def test_the_port_of_a_conversion_webhook_has_a_default(api, group):
    service = {"namespace": "default", "name": "w"}
    hook = {"conversionReviewVersions": ["v1"], "clientConfig": {"service": service}}
    definition = defined(group, OPEN)
    definition["spec"]["conversion"] = {"strategy": "Webhook", "webhook": hook}
    made = await api.create(DEFINITIONS, definition)
    assert made["spec"]["conversion"]["webhook"]["clientConfig"]["service"] == {**service, "port": 443}


@pytest.mark.parametrize("status", [{"n": "five"}, "five", {"n": {"a": 1}}])
async def test_the_owners_stay_when_a_dropped_part_has_another_type(api, group, ns, status):
    schema = fields(spec=fields(a=STRING), status=fields(n=INTEGER))
    things, thing = await kind(api, group, ns, schema, subresources={"status": {}})
    made = await api.create(things, thing(spec={"a": "b"}, status=status))
    assert (made.status, owned(made)) == (201, {})
    applied = await api.apply(f"{things}/a", thing(spec={"a": "b"}))
    assert {manager for manager, _, _ in owned(applied)} == {"before-first-apply", "one"}
    replaced = await api.replace(f"{things}/a", {**applied.body, "status": status})
    assert (replaced.status, owned(replaced)) == (200, owned(applied))


@pytest.mark.parametrize(
    ("schema", "given", "code"),
    [
        ({**STRING, "format": "duration"}, 5, 422),
        ({**STRING, "format": "date-time"}, True, 422),
        ({**STRING, "format": "unknown"}, 5, 422),
        ({**STRING, "format": "byte"}, 5, 500),
        (STRING, 5, 500),
        ({**STRING, "format": "duration"}, {}, 500),
        ({"x-kubernetes-int-or-string": True}, {"a": 1}, 422),
        ({"type": "object"}, {"a": 1}, 201),
        ({**fields(a=STRING), **FREE}, {"b": 1}, 201),
        ({**fields(a=fields(b=STRING)), **FREE}, {"a": {"c": 1}}, 201),
        (fields(a=STRING), {"b": 1}, 500),
        ({"type": "object", "additionalProperties": True}, {"b": 1}, 201),
        (
            {**OPEN, "x-kubernetes-embedded-resource": True},
            {"apiVersion": "v1", "kind": "A", "metadata": {"x": 1}},
            500,
        ),
        ({**OPEN, "x-kubernetes-embedded-resource": True}, {"apiVersion": "v1", "kind": 1}, 500),
        (
            {**fields(a=STRING), "x-kubernetes-embedded-resource": True},
            {"apiVersion": "v1", "kind": "A", "b": 1},
            500,
        ),
        (
            {**fields(a=STRING), "x-kubernetes-embedded-resource": True},
            {"apiVersion": "v1", "kind": "A"},
            201,
        ),
    ],
)
async def test_what_an_apply_takes_for_a_field(api, group, ns, schema, given, code):
    things, thing = await kind(api, group, ns, fields(spec=fields(f=schema)))
    applied = await api.apply(f"{things}/a", thing(spec={"f": given}))
    assert applied.status == code, applied.text


async def test_unknown_fields_that_an_apply_may_contain_are_not_kept(api, group, ns):
    schema = fields(spec=fields(f={"type": "object"}, g={**fields(a=fields(b=STRING)), **FREE}))
    things, thing = await kind(api, group, ns, schema)
    spec = {"f": {"a": 1}, "g": {"a": {"c": 1}, "d": {"e": None}}}
    applied = await api.apply(f"{things}/a", thing(spec=spec))
    assert applied["spec"] == {"f": {}, "g": {"a": {}, "d": {"e": None}}}
    assert applied.body["spec"] == (await api.get(f"{things}/a"))["spec"]


@pytest.mark.parametrize(
    ("count", "length", "expected"), [(30, 40, 30), (90, 60, 51), (400, 5, 158), (20, 500, 16)]
)
async def test_warnings_have_a_limit(api, group, ns, count, length, expected):
    things, thing = await kind(api, group, ns, fields(spec=fields()))
    spec = {f"u{number:03}{'x' * (length - 4)}": 1 for number in range(count)}
    made = await api.create(things, thing(spec=spec), dryRun="All")
    assert (made.status, len(made.warnings)) == (201, expected)
    assert max(map(len, made.warnings)) <= 256


async def test_less_than_is_escaped_in_keys_and_columns(api, group, ns):
    items = fields(name=STRING)
    listed = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {**items, "required": ["name"]},
    }
    texts = {"type": "array", "items": STRING}
    kept = {**texts, "x-kubernetes-list-type": "set"}
    column = {"name": "S", "type": "string", "jsonPath": ".spec.s"}
    schema = fields(spec=fields(l=listed, s=texts, t=kept))
    things, thing = await kind(api, group, ns, schema, additionalPrinterColumns=[column])
    spec = {"l": [{"name": "a<b"}], "s": ["a&b"], "t": ["a>b"]}
    made = await api.create(things, thing(spec=spec))
    (owns,) = owned(made).values()
    assert set(owns["f:spec"]["f:l"]) == {".", r'k:{"name":"a\u003cb"}'}
    assert set(owns["f:spec"]["f:t"]) == {".", r'v:"a\u003eb"'}
    table = await api.call("GET", f"{things}/a", accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    assert json.loads(table.raw)["rows"][0]["cells"][1] == r'["a\u0026b"]'
    refused = await api.apply(f"{things}/a", thing(spec={"l": [{"name": "a<b"}]}), "two")
    assert refused.status == 200, refused.text


PUBLISHED = {
    "open": OPEN,
    "maybe": {**fields(a=STRING), "nullable": True},
    "list": {"type": "array", "items": STRING, "nullable": True},
    "either": {"x-kubernetes-int-or-string": True},
    "kept": {**fields(a=STRING), **FREE},
    "choice": {**fields(a=STRING, b=STRING), "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
    "template": {**fields(spec=OPEN), "x-kubernetes-embedded-resource": True},
    "any": {"type": "object", "x-kubernetes-embedded-resource": True, **FREE},
    "map": {"type": "object", "additionalProperties": {**STRING, "nullable": True}},
    "needs": {**fields(a={**STRING, "nullable": True}, b=STRING), "required": ["a", "b"]},
    "may need": {**fields(a={**STRING, "nullable": True}), "required": ["a"], "nullable": True},
}
META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


async def published(api, group, version):
    at = "/openapi/v2" if version == "v2" else f"/openapi/v3/apis/{group}/v1"
    name = ".".join([*reversed(group.split(".")), "v1", "Thing"])
    found = {}

    async def is_there():
        body = (await api.get(at)).body or {}
        found.update((body.get("definitions") or body.get("components", {}).get("schemas", {})).get(name, {}))
        return bool(found)

    await until(is_there)
    return found


def plain(schema):
    """Returns the schema without descriptions, and references and required names as sets."""
    if isinstance(schema, list):
        return sorted(map(plain, schema), key=str)
    if isinstance(schema, dict):
        return {key: plain(value) for key, value in schema.items() if key != "description"}
    return schema


async def test_a_kind_that_keeps_unknown_fields_is_published_without_fields(api, group, ns):
    await kind(api, group, ns, {**FREE, "properties": {"spec": fields(a=STRING)}})
    older = await published(api, group, "v2")
    gvk = [{"group": group, "kind": "Thing", "version": "v1"}]
    assert older == {"type": "object", "x-kubernetes-group-version-kind": gvk}
    assert set((await published(api, group, "v3"))["properties"]) == {*IMPLIED, "spec"}


async def test_published_schemas(api, group, ns):
    await kind(api, group, ns, fields(spec=fields(**PUBLISHED)))
    older, newer = [
        plain((await published(api, group, v))["properties"]["spec"]["properties"]) for v in ("v2", "v3")
    ]
    text = {"type": "string"}

    embedded = {"x-kubernetes-embedded-resource": True}
    for found in (older, newer):
        for inner in (found["template"], *([found["any"]] if found is newer else [])):
            reference = inner["properties"].pop("metadata")
            assert META in str(reference)
    both = {"apiVersion": text, "kind": text}
    assert older == {
        "open": FREE,
        "maybe": {},
        "list": {},
        "either": {"x-kubernetes-int-or-string": True},
        "kept": FREE,
        "choice": fields(a=text, b=text),
        "template": {**fields(spec=FREE, **both), **embedded, "required": ["apiVersion", "kind"]},
        "any": {**FREE, **embedded},
        "map": {"type": "object", "additionalProperties": {}},
        "needs": {**fields(a={}, b=text), "required": ["b"]},
        "may need": {"required": ["a"]},
    }
    one_of = [{"required": ["a"]}, {"required": ["b"]}]
    assert newer == {
        **PUBLISHED,
        "either": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
        "choice": {**fields(a=text, b=text), "oneOf": one_of},
        "template": {**fields(spec=OPEN, **both), **embedded, "required": ["apiVersion", "kind"]},
        "any": {**fields(**both), **FREE, **embedded, "required": ["apiVersion", "kind"]},
        "needs": {**PUBLISHED["needs"], "required": ["a", "b"]},
    }


NUMBERS = fields(
    i=INTEGER,
    narrow={**INTEGER, "format": "int32"},
    n=NUMBER,
    either={"x-kubernetes-int-or-string": True},
    kept=FREE,
    tenth={**NUMBER, "multipleOf": 0.1},
)
WIDE = 9223372036854775808.0
NUMBERS_SENT = {  # what is read as an integer, a number, either of integer and string, and kept; or how it is refused
    "1": (1, 1, 1, 1),
    "-0": (0, 0, 0, 0),
    "-0.0": (0, 0, 0, 0),
    "1.0": (1, 1, 1, 1),
    "1e3": (1000, 1000, 1000, 1000),
    "1.5": (422, 1.5, 422, 1.5),
    "1.0000000000000002": (422, 1.0000000000000002, 1.0000000000000002, 1.0000000000000002),
    "9007199254740993": (9007199254740993, 9007199254740993, 9007199254740993, 9007199254740993),
    "9223372036854775807": (
        9223372036854775807,
        9223372036854775807,
        9223372036854775807,
        9223372036854775807,
    ),
    "9223372036854775808": (422, WIDE, 422, WIDE),
    "1e20": (422, 1e20, 422, 1e20),
    "1e40": (422, 1e40, 422, 1e40),
    "4.9e-324": (422, 5e-324, 422, 5e-324),
    "1e400": (400, 400, 400, 400),
    "01": (400, 400, 400, 400),
}


@pytest.mark.parametrize("sent", NUMBERS_SENT)
async def test_numbers(api, ns, sent):
    things = await shared(api, "wide-numbers", ns, NUMBERS)

    async def tried(field, how):
        body = json.dumps(things.body({field: "@"})).replace('"@"', sent).encode()
        if how == "create":
            answer = await api.create(things.path, body)
        else:
            answer = await api.apply(f"{things.path}/a", body)
        await api.delete(f"{things.path}/a")
        return float(answer["spec"][field]) if answer.status == 201 else answer.status

    expected = [float(read) if read not in (400, 422) else read for read in NUMBERS_SENT[sent]]
    assert [await tried(field, "create") for field in ("i", "n", "either", "kept")] == expected
    if 400 not in expected:
        assert [await tried(field, "apply") for field in ("i", "n", "either", "kept")] == expected


@pytest.mark.parametrize(
    ("field", "sent", "code"),
    [
        ("narrow", "2147483647", 201),
        ("narrow", "2147483648", 422),
        ("narrow", "-2147483648.0", 201),
        ("tenth", "1.0", 201),
        ("tenth", "1", 422),
        ("tenth", "0.3", 201),
        ("tenth", "4.9e-324", 422),
    ],
)
async def test_ranges_of_numbers(api, ns, field, sent, code):
    things = await shared(api, "wide-numbers", ns, NUMBERS)
    body = json.dumps(things.body({field: "@"})).replace('"@"', sent).encode()
    assert (await api.create(things.path, body, dryRun="All")).status == code


@pytest.mark.parametrize("sent", ["1.0", "1e0", "1"])
async def test_an_integer_that_becomes_a_float_is_a_change(api, ns, sent):
    things = await shared(api, "wide-numbers", ns, NUMBERS)
    made = await things.create({"n": 1, "kept": {"a": [1]}})
    changed = await api.merge(
        f"{things.path}/a", json.dumps({"spec": {"n": "@"}}).replace('"@"', sent).encode()
    )
    assert (changed["spec"]["n"], changed.meta["generation"]) == (1, 1 if sent == "1" else 2)
    assert (changed.version == made.version) is (sent == "1")
    assert {manager for manager, _, _ in owned(changed)} == {"conformance"}


@pytest.mark.parametrize(
    ("patch", "kept"),
    [
        ({"kept": {"a": None, "b": {"c": None}}}, {"b": {}}),
        ({"kept": [{"a": None, "b": [None, {"c": None}]}]}, [{"b": [None, {}]}]),
        ({"kept": {"a": [{"b": None}]}}, {"a": [{}]}),
    ],
)
async def test_a_merge_patch_leaves_no_nulls_in_what_is_new(api, ns, patch, kept):
    things = await shared(api, "wide-numbers", ns, NUMBERS)
    await things.create({"n": 1})
    assert (await api.merge(f"{things.path}/a", {"spec": patch}))["spec"]["kept"] == kept


async def test_the_parts_of_a_scale_must_be_objects(api, ns):
    scale = {
        "specReplicasPath": ".spec.n",
        "statusReplicasPath": ".status.n",
        "labelSelectorPath": ".status.s",
    }
    things = await shared(api, "scaled", ns, FREE, subresources={"scale": scale})
    refused = await things.create("text")
    assert {field for field, _, message in refused.causes if "accessor error" in message} == {".spec.n"}


async def test_a_root_without_a_type_that_keeps_unknown_fields_may_have_a_status(api, group, ns):
    schema = {"openAPIV3Schema": FREE}
    await install(api, defined(group, {}, schema=schema, subresources={"status": {}}))
    path = f"/apis/{group}/v1/namespaces/{ns}/things"
    thing = {"apiVersion": f"{group}/v1", "kind": "Thing", "metadata": {"name": "a"}}
    made = await api.create(path, {**thing, "spec": {"a": 1}, "status": {"b": 2}})
    assert (made.status, made["spec"], "status" in made.body) == (201, {"a": 1}, False)
    told = await api.merge(f"{path}/a/status", {"spec": {"a": 3}, "status": {"b": 4}})
    assert (told.status, told["spec"], told["status"]) == (200, {"a": 1}, {"b": 4})
    applied = await api.apply(f"{path}/a", {**thing, "spec": {"c": 5}})
    assert (applied.status, applied["spec"]) == (200, {"a": 1, "c": 5})
    assert "type" not in await published(api, group, "v3")


LISTS = fields(
    spec=OPEN,
    status=fields(
        items={
            "type": "array",
            "items": {**fields(k=STRING, v=STRING, w=STRING), "required": ["k"]},
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"],
            "nullable": True,
        },
        inner=fields(names={"type": "array", "items": STRING, "x-kubernetes-list-type": "set"}),
        free={"type": "object", "nullable": True, "additionalProperties": fields(v=STRING, w=STRING)},
    ),
)


@pytest.mark.parametrize(
    "left",
    [{"items": []}, {"inner": {"names": []}}, {"items": [], "inner": {"names": []}}, {"inner": {}}, {}],
)
async def test_what_an_applier_stated_as_empty_stays_while_nothing_that_has_an_owner_is_in_it(
    api, group, ns, left
):
    things, thing = await kind(api, group, ns, LISTS)
    await api.apply(f"{things}/a", thing(status={}), "one")
    applied = await api.apply(f"{things}/a", thing(status=left), "one")
    again = await api.apply(f"{things}/a", thing(), "one")
    assert [applied.status, again.status] == [200, 200]
    assert applied.body.get("status") == left
    assert bool(owned(applied)) == (left in ({"inner": {}}, {}))


@pytest.mark.parametrize("field", ["items", "free"])
async def test_an_item_that_its_applier_gives_up_is_gone_with_what_others_set_in_it(api, group, ns, field):
    things, thing = await kind(api, group, ns, LISTS)

    def one(**item):
        return thing(status={"items": [{"k": "x", **item}]} if field == "items" else {"free": {"x": item}})

    await api.apply(f"{things}/a", one(v="1"), "one")
    await api.merge(f"{things}/a", one(v="1", w="2"), fieldManager="two")
    left = await api.apply(f"{things}/a", thing(spec={"a": 1}), "one")
    assert (left.status, left.body.get("status")) == (200, {field: None})


@pytest.mark.parametrize("type_", ["string", "integer"])
async def test_nobody_owns_an_object_with_a_value_that_does_not_fit_the_type_beside_int_or_string(
    api, group, ns, type_
):
    either = {"type": type_, "x-kubernetes-int-or-string": True}
    things, thing = await kind(api, group, ns, fields(spec=fields(ports=fields(first=either), other=STRING)))
    fitting, odd = (1, "x") if type_ == "integer" else ("x", 1)
    made = await api.create(things, thing(spec={"ports": {"first": odd}}))
    changed = await api.merge(f"{things}/a", {"spec": {"other": "b"}})
    assert [(answer.status, owned(answer)) for answer in (made, changed)] == [(201, {}), (200, {})]
    refused = [
        await api.apply(f"{things}/a", thing(spec={"other": "c"})),
        await api.apply(f"{things}/b", thing("b", spec={"ports": {"first": odd}})),
    ]
    assert [answer.status for answer in refused] == [500, 500]
    mended = await api.merge(f"{things}/a", {"spec": {"ports": {"first": fitting}}})
    assert (mended.status, owned(mended)) == (200, {})
    applied = await api.apply(f"{things}/a", thing(spec={"other": "d"}), force="true")
    assert set(owned(applied)) == {("before-first-apply", "Update", ""), ("one", "Apply", "")}


@pytest.mark.parametrize("text", ['"\\ud83e\\uddad"', '"\\ud83e"', '"\\\\ud83e"', '"\U0001f9ad"'])
async def test_an_apply_is_yaml_in_which_no_escape_sequence_is_half_of_a_surrogate_pair(api, ns, text):
    things = await shared(api, "wide-numbers", ns, NUMBERS)
    body = json.dumps(things.body({"n": 1, "kept": {"a": "@"}})).replace('"@"', text).encode()
    made = await api.apply(f"{things.path}/a", body)
    assert made.status == (400 if text.startswith('"\\ud') else 201)


@pytest.mark.parametrize("rule", ["sign(quantity(self)) == 1", "quantity(self).sign() == 1"])
async def test_the_sign_of_a_quantity_is_a_function_and_no_method(api, group, rule):
    schema = fields(spec={**STRING, "x-kubernetes-validations": [{"rule": rule}]})
    with aside():  # the compilers have words of their own
        tried = await api.create(
            DEFINITIONS, defined(group, {}, schema={"openAPIV3Schema": schema}), dryRun="All"
        )
    assert tried.status == (201 if rule.startswith("sign") else 422)


RBAC = "rbac.authorization.k8s.io"
APPROVED = {"api-approved.kubernetes.io": "https://example.com/approved"}


@pytest.mark.parametrize(
    ("plural", "kind", "code"), [("rolebindings", "RoleBinding", 422), ("bindinggroups", "BindingGroup", 404)]
)
async def test_a_definition_in_a_group_of_the_server_is_accepted_but_never_served(
    api, ns, plural, kind, code
):
    definition = defined(RBAC, OPEN)
    definition["metadata"] = {"name": f"{plural}.{RBAC}", "annotations": APPROVED}
    definition["spec"]["names"] = {"plural": plural, "kind": kind}
    at, objects = f"{DEFINITIONS}/{plural}.{RBAC}", f"/apis/{RBAC}/v1/namespaces/{ns}/{plural}"
    built_in = {"apiVersion": f"{RBAC}/v1", "kind": "RoleBinding", "metadata": {"name": "kept"}}
    built_in["roleRef"] = {"apiGroup": RBAC, "kind": "Role", "name": "a"}
    bindings = f"/apis/{RBAC}/v1/namespaces/{ns}/rolebindings"
    assert (await api.create(bindings, built_in)).status == 201

    async def established():
        conditions = (await api.get(at))["status"].get("conditions") or ()
        return ("Established", "True") in {(each["type"], each["status"]) for each in conditions}

    with aside():
        assert (await api.create(DEFINITIONS, definition)).status == 201
    await until(established)
    body = {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": {"name": "a"}, "spec": {"a": 1}}
    assert (await api.create(objects, body)).status == code
    served = [each["name"] for each in (await api.get(f"/apis/{RBAC}/v1"))["resources"]]
    assert served == ["clusterrolebindings", "clusterroles", "rolebindings", "roles"]
    assert (await api.delete(at)).status == 200
    assert (await api.get(f"{bindings}/kept")).status == 200


def named(*names):
    return {"properties": {"a": {"enum": list(names)}}}


@pytest.mark.parametrize("alternatives", [{"not": named("y")}, {"oneOf": [named("x"), named("y")]}])
async def test_alternatives_are_judged_anew_where_an_update_changes_nothing(api, group, ns, alternatives):
    spec = {**fields(a=STRING, b=STRING), **alternatives}
    things, thing = await kind(api, group, ns, fields(spec=spec))
    assert (await api.create(things, thing(spec={"a": "x"}))).status == 201
    assert (await api.merge(f"{things}/a", {"spec": {"b": "c"}})).status == 200
