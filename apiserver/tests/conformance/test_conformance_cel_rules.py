"""Rules of custom resources, `x-kubernetes-validations`: variables, messages, and when they are evaluated."""

import pytest
from conformance_schemas import Things, fields, shared


@pytest.fixture
def group(name):
    """Returns a group that no other test case uses."""
    return f"{name}.example.com"


@pytest.fixture
def things(api, group, ns):
    return Things(api, group, ns)


INVALID = "FieldValueInvalid"
STRING, INTEGER, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}


def rule(text, **more):
    return {"rule": text, **more}


def ruled(schema, *rules):
    return {**schema, "x-kubernetes-validations": list(rules)}


VALUES = fields(
    count=ruled(INTEGER, rule("self < 10")),
    ratio=ruled(NUMBER, rule("self / 2.0 <= 1.0", message="too much")),
    range=ruled(
        fields(min=INTEGER, max=INTEGER),
        rule(
            "!has(self.max) || self.min <= self.max",
            messageExpression="'%d > %d'.format([self.min, self.max])",
        ),
    ),
    reasons=ruled(
        fields(a=STRING, b=STRING, c=STRING, d=STRING),
        rule("!has(self.a)", reason="FieldValueForbidden", fieldPath=".a", message="no a"),
        rule("!has(self.b)", reason="FieldValueRequired", fieldPath=".b", message="b needs more"),
        rule("!has(self.c)", reason="FieldValueDuplicate", fieldPath=".c"),
        rule("!has(self.d)", reason="FieldValueInvalid", fieldPath=".d"),
    ),
    names={
        "type": "array",
        "maxItems": 10,
        "items": ruled({"type": "string", "maxLength": 10}, rule("self.startsWith('a')")),
    },
    labels={
        "type": "object",
        "maxProperties": 5,
        "additionalProperties": ruled({"type": "string", "maxLength": 10}, rule("self != 'bad'")),
    },
    escaped=ruled(
        fields(**{"foo-bar": INTEGER, "namespace": STRING, "a.b": STRING, "x__y": STRING}),
        rule("!has(self.foo__dash__bar) || self.foo__dash__bar > 0"),
        rule("!has(self.__namespace__) || self.__namespace__ == 'x'"),
        rule("!has(self.namespace) || self.namespace == 'x'"),
        rule("!has(self.a__dot__b) || self.a__dot__b == 'x'"),
        rule("!has(self.x__underscores__y) || self.x__underscores__y == 'x'"),
    ),
    port=ruled({"x-kubernetes-int-or-string": True}, rule("type(self) == int ? self > 0 : self != '0'")),
    when=ruled(
        {"type": "string", "format": "date-time"}, rule("self.getFullYear() > 2000", message="too old")
    ),
    day=ruled({"type": "string", "format": "date"}, rule("self > timestamp('2000-01-01T00:00:00Z')")),
    wait=ruled({"type": "string", "format": "duration"}, rule("self <= duration('1h')")),
    data=ruled({"type": "string", "format": "byte"}, rule("self.size() == 3")),
    keyed=ruled(
        {
            "type": "array",
            "maxItems": 10,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["id"],
            "items": {
                "type": "object",
                "required": ["id"],
                "properties": {"id": {"type": "string", "maxLength": 10}, "on": {"type": "boolean"}},
            },
        },
        rule("self.exists_one(item, item.id == 'main')"),
    ),
    missing=ruled(fields(x=INTEGER), rule("self.x > 0")),
    division=ruled(INTEGER, rule("10 / self > 0")),
    text=ruled(
        {"type": "string", "maxLength": 100},
        rule("self.matches('^[a-z]+$') && !self.contains('z')", message=" spaces are cut "),
    ),
    quantity=ruled(
        {"type": "string", "maxLength": 20},
        rule("isQuantity(self) && quantity(self).isGreaterThan(quantity('1Gi'))"),
    ),
    anything={"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    maybe=ruled({"type": "string", "nullable": True}, rule("self != 'x'")),
    bad_message=ruled(INTEGER, rule("self > 0", message="plain", messageExpression="' '")),
)


@pytest.mark.parametrize(
    "spec",
    [
        {"count": 9},
        {"ratio": 2},
        {"range": {"min": 1}},
        {"range": {"min": 1, "max": 1}},
        {"reasons": {}},
        {"names": ["a", "ab"]},
        {"labels": {"x": "y"}},
        {"escaped": {"foo-bar": 1, "namespace": "x", "a.b": "x", "x__y": "x"}},
        {"port": 1},
        {"port": "http"},
        {"when": "2001-01-01T00:00:00Z"},
        {"day": "2000-01-02"},
        {"wait": "60m"},
        {"data": "YWJj"},
        {"keyed": [{"id": "main"}, {"id": "x"}]},
        {"missing": {"x": 1}},
        {"text": "abc"},
        {"quantity": "2Gi"},
        {"maybe": None},
    ],
)
async def test_rules_that_hold(api, ns, spec):
    things = await shared(api, "rules", ns, VALUES)
    made = await things.create(spec)
    assert made.status == 201, made.text


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        ({"count": 10}, {("spec.count", INVALID, "Invalid value: 10: failed rule: self < 10")}),
        ({"ratio": 2.5}, {("spec.ratio", INVALID, "Invalid value: 2.5: too much")}),
        ({"range": {"min": 2, "max": 1}}, {("spec.range", INVALID, "Invalid value: 2 > 1")}),
        ({"reasons": {"a": "x"}}, {("spec.reasons.a", "FieldValueForbidden", "Forbidden: no a")}),
        (
            {"reasons": {"b": "x"}},
            {("spec.reasons.b", "FieldValueRequired", "Required value: b needs more")},
        ),
        ({"reasons": {"c": "x"}}, {("spec.reasons.c", "FieldValueDuplicate", "Duplicate value")}),
        (
            {"reasons": {"d": "x"}},
            {("spec.reasons.d", INVALID, "Invalid value: failed rule: !has(self.d)")},
        ),
        (
            {"names": ["a", "b"]},
            {("spec.names[1]", INVALID, "Invalid value: \"b\": failed rule: self.startsWith('a')")},
        ),
        (
            {"labels": {"x": "bad"}},
            {("spec.labels[x]", INVALID, "Invalid value: \"bad\": failed rule: self != 'bad'")},
        ),
        (
            {"escaped": {"foo-bar": 0}},
            {
                (
                    "spec.escaped",
                    INVALID,
                    "Invalid value: failed rule: !has(self.foo__dash__bar) || self.foo__dash__bar > 0",
                )
            },
        ),
        (
            {"port": "0"},
            {
                (
                    "spec.port",
                    INVALID,
                    "Invalid value: \"0\": failed rule: type(self) == int ? self > 0 : self != '0'",
                )
            },
        ),
        (
            {"when": "1999-01-01T00:00:00Z"},
            {("spec.when", INVALID, 'Invalid value: "1999-01-01T00:00:00Z": too old')},
        ),
        (
            {"wait": "61m"},
            {("spec.wait", INVALID, "Invalid value: \"61m\": failed rule: self <= duration('1h')")},
        ),
        (
            {"keyed": [{"id": "x"}]},
            {
                (
                    "spec.keyed",
                    INVALID,
                    "Invalid value: failed rule: self.exists_one(item, item.id == 'main')",
                )
            },
        ),
        (
            {"missing": {}},
            {
                (
                    "spec.missing",
                    INVALID,
                    'Invalid value: "object": no such key: x evaluating rule: self.x > 0',
                )
            },
        ),
        (
            {"division": 0},
            {
                (
                    "spec.division",
                    INVALID,
                    'Invalid value: "integer": division by zero evaluating rule: 10 / self > 0',
                )
            },
        ),
        ({"text": "Z"}, {("spec.text", INVALID, 'Invalid value: "Z": spaces are cut')}),
        (
            {"bad_message": 0},
            {("spec.bad_message", INVALID, "Invalid value: 0: plain")},
        ),
        (
            {"count": "x"},
            {
                (
                    "spec.count",
                    "FieldValueTypeInvalid",
                    'Invalid value: "string": spec.count in body must be of type integer: "string"',
                ),
                (
                    "<nil>",
                    INVALID,
                    "Invalid value: null: some validation rules were not checked because the object was invalid; "
                    "correct the existing errors to complete validation",
                ),
            },
        ),
    ],
)
async def test_rules_that_do_not_hold(api, ns, spec, causes):
    things = await shared(api, "rules", ns, VALUES)
    refused = await things.create(spec)
    assert refused.refusal == (422, "Invalid")
    assert refused.causes == causes


