"""The client against a real API server: every verb, every form, and every proof of a fence."""

import asyncio
import json
from contextlib import aclosing

import pytest

from kubeshard import ALL
from kubeshard.client import Changed
from kubeshard.client.discovery import Discovery
from kubeshard.client.label_fence import LabelFence
from kubeshard.client.write_records import WriteRecord
from kubeshard.core import (
    AlreadyExists,
    ApplyPatch,
    ConfigMap,
    Conflict,
    Form,
    Invalid,
    JsonPatch,
    KubeObject,
    Lease,
    LeaseSpec,
    MergePatch,
    NotFound,
    NotOurs,
    ObjectMeta,
    PatchTestFailed,
    Selector,
    Struct,
    field,
    metadata_only,
)
from kubeshard.core.patches import add, test

LABEL = "shard.example.com/ring"


class Fence(LabelFence):
    label_key = LABEL
    shard = "me"

    def covers(self, kind):
        return kind == ConfigMap.KIND

    def by_label(self, kind, meta):
        return True

    def stamps(self, kind, meta):
        return True

    def check(self):
        pass


@pytest.fixture
def client(kube_client):
    return kube_client


@pytest.fixture
def fenced(kube_client):
    return kube_client.fenced(Fence())


def config_map(namespace, name="a", data=None, **metadata):
    return ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace, **metadata), data=data)


async def test_a_json_patch_may_test_any_text(client, namespace):
    """API servers compare texts of JSON, and escape some characters in what they store."""
    said = "a>b@1 <&> \u2028\u2029 \u00e9 \u2192 \\ / \t"
    await client.create(config_map(namespace, data={"x": said}))
    patched = await client.patch(
        ConfigMap, "a", namespace, JsonPatch([test("/data/x", said), add("/data/y", said)])
    )
    assert patched.data == {"x": said, "y": said}
    await client.delete(ConfigMap, "a", namespace)


async def test_an_object_lives_through_every_verb(client, namespace):
    told = []
    view = client.on_write(told.append)
    created = await view.create(config_map(namespace, data={"a": "1"}))
    with pytest.raises(AlreadyExists):
        await view.create(config_map(namespace))
    assert await client.get(ConfigMap, "a", namespace) == created
    merged = await view.patch(ConfigMap, "a", namespace, MergePatch({"data": {"a": None, "b": "2"}}))
    assert merged.data == {"b": "2"}
    patched = await view.patch(
        metadata_only(ConfigMap),
        "a",
        namespace,
        JsonPatch([test("/data/b", "2"), add("/metadata/labels", {"l": "v"})]),
    )
    assert patched.metadata.labels == {"l": "v"}
    with pytest.raises(Conflict):
        await view.replace(created)
    with pytest.raises(PatchTestFailed):
        await view.patch(ConfigMap, "a", namespace, JsonPatch([test("/data/b", "3"), add("/data/c", "")]))
    with pytest.raises(Invalid) as caught:
        await view.patch(ConfigMap, "a", namespace, JsonPatch([test("/data/b", "2"), add("/data/c", 5)]))
    assert not isinstance(caught.value, PatchTestFailed)
    with pytest.raises(Conflict):
        await view.delete(ConfigMap, "a", namespace, uid="00000000-0000-0000-0000-000000000000")
    with pytest.raises(Conflict):
        await view.delete_object(merged)
    await view.delete_object(await client.get(ConfigMap, "a", namespace))
    with pytest.raises(NotFound):
        await client.get(ConfigMap, "a", namespace)
    versions = [record.resource_version for record in told]
    assert versions == [
        created.metadata.resource_version,
        merged.metadata.resource_version,
        patched.metadata.resource_version,
        "",
    ]
    assert told[-1] == WriteRecord(ConfigMap.KIND, created.key, created.metadata.uid, "", None, deleted=True)


async def test_a_finalizer_keeps_what_is_deleted(client, namespace):
    told = []
    await client.create(config_map(namespace, finalizers=("example.com/keep",)))
    await client.on_write(told.append).delete(ConfigMap, "a", namespace)
    kept = await client.get(ConfigMap, "a", namespace)
    assert kept.metadata.deleting
    assert (told[0].deleted, told[0].resource_version) == (False, kept.metadata.resource_version)
    await client.patch(ConfigMap, "a", namespace, MergePatch({"metadata": {"finalizers": None}}))


