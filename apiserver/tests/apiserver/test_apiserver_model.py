"""The model without HTTP: expiry, determinism, streams."""

import asyncio
import json
from dataclasses import replace

import pytest

from kubeshard import ALL
from kubeshard.client import Bookmark, Client, ClusterConfig
from kubeshard.core import AlreadyExists, ConfigMap, Conflict, Gone, Invalid, ObjectMeta, Unavailable
from kubeshard.core.errors import ApiError
from kubeshard.core.patches import ApplyPatch
from kubeshard.runtime.transport import HttpRequest
from kubeshard.runtime.world import REAL_WORLD
from kubeshard_apiserver import ApiServer, ApiServerApp, InMemoryTransport
from kubeshard_apiserver.model import Target, WriteOptions
from kubeshard_apiserver.patching import JsonPatch, MergePatch, StrategicPatch
from kubeshard_apiserver.resources.pod_defaults import pull_policy
from kubeshard_apiserver.states import DecodedCache
from kubeshard_apiserver.verbs import writing
from kubeshard_apiserver.verbs.reading import ListOptions
from kubeshard_apiserver.verbs.shard_selectors import SHARDED_LIST_AND_WATCH
from kubeshard_lab.virtual_time import virtual_time
from kubeshard_lab.virtual_world import virtual_world

MAPS = "/api/v1/namespaces/default/configmaps"
EVERYTHING = "shardRange(object.metadata.{}, '0x0000000000000000', '0x10000000000000000')"


class Counting:
    """Unique names that are the same in every run."""

    def __init__(self):
        self.count = 0

    def uniform(self, low, high):
        return low

    def token(self):
        self.count += 1
        return f"{self.count:032x}"


def maps(server):
    return Target(server.registry.find("", "v1", "configmaps"), "default")


def fill(server, *names):
    for name in names:
        server.create(maps(server), {"metadata": {"name": name}})


def client_of(server, **options):
    return Client(ClusterConfig("http://in-memory"), transport=InMemoryTransport(server), **options)


