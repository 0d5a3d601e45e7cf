"""A bucket is a range of hashes, and each object is in one."""

import hashlib
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeshard.core.objects import ObjectMeta
from kubeshard.sharder.lease_observer import LONGEST_REPORT
from kubeshard.sharding.buckets import MOST_BUCKETS, BucketRun, Buckets, runs_of

COUNTS = st.integers(0, 11).map(lambda power: 1 << power)


@given(COUNTS, st.uuids())
def test_the_api_server_selects_an_object_with_its_bucket_and_with_no_other(count: int, uid: object) -> None:
    buckets, metadata = Buckets(count), ObjectMeta(uid=str(uid), namespace="any")
    bucket = buckets.of(metadata)
    assert 0 <= bucket < count
    assert buckets.ranges([bucket]).selects(metadata)
    assert not buckets.ranges(set(range(count)) - {bucket}).selects(metadata)


def test_everything_in_a_namespace_is_in_one_bucket_if_that_is_hashed() -> None:
    buckets = Buckets(1024, "namespace")
    assert buckets.of(ObjectMeta(uid="1", namespace="a")) == buckets.of(ObjectMeta(uid="2", namespace="a"))
    assert buckets.of(ObjectMeta(uid="1", namespace="a")) == 0xAF63DC4C8601EC8C >> 54


def test_numbered_clusters_are_not_neighbours() -> None:
    """Those of API servers' hash would be."""
    for buckets, few in (Buckets(1024, "cluster"), False), (Buckets(1024, "namespace"), True):
        assert (len({buckets.of_key(f"prod-{number}") for number in range(10)}) < 3) is few


@pytest.mark.parametrize("count", [0, 3, 200, 100_000])
def test_a_lease_says_in_which_buckets_clusters_are_however_many_there_are(count: int) -> None:
    buckets = Buckets(MOST_BUCKETS, "cluster")
    names = {f"{number:063}" for number in range(count)}
    stated = buckets.stated(names)
    assert len(stated) <= LONGEST_REPORT
    assert buckets.clusters(stated) == (names if count < 100 else set(), set(map(buckets.of_key, names)))


def test_of_what_a_lease_says_of_clusters_only_runs_of_buckets_count() -> None:
    buckets = Buckets(64, "cluster")
    assert buckets.clusters("buckets:00-01,3,07-09x,63-63") == (set(), {0, 1, 63})


def test_the_clusters_that_all_leases_of_a_ring_state_are_hashed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A shard reads all Leases each time that it takes something over."""
    hashed, made = list[bytes](), Buckets(1024, "cluster")

    def sha256(key: bytes) -> Any:
        hashed.append(key)
        return hashlib.sha256(key)

    monkeypatch.setattr("kubeshard.sharding.buckets.sha256", sha256)
    assert len({made.clusters("not-stated-elsewhere-1,not-stated-elsewhere-2") for _ in range(5)}) == 1
    assert len(hashed) == 2


def test_what_is_pinned_has_to_be_the_name_of_a_cluster_in_a_ring_by_clusters() -> None:
    buckets = Buckets(1024, "cluster")
    pinned, wrong = buckets.pinned("eu, No_Cluster")
    assert pinned == {buckets.of_key("eu")}
    assert wrong == "No_Cluster is pinned, which is no name of a cluster, in a ring by clusters"


def test_neighbouring_buckets_are_one_range() -> None:
    assert len(Buckets(1024).ranges([7, 5, 6, 1000]).ranges) == 2
    assert Buckets(1024).ranges(range(1024)).ranges == ((0, 1 << 64),)


@given(st.sets(st.integers(0, 63)))
def test_runs_are_the_fewest_that_contain_the_buckets(buckets: set[int]) -> None:
    runs = runs_of(buckets)
    assert [bucket for run in runs for bucket in run.buckets] == sorted(buckets)
    assert all(before.last + 1 < after.first for before, after in pairwise(runs))


def test_a_run_is_written_so_that_texts_are_in_the_order_of_the_buckets() -> None:
    assert Buckets(1024).key(BucketRun(7, 341)) == "0007-0341"
    assert Buckets(16).key(BucketRun(7, 15)) == "07-15"
    assert Buckets(1).key(BucketRun(0, 0)) == "0-0"


@given(COUNTS.flatmap(lambda count: st.tuples(st.just(count), *[st.integers(0, count - 1)] * 2)))
def test_a_run_is_read_as_it_was_written(drawn: tuple[int, int, int]) -> None:
    count, *ends = drawn
    run = BucketRun(min(ends), max(ends))
    assert Buckets(count).run(Buckets(count).key(run)) == run


@pytest.mark.parametrize(
    "text", ["", "0", "0-5", "0000-1024", "0005-0004", "-001-0003", "0000_0003", "0000-0003 ", "٠٠٠٠-0003"]
)
def test_only_what_would_be_written_is_read_as_a_run(text: str) -> None:
    with pytest.raises(ValueError, match="not a run of the 1024 buckets"):
        Buckets(1024).run(text)


@pytest.mark.parametrize("count", [0, -4, 3, 1000, MOST_BUCKETS * 2])
def test_buckets_that_are_no_ranges_of_the_same_size_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match="power of two"):
        Buckets(count)


def test_only_what_the_api_server_hashes_can_be_hashed() -> None:
    with pytest.raises(ValueError, match="uid, namespace"):
        Buckets(1024, "name")  # type: ignore[arg-type]
