"""Validation of custom resources by keyword: combinations, formats, numbers, enums, embedded objects."""

import pytest
from conformance_api import owned
from conformance_schemas import Things, fields, shared


@pytest.fixture
def group(name):
    """Returns a group that no other test case uses."""
    return f"{name}.example.com"


@pytest.fixture
def things(api, group, ns):
    return Things(api, group, ns)


INVALID = "FieldValueInvalid"
TYPE = "FieldValueTypeInvalid"
STRING, INTEGER, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}
FREE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def whole(message):
    """Returns a cause for which the server names no field."""
    return ("<nil>", INVALID, f'Invalid value: "": {message}')


COMBINED = {
    "one": {
        **fields(a=STRING, b=STRING),
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
    },
    "any": {
        **fields(a=STRING, b=STRING),
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
    },
    "all": {"type": "string", "allOf": [{"minLength": 2}, {"pattern": "^x"}]},
    "none": {"type": "string", "not": {"enum": ["bad"]}},
    "port": {
        "x-kubernetes-int-or-string": True,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "allOf": [{"maxLength": 3}],
    },
    "levels": {
        "type": "integer",
        "anyOf": [{"maximum": 3}, {"minimum": 10, "multipleOf": 5}],
    },
    "deep": {
        **fields(kind=STRING, size=INTEGER),
        "oneOf": [
            {"properties": {"kind": {"enum": ["small"]}, "size": {"maximum": 5}}},
            {"properties": {"kind": {"enum": ["big"]}, "size": {"minimum": 50}}},
        ],
    },
}


@pytest.mark.parametrize(
    "spec",
    [
        {"one": {"a": "x"}},
        {"any": {"a": "x", "b": "y"}},
        {"all": "xy"},
        {"none": "good"},
        {"port": 80},
        {"port": "80"},
        {"levels": 2},
        {"levels": 15},
        {"deep": {"kind": "big", "size": 60}},
    ],
)
async def test_combinations_that_hold(api, ns, spec):
    things = await shared(api, "combined", ns, fields(**COMBINED))
    made = await things.create(spec)
    assert (made.status, made.body.get("spec")) == (201, spec), made.text


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        (
            {"one": {}},
            {
                whole('"spec.one" must validate one and only one schema (oneOf). Found none valid'),
                ("spec.one.a", "FieldValueRequired", "Required value"),
            },
        ),
        (
            {"one": {"a": "x", "b": "y"}},
            {whole('"spec.one" must validate one and only one schema (oneOf). Found 2 valid alternatives')},
        ),
        (
            {"any": {}},
            {
                whole('"spec.any" must validate at least one schema (anyOf)'),
                ("spec.any.a", "FieldValueRequired", "Required value"),
            },
        ),
        (
            {"all": "x"},
            {
                whole('"spec.all" must validate all the schemas (allOf)'),
                (
                    "spec.all",
                    INVALID,
                    'Invalid value: "x": spec.all in body should be at least 2 chars long',
                ),
            },
        ),
        (
            {"all": "y"},
            {
                whole('"spec.all" must validate all the schemas (allOf). None validated'),
                (
                    "spec.all",
                    INVALID,
                    'Invalid value: "y": spec.all in body should be at least 2 chars long',
                ),
                ("spec.all", INVALID, "Invalid value: \"y\": spec.all in body should match '^x'"),
            },
        ),
        ({"none": "bad"}, {whole('"spec.none" must not validate the schema (not)')}),
        (
            {"port": "8080"},
            {
                whole('"spec.port" must validate all the schemas (allOf). None validated'),
                ("spec.port", "FieldValueTooLong", "Too long: may not be more than 3 bytes"),
            },
        ),
        (
            {"port": True},
            {
                (
                    "spec.port",
                    TYPE,
                    'Invalid value: "boolean": spec.port in body must be of type integer,string: "boolean"',
                ),
                whole('"spec.port" must validate at least one schema (anyOf)'),
                (
                    "spec.port",
                    TYPE,
                    'Invalid value: "boolean": spec.port in body must be of type integer: "boolean"',
                ),
            },
        ),
        (
            {"levels": 7},
            {
                whole('"spec.levels" must validate at least one schema (anyOf)'),
                (
                    "spec.levels",
                    INVALID,
                    "Invalid value: 7: spec.levels in body should be less than or equal to 3",
                ),
            },
        ),
        (
            {"deep": {"kind": "big", "size": 7}},
            {
                whole('"spec.deep" must validate one and only one schema (oneOf). Found none valid'),
                (
                    "spec.deep.size",
                    INVALID,
                    "Invalid value: 7: spec.deep.size in body should be less than or equal to 5",
                ),
                (
                    "spec.deep.kind",
                    "FieldValueNotSupported",
                    'Unsupported value: "big": supported values: "small"',
                ),
            },
        ),
    ],
)
async def test_combinations_that_do_not_hold_are_told_with_the_nearest_alternative(api, ns, spec, causes):
    things = await shared(api, "combined", ns, fields(**COMBINED))
    refused = await things.create(spec)
    assert refused.refusal == (422, "Invalid")
    assert refused.causes == causes