def test_an_owner_that_is_named_twice_is_stored_once_and_the_client_is_warned():
    server, warnings = ApiServer(), []
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"}
    options = WriteOptions(warnings=warnings)
    body = {"metadata": {"name": "a", "ownerReferences": [owner, {**owner, "name": "p"}, {**owner}]}}
    made = server.create(maps(server), body, options)
    assert [each["name"] for each in made.object["metadata"]["ownerReferences"]] == ["o", "p"]
    patch = MergePatch({"metadata": {"ownerReferences": [owner, owner]}})
    left = server.patch(replace(maps(server), name="a"), patch, options)
    assert left.object["metadata"]["ownerReferences"] == [owner]
    assert all("contains duplicate entries" in each for each in warnings)
    assert len(warnings) == 2


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"apiVersion": "a/b/c"}, "must be <group>/<version> or <version>"),
        ({"apiVersion": "a/"}, "must be <group>/<version> or <version>"),
        ({"kind": "Event"}, "/v1, Kind=Event is disallowed from being an owner"),
        ({"kind": "Event", "apiVersion": "events.k8s.io/v1"}, None),
    ],
)
def test_an_owner_is_of_a_kind_that_can_own(said, told):
    server, owner = ApiServer(), {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u", **said}
    body = {"metadata": {"name": "a", "ownerReferences": [owner]}}
    if told is None:
        server.create(maps(server), body, WriteOptions())
        return
    with pytest.raises(Invalid, match=told):
        server.create(maps(server), body, WriteOptions())


def test_who_names_an_owner_three_times_is_told_of_it_twice():
    server, warnings = ApiServer(), []
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"}
    body = {"metadata": {"name": "a", "ownerReferences": [owner] * 3}}
    server.create(maps(server), body, WriteOptions(warnings=warnings))
    assert warnings[0].endswith("duplicate UID(s) observed: u, u")


def test_a_patch_that_names_an_owner_twice_owns_it():
    server = ApiServer()
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"}
    body = {"metadata": {"name": "a", "ownerReferences": [owner]}}
    server.create(maps(server), body, WriteOptions(manager="maker"))
    patch = MergePatch({"metadata": {"ownerReferences": [owner, owner]}})
    left = server.patch(replace(maps(server), name="a"), patch, WriteOptions(manager="patcher")).object
    owning = [
        each["manager"]
        for each in left["metadata"]["managedFields"]
        if 'k:{"uid":"u"}' in str(each["fieldsV1"])
    ]
    assert "patcher" in owning


def test_what_is_stored_does_not_change_with_the_body_of_its_creation():
    server = ApiServer()
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    names = {"plural": "things", "singular": "thing", "kind": "Thing"}
    definitions = Target(server.registry.find("apiextensions.k8s.io", "v1", "customresourcedefinitions"))
    spec = {"group": "sim.example", "scope": "Namespaced", "names": names, "versions": [version]}
    server.create(definitions, {"metadata": {"name": "things.sim.example"}, "spec": spec})
    things = Target(server.registry.find("sim.example", "v1", "things"), "default")
    body = {"apiVersion": "sim.example/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"x": [1]}}
    server.create(things, body)
    body["spec"]["x"].append(2)
    assert server.get(replace(things, name="a"))["spec"] == {"x": [1]}


def test_the_name_of_an_object_that_is_being_deleted_is_refused_as_such():
    server = ApiServer()
    body = {"metadata": {"name": "a", "finalizers": ["example.com/held"]}}
    server.create(maps(server), body)
    with pytest.raises(AlreadyExists, match=r'^configmaps "a" already exists$'):
        server.create(maps(server), body)
    server.delete(replace(maps(server), name="a"))
    with pytest.raises(AlreadyExists, match=r'^object is being deleted: configmaps "a" already exists$'):
        server.create(maps(server), body)


def test_the_last_two_characters_of_a_prefix_of_names_may_be_anything_before_a_hyphen():
    server = ApiServer()
    with pytest.raises(Invalid) as refused:
        server.create(maps(server), {"metadata": {"generateName": "A-"}})
    assert [cause["field"] for cause in refused.value.causes] == ["metadata.name"]


def test_a_page_of_a_forgotten_snapshot_is_gone_and_offers_an_inconsistent_rest():
    server = ApiServer()
    fill(server, "a", "b", "c")
    page = server.list(maps(server), ListOptions(limit=1))
    fill(server, "bb")
    server.store.compact()
    with pytest.raises(Gone) as gone:
        server.list(maps(server), ListOptions(limit=1, continue_=page.continue_))
    rest = server.list(maps(server), ListOptions(continue_=gone.value.continue_))
    assert [obj["metadata"]["name"] for obj in rest.items] == ["b", "bb", "c"]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (ListOptions(label_selector="a=b"), ["both", "one"]),
        (ListOptions(label_selector="a,!c"), ["one"]),
        (ListOptions(label_selector="!a"), ["none"]),
        (ListOptions(label_selector="a notin (b)"), ["none"]),
        (ListOptions(label_selector="n>9"), ["both"]),
        (ListOptions(shard_selector=EVERYTHING.format("uid")), ["both", "none", "one"]),
        (ListOptions(shard_selector=EVERYTHING.format("namespace"), label_selector="a"), ["both", "one"]),
    ],
)
def test_a_list_by_labels_or_ranges_decodes_no_object(monkeypatch, options, names):
    server = ApiServer(feature_gates=[SHARDED_LIST_AND_WATCH])
    server.store._decoded_cache = DecodedCache(most_bytes=0)
    for name, labels in {"both": {"a": "b", "c": "d", "n": "10"}, "none": None, "one": {"a": "b"}}.items():
        server.create(maps(server), {"metadata": {"name": name, "labels": labels}, "data": {"a": "b"}})
    monkeypatch.setattr("kubeshard_apiserver.states._decode", None)
    page = server.list(maps(server), options)
    assert [json.loads(text)["metadata"]["name"] for text in page.items.texts()] == names


def test_an_exact_list_of_a_forgotten_version_is_gone():
    server = ApiServer()
    fill(server, "a")
    version = str(server.store.revision)
    fill(server, "b")
    server.store.compact()
    with pytest.raises(Gone):
        server.list(maps(server), ListOptions(resource_version=version, match="Exact"))


def test_a_watch_slower_than_the_window_is_told_to_list_again():
    server = ApiServer(window=3)
    watch = server.watch(maps(server), ListOptions(resource_version=str(server.store.revision)))
    fill(server, *(f"a{number}" for number in range(20)))
    (event,) = watch.take()
    assert (event.type, event.object["code"]) == ("ERROR", 410)
    assert watch.ended


