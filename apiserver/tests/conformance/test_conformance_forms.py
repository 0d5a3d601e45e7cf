"""The forms of responses: metadata only, YAML, and forms that are rejected."""

import json

import pytest
from conformance_api import JSON, Api
from conformance_kinds import config_map, site

pytestmark = pytest.mark.wire

PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


async def test_metadata_of_one_object(api, maps):
    made = await api.create(maps, config_map(data={"a": "1"}))
    assert (await api.get(f"{maps}/a", accept=f"{PARTIAL},{JSON}")).body == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": made.meta,
    }


async def test_metadata_of_a_list(api, maps):
    made = await api.create(maps, config_map(data={"a": "1"}))
    listed = await api.get(maps, accept=f"{PARTIAL_LIST},{JSON}")
    assert (listed["kind"], listed["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    item = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": made.meta}
    assert listed["items"] == [item]


async def test_metadata_of_a_watch(api, maps):
    start = (await api.get(maps)).version
    async with api.watch(maps, resourceVersion=start, accept=PARTIAL) as events:
        made = await api.create(maps, config_map(data={"a": "1"}))
        event = await events.next()
    assert event["object"] == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": made.meta,
    }


async def test_metadata_of_a_patch(api, sites):
    await api.create(sites, site())
    answer = await api.merge(f"{sites}/a", {"metadata": {"labels": {"l": "x"}}}, accept=PARTIAL)
    assert answer["kind"] == "PartialObjectMetadata"
    assert answer.meta["labels"] == {"l": "x"}


async def test_a_refusal_has_no_metadata_form(api, maps):
    assert (await api.get(f"{maps}/a", accept=PARTIAL)).refusal == (404, "NotFound")


@pytest.mark.parametrize("accept", ["*/*", "application/json;q=0.9", f"text/html,{JSON}"])
async def test_json_is_what_comes_for(api, maps, accept):
    assert (await api.get(maps, accept=accept)).body is not None


async def test_yaml_is_spoken(api, maps):
    await api.create(maps, config_map())
    answer = await api.get(f"{maps}/a", accept="application/yaml")
    assert answer.headers["content-type"] == "application/yaml"
    assert "kind: ConfigMap" in answer.text


async def test_yaml_is_understood(api, maps):
    body = b"metadata:\n  name: a\ndata:\n  a: '1'\n"
    assert (await api.call("POST", maps, body, content_type="application/yaml"))["data"] == {"a": "1"}


@pytest.mark.parametrize(
    ("body", "data"),
    [
        (b"{metadata: {name: a}, data: {a: x}}", {"a": "x"}),
        (b'{"metadata": {"name": "a"}, "data": {"a": "x",}}', {"a": "x"}),
        (b"metadata: {name: a}\ndata: {a: x}\n---\nmetadata: {name: b}\n", {"a": "x"}),
        (b"---\nmetadata: {name: a}\ndata: {a: x}\n...\n%nonsense", {"a": "x"}),
        (b"metadata: {name: a}\ndata: {a: !!binary aGk=}\n", {"a": "hi"}),
        (b"metadata: {name: a}\nx: &x {a: '1'}\ndata: {<<: *x, b: '2'}\n", {"a": "1", "b": "2"}),
        (
            b"metadata: {name: a}\ndata: {a: 2001-01-01, b: 'y', c: y1}\n",
            {"a": "2001-01-01", "b": "y", "c": "y1"},
        ),
        (
            b"metadata: {name: a}\ndata: {a: 12:30:45, b: 1:30.5, c: 0x, d: 1e, e: =}\n",
            {"a": "12:30:45", "b": "1:30.5", "c": "0x", "d": "1e", "e": "="},
        ),
        (b"metadata: {name: a}\ndata: {y: a, 1: b, no: c}\n", {"true": "a", "1": "b", "false": "c"}),
        (b"metadata: {name: a}\nx: &x {a: '1'}\ndata: {a: '2', <<: *x}\n", {"a": "1"}),
        (
            b"metadata: {name: a}\nx: [&x {a: '1'}, &z {a: '2', b: '3'}]\ndata: {<<: [*x, *z]}\n",
            {"a": "1", "b": "3"},
        ),
        (b"metadata: {name: a}\nx: [&x a, &x b]\ndata: {a: *x}\n", {"a": "b"}),
        (b"metadata: {name: a}\ndata: !own {a: !own 1, b: ! 2, c: <<}\n", {"a": "1", "b": "2", "c": "<<"}),
        (b"metadata: {name: a}\ndata: !!set {a: !!timestamp 2001-01-01}\n", {"a": "2001-01-01"}),
        (b"metadata: {name: a}\ndata: {a: 0o, b: 0x_, c: 1e999}\n", {"a": "0o", "b": "0x_", "c": "1e999"}),
    ],
    ids=[
        "braces",
        "comma",
        "documents",
        "end",
        "binary",
        "merged",
        "texts",
        "times",
        "keys",
        "merged-later",
        "merged-twice",
        "anchor-again",
        "own-tags",
        "tags",
        "no-numbers",
    ],
)
async def test_yaml_is_read_as_the_server_reads_it(api, maps, body, data):
    made = await api.call("POST", maps, body, content_type="application/yaml")
    assert made.status == 201, made.text
    assert made["data"] == data


