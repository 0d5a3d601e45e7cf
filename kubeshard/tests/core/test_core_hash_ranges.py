"""Hash ranges are the sets of hashes that they say, in the form that API servers take."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeshard.core.hash_ranges import HASHES, HashRange, HashRanges, fnv1a
from kubeshard.core.objects import ObjectMeta

EDGES = st.integers(0, 8).map(lambda part: part * HASHES // 8)
SETS = st.lists(st.tuples(EDGES, EDGES).filter(lambda pair: pair[0] < pair[1]), max_size=4).map(
    lambda ranges: HashRanges.of("uid", ranges)
)
PROBES = [
    probe for edge in range(0, HASHES + 1, HASHES // 8) for probe in (edge - 1, edge) if 0 <= probe < HASHES
]


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0xCBF29CE484222325),
        ("a", 0xAF63DC4C8601EC8C),
        ("foobar", 0x85944171F73967E8),
        ("b", 0xAF63DF4C8601F1A5),
    ],
)
def test_the_hash_is_fnv_1a(text: str, hashed: int) -> None:
    assert fnv1a(text) == hashed


def test_a_selector_is_written_as_api_servers_read_it() -> None:
    ranges = HashRanges.of("namespace", [(HASHES // 2, HASHES), (0, 0x10)])
    assert str(ranges) == (
        "shardRange(object.metadata.namespace, '0x0000000000000000', '0x0000000000000010') || "
        "shardRange(object.metadata.namespace, '0x8000000000000000', '0x10000000000000000')"
    )
    assert str(HashRanges("uid")) == ""


def test_an_object_is_selected_by_its_uid_or_by_its_namespace() -> None:
    metadata = ObjectMeta(name="n", namespace="a", uid="foobar")
    for field, hashed in ("uid", 0x85944171F73967E8), ("namespace", 0xAF63DC4C8601EC8C):
        assert HashRanges.of(field, [(hashed, hashed + 1)]).selects(metadata)  # type: ignore[arg-type]
        assert not HashRanges.of(field, [(hashed - 1, hashed), (hashed + 1, HASHES)]).selects(metadata)  # type: ignore[arg-type]


@given(SETS, SETS)
def test_union_intersection_and_difference_contain_the_hashes_that_they_should(
    one: HashRanges, other: HashRanges
) -> None:
    for probe in PROBES:
        assert (probe in one | other) == (probe in one or probe in other)
        assert (probe in one & other) == (probe in one and probe in other)
        assert (probe in one - other) == (probe in one and probe not in other)


@given(SETS, SETS)
def test_sets_with_the_same_hashes_are_equal(one: HashRanges, other: HashRanges) -> None:
    assert (one - other) | (one & other) == one
    assert (one == other) == all((probe in one) == (probe in other) for probe in PROBES)
    assert bool(one) == any(probe in one for probe in PROBES)


@pytest.mark.parametrize("bad", [(5, 5), (6, 5), (-1, 5), (0, HASHES + 1)])
def test_what_is_no_range_of_hashes_is_refused(bad: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="64-bit"):
        HashRanges.of("uid", [bad])


def test_sets_of_different_fields_are_not_mixed() -> None:
    with pytest.raises(ValueError, match="nothing in common"):
        HashRanges.everything("uid") | HashRanges.everything("namespace")


def test_everything_is_one_range() -> None:
    assert HashRanges.everything("uid").ranges == (HashRange(0, HASHES),)
