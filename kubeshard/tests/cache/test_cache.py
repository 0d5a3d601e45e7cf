from __future__ import annotations

import asyncio
from contextlib import suppress

import msgspec
import pytest
from scripted_client import ScriptedClient, Widget, WidgetSpec

from kubeshard import ALL
from kubeshard.cache import (
    Added,
    Cache,
    CacheBehind,
    Deleted,
    Informer,
    Interrupted,
    OutsideScope,
    Scope,
    TransformFailed,
    UndeclaredIndex,
    UndeclaredKind,
)
from kubeshard.cache.transforms import NotKept
from kubeshard.core import WrongNamespace
from kubeshard.core.builtin import Namespace
from kubeshard.core.errors import ConfigurationError, Forbidden, Gone
from kubeshard.core.objects import Form, KubeObject, metadata_only
from kubeshard.core.selectors import FieldSelector, Selector
from kubeshard.listwatch.reflector import READ_DEADLINE
from kubeshard.listwatch.state_machine import Listed
from kubeshard_lab.virtual_time import settle, virtual_time

MINE = Scope(labels=Selector.equals("shard", "me"))
X_ONLY = Scope(namespaces=frozenset({"x"}))


@virtual_time
async def test_reading_what_nobody_declared_is_an_error() -> None:
    cache = Cache(ScriptedClient().client)
    cache.declare(metadata_only(Widget))
    with pytest.raises(UndeclaredKind, match="Widget"):
        cache.get(Widget, "a", "x")
    with pytest.raises(UndeclaredKind):
        cache.list(Widget, ALL)
    async with cache.running():
        await cache.synced()
        assert cache.get(metadata_only(Widget), "a", "x") is None


@virtual_time
async def test_one_informer_per_form_and_scope() -> None:
    cache = Cache(ScriptedClient().client)
    informer = cache.declare(Widget)
    assert cache.declare(Widget) is informer
    assert cache.declare(Widget, Scope()) is informer
    assert cache.declare(metadata_only(Widget)) is not informer
    assert cache.declare(Widget, MINE) is not informer
    assert len(cache.informers) == 3
    assert len(list(cache.informers_of(Widget.KIND))) == 3


@pytest.mark.parametrize(
    ("scope", "text"),
    [
        (Scope(), "all namespaces"),
        (MINE, "all namespaces; labels shard=me"),
        (
            Scope(namespaces=frozenset({"b", "a"}), fields=FieldSelector.parse("spec.x=1")),
            "a, b; fields spec.x=1",
        ),
        (Scope(namespaces=frozenset()), "no namespaces"),
    ],
)
def test_a_scope_is_told_in_words_of_kubectl(scope: Scope, text: str) -> None:
    assert str(scope) == text


class OtherWidget(KubeObject, group="example.com", version="v1", kind="Widget"):
    pass


@pytest.mark.regression
@virtual_time
async def test_a_kind_is_cached_as_one_class_in_each_scope() -> None:
    cache = Cache(ScriptedClient().client)
    informer = cache.declare(Widget)
    both = r"scripted_client\.Widget.*test_cache\.OtherWidget.*use one class"
    with pytest.raises(ConfigurationError, match=both):
        cache.declare(OtherWidget)
    with pytest.raises(UndeclaredKind, match=both):
        cache.get(OtherWidget, "a", "x")
    assert cache.informers == (informer,)
    assert cache.declare(Form(Widget.KIND, Widget)) is informer
    cache.declare(metadata_only(OtherWidget))
    cache.declare(OtherWidget, MINE)
    cache.remove(informer)
    cache.declare(OtherWidget)


@virtual_time
async def test_the_scope_of_a_kind_goes_before_the_default_scope() -> None:
    scopes = {Widget.KIND.group_kind: MINE}
    cache = Cache(ScriptedClient().client, scopes=scopes, default_scope=X_ONLY)
    assert cache.declare(Widget).scope == MINE
    assert cache.scope_of(Namespace.KIND) == X_ONLY


@virtual_time
async def test_a_read_finds_the_only_declared_scope_and_refuses_to_guess_between_two() -> None:
    cache = Cache(ScriptedClient().client)
    mine = cache.declare(Widget, MINE)
    assert cache.informer(Widget) is mine
    cache.declare(Widget, X_ONLY)
    with pytest.raises(UndeclaredKind, match="2 scopes"):
        cache.informer(Widget)
    assert cache.informer(Widget, MINE) is mine
    everything = cache.declare(Widget)
    assert cache.informer(Widget) is everything


