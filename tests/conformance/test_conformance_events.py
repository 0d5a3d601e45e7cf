"""Events of the core group and of `events.k8s.io` are one resource."""

import pytest

MOMENT = "2020-01-01T00:00:00.123456Z"


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
