"""Fields that occur twice in a body: the last one wins, unless the client requests strict validation."""

import pytest
from conformance_api import APPLY, JSON_PATCH, MERGE, STRATEGIC
from conformance_schemas import shared

YAML = "application/yaml"
FREE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
TWICE = '{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"a"}},{}}}'
WARNED = 'duplicate field "data.x"'
IN_YAML = b'kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\ndata:\n  x: "1"\n  x: "2"\n'


def cannot(problem, kind="ConfigMap"):
    return f'{kind} in version "v1" cannot be handled as a {kind}: strict decoding error: {problem}'


@pytest.fixture
async def things(api, ns):
    return await shared(api, "duplicates", ns, FREE)


async def test_the_last_one_counts_with_a_warning(api, maps):
    made = await api.create(maps, TWICE.format('"data":{"x":"1","x":"2"}').encode())
    assert made["data"] == {"x": "2"}
    assert made.warnings == [WARNED]


async def test_nobody_is_warned_who_does_not_want_to_know(api, maps):
    body = TWICE.format('"data":{"x":"1","x":"2"}').encode()
    assert (await api.create(maps, body, fieldValidation="Ignore")).warnings == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('"data":{"x":"1","x":"2"}', 'duplicate field "data.x"'),
        ('"data":{"x":"1"},"data":{}', 'duplicate field "data"'),
        ('"data":{"x" : "1","x"\n:"1"}', 'duplicate field "data.x"'),
        ('"data":{"x":"1","x":"2","x":"3"}', 'duplicate field "data.x"'),
        ('"data":{"x":"1","x":"2"},"bogus":{"a":1,"a":2}', 'duplicate field "data.x", unknown field "bogus"'),
        ('"metadata":{"name":"b"},"data":{}', 'duplicate field "metadata"'),
    ],
)
async def test_who_is_strict_is_refused(api, maps, text, problem):
    refused = await api.create(maps, TWICE.format(text).encode(), fieldValidation="Strict")
    assert refused.refusal == (400, "BadRequest")
    assert refused.message == cannot(problem)


@pytest.mark.parametrize(
    "text",
    [
        '"data":{"a":"\\":","b":"x\\":\\"y"}',
        '"data":{"a":"\\\\","b":"2"}',
        '"data" :{"a":"1"}',
        '"data":{"a":"{\\"x\\":1,\\"x\\":2}"}',
    ],
)
async def test_what_only_looks_like_it_is_none(api, maps, text):
    assert (await api.create(maps, TWICE.format(text).encode(), fieldValidation="Strict")).status == 201


async def test_in_yaml_they_are_told_by_their_lines(api, maps):
    made = await api.call("POST", maps, IN_YAML, content_type=YAML, dryRun="All")
    assert made["data"] == {"x": "2"}
    assert made.warnings == ['line 6: key "x" already set in map']
    refused = await api.call("POST", maps, IN_YAML, content_type=YAML, fieldValidation="Strict")
    assert refused.message == cannot('yaml: unmarshal errors:\n  line 6: key "x" already set in map')


async def test_several_in_yaml_are_told_together(api, maps):
    body = b"kind: ConfigMap\napiVersion: v1\nmetadata: {name: a, name: b}\ndata:\n  x: a\n  x: b\nbogus: 1\n"
    refused = await api.call("POST", maps, body, content_type=YAML, fieldValidation="Strict")
    lines = 'line 3: key "name" already set in map\n  line 6: key "x" already set in map'
    assert refused.message == cannot(f'yaml: unmarshal errors:\n  {lines}, unknown field "bogus"')


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"data:\n  1: a\n  0x1: b\n", "line 6: key 1 already set in map"),
        (b"data:\n  true: a\n  yes: b\n", "line 6: key true already set in map"),
        (b"data:\n  'a\"b': a\n  'a\"b': b\n", 'line 6: key "a\\"b" already set in map'),
        (b"data:\n  a: x\n  a:\n    w\n", 'line 7: key "a" already set in map'),
        (b"metadata:\n\n  name: b\n", 'line 6: key "metadata" already set in map'),
        (
            b"data: {}\ndata: {a: x, a: z}\n",
            'line 5: key "a" already set in map\n  line 5: key "data" already set in map',
        ),
        (b"data: {}\n---\ndata: {b: x, b: w}\n", None),
        (b"data:\n  1: a\n  '1': a\n", None),
    ],
    ids=["number", "word", "quote", "value", "map", "within", "document", "text"],
)
async def test_keys_of_yaml_are_the_same_by_their_values(api, maps, data, told):
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n" + data
    made = await api.call("POST", maps, body, content_type=YAML, fieldValidation="Strict", dryRun="All")
    if told is None:
        assert made.status == 201
    else:
        assert made.message == cannot(f"yaml: unmarshal errors:\n  {told}")