TRANSITIONS = fields(
    fixed=ruled(STRING, rule("self == oldSelf", message="is immutable")),
    grows=ruled(INTEGER, rule("self >= oldSelf")),
    once=ruled(
        {"type": "string", "maxLength": 20},
        rule("oldSelf.hasValue() || self == 'first'", optionalOldSelf=True, message="begins with first"),
    ),
    set=ruled(
        {
            "type": "array",
            "maxItems": 5,
            "x-kubernetes-list-type": "set",
            "items": {"type": "string", "maxLength": 5},
        },
        rule("self == oldSelf", message="same set"),
    ),
    keyed={
        "type": "array",
        "maxItems": 5,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["id"],
        "items": {
            "type": "object",
            "required": ["id"],
            "properties": {
                "id": {"type": "string", "maxLength": 10},
                "size": ruled(INTEGER, rule("self >= oldSelf")),
            },
        },
    },
    map={
        "type": "object",
        "maxProperties": 5,
        "additionalProperties": ruled(INTEGER, rule("self >= oldSelf")),
    },
)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ({"fixed": "a"}, {"fixed": "b"}, {("spec.fixed", INVALID, 'Invalid value: "b": is immutable')}),
        ({}, {"fixed": "b"}, None),
        ({"fixed": "a"}, {"fixed": None}, None),
        ({"grows": 2}, {"grows": 3}, None),
        (
            {"grows": 2},
            {"grows": 1},
            {("spec.grows", INVALID, "Invalid value: 1: failed rule: self >= oldSelf")},
        ),
        ({"once": "first"}, {"once": "second"}, None),
        ({}, {"once": "x"}, {("spec.once", INVALID, 'Invalid value: "x": begins with first')}),
        ({"set": ["a", "b"]}, {"set": ["b", "a"]}, None),
        ({"set": ["a", "b"]}, {"set": ["a", "c"]}, {("spec.set", INVALID, "Invalid value: same set")}),
        (
            {"keyed": [{"id": "a", "size": 1}, {"id": "b", "size": 5}]},
            {"keyed": [{"id": "b", "size": 5}, {"id": "a", "size": 2}, {"id": "c", "size": 0}]},
            None,
        ),
        (
            {"keyed": [{"id": "a", "size": 1}, {"id": "b", "size": 5}]},
            {"keyed": [{"id": "b", "size": 4}]},
            {("spec.keyed[0].size", INVALID, "Invalid value: 4: failed rule: self >= oldSelf")},
        ),
        (
            {"map": {"a": 2}},
            {"map": {"a": 1}},
            {("spec.map[a]", INVALID, "Invalid value: 1: failed rule: self >= oldSelf")},
        ),
        ({"map": {"a": 2}}, {"map": {"a": None, "b": 1}}, None),
    ],
)
async def test_rules_about_changes(api, ns, before, after, told):
    things = await shared(api, "transitions", ns, TRANSITIONS)
    made = await things.create(before)
    assert made.status == 201, made.text
    changed = await things.merge(after)
    if told is None:
        assert changed.status == 200, changed.text
    else:
        assert changed.causes == told


