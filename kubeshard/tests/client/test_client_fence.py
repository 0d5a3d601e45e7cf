from dataclasses import dataclass

import pytest

from kubeshard.client.label_fence import LabelFence
from kubeshard.core import (
    ApplyPatch,
    ConfigMap,
    Conflict,
    Invalid,
    JsonPatch,
    KubeObject,
    MergePatch,
    Namespace,
    NotOurs,
    ObjectMeta,
    OwnerReference,
    Selector,
    TooLarge,
)
from kubeshard.core.kinds import Kind
from kubeshard.core.patches import remove

LABEL = "shard.example.com/ring"


class Widget(KubeObject, group="example.com", version="v1", complete=True):
    pass


@dataclass
class Fence(LabelFence):
    label_key: str = LABEL
    shard: str = "me"
    lost: bool = False

    def covers(self, kind: Kind) -> bool:
        return kind == Widget.KIND

    def by_label(self, kind: Kind, meta: ObjectMeta) -> bool:
        return not meta.owner_references or meta.owner_references[0].kind == "Widget"

    def stamps(self, kind: Kind, meta: ObjectMeta) -> bool:
        return bool(meta.owner_references) and meta.owner_references[0].kind != "Foreign"

    def check(self) -> None:
        if self.lost:
            raise NotOurs("the lease deadline has passed")


def widget(label="me", **metadata):
    meta = {
        "name": "a",
        "namespace": "n",
        "uid": "u",
        "resource_version": "7",
        "labels": {LABEL: label},
        **metadata,
    }
    return Widget(metadata=ObjectMeta(**meta))


@pytest.fixture
def fence():
    return Fence()


@pytest.fixture
def fenced(client, widget_written, fence):
    return client.fenced(fence)


def owned(kind, label="other", **metadata):
    """By a Widget (the label says whose the object is), from FarAway (it follows, and the label says nothing), or by
    something Foreign (it belongs to nobody).
    """
    owner = OwnerReference(api_version="example.com/v1", kind=kind, name="o", uid="o", controller=True)
    return widget(label, owner_references=(owner,), **metadata)


def new(kind, label=""):
    labels = {"x": "y", LABEL: label} if label else {"x": "y"}
    return owned(kind, uid="", resource_version="", labels=labels)


async def test_a_new_object_is_stamped_if_it_follows_another_one_and_bare_if_it_belongs_to_nobody(
    fenced, server
):
    for kind in ("Widget", "FarAway", "Foreign"):
        await fenced.create(new(kind, "me"))
        await fenced.create(new(kind))
    await fenced.create(new("FarAway", "other"))
    await fenced.create(Widget(metadata=ObjectMeta(name="a", namespace="n", labels={"x": "y"})))
    stamped, bare = {"x": "y", LABEL: "me"}, {"x": "y"}
    labels = [body["metadata"]["labels"] for body in server.bodies]
    assert labels == [*[stamped] * 4, bare, bare, stamped, bare]
    for one in (
        new("Widget", "other"),
        Widget(metadata=ObjectMeta(name="a", namespace="n", labels={LABEL: "other"})),
    ):
        with pytest.raises(NotOurs, match="belongs to other, not to me"):
            await fenced.create(one)


@pytest.mark.parametrize("label", ["gone", "me", None])
@pytest.mark.parametrize("kind", ["FarAway", "Foreign"])
async def test_what_a_sharder_may_not_move_is_written_by_version_and_taken_over_if_it_follows(
    fenced, server, kind, label
):
    base = owned(kind, labels=None if label is None else {LABEL: label})
    taken = kind == "FarAway" and label != "me"
    await fenced.patch(Widget, "a", "n", MergePatch({"spec": {}}), base=base)
    await fenced.patch(Widget, "a", "n", MergePatch({"status": {}}), base=base, subresource="status")
    await fenced.patch(Widget, "a", "n", ApplyPatch({"spec": {}}), base=base, force=True)
    merged, status, applied = server.bodies
    for body in server.bodies:
        assert body["metadata"]["resourceVersion"] == "7"
    assert merged["metadata"].get("labels") == ({LABEL: "me"} if taken else None)
    assert status["metadata"].get("labels") is None
    assert applied["metadata"].get("labels") == ({LABEL: "me"} if taken or label == "me" else None)
    await fenced.replace(base)
    await fenced.delete_object(base)
    assert server.bodies[-1]["preconditions"] == {"uid": "u", "resourceVersion": "7"}


