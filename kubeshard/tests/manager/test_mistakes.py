"""What an author or a user got wrong is said where it is wrong, and with what to do."""

from __future__ import annotations

import asyncio
import inspect
import logging
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kubeshard import (
    Condition,
    ConfigMap,
    Context,
    Controller,
    Manager,
    ObjectMeta,
    Struct,
    Watch,
    ensure,
    field,
)
from kubeshard.cache import Cache, Scope
from kubeshard.client import Client
from kubeshard.controller.forgotten_awaits import listen
from kubeshard.controller.syncing import explained
from kubeshard.core import FieldSelector, KubeObject
from kubeshard.core.errors import ANONYMOUS, Forbidden
from kubeshard.crd import CustomResource, definition
from kubeshard.manager.exit_codes import ending_of
from kubeshard.webhook import Webhooks, converts
from kubeshard.webhook.registrar import Registrar
from kubeshard_apiserver import ApiServer
from kubeshard_apiserver.testing.memory import MemoryApi
from kubeshard_lab.virtual_time import virtual_time
from kubeshard_lab.virtual_world import virtual_world


class AppSpec(Struct):
    size: int = 1


class AppStatus(Struct):
    count: int | None = None
    sizes: tuple[dict[str, Any], ...] = ()
    conditions: tuple[Condition, ...] = ()


@CustomResource()
class App(KubeObject, group="mistakes.example", version="v1"):
    spec: AppSpec = field(default_factory=AppSpec)
    status: AppStatus = field(default_factory=AppStatus)


Reconcile = Callable[[Context, App], Awaitable[None]]


@asynccontextmanager
async def running(controller: Controller[Any], *, served: bool = True) -> AsyncIterator[Client]:
    """A manager with the controller, and a server with one App."""
    api = MemoryApi(ApiServer(world=virtual_world()))
    if served:
        await api.install(definition(App))
    async with api.client() as client:
        if served:
            await client.create(App(metadata=ObjectMeta(name="a", namespace="default")))
        manager = Manager([controller], client=client, status_pages=None)
        run = asyncio.create_task(manager.run())
        await asyncio.sleep(20)
        yield client
        manager.stop()
        await run


async def outcome(reconcile: Reconcile, caplog: pytest.LogCaptureFixture) -> str:
    """What the log says of the first run."""
    controller = Controller(name="apps", reconciler=reconcile, primary=App, owns=[ConfigMap])
    with caplog.at_level(logging.ERROR):
        async with running(controller):
            pass
    (first, *_) = [record for record in caplog.records if record.name == "kubeshard.controller.apps"]
    return first.message


def line_of(reconcile: Reconcile, text: str) -> str:
    lines, start = inspect.getsourcelines(reconcile)
    (number,) = [start + number for number, line in enumerate(lines) if text in line]
    return f"({__file__}, line {number})"


@virtual_time
async def test_a_forgotten_await_fails_the_run_every_time_and_names_the_call_and_the_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def reconcile(ctx: Context, app: App) -> None:
        ctx.status(app, AppStatus(count=1))  # type: ignore[unused-coroutine]
        ensure(ctx, ConfigMap(metadata=ObjectMeta(name="x", namespace="default")))  # type: ignore[unused-coroutine]

    with pytest.warns(RuntimeWarning, match="never awaited"):
        said = await outcome(reconcile, caplog)
    for call, text in (("Context.status", "ctx.status("), ("ensure", "ensure(")):
        assert (
            f"{call}(...) was never awaited, so it did nothing {line_of(reconcile, text)}: write `await`"
            in said
        )
    crashed = [record for record in caplog.records if record.msg == "Reconcile crashed"]
    assert len(crashed) > 3, "Python's own warning comes once"