def test_the_same_calls_make_the_same_state():
    class Stopped:
        def wall(self):
            return 1.0

        monotonic = boottime = wall

    states = []
    for _ in range(2):
        server = ApiServer(world=replace(REAL_WORLD, clock=Stopped(), rng=Counting()))
        server.create(maps(server), {"metadata": {"generateName": "x-"}})
        states.append(server.list(maps(server)).items)
    assert states[0] == states[1]


@pytest.mark.parametrize("again", [7, 8])
def test_a_generated_name_that_is_taken_is_generated_again_up_to_seven_times(again, monkeypatch):
    server, body = ApiServer(), {"metadata": {"generateName": "x-"}}
    named = server.create(maps(server), body).object["metadata"]["name"]
    suffixes = iter([named.removeprefix("x-")] * again + ["fresh"])
    monkeypatch.setattr(writing, "generated_name", lambda prefix, _: prefix + next(suffixes))
    if again < 8:
        assert server.create(maps(server), body).object["metadata"]["name"] == "x-fresh"
    else:
        with pytest.raises(AlreadyExists, match="not able to generate a unique name"):
            server.create(maps(server), body)


def test_a_refused_write_changes_nothing():
    server = ApiServer()
    before = server.store.revision
    with pytest.raises(Exception, match="invalid"):
        fill(server, "A")
    assert server.store.revision == before


@virtual_time
async def test_bookmarks_come_every_minute():
    server = ApiServer(world=virtual_world())
    async with (
        client_of(server, world=virtual_world()) as client,
        client.watch(ConfigMap, ALL, resource_version="2", timeout_seconds=150, idle_timeout=None) as events,
    ):
        seen = [event async for event in events]
    assert [type(event) for event in seen] == [Bookmark, Bookmark]


async def test_an_aborted_transport_cuts_its_watches():
    transport = InMemoryTransport(ApiServer())
    async with Client(ClusterConfig("http://in-memory"), transport=transport) as client:
        await client.create(ConfigMap(metadata=ObjectMeta(name="a", namespace="default")))
        async with client.watch(ConfigMap, ALL) as events:
            stream = aiter(events)
            await anext(stream)
            transport.abort()
            with pytest.raises(Unavailable):
                await anext(stream)


async def test_a_slow_reader_holds_nobody_up():
    server = ApiServer()
    async with client_of(server) as client, client.watch(ConfigMap, ALL, resource_version="2") as slow:
        async with client.watch(ConfigMap, ALL, resource_version="2") as quick:
            for number in range(50):
                await client.create(ConfigMap(metadata=ObjectMeta(name=f"a{number}", namespace="default")))
            seen = aiter(quick)
            for _ in range(50):
                assert (await anext(seen)).type == "ADDED"
        assert (await anext(aiter(slow))).type == "ADDED"


class Connection:
    """An ASGI request; setting `gone` disconnects the client."""

    def __init__(self, method, target, body=b""):
        path, _, query = target.partition("?")
        self.scope = {
            "type": "http", "method": method, "path": path, "raw_path": path.encode(),
            "query_string": query.encode(), "headers": [(b"content-type", b"application/json")],
        }  # fmt: skip
        self.sent = []
        self._messages = [{"type": "http.request", "body": body}]

    async def receive(self):
        return self._messages.pop(0) if self._messages else {"type": "http.disconnect"}

    async def send(self, message):
        self.sent.append(message)


async def test_the_asgi_application_answers():
    app = ApiServerApp(ApiServer())
    connection = Connection("POST", MAPS, b'{"metadata": {"name": "a"}}')
    await app(connection.scope, connection.receive, connection.send)
    start, body = connection.sent
    assert start["status"] == 201
    assert json.loads(body["body"])["metadata"]["name"] == "a"


@pytest.mark.parametrize(
    "patch",
    [
        MergePatch({"spec": {"type": "NodePort"}}),
        StrategicPatch({"spec": {"type": "NodePort"}}),
        JsonPatch([{"op": "replace", "path": "/spec/type", "value": "NodePort"}]),
    ],
    ids=["merge", "strategic", "json"],
)
def test_what_is_set_in_parts_that_a_patch_leaves_alone_does_not_reach_the_state_before(patch):
    server = ApiServer()
    services = Target(server.registry.find("", "v1", "services"), "default")
    body = {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}}
    before = server.create(services, body).object
    after = server.patch(replace(services, name="web"), patch).object
    assert ["nodePort" in obj["spec"]["ports"][0] for obj in (before, after)] == [False, True]