FORMATS = {
    "date": (("2024-02-29", "0000-02-29"), ("2023-02-29", "2024-2-9", "")),
    "date-time": (
        ("2024-02-29T23:59:59Z", "2024-02-29t00:00:00.123+02:00"),
        ("2024-02-29", "2024-02-29T24:00:00Z", "2024-02-29T00:00:00"),
    ),
    "duration": (("1h30m", "-1.5s", "3 weeks", "0"), ("1x", "", "h")),
    "uri": (("http://a.b/c?d#e", "/a", "mailto:a@b"), ("a/b", "", "%zz", "http://[::1", "/%zz")),
    "email": (("a@b", "Ann <a@b.c>", '"a b"@c'), ("a", "a@", "a b@c")),
    "hostname": (("a", "a-b.example", "1.example"), ("-a", "a_b", "a..b", "")),
    "ipv4": (("1.2.3.4", "01.2.3.4", "::ffff:1.2.3.4"), ("1.2.3", "::1", "1.2.3.256")),
    "ipv6": (("::1", "::ffff:1.2.3.4"), ("1.2.3.4", "::1%eth0", ":::")),
    "cidr": (("10.0.0.0/8", "::/0", "10.0.0.01/8"), ("10.0.0.0", "10.0.0.0/33", "10.0.0.0/")),
    "mac": (("01:23:45:67:89:ab", "0123.4567.89ab", "01-23-45-67-89-AB"), ("01:23", "01:23-45:67:89:ab")),
    "uuid": (("6ba7b810-9dad-11d1-80b4-00c04fd430c8", "6BA7B8109DAD11D180B400C04FD430C8"), ("6ba7b810", "")),
    "uuid4": (
        ("6ba7b810-9dad-41d1-80b4-00c04fd430c8",),
        ("6ba7b810-9dad-11d1-80b4-00c04fd430c8", "6ba7b810-9dad-41d1-70b4-00c04fd430c8"),
    ),
    "byte": (("YQ==", "YWJj"), ("YQ", "Y", "", "_w==")),
    "password": (("anything", ""), ()),
    "isbn": (("0321751043", "978-0321751041"), ("0321751044", "")),
    "creditcard": (("4111 1111 1111 1111",), ("4111 1111 1111 1112",)),
    "ssn": (("111-22-3333", "111 22 3333"), ("111223333", "1")),
    "hexcolor": (("#fff", "FFAA00"), ("#ff", "red")),
    "rgbcolor": (("rgb(0, 10,255)",), ("rgb(0,1,256)", "rgb(0,1)")),
    "bsonobjectid": (("507f1f77bcf86cd799439011",), ("507f",)),
    "k8s-short-name": (("a-b",), ("A", "a.b", "-a")),
    "k8s-long-name": (("a.b-c",), ("a..b", "A")),
    "unknown": (("anything", ""), ()),
    "int32": (("anything",), ()),
}


