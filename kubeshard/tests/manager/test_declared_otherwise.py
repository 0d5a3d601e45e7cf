"""A class that declares a kind otherwise than the server serves it is told what to write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kubeshard import Context, Controller, KubeObject, Manager, Scope, crd
from kubeshard.client.discovery import Discovery
from kubeshard.core.errors import Unavailable
from kubeshard.manager.declaration import CacheSettings
from kubeshard_apiserver.server import ApiServer
from kubeshard_apiserver.testing.memory import MemoryApi
from kubeshard_lab.virtual_time import VirtualClock, virtual_time
from kubeshard_lab.virtual_world import virtual_world


class Widget(KubeObject, group="example.com", version="v1"): ...


class Plural(KubeObject, group="example.com", version="v1", kind="Widget", plural="widgetses"): ...


class Version(KubeObject, group="example.com", version="v2", kind="Widget"): ...


class Both(
    KubeObject, group="example.com", version="v2", kind="Widget", plural="widgetses", namespaced=False
): ...


class Group(KubeObject, group="example.org", version="v1", kind="Widget"): ...


class Nobody(KubeObject, group="example.com", version="v1"): ...


class Beta(KubeObject, group="example.com", version="v1beta1", kind="Widget", plural="widgetses"): ...


def definition(scope: str, versions: Sequence[str] = ("v1",)) -> dict[str, Any]:
    made = crd.definition(Widget)
    (version,) = made["spec"]["versions"]
    made["spec"]["versions"] = [
        {**version, "name": each, "storage": each == versions[0]} for each in versions
    ]
    made["spec"]["scope"] = scope
    return made


async def reconcile(ctx: Context, obj: KubeObject) -> None: ...


@asynccontextmanager
async def running(cls: type[KubeObject], defined: dict[str, Any], **options: Any) -> AsyncIterator[MemoryApi]:
    api = MemoryApi(ApiServer(world=virtual_world(clock=VirtualClock())))
    await api.install(defined)
    controller = Controller(name="widget", reconciler=reconcile, primary=cls)
    async with api.client() as client:
        task = asyncio.create_task(Manager([controller], client=client, status_pages=None, **options).run())
        yield api
        task.cancel()
        await asyncio.wait([task])


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    fields: list[Any] = [each.fields for each in caplog.records]  # type: ignore[attr-defined]
    return [each["advice"] for each in fields if each.get("cause") == "not served"]


async def advice(
    cls: type[KubeObject],
    scope: str,
    caplog: pytest.LogCaptureFixture,
    versions: Sequence[str] = ("v1",),
    **options: Any,
) -> str:
    async with running(cls, definition(scope, versions), **options):
        await asyncio.sleep(30)
    (said,) = told(caplog)
    return said


SERVED = "the server serves Widget as widgets.example.com in version v1"


@pytest.mark.parametrize(
    ("cls", "write"),
    [
        (Plural, 'plural="widgets"'),
        (Version, 'version="v1"'),
        (Both, 'version="v1", plural="widgets", namespaced=True'),
    ],
)
@virtual_time
async def test_what_the_class_has_to_say_is_told(
    cls: type[KubeObject], write: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert (
        await advice(cls, "Namespaced", caplog) == f"{SERVED}, namespaced: write {write} in the class Widget"
    )


@virtual_time
async def test_a_wrong_scope_is_told_where_only_some_namespaces_are_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cache = CacheSettings(default_scope=Scope(frozenset({"team"})))
    said = await advice(Widget, "Cluster", caplog, cache=cache)
    assert said == f"{SERVED}, cluster-scoped: write namespaced=False in the class Widget"


@virtual_time
async def test_a_kind_of_that_name_in_another_group_may_be_another_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    said = await advice(Group, "Namespaced", caplog)
    assert said.startswith("install the CustomResourceDefinition widgets.example.org")
    assert said.endswith(
        f'or, if that is meant: {SERVED}, namespaced: write group="example.com" in the class Widget'
    )


@virtual_time
async def test_of_a_kind_that_nobody_serves_only_the_definition_is_asked_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    said = await advice(Nobody, "Namespaced", caplog)
    assert said.startswith("install the CustomResourceDefinition nobodies.example.com")
    assert "Widget" not in said


@virtual_time
async def test_a_version_that_is_served_stays_as_the_class_declares_it_though_another_is_preferred(
    caplog: pytest.LogCaptureFixture,
) -> None:
    said = await advice(Beta, "Namespaced", caplog, ("v1", "v1beta1"))
    assert said.endswith('in version v1beta1, namespaced: write plural="widgets" in the class Widget')


@virtual_time
async def test_what_could_not_be_looked_up_is_looked_up_again_and_so_is_a_definition_that_changed(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(self: Discovery, *verbs: str) -> Any:
        raise Unavailable("the server is overloaded", code=503, reason="")

    async with running(Version, definition("Namespaced")) as api:
        with monkeypatch.context() as patched:
            patched.setattr(Discovery, "all_kinds", silent)
            await asyncio.sleep(30)
        await asyncio.sleep(120)
        await api.install(definition("Namespaced", ("v1", "v3")))
        await asyncio.sleep(120)
    general, first, second = told(caplog)
    assert general.startswith("install the CustomResourceDefinition")
    assert 'write version="v1" in' in first
    assert 'write version="v3" in' in second