async def test_a_watch_ends_when_its_client_goes_away():
    server = ApiServer()
    subscribers = len(server.store._subscribers)
    connection = Connection("GET", f"{MAPS}?watch=true")
    await ApiServerApp(server)(connection.scope, connection.receive, connection.send)
    assert connection.sent[0]["status"] == 200
    assert len(server.store._subscribers) == subscribers


async def test_deep_nesting_is_a_bad_request():
    body = b'{"metadata": {"name": "a"}, "x": ' + b"[" * 20_000 + b"]" * 20_000 + b"}"
    answer = await InMemoryTransport(ApiServer()).request(HttpRequest("POST", MAPS, {}, body))
    assert answer.status == 400


@virtual_time
async def test_a_pod_is_there_with_its_deletion_timestamp_until_those_who_watch_have_had_time_to_look():
    server = ApiServer(world=virtual_world())
    transport = InMemoryTransport(server)
    pods = "/api/v1/namespaces/default/pods"
    body = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}

    async def ask(method, path, body=None):
        encoded = None if body is None else json.dumps(body).encode()
        answer = await transport.request(
            HttpRequest(method, path, {"content-type": "application/json"}, encoded)
        )
        return json.loads(answer.body)

    await ask("POST", pods, body)
    deleting = asyncio.create_task(ask("DELETE", f"{pods}/a"))
    await asyncio.sleep(0.005)
    assert (await ask("GET", f"{pods}/a"))["metadata"]["deletionTimestamp"]
    assert (await deleting)["metadata"]["deletionTimestamp"]
    assert (await ask("GET", f"{pods}/a"))["code"] == 404