@pytest.mark.parametrize(
    "value", ["y", "N", "on", "1_000", "0o14", "014", "-0x1f", ".5", "1.", "1e3", "089", "0X1F"]
)
async def test_what_is_no_text_in_yaml_is_refused_for_one(api, maps, value):
    body = f"metadata: {{name: a}}\ndata: {{a: {value}}}\n".encode()
    refused = await api.call("POST", maps, body, content_type="application/yaml")
    assert refused.refusal == (400, "BadRequest")
    assert "ConfigMap.data of type string" in refused.message


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ("data: {a: *no}\n", "yaml: unknown anchor 'no' referenced"),
        ("x: &x [*x]\n", "yaml: anchor 'x' value contains itself"),
        ("data: {<<: x}\n", "yaml: map merge requires map or sequence of maps as the value"),
        ("data: {a: !!int x}\n", "yaml: cannot decode !!str `x` as a !!int"),
        ("data: {a: !!bool 1}\n", "yaml: cannot decode !!int `1` as a !!bool"),
        ("data: {a: !!binary '%%%'}\n", "yaml: !!binary value contains invalid base64 data"),
        ("data: {a: .inf}\n", "json: unsupported value: +Inf"),
        ("data:\n  : a\n", "yaml: line 4: did not find expected key"),
        ("data:\n\ta: x\n", "yaml: line 5: found character that cannot start any token"),
        ("data: {a: \0}\n", "yaml: control characters are not allowed"),
    ],
)
async def test_what_is_wrong_with_yaml_is_told(api, maps, data, problem):
    body = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\n{data}".encode()
    refused = await api.call("POST", maps, body, content_type="application/yaml")
    assert refused.refusal == (400, "BadRequest")
    shown = f"({body[:30].hex()} ...)"
    assert (
        refused.message
        == f"the object provided is unrecognized (must be of type ConfigMap): {problem} {shown}"
    )
    apply = {"content_type": "application/apply-patch+yaml", "fieldManager": "one"}
    refused = await api.call("PATCH", f"{maps}/a", body, **apply)
    assert refused.message == f"error encoding patch: {problem}"


async def test_a_key_that_json_has_no_text_for_is_refused(api, maps):
    body = b"metadata: {name: a}\ndata: {~: a}\n"
    refused = await api.call("POST", maps, body, content_type="application/yaml")
    assert refused.refusal == (400, "BadRequest")


@pytest.mark.parametrize("path", ["", "/a", "/missing", "?labelSelector=,"])
async def test_json_ends_with_a_newline(api, maps, path):
    await api.create(maps, config_map())
    assert (await api.get(f"{maps}{path}")).text.endswith("}\n")
    for form in ("Table", "PartialObjectMetadata"):
        answer = await api.call("GET", f"{maps}/a", accept=f"application/json;as={form};v=v1;g=meta.k8s.io")
        assert answer.text.endswith("}\n")


@pytest.mark.parametrize("path", ["/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1"])
async def test_discovery_ends_with_a_newline(api, path):
    assert (await api.get(path)).text.endswith("}\n")


@pytest.mark.parametrize(
    "asked", [{"pretty": "true"}, {"pretty": "1"}, {"accept": "application/json;pretty=1"}]
)
async def test_people_may_ask_for_line_breaks(api, maps, asked):
    await api.create(maps, config_map())
    shown = await api.call("GET", f"{maps}/a", **asked)
    assert shown.text == json.dumps(shown.body, indent=2)


async def test_people_get_line_breaks(api, maps):
    await api.create(maps, config_map())
    person = Api(api.transport, api.token, user_agent="curl/8.0")
    for path in (f"{maps}/a", "/api", "/apis/apps"):
        assert (shown := await person.get(path)).text == json.dumps(shown.body, indent=2)
    assert (await person.get(f"{maps}/a", pretty="false")).text.endswith("}\n")
    refused = await person.get(f"{maps}/missing")
    assert refused.text == json.dumps(refused.body, indent=2)


async def test_the_version_is_json_with_line_breaks_for_all(api):
    shown = await api.get("/version")
    assert shown.text == json.dumps(shown.body, indent=2)
    assert {"emulationMajor", "emulationMinor", "minCompatibilityMajor", "minCompatibilityMinor"} <= set(
        shown.body
    )
    refused = await api.call("GET", "/version", accept="text/plain")
    assert refused.refusal == (406, "NotAcceptable")
    assert refused.message == "406: Not Acceptable\n\nAvailable representations: application/json"


async def test_html_is_not_acceptable(api, maps):
    answer = await api.get(maps, accept="text/html")
    assert answer.refusal == (406, "NotAcceptable")


