"""Events of the core group and of `events.k8s.io` are one resource."""

import json

import pytest
from conformance_workloads import QUALIFIED, invalid, required

MOMENT = "2020-01-01T00:00:00.123456Z"

TIMED = {
    "eventTime": MOMENT,
    "reportingComponent": "a/b",
    "reportingInstance": "i",
    "action": "A",
    "reason": "R",
}


@pytest.fixture
def core(ns):
    return f"/api/v1/namespaces/{ns}/events"


@pytest.fixture
def group(ns):
    return f"/apis/events.k8s.io/v1/namespaces/{ns}/events"


def old(ns, name="old"):
    return {
        "metadata": {"name": name},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": ns},
        "reason": "R",
        "message": "M",
        "source": {"component": "me"},
        "type": "Normal",
        "count": 3,
        "firstTimestamp": "2020-01-01T00:00:00Z",
    }


def new(ns, name="new"):
    return {
        "metadata": {"name": name},
        "regarding": {"kind": "Pod", "name": "q", "namespace": ns},
        "eventTime": MOMENT,
        "reportingController": "a/b",
        "reportingInstance": "x",
        "action": "Act",
        "reason": "r",
        "type": "Warning",
        "note": "N",
        "series": {"count": 2, "lastObservedTime": MOMENT},
    }


def told(answer):
    return {
        name: answer[name] for name in answer.body.keys() - {"kind", "apiVersion", "metadata"} if answer[name]
    }


async def test_what_the_core_group_writes_the_other_reads(api, ns, core, group):
    made = await api.create(core, old(ns))
    assert made.status == 201
    read = await api.get(f"{group}/old")
    assert (read["apiVersion"], read.meta) == ("events.k8s.io/v1", made.meta)
    assert told(read) == {
        "regarding": {"kind": "Pod", "name": "p", "namespace": ns},
        "reason": "R",
        "note": "M",
        "deprecatedSource": {"component": "me"},
        "type": "Normal",
        "deprecatedCount": 3,
        "deprecatedFirstTimestamp": "2020-01-01T00:00:00Z",
    }
    assert read["eventTime"] is None
    assert "reportingInstance" not in read.body


async def test_what_the_other_group_writes_the_core_group_reads(api, ns, core, group):
    made = await api.create(group, new(ns))
    assert made.status == 201, made.text
    read = await api.get(f"{core}/new")
    assert (read["apiVersion"], read.meta) == ("v1", made.meta)
    assert told(read) == {
        "involvedObject": {"kind": "Pod", "name": "q", "namespace": ns},
        "eventTime": MOMENT,
        "reportingComponent": "a/b",
        "reportingInstance": "x",
        "action": "Act",
        "reason": "r",
        "type": "Warning",
        "message": "N",
        "series": {"count": 2, "lastObservedTime": MOMENT},
    }
    assert (read["source"], read["firstTimestamp"]) == ({}, None)


async def test_lists_have_the_events_of_both(api, ns, core, group):
    await api.create(core, old(ns))
    await api.create(group, new(ns))
    for path, field in ((core, "message"), (group, "note")):
        listed = await api.get(path)
        assert {item["metadata"]["name"]: item[field] for item in listed["items"]} == {"old": "M", "new": "N"}


async def test_a_watch_of_one_sees_writes_of_the_other(api, ns, core, group):
    version = (await api.get(group)).version
    async with api.watch(group, resourceVersion=version) as events:
        await api.create(core, old(ns))
        event = await events.next()
        assert (event["type"], event["object"]["note"]) == ("ADDED", "M")
        assert event["object"]["apiVersion"] == "events.k8s.io/v1"


async def test_a_name_is_taken_in_both(api, ns, core, group):
    await api.create(core, old(ns))
    refused = await api.create(group, new(ns, "old"))
    assert refused.refusal == (409, "AlreadyExists")
    assert refused.message == 'events.events.k8s.io "old" already exists'


async def test_a_change_by_one_forgets_who_managed_in_the_other(api, ns, core, group):
    await api.create(group, new(ns))
    changed = await api.merge(f"{core}/new", {"message": "changed"})
    assert [(entry["apiVersion"], entry["fieldsV1"]) for entry in changed.meta["managedFields"]] == [
        ("v1", {"f:message": {}})
    ]
    assert (await api.get(f"{group}/new"))["note"] == "changed"


async def test_deleted_in_one_is_gone_in_both(api, ns, core, group):
    await api.create(group, new(ns))
    assert (await api.delete(f"{core}/new")).status == 200
    assert (await api.get(f"{group}/new")).message == 'events.events.k8s.io "new" not found'


@pytest.mark.parametrize(
    ("selector", "in_core", "in_group"),
    [
        ("involvedObject.name=p", ["old"], None),
        ("involvedObject.kind=Pod", ["new", "old"], None),
        ("regarding.name=q", None, ["new"]),
        ("reason=R", ["old"], ["old"]),
        ("type=Warning", ["new"], ["new"]),
        ("source=me", ["old"], None),
        ("source=a/b", ["new"], None),
        ("reportingComponent=a/b", ["new"], None),
        ("reportingController=a/b", None, ["new"]),
        ("message=M", None, None),
    ],
)
async def test_events_are_selected_by_the_fields_of_their_group(
    api, ns, core, group, selector, in_core, in_group
):
    await api.create(core, old(ns))
    await api.create(group, new(ns))
    for path, names in ((core, in_core), (group, in_group)):
        answer = await api.get(path, fieldSelector=selector)
        if names is None:
            assert answer.refusal == (400, "BadRequest")
            assert answer.message.endswith(f"field label not supported: {selector.partition('=')[0]}")
        else:
            assert [item["metadata"]["name"] for item in answer["items"]] == names