async def test_a_rule_of_the_root_sees_the_name(api, group, things):
    schema = ruled(
        fields(spec=fields(x=STRING)),
        rule(
            "self.metadata.name.startsWith('a') && self.kind == 'Thing' && !has(self.metadata.generateName)"
        ),
    )
    await things.define(fields(), schema={"openAPIV3Schema": schema})
    assert (await things.create({}, "ab")).status == 201
    refused = await things.create({}, "b")
    assert {(field, reason) for field, reason, _ in refused.causes} == {("<nil>", INVALID)}


async def test_a_rule_that_did_not_hold_before_does_not_stop_an_update_elsewhere(things):
    await things.define(fields(x=INTEGER, y=INTEGER))
    await things.create({"x": 1})
    await things.redefine(fields(x=ruled(INTEGER, rule("self > 5")), y=INTEGER))
    changed = await things.merge({"y": 2})
    assert (changed.status, changed.warnings) == (200, ["spec.x: Invalid value: 1: failed rule: self > 5"])
    refused = await things.merge({"x": 2})
    assert refused.causes == {("spec.x", INVALID, "Invalid value: 2: failed rule: self > 5")}
    assert refused.warnings == []


async def test_what_items_in_another_order_do_not_keep_does_not_stop_an_update(things):
    item = fields(key=STRING, value=STRING)
    listed = {
        "type": "array",
        "maxItems": 9,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["key"],
        "items": {**item, "required": ["key"]},
    }
    await things.define(fields(items=listed))
    items = [{"key": "a", "value": "1"}, {"key": "b", "value": "2"}]
    await things.create({"items": items})
    tight = {**listed, "maxItems": 1, "items": {**listed["items"], "required": ["key", "more"]}}
    await things.redefine(fields(items=ruled(tight, rule("self[0].key == 'c'"))))
    changed = await things.merge({"items": items[::-1]})
    assert (changed.status, changed["spec"]["items"]) == (200, items[::-1])
    assert changed.warnings == ["spec.items: Invalid value: failed rule: self[0].key == 'c'"]
    refused = await things.merge({"items": [items[0], {"key": "b", "value": "3"}]})
    assert ("spec.items", "FieldValueTooMany", "Too many: 2: must have at most 1 item") in refused.causes


