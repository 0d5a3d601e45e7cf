"""kubeshard's own client on every target: typed, through discovery, listing, watching and applying."""

import pytest

from kubeshard.client import Bookmark
from kubeshard.core import (
    AlreadyExists,
    ApplyPatch,
    ConfigMap,
    Conflict,
    Gone,
    JsonPatch,
    Lease,
    LeaseSpec,
    MergePatch,
    NotFound,
    ObjectMeta,
    PatchTestFailed,
    Selector,
    metadata_only,
)
from kubeshard.core.patches import replace, test

pytestmark = pytest.mark.wire


def config_map(ns, name="a", data=None, **metadata):
    return ConfigMap(metadata=ObjectMeta(name=name, namespace=ns, **metadata), data=data)


async def test_an_object_lives_through_every_verb(client, ns):
    made = await client.create(config_map(ns, data={"a": "1"}))
    with pytest.raises(AlreadyExists):
        await client.create(config_map(ns))
    assert await client.get(ConfigMap, "a", ns) == made
    merged = await client.patch(ConfigMap, "a", ns, MergePatch({"data": {"b": "2"}}))
    assert merged.data == {"a": "1", "b": "2"}
    with pytest.raises(Conflict):
        await client.replace(made)
    with pytest.raises(PatchTestFailed):
        await client.patch(ConfigMap, "a", ns, JsonPatch([test("/data/a", "x"), replace("/data/a", "y")]))
    await client.delete_object(merged)
    with pytest.raises(NotFound):
        await client.get(ConfigMap, "a", ns)


async def test_a_manifest_is_applied_through_discovery(client, ns):
    manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": ns},
        "data": {"a": "1"},
    }
    applied = await client.apply(manifest, field_manager="me")
    assert applied.metadata.name == "a"
    assert (await client.get(ConfigMap, "a", ns)).data == {"a": "1"}


async def test_an_apply_that_conflicts_raises_conflict(client, ns):
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "1"}}
    await client.patch(ConfigMap, "a", ns, ApplyPatch(body), field_manager="one")
    other = ApplyPatch({**body, "data": {"a": "2"}})
    with pytest.raises(Conflict, match="conflict with"):
        await client.patch(ConfigMap, "a", ns, other, field_manager="two")
    taken = await client.patch(ConfigMap, "a", ns, other, field_manager="two", force=True)
    assert taken.data == {"a": "2"}


@pytest.mark.parametrize("page_size", [2, 500, None])
async def test_lists_are_complete_at_any_page_size(client, ns, page_size):
    for number in range(5):
        await client.create(config_map(ns, f"a{number}", labels={"l": "x"}))
    stream = client.list(ConfigMap, ns, page_size=page_size, label_selector=Selector.equals("l", "x"))
    assert [obj.metadata.name async for obj in stream] == [f"a{number}" for number in range(5)]
    assert stream.resource_version.isdecimal()


async def test_metadata_is_listed_without_the_rest(client, ns):
    await client.create(config_map(ns, data={"a": "1"}, labels={"l": "x"}))
    (found,) = await client.list_all(metadata_only(ConfigMap), ns)
    assert (found.metadata.name, found.metadata.labels) == ("a", {"l": "x"})


async def test_a_watch_with_initial_events_goes_on_as_a_watch(client, ns):
    await client.create(config_map(ns, "a"))
    seen = []
    async with client.watch(ConfigMap, ns, send_initial_events=True, timeout_seconds=30) as events:
        async for event in events:
            if isinstance(event, Bookmark):
                assert event.ends_initial_events
                await client.create(config_map(ns, "b"))
                continue
            seen.append((event.type, event.object.metadata.name))
            if len(seen) == 2:
                break
    assert seen == [("ADDED", "a"), ("ADDED", "b")]


async def test_an_expired_watch_raises_gone(client, ns, sites):
    kind = await client.discovery.kind("conformance.example.com", kind="Site")
    async with client.watch(metadata_only(kind), ns, resource_version="1", timeout_seconds=5) as events:
        with pytest.raises(Gone):
            await anext(aiter(events))


async def test_a_lease_is_renewed_by_replacing_what_was_read(client, ns):
    lease = Lease(
        metadata=ObjectMeta(name="a", namespace=ns),
        spec=LeaseSpec(holder_identity="me", lease_duration_seconds=5),
    )
    made = await client.create(lease)
    renewed = await client.replace(
        Lease(
            metadata=made.metadata,
            spec=LeaseSpec(holder_identity="", renew_time="2026-01-02T03:04:05.678901Z"),
        )
    )
    assert renewed.spec.holder_identity == ""
    with pytest.raises(Conflict):
        await client.replace(made)


async def test_discovery_finds_a_kind_created_a_moment_ago(client, sites):
    kind = await client.discovery.kind("conformance.example.com", resource="sites")
    assert (kind.kind, kind.namespaced) == ("Site", True)