async def test_an_object_that_gets_an_owner_is_stamped_with_the_same_write(fenced, server):
    reference = {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "name": "o",
        "uid": "o",
        "controller": True,
    }
    adoption = MergePatch({"metadata": {"ownerReferences": [reference]}})
    await fenced.patch(Widget, "a", "n", adoption, base=owned("Foreign", "gone"))
    assert server.bodies[0]["metadata"]["labels"] == {LABEL: "me"}


async def test_a_json_patch_of_what_a_sharder_may_not_move_tests_the_version(fenced, server):
    await fenced.patch(Widget, "a", "n", JsonPatch([remove("/spec")]), base=owned("FarAway", "gone"))
    assert server.bodies[0] == [
        {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "add", "path": "/metadata/labels", "value": {LABEL: "me"}},
        {"op": "remove", "path": "/spec"},
    ]


async def test_a_replacement_needs_the_version_and_our_label(fenced, server):
    await fenced.replace(widget())
    assert server.bodies[0]["metadata"]["resourceVersion"] == "7"
    with pytest.raises(NotOurs):
        await fenced.replace(widget("other"))
    with pytest.raises(NotOurs, match="belongs to no shard"):
        await fenced.replace(widget(labels=None))
    with pytest.raises(ValueError, match="needs the object as read"):
        await fenced.replace(widget(resource_version=""))
    assert len(server.requests) == 1


async def test_a_json_patch_tests_the_label_first(fenced, server):
    await fenced.patch(Widget, "a", "n", JsonPatch([remove("/spec")]), subresource="status")
    assert server.bodies[0] == [
        {"op": "test", "path": "/metadata/labels/shard.example.com~1ring", "value": "me"},
        {"op": "remove", "path": "/spec"},
    ]


async def test_merge_and_apply_carry_the_version_of_their_base(fenced, server):
    await fenced.patch(Widget, "a", "n", MergePatch({"metadata": {"labels": {"x": "y"}}}), base=widget())
    await fenced.patch(
        Widget, "a", "n", ApplyPatch({"spec": {}}), base=widget(), subresource="status", force=True
    )
    assert server.bodies == [
        {"metadata": {"labels": {"x": "y"}, "resourceVersion": "7"}},
        {"spec": {}, "metadata": {"resourceVersion": "7", "labels": {LABEL: "me"}}},
    ]
    for patch in (MergePatch({}), ApplyPatch({})):
        with pytest.raises(NotOurs):
            await fenced.patch(Widget, "a", "n", patch, base=widget("other"))


async def test_an_apply_without_base_states_our_label(fenced, server):
    await fenced.apply(Widget(metadata=ObjectMeta(name="a", namespace="n")))
    assert server.bodies[0]["metadata"]["labels"] == {LABEL: "me"}


@pytest.mark.parametrize(
    ("patch", "options"),
    [(MergePatch({}), {}), (ApplyPatch({}), {"force": True}), (ApplyPatch({}), {"subresource": "status"})],
)
async def test_a_patch_without_a_proof_is_refused(fenced, server, patch, options):
    with pytest.raises(
        ValueError, match=r"pass base=<the object as read>, use a JSON patch, or pass unfenced=True"
    ):
        await fenced.patch(Widget, "a", "n", patch, **options)
    assert not server.requests