MISFITS = fields(
    number=INTEGER,
    numbers={"type": "array", "maxItems": 3, "items": INTEGER},
    map={"type": "object", "maxProperties": 3, "additionalProperties": INTEGER},
    name={**STRING, "maxLength": 5},
)


@pytest.mark.parametrize(
    ("spec", "failing"),
    [
        ({"number": 1.0}, "self.number > 0"),
        ({"numbers": [1, 2.0]}, "self.numbers.all(each, each > 0)"),
        ({"map": {"a": 1.0}}, "self.map['a'] + 1 > 0"),
    ],
    ids=str,
)
async def test_a_value_that_does_not_fit_fails_the_rules_that_compute_with_it_and_no_others(
    things, spec, failing
):
    others = (
        rule("!has(self.name) || self.name == 'a'"),
        rule("!has(self.numbers) || self.numbers.size() < 3"),
    )
    asked = rule(f"!has(self.name) || {failing}")
    await things.define(ruled(MISFITS, *others, asked))
    assert (await things.create(spec)).status == 201
    refused = await things.create({**spec, "name": "a"}, "b")
    message = (
        f'Invalid value: "object": invalid data, expected int, got float64 evaluating rule: {asked["rule"]}'
    )
    assert refused.causes == {("spec", INVALID, message)}


async def test_rules_of_the_status_are_asked_when_it_is_written(things):
    schema = fields(spec=fields(max=INTEGER), status=fields(now=INTEGER))
    schema = ruled(
        schema, rule("!has(self.status) || !has(self.status.now) || self.status.now <= self.spec.max")
    )
    await things.define(fields(), schema={"openAPIV3Schema": schema}, subresources={"status": {}})
    await things.create({"max": 3})
    path = f"{things.path}/a/status"
    assert (await things.api.merge(path, {"status": {"now": 3}})).status == 200
    assert (await things.api.merge(path, {"status": {"now": 4}})).refusal == (422, "Invalid")