@virtual_time
async def test_a_pod_goes_also_if_the_client_that_deletes_it_goes():
    server = ApiServer(world=virtual_world())
    pods = Target(server.registry.find("", "v1", "pods"), "default")
    server.create(pods, {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    transport = InMemoryTransport(server)
    request = HttpRequest("DELETE", "/api/v1/namespaces/default/pods/a", {})
    deleting = asyncio.create_task(transport.request(request))
    await asyncio.sleep(0.005)
    assert server.list(pods).items
    deleting.cancel()
    await asyncio.wait([deleting])
    assert not server.list(pods).items


def test_a_watch_is_woken_only_by_changes_that_it_selects():
    server = ApiServer()
    maps = Target(server.registry.find("", "v1", "configmaps"), "default")
    watch = server.watch(maps, ListOptions(label_selector="a=b", resource_version=str(server.store.revision)))
    woken = 0

    def wake():
        nonlocal woken
        woken += 1

    watch.on_change(wake)
    for number in range(100):
        server.create(maps, {"metadata": {"name": f"other{number}"}})
    assert woken == 0
    server.create(maps, {"metadata": {"name": "mine", "labels": {"a": "b"}}})
    server.create(maps, {"metadata": {"name": "last"}})
    assert woken
    assert [(event.type, event.object["metadata"]["name"]) for event in watch.take()] == [("ADDED", "mine")]
    woken = 0
    server.patch(replace(maps, name="mine"), MergePatch({"metadata": {"labels": None}}))
    assert woken
    assert [event.type for event in watch.take()] == ["DELETED"]


@pytest.mark.regression
async def test_a_watch_shows_a_change_however_many_it_does_not_select_were_before():
    server = ApiServer()
    since = server.store.revision
    fill(server, *(f"other{number}" for number in range(600)), "mine")
    selected = f"{MAPS}?watch=1&fieldSelector=metadata.name=mine&resourceVersion={since}"
    async with InMemoryTransport(server).stream(HttpRequest("GET", selected, {})) as stream:
        async with asyncio.timeout(5):
            line = await anext(stream.chunks())
    assert json.loads(line)["object"]["metadata"]["name"] == "mine"


@pytest.mark.regression
def test_a_bookmark_is_not_ahead_of_changes_that_were_not_looked_at():
    server = ApiServer()
    since = str(server.store.revision)
    fill(server, *(f"other{number}" for number in range(600)), "mine")
    watch = server.watch(
        maps(server), ListOptions(field_selector="metadata.name=mine", resource_version=since)
    )
    assert watch.take() == []
    assert int(watch.bookmark().object["metadata"]["resourceVersion"]) < server.store.revision
    assert [event.type for event in watch.take()] == ["ADDED"]
    assert watch.take() == []
    assert watch.bookmark().object["metadata"]["resourceVersion"] == str(server.store.revision)


@pytest.mark.regression
def test_a_volume_of_which_nobody_owns_anything_has_the_time_of_its_phase():
    server = ApiServer()
    volumes = Target(server.registry.find("", "v1", "persistentvolumes"))
    spec = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1"}, "hostPath": {"path": "/a"}}
    server.create(volumes, {"metadata": {"name": "a"}, "spec": spec})
    server.patch(replace(volumes, name="a"), MergePatch({"metadata": {"managedFields": [{}]}}))
    bound = MergePatch({"status": {"phase": "Bound"}})
    changed = server.patch(replace(volumes, name="a", subresource="status"), bound).object
    assert "managedFields" not in changed["metadata"]
    assert changed["status"]["lastPhaseTransitionTime"] >= changed["metadata"]["creationTimestamp"]


@pytest.mark.regression
def test_nothing_is_remembered_of_versions_that_are_not_served():
    registry = ApiServer().registry
    assert registry.of("apps", "v1")
    assert registry.versions("apps")
    remembered = len(registry._of), len(registry._versions)
    assert registry.of("a", "v1") == registry.versions("b") == []
    assert (len(registry._of), len(registry._versions)) == remembered


def test_the_approval_of_a_protected_group_is_the_first_condition():
    """Nearly always on the real server, where one controller is faster than another."""
    server = ApiServer()
    definitions = Target(server.registry.find("apiextensions.k8s.io", "v1", "customresourcedefinitions"))
    names = {"plural": "urns", "kind": "Urn"}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object"}},
    }
    meta = {"name": "urns.a.k8s.io", "annotations": {"api-approved.kubernetes.io": "unapproved, a test"}}
    spec = {"group": "a.k8s.io", "scope": "Namespaced", "names": names, "versions": [version]}
    server.create(definitions, {"metadata": meta, "spec": spec})
    kept = server.live(replace(definitions, name="urns.a.k8s.io"))
    assert [one["type"] for one in kept["status"]["conditions"]] == [
        "KubernetesAPIApprovalPolicyConformant",
        "NamesAccepted",
        "Established",
    ]


def scaled(path):
    """A client of a server with a custom resource whose replicas are at this path, and the path of its scale."""
    server, spec = ApiServer(), {"type": "object", "properties": {"size": {"type": "integer"}}}
    version = {"name": "v1", "served": True, "storage": True}
    version["schema"] = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    version["subresources"] = {"scale": {"specReplicasPath": path, "statusReplicasPath": ".status.size"}}
    names = {"plural": "things", "kind": "Thing"}
    definition = {"metadata": {"name": "things.example.com"}, "spec": {"group": "example.com"}}
    definition["spec"] |= {"scope": "Namespaced", "names": names, "versions": [version]}
    server.create(
        Target(server.registry.find("apiextensions.k8s.io", "v1", "customresourcedefinitions")), definition
    )
    things = Target(server.registry.find("example.com", "v1", "things"), "default")
    body = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"size": 2}}
    server.create(things, body)
    return client_of(server), "/apis/example.com/v1/namespaces/default/things/a/scale"


