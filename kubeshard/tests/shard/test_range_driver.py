"""The driver of a shard by ranges does what `RangeOwnership` says; here with an API server that fails."""

import asyncio
import logging
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from kubeshard.cache.deltas import Added, Deleted, Updated
from kubeshard.core.builtin import ConfigMap, Lease, LeaseSpec
from kubeshard.core.errors import NotFound, NotOurs, PatchTestFailed, Unavailable
from kubeshard.core.objects import ObjectMeta
from kubeshard.runtime.clock import Clock, SystemClock
from kubeshard.shard.range_driver import RangeDriver, until_able
from kubeshard.shard.range_ownership import RangeOwnership, State
from kubeshard.sharding.assignment import BY_LABELS, Assignment, Place
from kubeshard.sharding.buckets import Buckets
from kubeshard.sharding.names import OWNED_RANGES_ANNOTATION
from kubeshard_lab.virtual_time import VirtualClock, virtual_time

BUCKETS = Buckets(2)


def says(*places: str) -> Assignment:
    return Assignment.of(BUCKETS, dict(enumerate(map(Place.parse, places))))


def heard(*assignments: Assignment) -> RangeOwnership:
    """Of a shard that has seen these, one after the other, and had each confirmed."""
    ownership = RangeOwnership("a", BUCKETS)
    for each in assignments:
        ownership.seen(each)
        ownership.confirm(ownership.unconfirmed, each)
    return ownership


SHARD: Any = SimpleNamespace(name="a", ring="r", namespace="ops")


def api(clock: Clock | None = None, **requests: Any) -> Any:
    """A client of an API server that answers these requests so."""
    return SimpleNamespace(world=SimpleNamespace(clock=clock or SystemClock()), **requests)


def driver(
    ownership: RangeOwnership, take_over: Any, clock: Clock | None = None, **requests: Any
) -> RangeDriver:
    client = api(clock, **requests)
    unused: Any = None
    made = RangeDriver(SHARD, client, client, ownership, unused, take_over, 30.0)
    made._asked = dict.fromkeys(ownership.terms, 0.0)
    made._held = unused or SimpleNamespace(works_on=lambda _: None, sent=1, answered=1)
    return made


async def test_what_a_shard_has_begins_again_while_no_read_can_confirm_what_is_new() -> None:
    """Its drain has ended as the assignment is deleted, of which nothing can be read until somebody writes it anew."""
    ownership = heard(says("a@1", "b@1"))
    ownership.listed(ownership.terms)
    ownership.seen(says("a to b@2", "a@2"))
    taken = asyncio.Event()

    async def take_over(terms: Mapping[int, int], _: asyncio.TaskGroup) -> None:
        ownership.listed(terms)
        taken.set()

    async def fail(*_: object, **__: object) -> None:
        raise Unavailable("not now")

    made = driver(ownership, take_over, list_all=fail)
    async with asyncio.TaskGroup() as made._tasks:
        taking = made._tasks.create_task(made._take_over_on())
        made._do(ownership.unreadable("it was deleted"))
        await asyncio.wait_for(taken.wait(), 10)
        taking.cancel()
    assert (ownership.state(0), ownership.state(1)) == (State.OWNED, State.ACQUIRING)


@pytest.mark.parametrize(
    ("said", "waits"),
    [("uid/2:0-0@1/1", False), ("uid/2:1-1@2/2", True), ("uid/2:/3", True), ("", True), (BY_LABELS, False)],
)
@pytest.mark.parametrize("listed", [True, False], ids=["its Lease is listed", "its Lease was deleted"])
async def test_a_shard_takes_over_nothing_while_others_have_seen_what_is_later_than_the_assignment(
    said: str, waits: bool, listed: bool
) -> None:
    """It was restored, and the watch shows to this shard what others have had since. Or they take objects by labels,
    or would not see, if they began later, that it does not.
    """
    ownership, now = RangeOwnership("a", BUCKETS), says("b@1", "a@2")
    ownership.seen(now)

    async def list_all(*_: object, **__: object) -> list[Lease]:
        says = {"b": said, **({"a": "uid/2:/1"} if listed else {})}
        metas = [
            ObjectMeta(name=name, annotations={OWNED_RANGES_ANNOTATION: each}) for name, each in says.items()
        ]
        return [Lease(metadata=meta, spec=LeaseSpec(holder_identity=meta.name)) for meta in metas]

    async def get(*_: object) -> ConfigMap:
        return ConfigMap(metadata=ObjectMeta(resource_version="1"), data=now.data())

    made = driver(ownership, None, list_all=list_all, get=get)
    await made._confirm()
    assert bool(ownership.unconfirmed) is (waits or not listed)