BROKEN = [
    (rule(""), "rule", "FieldValueRequired", "Required value: rule is not specified"),
    (rule("true", message=" "), "message", INVALID, 'Invalid value: " ": must be non-empty if specified'),
    (
        rule("true", message="a\nb"),
        "message",
        INVALID,
        'Invalid value: "a\\nb": must not contain line breaks',
    ),
    (
        rule("true\n&& true"),
        "message",
        "FieldValueRequired",
        "Required value: message must be specified if rule contains line breaks",
    ),
    (
        rule("true", messageExpression=" "),
        "messageExpression",
        "FieldValueRequired",
        "Required value: messageExpression must be non-empty if specified",
    ),
    (
        rule("true", reason="Other"),
        "reason",
        "FieldValueNotSupported",
        'Unsupported value: "Other": supported values: "FieldValueDuplicate", "FieldValueForbidden", '
        '"FieldValueInvalid", "FieldValueRequired"',
    ),
    (rule("true", fieldPath=".y"), "fieldPath", INVALID, 'Invalid value: ".y": must be a valid path'),
    (
        rule("true", optionalOldSelf=True),
        "optionalOldSelf",
        INVALID,
        "Invalid value: true: may not be set if oldSelf is not used in rule",
    ),
]


@pytest.mark.parametrize(("said", "field", "reason", "message"), BROKEN, ids=lambda value: str(value)[:40])
async def test_what_a_rule_may_say(things, said, field, reason, message):
    refused = await things.defining(ruled(fields(x=INTEGER), said))
    path = "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0]"
    assert refused.causes == {(f"{path}.{field}", reason, message)}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "self.y > 0",
            "compilation failed: ERROR: <input>:1:5: undefined field 'y'\n | self.y > 0\n | ....^",
        ),
        (
            "self.x + 'a' == 'a'",
            "compilation failed: ERROR: <input>:1:8: found no matching overload for '_+_' applied to '(int, string)'\n"
            " | self.x + 'a' == 'a'\n | .......^",
        ),
        (
            "has(self.list[0].nope)",
            "compilation failed: ERROR: <input>:1:4: undefined field 'nope'\n"
            " | has(self.list[0].nope)\n | ...^",
        ),
        (
            "other == 1",
            "compilation failed: ERROR: <input>:1:1: undeclared reference to 'other' (in container '')\n"
            " | other == 1\n | ^",
        ),
        ("self.x", "cel expression must evaluate to a bool"),
        (
            "self.x >",
            "compilation failed: ERROR: <input>:1:9: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', "
            "'.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}\n"
            " | self.x >\n | ........^",
        ),
        *(
            (
                text,
                f"compilation failed: ERROR: <input>:1:{text.index(at) + 1}: {said}\n"
                f" | {text}\n | {'.' * text.index(at)}^",
            )
            for text, at, said in (
                ("'a'.matches('(?=a)')", "'(", "invalid matches argument"),
                ("self.x == 1 || duration('1d') == duration('24h')", "'1d", "invalid duration argument"),
                ("timestamp('2020-01-01').getHours() == 0", "'2", "invalid timestamp argument"),
                ("'a' in ['a', self.x]", ".x", "expected type 'string' but found 'int'"),
                (
                    "{'a': [1], 'b': ['c']}.size() == 2",
                    "['c",
                    "expected type 'list(int)' but found 'list(string)'",
                ),
                ("[1, 2.0, null].size() == 3", "2.0", "expected type 'int' but found 'double'"),
            )
        ),
        ("'a'.find('[') == ''", "program instantiation failed: error parsing regexp: missing closing ]: `[`"),
        *(
            (
                f"{name}('a') == {value}",
                f"program instantiation failed: type conversion error from 'string' to '{name}'",
            )
            for name, value in (("int", "1"), ("uint", "1u"), ("double", "1.0"), ("bool", "true"))
        ),
    ],
)
async def test_a_rule_that_does_not_compile_is_refused(things, text, told):
    schema = fields(x=INTEGER, list={"type": "array", "maxItems": 3, "items": fields(a=STRING)})
    refused = await things.defining(ruled(schema, rule(text)))
    said = (
        f'{{"Rule":{quoted(text)},"Message":"","MessageExpression":"","Reason":null,"FieldPath":"",'
        '"OptionalOldSelf":null}'
    )
    path = "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule"
    assert refused.causes == {(path, INVALID, f"Invalid value: {said}: {told}")}


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace(">", "\\u003e") + '"'