async def test_a_dry_run_changes_nothing(client, namespace):
    assert (await client.create(config_map(namespace), dry_run=True)).metadata.uid
    with pytest.raises(NotFound):
        await client.get(ConfigMap, "a", namespace)
    created = await client.create(config_map(namespace))
    await client.delete(ConfigMap, "a", namespace, dry_run=True)
    assert await client.get(ConfigMap, "a", namespace) == created


async def test_apply_owns_what_it_states_and_reports_conflicts(client, namespace):
    mine, other = client.with_field_manager("mine"), client.with_field_manager("other")
    await mine.apply(config_map(namespace, data={"a": "1", "b": "2"}))
    assert (await mine.apply(config_map(namespace, data={"a": "1"}))).data == {"a": "1"}
    with pytest.raises(Conflict) as caught:
        await other.apply(config_map(namespace, data={"a": "2"}))
    assert caught.value.details["causes"][0]["field"] == ".data.a"
    assert (await other.apply(config_map(namespace, data={"a": "2"}), force=True)).data == {"a": "2"}
    manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "m", "namespace": namespace},
        "data": {"x": "y"},
    }
    assert (await mine.apply(manifest)).metadata.name == "m"
    assert (await client.get(ConfigMap, "m", namespace)).data == {"x": "y"}


async def test_a_released_lease_keeps_its_empty_holder(client, namespace):
    created = await client.create(
        Lease(
            metadata=ObjectMeta(name="l", namespace=namespace),
            spec=LeaseSpec(holder_identity="a", lease_duration_seconds=15),
        )
    )
    released = Lease(metadata=created.metadata, spec=LeaseSpec(holder_identity="", lease_duration_seconds=1))
    assert (await client.replace(released)).spec.holder_identity == ""


class ScaleSpec(Struct):
    replicas: int = 0


class Scale(KubeObject, group="autoscaling", version="v1"):
    spec: ScaleSpec = field(default_factory=ScaleSpec)