async def test_a_minimal_event(api, ns, core):
    made = await api.create(core, {"metadata": {"name": "a"}, "involvedObject": {"namespace": ns}})
    assert made.status == 201
    assert {name: value for name, value in made.body.items() if name != "metadata"} == {
        "apiVersion": "v1",
        "kind": "Event",
        "involvedObject": {"namespace": ns},
        "source": {},
        "firstTimestamp": None,
        "lastTimestamp": None,
        "eventTime": None,
        "reportingComponent": "",
        "reportingInstance": "",
    }


async def test_events_about_what_has_no_namespace_are_in_the_first_one(api):
    body = {"metadata": {"generateName": "a"}, "involvedObject": {"kind": "Node", "name": "n"}}
    made = await api.create("/api/v1/namespaces/default/events", body)
    assert made.status == 201
    await api.delete(f"/api/v1/namespaces/default/events/{made.meta['name']}")


@pytest.mark.parametrize(
    ("fields", "causes"),
    [
        (
            {"involvedObject": {}},
            {invalid("involvedObject.namespace", '""', "does not match event.namespace")},
        ),
        (
            {"involvedObject": {"namespace": "other"}},
            {invalid("involvedObject.namespace", '"other"', "does not match event.namespace")},
        ),
        (
            {**TIMED, "involvedObject": {}},
            {invalid("involvedObject.namespace", '""', "does not match event.namespace")},
        ),
        (
            {**TIMED, "reportingComponent": ""},
            {
                invalid("reportingComponent", '""', "name part must be non-empty"),
                invalid("reportingComponent", '""', QUALIFIED),
                required("reportingComponent"),
            },
        ),
        ({**TIMED, "reportingComponent": "a b"}, {invalid("reportingComponent", '"a b"', QUALIFIED)}),
        ({**TIMED, "reportingInstance": ""}, {required("reportingInstance")}),
        ({**TIMED, "action": ""}, {required("action")}),
        ({**TIMED, "reason": ""}, {required("reason")}),
        ({**TIMED, "reason": "x" * 129}, {invalid("reason", '""', "can have at most 128 characters")}),
        ({**TIMED, "action": "x" * 129}, {invalid("action", '""', "can have at most 128 characters")}),
        (
            {**TIMED, "reportingInstance": "x" * 129},
            {invalid("reportingInstance", '""', "can have at most 128 characters")},
        ),
        ({**TIMED, "message": "x" * 1025}, {invalid("message", '""', "can have at most 1024 characters")}),
    ],
)
async def test_an_unsound_event(api, ns, core, fields, causes):
    refused = await api.create(
        core, {"metadata": {"name": "a"}, "involvedObject": {"namespace": ns}, **fields}
    )
    assert refused.refusal == (422, "Invalid")
    assert refused.causes == causes


@pytest.mark.parametrize(
    ("fields", "causes"),
    [
        ({"eventTime": None}, {required("eventTime")}),
        ({"type": ""}, {invalid("type", '""', "has invalid value: ")}),
        ({"type": "x"}, {invalid("type", '""', "has invalid value: x")}),
        (
            {"reportingController": ""},
            {
                invalid("reportingController", '""', "name part must be non-empty"),
                invalid("reportingController", '""', QUALIFIED),
                required("reportingController"),
            },
        ),
        (
            {"series": {"count": 1, "lastObservedTime": MOMENT}},
            {invalid("series.count", '""', "should be at least 2")},
        ),
        ({"series": {"count": 2, "lastObservedTime": None}}, {required("series.lastObservedTime")}),
        ({"deprecatedCount": 1}, {invalid("count", '""', "needs to be unset")}),
        (
            {"deprecatedFirstTimestamp": "2020-01-01T00:00:00Z"},
            {invalid("firstTimestamp", '""', "needs to be unset")},
        ),
        (
            {"deprecatedLastTimestamp": "2020-01-01T00:00:00Z"},
            {invalid("lastTimestamp", '""', "needs to be unset")},
        ),
        ({"deprecatedSource": {"component": "x"}}, {invalid("source", '""', "needs to be unset")}),
        ({"note": "x" * 1025}, {invalid("message", '""', "can have at most 1024 characters")}),
    ],
)
async def test_an_unsound_event_of_the_other_group(api, ns, group, fields, causes):
    refused = await api.create(group, {**new(ns, "a"), **fields})
    assert refused.refusal == (422, "Invalid")
    assert refused.details["kind"] == "Event"
    assert "group" not in refused.details
    assert refused.causes == causes


async def test_an_event_of_the_other_group_is_only_repeated(api, ns, group):
    await api.create(group, new(ns))
    changes = {
        "note": "x",
        "reason": "y",
        "type": "Normal",
        "action": "z",
        "reportingInstance": "q",
        "reportingController": "d/e",
        "regarding": {"name": "z"},
        "eventTime": "2021-01-01T00:00:00.000000Z",
    }
    refused = await api.merge(f"{group}/new", changes)
    fixed = "field is immutable"
    shown = {"Kind": "Pod", "Namespace": ns, "Name": "z", "UID": "", "APIVersion": "", "ResourceVersion": ""}
    about = json.dumps({**shown, "FieldPath": ""}, separators=(",", ":"))
    texts = ("reason", "type", "action", "reportingInstance", "reportingController", "eventTime")
    assert refused.causes == {
        invalid("involvedObject", about, fixed),
        invalid("message", '"x"', fixed),
        *(invalid(field, f'"{changes[field]}"', fixed) for field in texts),
    }
    series = {"count": 3, "lastObservedTime": "2021-01-01T00:00:00.000000Z"}
    assert (await api.merge(f"{group}/new", {"series": series}))["series"] == series
