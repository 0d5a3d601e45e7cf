"""Hash ranges are the sets of hashes that they say, in the form that API servers take."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeshard.core.hash_ranges import HASHES, LONGEST, HashRange, HashRanges, LabelledHash, fnv1a
from kubeshard.core.objects import ObjectMeta
from kubeshard_apiserver.verbs.selectors import check_selectors

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


@pytest.mark.parametrize(
    ("runs", "selector"),
    [
        ([], ""),
        ([(0, 8)], "k"),
        ([(0, 3)], "k<3"),
        ([(5, 8)], "k>4"),
        ([(2, 5)], "k>1,k<5"),
        ([(0, 1), (7, 8)], "k in (0,7)"),
        ([(0, 3), (4, 8)], "k,k notin (3)"),
        ([(1, 4), (5, 8)], "k>0,k notin (4)"),
    ],
)
def test_a_share_by_labels_is_asked_for_with_a_short_label_selector_that_selects_exactly_it(
    runs: list[tuple[int, int]], selector: str
) -> None:
    size = HASHES // 8
    ranges = HashRanges.of(LabelledHash("k", 8), [(start * size, end * size) for start, end in runs])
    assert str(ranges) == selector
    for part in range(8):
        metadata = ObjectMeta(name="n", labels={"k": str(part)})
        expected = any(start <= part < end for start, end in runs)
        assert ranges.selects(metadata) is ranges.may_select(metadata) is expected
        if runs:
            assert check_selectors(selector, "")[0].matches(metadata.labels or {}) is expected
    for value in "8", "07", "x", "":
        assert not ranges.may_select(ObjectMeta(name="n", labels={"k": value}))
    assert not ranges.may_select(ObjectMeta(name="n"))


def test_a_server_is_asked_for_more_than_a_share_by_labels_whose_selector_would_be_too_long() -> None:
    for parts, most in (1024, 2020), (2048, LONGEST):
        size = HASHES // parts
        ranges = HashRanges.of(
            LabelledHash("k", parts), ((part * size, (part + 1) * size) for part in range(0, parts, 2))
        )
        assert most * 0.9 < len(str(ranges.asked)) <= most
        assert not ranges - ranges.asked


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