@pytest.mark.parametrize("format_", FORMATS)
async def test_a_format_of_strings(api, ns, format_):
    every = fields(**{name: {"type": "string", "format": name} for name in FORMATS})
    things = await shared(api, "formats", ns, every)
    good, bad = FORMATS[format_]
    taken = {
        text for text in (*good, *bad) if (await things.create({format_: text}, dryRun="All")).status == 201
    }
    assert taken == set(good)


async def test_what_is_wrong_with_a_format_is_told(things):
    await things.define(fields(x={"type": "string", "format": "ipv4", "maxLength": 3}))
    refused = await things.create({"x": "a\"b'c"})
    assert refused.causes == {
        ("spec.x", "FieldValueTooLong", "Too long: may not be more than 3 bytes"),
        (
            "spec.x",
            TYPE,
            'Invalid value: "a\\"b\'c": spec.x in body must be of type ipv4: "a\\"b\'c"',
        ),
    }


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (5, 'Invalid value: "int64": spec.x in body must be of type ipv4: "int64"'),
        (1.5, 'Invalid value: "float64": spec.x in body must be of type ipv4: "float64"'),
        (True, 'Invalid value: "": spec.x in body must be of type ipv4: ""'),
        ({}, 'Invalid value: "": spec.x in body must be of type ipv4: ""'),
    ],
)
async def test_another_type_than_a_formatted_string(api, ns, value, told):
    things = await shared(api, "addresses", ns, fields(x={"type": "string", "format": "ipv4"}))
    assert (await things.create({"x": value})).causes == {("spec.x", TYPE, told)}


async def test_a_list_passes_for_a_formatted_string(api, ns):
    things = await shared(api, "addresses", ns, fields(x={"type": "string", "format": "ipv4"}))
    assert (await things.create({"x": ["y"]})).status == 201


NUMBERS = fields(
    small={"type": "integer", "format": "int32"},
    big={"type": "integer", "format": "int64"},
    real={"type": "number", "format": "float"},
    strict={
        "type": "integer",
        "minimum": 0,
        "exclusiveMinimum": True,
        "maximum": 10,
        "exclusiveMaximum": True,
    },
    step={"type": "integer", "multipleOf": 3},
    part={"type": "number", "multipleOf": 0.1, "minimum": 0.5},
)


@pytest.mark.parametrize(
    "spec",
    [
        {"small": 2147483647},
        {"small": -2147483648},
        {"small": 3.0},
        {"big": 9223372036854775807},
        {"real": 3.4e38},
        {"real": 3},
        {"strict": 1},
        {"strict": 9},
        {"step": -6},
        {"part": 0.7},
    ],
)
async def test_numbers_within_their_bounds(api, ns, spec):
    things = await shared(api, "numbers", ns, NUMBERS)
    assert (await things.create(spec)).status == 201


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        (
            {"small": 2147483648},
            {whole("Checked value must be of type integer with format int32 in spec.small")},
        ),
        ({"real": 3.5e38}, {whole("Checked value must be of type number with format float in spec.real")}),
        (
            {"big": 1.5},
            {
                (
                    "spec.big",
                    TYPE,
                    'Invalid value: "float64": spec.big in body must be of type int64: "float64"',
                ),
                whole("Checked value must be of type integer with format int64 in spec.big"),
            },
        ),
        (
            {"strict": 0},
            {("spec.strict", INVALID, "Invalid value: 0: spec.strict in body should be greater than 0")},
        ),
        (
            {"strict": 10},
            {("spec.strict", INVALID, "Invalid value: 10: spec.strict in body should be less than 10")},
        ),
        (
            {"step": 4},
            {("spec.step", INVALID, "Invalid value: 4: spec.step in body should be a multiple of 3")},
        ),
        (
            {"part": 0.55},
            {("spec.part", INVALID, "Invalid value: 0.55: spec.part in body should be a multiple of 0.1")},
        ),
        (
            {"part": 3},
            {
                (
                    "spec.part",
                    INVALID,
                    "Invalid value: 0: factor MultipleOf declared for spec.part must be positive: 0",
                )
            },
        ),
        (
            {"part": 0.4},
            {
                (
                    "spec.part",
                    INVALID,
                    "Invalid value: 0.4: spec.part in body should be greater than or equal to 0.5",
                )
            },
        ),
    ],
)
async def test_numbers_beyond_their_bounds(api, ns, spec, causes):
    things = await shared(api, "numbers", ns, NUMBERS)
    assert (await things.create(spec)).causes == causes


