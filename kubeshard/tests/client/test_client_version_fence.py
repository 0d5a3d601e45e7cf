"""Writes of a shard that owns objects by their hash: the API server compares what they were decided on."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import pytest
from aiohttp import web

from kubeshard.client.fence import Standing
from kubeshard.client.version_fence import VersionFence
from kubeshard.core import (
    ApplyPatch,
    ConfigMap,
    Conflict,
    Invalid,
    JsonPatch,
    KubeObject,
    MergePatch,
    NotOurs,
    ObjectMeta,
    PartialObject,
    PatchTestFailed,
    metadata_only,
)
from kubeshard.core.kinds import Kind
from kubeshard.core.objects import OwnerReference
from kubeshard.core.patches import remove
from kubeshard.core.patches import test as test_of


class Widget(KubeObject, group="example.com", version="v1", complete=True):
    pass


@dataclass
class Ours:
    """Which uids are ours, and whether the Lease is held."""

    uids: set[str] = field(default_factory=lambda: {"u"})
    held: bool = True

    def owns(self, kind: Kind, meta: ObjectMeta) -> bool | None:
        return meta.uid in self.uids if meta.uid else None

    def check(self) -> None:
        if not self.held:
            raise NotOurs("the lease deadline has passed")


def covers(kind: Kind) -> bool:
    return kind.group_kind == Widget.KIND.group_kind


def widget(uid="u", version="7"):
    return Widget(metadata=ObjectMeta(name="a", namespace="n", uid=uid, resource_version=version))


@pytest.fixture
def ours():
    return Ours()


@pytest.fixture
def fenced(client, widget_written, ours):
    return client.fenced(VersionFence(covers, ours.owns, ours.check))


def spec() -> dict[str, object]:
    return {"metadata": {"labels": {"x": "y"}}, "spec": {}}


def writes(fenced):
    """Each verb that changes an object, as sent for one that was read at version 7."""
    return {
        "replace": lambda obj: fenced.replace(obj),
        "status": lambda obj: fenced.replace(obj, subresource="status"),
        "merge": lambda obj: fenced.patch(Widget, "a", "n", MergePatch(spec()), base=obj),
        "merge status": lambda obj: fenced.patch(
            Widget, "a", "n", MergePatch({"status": {}}), base=obj, subresource="status"
        ),
        "apply": lambda obj: fenced.patch(Widget, "a", "n", ApplyPatch(spec()), base=obj),
        "forced": lambda obj: fenced.patch(
            Widget, "a", "n", ApplyPatch({"status": {}}), base=obj, subresource="status", force=True
        ),
        "json": lambda obj: fenced.patch(Widget, "a", "n", JsonPatch([remove("/spec")]), base=obj),
        "delete": lambda obj: fenced.delete_object(obj),
        "partial": lambda obj: fenced.delete_object(
            PartialObject(metadata=obj.metadata), kind=metadata_only(Widget.KIND).kind
        ),
    }


VERBS = tuple(writes(None))


def version_in(body) -> str:
    if isinstance(body, list):
        assert (body[0]["op"], body[0]["path"]) == ("test", "/metadata/resourceVersion")
        return body[0]["value"]
    return (body.get("preconditions") or body["metadata"])["resourceVersion"]


@pytest.mark.parametrize("verb", VERBS)
async def test_every_write_of_an_object_carries_the_version_that_it_was_decided_on(fenced, server, verb):
    await writes(fenced)[verb](widget())
    assert version_in(server.bodies[0]) == "7"
    if verb in ("delete", "partial"):
        assert server.bodies[0]["preconditions"]["uid"] == "u"
    if verb in ("merge", "apply"):
        assert server.bodies[0]["metadata"]["labels"] == {"x": "y"}


@pytest.mark.parametrize("verb", VERBS)
async def test_an_object_that_this_shard_does_not_own_now_is_not_written(fenced, server, ours, verb):
    obj = widget()
    ours.uids.clear()
    with pytest.raises(NotOurs, match="belongs to another shard"):
        await writes(fenced)[verb](obj)
    assert not server.requests
    assert fenced.refused_writes == (1, 0)


@pytest.mark.parametrize("verb", VERBS)
async def test_an_object_that_was_not_read_proves_nothing(fenced, server, verb):
    with pytest.raises(ValueError, match="needs the object as read"):
        await writes(fenced)[verb](widget(version=""))
    assert not server.requests


@pytest.mark.parametrize("verb", VERBS)
async def test_no_write_begins_without_the_lease(fenced, server, ours, verb):
    ours.held = False
    with pytest.raises(NotOurs, match="deadline"):
        await writes(fenced)[verb](widget())
    assert not server.requests


LABEL = "bucket.example/ring"


@pytest.mark.parametrize(
    ("owner", "labels", "due", "standing"),
    [
        ("", None, "", Standing.NOBODYS),
        ("stranger", {LABEL: "7"}, "", Standing.NOBODYS),
        ("near", None, "7", Standing.TO_TAKE_OVER),
        ("near", {LABEL: "3", "x": "y"}, "7", Standing.TO_TAKE_OVER),
        ("near", {LABEL: "7"}, "7", Standing.OURS),
        ("far", {LABEL: "3"}, "9", Standing.TO_TAKE_OVER),
        ("far", {LABEL: "9"}, "9", Standing.OURS),
        ("lost", {LABEL: "7"}, None, Standing.ANOTHERS),
    ],
)
async def test_what_goes_with_another_object_is_labelled_with_each_write_that_can(
    client, server, widget_written, ours, owner, labels, due, standing
):
    def owns(kind: Kind, meta: ObjectMeta) -> bool | None:
        name = meta.owner_references[0].name if meta.owner_references else ""
        return {"near": True, "lost": False}.get(name)

    def label_of(kind: Kind, meta: ObjectMeta, working_on: str) -> str:
        name = meta.owner_references[0].name if meta.owner_references else ""
        return {"near": "7", "lost": "3", "far": working_on}.get(name, "")

    fence = VersionFence(covers, owns, ours.check, LABEL, label_of).bound(lambda: None, "9")
    fenced = client.fenced(fence)
    references = (OwnerReference(name=owner, controller=True),) if owner else ()
    new = Widget(metadata=ObjectMeta(name="a", namespace="n", labels=labels, owner_references=references))
    read = msgspec.structs.replace(
        new, metadata=msgspec.structs.replace(new.metadata, uid="u", resource_version="7")
    )
    assert fenced.standing(read) is standing
    if due is None:
        with pytest.raises(NotOurs):
            await fenced.create(new)
        return
    others = {key: value for key, value in (labels or {}).items() if key != LABEL}
    await fenced.create(new)
    await fenced.patch(Widget, "a", "n", MergePatch({}), base=read)
    await fenced.patch(Widget, "a", "n", JsonPatch([remove("/spec")]), base=read)
    await fenced.patch(Widget, "a", "n", ApplyPatch({}), base=read, force=True)
    await fenced.patch(Widget, "a", "n", MergePatch({}), base=read, subresource="status")
    created, merged, (_, *operations), applied, status = server.bodies
    assert (created["metadata"].get("labels") or {}) == {**others, **({LABEL: due} if due else {})}
    changes = bool(due) and (labels or {}).get(LABEL) != due
    assert merged["metadata"].get("labels") == ({LABEL: due} if changes else None)
    assert [each["value"] for each in operations if each["op"] == "add"] == (
        [{**others, LABEL: due}] if changes else []
    )
    assert applied["metadata"].get("labels") == ({LABEL: due} if due else None)
    assert "labels" not in status["metadata"]


async def test_what_is_bound_to_a_bucket_is_refused_once_that_is_lost(client, server, ours):
    def lost() -> None:
        raise NotOurs("bucket 3 is another shard's")

    bound = client.fenced(VersionFence(covers, ours.owns, ours.check).bound(lost, "7"))
    for writing in (
        bound.create(ConfigMap(metadata=ObjectMeta(name="a", namespace="n"))),
        bound.patch(Widget, "a", "n", MergePatch({}), base=widget()),
    ):
        with pytest.raises(NotOurs, match="bucket 3"):
            await writing
    assert not server.requests


@pytest.mark.parametrize("patch", [MergePatch({}), ApplyPatch({}), JsonPatch([remove("/spec")])])
async def test_a_patch_that_states_nothing_that_was_read_is_refused(fenced, server, patch):
    with pytest.raises(ValueError, match="pass base=<the object as read>"):
        await fenced.patch(Widget, "a", "n", patch)
    with pytest.raises(ValueError, match="pass base=<the object as read>"):
        await fenced.apply(Widget(metadata=ObjectMeta(name="a", namespace="n")))
    assert not server.requests


@pytest.mark.parametrize(
    ("tests", "enough"),
    [
        ([test_of("/metadata/uid", "u")], False),
        ([test_of("/metadata/uid", "u"), test_of("/spec/a", 1)], True),
        ([test_of("/metadata/resourceVersion", "7")], True),
        ([test_of("/spec/a", 1)], False),
        ([test_of("/metadata/uid", "u"), test_of("/metadata/name", "a")], False),
        ([test_of("/metadata/uid", "u"), test_of("/kind", "Widget"), test_of("/apiVersion", "v1")], False),
        ([test_of("/metadata/uid", "u"), test_of("/metadata/name", "a"), test_of("/spec/a", 1)], True),
    ],
)
async def test_a_json_patch_may_test_the_object_and_a_field_instead_of_the_version(
    fenced, server, tests, enough
):
    patch = JsonPatch([*tests, remove("/spec/a")])
    if enough:
        await fenced.patch(Widget, "a", "n", patch)
        assert server.bodies[0] == [*tests, remove("/spec/a")]
    else:
        with pytest.raises(ValueError, match="tests the uid"):
            await fenced.patch(Widget, "a", "n", patch)


async def test_the_servers_refusal_of_a_test_says_that_the_object_changed(fenced, server, status):
    by_version = JsonPatch([remove("/spec")])
    by_field = JsonPatch([test_of("/metadata/uid", "u"), test_of("/spec/a", 1)])
    server.answer(status(422, "Invalid", details={}))
    with pytest.raises(Conflict):
        await fenced.patch(Widget, "a", "n", by_version, base=widget())
    server.answer(status(422, "Invalid", details={}))
    with pytest.raises(PatchTestFailed):
        await fenced.patch(Widget, "a", "n", by_field)
    server.answer(status(422, "Invalid", details={"causes": [{"field": "spec"}]}))
    with pytest.raises(Invalid):
        await fenced.patch(Widget, "a", "n", by_version, base=widget())


async def test_a_deletion_names_the_object_and_a_collection_is_not_deleted(fenced, server):
    with pytest.raises(ValueError, match="use delete_object"):
        await fenced.delete(Widget, "a", "n", uid="u")
    with pytest.raises(NotOurs):
        await fenced.delete(Widget, "a", "n", uid="another", resource_version="7")
    with pytest.raises(ValueError, match="ignored by older API servers"):
        await fenced.delete_collection(Widget, "n")
    assert not server.requests


async def test_an_object_is_created_wherever_its_hash_will_be_and_other_kinds_are_written_as_ever(
    fenced, server
):
    new = Widget(metadata=ObjectMeta(name="a", namespace="n"))
    await fenced.create(new)
    server.answer(web.json_response({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}}))
    await fenced.patch(ConfigMap, "a", "n", MergePatch({}))
    assert [body.get("metadata", {}).get("resourceVersion") for body in server.bodies] == [None, None]
    assert fenced.standing(new) is Standing.ANOTHERS
    assert fenced.standing(widget()) is Standing.OURS
    assert fenced.standing(widget("another")) is Standing.ANOTHERS
    assert fenced.standing(ConfigMap(metadata=ObjectMeta(name="a", namespace="n"))) is None