@pytest.mark.parametrize(
    "text",
    [
        "'%s %d'.format(['a', 1]) == 'a 1'",
        "[?optional.of('a'), 'b'].size() == 2",
        "[[], ['a']].size() == 2",
        "['a', self.x == 1 ? 'b' : 'c'].size() == 2",
        "duration('1h30m') > duration('-1.5s')",
        "timestamp('2020-01-01T00:00:00.5+01:00').getHours() == 0",
        "'a'.matches('^[a-z]$')",
        "int('-1') + int(1.5) == 0 && double('1e3') == 1000.0 && bool('true')",
    ],
)
async def test_literals_that_are_right_are_accepted(things, text):
    assert (await things.defining(ruled(fields(x=INTEGER), rule(text)))).status == 201


@pytest.mark.parametrize(
    "text",
    [
        "self.int_or_string == 1",
        "self.anything == {}",
        "self.map['a'] == 'b'",
        "self.when < timestamp('2020-01-01T00:00:00Z')",
        "self.deep[0][0] == 1",
        "self.number > 1",
        "self.maybe == null",
    ],
)
async def test_types_come_from_the_schema(things, text):
    schema = fields(
        int_or_string={"x-kubernetes-int-or-string": True},
        anything={"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        map={"type": "object", "additionalProperties": STRING},
        when={"type": "string", "format": "date-time"},
        maybe={"type": "string", "nullable": True},
        deep={"type": "array", "items": {"type": "array", "items": INTEGER}},
        number=NUMBER,
    )
    defined = await things.defining(ruled(schema, rule(text)))
    refused_by_real = {"self.anything == {}", "self.maybe == null"}
    assert defined.status == (422 if text in refused_by_real else 201), defined.text


async def test_an_unknown_field_of_an_open_object_cannot_be_named(things):
    schema = {**fields(x=INTEGER), "x-kubernetes-preserve-unknown-fields": True}
    assert (await things.defining(ruled(schema, rule("self.y == 1")))).refusal == (422, "Invalid")


@pytest.mark.parametrize(
    "schema",
    [
        {"x-kubernetes-preserve-unknown-fields": True},
        {"type": "array", "items": {"x-kubernetes-preserve-unknown-fields": True}},
    ],
)
async def test_a_part_without_a_type_has_no_rules(things, schema):
    refused = await things.defining(fields(x=ruled(schema, rule("true"))))
    path = "spec.validation.openAPIV3Schema.properties[spec].properties[x].x-kubernetes-validations"
    assert {(field, reason) for field, reason, _ in refused.causes} == {(path, "InternalError")}


async def test_old_values_that_cannot_be_found_cannot_be_asked_for(things):
    items = ruled(INTEGER, rule("self == oldSelf"))
    refused = await things.defining(fields(list={"type": "array", "maxItems": 3, "items": items}))
    path = "spec.validation.openAPIV3Schema.properties[spec].properties[list]"
    assert refused.causes == {
        (
            f"{path}.items.x-kubernetes-validations[0].rule",
            INVALID,
            'Invalid value: "self == oldSelf": oldSelf cannot be used on the uncorrelatable portion of the schema '
            f"within {path}",
        )
    }


async def test_a_message_expression_makes_a_string(things):
    refused = await things.defining(ruled(fields(x=INTEGER), rule("true", messageExpression="self.x")))
    assert {message.rpartition(": ")[2] for _, _, message in refused.causes} == {
        "messageExpression must evaluate to a string"
    }


async def test_a_default_has_to_keep_the_rules(things):
    refused = await things.defining(fields(x={**ruled(INTEGER, rule("self > 5")), "default": 1}))
    path = "spec.validation.openAPIV3Schema.properties[spec].properties[x].default"
    assert refused.causes == {(path, INVALID, "Invalid value: 1: failed rule: self > 5")}
