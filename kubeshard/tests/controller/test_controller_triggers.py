"""No trigger is lost: map functions and predicates that raise, and resync, on virtual time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from controller_bench import Bench, Site, Theme, child, json_answer, site

from kubeshard import when
from kubeshard.cache.scope import ALL_NAMESPACES
from kubeshard.controller import Context, Controller, Reconciler, Watch
from kubeshard.controller.mapping import Reader
from kubeshard.core import ConfigMap, Key, KubeObject, MergePatch, ObjectMeta
from kubeshard.runtime.pace import STEPS
from kubeshard.runtime.transport import HttpResponse
from kubeshard_lab.virtual_time import virtual_time

A, B = Key("ns", "a"), Key("ns", "b")
HOUR = 3600.0

pytestmark = pytest.mark.regression


class Seen:
    def __init__(self) -> None:
        self.runs: list[tuple[float, Key]] = []

    async def __call__(self, ctx: Context, obj: Any) -> None:
        self.runs.append((asyncio.get_running_loop().time(), ctx.key))

    @property
    def keys(self) -> list[Key]:
        return [key for _, key in self.runs]


class Mapper:
    """Maps a Theme to the Site in its annotation; raises while told to."""

    def __init__(self) -> None:
        self.broken: Callable[[Theme], bool] = lambda _: False
        self.calls: list[tuple[str, str]] = []

    def __call__(self, reader: Reader, theme: Theme) -> Iterable[Key]:
        name, version = theme.metadata.name, theme.metadata.resource_version
        self.calls.append((name, version))
        if self.broken(theme):
            raise RuntimeError("cannot map")
        return (Key("ns", theme.metadata.annotation("site") or "a"),)


def theme(name: str = "t", version: int = 1, to: str = "a") -> Theme:
    metadata = ObjectMeta(name=name, uid=name, resource_version=str(version), annotations={"site": to})
    return Theme(metadata=metadata)


def mapped(seen: Seen, mapper: Any, **options: Any) -> Bench:
    return Bench(
        seen,
        gone=lambda ctx, key: seen(ctx, None),
        primary=Watch(Site, when=when.never),
        watches=[Watch(Theme, to=mapper)],
        **options,
    )


def broken(theme: Theme) -> bool:
    return True


async def until(happened: Callable[[], bool]) -> None:
    while not happened():  # noqa: ASYNC110 - virtual time
        await asyncio.sleep(1)


# -- map functions that raise


@virtual_time
async def test_a_change_whose_mapping_failed_triggers_as_soon_as_mapping_works() -> None:
    seen, mapper = Seen(), Mapper()
    mapper.broken = broken
    async with mapped(seen, mapper).running() as bench:
        await bench.put(theme())
        await asyncio.sleep(10)
        assert seen.runs == []
        mapper.broken = lambda _: False
        await asyncio.sleep(30)
    assert seen.keys == [A]


@virtual_time
async def test_mapping_that_fails_for_hours_is_tried_every_two_minutes_and_in_the_end_triggers() -> None:
    seen, mapper = Seen(), Mapper()
    mapper.broken = broken
    async with mapped(seen, mapper).running() as bench:
        await bench.put(theme())
        await asyncio.sleep(5 * HOUR)
        tries = len(mapper.calls)
        mapper.broken = lambda _: False
        await asyncio.sleep(120)
    assert 5 * 30 <= tries <= 5 * 60 + 8
    assert seen.keys == [A]


@virtual_time
async def test_what_an_object_depended_on_is_told_though_mapping_failed_in_between() -> None:
    seen, mapper = Seen(), Mapper()
    async with mapped(seen, mapper).running() as bench:
        await bench.put(theme(to="a"))
        mapper.broken = broken
        for version, to in ((2, "b"), (3, "c")):
            await bench.put(theme(version=version, to=to))
        seen.runs.clear()
        mapper.broken = lambda _: False
        mapper.calls.clear()
        await asyncio.sleep(30)
    assert mapper.calls == [("t", "1"), ("t", "2"), ("t", "3")]
    assert seen.keys == [A, B, Key("ns", "c")]


@virtual_time
async def test_an_objects_next_change_maps_what_waits_first_and_ends_the_waiting() -> None:
    seen, mapper = Seen(), Mapper()
    async with mapped(seen, mapper).running() as bench:
        mapper.broken = broken
        await bench.put(theme(to="a"))
        mapper.broken = lambda _: False
        await bench.put(theme(version=2, to="b"))
        assert seen.keys == [A, B]
        mapper.calls.clear()
        await asyncio.sleep(HOUR)
    assert mapper.calls == []


@virtual_time
async def test_the_last_state_of_a_deleted_object_is_mapped_too() -> None:
    seen, mapper = Seen(), Mapper()
    async with mapped(seen, mapper).running(theme()) as bench:
        seen.runs.clear()
        mapper.broken = broken
        await bench.remove(theme(version=2))
        mapper.broken = lambda _: False
        await asyncio.sleep(10)
    assert seen.keys == [A]


@virtual_time
async def test_a_state_that_can_never_be_mapped_does_not_keep_its_successor_back_and_is_given_up() -> None:
    seen, mapper = Seen(), Mapper()
    mapper.broken = lambda theme: theme.metadata.annotation("site") == "poison"
    async with mapped(seen, mapper).running() as bench:
        await bench.put(theme(to="poison"))
        await bench.put(theme(version=2, to="b"))
        assert seen.keys == [B]
        await asyncio.sleep(2 * HOUR)
        mapper.calls.clear()
        await asyncio.sleep(6 * HOUR)
    assert mapper.calls == []


@virtual_time
async def test_of_a_busy_object_that_cannot_be_mapped_the_oldest_and_the_newest_states_are_kept() -> None:
    seen, mapper = Seen(), Mapper()
    mapper.broken = broken
    async with mapped(seen, mapper).running() as bench:
        for version in range(1, 1001):
            await bench.put(theme(version=version))
        mapper.broken = lambda _: False
        mapper.calls.clear()
        await asyncio.sleep(120)
    assert mapper.calls == [("t", "1"), *(("t", str(version)) for version in range(994, 1001))]


@pytest.mark.parametrize(
    "raised", [RuntimeError("x"), SystemExit(1), asyncio.CancelledError()], ids=lambda e: type(e).__name__
)
def test_a_failing_map_function_harms_no_other_object_and_no_other_controller(raised: BaseException) -> None:
    def to(reader: Reader, theme: Theme) -> Iterable[Key]:
        if theme.metadata.name == "bad":
            raise raised
        return (A,)

    @virtual_time
    async def check() -> None:
        seen, others = Seen(), []
        bench = mapped(seen, to)
        async with bench.running():
            bench.cache.informer(Theme).add_handler(others.append)
            await bench.put(theme("bad"))
            await bench.put(theme("good"))
            assert seen.keys == [A]
            assert len(others) == 2

    check()


@pytest.mark.parametrize("wrong", [None, [1], ["ns/a"]], ids=str)
def test_what_is_no_key_counts_as_a_failure(wrong: Any) -> None:
    @virtual_time
    async def check() -> None:
        seen = Seen()
        async with mapped(seen, lambda reader, theme: wrong).running() as bench:
            await bench.put(theme())
            assert bench.recorded.trigger_failures == [("Theme.v1.example.com", "map")]

    check()


def test_an_async_map_function_is_refused() -> None:
    async def to(reader: Reader, theme: Theme) -> Iterable[Key]:
        return ()

    class Nothing(Reconciler[Site]):
        async def reconcile(self, ctx: Context, obj: Site) -> None: ...

    with pytest.raises(
        TypeError, match=r"watch of Theme.v1.example.com: the map function `to` is a plain function"
    ):
        Controller(
            name="site",
            reconciler=Nothing(),
            primary=Site,
            watches=[Watch(Theme, to=to)],  # type: ignore[arg-type]
        )


@virtual_time
async def test_a_map_function_that_gives_text_is_told_to_give_keys(caplog: pytest.LogCaptureFixture) -> None:
    wrong = Watch(Theme, to=lambda reader, theme: ["ns/a"])  # type: ignore[arg-type, list-item] # the mistake
    seen = Seen()
    async with Bench(seen, watches=[wrong]).running() as bench:
        await bench.put(theme())
    assert seen.runs == []
    (line,) = [record for record in caplog.records if record.message.startswith("Map function failed")]
    assert "map functions return Key(namespace, name), not 'ns/a'" in str(line.__dict__["fields"]["error"])


# -- predicates that raise


@virtual_time
async def test_a_change_whose_predicate_raises_counts() -> None:
    def test(obj: Site) -> bool:
        raise KeyError("label")

    seen = Seen()
    async with Bench(seen, primary=Watch(Site, when=when.matching(test))).running(site("a")) as bench:
        await bench.put(site("b"))
        assert seen.keys == [A, B]
        assert bench.recorded.trigger_failures == [("Site.v1.example.com", "predicate")] * 2


@virtual_time
async def test_failures_are_logged_with_the_objects_key_but_not_each_of_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    mapper = Mapper()
    mapper.broken = broken
    async with mapped(Seen(), mapper).running() as bench:
        for number in range(100):
            await bench.put(theme(f"t{number}"))
        await asyncio.sleep(60)
        assert len(bench.recorded.trigger_failures) > 500
    lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert 1 < len(lines) <= 7
    fields: dict[str, Any] = lines[0].__dict__["fields"]
    assert lines[0].msg == "Map function failed; trying this change again"
    assert (fields["controller"], fields["source"], fields["object"]) == (
        "site",
        "Theme.v1.example.com",
        Key("", "t0"),
    )
    assert lines[0].exc_info
    assert not lines[1].exc_info


# -- resync


@virtual_time
async def test_every_ten_hours_all_objects_trigger_again_without_a_request() -> None:
    seen = Seen()
    async with Bench(seen).running(site("a"), site("b")) as bench:
        await asyncio.sleep(8.9 * HOUR)
        assert seen.keys == [A, B]
        await asyncio.sleep(2.2 * HOUR)
        assert seen.keys == [A, B, A, B]
        await asyncio.sleep(11.1 * HOUR)
        assert seen.keys == [A, B] * 3
        assert bench.server.requests == []


@virtual_time
async def test_a_resync_repairs_a_trigger_that_a_predicate_dropped_and_respects_what_it_filters() -> None:
    seen = Seen()
    filtered = when.generation_changed & when.matching(lambda obj: obj.metadata.name != "b")
    async with Bench(seen, primary=Watch(Site, when=filtered, resync=HOUR)).running(
        site("a"), site("b")
    ) as bench:
        await bench.put(site("a", 2, generation=1))  # not a new generation
        assert seen.keys == [A]
        await asyncio.sleep(1.2 * HOUR)
    assert seen.keys == [A, A]


@virtual_time
async def test_a_resync_of_a_mapped_kind_maps_every_object() -> None:
    seen, mapper = Seen(), Mapper()
    bench = Bench(
        seen,
        gone=lambda ctx, key: seen(ctx, None),
        primary=Watch(Site, when=when.never),
        watches=[Watch(Theme, to=mapper, resync=HOUR)],
    )
    async with bench.running(theme("t", to="a"), theme("u", to="b")):
        seen.runs.clear()
        await asyncio.sleep(1.2 * HOUR)
    assert seen.keys == [A, B]


@virtual_time
async def test_zero_turns_resync_off() -> None:
    seen = Seen()
    async with Bench(seen, primary=Watch(Site, resync=0)).running(site("a")):
        await asyncio.sleep(23 * HOUR)
    assert seen.keys == [A]


@virtual_time
async def test_a_change_during_a_resync_waits_behind_as_many_keys_as_there_are_workers() -> None:
    order: list[Key] = []
    longest = 0

    async def slow(ctx: Context, obj: Any) -> None:
        nonlocal longest
        longest = max(longest, len(bench.runner.queue))
        order.append(ctx.key)
        await asyncio.sleep(1)

    objects: list[KubeObject] = [site(f"s{number}") for number in range(50)]
    bench = Bench(slow, primary=Watch(Site, resync=HOUR), workers=2)
    async with bench.running(*objects):
        await asyncio.sleep(0.8 * HOUR)
        order.clear()
        await until(lambda: bool(order))
        longest = 0
        await bench.put(site("fresh"))
        await asyncio.sleep(60)
    assert longest <= 3
    assert order.index(Key("ns", "fresh")) <= 7
    assert len(order) == 51


@virtual_time
async def test_fifty_thousand_objects_are_resynced_a_few_at_a_time_while_others_run() -> None:
    asked, begun = 0, asyncio.Event()

    def ask(obj: Site) -> bool:
        nonlocal asked
        asked += 1
        begun.set()
        return False

    bench = Bench(Seen(), primary=Watch(Site, when=when.matching(ask), resync=HOUR))
    async with bench.running(*(site(f"s{number}") for number in range(50_000))):
        asked = turns = longest = 0
        begun.clear()
        await begun.wait()
        while asked < 50_000:
            before = asked
            await asyncio.sleep(0)
            turns, longest = turns + 1, max(longest, asked - before)
        assert asked == 50_000
        assert longest <= STEPS
        assert turns >= 49_000 / STEPS


@virtual_time
async def test_objects_that_left_during_a_resync_are_not_triggered() -> None:
    seen = Seen()

    async def slow(ctx: Context, obj: Any) -> None:
        await seen(ctx, obj)
        await asyncio.sleep(1)

    async with Bench(slow, primary=Watch(Site, resync=HOUR)).running(
        site("a"), site("b"), site("c")
    ) as bench:
        await asyncio.sleep(0.8 * HOUR)
        seen.runs.clear()
        await until(lambda: bool(seen.runs))
        await bench.remove(site("c", 2))
        await asyncio.sleep(10)
        runs = seen.keys
    assert runs in ([A, B], [A])  # a deleted object is `gone` once, because of its deletion


def test_a_negative_resync_is_refused() -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        Watch(Site, resync=-1)


# -- full lists


@virtual_time
async def test_what_a_full_list_shows_counts_as_new_though_the_predicate_sees_no_change() -> None:
    """Its generation is the same, which says nothing if the server was restored from a backup meanwhile."""
    seen = Seen()
    async with Bench(seen, primary=Watch(Site, when=when.generation_changed)).running(
        site("a", 5, generation=1), site("b", 5, generation=1)
    ) as bench:
        seen.runs.clear()
        await bench.synced(site("a", 6, generation=1), site("b", 5, generation=1))
        assert seen.keys == [A]
        await bench.put(site("a", 7, generation=1))
        assert seen.keys == [A]


@virtual_time
async def test_of_a_full_list_the_predicate_still_decides_as_for_new_objects() -> None:
    seen = Seen()
    dark = when.matching(lambda site: site.spec.theme == "dark")
    async with Bench(seen, primary=Watch(Site, when=dark)).running(site("a", 5), site("b", 5)) as bench:
        await bench.synced(site("a", 6), site("b", 6, theme="dark"))
        assert seen.keys == [B]


@virtual_time
async def test_what_only_counts_as_new_waits_behind_what_changed() -> None:
    order: list[str] = []
    free = asyncio.Event()

    async def reconcile(ctx: Context, obj: Site) -> None:
        order.append(ctx.key.name)
        await free.wait()

    before = [site(name, 5, generation=1) for name in ("busy", "a", "b", "c")]
    async with Bench(reconcile, primary=Watch(Site, when=when.generation_changed)).running() as bench:
        free.set()
        await bench.synced(*before)
        await asyncio.sleep(1)
        free.clear()
        await bench.put(site("busy", 6, generation=2))
        order.clear()
        after = [site(name, 7, generation=1) for name in ("a", "b")]
        await bench.synced(site("busy", 6, generation=2), *after, site("c", 7, generation=2))
        free.set()
        await asyncio.sleep(1)
    assert order == ["c", "a", "b"]


# -- what a run has written itself


def writing(*, to: str = "c", **watch: Any) -> tuple[list[Key], Bench]:
    """A controller whose first run writes a child of Site a, which is answered with version 5."""
    runs: list[Key] = []

    async def reconcile(ctx: Context, obj: Any) -> None:
        runs.append(ctx.key)
        if len(runs) == 1:
            await ctx.client.create(ConfigMap(metadata=ObjectMeta(name=to, namespace="ns")))

    def answer(_: object) -> HttpResponse:
        return json_answer(child(to, "a", version=5))

    return runs, Bench(reconcile, answer=answer, owns=[Watch(ConfigMap, **watch)])


@virtual_time
@pytest.mark.parametrize("echoes", [True, False])
async def test_what_a_run_wrote_triggers_its_object_again_unless_the_watch_says_otherwise(
    echoes: bool,
) -> None:
    runs, bench = writing(echoes=echoes)
    async with bench.running(site()):
        await bench.put(child("c", "a", version=5))
        assert runs == [A] * (1 + echoes)


@virtual_time
async def test_without_echoes_everything_else_still_triggers() -> None:
    runs, bench = writing(echoes=False)
    async with bench.running(site()):
        await bench.put(child("c", "a", version=5))
        await bench.put(child("c", "a", version=6))  # somebody else's change
        assert runs == [A, A]
        await bench.put(child("d", "a", version=5))  # another object
        assert runs == [A, A, A]


@virtual_time
async def test_what_a_run_for_another_object_wrote_is_no_echo() -> None:
    runs, bench = writing(echoes=False)
    async with bench.running(site(), site("b")):
        await bench.put(child("c", "b", version=5))
        assert runs == [A, B, B]


@virtual_time
async def test_an_echo_that_takes_an_object_from_another_one_triggers_that() -> None:
    runs, bench = writing(echoes=False)
    async with bench.running(site(), site("b"), child("c", "b", version=4)):
        await bench.put(child("c", "a", version=5))
        assert runs == [A, B, B]


@virtual_time
async def test_an_event_that_comes_before_the_answer_of_its_write_is_an_echo_too() -> None:
    runs, bench = writing(echoes=False)

    async def late(_: object) -> HttpResponse:
        bench.cache.informer(ConfigMap).put(child("c", "a", version=5), ALL_NAMESPACES)
        await asyncio.sleep(1)
        return json_answer(child("c", "a", version=5))

    bench.server.answer = late
    async with bench.running(site()):
        await asyncio.sleep(2)
    assert runs == [A]


async def answered_with_what_others_wrote(
    obj: KubeObject, *before: KubeObject, early: bool, **options: Any
) -> list[Key]:
    """The runs, of which the first one sends a patch that changes nothing. The event of what somebody else wrote comes
    before that (`early`), or after it.
    """
    runs, form = list[Key](), type(obj)

    async def reconcile(ctx: Context, _: Any) -> None:
        runs.append(ctx.key)
        if len(runs) > 1:
            return
        if early:
            await bench.put(obj)
        await ctx.client.patch(form, obj.metadata.name, "ns", MergePatch({}))

    bench = Bench(reconcile, answer=lambda _: json_answer(obj), **options)
    async with bench.running(*before):
        if not early:
            await bench.put(obj)
        await asyncio.sleep(1)
    return runs


@virtual_time
@pytest.mark.parametrize("early", [True, False])
async def test_a_write_that_changes_nothing_takes_no_new_spec_of_its_object_for_an_echo(early: bool) -> None:
    """Its answer has the version that somebody else has written."""
    primary = Watch(Site, echoes=False)
    assert await answered_with_what_others_wrote(site("a", 2), site(), early=early, primary=primary) == [A, A]


@virtual_time
async def test_what_came_before_a_write_was_sent_is_no_echo_of_it() -> None:
    owns = [Watch(ConfigMap, echoes=False)]
    theirs, before = child("c", "a", version=5), [site(), child("c", "a", version=3)]
    assert await answered_with_what_others_wrote(theirs, *before, early=True, owns=owns) == [A, A]


@virtual_time
async def test_what_a_full_list_shows_is_no_echo_since_it_may_hide_what_others_wrote_before() -> None:
    runs, bench = writing(echoes=False)
    async with bench.running(site(), child("c", "a", version=3)):
        await bench.synced(site(), child("c", "a", version=5))
        assert runs == [A, A]


@virtual_time
async def test_an_echo_does_not_take_with_it_what_could_not_be_mapped_before() -> None:
    runs, mapper = list[Key](), Mapper()
    mapper.broken = broken

    async def reconcile(ctx: Context, obj: Any) -> None:
        runs.append(ctx.key)
        if len(runs) == 1:
            await ctx.client.create(Theme(metadata=ObjectMeta(name="t")))

    bench = Bench(
        reconcile,
        answer=lambda _: json_answer(theme(version=2)),
        watches=[Watch(Theme, to=mapper, echoes=False)],
    )
    async with bench.running(site()):
        await bench.put(theme(version=1))  # somebody else's change
        mapper.broken = lambda _: False
        await bench.put(theme(version=2))
        assert runs == [A, A]
