"""What a shard takes back of the objects that left its caches, by what it finds of each and by who wrote that."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubeshard.cache import Deleted
from kubeshard.core.kinds import Kind
from kubeshard.core.objects import Key, KubeObject, ObjectMeta, OwnerReference, metadata_only
from kubeshard.manager.leader_election import LeaderFence
from kubeshard.runtime.repairs import FREE
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard.shard.identity import Incarnation, ShardIdentity
from kubeshard.shard.label_restorer import SINCE_RESTORE, LabelRestorer, Losses
from kubeshard.sharding.api import RingGroupResource, RingResource
from kubeshard.sharding.names import SHARDER_FIELD_MANAGER
from kubeshard.sharding.ring_resources import RingResources
from kubeshard_lab.virtual_time import VirtualClock, virtual_time

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "sharder"))
from small_api import SmallApi, status

ME = ShardIdentity("ring", "s0", "default", Incarnation("", "", "x"))
LABEL, DRAIN = ME.label, ME.drain
THING = Kind("things.example", "v1", "Thing", "things")
SECRET = Kind("", "v1", "Secret", "secrets")
THINGS, SECRETS = "/apis/things.example/v1/namespaces/default/things", "/api/v1/namespaces/default/secrets"
RINGS = "/apis/sharding.timebertt.dev/v1alpha1/controllerrings"
RESOURCE = {"group": "things.example", "resource": "things"}
RESOURCES = RingResources(
    (
        RingResource(
            group="things.example",
            resource="things",
            controlled_resources=(RingGroupResource(resource="secrets"),),
        ),
    )
)
SOON = 1.0
OWNER = {
    "apiVersion": "things.example/v1",
    "kind": "Thing",
    "name": "foo",
    "uid": "uid-foo",
    "controller": True,
}


class Left(KubeObject, version="v1"):
    """An object as it was when it left a cache."""


class SmallInformer:
    """The objects of a kind that the shard sees, without a cluster; its own first runs."""

    def __init__(self, kind: Kind) -> None:
        self.form = metadata_only(kind)
        self.store = self
        self._here: dict[Key, ObjectMeta] = {}
        self._confirmed: set[Key] = set()

    def put(self, name: str, *, confirmed: bool = True) -> None:
        key = Key("default", name)
        self._here[key] = ObjectMeta(name=name, namespace="default", uid=f"uid-{name}")
        if confirmed:
            self._confirmed.add(key)

    def lose(self, obj: KubeObject, *, confirmed: bool) -> None:
        if confirmed:
            self._confirmed_left(obj)
        self._hear(Deleted(obj))

    # What `Losses` asks of an informer and its first runs

    def follow(self, informer: object, confirmed_left: Callable[[KubeObject], None]) -> None:
        self._confirmed_left = confirmed_left

    def add_handler(self, hear: Callable[[Any], None], *, existing: bool) -> None:
        self._hear = hear

    def metadata(self, key: Key) -> ObjectMeta | None:
        return self._here.get(key)

    def confirmed(self, key: Key) -> bool:
        return key in self._confirmed


class World:
    """A small API with one ring, and a shard's restorer that follows things and secrets."""

    restores = 0

    def __init__(self) -> None:
        self.api, self.clock = SmallApi(), VirtualClock()
        self.client = self.api.client(self.clock)
        self.losses = Losses(self.clock)
        self.things, self.secrets = SmallInformer(THING), SmallInformer(SECRET)
        for informer in (self.things, self.secrets):
            self.losses.follow(informer, "", informer)
        self.ring()

    def ring(self, **spec: Any) -> None:
        spec = {"resources": [{**RESOURCE, "controlledResources": [{"resource": "secrets"}]}], **spec}
        self.api.objects[f"{RINGS}/ring"] = {
            "apiVersion": "sharding.timebertt.dev/v1alpha1",
            "kind": "ControllerRing",
            "metadata": {"name": "ring", "uid": "u", "resourceVersion": "1"},
            "spec": spec,
        }

    def put(self, place: str, name: str, labels: dict[str, str], by: str = "", **fields: Any) -> None:
        """What is found: an object with these labels, set by this field manager."""
        obj = self.api.put(place, name, labels=labels, **fields)
        if by:
            managed = {f"f:{label}": {} for label in labels}
            fields_v1 = {"f:metadata": {"f:labels": managed}}
            obj["metadata"]["managedFields"] = [{"manager": by, "fieldsV1": fields_v1}]

    @asynccontextmanager
    async def restoring(self, **others: Any) -> AsyncIterator[None]:
        clients = {"home": self.client, "objects": self.client, **others}
        task = asyncio.create_task(
            LabelRestorer(ME, RESOURCES, self.losses, self.clock).run(**clients, cache=self)
        )
        await asyncio.sleep(0.1)
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()

    async def lose(
        self, name: str = "foo", *, secret: bool = False, confirmed: bool = True, **metadata: Any
    ) -> None:
        """The object left the cache; what it was then."""
        informer = self.secrets if secret else self.things
        meta = ObjectMeta(name=name, namespace="default", uid=f"uid-{name}", **metadata)
        informer.lose(Left(metadata=meta), confirmed=confirmed)
        await asyncio.sleep(SOON)

    def labels(self, name: str = "foo", place: str = THINGS) -> dict[str, str]:
        return self.api.labels(f"{place}/{name}")


