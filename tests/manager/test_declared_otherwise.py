"""A class that declares a kind otherwise than the server serves it is told what to write."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeshard import Context, Controller, KubeObject, Manager, Scope
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


def definition(scope: str) -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object"}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": scope,
            "names": {"kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "singular": "widget"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


async def reconcile(ctx: Context, obj: KubeObject) -> None: ...


async def advice(cls: type[KubeObject], scope: str, caplog: pytest.LogCaptureFixture, **options: Any) -> str:
    api = MemoryApi(ApiServer(world=virtual_world(clock=VirtualClock())))
    await api.install(definition(scope))
    controller = Controller(name="widget", reconciler=reconcile, primary=cls)
    async with api.client() as client:
        running = asyncio.create_task(
            Manager([controller], client=client, status_pages=None, **options).run()
        )
        await asyncio.sleep(30)
        running.cancel()
        await asyncio.wait([running])
    (told,) = [each.fields for each in caplog.records if each.fields.get("cause") == "not served"]  # type: ignore[attr-defined]
    return str(told["advice"])


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
    told = await advice(Widget, "Cluster", caplog, cache=cache)
    assert told == f"{SERVED}, cluster-scoped: write namespaced=False in the class Widget"


@virtual_time
async def test_a_kind_of_that_name_in_another_group_may_be_another_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told = await advice(Group, "Namespaced", caplog)
    assert told.startswith("install the CustomResourceDefinition widgets.example.org")
    assert told.endswith(
        f'or, if that is meant: {SERVED}, namespaced: write group="example.com" in the class Widget'
    )


@virtual_time
async def test_of_a_kind_that_nobody_serves_only_the_definition_is_asked_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told = await advice(Nobody, "Namespaced", caplog)
    assert told.startswith("install the CustomResourceDefinition nobodies.example.com")
    assert "Widget" not in told