async def test_subresources_and_kinds_found_by_discovery(client, namespace):
    kind = await client.discovery.kind("apps", resource="deployments")
    pod = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": pod}
    meta = {"name": "d", "namespace": namespace}
    await client.apply({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": spec})
    assert (await client.get(Form(kind, Scale), "d", namespace, subresource="scale")).spec.replicas == 2
    status = MergePatch({"status": {"observedGeneration": 5}})
    patched = await client.patch(metadata_only(kind), "d", namespace, status, subresource="status")
    assert patched.metadata.generation == 1


async def test_aggregated_and_plain_discovery_tell_the_same_kinds(client):
    forms = []

    async def plain(path, accept):
        answer = await client.raw("GET", path)
        forms.append((path, json.loads(answer.body)["kind"]))
        return answer.body

    of_pages, silent = await Discovery(plain).all_kinds("list")
    assert ("/apis", "APIGroupList") in forms
    aggregated, none = await client.discovery.all_kinds("list")
    assert {*aggregated} == {*of_pages}
    assert silent == none == {}


async def test_lists_are_paged_selected_and_of_one_snapshot(client, namespace):
    for number in range(7):
        await client.create(config_map(namespace, f"c{number}", labels={"odd": str(number % 2)}))
    for form in (ConfigMap, metadata_only(ConfigMap)):
        for page_size in (None, 3, 500):
            stream = client.list(form, namespace, page_size=page_size)
            assert [obj.metadata.name async for obj in stream] == [f"c{number}" for number in range(7)]
            assert stream.resource_version
    odd = await client.list_all(ConfigMap, namespace, label_selector=Selector.equals("odd", "1"))
    assert [obj.metadata.name for obj in odd] == ["c1", "c3", "c5"]
    everywhere = client.list(metadata_only(ConfigMap), ALL, page_size=2)
    async with aclosing(everywhere.__aiter__()) as objects:
        assert await anext(objects)
    await client.delete_collection(ConfigMap, namespace, label_selector=Selector.equals("odd", "1"))
    assert len(await client.list_all(ConfigMap, namespace)) == 4


@pytest.mark.parametrize("form", [ConfigMap, metadata_only(ConfigMap)])
async def test_a_watch_tells_what_happens_after_a_version(client, namespace, form):
    created = await client.create(config_map(namespace, data={"a": "1"}))
    version = created.metadata.resource_version
    async with asyncio.timeout(10), client.watch(form, namespace, resource_version=version) as stream:
        await client.patch(ConfigMap, "a", namespace, MergePatch({"data": {"a": "2"}}))
        await client.delete(ConfigMap, "a", namespace)
        events = stream.__aiter__()
        assert [(await anext(events)).type for _ in range(2)] == ["MODIFIED", "DELETED"]


async def test_a_watch_may_begin_with_what_there_is(client, namespace):
    for name in "ab":
        await client.create(config_map(namespace, name))
    seen = []
    async with asyncio.timeout(20), client.watch(ConfigMap, namespace, send_initial_events=True) as stream:
        async for event in stream:
            if not isinstance(event, Changed):
                break
            seen.append((event.type, event.object.metadata.name))
    assert seen == [("ADDED", "a"), ("ADDED", "b")]


async def test_a_watch_ends_when_its_time_is_up(client, namespace):
    async with asyncio.timeout(10), client.watch(ConfigMap, namespace, timeout_seconds=1) as stream:
        async for _ in stream:
            pass


async def test_what_one_may_do_and_odd_paths(client, namespace):
    assert await client.can_i("delete", "", "configmaps", namespace)
    assert (await client.raw("GET", "/readyz")).body == b"ok"
    with pytest.raises(NotFound):
        await client.raw("GET", "/nonexistent")


async def test_a_fence_lets_our_writes_through(fenced, namespace):
    created = await fenced.create(config_map(namespace, data={"a": "1"}))
    assert created.metadata.label(LABEL) == "me"
    patched = await fenced.patch(ConfigMap, "a", namespace, JsonPatch([add("/data/b", "2")]))
    merged = await fenced.patch(ConfigMap, "a", namespace, MergePatch({"data": {"c": "3"}}), base=patched)
    replaced = await fenced.replace(ConfigMap(metadata=merged.metadata, data={"d": "4"}))
    await fenced.delete_object(replaced)


async def move(client, namespace, name="a", to="other"):
    """Does what the sharder does."""
    labels = MergePatch({"metadata": {"labels": {LABEL: to}}})
    return await client.patch(ConfigMap, name, namespace, labels, field_manager="sharder")


@pytest.mark.parametrize(
    "late",
    [
        pytest.param(
            lambda view, old: view.patch(
                ConfigMap, "a", old.metadata.namespace, JsonPatch([add("/data", {})])
            ),
            id="json",
        ),
        pytest.param(
            lambda view, old: view.patch(
                ConfigMap, "a", old.metadata.namespace, MergePatch({"data": {}}), base=old
            ),
            id="merge",
        ),
        pytest.param(
            lambda view, old: view.apply(config_map(old.metadata.namespace, data={"x": "y"})), id="apply"
        ),
        pytest.param(
            lambda view, old: view.apply(config_map(old.metadata.namespace), base=old, force=True),
            id="apply with base",
        ),
        pytest.param(lambda view, old: view.replace(old), id="replace"),
        pytest.param(lambda view, old: view.delete_object(old), id="delete"),
    ],
)
async def test_a_write_that_comes_after_the_object_was_moved_does_not_land(client, fenced, namespace, late):
    old = await fenced.create(config_map(namespace, data={"a": "1"}))
    moved = await move(client, namespace)
    with pytest.raises(Conflict):
        await late(fenced, old)
    assert await client.get(ConfigMap, "a", namespace) == moved


async def test_a_refusal_for_the_label_is_not_ours(client, fenced, namespace):
    await fenced.create(config_map(namespace))
    await move(client, namespace)
    with pytest.raises(NotOurs):
        await fenced.patch(ConfigMap, "a", namespace, JsonPatch([add("/data", {})]))
    with pytest.raises(NotOurs):
        await fenced.apply(config_map(namespace, data={"x": "y"}))


async def test_an_apply_keeps_the_label_it_stated_and_prunes_what_it_no_longer_states(fenced, namespace):
    first = await fenced.apply(config_map(namespace, data={"a": "1", "b": "2"}))
    assert first.metadata.label(LABEL) == "me"
    second = await fenced.apply(config_map(namespace, data={"a": "1"}))
    third = await fenced.apply(config_map(namespace, data={"c": "3"}), base=second)
    assert (third.data, third.metadata.label(LABEL)) == ({"c": "3"}, "me")
    with pytest.raises(Conflict) as caught:
        await fenced.apply(config_map(namespace, data={}), base=second)
    assert not isinstance(caught.value, NotOurs)


async def test_an_apply_does_not_take_over_from_a_shard_whatever_wrote_its_label(client, fenced, namespace):
    apply = ApplyPatch(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {LABEL: "other"}}}
    )
    await client.patch(ConfigMap, "a", namespace, apply, field_manager="sharder")
    with pytest.raises(NotOurs):
        await fenced.apply(config_map(namespace, data={"x": "y"}))
    await client.create(config_map(namespace, "unmanaged", labels={LABEL: "other"}))
    reset = JsonPatch([{"op": "replace", "path": "/metadata/managedFields", "value": [{}]}])
    await client.patch(ConfigMap, "unmanaged", namespace, reset)
    with pytest.raises(NotOurs):
        await fenced.apply(config_map(namespace, "unmanaged", data={"x": "y"}))