@virtual_time
async def test_a_forgotten_await_is_found_in_a_variable_and_none_is_where_the_coroutine_was_used(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def forgets(ctx: Context, app: App) -> None:
        written = ctx.status(app, AppStatus(count=1))
        del app, written

    async def keeps_to_the_end(ctx: Context, app: App) -> None:
        written = ctx.status(app, AppStatus(count=1))  # noqa: F841

    async def uses(ctx: Context, app: App) -> None:
        unneeded, later = ctx.status(app, AppStatus(count=1)), ctx.status(app, AppStatus(count=1))
        unneeded.close()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(later).cancel()

    with pytest.warns(RuntimeWarning, match="never awaited"):
        said = await outcome(forgets, caplog)
    assert line_of(forgets, "del app") in said
    caplog.clear()
    with pytest.warns(RuntimeWarning, match="never awaited"):
        said = await outcome(keeps_to_the_end, caplog)
    assert "Context.status(...) was never awaited, so it did nothing: write" in said
    caplog.clear()
    with pytest.raises(ValueError, match="not enough values"):
        await outcome(uses, caplog)


@virtual_time
async def test_a_forgotten_await_of_a_run_that_fails_anyway_or_has_ended_is_still_pythons_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outliving = []

    async def fails(ctx: Context, app: App) -> None:
        ctx.status(app, AppStatus(count=1))  # type: ignore[unused-coroutine]
        raise ValueError("no such shop")

    async def forgets_later(ctx: Context, app: App) -> None:
        await asyncio.sleep(1)
        ctx.status(app, AppStatus(count=1))  # type: ignore[unused-coroutine]

    async def leaves_a_task(ctx: Context, app: App) -> None:
        outliving.append(asyncio.create_task(forgets_later(ctx, app)))

    with pytest.warns(RuntimeWarning, match="never awaited"):
        assert "no such shop" in await outcome(fails, caplog)
    with pytest.warns(RuntimeWarning, match="never awaited"):
        async with running(Controller(name="apps", reconciler=leaves_a_task, primary=App)):
            pass


@virtual_time
async def test_filters_of_the_program_hide_no_forgotten_await_and_are_kept_where_they_ask_for_errors(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def forgets(ctx: Context, app: App) -> None:
        ctx.status(app, AppStatus(count=1))  # type: ignore[unused-coroutine]

    with warnings.catch_warnings(record=True):
        warnings.simplefilter("ignore")
        assert "was never awaited" in await outcome(forgets, caplog)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        listen()
        assert warnings.filters[0][0] == "error"


@virtual_time
async def test_an_object_that_is_changed_in_place_says_the_field_and_how_to_change_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def reconcile(ctx: Context, app: App) -> None:
        app.spec.size = 3  # type: ignore[misc]

    said = await outcome(reconcile, caplog)
    assert "AppSpec.size cannot be set: objects are immutable" in said
    assert "msgspec.structs.replace(..., size=...)" in said
    with pytest.raises(AttributeError, match=r"App\.metadata cannot be set"):
        del App().metadata  # type: ignore[misc]


@virtual_time
async def test_a_status_that_cannot_be_encoded_says_the_field(caplog: pytest.LogCaptureFixture) -> None:
    async def reconcile(ctx: Context, app: App) -> None:
        await ctx.status(app, AppStatus(sizes=({"small": 1}, {"large": object()})))

    said = await outcome(reconcile, caplog)
    assert "AppStatus.sizes[1]['large'] has a value that cannot be sent: <object object at" in said


@virtual_time
async def test_an_object_that_cannot_be_encoded_says_the_field() -> None:
    async with MemoryApi(ApiServer(world=virtual_world())).client() as client:
        wrong = ConfigMap(metadata=ObjectMeta(name="a", namespace="default"), data={"a": 1j})  # type: ignore[dict-item]
        with pytest.raises(TypeError, match=r"ConfigMap\.data\['a'\] has a value that cannot be sent: 1j"):
            await client.create(wrong)


@virtual_time
@pytest.mark.parametrize("primary", [App, ConfigMap])
async def test_a_field_selector_that_the_server_rejects_is_a_mistake_and_no_outage(
    primary: type[KubeObject], caplog: pytest.LogCaptureFixture
) -> None:
    async def reconcile(ctx: Context, obj: Any) -> None: ...

    selected = Scope(fields=FieldSelector.parse("spec.size=3"))
    with caplog.at_level(logging.WARNING):
        async with running(
            Controller(name="b", reconciler=reconcile, primary=Watch(primary, scope=selected))
        ):
            pass
    (said,) = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert said.startswith(f"A kind cannot be read; the controllers that need it wait kind={primary.KIND}")
    assert "correct the scope of the watch (all namespaces; fields spec.size=3)" in said
    assert "does not respond" not in said


@virtual_time
@pytest.mark.parametrize(
    ("status", "says"),
    [
        (409, "but not a list or watch of configmaps"),
        (429, "its flow control has no room for this process"),
        (500, "the conversion webhook of its definition"),
        (504, "The API server does not respond; waiting for it"),
    ],
)
async def test_an_answer_about_the_only_kind_is_no_outage(
    status: int, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def reconcile(ctx: Context, obj: Any) -> None: ...

    api = MemoryApi(ApiServer(world=virtual_world()))
    api.inject("*", "configmaps", status=status)
    async with api.client() as client:
        controller = Controller(name="b", reconciler=reconcile, primary=ConfigMap)
        manager = Manager([controller], client=client, status_pages=None)
        run = asyncio.create_task(manager.run())
        await asyncio.sleep(60)
        manager.stop()
        await run
    said = [record.message for record in caplog.records if record.name == "kubeshard.manager"]
    assert any(says in each for each in said), said
    assert any(each.startswith("A kind cannot be read; the controllers") for each in said) is (status != 504)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"labels": "a=b"}, r"Scope\(labels='a=b'\): give Selector.parse\(\"app=web\"\)"),
        ({"fields": "a=b"}, r"Scope\(fields='a=b'\): give FieldSelector.parse"),
        (
            {"namespaces": "default"},
            r"Scope\(namespaces='default'\): give frozenset\(\{\"default\"\}\) or ALL",
        ),
        ({"namespaces": {"default"}}, r"Scope\(namespaces=\{'default'\}\): give frozenset"),
    ],
)
def test_a_scope_of_the_wrong_type_is_refused_where_it_is_made(given: dict[str, Any], says: str) -> None:
    with pytest.raises(TypeError, match=says):
        Scope(**given)


