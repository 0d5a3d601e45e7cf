"""Tables: what `kubectl get` requests and prints. The descriptions of columns are our own."""

from __future__ import annotations

import re
from copy import deepcopy

import pytest
from conformance_api import JSON, MERGE, install
from conformance_kinds import config_map, definition, site
from conformance_tables import AGE, KINDS, PODS, YEARS

from kubeshard_apiserver import ApiServer
from kubeshard_apiserver.printing import printer_of

TABLE = f"{JSON};as=Table;v=v1;g=meta.k8s.io"
LISTED = {
    resource.kind.path(): printer_of(resource.group_resource)
    for resource in ApiServer().registry
    if "list" in resource.verbs
}


def definitions(columns):
    return [(one["name"], one["type"], one["format"], one["priority"]) for one in columns]


def shown(cell):
    """Returns the cells, with one word for any age in seconds and another for any in years."""
    if not isinstance(cell, str):
        return cell
    if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", cell):
        return "CREATED"
    return re.sub(r"\b\d\dy\b", YEARS, re.sub(r"^\d+s$", AGE, cell))


async def made(api, row, ns):
    body = deepcopy(row.body)
    body.setdefault("metadata", {})["name"] = "a"
    if "involvedObject" in body:
        body["involvedObject"]["namespace"] = ns
    path = row.path.format(ns)
    answer = await api.create(path, body)
    assert answer.status == 201, answer.text
    if row.status is not None:
        answer = await api.call("PATCH", f"{path}/a/status", {"status": row.status}, content_type=MERGE)
        assert answer.status == 200, answer.text
    return f"{path}/a"


@pytest.mark.parametrize("path", LISTED)
async def test_a_kind_has_its_columns(api, path):
    table = await api.get(path, accept=TABLE)
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert definitions(table["columnDefinitions"]) == definitions(LISTED[path].definitions)


@pytest.mark.parametrize("case", PODS)
async def test_a_pod(api, ns, case):
    path = await made(api, PODS[case], ns)
    (row,) = (await api.get(path, accept=TABLE))["rows"]
    assert [shown(cell) for cell in row["cells"]] == PODS[case].cells


@pytest.mark.parametrize("case", KINDS)
async def test_the_row_of(api, ns, case):
    path = await made(api, KINDS[case], ns)
    (row,) = (await api.get(path, accept=TABLE))["rows"]
    assert [shown(cell) for cell in row["cells"]] == KINDS[case].cells


@pytest.mark.parametrize(
    ("case", "phase", "message"),
    [
        ("that completed", "Succeeded", "The pod has completed successfully."),
        ("with a reason of its own", "Failed", "The pod failed."),
    ],
)
async def test_the_row_of_a_pod_that_ended_says_so(api, ns, case, phase, message):
    path = await made(api, PODS[case], ns)
    (row,) = (await api.get(path, accept=TABLE))["rows"]
    assert row["conditions"] == [{"type": "Completed", "status": "True", "reason": phase, "message": message}]


async def test_the_row_of_a_pod_that_runs_has_no_conditions(api, ns):
    path = await made(api, PODS["that runs"], ns)
    (row,) = (await api.get(path, accept=TABLE))["rows"]
    assert set(row) == {"cells", "object"}


async def test_a_table_has_the_version_of_its_object(api, maps):
    created = await api.create(maps, config_map())
    assert (await api.get(f"{maps}/a", accept=TABLE)).meta == {"resourceVersion": created.version}


async def test_a_table_of_a_list_has_the_metadata_of_the_list(api, maps):
    for name in "abc":
        await api.create(maps, config_map(name))
    table = await api.get(maps, accept=TABLE, limit=1, labelSelector="")
    plain = await api.get(maps, limit=1)
    assert set(table.meta) == {"resourceVersion", "continue", "remainingItemCount"}
    assert table.meta["remainingItemCount"] == plain.meta["remainingItemCount"]
    assert len(table["rows"]) == 1


async def test_the_next_page_has_columns_too(api, maps):
    for name in "abc":
        await api.create(maps, config_map(name))
    first = await api.get(maps, accept=TABLE, limit=1)
    second = await api.get(maps, accept=TABLE, limit=1, **{"continue": first.meta["continue"]})
    assert second["columnDefinitions"] == first["columnDefinitions"]
    assert second["rows"][0]["cells"][0] > first["rows"][0]["cells"][0]


