"""The parameter `shardSelector` where the feature is off, as it is by default: whatever it says, it is not read."""

from __future__ import annotations

import pytest
from conformance_api import Api

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
INITIAL = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
NAMES = ["a", "b", "c"]
LAST = "shardRange(object.metadata.uid, '0xffffffffffffffff', '0x10000000000000000')"
SELECTORS = pytest.mark.parametrize("selector", [LAST, "bad"], ids=["narrow", "bad"])


@pytest.fixture
async def three(api: Api, maps: str) -> str:
    for name in NAMES:
        await api.create(maps, {"metadata": {"name": name}})
    return maps


@SELECTORS
async def test_a_list_has_everything_in_each_form_and_says_nothing(
    api: Api, three: str, selector: str
) -> None:
    listed = await api.get(three, shardSelector=selector)
    assert [item["metadata"]["name"] for item in listed["items"]] == NAMES
    assert "shardInfo" not in listed.meta
    for accept, items in ((TABLE, "rows"), (METADATA, "items")):
        assert len((await api.get(three, shardSelector=selector, accept=accept))[items]) == 3


@SELECTORS
async def test_pages_have_everything_and_what_remains_is_counted(api: Api, three: str, selector: str) -> None:
    first = await api.get(three, shardSelector=selector, limit=2)
    assert first.meta["remainingItemCount"] == 1
    rest = await api.get(three, shardSelector=selector, **{"limit": 2, "continue": first.meta["continue"]})
    assert [item["metadata"]["name"] for item in first["items"] + rest["items"]] == NAMES


@SELECTORS
async def test_a_watch_list_and_a_watch_that_goes_on_bring_everything(
    api: Api, three: str, selector: str
) -> None:
    async with api.watch(three, shardSelector=selector, **INITIAL) as watch:
        added = await watch.take(3)
        bookmark = await watch.next()
    assert sorted(added) == [("ADDED", name) for name in NAMES]
    assert bookmark is not None
    meta = bookmark["object"]["metadata"]
    assert meta["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert "shardInfo" not in meta
    for name in NAMES:
        await api.merge(f"{three}/{name}", {"data": {"x": "y"}})
    async with api.watch(three, shardSelector=selector, resourceVersion=meta["resourceVersion"]) as watch:
        assert await watch.take(3) == [("MODIFIED", name) for name in NAMES]


@SELECTORS
async def test_a_collection_is_deleted_completely(api: Api, three: str, selector: str) -> None:
    assert (await api.delete(three, shardSelector=selector)).status == 200
    assert (await api.get(three))["items"] == []
