"""Anybody who may create Leases may label them: what a sharder keeps of them is bounded, in size and number."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeshard.cache.deltas import Added
from kubeshard.cache.transforms import arriving
from kubeshard.client import Client
from kubeshard.core import Lease, LeaseSpec, Namespace, ObjectMeta
from kubeshard.core.objects import Key, OwnerReference
from kubeshard.runtime.clock import SystemClock
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard.sharder.lease_observer import MOST, PROBE_INTERVAL, KeptLeases, LeaseObserver, Sort, kept
from kubeshard.sharding.assignment import Report
from kubeshard.sharding.buckets import Buckets
from kubeshard.sharding.members import member_of
from kubeshard.sharding.names import (
    EVICTED_ANNOTATION,
    INCARNATION_ANNOTATION,
    KINDS_ANNOTATION,
    OWNED_RANGES_ANNOTATION,
    PINNED_ANNOTATION,
    RING_LABEL,
    STATE_LABEL,
)
from kubeshard.sharding.shard_states import ShardStates
from kubeshard_lab.simulation.cluster import SimulatedCluster, Touch
from kubeshard_lab.virtual_time import VirtualClock, virtual_time

FAT = 240_000
LEASES = 40


def fat(number: int, ring: str, size: int = FAT) -> Lease:
    meta = ObjectMeta(
        name=f"fat-{number}",
        namespace="team",
        labels={RING_LABEL: ring, "other": "label"},
        annotations={"a": "x" * (size // 2), INCARNATION_ANNOTATION: "y" * (size // 2)},
    )
    return Lease(metadata=meta, spec=LeaseSpec(holder_identity=f"fat-{number}", lease_duration_seconds=60))


def test_of_a_lease_what_a_sharder_needs_is_kept_and_nothing_else() -> None:
    labels = {RING_LABEL: "r", STATE_LABEL: "ready", "team": "a"}
    annotations = {INCARNATION_ANNOTATION: "pod/x", EVICTED_ANNOTATION: "3", "note": "x" * FAT}
    owner = OwnerReference(api_version="v1", kind="Pod", name="p" * FAT, uid="u")
    meta = ObjectMeta(
        name="a",
        namespace="n",
        uid="u",
        resource_version="7",
        labels=labels,
        annotations=annotations,
        finalizers=("f" * FAT,),
        owner_references=(owner,),
    )
    spec = LeaseSpec(holder_identity="h" * FAT, lease_duration_seconds=15, renew_time="t", strategy="s" * FAT)
    found = kept(Lease(metadata=meta, spec=spec))
    assert found.metadata.labels == {RING_LABEL: "r", STATE_LABEL: "ready"}
    assert found.metadata.annotations == {INCARNATION_ANNOTATION: "pod/x", EVICTED_ANNOTATION: "3"}
    assert (found.metadata.uid, found.metadata.resource_version, found.key) == ("u", "7", Key("n", "a"))
    assert len(found.spec.holder_identity or "") < 1000
    assert not found.spec.strategy
    assert not found.metadata.finalizers
    assert not found.metadata.owner_references


@pytest.mark.parametrize(
    ("annotation", "said"),
    [
        (
            OWNED_RANGES_ANNOTATION,
            Report(dict.fromkeys(range(0, 2048, 2), 1767226371), 0).text(Buckets(2048)),
        ),
        (PINNED_ANNOTATION, ",".join(f"00000000-0000-4000-8000-{each:012}" for each in range(300))),
        (KINDS_ANNOTATION, ",".join(f"kinds{each}.long.group.example.com" for each in range(300))),
    ],
    ids=["buckets without neighbours", "pins", "kinds"],
)
def test_of_what_a_shard_says_about_its_share_as_much_is_kept_as_anybody_needs(
    annotation: str, said: str
) -> None:
    lease = Lease(metadata=ObjectMeta(name="a", annotations={annotation: said}))
    assert kept(lease).metadata.annotation(annotation) == said


def test_a_shard_whose_report_is_too_long_to_be_kept_is_not_one_that_works_on_nothing() -> None:
    """Its buckets would be taken without a proof. A program in another language may not join neighbours."""
    buckets = Buckets(2048)
    report = "".join(f"{each}-{each}@1767226371," for each in range(2048)).rstrip(",") + "/1767226371"
    meta = ObjectMeta(name="a", annotations={OWNED_RANGES_ANNOTATION: f"{buckets}:{report}"})
    member, problem = member_of(kept(Lease(metadata=meta)), buckets, available=True)
    assert (member.idle, member.by_labels, member.report) == (False, False, None)
    assert "a gets nothing: 'uid/2048:0-0@1767226371," in problem


@pytest.mark.parametrize("ring", ["nosuch", "r"])
@virtual_time
async def test_fat_leases_cost_a_sharder_a_few_kilobytes_each_whatever_ring_they_name(ring: str) -> None:
    async with SimulatedCluster() as world:
        await world.install()
        await world.make_ring()
        sharder = world.sharder("x0")
        world.shard("s0", Touch())
        await asyncio.sleep(20)
        manager = sharder.manager
        assert manager is not None
        async with world.admin() as client:
            for number in range(LEASES):
                await client.create(fat(number, ring))
        await asyncio.sleep(2 * PROBE_INTERVAL)
        for informer in manager.cache.informers:
            if informer.form.kind == Lease.KIND:
                stored = [lease for lease in informer.store.list() if lease.metadata.name.startswith("fat-")]
                assert len(stored) == LEASES
                for lease in stored:
                    assert sum(map(len, (lease.metadata.annotations or {}).values())) < 2000
        await world.make_things(4)
        await world.until(lambda: len(world.owners()) == 4, within=10)


PLACES, NAMES = ("team", "ops"), tuple(f"l{number}" for number in range(9))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(PLACES),
            st.sampled_from(NAMES),
            st.sampled_from(["r", "nosuch", "gone"]),
            st.sampled_from(["", "self"]),
        ),
        max_size=60,
    )
)
def test_of_a_namespace_so_many_leases_are_kept_whatever_becomes_of_them(
    steps: list[tuple[str, str, str, str]],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for sort in Sort:
            patch.setitem(MOST, sort, 2)
        leases, there = KeptLeases({"r"}, SystemClock()), dict[Key, Sort]()
        for namespace, name, ring, holder in steps:
            key = Key(namespace, name)
            there.pop(key, None)
            if ring == "gone":
                leases.forget(key)
                continue
            meta = ObjectMeta(name=name, namespace=namespace, labels={RING_LABEL: ring})
            sort = Sort.NO_RING if ring == "nosuch" else Sort.HELD if holder else Sort.NOT_HELD
            place = [key for key, other in there.items() if other is sort and key.namespace == namespace]
            keeps = leases.keeps(Lease(metadata=meta, spec=LeaseSpec(holder_identity=holder and name)))
            assert keeps is (len(place) < 2)
            if keeps:
                there[key] = sort
        assert len(leases.sorts) == len(there)
        leases.only({key for key in there if key.namespace == "ops"})
        assert len(leases.sorts) == sum(key.namespace == "ops" for key in there)


@pytest.mark.parametrize("first", ["the flood", "the sharder"])
@pytest.mark.parametrize("ring", ["nosuch", "r"])
@virtual_time
async def test_a_tenant_that_floods_leases_fills_no_memory_and_takes_no_shard_away(
    ring: str, first: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for sort in Sort:
        monkeypatch.setitem(MOST, sort, 5)
    async with SimulatedCluster() as world:
        await world.install()
        await world.make_ring()

        async def flood() -> None:
            async with world.admin() as client:
                await client.create(Namespace(metadata=ObjectMeta(name="a-tenant")))
                for number in range(LEASES):
                    lease = fat(number, ring, size=0)
                    meta = msgspec.structs.replace(lease.metadata, namespace="a-tenant")
                    await client.create(msgspec.structs.replace(lease, metadata=meta))

        if first == "the flood":
            await flood()
        sharder = world.sharder("x0", webhook=False)
        if first == "the sharder":
            await asyncio.sleep(PROBE_INTERVAL)
            await flood()
        world.shard("s0", Touch())
        world.shard("s1", Touch())
        await asyncio.sleep(4 * PROBE_INTERVAL)
        assert sharder.manager is not None
        for informer in sharder.manager.cache.informers:
            if informer.form.kind == Lease.KIND:
                kept = Counter(lease.metadata.namespace for lease in informer.store.list())
                assert kept == {"ops": 2, "a-tenant": 5}
        lines = [record for record in caplog.records if "too many Leases" in record.getMessage()]
        assert len(lines) == 1
        await world.make_things(40)
        await world.until(lambda: {"s0", "s1"} <= set(world.owners().values()), within=10)


@virtual_time
async def test_a_list_that_mends_a_slow_watch_is_decoded_as_its_bytes_arrive() -> None:
    """A page is read as a whole: five hundred Leases may be 120 MB."""
    async with SimulatedCluster() as world:
        await world.install()
        lists: list[str] = []

        def look(_: object, request: HttpRequest, answer: HttpResponse | None) -> None:
            if request.method == "GET" and "/leases?" in request.target and "watch=" not in request.target:
                lists.append(request.target)

        world.sharder("x0", webhook=False)
        await asyncio.sleep(10)
        world.observers.append(look)
        await asyncio.sleep(2 * PROBE_INTERVAL)
        assert lists
        assert not [target for target in lists if "limit=" in target]


@virtual_time
async def test_shards_whose_leases_were_there_before_their_ring_are_members_as_soon_as_there_is_one() -> None:
    async with SimulatedCluster() as world:
        await world.install()
        world.sharder("x0")
        for name in ("s0", "s1"):
            world.shard(name, Touch())
        await asyncio.sleep(30)
        await world.make_things(6)
        await world.make_ring()
        await world.until(lambda: world.all_owned("s0", "s1"), within=15)


@virtual_time
async def test_a_new_ring_has_all_its_shards_at_once_also_those_whose_leases_are_older_than_the_last_list() -> (
    None
):
    """Else all objects go to the others, and have to be moved again a moment later."""
    leases = [
        Lease(
            metadata=ObjectMeta(name=name, namespace="n", resource_version=version, labels={RING_LABEL: "r"}),
            spec=LeaseSpec(holder_identity=name, lease_duration_seconds=15, renew_time=version),
        )
        for name, version in (("s0", "102"), ("s1", "104"), ("s2", "105"))
    ]
    observer = LeaseObserver(cast(Client, _Listing(leases, "105")), VirtualClock())
    observer._informer = cast(Any, SimpleNamespace(full_reads=1, store=SimpleNamespace(list=lambda: leases)))
    await observer.relist()
    assert not observer.states.keys()
    observer.follow("r")
    assert observer.states.available("r", VirtualClock().monotonic()) == ("s0", "s1", "s2")
    assert observer.states.rewinds == 0


@virtual_time
async def test_a_ring_that_is_made_anew_while_the_watch_is_late_has_no_shard_whose_lease_is_gone() -> None:
    held = Lease(
        metadata=ObjectMeta(name="s0", namespace="n", resource_version="102", labels={RING_LABEL: "r"}),
        spec=LeaseSpec(holder_identity="s0", lease_duration_seconds=15, renew_time="1"),
    )
    observer = LeaseObserver(cast(Client, _Listing([], "105")), VirtualClock())
    observer.follow("r")
    await observer.relist()
    observer._informer = cast(Any, SimpleNamespace(full_reads=1, store=SimpleNamespace(list=lambda: [held])))
    observer.leave("r")
    observer.follow("r")
    assert observer.states.available("r", VirtualClock().monotonic()) == ()


@virtual_time
async def test_a_sharder_that_saw_too_many_leases_before_it_knew_their_rings_decides_nothing_before_it_has_all(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for sort, most in {Sort.HELD: 8, Sort.NOT_HELD: 4, Sort.NO_RING: 2}.items():
        monkeypatch.setitem(MOST, sort, most)
    names = {"a": ("s0", "s1"), "b": ("t0", "t1")}
    leases = [
        Lease(
            metadata=ObjectMeta(name=name, namespace="n", resource_version="1", labels={RING_LABEL: ring}),
            spec=LeaseSpec(holder_identity=name, lease_duration_seconds=15, renew_time="1"),
        )
        for ring in names
        for name in names[ring]
    ]
    clock = VirtualClock()
    observer = LeaseObserver(cast(Client, _Listing(leases, "2")), clock)
    keep = arriving(Lease, observer.transforms[Lease.KIND.group_kind])
    stored = [lease for lease in leases if keep(lease) is not None]
    observer._informer = cast(
        Any,
        SimpleNamespace(full_reads=1, store=SimpleNamespace(list=lambda: stored, metadata=lambda key: None)),
    )
    observer.states.heard(clock.monotonic())
    for ring in names:
        observer.follow(ring)
    await asyncio.sleep(1)
    observer.states.heard(clock.monotonic())
    assert not observer.states.fresh(clock.monotonic())
    await observer.relist()
    for ring in names:
        assert observer.states.available(ring, clock.monotonic()) == names[ring]
    assert observer.states.fresh(clock.monotonic())
    assert not caplog.messages


@virtual_time
async def test_a_sharder_looks_for_silence_only_when_there_may_be_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listing, looks = _Listing([], "2"), list[float]()
    observer, silence = LeaseObserver(cast(Client, listing), VirtualClock()), ShardStates.silence
    lease = Lease(
        metadata=ObjectMeta(name="s0", namespace="n", resource_version="1", labels={RING_LABEL: "r"})
    )

    def noted(self: ShardStates, now: float) -> float:
        looks.append(now)
        return silence(self, now)

    monkeypatch.setattr(ShardStates, "silence", noted)
    running = asyncio.create_task(observer.run())
    for _ in range(30):
        observer._heard(Added(lease))
        await asyncio.sleep(2)
    assert (listing.lists, len(looks)) == (12, 1 + 2 * 12), "before and after each list"
    await asyncio.sleep(30)
    assert listing.lists == 12 + 9
    running.cancel()


class _Listing:
    """An API server with these Leases; also the answer to a list."""

    def __init__(self, leases: list[Lease], version: str) -> None:
        self._leases, self.resource_version = leases, version
        self.lists = 0

    def list(self, *_: object, **__: object) -> _Listing:
        self.lists += 1
        return self

    async def __aiter__(self) -> AsyncIterator[Lease]:
        for lease in self._leases:
            yield lease