@pytest.mark.parametrize("kind", ["kind: ", '"kind":'], ids=["yaml", "json"])
async def test_in_braces_they_are_told_by_their_lines_as_well(api, maps, kind):
    body = TWICE.format('"data":{"x":"1",\n"x":"2"}').replace('"kind":', kind).encode()
    refused = await api.call("POST", maps, body, content_type=YAML, fieldValidation="Strict")
    assert refused.message == cannot('yaml: unmarshal errors:\n  line 2: key "x" already set in map')


async def test_a_replace_is_told_as_well(api, maps):
    await api.create(maps, {"metadata": {"name": "a"}})
    body = TWICE.format('"data":{"x":"1","x":"2"}').encode()
    assert (await api.replace(f"{maps}/a", body, dryRun="All")).warnings == [WARNED]
    refused = await api.replace(f"{maps}/a", body, fieldValidation="Strict")
    assert refused.message == cannot(WARNED)


@pytest.mark.parametrize("content_type", [MERGE, STRATEGIC])
async def test_a_patch_is_told_as_well(api, maps, content_type):
    await api.create(maps, {"metadata": {"name": "a"}})
    patch = b'{"data":{"x":"1","x":"2"}}'
    patched = await api.call("PATCH", f"{maps}/a", patch, content_type=content_type)
    assert (patched["data"], patched.warnings) == ({"x": "2"}, [WARNED])
    refused = await api.call("PATCH", f"{maps}/a", patch, content_type=content_type, fieldValidation="Strict")
    assert refused.refusal == (422, "Invalid")
    assert refused.message.startswith(' "" is invalid: patch: Invalid value: ')
    assert refused.message.endswith(f": strict decoding error: {WARNED}")


async def test_the_operations_of_a_patch_are_told_by_their_places(api, maps):
    await api.create(maps, {"metadata": {"name": "a"}})
    patch = b'[{"op":"add","path":"/data","path":"/data","value":{}}]'
    patched = await api.call("PATCH", f"{maps}/a", patch, content_type=JSON_PATCH)
    assert patched.warnings == ['json patch duplicate field "[0].path"']


async def test_unknown_fields_of_operations_are_told_by_their_places(api, maps):
    await api.create(maps, {"metadata": {"name": "a"}})
    patch = b'[{"op":"add","path":"/data","value":{"a":"b"},"Op":"x"}]'
    told = 'json patch unknown field "[0].Op"'
    patched = await api.call("PATCH", f"{maps}/a", patch, content_type=JSON_PATCH)
    assert (patched["data"], patched.warnings) == ({"a": "b"}, [told])
    strict = await api.call("PATCH", f"{maps}/a", patch, content_type=JSON_PATCH, fieldValidation="Strict")
    assert strict.refusal == (422, "Invalid")
    assert strict.message.endswith(f": strict decoding error: {told}")


async def test_unknown_fields_of_a_strict_patch_are_its_own_mistake(api, maps):
    await api.create(maps, {"metadata": {"name": "a"}})
    refused = await api.merge(f"{maps}/a", {"bogus": 1}, fieldValidation="Strict")
    assert refused.refusal == (422, "Invalid")
    assert refused.message.endswith(': strict decoding error: unknown field "bogus"')


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (b'{"kind":"ConfigMap","apiVersion":"v1","data":{"x":"1",\n"x":"2"}}', 2),
        (b'kind: ConfigMap\napiVersion: v1\ndata:\n  x: "1"\n  x: "2"\n', 5),
    ],
    ids=["json", "yaml"],
)
async def test_an_apply_is_read_as_yaml(api, maps, body, line):
    path = f"{maps}/a"
    applied = await api.call("PATCH", path, body, content_type=APPLY, fieldManager="one", dryRun="All")
    assert applied.warnings == [f'line {line}: key "x" already set in map']
    refused = await api.call(
        "PATCH", path, body, content_type=APPLY, fieldManager="one", fieldValidation="Strict"
    )
    assert refused.refusal == (400, "BadRequest")
    assert refused.message == (
        "error strict decoding patch: error converting YAML to JSON: yaml: unmarshal errors:\n  "
        f'line {line}: key "x" already set in map'
    )


async def test_of_a_custom_resource_every_field_is_looked_at(things):
    spec = '{"x":[{"y":1,"y":2}],"x":[{"y":1,"y":2,"y":3}]}'
    body = f'{{"kind":"Thing","apiVersion":"{things.group}/v1","metadata":{{"name":"a"}},"spec":{spec},"b":1,"b":2}}'
    refused = await things.api.create(things.path, body.encode(), fieldValidation="Strict")
    told = 'duplicate field "spec.x[0].y", duplicate field "spec.x", duplicate field "b", unknown field "b"'
    assert refused.message == cannot(told, "Thing")


async def test_a_patch_of_a_custom_resource_is_told_as_well(things):
    await things.create({})
    patch = b'{"spec":{"x":"1","x":"2"}}'
    patched = await things.api.call("PATCH", f"{things.path}/a", patch, content_type=MERGE)
    assert (patched["spec"], patched.warnings) == ({"x": "2"}, ['duplicate field "spec.x"'])
