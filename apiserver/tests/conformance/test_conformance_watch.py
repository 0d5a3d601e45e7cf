"""watch: where it begins, what it sees, and how it ends."""

import pytest
from conformance_kinds import config_map, site

pytestmark = pytest.mark.wire

INITIAL = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}


async def version(api, maps):
    return (await api.get(maps)).version


async def test_a_watch_from_a_version_sees_what_came_after(api, maps):
    await api.create(maps, config_map("before"))
    async with api.watch(maps, resourceVersion=await version(api, maps)) as events:
        await api.create(maps, config_map("a"))
        await api.merge(f"{maps}/a", {"data": {"a": "1"}})
        await api.delete(f"{maps}/a")
        assert await events.take(3) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


async def test_a_watch_resumes_within_the_window(api, maps):
    made = await api.create(maps, config_map("a"))
    await api.merge(f"{maps}/a", {"data": {"a": "1"}})
    await api.delete(f"{maps}/a")
    async with api.watch(maps, resourceVersion=made.version) as events:
        assert await events.take(2) == [("MODIFIED", "a"), ("DELETED", "a")]


async def test_events_carry_kind_and_version(api, maps):
    async with api.watch(maps, resourceVersion=await version(api, maps)) as events:
        made = await api.create(maps, config_map("a"))
        event = await events.next()
    assert event == {"type": "ADDED", "object": made.body}


async def test_a_deletion_has_the_last_state_and_a_newer_version(api, maps):
    made = await api.create(maps, config_map("a", {"a": "1"}))
    async with api.watch(maps, resourceVersion=made.version) as events:
        await api.delete(f"{maps}/a")
        event = await events.next()
    assert event["type"] == "DELETED"
    assert event["object"]["data"] == {"a": "1"}
    assert int(event["object"]["metadata"]["resourceVersion"]) > int(made.version)


async def test_a_write_that_changes_nothing_is_no_event(api, maps):
    made = await api.create(maps, config_map("a", {"a": "1"}))
    async with api.watch(maps, resourceVersion=made.version) as events:
        await api.replace(f"{maps}/a", made.body)
        await api.create(maps, config_map("b"))
        assert await events.take(1) == [("ADDED", "b")]


async def test_a_dry_run_is_no_event(api, maps):
    async with api.watch(maps, resourceVersion=await version(api, maps)) as events:
        await api.create(maps, config_map("dry"), dryRun="All")
        await api.create(maps, config_map("a"))
        assert await events.take(1) == [("ADDED", "a")]


async def test_a_finalizer_makes_two_events_of_a_deletion(api, maps):
    made = await api.create(maps, config_map("a", finalizers=["a/b"]))
    async with api.watch(maps, resourceVersion=made.version) as events:
        await api.delete(f"{maps}/a")
        await api.merge(f"{maps}/a", {"metadata": {"finalizers": None}})
        assert await events.take(2) == [("MODIFIED", "a"), ("DELETED", "a")]


@pytest.mark.parametrize(
    "start", [{}, {"resourceVersion": ""}, {"resourceVersion": "0"}], ids=["none", "empty", "0"]
)
async def test_a_watch_without_a_version_begins_with_what_there_is(api, maps, start):
    await api.create(maps, config_map("a"))
    await api.create(maps, config_map("b"))
    await api.get(maps)
    async with api.watch(maps, **start) as events:
        assert sorted(await events.take(2)) == [("ADDED", "a"), ("ADDED", "b")]
        await api.create(maps, config_map("c"))
        assert await events.take(1) == [("ADDED", "c")]


async def test_an_object_that_comes_into_the_selection_is_added(api, maps):
    made = await api.create(maps, config_map("a"))
    async with api.watch(maps, resourceVersion=made.version, labelSelector="l=x") as events:
        await api.merge(f"{maps}/a", {"metadata": {"labels": {"l": "x"}}})
        await api.merge(f"{maps}/a", {"data": {"a": "1"}})
        assert await events.take(2) == [("ADDED", "a"), ("MODIFIED", "a")]


async def test_an_object_that_leaves_the_selection_is_deleted_as_it_was(api, maps):
    made = await api.create(maps, config_map("a", {"a": "1"}, labels={"l": "x"}))
    async with api.watch(maps, resourceVersion=made.version, labelSelector="l=x") as events:
        changed = await api.merge(f"{maps}/a", {"metadata": {"labels": {"l": "y"}}, "data": {"a": "2"}})
        event = await events.next()
    assert event["type"] == "DELETED"
    assert event["object"]["metadata"]["labels"] == {"l": "x"}
    assert event["object"]["data"] == {"a": "1"}
    assert event["object"]["metadata"]["resourceVersion"] == changed.version


async def test_what_happens_outside_the_selection_is_not_seen(api, maps):
    made = await api.create(maps, config_map("a"))
    async with api.watch(maps, resourceVersion=made.version, labelSelector="l=x") as events:
        await api.merge(f"{maps}/a", {"data": {"a": "1"}})
        await api.delete(f"{maps}/a")
        await api.create(maps, config_map("b", labels={"l": "x"}))
        assert await events.take(1) == [("ADDED", "b")]