async def test_the_table_of_a_custom_resources_scale_is_that_of_a_scale():
    client, path = scaled(".spec.size")
    async with client:
        answer = await client.raw("GET", path, accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    table = json.loads(answer.body)
    assert [(each["name"], each["type"]) for each in table["columnDefinitions"]] == [
        ("Name", "string"),
        ("Desired", "integer"),
        ("Available", "integer"),
        ("Age", "date"),
    ]
    assert table["rows"][0]["cells"][:3] == ["a", 2, 0]


async def test_a_scale_that_the_schema_has_no_place_for_is_answered_without_replicas():
    client, path = scaled(".spec.nowhere")
    async with client:
        patch = b'{"spec":{"replicas":3}}'
        answer = await client.raw("PATCH", path, patch, content_type="application/merge-patch+json")
    assert json.loads(answer.body)["spec"] == {}


def versioned(server):
    """A kind with two versions, a status and a field beside it; returns an object of each version."""
    word, numbers = {"type": "string"}, {"type": "array", "items": {"type": "integer"}}
    numbers["x-kubernetes-list-type"] = "set"
    spec = {"type": "object", "properties": {"a": word, "set": numbers}}
    status = {"type": "object", "properties": {"phase": word}}
    schema = {"type": "object", "properties": {"spec": spec, "status": status, "beside": word}}
    versions = [
        {
            "name": name,
            "served": True,
            "storage": name == "v1",
            "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": schema},
        }
        for name in ("v1", "v2")
    ]
    names = {"plural": "things", "kind": "Thing"}
    server.create(
        Target(server.registry.find("apiextensions.k8s.io", "v1", "customresourcedefinitions")),
        {
            "metadata": {"name": "things.example.com"},
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": names,
                "versions": versions,
            },
        },
    )
    return [
        Target(server.registry.find("example.com", version, "things"), "default", "a")
        for version in ("v1", "v2")
    ]


def thing(version="v1", **fields):
    return {"apiVersion": f"example.com/{version}", "kind": "Thing", "metadata": {"name": "a"}, **fields}


def apply(server, target, body, manager, **options):
    return server.patch(target, ApplyPatch(body), WriteOptions(manager=manager, **options))


def owned(answer):
    """What each manager owns, by its name, version and subresource."""
    return {
        (
            entry["manager"],
            entry["apiVersion"].rpartition("/")[2],
            entry.get("subresource", ""),
        ): entry["fieldsV1"]
        for entry in answer.object["metadata"].get("managedFields", ())
    }


def test_who_wrote_the_status_in_another_version_loses_what_a_write_of_the_object_says_of_it():
    server = ApiServer()
    first, second = versioned(server)
    apply(server, first, thing(spec={"a": "x"}), "one")
    apply(server, replace(first, subresource="status"), thing(status={"phase": "P"}), "two")
    same = server.patch(first, MergePatch({"status": {"phase": "Q"}}))
    assert owned(same)["two", "v1", "status"] == {"f:status": {"f:phase": {}}}
    with pytest.raises(Conflict):
        apply(server, second, thing("v2", spec={"a": "x"}, status={"phase": "Q"}), "three")
    other = server.patch(second, MergePatch({"status": {"phase": "Q"}}))
    assert ("two", "v1", "status") not in owned(other)
    assert other.object["status"] == {"phase": "P"}


def test_what_stands_beside_spec_and_status_is_owned_by_who_says_it_in_the_status():
    server = ApiServer()
    first, _ = versioned(server)
    apply(server, first, thing(spec={"a": "x"}, beside="y"), "one")
    status = replace(first, subresource="status")
    answer = apply(server, status, thing(status={"phase": "P"}, beside="z"), "two", force=True)
    assert owned(answer) == {
        ("one", "v1", ""): {"f:spec": {"f:a": {}}},
        ("two", "v1", "status"): {"f:beside": {}, "f:status": {"f:phase": {}}},
    }
    assert answer.object["beside"] == "y"


def test_items_that_are_repeated_where_a_write_changes_nothing_do_not_hide_its_owner():
    server = ApiServer()
    first, _ = versioned(server)
    server.create(replace(first, name=""), thing(spec={"a": "x"}))
    body = thing(spec={"set": [1, 1]}, status={"phase": "P"})
    body["metadata"]["resourceVersion"] = server.live(first)["metadata"]["resourceVersion"]
    answer = server.replace(replace(first, subresource="status"), body, WriteOptions(manager="two"))
    assert owned(answer)["two", "v1", "status"] == {"f:status": {".": {}, "f:phase": {}}}


def test_the_fields_from_before_the_first_apply_of_a_status_are_those_of_the_status():
    server = ApiServer()
    first, _ = versioned(server)
    status = replace(first, subresource="status")
    server.create(replace(first, name=""), thing(spec={"a": "x"}))
    server.patch(status, MergePatch({"status": {"phase": "P"}}))
    server.patch(first, MergePatch({"metadata": {"managedFields": [{}]}}))
    answer = apply(server, status, thing(status={"phase": "P"}), "two")
    assert owned(answer) == {
        ("before-first-apply", "v1", "status"): {"f:status": {".": {}, "f:phase": {}}},
        ("two", "v1", "status"): {"f:status": {"f:phase": {}}},
    }