ANY_NUMBERS = fields(
    free={"x-kubernetes-preserve-unknown-fields": True},
    set={"type": "array", "items": NUMBER, "x-kubernetes-list-type": "set"},
    most={"type": "number", "maximum": 1e20},
    ruled={**INTEGER, "x-kubernetes-validations": [{"rule": "self < 5"}]},
)


@pytest.mark.parametrize(
    ("sent", "written"),
    [
        (1.0, "1"),
        (-0.0, "0"),
        (123456789012345678.0, "123456789012345680"),
        (2**63, "9223372036854776000"),
        (18446744073709551615, "18446744073709552000"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1.5, "1.5"),
    ],
)
async def test_numbers_are_written_as_go_writes_them(api, ns, sent, written):
    things = await shared(api, "anynumbers", ns, ANY_NUMBERS)
    spec = {"free": sent}
    created = await things.create(spec)
    path = f"{things.path}/a"
    read = await api.get(path)
    assert repr(read["spec"]["free"]) == written
    assert repr(created["spec"]["free"]) == written
    assert owned(await things.merge(spec)) == owned(created)
    applied = await api.apply(path, things.body(spec))
    assert repr(applied["spec"]["free"]) == written
    assert owned(applied) == {
        **owned(created),
        ("one", "Apply", ""): {"f:spec": {"f:free": {}}},
    }


async def test_a_whole_number_in_a_set_is_owned_as_it_is_read_again(api, ns):
    things = await shared(api, "anynumbers", ns, ANY_NUMBERS)
    created = await things.create({"set": [1, 2.0]})
    assert list(owned(created).values()) == [{"f:spec": {".": {}, "f:set": {".": {}, "v:1": {}, "v:2": {}}}}]
    applied = await api.apply(f"{things.path}/a", things.body({"set": [1, 2.0]}))
    assert applied["spec"] == {"set": [1, 2]}


async def test_a_bound_that_is_no_integer_is_the_smallest_for_integers(api, ns):
    things = await shared(api, "anynumbers", ns, ANY_NUMBERS)
    assert (await things.create({"most": 1.0}, "float")).status == 201
    told = "spec.most in body should be less than or equal to -9223372036854775808"
    assert (await things.create({"most": 1})).causes == {("spec.most", INVALID, f"Invalid value: 1: {told}")}
    assert (await api.apply(f"{things.path}/b", things.body({"most": 1.0}, "b"))).fields == {"spec.most"}


async def test_a_rule_of_an_integer_refuses_a_float(api, ns):
    things = await shared(api, "anynumbers", ns, ANY_NUMBERS)
    assert (await things.create({"ruled": 1})).status == 201
    assert (await things.create({"ruled": 1.0}, "b")).fields == {"spec.ruled"}


async def test_a_test_of_a_json_patch_compares_the_texts_of_numbers(api, ns):
    things = await shared(api, "anynumbers", ns, ANY_NUMBERS)
    await things.create({"free": [1, 1.5, 2**64]})

    async def test(index, value):
        op = {"op": "test", "path": f"/spec/free/{index}", "value": value}
        return (await api.json_patch(f"{things.path}/a", op)).status

    assert [await test(0, 1), await test(0, 1.0)] == [200, 422]
    assert await test(1, 1.5) == 200
    assert [await test(2, 18446744073709552000), await test(2, 2**64)] == [200, 422]