@virtual_time
async def test_a_namespace_outside_the_scope_is_an_error_and_not_an_absence() -> None:
    cache = Cache(ScriptedClient().client, default_scope=X_ONLY)
    cache.declare(Widget)
    cache.declare(Namespace)
    async with cache.running():
        await cache.synced()
        assert cache.get(Widget, "a", "x") is None
        with pytest.raises(OutsideScope):
            cache.get(Widget, "a", "y")
        with pytest.raises(OutsideScope):
            cache.list(Widget, "y")
        assert cache.get(Namespace, "y") is None


@virtual_time
async def test_lists_select_by_namespace_index_and_labels() -> None:
    api = ScriptedClient()
    a = api.put("x/a", "red", labels={"tier": "1"})
    b = api.put("y/b", "red", labels={"tier": "2"})
    c = api.put("y/c", "blue", labels={"tier": "1"})
    cache = Cache(api.client)
    cache.add_index(Widget, "color", lambda widget: [widget.spec.color])
    async with cache.running():
        await cache.synced()
        assert cache.list(Widget, ALL) == [a, b, c]
        assert cache.list(Widget, "y") == [b, c]
        assert cache.list(Widget, ALL, index=("color", "red")) == [a, b]
        assert cache.list(Widget, "y", index=("color", "red")) == [b]
        assert cache.list(Widget, ALL, labels=Selector.equals("tier", "1")) == [a, c]
        with pytest.raises(UndeclaredIndex, match=r"^Widget.*: there is no index 'owner'"):
            cache.list(Widget, ALL, index=("owner", "x"))


@virtual_time
async def test_an_informer_declared_while_the_cache_runs_starts_at_once() -> None:
    api = ScriptedClient()
    a = api.put("x/a")
    cache = Cache(api.client)
    async with cache.running():
        await cache.synced()
        cache.declare(Widget)
        await cache.synced()
        assert cache.list(Widget, ALL) == [a]
        assert cache.declare(Widget).has_synced
        await settle()
        assert len(api.streams) == 1


@pytest.mark.regression
@virtual_time
async def test_what_is_waited_for_is_told_once_and_without_what_is_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cache = Cache(ScriptedClient().client)
    late, missing = cache.declare(Widget), cache.declare(Namespace)
    cache.declare(metadata_only(Widget))
    waiting = asyncio.create_task(cache.synced())
    await asyncio.sleep(5)
    for informer in cache.informers:
        if informer not in (late, missing):
            await informer.listed(Listed("1"), {}, "")
    await asyncio.sleep(60)
    await late.listed(Listed("1"), {}, "")
    await asyncio.sleep(60)
    kinds = [record.__dict__["fields"]["kinds"] for record in caplog.records]
    assert kinds == ["Widget.v1.example.com, Namespace.v1", "Namespace.v1"]
    waiting.cancel()


@virtual_time
async def test_nothing_runs_after_the_block() -> None:
    api = ScriptedClient()
    cache = Cache(api.client)
    cache.declare(Widget)
    async with cache.running():
        await cache.synced()
    assert api.streams == []
    assert len(asyncio.all_tasks()) == 1


@virtual_time
async def test_an_error_of_the_block_passes_as_it_is() -> None:
    cache = Cache(ScriptedClient().client)
    cache.declare(Widget)
    with pytest.raises(KeyError):
        async with cache.running():
            raise KeyError("the block's own")