def test_a_status_that_is_applied_as_null_is_none():
    server = ApiServer()
    first, _ = versioned(server)
    server.create(replace(first, name=""), thing(spec={"a": "x"}))
    answer = apply(server, replace(first, subresource="status"), thing(status=None), "two")
    assert "status" not in answer.object


def test_an_empty_list_is_owned_by_who_says_it_and_none_when_it_is_stored():
    server = ApiServer()
    slices = Target(server.registry.find("discovery.k8s.io", "v1", "endpointslices"), "default")
    body = {"metadata": {"name": "a"}, "addressType": "IPv4", "endpoints": [], "ports": None}
    made = server.create(slices, body, WriteOptions(manager="one"))
    assert owned(made) == {("one", "v1", ""): {"f:addressType": {}, "f:endpoints": {}}}
    assert made.object["endpoints"] is None
    told = MergePatch({"endpoints": [], "ports": []})
    changed = server.patch(replace(slices, name="a"), told, WriteOptions(manager="two"))
    assert owned(changed) == {
        ("one", "v1", ""): {"f:addressType": {}},
        ("two", "v1", ""): {"f:endpoints": {}, "f:ports": {}},
    }
    assert changed.object["metadata"]["generation"] == 1
    again = server.patch(replace(slices, name="a"), told, WriteOptions(manager="two"))
    assert again.object["metadata"]["resourceVersion"] == changed.object["metadata"]["resourceVersion"]


@pytest.mark.parametrize(("of_job", "added"), [({"app": "x"}, False), ({}, True)])
def test_a_job_has_the_labels_of_its_pods_unless_it_has_labels_even_the_same(of_job, added):
    server = ApiServer()
    jobs = Target(server.registry.find("batch", "v1", "jobs"), "default")
    spec = {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}
    template = {"metadata": {"labels": {"app": "x"}}, "spec": spec}
    body = {"metadata": {"name": "a", "labels": of_job}, "spec": {"template": template}}
    labels = server.create(jobs, body).object["metadata"]["labels"]
    assert ("job-name" in labels, labels["app"]) == (added, "x")


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("a" * 247, "Always"),
        ("a" * 248, "IfNotPresent"),
        (f"h.io/{'a' * 255}", "Always"),
        ("f" * 64, "IfNotPresent"),
        ("a..b", "IfNotPresent"),
        ("[::1]:5/a", "Always"),
        (f"a:latest@sha256:{'0' * 64}", "Always"),
    ],
)
def test_what_is_no_reference_to_an_image_has_no_tag(image, policy):
    assert pull_policy(image) == policy


@pytest.mark.parametrize("value", [None, 80, "x", True])
def test_operations_that_leave_no_object_cannot_be_carried_out(value):
    server = ApiServer()
    fill(server, "a")
    with pytest.raises(Invalid, match="the server rejected our request"):
        server.patch(
            replace(maps(server), name="a"), JsonPatch([{"op": "replace", "path": "", "value": value}])
        )


async def test_a_patch_in_an_unknown_form_is_refused_before_its_options():
    async with client_of(ApiServer()) as client:
        with pytest.raises(ApiError) as refused:
            await client.raw("PATCH", f"{MAPS}/a?dryRun=x", b"{}", content_type="text/plain")
    assert refused.value.code == 415


def test_a_lease_has_nothing_of_coordinated_leader_election_but_says_who_asked_for_it():
    server = ApiServer()
    leases = Target(server.registry.find("coordination.k8s.io", "v1", "leases"), "default")
    spec = {"holderIdentity": "a", "strategy": "OldestEmulationVersion"}
    made = server.create(leases, {"metadata": {"name": "a"}, "spec": spec}, WriteOptions(manager="one"))
    assert made.object["spec"] == {"holderIdentity": "a"}
    assert owned(made) == {("one", "v1", ""): {"f:spec": {"f:holderIdentity": {}, "f:strategy": {}}}}
    told = MergePatch({"spec": {"strategy": "x", "preferredHolder": "b"}})
    changed = server.patch(replace(leases, name="a"), told, WriteOptions(manager="two"))
    assert changed.object["spec"] == {"holderIdentity": "a"}