async def test_an_empty_table_has_columns_and_no_rows(api, ns):
    table = await api.get(f"/api/v1/namespaces/{ns}/secrets", accept=TABLE)
    assert table["rows"] == []
    assert len(table["columnDefinitions"]) == 4


@pytest.mark.parametrize("include", ["", "Metadata"])
async def test_a_row_has_the_metadata_of_its_object(api, maps, include):
    created = await api.create(maps, config_map(data={"a": "1"}))
    (row,) = (await api.get(f"{maps}/a", accept=TABLE, includeObject=include))["rows"]
    assert row["object"] == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": created.meta,
    }


async def test_a_row_may_have_the_object(api, maps):
    created = await api.create(maps, config_map(data={"a": "1"}))
    (row,) = (await api.get(f"{maps}/a", accept=TABLE, includeObject="Object"))["rows"]
    assert row["object"] == created.body


async def test_rows_of_a_list_have_whole_objects(api, ns):
    created = await api.create(f"/api/v1/namespaces/{ns}/secrets", {"metadata": {"name": "a"}})
    (row,) = (await api.get(f"/api/v1/namespaces/{ns}/secrets", accept=TABLE, includeObject="Object"))["rows"]
    assert row["object"] == created.body


async def test_a_row_may_come_alone(api, maps):
    await api.create(maps, config_map())
    (row,) = (await api.get(f"{maps}/a", accept=TABLE, includeObject="None"))["rows"]
    assert row["object"] is None


async def test_another_part_of_the_object_is_refused(api, maps):
    await api.create(maps, config_map())
    refused = await api.get(f"{maps}/a", accept=TABLE, includeObject="Half")
    assert refused.refusal == (400, "BadRequest")
    assert refused.message == (
        'Unable to convert to Table as requested: includeObject: Invalid value: "Half": must be '
        "'Metadata', 'Object', 'None', or empty"
    )


async def test_the_parts_are_of_no_meaning_to_other_forms(api, maps):
    await api.create(maps, config_map())
    assert (await api.get(f"{maps}/a", includeObject="Half")).status == 200


async def test_the_beta_form_is_spoken(api, maps):
    await api.create(maps, config_map())
    table = await api.get(f"{maps}/a", accept=TABLE.replace("v=v1", "v=v1beta1"))
    assert table["apiVersion"] == "meta.k8s.io/v1beta1"
    assert table["rows"][0]["object"]["apiVersion"] == "meta.k8s.io/v1beta1"


async def test_the_beta_form_of_metadata_is_spoken(api, maps):
    await api.create(maps, config_map())
    partial = await api.get(f"{maps}/a", accept=f"{JSON};as=PartialObjectMetadata;v=v1beta1;g=meta.k8s.io")
    assert partial["apiVersion"] == "meta.k8s.io/v1beta1"


@pytest.mark.parametrize(
    "parameters", ["v=v2;g=meta.k8s.io", "g=meta.k8s.io", "v=v1", "v=v1;g=meta.example.com"]
)
async def test_another_version_of_the_form_is_passed_over(api, maps, parameters):
    await api.create(maps, config_map())
    wanted = f"{JSON};as=Table;{parameters}"
    assert (await api.get(f"{maps}/a", accept=wanted)).refusal == (406, "NotAcceptable")
    assert (await api.get(f"{maps}/a", accept=f"{wanted},{JSON}"))["kind"] == "ConfigMap"


async def test_a_refusal_has_no_table(api, maps):
    assert (await api.get(f"{maps}/a", accept=TABLE)).refusal == (404, "NotFound")


async def test_a_create_answers_with_a_table(api, maps):
    answer = await api.call("POST", maps, config_map(data={"a": "1"}), accept=TABLE)
    assert answer.status == 201
    assert answer["rows"][0]["cells"][:2] == ["a", 1]


async def test_a_delete_answers_with_a_status(api, maps):
    await api.create(maps, config_map())
    answer = await api.call("DELETE", f"{maps}/a", accept=TABLE)
    assert (answer.status, answer["kind"]) == (200, "Status")


async def test_a_table_speaks_yaml(api, maps):
    await api.create(maps, config_map())
    answer = await api.get(f"{maps}/a", accept=TABLE.replace(JSON, "application/yaml"))
    assert answer.headers["content-type"] == "application/yaml"
    assert "kind: Table" in answer.text