async def test_a_negated_selector_sees_a_label_come_and_go(api, maps):
    made = await api.create(maps, config_map("a"))
    async with api.watch(maps, resourceVersion=made.version, labelSelector="!l") as events:
        await api.merge(f"{maps}/a", {"metadata": {"labels": {"l": "x"}}})
        await api.merge(f"{maps}/a", {"metadata": {"labels": None}})
        assert await events.take(2) == [("DELETED", "a"), ("ADDED", "a")]


async def test_one_object_is_watched_by_its_name(api, maps):
    start = await version(api, maps)
    async with api.watch(maps, resourceVersion=start, fieldSelector="metadata.name=b") as events:
        await api.create(maps, config_map("a"))
        await api.create(maps, config_map("b"))
        assert await events.take(1) == [("ADDED", "b")]


async def test_a_watch_of_all_namespaces_sees_each(api, ns, maps, name):
    start = await version(api, maps)
    selector = f"of={name}"
    async with api.watch("/api/v1/configmaps", resourceVersion=start, labelSelector=selector) as events:
        await api.create(maps, config_map("a", labels={"of": name}))
        event = await events.next()
    assert event["object"]["metadata"]["namespace"] == ns


async def test_initial_events_end_with_an_annotated_bookmark(api, maps):
    made = await api.create(maps, config_map("a"))
    async with api.watch(maps, **INITIAL) as events:
        assert await events.take(1) == [("ADDED", "a")]
        bookmark = await events.next()
        assert bookmark["type"] == "BOOKMARK"
        assert (bookmark["object"]["kind"], bookmark["object"]["apiVersion"]) == ("ConfigMap", "v1")
        metadata = bookmark["object"]["metadata"]
        assert metadata["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert int(metadata["resourceVersion"]) >= int(made.version)
        await api.create(maps, config_map("b"))
        assert await events.take(1) == [("ADDED", "b")]


async def test_initial_events_of_nothing_are_the_bookmark(api, maps):
    async with api.watch(maps, **INITIAL) as events:
        assert await events.take(1) == [("BOOKMARK", "")]


async def test_initial_events_are_selected(api, maps):
    await api.create(maps, config_map("a", labels={"l": "x"}))
    await api.create(maps, config_map("b"))
    async with api.watch(maps, **INITIAL, labelSelector="l=x") as events:
        assert await events.take(2) == [("ADDED", "a"), ("BOOKMARK", "")]


async def test_a_watch_from_version_0_with_bookmarks_marks_the_end_of_initial_events(api, maps):
    await api.create(maps, config_map("a"))
    await api.get(maps)
    async with api.watch(maps, resourceVersion="0", allowWatchBookmarks="true") as events:
        assert await events.take(2) == [("ADDED", "a"), ("BOOKMARK", "")]


@pytest.mark.parametrize(
    "query",
    [
        {"sendInitialEvents": "true"},
        {"sendInitialEvents": "true", "resourceVersionMatch": "Exact"},
        {"resourceVersionMatch": "NotOlderThan", "resourceVersion": "1"},
    ],
    ids=["no-match", "exact", "match-alone"],
)
async def test_watch_options_that_do_not_go_together_are_invalid(api, maps, query):
    refused = await api.get(maps, watch="true", **query)
    assert refused.refusal == (422, "Invalid")
    assert refused.fields == {"resourceVersionMatch"}


async def test_a_watch_from_no_number_is_refused(api, maps):
    refused = await api.get(maps, watch="true", resourceVersion="abc")
    assert refused.refusal == (500, None)


async def test_a_bad_selector_of_a_watch_is_a_bad_request(api, maps):
    assert (await api.get(maps, watch="true", labelSelector="a in")).refusal == (400, "BadRequest")


async def test_a_watch_from_before_the_window_ends_with_the_error_expired(api, sites):
    await api.create(sites, site())
    async with api.watch(sites, resourceVersion="1") as events:
        error = await events.next()
        assert await events.next() is None
    assert error["type"] == "ERROR"
    assert error["object"]["kind"] == "Status"
    assert (error["object"]["code"], error["object"]["reason"]) == (410, "Expired")
    assert error["object"]["message"].startswith("too old resource version: 1 (")


async def test_a_watch_ends_when_its_time_is_over(api, maps):
    async with api.watch(maps, resourceVersion=await version(api, maps), timeoutSeconds=1) as events:
        assert await events.all() == []


async def test_two_watches_see_the_same(api, maps):
    start = await version(api, maps)
    async with api.watch(maps, resourceVersion=start) as one, api.watch(maps, resourceVersion=start) as two:
        await api.create(maps, config_map("a"))
        await api.delete(f"{maps}/a")
        assert await one.take(2) == await two.take(2) == [("ADDED", "a"), ("DELETED", "a")]


async def test_the_old_path_of_watches_still_works(api, ns, maps):
    await api.create(maps, config_map("a"))
    async with api.watch(f"/api/v1/watch/namespaces/{ns}/configmaps") as events:
        assert await events.take(1) == [("ADDED", "a")]


async def test_a_watch_of_custom_resources_sees_their_status_change(api, sites):
    made = await api.create(sites, site())
    async with api.watch(sites, resourceVersion=made.version) as events:
        await api.merge(f"{sites}/a/status", {"status": {"phase": "Ready"}})
        event = await events.next()
    assert (event["type"], event["object"]["status"]) == ("MODIFIED", {"phase": "Ready"})