@pytest.mark.parametrize("names", ["a", "b"])
@virtual_time
async def test_a_shard_that_is_named_begins_once_the_others_have_renewed_their_leases(names: str) -> None:
    """Just after a restore, what they say is as old as what the assignment says."""
    now, reads = says(f"{names}@1", "b@1"), 0

    async def list_all(*_: object, **__: object) -> list[Lease]:
        nonlocal reads
        reads += 1
        said = {"a": "uid/2:", "b": "uid/2:1-1@1/1" if reads < 3 else "uid/2:0-1@2/2"}
        return [
            Lease(
                metadata=ObjectMeta(name=each, annotations={OWNED_RANGES_ANNOTATION: text}),
                spec=LeaseSpec(holder_identity=each, renew_time=f"{reads // 3}"),
            )
            for each, text in said.items()
            if reads < 4 or each == "a"
        ]

    async def get(*_: object) -> ConfigMap:
        return ConfigMap(metadata=ObjectMeta(resource_version="1"), data=now.data())

    async def patch(*_: object) -> ConfigMap:
        return await get()

    await driver(RangeOwnership("a", BUCKETS), None, list_all=list_all, get=get, patch=patch)._reclaimed()
    assert reads == (4 if names == "a" else 1)


@virtual_time
async def test_that_a_shard_waits_for_others_to_renew_their_leases_is_told_once_it_takes_unusually_long(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """`alive` renews two seconds after the first read, and `ended` never."""
    begun, now = asyncio.get_running_loop().time(), says("a@1", "b@1")

    async def list_all(*_: object, **__: object) -> list[Lease]:
        renewed = asyncio.get_running_loop().time() - begun >= 2
        return [
            Lease(
                metadata=ObjectMeta(name=name, annotations={OWNED_RANGES_ANNOTATION: "uid/2:"}),
                spec=LeaseSpec(holder_identity=name, renew_time=str(int(renewed and name == "alive"))),
            )
            for name in ("a", "alive", "ended")
        ]

    async def get(*_: object) -> ConfigMap:
        return ConfigMap(metadata=ObjectMeta(resource_version="1"), data=now.data())

    async def patch(*_: object) -> ConfigMap:
        return await get()

    made = driver(RangeOwnership("a", BUCKETS), None, VirtualClock(), list_all=list_all, get=get, patch=patch)
    with caplog.at_level(logging.INFO):
        await made._reclaimed()
    (told,) = [each.__dict__["fields"] for each in caplog.records if each.msg.startswith("This shard waits")]
    assert (told["shards"], told["at_most"]) == ("ended", "12 s")
    assert asyncio.get_running_loop().time() - begun == 15


async def test_what_a_read_gives_to_another_shard_is_not_this_ones_also_if_it_confirms_nothing() -> None:
    """The watch would have brought the same, and may be late."""
    ownership, now, stopped = heard(says("a@1", "b@1")), says("b@5", "a@2"), set[int]()
    ownership.seen(says("a@1", "a@2"))

    async def list_all(*_: object, **__: object) -> list[Lease]:
        meta = ObjectMeta(name="b", annotations={OWNED_RANGES_ANNOTATION: "uid/2:1-1@3/5"})
        return [Lease(metadata=meta, spec=LeaseSpec(holder_identity="b"))]

    async def get(*_: object) -> ConfigMap:
        return ConfigMap(metadata=ObjectMeta(resource_version="1"), data=now.data())

    made = driver(ownership, None, list_all=list_all, get=get)
    made._runs = SimpleNamespace(cancel=stopped.update)  # type: ignore[assignment]
    await made._confirm()
    assert (ownership.state(0), stopped) == (State.FOREIGN, {0})
    assert ownership.unconfirmed.keys() == {1}


@pytest.mark.parametrize("listed", [True, False], ids=["", "while a kind cannot be listed"])
@virtual_time
async def test_what_is_not_by_the_rules_is_looked_at_again_as_the_watch_may_be_late(listed: bool) -> None:
    """A user has edited what nobody had heard of, so it was news to others, and to this shard it is none."""
    ownership, stopped, reads = heard(says("a@5", "b@1")), set[int](), 0

    async def list_all(*_: object, **__: object) -> list[Lease]:
        return []

    async def get(*_: object) -> ConfigMap:
        nonlocal reads
        reads += 1
        if reads == 1:
            raise Unavailable("not now")
        return ConfigMap(metadata=ObjectMeta(resource_version="9"), data=says("b@6", "b@1").data())

    async def take_over(*_: object) -> None:
        if not listed:
            await asyncio.Event().wait()

    made = driver(ownership, take_over, list_all=list_all, get=get)
    made._runs = SimpleNamespace(cancel=stopped.update)  # type: ignore[assignment]
    async with asyncio.TaskGroup() as made._tasks:
        taking = made._tasks.create_task(made._take_over_on())
        made._to_read.set()
        await asyncio.sleep(1)
        made._see(ConfigMap(metadata=ObjectMeta(resource_version="7"), data=says("b@5", "b@1").data()))
        await asyncio.sleep(10)
        taking.cancel()
    assert (ownership.state(0), stopped, reads) == (State.FOREIGN, {0}, 2)


@virtual_time
async def test_what_stays_against_the_rules_is_looked_at_once() -> None:
    """Until it has changed. The coordinator will write it anew."""
    ownership, reads = heard(says("a@5", "b@1")), list[str]()

    def edited(version: str) -> ConfigMap:
        return ConfigMap(metadata=ObjectMeta(resource_version=version), data=says("b@5", "b@1").data())

    async def list_all(*_: object, **__: object) -> list[Lease]:
        return []

    async def get(*_: object) -> ConfigMap:
        reads.append(made._version)
        return edited(made._version)

    async def take_over(*_: object) -> None: ...

    made = driver(ownership, take_over, list_all=list_all, get=get)
    async with asyncio.TaskGroup() as made._tasks:
        taking = made._tasks.create_task(made._take_over_on())
        for version in "789":
            made._see(edited(version))
            await asyncio.sleep(10)
        taking.cancel()
    assert (ownership.state(0), reads) == (State.ACQUIRING, ["7", "8", "9"])


async def test_no_read_confirms_what_an_acknowledgement_may_give_away_that_is_under_way() -> None:
    ownership = heard(says("a@1", "b@1"), says("a to b@2", "b@1"))
    ownership.idle({0})
    arrives, answered = asyncio.Event(), says("b@3", "b@1")

    async def patch(*_: object) -> ConfigMap:
        await arrives.wait()
        return ConfigMap(metadata=ObjectMeta(resource_version="5"), data=answered.data())

    async def get(*_: object) -> ConfigMap:
        assert arrives.is_set(), "it was asked too soon"
        return await patch()

    async def list_all(*_: object, **__: object) -> list[Lease]:
        return []

    made = driver(ownership, None, patch=patch, get=get, list_all=list_all)
    async with asyncio.TaskGroup() as made._tasks:
        made._assignment = says("a to b@2", "b@1")
        made._to_acknowledge.set()
        acknowledging = made._tasks.create_task(made._acknowledge_on())
        await asyncio.sleep(0)
        ownership.seen(says("a@3", "b@1"))
        confirming = made._tasks.create_task(made._confirm())
        await asyncio.sleep(0)
        arrives.set()
        await asyncio.wait_for(confirming, 10)
        acknowledging.cancel()
    assert ownership.state(0) is State.FOREIGN


async def test_no_read_is_sent_while_an_acknowledgement_is_under_way_that_follows_another_at_once() -> None:
    """... and what it was about is not asked for any more."""
    ownership = heard(says("a@1", "a@1"), says("a to b@2", "a to b@2"))
    ownership.idle({0})
    ownership.overdue()
    arrives, sent = [asyncio.Event(), asyncio.Event()], list[object]()

    async def patch(*_: object) -> ConfigMap:
        sent.append(_)
        if len(sent) == 2:
            ownership.seen(says("b@3", "a@4"))
        await arrives[len(sent) - 1].wait()
        return ConfigMap(metadata=ObjectMeta(resource_version="5"), data=says("b@3", "a to b@2").data())

    async def list_all(*_: object, **__: object) -> list[Lease]:
        assert len(sent) == 1 or arrives[1].is_set(), "it was asked too soon"
        return []

    async def get(*_: object) -> ConfigMap:
        return ConfigMap(metadata=ObjectMeta(resource_version="6"), data=says("b@3", "b@5").data())

    made = driver(ownership, None, patch=patch, get=get, list_all=list_all)
    async with asyncio.TaskGroup() as made._tasks:
        made._assignment = says("a to b@2", "a to b@2")
        made._to_acknowledge.set()
        acknowledging = made._tasks.create_task(made._acknowledge_on())
        await asyncio.sleep(0)
        confirming = made._tasks.create_task(made._confirm())
        await asyncio.sleep(0)
        ownership.idle({1})
        made._to_acknowledge.set()
        arrives[0].set()
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(sent) == 2
        arrives[1].set()
        await asyncio.wait_for(confirming, 10)
        acknowledging.cancel()


@virtual_time
async def test_what_is_read_after_an_acknowledgement_came_too_late_counts_at_once() -> None:
    ownership, stopped, asked = heard(says("a@1", "a@1"), says("a to b@2", "a@1")), set[int](), list[float]()
    ownership.idle({0})

    async def patch(*_: object) -> ConfigMap:
        asked.append(asyncio.get_running_loop().time())
        raise PatchTestFailed("something else was written")

    async def get(*_: object) -> ConfigMap:
        return ConfigMap(metadata=ObjectMeta(resource_version="5"), data=says("a to b@2", "c@5").data())

    made = driver(ownership, None, patch=patch, get=get)
    made._runs = SimpleNamespace(cancel=stopped.update)  # type: ignore[assignment]
    async with asyncio.TaskGroup() as made._tasks:
        made._assignment = says("a to b@2", "a@1")
        made._to_acknowledge.set()
        acknowledging = made._tasks.create_task(made._acknowledge_on())
        await asyncio.sleep(0.01)
        assert (stopped, len(asked)) == ({1}, 1)
        await asyncio.sleep(0.5)
        acknowledging.cancel()
    assert 4 <= len(asked) <= 6, "it is not asked again and again at once"


@virtual_time
async def test_what_no_read_confirms_is_asked_for_once_a_second_however_often_something_was_heard() -> None:
    """Each time, all Leases of the ring are listed."""
    ownership, asked = RangeOwnership("a", BUCKETS), 0
    ownership.seen(says("a@1", "b@1"))

    async def list_all(*_: object, **__: object) -> list[Lease]:
        nonlocal asked
        asked += 1
        raise Unavailable("not now")

    async def take_over(*_: object) -> None: ...

    made = driver(ownership, take_over, list_all=list_all)
    async with asyncio.TaskGroup() as made._tasks:
        taking = made._tasks.create_task(made._take_over_on())
        for _ in range(10):
            made._to_read.set()
            await asyncio.sleep(0.01)
        heard = asked
        await asyncio.sleep(10)
        taking.cancel()
    assert heard == 10
    assert 9 <= asked - heard <= 10


@virtual_time
async def test_a_shard_is_not_ready_while_the_assignment_is_an_object_of_somebody_else() -> None:
    """Nobody writes it anew, so nobody would work once a rolling update has replaced all who do."""
    found, told = [{"theirs": "yes"}, {"theirs": "yes"}, says("b@1", "b@1").data()], list[str]()

    async def get(*_: object) -> ConfigMap:
        return ConfigMap(data=found.pop(0))

    async def can_i(*_: object, **__: object) -> bool:
        return True

    await until_able(SHARD, api(get=get, can_i=can_i), BUCKETS, told.append)
    assert [each[:38] for each in told] == ["it cannot read the ConfigMap ranges-r:"] * 2 + [""]


@virtual_time
async def test_the_time_of_a_hand_over_begins_when_the_shard_is_asked_and_ends_when_a_bucket_is_anothers() -> (
    None
):
    """Whatever was answered to the acknowledgement, and whether another shard is to get it meanwhile."""
    ownership, took = heard(says("a@1", "a@1")), list[float]()

    async def patch(*_: object) -> ConfigMap:
        raise Unavailable("it takes effect nevertheless")

    made = driver(ownership, None, patch=patch)
    made._released = took.append

    def hears(version: int, *places: str) -> None:
        metadata = ObjectMeta(name="ranges-r", resource_version=str(version))
        made._see(ConfigMap(metadata=metadata, data=says(*places).data()))

    async with asyncio.TaskGroup() as made._tasks:
        acknowledging = made._tasks.create_task(made._acknowledge_on())
        made._runs = SimpleNamespace(busy=lambda bucket: False)  # type: ignore[assignment]
        hears(1, "a to b@2", "a@1")
        await asyncio.sleep(5)
        hears(2, "a to c@3", "a to b@3")
        await asyncio.sleep(2)
        hears(3, "c@4", "b@4")
        acknowledging.cancel()
    assert took == [7, 2]


async def not_found(*_: object) -> ConfigMap:
    raise NotFound("ranges-r")


async def test_a_shard_asks_at_once_whether_it_may_do_what_it_will_need() -> None:
    """One after the other, they kept each instance from being ready for four requests."""
    asked = asyncio.Semaphore(0)

    async def can_i(*_: object, **__: object) -> bool:
        asked.release()
        await asyncio.Event().wait()
        return True

    able = asyncio.create_task(until_able(SHARD, api(get=not_found, can_i=can_i), BUCKETS))
    async with asyncio.timeout(10):
        for _ in range(4):
            await asked.acquire()
    able.cancel()


@virtual_time
async def test_a_shard_is_ready_soon_after_its_rights_were_mended_and_asks_seldom_until_then() -> None:
    told, asked, loop = list[str](), 0, asyncio.get_running_loop()
    mended = loop.time() + 600

    async def get(*_: object) -> ConfigMap:
        nonlocal asked
        asked += 1
        return await not_found()

    async def can_i(verb: str, *_: object, **__: object) -> bool:
        nonlocal asked
        asked += 1
        return verb != "patch" or loop.time() >= mended

    await until_able(SHARD, api(get=get, can_i=can_i), BUCKETS, told.append)
    assert loop.time() - mended <= 2
    assert "may not patch configmaps ranges-r" in told[-2]
    assert asked <= 1.1 * 600


def configmap(version: int, *places: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(resource_version=str(version)), data=says(*places).data())


@pytest.mark.parametrize("final", [True, False], ids=["it was seen", "it was found missing"])
async def test_an_answer_that_comes_after_news_of_the_deletion_is_no_news(final: bool) -> None:
    ownership = heard(says("a@1", "b@1"), says("a to b@2", "b@1"))
    ownership.idle({0})
    asked, answer = asyncio.Event(), asyncio.get_running_loop().create_future()

    async def patch(*_: object) -> ConfigMap:
        asked.set()
        return await answer

    made, informer = driver(ownership, None, patch=patch), Mock(rewinds=0)
    written = configmap(2, "a to b@2", "b@1")
    async with asyncio.TaskGroup() as made._tasks:
        acknowledging = made._tasks.create_task(made._acknowledge_on())
        made._heard(informer, Added(written))
        await asyncio.wait_for(asked.wait(), 10)
        made._heard(informer, Deleted(configmap(4, "b@3", "b@1") if final else written, final=final))
        answer.set_result(configmap(3, "b@3", "b@1"))
        for _ in range(5):
            await asyncio.sleep(0)
        acknowledging.cancel()
    assert (made._assignment, ownership.state(0)) == (None, State.LEAVING)


async def test_what_is_written_after_a_restore_counts_although_the_former_object_was_newer() -> None:
    """What a list finds missing is told with the version that it had in the history that is lost."""
    made, informer = driver(heard(says("a@1", "b@1")), None), Mock(rewinds=0)
    former, anew = (
        ConfigMap(metadata=ObjectMeta(resource_version=version), data=says("a@1", "b@1").data())
        for version in ("100", "60")
    )
    made._heard(informer, Added(former))
    informer.rewinds = 1
    made._heard(informer, Deleted(former, final=False))
    made._heard(informer, Added(anew))
    assert made._assignment is not None


class Answers:
    """An API server with this assignment, and nothing on Leases, that answers when it may."""

    def __init__(self, found: ConfigMap | None) -> None:
        self.found = found
        self.may = asyncio.Event()
        self.may.set()
        self.changed = False
        self.reads = 0
        self.asked = asyncio.Event()

    async def list_all(self, *_: object, **__: object) -> list[Lease]:
        meta = ObjectMeta(name="a", annotations={OWNED_RANGES_ANNOTATION: "uid/2:/1"})
        return [Lease(metadata=meta, spec=LeaseSpec(holder_identity="a"))]

    async def get(self, *_: object) -> ConfigMap:
        self.reads += 1
        self.asked.set()
        found = self.found
        await self.may.wait()
        return found or await not_found()

    def driver(self, ownership: RangeOwnership, take_over: Any = None) -> RangeDriver:
        async def listed(terms: Mapping[int, int], _: asyncio.TaskGroup) -> None:
            ownership.listed(terms)

        made = driver(ownership, take_over or listed, list_all=self.list_all, get=self.get, patch=self.patch)
        made._runs = SimpleNamespace(cancel=lambda _: None, busy=lambda _: False)  # type: ignore[assignment]
        return made

    async def patch(self, *_: object) -> ConfigMap:
        if self.changed:
            raise PatchTestFailed("it says something else")
        return await self.get()


FORMER = configmap(110, "a@1", "b@1")


@pytest.mark.parametrize(
    ("heard_last", "restored"),
    [
        ([Deleted(FORMER), Added(configmap(105, "a to b@2", "b@1"))], configmap(105, "a to b@2", "b@1")),
        ([Updated(FORMER, configmap(105, "a@1", "b@0"), True)], configmap(105, "a@1", "b@0")),
        ([Deleted(configmap(105, "a@1", "b@0"), final=False)], None),
    ],
    ids=["deleted since", "changed since", "created since"],
)
@virtual_time
async def test_what_a_restore_has_put_back_counts_soon_also_if_no_list_shows_that_there_was_one(
    heard_last: list[Any], restored: ConfigMap | None
) -> None:
    """Other objects were written since, so that the list is no older than the last event. Nothing waits for ever."""
    server, informer = Answers(restored), Mock(rewinds=0)
    made = server.driver(heard(says("a@1", "b@1")))
    async with asyncio.TaskGroup() as made._tasks:
        taking = made._tasks.create_task(made._take_over_on())
        made._heard(informer, Added(FORMER))
        for delta in heard_last:
            made._heard(informer, delta)
        await asyncio.sleep(1.1)
        taking.cancel()
    assert made._assignment == (restored and Assignment.parse(restored.data))
    assert server.reads == 1


@virtual_time
async def test_what_a_late_acknowledgement_finds_that_a_restore_has_put_back_counts_at_once() -> None:
    ownership = heard(says("a@1", "b@1"), says("a to b@3", "b@1"))
    ownership.idle({0})
    server = Answers(configmap(105, "a@2", "b@1"))
    server.changed = True
    made = server.driver(ownership)
    async with asyncio.TaskGroup() as made._tasks:
        acknowledging = made._tasks.create_task(made._acknowledge_on())
        made._see(configmap(110, "a to b@3", "b@1"))
        await asyncio.sleep(0.01)
        acknowledging.cancel()
    assert made._version == "105"


@virtual_time
async def test_a_watch_that_is_late_costs_no_bucket_and_no_read_if_it_catches_up_within_a_second() -> None:
    """Nothing waits without need."""
    ownership = heard(says("a@1", "b@1"))
    ownership.listed(ownership.terms)
    server, informer = Answers(None), Mock(rewinds=0)
    made = server.driver(ownership)
    async with asyncio.TaskGroup() as made._tasks:
        taking = made._tasks.create_task(made._take_over_on())
        made._see(configmap(10, "a@1", "b@9"))
        for version in range(4, 11):
            made._heard(informer, Added(configmap(version, "a@1", f"b@{version - 1}")))
            assert ownership.state(0) is State.OWNED
            await asyncio.sleep(0.1)
        await asyncio.sleep(10)
        taking.cancel()
    assert (made._version, server.reads) == ("10", 0)


@virtual_time
async def test_a_watch_that_stays_late_costs_a_read_a_second_and_no_bucket() -> None:
    """Each answer is newer than the next event."""
    ownership = heard(says("a@1", "b@1"))
    ownership.listed(ownership.terms)
    server, informer = Answers(configmap(1000, "a@1", "b@9")), Mock(rewinds=0)
    made = server.driver(ownership)
    async with asyncio.TaskGroup() as made._tasks:
        taking = made._tasks.create_task(made._take_over_on())
        made._see(configmap(1000, "a@1", "b@9"))
        for version in range(100, 200):
            server.found = configmap(1000 + version, "a@1", f"b@{1000 + version}")
            made._heard(informer, Added(configmap(version, "a@1", f"b@{version}")))
            await asyncio.sleep(0.1)
            assert ownership.state(0) is State.OWNED
        taking.cancel()
    assert 8 <= server.reads <= 10


@pytest.mark.parametrize(
    ("under_way", "sent", "believed"),
    [(0, 1, True), (0, 2, False), (1, 0, True), (1, 1, False)],
    ids=["one renewal", "two renewals", "one was under way", "one was under way, and another one"],
)
@pytest.mark.parametrize("begins", [True, False], ids=["at the beginning", "later"])
@virtual_time
async def test_an_answer_that_took_two_renewals_gives_a_shard_nothing(
    under_way: int, sent: int, believed: bool, begins: bool
) -> None:
    """Others have concluded from them that it has nothing, and have got what it was given."""
    ownership, server = RangeOwnership("a", BUCKETS), Answers(configmap(5, "a@5", "b@1"))
    made = server.driver(ownership)
    held: Any = made._held
    held.sent += under_way
    server.may.clear()
    if begins:
        reading = asyncio.create_task(made._reclaimed())
    else:
        ownership.seen(says("a@5", "b@1"))
        reading = asyncio.create_task(made._confirm())  # type: ignore[arg-type]
    await asyncio.sleep(0.5)
    held.sent += sent
    server.may.set()
    await asyncio.sleep(0.1)
    given = reading.done() if begins else not ownership.unconfirmed
    assert given is believed
    held.answered = held.sent
    if not begins:
        await made._confirm()
    await asyncio.wait_for(reading, 10)
    assert begins or not ownership.unconfirmed


@virtual_time
async def test_what_is_heard_against_the_rules_while_a_read_is_under_way_is_looked_at_again() -> None:
    """The answer is older, and the watch is late: others work on the bucket."""
    ownership, informer = heard(says("a@5", "b@1")), Mock(rewinds=0)
    ownership.listed(ownership.terms)
    server = Answers(configmap(7, "a@5", "a@6"))
    made = server.driver(ownership)
    server.may.clear()
    async with asyncio.TaskGroup() as made._tasks:
        taking = made._tasks.create_task(made._take_over_on())
        made._heard(informer, Added(configmap(7, "a@5", "a@6")))
        await asyncio.wait_for(server.asked.wait(), 10)
        made._heard(informer, Added(configmap(8, "b@5", "a@6")))
        server.found = configmap(9, "b@7", "a@6")
        server.may.set()
        await asyncio.sleep(10)
        taking.cancel()
    assert (ownership.state(0), ownership.state(1)) == (State.FOREIGN, State.OWNED)
    assert server.reads == 2


def asked_for(runs: Any, buckets: int = 2) -> RangeDriver:
    """The driver of a shard that has all of these buckets, and is asked for them."""
    divided, ownership = Buckets(buckets), RangeOwnership("a", Buckets(buckets))
    for place in "a@1", "a to b@2":
        said = Assignment.of(divided, dict.fromkeys(range(buckets), Place.parse(place)))
        ownership.seen(said)
        ownership.confirm(ownership.unconfirmed, said)
    made = driver(ownership, None)
    made._runs = runs
    return made


async def test_a_failure_to_find_out_whether_a_bucket_is_idle_is_not_swallowed() -> None:
    """The bucket would stay with this shard for ever, and nobody would know why."""

    async def idle(bucket: int) -> None:
        await asyncio.sleep(0)
        raise RuntimeError("a defect")

    made = asked_for(SimpleNamespace(busy=lambda _: True, idle=idle))
    with pytest.raises(ExceptionGroup) as raised:
        async with asyncio.timeout(10), asyncio.TaskGroup() as made._tasks:
            made._tasks.create_task(made._drain(frozenset({0, 1})))
    assert raised.group_contains(RuntimeError, match="a defect")


async def test_buckets_that_become_idle_together_cost_one_report() -> None:
    """Each is made of all buckets, so a thousand that had daemons stopped the loop for seconds."""
    ended, reports = asyncio.Event(), list[str]()

    async def idle(bucket: int) -> None:
        await ended.wait()

    made = asked_for(SimpleNamespace(busy=lambda _: True, idle=idle), buckets=64)
    made._held = SimpleNamespace(works_on=reports.append, leaving=False)  # type: ignore[assignment]
    async with asyncio.TaskGroup() as made._tasks:
        draining = made._tasks.create_task(made._drain(frozenset(range(64))))
        await asyncio.sleep(0)
        reports.clear()
        ended.set()
        await asyncio.wait_for(draining, 10)
    assert len(reports) == 1
    assert len(made._ownership.leaving) == 64


@virtual_time
async def test_a_shard_that_may_not_write_any_more_does_not_take_that_for_a_faster_writer() -> None:
    """It would read what it is asked for ten times a second."""
    ownership = heard(says("a@1", "b@1"), says("a to b@2", "b@1"))
    ownership.idle({0})
    server = Answers(configmap(5, "a to b@2", "b@1"))

    async def patch(*_: object) -> ConfigMap:
        raise NotOurs("the Lease of this shard has expired")

    made = server.driver(ownership)
    made._client.patch = patch  # type: ignore[method-assign]
    async with asyncio.TaskGroup() as made._tasks:
        made._assignment = says("a to b@2", "b@1")
        made._to_acknowledge.set()
        acknowledging = made._tasks.create_task(made._acknowledge_on())
        await asyncio.sleep(0.9)
        acknowledging.cancel()
    assert server.reads == 0


@virtual_time
async def test_what_can_be_handed_over_soon_is_and_the_rest_in_few_writes_more() -> None:
    async def idle(bucket: int) -> None:
        await asyncio.sleep(bucket + 0.5)

    made, told = asked_for(SimpleNamespace(busy=lambda _: True, idle=idle), buckets=32), list[int]()
    made._held = SimpleNamespace(works_on=lambda _: None, leaving=True)  # type: ignore[assignment]
    async with asyncio.TaskGroup() as made._tasks:
        draining = made._tasks.create_task(made._drain(frozenset(range(32))))
        while not draining.done():
            await asyncio.sleep(0.25)
            told.append(len(made._ownership.leaving))
    assert sorted({*told}) == [0, 2, 6, 14, 30, 32]


@pytest.mark.parametrize("stops", [False, True])
@virtual_time
async def test_runs_that_keep_a_bucket_are_cancelled_and_named_unless_the_shard_stops(
    stops: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Then they have the grace period."""
    cancelled, ended = set[int](), asyncio.Event()

    async def idle(bucket: int) -> None:
        await ended.wait()

    runs = SimpleNamespace(busy=bool, idle=idle, cancel=cancelled.update, acting=lambda buckets: ["n/site"])
    made = asked_for(runs)
    made._held = SimpleNamespace(works_on=lambda _: None, leaving=stops)  # type: ignore[assignment]
    async with asyncio.TaskGroup() as made._tasks:
        made._tasks.create_task(made._drain(frozenset({0, 1})))
        await asyncio.sleep(29)
        assert not cancelled
        await asyncio.sleep(60)
        ended.set()
    assert cancelled == (set() if stops else {1})
    assert ("Cannot hand over buckets" in caplog.text) is not stops


@virtual_time
async def test_what_was_not_answered_is_acknowledged_again_a_second_later() -> None:
    ownership, asked = heard(says("a@1", "b@1"), says("a to b@2", "b@1")), list[float]()
    ownership.idle({0})

    async def patch(*_: object) -> ConfigMap:
        asked.append(asyncio.get_running_loop().time())
        if len(asked) == 1:
            raise Unavailable("not now")
        return configmap(5, "b@3", "b@1")

    made = driver(ownership, None, patch=patch)
    async with asyncio.TaskGroup() as made._tasks:
        made._assignment = says("a to b@2", "b@1")
        made._to_acknowledge.set()
        acknowledging = made._tasks.create_task(made._acknowledge_on())
        await asyncio.sleep(5)
        acknowledging.cancel()
    assert (ownership.state(0), asked[1] - asked[0]) == (State.FOREIGN, 1)


@virtual_time
async def test_who_is_slower_than_another_writer_reclaims_what_names_it_soon() -> None:
    begun, patched = asyncio.get_running_loop().time(), 0
    server = Answers(configmap(5, "a@1", "b@1"))

    async def patch(*_: object) -> ConfigMap:
        nonlocal patched
        patched += 1
        if patched == 1:
            raise PatchTestFailed("it says something else")
        return await server.get()

    made = server.driver(RangeOwnership("a", BUCKETS))
    made._client.patch = patch  # type: ignore[method-assign]
    assert await made._reclaimed() is not None
    assert asyncio.get_running_loop().time() - begun < 0.5


async def test_a_shard_is_ready_although_nobody_says_what_it_may() -> None:
    async def can_i(*_: object, **__: object) -> bool:
        raise Unavailable("not now")

    async with asyncio.timeout(10):
        await until_able(SHARD, api(get=not_found, can_i=can_i), BUCKETS)