@pytest.mark.parametrize("word", ["default", "example", "minimum"])
@pytest.mark.parametrize(("sent", "written"), [(1.0, "1"), (1e3, "1000"), (1e20, "100000000000000000000")])
async def test_numbers_in_a_definition_are_written_as_go_writes_them(things, word, sent, written):
    answer = await things.defining(fields(x={"type": "number", word: sent}))
    schema = answer["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert repr(schema["properties"]["spec"]["properties"]["x"][word]) == written


ENUMS = fields(
    number={"type": "integer", "enum": [1, 2]},
    flag={"type": "boolean", "enum": [True]},
    shape={**FREE, "enum": [{"a": 1}, {}]},
    ratio={"type": "number", "enum": [0.5, 1]},
    maybe={"type": "string", "nullable": True, "enum": ["a"]},
)


@pytest.mark.parametrize(
    "spec", [{"number": 2}, {"flag": True}, {"shape": {"a": 1}}, {"ratio": 1}, {"ratio": 0.5}]
)
async def test_choices_that_are_not_strings(api, ns, spec):
    things = await shared(api, "enums", ns, ENUMS)
    assert (await things.create(spec)).status == 201


@pytest.mark.parametrize(
    ("spec", "field", "told"),
    [
        ({"number": 3}, "spec.number", 'Unsupported value: 3: supported values: "1", "2"'),
        ({"flag": False}, "spec.flag", 'Unsupported value: false: supported values: "true"'),
        (
            {"shape": {"b": 1}},
            "spec.shape",
            'Unsupported value: {"b":1}: supported values: "{\\"a\\":1}", "{}"',
        ),
        ({"ratio": 0.7}, "spec.ratio", 'Unsupported value: 0.7: supported values: "0.5", "1"'),
        ({"maybe": None}, "spec.maybe", 'Unsupported value: null: supported values: "a"'),
    ],
)
async def test_what_is_no_choice(api, ns, spec, field, told):
    things = await shared(api, "enums", ns, ENUMS)
    assert (await things.create(spec)).causes == {(field, "FieldValueNotSupported", told)}


async def test_a_wrong_type_is_no_choice_either(things):
    await things.define(fields(x={"type": "string", "enum": ["a"]}))
    assert (await things.create({"x": 5})).causes == {
        ("spec.x", TYPE, 'Invalid value: "integer": spec.x in body must be of type string: "integer"'),
        ("spec.x", "FieldValueNotSupported", 'Unsupported value: 5: supported values: "a"'),
    }


PATTERNS = {
    "end": "^a$",
    "digits": r"^\d+$",
    "letters": r"^\p{L}+$",
    "flag": "(?i)^abc",
    "edges": r"\Aa\z",
    "class": "^[[:alpha:]]+$",
}


@pytest.mark.parametrize(
    ("which", "good", "bad"),
    [
        ("end", "a", "a\n"),
        ("digits", "12", "\u0661"),
        ("letters", "\u00e4b", "1"),
        ("flag", "ABCd", "xabc"),
        ("edges", "a", "ba"),
        ("class", "ab", "a1"),
    ],
)
async def test_patterns_are_those_of_re2(api, ns, which, good, bad):
    every = fields(**{"x" + name: {"type": "string", "pattern": text} for name, text in PATTERNS.items()})
    things = await shared(api, "patterns", ns, every)
    assert (await things.create({"x" + which: good}, dryRun="All")).status == 201
    assert (await things.create({"x" + which: bad}, dryRun="All")).causes == {
        (
            f"spec.x{which}",
            INVALID,
            f"Invalid value: {quoted(bad)}: spec.x{which} in body should match '{PATTERNS[which]}'",
        )
    }


def quoted(text):
    return '"' + text.replace("\n", "\\n") + '"'


COLLECTIONS = fields(
    map={"type": "object", "additionalProperties": {"type": "string", "maxLength": 2}, "maxProperties": 2},
    least={**FREE, "minProperties": 1},
    sets={
        "type": "array",
        "x-kubernetes-list-type": "set",
        "items": {
            "type": "object",
            "x-kubernetes-map-type": "atomic",
            "x-kubernetes-preserve-unknown-fields": True,
        },
    },
    keyed={
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["port", "protocol"],
        "items": {
            "type": "object",
            "required": ["port"],
            "properties": {"port": INTEGER, "protocol": {"type": "string", "default": "TCP"}},
        },
    },
)


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        (
            {"map": {"a": "1", "b": "2", "c": "3"}},
            {("spec.map", "FieldValueTooMany", "Too many: 3: must have at most 2 items")},
        ),
        (
            {"map": {"a.b": "123"}},
            {("spec.map.a.b", "FieldValueTooLong", "Too long: may not be more than 2 bytes")},
        ),
        (
            {"least": {}},
            {
                (
                    "spec.least",
                    INVALID,
                    "Invalid value: 0: spec.least in body should have at least 1 properties",
                )
            },
        ),
        (
            {"sets": [{"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1, "b": 2}]},
            {("spec.sets[1]", "FieldValueDuplicate", 'Duplicate value: {"a":1,"b":2}')},
        ),
        (
            {"keyed": [{"port": 1}, {"port": 1, "protocol": "UDP"}, {"port": 1, "protocol": "TCP"}]},
            {("spec.keyed[2]", "FieldValueDuplicate", 'Duplicate value: {"port":1,"protocol":"TCP"}')},
        ),
        (
            {"keyed": [{"port": "x"}, {"port": "x"}]},
            {
                (
                    f"spec.keyed[{index}].port",
                    TYPE,
                    f'Invalid value: "string": spec.keyed[{index}].port in body must be of type integer: "string"',
                )
                for index in (0, 1)
            }
            | {("spec.keyed[1]", "FieldValueDuplicate", 'Duplicate value: {"port":"x","protocol":"TCP"}')},
        ),
    ],
)
async def test_collections(api, ns, spec, causes):
    things = await shared(api, "collections", ns, COLLECTIONS)
    assert (await things.create(spec)).causes == causes


async def test_nested_defaults_are_filled_in(things):
    await things.define(
        fields(
            outer={**fields(inner={**fields(x={"type": "integer", "default": 3})}), "default": {}},
            list={"type": "array", "items": {"type": "integer", "nullable": True}},
            items={"type": "array", "items": fields(y={"type": "string", "default": "z"})},
            map={"type": "object", "additionalProperties": fields(y={"type": "string", "default": "z"})},
            deep={
                **fields(inner={**fields(x={"type": "integer", "default": 3}), "default": {}}),
                "default": {},
            },
        )
    )
    made = await things.create({"items": [{}, {"y": "a"}], "map": {"k": {}, "n": None}, "list": [None, 1]})
    assert made["spec"] == {
        "outer": {},
        "deep": {"inner": {"x": 3}},
        "items": [{"y": "z"}, {"y": "a"}],
        "map": {"k": {"y": "z"}},
        "list": [None, 1],
    }


async def test_preserved_fields_are_pruned_where_they_are_specified(things):
    await things.define(
        {
            **fields(known=fields(a=STRING)),
            "x-kubernetes-preserve-unknown-fields": True,
        }
    )
    made = await things.create({"any": {"thing": 1}, "known": {"a": "x", "b": 1}})
    assert made["spec"] == {"any": {"thing": 1}, "known": {"a": "x"}}
    assert made.warnings == ['unknown field "spec.known.b"']


async def test_what_is_below_additional_properties_without_a_schema_is_pruned(things):
    await things.define(fields(map={"type": "object", "additionalProperties": True}))
    made = await things.create({"map": {"a": 1, "b": {"c": 1}}})
    assert made["spec"] == {"map": {"a": 1, "b": {}}}


EMBEDDED = {
    "type": "object",
    "x-kubernetes-embedded-resource": True,
    "x-kubernetes-preserve-unknown-fields": True,
}


async def test_an_embedded_object_keeps_its_type_and_has_its_metadata_pruned(api, ns):
    things = await shared(api, "embedded", ns, fields(template=EMBEDDED))
    template = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "bogus": 1, "labels": {"x": "y"}},
        "spec": {"z": 1},
    }
    made = await things.create({"template": template})
    assert made["spec"]["template"] == {**template, "metadata": {"name": "a", "labels": {"x": "y"}}}
    assert made.warnings == ['unknown field "spec.template.metadata.bogus"']