async def test_plain_text_is_no_body(api, maps):
    refused = await api.call("POST", maps, b"x", content_type="text/plain")
    assert refused.refusal == (415, "UnsupportedMediaType")
    assert refused.message == (
        "the body of the request was in an unknown format - accepted media types include: application/json, "
        "application/yaml, application/vnd.kubernetes.protobuf"
    )


@pytest.mark.parametrize(
    ("content_type", "code"),
    [
        ("application/JSON", 201),
        ("Application/Yaml; a=b", 201),
        ('application/json; a="b;c"; d=e', 201),
        ("application/json;", 201),
        ("application/json; a", 415),
        ('application/json; a="b', 415),
        ("*/*", 415),
    ],
)
async def test_the_type_of_a_body_is_a_media_type(api, maps, content_type, code):
    made = await api.call("POST", maps, b'{"metadata": {"name": "a"}}', content_type=content_type)
    assert made.status == code


async def test_the_type_of_a_patch_is_taken_as_it_stands(api, maps):
    await api.create(maps, {"metadata": {"name": "a"}})
    for content_type, code in (
        ("application/merge-patch+json; a", 200),
        ("application/Merge-Patch+json", 415),
    ):
        answer = await api.call("PATCH", f"{maps}/a", b"{}", content_type=content_type)
        assert answer.status == code


async def test_what_is_no_utf_8_in_json_is_replaced(api, maps):
    made = await api.call("POST", maps, b'{"metadata": {"name": "a"}, "data": {"a": "x\xffy"}}')
    assert made["data"] == {"a": "x\ufffdy"}


TOO_LARGE = "etcdserver: request is too large"
MESSAGE_TOO_LARGE = "rpc error: code = ResourceExhausted desc = trying to send message larger than max"


@pytest.mark.parametrize(
    ("size", "problem"), [(1_571_000, ""), (1_573_000, TOO_LARGE), (2_098_000, MESSAGE_TOO_LARGE)]
)
async def test_an_object_beyond_one_and_a_half_megabytes_is_not_stored(api, sites, size, problem):
    body = site(spec={"theme": "dark", "free": {"a": "x" * size}})
    assert (await api.create(sites, body, dryRun="All")).status == 201
    answer = await api.create(sites, body)
    if problem:
        assert (answer.status, answer.body.get("reason")) == (500, None)
        assert answer.message.startswith(problem)
        assert (await api.get(f"{sites}/a")).status == 404
    else:
        assert answer.status == 201


async def test_an_object_does_not_grow_beyond_one_and_a_half_megabytes(api, sites):
    await api.create(sites, site(spec={"theme": "dark", "free": {"a": "x" * 800_000}}))
    more = {"spec": {"free": {"b": "x" * 800_000}}}
    for refused in (
        await api.merge(f"{sites}/a", more),
        await api.apply(f"{sites}/a", site(spec={"theme": "dark", **more["spec"]})),
        await api.json_patch(f"{sites}/a", {"op": "copy", "from": "/spec/free/a", "path": "/spec/free/b"}),
    ):
        assert (refused.status, refused.message) == (500, TOO_LARGE)
    assert list((await api.get(f"{sites}/a"))["spec"]["free"]) == ["a"]


async def test_a_body_beyond_three_megabytes_is_refused(api, maps):
    refused = await api.create(maps, config_map(data={"a": "x" * (3 * 1024 * 1024)}))
    assert refused.refusal == (413, "RequestEntityTooLarge")


ACCEPTED = [
    "application/json;q=0.1,application/yaml;q=0.9",
    "application/yaml;q=0.5, */*;q=0.8",
    "*/*, application/yaml",
    "application/json;q=0, application/yaml;q=0",
    "application/yaml;q=x, application/json;q=0.1",
    "application/yaml;q=0.9=1,application/json;q=0.1",
    "application/json;q=.5,application/yaml;q=.6",
    "application/json;as=Table;v=v1;g=meta.k8s.io;q=0.1,application/json",
    "application/json;stream=x, application/yaml;q=0.1",
    "application/json;stream=watch",
    "application/json;as=Table",
    "application/json;v=v1",
    "application/*",
    "*",
    "APPLICATION/JSON",
    "application/json/x",
    ",",
    "text/html,application/xml;q=0.9,*/*;q=0.8",
]
"""With qualities, wildcards, forms and what is no media type."""


@pytest.mark.parametrize("accept", ACCEPTED)
async def test_what_is_accepted_most_comes(api, maps, sites, accept):
    """The router, which custom resources and the lists of groups have not, looks at the header first."""
    await api.create(maps, config_map())
    for path in (f"{maps}/a", maps, sites, "/apis", "/apis/apps", "/apis/apps/v1", "/version"):
        answer = await api.get(path, accept=accept)
        assert answer.status in (200, 406)


async def test_who_accepts_nothing_that_there_is_is_refused_with_line_breaks(api, maps):
    for path in (maps, "/apis"):
        refused = await api.get(path, accept="text/html")
        assert refused.text == json.dumps(refused.body, indent=2)