MINE = {LABEL: "s0"}


@pytest.mark.parametrize(
    ("found", "by", "becomes"),
    [
        ({}, "", MINE),
        ({LABEL: "s0"}, "kubectl", MINE),
        ({LABEL: "s1"}, SHARDER_FIELD_MANAGER, {LABEL: "s1"}),
        ({LABEL: "s1"}, "s1", {LABEL: "s1"}),
        ({LABEL: "s1"}, "kubectl", MINE),
        ({LABEL: "s1"}, "", MINE),
    ],
    ids=["nobody's", "its own", "moved by the sharder", "taken by that shard", "a user's", "a webhook's"],
)
@virtual_time
async def test_what_is_taken_back_by_what_is_found_and_who_set_it(
    found: dict[str, str], by: str, becomes: dict[str, str]
) -> None:
    world = World()
    world.put(THINGS, "foo", found, by)
    async with world.restoring():
        await world.lose()
    assert world.labels() == becomes
    assert len(world.api.writes()) == (found != becomes)


@virtual_time
async def test_the_drain_of_what_is_taken_back_goes_on() -> None:
    world = World()
    world.put(THINGS, "foo", {})
    async with world.restoring():
        await world.lose(labels={LABEL: "s0", DRAIN: "true"})
    assert world.labels() == {LABEL: "s0", DRAIN: "true"}


@virtual_time
async def test_an_object_that_was_created_again_or_is_gone_is_not_taken_back() -> None:
    world = World()
    world.put(THINGS, "foo", {}, uid="another")
    async with world.restoring():
        await world.lose()
        await world.lose("gone")
    assert world.api.writes() == []


@virtual_time
async def test_what_was_not_the_shards_for_certain_or_was_released_by_it_is_not_even_read() -> None:
    world = World()
    world.put(THINGS, "foo", {})
    async with world.restoring():
        before = len(world.api.requests)
        await world.lose(confirmed=False)
        world.losses.released(THING.group_kind, Key("default", "foo"))
        await world.lose()
        world.things.put("bar")
        world.losses.released(SECRET.group_kind, Key("default", "child"))
        await world.lose("child", secret=True, owner_references=as_references(({**OWNER, "name": "bar"},)))
        assert len(world.api.requests) == before
        world.losses.kept(THING.group_kind, Key("default", "foo"))
        await world.lose()
    assert world.labels() == MINE


@virtual_time
async def test_what_was_released_while_it_was_read_is_left() -> None:
    world = World()
    world.put(THINGS, "foo", {})

    def release(request: HttpRequest) -> HttpResponse | None:
        if "fieldSelector" in request.target:
            world.losses.released(THING.group_kind, Key("default", "foo"))
        return None

    world.api.faults.append(release)
    async with world.restoring():
        await world.lose()
    assert world.api.writes() == []


@pytest.mark.parametrize(
    ("owner", "found", "by", "back"),
    [
        ("here", {}, "", True),
        ("here", {LABEL: "s1"}, "kubectl", True),
        ("here", {LABEL: "s1"}, "", False),
        ("not confirmed", {}, "", False),
        ("released", {}, "", False),
        ("elsewhere", {}, "", False),
        ("none", {}, "", False),
    ],
)
@virtual_time
async def test_a_controlled_object_is_taken_back_if_its_owner_is_the_shards_and_no_webhook_gave_it_away(
    owner: str, found: dict[str, str], by: str, back: bool
) -> None:
    world = World()
    owners = () if owner == "none" else (OWNER,)
    world.put(SECRETS, "child", found, by, ownerReferences=list(owners))
    if owner != "elsewhere":
        world.things.put("foo", confirmed=owner != "not confirmed")
    if owner == "released":
        world.losses.released(THING.group_kind, Key("default", "foo"))
    async with world.restoring():
        await world.lose("child", secret=True, owner_references=as_references(owners))
    assert world.labels("child", SECRETS) == (MINE if back else found)


@virtual_time
async def test_a_controlled_object_that_has_another_owner_now_is_left_to_the_shard_of_that_one() -> None:
    world = World()
    world.things.put("foo")
    world.put(SECRETS, "child", {}, ownerReferences=[{**OWNER, "name": "bar"}])
    async with world.restoring():
        await world.lose("child", secret=True, owner_references=as_references((OWNER,)))
    assert world.api.writes() == []


