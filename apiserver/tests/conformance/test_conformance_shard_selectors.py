"""Lists and watches of a range of hashes, with the feature gate on. Without it, servers ignore the parameter."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conformance_api import Api
from conformance_kinds import site

from kubeshard.core.hash_ranges import fnv1a
from kubeshard_apiserver import ApiServer, Identity, User
from kubeshard_apiserver.resources.admission_plugins import ADMISSION_PLUGINS
from kubeshard_apiserver.testing.control_plane import ControlPlane
from kubeshard_apiserver.verbs.shard_selectors import SHARDED_LIST_AND_WATCH

LOW, MIDDLE, HIGH = "0x0000000000000000", "0x8000000000000000", "0x10000000000000000"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
INITIAL = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}


def ranges(start: str, end: str, field: str = "object.metadata.uid") -> str:
    return f"shardRange({field}, '{start}', '{end}')"


LOWER, UPPER = ranges(LOW, MIDDLE), ranges(MIDDLE, HIGH)


@pytest.fixture(scope="module")
def model() -> tuple[ApiServer, Identity]:
    plugins = [name for name in ADMISSION_PLUGINS if name != "ServiceAccount"]
    server = ApiServer(admission_plugins=plugins, feature_gates=[SHARDED_LIST_AND_WATCH])
    return server, Identity(server, tokens={"conformance": User("admin", "admin", ("system:masters",))})


@pytest.fixture(scope="module")
def control_plane() -> Iterator[ControlPlane]:
    with ControlPlane(feature_gates=[f"{SHARDED_LIST_AND_WATCH}=true"]) as control_plane:
        yield control_plane


@pytest.fixture
async def many(api: Api, maps: str) -> list[str]:
    """The UIDs of ConfigMaps."""
    return [
        (await api.create(maps, {"metadata": {"name": f"map-{number:02}"}})).meta["uid"]
        for number in range(20)
    ]


async def uids(api: Api, path: str, selector: str, **parameters: object) -> list[str]:
    answer = await api.get(path, shardSelector=selector, **parameters)
    assert answer.status == 200, answer.text
    return [item["metadata"]["uid"] for item in answer["items"]]


@pytest.mark.live  # what is selected depends on the UIDs
class TestSelection:
    async def test_an_object_is_in_the_range_of_the_hash_of_its_uid(
        self, api: Api, maps: str, many: list[str]
    ) -> None:
        for selector, selected in (
            (LOWER, lambda hashed: hashed < 1 << 63),
            (UPPER, lambda hashed: hashed >= 1 << 63),
            (f"{LOWER} || {UPPER}", lambda _: True),
            (
                f"{ranges('0x4000000000000000', MIDDLE)} || {ranges('0xc000000000000000', HIGH)}",
                lambda hashed: hashed >> 62 in (1, 3),
            ),
        ):
            assert await uids(api, maps, selector) == [uid for uid in many if selected(fnv1a(uid))]

    async def test_a_range_begins_with_its_start_and_ends_before_its_end(
        self, api: Api, maps: str, many: list[str]
    ) -> None:
        hashed = fnv1a(many[0])
        here, after = f"0x{hashed:016x}", f"0x{hashed + 1:016x}"
        assert await uids(api, maps, ranges(here, after)) == many[:1]
        assert await uids(api, maps, ranges(after, HIGH)) == [uid for uid in many if fnv1a(uid) > hashed]

    async def test_other_selectors_and_pages_narrow_further(
        self, api: Api, maps: str, many: list[str]
    ) -> None:
        selected = [uid for uid in many if fnv1a(uid) < 1 << 63]
        paged: list[str] = []
        answer = await api.get(maps, shardSelector=LOWER, limit=3)
        while True:
            assert answer.meta["shardInfo"] == {"selector": LOWER}
            paged += [item["metadata"]["uid"] for item in answer["items"]]
            if not answer.meta.get("continue"):
                break
            page = {"limit": 3, "continue": answer.meta["continue"]}
            answer = await api.get(maps, shardSelector=LOWER, **page)
        assert paged == selected
        both = f"{LOWER} || {UPPER}"
        assert await uids(api, maps, both, fieldSelector="metadata.name=map-07") == [many[7]]
        assert await uids(api, maps, LOWER, labelSelector="no=such") == []

    async def test_what_remains_is_not_counted(self, api: Api, maps: str, many: list[str]) -> None:
        assert "remainingItemCount" not in (await api.get(maps, shardSelector=LOWER, limit=1)).meta
        assert (await api.get(maps, limit=1)).meta["remainingItemCount"] == len(many) - 1

    async def test_tables_and_metadata_are_filtered_and_do_not_say_so(
        self, api: Api, maps: str, many: list[str]
    ) -> None:
        selected = sum(fnv1a(uid) < 1 << 63 for uid in many)
        for accept, items in ((TABLE, "rows"), (METADATA, "items")):
            answer = await api.get(maps, shardSelector=LOWER, accept=accept)
            assert len(answer[items]) == selected
            assert "shardInfo" not in answer.meta

    async def test_custom_resources_are_filtered_and_their_lists_do_not_say_so(
        self, api: Api, sites: str
    ) -> None:
        made = [(await api.create(sites, site(f"site-{number}"))).meta["uid"] for number in range(8)]
        answer = await api.get(sites, shardSelector=LOWER)
        assert [item["metadata"]["uid"] for item in answer["items"]] == [
            uid for uid in made if fnv1a(uid) < 1 << 63
        ]
        assert "shardInfo" not in answer.meta

    async def test_a_collection_is_deleted_as_far_as_it_is_selected(
        self, api: Api, maps: str, many: list[str]
    ) -> None:
        assert (await api.delete(maps, shardSelector=LOWER)).status == 200
        assert await uids(api, maps, "") == [uid for uid in many if fnv1a(uid) >= 1 << 63]

    async def test_a_watch_brings_what_is_selected(self, api: Api, maps: str, many: list[str]) -> None:
        lower = [uid for uid in many if fnv1a(uid) < 1 << 63]
        version = (await api.get(maps)).version
        for number in range(20):
            patched = await api.merge(f"{maps}/map-{number:02}", {"data": {"a": "b"}})
            assert patched.status == 200
        for options, types in (
            ({"resourceVersion": version}, ["MODIFIED"] * len(lower)),
            ({"resourceVersion": "0"}, ["ADDED"] * len(lower)),
        ):
            async with api.watch(maps, shardSelector=LOWER, **options) as watch:
                events = [await watch.next() for _ in lower]
            assert sorted(event["object"]["metadata"]["uid"] for event in events) == sorted(lower)
            assert [event["type"] for event in events] == types

    async def test_a_watch_list_brings_what_is_selected_and_its_bookmark_does_not_say_so(
        self, api: Api, maps: str, many: list[str]
    ) -> None:
        lower = [uid for uid in many if fnv1a(uid) < 1 << 63]
        async with api.watch(maps, shardSelector=LOWER, **INITIAL) as watch:
            added = [await watch.next() for _ in lower]
            bookmark = await watch.next()
        assert [event["type"] for event in added] == ["ADDED"] * len(lower)
        assert sorted(event["object"]["metadata"]["uid"] for event in added) == sorted(lower)
        meta = bookmark["object"]["metadata"]
        assert (bookmark["type"], meta["annotations"]) == ("BOOKMARK", {"k8s.io/initial-events-end": "true"})
        assert "shardInfo" not in meta

    async def test_a_watch_that_goes_on_brings_what_its_own_selector_selects(
        self, api: Api, maps: str, many: list[str]
    ) -> None:
        async with api.watch(maps, shardSelector=LOWER, **INITIAL) as watch:
            while (event := await watch.next())["type"] != "BOOKMARK":
                pass
        for number in range(20):
            assert (await api.merge(f"{maps}/map-{number:02}", {"data": {"a": "b"}})).status == 200
        upper = [uid for uid in many if fnv1a(uid) >= 1 << 63]
        version = event["object"]["metadata"]["resourceVersion"]
        async with api.watch(maps, shardSelector=UPPER, resourceVersion=version) as watch:
            modified = [await watch.next() for _ in upper]
        assert [event["type"] for event in modified] == ["MODIFIED"] * len(upper)
        assert sorted(event["object"]["metadata"]["uid"] for event in modified) == sorted(upper)


async def test_a_namespace_is_in_the_range_of_the_hash_of_its_name(api: Api, maps: str, ns: str) -> None:
    await api.create(maps, {"metadata": {"name": "a"}})
    hashed = fnv1a(ns)
    here = ranges(f"0x{hashed:016x}", f"0x{hashed + 1:016x}", "object.metadata.namespace")
    answer = await api.get(maps, shardSelector=here)
    assert [item["metadata"]["name"] for item in answer["items"]] == ["a"]
    assert answer.meta["shardInfo"] == {"selector": here}
    elsewhere = ranges(f"0x{hashed + 1:016x}", HIGH, "object.metadata.namespace")
    assert (await api.get(maps, shardSelector=elsewhere))["items"] == []


SPELLINGS = {
    f" shardRange( object.metadata.uid,'{LOW}' , \"{MIDDLE}\" )||({UPPER}) ": f"{LOWER} || {UPPER}",
    f"shardRange(object . metadata . uid, '''{LOW}''', r\"{MIDDLE}\") // half of it": LOWER,
    f"object.shardRange(object.metadata.uid, '{LOW}', '\\u0030x8000000000000000')": LOWER,
    f"{LOWER} || {LOWER}": f"{LOWER} || {LOWER}",
}


@pytest.mark.parametrize("given", SPELLINGS, ids=range(len(SPELLINGS)))
async def test_a_selector_is_echoed_in_one_spelling(api: Api, ns: str, given: str) -> None:
    answer = await api.get(f"/api/v1/namespaces/{ns}/secrets", shardSelector=given)
    assert answer.meta["shardInfo"] == {"selector": SPELLINGS[given]}


REFUSED = {
    "  ": "empty shard selector is not allowed; omit the parameter for unfiltered lists",
    ranges(MIDDLE, LOW): f"shard range start {MIDDLE} must be less than end {LOW}",
    ranges(LOW, LOW): f"shard range start {LOW} must be less than end {LOW}",
    ranges(
        "0x0", MIDDLE
    ): f'hexStart must be a 0x-prefixed 16-digit hex value, got "0x0" (did you mean "{LOW}"?)',
    ranges(LOW, "0X8000000000000000"): "hexEnd must have '0x' prefix, got \"0X8000000000000000\"",
    ranges("0x", MIDDLE): "hexStart: hex value is required after '0x'",
    ranges("0x000000000000000A", MIDDLE): 'hexStart: invalid hex character "A" in "0x000000000000000A"',
    ranges(LOW + "00", MIDDLE): 'hexStart: hex value too long (18 chars, max 17): "000000000000000000"',
    ranges(LOW, "0x10000000000000001"): "hexEnd: 17-digit hex value must be '0x10000000000000000' (2^64), "
    'got "0x10000000000000001"',
    ranges(LOW, MIDDLE, "object.metadata.name"): 'unsupported field path "object.metadata.name"; supported: '
    "object.metadata.uid, object.metadata.namespace",
    ranges(LOW, MIDDLE, "metadata.uid"): 'unsupported field path "metadata.uid"; supported: '
    "object.metadata.uid, object.metadata.namespace",
    f"{LOWER} || {ranges(MIDDLE, HIGH, 'object.metadata.namespace')}": "all shard ranges must use the same field, "
    'got "object.metadata.uid" and "object.metadata.namespace"',
    f"shardRange(object.metadata.uid, '{LOW}')": "shardRange() requires exactly 3 arguments, got 2",
    f"other(object.metadata.uid, '{LOW}', '{MIDDLE}')": 'unsupported function "other"; only shardRange() and || are '
    "allowed",
    f"{LOWER} && {UPPER}": 'unsupported function "_&&_"; only shardRange() and || are allowed',
    f"!{LOWER}": 'unsupported function "!_"; only shardRange() and || are allowed',
    LOWER[:-1]: "CEL parse error: Syntax error: missing ')' at '<EOF>'",
    "shardRange)": "CEL parse error: Syntax error: extraneous input ')' expecting <EOF>",
}


@pytest.mark.parametrize("given", REFUSED, ids=range(len(REFUSED)))
async def test_a_selector_that_cannot_be_read_is_an_error_of_the_server(
    api: Api, ns: str, given: str
) -> None:
    for more in ({}, {"watch": 1}):
        answer = await api.get(f"/api/v1/namespaces/{ns}/secrets", shardSelector=given, **more)
        assert answer.refusal == (500, None)
        assert answer.message == f"invalid shard selector: {REFUSED[given]}"


@pytest.mark.parametrize(
    "given", ["object.metadata.uid", "'x'", "true", "a || b", "[1]", "1 + 2", "||", f"{LOWER} ||"]
)
@pytest.mark.live  # the words about what is no chain of calls are the server's own
async def test_what_is_no_chain_of_calls_is_an_error_of_the_server(api: Api, ns: str, given: str) -> None:
    answer = await api.get(f"/api/v1/namespaces/{ns}/secrets", shardSelector=given)
    assert answer.refusal == (500, None)
    assert answer.message.startswith("invalid shard selector: ")


@pytest.mark.parametrize(
    "others",
    [{"labelSelector": "!!"}, {"fieldSelector": "x=y"}, {"resourceVersionMatch": "x"}],
    ids=["labels", "fields", "match"],
)
async def test_other_parameters_are_checked_before(api: Api, ns: str, others: dict[str, str]) -> None:
    answer = await api.get(f"/api/v1/namespaces/{ns}/secrets", shardSelector="bad", **others)
    assert answer.status in (400, 422)
    assert "shard" not in answer.message


async def test_what_has_no_selection_ignores_the_parameter(api: Api, maps: str) -> None:
    await api.create(maps, {"metadata": {"name": "a"}})
    assert (await api.get(f"{maps}/a", shardSelector="bad")).status == 200