@pytest.mark.regression
@virtual_time
async def test_an_index_function_that_raises_ends_nothing_and_names_index_and_object(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(widget: Widget) -> list[str]:
        return [widget.metadata.annotations["must"]]  # type: ignore[index]  # the mistake

    api = ScriptedClient()
    cache = Cache(api.client)
    cache.add_index(Widget, "owner", broken)
    async with cache.running():
        await cache.synced()
        for number in range(5):
            api.put(f"x/{number}")
        sound = api.put("x/sound", annotations={"must": "me"})
        await settle()
        assert cache.list(Widget, ALL, index=("owner", "me")) == [sound]
        assert len(cache.list(Widget, ALL)) == 6
        assert cache.get(Widget, "0", "x") is not None
        assert cache.informer(Widget).index_errors == 5
    (record,) = [record for record in caplog.records if "index function" in record.getMessage()]
    fields = record.fields  # type: ignore[attr-defined]  # of our logs
    assert (fields["index"], fields["object"], fields["kind"]) == ("owner", "x/0", "Widget.v1.example.com")


@pytest.mark.regression
@pytest.mark.parametrize("mistake", ["raises", "returns nothing", "returns another kind", "renames"])
def test_an_object_whose_transform_fails_is_readable_for_nobody_and_harms_no_other(
    mistake: str, caplog: pytest.LogCaptureFixture
) -> None:
    def transform(widget: Widget) -> Widget:
        if widget.metadata.name == "sound":
            return msgspec.structs.replace(widget, spec=WidgetSpec(color="changed"))
        if mistake == "raises":
            raise KeyError("bug")
        if mistake == "renames":
            metadata = msgspec.structs.replace(widget.metadata, name="another")
            return msgspec.structs.replace(widget, metadata=metadata)
        if mistake == "returns another kind":
            return Namespace(metadata=widget.metadata)  # type: ignore[return-value]  # the mistake
        return None  # type: ignore[return-value]  # the mistake

    @virtual_time
    async def check() -> None:
        api = ScriptedClient()
        api.put("x/a", "secret")
        api.put("x/sound", "red")
        cache = Cache(api.client, transforms={Widget.KIND: transform})
        told: list[object] = []
        informer = cache.declare(Widget)
        informer.add_handler(told.append)
        async with cache.running():
            await cache.synced()
            api.put("x/b", "secret")
            await settle()
            for name in "ab":
                with pytest.raises(
                    TransformFailed, match=f"x/{name} does not fit Widget: its transform failed"
                ):
                    cache.get(Widget, name, "x")
            (sound,) = cache.list(Widget, ALL)
            assert sound.spec.color == "changed"
            assert told == [Added(sound, initial=True)]
            assert informer.transform_errors == informer.undecodable == 2
            api.delete("x/a")
            await settle()
            assert cache.get(Widget, "a", "x") is None

    check()
    (record,) = [record for record in caplog.records if "A transform failed" in record.getMessage()]
    assert record.exc_info is not None, "its author needs the trace"
    assert "secret" not in caplog.text


@virtual_time
async def test_what_a_transform_does_not_keep_is_not_there_from_then_on() -> None:
    def transform(widget: Widget) -> Widget:
        if widget.spec.color == "red":
            raise NotKept
        return widget

    api = ScriptedClient()
    api.put("x/a", "red")
    api.put("x/b", "green")
    cache = Cache(api.client, transforms={Widget.KIND: transform})
    told: list[str] = []
    cache.declare(Widget).add_handler(lambda delta: told.append(type(delta).__name__))
    async with cache.running():
        await cache.synced()
        assert [each.metadata.name for each in cache.list(Widget, ALL)] == ["b"]
        api.put("x/b", "red")
        await settle()
        assert not cache.list(Widget, ALL)
        api.put("x/a", "green")
        await settle()
        assert [each.metadata.name for each in cache.list(Widget, ALL)] == ["a"]
    assert told == ["Added", "Deleted", "Added"]


@virtual_time
async def test_a_removed_informer_stops_alone() -> None:
    api = ScriptedClient()
    cache = Cache(api.client)
    cache.declare(Namespace)
    async with cache.running():
        informer = cache.declare(Widget)
        await cache.synced()
        cache.remove(informer)
        await settle()
        assert len(api.streams) == 1
        with pytest.raises(UndeclaredKind):
            cache.list(Widget, ALL)
        assert cache.declare(Widget) is not informer
        await cache.synced()


@virtual_time
async def test_the_last_user_of_an_informer_stops_its_watch() -> None:
    api = ScriptedClient()
    a = api.put("x/a")
    cache = Cache(api.client)
    told: list[object] = []
    async with cache.running():
        async with cache.using(Widget) as first:
            await first.synced()
            async with cache.using(Widget) as second:
                assert second is first
                with second.add_handler(told.append) as registration:
                    await registration.synced()
                    assert told == [Added(a, initial=True)]
            api.put("x/b")
            await settle()
            assert len(api.streams) == 1
            assert len(told) == 1, "the handler left with its user"
            assert len(cache.list(Widget, ALL)) == 2
        assert api.streams == []
        with pytest.raises(UndeclaredKind):
            cache.list(Widget, ALL)
        async with cache.using(Widget) as again:
            assert again is not first
            await again.synced()
            assert len(api.streams) == 1
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize("declared", ["before", "meanwhile"])
def test_an_informer_that_was_declared_stays_when_its_users_leave(declared: str) -> None:
    @virtual_time
    async def check() -> None:
        api = ScriptedClient()
        cache = Cache(api.client)
        if declared == "before":
            cache.declare(Widget)
        async with cache.running():
            async with cache.using(Widget) as informer:
                assert cache.declare(Widget) is informer
                await informer.synced()
            await settle()
            assert len(api.streams) == 1
            assert cache.informer(Widget) is informer

    check()


@virtual_time
async def test_a_user_that_fails_leaves_as_any_other() -> None:
    api = ScriptedClient()
    cache = Cache(api.client)
    async with cache.running():
        with suppress(KeyError):
            async with cache.using(Widget) as informer:
                await informer.synced()
                raise KeyError("the block's own")
        assert api.streams == []
        async with cache.using(Widget) as informer:
            cache.remove(informer)
            other = cache.declare(Widget)
        assert cache.informer(Widget) is other


@virtual_time
async def test_each_failure_of_a_list_or_watch_is_counted_by_class_and_told_to_the_hook() -> None:
    api = ScriptedClient()
    told: list[tuple[str, str, float]] = []

    def hook(informer: Informer[object], interrupted: Interrupted) -> None:  # type: ignore[type-var]  # any
        told.append((str(informer), type(interrupted.error).__name__, interrupted.seconds))
        raise RuntimeError("bug of the hook")

    cache = Cache(api.client, on_watch_error=hook)
    informer = cache.declare(Widget)
    api.down = Forbidden("no", code=403)
    async with cache.running():
        await asyncio.sleep(20)
        refused = informer.errors["Forbidden"]
        api.down = None
        await asyncio.sleep(60 + READ_DEADLINE)
        api.end_streams(Gone("expired", code=410))
        await asyncio.sleep(5)
        assert informer.errors == {"Forbidden": refused, "Timeout": 1, "Gone": 1}
        assert informer.failures == refused + 2 == len(told)
        assert informer.handler_errors == len(told), "a hook that raises ends nothing"
    kind = "Widget.v1.example.com"
    assert refused >= 3
    assert told[0][:2] == (kind, "Forbidden")
    assert told[0][2] > 0
    assert told[-2:] == [(kind, "Timeout", 0.0), (kind, "Gone", told[-1][2])]


@virtual_time
async def test_a_cache_that_runs_again_reads_everything_again() -> None:
    api = ScriptedClient()
    a = api.put("x/a")
    cache = Cache(api.client)
    told: list[object] = []
    cache.declare(Widget).add_handler(told.append)
    async with cache.running():
        await cache.synced()
    api.delete("x/a")
    b = api.put("x/b")
    async with cache.running():
        await settle()
    assert told == [Added(a, initial=True), Deleted(a, final=False), Added(b)]


@virtual_time
async def test_transforms_shape_objects_before_they_are_stored() -> None:
    api = ScriptedClient()
    api.put("x/a", "red")

    def bare(widget: Widget) -> Widget:
        return msgspec.structs.replace(widget, spec=type(widget.spec)())

    cache = Cache(api.client, transforms={Widget.KIND.group_kind: bare})
    cache.declare(Widget)
    async with cache.running():
        await cache.synced()
        assert cache.list(Widget, ALL)[0].spec.color == ""


@pytest.mark.regression
@virtual_time
async def test_a_read_is_never_answered_with_absent_before_the_cache_is_filled_or_in_the_wrong_place() -> (
    None
):
    api = ScriptedClient()
    there = api.put("x/a")
    cache = Cache(api.client)
    cache.declare(Widget)
    with pytest.raises(CacheBehind, match="run the cache"):
        cache.list(Widget, ALL)
    async with cache.running():
        with pytest.raises(CacheBehind, match=r"Widget.*not filled yet"):
            cache.get(Widget, "a", "x")
        cache.declare(Namespace)
        await cache.synced()
        assert cache.get(Widget, "a", "x") == there
        with pytest.raises(WrongNamespace, match="say in which one 'a' is"):
            cache.get(Widget, "a")
        with pytest.raises(WrongNamespace, match="has no namespaces"):
            cache.get(Namespace, "x", "x")
        with pytest.raises(WrongNamespace, match="has no namespaces"):
            cache.list(Namespace, "x")