@pytest.mark.parametrize(
    ("template", "causes"),
    [
        (
            {},
            {
                ("spec.template.apiVersion", "FieldValueRequired", "Required value"),
                ("spec.template.kind", "FieldValueRequired", "Required value"),
            },
        ),
        (
            {"apiVersion": "", "kind": ""},
            {
                ("spec.template.apiVersion", INVALID, 'Invalid value: "": must not be empty'),
                ("spec.template.kind", INVALID, 'Invalid value: "": must not be empty'),
            },
        ),
        (
            {"apiVersion": "a/b/c", "kind": "X"},
            {
                (
                    "spec.template.apiVersion",
                    INVALID,
                    'Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c',
                )
            },
        ),
        (
            {"apiVersion": "v1", "kind": "X", "metadata": {"name": "a/b"}},
            {("spec.template.metadata.name", INVALID, "Invalid value: \"a/b\": may not contain '/'")},
        ),
    ],
)
async def test_an_embedded_object_is_one(api, ns, template, causes):
    things = await shared(api, "embedded", ns, fields(template=EMBEDDED))
    assert (await things.create({"template": template})).causes == causes


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ({"apiVersion": 1}, "spec.template.apiVersion: Invalid value: 1: must be a string"),
        (
            {"metadata": {"labels": 1}},
            'spec.template.metadata: Invalid value: {"labels":1}: json: cannot unmarshal number into Go struct field '
            "ObjectMeta.labels of type map[string]string",
        ),
    ],
)
async def test_an_embedded_object_of_another_form_cannot_be_read(api, ns, template, told):
    things = await shared(api, "embedded", ns, fields(template=EMBEDDED))
    refused = await things.create({"template": template})
    assert refused.refusal == (400, "BadRequest")
    assert refused.message == f'Thing in version "v1" cannot be handled as a Thing: {told}'