async def test_a_watch_tells_columns_with_its_first_event_only(api, maps):
    start = (await api.get(maps)).version
    async with api.watch(maps, accept=TABLE, resourceVersion=start) as events:
        await api.create(maps, config_map("x"))
        await api.create(maps, config_map("y"))
        first, second = await events.next(), await events.next()
    assert (first["type"], first["object"]["rows"][0]["cells"][0]) == ("ADDED", "x")
    assert definitions(first["object"]["columnDefinitions"])[0] == ("Name", "string", "name", 0)
    assert second["object"]["rows"][0]["cells"][0] == "y"
    assert second["object"]["columnDefinitions"] is None


async def test_a_watch_tells_parts_of_objects_too(api, maps):
    start = (await api.get(maps)).version
    async with api.watch(maps, accept=TABLE, resourceVersion=start, includeObject="Object") as events:
        created = await api.create(maps, config_map("x"))
        event = await events.next()
    assert event["object"]["rows"][0]["object"] == created.body


@pytest.mark.parametrize("include", ["Metadata", "None", "Object"])
async def test_a_bookmark_is_a_row_of_nothing(api, ns, include):
    path = f"/api/v1/namespaces/{ns}/pods"
    query = {"sendInitialEvents": True, "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": True}
    async with api.watch(path, accept=TABLE, includeObject=include, **query) as events:
        event = await events.next()
    assert event["type"] == "BOOKMARK"
    (row,) = event["object"]["rows"]
    assert row["cells"] == ["", "0/0", "", "0", "<unknown>", "<none>", "<none>", "<none>", "<none>"]
    assert row["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


COLUMNS = [
    {"name": "Text", "type": "string", "jsonPath": ".spec.free.text", "description": "Of words."},
    {"name": "Whole", "type": "integer", "jsonPath": ".spec.free.whole", "priority": 1},
    {"name": "Part", "type": "number", "jsonPath": ".spec.free.part", "format": "double"},
    {"name": "Flag", "type": "boolean", "jsonPath": ".spec.free.flag"},
    {"name": "When", "type": "date", "jsonPath": ".spec.free.when"},
]


async def printed(api, group, columns, free):
    """Returns the table of a custom resource with these columns. A group always has the same columns."""
    group = f"{group}.tables.example.com"
    crd = definition(group)
    crd["spec"]["versions"][0]["additionalPrinterColumns"] = columns
    await install(api, crd)
    path = f"/apis/{group}/v1/namespaces/default/sites"
    body = {**site(spec={"theme": "dark", "free": free}), "apiVersion": f"{group}/v1"}
    answer = await api.create(path, body)
    assert answer.status == 201, answer.text
    table = await api.get(f"{path}/a", accept=TABLE)
    await api.delete(f"{path}/a")
    return table


async def test_a_custom_resource_shows_its_age(api, sites):
    await api.create(sites, site())
    table = await api.get(f"{sites}/a", accept=TABLE)
    assert definitions(table["columnDefinitions"]) == [
        ("Name", "string", "name", 0),
        ("Age", "date", "", 0),
    ]
    assert [shown(cell) for cell in table["rows"][0]["cells"]] == ["a", AGE]


async def test_a_definition_says_what_its_kind_shows(api):
    free = {"text": "t", "whole": 3, "part": 1.5, "flag": True, "when": "2001-02-03T04:05:06Z"}
    table = await printed(api, "typed", COLUMNS, free)
    assert definitions(table["columnDefinitions"])[1:] == [
        ("Text", "string", "", 0),
        ("Whole", "integer", "", 1),
        ("Part", "number", "double", 0),
        ("Flag", "boolean", "", 0),
        ("When", "date", "", 0),
    ]
    assert table["columnDefinitions"][1]["description"] == "Of words."
    assert [shown(cell) for cell in table["rows"][0]["cells"]] == ["a", "t", 3, 1.5, True, YEARS]


async def test_what_is_missing_is_null(api):
    table = await printed(api, "typed", COLUMNS, {})
    assert table["rows"][0]["cells"] == ["a", None, None, None, None, None]


@pytest.mark.parametrize(
    ("free", "cells"),
    [
        ({"text": 3, "whole": "3", "part": "1.5", "flag": "true", "when": 3}, ["3", None, None, None, None]),
        ({"text": 1.5, "whole": 1.5, "part": 3, "flag": 1, "when": "soon"}, ["1.5", 1, 3, None, "<invalid>"]),
        ({"text": True, "whole": True, "part": True, "flag": False}, ["true", None, None, False, None]),
        ({"when": ""}, [None, None, None, None, "<unknown>"]),
        ({"text": {"b": 1, "a": [1, "x"]}, "whole": {}}, ['{"a":[1,"x"],"b":1}', None, None, None, None]),
        ({"when": "null"}, [None, None, None, None, "<unknown>"]),
        ({"text": [], "whole": -7.9, "part": 2.0}, ["[]", -7, 2, None, None]),
        ({"text": None, "whole": None, "part": None, "flag": None}, ["<no value>", None, None, None, None]),
        ({"text": 1e21, "whole": 12345678901, "part": 1e21}, ["1e+21", 12345678901, 1e21, None, None]),
        ({"text": 1234567.0}, ["1234567", None, None, None, None]),
        ({"text": 1234567.5}, ["1.2345675e+06", None, None, None, None]),
        ({"text": 0.000001}, ["1e-06", None, None, None, None]),
        ({"text": 123456.5}, ["123456.5", None, None, None, None]),
        ({"text": -0.00025}, ["-0.00025", None, None, None, None]),
        ({"text": -1e19}, ["-1e+19", None, None, None, None]),
    ],
)  # fmt: skip
async def test_a_value_of_another_type(api, free, cells):
    table = await printed(api, "typed", COLUMNS, free)
    assert table["rows"][0]["cells"][1:] == cells


LIST = [{"type": "A", "status": "1"}, {"type": "B", "status": "2", "n": 5}, {"type": "C", "status": "3"}]


PATHS = (
    (".spec.free.list[1].status", "2"),
    (".spec.free.list[-1].status", "3"),
    (".spec.free.list[7].status", None),
    (".spec.free.list[*].status", "1"),
    (".spec.free.list[1:].status", "2"),
    (".spec.free.list[0:2].status", "1"),
    (".spec.free.list[2:1].status", None),
    ('.spec.free.list[?(@.type=="B")].status', "2"),
    (".spec.free.list[?(@.type=='B')].status", "2"),
    ('.spec.free.list[?(@.type != "A")].status', "2"),
    ('.spec.free.list[?(@.type=="Z")].status', None),
    (".spec.free.list[?(@.n)].status", "2"),
    (".spec.free.list[?(@.n>4)].status", "2"),
    (".spec.free.list[?(@.n>5)].status", None),
    ('.spec.free.list[?(@.n=="5")].status', None),
    (".spec.free.map['k.e/y']", None),
    (".spec.free.map['k\\.e/y']", "v"),
    (".spec['free'].list['0','1'].status", None),
    (".spec['free', 'theme']", "{"),
    (".spec.free['map','list'][*].type", None),
    (".spec.free.map.k\\.e/y", "v"),
    (".spec.free.map[0]", None),
    (".spec.free.map[?(@.a)]", None),
    (".spec.free.list.status", None),
    (".spec.free.list[0,2].status", "1"),
    (".spec.free.map.*", "v"),
    ("..key", "deep"),
    (".metadata.name", "a"),
    (".kind", "Site"),
    (".", None),
)


@pytest.mark.parametrize(("path", "value"), PATHS)
async def test_a_path(api, path, value):
    free = {"list": LIST, "map": {"k.e/y": "v"}, "in": {"the": {"key": "deep"}}}
    columns = [{"name": one, "type": "string", "jsonPath": one} for one, _ in PATHS]
    table = await printed(api, "paths", columns, free)
    shown = dict(zip((one for one, _ in PATHS), table["rows"][0]["cells"][1:], strict=True))
    assert (shown[path] if value != "{" else shown[path][:1]) == value


async def test_a_column_whose_path_cannot_be_read_is_left_out_with_those_that_follow(api):
    columns = [
        {"name": "One", "type": "string", "jsonPath": ".kind"},
        {"name": "Two", "type": "string", "jsonPath": ".spec["},
        {"name": "Three", "type": "string", "jsonPath": ".kind"},
    ]
    table = await printed(api, "unread", columns, {})
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "One"]
    assert table["rows"][0]["cells"] == ["a", "Site"]