def test_a_default_that_cannot_be_made_is_refused_where_it_is_declared() -> None:
    class NeedSpec(Struct):
        tier: str
        size: int = 1

    with pytest.raises(
        TypeError,
        match=r"Need\.spec: default_factory=NeedSpec cannot work, because NeedSpec has required fields: tier\. Give",
    ):

        class Need(KubeObject, group="mistakes.example", version="v1"):
            spec: NeedSpec = field(default_factory=NeedSpec)


def test_a_user_without_credentials_is_told_to_have_some_and_no_role() -> None:
    said = f'configmaps is forbidden: {ANONYMOUS} cannot list resource "configmaps" in API group ""'
    line = ending_of(Forbidden(said, code=403)).line
    assert "the request had no credentials that the cluster knows" in line
    assert "bind" not in line


@virtual_time
async def test_a_controller_without_credentials_is_told_to_have_some_and_no_role() -> None:
    async with MemoryApi(ApiServer(world=virtual_world())).client() as client:
        informer = Cache(client).declare(ConfigMap)
        found = explained(informer, Forbidden(f"configmaps is forbidden: {ANONYMOUS} cannot list", code=403))
        assert found.cause == "refused"
        assert "the request had no credentials that the cluster knows" in found.advice
        assert (
            "bind a ClusterRole" in explained(informer, Forbidden("configmaps is forbidden", code=403)).advice
        )


@virtual_time
async def test_a_conversion_without_its_definition_is_told_to_install_that() -> None:
    class Old(KubeObject, group="mistakes.example", version="v1beta1", kind="App"):
        pass

    @converts(Old, App)
    def upgrade(old: Old) -> App:
        return App(metadata=old.metadata)

    @converts(App, Old)
    def downgrade(app: App) -> Old:
        return Old(metadata=app.metadata)

    webhooks = Webhooks("apps", [upgrade, downgrade], url="https://127.0.0.1")
    async with MemoryApi(ApiServer(world=virtual_world())).client() as client:
        with pytest.raises(
            Exception,
            match=r"the CustomResourceDefinition apps\.mistakes\.example is not installed, .*apply the definition",
        ):
            await webhooks._write(Registrar(client), "", None)