def as_references(owners: tuple[dict[str, Any], ...]) -> tuple[OwnerReference, ...]:
    return msgspec.convert(owners, tuple[OwnerReference, ...])


@pytest.mark.parametrize(
    ("spec", "back"),
    [
        ({}, True),
        ({"resources": [{"resource": "configmaps"}]}, False),
        ({"namespaceSelector": {"matchLabels": {"space": "one"}}}, True),
        ({"namespaceSelector": {"matchLabels": {"space": "two"}}}, False),
    ],
)
@virtual_time
async def test_only_what_the_ring_selects_is_taken_back(spec: dict[str, Any], back: bool) -> None:
    world = World()
    world.put(THINGS, "foo", {})
    namespace = world.api.put("/api/v1/namespaces", "default", labels={"space": "one"})
    namespace.update(apiVersion="v1", kind="Namespace")
    world.ring(**spec)
    async with world.restoring():
        await world.lose()
    assert world.labels() == (MINE if back else {})


@virtual_time
async def test_without_the_right_to_read_namespaces_the_ring_counts_as_selecting_the_object() -> None:
    world = World()
    world.put(THINGS, "foo", {})
    world.ring(namespaceSelector={"matchLabels": {"space": "two"}})
    world.api.faults.append(
        lambda request: status(403, "Forbidden") if request.target.endswith("/namespaces/default") else None
    )
    async with world.restoring():
        await world.lose()
    assert world.labels() == MINE


@virtual_time
async def test_nothing_is_taken_back_in_a_ring_that_is_being_deleted_or_gone_and_all_if_there_never_was_one() -> (
    None
):
    world = World()
    world.put(THINGS, "foo", {})
    ring = world.api.objects[f"{RINGS}/ring"]
    async with world.restoring():
        ring["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        await world.lose()
        del world.api.objects[f"{RINGS}/ring"]
        await world.lose()
    assert world.api.writes() == []
    async with world.restoring():
        await world.lose()
    assert world.labels() == MINE


@virtual_time
async def test_a_patch_that_comes_late_takes_the_object_from_nobody() -> None:
    """It is of the version that was read; after a conflict the object is read again."""
    world = World()
    world.put(THINGS, "foo", {})

    def move(request: HttpRequest) -> HttpResponse | None:
        if request.method == "PATCH":
            world.put(THINGS, "foo", {LABEL: "s1"}, SHARDER_FIELD_MANAGER)
        return None

    world.api.faults.append(move)
    async with world.restoring():
        await world.lose()
    assert world.labels() == {LABEL: "s1"}
    assert len(world.api.writes()) == 1


@virtual_time
async def test_an_object_that_is_written_meanwhile_is_taken_back_as_it_is_then() -> None:
    world = World()
    world.put(THINGS, "foo", {})
    writes = iter(range(2))

    def write(request: HttpRequest) -> HttpResponse | None:
        if request.method == "PATCH" and next(writes, None) is not None:
            world.put(THINGS, "foo", {"touched": str(world.api.version)})
        return None

    world.api.faults.append(write)
    async with world.restoring():
        await world.lose()
    assert world.labels()[LABEL] == "s0"


@virtual_time
async def test_a_request_that_fails_is_tried_again() -> None:
    world = World()
    world.put(THINGS, "foo", {})
    failures = iter([status(500, "Broken")] * 3)
    world.api.faults.append(lambda request: next(failures, None) if request.method == "PATCH" else None)
    async with world.restoring():
        await world.lose()
        await asyncio.sleep(10.0)
    assert world.labels() == MINE


@virtual_time
async def test_nothing_is_taken_back_without_the_lease() -> None:
    world = World()
    world.put(THINGS, "foo", {})
    async with world.restoring(objects=world.client.fenced(LeaderFence())):
        await world.lose()
    assert world.labels() == {}


@virtual_time
async def test_nobody_is_fought_who_changes_the_label_again_and_again() -> None:
    world = World()
    async with world.restoring():
        for _ in range(FREE + 2):
            world.put(THINGS, "foo", {})
            await world.lose()
        assert len(world.api.writes()) == FREE
        await asyncio.sleep(400.0)
        await world.lose()
    assert world.labels() == MINE


@virtual_time
async def test_objects_are_whose_they_were_for_a_minute_after_a_restore() -> None:
    world = World()
    world.put(THINGS, "foo", {})
    async with world.restoring():
        world.restores += 1
        await world.lose()
        await asyncio.sleep(SINCE_RESTORE - 2 * SOON)
        await world.lose()
        assert world.api.writes() == []
        await world.lose()
    assert world.labels() == MINE