async def test_what_is_wrong_and_was_before_does_not_stop_an_update(things):
    loose = fields(
        a=STRING,
        b=STRING,
        list={"type": "array", "items": STRING},
        map={"type": "object", "additionalProperties": STRING},
    )
    await things.define(loose)
    await things.create({"a": "long", "list": ["long"], "map": {"k": "long"}})
    short = {"type": "string", "maxLength": 2}
    await things.redefine(
        fields(
            a=short,
            b=short,
            list={"type": "array", "items": short},
            map={"type": "object", "additionalProperties": short},
        )
    )
    assert (await things.merge({"b": "x"})).status == 200
    assert (await things.merge({"map": {"n": "y"}})).status == 200
    refused = await things.merge({"b": "yyy"})
    assert refused.fields == {"spec.b"}
    refused = await things.merge({"list": ["long", "x"]})
    assert refused.fields == {"spec.list[0]"}


async def test_items_of_a_map_are_known_again_by_their_keys(things):
    def keyed(name):
        return fields(
            keyed={
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["id"],
                "items": {"type": "object", "required": ["id"], "properties": {"id": INTEGER, "name": name}},
            }
        )

    await things.define(keyed(STRING))
    await things.create({"keyed": [{"id": 1, "name": "long"}, {"id": 2}]})
    await things.redefine(keyed({"type": "string", "maxLength": 2}))
    assert (await things.merge({"keyed": [{"id": 2, "name": "x"}, {"id": 1, "name": "long"}]})).status == 200
    refused = await things.merge({"keyed": [{"id": 2, "name": "long"}, {"id": 1, "name": "long"}]})
    assert refused.fields == {"spec.keyed[0].name"}


async def test_the_status_is_checked_from_its_own_root(things):
    await things.define(
        fields(),
        subresources={"status": {}},
        schema={
            "openAPIV3Schema": fields(
                status={
                    **fields(a={"type": "integer", "maximum": 3}),
                    "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
                }
            )
        },
    )
    await things.create({})
    refused = await things.api.merge(f"{things.path}/a/status", {"status": {"a": 4}})
    assert refused.causes == {
        ("status.a", INVALID, "Invalid value: 4: a in body should be less than or equal to 3")
    }
    refused = await things.api.merge(f"{things.path}/a/status", {"status": {}})
    assert (
        "status",
        INVALID,
        'Invalid value: "": "" must validate at least one schema (anyOf)',
    ) in refused.causes