async def test_a_deletion_needs_the_object(fenced, server):
    with pytest.raises(ValueError, match="use delete_object"):
        await fenced.delete(Widget, "a", "n", uid="u")
    with pytest.raises(NotOurs):
        await fenced.delete_object(widget("other"))
    await fenced.delete_object(widget())
    assert server.bodies[0]["preconditions"] == {"uid": "u", "resourceVersion": "7"}


async def test_a_collection_is_narrowed_to_our_label(fenced, server):
    await fenced.delete_collection(Widget, "n", label_selector=Selector.parse("a=b"))
    assert server.requests[0][0].query["labelSelector"] == f"a=b,{LABEL}=me"


async def test_the_servers_refusal_of_the_proof_is_not_ours(fenced, server, status):
    server.answer(status(422, "Invalid", details={}))
    with pytest.raises(NotOurs):
        await fenced.patch(Widget, "a", "n", JsonPatch([]))
    server.answer(status(422, "Invalid", details={"causes": [{"field": "spec"}]}))
    with pytest.raises(Invalid):
        await fenced.patch(Widget, "a", "n", JsonPatch([]))
    server.answer(status(409, "Conflict", details={"causes": [{"field": f".metadata.labels.{LABEL}"}]}))
    with pytest.raises(NotOurs):
        await fenced.patch(Widget, "a", "n", ApplyPatch({}))
    server.answer(status(409, "Conflict", details={"causes": [{"field": ".spec"}]}))
    with pytest.raises(Conflict) as caught:
        await fenced.patch(Widget, "a", "n", ApplyPatch({}))
    assert not isinstance(caught.value, NotOurs)


async def test_an_object_that_becomes_too_large_is_still_ours(fenced, server, status):
    server.answer(status(500, "", message="etcdserver: request is too large"))
    with pytest.raises(TooLarge):
        await fenced.patch(Widget, "a", "n", JsonPatch([]))
    assert fenced.refused_writes == (0, 0)


async def test_after_the_deadline_no_write_of_any_kind_begins(fenced, fence, server):
    fence.lost = True
    writes = (
        fenced.create(Namespace(metadata=ObjectMeta(name="a"))),
        fenced.replace(ConfigMap(metadata=ObjectMeta(name="a", namespace="n"))),
        fenced.patch(ConfigMap, "a", "n", MergePatch({})),
        fenced.apply(ConfigMap(metadata=ObjectMeta(name="a", namespace="n"))),
        fenced.delete(ConfigMap, "a", "n"),
        fenced.delete_collection(ConfigMap, "n"),
        fenced.delete_object(widget()),
    )
    for write in writes:
        with pytest.raises(NotOurs, match="deadline"):
            await write
    assert not server.requests
    await fenced.get(Widget, "a", "n")


async def test_a_write_that_the_server_put_off_is_not_sent_after_the_deadline(fenced, fence, server, status):
    async def put_off(_request):
        fence.lost = True
        return status(429, "TooManyRequests", headers={"Retry-After": "0"})

    server.answer(put_off)
    writes = (
        lambda: fenced.create(Namespace(metadata=ObjectMeta(name="a"))),
        lambda: fenced.patch(ConfigMap, "a", "n", MergePatch({})),
        lambda: fenced.delete(ConfigMap, "a", "n"),
        lambda: fenced.delete_collection(ConfigMap, "n"),
    )
    for number, write in enumerate(writes, 1):
        fence.lost = False
        with pytest.raises(NotOurs, match="deadline"):
            await write()
        assert len(server.requests) == number


async def test_an_unfenced_write_says_so_and_is_counted(fenced, fence, client, server):
    fence.lost = True
    await fenced.patch(Widget, "a", "n", MergePatch({"x": 1}), unfenced=True)
    assert server.bodies == [{"x": 1}]
    assert fenced.unfenced_writes == client.unfenced_writes == 1
    await client.patch(Widget, "a", "n", MergePatch({"x": 1}))
    assert client.unfenced_writes == 1