async def test_a_collection_of_ours_leaves_the_others(client, fenced, namespace):
    await fenced.create(config_map(namespace, "mine"))
    await client.create(config_map(namespace, "other"))
    await fenced.delete_collection(ConfigMap, namespace)
    assert [obj.metadata.name for obj in await client.list_all(ConfigMap, namespace)] == ["other"]


class Gadget(KubeObject, group="client.example.com", version="v1"):
    spec: dict[str, int] | None = None
    status: dict[str, int] | None = None


class GadgetFence(Fence):
    def covers(self, kind):
        return kind == Gadget.KIND


@pytest.fixture
def gadgets(install_crd):
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    install_crd(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "gadgets.client.example.com"},
            "spec": {
                "group": "client.example.com",
                "scope": "Namespaced",
                "names": {"kind": "Gadget", "plural": "gadgets"},
                "versions": [version],
            },
        }
    )


STATUS_PATCHES = [
    pytest.param(lambda old: (JsonPatch([add("/status", {"n": 1})]), None), id="json"),
    pytest.param(lambda old: (MergePatch({"status": {"n": 1}}), old), id="merge"),
    pytest.param(
        lambda old: (
            ApplyPatch({"apiVersion": "client.example.com/v1", "kind": "Gadget", "status": {"n": 1}}),
            old,
        ),
        id="apply",
    ),
]


@pytest.mark.parametrize("patch", STATUS_PATCHES)
@pytest.mark.usefixtures("gadgets")
async def test_the_status_of_a_custom_resource_is_fenced(kube_client, namespace, patch):
    fenced = kube_client.fenced(GadgetFence())
    old = await fenced.create(Gadget(metadata=ObjectMeta(name="g", namespace=namespace), spec={"a": 1}))
    body, base = patch(old)
    written = await fenced.patch(Gadget, "g", namespace, body, base=base, subresource="status", dry_run=True)
    assert written.status == {"n": 1}
    moved = await kube_client.patch(
        Gadget, "g", namespace, MergePatch({"metadata": {"labels": {LABEL: "other"}}})
    )
    with pytest.raises(Conflict):
        await fenced.patch(Gadget, "g", namespace, body, base=base, subresource="status")
    assert await kube_client.get(Gadget, "g", namespace) == moved
    await kube_client.delete(Gadget, "g", namespace)


@pytest.mark.usefixtures("gadgets")
async def test_lists_and_watches_of_custom_resources_are_of_their_kind(kube_client, namespace):
    for name in "ab":
        await kube_client.create(Gadget(metadata=ObjectMeta(name=name, namespace=namespace)))
    for form in (Gadget, metadata_only(Gadget)):
        for page_size in (None, 1):
            assert len(await kube_client.list_all(form, namespace, page_size=page_size)) == 2
        async with asyncio.timeout(20), kube_client.watch(form, namespace) as stream:
            events = stream.__aiter__()
            assert {(await anext(events)).object.metadata.name for _ in range(2)} == {"a", "b"}
    assert await kube_client.discovery.kind("client.example.com", kind="Gadget") == Gadget.KIND
    await kube_client.delete_collection(Gadget, namespace)
