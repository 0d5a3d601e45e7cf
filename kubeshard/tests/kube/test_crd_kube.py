"""Definitions from classes on an API server: it accepts them, validates objects against them, and returns what was
sent.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

from kubeshard import Client, KubeObject, ObjectMeta, Struct, field
from kubeshard.client import install
from kubeshard.core import UNSET, Condition, UnsetType, encode, to_dict
from kubeshard.core.errors import ApiError
from kubeshard.crd import Column, CustomResource, ListMap, Rule, Scale, definition

GROUP = "types.example.com"


class Mode(enum.Enum):
    FULL = "Full"
    QUICK = "Quick"


class Target(Struct):
    name: str
    weight: Annotated[int, Meta(ge=0, le=100)] = 1


@Rule("self.keep >= self.least", "keep at least the least")
class BackupSpec(Struct):
    schedule: Annotated[str, Meta(min_length=1, max_length=40, pattern=r"^\S+$")]
    image: Annotated[str, Meta(max_length=40), Rule("self == oldSelf", "the image is fixed")] = "backup:1"
    keep: Annotated[int, Meta(ge=1, le=10)] = 3
    least: int = 0
    ratio: Annotated[float, Meta(gt=0)] = 0.5
    mode: Mode = Mode.FULL
    tier: Literal["hot", "cold"] | None = "hot"
    targets: Annotated[tuple[Target, ...], ListMap("name"), Meta(max_length=5)] = ()
    tags: frozenset[str] = frozenset()
    labels: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] | None = None
    port: int | str = 80
    after: datetime | None = None
    secret: bytes | None = None
    limit: int | None = None
    pause: bool | UnsetType | None = UNSET
    replicas: int = 1


class BackupStatus(Struct):
    phase: str = ""
    replicas: int = 0
    last: datetime | None = None
    conditions: tuple[Condition, ...] = ()


@CustomResource(
    short_names=["bkp"],
    categories=["all"],
    scale=Scale(),
    selectable=[".spec.schedule"],
    columns=[
        Column("Mode", ".spec.mode"),
        Column("Last", ".status.last"),
        Column("Keep", ".spec.keep", priority=1),
        Column("Age", ".metadata.creationTimestamp"),
    ],
)
class Backup(KubeObject, group=GROUP, version="v1", complete=True):
    """A backup of something."""

    spec: BackupSpec
    status: BackupStatus | None = None


class OldSpec(Struct):
    schedule: str = ""


@CustomResource(served=False)
class OldestShelf(KubeObject, group=GROUP, version="v1alpha0", kind="Shelf", namespaced=False):
    pass


@CustomResource(deprecated="use v2")
class OldShelf(KubeObject, group=GROUP, version="v1alpha1", kind="Shelf", namespaced=False):
    spec: OldSpec = field(default_factory=OldSpec)


@CustomResource(storage=True)
class Shelf(KubeObject, group=GROUP, version="v2", namespaced=False):
    spec: OldSpec = field(default_factory=OldSpec)


@pytest.fixture
def served(install_crd: Callable[[Mapping[str, Any]], None]) -> None:
    install_crd(definition(Backup))
    install_crd(definition(OldShelf, Shelf))


def meta(name: str, namespace: str) -> ObjectMeta:
    return ObjectMeta(name=name, namespace=namespace)


async def test_objects_of_the_class_are_accepted_and_come_back_as_they_were_sent(
    kube_client: Client, namespace: str, served: None
) -> None:
    sent = [
        BackupSpec(schedule="daily"),
        BackupSpec(
            schedule="hourly",
            keep=10,
            least=10,
            ratio=0.25,
            mode=Mode.QUICK,
            tier=None,
            targets=(Target(name="a"), Target(name="b", weight=0)),
            tags=frozenset({"x", "y"}),
            labels={"a": "b"},
            options={"deep": [{"er": 1}], "none": {}},
            port="http",
            after=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
            secret=b"secret",
            limit=0,
            pause=False,
            replicas=0,
        ),
    ]
    for number, spec in enumerate(sent):
        backup = Backup(metadata=meta(f"b{number}", namespace), spec=spec)
        stored = await kube_client.create(backup)
        assert stored.spec == spec
        raw = await kube_client.raw("GET", Backup.KIND.path(namespace, f"b{number}"))
        assert msgspec.json.decode(raw.body)["spec"] == msgspec.json.decode(encode(backup))["spec"]


async def test_a_status_is_stored_as_it_was_sent(kube_client: Client, namespace: str, served: None) -> None:
    made = await kube_client.create(
        Backup(metadata=meta("with-status", namespace), spec=BackupSpec(schedule="daily"))
    )
    now = "2026-01-02T03:04:05Z"
    status = BackupStatus(
        phase="Done",
        last=datetime(2026, 1, 2, tzinfo=UTC),
        conditions=(
            Condition(
                type="Ready", status="True", reason="Done", message="all is well", last_transition_time=now
            ),
        ),
    )
    changed = msgspec.structs.replace(made, status=status)
    assert (await kube_client.replace(changed, subresource="status")).status == status


async def test_what_the_class_would_fill_in_the_server_fills_in_too(
    kube_client: Client, namespace: str, served: None
) -> None:
    least = {
        "apiVersion": Backup.KIND.api_version,
        "kind": "Backup",
        "metadata": {"name": "least", "namespace": namespace},
        "spec": {"schedule": "daily", "limit": None, "pause": None},
    }
    answer = await kube_client.raw("POST", Backup.KIND.path(namespace), msgspec.json.encode(least))
    expected = to_dict(Backup(metadata=meta("least", namespace), spec=BackupSpec(schedule="daily")))["spec"]
    assert msgspec.json.decode(answer.body)["spec"] == msgspec.json.decode(msgspec.json.encode(expected))


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"unknown": 1}, r'unknown field "spec\.unknown"'),
    ({"schedule": None}, r"spec\.schedule"),
    ({"schedule": ""}, r"spec\.schedule"),
    ({"schedule": "not one word"}, r"spec\.schedule"),
    ({"keep": 0}, r"spec\.keep"),
    ({"keep": 11}, r"spec\.keep"),
    ({"keep": "3"}, r"spec\.keep"),
    ({"ratio": 0}, r"spec\.ratio"),
    ({"mode": "Slow"}, r"spec\.mode"),
    ({"tier": "warm"}, r"spec\.tier"),
    ({"targets": [{"weight": 1}]}, r"spec\.targets\[0\]\.name"),
    ({"targets": [{"name": "a"}, {"name": "a"}]}, r"spec\.targets\[1\]"),
    ({"targets": [{"name": str(n)} for n in range(6)]}, r"spec\.targets"),
    ({"tags": ["a", "a"]}, r"spec\.tags\[1\]"),
    ({"labels": {"a": 1}}, r"spec\.labels\.a"),
    ({"port": 1.5}, r"spec\.port"),
    ({"after": "yesterday"}, r"spec\.after"),
    ({"least": 4}, "keep at least the least"),
]


@pytest.mark.parametrize(("change", "says"), WRONG, ids=lambda value: str(value))
async def test_what_does_not_fit_the_class_is_refused_by_the_server(
    kube_client: Client, namespace: str, served: None, change: dict[str, Any], says: str
) -> None:
    wrong = {
        "apiVersion": Backup.KIND.api_version,
        "kind": "Backup",
        "metadata": {"name": "wrong", "namespace": namespace},
        "spec": {"schedule": "daily", **change},
    }
    path = f"{Backup.KIND.path(namespace)}?fieldValidation=Strict&dryRun=All"
    with pytest.raises(ApiError, match=says):
        await kube_client.raw("POST", path, msgspec.json.encode(wrong))


async def test_a_rule_of_a_field_sees_the_old_value(
    kube_client: Client, namespace: str, served: None
) -> None:
    spec = BackupSpec(schedule="daily")
    made = await kube_client.create(Backup(metadata=meta("fixed", namespace), spec=spec))
    other = msgspec.structs.replace(made, spec=msgspec.structs.replace(spec, image="backup:2"))
    with pytest.raises(ApiError, match="the image is fixed"):
        await kube_client.replace(other)


async def test_columns_scale_and_names_are_served(kube_client: Client, namespace: str, served: None) -> None:
    await kube_client.create(Backup(metadata=meta("scaled", namespace), spec=BackupSpec(schedule="weekly")))
    table = await kube_client.raw(
        "GET",
        f"{Backup.KIND.path(namespace)}?fieldSelector=spec.schedule%3Dweekly",
        accept="application/json;as=Table;g=meta.k8s.io;v=v1",
    )
    decoded = msgspec.json.decode(table.body)
    assert [column["name"] for column in decoded["columnDefinitions"]] == [
        "Name",
        "Mode",
        "Last",
        "Keep",
        "Age",
    ]
    assert [row["cells"][:2] for row in decoded["rows"]] == [["scaled", "Full"]]
    scale = await kube_client.raw("GET", Backup.KIND.path(namespace, "scaled", "scale"))
    assert msgspec.json.decode(scale.body)["spec"] == {"replicas": 1}
    resources = msgspec.json.decode((await kube_client.raw("GET", f"/apis/{GROUP}/v1")).body)["resources"]
    (found,) = [resource for resource in resources if resource["name"] == "backups"]
    assert (found["shortNames"], found["categories"]) == (["bkp"], ["all"])


async def test_a_definition_is_installed_when_every_served_version_is_served(kube_client: Client) -> None:
    manifest = definition(OldestShelf, OldShelf, Shelf)
    assert [done async for done in install(kube_client, [manifest])] == [manifest]
    for cls in (OldShelf, Shelf):
        await kube_client.raw("GET", cls.KIND.path())
    with pytest.raises(ApiError, match="does not serve this path"):
        await kube_client.raw("GET", OldestShelf.KIND.path())


async def test_an_object_is_served_in_each_version_of_its_kind(kube_client: Client, served: None) -> None:
    shelf = Shelf(metadata=ObjectMeta(name="shelf"), spec=OldSpec(schedule="daily"))
    await kube_client.create(shelf)
    try:
        old = await kube_client.get(OldShelf, "shelf")
        assert old.spec == OldSpec(schedule="daily")
    finally:
        await kube_client.delete(Shelf, "shelf")
